//! What happened in a run, one line each. The search's state is the fold of these; everything shown or
//! exported is read from them. A stored struct changes: bump [`FORMAT`] and keep an old fixture readable.

use serde::{Deserialize, Serialize};

use crate::evaluate::Evaluation;
use crate::llm::Spent;
use crate::propose::Ask;
use crate::search::{Expander, Grown, NodeId, StopReason, Ticket, median};
use crate::source::{Point, Setting};
use crate::units::{Digest, Nanos};
use crate::verdict::{Claim, Estimate, TimeRatio};

/// Version of the log's lines and of `run.toml`. 2 added [`Event::Confirmed`]
/// and `baselines`; 3 what a model was asked and what that cost, and [`Event::Away`];
/// 4 the settings that a search starts from; 5 [`Event::Retimed`], what was set aside
/// on an estimate, and what earlier runs judged; 6 what is expected of a source beside its parent;
/// 7 kernels timed again at full load.
pub const FORMAT: u32 = 7;

/// The oldest version that is still read.
pub const OLDEST_FORMAT: u32 = 1;

/// A line of `events.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Position in the log, from 0, without gaps: a missing line is noticed.
    pub seq: u64,
    /// Search time so far, in milliseconds: waiting between a stop and a resume does not count.
    pub elapsed_ms: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A knob setting of a node was judged.
    Evaluated {
        /// The request's number.
        ticket: Ticket,
        /// The node.
        node: NodeId,
        /// Which setting, as indices.
        point: Point,
        /// Which setting, by name, for readers of the log.
        setting: Setting,
        /// Settings that were asked for beside it and not judged, for what the cost model expects of them.
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        left_out: Vec<LeftOut>,
        /// What became of it.
        evaluation: Box<Evaluation>,
        /// What was assembled, where it is the best so far: the very bytes that were judged.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        kernel: Option<StoredKernel>,
        /// It is the best so far.
        best: bool,
        /// Wall time of the evaluation, in milliseconds.
        took_ms: u64,
    },
    /// A proposer answered with children (none: it has nothing to propose here).
    Expanded {
        /// The request's number.
        ticket: Ticket,
        /// The parent.
        node: NodeId,
        /// Who.
        by: Expander,
        /// The children, their sources in the object store.
        children: Vec<StoredChild>,
        /// What a model was asked; absent for rewrites and in formats before 3.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        asked: Option<Box<Asked>>,
    },
    /// A proposer's answer could not be used.
    ExpandFailed {
        /// The request's number.
        ticket: Ticket,
        /// The parent.
        node: NodeId,
        /// Who.
        by: Expander,
        /// Told to the next attempt.
        message: String,
        /// What a model was asked; absent for rewrites and in formats before 3.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        asked: Option<Box<Asked>>,
    },
    /// A proposer is out of service for now; the search goes on without it and asks again later.
    Away {
        /// The request's number.
        ticket: Ticket,
        /// The parent.
        node: NodeId,
        /// Who.
        by: Expander,
        /// Why.
        message: String,
        /// What a model was asked.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        asked: Option<Box<Asked>>,
    },
    /// A proposer is out of service; the search goes on without it.
    Unavailable {
        /// The request's number.
        ticket: Ticket,
        /// The parent.
        node: NodeId,
        /// Who.
        by: Expander,
        /// Why.
        message: String,
        /// What a model was asked; absent for rewrites and in formats before 3.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        asked: Option<Box<Asked>>,
    },
    /// The best-looking kernels were timed again when the search ended, taking turns: the least of many
    /// times is lucky as well as fast.
    Retimed {
        /// Each of them, the best-looking first.
        kernels: Vec<Retimed>,
        /// Wall time of all, in milliseconds.
        took_ms: u64,
    },
    /// A kernel that led when the search ended was judged again, in full and past every cache: it may be
    /// called the winner, or it is refuted.
    Confirmed {
        /// The node.
        node: NodeId,
        /// Which setting, as indices.
        point: Point,
        /// Which setting, by name.
        setting: Setting,
        /// What became of it.
        evaluation: Box<Evaluation>,
        /// What was assembled, where it passed.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        kernel: Option<StoredKernel>,
        /// Where it passed on a GPU: measured again beside what it is set against, in fresh processes.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        claim: Option<Box<Claim>>,
        /// Wall time, in milliseconds.
        took_ms: u64,
    },
    /// The search came to its end.
    Finished {
        /// Why.
        reason: StopReason,
    },
}

