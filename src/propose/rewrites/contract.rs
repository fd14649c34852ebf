//! Contracts a product and a sum into one `fma`, which rounds once: another result, so in tasks whose math is
//! `fast` only. The product has no other reader, and both round to nearest.

use super::change::{Change, Subject, line_of};
use super::kernel::Kernel;
use crate::ptx::edit::Edit;
use crate::ptx::ir::{Instruction, Operand, Span};
use crate::task::MathMode;

pub(super) fn changes(subject: &Subject<'_>) -> Vec<Change> {
    match subject.task.math {
        MathMode::Ieee => return Vec::new(),
        MathMode::Fast => {}
    }
    let mut edits = Vec::new();
    let mut count = 0;
    for kernel in subject.kernels() {
        for add in 0..kernel.cfg.instructions.len() {
            if let Some(more) = contracted(subject, &kernel, add) {
                edits.extend(more);
                count += 1;
            }
        }
    }
    if count == 0 {
        return Vec::new();
    }
    vec![Change {
        label: "products and sums contracted".to_owned(),
        edits,
        rationale: format!(
            "{count} pairs of a product and a sum become one instruction that rounds once."
        ),
    }]
}

fn contracted(subject: &Subject<'_>, kernel: &Kernel<'_>, add: usize) -> Option<Vec<Edit>> {
    let sum = kernel.instruction(add);
    let (ftz, ty) = rounds_to_nearest(sum, "add")?;
    let [Operand::Name(_), left, right] = sum.operands.as_slice() else {
        return None;
    };
    [(left, 2), (right, 1)]
        .into_iter()
        .find_map(|(factor, other)| {
            let Operand::Name(product) = factor else {
                return None;
            };
            let at = kernel.only_writer(product)?;
            let mul = kernel.instruction(at);
            let alone = kernel.readers.get(product.as_str())?.as_slice() == [add];
            let same = rounds_to_nearest(mul, "mul")? == (ftz, ty) && mul.guard == sum.guard;
            let near = kernel.cfg.block_of(at) == kernel.cfg.block_of(add) && at < add;
            // `t + t` reads the product twice.
            let once = left != right;
            if !(alone && same && near && once) {
                return None;
            }
            // Factors and guard are still what they were.
            let read = &kernel.access[at].reads;
            let kept = (at + 1..add).all(|index| {
                !kernel.access[index]
                    .writes
                    .iter()
                    .any(|name| read.contains(name))
            });
            kept.then_some(())?;
            let text = |instruction: &Instruction, operand: usize| {
                subject.text(instruction.operand_spans[operand]).to_owned()
            };
            let flush = if ftz { ".ftz" } else { "" };
            let whole = Span {
                start: sum.mnemonic_span.start,
                end: sum.span.end,
            };
            Some(vec![
                Edit {
                    span: line_of(subject, mul.span),
                    replacement: String::new(),
                },
                Edit {
                    span: whole,
                    replacement: format!(
                        "fma.rn{flush}.{ty} \t{}, {}, {}, {};",
                        text(sum, 0),
                        text(mul, 1),
                        text(mul, 2),
                        text(sum, other)
                    ),
                },
            ])
        })
}

/// Whether results are flushed, and the type, of a product or sum that rounds to nearest.
fn rounds_to_nearest<'i>(instruction: &'i Instruction, opcode: &str) -> Option<(bool, &'i str)> {
    let (ty, rest) = instruction.modifiers.split_last()?;
    let known = rest.iter().all(|m| m == "rn" || m == "ftz");
    let float = matches!(ty.as_str(), "f32" | "f64");
    (instruction.opcode == opcode && known && float)
        .then(|| (rest.iter().any(|m| m == "ftz"), ty.as_str()))
}
