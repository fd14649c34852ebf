//! `batch`: judges given sources and settings, all of them, in a run folder of its own. Shards of one batch
//! may run on several machines; `trace` merges them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, bail};
use rand::SeedableRng as _;
use rand_pcg::Pcg64;
use serde::Serialize;

use super::judge::{self, Judge, Over, Wanted};
use super::{Exit, answer, note, search, session, text_of};
use crate::cli::{BatchArgs, Global, Shard};
use crate::driver::{Ended, Item, batch};
use crate::evaluate::Stages;
use crate::report::{Doing, Story, opening};
use crate::search::StopRules;
use crate::source::{Point, Source};
use crate::store::{Event, Line, RunConfig, RunWriter, StoredRun};

/// Draws per wanted setting before a space counts as exhausted by chance.
const DRAWS: usize = 64;

/// How the batch went, for `--json`.
#[derive(Debug, Serialize)]
struct Summary {
    /// Settings judged now.
    judged: u64,
    /// How they ended.
    endings: BTreeMap<String, u64>,
    /// Wall time, seconds.
    seconds: f64,
    /// Settings a second.
    rate: f64,
    /// Wall seconds by stage, all threads together; a stage that needs the device includes the wait for it.
    stages: Vec<(&'static str, f64)>,
}

pub(super) fn run(args: &BatchArgs, global: &Global) -> anyhow::Result<Exit> {
    let interrupt = super::on_interrupt()?;
    let begun = match args.out.join("run.toml").exists() {
        true => Some(RunWriter::resume(&args.out)?),
        false => None,
    };
    let judge = judge::open(
        Wanted {
            task: &args.task,
            judge: &args.judge,
            seed: args.seed,
            secret: true,
            over: match &begun {
                Some((run, _)) => Over::Earlier {
                    baseline: run.config.baseline.clone(),
                    baselines: run.config.baselines.clone(),
                },
                None => Over::Seed,
            },
        },
        global,
    )?;
    let sources = sources(args, &judge)?;
    let config = RunConfig {
        proposers: Vec::new(),
        ..search::config(
            &judge,
            args.seed,
            global,
            &sources,
            Vec::new(),
            None,
            StopRules::default(),
        )?
    };
    let items = items(args, &sources, &config)?;
    let (mut run, past) = match begun {
        Some((run, past)) => {
            if let Some(what) = difference(&run.config, &config) {
                bail!(
                    "the batch in {} was made with another {what}; name a new folder with --out",
                    args.out.display()
                );
            }
            (run, past)
        }
        None => {
            let texts = sources.iter().map(|(_, text)| &**text);
            (RunWriter::create(&args.out, config, texts)?, Vec::new())
        }
    };
    let doing = Doing::Judging {
        settings: items.len(),
    };
    note(&opening(doing, &run.config, Some(judge.times), &args.out));
    let mut counter = Counter::new(items.len(), &past);
    let ended = batch(
        &*judge.evaluator,
        &mut run,
        &past,
        &items,
        session::jobs(args.judge.jobs),
        &interrupt,
        |line| counter.hear(line),
    )?;
    drop(run);
    let summary = counter.summary(&judge.stages);
    let story = Story::read(&StoredRun::open(&args.out)?, 5)?;
    answer(global.json, text(&summary, &story), &summary)?;
    Ok(match ended {
        Ended::Interrupted => {
            note("stopped; the same command goes on");
            Exit::Interrupted
        }
        Ended::Stopped(_) => Exit::Success,
    })
}

/// The files given, then the spaces named; with neither, the task's seed and all of its spaces.
fn sources(args: &BatchArgs, judge: &Judge) -> anyhow::Result<Vec<(String, Arc<str>)>> {
    let mut sources = Vec::new();
    for file in &args.files {
        let bytes =
            std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let text = text_of(bytes, file)?;
        let name = file.file_stem().unwrap_or(file.as_os_str());
        sources.push((name.to_string_lossy().into_owned(), Arc::from(text)));
    }
    if args.files.is_empty() || !args.space.is_empty() {
        let mut wanted = search::wanted(judge, &args.space)?;
        if !args.space.is_empty() && !args.space.iter().any(|space| space == "seed") {
            wanted.retain(|(label, _)| label != "seed");
        }
        sources.extend(wanted);
    }
    Ok(sources)
}

/// Every source's default and, where wanted, further settings of it; of those this shard's.
fn items(
    args: &BatchArgs,
    sources: &[(String, Arc<str>)],
    config: &RunConfig,
) -> anyhow::Result<Vec<Item>> {
    let mut items = Vec::new();
    let mut known = HashSet::new();
    for ((label, text), root) in sources.iter().zip(&config.roots) {
        if !known.insert(root.node) {
            continue;
        }
        let source =
            Arc::new(Source::parse(text).with_context(|| format!("{label} is no source"))?);
        let points = points(&source, args.sample, args.seed)
            .with_context(|| format!("{label} has no default setting"))?;
        items.extend(points.into_iter().map(|point| Item {
            node: root.node,
            source: Arc::clone(&source),
            point,
        }));
    }
    let Shard { index, count } = args.shard;
    Ok(items
        .into_iter()
        .enumerate()
        .filter(|(at, _)| at % count == index)
        .map(|(_, item)| item)
        .collect())
}

/// The default first, then `sample` others drawn uniformly without repeats; all where there are no more.
fn points(source: &Source, sample: usize, seed: u64) -> anyhow::Result<Vec<Point>> {
    let space = source.space();
    let default = space.default_point()?;
    if sample as u64 >= space.len().saturating_sub(1) {
        let others = space.iter().filter(|point| *point != default);
        return Ok(std::iter::once(default.clone()).chain(others).collect());
    }
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut known = HashSet::from([default.clone()]);
    let mut points = vec![default];
    let mut draws = 0;
    while points.len() <= sample && draws < DRAWS * sample {
        draws += 1;
        let point = space.sample(&mut rng);
        if known.insert(point.clone()) {
            points.push(point);
        }
    }
    Ok(points)
}

/// What differs between two batches' configurations, if anything that matters does.
fn difference(old: &RunConfig, new: &RunConfig) -> Option<&'static str> {
    [
        (
            old.task != new.task || old.task_digest != new.task_digest,
            "task",
        ),
        (old.gpu != new.gpu, "GPU"),
        (old.device != new.device, "device"),
        (old.arch != new.arch, "architecture"),
        (old.assembler != new.assembler, "ptxas"),
        (old.seed != new.seed, "seed"),
        (old.roots != new.roots, "list of sources"),
        (old.proposers != new.proposers, "purpose (it is a search)"),
    ]
    .into_iter()
    .find_map(|(differs, what)| differs.then_some(what))
}

