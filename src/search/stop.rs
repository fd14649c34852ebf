//! When a search ends: chained rules over its progress. The elapsed time is passed in, never read here.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// The rules; each may be absent, the first that holds ends the search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StopRules {
    /// At most this many evaluations.
    pub evaluations: Option<u32>,
    /// At most this much time.
    pub time: Option<Duration>,
    /// No real improvement for long.
    pub plateau: Option<Plateau>,
    /// The best cost is no greater than this: a wanted time, or a baseline over a wanted speedup.
    pub target: Option<Nanos>,
}

/// Progress below `improvement` over the last `evaluations` evaluations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plateau {
    /// Evaluations to wait for an improvement, counted from the first valid one.
    pub evaluations: u32,
    /// The fraction by which the best cost must fall to count: 0.01 for one per cent.
    pub improvement: f64,
}

/// Why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The budget is spent.
    Evaluations,
    /// The time is up.
    Time,
    /// No more progress.
    Plateau,
    /// The wanted speed is reached.
    Target,
    /// Every setting of every source was tried, and nobody has another proposal.
    Exhausted,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Evaluations => "the evaluation budget is spent",
            Self::Time => "the time is up",
            Self::Plateau => "no more progress",
            Self::Target => "the target is reached",
            Self::Exhausted => "nothing is left to try",
        })
    }
}

/// What the rules look at.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Progress {
    /// Evaluations judged.
    pub judged: u32,
    /// The best cost.
    pub best: Option<Nanos>,
    /// The best cost when it last fell by enough, and how many were judged then.
    mark: Option<(Nanos, u32)>,
}

impl Progress {
    /// Counts one judged evaluation; a valid one brings its cost.
    pub fn record(&mut self, cost: Option<Nanos>, rules: &StopRules) {
        self.judged += 1;
        let Some(cost) = cost else {
            return;
        };
        if self.best.is_none_or(|best| cost < best) {
            self.best = Some(cost);
        }
        let enough = rules.plateau.map_or(0.0, |plateau| plateau.improvement);
        let marks = |(mark, _): (Nanos, u32)| cost.get() < mark.get() * (1.0 - enough);
        if self.mark.is_none_or(marks) {
            self.mark = Some((cost, self.judged));
        }
    }
}

impl StopRules {
    /// The first rule that holds.
    pub fn reached(&self, progress: &Progress, elapsed: Duration) -> Option<StopReason> {
        let target = || {
            self.target
                .zip(progress.best)
                .is_some_and(|(target, best)| best <= target)
        };
        let spent = || self.evaluations.is_some_and(|most| progress.judged >= most);
        let late = || self.time.is_some_and(|most| elapsed >= most);
        let flat = || {
            self.plateau
                .zip(progress.mark)
                .is_some_and(|(plateau, (_, since))| progress.judged - since >= plateau.evaluations)
        };
        if target() {
            Some(StopReason::Target)
        } else if spent() {
            Some(StopReason::Evaluations)
        } else if late() {
            Some(StopReason::Time)
        } else if flat() {
            Some(StopReason::Plateau)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(rules: &StopRules, costs: &[Option<f64>]) -> Option<(usize, StopReason)> {
        let mut progress = Progress::default();
        costs.iter().enumerate().find_map(|(i, cost)| {
            progress.record(cost.and_then(Nanos::new), rules);
            rules
                .reached(&progress, Duration::from_secs(i as u64 + 1))
                .map(|reason| (i + 1, reason))
        })
    }

    #[test]
    fn each_rule_ends_the_search_and_the_first_one_wins() {
        let none = StopRules::default();
        let costs = [
            Some(10.0),
            None,
            Some(9.99),
            Some(9.98),
            Some(5.0),
            Some(5.0),
        ];
        assert_eq!(run(&none, &costs), None);

        let budget = StopRules {
            evaluations: Some(1),
            ..none.clone()
        };
        assert_eq!(run(&budget, &costs), Some((1, StopReason::Evaluations)));

        let time = StopRules {
            time: Some(Duration::from_secs(3)),
            ..budget.clone()
        };
        assert_eq!(run(&time, &costs), Some((1, StopReason::Evaluations)));
        let time = StopRules {
            evaluations: None,
            ..time
        };
        assert_eq!(run(&time, &costs), Some((3, StopReason::Time)));

        let target = StopRules {
            target: Nanos::new(5.0),
            ..none.clone()
        };
        assert_eq!(run(&target, &costs), Some((5, StopReason::Target)));

        let plateau = Plateau {
            evaluations: 3,
            improvement: 0.01,
        };
        let plateau = StopRules {
            plateau: Some(plateau),
            ..none
        };
        assert_eq!(run(&plateau, &costs), Some((4, StopReason::Plateau)));
        assert_eq!(
            run(&plateau, &[None; 9]),
            None,
            "waits for a first valid kernel"
        );
        assert_eq!(
            run(&plateau, &[Some(9.0), Some(8.0), Some(7.0), Some(6.0)]),
            None
        );
    }
}
