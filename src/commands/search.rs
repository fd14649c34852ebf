//! `search`: from a task to a faster kernel, in a new run folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};

use super::judge::{self, DeviceSpec, Judge, Over, Wanted};
use super::session::{self, Session};
use super::start_from::start_from;
use super::{Exit, note};
use crate::cli::{Global, LimitArgs, ModelArgs, Prior, SearchArgs};
use crate::propose::ProposerKind;
use crate::report::{Doing, opening};
use crate::search::{NodeId, Plateau, SearchParams, StopRules};
use crate::source::Source;
use crate::store::{FORMAT, ModelConfig, RootConfig, RunConfig, RunWriter};
use crate::units::{Digest, Nanos};

/// Kernels judged where neither a budget nor a time is given.
const DEFAULT_BUDGET: u32 = 120;

/// What counts as progress for `--plateau`: half a percent, about the noise of a good measurement.
const PLATEAU_IMPROVEMENT: f64 = 0.005;

pub(super) fn run(args: SearchArgs, global: &Global) -> anyhow::Result<Exit> {
    let interrupt = super::on_interrupt()?;
    // What cannot work is told before baselines are measured, which may take an hour.
    let model = model_config(&args.model)?;
    if let Some(model) = &model {
        session::check_model(model)?;
    }
    if let Some(folder) = &args.out {
        RunWriter::check_new(folder)?;
    }
    let proposers = proposers(
        args.proposers.as_deref(),
        model.is_some(),
        DeviceSpec::parse(&args.judge.device)?.has_ptx(),
    )?;
    if args.prior == Prior::Sim && proposers == [ProposerKind::Knobs] {
        bail!(
            "--prior sim: it orders the sources that rewrites or a model propose, and neither is in service here"
        );
    }
    let judge = judge::open(
        Wanted {
            task: &args.task,
            judge: &args.judge,
            seed: args.seed,
            secret: true,
            over: if args.no_baselines {
                Over::Seed
            } else {
                Over::Frontier
            },
        },
        global,
    )?;
    let sources = wanted(&judge, &args.space)?;
    let stop = stop_rules(
        &args.limits,
        judge.baseline.as_ref().map(|baseline| baseline.time),
    )?;
    let folder = match &args.out {
        Some(folder) => folder.clone(),
        None => next_folder(&args.task)?,
    };
    let mut config = config(&judge, args.seed, global, &sources, proposers, model, stop)?;
    config.search.prefilter = args.prefilter;
    config.search.prior = args.prior == Prior::Sim;
    let estimator = judge::estimator(&judge, &config, global)?;
    let earlier = start_from(&args.start_from, &mut config, &sources)?;
    let texts = sources.iter().map(|(_, text)| &**text);
    let texts = texts.chain(earlier.iter().map(String::as_str));
    let run = RunWriter::create(&folder, config, texts)?;
    note(&opening(
        Doing::Searching,
        &run.config,
        Some(judge.times),
        &folder,
    ));
    let jobs = session::jobs(args.judge.jobs);
    Session {
        judge,
        run,
        past: Vec::new(),
        jobs,
        estimator,
        budget: None,
    }
    .drive(global.json, &interrupt)
}

/// What a run is made from: used by `search` and, for each series, by `compare`.
pub(super) fn config(
    judge: &Judge,
    seed: u64,
    global: &Global,
    sources: &[(String, Arc<str>)],
    proposers: Vec<ProposerKind>,
    model: Option<ModelConfig>,
    stop: StopRules,
) -> anyhow::Result<RunConfig> {
    Ok(RunConfig {
        format: FORMAT,
        warptree: env!("CARGO_PKG_VERSION").to_owned(),
        task: judge.name.clone(),
        task_digest: judge.digest,
        tasks_dir: global.tasks.clone(),
        device: judge.device.clone(),
        gpu: judge.gpu_name.clone(),
        arch: judge.arch,
        assembler: judge.assembler.clone(),
        proposers,
        model,
        seed,
        baseline: judge.baseline.clone(),
        baselines: judge.baselines.clone(),
        search: SearchParams {
            stop,
            ..SearchParams::default()
        },
        roots: roots(sources)?,
    })
}

/// The root's children: sources that say the same share a node, as in the search.
fn roots(sources: &[(String, Arc<str>)]) -> anyhow::Result<Vec<RootConfig>> {
    let mut known: Vec<Digest> = Vec::new();
    sources
        .iter()
        .map(|(label, text)| {
            let source = Source::parse(text).with_context(|| format!("{label} is no source"))?;
            let digest = source.digest();
            let place = known
                .iter()
                .position(|known| *known == digest)
                .unwrap_or_else(|| {
                    known.push(digest);
                    known.len() - 1
                });
            Ok(RootConfig {
                node: NodeId(place as u32 + 1),
                label: label.clone(),
                source: Digest::of(text.as_bytes()),
                settings: Vec::new(),
                earlier: Vec::new(),
            })
        })
        .collect()
}

