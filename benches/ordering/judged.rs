//! What was measured, read from traces, and what the simulator sees of it.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::SeedableRng;
use rand::seq::SliceRandom as _;
use rand_pcg::Pcg64;
use rayon::prelude::*;
use warptree::device::{Device as _, Did, Job, SimDevice};
use warptree::evaluate::{launch_names, timed_buffers};
use warptree::search::NodeId;
use warptree::sim::cost::{Constants, Facts, Limits, facts};
use warptree::source::{Setting, Source};
use warptree::store::{Event, RunGraph, StoredRun};
use warptree::task::{Catalogue, Problem, Purpose};
use warptree::units::Digest;
use warptree::verdict::{Time, Verdict};

/// Of their draw.
const SEED: u64 = 20_261_130;
/// Raised when blocks do other things than before.
const KEPT: &str = "4";

/// A trace's settings.
pub struct Ranking {
    /// Where it was read from.
    pub file: PathBuf,
    /// The file's name without its endings.
    pub name: String,
    /// What must not be scored by constants that were fitted on it.
    pub task: String,
    /// Some of its kernels use `wgmma`.
    pub wgmma: bool,
    /// In the order of the log.
    pub settings: Vec<Judged>,
}

/// One measured setting.
pub struct Judged {
    /// The source.
    pub node: NodeId,
    /// What it grew from.
    pub parents: Vec<NodeId>,
    /// Its place in the log.
    pub logged: usize,
    /// The node's label.
    pub label: String,
    /// The knobs.
    pub setting: Setting,
    /// Median, ns.
    pub time: f64,
    /// ns.
    pub samples: Vec<f64>,
    /// By entry.
    pub registers: Vec<(String, u32)>,
    /// What the model sees, launch by launch.
    pub launches: Vec<Facts>,
}

impl Ranking {
    /// ns.
    pub fn measured(&self) -> Vec<f64> {
        self.settings.iter().map(|judged| judged.time).collect()
    }

    /// ns.
    pub fn samples(&self) -> Vec<&[f64]> {
        self.settings
            .iter()
            .map(|judged| &judged.samples[..])
            .collect()
    }

    /// Seconds.
    pub fn estimates(&self, limits: &Limits, constants: &Constants) -> Vec<f64> {
        self.settings
            .iter()
            .map(|judged| judged.seconds(limits, constants))
            .collect()
    }
}

impl Judged {
    fn seconds(&self, limits: &Limits, constants: &Constants) -> f64 {
        self.launches
            .iter()
            .map(|facts| facts.estimate(limits, constants).seconds)
            .sum()
    }
}

/// Every trace whose name begins with one of `names`; all where there are none.
pub fn read_all(
    device: &SimDevice,
    names: &[String],
    count: usize,
) -> Result<Vec<Ranking>, Box<dyn Error>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir("traces")?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .collect();
    files.sort();
    let wanted = |name: &str| names.is_empty() || names.iter().any(|n| name.starts_with(&**n));
    let mut rankings = Vec::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let Some(name) = name.strip_suffix(".jsonl.gz") else {
            continue;
        };
        let name = name.replace("-h200", "");
        if wanted(&name) {
            let started = std::time::Instant::now();
            rankings.push(read(device, &file, &name, count)?);
            eprintln!("{name}: {:.1?}", started.elapsed());
        }
    }
    Ok(rankings)
}