impl Event {
    /// The request it answers; `None` for what answers none.
    pub fn ticket(&self) -> Option<Ticket> {
        match self {
            Self::Evaluated { ticket, .. }
            | Self::Expanded { ticket, .. }
            | Self::ExpandFailed { ticket, .. }
            | Self::Away { ticket, .. }
            | Self::Unavailable { ticket, .. } => Some(*ticket),
            Self::Retimed { .. } | Self::Confirmed { .. } | Self::Finished { .. } => None,
        }
    }

    /// A setting that was judged on the search's request, of which node, and what became of it.
    pub fn evaluated(&self) -> Option<(NodeId, &Setting, &Evaluation)> {
        match self {
            Self::Evaluated {
                node,
                setting,
                evaluation,
                ..
            } => Some((*node, setting, evaluation)),
            Self::Expanded { .. }
            | Self::ExpandFailed { .. }
            | Self::Away { .. }
            | Self::Unavailable { .. }
            | Self::Retimed { .. }
            | Self::Confirmed { .. }
            | Self::Finished { .. } => None,
        }
    }

    /// The node whose kernel it judges, of several the best one's; `None` for what judges none.
    pub fn judged_node(&self) -> Option<NodeId> {
        match self {
            Self::Evaluated { node, .. } | Self::Confirmed { node, .. } => Some(*node),
            Self::Retimed { kernels, .. } => Retimed::leader(kernels).map(|leader| leader.node),
            Self::Expanded { .. }
            | Self::ExpandFailed { .. }
            | Self::Away { .. }
            | Self::Unavailable { .. }
            | Self::Finished { .. } => None,
        }
    }

    /// What was asked for beside a setting and not judged; `None` where no setting was.
    pub fn left_out(&self) -> Option<&[LeftOut]> {
        match self {
            Self::Evaluated { left_out, .. } => Some(left_out),
            Self::Expanded { .. }
            | Self::ExpandFailed { .. }
            | Self::Away { .. }
            | Self::Unavailable { .. }
            | Self::Retimed { .. }
            | Self::Confirmed { .. }
            | Self::Finished { .. } => None,
        }
    }

    /// What a model was asked; `None` for what asked none.
    pub fn asked(&self) -> Option<&Asked> {
        match self {
            Self::Expanded { asked, .. }
            | Self::ExpandFailed { asked, .. }
            | Self::Away { asked, .. }
            | Self::Unavailable { asked, .. } => asked.as_deref(),
            Self::Evaluated { .. }
            | Self::Retimed { .. }
            | Self::Confirmed { .. }
            | Self::Finished { .. } => None,
        }
    }
}

/// A setting that is estimated, not judged. It may be judged later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Which, as indices.
    pub point: Point,
    /// Which, by name.
    pub setting: Setting,
    /// What is expected of it.
    pub estimate: Estimate,
}

/// What a model was asked and what that cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// What for.
    pub ask: Ask,
    /// Every call of it, failed ones included.
    pub spent: Spent,
    /// Its exchanges in `exchanges.jsonl`, by hash, in order.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub exchanges: Vec<Digest>,
    /// Wall time, in milliseconds.
    pub took_ms: u64,
}

/// A kernel that was timed again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Retimed {
    /// The node.
    pub node: NodeId,
    /// Which setting, as indices.
    pub point: Point,
    /// Which setting, by name.
    pub setting: Setting,
    /// What its time is divided by to rank it.
    pub factor: f64,
    /// One a turn: the median of its samples.
    pub times: Vec<Nanos>,
    /// They were taken at full load, which the search's own are not where power limits. Not in formats before 7.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub full_load: bool,
    /// In words why it could not be timed again: it is out.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failed: Option<String>,
}

impl Retimed {
    /// The median of its times; `None` where it failed.
    pub fn time(&self) -> Option<Nanos> {
        median(&self.times)
    }

    /// What ranks it, as [`Evaluation::cost`] does.
    pub fn cost(&self) -> Option<f64> {
        Some(self.time()?.get() / self.factor)
    }

    /// The best of some.
    pub fn leader(kernels: &[Self]) -> Option<&Self> {
        let costs = kernels.iter().filter_map(|one| Some((one.cost()?, one)));
        let least = costs.min_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(least.1)
    }
}

/// A kernel's files, in the object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredKernel {
    /// The rendering.
    pub ptx: Digest,
    /// What ptxas made of it.
    pub cubin: Digest,
}

/// A proposed child as stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredChild {
    /// The edge's name.
    pub label: String,
    /// The child's source text, in the object store.
    pub source: Digest,
    /// What became of it in the graph.
    pub grown: Grown,
    /// Settings to try first.
    pub settings: Vec<Setting>,
    /// What the proposer said.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rationale: Option<String>,
    /// What the cost model expected of its first setting beside its parent, where it was asked and could say. Not
    /// in formats before 6.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub estimated: Option<TimeRatio>,
}
