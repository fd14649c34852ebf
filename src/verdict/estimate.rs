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

    /// How long the kernel takes beside another one; `None` unless both have times.
    pub fn beside(self, other: Self) -> Option<TimeRatio> {
        match (self, other) {
            (Self::Time(own), Self::Time(other)) => TimeRatio::new(own.get() / other.get()),
            (Self::Unknown | Self::Refused, _) | (_, Self::Unknown | Self::Refused) => None,
        }
    }
}

/// An estimated time over another, both by the same cost model: 0.5 is twice as fast. The model's times mean
/// little beside measured ones; of its ratios more can be believed.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct TimeRatio(f64);

impl TimeRatio {
    /// `None` unless it is finite and positive.
    pub fn new(ratio: f64) -> Option<Self> {
        (ratio.is_finite() && ratio > 0.0).then_some(Self(ratio))
    }

    /// The value.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for TimeRatio {
    type Error = String;

    fn try_from(ratio: f64) -> Result<Self, Self::Error> {
        Self::new(ratio).ok_or_else(|| format!("{ratio} is no ratio of two times"))
    }
}

impl From<TimeRatio> for f64 {
    fn from(ratio: TimeRatio) -> Self {
        ratio.0
    }
}
