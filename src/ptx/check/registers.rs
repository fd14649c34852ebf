//! Registers that are read before anything can have written them.

use std::collections::HashMap;

use petgraph::algo::dominators::{Dominators, simple_fast};
use petgraph::graph::{DiGraph, NodeIndex};

use super::{Context, Findings};
use crate::ptx::cfg::{BlockId, Cfg};
use crate::ptx::scope::Symbol;
use crate::verdict::Severity;

/// Reports, once a register, a read that comes before every write on every path: the first time it runs,
/// the register holds nothing. A register that is unwritten on some paths only is not reported, for the
/// branches may exclude each other.
pub(super) fn lint(context: &Context<'_>, findings: &mut Findings) {
    let order = Order::new(&context.cfg);
    let mut registers: HashMap<Symbol, Uses<'_>> = HashMap::new();
    for (index, access) in context.accesses.iter().enumerate() {
        let scope = context.scopes[index];
        for (names, is_read) in [(&access.reads, true), (&access.writes, false)] {
            for name in names {
                if let Some(symbol) = context.body.resolve(scope, name)
                    && context.body.register(symbol).is_some()
                    && !context.body.is_parameter(symbol)
                {
                    let uses = registers.entry(symbol).or_default();
                    match is_read {
                        true => uses.reads.push((index, name)),
                        false => uses.writes.push(index),
                    }
                }
            }
        }
    }
    let mut found: Vec<(usize, &str)> = (registers.values())
        .filter_map(|uses| uses.first_unwritten(&order))
        .collect();
    found.sort_unstable();
    for (index, name) in found {
        findings.add(
            Severity::Warning,
            "uninitialised-register",
            context.cfg.instructions[index].span,
            format!("`{name}` is read here before anything has written it"),
            "write it first; accumulators start at zero with `mov`",
        );
    }
}

#[derive(Default)]
struct Uses<'m> {
    reads: Vec<(usize, &'m str)>,
    writes: Vec<usize>,
}

impl<'m> Uses<'m> {
    fn first_unwritten(&self, order: &Order<'_>) -> Option<(usize, &'m str)> {
        (self.reads.iter().copied()).find(|&(read, _)| {
            order.reaches(read) && self.writes.iter().all(|&w| order.after(w, read))
        })
    }
}

/// Which instruction certainly runs before which.
struct Order<'c> {
    cfg: &'c Cfg<'c>,
    dominators: Option<Dominators<NodeIndex>>,
    reachable: Vec<bool>,
    /// Distance from the entry in the dominator tree.
    depth: Vec<u32>,
}

impl<'c> Order<'c> {
    fn new(cfg: &'c Cfg<'c>) -> Self {
        let mut graph = DiGraph::<(), ()>::new();
        let nodes: Vec<NodeIndex> = cfg.blocks.iter().map(|_| graph.add_node(())).collect();
        for (block, &node) in cfg.blocks.iter().zip(&nodes) {
            for successor in &block.successors {
                graph.add_edge(node, nodes[successor.0 as usize], ());
            }
        }
        let dominators = nodes.first().map(|&entry| simple_fast(&graph, entry));
        let depth = (nodes.iter())
            .map(|&node| {
                let chain = dominators.as_ref().and_then(|d| d.dominators(node));
                chain.map_or(0, |chain| chain.count() as u32)
            })
            .collect();
        Self {
            cfg,
            dominators,
            reachable: cfg.reachable(),
            depth,
        }
    }

    fn reaches(&self, instruction: usize) -> bool {
        self.reachable[self.cfg.block_of(instruction).0 as usize]
    }

    /// Whether `write` can only run once `read` has: `read` stands on every path to it, or is it.
    fn after(&self, write: usize, read: usize) -> bool {
        let (of_write, of_read) = (self.cfg.block_of(write), self.cfg.block_of(read));
        if of_write == of_read {
            return write >= read;
        }
        !self.reachable[of_write.0 as usize] || self.dominates(of_read, of_write)
    }

    fn dominates(&self, above: BlockId, below: BlockId) -> bool {
        let Some(dominators) = &self.dominators else {
            return false;
        };
        let wanted = self.depth[above.0 as usize];
        let mut at = below;
        while self.depth[at.0 as usize] > wanted {
            match dominators.immediate_dominator(NodeIndex::new(at.0 as usize)) {
                Some(node) => at = BlockId(node.index() as u32),
                None => return false,
            }
        }
        at == above
    }
}