fn read(
    device: &SimDevice,
    file: &Path,
    name: &str,
    count: usize,
) -> Result<Ranking, Box<dyn Error>> {
    let run = StoredRun::open(file)?;
    let graph = RunGraph::read(&run)?;
    let nvcc = Path::new("tests/data/nvcc");
    let catalogue = if name.starts_with("nvcc-") {
        Catalogue::open(Some(nvcc))?
    } else {
        Catalogue::embedded()
    };
    let task = Arc::new(catalogue.task(&run.config.task)?);
    let size = task
        .sizes
        .iter()
        .find(|size| size.purpose == Purpose::Bench)
        .ok_or("no size to time")?;
    let case = *task.cases.first().ok_or("no input case")?;
    let problem = Problem::new(&task, size, case, 0)?;
    let buffers = timed_buffers(&problem);
    let mut measured = Vec::new();
    for line in &run.lines {
        if let Event::Evaluated {
            node,
            point,
            setting,
            evaluation,
            ..
        } = &line.event
            && let Verdict::Measured(measurement) = &evaluation.verdict
            && let Time::Measured {
                median, samples, ..
            } = &measurement.time
        {
            let stored = graph.node(*node).ok_or("a node that is not in the graph")?;
            let place = (*node, measured.len());
            measured.push((
                place,
                stored,
                point,
                setting,
                median.get(),
                samples,
                measurement,
            ));
        }
    }
    measured.shuffle(&mut Pcg64::seed_from_u64(SEED));
    measured.truncate(count);
    let settings = measured
        .par_iter()
        .map(
            |((id, logged), node, point, setting, time, samples, measurement)| {
                let source: &Source = &node.source;
                let candidate = source.render(point).map_err(|error| error.to_string())?;
                let module = candidate
                    .module
                    .clone()
                    .map_err(|error| error.to_string())?;
                let plan = candidate
                    .plan(&launch_names(&problem, device.gpu()))
                    .map_err(|error| error.to_string())?;
                let registers: Vec<(String, u32)> = measurement
                    .resources
                    .iter()
                    .map(|entry| (entry.entry.clone(), entry.registers))
                    .collect();
                let job = Job {
                    module: &module,
                    cubin: None,
                    registers: &registers,
                    plan: &plan,
                    buffers: &buffers,
                    sampled: &[],
                    order: 0,
                };
                let key = Digest::of_parts(
                    [
                        &*candidate.ptx,
                        &format!("{plan:?}"),
                        &format!("{registers:?}"),
                        KEPT,
                    ]
                    .map(str::as_bytes),
                );
                let launches = seen(device, &job, key)?;
                Ok((
                    candidate.ptx.contains("wgmma.mma_async"),
                    Judged {
                        node: *id,
                        parents: node.parents.clone(),
                        logged: *logged,
                        label: node.label.clone(),
                        setting: (*setting).clone(),
                        time: *time,
                        samples: (*samples).clone(),
                        registers,
                        launches,
                    },
                ))
            },
        )
        .collect::<Result<Vec<(bool, Judged)>, String>>()
        .map_err(|error| format!("{name}: {error}"))?;
    Ok(Ranking {
        file: file.to_owned(),
        name: name.to_owned(),
        task: run
            .config
            .task
            .split('@')
            .next()
            .unwrap_or_default()
            .to_owned(),
        wgmma: settings.iter().any(|(wgmma, _)| *wgmma),
        settings: settings.into_iter().map(|(_, judged)| judged).collect(),
    })
}

/// What the model sees of a job; what its blocks did is kept.
fn seen(device: &SimDevice, job: &Job<'_>, key: Digest) -> Result<Vec<Facts>, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ordering");
    let file = folder.join(key.to_string());
    let kept = std::fs::read(&file)
        .ok()
        .and_then(|bytes| postcard::from_bytes::<Vec<Did>>(&bytes).ok());
    let observed = match kept {
        Some(did) => device.recall(job, did),
        None => device.observe(job),
    }
    .map_err(|ended| format!("{ended:?}"))?;
    if !file.exists() {
        let did: Vec<&Did> = observed.iter().map(|launch| &launch.did).collect();
        let bytes = postcard::to_stdvec(&did).map_err(|error| error.to_string())?;
        std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(&file, bytes))
            .map_err(|error| format!("{}: {error}", file.display()))?;
    }
    let limits = device.limits();
    Ok(observed
        .iter()
        .map(|launch| facts(&launch.work(), &limits))
        .collect())
}
