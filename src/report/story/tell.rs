//! Gathers a story's facts while a run's events pass, in their order. It reads nothing else and writes nothing.

use std::collections::{BTreeMap, HashSet};

use super::{
    AskedLine, Ending, Improvement, Ranked, SourceLine, Step, Story, Winner, default, moved,
};
use crate::evaluate::Evaluation;
use crate::llm::Spent;
use crate::propose::Ask;
use crate::report::retimed::RetimedLine;
use crate::search::{NodeId, StopReason};
use crate::source::{Point, Setting};
use crate::store::{Asked, BaselineTime, Event, Retimed, RunGraph, StoredRun};
use crate::units::Nanos;

/// What was judged of a node.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    judged: u32,
    valid: u32,
    best: Option<Nanos>,
}

/// Gathers facts while events pass.
pub(super) struct Teller {
    baseline: Option<Nanos>,
    /// The seed's time, where it is the denominator.
    seed: Option<Nanos>,
    evaluations: u64,
    ended: Option<StopReason>,
    endings: BTreeMap<String, (u64, BTreeMap<String, u64>)>,
    /// Estimated and not judged so far.
    estimated: HashSet<(NodeId, Point)>,
    asked: BTreeMap<Ask, AskedLine>,
    improvements: Vec<Improvement>,
    retimed: Vec<RetimedLine>,
    ranked: Vec<Ranked>,
    defaults: BTreeMap<NodeId, Nanos>,
    counts: BTreeMap<NodeId, Counts>,
    winner: Option<Winner>,
}

impl Teller {
    pub(super) fn new(baseline: Option<&BaselineTime>) -> Self {
        Self {
            baseline: baseline.map(|baseline| baseline.time),
            seed: baseline
                .filter(|baseline| baseline.name == "seed")
                .map(|baseline| baseline.time),
            evaluations: 0,
            ended: None,
            endings: BTreeMap::new(),
            estimated: HashSet::new(),
            asked: BTreeMap::new(),
            improvements: Vec::new(),
            retimed: Vec::new(),
            ranked: Vec::new(),
            defaults: BTreeMap::new(),
            counts: BTreeMap::new(),
            winner: None,
        }
    }

    pub(super) fn hear(&mut self, elapsed_ms: u64, event: &Event, graph: &RunGraph) {
        if let Some(asked) = event.asked() {
            self.ask(asked, matches!(event, Event::Expanded { .. }));
        }
        match event {
            Event::Evaluated {
                node,
                setting,
                left_out,
                evaluation,
                kernel,
                best,
                point,
                ..
            } => {
                self.evaluations += 1;
                for one in left_out {
                    self.estimated.insert((*node, one.point.clone()));
                }
                self.estimated.remove(&(*node, point.clone()));
                self.ended = None;
                self.count(evaluation);
                let counts = self.counts.entry(*node).or_default();
                counts.judged += 1;
                let Some(measurement) = evaluation.verdict.measurement() else {
                    return;
                };
                let time = measurement.time.nanos();
                counts.valid += 1;
                counts.best = Some(
                    counts
                        .best
                        .map_or(time, |best| if time < best { time } else { best }),
                );
                let Some(stored) = graph.node(*node) else {
                    return;
                };
                if is_default(&stored.source, setting) {
                    self.defaults.insert(*node, time);
                }
                self.ranked.push(Ranked {
                    node: *node,
                    time,
                    speedup: self.baseline.map(|baseline| baseline.get() / time.get()),
                    factor: measurement.score.instructions.factor(),
                    label: stored.label.clone(),
                    setting: setting.clone(),
                    resources: measurement.resources.clone(),
                });
                if *best {
                    self.improvements.push(Improvement {
                        evaluation: self.evaluations,
                        elapsed_ms,
                        time,
                        label: stored.label.clone(),
                        setting: setting.clone(),
                    });
                    self.winner = Some(Winner {
                        candidate: evaluation.candidate,
                        node: *node,
                        source: stored.digest,
                        setting: setting.clone(),
                        kernel: *kernel,
                        measurement: measurement.clone(),
                        confirmed: false,
                        claim: None,
                    });
                }
            }
            Event::Retimed { kernels, .. } => self.retime(kernels, graph),
            Event::Confirmed {
                node,
                setting,
                evaluation,
                kernel,
                claim,
                ..
            } => {
                let stored = graph.node(*node);
                match (evaluation.verdict.measurement(), stored) {
                    (Some(measurement), Some(stored)) => {
                        self.winner = Some(Winner {
                            candidate: evaluation.candidate,
                            node: *node,
                            source: stored.digest,
                            setting: setting.clone(),
                            kernel: *kernel,
                            measurement: measurement.clone(),
                            confirmed: true,
                            claim: claim.as_deref().cloned(),
                        });
                    }
                    (None, _) | (Some(_), None) => {
                        let reason = evaluation.verdict.reason().unwrap_or_default();
                        let stage = evaluation.verdict.stage();
                        self.ending("refuted in full", Some(&format!("{stage}: {reason}")));
                        self.winner = None;
                    }
                }
            }
            Event::Expanded { .. } => {}
            Event::Finished { reason } => self.ended = Some(*reason),
            Event::ExpandFailed { message, .. } => {
                self.ending("no usable proposal", Some(message));
            }
            Event::Away { message, .. } => self.ending("proposer away", Some(message)),
            Event::Unavailable { message, .. } => self.ending("proposer gone", Some(message)),
        }
    }

