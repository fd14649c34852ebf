//! Which kernel stands for the run: the best of those judged, unless a second, full look refuted it. Built
//! from events as they are applied; never stored. It judges nothing.

use std::collections::{HashMap, HashSet};

use crate::search::NodeId;
use crate::source::Point;
use crate::store::Event;

/// Valid kernels and what became of those that were looked at again.
#[derive(Clone, Debug, Default)]
pub struct Contenders {
    /// What each costs: its time over the part of its score that is not time.
    costs: HashMap<(NodeId, Point), f64>,
    /// In the order judged, for ties.
    order: Vec<(NodeId, Point)>,
    confirmed: HashSet<(NodeId, Point)>,
    refuted: HashSet<(NodeId, Point)>,
}

impl Contenders {
    /// Takes in an event.
    pub(super) fn note(&mut self, event: &Event) {
        match event {
            Event::Evaluated {
                node,
                point,
                evaluation,
                ..
            } => {
                if let Some(cost) = evaluation.cost() {
                    let key = (*node, point.clone());
                    self.costs.insert(key.clone(), cost);
                    self.order.push(key);
                }
            }
            Event::Confirmed {
                node,
                point,
                evaluation,
                ..
            } => {
                let key = (*node, point.clone());
                if evaluation.verdict.measurement().is_some() {
                    self.confirmed.insert(key);
                } else {
                    self.refuted.insert(key);
                }
            }
            Event::Expanded { .. }
            | Event::ExpandFailed { .. }
            | Event::Away { .. }
            | Event::Unavailable { .. }
            | Event::Finished { .. } => {}
        }
    }

    /// The best that is not refuted; `None` where it is confirmed already, where there is none, and after
    /// `most` refutations: then the judge that the search relied on is not to be trusted.
    pub(super) fn unconfirmed(&self, most: usize) -> Option<(NodeId, Point)> {
        if self.refuted.len() >= most {
            return None;
        }
        let best = self
            .order
            .iter()
            .filter(|key| !self.refuted.contains(key))
            .min_by(|a, b| self.costs[*a].total_cmp(&self.costs[*b]))?;
        (!self.confirmed.contains(best)).then(|| best.clone())
    }
}
