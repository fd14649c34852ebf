//! Whether the tree over sources earns its place: real tables split into several sources by the knobs that
//! stand for structure (shared memory or not, which algorithm), each with a tuner of its own.
//!
//! `WARPTREE_TUNING_DATA=DIR cargo bench --bench structure`; `WARPTREE_SEEDS` (50), `WARPTREE_PARAMS` as in
//! `search_quality`. `given`: all sources are given at the start. `edits`: only the first is, and each of the
//! others is one or more edits (one structural knob changed) away. The baselines know all sources and use
//! the same tuner inside each: they differ in whose turn it is. `mean-backup` and `c-1` are `given` with one
//! part changed: what a node is worth is the mean of all below it, and exploration weighs 1. `joint` is one
//! tuner over the whole space, structure included. Scores as `tables` defines them, over the whole space.

mod tables;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rayon::prelude::*;
use warptree::evaluate::Evaluator;
use warptree::search::tuner::Tuner;
use warptree::search::{
    Backup, Child, Cost, Expander, Next, Outcome, Request, Root, Search, SearchParams, StopRules,
    Value,
};
use warptree::source::{KnobValue, Point, Source};

use tables::{
    BUDGETS, Line, TuningSpace, mean_and_error, mean_over_spaces, overlaid, print_intervals,
    print_line, seeds,
};

/// Knobs that stand for structure, by the table's prefix.
const STRUCTURE: [(&str, &[&str]); 5] = [
    ("conv_", &["use_shmem", "use_padding", "read_only"]),
    ("gemm_", &["SA", "SB"]),
    ("dedisp_", &["tile_stride_x", "tile_stride_y"]),
    ("pnpoly_", &["between_method", "use_method"]),
    ("made_up", &["a"]),
];

const METHODS: [(&str, Method); 8] = [
    ("warptree-given", Method::Given),
    ("warptree-edits", Method::Edits),
    ("mean-backup", Method::MeanBackup),
    ("c-1", Method::Explore),
    ("round-robin", Method::Turns(Turn::RoundRobin)),
    ("random", Method::Turns(Turn::Random)),
    ("best-first", Method::Turns(Turn::BestFirst)),
    ("joint", Method::Joint),
];

#[derive(Clone, Copy)]
enum Method {
    Given,
    Edits,
    MeanBackup,
    Explore,
    Turns(Turn),
    Joint,
}

/// Whose turn it is.
#[derive(Clone, Copy)]
enum Turn {
    /// Each in turn.
    RoundRobin,
    /// Any.
    Random,
    /// Each once, then always the one with the best time.
    BestFirst,
}

/// A table's space, split.
struct Split<'a> {
    space: &'a TuningSpace,
    sources: Vec<Arc<Source>>,
    /// Sources one structural knob away, by source.
    edits: Vec<Vec<usize>>,
}

fn main() {
    // `cargo test` runs benchmarks with --test: there is nothing to check then.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let result = TuningSpace::all().and_then(|spaces| {
        let splits: Result<Vec<Split>, String> = spaces.iter().map(Split::new).collect();
        report(&splits?)
    });
    if let Err(message) = result {
        eprintln!("structure: {message}");
        std::process::exit(1);
    }
}

impl<'a> Split<'a> {
    fn new(space: &'a TuningSpace) -> Result<Self, String> {
        let structure = STRUCTURE
            .iter()
            .find(|(prefix, _)| space.name.starts_with(prefix))
            .map_or(&[][..], |(_, knobs)| knobs);
        let whole = space.source.space();
        let places: Vec<usize> = (0..whole.knobs().len())
            .filter(|&place| structure.contains(&whole.knobs()[place].name.as_str()))
            .collect();
        // The first valid point of each combination, which becomes its default.
        let mut combinations: BTreeMap<Vec<u16>, Point> = BTreeMap::new();
        for point in whole.iter() {
            let key = places.iter().map(|&place| point.0[place]).collect();
            combinations.entry(key).or_insert(point);
        }
        let mut sources = Vec::new();
        for point in combinations.values() {
            let mut text = String::new();
            for (place, knob) in whole.knobs().iter().enumerate() {
                let default = &knob.values[usize::from(point.0[place])];
                let values: Vec<String> = if places.contains(&place) {
                    vec![default.to_string()]
                } else {
                    knob.values.iter().map(KnobValue::to_string).collect()
                };
                let values = values.join(", ");
                text += &format!("//@ knob {} = {default} in {{{values}}}\n", knob.name);
            }
            for require in space.requires {
                text += &format!("//@ require {require}\n");
            }
            let source = Source::parse(&text).map_err(|error| error.to_string())?;
            sources.push(Arc::new(source));
        }
        let keys: Vec<&Vec<u16>> = combinations.keys().collect();
        let apart = |a: &[u16], b: &[u16]| a.iter().zip(b).filter(|(a, b)| a != b).count();
        let edits = keys.iter().map(|from| {
            let near = |&to: &usize| apart(from, keys[to]) == 1;
            (0..keys.len()).filter(near).collect()
        });
        Ok(Self {
            space,
            edits: edits.collect(),
            sources,
        })
    }

    fn value(&self, source: &Source, point: &Point) -> Value {
        let evaluation = self.space.evaluator.evaluate(source, point);
        Value::from(&evaluation.expect("a table does not break").verdict)
    }

