//! What a series may cost, and what it has cost. It counts; it stops nobody by itself.

use serde::{Deserialize, Serialize};

use super::Method;
use crate::llm::{Dollars, Spent};
use crate::units::counted;

/// What each series may cost: it ends with the kernel that uses up the first of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Kernels judged; a reply without a kernel counts as one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub evaluations: Option<u64>,
    /// Tokens charged.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tokens: Option<u64>,
    /// Dollars, by the model's price.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub dollars: Option<Dollars>,
    /// Seconds that judges were busy.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub judge_seconds: Option<f64>,
}

/// What has been spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Kernels judged, and replies without one.
    pub evaluations: u64,
    /// Tokens charged.
    pub tokens: u64,
    /// Their price; absent where the model has none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub dollars: Option<Dollars>,
    /// Seconds that judges were busy: assembling, checking, timing.
    pub judge_seconds: f64,
}

/// What a budget is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Kernels judged.
    Evaluations,
    /// Tokens.
    Tokens,
    /// Dollars.
    Dollars,
    /// Seconds of judging.
    JudgeSeconds,
}

/// A budget that bounds nothing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// Tokens and dollars do not end a method that spends none.
    #[error(
        "method {0} asks no model, so a budget in tokens or dollars never ends it: give --budget or --gpu-seconds too, \
         or leave the method out"
    )]
    NoModel(&'static str),
    /// A table answers at once.
    #[error("--gpu-seconds: a recorded table takes no time; give --budget")]
    NoTime,
}

impl Budget {
    /// Whether it ends every one of `methods`. `timed`: judging takes time here.
    pub fn check(&self, methods: &[Method], model: bool, timed: bool) -> Result<(), BudgetError> {
        if self.judge_seconds.is_some() && !timed {
            return Err(BudgetError::NoTime);
        }
        if self.evaluations.is_some() || self.judge_seconds.is_some() {
            return Ok(());
        }
        match methods
            .iter()
            .find(|method| !(model && method.asks_model()))
        {
            Some(method) => Err(BudgetError::NoModel(method.name())),
            None => Ok(()),
        }
    }

    /// What curves are drawn over: dollars before tokens before seconds before kernels, where given.
    pub fn unit(&self) -> Unit {
        if self.dollars.is_some() {
            Unit::Dollars
        } else if self.tokens.is_some() {
            Unit::Tokens
        } else if self.judge_seconds.is_some() {
            Unit::JudgeSeconds
        } else {
            Unit::Evaluations
        }
    }

    /// Whether nothing may be spent any more.
    pub fn is_spent(&self, cost: &Cost) -> bool {
        let dollars = cost.dollars.unwrap_or_default();
        self.evaluations
            .is_some_and(|most| cost.evaluations >= most)
            || self.tokens.is_some_and(|most| cost.tokens >= most)
            || self.dollars.is_some_and(|most| dollars >= most)
            || self
                .judge_seconds
                .is_some_and(|most| cost.judge_seconds >= most)
    }

    /// Each limit in words.
    pub fn words(&self) -> String {
        let mut words = Vec::new();
        words.extend(self.evaluations.map(|most| counted(most, "kernel")));
        words.extend(self.tokens.map(|most| counted(most, "token")));
        words.extend(self.dollars.map(|most| most.to_string()));
        let seconds = self.judge_seconds;
        words.extend(seconds.map(|most| format!("{most} s of judging")));
        words.join(", ")
    }
}

impl Cost {
    /// Adds what a proposer's calls cost.
    pub fn charge(&mut self, spent: &Spent) {
        self.tokens = self.tokens.saturating_add(spent.tokens);
        self.dollars = match (self.dollars, spent.dollars) {
            (Some(own), Some(more)) => Some(own.saturating_add(more)),
            (own, more) => own.or(more),
        };
    }

    /// Adds a judged kernel.
    pub fn judge(&mut self, seconds: f64) {
        self.evaluations += 1;
        self.judge_seconds += seconds;
    }

    /// In one unit.
    pub fn in_unit(&self, unit: Unit) -> f64 {
        match unit {
            Unit::Evaluations => self.evaluations as f64,
            Unit::Tokens => self.tokens as f64,
            Unit::Dollars => self.dollars.unwrap_or_default().get(),
            Unit::JudgeSeconds => self.judge_seconds,
        }
    }
}

impl Unit {
    /// For axes and headings.
    pub fn words(self) -> &'static str {
        match self {
            Self::Evaluations => "kernels judged",
            Self::Tokens => "tokens",
            Self::Dollars => "dollars",
            Self::JudgeSeconds => "seconds of judging",
        }
    }

    /// An amount of it.
    pub fn amount(self, value: f64) -> String {
        match self {
            Self::Evaluations | Self::Tokens => format!("{value:.0}"),
            Self::Dollars => format!("${value:.4}"),
            Self::JudgeSeconds => format!("{value:.1} s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_must_end_every_method() {
        let tokens = Budget {
            tokens: Some(1000),
            ..Budget::default()
        };
        let methods = [Method::Search, Method::Random];
        assert_eq!(
            tokens.check(&methods, true, true),
            Err(BudgetError::NoModel("random"))
        );
        assert_eq!(
            tokens.check(&methods[..1], false, true),
            Err(BudgetError::NoModel("search"))
        );
        assert_eq!(tokens.check(&methods[..1], true, true), Ok(()));
        let seconds = Budget {
            judge_seconds: Some(1.0),
            ..Budget::default()
        };
        assert_eq!(
            seconds.check(&methods, false, false),
            Err(BudgetError::NoTime)
        );
        assert_eq!(seconds.check(&methods, false, true), Ok(()));
    }

    #[test]
    fn the_first_limit_that_is_reached_ends_it() {
        let budget = Budget {
            evaluations: Some(10),
            tokens: Some(500),
            ..Budget::default()
        };
        let mut cost = Cost::default();
        cost.judge(0.5);
        assert!(!budget.is_spent(&cost));
        cost.charge(&Spent {
            tokens: 700,
            ..Spent::default()
        });
        assert!(budget.is_spent(&cost));
        assert_eq!(budget.unit(), Unit::Tokens);
        assert_eq!(budget.words(), "10 kernels, 500 tokens");
    }
}
