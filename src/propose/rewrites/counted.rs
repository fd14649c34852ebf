//! Counted loops of one basic block: a counter that moves by a fixed step, compared with a bound that the
//! loop does not change. What is said here holds for every value of counter, step and bound, wrapping round
//! included; a loop that does not fit is no counted loop.

use std::collections::BTreeSet;
use std::ops::Range;

use super::kernel::Kernel;
use super::memory::is_pure;
use crate::ptx::ir::{Immediate, Instruction, Operand, Span};

/// A loop: `$L: … add i, i, step; … setp p, i, bound; … @p bra $L;`
pub(super) struct CountedLoop<'m> {
    /// Its instructions, the branch last.
    pub(super) range: Range<usize>,
    /// From after the last label in front to the branch's end.
    pub(super) span: Span,
    pub(super) counter: &'m str,
    pub(super) step: &'m Operand,
    pub(super) bound: &'m Operand,
    pub(super) test: Test,
    /// The width of counter and bound, 32 or 64.
    pub(super) bits: u32,
    pub(super) signed: bool,
    /// The predicate that the branch tests, and whether it continues when false.
    pub(super) predicate: &'m str,
    pub(super) negated: bool,
    /// Index of the instruction that moves the counter.
    pub(super) add: usize,
}

/// When the loop goes on, the counter on the left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    NotEqual,
}

impl Test {
    /// As a comparison of whole numbers.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::Less => "lt",
            Self::LessEqual => "le",
            Self::Greater => "gt",
            Self::GreaterEqual => "ge",
            Self::NotEqual => "ne",
        }
    }

    fn read(instruction: &Instruction) -> Option<Self> {
        let tests = [
            (["lt", "lo"], Self::Less),
            (["le", "ls"], Self::LessEqual),
            (["gt", "hi"], Self::Greater),
            (["ge", "hs"], Self::GreaterEqual),
            (["ne", "ne"], Self::NotEqual),
        ];
        let is = |names: &[&str; 2]| names.iter().any(|name| instruction.has(name));
        let found = tests.into_iter().find(|(names, _)| is(names));
        found.map(|(_, test)| test)
    }

    fn negated(self) -> Option<Self> {
        match self {
            Self::Less => Some(Self::GreaterEqual),
            Self::LessEqual => Some(Self::Greater),
            Self::Greater => Some(Self::LessEqual),
            Self::GreaterEqual => Some(Self::Less),
            // A loop that goes on while equal runs twice at most.
            Self::NotEqual => None,
        }
    }

    /// With its operands exchanged.
    fn turned(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessEqual => Self::GreaterEqual,
            Self::Greater => Self::Less,
            Self::GreaterEqual => Self::LessEqual,
            Self::NotEqual => Self::NotEqual,
        }
    }
}

/// Every counted loop of a kernel.
pub(super) fn counted_loops<'m>(kernel: &Kernel<'m>) -> Vec<CountedLoop<'m>> {
    let blocks = kernel.cfg.blocks.iter();
    blocks
        .filter_map(|block| counted(kernel, block.instructions.clone()))
        .collect()
}

