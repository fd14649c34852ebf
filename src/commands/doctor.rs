//! `doctor`: what this machine has and lacks for the work, each with what to do about it.

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use serde::Serialize;

use super::{Exit, answer, note};
use crate::cli::Global;
use crate::device::cuda::{self, CudaDevice, LibraryError, Sample, ceilings};
use crate::device::{Device as _, RigError};
use crate::evaluate::profile::{self, Profiler};
use crate::evaluate::sanitizer::{Check, Sanitizer};
use crate::source::DType;
use crate::task::Catalogue;
use crate::toolchain::process::{self, Limits};
use crate::toolchain::{self, Network, Places};

/// Below this share of what its facts promise a GPU is busy, hot or capped.
const FIT: f64 = 0.75;

#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    state: State,
    detail: String,
    /// The numbers behind the detail.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<Measured>,
}

/// What a GPU does at most, and that as a share of what its facts promise.
#[derive(Debug, Serialize)]
struct Measured {
    gpu: String,
    copy_bytes_per_second: f64,
    copy_share: f64,
    fp32_flops_per_second: f64,
    fp32_share: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Ok,
    /// It is there, and something about it wants attention.
    Warn,
    /// The program works without it, with less.
    Missing,
    /// Searches cannot run.
    Bad,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Missing => "missing",
            Self::Bad => "bad",
        }
    }
}

fn finding(what: &'static str, state: State, detail: impl Into<String>) -> Finding {
    Finding {
        what,
        state,
        detail: detail.into(),
        measured: None,
    }
}

pub(super) fn run(global: &Global) -> anyhow::Result<Exit> {
    let places = Places::from_environment(global.ptxas.clone());
    let ptxas = toolchain::ptxas(&places, Network::Forbidden, &note);
    let version = ptxas.as_ref().ok().map(|found| found.version.clone());
    let mut findings = vec![tasks(global), assembler(global, ptxas)];
    findings.extend(gpus(version.as_deref(), &places));
    findings.push(torch(global));
    findings.push(cudnn(global));
    let mut text = String::new();
    for finding in &findings {
        let word = finding.state.word();
        let _infallible = writeln!(text, "{word:<8} {:<18} {}", finding.what, finding.detail);
    }
    answer(global.json, text, &findings)?;
    let bad = findings.iter().any(|finding| finding.state == State::Bad);
    Ok(if bad { Exit::No } else { Exit::Success })
}

fn tasks(global: &Global) -> Finding {
    let loaded = Catalogue::open(global.tasks.as_deref()).and_then(|catalogue| {
        let names = catalogue.names()?;
        names
            .iter()
            .try_for_each(|name| catalogue.task(name).map(drop))?;
        Ok(names)
    });
    match loaded {
        Ok(names) => finding("tasks", State::Ok, names.join(", ")),
        Err(error) => finding("tasks", State::Bad, error.to_string()),
    }
}

/// Looks, and installs nothing: a search does that when it needs to.
fn assembler(
    global: &Global,
    found: Result<toolchain::Ptxas, toolchain::ToolchainError>,
) -> Finding {
    match found {
        Ok(found) => finding(
            "ptxas",
            State::Ok,
            format!("{} at {}", found.version, found.path.display()),
        ),
        Err(error) if global.offline => finding("ptxas", State::Bad, error.to_string()),
        Err(_) => finding(
            "ptxas",
            State::Missing,
            format!(
                "not found; the first search installs {} {} into the cache folder with pip",
                toolchain::PACKAGE,
                toolchain::VERSION
            ),
        ),
    }
}

/// Every GPU; what else only a GPU can tell is asked of the first.
fn gpus(ptxas: Option<&str>, places: &Places) -> Vec<Finding> {
    if !cuda::driver_present() {
        let detail = "no NVIDIA driver: kernels are judged by the simulator, times are estimates";
        return vec![finding("gpu", State::Missing, detail)];
    }
    let open = |ordinal: u32| -> anyhow::Result<CudaDevice> {
        let command = cuda::WorkerCommand::current()?;
        Ok(CudaDevice::open(
            ordinal,
            command,
            cuda::Options::default(),
        )?)
    };
    let first = match open(0) {
        Ok(device) => device,
        Err(error) => return vec![finding("gpu", State::Warn, format!("{error:#}"))],
    };
    let mut findings = vec![driver(first.ready().driver, ptxas), gpu(&first)];
    for ordinal in 1..first.ready().gpu_count {
        findings.push(match open(ordinal) {
            Ok(device) => gpu(&device),
            Err(error) => finding("gpu", State::Warn, format!("{error:#}")),
        });
    }
    findings.push(told("ceilings", measured(&first)));
    findings.push(told("counters", counters(&first, places)));
    findings.push(told("compute-sanitizer", checker(&first, places)));
    findings.push(nvrtc(&first));
    findings.push(cublaslt(&first));
    findings
}

