//! What became of each node so far: what a proposer is told when it is asked for a child.

use std::collections::HashMap;

use crate::search::{Grown, NodeId};
use crate::source::Setting;
use crate::store::Event;
use crate::units::Nanos;
use crate::verdict::Verdict;

/// Built from events as they are applied; never stored.
#[derive(Clone, Debug, Default)]
pub struct History {
    nodes: HashMap<NodeId, NodeHistory>,
}

#[derive(Clone, Debug, Default)]
struct NodeHistory {
    best: Option<(Setting, Verdict, Nanos)>,
    last: Option<(Setting, Verdict)>,
    tried: Vec<Tried>,
}

/// An edit of a node and where it led.
#[derive(Clone, Debug)]
struct Tried {
    label: String,
    outcome: Led,
}

#[derive(Clone, Debug)]
enum Led {
    To(NodeId),
    Nowhere(String),
}

impl History {
    /// Takes in an event.
    pub(super) fn note(&mut self, event: &Event) {
        match event {
            Event::Evaluated {
                node,
                setting,
                evaluation,
                ..
            } => {
                let verdict = &evaluation.verdict;
                let entry = self.nodes.entry(*node).or_default();
                if let Some(measurement) = verdict.measurement() {
                    let time = measurement.time.nanos();
                    if entry.best.as_ref().is_none_or(|(_, _, best)| time < *best) {
                        entry.best = Some((setting.clone(), verdict.clone(), time));
                    }
                }
                entry.last = Some((setting.clone(), verdict.clone()));
            }
            Event::Expanded { node, children, .. } => {
                let tried = children.iter().filter_map(|child| {
                    let outcome = match &child.grown {
                        Grown::New { node } | Grown::Joined { node } => Led::To(*node),
                        Grown::Duplicate { .. } => Led::Nowhere("tried before".to_owned()),
                        Grown::Settings { .. } => return None,
                    };
                    Some(Tried {
                        label: child.label.clone(),
                        outcome,
                    })
                });
                self.nodes.entry(*node).or_default().tried.extend(tried);
            }
            Event::ExpandFailed { node, message, .. } => {
                self.nodes.entry(*node).or_default().tried.push(Tried {
                    label: "an answer that could not be used".to_owned(),
                    outcome: Led::Nowhere(message.clone()),
                });
            }
            Event::Unavailable { .. } | Event::Confirmed { .. } | Event::Finished { .. } => {}
        }
    }

    /// What a proposer hears of a node: its best setting and that one's verdict; the latest failure where
    /// nothing worked yet.
    pub fn feedback(&self, node: NodeId) -> Option<(Setting, Verdict)> {
        let entry = self.nodes.get(&node)?;
        let best = entry
            .best
            .as_ref()
            .map(|(setting, verdict, _)| (setting, verdict));
        let last = entry
            .last
            .as_ref()
            .map(|(setting, verdict)| (setting, verdict));
        best.or(last)
            .map(|(setting, verdict)| (setting.clone(), verdict.clone()))
    }

    /// What was tried on a node and how it ended, oldest first.
    pub fn tried(&self, node: NodeId) -> Vec<(String, String)> {
        let Some(entry) = self.nodes.get(&node) else {
            return Vec::new();
        };
        entry
            .tried
            .iter()
            .map(|tried| {
                let outcome = match &tried.outcome {
                    Led::Nowhere(why) => why.clone(),
                    Led::To(child) => self.outcome(*child),
                };
                (tried.label.clone(), outcome)
            })
            .collect()
    }

    fn outcome(&self, node: NodeId) -> String {
        let entry = self.nodes.get(&node);
        if let Some((_, verdict, time)) = entry.and_then(|entry| entry.best.as_ref()) {
            let label = verdict
                .measurement()
                .map_or("", |measurement| measurement.time.label());
            return format!("correct, {time} ({label})");
        }
        match entry.and_then(|entry| entry.last.as_ref()) {
            Some((_, verdict)) => match verdict.diagnostics().first() {
                Some(diagnostic) => format!("{}: {}", verdict.stage(), diagnostic.message),
                None => verdict.stage().to_owned(),
            },
            None => "not judged yet".to_owned(),
        }
    }
}
