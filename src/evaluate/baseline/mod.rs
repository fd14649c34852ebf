//! Measures a task's **baselines** on a GPU: libraries and kernels that a candidate is set against, each
//! under the same protocol (rotated inputs, captured graphs, raw samples kept) and each judged by the
//! task's own reference. It times no candidate in a search and decides no winner.

mod claim;
mod files;
mod kernel;
mod product;
mod torch;

use std::ffi::OsString;

pub use claim::remeasure;
pub use torch::{Torch, TorchError};

use self::torch::Library;
use super::pipeline::Pipeline;
use crate::device::RigError;
use crate::device::cuda::CudaDevice;
use crate::device::cuda::timing::quantile;
use crate::task::{InputCase, Operation, Problem, Purpose};
use crate::units::Nanos;
use crate::verdict::{
    Baselines, Correctness, MeasuredBaseline, Mismatch, MissingBaseline, Variant,
};

/// What baselines are measured with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The Python that has PyTorch.
    pub python: OsString,
    /// Algorithms asked of cuBLASLt.
    pub algorithms: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            python: "python3".into(),
            algorithms: 12,
        }
    }
}

/// A baseline's way that gave no time, and why; or the rig broke.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Missing(String),
    #[error(transparent)]
    Rig(#[from] RigError),
}

/// Measures everything that the task of `pipeline` names, one after the other; `tell` hears what comes next.
pub fn measure(
    pipeline: &Pipeline,
    gpu: &CudaDevice,
    options: &Options,
    tell: &dyn Fn(&str),
) -> Result<Baselines, RigError> {
    let mut baselines = Baselines::default();
    let task = &pipeline.settings().task;
    for baseline in &task.baselines {
        tell(&format!("measuring baseline {}", baseline.name));
        let bench = Bench {
            pipeline,
            gpu,
            options,
            name: &baseline.name,
        };
        let measured = match &baseline.operation {
            Operation::Product(product) => product::measure(&bench, product, &mut baselines),
            Operation::Torch(expression) => {
                torch::measure(&bench, Library::Torch, expression, &mut baselines)
            }
            Operation::Cudnn(expression) => {
                torch::measure(&bench, Library::Cudnn, expression, &mut baselines)
            }
            Operation::Kernel(file) => kernel::ptx(&bench, file, &mut baselines),
            Operation::Cuda(file) => kernel::cuda(&bench, file, &mut baselines),
        };
        match measured {
            Ok(()) => {}
            Err(Failure::Missing(reason)) => baselines.missing.push(MissingBaseline {
                name: baseline.name.clone(),
                reason,
            }),
            Err(Failure::Rig(error)) => return Err(error),
        }
    }
    Ok(baselines)
}

/// One baseline about to be measured.
struct Bench<'a> {
    pipeline: &'a Pipeline,
    gpu: &'a CudaDevice,
    options: &'a Options,
    name: &'a str,
}

impl Bench<'_> {
    /// A baseline from its raw samples.
    fn measured(
        &self,
        variant: Variant,
        samples: Vec<f64>,
        correctness: Correctness,
        notes: Vec<String>,
    ) -> Result<MeasuredBaseline, RigError> {
        let [first, time, third] = quartiles(&samples).ok_or_else(|| RigError::Device {
            device: self.gpu.name().to_owned(),
            message: format!("no time came of {} ({variant})", self.name),
        })?;
        Ok(MeasuredBaseline {
            name: self.name.to_owned(),
            variant,
            time,
            quartiles: (first, third),
            samples,
            correctness,
            notes,
        })
    }

    /// The problem at the task's size and input case of these numbers.
    fn problem(&self, size: usize, case: usize) -> Result<Problem, RigError> {
        let settings = self.pipeline.settings();
        let task = &settings.task;
        Problem::new(
            task,
            &task.sizes[size],
            task.cases[case],
            settings.verify_seed,
        )
        .map_err(|error| RigError::Reference {
            task: task.name.clone(),
            message: error.to_string(),
        })
    }

    /// Whether outputs for a size and an input case of the task are right.
    fn judge(
        &self,
        (size, case): (usize, usize),
        outputs: &[(String, Vec<u8>)],
    ) -> Result<Result<(), Mismatch>, RigError> {
        self.pipeline
            .verifier()
            .judge(self.gpu, (size, case), outputs)
    }

    /// Where answers are checked: the first smoke size with every input case that has no NaN in it (libraries
    /// differ there), then the timed size with the timed inputs.
    fn checks(&self) -> Vec<(usize, usize)> {
        let task = &self.pipeline.settings().task;
        let smoke = task
            .sizes
            .iter()
            .position(|size| size.purpose == Purpose::Smoke);
        let cases = (0..task.cases.len()).filter(|&case| match task.cases[case] {
            InputCase::Special => false,
            InputCase::Normal
            | InputCase::Spiky
            | InputCase::Integers
            | InputCase::Large
            | InputCase::Small => true,
        });
        smoke
            .into_iter()
            .flat_map(|size| cases.clone().map(move |case| (size, case)))
            .chain(std::iter::once((self.pipeline.headline(), 0)))
            .collect()
    }
}

/// First quartile, median and third quartile; `None` where there is no time.
fn quartiles(samples: &[f64]) -> Option<[Nanos; 3]> {
    let at = |p| quantile(samples, p).and_then(Nanos::new);
    Some([at(0.25)?, at(0.5)?, at(0.75)?])
}

/// A mismatch in one line.
fn wrong(mismatch: &Mismatch) -> Correctness {
    let pattern = mismatch
        .pattern
        .as_deref()
        .map_or(String::new(), |pattern| format!(": {pattern}"));
    Correctness::Wrong {
        why: format!(
            "{} of {} elements of {} wrong at {}{pattern}",
            mismatch.wrong, mismatch.checked, mismatch.output, mismatch.case
        ),
    }
}
