//! The three-metric score and the search's reward: pure arithmetic, no policy of who runs what.

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// Correct, on the target instructions, and how fast against what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Passed every check of the verifier.
    pub correct: bool,
    /// Whether the work was done by the instructions the task asks for.
    pub instructions: InstructionScore,
    /// Against a named denominator; `None` where none was measured.
    pub speedup: Option<Speedup>,
    /// What the audit said.
    pub audit: Audit,
}

/// The share of the target work done by target instructions, after the spill rule.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum InstructionScore {
    /// The task asks for none on this architecture; 1, halved by spills over 128 bytes.
    NotRequired {
        /// 1 or 0.5.
        value: f64,
    },
    /// Counted while it ran.
    Counted {
        /// 0 to 1, halved by spills over 128 bytes.
        value: f64,
    },
    /// No counters here: never a silent pass.
    NotProfiled,
}

impl InstructionScore {
    /// The factor of the reward. Unprofiled kernels rank by time alone and are labelled so.
    pub fn factor(self) -> f64 {
        match self {
            Self::NotRequired { value } | Self::Counted { value } => value,
            Self::NotProfiled => 1.0,
        }
    }
}

/// A ratio and what it is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speedup {
    /// denominator time ÷ kernel time.
    pub ratio: f64,
    /// Over what.
    pub over: Denominator,
}

/// What a speedup is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Denominator {
    /// The fastest correct baseline measured in the same run, by name.
    Frontier(String),
    /// The task's seed ("frontier: not measured").
    Seed,
}

/// The audit's word on a correct kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Audit {
    /// Nothing found by the checks listed in the measurement.
    Passed,
    /// A cheat: the score counts nothing.
    Void {
        /// Sentences.
        reasons: Vec<String>,
    },
}

/// The search's reward in [0, 1]: valid · instructions · t_best / t, recomputed as `best` improves.
pub fn reward(score: &Score, time: Nanos, best: Nanos) -> f64 {
    let valid = score.correct && score.audit == Audit::Passed;
    if valid {
        score.instructions.factor() * (best.get() / time.get()).min(1.0)
    } else {
        0.0
    }
}
