//! How good the search is, on brute-forced tables of real GPU timings.
//!
//! `WARPTREE_TUNING_DATA=DIR cargo bench --bench search_quality` takes every `*.json.gz` in DIR. Without it
//! a small made-up table shows that the benchmark runs. Other variables: `WARPTREE_SEEDS` (100),
//! `WARPTREE_METHODS` (a comma-separated part of [`METHODS`]; all but the first are ablations, off unless
//! named), `WARPTREE_NOISE=1` (each evaluation draws one raw sample).
//!
//! An evaluation is one valid setting asked for, whether it runs, failed when it was recorded, or is missing
//! from the table. Score at n evaluations = (E[best of n random] − best) / (E[best of n random] − optimum),
//! times in milliseconds: 0 is random search, 1 the optimum. The expectation is exact, over draws without
//! repeats from all valid settings; where a setting failed, and where nothing valid was found yet, the
//! table's worst time stands. Each line is a mean over seeds; intervals are 1.96 standard errors over seeds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rayon::prelude::*;
use warptree::evaluate::Evaluator;
use warptree::evaluate::recorded::{Entry, Recorded, Row, Table, read};
use warptree::search::{
    Next, Outcome, Request, Root, Search, SearchParams, Start, StopRules, Surrogate, Value,
};
use warptree::source::{KnobValue, Source};

/// Scores are taken after these many evaluations.
const BUDGETS: [usize; 3] = [50, 100, 200];

/// The product's defaults, then what each part of them gains.
const METHODS: [&str; 4] = ["warptree", "no-gp", "log-time", "uniform-start"];

/// Conditions that Kernel Tuner checks before it records, by the file name's prefix; the files lack them.
const REQUIREMENTS: [(&str, &[&str]); 4] = [
    (
        "conv_",
        &[
            "use_padding == 0 or block_size_x % 32 != 0",
            "block_size_x * block_size_y <= 1024",
            "use_padding == 0 or use_shmem != 0",
            "use_shmem == 0 or (block_size_x * tile_size_x + filter_width - 1) \
             * (block_size_y * tile_size_y + filter_height - 1) < 12 * 1024",
        ],
    ),
    (
        "gemm_",
        &[
            "KWG % KWI == 0",
            "MWG % (MDIMC * VWM) == 0",
            "NWG % (NDIMC * VWN) == 0",
            "MWG % (MDIMA * VWM) == 0",
            "NWG % (NDIMB * VWN) == 0",
            "KWG % ((MDIMC * NDIMC) / MDIMA) == 0",
            "KWG % ((MDIMC * NDIMC) / NDIMB) == 0",
        ],
    ),
    (
        "dedisp_",
        &[
            "32 <= block_size_x * block_size_y <= 1024",
            "tile_size_x > 1 or tile_stride_x == 0",
            "tile_size_y > 1 or tile_stride_y == 0",
        ],
    ),
    ("pnpoly_", &[]),
];

fn main() {
    // `cargo test` runs benchmarks with --test: there is nothing to check then.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let spaces = match std::env::var_os("WARPTREE_TUNING_DATA") {
        Some(folder) => Space::read_all(Path::new(&folder)),
        None => {
            println!(
                "WARPTREE_TUNING_DATA names no folder of tables: a made-up table is searched instead"
            );
            Ok(vec![Space::made_up()])
        }
    };
    match spaces {
        Ok(spaces) => report(&spaces),
        Err(message) => {
            eprintln!("search_quality: {message}");
            std::process::exit(1);
        }
    }
}

/// One table, and what random search makes of it.
struct Space {
    name: String,
    source: Arc<Source>,
    evaluator: Recorded,
    noise: bool,
    folder: Option<PathBuf>,
    /// Milliseconds.
    optimum: f64,
    worst: f64,
    /// E[best of n random], n = 0, 1, …
    random: Vec<f64>,
}

