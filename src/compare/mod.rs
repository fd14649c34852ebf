//! Ways to search, compared at equal budgets on the same judge: each method and seed gives one series of
//! judged kernels, and everything shown is computed from the series.

mod methods;
mod table;

use serde::{Deserialize, Serialize};

pub use methods::{Bench, MethodError};
pub use table::{Comparison, Summary};

use crate::units::Nanos;

/// A way to search.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// The whole search: knobs, rewrites and, where one is named, the model.
    Search,
    /// The search without rewrites and model.
    KnobsOnly,
    /// Settings drawn uniformly from the sources there are.
    Random,
    /// One reply of the model to the task and its seed.
    SingleShot,
    /// Independent replies of the model, no feedback between them.
    BestOfN,
}

impl Method {
    /// As typed and printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Search => "search",
            Self::KnobsOnly => "knobs-only",
            Self::Random => "random",
            Self::SingleShot => "single-shot",
            Self::BestOfN => "best-of-n",
        }
    }

    /// Whether it asks a model.
    pub fn needs_model(self) -> bool {
        match self {
            Self::SingleShot | Self::BestOfN => true,
            Self::Search | Self::KnobsOnly | Self::Random => false,
        }
    }
}

/// What one method with one seed judged, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The method.
    pub method: Method,
    /// Its seed.
    pub seed: u64,
    /// Each kernel judged.
    pub judged: Vec<Judged>,
}

/// One judged kernel of a series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// How it ended: `measured`, `unassembled`, …
    pub stage: String,
    /// Its time, where it is valid.
    pub time: Option<Nanos>,
}

impl Series {
    /// The best time after each kernel.
    pub fn best_so_far(&self) -> Vec<Option<Nanos>> {
        let mut best: Option<Nanos> = None;
        self.judged
            .iter()
            .map(|judged| {
                if judged
                    .time
                    .is_some_and(|time| best.is_none_or(|best| time < best))
                {
                    best = judged.time;
                }
                best
            })
            .collect()
    }

    /// The best time of all.
    pub fn best(&self) -> Option<Nanos> {
        self.best_so_far().last().copied().flatten()
    }
}
