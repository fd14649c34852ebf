//! Which kernel stands for the run: the best of those judged by their latest times, unless a second, full look
//! refuted it. Built from events as they are applied; never stored. It judges nothing.

use std::collections::{HashMap, HashSet};

use crate::evaluate::Evaluation;
use crate::search::NodeId;
use crate::source::Point;
use crate::store::Event;
use crate::units::Digest;

/// A setting of a node.
pub(super) type Key = (NodeId, Point);

/// Valid kernels and what became of those that were looked at again.
#[derive(Clone, Debug, Default)]
pub struct Contenders {
    /// In the order judged, for ties; a setting stands once.
    judged: Vec<Contender>,
    places: HashMap<Key, usize>,
    /// Something valid was judged since the best were last looked at again.
    news: bool,
    confirmed: HashSet<Key>,
    refuted: HashSet<Key>,
}

#[derive(Clone, Debug)]
struct Contender {
    key: Key,
    /// Equal ids are equal kernels, whatever they were rendered from.
    candidate: Option<Digest>,
    /// Its time over `factor`, as the search times it.
    cost: f64,
    /// The part of its score that is not time.
    factor: f64,
    /// What it cost when it was timed again.
    retimed: Option<f64>,
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
            } => self.judged((*node, point.clone()), evaluation),
            Event::Retimed { kernels, .. } => {
                self.news = false;
                for kernel in kernels {
                    let key = (kernel.node, kernel.point.clone());
                    match (self.places.get(&key), kernel.cost()) {
                        (Some(&place), Some(cost)) => {
                            let contender = &mut self.judged[place];
                            contender.retimed = Some(cost);
                            if !kernel.full_load {
                                contender.cost = cost;
                            }
                        }
                        (None, _) | (Some(_), None) => {
                            self.refuted.insert(key);
                        }
                    }
                }
            }
            Event::Confirmed {
                node,
                point,
                evaluation,
                ..
            } => {
                self.news = false;
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

    fn judged(&mut self, key: Key, evaluation: &Evaluation) {
        let (Some(cost), Some(measurement)) = (evaluation.cost(), evaluation.verdict.measurement())
        else {
            return;
        };
        let contender = Contender {
            key: key.clone(),
            candidate: evaluation.candidate,
            cost,
            factor: measurement.score.instructions.factor(),
            retimed: None,
        };
        self.news = true;
        self.places.insert(key, self.judged.len());
        self.judged.push(contender);
    }

    /// The `most` best-looking that differ, best first, each with what its time is divided by to rank it;
    /// none where there is nothing to tell apart, and where it was told before.
    pub(super) fn to_race(&self, most: usize) -> Vec<(Key, f64)> {
        if !self.news {
            return Vec::new();
        }
        let mut best: Vec<&Contender> = Vec::new();
        for contender in self.ranked() {
            let known = |other: &&Contender| {
                contender.candidate.is_some() && contender.candidate == other.candidate
            };
            if best.len() < most && contender.cost.is_finite() && !best.iter().any(known) {
                best.push(contender);
            }
        }
        if best.len() < 2 || best.iter().all(|contender| contender.retimed.is_some()) {
            return Vec::new();
        }
        best.into_iter()
            .map(|contender| (contender.key.clone(), contender.factor))
            .collect()
    }

    /// The best that is not refuted, of those timed again where there are any; `None` where it is confirmed
    /// already, where there is none, and after `most` refutations: then the judge that the search relied on
    /// is not to be trusted.
    pub(super) fn unconfirmed(&self, most: usize) -> Option<Key> {
        if self.refuted.len() >= most {
            return None;
        }
        let ranked = self.ranked();
        let retimed = ranked
            .iter()
            .filter_map(|contender| Some((contender.retimed?, contender)))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, contender)| contender);
        let best = &retimed.or(ranked.first())?.key;
        (!self.confirmed.contains(best)).then(|| best.clone())
    }

    /// Those not refuted, best first.
    fn ranked(&self) -> Vec<&Contender> {
        let standing = |contender: &&Contender| !self.refuted.contains(&contender.key);
        let mut ranked: Vec<&Contender> = self.judged.iter().filter(standing).collect();
        ranked.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        ranked
    }
}
