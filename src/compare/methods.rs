//! How each method spends its budget. All of them judge through the same evaluator; none sees another's
//! results.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use rayon::prelude::*;

use super::{Judged, Method, Series};
use crate::device::RigError;
use crate::driver::{DriveError, Observer, Rig, drive};
use crate::evaluate::Evaluator;
use crate::llm::Tally;
use crate::propose::{ProposalRequest, ProposeError, Proposer, ProposerKind};
use crate::search::{Expander, Search};
use crate::source::{Point, Source};
use crate::store::{Event, Line, RunConfig, RunWriter, StoreError, StoredRun};
use crate::task::Task;
use crate::verdict::Verdict;

/// What every method shares.
pub struct Bench<'a> {
    /// The task; tables recorded elsewhere have none.
    pub task: Option<&'a Task>,
    /// The judge.
    pub evaluator: &'a dyn Evaluator,
    /// The mechanical rewrites.
    pub rewrites: Option<&'a dyn Proposer>,
    /// Makes the model's proposer afresh, so that a scripted one starts from its first reply.
    pub model: Option<&'a dyn Fn() -> Result<Box<dyn Proposer>, ProposeError>>,
    /// The sources there are, the seed first.
    pub sources: &'a [Arc<Source>],
    /// The configuration of the search, but for proposers and seed.
    pub config: &'a RunConfig,
    /// Kernels each series may judge.
    pub budget: u64,
    /// Threads.
    pub jobs: usize,
    /// Where runs are kept.
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
    #[error("{0}")]
    Propose(#[from] ProposeError),
    /// It needs what there is not.
    #[error("method {method} asks a model: name one with --model")]
    NoModel {
        /// Which method.
        method: &'static str,
    },
    /// Ctrl-C.
    #[error("stopped; what was judged is kept, and the same command goes on")]
    Interrupted,
}

