//! What an instruction does to memory, and whether two of them may touch the same bytes. What it does not
//! know keeps its place.

use std::collections::BTreeSet;

use super::kernel::{Kernel, address};
use crate::ptx::ir::Instruction;

/// What must be respected when instructions change places.
#[derive(Clone, Debug)]
pub(super) enum Effect<'m> {
    /// Registers alone.
    None,
    Read(Place<'m>),
    Write(Place<'m>),
    /// Keeps its place among all that touch memory: barriers, atomics, ordered accesses, the unknown.
    Order,
}

/// What one access touches.
#[derive(Clone, Debug)]
pub(super) struct Place<'m> {
    space: Space,
    region: Region<'m>,
    base: Option<&'m str>,
    /// How often `base` was written before, in the block.
    version: u32,
    offset: i64,
    bytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    Global,
    Shared,
    Local,
    Generic,
}

#[derive(Clone, Debug)]
enum Region<'m> {
    Buffers(BTreeSet<String>),
    Variables(BTreeSet<&'m str>),
    Any,
}

/// What `instruction` does; `version` says how often a register was written before it in its block.
pub(super) fn effect<'m>(
    kernel: &Kernel<'m>,
    index: usize,
    version: &dyn Fn(&str) -> u32,
) -> Effect<'m> {
    let instruction = kernel.instruction(index);
    let ordered = ["volatile", "relaxed", "acquire", "release", "mmio", "cc"];
    if ordered.iter().any(|modifier| instruction.has(modifier)) {
        return Effect::Order;
    }
    match instruction.opcode.as_str() {
        // A kernel's parameters and constants never change.
        "ld" if instruction.has("param") || instruction.has("const") => Effect::None,
        "ld" | "ldu" => place(kernel, instruction, version).map_or(Effect::Order, Effect::Read),
        "st" if !instruction.has("param") => {
            place(kernel, instruction, version).map_or(Effect::Order, Effect::Write)
        }
        _ if is_pure(instruction) => Effect::None,
        _ => Effect::Order,
    }
}

/// Whether it does nothing but compute its result from its operands, on each lane alone.
pub(super) fn is_pure(instruction: &Instruction) -> bool {
    !instruction.has("cc")
        && matches!(
            instruction.opcode.as_str(),
            "abs"
                | "add"
                | "and"
                | "bfe"
                | "bfi"
                | "bfind"
                | "brev"
                | "clz"
                | "cnot"
                | "copysign"
                | "cos"
                | "cvt"
                | "cvta"
                | "div"
                | "dp2a"
                | "dp4a"
                | "ex2"
                | "fma"
                | "fns"
                | "isspacep"
                | "lg2"
                | "lop3"
                | "mad"
                | "mad24"
                | "max"
                | "min"
                | "mov"
                | "mul"
                | "mul24"
                | "neg"
                | "not"
                | "or"
                | "popc"
                | "prmt"
                | "rcp"
                | "rem"
                | "rsqrt"
                | "sad"
                | "selp"
                | "set"
                | "setp"
                | "shf"
                | "shl"
                | "shr"
                | "sin"
                | "slct"
                | "sqrt"
                | "sub"
                | "szext"
                | "tanh"
                | "testp"
                | "xor"
        )
        && !reads_changing_register(instruction)
}

/// Whether two reads, a read and a write, or two writes may meet.
pub(super) fn may_meet(a: &Place<'_>, b: &Place<'_>) -> bool {
    let (x, y) = (a.space, b.space);
    if x != y && x != Space::Generic && y != Space::Generic {
        return false;
    }
    if a.base.is_some() && a.base == b.base && a.version == b.version {
        let end = |place: &Place<'_>| place.offset.saturating_add(i64::from(place.bytes));
        return a.offset < end(b) && b.offset < end(a);
    }
    match (&a.region, &b.region) {
        (Region::Buffers(a), Region::Buffers(b)) => !a.is_disjoint(b),
        (Region::Variables(a), Region::Variables(b)) => !a.is_disjoint(b),
        // A variable is no buffer.
        (Region::Buffers(_), Region::Variables(_)) | (Region::Variables(_), Region::Buffers(_)) => {
            false
        }
        (Region::Any, _) | (_, Region::Any) => true,
    }
}

/// Bytes one lane moves; `None` where the type is not understood.
pub(super) fn access_bytes(instruction: &Instruction) -> Option<u32> {
    Some(element_bytes(instruction)? * lanes(instruction))
}

/// Bytes of an element.
pub(super) fn element_bytes(instruction: &Instruction) -> Option<u32> {
    let ty = instruction.modifiers.last()?;
    let bits: u32 = ty.strip_prefix(['u', 's', 'b', 'f'])?.parse().ok()?;
    bits.is_multiple_of(8).then_some(bits / 8)
}

/// Elements in the vector.
pub(super) fn lanes(instruction: &Instruction) -> u32 {
    let counts = [("v2", 2), ("v4", 4), ("v8", 8)];
    let found = counts.iter().find(|(name, _)| instruction.has(name));
    found.map_or(1, |(_, count)| *count)
}

fn place<'m>(
    kernel: &Kernel<'m>,
    instruction: &'m Instruction,
    version: &dyn Fn(&str) -> u32,
) -> Option<Place<'m>> {
    let mut addresses = instruction.operands.iter().filter_map(address);
    let (Some(address), None) = (addresses.next(), addresses.next()) else {
        return None;
    };
    if !address.rest.is_empty() {
        return None;
    }
    let space = if instruction.has("global") {
        Space::Global
    } else if instruction.has("shared") || instruction.has("shared::cta") {
        Space::Shared
    } else if instruction.has("local") {
        Space::Local
    } else if instruction.modifiers.iter().any(|m| m.contains("::")) {
        return None;
    } else {
        Space::Generic
    };
    let base = address.base.as_deref();
    Some(Place {
        space,
        region: base.map_or(Region::Any, |base| region(kernel, base)),
        base,
        version: base.map_or(0, version),
        offset: address.offset,
        bytes: access_bytes(instruction)?,
    })
}

fn region<'m>(kernel: &Kernel<'m>, base: &'m str) -> Region<'m> {
    if kernel.register_type(base).is_none() && kernel.variables.contains_key(base) {
        return Region::Variables(BTreeSet::from([base]));
    }
    if let Some(buffers) = kernel.buffers(base).filter(|buffers| !buffers.is_empty()) {
        return Region::Buffers(buffers);
    }
    match kernel.origin(base) {
        Some(origin)
            if !origin.memory
                && !origin.variables.is_empty()
                && kernel.points_to_no_buffer(origin) =>
        {
            Region::Variables(origin.variables.clone())
        }
        Some(_) | None => Region::Any,
    }
}

/// Clocks and counters give another value each time.
fn reads_changing_register(instruction: &Instruction) -> bool {
    let mut found = false;
    for operand in &instruction.operands {
        operand.for_each_name(&mut |name| {
            found |= [
                "%clock",
                "%globaltimer",
                "%pm",
                "%smid",
                "%warpid",
                "%nsmid",
            ]
            .iter()
            .any(|changing| name.starts_with(changing));
        });
    }
    found
}
