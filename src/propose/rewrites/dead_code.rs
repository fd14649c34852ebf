//! Takes instructions away that cannot run or whose results nothing needs: what is left is easier on the
//! eye, and on every other rewrite.

use std::collections::HashSet;

use super::change::{Change, Subject, line_of};
use super::kernel::Kernel;
use super::memory::{Effect, effect, is_pure};
use crate::ptx::edit::Edit;

pub(super) fn changes(subject: &Subject<'_>) -> Vec<Change> {
    let mut edits = Vec::new();
    for kernel in subject.kernels() {
        edits.extend(dead(&kernel).into_iter().map(|index| Edit {
            span: line_of(subject, kernel.instruction(index).span),
            replacement: String::new(),
        }));
    }
    if edits.is_empty() {
        return Vec::new();
    }
    vec![Change {
        label: "dead code".to_owned(),
        rationale: format!("{} instructions have no effect.", edits.len()),
        edits,
    }]
}

/// Indices of instructions without effect.
fn dead(kernel: &Kernel<'_>) -> Vec<usize> {
    let reachable = kernel.cfg.reachable();
    let runs = |index: usize| reachable[kernel.cfg.block_of(index).0 as usize];
    let count = kernel.cfg.instructions.len();
    // Needed for its own sake: whatever does more than leave a result in a register.
    let only_computes = |index: usize| {
        let instruction = kernel.instruction(index);
        let loads = instruction.opcode == "ld"
            && matches!(
                effect(kernel, index, &|_| 0),
                Effect::None | Effect::Read(_)
            );
        (is_pure(instruction) || loads) && !kernel.access[index].writes.is_empty()
    };
    let mut needed: Vec<bool> = (0..count)
        .map(|index| runs(index) && !only_computes(index))
        .collect();
    let mut open: Vec<usize> = (0..count).filter(|index| needed[*index]).collect();
    let mut wanted: HashSet<&str> = HashSet::new();
    while let Some(index) = open.pop() {
        for name in &kernel.access[index].reads {
            if !wanted.insert(name) {
                continue;
            }
            for &writer in kernel.writers.get(name).into_iter().flatten() {
                if runs(writer) && !needed[writer] {
                    needed[writer] = true;
                    open.push(writer);
                }
            }
        }
    }
    // The last instruction stays: a function that seems to run past its end is refused.
    (0..count.saturating_sub(1))
        .filter(|index| !needed[*index])
        .collect()
}
