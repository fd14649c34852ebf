//! Scores of an order against measured times.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Pairs closer than this share of the faster one's time say nothing.
const APART: f64 = 0.05;

/// The slower and the faster one of each pair that is apart.
pub fn apart(measured: &[f64]) -> impl Iterator<Item = (usize, usize)> {
    (0..measured.len()).flat_map(move |i| {
        (0..i).filter_map(move |j| {
            let (slow, fast) = if measured[i] > measured[j] {
                (i, j)
            } else {
                (j, i)
            };
            (measured[slow] > measured[fast] * (1.0 + APART)).then_some((slow, fast))
        })
    })
}

/// Share of the pairs that are apart which `estimates` order rightly, and how many there are.
pub fn concordance(measured: &[f64], estimates: &[f64]) -> (f64, usize) {
    let (mut right, mut pairs) = (0.0, 0);
    for (slow, fast) in apart(measured) {
        pairs += 1;
        right += match estimates[slow].partial_cmp(&estimates[fast]) {
            Some(std::cmp::Ordering::Greater) => 1.0,
            Some(std::cmp::Ordering::Equal) | None => 0.5,
            Some(std::cmp::Ordering::Less) => 0.0,
        };
    }
    (right / f64::max(1.0, pairs as f64), pairs)
}

/// What a second measurement would reach: each setting's median of as many samples drawn anew.
pub fn ceiling(measured: &[f64], samples: &[&[f64]]) -> f64 {
    let mut rng = Pcg64::seed_from_u64(7);
    let again: Vec<f64> = samples
        .iter()
        .map(|samples| {
            let mut drawn: Vec<f64> = (0..samples.len())
                .map(|_| samples[rng.random_range(0..samples.len())])
                .collect();
            drawn.sort_by(f64::total_cmp);
            drawn.get(drawn.len() / 2).copied().unwrap_or(f64::NAN)
        })
        .collect();
    concordance(measured, &again).0
}

/// How much slower than the best the best one is of the half with the least estimates.
pub fn regret(measured: &[f64], estimates: &[f64]) -> f64 {
    let mut order: Vec<usize> = (0..measured.len()).collect();
    order.sort_by(|&a, &b| estimates[a].total_cmp(&estimates[b]));
    let kept = measured.len().div_ceil(2);
    let best = |of: &[usize]| {
        of.iter()
            .map(|&i| measured[i])
            .fold(f64::INFINITY, f64::min)
    };
    best(&order[..kept]) / best(&order) - 1.0
}
