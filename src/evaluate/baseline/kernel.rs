//! The `kernel` and `cuda` providers: a kernel of the task's own, as PTX or as CUDA C through NVRTC, judged
//! by the very pipeline that judges candidates.

use std::path::{Path, PathBuf};

use super::product::failure;
use super::{Bench, Failure};
use crate::evaluate::Evaluator as _;
use crate::source::Source;
use crate::task::MathMode;
use crate::units::{SmArch, SmSuffix};
use crate::verdict::{Baselines, Correctness, Time, Variant, Verdict};

/// Judges a PTX source of the task's folder.
pub(super) fn ptx(bench: &Bench<'_>, file: &str, baselines: &mut Baselines) -> Result<(), Failure> {
    let text = text(bench, file)?;
    judge(bench, file, &text, Variant::Kernel, Vec::new(), baselines)
}

/// Compiles CUDA C of the task's folder and judges what comes out.
pub(super) fn cuda(
    bench: &Bench<'_>,
    file: &str,
    baselines: &mut Baselines,
) -> Result<(), Failure> {
    let (source, notes) = compiled(bench, file)?;
    judge(bench, file, &source, Variant::Cuda, notes, baselines)
}

/// CUDA C of the task's folder as a source, and how it was compiled.
pub(super) fn compiled(bench: &Bench<'_>, file: &str) -> Result<(String, Vec<String>), Failure> {
    let text = text(bench, file)?;
    let settings = bench.pipeline.settings();
    let options = options(settings.arch, settings.task.math, &includes());
    let compiled = bench.gpu.compile(&text, &options).map_err(failure)?;
    let ptx =
        compiled.map_err(|log| Failure::Missing(format!("{file} does not compile: {log}")))?;
    let notes = vec![format!("compiled by NVRTC with {}", options.join(" "))];
    Ok((with_header(&text, &ptx), notes))
}

fn judge(
    bench: &Bench<'_>,
    file: &str,
    text: &str,
    variant: Variant,
    mut notes: Vec<String>,
    baselines: &mut Baselines,
) -> Result<(), Failure> {
    let missing = |error: &dyn std::fmt::Display| Failure::Missing(format!("{file}: {error}"));
    let source = Source::parse(text).map_err(|error| missing(&error))?;
    let point = source
        .space()
        .default_point()
        .map_err(|error| missing(&error))?;
    let verdict = bench.pipeline.confirm(&source, &point)?.verdict;
    let stage = verdict.stage();
    let Verdict::Measured(measurement) = verdict else {
        let reason = verdict.reason().unwrap_or_default();
        return Err(missing(&format_args!("{stage}: {reason}")));
    };
    let samples = match measurement.time {
        Time::Measured { samples, .. } => samples,
        Time::Estimated { time, .. } | Time::Recorded { time } => vec![time.get()],
    };
    let on = "all of the task's sizes and inputs, like a candidate".to_owned();
    notes.extend(measurement.checked);
    let verified = Correctness::Verified { on };
    let measured = bench.measured(variant, samples, verified, notes)?;
    baselines.measured.push(measured);
    Ok(())
}

/// A file of the task's folder.
pub(super) fn text(bench: &Bench<'_>, file: &str) -> Result<String, Failure> {
    let files = &bench.pipeline.settings().task.files;
    let bytes = files
        .get(file)
        .ok_or_else(|| Failure::Missing(format!("{file} is not in the task's folder")))?;
    String::from_utf8(bytes.to_vec())
        .map_err(|_| Failure::Missing(format!("{file} is not UTF-8 text")))
}

/// The `//@` lines of CUDA C in front of the PTX that came of it: a source like any other.
fn with_header(cuda: &str, ptx: &str) -> String {
    let header = cuda
        .lines()
        .map(str::trim_start)
        .filter(|line| line.starts_with("//@"));
    let mut text: String = header.flat_map(|line| [line, "\n"]).collect();
    text.push_str(ptx);
    text
}

