//! Drives a run from where it stands to its end, shows it, and says what came of it. `search` and `resume`
//! differ only in how they come here.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;

use super::judge::Judge;
use super::{Exit, answer, note};
use crate::driver::{Ended, Estimator, Rig, drive};
use crate::evaluate::Pipeline;
use crate::llm::{self, Budget, Limits, OpenOptions, Prices, Rates};
use crate::propose::{AskOptions, ModelProposer, Proposer, ProposerKind, Rewrites};
use crate::report::{Format, Progress, Story};
use crate::search::Expander;
use crate::source::{Point, Source};
use crate::store::{Line, ModelConfig, RunWriter, StoredRun};

/// A run about to go on.
pub(super) struct Session {
    pub(super) judge: Judge,
    pub(super) run: RunWriter,
    pub(super) past: Vec<Line>,
    pub(super) jobs: usize,
    /// Estimates settings, where only a part of them is judged or new sources are tried in their order.
    pub(super) estimator: Option<Pipeline>,
    /// What the model may cost, where other runs share that; else the run has its own.
    pub(super) budget: Option<Arc<Budget>>,
}

impl Session {
    /// Drives it and answers with its story.
    pub(super) fn drive(self, json: bool, interrupt: &AtomicBool) -> anyhow::Result<Exit> {
        let folder = self.run.folder.clone();
        let format = if json { Format::Json } else { Format::Text };
        let ended = self.search(format, interrupt)?;
        let story = Story::read(&StoredRun::open(&folder)?, 3)?;
        let kernel = story
            .winner
            .as_ref()
            .is_some_and(|winner| winner.kernel.is_some());
        answer(json, story.brief(&folder, kernel), &story)?;
        Ok(match (ended, &story.winner) {
            (Ended::Interrupted, _) => {
                note(&format!(
                    "stopped; `warptree resume {}` goes on",
                    folder.display()
                ));
                Exit::Interrupted
            }
            (Ended::Stopped(_), Some(_)) => Exit::Success,
            (Ended::Stopped(_), None) => Exit::No,
        })
    }

    /// Drives it; progress is shown as `format` says.
    pub(super) fn search(self, format: Format, interrupt: &AtomicBool) -> anyhow::Result<Ended> {
        let Self {
            judge,
            mut run,
            past,
            jobs,
            estimator,
            budget: shared,
        } = self;
        let config = run.config.clone();
        let rewrites = Rewrites;
        let model = config
            .model
            .as_ref()
            .map(|model| {
                let record = run.folder.join(llm::RECORDING);
                let budget = shared.map_or_else(|| budget(model), Ok)?;
                open_model(model, &judge, record, &budget)
            })
            .transpose()?;
        let mut proposers: Vec<(Expander, &dyn Proposer)> = Vec::new();
        for proposer in &config.proposers {
            match proposer {
                ProposerKind::Knobs => {}
                ProposerKind::Rewrites => proposers.push((Expander::Rewrites, &rewrites)),
                ProposerKind::Model => {
                    let model = model.as_ref().context("run.toml names no model")?;
                    proposers.push((Expander::Model, model));
                }
            }
        }
        let deterministic = judge.evaluator.deterministic()
            && config
                .model
                .as_ref()
                .is_none_or(|model| llm::deterministic(&model.name));
        let estimate = estimator.as_ref().map(|estimator| {
            move |source: &Source, point: &Point| estimator.estimate(source, point)
        });
        let rig = Rig {
            evaluator: &*judge.evaluator,
            proposers,
            task: judge.task.as_deref(),
            jobs,
            deterministic,
            estimator: estimate.as_ref().map(|estimate| estimate as Estimator<'_>),
            // a table can only repeat itself
            confirm: judge.times != "recorded",
        };
        let mut progress = Progress::new(format, &config);
        let ended = drive(&rig, &mut run, &past, interrupt, &mut progress);
        progress.finish();
        Ok(ended?)
    }
}

/// A model's proposer; its exchanges go to the file `record`. What that holds was asked and paid for by earlier
/// sessions of the same run: it counts, and is not asked again.
pub(super) fn open_model(
    model: &ModelConfig,
    judge: &Judge,
    record: PathBuf,
    budget: &Arc<Budget>,
) -> anyhow::Result<ModelProposer> {
    let options = OpenOptions {
        record: Some(record),
        resume: true,
        ..options(model, budget)
    };
    let chat = llm::open(&model.name, model.base_url.as_deref(), &options)?;
    let gpu = judge
        .gpu
        .clone()
        .context("a model needs a task with PTX and a known GPU; this table has none")?;
    let usual = AskOptions::default();
    let asked = AskOptions {
        max_output_tokens: match model.reply_tokens {
            Some(tokens) => Some(tokens.get()),
            None => usual.max_output_tokens,
        },
        ..usual
    };
    let proposer = ModelProposer::new(Arc::from(chat), gpu, asked)?;
    Ok(match &model.prompts {
        Some(folder) => proposer.with_prompts(folder)?,
        None => proposer,
    })
}

/// Opens a model's client and throws it away: a budget without a price, a missing key, file or program, prompts
/// that are none are told before anything is judged.
pub(super) fn check_model(model: &ModelConfig) -> anyhow::Result<()> {
    if let Some(folder) = &model.prompts {
        ModelProposer::check_prompts(folder)?;
    }
    let options = options(model, &budget(model)?);
    llm::open(&model.name, model.base_url.as_deref(), &options)?;
    Ok(())
}

/// What a model may cost: all clients that share it together. A recording is priced as the model that it is of.
pub(super) fn budget(model: &ModelConfig) -> anyhow::Result<Arc<Budget>> {
    let limits = Limits {
        calls: model.max_calls,
        tokens: model.max_tokens,
        dollars: model.max_dollars,
    };
    let prices = match &model.prices {
        Some(file) => Prices::embedded().with_file(file)?,
        None => Prices::embedded(),
    };
    let recorded = match model.name.strip_prefix("replay:") {
        Some(recording) => llm::exchanges(Path::new(recording))?
            .into_iter()
            .next()
            .map(|exchange| exchange.model),
        None => None,
    };
    let name = recorded.as_ref().unwrap_or(&model.name);
    Ok(Arc::new(Budget::new(limits, prices.of(name))?))
}

/// How a model's client is made, but for its recording.
fn options(model: &ModelConfig, budget: &Arc<Budget>) -> OpenOptions {
    let api = llm::language(model.base_url.as_deref(), model.api);
    let usual = OpenOptions::default();
    OpenOptions {
        budget: Arc::clone(budget),
        api: model.api,
        rates: Rates {
            requests: model.rpm,
            tokens: model.tpm,
        },
        total_timeout: model.call_timeout_s.map(Duration::from_secs),
        idle_timeout: model
            .idle_timeout_s
            .map_or(usual.idle_timeout, Duration::from_secs),
        key: llm::key_from_environment(api),
        ..usual
    }
}

/// How many threads: as asked, else one a core.
pub(super) fn jobs(wanted: Option<usize>) -> usize {
    wanted
        .or_else(|| thread::available_parallelism().ok().map(usize::from))
        .unwrap_or(1)
        .max(1)
}
