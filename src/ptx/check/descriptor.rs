//! Descriptors of tiles that wgmma reads: fields that contradict each other. Values are followed through the code;
//! whatever is computed at run time is taken to be an address, which never reaches beyond its own fourteen bits.

use std::collections::HashMap;

use super::{Context, Findings};
use crate::ptx::ir::{Immediate, Instruction, Operand};
use crate::ptx::scope::{ScopeId, Symbol};
use crate::verdict::Severity;

/// Where a descriptor's address ends.
const ADDRESS: u64 = 0xffff;

/// Bits that no field covers: 14 and 15 may be a carry of the address, and are left out.
const RESERVED: u64 = 0x3ff1_c000_c000_0000;

/// What a register holds on every path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    Number(u64),
    /// These upper bits, and an address or a part of one.
    Address(u64),
    Unknown,
}

/// A descriptor whose fields are known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptor(u64);

/// The tile of a product's operand.
struct Tile {
    /// What the operand is called: `A` or `B`.
    factor: &'static str,
    descriptor: Descriptor,
    /// Rows of A or columns of B.
    extent: u64,
    /// Whether those lie next to each other in memory.
    transposed: bool,
    operand: usize,
}

impl Descriptor {
    /// Bytes of a row of the swizzle's pattern: 128, 64, 32; `None` where there is none.
    pub(super) fn swizzle(self) -> Option<u64> {
        match self.0 >> 62 {
            1 => Some(128),
            2 => Some(64),
            3 => Some(32),
            _ => None,
        }
    }

    fn leading(self) -> u64 {
        (self.0 >> 16 & 0x3fff) << 4
    }

    fn stride(self) -> u64 {
        (self.0 >> 32 & 0x3fff) << 4
    }
}

/// What registers hold where each block begins.
pub(super) struct Descriptors {
    before: Vec<Option<HashMap<Symbol, Value>>>,
}

impl Descriptors {
    /// `None` where no product reads a tile from memory.
    pub(super) fn new(context: &Context<'_>) -> Option<Self> {
        let cfg = &context.cfg;
        cfg.instructions.iter().find(|i| is_product(i))?;
        let mut before: Vec<Option<HashMap<Symbol, Value>>> = vec![None; cfg.blocks.len()];
        before[0] = Some(HashMap::new());
        let mut open = vec![0];
        while let Some(at) = open.pop() {
            let Some(mut values) = before[at].clone() else {
                continue;
            };
            for index in cfg.blocks[at].instructions.clone() {
                pass(context, index, &mut values);
            }
            for next in cfg.blocks[at].successors.iter().map(|next| next.0 as usize) {
                let changed = match &mut before[next] {
                    Some(known) => join(known, &values),
                    unknown => {
                        *unknown = Some(values.clone());
                        true
                    }
                };
                if changed {
                    open.push(next);
                }
            }
        }
        Some(Self { before })
    }

    /// Visits each product with what registers hold before it.
    fn each(&self, context: &Context<'_>, mut visit: impl FnMut(usize, &HashMap<Symbol, Value>)) {
        for (block, values) in context.cfg.blocks.iter().zip(&self.before) {
            let Some(mut values) = values.clone() else {
                continue;
            };
            for index in block.instructions.clone() {
                if is_product(context.cfg.instructions[index]) {
                    visit(index, &values);
                }
                pass(context, index, &mut values);
            }
        }
    }

    /// All descriptors of the function; `None` where one is not known.
    pub(super) fn all(&self, context: &Context<'_>) -> Option<Vec<Descriptor>> {
        let mut all = Vec::new();
        let mut known = true;
        self.each(context, |index, values| {
            let product = context.cfg.instructions[index];
            let in_memory = product
                .operands
                .get(1)
                .into_iter()
                .filter(|a| !is_vector(a));
            let wanted = in_memory.count() + 1;
            let found = tiles(context, index, values);
            known &= found.len() == wanted;
            all.extend(found.into_iter().map(|tile| tile.descriptor));
        });
        known.then_some(all)
    }
}

