//! The three-metric score and the search's reward: pure arithmetic, no policy of who runs what.

use serde::{Deserialize, Serialize};

use super::{Diagnostic, Resources};
use crate::units::{Bytes, Nanos};

/// Spilled bytes per thread (stores and loads of one entry) beyond which the instruction-level part is halved.
pub const SPILL_ALLOWANCE: Bytes = Bytes(128);

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
    NotProfiled {
        /// 1, halved by spills over 128 bytes: ptxas tells those without counters. Traces of version 0.1
        /// did not say; they read as 1.
        #[serde(default = "whole")]
        value: f64,
    },
}

fn whole() -> f64 {
    1.0
}

/// How much of the work the target instructions did, before the spill rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TargetShare {
    /// The task asks for none on this architecture.
    NotRequired,
    /// Executed ÷ needed, of the target that is furthest behind; 1 where all did their work.
    Counted(f64),
    /// Nobody counted.
    NotProfiled,
}

impl InstructionScore {
    /// Applies the spill rule to a share.
    pub fn new(share: TargetShare, spilled: Bytes) -> Self {
        let spill = if spilled > SPILL_ALLOWANCE { 0.5 } else { 1.0 };
        match share {
            TargetShare::NotRequired => Self::NotRequired { value: spill },
            TargetShare::Counted(share) => Self::Counted {
                value: share.clamp(0.0, 1.0) * spill,
            },
            TargetShare::NotProfiled => Self::NotProfiled { value: spill },
        }
    }

    /// Halves it where ptxas says that wgmma loses its overlap: what is written is not what runs.
    pub fn serialised(self, advisories: &[Diagnostic]) -> Self {
        let lost = advisories.iter().any(|advisory| {
            advisory.code.starts_with("ptxas-c75") && advisory.message.contains("serialized")
        });
        let half = |value: f64| if lost { value / 2.0 } else { value };
        match self {
            Self::NotRequired { value } => Self::NotRequired { value: half(value) },
            Self::Counted { value } => Self::Counted { value: half(value) },
            Self::NotProfiled { value } => Self::NotProfiled { value: half(value) },
        }
    }

    /// Why it counts in part, in a sentence; `None` where it counts whole.
    pub fn shortfall(self) -> Option<String> {
        let factor = self.factor();
        let why = match self {
            Self::Counted { value: _ } => {
                "the share of the work that the target instructions did, halved by spills over 128 bytes and by \
                 wgmma that ptxas serialises"
            }
            Self::NotRequired { value: _ } | Self::NotProfiled { value: _ } => {
                "halved by spills over 128 bytes and by wgmma that ptxas serialises"
            }
        };
        // a share that reads as 1 is 1 to a reader
        (factor < 0.9995).then(|| format!("counts × {factor:.3}: {why}"))
    }

