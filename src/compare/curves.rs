//! Curves over all seeds of a method: the best so far with its quartiles, and the share of valid kernels by
//! turn.

use serde::Serialize;

use super::{Comparison, Method, Series, Unit};
use crate::units::Nanos;

/// Points of a curve at most.
const POINTS: usize = 100;

/// The best so far of a method, over its seeds, at one cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Band {
    /// Spent by then, in the comparison's unit.
    pub cost: f64,
    /// Lower quartile of the best times; absent where fewer seeds have a valid kernel.
    pub low: Option<Nanos>,
    /// Median.
    pub median: Option<Nanos>,
    /// Upper quartile.
    pub high: Option<Nanos>,
}

/// How many kernels of a turn were valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TurnRate {
    /// Answers of a proposer between the sources there are and the kernel.
    pub turn: u32,
    /// Kernels, and replies without one.
    pub judged: usize,
    /// Valid ones.
    pub valid: usize,
}

impl Comparison {
    /// The best so far of `method`, at up to 100 costs from the first kernel to the dearest series' end.
    pub fn bands(&self, method: Method) -> Vec<Band> {
        let unit = self.budget.unit();
        let series: Vec<&Series> = self.of(method).collect();
        let end = series
            .iter()
            .map(|series| series.cost().in_unit(unit))
            .fold(0.0, f64::max);
        let whole = unit == Unit::Evaluations && end <= POINTS as f64;
        let points = if whole { end as usize } else { POINTS };
        (1..=points)
            .map(|nth| {
                let cost = end * nth as f64 / points as f64;
                let mut best: Vec<Nanos> = series
                    .iter()
                    .filter_map(|series| series.best_within(unit, cost))
                    .collect();
                best.sort_by(|a, b| a.get().total_cmp(&b.get()));
                let at = |share: f64| {
                    let rank = (share * (series.len() - 1) as f64).round() as usize;
                    best.get(rank).copied()
                };
                Band {
                    cost,
                    low: at(0.25),
                    median: at(0.5),
                    high: at(0.75),
                }
            })
            .collect()
    }

    /// The share of valid kernels by turn.
    pub fn turns(&self, method: Method) -> Vec<TurnRate> {
        let mut rates: Vec<TurnRate> = Vec::new();
        for judged in self.of(method).flat_map(|series| &series.judged) {
            let place = rates.iter().position(|rate| rate.turn == judged.turn);
            let place = place.unwrap_or_else(|| {
                rates.push(TurnRate {
                    turn: judged.turn,
                    judged: 0,
                    valid: 0,
                });
                rates.len() - 1
            });
            rates[place].judged += 1;
            rates[place].valid += usize::from(judged.time.is_some());
        }
        rates.sort_by_key(|rate| rate.turn);
        rates
    }

    /// How the kernels of `method` ended, the most frequent first.
    pub fn endings(&self, method: Method) -> Vec<(String, usize)> {
        let mut endings: Vec<(String, usize)> = Vec::new();
        for judged in self.of(method).flat_map(|series| &series.judged) {
            match endings.iter_mut().find(|(stage, _)| *stage == judged.stage) {
                Some((_, count)) => *count += 1,
                None => endings.push((judged.stage.clone(), 1)),
            }
        }
        endings.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        endings
    }
}

impl Series {
    /// The best time among what was judged for at most `cost`.
    fn best_within(&self, unit: Unit, cost: f64) -> Option<Nanos> {
        self.judged
            .iter()
            .take_while(|judged| judged.cost.in_unit(unit) <= cost * (1.0 + 1e-12))
            .filter_map(|judged| judged.time)
            .min_by(|a, b| a.get().total_cmp(&b.get()))
    }
}