pub(super) fn lint(context: &Context<'_>, descriptors: &Descriptors, findings: &mut Findings) {
    let mut told = Vec::new();
    let span = |index: usize| context.cfg.instructions[index].span;
    let mut add = |index: usize, fields: Descriptor, code: &str, message: String, help: &str| {
        // Once for all products that read through the same fields.
        if told.contains(&fields.0) {
            return None;
        }
        told.push(fields.0);
        findings.add(Severity::Warning, code, span(index), message, help);
        findings.found.len().checked_sub(1)
    };
    let mut pairs = Vec::new();
    descriptors.each(context, |index, values| {
        for tile in tiles(context, index, values) {
            let (factor, descriptor) = (tile.factor, tile.descriptor);
            let (stride, leading) = (descriptor.stride(), descriptor.leading());
            if descriptor.0 & RESERVED != 0 {
                add(
                    index,
                    descriptor,
                    "descriptor-fields",
                    format!(
                        "the descriptor of {factor} has bits outside its fields: {:#018x}",
                        descriptor.0
                    ),
                    "addresses and strides are written in units of 16 bytes: address at bit 0, leading offset at 16, stride at 32, swizzle at 62",
                );
                continue;
            }
            let Some(row) = descriptor.swizzle() else {
                continue;
            };
            let (what, eight) = match tile.transposed {
                false => ("rows", tile.extent > 8),
                true => ("steps of K", true),
            };
            if eight && stride > 0 && stride < 8 * row {
                add(
                    index,
                    descriptor,
                    "descriptor-stride",
                    format!(
                        "eight {what} of {factor} take {} bytes, {row} each; the descriptor says that the next eight begin {stride} bytes on",
                        8 * row
                    ),
                    "the stride (bits 32 to 45) is at least eight rows, in units of 16 bytes",
                );
            } else if let Some(other) = overlapped(context, index, &tile) {
                let found = add(
                    index,
                    descriptor,
                    "descriptor-stride",
                    format!(
                        "with {leading} bytes to the next {} of {factor}, this product and a later one read some bytes twice into the same sums",
                        row / 2
                    ),
                    "the leading offset (bits 16 to 29) is what all steps of K take for so many rows or columns, in units of 16 bytes",
                );
                pairs.extend(found.map(|found| (found, other)));
            }
        }
    });
    for (found, other) in pairs {
        findings.found[found].other_line = Some(findings.lines.line(span(other).start));
    }
}

/// A product of the same block that adds to the same sums and, as its descriptor is this one moved by a number, reads
/// bytes that this one reads as another block of rows.
fn overlapped(context: &Context<'_>, index: usize, tile: &Tile) -> Option<usize> {
    let row = tile.descriptor.swizzle()?;
    let (leading, stride) = (tile.descriptor.leading(), tile.descriptor.stride());
    let blocks = tile.extent / (row / 2);
    if !tile.transposed || blocks < 2 || leading == 0 || stride != 8 * row {
        return None;
    }
    let own = moved(context, index, tile.operand)?;
    let block = context.cfg.block(context.cfg.block_of(index));
    let sums = context.cfg.instructions[index].operands.first();
    (index + 1..block.instructions.end).find(|other| {
        let product = context.cfg.instructions[*other];
        if !is_product(product) || product.operands.first() != sums {
            return false;
        }
        let Some((base, at)) = moved(context, *other, tile.operand) else {
            return false;
        };
        let Some(away) = (base == own.0).then(|| at.saturating_sub(own.1).saturating_mul(16))
        else {
            return false;
        };
        let away = u64::try_from(away).unwrap_or(0);
        // A product takes sixteen steps of K: two strides.
        away / leading > 0 && away / leading < blocks && away % leading < 2 * stride
    })
}

/// `base` and `n` where the descriptor was last written in the block by `add d, base, n`, and `base` is older than
/// the block.
fn moved<'m>(context: &Context<'m>, index: usize, operand: usize) -> Option<(&'m str, i64)> {
    let block = context
        .cfg
        .block(context.cfg.block_of(index))
        .instructions
        .clone();
    let Operand::Name(name) = context.cfg.instructions[index].operands.get(operand)? else {
        return None;
    };
    let writes = |at: &usize, name: &str| context.accesses[*at].writes.contains(&name);
    let writer = (block.start..index).rev().find(|at| writes(at, name))?;
    let instruction = context.cfg.instructions[writer];
    match instruction.operands.as_slice() {
        [
            _,
            Operand::Name(base),
            Operand::Immediate(Immediate::Int(n)),
        ] if instruction.opcode == "add" && instruction.guard.is_none() => {
            // Written once before, at most: all that name it mean the same.
            let others = (block.start..block.end).filter(|at| writes(at, base));
            let first_product = block
                .clone()
                .find(|at| is_product(context.cfg.instructions[*at]))?;
            let settled = others.into_iter().all(|at| at < first_product);
            settled.then_some(())?;
            Some((base, i64::try_from(*n).ok()?))
        }
        _ => None,
    }
}

fn is_product(instruction: &Instruction) -> bool {
    instruction.opcode == "wgmma" && instruction.has("mma_async")
}

fn is_vector(operand: &Operand) -> bool {
    matches!(operand, Operand::Vector(_))
}

