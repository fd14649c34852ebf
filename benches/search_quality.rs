//! How good the search is, on brute-forced tables of real GPU timings.
//!
//! `WARPTREE_TUNING_DATA=DIR cargo bench --bench search_quality` takes every `*.json.gz` in DIR. Without it
//! a small made-up table shows that the benchmark runs. Other variables: `WARPTREE_SEEDS` (100),
//! `WARPTREE_METHODS` (a comma-separated part of [`METHODS`]; all but the first are ablations, off unless
//! named), `WARPTREE_NOISE=1` (each evaluation draws one raw sample; the setting that looks best is scored
//! by the table's time), `WARPTREE_PARAMS` (a JSON object laid over the search's parameters).
//!
//! Each line is a mean over seeds of the score that `tables` defines; intervals are 1.96 standard errors
//! over seeds. The whole search is driven, through ask and tell, one evaluation at a time.

mod tables;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rayon::prelude::*;
use warptree::evaluate::Evaluator;
use warptree::evaluate::recorded::Recorded;
use warptree::search::{
    Next, Outcome, Request, Root, Search, SearchParams, Start, StopRules, Surrogate, Value,
};

use tables::{
    BUDGETS, Line, TuningSpace, mean_and_error, mean_over_spaces, overlaid, print_intervals,
    print_line, seeds,
};

/// The product's defaults, then what each part of them gains.
const METHODS: [&str; 4] = ["warptree", "no-gp", "log-time", "uniform-start"];

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
    let noise = std::env::var_os("WARPTREE_NOISE").is_some();
    let wanted = std::env::var("WARPTREE_METHODS").unwrap_or_else(|_| METHODS[0].to_owned());
    let mut lines: BTreeMap<String, Vec<Line>> = BTreeMap::new();
    let begun = Instant::now();
    for method in wanted.split(',') {
        let params = params(method)?;
        for space in spaces {
            let runs: Vec<_> = (0..seeds)
                .into_par_iter()
                .map(|seed| run(space, &params, seed, noise))
                .collect();
            let line = std::array::from_fn(|budget| {
                let best = runs.iter().map(|best| best[budget]);
                let scores = best.map(|best| space.score(best, BUDGETS[budget]));
                mean_and_error(&scores.collect::<Vec<f64>>())
            });
            print_line(&space.name, method, &line);
            lines.entry(method.to_owned()).or_default().push(line);
        }
    }
    let took = begun.elapsed();
    for (space, methods) in spaces.iter().map(|space| (space, kernel_tuner(space))) {
        for (method, line) in methods {
            print_line(&space.name, &method, &line);
            lines.entry(method).or_default().push(line);
        }
    }
    // A method that was not run on every table has no mean to compare.
    lines.retain(|_, lines| lines.len() == spaces.len());
    let means: Vec<(&String, Line)> = lines
        .iter()
        .map(|(method, lines)| (method, mean_over_spaces(lines)))
        .collect();
    means
        .iter()
        .for_each(|(method, line)| print_line("mean", method, line));
    means
        .iter()
        .for_each(|(method, line)| print_intervals(method, line));
    eprintln!("{seeds} seeds, {:.0} s", took.as_secs_f64());
    Ok(())
}

/// The best time, in milliseconds, after each number of evaluations in [`BUDGETS`].
fn run(space: &TuningSpace, params: &SearchParams, seed: u64, noise: bool) -> [f64; BUDGETS.len()] {
    let noisy = noise.then(|| Recorded::noisy(space.evaluator.table().clone(), seed));
    let evaluator = noisy.as_ref().unwrap_or(&space.evaluator);
    let root = Root {
        label: space.name.clone(),
        source: Arc::clone(&space.source),
        settings: Vec::new(),
    };
    let mut search = Search::new(params.clone(), seed, vec![root], &[]);
    let mut best_after = vec![space.worst];
    while let Next::Request(request) = search.next(Duration::ZERO) {
        let Request::Evaluate { ticket, point, .. } = request else {
            unreachable!("no expander is in service");
        };
        let evaluation = evaluator
            .evaluate(&space.source, &point)
            .expect("a table does not break");
        let value = Value::from(&evaluation.verdict);
        search
            .apply(&Outcome::Evaluated {
                ticket,
                value,
                limit: None,
            })
            .expect("the ticket is in flight");
        let best = search.best();
        best_after.push(best.map_or(space.worst, |(_, point, _)| {
            space.time(&space.source, point)
        }));
    }
    // A space smaller than the budget ends before it.
    BUDGETS.map(|n| best_after[n.min(best_after.len() - 1)])
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
