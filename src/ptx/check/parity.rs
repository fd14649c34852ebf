//! Loops that go round a ring of mbarriers and wait for the same parity each time: the second round finds the first
//! one's phase over.

use std::collections::{BTreeSet, HashSet};

use petgraph::algo::dominators::simple_fast;
use petgraph::graph::{DiGraph, NodeIndex};

use super::{Context, Findings};
use crate::ptx::cfg::Cfg;
use crate::ptx::ir::{Immediate, Instruction, Operand};
use crate::ptx::scope::Symbol;
use crate::verdict::Severity;

pub(super) fn lint(context: &Context<'_>, findings: &mut Findings) {
    let waits: Vec<usize> = (0..context.cfg.instructions.len())
        .filter(|index| waits_for_parity(context.cfg.instructions[*index]))
        .collect();
    if waits.is_empty() {
        return;
    }
    let loops = loops(&context.cfg);
    for &wait in &waits {
        let block = context.cfg.block_of(wait).0 as usize;
        let around = loops.iter().filter(|blocks| blocks.contains(&block));
        let mut rounds = around.filter(|blocks| goes_round(context, wait, blocks));
        if rounds.next().is_some() {
            let parity = &context.cfg.instructions[wait].operands[2];
            let name = match parity {
                Operand::Name(name) => format!("`{name}`"),
                _ => "a number".to_owned(),
            };
            findings.add(
                Severity::Warning,
                "parity-kept",
                context.cfg.instructions[wait].span,
                format!(
                    "the loop goes round a ring of barriers and waits for the same parity each time: {name} does not change in it"
                ),
                "flip the parity each time the ring begins again: `xor.b32 parity, parity, 1`",
            );
        }
    }
}

/// Whether the barrier's place comes back to where it was within a loop that leaves the parity alone.
fn goes_round(context: &Context<'_>, wait: usize, blocks: &BTreeSet<usize>) -> bool {
    let cfg = &context.cfg;
    let inside: Vec<usize> = (blocks.iter())
        .flat_map(|block| cfg.blocks[*block].instructions.clone())
        .collect();
    let symbol = |index: usize, name: &str| context.body.resolve(context.scopes[index], name);
    let writers = |wanted: Symbol| -> Vec<usize> {
        let writes = |index: &usize| {
            let mut names = context.accesses[*index].writes.iter();
            names.any(|name| symbol(*index, name) == Some(wanted))
        };
        inside.iter().copied().filter(writes).collect()
    };
    // Barriers made anew begin anew.
    let made = |index: &usize| {
        let instruction = cfg.instructions[*index];
        instruction.opcode == "mbarrier" && instruction.has("init")
    };
    let [_, Operand::Address(address), parity] =
        cfg.instructions[wait].operands.get(..3).unwrap_or_default()
    else {
        return false;
    };
    let kept = match parity {
        Operand::Name(name) => symbol(wait, name).is_some_and(|parity| writers(parity).is_empty()),
        Operand::Immediate(Immediate::Int(_)) => inside.iter().all(|index| {
            let other = cfg.instructions[*index];
            !waits_for_parity(other) || other.operands[2] == *parity
        }),
        _ => false,
    };
    if !kept || inside.iter().any(made) {
        return false;
    }
    // What the address is computed from in the loop.
    let mut seen: HashSet<Symbol> = HashSet::new();
    let mut open: Vec<Symbol> = (address.base.iter())
        .filter_map(|base| symbol(wait, base))
        .collect();
    while let Some(at) = open.pop() {
        if !seen.insert(at) {
            continue;
        }
        let writers = writers(at);
        for &writer in &writers {
            if writers.len() > 1 && begins_again(cfg.instructions[writer])
                || divides(cfg.instructions[writer])
            {
                return true;
            }
            let reads = context.accesses[writer].reads.iter();
            open.extend(reads.filter_map(|name| symbol(writer, name)));
        }
    }
    false
}

/// `mov stage, 0` beside what moves it on.
fn begins_again(instruction: &Instruction) -> bool {
    let number = |at: usize| {
        matches!(
            instruction.operands.get(at),
            Some(Operand::Immediate(Immediate::Int(_)))
        )
    };
    match instruction.opcode.as_str() {
        "mov" => number(1),
        "selp" => number(1) || number(2),
        _ => false,
    }
}

/// `rem stage, turn, 4`.
fn divides(instruction: &Instruction) -> bool {
    instruction.opcode == "rem"
}

fn waits_for_parity(instruction: &Instruction) -> bool {
    instruction.opcode == "mbarrier"
        && instruction.has("parity")
        && (instruction.has("try_wait") || instruction.has("test_wait"))
        && instruction.operands.len() >= 3
}

/// The blocks of each loop of more than one block: those on the way back to a block that all of them come through.
fn loops(cfg: &Cfg<'_>) -> Vec<BTreeSet<usize>> {
    let mut graph = DiGraph::<(), ()>::new();
    let nodes: Vec<NodeIndex> = cfg.blocks.iter().map(|_| graph.add_node(())).collect();
    for (block, &node) in cfg.blocks.iter().zip(&nodes) {
        for successor in &block.successors {
            graph.add_edge(node, nodes[successor.0 as usize], ());
        }
    }
    let Some(&entry) = nodes.first() else {
        return Vec::new();
    };
    let dominators = simple_fast(&graph, entry);
    let dominates = |above: NodeIndex, below: NodeIndex| {
        let mut chain = dominators.dominators(below).into_iter().flatten();
        chain.any(|node| node == above)
    };
    let mut found = Vec::new();
    for (from, block) in cfg.blocks.iter().enumerate() {
        for to in block.successors.iter().map(|to| to.0 as usize) {
            if from == to || !dominates(nodes[to], nodes[from]) {
                continue;
            }
            let mut blocks = BTreeSet::from([to]);
            let mut open = vec![from];
            while let Some(at) = open.pop() {
                if blocks.insert(at) {
                    let before = cfg.blocks[at].predecessors.iter();
                    open.extend(before.map(|before| before.0 as usize));
                }
            }
            found.push(blocks);
        }
    }
    found
}
