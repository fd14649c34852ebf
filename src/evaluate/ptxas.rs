//! Runs ptxas on a rendering: text in, machine code and resources out. Every way that the tool can end is
//! a value: refused, over a limit, crashed, out of time. Only a tool that cannot be started is an error.
//! It may be called from many threads at once; it never decides how many.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::ptxas_output::{self, Report};
use crate::device::RigError;
use crate::toolchain::Ptxas;
use crate::toolchain::process::{self, Ending, Limits};
use crate::units::SmArch;
use crate::verdict::{Diagnostic, Resources, Severity, Verdict};

/// How long one file may take; the median is 20 ms, the worst seen in the wild hours.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The stage.
#[derive(Clone, Debug)]
pub struct Assembler {
    tool: Ptxas,
    time_limit: Duration,
}

/// How an assembly ended. Lines in diagnostics are those of the rendering.
#[derive(Clone, Debug)]
pub enum Assembly {
    /// Machine code.
    Cubin(Cubin),
    /// ptxas refused it; at least one error.
    Refused(Vec<Diagnostic>),
    /// More static shared memory than there is: which entry, wanted and allowed.
    OverLimits(String),
    /// ptxas crashed, hung, or ended well without writing a cubin.
    Failed(String),
}

/// Machine code and what ptxas said about it.
#[derive(Clone, Debug)]
pub struct Cubin {
    /// The ELF file: what is timed, profiled and exported.
    pub bytes: Arc<[u8]>,
    /// One for each entry.
    pub resources: Vec<Resources>,
    /// Warnings and performance advisories.
    pub advisories: Vec<Diagnostic>,
}

impl Cubin {
    /// Registers per thread, by entry.
    pub fn registers(&self) -> Vec<(String, u32)> {
        self.resources
            .iter()
            .map(|r| (r.entry.clone(), r.registers))
            .collect()
    }
}

impl Assembler {
    /// With [`TIME_LIMIT`].
    pub fn new(tool: Ptxas) -> Self {
        Self {
            tool,
            time_limit: TIME_LIMIT,
        }
    }

    /// With another time limit.
    pub fn with_time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// The tool it runs.
    pub fn tool(&self) -> &Ptxas {
        &self.tool
    }

    /// Assembles `ptx` for `arch`, with further options of ptxas (`--override-directive-values`).
    pub fn assemble(
        &self,
        ptx: &str,
        arch: SmArch,
        options: &[String],
    ) -> Result<Assembly, RigError> {
        let scratch = tempfile::Builder::new()
            .prefix("warptree-ptxas-")
            .tempdir()
            .map_err(|source| RigError::Io {
                context: "creating a scratch folder for ptxas".to_owned(),
                source,
            })?;
        let input = scratch.path().join("kernel.ptx");
        std::fs::write(&input, ptx).map_err(|source| RigError::Io {
            context: format!("writing {}", input.display()),
            source,
        })?;
        let done = self.run(scratch.path(), arch, options)?;
        let report = ptxas_output::parse(&done.stderr);
        if let Some(over) = report.over_shared.first() {
            return Ok(Assembly::OverLimits(format!(
                "entry `{}` declares {} bytes of static shared memory, {arch} allows {}; declare it \
                 `.extern .shared` and give the size as `smem=` of its launch",
                over.entry, over.wanted.0, over.allowed.0
            )));
        }
        match done.ending {
            Ending::Exited(status) if status.success() => {
                finish(&scratch.path().join("kernel.cubin"), report)
            }
            Ending::Exited(_) if done.ending.signal().is_none() => {
                Ok(Assembly::Refused(refusal(report, &done)))
            }
            Ending::Exited(_) | Ending::TimedOut(_) | Ending::Flooded(_) => {
                Ok(Assembly::Failed(failure(&done)))
            }
        }
    }

    fn run(
        &self,
        scratch: &Path,
        arch: SmArch,
        options: &[String],
    ) -> Result<process::Finished, RigError> {
        let mut command = Command::new(&self.tool.path);
        command
            .current_dir(scratch)
            .env("TMPDIR", scratch)
            .arg("-v")
            .arg(format!("-arch={arch}"))
            .args(options)
            .args(["kernel.ptx", "-o", "kernel.cubin"]);
        let limits = Limits {
            time: self.time_limit,
            output: 4 << 20,
        };
        process::run(&mut command, limits).map_err(|error| RigError::Tool {
            tool: "ptxas".to_owned(),
            message: format!("{} cannot be run: {error}", self.tool.path.display()),
        })
    }
}

impl Assembly {
    /// The verdict of an assembly that gave no machine code; lines go through `source_line`.
    pub fn into_cubin(
        self,
        source_line: impl Fn(u32) -> Option<u32>,
    ) -> Result<Cubin, Box<Verdict>> {
        let mapped = |diagnostics: Vec<Diagnostic>| -> Vec<Diagnostic> {
            diagnostics
                .into_iter()
                .map(|diagnostic| in_source(diagnostic, &source_line))
                .collect()
        };
        match self {
            Self::Cubin(mut cubin) => {
                cubin.advisories = mapped(cubin.advisories);
                Ok(cubin)
            }
            Self::Refused(diagnostics) => Err(Box::new(Verdict::Unassembled {
                diagnostics: mapped(diagnostics),
            })),
            Self::OverLimits(message) => Err(Box::new(Verdict::OverLimits { message })),
            Self::Failed(message) => Err(Box::new(Verdict::AssemblerFailed { message })),
        }
    }
}

/// A diagnostic about the rendering, told about the source.
pub fn in_source(
    mut diagnostic: Diagnostic,
    source_line: &dyn Fn(u32) -> Option<u32>,
) -> Diagnostic {
    diagnostic.line = diagnostic.line.and_then(source_line);
    diagnostic.other_line = diagnostic.other_line.and_then(source_line);
    diagnostic
}

fn finish(cubin: &Path, report: Report) -> Result<Assembly, RigError> {
    match std::fs::read(cubin) {
        Ok(bytes) if bytes.starts_with(b"\x7fELF") => Ok(Assembly::Cubin(Cubin {
            bytes: bytes.into(),
            resources: report.entries,
            advisories: report.advisories,
        })),
        Ok(_) => Ok(Assembly::Failed(
            "ptxas ended well, but what it wrote is no cubin".to_owned(),
        )),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Assembly::Failed(
            "ptxas ended well without writing a cubin".to_owned(),
        )),
        Err(source) => Err(RigError::Io {
            context: format!("reading {}", cubin.display()),
            source,
        }),
    }
}

/// The errors; where ptxas failed without one, what it wrote.
fn refusal(report: Report, done: &process::Finished) -> Vec<Diagnostic> {
    if report.errors.is_empty() {
        vec![Diagnostic {
            severity: Severity::Error,
            code: "ptxas".to_owned(),
            message: failure(done),
            line: None,
            other_line: None,
            help: None,
        }]
    } else {
        report.errors
    }
}

fn failure(done: &process::Finished) -> String {
    let said = excerpt(&done.stderr);
    if said.is_empty() {
        format!("ptxas {}", done.ending)
    } else {
        format!("ptxas {}: {said}", done.ending)
    }
}

/// The last few lines, bounded: enough to see why, small enough for a log.
fn excerpt(text: &str) -> String {
    const LINES: usize = 5;
    const CHARACTERS: usize = 500;
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let tail = lines[lines.len().saturating_sub(LINES)..].join(" / ");
    tail.chars().take(CHARACTERS).collect()
}
