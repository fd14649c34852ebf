//! A function's control flow: its instructions in one list, basic blocks, where branches go, and where
//! lanes that part meet again (the immediate post-dominator). Nested scopes are flattened; labels are
//! resolved in the scope of the branch. It knows which instructions move the program counter, nothing else.

use std::collections::HashMap;
use std::ops::Range;

use petgraph::algo::dominators::simple_fast;
use petgraph::graph::{DiGraph, NodeIndex};

use super::ir::{Function, Instruction, Operand};
use super::scope::{Body, Flat, ScopeId, Symbol};

/// Index of a basic block in [`Cfg::blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// Straight-line code: entered at its first instruction, left after its last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasicBlock {
    /// Into [`Cfg::instructions`]; never empty.
    pub instructions: Range<usize>,
    /// Where control may go next, in ascending order; empty where the function ends.
    pub successors: Vec<BlockId>,
    /// Where control may come from.
    pub predecessors: Vec<BlockId>,
}

/// A function's control flow graph.
#[derive(Clone, Debug)]
pub struct Cfg<'m> {
    /// Every instruction of the body, in order, nesting removed.
    pub instructions: Vec<&'m Instruction>,
    /// In order of their first instruction; the first is the entry. Empty for a function with no code.
    pub blocks: Vec<BasicBlock>,
    /// Branches to labels that do not exist: instruction index and label.
    pub unresolved: Vec<(usize, String)>,
    targets: Vec<Vec<usize>>,
    block_of: Vec<BlockId>,
    post_dominators: Vec<Option<BlockId>>,
}

impl<'m> Cfg<'m> {
    /// The control flow of `function`; empty for a declaration.
    pub fn new(function: &'m Function) -> Self {
        Self::of_body(&Body::new(function))
    }

    /// The block an instruction is in.
    pub fn block_of(&self, instruction: usize) -> BlockId {
        self.block_of[instruction]
    }

    /// The block with this id.
    pub fn block(&self, id: BlockId) -> &BasicBlock {
        &self.blocks[id.0 as usize]
    }

    /// The instructions a branch (`bra`, `brx`) may jump to, as indices; one past the last instruction
    /// where a label ends the body. Empty for all others.
    pub fn targets(&self, instruction: usize) -> &[usize] {
        &self.targets[instruction]
    }

    /// The first block that every path from `block` to the end of the function passes; `None` where
    /// paths meet only at the end, or where there is no end.
    pub fn immediate_post_dominator(&self, block: BlockId) -> Option<BlockId> {
        self.post_dominators[block.0 as usize]
    }

    /// Where lanes that part at this branch meet: an instruction index; `None` for the end.
    pub fn reconvergence(&self, branch: usize) -> Option<usize> {
        let meet = self.immediate_post_dominator(self.block_of(branch))?;
        Some(self.block(meet).instructions.start)
    }

    /// Whether control can come from the entry to `block`, for each block.
    pub fn reachable(&self) -> Vec<bool> {
        let mut seen = vec![false; self.blocks.len()];
        let mut open: Vec<usize> = if self.blocks.is_empty() {
            vec![]
        } else {
            vec![0]
        };
        while let Some(at) = open.pop() {
            if !std::mem::replace(&mut seen[at], true) {
                open.extend(self.blocks[at].successors.iter().map(|s| s.0 as usize));
            }
        }
        seen
    }

    /// Whether the instruction can be followed by the next one in the text.
    pub fn falls_through(instruction: &Instruction) -> bool {
        instruction.guard.is_some() || !(is_branch(instruction) || is_end(instruction))
    }

    pub(super) fn of_body(body: &Body<'m>) -> Self {
        let mut cfg = Self {
            instructions: Vec::new(),
            blocks: Vec::new(),
            unresolved: Vec::new(),
            targets: Vec::new(),
            block_of: Vec::new(),
            post_dominators: Vec::new(),
        };
        let mut scopes = Vec::new();
        // Where each label stands: the index of the instruction that follows it.
        let mut labels = HashMap::new();
        // `ts: .branchtargets $L1, $L2;`
        let mut tables: HashMap<Symbol, (ScopeId, &str)> = Default::default();
        let mut last_label = None;
        for &(scope, flat) in &body.statements {
            let previous_label = last_label.take();
            match flat {
                Flat::Label(declaration) => {
                    let symbol = Symbol {
                        declaration,
                        index: None,
                    };
                    labels.insert(symbol, cfg.instructions.len());
                    last_label = Some(symbol);
                }
                Flat::Instruction(instruction) => {
                    cfg.instructions.push(instruction);
                    scopes.push(scope);
                }
                Flat::Directive(directive) if directive.name == ".branchtargets" => {
                    if let Some(label) = previous_label {
                        tables.insert(label, (scope, directive.arguments.as_str()));
                    }
                }
                Flat::Directive(_) | Flat::Variable(..) => {}
            }
        }
        for (index, instruction) in cfg.instructions.iter().enumerate() {
            let scope = scopes[index];
            let mut found = Vec::new();
            for (scope, name) in target_names(body, instruction, scope, &tables) {
                match body
                    .resolve(scope, name)
                    .and_then(|symbol| labels.get(&symbol))
                {
                    Some(&target) => found.push(target),
                    None => cfg.unresolved.push((index, name.to_owned())),
                }
            }
            cfg.targets.push(found);
        }
        cfg.split();
        cfg.post_dominators = cfg.find_post_dominators();
        cfg
    }

