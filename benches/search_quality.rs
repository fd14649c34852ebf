//! How good the search is, on brute-forced tables of real GPU timings.
//!
//! `WARPTREE_TUNING_DATA=DIR cargo bench --bench search_quality` takes every `*.json.gz` in DIR. Without it
//! a small made-up table shows that the benchmark runs. Other variables: `WARPTREE_SEEDS` (100),
//! `WARPTREE_METHODS` (a comma-separated part of [`METHODS`], or `all`; all but the first are ablations, off
//! unless named; what the tree adds is ablated in `structure`), `WARPTREE_PARAMS` (a JSON object laid over
//! the search's parameters).
//!
//! `WARPTREE_NOISE=1`: each evaluation draws one raw sample. The setting that looks best is scored by the
//! table's time; then, as `re-timed`, the winner of the race that a search of noisy times ends with. Its
//! further timings stand beside the budget; how many there were is told.
//!
//! `WARPTREE_TRANSFER=1`: each table that has relatives (the same kernel on other GPUs) is searched with what
//! searches of them judged, [`EARLIER`] settings each, as `search --start-from` does: one by one, all together,
//! and for comparison from nothing.
//!
//! Each line is a mean over seeds of the score that `tables` defines; intervals are 1.96 standard errors
//! over seeds. The whole search is driven, through ask and tell, one evaluation at a time.
//!
//! The numbers in `src/search/params.rs` and in the tuner were chosen on the seven tables that
//! `benches/tables/search_quality.txt` records, and each change together with the others raised the mean at
//! every budget whichever one of the seven is left out. Tables of other kernels were not looked at.

mod tables;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rayon::prelude::*;
use warptree::evaluate::Evaluator;
use warptree::evaluate::recorded::Recorded;
use warptree::search::{
    Earlier, Next, Outcome, Race, Request, Root, Search, SearchParams, Start, StopRules, Surrogate,
    Timing, Value, median,
};
use warptree::source::{Point, Setting};

use tables::{
    BUDGETS, Line, TuningSpace, mean_and_error, mean_over_spaces, overlaid, print_intervals,
    print_line, seeds,
};

/// The product's defaults, then what each part of them gains.
const METHODS: [&str; 4] = ["warptree", "no-gp", "log-time", "uniform-start"];

/// Evaluations of the search of a related table that another starts from.
const EARLIER: u32 = 100;

fn main() {
    // `cargo test` runs benchmarks with --test: there is nothing to check then.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    if let Err(message) = TuningSpace::all().and_then(|spaces| report(&spaces)) {
        eprintln!("search_quality: {message}");
        std::process::exit(1);
    }
}

fn params(method: &str) -> Result<SearchParams, String> {
    // Nothing runs side by side here: one at a time, as on one GPU.
    let mut params = SearchParams {
        window: 1,
        stop: StopRules {
            evaluations: Some(BUDGETS[BUDGETS.len() - 1] as u32),
            ..StopRules::default()
        },
        ..overlaid(SearchParams::default())?
    };
    match method {
        "warptree" => {}
        "no-gp" => params.tuner.surrogate = Surrogate::Uniform,
        "log-time" => params.tuner.surrogate = Surrogate::LogTimeGp,
        "uniform-start" => params.tuner.start = Start::Uniform,
        other => {
            return Err(format!(
                "no method `{other}`; known: {}",
                METHODS.join(", ")
            ));
        }
    }
    Ok(params)
}

fn report(spaces: &[TuningSpace]) -> Result<(), String> {
    for space in spaces {
        let settings = space.source.space().len();
        eprintln!(
            "{}: {settings} settings under {} requirements",
            space.name,
            space.requires.len()
        );
    }
    let seeds = seeds(100);
    let begun = Instant::now();
    let mut record = Record::default();
    if std::env::var_os("WARPTREE_TRANSFER").is_some() {
        transfer(spaces, seeds, &mut record)?;
    } else {
        let noise = std::env::var_os("WARPTREE_NOISE").is_some();
        let wanted = match std::env::var("WARPTREE_METHODS") {
            Ok(list) if list == "all" => METHODS.join(","),
            Ok(list) => list,
            Err(_) => METHODS[0].to_owned(),
        };
        for method in wanted.split(',') {
            let params = params(method)?;
            for space in spaces {
                let runs: Vec<Run> = (0..seeds)
                    .into_par_iter()
                    .map(|seed| run(space, &params, seed, noise, &[]))
                    .collect();
                record.note(space, method, runs.iter().map(|run| run.best));
                if noise {
                    let method = format!("{method}:re-timed");
                    record.note(space, &method, runs.iter().map(|run| run.retimed));
                    let turns = runs.iter().map(|run| run.turns).sum::<usize>();
                    let races = (runs.len() * BUDGETS.len()) as f64;
                    println!("# {:.1} further timings a race", turns as f64 / races);
                }
            }
        }
    }
    let took = begun.elapsed();
    for (space, methods) in spaces.iter().map(|space| (space, kernel_tuner(space))) {
        for (method, line) in methods {
            print_line(&space.name, &method, &line);
            record.lines.entry(method).or_default().push(line);
        }
    }
    record.print_means();
    eprintln!("{seeds} seeds, {:.0} s", took.as_secs_f64());
    Ok(())
}

