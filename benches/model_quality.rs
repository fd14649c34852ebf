//! Where search beats independent replies and serial repair, and where it does not: a scripted model of
//! known quality edits kernels, and each method spends the same number of replies and judged kernels.
//!
//! `cargo bench --bench model_quality` writes `.figures/model-quality.svg` and `.csv`. Variables:
//! `WARPTREE_SEEDS` (50), `WARPTREE_WORLDS` (`sgemm,transpose,sim`: two recorded on an H200, and `reduce_sum`, whose
//! edits the simulator judges; that needs ptxas), `WARPTREE_OUT` (`.figures`).
//!
//! A kernel here is a source with every knob fixed, so that a tuner has no grip and only edits lead on. The
//! model is asked for an edit of a kernel. With probability p its reply is valid: with probability r it is
//! then faster than the kernel it edits, else it is not; it lies at most two knobs away, or anywhere where the
//! model *leaps*; a broken kernel is then mended or bettered. Else it fails, in the mix that PTXBench reports of 13,674 turns: compile error 28, run-time
//! error 25, wrong numbers 18, hang 12.5, no code 2. It knows the answers and remembers nothing; nothing is
//! claimed of real models.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rayon::prelude::*;
use warptree::compare::{Bench, Budget, Comparison, Method};
use warptree::device::{Gpu, RigError, SimDevice};
use warptree::evaluate::recorded::Trace;
use warptree::evaluate::{self, Cached, Evaluation, Evaluator, Pipeline, ptxas::Assembler};
use warptree::llm::Tally;
use warptree::propose::{Proposal, ProposalRequest, ProposeError, Proposer};
use warptree::report::chart::{Axis, Format, Line, Picture, Plot, Scale, Stroke, side_by_side};
use warptree::search::{NodeId, SearchParams};
use warptree::source::{Point, Source};
use warptree::store::{Event, RootConfig, RunConfig, RunGraph, StoredRun};
use warptree::task::{Catalogue, Task};
use warptree::toolchain::{self, Network, Places};
use warptree::units::Digest;
use warptree::verdict::Verdict;

/// Replies, and kernels, of a series.
const BUDGET: u64 = 60;

const METHODS: [Method; 4] = [
    Method::Search,
    Method::BestOfN,
    Method::Refine,
    Method::SingleShot,
];

/// Failures per 85.5 failing turns of 100, as PTXBench counts them.
const FAILURES: [(Failure, f64); 5] = [
    (Failure::Compile, 28.0),
    (Failure::RunTime, 25.0),
    (Failure::Wrong, 18.0),
    (Failure::Hang, 12.5),
    (Failure::NoCode, 2.0),
];

/// How a model is.
#[derive(Clone, Copy)]
struct Quality {
    /// A reply is valid.
    valid: f64,
    /// A valid reply is faster than what it edits.
    better: f64,
    /// It writes anew instead of editing.
    leaps: bool,
}

const QUALITIES: [Quality; 4] = [
    Quality {
        valid: 0.14,
        better: 0.2,
        leaps: false,
    },
    Quality {
        valid: 0.5,
        better: 0.2,
        leaps: false,
    },
    Quality {
        valid: 0.9,
        better: 0.7,
        leaps: false,
    },
    Quality {
        valid: 0.5,
        better: 0.2,
        leaps: true,
    },
];

#[derive(Clone, Copy, Debug)]
enum Failure {
    Compile,
    RunTime,
    Wrong,
    Hang,
    NoCode,
}

/// Marks a broken kernel where a table cannot run it.
const BROKEN: &str = "// broken:";

