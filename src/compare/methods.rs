//! How each method spends its budget. All of them judge through the same evaluator; none sees another's
//! results; the winner of each is judged again in the same way.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Budget, Cost, Judged, Method, Remeasured, Series};
use crate::device::RigError;
use crate::driver::{DriveError, Observer, Rig, drive};
use crate::evaluate::{Evaluation, Evaluator};
use crate::files;
use crate::propose::{ProposeError, Proposer, ProposerKind};
use crate::search::{Expander, NodeId, Search};
use crate::source::{Point, Source};
use crate::store::{Event, Line, RunConfig, RunGraph, RunWriter, StoreError, StoredRun};
use crate::task::Task;
use crate::units::Digest;
use crate::verdict::Verdict;

/// Contenders that a second look may refute before a series counts as without a winner.
const MOST_REFUTED: usize = 8;

/// Settings that are drawn before any of them is judged, where the budget is not in kernels.
const DRAWN_AT_ONCE: usize = 16;

/// Answers in a row that gave a judge nothing to do, after which a series ends whose budget is in seconds of
/// judging: it would never be used up, and each answer may cost money.
const MOST_IDLE: u32 = 32;

/// A finished series, in its folder.
const SERIES: &str = "series.json";

/// Makes a model's proposer for a series, afresh, so that a scripted one starts from its first reply.
pub type MakeModel<'a> = dyn Fn(Method, u64) -> Result<Box<dyn Proposer>, ProposeError> + 'a;

/// What every method shares.
pub struct Bench<'a> {
    /// The task; tables recorded elsewhere have none.
    pub task: Option<&'a Task>,
    /// The judge.
    pub evaluator: &'a dyn Evaluator,
    /// The mechanical rewrites.
    pub rewrites: Option<&'a dyn Proposer>,
    /// The model.
    pub model: Option<&'a MakeModel<'a>>,
    /// The sources there are, the seed first.
    pub sources: &'a [Arc<Source>],
    /// The configuration of the search, but for proposers and seed.
    pub config: &'a RunConfig,
    /// What each series may cost.
    pub budget: Budget,
    /// Answers in a row that a serial repair takes before it starts afresh.
    pub turns: u32,
    /// Threads.
    pub jobs: usize,
    /// Where runs and finished series are kept.
    pub folder: &'a Path,
}

/// A series could not be made.
#[derive(Debug, thiserror::Error)]
pub enum MethodError {
    /// The search broke off.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// A run folder.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The judge broke.
    #[error(transparent)]
    Rig(#[from] RigError),
    /// The model did.
    #[error("{0}\nfinished series are kept; the same command goes on")]
    Propose(#[from] ProposeError),
    /// It needs what there is not.
    #[error("method {method} asks a model: name one with --model")]
    NoModel {
        /// Which method.
        method: &'static str,
    },
    /// The folder holds something else.
    #[error("{} holds a series of another comparison; name another folder with --out", path.display())]
    Foreign {
        /// Of which series.
        path: PathBuf,
    },
    /// A series cannot be written or read.
    #[error("cannot keep the series in {}: {message}", path.display())]
    Keep {
        /// Which file.
        path: PathBuf,
        /// Why.
        message: String,
    },
    /// Ctrl-C.
    #[error("stopped; what was judged is kept, and the same command goes on")]
    Interrupted,
}

/// A finished series, and what it was made under.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    key: Digest,
    series: Series,
}

/// A valid kernel, for the second look.
pub(super) struct Contender {
    pub(super) cost: f64,
    pub(super) source: Arc<Source>,
    pub(super) point: Point,
}

impl Bench<'_> {
    /// What a series, and its folder, is called.
    pub fn name(method: Method, seed: u64) -> String {
        format!("{}-{seed}", method.name())
    }

    /// One series; one that is finished already is read.
    pub fn run(
        &self,
        method: Method,
        seed: u64,
        interrupt: &AtomicBool,
    ) -> Result<Series, MethodError> {
        let folder = self.folder.join(Self::name(method, seed));
        let path = folder.join(SERIES);
        let key = self.key(method, seed);
        if let Some(series) = kept(&path, key)? {
            return Ok(series);
        }
        // No series lives on what another paid for: each measures its kernels itself.
        if self.budget.judge_seconds.is_some() || !self.evaluator.deterministic() {
            self.evaluator.forget();
        }
        let mut contenders = Vec::new();
        let judged = match method {
            Method::Search => {
                let model = self.model.map(|make| make(method, seed)).transpose()?;
                let mut proposers: Vec<(Expander, &dyn Proposer)> = Vec::new();
                proposers.extend(self.rewrites.map(|rewrites| (Expander::Rewrites, rewrites)));
                proposers.extend(model.as_deref().map(|model| (Expander::Model, model)));
                self.search(&folder, seed, proposers, interrupt, &mut contenders)?
            }
            Method::KnobsOnly => {
                self.search(&folder, seed, Vec::new(), interrupt, &mut contenders)?
            }
            Method::Random => self.random(seed, interrupt, &mut contenders)?,
            Method::SingleShot | Method::BestOfN | Method::Refine => {
                self.replies(method, seed, interrupt, &mut contenders)?
            }
        };
        let series = Series {
            method,
            seed,
            judged,
            winner: self.remeasure(contenders)?,
        };
        keep(&path, &Kept { key, series })
    }

