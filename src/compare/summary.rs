//! A comparison's numbers, computed from its series alone.

use serde::Serialize;

use super::{Budget, Cost, Method, Paired, Series, paired};
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
    /// `sim:H200`, `cuda:0`, `recorded:FILE`.
    pub device: String,
    /// The model, if one was named.
    pub model: Option<String>,
    /// The word beside its times: `measured`, `estimated`, `recorded`.
    pub label: String,
    /// What each series might cost.
    pub budget: Budget,
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
    /// Kernels judged in all of them, and replies without one.
    pub judged: usize,
    /// Share of them that were valid.
    pub valid: f64,
    /// What a series cost, on average.
    pub mean_cost: Cost,
    /// Times of the winners, measured again, sorted; a series without a valid kernel has none.
    pub best: Vec<Nanos>,
    /// Winners that did not pass their second look.
    pub refuted: u32,
    /// Median over seeds of the winner's time; `None` where half of the seeds found nothing.
    pub median_best: Option<Nanos>,
    /// Kernels judged until within 5 % of the best of all series: median over seeds; `None` where half of
    /// the seeds never got there.
    pub median_near: Option<u64>,
    /// Cost until as fast as the baseline, in the budget's unit: median over seeds; `None` where half never
    /// got there, or where there is no baseline.
    pub median_to_one: Option<f64>,
    /// This method against the first, over the seeds they share. A series without a valid kernel counts as
    /// the baseline's time: who finds nothing keeps that.
    pub against_first: Option<Paired>,
}

impl Comparison {
    /// The methods, in the order run.
    pub fn methods(&self) -> Vec<Method> {
        let mut methods: Vec<Method> = Vec::new();
        for series in &self.series {
            if !methods.contains(&series.method) {
                methods.push(series.method);
            }
        }
        methods
    }

    /// Each method's numbers, in the order run.
    pub fn summaries(&self) -> Vec<Summary> {
        let best = self
            .series
            .iter()
            .filter_map(|series| series.best_so_far().last().copied().flatten())
            .min_by(|a, b| a.get().total_cmp(&b.get()));
        let methods = self.methods();
        methods
            .iter()
            .map(|method| self.summary(*method, methods[0], best))
            .collect()
    }

    /// The series of a method.
    pub(super) fn of(&self, method: Method) -> impl Iterator<Item = &Series> {
        self.series
            .iter()
            .filter(move |series| series.method == method)
    }

    fn summary(&self, method: Method, first: Method, best_of_all: Option<Nanos>) -> Summary {
        let series: Vec<&Series> = self.of(method).collect();
        let judged: usize = series.iter().map(|series| series.judged.len()).sum();
        let valid = series
            .iter()
            .flat_map(|series| &series.judged)
            .filter(|judged| judged.time.is_some())
            .count();
        let mut best: Vec<Nanos> = series.iter().filter_map(|series| series.result()).collect();
        best.sort_by(|a, b| a.get().total_cmp(&b.get()));
        let until = |bar: Option<f64>, of: fn(&Cost, &Self) -> f64| -> Vec<f64> {
            let mut costs: Vec<f64> = series
                .iter()
                .filter_map(|series| {
                    let bar = bar?;
                    let reached = series
                        .judged
                        .iter()
                        .find(|judged| judged.time.is_some_and(|time| time.get() <= bar))?;
                    Some(of(&reached.cost, self))
                })
                .collect();
            costs.sort_by(f64::total_cmp);
            costs
        };
        let near = until(
            best_of_all.map(|best| best.get() * (1.0 + NEAR)),
            |cost, _| cost.evaluations as f64,
        );
        let one = until(
            self.baseline.as_ref().map(|(_, time)| time.get()),
            |cost, comparison| cost.in_unit(comparison.budget.unit()),
        );
        Summary {
            method,
            seeds: series.len(),
            judged,
            valid: valid as f64 / judged.max(1) as f64,
            mean_cost: mean_cost(&series),
            median_best: median(&best, series.len()),
            best,
            refuted: series
                .iter()
                .filter_map(|series| series.winner.as_ref())
                .map(|winner| winner.refuted)
                .sum(),
            median_near: median(&near, series.len()).map(|near| near as u64),
            median_to_one: median(&one, series.len()),
            against_first: (method != first)
                .then(|| paired(&self.differences(method, first)))
                .flatten(),
        }
    }

    /// ln(the first's time ÷ this one's), a value for each seed that both have.
    fn differences(&self, method: Method, first: Method) -> Vec<f64> {
        let slowest = self.series.iter().filter_map(Series::result);
        let slowest = slowest.max_by(|a, b| a.get().total_cmp(&b.get()));
        let nothing = self.baseline.as_ref().map(|(_, time)| *time).or(slowest);
        let time = |series: &Series| series.result().or(nothing).map(Nanos::get);
        self.of(method)
            .filter_map(|one| {
                let other = self.of(first).find(|other| other.seed == one.seed)?;
                Some((time(other)? / time(one)?).ln())
            })
            .collect()
    }

    /// The baseline's time over `time`.
    pub fn speedup(&self, time: Option<Nanos>) -> Option<f64> {
        let (_, baseline) = self.baseline.as_ref()?;
        Some(baseline.get() / time?.get())
    }
}

fn mean_cost(series: &[&Series]) -> Cost {
    let count = series.len().max(1) as u64;
    let mut sum = Cost::default();
    for series in series {
        let cost = series.cost();
        sum.evaluations += cost.evaluations;
        sum.tokens = sum.tokens.saturating_add(cost.tokens);
        sum.judge_seconds += cost.judge_seconds;
        sum.dollars = match (sum.dollars, cost.dollars) {
            (Some(own), Some(more)) => Some(own.saturating_add(more)),
            (own, more) => own.or(more),
        };
    }
    let dollars = sum.dollars.map(|all| all.get() / count as f64);
    Cost {
        evaluations: sum.evaluations / count,
        tokens: sum.tokens / count,
        dollars: dollars.and_then(crate::llm::Dollars::new),
        judge_seconds: sum.judge_seconds / count as f64,
    }
}

/// The median over `of` series, those without a value counting as worse than all others.
fn median<T: Copy>(sorted: &[T], of: usize) -> Option<T> {
    sorted.get(of.checked_sub(1)? / 2).copied()
}