fn main() {
    // `cargo test` runs benchmarks with --test: there is nothing to check then.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    if let Err(message) = report() {
        eprintln!("model_quality: {message}");
        std::process::exit(1);
    }
}

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn report() -> Outcome<()> {
    let variable = |name: &str, default: &str| std::env::var(name).unwrap_or(default.to_owned());
    let seeds: u64 = variable("WARPTREE_SEEDS", "50").parse()?;
    let out = PathBuf::from(variable("WARPTREE_OUT", ".figures"));
    fs::create_dir_all(&out)?;
    let mut panels: Vec<Picture> = Vec::new();
    let mut csv = String::from(
        "world,valid,better,leaps,method,seeds,judged,valid_share,median_share_of_best,\
         ratio_to_search,low,high,p\n",
    );
    for name in variable("WARPTREE_WORLDS", "sgemm,transpose,sim").split(',') {
        let world = Arc::new(World::open(name)?);
        println!(
            "{name}: {} kernels, {:.1}× from the start to the best, judged by {}",
            world.times.len(),
            world.time(&world.start) / world.best,
            world.label
        );
        for quality in QUALITIES {
            let comparison = compare(&world, quality, seeds)?;
            println!(
                "p = {}, r = {}{}",
                quality.valid,
                quality.better,
                quality.leap()
            );
            println!("{comparison}");
            world.rows(&comparison, quality, &mut csv);
            panels.push(world.panel(&comparison, quality));
        }
    }
    let figure = side_by_side(
        "Search, independent replies and serial repair with a scripted model",
        "Share of the best kernel's speed reached, median and quartiles over seeds, against replies",
        &panels,
        2,
    );
    fs::write(out.join("model-quality.svg"), figure.file())?;
    fs::write(out.join("model-quality.csv"), csv)?;
    println!("wrote {}/model-quality.svg and .csv", out.display());
    Ok(())
}

impl Quality {
    fn leap(self) -> &'static str {
        if self.leaps { ", leaps" } else { "" }
    }
}

/// A space of kernels, each a source with all knobs fixed.
struct World {
    name: String,
    label: &'static str,
    task: Arc<Task>,
    source: Arc<Source>,
    config: RunConfig,
    judge: Box<dyn Evaluator>,
    /// Valid kernels' times, nanoseconds.
    times: HashMap<Point, f64>,
    /// All of them, in order.
    points: Vec<Point>,
    best: f64,
    start: Point,
}

