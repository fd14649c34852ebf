//! Puts the instructions of a short branch under its predicate: `@p bra $L; x; y; $L:` becomes `@!p x; @!p
//! y;`. What neighbours compute can then be reordered, unrolled and joined. Instructions in which lanes meet
//! stay behind their branch; what only the branch itself uses needs no predicate.

use super::change::{Change, Subject, line_of};
use super::kernel::Kernel;
use super::memory::{Effect, effect, is_pure};
use crate::ptx::edit::Edit;
use crate::ptx::ir::{Guard, Operand, Span};

/// Instructions in a branch.
const LONGEST: usize = 12;

pub(super) fn changes(subject: &Subject<'_>) -> Vec<Change> {
    let mut edits = Vec::new();
    let mut count = 0;
    for kernel in subject.kernels() {
        for block in 0..kernel.cfg.blocks.len() {
            if let Some(more) = predicated(subject, &kernel, block) {
                edits.extend(more);
                count += 1;
            }
        }
    }
    if count == 0 {
        return Vec::new();
    }
    vec![Change {
        label: "short branches predicated".to_owned(),
        edits,
        rationale: format!(
            "{count} short branches become predicated instructions: what they load no longer waits for the branch."
        ),
    }]
}

/// The edits that take the branch at the end of a block away, where it skips the next block alone.
fn predicated(subject: &Subject<'_>, kernel: &Kernel<'_>, block: usize) -> Option<Vec<Edit>> {
    let last = kernel.cfg.blocks[block].instructions.end - 1;
    let branch = kernel.instruction(last);
    let condition = branch.guard.as_ref()?;
    let skipped = kernel.cfg.blocks.get(block + 1)?.instructions.clone();
    let entered_here = kernel.cfg.blocks[block + 1].predecessors.len() == 1;
    if branch.opcode != "bra"
        || kernel.cfg.targets(last) != [skipped.end]
        || !entered_here
        || skipped.len() > LONGEST
        || skipped.end >= kernel.cfg.instructions.len()
    {
        return None;
    }
    let guard = format!(
        "@{}{} ",
        if condition.negated { "" } else { "!" },
        condition.register
    );
    let mut edits = vec![Edit {
        span: line_of(subject, branch.span),
        replacement: String::new(),
    }];
    for index in skipped.clone() {
        let instruction = kernel.instruction(index);
        let local = |name: &&str| {
            let all = kernel.writers.get(name).into_iter();
            let all = all.chain(kernel.readers.get(name));
            all.flatten().all(|at| skipped.contains(at))
        };
        let access = &kernel.access[index];
        let pure = is_pure(instruction);
        let plain_access = matches!(
            effect(kernel, index, &|_| 0),
            Effect::None | Effect::Read(_) | Effect::Write(_)
        );
        let own_guard: Option<&Guard> = instruction.guard.as_ref();
        if own_guard.is_some()
            || !(pure || plain_access)
            || access.writes.contains(&condition.register.as_str())
            || !kernel.cfg.targets(index).is_empty()
        {
            return None;
        }
        // What computes on the lane alone may as well run where its result is not used.
        if pure && may_run_anyway(instruction.opcode.as_str()) && access.writes.iter().all(local) {
            continue;
        }
        // `setp` under a predicate leaves its target as it was, as the branch did.
        let target_is_pair = matches!(instruction.operands.first(), Some(Operand::Pair(..)));
        if target_is_pair {
            return None;
        }
        let at = instruction.span.start;
        edits.push(Edit {
            span: Span { start: at, end: at },
            replacement: guard.clone(),
        });
    }
    Some(edits)
}

/// Whether an instruction is cheap and cannot fail.
fn may_run_anyway(opcode: &str) -> bool {
    !matches!(opcode, "div" | "rem" | "sqrt" | "sin" | "cos")
}