/// Lines by method.
#[derive(Default)]
struct Record {
    lines: BTreeMap<String, Vec<Line>>,
}

impl Record {
    /// Scores the best times of some runs, and prints the line.
    fn note(
        &mut self,
        space: &TuningSpace,
        method: &str,
        runs: impl Iterator<Item = [f64; BUDGETS.len()]> + Clone,
    ) {
        let line = std::array::from_fn(|budget| {
            let best = runs.clone().map(|best| best[budget]);
            let scores = best.map(|best| space.score(best, BUDGETS[budget]));
            mean_and_error(&scores.collect::<Vec<f64>>())
        });
        print_line(&space.name, method, &line);
        self.lines.entry(method.to_owned()).or_default().push(line);
    }

    /// A method that was not run on as many tables as the others has no mean to compare.
    fn print_means(&self) {
        let most = self.lines.values().map(Vec::len).max().unwrap_or(0);
        let full = || self.lines.iter().filter(|(_, lines)| lines.len() == most);
        full().for_each(|(method, lines)| print_line("mean", method, &mean_over_spaces(lines)));
        full().for_each(|(method, lines)| print_intervals(method, &mean_over_spaces(lines)));
    }
}

/// Searches each table from nothing, from what a search of each of its relatives judged, and from all of these.
fn transfer(spaces: &[TuningSpace], seeds: u64, record: &mut Record) -> Result<(), String> {
    let params = params(METHODS[0])?;
    let mut earlier = params.clone();
    earlier.stop.evaluations = Some(EARLIER);
    let kernel = |space: &TuningSpace| {
        let name = space.name.rsplit_once('_');
        name.map(|(kernel, _)| kernel.to_owned())
    };
    let related = |to: &TuningSpace, from: &TuningSpace| {
        from.name != to.name && kernel(from).is_some() && kernel(from) == kernel(to)
    };
    // By table, by seed.
    let found: Vec<Vec<Found>> = spaces
        .iter()
        .map(|from| {
            let found = |seed| {
                let run = run(from, &earlier, seeds + seed, false, &[]);
                Found::new(from, &run, &params)
            };
            let useful = spaces.iter().any(|to| related(to, from));
            let seeds = 0..if useful { seeds } else { 0 };
            seeds.into_par_iter().map(found).collect()
        })
        .collect();
    for to in spaces {
        let relatives = spaces.iter().zip(&found);
        let relatives: Vec<(&TuningSpace, &Vec<Found>)> =
            relatives.filter(|(from, _)| related(to, from)).collect();
        if relatives.is_empty() {
            continue;
        }
        let after = |from: &[&Vec<Found>]| -> Vec<[f64; BUDGETS.len()]> {
            let runs = (0..seeds).into_par_iter().map(|seed| {
                let found: Vec<&Found> = from.iter().map(|found| &found[seed as usize]).collect();
                run(to, &params, seed, false, &found).best
            });
            runs.collect()
        };
        let from_nothing = after(&[]);
        for (from, found) in &relatives {
            println!("# {} after {}", to.name, from.name);
            record.note(to, "transferred", after(&[found]).into_iter());
            record.note(to, "from-nothing", from_nothing.iter().copied());
        }
        if relatives.len() > 1 {
            println!("# {} after all of these", to.name);
            let all: Vec<&Vec<Found>> = relatives.iter().map(|&(_, found)| found).collect();
            record.note(to, "transferred-from-all", after(&all).into_iter());
        }
    }
    Ok(())
}

/// What a search hands on to another.
struct Found {
    /// Its best settings, best first.
    best: Vec<Setting>,
    earlier: Earlier,
}

impl Found {
    fn new(space: &TuningSpace, run: &Run, params: &SearchParams) -> Self {
        let setting = |point: &Point| space.source.space().setting(point);
        let judged = || run.judged.iter();
        let best = judged().take(params.carried as usize);
        Self {
            best: best.map(|(_, point)| setting(point)).collect(),
            earlier: Earlier::new(
                judged().map(|(value, point)| (setting(point), *value)),
                params.tuner.earlier_limit as usize,
            ),
        }
    }
}

/// A search's best times, in milliseconds, after each number of evaluations in [`BUDGETS`].
struct Run {
    /// By the table, of the setting that looks best.
    best: [f64; BUDGETS.len()],
    /// By the table, of the setting that looks best once the best-looking were timed again.
    retimed: [f64; BUDGETS.len()],
    /// Further timings for that, over all budgets.
    turns: usize,
    /// All that was judged, best first.
    judged: Vec<(Value, Point)>,
}

