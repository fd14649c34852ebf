//! Ways to search, compared at equal budgets on the same judge: each method and seed gives one series of
//! judged kernels, its winner is measured again as every other, and everything shown is computed from the
//! series.

mod budget;
mod curves;
mod log;
mod methods;
mod replies;
mod statistics;
mod summary;
mod table;

use serde::{Deserialize, Serialize};

pub use budget::{Budget, BudgetError, Cost, Unit};
pub use curves::{Band, TurnRate};
pub use methods::{Bench, MakeModel, MethodError};
pub use statistics::{Paired, paired};
pub use summary::{Comparison, Summary};
pub(crate) use table::p_words;

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
    /// Serial repair: each reply is told what became of the one before it, and starts from it.
    Refine,
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
            Self::Refine => "refine",
        }
    }

    /// Whether it is nothing without a model.
    pub fn needs_model(self) -> bool {
        match self {
            Self::SingleShot | Self::BestOfN | Self::Refine => true,
            Self::Search | Self::KnobsOnly | Self::Random => false,
        }
    }

    /// Whether it asks a model that is named.
    pub fn asks_model(self) -> bool {
        match self {
            Self::Search | Self::SingleShot | Self::BestOfN | Self::Refine => true,
            Self::KnobsOnly | Self::Random => false,
        }
    }
}

/// What one method with one seed judged, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// The method.
    pub method: Method,
    /// Its seed.
    pub seed: u64,
    /// Each kernel judged, and each reply that held none.
    pub judged: Vec<Judged>,
    /// Its winner, measured again; `None` where nothing was valid.
    pub winner: Option<Remeasured>,
}

/// One step of a series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Judged {
    /// How it ended: `measured`, `unassembled`, …, `no usable reply`.
    pub stage: String,
    /// Its time, where it is valid.
    pub time: Option<Nanos>,
    /// How many answers of a proposer lie between the sources there are and it.
    pub turn: u32,
    /// What the series had cost when it was judged, itself included.
    pub cost: Cost,
}

/// A series' best kernel, judged again in full and past every cache, after the search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remeasured {
    /// Its time then; `None` where every contender was refuted.
    pub time: Option<Nanos>,
    /// Better ones that did not pass this second look.
    pub refuted: u32,
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

    /// What stands for it: its winner's time, measured again.
    pub fn result(&self) -> Option<Nanos> {
        self.winner.as_ref()?.time
    }

    /// What all of it cost.
    pub fn cost(&self) -> Cost {
        self.judged.last().map(|last| last.cost).unwrap_or_default()
    }
}