    fn split(&mut self) {
        let count = self.instructions.len();
        let mut leads = vec![false; count + 1];
        leads[0] = true;
        for (index, instruction) in self.instructions.iter().enumerate() {
            leads[index + 1] |= is_branch(instruction) || is_end(instruction);
            for &target in &self.targets[index] {
                leads[target] = true;
            }
        }
        let starts: Vec<usize> = (0..count).filter(|&index| leads[index]).collect();
        for (number, &start) in starts.iter().enumerate() {
            let end = starts.get(number + 1).copied().unwrap_or(count);
            self.blocks.push(BasicBlock {
                instructions: start..end,
                successors: Vec::new(),
                predecessors: Vec::new(),
            });
            self.block_of
                .extend(std::iter::repeat_n(BlockId(number as u32), end - start));
        }
        for number in 0..self.blocks.len() {
            let last = self.blocks[number].instructions.end - 1;
            let next = Self::falls_through(self.instructions[last]).then_some(last + 1);
            let mut successors: Vec<BlockId> = (self.targets[last].iter().copied().chain(next))
                .filter_map(|target| self.block_of.get(target).copied())
                .collect();
            successors.sort_unstable();
            successors.dedup();
            for successor in &successors {
                self.blocks[successor.0 as usize]
                    .predecessors
                    .push(BlockId(number as u32));
            }
            self.blocks[number].successors = successors;
        }
    }

    fn find_post_dominators(&self) -> Vec<Option<BlockId>> {
        let mut reversed =
            DiGraph::<(), ()>::with_capacity(self.blocks.len() + 1, self.blocks.len() * 2);
        let nodes: Vec<NodeIndex> = self.blocks.iter().map(|_| reversed.add_node(())).collect();
        let end = reversed.add_node(());
        for (number, block) in self.blocks.iter().enumerate() {
            for successor in &block.successors {
                reversed.add_edge(nodes[successor.0 as usize], nodes[number], ());
            }
            if self.leaves(block) {
                reversed.add_edge(end, nodes[number], ());
            }
        }
        let dominators = simple_fast(&reversed, end);
        nodes
            .iter()
            .map(|&node| {
                let meet = dominators.immediate_dominator(node)?;
                (meet != end).then_some(BlockId(meet.index() as u32))
            })
            .collect()
    }

    /// Whether the function may end after this block.
    fn leaves(&self, block: &BasicBlock) -> bool {
        let last = block.instructions.end - 1;
        let instruction = self.instructions[last];
        let count = self.instructions.len();
        is_end(instruction)
            || block.successors.is_empty()
            || Self::falls_through(instruction) && last + 1 == count
            || self.targets[last].contains(&count)
    }
}

/// Whether the instruction may jump to a label.
pub(super) fn is_branch(instruction: &Instruction) -> bool {
    matches!(instruction.opcode.as_str(), "bra" | "brx")
}

/// Whether the instruction ends the thread or the function.
pub(super) fn is_end(instruction: &Instruction) -> bool {
    matches!(instruction.opcode.as_str(), "ret" | "exit" | "trap")
}

/// The labels a branch names, each with the scope to look it up in.
fn target_names<'m>(
    body: &Body<'m>,
    instruction: &'m Instruction,
    scope: ScopeId,
    tables: &HashMap<Symbol, (ScopeId, &'m str)>,
) -> Vec<(ScopeId, &'m str)> {
    if !is_branch(instruction) {
        return Vec::new();
    }
    let Some(Operand::Name(name)) = instruction.operands.last() else {
        return Vec::new();
    };
    let table = body
        .resolve(scope, name)
        .and_then(|symbol| tables.get(&symbol));
    match table {
        Some(&(scope, list)) if instruction.opcode == "brx" => {
            list.split(',').map(|label| (scope, label.trim())).collect()
        }
        Some(_) | None => vec![(scope, name)],
    }
}
