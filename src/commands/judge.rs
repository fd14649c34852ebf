//! Turns `--device`, `--arch` and a task's name into a judge: what is computed, who judges it, and on
//! behalf of which GPU.

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};

use super::note;
use crate::cli::{Global, JudgeArgs};
use crate::device::cuda::{self, CudaDevice, CudaPool, WorkerCommand};
use crate::device::{Device, Gpu, SimDevice};
use crate::evaluate::observe::Observers;
use crate::evaluate::recorded::{self, Recorded, Trace};
use crate::evaluate::{self, Cached, Evaluator, Pipeline, Stages};
use crate::store::{BaselineTime, RunConfig, RunGraph, StoredRun};
use crate::task::{Catalogue, Task};
use crate::toolchain::{self, Network, Places};
use crate::units::{Digest, Nanos, SmArch};
use crate::verdict::Baselines;

/// The GPU that the simulator stands for where none is named.
const SIMULATED: &str = "H200";

/// What `--device` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DeviceSpec {
    /// A GPU if there is one, else the simulator.
    Auto,
    /// The simulator, for the GPU named.
    Sim(String),
    /// GPUs of this machine; an empty list is all of them.
    Cuda(Vec<u32>),
    /// A table of earlier measurements.
    Recorded(PathBuf),
}

impl DeviceSpec {
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        Ok(match (kind, rest) {
            ("auto", "") => Self::Auto,
            ("sim", "") => Self::Sim(SIMULATED.to_owned()),
            ("sim", gpu) => Self::Sim(gpu.to_owned()),
            ("cuda", "all") => Self::Cuda(Vec::new()),
            ("cuda", "") => Self::Cuda(vec![0]),
            ("cuda", ordinals) => Self::Cuda(
                ordinals
                    .split(',')
                    .map(|ordinal| {
                        ordinal.parse().with_context(|| {
                            format!("--device {text}: `{ordinal}` is no GPU number; write cuda:0")
                        })
                    })
                    .collect::<anyhow::Result<_>>()?,
            ),
            ("recorded", file) if !file.is_empty() => Self::Recorded(file.into()),
            _ => bail!(
                "--device {text}: no such device; there are auto, sim, sim:GPU, cuda:N and recorded:FILE"
            ),
        })
    }

    /// What is meant on this machine.
    fn resolved(&self) -> Self {
        match self {
            Self::Auto if cuda::driver_present() => Self::Cuda(vec![0]),
            Self::Auto => Self::Sim(SIMULATED.to_owned()),
            Self::Sim(_) | Self::Cuda(_) | Self::Recorded(_) => self.clone(),
        }
    }

    /// Each of what is meant by itself; `auto` and `cuda:all` mean every GPU here.
    pub(super) fn each(&self) -> anyhow::Result<Vec<Self>> {
        let ordinals = match (self, self.resolved()) {
            (Self::Auto, Self::Cuda(_)) => Vec::new(),
            (_, Self::Cuda(ordinals)) => ordinals,
            (_, other) => return Ok(vec![other]),
        };
        let ordinals = if ordinals.is_empty() {
            let command = WorkerCommand::current()?;
            let first = CudaDevice::open(0, command, cuda::Options::default())?;
            (0..first.ready().gpu_count).collect()
        } else {
            ordinals
        };
        Ok(ordinals
            .into_iter()
            .map(|one| Self::Cuda(vec![one]))
            .collect())
    }

    /// Whether there is PTX behind what it judges: another tuner's table has settings alone.
    pub(super) fn has_ptx(&self) -> bool {
        match self {
            Self::Auto | Self::Sim(_) | Self::Cuda(_) => true,
            Self::Recorded(file) => is_run(file),
        }
    }

    /// As runs store it: it says exactly what to open again.
    pub(super) fn label(&self) -> String {
        match self.resolved() {
            Self::Sim(name) => format!("sim:{name}"),
            Self::Cuda(ordinals) if ordinals.is_empty() => "cuda:all".to_owned(),
            Self::Cuda(ordinals) => {
                let listed: Vec<String> = ordinals.iter().map(ToString::to_string).collect();
                format!("cuda:{}", listed.join(","))
            }
            Self::Recorded(file) => format!("recorded:{}", file.display()),
            Self::Auto => unreachable!("resolved"),
        }
    }
}

