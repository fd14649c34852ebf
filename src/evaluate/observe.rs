//! The tools that watch candidates run on a GPU, and for which candidates they are worth their seconds: a
//! profiler for those that take the lead, a memory checker for those about which a claim is made. On a
//! machine without the tools, or without the permission, it says so.

use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::profile::{self, LineMap, NcuError, NotProfiled, Profile, Profiler};
use super::ptxas::{Assembler, Assembly};
use super::sanitizer::{Check, Finding, Sanitizer};
use crate::device::{Device, Job, RigError};
use crate::ptx::{self, ir::Module};
use crate::toolchain::Places;
use crate::units::{Nanos, SmArch};
use crate::verdict::{Diagnostic, Severity};

/// A candidate takes the lead when it needs less than this share of the time of the last one profiled.
const LEAD: f64 = 0.95;

/// The option of ptxas that adds line numbers and leaves the code alone.
const LINES: &str = "-lineinfo";

/// Profiler and checker, or why there is none.
#[derive(Debug)]
pub struct Observers {
    profiler: Result<Profiler, String>,
    sanitizer: Result<Sanitizer, String>,
    /// The fastest profiled so far.
    lead: Mutex<Option<Nanos>>,
    /// What will not change by asking again.
    refused: OnceLock<String>,
}

/// What is watched.
#[derive(Clone, Copy)]
pub struct Watched<'a> {
    /// Runs it.
    pub device: &'a dyn Device,
    /// Assembled it.
    pub assembler: &'a Assembler,
    /// For this.
    pub arch: SmArch,
    /// With these.
    pub options: &'a [String],
    /// The rendering.
    pub ptx: &'a str,
    /// Its parse.
    pub module: &'a Module,
    /// What ptxas made of it.
    pub cubin: &'a [u8],
}

/// What a checker found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checked {
    /// Errors, with lines of the rendering where they are known; they void the candidate.
    pub errors: Vec<(Check, Diagnostic)>,
    /// Findings that may be the tool's.
    pub warnings: Vec<Diagnostic>,
    /// Checks done, in words.
    pub checked: Vec<String>,
    /// Checks that could not be done, in words.
    pub not_checked: Vec<String>,
}

impl Observers {
    /// Those of this machine.
    pub fn find(places: &Places) -> Self {
        Self::new(Profiler::find(places), Sanitizer::find(places))
    }

    /// With given tools, or the reasons why there are none.
    pub fn new(profiler: Result<Profiler, String>, sanitizer: Result<Sanitizer, String>) -> Self {
        Self {
            profiler,
            sanitizer,
            lead: Mutex::new(None),
            refused: OnceLock::new(),
        }
    }

    /// Leaves what the tools write in this folder.
    pub fn keeping(self, folder: &Path) -> Self {
        let folder = || folder.to_owned();
        Self {
            profiler: self.profiler.map(|profiler| profiler.keeping(folder())),
            sanitizer: self.sanitizer.map(|sanitizer| sanitizer.keeping(folder())),
            ..self
        }
    }

    /// Whether a call of this time is to be profiled while searching; it then is the one to beat.
    pub fn takes_the_lead(&self, time: Nanos) -> bool {
        let mut lead = self.lead.lock().unwrap_or_else(PoisonError::into_inner);
        let leads = lead.is_none_or(|lead| time.get() < LEAD * lead.get());
        if leads {
            *lead = Some(time);
        }
        leads
    }

