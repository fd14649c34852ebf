//! Calls under a tool that watches them: this program launches them in a process of its own, which the tool runs, and
//! what was said comes back. It understands nothing of it.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::device::cuda::{WorkerCommand, replay};
use crate::device::{Job, RigError};
use crate::toolchain::process::{self, Ending, Limits};
use crate::toolchain::{self, Found, Observer, Places};

/// A tool that is installed, and the program that launches calls under it.
#[derive(Clone, Debug)]
pub(super) struct Watcher {
    tool: Observer,
    found: Found,
    runner: WorkerCommand,
    /// Where what it writes is left.
    pub keep: Option<PathBuf>,
}

/// What came of a run.
pub(super) struct Said {
    /// Its log, then both its streams.
    pub text: String,
    /// How it ended.
    pub ending: Ending,
    /// Why a call broke off.
    pub failed: Option<String>,
}

/// A job whose launches do not fit its entries, by its place in the list, and why.
pub(super) type Misfit = (usize, String);

impl Watcher {
    /// Finds it. The error is a sentence for people.
    pub fn find(tool: Observer, places: &Places) -> Result<Self, String> {
        let named = std::env::var_os(tool.variable()).map(Into::into);
        let found = toolchain::observer(tool, named, places)?;
        let runner = WorkerCommand::replaying().map_err(|e| format!("this program: {e}"))?;
        Ok(Self::new(tool, found, runner))
    }

    /// With a given executable and runner.
    pub fn new(tool: Observer, found: Found, runner: WorkerCommand) -> Self {
        Self {
            tool,
            found,
            runner,
            keep: None,
        }
    }

    /// `ncu 2025.3.1.0`.
    pub fn name(&self) -> String {
        format!("{} {}", self.tool.name(), self.found.version)
    }

    /// Launches the calls on GPU `ordinal`, which nobody else uses meanwhile. `arguments` are the tool's, given where
    /// it is to write its log; `kept` names the file that is left of it.
    pub fn run(
        &self,
        ordinal: u32,
        jobs: &[Job<'_>],
        arguments: impl FnOnce(&Path) -> Vec<OsString>,
        limits: Limits,
        kept: &str,
    ) -> Result<Result<Said, Misfit>, RigError> {
        let tool = self.tool.name();
        let io = |doing: &str| {
            let context = format!("{doing} for {tool}");
            move |source| RigError::Io { context, source }
        };
        let scratch = tempfile::Builder::new()
            .prefix("warptree-watched-")
            .tempdir()
            .map_err(io("creating a scratch folder"))?;
        let file = |name: &str| scratch.path().join(name);
        let (calls, log, report) = (file("calls"), file("log"), file("report.json"));
        match replay::write(&calls, ordinal, jobs) {
            Ok(()) => {}
            Err(replay::WriteError::Job { job, message }) => return Ok(Err((job, message))),
            Err(replay::WriteError::Io(error)) => return Err(io("writing calls")(error)),
        }
        let mut command = Command::new(&self.found.path);
        command
            .args(arguments(&log))
            .arg(&self.runner.program)
            .args(&self.runner.arguments)
            .arg(&calls)
            .arg("--report")
            .arg(&report)
            .env("TMPDIR", scratch.path())
            .env("LC_ALL", "C");
        let done = process::run(&mut command, limits).map_err(|error| RigError::Tool {
            tool: tool.to_owned(),
            message: format!("{} cannot be run: {error}", self.found.path.display()),
        })?;
        let log = read(&log, limits.output);
        let text = [log, done.stdout, done.stderr].join("\n");
        if let Some(folder) = &self.keep {
            keep(folder, kept, &text).map_err(io("keeping the log"))?;
        }
        Ok(Ok(Said {
            text,
            ending: done.ending,
            failed: replay::progress(&report).failed,
        }))
    }
}

/// No log is a log without anything in it: what the tool said elsewhere tells why.
fn read(log: &Path, limit: u64) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = std::fs::File::open(log) {
        let _as_far_as_it_goes = file.take(limit).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Writes `FOLDER/NAME-N.log` with the first free N.
fn keep(folder: &Path, name: &str, text: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let path = (0..)
        .map(|n: u32| folder.join(format!("{name}-{n}.log")))
        .find(|path| !path.exists());
    match path {
        Some(path) => std::fs::write(path, text),
        None => Ok(()),
    }
}