impl Space {
    fn read_all(folder: &Path) -> Result<Vec<Self>, String> {
        let entries = std::fs::read_dir(folder)
            .map_err(|error| format!("cannot list {}: {error}", folder.display()))?;
        let mut files: Vec<PathBuf> = entries
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| path.to_string_lossy().ends_with(".json.gz"))
            .collect();
        files.sort();
        if files.is_empty() {
            return Err(format!("no *.json.gz in {}", folder.display()));
        }
        files.par_iter().map(|file| Self::read(file)).collect()
    }

    fn read(file: &Path) -> Result<Self, String> {
        let at = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let bytes = std::fs::read(file).map_err(|error| at(&error))?;
        let table = read(&bytes).map_err(|error| at(&error))?;
        for warning in table.warnings() {
            eprintln!("{}: {warning}", file.display());
        }
        let name = file.file_name().map_or_else(String::new, |name| {
            name.to_string_lossy()
                .trim_end_matches(".json.gz")
                .to_owned()
        });
        let requirements = REQUIREMENTS
            .iter()
            .find(|(prefix, _)| name.starts_with(prefix))
            .ok_or_else(|| {
                at(&"the name's prefix (conv_, gemm_, dedisp_, pnpoly_) must tell its constraints")
            })?;
        let folder = file.parent().map(Path::to_owned);
        Self::new(name, table, requirements.1, folder).map_err(|error| at(&error))
    }

    /// A bowl of 4,096 settings, every eighth of which fails.
    fn made_up() -> Self {
        let knob = |name: &str| (name.to_owned(), (0..16).map(KnobValue::Int).collect());
        let rows = (0..16 * 16 * 16).map(|i: i64| {
            let (a, b, c) = (i % 16, i / 16 % 16, i / 256);
            let off = ((a - 11).pow(2) + 2 * (b - 3).pow(2) + (a - c).pow(2)) as f64;
            let row = match warptree::units::Nanos::new(1e6 * (1.0 + off / 50.0)) {
                Some(time) if (a * 5 + b * 3 + c) % 8 != 0 => Row::Time {
                    time,
                    samples: Vec::new(),
                },
                Some(_) | None => Row::Failed {
                    reason: "made up".into(),
                },
            };
            (
                vec![KnobValue::Int(a), KnobValue::Int(b), KnobValue::Int(c)],
                row,
            )
        });
        let table = Table::new(vec![knob("a"), knob("b"), knob("c")], rows);
        Self::new("made_up".into(), table, &[], None).expect("the made-up table has a valid space")
    }

    fn new(
        name: String,
        table: Table,
        requires: &[&str],
        folder: Option<PathBuf>,
    ) -> Result<Self, String> {
        let source =
            Source::parse(&table.source_text(requires)).map_err(|error| error.to_string())?;
        let mut times: Vec<f64> = Vec::new();
        let mut failed = 0;
        for point in source.space().iter() {
            match table.entry(&source, &point) {
                Entry::Found(Row::Time { time, .. }) => times.push(time.get() / 1e6),
                Entry::Found(Row::Failed { .. }) | Entry::Missing => failed += 1,
                Entry::Foreign { message } => return Err(message),
            }
        }
        times.sort_by(f64::total_cmp);
        let (Some(&optimum), Some(&worst)) = (times.first(), times.last()) else {
            return Err("no valid setting of it ever ran".into());
        };
        times.extend(std::iter::repeat_n(worst, failed));
        let random = (0..=BUDGETS[BUDGETS.len() - 1])
            .map(|n| expected_best(&times, n))
            .collect();
        let noise = std::env::var_os("WARPTREE_NOISE").is_some();
        Ok(Self {
            name,
            source: Arc::new(source),
            evaluator: Recorded::new(table),
            noise,
            folder,
            optimum,
            worst,
            random,
        })
    }

    fn score(&self, best: f64, n: usize) -> f64 {
        (self.random[n] - best) / (self.random[n] - self.optimum)
    }

    /// The best time, in milliseconds, after each evaluation, as [`BUDGETS`] wants them. With noise: the
    /// table's own time of the setting that looks best.
    fn run(&self, params: &SearchParams, seed: u64) -> [f64; BUDGETS.len()] {
        let noisy;
        let evaluator = if self.noise {
            noisy = Recorded::noisy(self.evaluator.table().clone(), seed);
            &noisy
        } else {
            &self.evaluator
        };
        let root = Root {
            label: self.name.clone(),
            source: Arc::clone(&self.source),
            settings: Vec::new(),
        };
        let mut search = Search::new(params.clone(), seed, vec![root], &[]);
        let mut best_after = vec![self.worst];
        while let Next::Request(request) = search.next(Duration::ZERO) {
            let Request::Evaluate { ticket, point, .. } = request else {
                unreachable!("no expander is in service");
            };
            let evaluation = evaluator
                .evaluate(&self.source, &point)
                .expect("a table does not break");
            let value = Value::from(&evaluation.verdict);
            search
                .apply(&Outcome::Evaluated { ticket, value })
                .expect("the ticket is in flight");
            let best = search.best().map_or(self.worst, |(_, point, _)| {
                match self.evaluator.table().entry(&self.source, point) {
                    Entry::Found(Row::Time { time, .. }) => time.get() / 1e6,
                    Entry::Found(Row::Failed { .. }) | Entry::Missing | Entry::Foreign { .. } => {
                        self.worst
                    }
                }
            });
            best_after.push(best);
        }
        // A space smaller than the budget ends before it.
        BUDGETS.map(|n| best_after[n.min(best_after.len() - 1)])
    }
}

