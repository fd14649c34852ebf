//! Profiles candidates with Nsight Compute: a batch of calls in one run of ncu, whose rows become typed
//! numbers, and those a [`Diagnosis`](crate::verdict::Diagnosis). What ncu does not tell is no profile,
//! with the reason; it never judges a kernel by itself.

mod advice;
mod counters;
mod diagnose;
mod line_map;
mod metrics;
mod ncu_output;
mod slots;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub use counters::{Hot, Launch, Limits, Place, Profile};
pub use diagnose::diagnose;
pub use line_map::LineMap;
pub use metrics::MetricSet;
pub use ncu_output::{NcuError, Replay, Row, failure, parse};

use crate::device::cuda::{WorkerCommand, replay};
use crate::device::{Gpu, Job, RigError};
use crate::toolchain::process::{self, Limits as ProcessLimits};
use crate::toolchain::{self, Found, Observer, Places};

/// Start of ncu, of the program and of its context.
const START: Duration = Duration::from_secs(60);

/// All passes over one call.
const EACH: Duration = Duration::from_secs(60);

/// Most that ncu may write: values by address of large kernels are long.
const OUTPUT: u64 = 256 << 20;

/// What is to be profiled.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The call, with the cubin that is timed.
    pub job: Job<'a>,
    /// Lines of its machine code, where they are known.
    pub lines: Option<&'a LineMap>,
}

/// Why a call has no profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotProfiled {
    /// The tool's own word.
    #[error(transparent)]
    Ncu(#[from] NcuError),
    /// No counters are listed for this GPU.
    #[error("no counters are listed for {0}")]
    UnknownArchitecture(String),
    /// The call did not run, or what came is not of this call.
    #[error("{0}")]
    Call(String),
}

/// An ncu that is installed, and the program that launches calls under it.
#[derive(Clone, Debug)]
pub struct Profiler {
    ncu: Found,
    runner: WorkerCommand,
    keep: Option<PathBuf>,
}

impl Profiler {
    /// Finds ncu. The error is a sentence for people.
    pub fn find(places: &Places) -> Result<Self, String> {
        let named = std::env::var_os(Observer::Ncu.variable()).map(Into::into);
        let ncu = toolchain::observer(Observer::Ncu, named, places)?;
        let runner = WorkerCommand::replaying().map_err(|e| format!("this program: {e}"))?;
        Ok(Self::new(ncu, runner))
    }

    /// With a given ncu and runner.
    pub fn new(ncu: Found, runner: WorkerCommand) -> Self {
        Self {
            ncu,
            runner,
            keep: None,
        }
    }

    /// Leaves what ncu writes in this folder, as `ncu-N.log`.
    pub fn keeping(self, folder: PathBuf) -> Self {
        Self {
            keep: Some(folder),
            ..self
        }
    }

    /// `ncu 2025.3.1.0`.
    pub fn name(&self) -> String {
        format!("ncu {}", self.ncu.version)
    }

