//! Takes fences away that order nothing: one that another stands for on every path to it, with nothing between that
//! it would order, and one that such a fence follows before anything could have needed it.

use super::asynchronous::{factors_of, is_product, is_register_only, sums_of};
use super::change::{Change, Subject, line_of};
use super::kernel::Kernel;
use super::memory::{Effect, effect};
use crate::ptx::edit::Edit;
use crate::ptx::ir::{Immediate, Instruction, Operand};

use std::collections::{BTreeMap, BTreeSet};

pub(super) fn changes(subject: &Subject<'_>) -> Vec<Change> {
    let mut edits = Vec::new();
    for kernel in subject.kernels() {
        edits.extend(redundant(&kernel).into_iter().map(|index| Edit {
            span: line_of(subject, kernel.instruction(index).span),
            replacement: String::new(),
        }));
    }
    if edits.is_empty() {
        return Vec::new();
    }
    vec![Change {
        label: "redundant fences".to_owned(),
        rationale: format!(
            "{} fences order nothing that another fence does not.",
            edits.len()
        ),
        edits,
    }]
}

/// Fences that may go together.
fn redundant(kernel: &Kernel<'_>) -> BTreeSet<usize> {
    let mut gone = BTreeSet::new();
    let kinds: BTreeSet<Fence<'_>> = (kernel.cfg.instructions.iter())
        .filter_map(|instruction| Fence::of(instruction))
        .collect();
    for kind in kinds {
        if matches!(kind, Fence::Registers) && !products_keep_order(kernel) {
            continue;
        }
        // First those that come too early, so that what is left stands for them.
        gone.extend(repeated_later(kernel, &kind));
        gone.extend(stood_for(kernel, &kind, &gone));
    }
    gone
}

/// A fence that every thread comes to which comes to its place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Fence<'m> {
    /// `wgmma.fence`: registers between ordinary instructions and products.
    Registers,
    /// `fence.proxy.async…`, with what it names of memory: all, where it names none.
    Proxy(Option<&'m str>),
    /// Any other, by its modifiers: only the same stands for it.
    Memory(&'m str, Vec<&'m str>),
}

impl<'m> Fence<'m> {
    fn of(instruction: &'m Instruction) -> Option<Self> {
        if instruction.guard.is_some() {
            return None;
        }
        let modifiers: Vec<&str> = instruction.modifiers.iter().map(String::as_str).collect();
        match (instruction.opcode.as_str(), modifiers.as_slice()) {
            ("wgmma", ["fence", ..]) => Some(Self::Registers),
            ("fence", ["proxy", "async"]) => Some(Self::Proxy(None)),
            ("fence", ["proxy", "async", space]) => Some(Self::Proxy(Some(space))),
            ("fence" | "membar", _) if instruction.operands.is_empty() => {
                Some(Self::Memory(&instruction.opcode, modifiers))
            }
            _ => None,
        }
    }

    /// Whether it orders at least what `other` does.
    fn stands_for(&self, other: &Self) -> bool {
        self == other || matches!((self, other), (Self::Proxy(None), Self::Proxy(_)))
    }

    /// Whether after this instruction a fence before it no longer stands for one of this kind behind it.
    fn is_ended_by(&self, kernel: &Kernel<'_>, index: usize) -> bool {
        let instruction = kernel.instruction(index);
        match self {
            Self::Registers => {
                let access = &kernel.access[index];
                let mut names = access.reads.iter().chain(&access.writes);
                instruction.opcode != "wgmma" && names.any(|name| kernel.in_flight.contains(name))
            }
            // What products do to memory, they do in the other proxy.
            Self::Proxy(_) => {
                !is_register_only(instruction)
                    && !matches!(instruction.opcode.as_str(), "wgmma" | "bra")
            }
            Self::Memory(..) => !is_register_only(instruction) && instruction.opcode != "bra",
        }
    }

    /// Whether this instruction may rely on a fence of this kind before it, so that one behind it comes too late.
    fn is_needed_by(&self, kernel: &Kernel<'_>, index: usize) -> bool {
        let instruction = kernel.instruction(index);
        match self {
            Self::Registers => is_product(instruction),
            Self::Proxy(_) => {
                let ordinary = matches!(
                    effect(kernel, index, &|_| 0),
                    Effect::None | Effect::Read(_) | Effect::Write(_)
                );
                let ordinary = ordinary || instruction.opcode == "stmatrix";
                !ordinary && !is_register_only(instruction)
            }
            Self::Memory(..) => !is_register_only(instruction),
        }
    }
}