fn options(arch: SmArch, math: MathMode, includes: &[PathBuf]) -> Vec<String> {
    let suffix = match arch.suffix {
        SmSuffix::Portable => "",
        SmSuffix::Specific => "a",
        SmSuffix::Family => "f",
    };
    let mut options = vec![
        format!("--gpu-architecture=compute_{}{suffix}", arch.number),
        "--std=c++17".to_owned(),
        "--device-as-default-execution-space".to_owned(),
    ];
    match math {
        MathMode::Ieee => options
            .extend(["--ftz=false", "--prec-div=true", "--prec-sqrt=true"].map(str::to_owned)),
        MathMode::Fast => options.push("--use_fast_math".to_owned()),
    }
    options.extend(
        includes
            .iter()
            .map(|folder| format!("--include-path={}", folder.display())),
    );
    options
}

/// Where the CUDA toolkit keeps its headers, as far as it is installed.
fn includes() -> Vec<PathBuf> {
    let homes = ["CUDA_HOME", "CUDA_PATH"]
        .into_iter()
        .filter_map(std::env::var_os)
        .chain(std::iter::once("/usr/local/cuda".into()));
    homes
        .map(|home| Path::new(&home).join("include"))
        .find(|include| include.is_dir())
        .into_iter()
        .flat_map(|include| [include.join("cccl"), include])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of a task's CUDA C is a source with an entry and a launch.
    #[test]
    fn the_transposes_cuda_c_has_a_header_that_fits() {
        let catalogue = crate::task::Catalogue::open(None).expect("the tasks are here");
        let task = catalogue.task("transpose").expect("it loads");
        let text = std::str::from_utf8(&task.files["tiled.cu"]).expect("text");
        let ptx = ".version 8.0\n.target sm_90\n.address_size 64\n\
                   .visible .entry transpose_tiled(.param .u64 x, .param .u64 out, \
                   .param .u32 rows, .param .u32 cols) { ret; }\n";
        let source = Source::parse(&with_header(text, ptx)).expect("a source");
        let point = source.space().default_point().expect("no knobs");
        let candidate = source.render(&point).expect("it renders");
        assert!(candidate.module.is_ok());
    }

    /// NVRTC refuses options that nvcc takes: where it loads, it is asked.
    #[test]
    fn nvrtc_takes_the_options_and_the_transposes_cuda_c() {
        let catalogue = crate::task::Catalogue::open(None).expect("the tasks are here");
        let task = catalogue.task("transpose").expect("it loads");
        let text = std::str::from_utf8(&task.files["tiled.cu"]).expect("text");
        for math in [MathMode::Ieee, MathMode::Fast] {
            let options = options(SmArch::SM_90A, math, &[]);
            let Ok(compiled) = crate::device::cuda::compile(text, &options) else {
                return;
            };
            let source = with_header(text, &compiled.expect("it compiles"));
            let source = Source::parse(&source).expect("a source");
            let point = source.space().default_point().expect("no knobs");
            let candidate = source.render(&point).expect("it renders");
            assert!(candidate.module.is_ok());
        }
    }

    const COPY: &str = r#"
    //@ launch copy grid=(ceil_div(n, 256)) block=(256) args=(x, out, n)
extern "C" __global__ void copy(const float* x, float* out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;  // not a header
    if (i < n) out[i] = x[i];
}
"#;

    #[test]
    fn the_header_of_cuda_c_becomes_that_of_a_source() {
        let ptx = ".version 9.0\n.target sm_90a\n";
        let text = with_header(COPY, ptx);
        assert_eq!(text.lines().count(), 3);
        assert!(text.starts_with("//@ launch copy") && text.ends_with(ptx));
    }

    #[test]
    fn math_mode_and_architecture_reach_the_compiler() {
        let ieee = options(SmArch::SM_90A, MathMode::Ieee, &["/opt/inc".into()]);
        assert_eq!(ieee[0], "--gpu-architecture=compute_90a");
        assert!(ieee.contains(&"--ftz=false".to_owned()));
        assert!(ieee.contains(&"--include-path=/opt/inc".to_owned()));
        let fast = options(SmArch::SM_90A, MathMode::Fast, &[]);
        assert!(fast.contains(&"--use_fast_math".to_owned()));
    }
}
