//! `compare`: ways to search at equal budgets.

use std::fs;
use std::sync::Arc;

use anyhow::{Context as _, bail};

use super::judge::{self, Over, Wanted};
use super::session::{self, Recording, open_model};
use super::{Exit, answer, note, search};
use crate::cli::{CompareArgs, Global};
use crate::compare::{Bench, Comparison};
use crate::propose::{ProposeError, Proposer, ProposerKind, Rewrites};
use crate::search::StopRules;
use crate::source::Source;

pub(super) fn run(args: &CompareArgs, global: &Global) -> anyhow::Result<Exit> {
    let interrupt = super::on_interrupt()?;
    if args.model.model.is_none()
        && let Some(method) = args.methods.iter().find(|method| method.needs_model())
    {
        bail!(
            "method {} asks a model: name one with --model",
            method.name()
        );
    }
    let judge = judge::open(
        Wanted {
            task: &args.task,
            judge: &args.judge,
            seed: 0,
            secret: true,
            over: Over::Seed,
        },
        global,
    )?;
    let texts = search::wanted(&judge, &args.space)?;
    let sources = texts
        .iter()
        .map(|(_, text)| Ok(Arc::new(Source::parse(text)?)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let model = search::model_config(&args.model);
    fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot create {}", args.out.display()))?;
    let config = search::config(
        &judge,
        0,
        global,
        &texts,
        vec![ProposerKind::Knobs],
        model.clone(),
        StopRules::default(),
    );
    let rewrites = Rewrites;
    let make_model = || -> Result<Box<dyn Proposer>, ProposeError> {
        let model = model
            .as_ref()
            .ok_or_else(|| ProposeError::Unavailable("no model".into()))?;
        let record = Recording::Shared(args.out.join("exchanges.jsonl"));
        open_model(model, &judge, record)
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
        budget: args.budget,
        jobs: session::jobs(args.judge.jobs),
        folder: &args.out,
    };
    let mut series = Vec::new();
    for &method in &args.methods {
        for seed in 0..args.seeds {
            let one = bench.run(method, seed, &interrupt)?;
            let best = one
                .best()
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
        label: judge.times.to_owned(),
        budget: args.budget,
        baseline: judge
            .baseline
            .clone()
            .map(|baseline| (baseline.name, baseline.time)),
        series,
    };
    for (name, text) in [
        ("curve.csv", comparison.curve_csv()),
        ("summary.csv", comparison.summary_csv()),
    ] {
        let path = args.out.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    answer(global.json, &comparison, &comparison)?;
    Ok(Exit::Success)
}