/// E[minimum of n draws without repeats] from ascending times.
fn expected_best(ascending: &[f64], n: usize) -> f64 {
    let Some(&worst) = ascending.last() else {
        return f64::NAN;
    };
    if n == 0 {
        return worst;
    }
    let total = ascending.len();
    let mut expectation = 0.0;
    // P(no draw is among the first i).
    let mut none_before = 1.0;
    for (i, time) in ascending.iter().enumerate() {
        let left = total - i;
        let none_up_to = if left > n {
            none_before * (left - n) as f64 / left as f64
        } else {
            0.0
        };
        expectation += time * (none_before - none_up_to);
        none_before = none_up_to;
    }
    expectation
}

fn params(method: &str) -> Option<SearchParams> {
    let stop = StopRules {
        evaluations: Some(BUDGETS[BUDGETS.len() - 1] as u32),
        ..StopRules::default()
    };
    // Nothing runs side by side here: one at a time, as on one GPU.
    let mut params = SearchParams {
        window: 1,
        stop,
        ..SearchParams::default()
    };
    match method {
        "warptree" => {}
        "no-gp" => params.tuner.surrogate = Surrogate::Uniform,
        "log-time" => params.tuner.surrogate = Surrogate::LogTimeGp,
        "uniform-start" => params.tuner.start = Start::Uniform,
        _ => return None,
    }
    Some(params)
}

/// Scores and their standard errors at each budget.
type Line = [(f64, f64); BUDGETS.len()];

fn report(spaces: &[Space]) {
    let seeds: u64 = std::env::var("WARPTREE_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(100);
    let wanted = std::env::var("WARPTREE_METHODS").unwrap_or_else(|_| METHODS[0].to_owned());
    let mut lines: BTreeMap<String, Vec<Line>> = BTreeMap::new();
    let begun = Instant::now();
    for method in wanted.split(',') {
        let Some(params) = params(method) else {
            eprintln!(
                "search_quality: no method `{method}`; known: {}",
                METHODS.join(", ")
            );
            std::process::exit(1);
        };
        for space in spaces {
            let runs: Vec<_> = (0..seeds)
                .into_par_iter()
                .map(|seed| space.run(&params, seed))
                .collect();
            let line = std::array::from_fn(|budget| {
                let scores = runs
                    .iter()
                    .map(|best| space.score(best[budget], BUDGETS[budget]));
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
    let means = lines
        .iter()
        .map(|(method, lines)| (method, mean_over_spaces(lines)));
    let means: Vec<_> = means.collect();
    for (method, line) in &means {
        print_line("mean", method, line);
    }
    for (method, line) in &means {
        let half: Vec<String> = line
            .iter()
            .map(|(_, error)| format!("±{:.3}", 1.96 * error))
            .collect();
        println!("95%-interval {method} {}", half.join(" "));
    }
    eprintln!("{seeds} seeds, {:.0} s", took.as_secs_f64());
}

fn print_line(space: &str, method: &str, line: &Line) {
    let scores: Vec<String> = line
        .iter()
        .map(|(score, _)| format!("{score:.3}"))
        .collect();
    println!("{space} {method} {}", scores.join(" "));
}

fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let square: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
    let error = if n > 1.0 {
        (square / (n - 1.0) / n).sqrt()
    } else {
        0.0
    };
    (mean, error)
}

fn mean_over_spaces(lines: &[Line]) -> Line {
    let n = lines.len() as f64;
    std::array::from_fn(|budget| {
        let mean = lines.iter().map(|line| line[budget].0).sum::<f64>() / n;
        let square: f64 = lines.iter().map(|line| line[budget].1.powi(2)).sum();
        (mean, square.sqrt() / n)
    })
}

/// Kernel Tuner's own results on the same table, where its CSV lies beside it.
fn kernel_tuner(space: &Space) -> BTreeMap<String, Line> {
    let csv = space
        .folder
        .as_ref()
        .map(|folder| folder.join("kernel_tuner_1.5.0.csv"));
    let text = csv
        .and_then(|csv| std::fs::read_to_string(csv).ok())
        .unwrap_or_default();
    let mut scores: BTreeMap<String, [Vec<f64>; BUDGETS.len()]> = BTreeMap::new();
    let mut rows = text.lines();
    let header: Vec<&str> = rows
        .next()
        .map_or_else(Vec::new, |line| line.split(',').collect());
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