fn run(
    space: &TuningSpace,
    params: &SearchParams,
    seed: u64,
    noise: bool,
    found: &[&Found],
) -> Run {
    let noisy = noise.then(|| Recorded::noisy(space.evaluator.table().clone(), seed));
    let evaluator = noisy.as_ref().unwrap_or(&space.evaluator);
    let value = |point: &Point| {
        let evaluation = evaluator.evaluate(&space.source, point);
        Value::from(&evaluation.expect("a table does not break").verdict)
    };
    let root = Root {
        label: space.name.clone(),
        source: Arc::clone(&space.source),
        settings: found.iter().flat_map(|found| found.best.clone()).collect(),
        earlier: found.iter().map(|found| found.earlier.clone()).collect(),
    };
    let mut search = Search::new(params.clone(), seed, vec![root], &[]);
    // All that was judged, best first.
    let mut ranked: Vec<(Value, Point)> = Vec::new();
    let (mut best_after, mut retimed_after) = (vec![space.worst], vec![space.worst]);
    let mut turns = 0;
    while let Next::Request(request) = search.next(Duration::ZERO) {
        let Request::Evaluate { ticket, point, .. } = request else {
            unreachable!("no expander is in service");
        };
        let value_now = value(&point);
        let place = ranked.partition_point(|(other, _)| *other <= value_now);
        ranked.insert(place, (value_now, point));
        search
            .apply(&Outcome::Evaluated {
                ticket,
                value: value_now,
                limit: None,
            })
            .expect("the ticket is in flight");
        let best = search.best();
        best_after.push(best.map_or(space.worst, |(_, point, _)| {
            space.time(&space.source, point)
        }));
        let retimed = match noise && BUDGETS.contains(&ranked.len()) {
            true => race(params, &ranked, &value, &mut turns),
            false => None,
        };
        let retimed = retimed.map(|point| space.time(&space.source, point));
        retimed_after.push(retimed.unwrap_or(best_after[best_after.len() - 1]));
    }
    // A space smaller than the budget ends before it.
    let last = best_after.len() - 1;
    Run {
        best: BUDGETS.map(|n| best_after[n.min(last)]),
        retimed: BUDGETS.map(|n| retimed_after[n.min(last)]),
        turns,
        judged: ranked,
    }
}

/// Of the best-looking settings the one that wins their race; counts the timings that it takes.
fn race<'a>(
    params: &SearchParams,
    ranked: &'a [(Value, Point)],
    value: &impl Fn(&Point) -> Value,
    turns: &mut usize,
) -> Option<&'a Point> {
    let runners = &ranked[..ranked.len().min(params.race.runners as usize)];
    let mut race = Race::new(params.race.clone(), runners.iter().map(|_| 1.0));
    while let Some(turn) = race.next() {
        *turns += 1;
        let time = value(&runners[turn].1).cost();
        race.tell(turn, time.map(|time| Timing { time, error: 0.0 }));
    }
    let medians = race.times().map(|times| median(&times));
    let timed = medians
        .zip(runners)
        .filter_map(|(time, (_, point))| Some((time?, point)));
    timed
        .min_by(|a, b| a.0.get().total_cmp(&b.0.get()))
        .map(|(_, point)| point)
}

/// Kernel Tuner's own results on the same table, where its CSV lies beside it.
fn kernel_tuner(space: &TuningSpace) -> BTreeMap<String, Line> {
    let folder = std::env::var_os("WARPTREE_TUNING_DATA").map(PathBuf::from);
    let csv = folder.map(|folder| folder.join("kernel_tuner_1.5.0.csv"));
    let text = csv.and_then(|csv| std::fs::read_to_string(csv).ok());
    let text = text.unwrap_or_default();
    let mut scores: BTreeMap<String, [Vec<f64>; BUDGETS.len()]> = BTreeMap::new();
    let mut rows = text.lines();
    let header: Vec<&str> = rows.next().unwrap_or_default().split(',').collect();
    let column = |name: &str| header.iter().position(|field| *field == name);
    for row in rows {
        let fields: Vec<&str> = row.split(',').collect();
        let field = |name: &str| column(name).and_then(|at| fields.get(at).copied());
        if field("space") != Some(space.name.as_str()) {
            continue;
        }
        let Some(strategy) = field("strategy") else {
            continue;
        };
        let method = scores
            .entry(format!("kernel_tuner:{strategy}"))
            .or_default();
        for (budget, list) in BUDGETS.iter().zip(method.iter_mut()) {
            let ratio = field(&format!("best_over_optimum_{budget}"));
            if let Some(ratio) = ratio.and_then(|ratio| ratio.parse::<f64>().ok()) {
                list.push(space.score(ratio * space.optimum, *budget));
            }
        }
    }
    scores.retain(|_, lists| lists.iter().all(|list| !list.is_empty()));
    let line = |lists: [Vec<f64>; BUDGETS.len()]| lists.map(|list| mean_and_error(&list));
    scores
        .into_iter()
        .map(|(method, lists)| (method, line(lists)))
        .collect()
}