    /// Profiles a call. The inner error is a sentence.
    pub fn profile(
        &self,
        watched: &Watched<'_>,
        job: &Job<'_>,
    ) -> Result<Result<Profile, String>, RigError> {
        let profiler = match (&self.profiler, self.refused.get()) {
            (Err(reason), _) => return Ok(Err(reason.clone())),
            (Ok(_), Some(reason)) => return Ok(Err(reason.clone())),
            (Ok(profiler), None) => profiler,
        };
        let lines = watched.lines()?;
        let Some(reserved) = watched.device.reserve() else {
            return Ok(Err("it did not run on a GPU of this machine".to_owned()));
        };
        let subject = profile::Subject {
            job: *job,
            lines: lines.as_ref(),
        };
        let gpu = watched.device.gpu();
        let profiles = profiler.profile(reserved.ordinal, gpu, &[subject])?;
        drop(reserved);
        Ok(match profiles.into_iter().next() {
            Some(Ok(profile)) => Ok(profile),
            Some(Err(error)) => {
                let lasting = matches!(
                    error,
                    NotProfiled::UnknownArchitecture(_)
                        | NotProfiled::Ncu(NcuError::NotPermitted | NcuError::UnknownMetric(_))
                );
                let reason = error.to_string();
                if lasting {
                    let _the_first_stays = self.refused.set(reason.clone());
                }
                Err(reason)
            }
            None => Err("ncu was not asked".to_owned()),
        })
    }

    /// Launches calls under each tool of the checker.
    pub fn check(&self, watched: &Watched<'_>, jobs: &[Job<'_>]) -> Result<Checked, RigError> {
        let mut all = Checked::default();
        let sanitizer = match &self.sanitizer {
            Ok(sanitizer) => sanitizer,
            Err(reason) => {
                all.not_checked
                    .push(format!("memory, races and barriers by tools: {reason}"));
                return Ok(all);
            }
        };
        let lines = watched.lines()?;
        let advisory = copies_in_bulk(watched.module);
        let Some(reserved) = watched.device.reserve() else {
            all.not_checked
                .push("memory, races and barriers by tools: this is no GPU".to_owned());
            return Ok(all);
        };
        for check in Check::ALL {
            let findings = match sanitizer.check(check, reserved.ordinal, jobs)? {
                Ok(findings) => findings,
                Err(reason) => {
                    all.not_checked
                        .push(format!("{}: {reason}", sanitizer.name()));
                    continue;
                }
            };
            all.checked.push(format!(
                "{} {}: {} findings{}",
                sanitizer.name(),
                check.tool(),
                findings.len(),
                if advisory {
                    ", advisory with bulk copies"
                } else {
                    ""
                }
            ));
            for finding in findings {
                let told = diagnostic(check, &finding, lines.as_ref(), advisory);
                if told.severity == Severity::Error {
                    all.errors.push((check, told));
                } else {
                    all.warnings.push(told);
                }
            }
        }
        Ok(all)
    }
}

impl Watched<'_> {
    /// Lines of the machine code; `None` where line numbers would change it.
    fn lines(&self) -> Result<Option<LineMap>, RigError> {
        let mut options = self.options.to_vec();
        options.push(LINES.to_owned());
        let assembly = self.assembler.assemble(self.ptx, self.arch, &options)?;
        Ok(match assembly {
            Assembly::Cubin(described) => LineMap::new(self.cubin, &described.bytes),
            Assembly::Refused(_) | Assembly::OverLimits(_) | Assembly::Failed(_) => None,
        })
    }
}

fn diagnostic(
    check: Check,
    finding: &Finding,
    lines: Option<&LineMap>,
    advisory: bool,
) -> Diagnostic {
    let line = |nth: usize| {
        let (entry, offset) = finding.places.get(nth)?;
        lines?.line(entry, *offset)
    };
    let help = match check {
        Check::Memory => "check index arithmetic and bounds at the tail",
        Check::Races => "a barrier is missing between these accesses to shared memory",
        Check::Barriers => "let all threads that the barrier counts reach it",
    };
    Diagnostic {
        severity: if finding.warning || advisory {
            Severity::Warning
        } else {
            Severity::Error
        },
        code: check.tool().to_owned(),
        message: finding.message.clone(),
        line: line(0),
        other_line: line(1),
        help: Some(help.to_owned()),
    }
}

/// The checker does not follow bulk copies and their mbarriers: what it says of such kernels is advice.
fn copies_in_bulk(module: &Module) -> bool {
    let bulk = ["cp.async.bulk", "cp.reduce.async.bulk", "tcgen05"].map(str::to_owned);
    !ptx::forbidden(module, &[], &bulk, "").is_empty()
}