impl World {
    fn open(name: &str) -> Outcome<Self> {
        if name == "sim" {
            return Self::simulated();
        }
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("traces/{name}-space-h200.jsonl.gz"));
        let run = StoredRun::open(&file)?;
        let graph = RunGraph::read(&run)?;
        let root = run.config.roots.last().ok_or("a trace without sources")?;
        let source = Arc::clone(&graph.node(root.node).ok_or("no such node")?.source);
        let verdicts = run.lines.iter().filter_map(|line| match &line.event {
            Event::Evaluated {
                node,
                setting,
                evaluation,
                ..
            } => {
                let digest = graph.node(*node)?.source.digest();
                Some((digest, setting.clone(), evaluation.verdict.clone()))
            }
            _ => None,
        });
        let judge = Box::new(Trace::new(verdicts));
        let task = Arc::new(Catalogue::open(None)?.task(&run.config.task)?);
        Self::new(
            name,
            "a table recorded on an H200",
            task,
            source,
            run.config.clone(),
            judge,
        )
    }

    fn simulated() -> Outcome<Self> {
        let task = Arc::new(Catalogue::open(None)?.task("reduce_sum")?);
        let space = task
            .spaces
            .iter()
            .find(|space| space.name == "grid_stride")
            .ok_or("reduce_sum has no space grid_stride")?;
        let kept = [
            ("BLOCK", "64", "64, 256, 1024"),
            ("VEC", "1", "1, 2, 4"),
            ("UNROLL", "1", "1, 2, 4"),
            ("BLOCKS_PER_SM", "1", "1, 2, 4, 8"),
            ("CACHE", "\"\"", "\"\""),
            ("FETCH", "\"\"", "\"\""),
            ("REGISTERS", "0", "0"),
        ];
        let text = rewritten(&space.text, |knob| {
            let (_, default, values) = kept.iter().find(|(name, ..)| *name == knob)?;
            Some(format!("//@ knob {knob} = {default} in {{{values}}}"))
        });
        let gpu = Gpu::named("H200")?;
        let places = Places::from_environment(std::env::var_os("WARPTREE_PTXAS").map(Into::into));
        let ptxas = toolchain::ptxas(&places, Network::Forbidden, &|line: &str| {
            println!("{line}")
        })?;
        let pipeline = Pipeline::new(evaluate::Settings {
            task: Arc::clone(&task),
            arch: gpu.arch,
            device: Arc::new(SimDevice::new(gpu)),
            assembler: Assembler::new(ptxas),
            ptxas_options: Vec::new(),
            verify_seed: 0,
            repeats: 1,
            deterministic: true,
        })?;
        let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/reduce_sum-h200.jsonl.gz");
        let config = StoredRun::open(&trace)?.config;
        let source = Arc::new(Source::parse(&text)?);
        let judge = Box::new(Cached::new(pipeline));
        Self::new("reduce_sum", "the simulator", task, source, config, judge)
    }

    fn new(
        name: &str,
        label: &'static str,
        task: Arc<Task>,
        source: Arc<Source>,
        config: RunConfig,
        judge: Box<dyn Evaluator>,
    ) -> Outcome<Self> {
        let points: Vec<Point> = source.space().iter().collect();
        let times: HashMap<Point, f64> = points
            .par_iter()
            .map(|point| Ok((point.clone(), judge.evaluate(&source, point)?)))
            .collect::<Result<Vec<_>, RigError>>()?
            .into_iter()
            .filter_map(|(point, evaluation)| {
                let time = evaluation.verdict.measurement()?.time.nanos().get();
                Some((point, time))
            })
            .collect();
        let points: Vec<Point> = points
            .into_iter()
            .filter(|point| times.contains_key(point))
            .collect();
        // a kernel that works and is slow: nine tenths of the others are faster
        let mut slowest: Vec<&Point> = points.iter().collect();
        slowest.sort_by(|a, b| times[*a].total_cmp(&times[*b]));
        let start = (*slowest
            .get(points.len() * 9 / 10)
            .ok_or("no kernel of it is valid")?)
        .clone();
        let best = times[slowest[0]];
        Ok(Self {
            name: name.to_owned(),
            label,
            task,
            source,
            config,
            judge,
            times,
            points,
            best,
            start,
        })
    }

    fn time(&self, point: &Point) -> f64 {
        self.times[point]
    }

    /// The source with every knob fixed.
    fn fixed(&self, point: &Point) -> String {
        let setting = self.source.space().setting(point);
        rewritten(&self.source.text, |knob| {
            let value = setting.get(knob)?;
            let text = match value {
                warptree::source::KnobValue::Int(number) => number.to_string(),
                warptree::source::KnobValue::Text(text) => format!("\"{text}\""),
            };
            Some(format!("//@ knob {knob} = {text} in {{{text}}}"))
        })
    }

    /// Which kernel a source with fixed knobs is, broken or not.
    fn point(&self, source: &Source) -> Option<Point> {
        let only = source.space().default_point().ok()?;
        let setting = source.space().setting(&only);
        self.source.space().point(&setting).ok()
    }

    fn rows(&self, comparison: &Comparison, quality: Quality, csv: &mut String) {
        for summary in comparison.summaries() {
            // who finds nothing keeps the start
            let share = summary.median_best.map_or(self.time(&self.start), |time| {
                time.get().min(self.time(&self.start))
            });
            let paired = summary.against_first.map_or(",,,".to_owned(), |paired| {
                format!(
                    "{:.4},{:.4},{:.4},{:.4}",
                    paired.ratio, paired.low, paired.high, paired.p
                )
            });
            *csv += &format!(
                "{},{},{},{},{},{},{},{:.4},{:.4},{paired}\n",
                self.name,
                quality.valid,
                quality.better,
                quality.leaps,
                summary.method.name(),
                summary.seeds,
                summary.judged,
                summary.valid,
                self.best / share
            );
        }
    }

    /// Share of the best kernel's speed against replies.
    fn panel(&self, comparison: &Comparison, quality: Quality) -> Picture {
        let start = self.time(&self.start);
        let share = |time: Option<f64>| self.best / time.unwrap_or(start).min(start);
        let lines = METHODS
            .iter()
            .take(3)
            .enumerate()
            .map(|(nth, method)| {
                let bands = comparison.bands(*method);
                let of = |time: Option<warptree::units::Nanos>| share(time.map(|time| time.get()));
                Line {
                    name: method.name().to_owned(),
                    stroke: Stroke::Series(nth),
                    points: bands
                        .iter()
                        .map(|band| (band.cost, of(band.median)))
                        .collect(),
                    band: bands
                        .iter()
                        .map(|band| (band.cost, of(band.high), of(band.low)))
                        .collect(),
                }
            })
            .collect();
        let title = format!(
            "{}, p = {}, r = {}{}: share of the best",
            self.name,
            quality.valid,
            quality.better,
            quality.leap()
        );
        Plot {
            title: title.clone(),
            description: format!("Judged by {}", self.label),
            x: Axis {
                label: "replies".to_owned(),
                low: 0.0,
                high: BUDGET as f64,
                scale: Scale::Linear,
                format: Format::Number,
            },
            y: Axis {
                label: title,
                ..Axis::share_of_all("")
            },
            lines,
            marks: Vec::new(),
            rules: Vec::new(),
        }
        .draw()
    }
}

