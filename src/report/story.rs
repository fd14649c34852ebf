//! The story of a run, read from its stored events alone: from the seed to the winner, what was pruned
//! where, and the best kernels. The same facts as text and as JSON.

mod tell;
mod text;

use std::fmt::Write as _;

use serde::Serialize;

use crate::llm::Spent;
use crate::propose::Ask;
use crate::report::retimed::RetimedLine;
use crate::search::{NodeId, StopReason};
use crate::source::{KnobValue, Setting};
use crate::store::{RunConfig, RunGraph, StoreError, StoredKernel, StoredRun};
use crate::units::{Digest, Nanos};
use crate::verdict::{Claim, Measurement, Resources, TimeRatio};

/// What a run did.
#[derive(Clone, Debug, Serialize)]
pub struct Story {
    /// What was asked.
    pub config: RunConfig,
    /// Why it ended; absent while it can be resumed.
    pub ended: Option<StopReason>,
    /// Search time, milliseconds.
    pub elapsed_ms: u64,
    /// Kernels judged.
    pub evaluations: u64,
    /// Settings that were estimated and never judged.
    pub estimated_only: u64,
    /// How they ended, and the most frequent reason of each ending.
    pub funnel: Vec<Ending>,
    /// What the model cost, by what it was asked for; empty where none was asked.
    pub asked: Vec<AskedLine>,
    /// The way from the first kernel to the winner; empty without a winner.
    pub path: Vec<Step>,
    /// Each time the best got better.
    pub improvements: Vec<Improvement>,
    /// The best-looking as they were timed again before the winner was named, latest race only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub retimed: Vec<RetimedLine>,
    /// The best kernels: by time, that of spilling kernels counting double.
    pub top: Vec<Ranked>,
    /// Every source, in order of creation.
    pub sources: Vec<SourceLine>,
    /// The winner in full.
    pub winner: Option<Winner>,
}

/// One kind of request to the model.
#[derive(Clone, Debug, Serialize)]
pub struct AskedLine {
    /// Which kind.
    pub ask: Ask,
    /// Requests.
    pub requests: u64,
    /// Those whose answer gave something to judge.
    pub usable: u64,
    /// What they cost, failed calls included.
    pub spent: Spent,
}

/// A way to end.
#[derive(Clone, Debug, Serialize)]
pub struct Ending {
    /// `measured`, `unassembled`, …
    pub stage: String,
    /// How many.
    pub count: u64,
    /// The most frequent message of it.
    pub mostly: Option<String>,
}

/// A step on the way to the winner.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// The edit, or the knobs moved.
    pub what: String,
    /// The time reached with it.
    pub time: Option<Nanos>,
    /// Time before ÷ time after.
    pub gain: Option<f64>,
    /// What its proposer said.
    pub rationale: Option<String>,
}

/// The best got better.
#[derive(Clone, Debug, Serialize)]
pub struct Improvement {
    /// Kernels judged by then, this one included.
    pub evaluation: u64,
    /// Search time, milliseconds.
    pub elapsed_ms: u64,
    /// The new best time.
    pub time: Nanos,
    /// Of which source.
    pub label: String,
    /// With which setting.
    pub setting: Setting,
}

/// A kernel in the table.
#[derive(Clone, Debug, Serialize)]
pub struct Ranked {
    /// Its node.
    pub node: NodeId,
    /// Its time, the later one where it was timed again.
    pub time: Nanos,
    /// Over the run's baseline.
    pub speedup: Option<f64>,
    /// What its time is divided by to rank it: 1, or less where spills or missing target instructions
    /// cost it part of its score.
    pub factor: f64,
    /// Of which source.
    pub label: String,
    /// With which setting.
    pub setting: Setting,
    /// What ptxas said.
    pub resources: Vec<Resources>,
}

/// A source of the graph.
#[derive(Clone, Debug, Serialize)]
pub struct SourceLine {
    /// The node's number.
    pub node: NodeId,
    /// Where it grew from.
    pub parents: Vec<NodeId>,
    /// What made it.
    pub label: String,
    /// Kernels judged of it.
    pub evaluations: u32,
    /// Those that were valid.
    pub valid: u32,
    /// Its best time.
    pub best: Option<Nanos>,
    /// What the cost model expected of it: its time over its first parent's. Estimated, never judged by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated: Option<TimeRatio>,
}

/// The winner.
#[derive(Clone, Debug, Serialize)]
pub struct Winner {
    /// Its id.
    pub candidate: Option<Digest>,
    /// Its node.
    pub node: NodeId,
    /// The source text's hash in the object store.
    pub source: Digest,
    /// Its setting.
    pub setting: Setting,
    /// Its files, where it was assembled.
    pub kernel: Option<StoredKernel>,
    /// Time, score, checks: those of the second look, where there was one.
    pub measurement: Measurement,
    /// It was judged again in full when the search ended. Until then it is only the best so far.
    pub confirmed: bool,
    /// Measured again beside its baselines, where that was done.
    pub claim: Option<Claim>,
}

impl Story {
    /// Reads a stored run; `top` kernels go into the table.
    pub fn read(run: &StoredRun, top: usize) -> Result<Self, StoreError> {
        let graph = RunGraph::read(run)?;
        let mut teller = tell::Teller::new(run.config.baseline.as_ref());
        for line in &run.lines {
            teller.hear(line.elapsed_ms, &line.event, &graph);
        }
        Ok(teller.story(run, &graph, top))
    }
}

/// The knobs that differ from their defaults: `BM 64 → 128, …`; empty where none does.
pub(super) fn moved(source: &crate::source::Source, setting: &Setting) -> String {
    let mut out = String::new();
    for knob in source.space().knobs() {
        let (from, to) = (default(knob), setting.get(&knob.name));
        if let Some(to) = to.filter(|to| *to != from) {
            let comma = if out.is_empty() { "" } else { ", " };
            let _ = write!(out, "{comma}{} {from} → {to}", knob.name);
        }
    }
    out
}

/// A setting in one line: `BM=64 BN=128`.
pub fn setting_line(setting: &Setting) -> String {
    if setting.is_empty() {
        return "(no knobs)".to_owned();
    }
    setting
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect::<Vec<_>>()
        .join(" ")
}

fn default(knob: &crate::source::Knob) -> &KnobValue {
    &knob.values[usize::from(knob.default)]
}
