//! What a page tells of the search graph: every source, every kernel judged of it, every proposal that came
//! to nothing, and what was said about them. Plain data for the page's script, from stored events alone.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::diff::{DiffLine, diff};
use super::exchanges::{Asked, ExchangeFacts, told};
use crate::llm::Exchange;
use crate::report::story::{moved, setting_line};
use crate::search::{Expander, NodeId};
use crate::store::{Event, RunGraph, StoredRun};
use crate::units::Nanos;
use crate::verdict::{Diagnostic, Measurement, Verdict};

/// The graph.
#[derive(Debug, Serialize)]
pub(super) struct Graph {
    pub(super) sources: Vec<SourceFacts>,
    pub(super) kernels: Vec<KernelFacts>,
    pub(super) failures: Vec<Failure>,
    pub(super) exchanges: Vec<ExchangeFacts>,
    /// Texts of exchanges, each once.
    pub(super) texts: Vec<String>,
}

/// A source.
#[derive(Debug, Serialize)]
pub(super) struct SourceFacts {
    pub(super) node: NodeId,
    pub(super) parents: Vec<NodeId>,
    pub(super) label: String,
    pub(super) look: Look,
    /// On the way to the winner.
    pub(super) way: bool,
    pub(super) best: Option<String>,
    pub(super) judged: u32,
    pub(super) valid: u32,
    pub(super) rationale: Option<String>,
    /// What the cost model expected of it.
    pub(super) estimated: Option<String>,
    /// Against the first parent.
    pub(super) diff: Vec<DiffLine>,
    /// In full, where it has no parent.
    pub(super) text: Option<String>,
    /// What was asked and answered to get it; indices.
    pub(super) exchanges: Vec<usize>,
}

/// A judged kernel.
#[derive(Debug, Serialize)]
pub(super) struct KernelFacts {
    /// Counted from 1 in the order judged.
    pub(super) number: u64,
    pub(super) node: NodeId,
    /// The knobs that differ from the source's defaults.
    pub(super) label: String,
    pub(super) setting: String,
    pub(super) look: Look,
    pub(super) stage: &'static str,
    pub(super) time: Option<String>,
    pub(super) speedup: Option<f64>,
    /// Facts, a line each.
    pub(super) facts: Vec<String>,
    pub(super) took_ms: u64,
}

/// A proposal that came to nothing.
#[derive(Debug, Serialize)]
pub(super) struct Failure {
    pub(super) node: NodeId,
    pub(super) by: Expander,
    pub(super) message: String,
    pub(super) exchanges: Vec<usize>,
}

/// How a node looks: by what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Look {
    /// The winner.
    Best,
    /// Valid.
    Good,
    /// Wrong numbers or a race.
    Wrong,
    /// A fault or a hang.
    Crashed,
    /// Not assembled, forbidden, over limits.
    Refused,
    /// The audit voided it.
    Voided,
    /// Nothing judged, or nothing known.
    Empty,
}

impl Look {
    pub(super) fn of(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Measured(_) => Self::Good,
            Verdict::Wrong { .. } | Verdict::Racy { .. } => Self::Wrong,
            Verdict::Faulted { .. } | Verdict::Hung { .. } => Self::Crashed,
            Verdict::Unrenderable { .. }
            | Verdict::Forbidden { .. }
            | Verdict::Unassembled { .. }
            | Verdict::AssemblerFailed { .. }
            | Verdict::OverLimits { .. } => Self::Refused,
            Verdict::Voided { .. } => Self::Voided,
            Verdict::RecordedFailure { .. } => Self::Empty,
        }
    }

    /// The class of charts.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Best => "best",
            Self::Good => "good",
            Self::Wrong => "wrong",
            Self::Crashed => "crashed",
            Self::Refused => "refused",
            Self::Voided => "voided",
            Self::Empty => "empty",
        }
    }
}

/// What was judged of a source.
#[derive(Default)]
struct Counts {
    judged: u32,
    valid: u32,
    best: Option<Nanos>,
    looks: BTreeMap<Look, u32>,
}

