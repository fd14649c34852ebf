//! Fits the model's constants to the order of measured kernels. A task is scored by constants that were fitted
//! without any trace of it; what ships is fitted to all.
//!
//! What is maximised is smooth, so that one pair that changes places does not decide: a pair counts by a logistic
//! function of the estimates' ratio. Tasks weigh alike however many traces they have, a trace below the bar weighs
//! twice, and constants stay near what is known of the hardware unless the order gains by it.

use std::collections::{BTreeMap, BTreeSet};

use rand::SeedableRng;
use rand_distr::{Distribution as _, StandardNormal};
use rand_pcg::Pcg64;
use rayon::prelude::*;
use warptree::sim::cost::{Constants, Limits};

use crate::judged::Ranking;
use crate::score;

/// What was measured or read in manuals before anything was fitted: a fit goes no further from it than it gains.
const FACTS: Constants = Constants {
    dram_efficiency: 0.93,
    dram_latency: 400e-9,
    dependent: 6.0,
    l2_bytes: 32.0,
    issue: 1.0,
    block: 130.0,
    overlap: 3.0,
    uneven: 0.1,
};
/// Of the squared logarithms of what a fit changes.
const TIED: f64 = 0.01;
/// Of the logarithm of estimated over measured times, in the median.
const OFF: f64 = 0.03;
/// Concordance of a trace below which it weighs twice.
const BAR: f64 = 0.85;
/// Ratio of two estimates, as a logarithm, at which their order is nearly sure.
const SURE: f64 = 0.02;
/// Starts of a fit besides the facts.
const STARTS: u64 = 2;
/// Spread of those starts, and first and last step, as logarithms.
const SPREAD: f64 = 0.25;
const STEPS: std::ops::Range<f64> = 0.01..0.3;

/// Constants for each ranking that were fitted to all others' tasks.
pub fn without_each(rankings: &[Ranking], limits: &Limits) -> Vec<Constants> {
    let tasks: BTreeSet<&str> = rankings.iter().map(|ranking| &*ranking.task).collect();
    let fitted: Vec<(&str, Constants)> = tasks
        .par_iter()
        .map(|&task| {
            let others: Vec<&Ranking> = fit_on(rankings).filter(|r| r.task != task).collect();
            (task, fit(&others, limits))
        })
        .collect();
    rankings
        .iter()
        .map(|ranking| {
            let own = fitted.iter().find(|(task, _)| *task == ranking.task);
            own.expect("invariant: every task was left out once").1
        })
        .collect()
}

/// Constants fitted to all rankings.
pub fn to_all(rankings: &[Ranking], limits: &Limits) -> Constants {
    fit(&fit_on(rankings).collect::<Vec<_>>(), limits)
}

/// Kernels of `wgmma` are not fitted to: what bounds them, the model knows too little of.
fn fit_on(rankings: &[Ranking]) -> impl Iterator<Item = &Ranking> {
    rankings.iter().filter(|ranking| !ranking.wgmma)
}

/// The best of several starts, each by steps along one constant at a time.
fn fit(rankings: &[&Ranking], limits: &Limits) -> Constants {
    let known: Vec<Known> = rankings.iter().map(|ranking| Known::of(ranking)).collect();
    let mut weights: BTreeMap<&str, f64> = BTreeMap::new();
    for ranking in rankings {
        *weights.entry(&ranking.task).or_insert(0.0) += 1.0;
    }
    let gain = |moved: &[f64; 8]| {
        let constants = moved_from_facts(moved);
        let sum: f64 = std::iter::zip(rankings, &known)
            .map(|(ranking, known)| {
                known.score(&ranking.estimates(limits, &constants)) / weights[&*ranking.task]
            })
            .sum();
        sum / weights.len().max(1) as f64 - TIED * moved.iter().map(|m| m * m).sum::<f64>()
    };
    let mut best = ([0.0; 8], f64::NEG_INFINITY);
    for start in 0..=STARTS {
        let mut rng = Pcg64::seed_from_u64(start);
        let mut at = [0.0; 8];
        if start > 0 {
            at = at.map(|_: f64| {
                let drawn: f64 = StandardNormal.sample(&mut rng);
                SPREAD * drawn
            });
        }
        let mut gained = gain(&at);
        let mut step = STEPS.end;
        while step > STEPS.start {
            let mut better = false;
            for which in 0..at.len() {
                for by in [step, -step] {
                    let mut tried = at;
                    tried[which] += by;
                    let gain = gain(&tried);
                    if gain > gained + 1e-7 {
                        (at, gained, better) = (tried, gain, true);
                        break;
                    }
                }
            }
            if !better {
                step /= 2.0;
            }
        }
        if gained > best.1 {
            best = (at, gained);
        }
    }
    moved_from_facts(&best.0)
}

/// What of a ranking does not change from one try to the next.
struct Known {
    /// The slower and the faster one of each pair that is apart.
    pairs: Vec<(usize, usize)>,
    measured: Vec<f64>,
}

impl Known {
    fn of(ranking: &Ranking) -> Self {
        let measured = ranking.measured();
        Self {
            pairs: score::apart(&measured).collect(),
            measured,
        }
    }

    fn score(&self, estimates: &[f64]) -> f64 {
        if self.pairs.is_empty() {
            return 0.0;
        }
        let logs: Vec<f64> = estimates.iter().map(|estimate| estimate.ln()).collect();
        let right: f64 = self
            .pairs
            .iter()
            .map(|&(slow, fast)| 1.0 / (1.0 + (-(logs[slow] - logs[fast]) / SURE).exp()))
            .sum();
        let right = right / self.pairs.len() as f64;
        let mut off: Vec<f64> = std::iter::zip(estimates, &self.measured)
            .map(|(estimate, measured)| (estimate * 1e9 / measured).ln())
            .collect();
        off.sort_by(f64::total_cmp);
        let median = off.get(off.len() / 2).copied().unwrap_or(0.0);
        right - (BAR - right).max(0.0) - OFF * median.abs()
    }
}

/// The constants that lie so far from the facts, as logarithms.
fn moved_from_facts(moved: &[f64; 8]) -> Constants {
    let mut values = values(&FACTS);
    for (value, moved) in values.iter_mut().zip(moved) {
        *value *= moved.exp();
    }
    constants(&values)
}

fn values(constants: &Constants) -> [f64; 8] {
    let Constants {
        dram_efficiency,
        dram_latency,
        dependent,
        l2_bytes,
        issue,
        block,
        overlap,
        uneven,
    } = *constants;
    [
        dram_efficiency,
        dram_latency,
        dependent,
        l2_bytes,
        issue,
        block,
        overlap,
        uneven,
    ]
}

fn constants(values: &[f64; 8]) -> Constants {
    let [
        dram_efficiency,
        dram_latency,
        dependent,
        l2_bytes,
        issue,
        block,
        overlap,
        uneven,
    ] = *values;
    Constants {
        dram_efficiency,
        dram_latency,
        dependent,
        l2_bytes,
        issue,
        block,
        overlap,
        uneven,
    }
}