fn counted<'m>(kernel: &Kernel<'m>, range: Range<usize>) -> Option<CountedLoop<'m>> {
    let last = range.end - 1;
    let branch = kernel.instruction(last);
    if branch.opcode != "bra" || kernel.cfg.targets(last) != [range.start] {
        return None;
    }
    let guard = branch.guard.as_ref()?;
    let labels = kernel
        .labels
        .iter()
        .filter(|(_, next)| *next == range.start);
    let start = labels.map(|(label, _)| label.span.end).max()?;
    // Braces within the loop would be torn apart, declarations come too late.
    let declares = |at: u32| start <= at && at < branch.span.end;
    if kernel.crosses_braces(start, branch.span.end)
        || kernel.variables.values().any(|v| declares(v.span.start))
    {
        return None;
    }
    let only = |name: &str| -> Option<usize> {
        let mut inside = kernel
            .writers
            .get(name)?
            .iter()
            .filter(|i| range.contains(i));
        let found = *inside.next()?;
        inside.next().is_none().then_some(found)
    };
    let compare_at = only(&guard.register)?;
    let compare = kernel.instruction(compare_at);
    let [Operand::Name(_), left, right] = compare.operands.as_slice() else {
        return None;
    };
    if compare.opcode != "setp" || compare.guard.is_some() || compare.modifiers.len() != 2 {
        return None;
    }
    let (signed, bits) = match compare.modifiers[1].as_str() {
        "s32" => (true, 32),
        "u32" => (false, 32),
        "s64" => (true, 64),
        "u64" => (false, 64),
        "b32" if compare.has("ne") || compare.has("eq") => (false, 32),
        "b64" if compare.has("ne") || compare.has("eq") => (false, 64),
        _ => return None,
    };
    let mut test = match (Test::read(compare), guard.negated) {
        (Some(test), false) => test,
        (Some(test), true) => test.negated()?,
        (None, true) if compare.has("eq") => Test::NotEqual,
        (None, _) => return None,
    };
    let unchanged = |operand: &Operand| match operand {
        Operand::Name(name) => {
            kernel.register_type(name).is_some() && !written_in(kernel, name, &range)
        }
        Operand::Immediate(Immediate::Int(_)) => true,
        _ => false,
    };
    let (counter, bound) = match (left, right) {
        (Operand::Name(name), bound) if unchanged(bound) => (name, bound),
        (bound, Operand::Name(name)) if unchanged(bound) => {
            test = test.turned();
            (name, bound)
        }
        _ => return None,
    };
    let add = only(counter)?;
    let instruction = kernel.instruction(add);
    let [Operand::Name(_), Operand::Name(from), step] = instruction.operands.as_slice() else {
        return None;
    };
    let moves = instruction.opcode == "add"
        && instruction.guard.is_none()
        && instruction.modifiers.len() == 1
        && instruction.modifiers[0][1..] == bits.to_string()
        && from == counter
        && unchanged(step);
    (moves && add < compare_at).then_some(())?;
    // A register as wide as the comparison: the upper half is not cut off.
    let ty = kernel.register_type(counter)?;
    (ty[2..] == bits.to_string()).then_some(())?;
    Some(CountedLoop {
        span: Span {
            start,
            end: branch.span.end,
        },
        counter,
        step,
        bound,
        test,
        bits,
        signed,
        predicate: &guard.register,
        negated: guard.negated,
        add,
        range,
    })
}

fn written_in(kernel: &Kernel<'_>, name: &str, range: &Range<usize>) -> bool {
    let writers = kernel.writers.get(name);
    writers.is_some_and(|writers| writers.iter().any(|index| range.contains(index)))
}

impl<'m> CountedLoop<'m> {
    /// The step, where it is a number.
    pub(super) fn fixed_step(&self) -> Option<i64> {
        match self.step {
            Operand::Immediate(Immediate::Int(step)) => {
                let step = i64::try_from(*step).ok()?;
                // `add.u32 i, i, 4294967295` counts down.
                match self.bits {
                    32 => Some(i64::from(step as i32)),
                    _ => Some(step),
                }
            }
            _ => None,
        }
    }

    /// Whether every lane that enters the loop goes round equally often: only then may lanes of a warp meet
    /// in its instructions however it is cut.
    pub(super) fn is_uniform(&self, kernel: &Kernel<'m>) -> bool {
        let mut seen = BTreeSet::new();
        let entered = kernel.writers.get(self.counter).into_iter().flatten();
        let mut outside = entered.filter(|index| **index != self.add);
        let (Some(&start), None) = (outside.next(), outside.next()) else {
            return false;
        };
        uniform_result(kernel, start, &mut seen)
            && uniform(kernel, self.step, &mut seen)
            && uniform(kernel, self.bound, &mut seen)
    }
}

/// Whether an instruction gives all threads of a block the same result.
fn uniform_result<'m>(kernel: &Kernel<'m>, index: usize, seen: &mut BTreeSet<&'m str>) -> bool {
    let instruction = kernel.instruction(index);
    let from_params = instruction.opcode == "ld" && instruction.has("param");
    if instruction.guard.is_some() || !(is_pure(instruction) || from_params) {
        return false;
    }
    if from_params {
        return true;
    }
    let sources = instruction.operands.get(1..).unwrap_or_default();
    sources.iter().all(|operand| uniform(kernel, operand, seen))
}

fn uniform<'m>(kernel: &Kernel<'m>, operand: &'m Operand, seen: &mut BTreeSet<&'m str>) -> bool {
    match operand {
        Operand::Immediate(_) => true,
        Operand::Name(name) => {
            let same_for_block = ["%ctaid.", "%nctaid.", "%ntid."];
            if same_for_block.iter().any(|known| name.starts_with(known)) {
                return true;
            }
            // A chain of definitions does not come back to where it began.
            match kernel.only_writer(name) {
                Some(index) if seen.insert(name) => {
                    let result = uniform_result(kernel, index, seen);
                    seen.remove(name.as_str());
                    result
                }
                Some(_) | None => false,
            }
        }
        Operand::Not(_)
        | Operand::Negated(_)
        | Operand::Vector(_)
        | Operand::Address(_)
        | Operand::Offset { .. }
        | Operand::Element { .. }
        | Operand::Pair(..)
        | Operand::Tuple(_)
        | Operand::Sink
        | Operand::Verbatim(_) => false,
    }
}
