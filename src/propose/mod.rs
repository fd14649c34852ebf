//! A **proposer** gives a node of the search graph a new child: a mechanical rewrite or a model's edit.
//! It sees the source and **feedback**; never samples, seeds, inputs or expected outputs.

mod llm;
mod rewrites;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use llm::{AskOptions, ModelProposer};
pub use rewrites::Rewrites;
use serde::{Deserialize, Serialize};

use crate::llm::Tally;
use crate::source::{Setting, Source};
use crate::task::{Role, Task};
use crate::verdict::Verdict;

/// The seam.
pub trait Proposer: Send + Sync {
    /// `rewrites`, `model`: as events and reports name it.
    fn name(&self) -> &str;

    /// Answers one request. `Ok(vec![])` means it has nothing (more) to propose here. What a model's calls
    /// cost is added to `tally`, whether or not there is a proposal.
    fn propose(
        &self,
        request: &ProposalRequest<'_>,
        tally: &mut Tally,
    ) -> Result<Vec<Proposal>, ProposeError>;
}

/// Who proposes what comes next, as typed and stored.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum ProposerKind {
    /// Knob settings of the sources there are.
    Knobs,
    /// Mechanical rewrites of sources.
    Rewrites,
    /// Edits by a model.
    Model,
}

/// What a model is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// Other knob settings, no change of the text.
    KnobChange,
    /// A change of a few lines.
    LocalEdit,
    /// Another way to do the work: most of the text may change.
    Restructure,
    /// A constant of the code left open as a knob.
    NewKnob,
    /// What makes a broken source right.
    Repair,
}

impl Ask {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::KnobChange,
        Self::LocalEdit,
        Self::Restructure,
        Self::NewKnob,
        Self::Repair,
    ];

    /// As prompts, events and reports name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::KnobChange => "knob-change",
            Self::LocalEdit => "local-edit",
            Self::Restructure => "restructure",
            Self::NewKnob => "new-knob",
            Self::Repair => "repair",
        }
    }
}

/// What a proposer may know.
pub struct ProposalRequest<'a> {
    /// The task.
    pub task: &'a Task,
    /// The node's source.
    pub source: &'a Arc<Source>,
    /// The setting the feedback is about: the node's best, else the last tried.
    pub setting: Option<Setting>,
    /// What became of that setting.
    pub feedback: Option<&'a Verdict>,
    /// What was tried on this node before and how it ended, oldest first: (edit, outcome).
    pub history: &'a [(String, String)],
    /// The edits that led to this node and how each ended, from the first on.
    pub path: &'a [(String, String)],
    /// What was tried beside that path and how it ended, oldest first.
    pub beside: &'a [(String, String)],
    /// What a model is to send; `None` leaves it to what the feedback calls for.
    pub ask: Option<Ask>,
    /// Counts requests of this proposer on this node from 0: a rewriter's turn, a model's attempt.
    pub attempt: u32,
}

impl<'a> ProposalRequest<'a> {
    /// The first request about a source of which nothing is known yet.
    pub fn first(task: &'a Task, source: &'a Arc<Source>) -> Self {
        Self {
            task,
            source,
            setting: None,
            feedback: None,
            history: &[],
            path: &[],
            beside: &[],
            ask: None,
            attempt: 0,
        }
    }
}

/// A proposed child.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// In one line, for the story: `register cap`, `model: double-buffer the A tile`.
    pub label: String,
    /// The child's source text; equal to the parent's where only a setting is suggested.
    pub text: Arc<str>,
    /// Settings to try first.
    pub settings: Vec<Setting>,
    /// What the proposer said, stored with the edge.
    pub rationale: Option<String>,
}

/// Why there is no proposal.
#[derive(Debug, thiserror::Error)]
pub enum ProposeError {
    /// The reply could not be used; the message goes into the next prompt.
    #[error("{0}")]
    Unusable(String),
    /// The proposer is out of service for now: a server that does not answer. It may be asked again later.
    #[error("{0}")]
    Away(String),
    /// The proposer is out of service for good; the search goes on without it.
    #[error("{0}")]
    Unavailable(String),
}

/// Names that launches may use, each with some value, to see what a source's launches bind: those of the
/// task's first size and scalars, and the device's facts.
fn sample_names(task: &Task) -> BTreeMap<String, i64> {
    let first = task.sizes.first();
    let mut names = first.map(|size| size.dims.clone()).unwrap_or_default();
    for param in task
        .params
        .iter()
        .filter(|param| param.role == Role::Scalar)
    {
        names.entry(param.name.clone()).or_insert(1);
    }
    for (fact, value) in [("sm_count", 132), ("max_active_clusters", 66)] {
        names.entry(fact.to_owned()).or_insert(value);
    }
    names
}
