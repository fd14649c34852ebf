//! By which powers of two every value of a register can be divided: what an access's alignment is proved
//! with. Modular arithmetic keeps low bits, so nothing here depends on sizes or on overflow.

use std::collections::HashMap;

use super::kernel::{BUFFER_ALIGNMENT, Kernel};
use crate::ptx::ir::{Immediate, Instruction, Operand, Variable};

/// More zeros than any register has: of zero itself, and of what nothing has written.
const ALL: u32 = 64;

/// Low zero bits of every register's values.
pub(super) struct Multiples<'m> {
    zeros: HashMap<&'m str, u32>,
}

impl<'m> Multiples<'m> {
    /// The greatest fixed point: every write of a register is looked at, loops included. `offsets_of`: the
    /// address of this variable counts as zero, so that what is found are the zeros of offsets in it.
    pub(super) fn new(kernel: &Kernel<'m>, offsets_of: Option<&str>) -> Self {
        let mut zeros: HashMap<&'m str, u32> = HashMap::new();
        loop {
            let mut next: HashMap<&'m str, u32> = HashMap::new();
            for (instruction, access) in kernel.cfg.instructions.iter().zip(&kernel.access) {
                let of = |operand: &Operand| operand_zeros(kernel, &zeros, offsets_of, operand);
                let result = result_zeros(kernel, instruction, &of);
                for name in &access.writes {
                    let known = next.entry(name).or_insert(ALL);
                    *known = (*known).min(result);
                }
            }
            if next == zeros {
                return Self { zeros };
            }
            // From above: nothing may rise again.
            for (name, value) in &mut next {
                *value = (*value).min(zeros.get(name).copied().unwrap_or(ALL));
            }
            if next == zeros {
                return Self { zeros };
            }
            zeros = next;
        }
    }

    /// Low zero bits that every value of the register has.
    pub(super) fn zeros(&self, register: &str) -> u32 {
        self.zeros.get(register).copied().unwrap_or(0)
    }
}

/// Low zero bits of a variable's address.
pub(super) fn variable_zeros(variable: &Variable) -> u32 {
    let bits = variable
        .ty
        .trim_start_matches(|c: char| !c.is_ascii_digit());
    let own = bits.parse::<u32>().map_or(1, |bits| (bits / 8).max(1))
        * u32::from(variable.vector.unwrap_or(1));
    variable.align.unwrap_or(own).max(1).trailing_zeros()
}

fn operand_zeros<'m>(
    kernel: &Kernel<'m>,
    zeros: &HashMap<&'m str, u32>,
    offsets_of: Option<&str>,
    operand: &Operand,
) -> u32 {
    let named = |name: &str| {
        if offsets_of == Some(name) {
            return ALL;
        }
        match kernel.variables.get(name) {
            Some(variable) if kernel.register_type(name).is_none() => variable_zeros(variable),
            // Nothing is known of special registers and what is never written.
            _ if !kernel.writers.contains_key(name) => 0,
            _ => zeros.get(name).copied().unwrap_or(ALL),
        }
    };
    match operand {
        Operand::Name(name) => named(name),
        Operand::Offset { base, offset } => named(base).min(trailing(i128::from(*offset))),
        Operand::Immediate(Immediate::Int(value)) => trailing(*value),
        Operand::Not(_)
        | Operand::Negated(_)
        | Operand::Immediate(_)
        | Operand::Vector(_)
        | Operand::Address(_)
        | Operand::Element { .. }
        | Operand::Pair(..)
        | Operand::Tuple(_)
        | Operand::Sink
        | Operand::Verbatim(_) => 0,
    }
}

fn trailing(value: i128) -> u32 {
    if value == 0 {
        ALL
    } else {
        value.trailing_zeros().min(ALL)
    }
}

fn result_zeros(
    kernel: &Kernel<'_>,
    instruction: &Instruction,
    of: &dyn Fn(&Operand) -> u32,
) -> u32 {
    let shift = |operand: &Operand| match operand {
        Operand::Immediate(Immediate::Int(by)) => u32::try_from(*by).ok(),
        _ => None,
    };
    let whole = |operand: &Operand| matches!(operand, Operand::Name(_));
    match (instruction.opcode.as_str(), instruction.operands.as_slice()) {
        ("ld", [to, Operand::Address(address)]) if instruction.has("param") && whole(to) => {
            match &address.base {
                Some(base) if address.offset == 0 && kernel.is_pointer(base) => {
                    BUFFER_ALIGNMENT.trailing_zeros()
                }
                Some(_) | None => 0,
            }
        }
        ("mov" | "cvta", [to, from]) if whole(to) => of(from),
        // Whole numbers only; saturation and floating point round.
        ("cvt", [to, from])
            if whole(to)
                && instruction.modifiers.len() == 2
                && instruction
                    .modifiers
                    .iter()
                    .all(|m| m.starts_with(['u', 's', 'b'])) =>
        {
            of(from)
        }
        ("add" | "sub" | "or" | "xor", [_, a, b]) if is_integer(instruction) => of(a).min(of(b)),
        ("and", [_, a, b]) => of(a).max(of(b)),
        ("min" | "max", [_, a, b]) if is_integer(instruction) => of(a).min(of(b)),
        ("neg", [_, a]) if is_integer(instruction) => of(a),
        ("selp", [_, a, b, _]) => of(a).min(of(b)),
        ("mul", [_, a, b]) if instruction.has("lo") || instruction.has("wide") => {
            (of(a) + of(b)).min(ALL)
        }
        ("mad", [_, a, b, c]) if instruction.has("lo") || instruction.has("wide") => {
            (of(a) + of(b)).min(of(c))
        }
        ("shl", [_, a, by]) => shift(by).map_or(of(a), |by| of(a).saturating_add(by).min(ALL)),
        ("shr", [_, a, by]) => match shift(by) {
            // All ones may come in from above, below they do not.
            Some(by) if of(a) < ALL => of(a).saturating_sub(by),
            Some(_) => ALL,
            None => 0,
        },
        _ => 0,
    }
}

/// Whole numbers that wrap round; saturation does not keep low bits.
fn is_integer(instruction: &Instruction) -> bool {
    !instruction.has("sat")
        && instruction.modifiers.last().is_some_and(|ty| {
            ty.starts_with(['u', 's', 'b']) && ty[1..].bytes().all(|b| b.is_ascii_digit())
        })
}
