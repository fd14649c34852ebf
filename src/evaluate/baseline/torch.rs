//! The `torch` and `cudnn` providers: a small Python program, shipped inside this one, runs the task's
//! expression in a process of its own, eagerly and through `torch.compile` or as a graph of cuDNN's, on the
//! very inputs that candidates get. Its outputs are judged here; its raw times are taken as they come.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::files::{ProblemFiles, scratch};
use super::{Bench, Failure, wrong};
use crate::device::Device as _;
use crate::device::cuda::timing::{median, settled};
use crate::task::{MathMode, Problem};
use crate::toolchain::dialogue::{Dialogue, DialogueError};
use crate::units::Bytes;
use crate::verdict::{Baselines, Correctness, MeasuredBaseline, MissingBaseline, Variant};

/// The program's files: the runner, and what it imports from beside itself.
const RUNNER: [(&str, &str); 2] = [
    ("torch_runner.py", include_str!("torch_runner.py")),
    ("cudnn_graphs.py", include_str!("cudnn_graphs.py")),
];

/// Importing torch and opening the GPU.
const OPEN: Duration = Duration::from_secs(180);
/// Compiling and running once, or capturing graphs.
const WORK: Duration = Duration::from_secs(300);
/// A few replays.
const SAMPLE: Duration = Duration::from_secs(60);

/// A replay takes at least this, nanoseconds: as for candidates.
const TARGET_NS: f64 = 400e3;
/// Rotated sets hold this many times the L2 cache together: as for candidates.
const L2_MULTIPLE: u64 = 5;
/// Never more rotated sets than this.
const MOST_SETS: u32 = 64;
/// Replays between two looks at the samples.
const BLOCK: u32 = 8;
/// Most samples of a measurement.
const MOST_SAMPLES: usize = 32;
/// Rounds of warming up at most, and how still a clock must stand.
const WARM_UP_ROUNDS: u32 = 20;
const STEADY: f64 = 0.005;

/// What an expression is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Library {
    /// Operations of PyTorch.
    Torch,
    /// Graphs of cuDNN's, built by the runner.
    Cudnn,
}

impl Library {
    /// The ways of doing what an expression says, the untuned one first.
    fn variants(self) -> &'static [Variant] {
        match self {
            Self::Torch => &[Variant::Eager, Variant::Compiled],
            Self::Cudnn => &[Variant::Graph],
        }
    }

    /// As the runner is told.
    fn word(self) -> &'static str {
        match self {
            Self::Torch => "torch",
            Self::Cudnn => "cudnn",
        }
    }
}

/// PyTorch in a process of its own, with one expression.
pub struct Torch {
    dialogue: Dialogue,
    facts: Facts,
}

/// Why PyTorch gave nothing: it is not here, it failed, or it did not answer. A sentence for the user.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TorchError(String);

type Result<T> = std::result::Result<T, TorchError>;

/// What the runner says of itself.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Facts {
    torch: String,
    cuda: Option<String>,
    cudnn: Option<u64>,
    gpu: String,
}

/// How replays were set up.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Prepared {
    sets: u32,
    calls: u32,
    rotated_bytes: u64,
    rough_ns: f64,
}

/// What the check after a timing found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Finished {
    outputs: u64,
    differing: u64,
}

/// Every answer of the runner: exactly one of these.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Answer {
    Ready(Facts),
    Checked(bool),
    Prepared(Prepared),
    Sampled(Vec<f64>),
    Finished(Finished),
    Missing { package: Package, why: String },
    Failed(String),
}

/// What Python could not import.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Package {
    Torch,
    Cudnn,
}

impl Package {
    fn absent(self, python: &OsStr, why: &str) -> TorchError {
        let python = python.display();
        TorchError(match self {
            Self::Torch => format!(
                "{python} has no PyTorch ({why}); name one that has with --python or WARPTREE_PYTHON"
            ),
            Self::Cudnn => format!(
                "{python} has no cuDNN frontend ({why}); `{python} -m pip install \
                 nvidia-cudnn-frontend` brings it"
            ),
        })
    }
}

/// What is run, and how it may round.
pub(super) struct Asked<'a> {
    pub(super) python: &'a OsStr,
    pub(super) ordinal: u32,
    pub(super) library: Library,
    pub(super) expression: &'a str,
    pub(super) math: MathMode,
}