    /// Kernels that are judged side by side. Where seconds of judging are what is equal, one after the other: a
    /// kernel that waits for another's judge costs nothing then.
    fn jobs(&self) -> usize {
        match self.budget.judge_seconds {
            Some(_) => 1,
            None => self.jobs,
        }
    }

    /// Whether a series ends after so many answers in a row that needed no judge.
    pub(super) fn is_idle(&self, answers: u32) -> bool {
        self.budget.judge_seconds.is_some() && answers >= MOST_IDLE
    }

    /// Everything that decides a series, and nothing that was measured.
    pub(super) fn key(&self, method: Method, seed: u64) -> Digest {
        let mut config = asked(self.config);
        config.seed = seed;
        let text = format!(
            "{} {config:?} {:?} {} {:?}",
            method.name(),
            self.budget,
            self.turns,
            self.sources
                .iter()
                .map(|source| Digest::of(source.text.as_bytes()))
                .collect::<Vec<_>>()
        );
        Digest::of(text.as_bytes())
    }

    fn search(
        &self,
        folder: &Path,
        seed: u64,
        proposers: Vec<(Expander, &dyn Proposer)>,
        interrupt: &AtomicBool,
        contenders: &mut Vec<Contender>,
    ) -> Result<Vec<Judged>, MethodError> {
        let mut config = self.config.clone();
        config.seed = seed;
        config.proposers = vec![ProposerKind::Knobs];
        config
            .proposers
            .extend(proposers.iter().map(|(by, _)| match by {
                Expander::Rewrites => ProposerKind::Rewrites,
                Expander::Model => ProposerKind::Model,
            }));
        let most = self.budget.evaluations;
        config.search.stop.evaluations = most.map(|most| most.min(u64::from(u32::MAX)) as u32);
        let (mut run, past) = self.open_run(folder, config)?;
        let rig = Rig {
            evaluator: self.evaluator,
            // A model's answers too are applied in the order asked, slow or not: with them recorded, the series
            // can be made again without the model.
            deterministic: self.evaluator.deterministic(),
            proposers,
            task: self.task,
            jobs: self.jobs(),
            estimator: None,
            // every method's winner is judged again in the same way, by us
            confirm: false,
        };
        let ended = past
            .iter()
            .any(|line| matches!(line.event, Event::Finished { .. }));
        if !ended {
            let stop = AtomicBool::new(false);
            let mut meter = Meter {
                bench: self,
                cost: Cost::default(),
                idle: 0,
                stop: &stop,
                interrupt,
                model_gone: None,
            };
            drive(&rig, &mut run, &past, &stop, &mut meter)?;
            if let Some(message) = meter.model_gone {
                return Err(ProposeError::Unavailable(message).into());
            }
            if interrupt.load(Ordering::Relaxed) && !self.budget.is_spent(&meter.cost) {
                return Err(MethodError::Interrupted);
            }
        }
        self.read_search(&StoredRun::open(folder)?, contenders)
    }

    /// The run of a search: new, or as far as it went. One that lost its model went on with less than the other
    /// methods have, so it begins again; replies that were recorded are not asked for again.
    fn open_run(
        &self,
        folder: &Path,
        config: RunConfig,
    ) -> Result<(RunWriter, Vec<Line>), MethodError> {
        if folder.join("run.toml").exists() {
            let (run, past) = RunWriter::resume(folder)?;
            if asked(&run.config) != asked(&config) {
                let path = folder.to_owned();
                return Err(MethodError::Foreign { path });
            }
            if !past.iter().any(|line| model_gone(&line.event).is_some()) {
                return Ok((run, past));
            }
            drop(run);
            // in this order: a run without events begins again, events without a run are a riddle
            for file in ["events.jsonl", "run.toml"] {
                let path = folder.join(file);
                fs::remove_file(&path).map_err(|error| MethodError::Keep {
                    message: error.to_string(),
                    path,
                })?;
            }
        }
        let texts = self.sources.iter().map(|source| &*source.text);
        Ok((RunWriter::create(folder, config, texts)?, Vec::new()))
    }

