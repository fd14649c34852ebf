//! A search as reports, run folders and tests read it. It changes nothing.

use std::sync::Arc;

use super::Search;
use crate::search::graph::NodeId;
use crate::search::params::SearchParams;
use crate::search::policy::source;
use crate::search::request::Ticket;
use crate::search::tuner::Trial;
use crate::source::{Point, Source};
use crate::units::{Digest, Nanos};

/// A node as reports read it.
#[derive(Clone, Debug)]
pub struct NodeView<'a> {
    /// Its number, in order of creation.
    pub id: NodeId,
    /// Where it grew from; more than one where edits met.
    pub parents: Vec<NodeId>,
    /// What made it.
    pub label: &'a str,
    /// Its text.
    pub source: &'a Arc<Source>,
    /// Its own best setting that did not fail.
    pub best: Option<&'a Trial>,
    /// The best cost here or below.
    pub best_below: Option<Nanos>,
    /// Evaluations judged.
    pub evaluations: u32,
    /// Those that were valid.
    pub valid: u32,
    /// Its settings in the order asked.
    pub trials: &'a [Trial],
    /// Whether anything is left to try here or below.
    pub open: bool,
}

impl Search {
    /// The parameters it runs with.
    pub fn params(&self) -> &SearchParams {
        &self.params
    }

    /// Evaluations judged so far.
    pub fn evaluations(&self) -> u32 {
        self.progress.judged
    }

    /// Requests in flight, oldest first.
    pub fn in_flight(&self) -> impl Iterator<Item = Ticket> + '_ {
        self.flights.keys().copied()
    }

    /// The node and setting of the best evaluation so far, and its cost.
    pub fn best(&self) -> Option<(NodeId, &Point, Nanos)> {
        let (node, cost) = self.best?;
        let point = &self.source_state(node)?.tuner.best()?.point;
        Some((node, point, cost))
    }

    /// A node's source; `None` for the root and for numbers that no node has.
    pub fn source(&self, id: NodeId) -> Option<&Arc<Source>> {
        self.source_state(id).map(|state| &state.source)
    }

    /// A node, for reports; `None` for the root and for numbers that no node has.
    pub fn node(&self, id: NodeId) -> Option<NodeView<'_>> {
        let state = self.source_state(id)?;
        let node = self.graph.node(id);
        let mut parents: Vec<NodeId> = self.graph.parents(id).map(|(_, parent)| parent).collect();
        parents.sort_unstable();
        Some(NodeView {
            id,
            parents,
            label: &state.label,
            source: &state.source,
            best: state.tuner.best(),
            best_below: node.best,
            evaluations: state.tuner.judged() as u32,
            valid: state.valid,
            trials: state.tuner.trials(),
            open: node.is_open(),
        })
    }

    /// Every node but the root, in order of creation.
    pub fn nodes(&self) -> impl Iterator<Item = NodeView<'_>> {
        self.graph.ids().filter_map(|id| self.node(id))
    }

    /// How a node came to be: the edits from the root's child to it, each with the node it led to.
    pub fn lineage(&self, id: NodeId) -> Vec<(NodeId, &str)> {
        let mut steps: Vec<(NodeId, &str)> = Vec::new();
        if (id.0 as usize) < self.graph.len() {
            let edges = self.graph.lineage(id);
            steps.extend(edges.into_iter().map(|edge| {
                let (_, end) = self.graph.ends(edge);
                (end, self.graph.edge(edge).label.as_str())
            }));
        }
        steps
    }

    /// A hash of everything that later choices depend on: equal states, equal futures.
    pub fn fingerprint(&self) -> Digest {
        let nodes: Vec<_> = self
            .graph
            .ids()
            .map(|id| {
                let node = self.graph.node(id);
                let state = source(node).map(|state| {
                    (
                        (&state.label, state.source.digest(), state.tuner.state()),
                        (state.valid, state.origin, state.rewrites, state.model),
                        (state.repairs, state.granted, state.tune_gain, state.limit),
                        state.begun,
                        (state.asked_here, &state.guesses),
                    )
                });
                let mut edges: Vec<_> = self
                    .graph
                    .children(id)
                    .map(|(edge, child)| (edge, child, self.graph.edge(edge)))
                    .collect();
                edges.sort_unstable_by_key(|&(edge, _, _)| edge);
                let counts = (node.own, node.best, node.visits, node.own_visits);
                (counts, node.own_open(), node.is_open(), state, edges)
            })
            .collect();
        let flights: Vec<_> = self.flights.iter().collect();
        let state = (
            (&self.params, self.seed, self.expanders, self.asked),
            (
                &self.waiting,
                &self.expected,
                &self.on_trial,
                flights,
                self.evaluations_in_flight,
                self.sifted,
            ),
            (&self.progress, self.best, nodes),
        );
        let bytes = serde_json::to_vec(&state);
        Digest::of(bytes.expect("invariant: the state has no map with odd keys"))
    }
}
