//! An **evaluator** turns a source and a setting into a verdict. `Pipeline` renders, assembles, verifies,
//! times and audits; `Recorded` looks up what an earlier run measured. Neither sees the tree or the reward.

pub mod audit;
pub mod baseline;
mod cache;
pub mod limits;
pub mod observe;
mod once;
mod pipeline;
pub mod profile;
pub mod ptxas;
pub mod ptxas_output;
pub mod recorded;
pub mod sanitizer;
mod stages;
pub mod verify;
mod watcher;

use std::sync::Arc;

pub use cache::{Cached, Keyed};
pub use pipeline::{Aim, Pipeline, Settings, launch_names, timed_buffers};
pub use stages::{Stage, Stages};

use crate::device::RigError;
use crate::source::{Point, Source};
use crate::units::Digest;
use crate::verdict::{Claim, Time, Verdict};

/// The seam.
pub trait Evaluator: Send + Sync {
    /// Judges one setting of a source.
    fn evaluate(&self, source: &Source, point: &Point) -> Result<Evaluation, RigError>;

    /// Judges it for a claim: verified in full, and never answered from a cache.
    fn confirm(&self, source: &Source, point: &Point) -> Result<Evaluation, RigError> {
        self.evaluate(source, point)
    }

    /// Makes a kernel ready to be timed again as often as wanted, and nothing else; `None` where a second timing would only repeat the first.
    fn timer(&self, _source: &Source, _point: &Point) -> Result<Option<Timer<'_>>, RigError> {
        Ok(None)
    }

    /// Measures a winner again beside what it is set against, in fresh processes; `None` where there is no
    /// GPU to do it on.
    fn claim(&self, _source: &Source, _point: &Point) -> Result<Option<Claim>, RigError> {
        Ok(None)
    }

    /// Whether the same question always gets the same answer.
    fn deterministic(&self) -> bool;

    /// Forgets what it remembers of kernels: each is judged anew, and takes its time again.
    fn forget(&self) {}
}

/// Times one kernel, each time anew; in words why that failed.
pub type Timer<'a> = Box<dyn Fn() -> Result<Result<Retiming, String>, RigError> + 'a>;

/// A further time of a kernel.
#[derive(Clone, Debug)]
pub struct Retiming {
    /// The time.
    pub time: Time,
    /// It was taken at full load, whatever the search times at.
    pub full_load: bool,
}

/// A verdict and what it is about.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Evaluation {
    /// The candidate's id, where there was one to hash.
    pub candidate: Option<Digest>,
    /// What became of it.
    pub verdict: Verdict,
    /// What was judged, where it was assembled: the run's store keeps it, its log does not.
    #[serde(skip)]
    pub kernel: Option<Kernel>,
}

impl Evaluation {
    /// What ranks it: a valid kernel's time in nanoseconds over the part of its score that is not time. The
    /// least is the best.
    pub fn cost(&self) -> Option<f64> {
        let measurement = self.verdict.measurement()?;
        Some(measurement.time.nanos().get() / measurement.score.instructions.factor())
    }
}

/// The bytes that were judged: what is timed, profiled and exported is what was assembled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The rendering.
    pub ptx: Arc<str>,
    /// What ptxas made of it.
    pub cubin: Arc<[u8]>,
}
