//! The search graph: which source grew from which, how often each edge was taken, how good the best below
//! a node is, and whether anything is left to ask there. It is acyclic; it knows no tuner and no policy.
//! Every operation costs what it touches, never the size of the graph.

use std::fmt;

use petgraph::Direction;
use petgraph::acyclic::Acyclic;
use petgraph::data::{Build, DataMapMut};
use petgraph::graph::{EdgeIndex, NodeIndex};
use petgraph::stable_graph::StableDiGraph;
use petgraph::visit::EdgeRef;
use serde::{Deserialize, Serialize};

use crate::units::Nanos;
use crate::verdict::TimeRatio;

/// A node, numbered in order of creation; the root is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The task itself.
    pub const ROOT: Self = Self(0);

    fn index(self) -> NodeIndex {
        NodeIndex::new(self.0 as usize)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// An edge, numbered in order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EdgeId(pub u32);

/// What the graph keeps of a node, beside its content.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Node<T> {
    /// What the graph's owner keeps here.
    pub content: T,
    /// The best cost of this node's own settings.
    pub own: Option<Nanos>,
    /// The best cost here or anywhere below: the max backup of rewards, as costs.
    pub best: Option<Nanos>,
    /// Requests spent here or below, those in flight included.
    pub visits: u32,
    /// Those of them spent on the node itself.
    pub own_visits: u32,
    /// Whether the node itself has something left to ask.
    own_open: bool,
    /// Edges to children that are open.
    open_children: u32,
}

impl<T> Node<T> {
    /// Whether anything is left to ask here or below.
    pub fn is_open(&self) -> bool {
        self.own_open || self.open_children > 0
    }

    /// Whether the node itself has something left to ask.
    pub fn own_open(&self) -> bool {
        self.own_open
    }
}

/// A structural edit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Edge {
    /// `register cap`, `space: tiled`.
    pub label: String,
    /// Descents through it, those in flight included.
    pub visits: u32,
    /// What the cost model expects of the child beside the parent, where it was asked and could say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated: Option<TimeRatio>,
}

/// Why an edge was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// The child is the parent itself or one of its ancestors.
    #[error("the edit leads back to a source it came from")]
    Cycle,
    /// The parent already has this child.
    #[error("the parent already has this child")]
    Known,
}

/// The graph.
#[derive(Clone, Debug)]
pub struct Graph<T> {
    inner: Acyclic<StableDiGraph<Node<T>, Edge, u32>>,
}

impl<T> Graph<T> {
    /// A root and nothing else; the root itself never has anything to ask.
    pub fn new(root: T) -> Self {
        let mut inner = Acyclic::<StableDiGraph<Node<T>, Edge, u32>>::new();
        inner.add_node(Node::new(root, false));
        Self { inner }
    }

    /// Nodes, the root included.
    pub fn len(&self) -> usize {
        self.inner.inner().node_count()
    }

    /// Never: there is a root.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// A node. Ids come from this graph, and nodes are never removed.
    pub fn node(&self, id: NodeId) -> &Node<T> {
        &self.inner.inner()[id.index()]
    }

    /// A node's content, to change.
    pub fn content_mut(&mut self, id: NodeId) -> &mut T {
        &mut self.node_mut(id).content
    }

    /// An edge.
    pub fn edge(&self, id: EdgeId) -> &Edge {
        &self.inner.inner()[EdgeIndex::new(id.0 as usize)]
    }

    /// Where an edge starts and ends. Ids come from this graph, and edges are never removed.
    pub fn ends(&self, id: EdgeId) -> (NodeId, NodeId) {
        let ends = self
            .inner
            .inner()
            .edge_endpoints(EdgeIndex::new(id.0 as usize));
        let (start, end) = ends.expect("invariant: edges are never removed");
        (node_id(start), node_id(end))
    }

