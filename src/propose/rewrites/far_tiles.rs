//! Fetches tiles into the L2 cache some turns before TMA brings them to shared memory: a ring of stages reaches only as
//! far as shared memory does. It is a hint that nothing depends on, beyond the tensor too, so that every guess at
//! where the next tiles lie is right: a coordinate that a turn moves by a fixed amount goes on so.

use super::change::{Change, Subject};
use super::header::free_prefix;
use super::kernel::Kernel;
use crate::ptx::edit::Edit;
use crate::ptx::ir::{Address, Immediate, Instruction, Operand, Span};

/// Turns ahead, in the order in which they are worth trying.
const TURNS: [i64; 2] = [4, 8];

/// Registers that a coordinate may be made of, one of the next.
const LONGEST: usize = 4;

/// Copies of a kernel that are looked at.
const MOST: usize = 32;

pub(super) fn changes(subject: &Subject<'_>) -> Vec<Change> {
    let kernels = subject.kernels();
    // Who fetches tiles ahead has thought of it.
    let fetches = |kernel: &Kernel<'_>| {
        let mut all = kernel.cfg.instructions.iter();
        all.any(|i| i.opcode == "cp" && i.has("prefetch"))
    };
    if kernels.iter().any(fetches) {
        return Vec::new();
    }
    let own = free_prefix(&subject.module.text, "far");
    let change = |turns: i64| {
        let mut edits = Vec::new();
        let mut count = 0;
        for kernel in &kernels {
            let mut declared = Vec::new();
            let looping = (0..kernel.cfg.blocks.len()).filter(|block| is_in_loop(kernel, *block));
            let copies = looping.flat_map(|block| kernel.cfg.blocks[block].instructions.clone());
            for copy in copies
                .filter(|index| brings_tile(kernel.instruction(*index)))
                .take(MOST)
            {
                let prefix = format!("%{own}{count}_");
                if let Some((edit, registers)) = ahead(kernel, copy, turns, &prefix) {
                    edits.push(edit);
                    declared.extend(registers);
                    count += 1;
                }
            }
            let body = kernel.function.body.as_ref();
            if let Some(body) = body.filter(|_| !declared.is_empty()) {
                let at = body.span.start + 1;
                edits.push(Edit {
                    span: Span { start: at, end: at },
                    replacement: format!("\n    .reg .b32 {};", declared.join(", ")),
                });
            }
        }
        (count > 0).then(|| Change {
            label: format!("tiles into L2 {turns} turns ahead"),
            edits,
            rationale: format!(
                "{count} copies find their tiles in the L2 cache: they are asked for {turns} turns earlier."
            ),
        })
    };
    TURNS.into_iter().filter_map(change).collect()
}

/// What stands in front of a copy, and the registers it needs; `None` where no coordinate moves on.
fn ahead<'m>(
    kernel: &Kernel<'m>,
    copy: usize,
    turns: i64,
    prefix: &str,
) -> Option<(Edit, Vec<String>)> {
    let instruction = kernel.instruction(copy);
    let (map, coordinates) = tile(instruction)?;
    let guard = match &instruction.guard {
        Some(guard) if guard.negated => format!("@!{} ", guard.register),
        Some(guard) => format!("@{} ", guard.register),
        None => String::new(),
    };
    let mut text = String::new();
    let mut registers = Vec::new();
    let mut places = Vec::new();
    for (number, coordinate) in coordinates.iter().enumerate() {
        match coordinate {
            Operand::Name(name) => match moved_by(kernel, copy, name) {
                Some(step) => {
                    let register = format!("{prefix}{number}");
                    let moved = match step {
                        Step::Number(by) => {
                            format!("add.s32 {register}, {name}, {}", by.checked_mul(turns)?)
                        }
                        Step::Register(by) => {
                            format!("mad.lo.s32 {register}, {by}, {turns}, {name}")
                        }
                    };
                    text.push_str(&format!("{moved};\n    "));
                    places.push(register.clone());
                    registers.push(register);
                }
                None => places.push(name.clone()),
            },
            Operand::Immediate(Immediate::Int(n)) => places.push(n.to_string()),
            _ => return None,
        }
    }
    if registers.is_empty() {
        return None;
    }
    text.push_str(&format!(
        "{guard}cp.async.bulk.prefetch.tensor.{}d.L2.global [{map}, {{{}}}];\n    ",
        places.len(),
        places.join(", ")
    ));
    let at = instruction.span.start;
    let edit = Edit {
        span: Span { start: at, end: at },
        replacement: text,
    };
    Some((edit, registers))
}

