//! Replaces a product that each turn of a counted loop computes anew from a register that moves by a fixed
//! amount by a sum that is carried along: `x · c` grows by `step · c` each turn. In arithmetic modulo 2ⁿ that
//! holds for every value, wrapping round included; a product of twice the width is left alone.

use super::carried::{Ahead, Carried, Code, each_loop};
use super::change::{Change, Subject};
use super::counted::CountedLoop;
use super::kernel::Kernel;
use crate::ptx::edit::Edit;
use crate::ptx::ir::{Immediate, Instruction, Operand, Span};

pub(super) fn changes(subject: &Subject<'_>) -> Vec<Change> {
    let (edits, count) = each_loop(subject, "grow", |kernel, counted, prefix, label| {
        reduced(subject, kernel, counted, prefix, label)
    });
    if edits.is_empty() {
        return Vec::new();
    }
    vec![Change {
        label: "products made sums".to_owned(),
        edits,
        rationale: format!("{count} products in loops grow by the same amount each turn."),
    }]
}

/// `mul.lo` or `mad.lo` of a register that moves, with what does not.
struct Product<'m> {
    index: usize,
    instruction: &'m Instruction,
    /// Which operand moves.
    moving: usize,
    step: &'m Operand,
    bits: u32,
}

fn reduced(
    subject: &Subject<'_>,
    kernel: &Kernel<'_>,
    counted: &CountedLoop<'_>,
    prefix: String,
    label: &str,
) -> Option<Carried> {
    let products: Vec<Product<'_>> = (counted.range.clone())
        .filter_map(|index| product(kernel, counted, index))
        .collect();
    if products.is_empty() {
        return None;
    }
    let mut ahead = Ahead::new(kernel, counted, prefix);
    let start = counted.span.start;
    let (mut before, mut bottom) = (String::new(), String::new());
    let mut replaced = Vec::new();
    for product in &products {
        let text = |operand: usize| subject.text(product.instruction.operand_spans[operand]);
        let result = *kernel.access[product.index].writes.first()?;
        let carried = ahead.fresh("now", result)?;
        let grows = ahead.fresh("by", result)?;
        let bits = product.bits;
        let factor = text(3 - product.moving);
        let step = match product.step {
            Operand::Name(name) => name.clone(),
            Operand::Immediate(Immediate::Int(value)) => value.to_string(),
            _ => return None,
        };
        // An immediate may not stand first, nor two of them together.
        before.push_str(&format!(
            "\tmov.b{bits} \t{grows}, {factor};\n\tmul.lo.s{bits} \t{grows}, {grows}, {step};\n"
        ));
        before.push_str(&format!(
            "\t{} \t{carried}, {};\n",
            product.instruction.mnemonic(),
            (1..product.instruction.operands.len())
                .map(text)
                .collect::<Vec<_>>()
                .join(", ")
        ));
        replaced.push(Edit {
            span: Span {
                start: product.instruction.span.start - start,
                end: product.instruction.span.end - start,
            },
            replacement: format!("mov.b{bits} \t{result}, {carried};"),
        });
        bottom.push_str(&format!("add.s{bits} \t{carried}, {carried}, {grows};\n\t"));
    }
    let code = Code {
        before,
        top: String::new(),
        bottom,
    };
    ahead.carried(subject, label, replaced, &code, products.len())
}

fn product<'m>(
    kernel: &Kernel<'m>,
    counted: &CountedLoop<'m>,
    index: usize,
) -> Option<Product<'m>> {
    let instruction = kernel.instruction(index);
    let inside = |name: &str| -> Vec<usize> {
        let writers = kernel.writers.get(name).into_iter().flatten();
        writers
            .copied()
            .filter(|at| counted.range.contains(at))
            .collect()
    };
    let fixed = |operand: &Operand| match operand {
        Operand::Immediate(Immediate::Int(_)) => true,
        Operand::Name(name) => kernel.register_type(name).is_some() && inside(name).is_empty(),
        _ => false,
    };
    let bits: u32 = match instruction.modifiers.as_slice() {
        [lo, ty] if lo == "lo" => ty.strip_prefix(['s', 'u'])?.parse().ok()?,
        _ => return None,
    };
    let (a, b) = match (instruction.opcode.as_str(), instruction.operands.as_slice()) {
        ("mul", [_, a, b]) => (a, b),
        ("mad", [_, a, b, c]) if fixed(c) => (a, b),
        _ => return None,
    };
    let result = kernel.access[index].writes.first()?;
    (instruction.guard.is_none() && matches!(bits, 32 | 64) && inside(result).len() == 1)
        .then_some(())?;
    [(1, a, b), (2, b, a)]
        .into_iter()
        .find_map(|(moving, x, other)| {
            let Operand::Name(name) = x else {
                return None;
            };
            // Moved once a turn, after the product has read it.
            let [at] = inside(name)[..] else {
                return None;
            };
            let add = kernel.instruction(at);
            let [Operand::Name(_), Operand::Name(from), step] = add.operands.as_slice() else {
                return None;
            };
            let width = add.modifiers.first()?.get(1..)?.parse::<u32>().ok()?;
            let moves = add.opcode == "add"
                && add.guard.is_none()
                && add.modifiers.len() == 1
                && width == bits
                && from == name
                && fixed(step)
                && at > index;
            (moves && fixed(other)).then_some(Product {
                index,
                instruction,
                moving,
                step,
                bits,
            })
        })
}