struct Counter {
    bar: indicatif::ProgressBar,
    judged: u64,
    endings: BTreeMap<String, u64>,
    started: Instant,
}

impl Counter {
    fn new(items: usize, past: &[Line]) -> Self {
        let judged = past.iter().filter_map(|line| line.event.evaluated());
        let bar = indicatif::ProgressBar::new(items as u64).with_position(judged.count() as u64);
        Self {
            bar,
            judged: 0,
            endings: BTreeMap::new(),
            started: Instant::now(),
        }
    }

    fn hear(&mut self, line: &Line) {
        if let Event::Evaluated { evaluation, .. } = &line.event {
            self.judged += 1;
            let stage = evaluation.verdict.stage().to_owned();
            *self.endings.entry(stage).or_default() += 1;
            self.bar.inc(1);
        }
    }

    fn summary(&self, stages: &Stages) -> Summary {
        self.bar.finish_and_clear();
        let seconds = self.started.elapsed().as_secs_f64();
        Summary {
            judged: self.judged,
            endings: self.endings.clone(),
            seconds,
            rate: self.judged as f64 / seconds.max(1e-9),
            stages: stages
                .spent()
                .into_iter()
                .map(|(stage, took)| (stage.word(), took.as_secs_f64()))
                .collect(),
        }
    }
}

fn text(summary: &Summary, story: &Story) -> String {
    let endings: Vec<String> = summary
        .endings
        .iter()
        .map(|(stage, count)| format!("{count} {stage}"))
        .collect();
    let mut text = format!(
        "{} judged in {:.1} s ({:.1} a second): {}\n",
        summary.judged,
        summary.seconds,
        summary.rate,
        endings.join(", ")
    );
    if !summary.stages.is_empty() {
        let stages: Vec<String> = summary
            .stages
            .iter()
            .map(|(stage, seconds)| format!("{stage} {seconds:.1} s"))
            .collect();
        text.push_str(&format!(
            "  stages, all threads, waits for the device included: {}\n",
            stages.join(", ")
        ));
    }
    for ranked in &story.top {
        text.push_str(&format!(
            "  {:>11}  {}: {}\n",
            ranked.time.to_string(),
            ranked.label,
            crate::report::setting_line(&ranked.setting)
        ));
    }
    text
}