    fn run(&self, method: Method, params: &SearchParams, seed: u64) -> [f64; BUDGETS.len()] {
        let most = BUDGETS[BUDGETS.len() - 1];
        let times = match method {
            Method::Given => self.search(params, seed, &self.sources, &[]),
            Method::Edits => self.search(params, seed, &self.sources[..1], &[Expander::Rewrites]),
            Method::MeanBackup => {
                let mean = SearchParams {
                    backup: Backup::Mean,
                    ..params.clone()
                };
                self.search(&mean, seed, &self.sources, &[])
            }
            Method::Explore => {
                let exploring = SearchParams {
                    exploration: 1.0,
                    ..params.clone()
                };
                self.search(&exploring, seed, &self.sources, &[])
            }
            Method::Joint => self.search(params, seed, &[Arc::clone(&self.space.source)], &[]),
            Method::Turns(turn) => self.take_turns(turn, params, seed, most),
        };
        let mut best = self.space.worst;
        let after: Vec<f64> = times
            .iter()
            .map(|&time| {
                best = best.min(time);
                best
            })
            .collect();
        BUDGETS.map(|n| after[n.min(after.len()) - 1])
    }

    /// The whole search; gives the time of each evaluation.
    fn search(
        &self,
        params: &SearchParams,
        seed: u64,
        given: &[Arc<Source>],
        by: &[Expander],
    ) -> Vec<f64> {
        let roots = given.iter().enumerate().map(|(i, source)| Root {
            label: format!("source {i}"),
            source: Arc::clone(source),
            settings: Vec::new(),
            earlier: Vec::new(),
        });
        let mut search = Search::new(params.clone(), seed, roots.collect(), by);
        let mut times = Vec::new();
        while let Next::Request(request) = search.next(Duration::ZERO) {
            let source = search
                .source(request.node())
                .expect("requests are about sources");
            let outcome = match &request {
                Request::Evaluate { ticket, point, .. } => {
                    times.push(self.space.time(source, point));
                    let value = self.value(source, point);
                    Outcome::Evaluated {
                        ticket: *ticket,
                        value,
                        limit: None,
                    }
                }
                Request::Expand {
                    ticket, attempt, ..
                } => {
                    let own = self
                        .sources
                        .iter()
                        .position(|known| known.digest() == source.digest());
                    let own = own.expect("every source is one of the split");
                    let next = self.edits[own].get(*attempt as usize);
                    let children = next.into_iter().map(|&to| Child {
                        label: format!("edit to {to}"),
                        source: Arc::clone(&self.sources[to]),
                        settings: Vec::new(),
                        estimated: None,
                    });
                    Outcome::Expanded {
                        cost: Cost::FREE,
                        ticket: *ticket,
                        children: children.collect(),
                    }
                }
            };
            search.apply(&outcome).expect("the ticket is in flight");
        }
        times
    }

    fn take_turns(&self, turn: Turn, params: &SearchParams, seed: u64, most: usize) -> Vec<f64> {
        let mut rng = Pcg64::seed_from_u64(seed);
        let mut tuners: Vec<(Tuner, Vec<f64>)> = self
            .sources
            .iter()
            .map(|source| {
                let first = source.space().default_point().into_iter().collect();
                let tuner = Tuner::new(Arc::clone(source), first, &[], &params.tuner, rng.random());
                (tuner, Vec::new())
            })
            .collect();
        let mut times = Vec::new();
        while times.len() < most {
            let open: Vec<usize> = (0..tuners.len())
                .filter(|&i| !tuners[i].0.is_exhausted())
                .collect();
            let best = |i: usize| tuners[i].1.iter().copied().fold(f64::INFINITY, f64::min);
            let chosen = match turn {
                Turn::RoundRobin => open.iter().copied().min_by_key(|&i| tuners[i].1.len()),
                Turn::Random if open.is_empty() => None,
                Turn::Random => Some(open[rng.random_range(0..open.len())]),
                Turn::BestFirst => {
                    let fresh = open.iter().copied().find(|&i| tuners[i].1.is_empty());
                    fresh.or_else(|| {
                        open.iter()
                            .copied()
                            .min_by(|&a, &b| best(a).total_cmp(&best(b)))
                    })
                }
            };
            let Some(chosen) = chosen else {
                break;
            };
            let (tuner, own) = &mut tuners[chosen];
            let point = tuner.ask().expect("it is not exhausted");
            let time = self.space.time(&self.sources[chosen], &point);
            tuner.tell(&point, self.value(&self.sources[chosen], &point));
            own.push(time);
            times.push(time);
        }
        times
    }
}

fn report(splits: &[Split<'_>]) -> Result<(), String> {
    let seeds = seeds(50);
    let params = SearchParams {
        window: 1,
        stop: StopRules {
            evaluations: Some(BUDGETS[BUDGETS.len() - 1] as u32),
            ..StopRules::default()
        },
        ..overlaid(SearchParams::default())?
    };
    let wanted = std::env::var("WARPTREE_METHODS").ok();
    let wanted = |name: &str| {
        wanted
            .as_ref()
            .is_none_or(|list| list.split(',').any(|own| own == name))
    };
    let mut means: Vec<(&str, Line)> = Vec::new();
    for (name, method) in METHODS.into_iter().filter(|(name, _)| wanted(name)) {
        let mut lines = Vec::new();
        for split in splits {
            let runs: Vec<_> = (0..seeds)
                .into_par_iter()
                .map(|seed| split.run(method, &params, seed))
                .collect();
            let line = std::array::from_fn(|budget| {
                let best = runs.iter().map(|best| best[budget]);
                let scores = best.map(|best| split.space.score(best, BUDGETS[budget]));
                mean_and_error(&scores.collect::<Vec<f64>>())
            });
            print_line(&split.space.name, name, &line);
            lines.push(line);
        }
        means.push((name, mean_over_spaces(&lines)));
    }
    means
        .iter()
        .for_each(|(name, line)| print_line("mean", name, line));
    means
        .iter()
        .for_each(|(name, line)| print_intervals(name, line));
    Ok(())
}
