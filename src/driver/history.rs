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
            Event::Away { .. }
            | Event::Unavailable { .. }
            | Event::Retimed { .. }
            | Event::Confirmed { .. }
            | Event::Finished { .. } => {}
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

    /// The edits that led to a node and what became of each. `lineage` is that of the search: from a child of
    /// the root to the node.
    pub fn path(&self, lineage: &[(NodeId, &str)]) -> Vec<(String, String)> {
        let edits = lineage.iter().skip(1);
        edits
            .map(|(node, label)| ((*label).to_owned(), self.outcome(*node)))
            .collect()
    }

    /// What else was tried on the nodes of the path, the last excepted, oldest first.
    pub fn beside(&self, lineage: &[(NodeId, &str)]) -> Vec<(String, String)> {
        let steps = lineage.iter().zip(lineage.iter().skip(1));
        steps
            .flat_map(|((node, _), (taken, _))| {
                let tried = self.nodes.get(node).map_or(&[][..], |entry| &entry.tried);
                tried.iter().filter_map(move |tried| match &tried.outcome {
                    Led::To(child) if child == taken => None,
                    Led::To(child) => Some((tried.label.clone(), self.outcome(*child))),
                    Led::Nowhere(why) => Some((tried.label.clone(), why.clone())),
                })
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