/// A check that itself can break the rig.
fn told(what: &'static str, checked: Result<Finding, RigError>) -> Finding {
    checked.unwrap_or_else(|error| finding(what, State::Warn, error.to_string()))
}

fn driver(driver: u32, ptxas: Option<&str>) -> Finding {
    let (major, minor) = (driver / 1000, driver % 1000 / 10);
    let newest = format!("supports CUDA {major}.{minor}");
    let of_ptxas = ptxas.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    match (ptxas, of_ptxas) {
        (Some(version), Some(of_ptxas)) if of_ptxas > major => finding(
            "driver",
            State::Warn,
            format!(
                "{newest}; it may refuse what ptxas {version} makes: update the driver, or name a ptxas \
                 {major}.x with --ptxas"
            ),
        ),
        (Some(version), _) => finding("driver", State::Ok, format!("{newest}, ptxas is {version}")),
        (None, _) => finding("driver", State::Ok, newest),
    }
}

fn gpu(device: &CudaDevice) -> Finding {
    let gpu = device.gpu();
    let (free, total) = device.ready().memory;
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let detail = format!(
        "cuda:{} {} ({}), {} SMs, {:.0} of {:.0} GiB free",
        device.ordinal(),
        gpu.name,
        gpu.arch,
        gpu.sm_count,
        gib(free),
        gib(total)
    );
    if (free as f64) < 0.5 * total as f64 {
        let detail = format!("{detail}; another program holds it: times will not be trustworthy");
        return finding("gpu", State::Warn, detail);
    }
    finding("gpu", State::Ok, detail)
}

fn measured(device: &CudaDevice) -> Result<Finding, RigError> {
    let found = ceilings(device)?;
    let detail = format!(
        "copy {:.2} TB/s ({:.0} % of the theoretical bandwidth), fp32 {:.1} TFLOP/s ({:.0} % of the peak)",
        found.copy / 1e12,
        found.copy_share * 100.0,
        found.fp32 / 1e12,
        found.fp32_share * 100.0
    );
    let told = if found.copy_share.min(found.fp32_share) < FIT {
        let detail =
            format!("{detail}; less than it should: is it shared, hot, or are its clocks capped?");
        finding("ceilings", State::Warn, detail)
    } else {
        finding("ceilings", State::Ok, detail)
    };
    Ok(Finding {
        measured: Some(Measured {
            gpu: device.gpu().name.clone(),
            copy_bytes_per_second: found.copy,
            copy_share: found.copy_share,
            fp32_flops_per_second: found.fp32,
            fp32_share: found.fp32_share,
        }),
        ..told
    })
}

fn counters(device: &CudaDevice, places: &Places) -> Result<Finding, RigError> {
    let profiler = match Profiler::find(places) {
        Ok(profiler) => profiler,
        Err(reason) => {
            let detail = format!("{reason}; kernels are not profiled");
            return Ok(finding("counters", State::Missing, detail));
        }
    };
    let copy = Sample::copy()?;
    let adds = Sample::multiply_add(device.gpu().sm_count)?;
    let subjects = [&copy, &adds].map(|sample| profile::Subject {
        job: sample.job(),
        lines: None,
    });
    let Some(reserved) = device.reserve() else {
        return Ok(finding("counters", State::Missing, "this is no GPU"));
    };
    let profiles = profiler.profile(reserved.ordinal, device.gpu(), &subjects)?;
    let name = profiler.name();
    let mut read = Vec::new();
    for profile in profiles {
        match profile {
            Ok(profile) => read.push(profile),
            Err(error) => {
                return Ok(finding("counters", State::Warn, format!("{name}: {error}")));
            }
        }
    }
    let [copied, added] = &read[..] else {
        return Ok(finding(
            "counters",
            State::Warn,
            format!("{name} was not asked"),
        ));
    };
    let fp32 = added.flops().into_iter().find(|(unit, _)| unit == "fp32");
    let counted = fp32.map_or(0.0, |(_, flops)| flops.0);
    let detail = format!(
        "{name} reads them: {counted:.0} fp32 operations of {:.0}, {} of {} read with cold caches",
        adds.flops.0,
        copied.dram_read(),
        copy.reads
    );
    let exact = counted == adds.flops.0 && copied.dram_read().0 as f64 > 0.98 * copy.reads.0 as f64;
    Ok(if exact {
        finding("counters", State::Ok, detail)
    } else {
        let detail = format!("{detail}; they do not agree: audits by profile would be wrong here");
        finding("counters", State::Warn, detail)
    })
}

