//! Which registers are wanted later: basic blocks with where control goes from each, and the walk backwards over them.
//! What an instruction takes away from the wanted ones and adds to them, whoever asks says.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::op::Instr;

/// A basic block, as whoever asks divides the code.
pub(super) struct Block {
    pub pcs: Range<usize>,
    /// Where control may go next.
    next: Vec<usize>,
}

impl Block {
    pub fn new(code: &[Instr], pcs: Range<usize>) -> Self {
        let mut next = Vec::new();
        let mut falls_through = true;
        for pc in pcs.clone() {
            if let Some(targets) = code[pc].sends_to() {
                next.extend(targets.iter().map(|target| *target as usize));
                falls_through &= pc + 1 != pcs.end || code[pc].guard.is_some();
            }
        }
        if falls_through {
            next.push(pcs.end);
        }
        Self { pcs, next }
    }
}

/// Registers wanted after each block. `step_back`: from what is wanted after an instruction to what is before it.
pub(super) fn wanted_after(
    blocks: &[Block],
    step_back: impl Fn(usize, &mut HashSet<u32>),
) -> Vec<HashSet<u32>> {
    let starts = blocks.iter().map(|block| block.pcs.start);
    let at: HashMap<usize, usize> = starts.zip(0..).collect();
    let after = |block: &Block, before: &[HashSet<u32>]| -> HashSet<u32> {
        let next = block.next.iter().filter_map(|start| at.get(start));
        next.flat_map(|&index| before[index].iter().copied())
            .collect()
    };
    let mut before = vec![HashSet::new(); blocks.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for (index, block) in blocks.iter().enumerate().rev() {
            let mut wanted = after(block, &before);
            for pc in block.pcs.clone().rev() {
                step_back(pc, &mut wanted);
            }
            changed |= wanted != before[index];
            before[index] = wanted;
        }
    }
    blocks.iter().map(|block| after(block, &before)).collect()
}
