//! What the benchmarks on recorded tables share: the tables of a folder, their constraints, and scores.
//!
//! Score at n evaluations = (E[best of n random] − best) / (E[best of n random] − optimum), times in
//! milliseconds: 0 is random search, 1 the optimum. An evaluation is one valid setting asked for, whether
//! it runs, failed when it was recorded, or is missing from the table. The expectation is exact, over draws
//! without repeats from all valid settings; where a setting failed, and where nothing valid was found yet,
//! the table's worst time stands.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;
use warptree::evaluate::recorded::{Entry, Recorded, Row, Table, read};
use warptree::search::SearchParams;
use warptree::source::{KnobValue, Point, Source};
use warptree::units::Nanos;

/// Scores are taken after these many evaluations.
pub const BUDGETS: [usize; 3] = [50, 100, 200];

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

/// One table, and what random search makes of it.
pub struct TuningSpace {
    /// The file's name without its ending.
    pub name: String,
    /// Stands for the whole space.
    pub source: Arc<Source>,
    /// Conditions of the space.
    pub requires: &'static [&'static str],
    /// Answers from the table.
    pub evaluator: Recorded,
    /// Milliseconds.
    pub optimum: f64,
    /// Milliseconds.
    pub worst: f64,
    /// E[best of n random], n = 0, 1, …
    random: Vec<f64>,
}

impl TuningSpace {
    /// The tables of the folder that `WARPTREE_TUNING_DATA` names, else a small made-up one.
    pub fn all() -> Result<Vec<Self>, String> {
        let Some(folder) = std::env::var_os("WARPTREE_TUNING_DATA") else {
            println!(
                "WARPTREE_TUNING_DATA names no folder of tables: a made-up one is searched instead"
            );
            return Ok(vec![Self::made_up()?]);
        };
        let folder = Path::new(&folder);
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
        let (_, requires) = REQUIREMENTS
            .iter()
            .find(|(prefix, _)| name.starts_with(prefix))
            .ok_or_else(|| {
                at(&"its prefix (conv_, gemm_, dedisp_, pnpoly_) must tell the constraints")
            })?;
        Self::new(name, table, requires).map_err(|error| at(&error))
    }

    /// A bowl of 4,096 settings, every eighth of which fails.
    fn made_up() -> Result<Self, String> {
        let knob = |name: &str| (name.to_owned(), (0..16).map(KnobValue::Int).collect());
        let rows = (0..16 * 16 * 16).map(|i: i64| {
            let (a, b, c) = (i % 16, i / 16 % 16, i / 256);
            let off = ((a - 11).pow(2) + 2 * (b - 3).pow(2) + (a - c).pow(2)) as f64;
            let row = match Nanos::new(1e6 * (1.0 + off / 50.0)) {
                Some(time) if (a * 5 + b * 3 + c) % 8 != 0 => Row::Time {
                    time,
                    samples: Vec::new(),
                },
                Some(_) | None => Row::Failed {
                    reason: "made up".into(),
                },
            };
            let setting = [a, b, c].map(KnobValue::Int);
            (setting.to_vec(), row)
        });
        let table = Table::new(vec![knob("a"), knob("b"), knob("c")], rows);
        Self::new("made_up".into(), table, &[])
    }

    fn new(name: String, table: Table, requires: &'static [&'static str]) -> Result<Self, String> {
        let source = Source::parse(&table.source_text(requires));
        let source = source.map_err(|error| error.to_string())?;
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
        Ok(Self {
            name,
            source: Arc::new(source),
            requires,
            evaluator: Recorded::new(table),
            optimum,
            worst,
            random,
        })
    }

    /// The score of a best time, in milliseconds, after `n` evaluations.
    pub fn score(&self, best: f64, n: usize) -> f64 {
        (self.random[n] - best) / (self.random[n] - self.optimum)
    }

    /// The table's time of a setting of a source over its knobs, in milliseconds; the worst where it has
    /// none.
    pub fn time(&self, source: &Source, point: &Point) -> f64 {
        match self.evaluator.table().entry(source, point) {
            Entry::Found(Row::Time { time, .. }) => time.get() / 1e6,
            Entry::Found(Row::Failed { .. }) | Entry::Missing | Entry::Foreign { .. } => self.worst,
        }
    }
}

/// E[minimum of n draws without repeats] from ascending times.
fn expected_best(ascending: &[f64], n: usize) -> f64 {
    let total = ascending.len();
    if n == 0 || n > total {
        return ascending.last().copied().unwrap_or(f64::NAN);
    }
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

/// Scores and their standard errors at each budget.
pub type Line = [(f64, f64); BUDGETS.len()];

/// `SPACE METHOD s50 s100 s200`
pub fn print_line(space: &str, method: &str, line: &Line) {
    let scores = line.map(|(score, _)| format!("{score:.3}"));
    println!("{space} {method} {}", scores.join(" "));
}

/// 1.96 standard errors at each budget.
pub fn print_intervals(method: &str, line: &Line) {
    let half = line.map(|(_, error)| format!("±{:.3}", 1.96 * error));
    println!("95%-interval {method} {}", half.join(" "));
}

/// The mean and its standard error.
pub fn mean_and_error(values: &[f64]) -> (f64, f64) {
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

/// The mean over tables of means over seeds; its error is that of the seeds alone.
pub fn mean_over_spaces(lines: &[Line]) -> Line {
    let n = lines.len() as f64;
    std::array::from_fn(|budget| {
        let mean = lines.iter().map(|line| line[budget].0).sum::<f64>() / n;
        let square: f64 = lines.iter().map(|line| line[budget].1.powi(2)).sum();
        (mean, square.sqrt() / n)
    })
}

/// `WARPTREE_SEEDS`, or the number given.
pub fn seeds(default: u64) -> u64 {
    let seeds = std::env::var("WARPTREE_SEEDS").ok();
    seeds.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The parameters with `WARPTREE_PARAMS` laid over them.
pub fn overlaid(params: SearchParams) -> Result<SearchParams, String> {
    let Ok(text) = std::env::var("WARPTREE_PARAMS") else {
        return Ok(params);
    };
    let bad = |error: serde_json::Error| format!("WARPTREE_PARAMS: {error}");
    let mut merged = serde_json::to_value(params).map_err(bad)?;
    lay_over(&mut merged, serde_json::from_str(&text).map_err(bad)?);
    serde_json::from_value(merged).map_err(bad)
}

fn lay_over(base: &mut serde_json::Value, over: serde_json::Value) {
    match (base, over) {
        (serde_json::Value::Object(base), serde_json::Value::Object(over)) => {
            for (key, value) in over {
                lay_over(base.entry(key).or_insert(serde_json::Value::Null), value);
            }
        }
        (base, over) => *base = over,
    }
}
