//! The graph of a stored run, read from its events alone: what each node is, where it grew from. Reading a
//! run never runs the engine, so a run stays readable whatever becomes of the engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Event, StoreError, StoredRun};
use crate::search::{Grown, NodeId};
use crate::source::Source;
use crate::units::Digest;
use crate::verdict::TimeRatio;

/// The nodes of a stored run.
#[derive(Clone, Debug)]
pub struct RunGraph {
    nodes: BTreeMap<NodeId, StoredNode>,
}

/// A node.
#[derive(Clone, Debug)]
pub struct StoredNode {
    /// What made it: `seed`, `space tiled`, an edit's name.
    pub label: String,
    /// Where it grew from, the first parent first; empty under the root.
    pub parents: Vec<NodeId>,
    /// Its source text in the object store.
    pub digest: Digest,
    /// Its source.
    pub source: Arc<Source>,
    /// What its proposer said.
    pub rationale: Option<String>,
    /// What the cost model expected of it beside its first parent, where it was asked and could say.
    pub estimated: Option<TimeRatio>,
}

impl RunGraph {
    /// Reads the nodes of `run`.
    pub fn read(run: &StoredRun) -> Result<Self, StoreError> {
        let load = |digest: Digest| -> Result<Arc<Source>, StoreError> {
            let text = run.objects.text(digest)?;
            let source = Source::parse(&text).map_err(|error| StoreError::Damaged {
                path: run.folder.clone(),
                what: format!("stored source {} does not parse: {error}", digest.short()),
            })?;
            Ok(Arc::new(source))
        };
        let mut nodes = BTreeMap::new();
        for root in &run.config.roots {
            nodes.entry(root.node).or_insert(StoredNode {
                label: root.label.clone(),
                parents: Vec::new(),
                digest: root.source,
                source: load(root.source)?,
                rationale: None,
                estimated: None,
            });
        }
        for line in &run.lines {
            let Event::Expanded {
                node: parent,
                children,
                ..
            } = &line.event
            else {
                continue;
            };
            for child in children {
                match child.grown {
                    Grown::New { node } => {
                        let grown = StoredNode {
                            label: child.label.clone(),
                            parents: vec![*parent],
                            digest: child.source,
                            source: load(child.source)?,
                            rationale: child.rationale.clone(),
                            estimated: child.estimated,
                        };
                        nodes.insert(node, grown);
                    }
                    Grown::Joined { node } => {
                        if let Some(known) = nodes.get_mut(&node) {
                            known.parents.push(*parent);
                        }
                    }
                    Grown::Settings { .. } | Grown::Duplicate { .. } => {}
                }
            }
        }
        Ok(Self { nodes })
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> Option<&StoredNode> {
        self.nodes.get(&id)
    }

    /// All of them, in order of creation.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &StoredNode)> {
        self.nodes.iter().map(|(id, node)| (*id, node))
    }

    /// From a child of the root to `id`, by first parents.
    pub fn lineage(&self, id: NodeId) -> Vec<NodeId> {
        let mut path = vec![id];
        let mut at = id;
        while let Some(parent) = self.nodes.get(&at).and_then(|node| node.parents.first()) {
            if path.contains(parent) {
                break;
            }
            path.push(*parent);
            at = *parent;
        }
        path.reverse();
        path
    }
}