/// Every method with every seed.
fn compare(world: &Arc<World>, quality: Quality, seeds: u64) -> Outcome<Comparison> {
    let folder = tempfile::tempdir()?;
    let start = Arc::new(Source::parse(&world.fixed(&world.start))?);
    let mut config = world.config.clone();
    config.roots = vec![RootConfig {
        node: NodeId(1),
        label: "start".to_owned(),
        source: Digest::of(start.text.as_bytes()),
        settings: Vec::new(),
        earlier: Vec::new(),
    }];
    config.baseline = None;
    config.baselines = None;
    config.model = None;
    // one request after the other, as the methods it is compared with have them
    config.search = SearchParams {
        window: 1,
        model_window: 1,
        ..SearchParams::default()
    };
    let budget = Budget {
        evaluations: Some(BUDGET),
        // the scripted model charges one for a reply
        tokens: Some(BUDGET),
        ..Budget::default()
    };
    let sources = [start];
    let one = |method: Method, seed: u64| {
        let make = |_: Method, seed: u64| -> Result<Box<dyn Proposer>, ProposeError> {
            Ok(Box::new(Scripted {
                world: Arc::clone(world),
                quality,
                seed,
            }))
        };
        let bench = Bench {
            task: Some(&world.task),
            evaluator: &**world,
            rewrites: None,
            model: Some(&make),
            sources: &sources,
            config: &config,
            budget,
            turns: 8,
            jobs: 1,
            folder: folder.path(),
        };
        bench.run(method, seed, &AtomicBool::new(false))
    };
    let wanted: Vec<(Method, u64)> = METHODS
        .into_iter()
        .flat_map(|method| (0..seeds).map(move |seed| (method, seed)))
        .collect();
    let series = wanted
        .into_par_iter()
        .map(|(method, seed)| one(method, seed))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Comparison {
        task: world.name.clone(),
        gpu: world.config.gpu.clone(),
        device: world.config.device.clone(),
        model: Some("scripted".to_owned()),
        label: world.label.to_owned(),
        budget: Budget {
            tokens: None,
            ..budget
        },
        baseline: None,
        series,
    })
}

impl Evaluator for World {
    /// A fixed kernel is what the space's source renders with its setting; a broken one is run where that can
    /// be done.
    fn evaluate(&self, source: &Source, point: &Point) -> Result<Evaluation, RigError> {
        let broken = source.text.lines().find_map(|line| line.split_once(BROKEN));
        match (broken, self.point(source)) {
            (None, Some(whole)) => self.judge.evaluate(&self.source, &whole),
            (Some((_, how)), _) if self.label != "the simulator" => Ok(Evaluation {
                candidate: None,
                verdict: Verdict::RecordedFailure {
                    reason: how.trim().to_owned(),
                },
                kernel: None,
            }),
            (_, Some(_) | None) => self.judge.evaluate(source, point),
        }
    }

    fn deterministic(&self) -> bool {
        true
    }
}

