//! A comparison's numbers: medians over seeds, the share of valid kernels, how soon each method gets near
//! the best that any of them found. Terminal table and CSV.

use std::fmt::{self, Write as _};

use serde::Serialize;

use super::{Method, Series};
use crate::units::Nanos;

/// "Near the best" means within this share of the best time that any series found.
const NEAR: f64 = 0.05;

/// All series of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// What was computed.
    pub task: String,
    /// The GPU it was judged on or for.
    pub gpu: String,
    /// The word beside its times: `measured`, `estimated`, `recorded`.
    pub label: String,
    /// Kernels each series might judge.
    pub budget: u64,
    /// What speedups are over.
    pub baseline: Option<(String, Nanos)>,
    /// In the order run.
    pub series: Vec<Series>,
}

/// A method over all its seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The method.
    pub method: Method,
    /// Its series.
    pub seeds: usize,
    /// Kernels judged in all of them.
    pub judged: usize,
    /// Share of them that were valid.
    pub valid: f64,
    /// Best times, sorted; a series without a valid kernel has none.
    pub best: Vec<Nanos>,
    /// Median over seeds of the best time; `None` where half of the seeds found nothing.
    pub median_best: Option<Nanos>,
    /// Kernels judged until within 5 % of the best of all series: median over seeds; `None` where half of
    /// the seeds never got there.
    pub median_near: Option<usize>,
}

impl Comparison {
    /// Each method's numbers, in the order run.
    pub fn summaries(&self) -> Vec<Summary> {
        let mut methods: Vec<Method> = Vec::new();
        for series in &self.series {
            if !methods.contains(&series.method) {
                methods.push(series.method);
            }
        }
        let best = self
            .series
            .iter()
            .filter_map(Series::best)
            .min_by(|a, b| a.get().total_cmp(&b.get()));
        methods
            .into_iter()
            .map(|method| self.summary(method, best))
            .collect()
    }

    fn summary(&self, method: Method, best_of_all: Option<Nanos>) -> Summary {
        let series: Vec<&Series> = self
            .series
            .iter()
            .filter(|series| series.method == method)
            .collect();
        let judged: usize = series.iter().map(|series| series.judged.len()).sum();
        let valid = series
            .iter()
            .flat_map(|series| &series.judged)
            .filter(|judged| judged.time.is_some())
            .count();
        let mut best: Vec<Nanos> = series.iter().filter_map(|series| series.best()).collect();
        best.sort_by(|a, b| a.get().total_cmp(&b.get()));
        let mut near: Vec<usize> = series
            .iter()
            .filter_map(|series| {
                let bar = best_of_all?.get() * (1.0 + NEAR);
                let reached = series.best_so_far().into_iter();
                reached.enumerate().find_map(|(index, best)| {
                    best.is_some_and(|best| best.get() <= bar)
                        .then_some(index + 1)
                })
            })
            .collect();
        near.sort_unstable();
        Summary {
            method,
            seeds: series.len(),
            judged,
            valid: valid as f64 / judged.max(1) as f64,
            median_best: median(&best, series.len()),
            best,
            median_near: median(&near, series.len()),
        }
    }

    /// One line a judged kernel: `method,seed,evaluation,stage,time_ns,best_ns`.
    pub fn curve_csv(&self) -> String {
        let mut out = String::from("method,seed,evaluation,stage,time_ns,best_ns\n");
        for series in &self.series {
            let rows = series.judged.iter().zip(series.best_so_far());
            for (index, (judged, best)) in rows.enumerate() {
                let _ = writeln!(
                    out,
                    "{},{},{},{},{},{}",
                    series.method.name(),
                    series.seed,
                    index + 1,
                    judged.stage,
                    number(judged.time),
                    number(best)
                );
            }
        }
        out
    }

    /// One line a method.
    pub fn summary_csv(&self) -> String {
        let mut out =
            String::from("method,seeds,judged,valid_share,median_best_ns,speedup,median_near\n");
        for summary in self.summaries() {
            let _ = writeln!(
                out,
                "{},{},{},{:.4},{},{},{}",
                summary.method.name(),
                summary.seeds,
                summary.judged,
                summary.valid,
                number(summary.median_best),
                self.speedup(summary.median_best)
                    .map_or(String::new(), |ratio| format!("{ratio:.4}")),
                summary
                    .median_near
                    .map_or(String::new(), |near| near.to_string())
            );
        }
        out
    }

    fn speedup(&self, time: Option<Nanos>) -> Option<f64> {
        let (_, baseline) = self.baseline.as_ref()?;
        Some(baseline.get() / time?.get())
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} on {} ({}), at most {} kernels a series",
            self.task, self.gpu, self.label, self.budget
        )?;
        let over = self
            .baseline
            .as_ref()
            .map_or("speedup".to_owned(), |(name, _)| format!("× {name}"));
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        let header = [
            "method",
            "seeds",
            "judged",
            "valid",
            "median best",
            "best … worst",
            &over,
            "to 5 %",
        ];
        table.set_header(header);
        for summary in self.summaries() {
            let range = match (summary.best.first(), summary.best.last()) {
                (Some(best), Some(worst)) => format!("{best} … {worst}"),
                (Some(_), None) | (None, Some(_)) | (None, None) => "-".to_owned(),
            };
            table.add_row([
                summary.method.name().to_owned(),
                summary.seeds.to_string(),
                summary.judged.to_string(),
                format!("{:.0} %", summary.valid * 100.0),
                summary
                    .median_best
                    .map_or("-".to_owned(), |best| best.to_string()),
                range,
                self.speedup(summary.median_best)
                    .map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
                summary
                    .median_near
                    .map_or("never".to_owned(), |near| near.to_string()),
            ]);
        }
        for line in table.lines() {
            writeln!(f, "{}", line.trim_end())?;
        }
        writeln!(
            f,
            "“to 5 %”: kernels judged, in the median over seeds, until within 5 % of the best that any series found"
        )
    }
}

/// The median over `of` series, those without a value counting as worse than all others.
fn median<T: Copy>(sorted: &[T], of: usize) -> Option<T> {
    sorted.get(of.checked_sub(1)? / 2).copied()
}

fn number(time: Option<Nanos>) -> String {
    time.map_or(String::new(), |time| format!("{:.1}", time.get()))
}