    /// What a search judged, up to its budget.
    fn read_search(
        &self,
        run: &StoredRun,
        contenders: &mut Vec<Contender>,
    ) -> Result<Vec<Judged>, MethodError> {
        let graph = RunGraph::read(run)?;
        let mut turns: HashMap<NodeId, u32> = HashMap::new();
        let mut cost = Cost::default();
        let mut series = Vec::new();
        for line in &run.lines {
            if self.budget.is_spent(&cost) {
                break;
            }
            let added = spend(&mut cost, &line.event);
            match (&line.event, added) {
                (
                    Event::Evaluated {
                        node,
                        point,
                        evaluation,
                        ..
                    },
                    _,
                ) => {
                    let depth = |id: NodeId| graph.lineage(id).len().saturating_sub(1) as u32;
                    let turn = *turns.entry(*node).or_insert_with(|| depth(*node));
                    series.push(judged(&evaluation.verdict, turn, cost));
                    if let (Some(cost), Some(stored)) = (evaluation.cost(), graph.node(*node)) {
                        contenders.push(Contender {
                            cost,
                            source: Arc::clone(&stored.source),
                            point: point.clone(),
                        });
                    }
                }
                (Event::ExpandFailed { node, .. }, true) => {
                    let turn = graph.lineage(*node).len() as u32;
                    series.push(unusable(turn, cost));
                }
                (_, true | false) => {}
            }
        }
        Ok(series)
    }

    /// The draws do not depend on results, so they are made first and judged in parallel.
    fn random(
        &self,
        seed: u64,
        interrupt: &AtomicBool,
        contenders: &mut Vec<Contender>,
    ) -> Result<Vec<Judged>, MethodError> {
        let mut rng = Pcg64::seed_from_u64(seed);
        let mut drawn: Vec<(usize, Point)> = Vec::new();
        let mut cost = Cost::default();
        let mut series = Vec::new();
        let mut misses = 0;
        while !self.budget.is_spent(&cost) {
            if interrupt.load(Ordering::Relaxed) {
                return Err(MethodError::Interrupted);
            }
            let left = self.budget.evaluations.map(|most| most - cost.evaluations);
            let at_once = match self.budget.judge_seconds {
                Some(_) => self.jobs(),
                None => DRAWN_AT_ONCE,
            };
            let wanted = left.map_or(at_once, |left| at_once.min(left as usize));
            let first = drawn.len();
            while drawn.len() < first + wanted && misses < 1000 {
                let index = rng.random_range(0..self.sources.len());
                let draw = (index, self.sources[index].space().sample(&mut rng));
                if drawn.contains(&draw) {
                    misses += 1;
                } else {
                    drawn.push(draw);
                    misses = 0;
                }
            }
            if drawn.len() == first {
                break;
            }
            let (evaluator, sources) = (self.evaluator, self.sources);
            let results: Vec<(Evaluation, f64)> = drawn[first..]
                .par_iter()
                .map(|(index, point)| judge(evaluator, &sources[*index], point))
                .collect::<Result<_, _>>()?;
            for ((index, point), (evaluation, seconds)) in drawn[first..].iter().zip(results) {
                if self.budget.is_spent(&cost) {
                    break;
                }
                cost.judge(seconds);
                series.push(judged(&evaluation.verdict, 0, cost));
                contenders.extend(evaluation.cost().map(|cost| Contender {
                    cost,
                    source: Arc::clone(&self.sources[*index]),
                    point: point.clone(),
                }));
            }
        }
        Ok(series)
    }

    /// The second look: the best contender that passes it.
    fn remeasure(&self, mut contenders: Vec<Contender>) -> Result<Option<Remeasured>, MethodError> {
        contenders.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        contenders.truncate(MOST_REFUTED);
        if contenders.is_empty() {
            return Ok(None);
        }
        let mut refuted = 0;
        for contender in &contenders {
            let evaluation = self
                .evaluator
                .confirm(&contender.source, &contender.point)?;
            match evaluation.verdict.measurement() {
                Some(measurement) => {
                    return Ok(Some(Remeasured {
                        time: Some(measurement.time.nanos()),
                        refuted,
                    }));
                }
                None => refuted += 1,
            }
        }
        Ok(Some(Remeasured {
            time: None,
            refuted,
        }))
    }
}

/// Judges a kernel, and says how many seconds that took.
pub(super) fn judge(
    evaluator: &dyn Evaluator,
    source: &Source,
    point: &Point,
) -> Result<(Evaluation, f64), RigError> {
    let started = Instant::now();
    let evaluation = evaluator.evaluate(source, point)?;
    Ok((evaluation, started.elapsed().as_secs_f64()))
}