/// The seed and the spaces wanted (all where none is named), by label.
pub(super) fn wanted(judge: &Judge, spaces: &[String]) -> anyhow::Result<Vec<(String, Arc<str>)>> {
    let label = |space: &String| match space.as_str() {
        "seed" => "seed".to_owned(),
        name => format!("space {name}"),
    };
    let labels: Vec<String> = spaces.iter().map(label).collect();
    let known = || judge.sources.iter().map(|(label, _)| label.as_str());
    for (space, label) in spaces.iter().zip(&labels) {
        if !known().any(|known| known == label) {
            let names: Vec<_> = known()
                .map(|label| label.trim_start_matches("space "))
                .collect();
            bail!(
                "--space {space}: {} has no such space; it has {}",
                judge.name,
                names.join(", ")
            );
        }
    }
    let chosen = |label: &String| labels.is_empty() || label == "seed" || labels.contains(label);
    Ok(judge
        .sources
        .iter()
        .filter(|(label, _)| chosen(label))
        .cloned()
        .collect())
}

/// What ends a run. `baseline` turns a wanted speedup into a wanted time.
pub(super) fn stop_rules(limits: &LimitArgs, baseline: Option<Nanos>) -> anyhow::Result<StopRules> {
    let evaluations = match (limits.budget, limits.time) {
        (Some(budget), _) => Some(u32::try_from(budget).context("--budget is too large")?),
        (None, Some(_)) => None,
        (None, None) => Some(DEFAULT_BUDGET),
    };
    let target = match (limits.target_speedup, baseline) {
        (None, _) => None,
        (Some(ratio), Some(time)) => Nanos::new(time.get() / ratio),
        (Some(_), None) => bail!("--target-speedup needs a baseline's time, and none was measured"),
    };
    let plateau = limits
        .plateau
        .map(|evaluations| {
            let evaluations = u32::try_from(evaluations).context("--plateau is too large")?;
            anyhow::Ok(Plateau {
                evaluations,
                improvement: PLATEAU_IMPROVEMENT,
            })
        })
        .transpose()?;
    Ok(StopRules {
        evaluations,
        time: limits.time,
        plateau,
        target,
    })
}

/// The model that is named, if any; what is said of a model that is not is an error.
pub(super) fn model_config(args: &ModelArgs) -> anyhow::Result<Option<ModelConfig>> {
    let ModelArgs {
        model,
        base_url,
        api,
        max_calls,
        max_tokens,
        max_dollars,
        prices,
        rpm,
        tpm,
        reply_tokens,
        call_timeout,
        idle_timeout,
        prompts,
    } = args.clone();
    let Some(name) = model else {
        let given = [
            ("--base-url", base_url.is_some()),
            ("--api", api.is_some()),
            ("--max-calls", max_calls.is_some()),
            ("--max-tokens", max_tokens.is_some()),
            ("--max-dollars", max_dollars.is_some()),
            ("--prices", prices.is_some()),
            ("--rpm", rpm.is_some()),
            ("--tpm", tpm.is_some()),
            ("--reply-tokens", reply_tokens.is_some()),
            ("--call-timeout", call_timeout.is_some()),
            ("--idle-timeout", idle_timeout.is_some()),
            ("--prompts", prompts.is_some()),
        ];
        return match given.iter().find(|(_, given)| *given) {
            Some((option, _)) => {
                bail!("{option} is about a model, and none is named: add --model MODEL")
            }
            None => Ok(None),
        };
    };
    Ok(Some(ModelConfig {
        name,
        base_url,
        max_calls,
        max_tokens,
        max_dollars,
        prices,
        api,
        rpm,
        tpm,
        reply_tokens,
        call_timeout_s: call_timeout.map(|time| time.as_secs()),
        idle_timeout_s: idle_timeout.map(|time| time.as_secs()),
        prompts,
    }))
}

/// Who proposes: as asked, else everybody there is. A table of settings has no PTX to rewrite.
pub(super) fn proposers(
    asked: Option<&[ProposerKind]>,
    model: bool,
    ptx: bool,
) -> anyhow::Result<Vec<ProposerKind>> {
    let proposers = match asked {
        Some(asked) => asked.to_vec(),
        None if !ptx => vec![ProposerKind::Knobs],
        None if model => vec![
            ProposerKind::Knobs,
            ProposerKind::Rewrites,
            ProposerKind::Model,
        ],
        None => vec![ProposerKind::Knobs, ProposerKind::Rewrites],
    };
    if proposers.contains(&ProposerKind::Model) && !model {
        bail!("the proposer `model` needs --model NAME");
    }
    if model && !proposers.contains(&ProposerKind::Model) {
        bail!("--model is given, but --proposers leaves the model out");
    }
    if !proposers.contains(&ProposerKind::Knobs) {
        bail!("--proposers needs `knobs`: they give every source its settings");
    }
    Ok(proposers)
}

/// `runs/TASK-N` with the first free N.
fn next_folder(task: &str) -> anyhow::Result<PathBuf> {
    (1..100_000)
        .map(|number| Path::new("runs").join(format!("{task}-{number}")))
        .find(|folder| !folder.exists())
        .context("runs/ is full; name a folder with --out")
}
