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
use std::time::Duration;

pub use counters::{Hot, Launch, Limits, Place, Profile};
pub use diagnose::diagnose;
pub use line_map::LineMap;
pub use metrics::MetricSet;
pub use ncu_output::{NcuError, Replay, Row, failure, parse};

use super::watcher::Watcher;
use crate::device::cuda::WorkerCommand;
use crate::device::{Gpu, Job, RigError};
use crate::toolchain::process::Limits as ProcessLimits;
use crate::toolchain::{Found, Observer, Places};

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
pub struct Profiler(Watcher);

impl Profiler {
    /// Finds ncu. The error is a sentence for people.
    pub fn find(places: &Places) -> Result<Self, String> {
        Watcher::find(Observer::Ncu, places).map(Self)
    }

    /// With a given ncu and runner.
    pub fn new(ncu: Found, runner: WorkerCommand) -> Self {
        Self(Watcher::new(Observer::Ncu, ncu, runner))
    }

    /// Leaves what ncu writes in this folder, as `ncu-N.log`.
    pub fn keeping(mut self, folder: PathBuf) -> Self {
        self.0.keep = Some(folder);
        self
    }

    /// `ncu 2025.3.1.0`.
    pub fn name(&self) -> String {
        self.0.name()
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
        let jobs: Vec<Job<'_>> = subjects.iter().map(|subject| subject.job).collect();
        let limits = ProcessLimits {
            time: START + EACH * u32::try_from(subjects.len()).unwrap_or(u32::MAX),
            output: OUTPUT,
        };
        let arguments = |log: &Path| arguments(set, ask, log);
        let said = match self.0.run(ordinal, &jobs, arguments, limits, "ncu")? {
            Ok(said) => said,
            Err((0, message)) => return Ok(Batch::Some(vec![Err(NotProfiled::Call(message))])),
            Err((job, _)) => return self.run(ordinal, set, &subjects[..job], ask),
        };
        let rows = match parse(&said.text) {
            Ok(rows) => rows,
            Err(NcuError::Failed(text)) if !said.ending.success() => {
                let text = said.failed.unwrap_or(text);
                return Ok(Batch::Nothing(NcuError::Failed(format!(
                    "{} ({text})",
                    said.ending
                ))));
            }
            Err(error) => return Ok(Batch::Nothing(error)),
        };
        let failed = failure(&said.text)
            .map(NotProfiled::Ncu)
            .or_else(|| said.failed.map(NotProfiled::Call));
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
