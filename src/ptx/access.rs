//! Which registers an instruction reads and which it writes. Of an instruction it does not know it claims
//! nothing but that any register in it may be written.

use super::ir::{Instruction, Operand};

/// The operands an instruction reads (addresses and guards included) and writes.
#[derive(Debug, Default)]
pub struct Access<'m> {
    /// Names of registers and symbols.
    pub reads: Vec<&'m str>,
    /// Names of registers that hold a result afterwards.
    pub writes: Vec<&'m str>,
    /// Of this opcode it is not known which operands are read: all stand in `writes`.
    pub unknown: bool,
}

/// What `instruction` reads and writes.
pub fn access(instruction: &Instruction) -> Access<'_> {
    let mut access = Access::default();
    if let Some(guard) = &instruction.guard {
        access.reads.push(&guard.register);
    }
    let operands = &instruction.operands;
    match written_operands(instruction) {
        Written::First => {
            if let Some((first, rest)) = operands.split_first() {
                match first {
                    Operand::Address(_) => names(first, &mut access.reads),
                    _ => names(first, &mut access.writes),
                }
                rest.iter()
                    .for_each(|operand| names(operand, &mut access.reads));
            }
        }
        Written::None => operands
            .iter()
            .for_each(|operand| names(operand, &mut access.reads)),
        Written::Returns => {
            let (returned, rest) = match operands.as_slice() {
                [Operand::Tuple(returned), rest @ ..] => (returned.as_slice(), rest),
                rest => (&[][..], rest),
            };
            returned
                .iter()
                .for_each(|operand| names(operand, &mut access.writes));
            rest.iter()
                .for_each(|operand| names(operand, &mut access.reads));
        }
        Written::Unknown => {
            access.unknown = true;
            operands
                .iter()
                .for_each(|operand| names(operand, &mut access.writes));
        }
    }
    access
}

enum Written {
    /// The first, unless it is an address.
    First,
    None,
    /// A call's return values.
    Returns,
    /// Anything may be.
    Unknown,
}

fn written_operands(instruction: &Instruction) -> Written {
    match instruction.opcode.as_str() {
        "call" => Written::Returns,
        "bar" | "barrier" if instruction.has("red") => Written::First,
        "bra" | "brx" | "bar" | "barrier" | "ret" | "exit" | "trap" | "nanosleep" | "membar"
        | "fence" | "st" | "red" | "cp" | "prefetch" | "prefetchu" | "stmatrix"
        | "griddepcontrol" | "setmaxnreg" | "brkpt" => Written::None,
        // What a product finds in its sums depends on an operand: they count as written alone.
        "wgmma" if instruction.has("mma_async") => Written::First,
        "wgmma" => Written::None,
        "abs" | "activemask" | "add" | "addc" | "and" | "atom" | "bfe" | "bfi" | "bfind"
        | "brev" | "clz" | "cnot" | "copysign" | "cos" | "createpolicy" | "cvt" | "cvta"
        | "div" | "dp2a" | "dp4a" | "elect" | "ex2" | "fma" | "fns" | "getctarank" | "isspacep"
        | "ld" | "ldmatrix" | "ldu" | "lg2" | "lop3" | "mad" | "mad24" | "madc" | "mapa"
        | "match" | "max" | "mbarrier" | "min" | "mma" | "mov" | "mul" | "mul24" | "neg"
        | "not" | "or" | "popc" | "prmt" | "rcp" | "redux" | "rem" | "rsqrt" | "sad" | "selp"
        | "set" | "setp" | "shf" | "shfl" | "shl" | "shr" | "sin" | "slct" | "sqrt" | "sub"
        | "subc" | "szext" | "tanh" | "testp" | "tex" | "tld4" | "vote" | "wmma" | "xor" => {
            Written::First
        }
        _ => Written::Unknown,
    }
}

fn names<'m>(operand: &'m Operand, into: &mut Vec<&'m str>) {
    operand.for_each_name(&mut |name| into.push(name));
}
