//! The words of ask/tell: what the search requests, and what it is told in return.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::earlier::Earlier;
use super::graph::NodeId;
use super::stop::StopReason;
use super::value::Value;
use crate::propose::Ask;
use crate::source::{Point, Setting, Source};
use crate::verdict::{Bottleneck, TimeRatio};

/// Numbers requests from 0, without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ticket(pub u64);

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Who can give a node children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expander {
    /// Mechanical rewrites.
    Rewrites,
    /// A language model.
    Model,
}

impl fmt::Display for Expander {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rewrites => "rewrites",
            Self::Model => "model",
        })
    }
}

/// A source to start from: the seed first, then every space.
#[derive(Clone, Debug)]
pub struct Root {
    /// `seed`, `space: tiled`.
    pub label: String,
    /// The source.
    pub source: Arc<Source>,
    /// Settings to try right after the default.
    pub settings: Vec<Setting>,
    /// What earlier runs judged of it, one by one.
    pub earlier: Vec<Earlier>,
}

/// A source that an expander proposes.
#[derive(Clone, Debug)]
pub struct Child {
    /// In one line, for the story.
    pub label: String,
    /// The parent's own source where only settings are suggested.
    pub source: Arc<Source>,
    /// Settings to try before any other.
    pub settings: Vec<Setting>,
    /// What the cost model expects of the best of its first settings beside its parent, where it was asked and could say.
    pub estimated: Option<TimeRatio>,
}

impl Child {
    /// The settings that it begins with: those suggested, then where its parent stands, for edits compose with
    /// knob moves, then its default.
    pub fn first(&self, parent: Option<&Setting>) -> Vec<Point> {
        let space = self.source.space();
        let mut first = points(&self.source, &self.settings);
        first.extend(parent.and_then(|setting| space.adopt(setting)));
        first.extend(space.default_point());
        first
    }
}

/// The settings that are valid for a source, as points.
pub(super) fn points<'s>(
    source: &Source,
    settings: impl IntoIterator<Item = &'s Setting>,
) -> Vec<Point> {
    let space = source.space();
    settings
        .into_iter()
        .filter_map(|setting| space.point(setting).ok())
        .collect()
}

/// What the search wants done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// Judge one setting of a node's source.
    Evaluate {
        /// To answer with.
        ticket: Ticket,
        /// Whose source.
        node: NodeId,
        /// The setting, in the order of the source's knobs.
        point: Point,
        /// Further settings: of all of them the one is judged of which the cost model expects most.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        beside: Vec<Point>,
    },
    /// Propose children of a node.
    Expand {
        /// To answer with.
        ticket: Ticket,
        /// Whose source.
        node: NodeId,
        /// By whom.
        by: Expander,
        /// Counts requests of this expander on this node, from 0.
        attempt: u32,
        /// What a model is asked for; rewrites are asked for nothing in particular.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ask: Option<Ask>,
    },
}

impl Request {
    /// To answer with.
    pub fn ticket(&self) -> Ticket {
        match self {
            Self::Evaluate { ticket, .. } | Self::Expand { ticket, .. } => *ticket,
        }
    }

    /// The node it is about.
    pub fn node(&self) -> NodeId {
        match self {
            Self::Evaluate { node, .. } | Self::Expand { node, .. } => *node,
        }
    }
}

/// The answer to "what next?".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Do this; ask again for more.
    Request(Request),
    /// Nothing before an outcome of something in flight is told.
    Wait,
    /// The search is over. Outcomes still in flight may be told all the same.
    Done(StopReason),
}

/// How a request ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// An evaluation's value.
    Evaluated {
        /// Of the request.
        ticket: Ticket,
        /// What counts of its verdict.
        value: Value,
        /// What limits a valid kernel, where that is known.
        limit: Option<Bottleneck>,
    },
    /// What an expander proposed; none means that it has nothing more to propose for this node.
    Expanded {
        /// Of the request.
        ticket: Ticket,
        /// In the order proposed.
        children: Vec<Child>,
        /// What the answer cost.
        cost: Cost,
    },
    /// The expander's answer could not be used (an unusable reply, a source that does not parse).
    ExpandFailed {
        /// Of the request.
        ticket: Ticket,
        /// What the answer cost.
        cost: Cost,
    },
    /// The expander is out of service: the search goes on without it.
    Unavailable {
        /// Of the request.
        ticket: Ticket,
        /// It may be asked again later.
        passing: bool,
    },
}

impl Outcome {
    /// The request it answers.
    pub fn ticket(&self) -> Ticket {
        match self {
            Self::Evaluated { ticket, .. }
            | Self::Expanded { ticket, .. }
            | Self::ExpandFailed { ticket, .. }
            | Self::Unavailable { ticket, .. } => *ticket,
        }
    }
}

/// What an answer cost: dollars where the model has a price, else millions of tokens; one unit in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cost(f64);

impl Cost {
    /// Nothing: what a mechanical rewrite costs.
    pub const FREE: Self = Self(0.0);

    /// `None` unless it is finite and not negative.
    pub fn new(cost: f64) -> Option<Self> {
        (cost.is_finite() && cost >= 0.0).then_some(Self(cost))
    }

    /// The value.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// What an outcome changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The evaluation is the best so far.
    pub best: bool,
    /// What became of each proposed child, in order.
    pub children: Vec<Grown>,
}

/// What became of a proposed child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "grown", rename_all = "snake_case")]
pub enum Grown {
    /// A new node.
    New {
        /// It.
        node: NodeId,
    },
    /// A source known from elsewhere: the node is shared.
    Joined {
        /// The node known before.
        node: NodeId,
    },
    /// The node's own source: its settings will be tried first.
    Settings {
        /// How many of them are new and valid.
        fresh: u32,
    },
    /// Already a child of this node, or one of its ancestors: spent for nothing.
    Duplicate {
        /// The node known before.
        node: NodeId,
    },
}

/// The outcome does not fit what is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// No such request is in flight.
    #[error("ticket {0} is not in flight: it was answered before, or never asked")]
    NotInFlight(Ticket),
    /// A setting that was not asked for with this request.
    #[error("ticket {0} asked for other settings")]
    NotAsked(Ticket),
    /// An evaluation answered as a proposal, or the reverse.
    #[error("ticket {0} is answered by an outcome of the other kind")]
    WrongKind(Ticket),
}
