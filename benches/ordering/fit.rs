//! Fits the model's constants to the order of measured kernels. A task is scored by constants that were fitted
//! without it; what ships is fitted to all.

use std::collections::BTreeSet;

use rayon::prelude::*;
use warptree::sim::cost::{Constants, Limits};

use crate::judged::Ranking;
use crate::score;

/// What was measured or read in manuals before anything was fitted: a fit goes no further from it than it gains.
const FACTS: Constants = Constants {
    launch: 1.5e-6,
    dram_efficiency: 0.93,
    dram_latency: 450e-9,
    dependent: 4.5,
    l2_bytes: 32.0,
    issue: 0.85,
    block: 110.0,
    overlap: 2.0,
};
/// Of the squared logarithms of what a fit changes.
const TIED: f64 = 0.004;
/// Of the spread of estimated over measured times, as logarithms: only the order is scored, but far pairs are
/// easy.
const SPREAD: f64 = 0.05;
/// Of their median's distance from 1.
const OFF: f64 = 0.02;
/// Passes over the constants, each with smaller steps.
const PASSES: i32 = 4;

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

fn fit(rankings: &[&Ranking], limits: &Limits) -> Constants {
    let mut best = values(&FACTS);
    let mut gained = gain(rankings, limits, &best);
    for pass in 0..PASSES {
        let step = 1.0 + 0.5 * 0.6f64.powi(pass);
        for which in 0..best.len() {
            for factor in [step, 1.0 / step] {
                loop {
                    let mut tried = best;
                    tried[which] *= factor;
                    let gain = gain(rankings, limits, &tried);
                    if gain <= gained + 1e-6 {
                        break;
                    }
                    (best, gained) = (tried, gain);
                }
            }
        }
    }
    constants(&best)
}

fn gain(rankings: &[&Ranking], limits: &Limits, tried: &[f64; 8]) -> f64 {
    let constants = constants(tried);
    let sum: f64 = rankings
        .iter()
        .map(|ranking| {
            let estimates = ranking.estimates(limits, &constants);
            let measured = ranking.measured();
            let mut off: Vec<f64> = std::iter::zip(&estimates, &measured)
                .map(|(estimate, measured)| (estimate * 1e9 / measured).ln())
                .collect();
            off.sort_by(f64::total_cmp);
            let count = off.len().max(1) as f64;
            let mean = off.iter().sum::<f64>() / count;
            let spread = (off.iter().map(|o| (o - mean).powi(2)).sum::<f64>() / count).sqrt();
            let median = off.get(off.len() / 2).copied().unwrap_or(0.0);
            score::concordance(&measured, &estimates).0 - SPREAD * spread - OFF * median.abs()
        })
        .sum();
    let moved: f64 = std::iter::zip(tried, values(&FACTS))
        .map(|(tried, fact)| (tried / fact).ln().powi(2))
        .sum();
    sum / rankings.len().max(1) as f64 - TIED * moved
}

fn values(constants: &Constants) -> [f64; 8] {
    let Constants {
        launch,
        dram_efficiency,
        dram_latency,
        dependent,
        l2_bytes,
        issue,
        block,
        overlap,
    } = *constants;
    [
        launch,
        dram_efficiency,
        dram_latency,
        dependent,
        l2_bytes,
        issue,
        block,
        overlap,
    ]
}

fn constants(values: &[f64; 8]) -> Constants {
    let [
        launch,
        dram_efficiency,
        dram_latency,
        dependent,
        l2_bytes,
        issue,
        block,
        overlap,
    ] = *values;
    Constants {
        launch,
        dram_efficiency,
        dram_latency,
        dependent,
        l2_bytes,
        issue,
        block,
        overlap,
    }
}
