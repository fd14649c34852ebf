//! Drives a run from where it stands to its end, shows it, and says what came of it. `search` and `resume`
//! differ only in how they come here.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;

use super::judge::Judge;
use super::{Exit, answer, note};
use crate::driver::{Ended, Rig, drive};
use crate::llm::{self, Budget, Limits, OpenOptions, Prices, Rates};
use crate::propose::{AskOptions, ModelProposer, Proposer, ProposerKind, Rewrites};
use crate::report::{Format, Progress, Story};
use crate::search::Expander;
use crate::store::{Line, ModelConfig, RunWriter, StoredRun};

/// A run about to go on.
pub(super) struct Session {
    pub(super) judge: Judge,
    pub(super) run: RunWriter,
    pub(super) past: Vec<Line>,
    pub(super) jobs: usize,
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
        } = self;
        let config = run.config.clone();
        let rewrites = Rewrites;
        let model = config
            .model
            .as_ref()
            .map(|model| {
                let record = Recording::Own(run.folder.join("exchanges.jsonl"));
                open_model(model, &judge, record)
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
        let rig = Rig {
            evaluator: &*judge.evaluator,
            proposers,
            task: judge.task.as_deref(),
            jobs,
            deterministic,
            // a table can only repeat itself
            confirm: judge.times != "recorded",
        };
        let mut progress = Progress::new(format, &config);
        let ended = drive(&rig, &mut run, &past, interrupt, &mut progress);
        progress.finish();
        Ok(ended?)
    }
}

/// Where a model's exchanges are recorded.
pub(super) enum Recording {
    /// The run's own file: what it holds was asked and paid for by earlier sessions of this run.
    Own(std::path::PathBuf),
    /// A file that several series write to, one after the other.
    Shared(std::path::PathBuf),
}

/// A model's proposer; its exchanges go to `record`.
pub(super) fn open_model(
    model: &ModelConfig,
    judge: &Judge,
    record: Recording,
) -> anyhow::Result<ModelProposer> {
    let (record, resume) = match record {
        Recording::Own(path) => (path, true),
        Recording::Shared(path) => (path, false),
    };
    let options = OpenOptions {
        record: Some(record),
        resume,
        ..options(model)?
    };
    let chat = llm::open(&model.name, model.base_url.as_deref(), &options)?;
    let gpu = judge
        .gpu
        .clone()
        .context("a model needs a task with PTX and a known GPU; this table has none")?;
    let proposer = ModelProposer::new(Arc::from(chat), gpu, AskOptions::default())?;
    Ok(match &model.prompts {
        Some(folder) => proposer.with_prompts(folder)?,
        None => proposer,
    })
}

/// Opens a model's client and throws it away: a budget without a price, a missing key or file is told before
/// anything is judged.
pub(super) fn check_model(model: &ModelConfig) -> anyhow::Result<()> {
    if !model.name.starts_with("replay:") {
        llm::open(&model.name, model.base_url.as_deref(), &options(model)?)?;
    }
    Ok(())
}

/// How a model's client is made, but for its recording.
fn options(model: &ModelConfig) -> anyhow::Result<OpenOptions> {
    let limits = Limits {
        calls: model.max_calls,
        tokens: model.max_tokens,
        dollars: model.max_dollars,
    };
    let prices = match &model.prices {
        Some(file) => Prices::embedded().with_file(file)?,
        None => Prices::embedded(),
    };
    let api = llm::language(model.base_url.as_deref(), model.api);
    let mut options = OpenOptions {
        budget: Arc::new(Budget::new(limits, prices.of(&model.name))?),
        api: model.api,
        rates: Rates {
            requests: model.rpm,
            tokens: model.tpm,
        },
        total_timeout: model.call_timeout_s.map(Duration::from_secs),
        key: llm::key_from_environment(api),
        ..OpenOptions::default()
    };
    if let Some(seconds) = model.idle_timeout_s {
        options.idle_timeout = Duration::from_secs(seconds);
    }
    Ok(options)
}

/// How many threads: as asked, else one a core.
pub(super) fn jobs(wanted: Option<usize>) -> usize {
    wanted
        .or_else(|| thread::available_parallelism().ok().map(usize::from))
        .unwrap_or(1)
        .max(1)
}
