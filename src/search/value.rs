//! What the search sees of a verdict: enough to rank by, nothing of stages, samples or inputs.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::units::Nanos;
use crate::verdict::Verdict;

/// The reward-relevant part of a verdict, ordered best first.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "value", rename_all = "snake_case")]
pub enum Value {
    /// Valid. The cost is time ÷ instruction factor, so that reward = best cost ÷ cost.
    Scored {
        /// Nanoseconds per unit of instruction score.
        cost: Nanos,
    },
    /// Valid, but no target instruction was executed: reward 0, still ranked by its time.
    Unscored {
        /// Of one call.
        time: Nanos,
    },
    /// Anything else, a time-out included: reward 0, last.
    Failed,
}

impl Value {
    /// A valid candidate with this time and instruction factor (0 to 1).
    pub fn valid(time: Nanos, factor: f64) -> Self {
        match Nanos::new(time.get() / factor) {
            Some(cost) if factor > 0.0 => Self::Scored { cost },
            Some(_) | None => Self::Unscored { time },
        }
    }

    /// The cost, where the reward is above 0.
    pub fn cost(self) -> Option<Nanos> {
        match self {
            Self::Scored { cost } => Some(cost),
            Self::Unscored { .. } | Self::Failed => None,
        }
    }

    /// The reward in [0, 1] given the best cost seen so far.
    pub fn reward(self, best: Nanos) -> f64 {
        self.cost()
            .map_or(0.0, |cost| (best.get() / cost.get()).min(1.0))
    }

    fn key(self) -> (u8, f64) {
        match self {
            Self::Scored { cost } => (0, cost.get()),
            Self::Unscored { time } => (1, time.get()),
            Self::Failed => (2, 0.0),
        }
    }
}

impl Eq for Value {}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    /// Best first: the smaller value is the better kernel.
    fn cmp(&self, other: &Self) -> Ordering {
        let ((class, time), (other_class, other_time)) = (self.key(), other.key());
        class
            .cmp(&other_class)
            .then_with(|| time.total_cmp(&other_time))
    }
}

impl From<&Verdict> for Value {
    fn from(verdict: &Verdict) -> Self {
        verdict.measurement().map_or(Self::Failed, |measurement| {
            Self::valid(
                measurement.time.nanos(),
                measurement.score.instructions.factor(),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(time: f64) -> Nanos {
        Nanos::new(time).expect("a positive time")
    }

    #[test]
    fn order_is_scored_then_unscored_then_failed() {
        let mut values = [
            Value::Failed,
            Value::valid(ns(5.0), 0.0),
            Value::valid(ns(80.0), 0.5),
            Value::valid(ns(100.0), 1.0),
            Value::valid(ns(3.0), 0.0),
        ];
        values.sort();
        assert_eq!(
            values,
            [
                Value::Scored { cost: ns(100.0) },
                Value::Scored { cost: ns(160.0) },
                Value::Unscored { time: ns(3.0) },
                Value::Unscored { time: ns(5.0) },
                Value::Failed,
            ]
        );
    }

    #[test]
    fn reward_is_best_over_own_and_zero_when_invalid() {
        assert_eq!(Value::valid(ns(200.0), 1.0).reward(ns(100.0)), 0.5);
        assert_eq!(Value::valid(ns(100.0), 0.5).reward(ns(100.0)), 0.5);
        assert_eq!(Value::valid(ns(1.0), 0.0).reward(ns(100.0)), 0.0);
        assert_eq!(Value::Failed.reward(ns(100.0)), 0.0);
    }
}