impl Torch {
    /// Starts Python, imports torch and opens the GPU; `folder` gets the runner's text.
    pub(super) fn open(asked: &Asked<'_>, folder: &Path) -> Result<Self> {
        for (name, text) in RUNNER {
            let file = folder.join(name);
            fs::write(&file, text)
                .map_err(|error| TorchError(format!("cannot write {}: {error}", file.display())))?;
        }
        let mut command = Command::new(asked.python);
        command
            .arg(RUNNER[0].0)
            .current_dir(folder)
            // it would change what float32 means
            .env_remove("NVIDIA_TF32_OVERRIDE")
            .env("PYTHONUNBUFFERED", "1");
        let dialogue = Dialogue::start(&mut command).map_err(|error| {
            TorchError(format!(
                "{} does not start: {error}; name a Python that has PyTorch with --python or \
                 WARPTREE_PYTHON",
                asked.python.display()
            ))
        })?;
        let mut torch = Self {
            dialogue,
            facts: Facts {
                torch: String::new(),
                cuda: None,
                cudnn: None,
                gpu: String::new(),
            },
        };
        let request = json!({
            "request": "open",
            "device": asked.ordinal,
            "math": match asked.math {
                MathMode::Ieee => "ieee",
                MathMode::Fast => "fast",
            },
            "library": asked.library.word(),
            "expression": asked.expression,
        });
        match torch.ask(&request, OPEN)? {
            Answer::Ready(facts) => torch.facts = facts,
            Answer::Missing { package, why } => return Err(package.absent(asked.python, &why)),
            other => return Err(unexpected("open", &other)),
        }
        Ok(torch)
    }

    /// Versions, in words.
    fn versions(&self) -> String {
        let Facts {
            torch, cuda, cudnn, ..
        } = &self.facts;
        let cuda = cuda.as_deref().unwrap_or("?");
        let cudnn = cudnn.map_or_else(|| "?".to_owned(), |version| version.to_string());
        format!("PyTorch {torch}, CUDA {cuda}, cuDNN {cudnn}")
    }

    /// Runs once and hands back the outputs.
    fn check(&mut self, variant: Variant, files: &ProblemFiles) -> Result<Vec<(String, Vec<u8>)>> {
        let request = json!({
            "request": "check",
            "variant": word(variant)?,
            "problem": files,
        });
        match self.ask(&request, WORK)? {
            Answer::Checked(true) => files.read_outputs().map_err(TorchError),
            other => Err(unexpected("check", &other)),
        }
    }

    /// Captures graphs of calls over rotated sets.
    pub(super) fn prepare(
        &mut self,
        variant: Variant,
        files: &ProblemFiles,
        l2: Bytes,
    ) -> Result<Prepared> {
        let request = json!({
            "request": "prepare",
            "variant": word(variant)?,
            "problem": files,
            "rotate_bytes": L2_MULTIPLE * l2.0,
            "target_ns": TARGET_NS,
            "max_sets": MOST_SETS,
        });
        match self.ask(&request, WORK)? {
            Answer::Prepared(prepared) => Ok(prepared),
            other => Err(unexpected("prepare", &other)),
        }
    }

    /// Nanoseconds per call of each of so many replays.
    pub(super) fn sample(&mut self, replays: u32) -> Result<Vec<f64>> {
        let request = json!({ "request": "sample", "replays": replays });
        let nanos = match self.ask(&request, SAMPLE)? {
            Answer::Sampled(nanos) => nanos,
            other => return Err(unexpected("sample", &other)),
        };
        if nanos.len() != replays as usize {
            return Err(TorchError(format!(
                "it gives {} times where {replays} were asked",
                nanos.len()
            )));
        }
        match nanos.iter().find(|ns| !(ns.is_finite() && **ns > 0.0)) {
            Some(bad) => Err(TorchError(format!("it reads {bad} ns for a call"))),
            None => Ok(nanos),
        }
    }

    /// Replays until times stand still, or for long enough; nanoseconds that a replay takes then.
    pub(super) fn warm_up(&mut self, prepared: Prepared) -> Result<f64> {
        let mut before = f64::INFINITY;
        for _ in 0..WARM_UP_ROUNDS {
            let now = median(&self.sample(4)?).unwrap_or(f64::INFINITY);
            let still = (now / before - 1.0).abs() < STEADY;
            before = now;
            if still {
                break;
            }
        }
        Ok(before * f64::from(prepared.calls))
    }

    fn finish(&mut self) -> Result<Finished> {
        match self.ask(&json!({ "request": "finish" }), WORK)? {
            Answer::Finished(finished) => Ok(finished),
            other => Err(unexpected("finish", &other)),
        }
    }