/// The tiles in memory that a product reads and whose descriptors are known.
fn tiles(context: &Context<'_>, index: usize, values: &HashMap<Symbol, Value>) -> Vec<Tile> {
    let product = context.cfg.instructions[index];
    let scope = context.scopes[index];
    let columns = product.modifiers.iter().find_map(|modifier| {
        let shape = modifier.strip_prefix("m64n")?;
        shape.split_once('k')?.0.parse::<u64>().ok()
    });
    let number = |at: usize| match product.operands.get(at) {
        Some(Operand::Immediate(Immediate::Int(n))) => *n,
        _ => 0,
    };
    let Some(columns) = columns else {
        return Vec::new();
    };
    let from_registers = product.operands.get(1).is_some_and(is_vector);
    let factors: &[(&'static str, usize, u64, usize)] = match from_registers {
        true => &[("B", 2, columns, 6)],
        false => &[("A", 1, 64, 6), ("B", 2, columns, 7)],
    };
    let known = |&(factor, operand, extent, transposed): &(&'static str, usize, u64, usize)| {
        let value = of_operand(context, scope, values, product.operands.get(operand)?);
        let bits = match value {
            // A placeholder: nobody's tile has neither rows nor a place.
            Value::Number(0) | Value::Unknown => return None,
            Value::Number(bits) | Value::Address(bits) => bits & !ADDRESS,
        };
        Some(Tile {
            factor,
            descriptor: Descriptor(bits),
            extent,
            transposed: number(transposed) == 1,
            operand,
        })
    };
    factors.iter().filter_map(known).collect()
}

fn join(known: &mut HashMap<Symbol, Value>, other: &HashMap<Symbol, Value>) -> bool {
    let mut changed = false;
    for (symbol, value) in other {
        let both = match known.get(symbol) {
            Some(own) => own.join(*value),
            None => *value,
        };
        changed |= known.insert(*symbol, both) != Some(both);
    }
    changed
}

impl Value {
    fn join(self, other: Self) -> Self {
        match (self, other) {
            _ if self == other => self,
            (Self::Number(a) | Self::Address(a), Self::Number(b) | Self::Address(b))
                if a & !ADDRESS == b & !ADDRESS =>
            {
                Self::Address(a & !ADDRESS)
            }
            _ => Self::Unknown,
        }
    }

    /// Its upper bits.
    fn upper(self) -> Option<u64> {
        match self {
            Self::Number(bits) | Self::Address(bits) => Some(bits & !ADDRESS),
            Self::Unknown => None,
        }
    }

    fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => Self::Number(a.wrapping_add(b)),
            // A number below zero moves an address back.
            (Self::Address(a), Self::Number(b)) | (Self::Number(b), Self::Address(a))
                if b.wrapping_neg() <= ADDRESS =>
            {
                Self::Address(a)
            }
            _ => self.with(other, u64::wrapping_add),
        }
    }

    fn with(self, other: Self, together: fn(u64, u64) -> u64) -> Self {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => Self::Number(together(a, b)),
            _ => match (self.upper(), other.upper()) {
                (Some(a), Some(b)) => Self::Address(together(a, b)),
                _ => Self::Unknown,
            },
        }
    }
}

fn of_operand(
    context: &Context<'_>,
    scope: ScopeId,
    values: &HashMap<Symbol, Value>,
    operand: &Operand,
) -> Value {
    match operand {
        Operand::Immediate(Immediate::Int(n)) => Value::Number(*n as u64),
        Operand::Name(name) => match context.body.resolve(scope, name) {
            Some(symbol) if context.body.register(symbol).is_some() => {
                values.get(&symbol).copied().unwrap_or(Value::Unknown)
            }
            // A variable's address, a special register.
            Some(_) | None => Value::Address(0),
        },
        Operand::Offset { .. } | Operand::Element { .. } => Value::Address(0),
        // Halves of 32 bits.
        Operand::Vector(halves) => match halves.as_slice() {
            [low, high] => {
                let [low, high] = [low, high].map(|half| of_operand(context, scope, values, half));
                match (low, high) {
                    (Value::Number(low), Value::Number(high)) => {
                        Value::Number(low & 0xffff_ffff | high << 32)
                    }
                    (Value::Address(low), Value::Number(high)) => {
                        Value::Address(low & 0xffff_ffff | high << 32)
                    }
                    _ => Value::Unknown,
                }
            }
            _ => Value::Unknown,
        },
        _ => Value::Unknown,
    }
}

