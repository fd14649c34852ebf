//! What the cost model expects of a kernel that nobody judged: no verdict, and no time that could win.

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// What is expected of a kernel before it is judged.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Estimate {
    /// The cost model cannot say: it does not know an instruction, or the kernel did not end there.
    Unknown,
    /// A time.
    Time(Nanos),
    /// It does not assemble, or no launch of it fits the GPU.
    Refused,
}

impl Estimate {
    /// The order in which kernels are worth judging: the least first. What is unknown may be anything.
    pub fn rank(self) -> f64 {
        match self {
            Self::Unknown => 0.0,
            Self::Time(time) => time.get(),
            Self::Refused => f64::INFINITY,
        }
    }
}