    fn ask(&mut self, request: &Value, within: Duration) -> Result<Answer> {
        let line = self
            .dialogue
            .ask(&request.to_string(), within)
            .map_err(|error: DialogueError| TorchError(format!("the PyTorch runner: {error}")))?;
        serde_json::from_str(&line).map_err(|error| {
            let shown: String = line.chars().take(200).collect();
            TorchError(format!("the PyTorch runner answers `{shown}`: {error}"))
        })
    }
}

/// Measures every way of the library's into `baselines`.
pub(super) fn measure(
    bench: &Bench<'_>,
    library: Library,
    expression: &str,
    baselines: &mut Baselines,
) -> std::result::Result<(), Failure> {
    let missing = |error: TorchError| Failure::Missing(error.0);
    let timed = bench.pipeline.timed_problem();
    let folder = scratch(timed).map_err(Failure::Missing)?;
    let mut torch =
        Torch::open(&asked(bench, library, expression), folder.path()).map_err(missing)?;
    let mut files = Vec::new();
    for (size, case) in bench.checks() {
        let problem = bench.problem(size, case)?;
        let label = format!("{size}-{case}");
        let written = ProblemFiles::write(&problem, folder.path(), &label);
        files.push(((size, case), problem, written.map_err(Failure::Missing)?));
    }
    for &variant in library.variants() {
        let measured = one(bench, &mut torch, variant, &files);
        match measured {
            Ok(measured) => baselines.measured.push(measured),
            Err(Failure::Missing(reason)) => {
                baselines.missing.push(MissingBaseline {
                    name: format!("{} ({variant})", bench.name),
                    reason,
                });
                // a runner that hung or died answers nothing more
                torch = Torch::open(&asked(bench, library, expression), folder.path())
                    .map_err(missing)?;
            }
            Err(Failure::Rig(error)) => return Err(Failure::Rig(error)),
        }
    }
    Ok(())
}

/// A size and an input case of the task, with its files.
type Check = ((usize, usize), Problem, ProblemFiles);

fn one(
    bench: &Bench<'_>,
    torch: &mut Torch,
    variant: Variant,
    checks: &[Check],
) -> std::result::Result<MeasuredBaseline, Failure> {
    let missing = |error: TorchError| Failure::Missing(error.0);
    let mut labels = Vec::new();
    let mut correctness = None;
    for (key, problem, files) in checks {
        let outputs = torch.check(variant, files).map_err(missing)?;
        match bench.judge(*key, &outputs)? {
            Ok(()) => labels.push(problem.label()),
            Err(mismatch) => {
                correctness = Some(wrong(&mismatch));
                break;
            }
        }
    }
    let (_, _, timed) = checks
        .last()
        .ok_or_else(|| Failure::Missing("the task has no size to time".to_owned()))?;
    let prepared = torch
        .prepare(variant, timed, bench.gpu.gpu().l2)
        .map_err(missing)?;
    torch.warm_up(prepared).map_err(missing)?;
    let mut samples = Vec::new();
    while samples.len() < MOST_SAMPLES && !settled(&samples, 0.002, 0.05) {
        samples.extend(torch.sample(BLOCK).map_err(missing)?);
    }
    let finished = torch.finish().map_err(missing)?;
    let notes = vec![
        torch.versions(),
        format!("on {}", torch.facts.gpu),
        format!(
            "{} replays of {} calls over {} rotated sets ({})",
            samples.len(),
            prepared.calls,
            prepared.sets,
            Bytes(prepared.rotated_bytes)
        ),
        format!(
            "{} of {} outputs of the timed calls differ in bits from untimed ones",
            finished.differing, finished.outputs
        ),
    ];
    let correctness = correctness.unwrap_or(Correctness::Verified {
        on: labels.join("; "),
    });
    Ok(bench.measured(variant, samples, correctness, notes)?)
}

pub(super) fn asked<'a>(bench: &Bench<'a>, library: Library, expression: &'a str) -> Asked<'a> {
    Asked {
        library,
        python: &bench.options.python,
        ordinal: bench.gpu.ordinal(),
        expression,
        math: bench.pipeline.settings().task.math,
    }
}

fn word(variant: Variant) -> Result<&'static str> {
    match variant {
        Variant::Eager => Ok("eager"),
        Variant::Compiled => Ok("compiled"),
        Variant::Graph => Ok("graph"),
        Variant::Algorithm { .. } | Variant::Kernel | Variant::Cuda => {
            Err(TorchError(format!("PyTorch has no way called {variant}")))
        }
    }
}

fn unexpected(asked: &str, answer: &Answer) -> TorchError {
    TorchError(match answer {
        Answer::Failed(message) => message.clone(),
        other => format!("the PyTorch runner answers {asked} with {other:?}"),
    })
}

#[cfg(test)]
mod tests;
