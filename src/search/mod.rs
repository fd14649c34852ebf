//! The **search**: a graph of sources that grows by structural edits, and a tuner inside each node.
//!
//! [`Search`] is asked for [`Request`]s and told their [`Outcome`]s. A request is either one evaluation (a
//! setting of a node's source) or one expansion (a rewrite or a model's edit of a node's source). Across
//! nodes it is Monte-Carlo tree search with max backup and a modest exploration weight ([`graph`], policy);
//! inside a node a Gaussian process over ranks chooses settings ([`tuner`]). All numbers are in
//! [`SearchParams`], all ends in [`StopRules`].
//!
//! The state is the fold of the calls made: the same `new`, `next` and `apply` calls give the same graph
//! byte for byte ([`Search::fingerprint`]), so a log of them resumes a run. A driver that keeps asking
//! until [`Next::Wait`] and tells outcomes in ticket order is deterministic whatever its threads do.
//! No threads, no I/O, no clock: seed and elapsed time are passed in.

mod asks;
mod earlier;
mod engine;
pub mod graph;
mod params;
mod policy;
mod race;
mod request;
mod stop;
pub mod tuner;
mod value;

pub use earlier::Earlier;
pub use engine::{NodeView, Search};
pub use graph::{EdgeId, NodeId};
pub use params::{Backup, SearchParams, Start, Surrogate, TunerParams};
pub use race::{Race, RaceParams, Timing, median};
pub use request::{
    Applied, ApplyError, Child, Cost, Expander, Grown, Next, Outcome, Request, Root, Ticket,
};
pub use stop::{Plateau, Progress, StopReason, StopRules};
pub use value::Value;