/// Fences of this kind that another of the same block follows before anything needs them.
fn repeated_later(kernel: &Kernel<'_>, kind: &Fence<'_>) -> Vec<usize> {
    let mut found = Vec::new();
    for block in &kernel.cfg.blocks {
        // The fence that is open: nothing behind it has needed it yet.
        let mut open = None;
        for index in block.instructions.clone() {
            let own = Fence::of(kernel.instruction(index));
            if own.as_ref() == Some(kind) {
                found.extend(open.replace(index));
            } else if own.is_some_and(|own| own.stands_for(kind)) {
                found.extend(open.take());
            } else if kind.is_needed_by(kernel, index) {
                open = None;
            }
        }
    }
    found
}

/// Fences of this kind that one before them, on every path, stands for. Those in `gone` stand for nothing.
fn stood_for(kernel: &Kernel<'_>, kind: &Fence<'_>, gone: &BTreeSet<usize>) -> Vec<usize> {
    let blocks = &kernel.cfg.blocks;
    let pass = |mut fenced: bool, index: usize| {
        let own = Fence::of(kernel.instruction(index));
        if own.is_some_and(|own| own.stands_for(kind)) {
            fenced |= !gone.contains(&index);
        } else if kind.is_ended_by(kernel, index) {
            fenced = false;
        }
        fenced
    };
    // Whether a fence stands on every path to a block: assumed until a path is found without.
    let mut fenced = vec![true; blocks.len()];
    if let Some(entry) = fenced.first_mut() {
        *entry = false;
    }
    let mut open: Vec<usize> = (0..blocks.len()).collect();
    while let Some(at) = open.pop() {
        let state = blocks[at].instructions.clone().fold(fenced[at], pass);
        for next in blocks[at].successors.iter().map(|next| next.0 as usize) {
            if !state && fenced[next] {
                fenced[next] = false;
                open.push(next);
            }
        }
    }
    let mut found = Vec::new();
    for (block, mut state) in blocks.iter().zip(fenced) {
        for index in block.instructions.clone() {
            let own = Fence::of(kernel.instruction(index));
            let stays = matches!(kind, Fence::Registers) && is_asked_for(kernel, index);
            if state && !stays && own.as_ref() == Some(kind) && !gone.contains(&index) {
                found.push(index);
            }
            state = pass(state, index);
        }
    }
    found
}

/// Whether ptxas puts a `wgmma.fence` back (advisory C7519): products up to the next commit read registers that the
/// products in front of it, in its block, did not just write.
fn is_asked_for(kernel: &Kernel<'_>, fence: usize) -> bool {
    let block = kernel
        .cfg
        .block(kernel.cfg.block_of(fence))
        .instructions
        .clone();
    let instructions = |range: std::ops::Range<usize>| range.map(|index| kernel.instruction(index));
    let before = instructions(block.start..fence).filter(|i| is_product(i));
    let mut known: BTreeSet<&str> = before.flat_map(sums_of).collect();
    let after = instructions(fence + 1..block.end)
        .take_while(|i| !(i.opcode == "wgmma" && i.has("commit_group")));
    let mut products = after.filter(|i| is_product(i)).peekable();
    let none = products.peek().is_none();
    none || products.any(|product| {
        let reads_sums =
            !overwrites(product) && !sums_of(product).iter().all(|sum| known.contains(sum));
        known.extend(sums_of(product));
        reads_sums || !factors_of(product).is_empty()
    })
}

/// Whether products need no fence among themselves: those that share sums have one shape, and no sum is a factor.
fn products_keep_order(kernel: &Kernel<'_>) -> bool {
    let mut shapes: BTreeMap<&str, &[String]> = BTreeMap::new();
    let products = || kernel.cfg.instructions.iter().filter(|i| is_product(i));
    let one_shape = products().all(|product| {
        let sums = sums_of(product);
        sums.into_iter()
            .all(|sum| *shapes.entry(sum).or_insert(&product.modifiers) == product.modifiers)
    });
    let mut factors = products().flat_map(|product| factors_of(product));
    one_shape && factors.all(|factor| !shapes.contains_key(factor))
}

/// Whether a product begins new sums: its fourth operand is the number 0.
fn overwrites(product: &Instruction) -> bool {
    product.operands.get(3) == Some(&Operand::Immediate(Immediate::Int(0)))
}