impl Graph {
    /// Reads it from a run. `winner` is the node of the winner and its setting in one line.
    pub(super) fn read(
        run: &StoredRun,
        graph: &RunGraph,
        exchanges: &[Exchange],
        winner: Option<(NodeId, &str)>,
    ) -> Self {
        let baseline = run.config.baseline.as_ref().map(|one| one.time);
        let mut asked = Asked::new(exchanges);
        let mut counts: HashMap<NodeId, Counts> = HashMap::new();
        let mut made_by: HashMap<NodeId, Vec<usize>> = HashMap::new();
        let mut kernels: Vec<KernelFacts> = Vec::new();
        let mut failures = Vec::new();
        for line in &run.lines {
            match &line.event {
                Event::Evaluated {
                    node,
                    setting,
                    evaluation,
                    took_ms,
                    ..
                } => {
                    let verdict = &evaluation.verdict;
                    let setting_words = setting_line(setting);
                    let wins = winner == Some((*node, &*setting_words));
                    let mut look = Look::of(verdict);
                    if wins && look == Look::Good {
                        look = Look::Best;
                    }
                    let entry = counts.entry(*node).or_default();
                    entry.judged += 1;
                    *entry.looks.entry(look).or_default() += 1;
                    let time = verdict.measurement().map(|one| one.time.nanos());
                    if let Some(time) = time {
                        entry.valid += 1;
                        if entry.best.is_none_or(|best| time < best) {
                            entry.best = Some(time);
                        }
                    }
                    let label = graph
                        .node(*node)
                        .map(|stored| moved(&stored.source, setting))
                        .filter(|moved| !moved.is_empty())
                        .unwrap_or_else(|| "defaults".to_owned());
                    kernels.push(KernelFacts {
                        number: kernels.len() as u64 + 1,
                        node: *node,
                        label,
                        setting: setting_words,
                        look,
                        stage: verdict.stage(),
                        time: time.map(|time| time.to_string()),
                        speedup: baseline
                            .zip(time)
                            .map(|(over, time)| over.get() / time.get()),
                        facts: facts(verdict),
                        took_ms: *took_ms,
                    });
                }
                Event::Expanded { children, .. } => {
                    let exchanges = asked.behind(&line.event);
                    for child in children {
                        if let crate::search::Grown::New { node } = child.grown {
                            made_by.insert(node, exchanges.clone());
                        }
                    }
                }
                Event::ExpandFailed {
                    node, by, message, ..
                }
                | Event::Away {
                    node, by, message, ..
                }
                | Event::Unavailable {
                    node, by, message, ..
                } => failures.push(Failure {
                    node: *node,
                    by: *by,
                    message: message.clone(),
                    exchanges: asked.behind(&line.event),
                }),
                Event::Retimed { .. } | Event::Confirmed { .. } | Event::Finished { .. } => {}
            }
        }
        let way = winner
            .map(|(node, _)| graph.lineage(node))
            .unwrap_or_default();
        let sources = graph
            .nodes()
            .map(|(id, node)| {
                let counts = counts.remove(&id).unwrap_or_default();
                let parent = node.parents.first().and_then(|id| graph.node(*id));
                SourceFacts {
                    node: id,
                    parents: node.parents.clone(),
                    label: node.label.clone(),
                    look: counts.look(),
                    way: way.contains(&id),
                    best: counts.best.map(|best| best.to_string()),
                    judged: counts.judged,
                    valid: counts.valid,
                    rationale: node.rationale.clone(),
                    estimated: (node.estimated)
                        .map(|ratio| format!("{:.2}× its parent's time", ratio.get())),
                    diff: parent
                        .map(|parent| diff(&parent.source.text, &node.source.text))
                        .unwrap_or_default(),
                    text: parent.is_none().then(|| node.source.text.to_string()),
                    exchanges: made_by.remove(&id).unwrap_or_default(),
                }
            })
            .collect();
        let (exchanges, texts) = told(exchanges);
        Self {
            sources,
            kernels,
            failures,
            exchanges,
            texts,
        }
    }
}

impl Counts {
    /// A source with a valid kernel is valid; else what became of most of its kernels.
    fn look(&self) -> Look {
        let good = [Look::Best, Look::Good];
        good.into_iter()
            .find(|look| self.looks.contains_key(look))
            .or_else(|| {
                let most = self.looks.iter().max_by_key(|(_, count)| **count);
                most.map(|(look, _)| *look)
            })
            .unwrap_or(Look::Empty)
    }
}

/// What a verdict says, a line each.
fn facts(verdict: &Verdict) -> Vec<String> {
    let mut lines = Vec::new();
    match verdict {
        Verdict::Measured(measurement) => measured(measurement, &mut lines),
        Verdict::Voided {
            reasons,
            measurement,
        } => {
            lines.extend(reasons.iter().cloned());
            measured(measurement, &mut lines);
        }
        Verdict::Wrong { mismatch } => {
            lines.extend(verdict.reason());
            lines.extend(mismatch.pattern.clone());
            lines.extend(mismatch.first.iter().map(|element| {
                format!(
                    "{:?}: {} instead of {}",
                    element.index, element.got, element.expected
                )
            }));
        }
        Verdict::Unrenderable { .. }
        | Verdict::Forbidden { .. }
        | Verdict::Unassembled { .. }
        | Verdict::Faulted { .. }
        | Verdict::Hung { .. }
        | Verdict::Racy { .. } => lines.extend(verdict.diagnostics().iter().map(diagnostic)),
        Verdict::AssemblerFailed { .. }
        | Verdict::OverLimits { .. }
        | Verdict::RecordedFailure { .. } => lines.extend(verdict.reason()),
    }
    lines
}

fn measured(measurement: &Measurement, lines: &mut Vec<String>) {
    lines.extend(measurement.resources.iter().map(|entry| {
        format!(
            "{}: {} registers, {} shared, {} spilled",
            entry.entry, entry.registers, entry.static_smem, entry.spill_stores
        )
    }));
    if let Some(diagnosis) = &measurement.diagnosis {
        lines.push(format!(
            "limited by {} ({})",
            diagnosis.bottleneck, diagnosis.source
        ));
        lines.extend(
            diagnosis
                .evidence
                .iter()
                .map(|evidence| match evidence.line {
                    Some(line) => format!("line {line}: {}", evidence.text),
                    None => evidence.text.clone(),
                }),
        );
    }
    lines.extend(measurement.warnings.iter().map(diagnostic));
}

fn diagnostic(diagnostic: &Diagnostic) -> String {
    let mut line = match (diagnostic.line, diagnostic.other_line) {
        (Some(line), Some(other)) => format!("lines {line} and {other}: "),
        (Some(line), None) | (None, Some(line)) => format!("line {line}: "),
        (None, None) => String::new(),
    };
    line += &diagnostic.message;
    if let Some(help) = &diagnostic.help {
        line += &format!(" ({help})");
    }
    line
}