    /// The factor of the reward. Unprofiled kernels rank by time and spills, and are labelled so.
    pub fn factor(self) -> f64 {
        match self {
            Self::NotRequired { value } | Self::Counted { value } | Self::NotProfiled { value } => {
                value
            }
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

impl Speedup {
    /// `baseline` ÷ `time`.
    pub fn new(over: Denominator, baseline: Nanos, time: Nanos) -> Self {
        Self {
            ratio: baseline.get() / time.get(),
            over,
        }
    }
}

impl std::fmt::Display for Speedup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.over {
            Denominator::Frontier(name) => write!(f, "{:.2}× {name}", self.ratio),
            Denominator::Seed => {
                write!(f, "{:.2}× the seed (frontier: not measured)", self.ratio)
            }
        }
    }
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

/// Bytes a thread spills, stores and loads together, in the entry that spills most.
pub fn spilled(resources: &[Resources]) -> Bytes {
    resources
        .iter()
        .map(|entry| Bytes(entry.spill_stores.0 + entry.spill_loads.0))
        .max()
        .unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ns(value: f64) -> Nanos {
        Nanos::new(value).expect("positive")
    }

    fn score(correct: bool, share: f64, spilled: u64, audit: Audit) -> Score {
        Score {
            correct,
            instructions: InstructionScore::new(TargetShare::Counted(share), Bytes(spilled)),
            speedup: None,
            audit,
        }
    }

    fn entry(stores: u64, loads: u64) -> Resources {
        Resources {
            spill_stores: Bytes(stores),
            spill_loads: Bytes(loads),
            ..Resources::default()
        }
    }

    #[test]
    fn spilling_costs_half_beyond_128_bytes() {
        assert_eq!(spilled(&[entry(44, 48), entry(0, 0)]), Bytes(92));
        assert_eq!(spilled(&[]), Bytes(0));
        let factor = |bytes| InstructionScore::new(TargetShare::NotRequired, Bytes(bytes)).factor();
        assert_eq!((factor(0), factor(128), factor(129)), (1.0, 1.0, 0.5));
    }

    #[test]
    fn a_serialised_wgmma_loses_half() {
        let advised = |code: &str, message: &str| Diagnostic {
            severity: crate::verdict::Severity::Warning,
            code: code.into(),
            message: message.into(),
            line: None,
            other_line: None,
            help: None,
        };
        let lost = advised("ptxas-c7510", "wgmma.mma_async instructions are serialized");
        let injected = advised("ptxas-c7519", "warpgroup.arrive is injected");
        let score = InstructionScore::new(TargetShare::Counted(1.0), Bytes(0));
        assert_eq!(score.serialised(&[lost]).factor(), 0.5);
        assert_eq!(score.serialised(&[injected]).factor(), 1.0);
    }

    #[test]
    fn half_of_the_work_on_target_instructions_is_worth_half() {
        let half = score(true, 0.5, 0, Audit::Passed);
        assert_eq!(reward(&half, ns(100.0), ns(100.0)), 0.5);
        let spilling = score(true, 0.5, 788 + 840, Audit::Passed);
        assert_eq!(reward(&spilling, ns(200.0), ns(100.0)), 0.125);
    }

    #[test]
    fn unprofiled_kernels_rank_by_time_and_spills() {
        let unprofiled = |spilled| Score {
            instructions: InstructionScore::new(TargetShare::NotProfiled, Bytes(spilled)),
            ..score(true, 1.0, 0, Audit::Passed)
        };
        assert_eq!(reward(&unprofiled(128), ns(400.0), ns(100.0)), 0.25);
        assert_eq!(reward(&unprofiled(129), ns(400.0), ns(100.0)), 0.125);
    }

    #[test]
    fn a_trace_from_before_the_spill_rule_reads_as_unspilled() {
        let old: InstructionScore = serde_json::from_str(r#"{"kind":"not_profiled"}"#).unwrap();
        assert_eq!(old, InstructionScore::NotProfiled { value: 1.0 });
        let new = InstructionScore::NotProfiled { value: 0.5 };
        let text = serde_json::to_string(&new).unwrap();
        assert_eq!(
            serde_json::from_str::<InstructionScore>(&text).unwrap(),
            new
        );
    }

    #[test]
    fn a_speedup_names_what_it_is_over() {
        let seed = Speedup::new(Denominator::Seed, ns(300.0), ns(100.0));
        assert_eq!(seed.to_string(), "3.00× the seed (frontier: not measured)");
        let frontier = Denominator::Frontier("torch.sum".into());
        let text = Speedup::new(frontier, ns(101.0), ns(100.0)).to_string();
        assert_eq!(text, "1.01× torch.sum");
    }

    proptest! {
        #[test]
        fn rewards_lie_in_0_to_1_and_fall_with_time(
            share in -1.0..2.0f64, spill in 0u64..1000, best in 1.0..1e9f64,
            time in 1.0..1e9f64, longer in 1.0..100.0f64,
        ) {
            let score = score(true, share, spill, Audit::Passed);
            let now = reward(&score, ns(time), ns(best));
            let later = reward(&score, ns(time * longer), ns(best));
            prop_assert!((0.0..=1.0).contains(&now));
            prop_assert!(later <= now);
        }

        #[test]
        fn the_invalid_earn_nothing(time in 1.0..1e9f64, best in 1.0..1e9f64) {
            let void = Audit::Void { reasons: vec!["faster than possible".into()] };
            prop_assert_eq!(reward(&score(true, 1.0, 0, void), ns(time), ns(best)), 0.0);
            let wrong = score(false, 1.0, 0, Audit::Passed);
            prop_assert_eq!(reward(&wrong, ns(time), ns(best)), 0.0);
        }
    }
}