pub(super) fn judged(verdict: &Verdict, turn: u32, cost: Cost) -> Judged {
    Judged {
        stage: verdict.stage().to_owned(),
        time: verdict
            .measurement()
            .map(|measurement| measurement.time.nanos()),
        turn,
        cost,
    }
}

pub(super) fn unusable(turn: u32, cost: Cost) -> Judged {
    Judged {
        stage: "no usable reply".to_owned(),
        time: None,
        turn,
        cost,
    }
}

/// Adds what an event cost; whether a kernel was judged or a model's reply held none.
fn spend(cost: &mut Cost, event: &Event) -> bool {
    if let Some(asked) = event.asked() {
        cost.charge(&asked.spent);
    }
    match event {
        Event::Evaluated { took_ms, .. } => {
            cost.judge(*took_ms as f64 / 1e3);
            true
        }
        Event::ExpandFailed {
            by: Expander::Model,
            ..
        } => {
            cost.judge(0.0);
            true
        }
        Event::ExpandFailed {
            by: Expander::Rewrites,
            ..
        }
        | Event::Expanded { .. }
        | Event::Away { .. }
        | Event::Unavailable { .. }
        | Event::Retimed { .. }
        | Event::Confirmed { .. }
        | Event::Finished { .. } => false,
    }
}

/// Why the model answers no more, where an event says so.
fn model_gone(event: &Event) -> Option<&str> {
    match event {
        Event::Away {
            by: Expander::Model,
            message,
            ..
        }
        | Event::Unavailable {
            by: Expander::Model,
            message,
            ..
        } => Some(message),
        Event::Away {
            by: Expander::Rewrites,
            ..
        }
        | Event::Unavailable {
            by: Expander::Rewrites,
            ..
        }
        | Event::Evaluated { .. }
        | Event::Expanded { .. }
        | Event::ExpandFailed { .. }
        | Event::Retimed { .. }
        | Event::Confirmed { .. }
        | Event::Finished { .. } => None,
    }
}

/// Stops a search whose budget is spent or whose model is gone, or when the user says so.
struct Meter<'a> {
    bench: &'a Bench<'a>,
    cost: Cost,
    /// Answers since a kernel was judged.
    idle: u32,
    stop: &'a AtomicBool,
    interrupt: &'a AtomicBool,
    /// Why the model went before the budget was spent.
    model_gone: Option<String>,
}

impl Observer for Meter<'_> {
    fn applied(&mut self, line: &Line, _: &Search) {
        let budget = &self.bench.budget;
        let spent_before = budget.is_spent(&self.cost);
        spend(&mut self.cost, &line.event);
        self.idle = match &line.event {
            Event::Evaluated { .. } => 0,
            Event::Expanded { .. } | Event::ExpandFailed { .. } => self.idle + 1,
            Event::Away { .. }
            | Event::Unavailable { .. }
            | Event::Retimed { .. }
            | Event::Confirmed { .. }
            | Event::Finished { .. } => self.idle,
        };
        if budget.is_spent(&self.cost) || self.bench.is_idle(self.idle) {
            self.stop.store(true, Ordering::Relaxed);
        }
        if let Some(message) = model_gone(&line.event).filter(|_| !spent_before) {
            self.model_gone.get_or_insert_with(|| message.to_owned());
            self.stop.store(true, Ordering::Relaxed);
        }
        self.tick();
    }

    fn tick(&mut self) {
        if self.interrupt.load(Ordering::Relaxed) {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// What was asked for, without what was measured first.
fn asked(config: &RunConfig) -> RunConfig {
    RunConfig {
        baseline: None,
        baselines: None,
        ..config.clone()
    }
}

fn kept(path: &Path, key: Digest) -> Result<Option<Series>, MethodError> {
    if !path.exists() {
        return Ok(None);
    }
    let read = || -> Result<Kept, Box<dyn std::error::Error>> {
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    };
    let kept = read().map_err(|error| MethodError::Keep {
        path: path.to_owned(),
        message: error.to_string(),
    })?;
    if kept.key != key {
        let path = path.to_owned();
        return Err(MethodError::Foreign { path });
    }
    Ok(Some(kept.series))
}

fn keep(path: &Path, kept: &Kept) -> Result<Series, MethodError> {
    serde_json::to_vec(kept)
        .map_err(std::io::Error::from)
        .and_then(|bytes| files::replace(path, &bytes))
        .map_err(|error| MethodError::Keep {
            path: path.to_owned(),
            message: error.to_string(),
        })?;
    Ok(kept.series.clone())
}
