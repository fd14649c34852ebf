//! What became of a candidate. A bad kernel is a [`Verdict`]; an `Err` elsewhere means the rig broke.
//! Verdict, diagnosis, score and feedback stand here, below both those who judge and those who propose.

mod baseline;
mod claim;
mod diagnosis;
mod estimate;
mod feedback;
mod score;
mod work;

use serde::{Deserialize, Serialize};

pub use baseline::{Baselines, Correctness, MeasuredBaseline, MissingBaseline, Variant};
pub use claim::{Burst, Claim, Duel, Interleaving, Load, Power, Ratio, Standing, Times};
pub use diagnosis::{Bottleneck, Diagnosis, Evidence, Hardware, Occupancy, Stall};
pub use estimate::{Estimate, TimeRatio};
pub use feedback::feedback;
pub use score::{
    Audit, Denominator, InstructionScore, SPILL_ALLOWANCE, Score, Speedup, TargetShare, reward,
    spilled,
};
pub use work::{Executed, LineWork, Traffic, Wavefronts};

use crate::units::{Bytes, Nanos};

/// Every way an evaluation can end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// The source's header, holes or setting do not give a candidate, or its PTX does not parse.
    Unrenderable {
        /// What and where.
        diagnostics: Vec<Diagnostic>,
    },
    /// The task does not allow an instruction, directive or symbol it uses.
    Forbidden {
        /// What and where.
        diagnostics: Vec<Diagnostic>,
    },
    /// ptxas refused it.
    Unassembled {
        /// What and where.
        diagnostics: Vec<Diagnostic>,
    },
    /// ptxas crashed or did not end in time.
    AssemblerFailed {
        /// How it ended.
        message: String,
    },
    /// It assembles, but no launch of it fits the device.
    OverLimits {
        /// Which limit, wanted and allowed.
        message: String,
    },
    /// A launch faulted: out of bounds, misaligned, illegal instruction, trap.
    Faulted {
        /// What and where.
        diagnostics: Vec<Diagnostic>,
    },
    /// A launch did not end within its time or instruction budget, or deadlocked.
    Hung {
        /// What is known of the place.
        diagnostics: Vec<Diagnostic>,
    },
    /// A race or missing barrier was seen, or repeats differ where they may not.
    Racy {
        /// Both accesses.
        diagnostics: Vec<Diagnostic>,
    },
    /// It ran and gave wrong numbers.
    Wrong {
        /// The first differing elements and by how much.
        mismatch: Mismatch,
    },
    /// The numbers are right but the audit found a cheat.
    Voided {
        /// Why, each a sentence.
        reasons: Vec<String>,
        /// What was measured all the same.
        measurement: Box<Measurement>,
    },
    /// Correct, timed and scored.
    Measured(Box<Measurement>),
    /// A recorded configuration that failed when it was recorded.
    RecordedFailure {
        /// As the record names it.
        reason: String,
    },
}

impl Verdict {
    /// The measurement of a valid candidate.
    pub fn measurement(&self) -> Option<&Measurement> {
        match self {
            Self::Measured(measurement) => Some(measurement),
            Self::Voided { .. }
            | Self::Unrenderable { .. }
            | Self::Forbidden { .. }
            | Self::Unassembled { .. }
            | Self::AssemblerFailed { .. }
            | Self::OverLimits { .. }
            | Self::Faulted { .. }
            | Self::Hung { .. }
            | Self::Racy { .. }
            | Self::Wrong { .. }
            | Self::RecordedFailure { .. } => None,
        }
    }