/// A judge, ready.
pub(super) struct Judge {
    /// The task's name.
    pub(super) name: String,
    /// What is computed; a table recorded elsewhere has none.
    pub(super) task: Option<Arc<Task>>,
    /// A hash over what is computed or the table.
    pub(super) digest: Digest,
    /// Who judges.
    pub(super) evaluator: Box<dyn Evaluator>,
    /// The word beside its times: `measured`, `estimated`, `recorded`.
    pub(super) times: &'static str,
    /// The sources there are, by label, the seed first.
    pub(super) sources: Vec<(String, Arc<str>)>,
    /// `sim:H200`, `cuda:0`, `recorded:FILE`: says exactly what to open again.
    pub(super) device: String,
    /// The GPU, where it is known.
    pub(super) gpu: Option<Gpu>,
    /// The GPU's name for people.
    pub(super) gpu_name: String,
    /// What kernels are assembled for.
    pub(super) arch: SmArch,
    /// ptxas's version.
    pub(super) assembler: Option<String>,
    /// What speedups are over.
    pub(super) baseline: Option<BaselineTime>,
    /// The task's baselines, where they were measured.
    pub(super) baselines: Option<Baselines>,
    /// Where the time of judging goes; a table takes none.
    pub(super) stages: Arc<Stages>,
}

/// What speedups are to be over.
pub(super) enum Over {
    /// The fastest correct baseline, where the device can measure any; else the seed.
    Frontier,
    /// The seed.
    Seed,
    /// What an earlier session of the run measured; the seed where it measured nothing.
    Earlier {
        baseline: Option<BaselineTime>,
        baselines: Option<Baselines>,
    },
}

/// What a judge is opened with.
pub(super) struct Wanted<'a> {
    pub(super) task: &'a str,
    pub(super) judge: &'a JudgeArgs,
    /// Seed of the inputs.
    pub(super) seed: u64,
    /// On a GPU, whose verdicts are claims, the inputs come from a random seed instead: nothing that
    /// proposes kernels can know them.
    pub(super) secret: bool,
    pub(super) over: Over,
}

pub(super) fn open(wanted: Wanted<'_>, global: &Global) -> anyhow::Result<Judge> {
    let spec = DeviceSpec::parse(&wanted.judge.device)?;
    if let DeviceSpec::Recorded(file) = &spec {
        return open_table(wanted.task, file, global);
    }
    let task = Arc::new(Catalogue::open(global.tasks.as_deref())?.task(wanted.task)?);
    let (device, label, simulated) = open_device(&spec)?;
    let gpu = device.gpu().clone();
    let arch = wanted.judge.arch.unwrap_or(gpu.arch);
    let seed = if wanted.secret && !simulated {
        secret_seed()
    } else {
        wanted.seed
    };
    let logs = wanted.judge.tool_logs.as_deref();
    let (pipeline, version) = open_pipeline(&task, device, arch, seed, simulated, logs, global)?;
    let (baseline, baselines) = denominators(&pipeline, wanted.over)?;
    Ok(Judge {
        name: task.name.clone(),
        digest: task.digest,
        sources: sources(&task),
        task: Some(task),
        stages: pipeline.stages(),
        evaluator: Box::new(Cached::new(pipeline)),
        times: if simulated { "estimated" } else { "measured" },
        device: label,
        gpu_name: gpu.name.clone(),
        gpu: Some(gpu),
        arch,
        assembler: Some(format!("ptxas {version}")),
        baseline,
        baselines,
    })
}