/// What a turn adds to a register.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step<'m> {
    Number(i64),
    Register(&'m str),
}

/// How far a turn moves what the copy reads in a register: its block only ever adds numbers to it, or once a register
/// that it leaves alone, or makes it of another such register and a number.
fn moved_by<'m>(kernel: &Kernel<'m>, copy: usize, name: &'m str) -> Option<Step<'m>> {
    let block = kernel.cfg.block(kernel.cfg.block_of(copy));
    let writers = |name: &str| -> Option<Vec<usize>> {
        (kernel.register_type(name)?.ends_with("32")).then_some(())?;
        let writers = kernel.writers.get(name)?.iter().copied();
        Some(writers.filter(|w| block.instructions.contains(w)).collect())
    };
    let mut name = name;
    for _ in 0..LONGEST {
        let written = writers(name)?;
        let sums: Option<Vec<(&str, Step<'_>)>> = written.iter().map(|w| sum(kernel, *w)).collect();
        let sums = sums?;
        if sums.iter().all(|(from, _)| *from == name) {
            return match sums.as_slice() {
                [(_, Step::Register(by))] if writers(by)?.is_empty() => Some(Step::Register(by)),
                sums => {
                    let numbers: Option<Vec<i64>> =
                        sums.iter().map(|(_, by)| by.number()).collect();
                    let all = numbers?.iter().sum();
                    (all != 0).then_some(Step::Number(all))
                }
            };
        }
        let made = sums.iter().zip(&written).rev();
        let mut made = made.filter(|((from, _), at)| **at < copy && *from != name);
        let ((from, step), _) = made.next()?;
        step.number()?;
        name = from;
    }
    None
}

impl Step<'_> {
    fn number(self) -> Option<i64> {
        match self {
            Self::Number(by) => Some(by),
            Self::Register(_) => None,
        }
    }
}

/// A register and what is added to it, where an instruction leaves their sum.
fn sum<'m>(kernel: &Kernel<'m>, index: usize) -> Option<(&'m str, Step<'m>)> {
    let instruction = kernel.instruction(index);
    instruction.guard.is_none().then_some(())?;
    let (opcode, operands) = (instruction.opcode.as_str(), instruction.operands.as_slice());
    match (opcode, operands) {
        ("mov", [_, Operand::Name(from)]) => Some((from, Step::Number(0))),
        ("add", [_, Operand::Name(from), Operand::Name(by)]) => Some((from, Step::Register(by))),
        (
            "add" | "sub",
            [
                _,
                Operand::Name(from),
                Operand::Immediate(Immediate::Int(by)),
            ],
        ) => {
            let by = i64::from(i32::try_from(*by).ok()?);
            let by = if opcode == "add" { by } else { -by };
            Some((from, Step::Number(by)))
        }
        _ => None,
    }
}

/// A copy of a box of a tensor to shared memory, tile by tile.
fn brings_tile(instruction: &Instruction) -> bool {
    let to_barrier = |m: &String| m.starts_with("mbarrier");
    let other = |m: &String| m.starts_with("im2col") || m.starts_with("tile::");
    instruction.opcode == "cp"
        && instruction.has("tensor")
        && instruction.modifiers.iter().any(to_barrier)
        && !instruction.modifiers.iter().any(other)
}

/// The map of such a copy and its coordinates.
fn tile(copy: &Instruction) -> Option<(&str, &[Operand])> {
    match copy.operands.get(1)? {
        Operand::Address(Address {
            base: Some(map),
            offset: 0,
            rest,
        }) => match rest.as_slice() {
            [Operand::Vector(coordinates)] => Some((map, coordinates)),
            _ => None,
        },
        _ => None,
    }
}

/// Whether control can come back to a block.
fn is_in_loop(kernel: &Kernel<'_>, block: usize) -> bool {
    let next = |at: usize| {
        kernel.cfg.blocks[at]
            .successors
            .iter()
            .map(|next| next.0 as usize)
    };
    let mut seen = vec![false; kernel.cfg.blocks.len()];
    let mut open: Vec<usize> = next(block).collect();
    while let Some(at) = open.pop() {
        if at == block {
            return true;
        }
        if !std::mem::replace(&mut seen[at], true) {
            open.extend(next(at));
        }
    }
    false
}