    /// Every node in order of creation.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + use<T> {
        (0..self.len() as u32).map(NodeId)
    }

    /// Edges out of a node with their ends, latest first.
    pub fn children(&self, id: NodeId) -> impl Iterator<Item = (EdgeId, NodeId)> + '_ {
        let edges = self
            .inner
            .inner()
            .edges_directed(id.index(), Direction::Outgoing);
        edges.map(|edge| (edge_id(edge.id()), node_id(edge.target())))
    }

    /// Edges into a node with their starts, latest first.
    pub fn parents(&self, id: NodeId) -> impl Iterator<Item = (EdgeId, NodeId)> + '_ {
        let edges = self
            .inner
            .inner()
            .edges_directed(id.index(), Direction::Incoming);
        edges.map(|edge| (edge_id(edge.id()), node_id(edge.source())))
    }

    /// The edges from the root to a node by way of each node's first parent: how it came to be.
    pub fn lineage(&self, id: NodeId) -> Vec<EdgeId> {
        let mut edges = Vec::new();
        let mut at = id;
        while let Some((edge, parent)) = self.parents(at).min() {
            edges.push(edge);
            at = parent;
        }
        edges.reverse();
        edges
    }

    /// Grows a new, open node.
    pub fn grow(
        &mut self,
        parent: NodeId,
        content: T,
        label: String,
        estimated: Option<TimeRatio>,
    ) -> NodeId {
        let child = node_id(self.inner.add_node(Node::new(content, true)));
        self.link(parent, child, label, estimated)
            .expect("invariant: an edge to a fresh node closes no cycle");
        child
    }

    /// Adds an edge between known nodes, or says why not.
    pub fn link(
        &mut self,
        parent: NodeId,
        child: NodeId,
        label: String,
        estimated: Option<TimeRatio>,
    ) -> Result<EdgeId, Refused> {
        if self
            .inner
            .inner()
            .contains_edge(parent.index(), child.index())
        {
            return Err(Refused::Known);
        }
        let edge = Edge {
            label,
            visits: 0,
            estimated,
        };
        let added = self.inner.try_add_edge(parent.index(), child.index(), edge);
        let added = added.map_err(|_| Refused::Cycle)?;
        let (best, open) = (self.node(child).best, self.node(child).is_open());
        if open {
            self.count_open_child(parent, 1);
        }
        if let Some(best) = best {
            self.back_up(parent, best);
        }
        Ok(edge_id(added))
    }

    /// Counts a request: one visit for every edge of the path, every node on it, and its end itself.
    pub fn visit(&mut self, path: &[EdgeId]) {
        self.node_mut(NodeId::ROOT).visits += 1;
        let mut end = NodeId::ROOT;
        for &edge in path {
            (_, end) = self.ends(edge);
            let weight = self.inner.edge_weight_mut(EdgeIndex::new(edge.0 as usize));
            weight.expect("invariant: edges are never removed").visits += 1;
            self.node_mut(end).visits += 1;
        }
        self.node_mut(end).own_visits += 1;
    }

    /// A setting of this node was valid: backs its cost up as far as it improves.
    pub fn improve(&mut self, id: NodeId, cost: Nanos) {
        let node = self.node_mut(id);
        if node.own.is_none_or(|own| cost < own) {
            node.own = Some(cost);
            self.back_up(id, cost);
        }
    }

    /// Says whether the node itself has something left to ask; closes or opens what hangs on that.
    pub fn set_own_open(&mut self, id: NodeId, open: bool) {
        let node = self.node_mut(id);
        let before = node.is_open();
        node.own_open = open;
        let after = node.is_open();
        if before != after {
            self.tell_parents(id, if after { 1 } else { -1 });
        }
    }

    /// Lowers `best` here and above while that improves anything. Idempotent, whatever the path.
    fn back_up(&mut self, id: NodeId, cost: Nanos) {
        let mut work = vec![id];
        while let Some(id) = work.pop() {
            let node = self.node_mut(id);
            if node.best.is_none_or(|best| cost < best) {
                node.best = Some(cost);
                work.extend(self.parents(id).map(|(_, parent)| parent));
            }
        }
    }

    fn count_open_child(&mut self, id: NodeId, change: i32) {
        let node = self.node_mut(id);
        let before = node.is_open();
        node.open_children = node.open_children.saturating_add_signed(change);
        if before != node.is_open() {
            self.tell_parents(id, change);
        }
    }

    fn tell_parents(&mut self, id: NodeId, change: i32) {
        let parents: Vec<NodeId> = self.parents(id).map(|(_, parent)| parent).collect();
        for parent in parents {
            self.count_open_child(parent, change);
        }
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node<T> {
        self.inner
            .node_weight_mut(id.index())
            .expect("invariant: nodes are never removed")
    }
}

impl<T> Node<T> {
    fn new(content: T, own_open: bool) -> Self {
        Self {
            content,
            own: None,
            best: None,
            visits: 0,
            own_visits: 0,
            own_open,
            open_children: 0,
        }
    }
}

fn node_id(index: NodeIndex) -> NodeId {
    NodeId(index.index() as u32)
}