    /// The stage at which it ended, for funnels: one word.
    pub fn stage(&self) -> &'static str {
        match self {
            Self::Unrenderable { .. } => "unrenderable",
            Self::Forbidden { .. } => "forbidden",
            Self::Unassembled { .. } => "unassembled",
            Self::AssemblerFailed { .. } => "assembler failed",
            Self::OverLimits { .. } => "over limits",
            Self::Faulted { .. } => "faulted",
            Self::Hung { .. } => "hung",
            Self::Racy { .. } => "racy",
            Self::Wrong { .. } => "wrong",
            Self::Voided { .. } => "voided",
            Self::Measured(_) => "measured",
            Self::RecordedFailure { .. } => "failed",
        }
    }

    /// In one line why it is no valid kernel; `None` for a valid one.
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Unrenderable { diagnostics }
            | Self::Forbidden { diagnostics }
            | Self::Unassembled { diagnostics }
            | Self::Faulted { diagnostics }
            | Self::Hung { diagnostics }
            | Self::Racy { diagnostics } => diagnostics.first().map(|first| first.message.clone()),
            Self::AssemblerFailed { message } | Self::OverLimits { message } => {
                Some(message.clone())
            }
            Self::Wrong { mismatch } => Some(format!(
                "{} of {} elements of {} wrong at {}",
                mismatch.wrong, mismatch.checked, mismatch.output, mismatch.case
            )),
            Self::Voided { reasons, .. } => reasons.first().cloned(),
            Self::Measured(_) => None,
            Self::RecordedFailure { reason } => Some(reason.clone()),
        }
    }

    /// What went wrong, with lines; empty for a good kernel.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        match self {
            Self::Unrenderable { diagnostics }
            | Self::Forbidden { diagnostics }
            | Self::Unassembled { diagnostics }
            | Self::Faulted { diagnostics }
            | Self::Hung { diagnostics }
            | Self::Racy { diagnostics } => diagnostics,
            Self::AssemblerFailed { .. }
            | Self::OverLimits { .. }
            | Self::Wrong { .. }
            | Self::Voided { .. }
            | Self::Measured(_)
            | Self::RecordedFailure { .. } => &[],
        }
    }
}

/// How bad a diagnostic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Costs speed, or is likely wrong.
    Warning,
    /// Fatal.
    Error,
}

/// A message about a place in the source a person or model can edit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// How bad.
    pub severity: Severity,
    /// A stable kebab-case name: `ptxas`, `missing-barrier`, `uninitialised-register`.
    pub code: String,
    /// What is wrong.
    pub message: String,
    /// 1-based line in the *source* text (not the rendering), where known.
    pub line: Option<u32>,
    /// The other place, for races: 1-based line in the source.
    pub other_line: Option<u32>,
    /// What to do.
    pub help: Option<String>,
}

/// The first differing outputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mismatch {
    /// Which size and input case: `edge n=1000, normal`.
    pub case: String,
    /// The output parameter.
    pub output: String,
    /// Elements outside the tolerance, and elements checked.
    pub wrong: u64,
    /// Elements checked.
    pub checked: u64,
    /// The first few: index, got, expected (`NaN` and infinities as text).
    pub first: Vec<MismatchElement>,
    /// In words, where the pattern is known: "never written", "guard zone overwritten", "input modified".
    pub pattern: Option<String>,
}

/// One differing element.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MismatchElement {
    /// Index along each dimension.
    pub index: Vec<u64>,
    /// As the kernel wrote it.
    pub got: String,
    /// The reference.
    pub expected: String,
}

/// A correct candidate's resources, time, score and diagnosis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// How long one call takes, and how that is known.
    pub time: Time,
    /// What ptxas said, per entry; empty for recorded tables.
    pub resources: Vec<Resources>,
    /// The three metrics.
    pub score: Score,
    /// What limits it.
    pub diagnosis: Option<Diagnosis>,
    /// Checks that were done, in words, for the certificate.
    pub checked: Vec<String>,
    /// Checks that could not be done here, in words.
    pub not_checked: Vec<String>,
    /// Advisories and lints that did not reject it.
    pub warnings: Vec<Diagnostic>,
}

/// A call's time and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Time {
    /// On the GPU named.
    Measured {
        /// Median.
        median: Nanos,
        /// Raw samples, nanoseconds per call.
        samples: Vec<f64>,
        /// GPU name.
        gpu: String,
    },
    /// By the cost model, for the GPU named: an order, never a claim.
    Estimated {
        /// The model's time.
        time: Nanos,
        /// GPU it is for.
        gpu: String,
    },
    /// Read from a table of earlier measurements.
    Recorded {
        /// The table's time.
        time: Nanos,
    },
}

impl Time {
    /// The value to rank by.
    pub fn nanos(&self) -> Nanos {
        match self {
            Self::Measured { median, .. } => *median,
            Self::Estimated { time, .. } | Self::Recorded { time } => *time,
        }
    }

    /// The word that must stand beside the number.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Measured { .. } => "measured",
            Self::Estimated { .. } => "estimated",
            Self::Recorded { .. } => "recorded",
        }
    }
}

/// What ptxas reports for one entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// The entry's name.
    pub entry: String,
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory.
    pub static_smem: Bytes,
    /// Stack frame per thread.
    pub stack: Bytes,
    /// Spill stores per thread.
    pub spill_stores: Bytes,
    /// Spill loads per thread.
    pub spill_loads: Bytes,
    /// Barriers used.
    pub barriers: u32,
}