/// Random, from the system.
pub(super) fn secret_seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// A task's judge on a device, and the version of its ptxas. What profiler and memory checker write on a GPU is kept in
/// the folder `logs`.
pub(super) fn open_pipeline(
    task: &Arc<Task>,
    device: Arc<dyn Device>,
    arch: SmArch,
    seed: u64,
    deterministic: bool,
    logs: Option<&Path>,
    global: &Global,
) -> anyhow::Result<(Pipeline, String)> {
    let gpu = device.gpu().clone();
    if !arch.runs_on(gpu.arch) {
        bail!(
            "--arch {arch}: {} would be assembled for it, and {} is {} and does not run such code; leave --arch \
             out, or name another GPU with --device",
            task.name,
            gpu.name,
            gpu.arch
        );
    }
    let ptxas = find_ptxas(global)?;
    let version = ptxas.version.clone();
    let pipeline = Pipeline::new(evaluate::Settings {
        task: Arc::clone(task),
        device,
        assembler: evaluate::ptxas::Assembler::new(ptxas),
        ptxas_options: Vec::new(),
        arch,
        verify_seed: seed,
        repeats: 1,
        deterministic,
    })?;
    let options = evaluate::baseline::Options {
        python: global.python.clone().into_os_string(),
        ..Default::default()
    };
    let pipeline = pipeline.with_baseline_options(options);
    if deterministic {
        return Ok((pipeline, version));
    }
    let observers = Observers::find(&Places::from_environment(global.ptxas.clone()));
    let observers = match logs {
        Some(folder) => observers.keeping(folder),
        None => observers,
    };
    let pipeline = pipeline
        .with_simulator(Arc::new(SimDevice::new(gpu)))
        .with_observers(observers);
    Ok((pipeline, version))
}

/// Who estimates settings for a run that judges only a part of them or tries new sources in their order; `None` for
/// a run that asks for neither.
pub(super) fn estimator(
    judge: &Judge,
    config: &RunConfig,
    global: &Global,
) -> anyhow::Result<Option<Pipeline>> {
    let asked = match (config.search.prefilter, config.search.prior) {
        (Some(_), _) => "--prefilter",
        (None, true) => "--prior sim",
        (None, false) => return Ok(None),
    };
    let (Some(task), Some(gpu)) = (&judge.task, &judge.gpu) else {
        bail!(
            "{asked}: the cost model needs a task with PTX and a GPU whose facts are known; {} has none",
            judge.device
        );
    };
    if judge.times == "estimated" {
        bail!(
            "{asked}: what the simulator judges is estimated already; use it with a GPU or a recorded table"
        );
    }
    let device: Arc<dyn Device> = Arc::new(SimDevice::new(gpu.clone()).on_one_core());
    let (pipeline, _) = open_pipeline(task, device, judge.arch, config.seed, true, None, global)?;
    Ok(Some(pipeline))
}

/// What speedups are over, and the baselines where they were measured.
fn denominators(
    pipeline: &Pipeline,
    over: Over,
) -> anyhow::Result<(Option<BaselineTime>, Option<Baselines>)> {
    let baselines = match over {
        Over::Earlier {
            baseline,
            baselines,
        } => {
            match (&baselines, &baseline) {
                (Some(baselines), _) if baselines.frontier().is_some() => {
                    pipeline.set_baselines(baselines.clone());
                }
                (_, Some(baseline)) => pipeline.set_seed_time(baseline.time),
                (_, None) => {}
            }
            return Ok((baseline, baselines));
        }
        Over::Seed => None,
        Over::Frontier => pipeline.measure_baselines(&note)?.cloned(),
    };
    let frontier = baselines.as_ref().and_then(Baselines::frontier);
    let seed = seed_time(pipeline)?;
    let baseline = match frontier {
        Some(frontier) => Some(BaselineTime {
            name: frontier.title(),
            time: frontier.time,
        }),
        None => seed.map(|time| BaselineTime {
            name: "seed".into(),
            time,
        }),
    };
    Ok((baseline, baselines))
}

/// The time of the task's seed; a seed that fails its own task is told at once.
fn seed_time(pipeline: &Pipeline) -> anyhow::Result<Option<Nanos>> {
    let evaluation = pipeline.judge_seed()?;
    match evaluation.verdict.measurement() {
        Some(measurement) => Ok(Some(measurement.time.nanos())),
        None => {
            let reason = evaluation.verdict.reason().unwrap_or_default();
            note(&format!(
                "the task's own seed is {}: {reason}; speedups will be over nothing",
                evaluation.verdict.stage()
            ));
            Ok(None)
        }
    }
}