/// The model.
struct Scripted {
    world: Arc<World>,
    quality: Quality,
    seed: u64,
}

impl Proposer for Scripted {
    fn name(&self) -> &str {
        "model"
    }

    fn propose(
        &self,
        request: &ProposalRequest<'_>,
        tally: &mut Tally,
    ) -> Result<Vec<Proposal>, ProposeError> {
        tally.spent.calls += 1;
        tally.spent.tokens += 1;
        let parts = [
            &self.seed.to_le_bytes()[..],
            request.source.text.as_bytes(),
            &request.attempt.to_le_bytes(),
        ];
        let mut rng = Pcg64::seed_from_u64(Digest::of_parts(parts).seed());
        let world = &*self.world;
        let base = world
            .point(request.source)
            .ok_or_else(|| ProposeError::Unusable("no kernel of this world".to_owned()))?;
        let valid = rng.random_bool(self.quality.valid);
        let better = rng.random_bool(self.quality.better);
        let mends = valid && !better && request.source.text.contains(BROKEN);
        let target = if mends {
            base
        } else {
            self.target(&base, better, &mut rng)
        };
        let text = world.fixed(&target);
        let (label, text) = if valid {
            ("edit".to_owned(), text)
        } else {
            let failure = drawn(&mut rng);
            let broken = broken(&text, failure)
                .ok_or_else(|| ProposeError::Unusable("no code in the reply".to_owned()))?;
            (format!("edit ({failure:?})"), broken)
        };
        Ok(vec![Proposal {
            label,
            text: text.into(),
            settings: Vec::new(),
            rationale: None,
        }])
    }
}

impl Scripted {
    /// A kernel that is faster than `base`, or one that is not; any, where there is none of the kind.
    fn target(&self, base: &Point, better: bool, rng: &mut Pcg64) -> Point {
        let world = &*self.world;
        let known = world.times.get(base).copied().unwrap_or(f64::INFINITY);
        let apart = |point: &Point| point.0.iter().zip(&base.0).filter(|(a, b)| a != b).count();
        let near: Vec<&Point> = world
            .points
            .iter()
            .filter(|point| *point != base && (self.quality.leaps || apart(point) <= 2))
            .collect();
        let wanted: Vec<&Point> = near
            .iter()
            .copied()
            .filter(|point| (world.time(point) < known) == better)
            .collect();
        let from = if wanted.is_empty() { &near } else { &wanted };
        match from.len() {
            0 => base.clone(),
            count => from[rng.random_range(0..count)].clone(),
        }
    }
}

fn drawn(rng: &mut Pcg64) -> Failure {
    let all: f64 = FAILURES.iter().map(|(_, weight)| weight).sum();
    let mut at = rng.random_range(0.0..all);
    for (failure, weight) in FAILURES {
        if at < weight {
            return failure;
        }
        at -= weight;
    }
    Failure::Compile
}

/// `text` broken in one way; `None` where there is no text at all.
fn broken(text: &str, failure: Failure) -> Option<String> {
    let first = match failure {
        Failure::Compile => "add.s32 %nothing;",
        Failure::RunTime => "trap;",
        Failure::Hang => "$spin: bra $spin;",
        // the first store is gone
        Failure::Wrong => "",
        Failure::NoCode => return None,
    };
    let mut out = format!("{BROKEN} {failure:?}\n");
    let mut opened = false;
    let mut dropped = false;
    for line in text.lines() {
        let code = line.trim_start();
        if matches!(failure, Failure::Wrong) && !dropped && code.contains("st.global") {
            dropped = true;
            continue;
        }
        out += line;
        out.push('\n');
        if !opened && code == "{" {
            opened = true;
            out += first;
            out.push('\n');
        }
    }
    Some(out)
}

/// The text with knob lines replaced, where `knob` gives a new one for a name.
fn rewritten(text: &str, knob: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let name = line
            .trim_start()
            .strip_prefix("//@ knob ")
            .and_then(|rest| rest.split_whitespace().next());
        out += &name.and_then(&knob).unwrap_or_else(|| line.to_owned());
        out.push('\n');
    }
    out
}