fn checker(device: &CudaDevice, places: &Places) -> Result<Finding, RigError> {
    let what = "compute-sanitizer";
    let sanitizer = match Sanitizer::find(places) {
        Ok(sanitizer) => sanitizer,
        Err(reason) => {
            let detail = format!("{reason}; winners are not checked for races in shared memory");
            return Ok(finding(what, State::Missing, detail));
        }
    };
    let sample = Sample::copy()?;
    let Some(reserved) = device.reserve() else {
        return Ok(finding(what, State::Missing, "this is no GPU"));
    };
    let found = sanitizer.check(Check::Memory, reserved.ordinal, &[sample.job()])?;
    Ok(match found {
        Ok(findings) if findings.is_empty() => finding(what, State::Ok, sanitizer.name()),
        Ok(findings) => {
            let first = findings.first().map_or("", |first| first.message.as_str());
            let detail = format!(
                "{} finds fault with a known-good kernel: {first}",
                sanitizer.name()
            );
            finding(what, State::Warn, detail)
        }
        Err(reason) => finding(what, State::Warn, format!("{}: {reason}", sanitizer.name())),
    })
}

fn nvrtc(device: &CudaDevice) -> Finding {
    let source = r#"extern "C" __global__ void k(float* x) { x[0] = 1.0f; }"#;
    match device.compile(source, &["--gpu-architecture=compute_80".to_owned()]) {
        Ok(Ok(_)) => finding("nvrtc", State::Ok, "compiles CUDA C"),
        Ok(Err(log)) => finding("nvrtc", State::Warn, log),
        Err(LibraryError::Refused(reason)) => finding(
            "nvrtc",
            State::Missing,
            format!("{reason}; baselines in CUDA C are not measured"),
        ),
        Err(LibraryError::Rig(error)) => finding("nvrtc", State::Warn, error.to_string()),
    }
}

fn cublaslt(device: &CudaDevice) -> Finding {
    let product = cuda::protocol::Product {
        m: 1024,
        n: 1024,
        k: 1024,
        a_transposed: false,
        b_transposed: false,
        input: DType::F32,
        output: DType::F32,
        fast: false,
    };
    match device.algorithms(product, 1) {
        Ok((version, _)) => finding("cublaslt", State::Ok, format!("version {version}")),
        Err(LibraryError::Refused(reason)) => finding(
            "cublaslt",
            State::Missing,
            format!("{reason}; matrix products have no tuned baseline"),
        ),
        Err(LibraryError::Rig(error)) => finding("cublaslt", State::Warn, error.to_string()),
    }
}

/// Whether the Python that baselines use has PyTorch, and PyTorch a GPU.
fn torch(global: &Global) -> Finding {
    let python = global.python.display();
    let said = match imported(
        global,
        "import torch; print(torch.__version__, torch.cuda.is_available())",
    ) {
        Ok(said) => said,
        Err(why) => {
            let detail = format!("{why}; name a Python that has PyTorch with --python");
            return finding("torch", State::Missing, detail);
        }
    };
    match said.split_once(' ') {
        Some((version, "True")) => finding("torch", State::Ok, format!("{version} of {python}")),
        _ => finding(
            "torch",
            State::Warn,
            format!("{said} of {python}: it sees no GPU; its baselines are not measured"),
        ),
    }
}

/// Whether that Python can build graphs of cuDNN's.
fn cudnn(global: &Global) -> Finding {
    let python = global.python.display();
    // PyTorch brings the library itself
    let ask = "import torch, cudnn; print(cudnn.__version__, 'on cuDNN', cudnn.backend_version())";
    match imported(global, ask) {
        Ok(said) => finding("cudnn", State::Ok, format!("frontend {said} of {python}")),
        Err(why) => finding(
            "cudnn",
            State::Missing,
            format!(
                "{why}; its graphs are no baselines: `{python} -m pip install nvidia-cudnn-frontend`"
            ),
        ),
    }
}

/// What a line of Python prints, or why it fails.
fn imported(global: &Global, line: &str) -> Result<String, String> {
    let python = global.python.display();
    let limits = Limits {
        time: Duration::from_secs(60),
        output: 1 << 16,
    };
    let mut command = Command::new(&global.python);
    let done = process::run(command.args(["-c", line]), limits)
        .map_err(|error| format!("{python} does not start ({error})"))?;
    let said = done.stdout.trim();
    if said.is_empty() {
        let why = done.stderr.lines().last().unwrap_or("it said nothing");
        return Err(format!("{python}: {}", why.trim()));
    }
    Ok(said.to_owned())
}