impl Bench<'_> {
    /// One series.
    pub fn run(
        &self,
        method: Method,
        seed: u64,
        interrupt: &AtomicBool,
    ) -> Result<Series, MethodError> {
        let judged = match method {
            Method::Search => {
                let model = self.model.map(|make| make()).transpose()?;
                let mut proposers: Vec<(Expander, &dyn Proposer)> = Vec::new();
                proposers.extend(self.rewrites.map(|rewrites| (Expander::Rewrites, rewrites)));
                proposers.extend(model.as_deref().map(|model| (Expander::Model, model)));
                self.search(method, seed, proposers, interrupt)?
            }
            Method::KnobsOnly => self.search(method, seed, Vec::new(), interrupt)?,
            Method::Random => self.random(seed)?,
            Method::SingleShot => self.replies(method, 1)?,
            Method::BestOfN => self.replies(method, self.budget)?,
        };
        Ok(Series {
            method,
            seed,
            judged,
        })
    }

    fn search(
        &self,
        method: Method,
        seed: u64,
        proposers: Vec<(Expander, &dyn Proposer)>,
        interrupt: &AtomicBool,
    ) -> Result<Vec<Judged>, MethodError> {
        let folder: PathBuf = self.folder.join(format!("{}-{seed}", method.name()));
        let mut config = self.config.clone();
        config.seed = seed;
        config.proposers = vec![ProposerKind::Knobs];
        config
            .proposers
            .extend(proposers.iter().map(|(by, _)| match by {
                Expander::Rewrites => ProposerKind::Rewrites,
                Expander::Model => ProposerKind::Model,
            }));
        config.search.stop.evaluations = Some(self.budget.min(u64::from(u32::MAX)) as u32);
        let (mut run, past) = match folder.join("run.toml").exists() {
            true => RunWriter::resume(&folder)?,
            false => {
                let texts = self.sources.iter().map(|source| &*source.text);
                (RunWriter::create(&folder, config, texts)?, Vec::new())
            }
        };
        let rig = Rig {
            evaluator: self.evaluator,
            deterministic: self.evaluator.deterministic(),
            proposers,
            task: self.task,
            jobs: self.jobs,
            // methods are compared by what they judged, at equal budgets
            confirm: false,
        };
        let ended = past
            .iter()
            .any(|line| matches!(line.event, Event::Finished { .. }));
        if !ended {
            let outcome = drive(&rig, &mut run, &past, interrupt, &mut Quiet)?;
            if outcome == crate::driver::Ended::Interrupted {
                return Err(MethodError::Interrupted);
            }
        }
        let stored = StoredRun::open(&folder)?;
        Ok(stored
            .lines
            .iter()
            .filter_map(|line| match &line.event {
                Event::Evaluated { evaluation, .. } => Some(judged(&evaluation.verdict)),
                Event::Expanded { .. }
                | Event::ExpandFailed { .. }
                | Event::Away { .. }
                | Event::Unavailable { .. }
                | Event::Confirmed { .. }
                | Event::Finished { .. } => None,
            })
            .collect())
    }

    /// The draws do not depend on results, so they are made first and judged in parallel.
    fn random(&self, seed: u64) -> Result<Vec<Judged>, MethodError> {
        let mut rng = Pcg64::seed_from_u64(seed);
        let mut drawn: Vec<(usize, Point)> = Vec::new();
        let mut misses = 0;
        while (drawn.len() as u64) < self.budget && misses < 1000 {
            let index = rng.random_range(0..self.sources.len());
            let draw = (index, self.sources[index].space().sample(&mut rng));
            if drawn.contains(&draw) {
                misses += 1;
            } else {
                drawn.push(draw);
                misses = 0;
            }
        }
        drawn
            .par_iter()
            .map(|(index, point)| {
                let evaluation = self.evaluator.evaluate(&self.sources[*index], point)?;
                Ok(judged(&evaluation.verdict))
            })
            .collect()
    }

    fn replies(&self, method: Method, count: u64) -> Result<Vec<Judged>, MethodError> {
        let (Some(make), Some(task)) = (self.model, self.task) else {
            return Err(MethodError::NoModel {
                method: method.name(),
            });
        };
        let model = make()?;
        let seed_source = &self.sources[0];
        let mut series = Vec::new();
        for attempt in 0..count.min(u64::from(u32::MAX)) as u32 {
            let request = ProposalRequest {
                attempt,
                ..ProposalRequest::first(task, seed_source)
            };
            let reply = model.propose(&request, &mut Tally::default());
            match reply {
                Ok(proposals) => series.push(match proposals.first() {
                    Some(proposal) => self.judge(&proposal.text, proposal.settings.first())?,
                    None => unusable(),
                }),
                Err(ProposeError::Unusable(_)) => series.push(unusable()),
                Err(error @ (ProposeError::Away(_) | ProposeError::Unavailable(_))) => {
                    return Err(error.into());
                }
            }
        }
        Ok(series)
    }

    fn judge(
        &self,
        text: &str,
        setting: Option<&crate::source::Setting>,
    ) -> Result<Judged, MethodError> {
        let Ok(source) = Source::parse(text) else {
            return Ok(unusable());
        };
        let wanted = setting.and_then(|setting| source.space().point(setting).ok());
        let Some(point) = wanted.or_else(|| source.space().default_point().ok()) else {
            return Ok(unusable());
        };
        Ok(judged(&self.evaluator.evaluate(&source, &point)?.verdict))
    }
}

fn judged(verdict: &Verdict) -> Judged {
    Judged {
        stage: verdict.stage().to_owned(),
        time: verdict
            .measurement()
            .map(|measurement| measurement.time.nanos()),
    }
}

fn unusable() -> Judged {
    Judged {
        stage: "no usable reply".to_owned(),
        time: None,
    }
}

struct Quiet;

impl Observer for Quiet {
    fn applied(&mut self, _: &Line, _: &Search) {}
}