pub(super) fn find_ptxas(global: &Global) -> anyhow::Result<toolchain::Ptxas> {
    let network = if global.offline {
        Network::Forbidden
    } else {
        Network::Allowed
    };
    let places = Places::from_environment(global.ptxas.clone());
    Ok(toolchain::ptxas(&places, network, &note)?)
}

/// The device, what to call it, and whether it is the simulator.
pub(super) fn open_device(spec: &DeviceSpec) -> anyhow::Result<(Arc<dyn Device>, String, bool)> {
    Ok(match spec.resolved() {
        DeviceSpec::Sim(name) => {
            let device: Arc<dyn Device> = Arc::new(SimDevice::new(Gpu::named(&name)?));
            (device, spec.label(), true)
        }
        DeviceSpec::Cuda(ordinals) => {
            let command = WorkerCommand::current()?;
            let pool = CudaPool::open(&ordinals, &command, &cuda::Options::default())?;
            (Arc::new(pool), spec.label(), false)
        }
        DeviceSpec::Auto | DeviceSpec::Recorded(_) => {
            unreachable!("auto is resolved, and tables are opened without a device")
        }
    })
}

/// A table of measurements: a run folder or trace of our own, or the file of another tuner.
fn open_table(task: &str, path: &Path, global: &Global) -> anyhow::Result<Judge> {
    if is_run(path) {
        return open_trace(task, path, global);
    }
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let table = recorded::read(&bytes).with_context(|| path.display().to_string())?;
    for warning in table.warnings() {
        note(&format!("{}: {warning}", path.display()));
    }
    let source = table.source_text(&[]);
    Ok(Judge {
        name: task.to_owned(),
        task: None,
        digest: Digest::of(&bytes),
        sources: vec![("table".to_owned(), source.into())],
        gpu_name: "the GPU of the table".to_owned(),
        device: format!("recorded:{}", path.display()),
        evaluator: Box::new(Recorded::new(table)),
        times: "recorded",
        gpu: None,
        arch: SmArch::SM_90A,
        assembler: None,
        baseline: None,
        baselines: None,
        stages: Arc::default(),
    })
}

/// Whether a recording is a run of our own: its folder or its trace.
fn is_run(path: &Path) -> bool {
    path.is_dir() || path.to_string_lossy().ends_with(".jsonl.gz")
}

fn open_trace(task: &str, path: &Path, global: &Global) -> anyhow::Result<Judge> {
    let run = StoredRun::open(path)?;
    let config = &run.config;
    if config.task != task {
        bail!(
            "the run in {} is of task {}, not {task}",
            path.display(),
            config.task
        );
    }
    let graph = RunGraph::read(&run)?;
    let verdicts = run.lines.iter().filter_map(|line| {
        let (node, setting, evaluation) = line.event.evaluated()?;
        let source = graph.node(node)?.source.digest();
        Some((source, setting.clone(), evaluation.verdict.clone()))
    });
    let evaluator = Box::new(Trace::new(verdicts));
    let task = Arc::new(Catalogue::open(global.tasks.as_deref())?.task(task)?);
    let sources = config
        .roots
        .iter()
        .map(|root| Ok((root.label.clone(), run.objects.text(root.source)?.into())))
        .collect::<anyhow::Result<_>>()?;
    Ok(Judge {
        name: config.task.clone(),
        digest: config.task_digest,
        sources,
        gpu_name: config.gpu.clone(),
        device: format!("recorded:{}", path.display()),
        evaluator,
        times: "recorded",
        // Facts for prompts; a GPU that no table knows leaves a model without them.
        gpu: Gpu::named(&config.gpu).ok(),
        arch: config.arch,
        assembler: config.assembler.clone(),
        baseline: config.baseline.clone(),
        baselines: config.baselines.clone(),
        task: Some(task),
        stages: Arc::default(),
    })
}

/// The seed, then every space, by label.
fn sources(task: &Task) -> Vec<(String, Arc<str>)> {
    let seed = ("seed".to_owned(), Arc::clone(&task.seed));
    let spaces = task
        .spaces
        .iter()
        .map(|space| (format!("space {}", space.name), Arc::clone(&space.text)));
    std::iter::once(seed).chain(spaces).collect()
}
