//! The `cublaslt` provider: every algorithm that the library offers for the timed product, each verified at
//! the timed size and timed as a candidate is.

use super::{Bench, Failure, wrong};
use crate::device::cuda::protocol::Product;
use crate::device::cuda::{LibraryError, ProductJob};
use crate::device::{Buffer, Ended, Timing};
use crate::evaluate::pipeline::timed_buffers;
use crate::source::DType;
use crate::task::{MathMode, Multiplication, Problem};
use crate::verdict::{Baselines, Correctness, Diagnostic, MissingBaseline, Time, Variant};

/// Measures all algorithms into `baselines`.
pub(super) fn measure(
    bench: &Bench<'_>,
    multiplication: &Multiplication,
    baselines: &mut Baselines,
) -> Result<(), Failure> {
    let problem = bench.pipeline.timed_problem();
    let buffers = timed_buffers(problem);
    let jobs = jobs(bench, multiplication, &buffers)?;
    let of = jobs.len() as u32;
    for (index, (job, version)) in (0u32..).zip(jobs) {
        let variant = Variant::Algorithm { index, of };
        let mut missing = |reason: String| {
            baselines.missing.push(MissingBaseline {
                name: format!("{} ({variant})", bench.name),
                reason,
            });
        };
        let execution = bench.gpu.execute_product(&job)?;
        let outputs = match execution.ended {
            Ended::Completed => execution.outputs,
            Ended::Faulted(diagnostics) | Ended::Hung(diagnostics) => {
                missing(first(&diagnostics));
                continue;
            }
            Ended::Refused(message) => {
                missing(message);
                continue;
            }
        };
        let mut correctness = match bench.judge((bench.pipeline.headline(), 0), &outputs)? {
            Ok(()) => Correctness::Verified {
                on: problem.label(),
            },
            Err(mismatch) => wrong(&mismatch),
        };
        let timed = match bench.gpu.time_product(&job)? {
            Timing::Timed(timed) => *timed,
            Timing::Faulted(diagnostics) | Timing::Hung(diagnostics) => {
                missing(first(&diagnostics));
                continue;
            }
            Timing::Refused(message) => {
                missing(message);
                continue;
            }
        };
        if let Some(violation) = timed.violations.first().or(execution.violations.first()) {
            correctness = Correctness::Wrong {
                why: violation.clone(),
            };
        }
        let mut notes = timed.notes;
        notes.push(format!(
            "cuBLASLt {version}, workspace {}, {:.2} waves",
            crate::units::Bytes(job.algorithm.workspace),
            job.algorithm.waves
        ));
        if !timed.unsteady.is_empty() {
            notes.push("its results differ from call to call in bits".to_owned());
        }
        let samples = match timed.time {
            Time::Measured { samples, .. } => samples,
            Time::Estimated { time, .. } | Time::Recorded { time } => vec![time.get()],
        };
        let measured = bench.measured(variant, samples, correctness, notes)?;
        baselines.measured.push(measured);
    }
    Ok(())
}

/// A job for each algorithm, in the library's order, with the library's version.
pub(super) fn jobs<'a>(
    bench: &Bench<'_>,
    multiplication: &'a Multiplication,
    buffers: &'a [Buffer],
) -> Result<Vec<(ProductJob<'a>, u64)>, Failure> {
    let product =
        described(multiplication, bench.pipeline.timed_problem()).map_err(Failure::Missing)?;
    let (version, algorithms) = bench
        .gpu
        .algorithms(product, bench.options.algorithms)
        .map_err(failure)?;
    if algorithms.is_empty() {
        return Err(Failure::Missing(
            "cuBLASLt offers no algorithm for this product".to_owned(),
        ));
    }
    let jobs = algorithms.into_iter().map(|algorithm| {
        let job = ProductJob {
            product,
            algorithm,
            names: [
                &multiplication.a.name,
                &multiplication.b.name,
                &multiplication.c,
            ],
            buffers,
            sampled: &[],
        };
        (job, version)
    });
    Ok(jobs.collect())
}

pub(super) fn failure(error: LibraryError) -> Failure {
    match error {
        LibraryError::Refused(reason) => Failure::Missing(reason),
        LibraryError::Rig(error) => Failure::Rig(error),
    }
}

/// The product at a problem's size; an error says what the library's products do not have.
fn described(multiplication: &Multiplication, problem: &Problem) -> Result<Product, String> {
    let extents = multiplication.extents(problem)?;
    let dtype = |name: &str| {
        let found = problem.buffer(name).map(|buffer| buffer.dtype);
        found.ok_or_else(|| format!("`{name}` is no buffer of the task"))
    };
    let (a, b) = (
        dtype(&multiplication.a.name)?,
        dtype(&multiplication.b.name)?,
    );
    let output = dtype(&multiplication.c)?;
    let offered = match a {
        DType::F64 | DType::F32 => output == a,
        DType::F16 | DType::Bf16 => output == a || output == DType::F32,
        DType::I32 | DType::U32 | DType::I64 | DType::U64 | DType::U8 => false,
    };
    if a != b || !offered {
        return Err(format!(
            "cuBLASLt is not asked for products of {a:?} and {b:?} into {output:?}"
        ));
    }
    Ok(Product {
        m: extents.m,
        n: extents.n,
        k: extents.k,
        a_transposed: multiplication.a.transposed,
        b_transposed: multiplication.b.transposed,
        input: a,
        output,
        fast: match problem.task.math {
            MathMode::Ieee => false,
            MathMode::Fast => true,
        },
    })
}

fn first(diagnostics: &[Diagnostic]) -> String {
    diagnostics
        .first()
        .map_or_else(|| "it failed".to_owned(), |first| first.message.clone())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::task::{Catalogue, Operation, Purpose};

    #[test]
    fn sgemm_is_a_product_in_full_precision() {
        let catalogue = Catalogue::open(None).expect("the tasks are here");
        let task = Arc::new(catalogue.task("sgemm").expect("it loads"));
        let product = task.baselines.iter().find_map(|one| match &one.operation {
            Operation::Product(product) => Some(product),
            Operation::Torch(_)
            | Operation::Cudnn(_)
            | Operation::Kernel(_)
            | Operation::Cuda(_) => None,
        });
        let product = product.expect("sgemm names cuBLASLt");
        let size = task
            .sizes
            .iter()
            .find(|size| size.purpose == Purpose::Smoke && size.dims["N"] == 96);
        let size = size.expect("a smoke size");
        let problem = Problem::new(&task, size, task.cases[0], 1).expect("a problem");
        let described = described(product, &problem).expect("offered");
        assert_eq!((described.m, described.n, described.k), (128, 96, 64));
        assert!(!described.fast && !described.a_transposed && !described.b_transposed);
        assert_eq!(
            (described.input, described.output),
            (DType::F32, DType::F32)
        );
    }
}