    fn retime(&mut self, kernels: &[Retimed], graph: &RunGraph) {
        self.retimed.clear();
        for kernel in kernels {
            self.retimed.push(RetimedLine::new(kernel, graph));
            if kernel.full_load {
                continue;
            }
            let known = self
                .ranked
                .iter_mut()
                .find(|ranked| ranked.node == kernel.node && ranked.setting == kernel.setting);
            if let (Some(ranked), Some(time)) = (known, kernel.time()) {
                ranked.time = time;
                ranked.speedup = self.baseline.map(|baseline| baseline.get() / time.get());
            }
        }
    }

    fn ask(&mut self, asked: &Asked, usable: bool) {
        let line = self.asked.entry(asked.ask).or_insert(AskedLine {
            ask: asked.ask,
            requests: 0,
            usable: 0,
            spent: Spent::default(),
        });
        line.requests += 1;
        line.usable += u64::from(usable);
        line.spent.add(&asked.spent);
    }

    fn count(&mut self, evaluation: &Evaluation) {
        let verdict = &evaluation.verdict;
        let message = verdict.reason();
        self.ending(verdict.stage(), message.as_deref());
    }

    fn ending(&mut self, stage: &str, message: Option<&str>) {
        let (count, messages) = self.endings.entry(stage.to_owned()).or_default();
        *count += 1;
        if let Some(message) = message {
            *messages.entry(message.to_owned()).or_default() += 1;
        }
    }

    pub(super) fn story(mut self, run: &StoredRun, graph: &RunGraph, top: usize) -> Story {
        let path = self.path(graph);
        let cost = |ranked: &Ranked| ranked.time.get() / ranked.factor;
        self.ranked.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        self.ranked.truncate(top);
        let mut funnel: Vec<Ending> = self
            .endings
            .into_iter()
            .map(|(stage, (count, messages))| {
                let mostly = messages.into_iter().max_by_key(|(_, count)| *count);
                Ending {
                    stage,
                    count,
                    mostly: mostly.map(|(message, _)| message),
                }
            })
            .collect();
        funnel.sort_by_key(|ending| std::cmp::Reverse(ending.count));
        Story {
            config: run.config.clone(),
            ended: self.ended,
            elapsed_ms: run.lines.last().map_or(0, |line| line.elapsed_ms),
            evaluations: self.evaluations,
            estimated_only: self.estimated.len() as u64,
            funnel,
            asked: self.asked.into_values().collect(),
            path,
            improvements: self.improvements,
            retimed: self.retimed,
            top: self.ranked,
            sources: graph
                .nodes()
                .map(|(id, node)| {
                    let counts = self.counts.get(&id).copied().unwrap_or_default();
                    SourceLine {
                        node: id,
                        parents: node.parents.clone(),
                        label: node.label.clone(),
                        evaluations: counts.judged,
                        valid: counts.valid,
                        best: counts.best,
                        estimated: node.estimated,
                    }
                })
                .collect(),
            winner: self.winner,
        }
    }

    /// From the first kernel through every edit to the winner's source, then the knobs moved there.
    fn path(&self, graph: &RunGraph) -> Vec<Step> {
        let Some(winner) = &self.winner else {
            return Vec::new();
        };
        let mut steps = Vec::new();
        // where the run had another denominator, the seed was judged as every source was
        let mut before = self.seed.or_else(|| {
            let (id, _) = graph.nodes().find(|(_, node)| node.label == "seed")?;
            self.defaults.get(&id).copied()
        });
        if let Some(time) = before {
            steps.push(Step {
                what: "seed".into(),
                time: Some(time),
                gain: None,
                rationale: None,
            });
        }
        let mut step = |what: String, time: Option<Nanos>, rationale: Option<String>| {
            let gain = before
                .zip(time)
                .map(|(before, time)| before.get() / time.get());
            before = time.or(before);
            steps.push(Step {
                what,
                time,
                gain,
                rationale,
            });
        };
        for (id, node) in graph
            .lineage(winner.node)
            .into_iter()
            .filter_map(|id| Some((id, graph.node(id)?)))
        {
            if node.label != "seed" {
                let what = format!("{}, knobs at their defaults", node.label);
                step(
                    what,
                    self.defaults.get(&id).copied(),
                    node.rationale.clone(),
                );
            }
        }
        let moved = graph
            .node(winner.node)
            .map(|node| moved(&node.source, &winner.setting))
            .unwrap_or_default();
        if !moved.is_empty() {
            step(moved, Some(winner.measurement.time.nanos()), None);
        }
        steps
    }
}

fn is_default(source: &crate::source::Source, setting: &Setting) -> bool {
    source
        .space()
        .knobs()
        .iter()
        .all(|knob| setting.get(&knob.name) == Some(default(knob)))
}
