//! `compare`: ways to search at equal budgets.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use super::judge::{self, Judge, Over, Wanted};
use super::session::{self, open_model};
use super::{Exit, answer, note, search};
use crate::cli::{CompareArgs, Global};
use crate::compare::{Bench, Budget, Comparison, Method, MethodError};
use crate::files;
use crate::llm::{self, Dollars};
use crate::propose::{ProposeError, Proposer, ProposerKind, Rewrites};
use crate::report::comparison_page;
use crate::search::StopRules;
use crate::source::Source;
use crate::store::{BaselineTime, ModelConfig};
use crate::units::Digest;
use crate::verdict::Baselines;

/// What was measured before the first series.
const MEASURED: &str = "baseline.json";

/// Kernels of a series where no budget is given.
const DEFAULT_BUDGET: u64 = 60;

pub(super) fn run(args: &CompareArgs, global: &Global) -> anyhow::Result<Exit> {
    let interrupt = super::on_interrupt()?;
    let model = search::model_config(&args.model)?;
    if model.is_none()
        && let Some(method) = args.methods.iter().find(|method| method.needs_model())
    {
        bail!(
            "method {} asks a model: name one with --model",
            method.name()
        );
    }
    let asking: Vec<String> = args
        .methods
        .iter()
        .filter(|method| method.asks_model())
        .flat_map(|method| (0..args.seeds).map(|seed| Bench::name(*method, seed)))
        .collect();
    let first = match (&model, asking.first()) {
        (Some(model), Some(first)) => Some(of_series(model, first)),
        (Some(_) | None, _) => None,
    };
    // what cannot work is told before baselines are measured, which may take an hour
    if let Some(first) = &first {
        session::check_model(first)?;
    }
    let budget = budget(args)?;
    let file = args.out.join(MEASURED);
    let measured = Measured::read(&file)?;
    let judge = judge::open(
        Wanted {
            task: &args.task,
            judge: &args.judge,
            seed: 0,
            secret: true,
            over: match &measured {
                Some(measured) => Over::Earlier {
                    baseline: measured.baseline.clone(),
                    baselines: measured.baselines.clone(),
                },
                None if args.no_baselines => Over::Seed,
                None => Over::Frontier,
            },
        },
        global,
    )?;
    let about = Measured::about(&judge, args.no_baselines);
    if let Some(measured) = &measured
        && !measured.is_about(&about)
    {
        bail!(
            "{} holds a comparison of {}; name another folder with --out",
            args.out.display(),
            measured.words()
        );
    }
    budget.check(&args.methods, model.is_some(), judge.times != "recorded")?;
    let texts = search::wanted(&judge, &args.space)?;
    let sources = texts
        .iter()
        .map(|(_, text)| Ok(Arc::new(Source::parse(text)?)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    if sources.len() > 1 && args.methods.iter().any(|method| method.needs_model()) {
        note(&format!(
            "single-shot, best-of-n and refine start from {}, the other methods from {} sources: --space seed makes \
             them equal",
            texts[0].0,
            sources.len()
        ));
    }
    fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot create {}", args.out.display()))?;
    if measured.is_none() && judge.times != "recorded" {
        about.write(&file)?;
    }
    let config = search::config(
        &judge,
        0,
        global,
        &texts,
        vec![ProposerKind::Knobs],
        model.clone().map(without_limits),
        StopRules::default(),
    )?;
    // hard over all series together, earlier sessions included
    let purse = first.as_ref().map(session::budget).transpose()?;
    if let Some(purse) = &purse {
        for series in &asking {
            llm::recall(&args.out.join(series).join(llm::RECORDING), purse)?;
        }
    }
    let rewrites = Rewrites;
    let make_model = |method: Method, seed: u64| -> Result<Box<dyn Proposer>, ProposeError> {
        let (Some(model), Some(purse)) = (&model, &purse) else {
            return Err(ProposeError::Unavailable("no model".into()));
        };
        let series = Bench::name(method, seed);
        let record = args.out.join(&series).join(llm::RECORDING);
        open_model(&of_series(model, &series), &judge, record, purse)
            .map(|model| Box::new(model) as Box<dyn Proposer>)
            .map_err(|error| ProposeError::Unavailable(format!("{error:#}")))
    };
    let bench = Bench {
        task: judge.task.as_deref(),
        evaluator: &*judge.evaluator,
        rewrites: judge.task.is_some().then_some(&rewrites),
        model: model.is_some().then_some(&make_model),
        sources: &sources,
        config: &config,
        budget,
        turns: args.turns,
        jobs: session::jobs(args.judge.jobs),
        folder: &args.out,
    };
    let mut series = Vec::new();
    for &method in &args.methods {
        for seed in 0..args.seeds {
            let one = match bench.run(method, seed, &interrupt) {
                Err(stopped @ MethodError::Interrupted) => {
                    note(&stopped.to_string());
                    return Ok(Exit::Interrupted);
                }
                one => one?,
            };
            let best = one
                .result()
                .map_or("nothing valid".to_owned(), |best| best.to_string());
            note(&format!(
                "{} seed {seed}: {best} after {}",
                method.name(),
                one.judged.len()
            ));
            series.push(one);
        }
    }
    let comparison = Comparison {
        task: judge.name.clone(),
        gpu: judge.gpu_name.clone(),
        device: judge.device.clone(),
        model: model.map(|model| model.name),
        label: judge.times.to_owned(),
        budget,
        baseline: judge
            .baseline
            .clone()
            .map(|baseline| (baseline.name, baseline.time)),
        series,
    };
    for (name, text) in [
        ("curve.csv", comparison.curve_csv()),
        ("bands.csv", comparison.bands_csv()),
        ("turns.csv", comparison.turns_csv()),
        ("summary.csv", comparison.summary_csv()),
        (
            "comparison.json",
            serde_json::to_string_pretty(&comparison)?,
        ),
    ] {
        super::write(&args.out.join(name), text)?;
    }
    if let Some(file) = &args.html {
        super::write(file, comparison_page(&comparison)?)?;
    }
    answer(global.json, &comparison, &comparison)?;
    Ok(Exit::Success)
}

/// What speedups are over, measured once for all sessions of a comparison: a GPU would measure it otherwise each
/// time.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Measured {
    task: String,
    task_digest: Digest,
    gpu: String,
    /// `measured` or `estimated`.
    times: String,
    no_baselines: bool,
    baseline: Option<BaselineTime>,
    baselines: Option<Baselines>,
}

impl Measured {
    fn about(judge: &Judge, no_baselines: bool) -> Self {
        Self {
            task: judge.name.clone(),
            task_digest: judge.digest,
            gpu: judge.gpu_name.clone(),
            times: judge.times.to_owned(),
            no_baselines,
            baseline: judge.baseline.clone(),
            baselines: judge.baselines.clone(),
        }
    }

    fn is_about(&self, other: &Self) -> bool {
        self.task_digest == other.task_digest
            && self.gpu == other.gpu
            && self.times == other.times
            && self.no_baselines == other.no_baselines
    }

    fn words(&self) -> String {
        let baselines = if self.no_baselines { "no " } else { "" };
        format!(
            "{} on {} ({}, with {baselines}baselines)",
            self.task, self.gpu, self.times
        )
    }

    fn read(file: &Path) -> anyhow::Result<Option<Self>> {
        if !file.exists() {
            return Ok(None);
        }
        let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let measured = serde_json::from_slice(&bytes)
            .with_context(|| format!("{} is not what was written", file.display()))?;
        Ok(Some(measured))
    }

    fn write(&self, file: &Path) -> anyhow::Result<()> {
        files::replace(file, &serde_json::to_vec_pretty(self)?)
            .with_context(|| format!("cannot write {}", file.display()))
    }
}

fn budget(args: &CompareArgs) -> anyhow::Result<Budget> {
    let dollars = args.budget_dollars.map(|dollars| {
        Dollars::new(dollars)
            .with_context(|| format!("--budget-dollars {dollars}: no amount of money"))
    });
    let budget = Budget {
        evaluations: args.budget,
        tokens: args.budget_tokens,
        dollars: dollars.transpose()?,
        judge_seconds: args.gpu_seconds,
    };
    Ok(if budget == Budget::default() {
        Budget {
            evaluations: Some(DEFAULT_BUDGET),
            ..budget
        }
    } else {
        budget
    })
}

/// What decides a series, and no more: one that stopped at a limit goes on under a higher one.
fn without_limits(model: ModelConfig) -> ModelConfig {
    ModelConfig {
        max_calls: None,
        max_tokens: None,
        max_dollars: None,
        rpm: None,
        tpm: None,
        call_timeout_s: None,
        idle_timeout_s: None,
        ..model
    }
}

/// The model of one series: a recording of a whole comparison is replayed series by series.
fn of_series(model: &ModelConfig, series: &str) -> ModelConfig {
    let mut model = model.clone();
    if let Some(folder) = model.name.strip_prefix("replay:")
        && Path::new(folder).is_dir()
    {
        let recording = Path::new(folder).join(series).join(llm::RECORDING);
        model.name = format!("replay:{}", recording.display());
    }
    model
}