    /// Profiles each subject once on GPU `ordinal`, which nobody else uses meanwhile; caches are flushed
    /// before each launch. One that breaks costs the others a further run of ncu, nothing else.
    pub fn profile(
        &self,
        ordinal: u32,
        gpu: &Gpu,
        subjects: &[Subject<'_>],
    ) -> Result<Vec<Result<Profile, NotProfiled>>, RigError> {
        let Some(set) = MetricSet::of(gpu.arch) else {
            let unknown = NotProfiled::UnknownArchitecture(gpu.arch.to_string());
            return Ok(subjects.iter().map(|_| Err(unknown.clone())).collect());
        };
        let mut ask = Ask {
            by_address: subjects.iter().any(|subject| subject.lines.is_some()),
            replay: Replay::Kernel,
        };
        let mut all = Vec::with_capacity(subjects.len());
        while all.len() < subjects.len() {
            let rest = &subjects[all.len()..];
            match self.run(ordinal, &set, rest, ask)? {
                Batch::Some(profiles) => {
                    all.extend(profiles);
                    ask.replay = Replay::Kernel;
                }
                // values by address are a help, not a condition
                Batch::Nothing(NcuError::UnknownMetric(_) | NcuError::Failed(_))
                    if ask.by_address =>
                {
                    ask.by_address = false;
                }
                Batch::Nothing(NcuError::ReplayFailed(_)) if ask.replay == Replay::Kernel => {
                    ask.replay = Replay::Application;
                }
                Batch::Nothing(error @ NcuError::ReplayFailed(_)) => {
                    all.push(Err(error.into()));
                    ask.replay = Replay::Kernel;
                }
                Batch::Nothing(error) => {
                    all.resize(subjects.len(), Err(error.into()));
                }
            }
        }
        Ok(all)
    }

    /// One run of ncu. It says something of at least the first subject.
    fn run(
        &self,
        ordinal: u32,
        set: &MetricSet,
        subjects: &[Subject<'_>],
        ask: Ask,
    ) -> Result<Batch, RigError> {
        let io = |doing: &str| {
            let context = format!("{doing} for ncu");
            move |source| RigError::Io { context, source }
        };
        let scratch = tempfile::Builder::new()
            .prefix("warptree-ncu-")
            .tempdir()
            .map_err(io("creating a scratch folder"))?;
        let file = |name: &str| scratch.path().join(name);
        let (calls, log, report) = (file("calls"), file("log.csv"), file("report.json"));
        let jobs: Vec<Job<'_>> = subjects.iter().map(|subject| subject.job).collect();
        match replay::write(&calls, ordinal, &jobs) {
            Ok(()) => {}
            Err(replay::WriteError::Job { job: 0, message }) => {
                return Ok(Batch::Some(vec![Err(NotProfiled::Call(message))]));
            }
            Err(replay::WriteError::Job { job, .. }) => {
                return self.run(ordinal, set, &subjects[..job], ask);
            }
            Err(replay::WriteError::Io(error)) => return Err(io("writing calls")(error)),
        }
        let mut command = Command::new(&self.ncu.path);
        command
            .args(arguments(set, ask, &log))
            .arg(&self.runner.program)
            .args(&self.runner.arguments)
            .arg(&calls)
            .arg("--report")
            .arg(&report)
            .env("TMPDIR", scratch.path())
            .env("LC_ALL", "C");
        let limits = ProcessLimits {
            time: START + EACH * u32::try_from(subjects.len()).unwrap_or(u32::MAX),
            output: OUTPUT,
        };
        let done = process::run(&mut command, limits).map_err(|error| RigError::Tool {
            tool: "ncu".to_owned(),
            message: format!("{} cannot be run: {error}", self.ncu.path.display()),
        })?;
        let mut said = read_log(&log, OUTPUT);
        for stream in [&done.stdout, &done.stderr] {
            said.push('\n');
            said.push_str(stream);
        }
        if let Some(folder) = &self.keep {
            keep(folder, "ncu", &said).map_err(io("keeping the log"))?;
        }
        let progress = replay::progress(&report);
        let rows = match parse(&said) {
            Ok(rows) => rows,
            Err(NcuError::Failed(text)) if !done.ending.success() => {
                let text = progress.failed.unwrap_or(text);
                return Ok(Batch::Nothing(NcuError::Failed(format!(
                    "{} ({text})",
                    done.ending
                ))));
            }
            Err(error) => return Ok(Batch::Nothing(error)),
        };
        let failed = failure(&said)
            .map(NotProfiled::Ncu)
            .or_else(|| progress.failed.map(NotProfiled::Call));
        Ok(sorted(&self.name(), set, subjects, ask, &rows, failed))
    }
}

/// What is asked of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ask {
    by_address: bool,
    replay: Replay,
}

/// What a run gave.
enum Batch {
    /// Profiles of the first subjects, one at least.
    Some(Vec<Result<Profile, NotProfiled>>),
    /// No numbers at all.
    Nothing(NcuError),
}

fn arguments(set: &MetricSet, ask: Ask, log: &Path) -> Vec<OsString> {
    let mut metrics: Vec<String> = set.hardware().into_iter().map(str::to_owned).collect();
    metrics.extend(set.derived().into_iter().map(str::to_owned));
    if ask.by_address {
        metrics.extend(set.by_address());
    }
    let replay = match ask.replay {
        Replay::Kernel => "kernel",
        Replay::Application => "application",
    };
    let fixed = [
        "--csv",
        "--page",
        "raw",
        "--print-units",
        "base",
        "--print-fp",
        "--print-kernel-base",
        "mangled",
        "--print-metric-instances",
        "details",
        "--clock-control",
        "none",
        "--cache-control",
        "all",
        "--replay-mode",
        replay,
        "--metrics",
    ];
    let mut arguments: Vec<OsString> = fixed.map(OsString::from).to_vec();
    arguments.push(metrics.join(",").into());
    arguments.extend(["--log-file".into(), log.into(), "--".into()]);
    arguments
}

/// Writes `FOLDER/NAME-N.log` with the first free N.
pub(super) fn keep(folder: &Path, name: &str, text: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let path = (0..)
        .map(|n: u32| folder.join(format!("{name}-{n}.log")))
        .find(|path| !path.exists());
    match path {
        Some(path) => std::fs::write(path, text),
        None => Ok(()),
    }
}

fn read_log(log: &Path, limit: u64) -> String {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    // no log is a log without rows: what ncu said elsewhere tells why
    if let Ok(file) = std::fs::File::open(log) {
        let _as_far_as_it_goes = file.take(limit).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Gives rows to the calls that made them: in order, with the right names and sizes, each launch once.
/// `failed`: why there are not enough.
fn sorted(
    tool: &str,
    set: &MetricSet,
    subjects: &[Subject<'_>],
    ask: Ask,
    rows: &[Row],
    failed: Option<NotProfiled>,
) -> Batch {
    let mut left = rows;
    let mut profiles = Vec::new();
    for subject in subjects {
        let wanted = &subject.job.plan.launches;
        if left.len() < wanted.len() {
            if let (Some(NotProfiled::Ncu(error @ NcuError::ReplayFailed(_))), Replay::Kernel) =
                (&failed, ask.replay)
            {
                // it gets a run of its own, in which the program is replayed instead
                return if profiles.is_empty() {
                    Batch::Nothing(error.clone())
                } else {
                    Batch::Some(profiles)
                };
            }
            let why = failed.clone().unwrap_or_else(|| {
                NotProfiled::Call(format!(
                    "ncu gave {} rows for {} launches",
                    left.len(),
                    wanted.len()
                ))
            });
            profiles.push(Err(why));
            return Batch::Some(profiles);
        }
        let (own, rest) = left.split_at(wanted.len());
        left = rest;
        let stranger = std::iter::zip(own, wanted).find(|(row, launch)| {
            row.kernel != launch.entry
                || row.grid != Some(launch.grid)
                || row.block != Some(launch.block)
        });
        if let Some((row, launch)) = stranger {
            let text = format!(
                "ncu gave a row of `{}`, grid {:?}, block {:?}, where `{}`, grid {:?}, block {:?} was launched",
                row.kernel, row.grid, row.block, launch.entry, launch.grid, launch.block
            );
            // what follows cannot be told apart any more
            profiles.resize(subjects.len(), Err(NotProfiled::Call(text)));
            return Batch::Some(profiles);
        }
        profiles.push(profile(tool, set, subject, ask, own));
    }
    if !left.is_empty() {
        let text = format!("ncu gave {} rows more than there were launches", left.len());
        profiles = vec![Err(NotProfiled::Call(text)); subjects.len()];
    }
    Batch::Some(profiles)
}

fn profile(
    tool: &str,
    set: &MetricSet,
    subject: &Subject<'_>,
    ask: Ask,
    rows: &[Row],
) -> Result<Profile, NotProfiled> {
    let lines = subject.lines.filter(|_| ask.by_address);
    let launches = rows
        .iter()
        .map(|row| Launch::read(row, set, lines))
        .collect::<Result<Vec<Launch>, String>>()
        .map_err(NotProfiled::Call)?;
    // this ncu leaves out in silence what it does not know
    let located = lines.is_some()
        && rows
            .iter()
            .all(|row| !row.instances(&set.lines.executed).is_empty());
    let missing = if !located {
        vec!["lines of conflicts and stalls".to_owned()]
    } else {
        Vec::new()
    };
    Ok(Profile {
        tool: tool.to_owned(),
        launches,
        missing,
    })
}