/// What an instruction does to what registers hold.
fn pass(context: &Context<'_>, index: usize, values: &mut HashMap<Symbol, Value>) {
    let instruction = context.cfg.instructions[index];
    let scope = context.scopes[index];
    let mut result = None;
    for name in &context.accesses[index].writes {
        let Some(symbol) = context.body.resolve(scope, name) else {
            continue;
        };
        let Some(variable) = context.body.register(symbol) else {
            continue;
        };
        let wide = match variable.ty.as_str() {
            ".b64" | ".u64" | ".s64" => true,
            ".b32" | ".u32" | ".s32" => false,
            _ => continue,
        };
        let one = context.accesses[index].writes.len() == 1;
        let computed = match one {
            true => *result.get_or_insert_with(|| computed(context, index, values, wide)),
            false => unknown(wide),
        };
        let value = match (instruction.guard.is_some(), values.get(&symbol)) {
            (true, Some(before)) => before.join(computed),
            _ => computed,
        };
        values.insert(symbol, value);
    }
}

/// Of 32 bits: a place, or a part of one.
fn unknown(wide: bool) -> Value {
    match wide {
        true => Value::Unknown,
        false => Value::Address(0),
    }
}

fn computed(
    context: &Context<'_>,
    index: usize,
    values: &HashMap<Symbol, Value>,
    wide: bool,
) -> Value {
    let instruction = context.cfg.instructions[index];
    let scope = context.scopes[index];
    let operand = |at: usize| match instruction.operands.get(at) {
        Some(operand) => of_operand(context, scope, values, operand),
        None => Value::Unknown,
    };
    let (a, b) = (operand(1), operand(2));
    let count = instruction.operands.len();
    match (instruction.opcode.as_str(), count) {
        ("mov" | "cvta", 2) => a,
        ("cvt", 2) => match a {
            Value::Unknown => unknown(wide),
            known => known,
        },
        ("shfl", _) => a,
        ("add", 3) => a.plus(b),
        ("sub", 3) => match b {
            Value::Number(b) => a.plus(Value::Number(b.wrapping_neg())),
            Value::Address(0) => a,
            Value::Address(_) | Value::Unknown => unknown(wide),
        },
        ("or", 3) => a.with(b, |a, b| a | b),
        ("xor", 3) => a.with(b, |a, b| a ^ b),
        ("and", 3) => match (a, b) {
            (Value::Number(a), Value::Number(b)) => Value::Number(a & b),
            (Value::Address(a), Value::Number(b)) | (Value::Number(b), Value::Address(a)) => {
                Value::Address(a & b & !ADDRESS)
            }
            // An address in bytes, before it is shifted.
            (Value::Unknown, Value::Number(mask)) | (Value::Number(mask), Value::Unknown)
                if mask < 1 << 18 =>
            {
                Value::Address(0)
            }
            _ => unknown(wide),
        },
        ("shl", 3) => match (a, b) {
            (Value::Number(a), Value::Number(by)) if by < 64 => Value::Number(a << by),
            (Value::Address(0), Value::Number(by)) if by < 8 => Value::Address(0),
            _ if !wide => Value::Address(0),
            _ => Value::Unknown,
        },
        ("shr", 3) => match (a, b) {
            (Value::Number(a), Value::Number(by)) if by < 64 => Value::Number(a >> by),
            (Value::Address(0), _) => Value::Address(0),
            _ => unknown(wide),
        },
        ("selp", 4) => a.join(b),
        ("mul", 3) if instruction.has("wide") => Value::Address(0),
        ("mad", 4) if instruction.has("wide") => operand(3).plus(Value::Address(0)),
        ("mul", 3) if instruction.has("lo") => match (a, b) {
            (Value::Number(a), Value::Number(b)) => Value::Number(a.wrapping_mul(b)),
            _ => unknown(wide),
        },
        // Fields may be put together so.
        ("bfi" | "prmt" | "lop3" | "shf" | "mad" | "mul", _) if !wide => match a {
            Value::Number(_) => Value::Unknown,
            Value::Address(_) | Value::Unknown => Value::Address(0),
        },
        ("bfi" | "prmt", _) => Value::Unknown,
        _ => unknown(wide),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_the_hardware_has_them() {
        let descriptor = Descriptor(1 << 62 | 64 << 32 | 1024 << 16);
        assert_eq!(descriptor.swizzle(), Some(128));
        assert_eq!(descriptor.stride(), 1024);
        assert_eq!(descriptor.leading(), 16384);
        assert_eq!(descriptor.0 & RESERVED, 0);
        for field in [0x3fff_u64 << 16, 0x3fff << 32, 7 << 49, 3 << 62, ADDRESS] {
            assert_eq!(field & RESERVED, 0);
        }
        assert_eq!(
            RESERVED | ADDRESS | 0x3fff << 16 | 0x3fff << 32 | 7 << 49 | 3 << 62,
            u64::MAX
        );
    }
}