fn edge_id(index: EdgeIndex) -> EdgeId {
    EdgeId(index.index() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(time: f64) -> Nanos {
        Nanos::new(time).expect("a positive time")
    }

    fn best(graph: &Graph<()>, id: NodeId) -> Option<f64> {
        graph.node(id).best.map(Nanos::get)
    }

    /// root → a → c → e, root → b → d, and d → e: e is reached along two paths.
    fn diamond() -> (Graph<()>, [NodeId; 5]) {
        let mut graph = Graph::new(());
        let a = graph.grow(NodeId::ROOT, (), "a".into(), None);
        let b = graph.grow(NodeId::ROOT, (), "b".into(), None);
        let c = graph.grow(a, (), "c".into(), None);
        let d = graph.grow(b, (), "d".into(), None);
        let e = graph.grow(c, (), "e".into(), None);
        graph.link(d, e, "meets e".into(), None).expect("no cycle");
        (graph, [a, b, c, d, e])
    }

    #[test]
    fn the_best_below_reaches_every_ancestor_and_never_worsens() {
        let (mut graph, [a, b, c, d, e]) = diamond();
        graph.improve(c, ns(50.0));
        assert_eq!(
            [a, b, c, d, e].map(|id| best(&graph, id)),
            [Some(50.0), None, Some(50.0), None, None]
        );
        graph.improve(e, ns(20.0));
        assert_eq!([a, b, c, d, e].map(|id| best(&graph, id)), [Some(20.0); 5]);
        assert_eq!(graph.node(c).own, Some(ns(50.0)));
        graph.improve(e, ns(30.0));
        graph.improve(b, ns(25.0));
        assert_eq!([a, b, c, d, e].map(|id| best(&graph, id)), [Some(20.0); 5]);
        assert_eq!(best(&graph, NodeId::ROOT), Some(20.0));
    }

    #[test]
    fn a_late_edge_brings_the_childs_best_along() {
        let mut graph = Graph::new(());
        let a = graph.grow(NodeId::ROOT, (), "a".into(), None);
        let b = graph.grow(NodeId::ROOT, (), "b".into(), None);
        graph.improve(b, ns(7.0));
        graph.link(a, b, "joins".into(), None).expect("no cycle");
        assert_eq!(best(&graph, a), Some(7.0));
    }

    #[test]
    fn a_cycle_and_a_second_edge_are_refused() {
        let (mut graph, [a, b, _, d, e]) = diamond();
        assert_eq!(graph.link(e, a, "back".into(), None), Err(Refused::Cycle));
        assert_eq!(graph.link(a, a, "itself".into(), None), Err(Refused::Cycle));
        assert_eq!(graph.link(b, d, "again".into(), None), Err(Refused::Known));
        assert_eq!(graph.parents(a).count(), 1);
    }

    #[test]
    fn closing_goes_up_when_all_below_is_closed_and_opening_undoes_it() {
        let (mut graph, [a, b, c, d, e]) = diamond();
        for id in [a, b, c, d] {
            graph.set_own_open(id, false);
        }
        assert!([a, b, c, d, e].iter().all(|&id| graph.node(id).is_open()));
        graph.set_own_open(e, false);
        assert!(graph.ids().all(|id| !graph.node(id).is_open()));
        let f = graph.grow(c, (), "f".into(), None);
        let open = |id| graph.node(id).is_open();
        assert_eq!(
            [NodeId::ROOT, a, b, c, d, e, f].map(open),
            [true, true, false, true, false, false, true]
        );
    }

    #[test]
    fn visits_are_counted_on_the_edges_taken_alone() {
        let (mut graph, [a, b, c, d, e]) = diamond();
        let path = graph.lineage(e);
        graph.visit(&path);
        graph.visit(&path[..2]);
        let visits = [NodeId::ROOT, a, b, c, d, e].map(|id| graph.node(id).visits);
        assert_eq!(visits, [2, 2, 0, 2, 0, 1]);
        assert_eq!([c, e].map(|id| graph.node(id).own_visits), [1, 1]);
        assert_eq!(
            path.iter()
                .map(|&edge| graph.edge(edge).visits)
                .collect::<Vec<_>>(),
            [2, 2, 1]
        );
    }

    #[test]
    fn lineage_follows_the_edges_that_made_the_nodes() {
        let (graph, [a, _, c, _, e]) = diamond();
        let ends: Vec<NodeId> = graph
            .lineage(e)
            .iter()
            .map(|&edge| graph.ends(edge).1)
            .collect();
        assert_eq!(ends, [a, c, e]);
    }
}
