//! Joins loads and stores of neighbouring elements into vector accesses of up to 16 bytes. The address is
//! proved to be a multiple of the access, the accesses to stand in one block under one guard, and nothing
//! between them to touch the same bytes.

use super::change::{Change, Subject};
use super::kernel::{Kernel, address};
use super::memory::{Effect, element_bytes};
use super::multiples::{Multiples, variable_zeros};
use super::schedule::{Block, Unit, blocks};
use crate::ptx::edit::Edit;
use crate::ptx::ir::{Instruction, Operand};

/// Bytes of the widest access.
const WIDEST: u32 = 16;

pub(super) fn changes(subject: &Subject<'_>) -> Vec<Change> {
    let mut edits = Vec::new();
    let mut joined = 0;
    for kernel in subject.kernels() {
        let multiples = Multiples::new(&kernel, None);
        for block in blocks(&kernel) {
            let (more, count) = join(subject, &kernel, &multiples, &block);
            edits.extend(more);
            joined += count;
        }
    }
    if joined == 0 {
        return Vec::new();
    }
    vec![Change {
        label: "vector loads and stores".to_owned(),
        edits,
        rationale: format!(
            "{joined} loads and stores of neighbouring elements become vector accesses: fewer instructions and requests for the same bytes."
        ),
    }]
}

/// The edits of a block, and how many accesses they join.
fn join(
    subject: &Subject<'_>,
    kernel: &Kernel<'_>,
    multiples: &Multiples<'_>,
    block: &Block<'_>,
) -> (Vec<Edit>, usize) {
    let mut units = block.units(subject, kernel);
    let mut joined = 0;
    for members in groups(kernel, multiples, block) {
        if block.depend(&members) {
            continue;
        }
        let Some(text) = vector(subject, kernel, block, &members) else {
            continue;
        };
        let is_load = kernel.instruction(block.range.start + members[0]).opcode == "ld";
        let rank = match is_load {
            true => members.iter().min(),
            false => members.iter().max(),
        };
        let unit = Unit {
            rank: rank.copied().unwrap_or_default(),
            members: members.clone(),
            text,
        };
        let mut tried: Vec<Unit> = units
            .iter()
            .filter(|unit| !members.contains(&unit.members[0]))
            .cloned()
            .collect();
        tried.push(unit);
        if block.order(&tried).is_some() {
            units = tried;
            joined += members.len();
        }
    }
    match block.order(&units) {
        Some(order) if joined > 0 => (block.rewritten(subject, kernel, &units, &order), joined),
        Some(_) | None => (Vec::new(), 0),
    }
}

/// Accesses to neighbouring elements, each group in the order of their addresses.
fn groups(kernel: &Kernel<'_>, multiples: &Multiples<'_>, block: &Block<'_>) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut taken = vec![false; block.range.len()];
    for first in 0..block.range.len() {
        if taken[first] {
            continue;
        }
        let Some(lead) = Single::new(kernel, block, first) else {
            continue;
        };
        // All single accesses of this kind and base, by offset.
        let mut alike: Vec<(i64, usize)> = (first..block.range.len())
            .filter(|number| !taken[*number])
            .filter_map(|number| {
                let single = Single::new(kernel, block, number)?;
                single.is_like(&lead).then_some((single.offset, number))
            })
            .collect();
        for (_, number) in &alike {
            taken[*number] = true;
        }
        alike.sort_unstable();
        let base_zeros = match kernel.register_type(lead.base) {
            Some(_) => multiples.zeros(lead.base),
            None => kernel
                .variables
                .get(lead.base)
                .map_or(0, |v| variable_zeros(v)),
        };
        let mut at = 0;
        while at < alike.len() {
            let width = [4u32, 2].into_iter().find(|width| {
                let bytes = width * lead.bytes;
                bytes <= WIDEST
                    && base_zeros >= bytes.trailing_zeros()
                    && alike[at].0.rem_euclid(i64::from(bytes)) == 0
                    && (0..*width as usize).all(|step| {
                        alike.get(at + step).is_some_and(|(offset, _)| {
                            *offset == alike[at].0 + step as i64 * i64::from(lead.bytes)
                        })
                    })
            });
            match width {
                Some(width) => {
                    let group = &alike[at..at + width as usize];
                    groups.push(group.iter().map(|(_, number)| *number).collect());
                    at += width as usize;
                }
                None => at += 1,
            }
        }
    }
    groups
}

/// A load or store of one element.
struct Single<'m> {
    instruction: &'m Instruction,
    base: &'m str,
    version: u32,
    guard_version: u32,
    offset: i64,
    bytes: u32,
}

impl<'m> Single<'m> {
    fn new(kernel: &Kernel<'m>, block: &Block<'m>, number: usize) -> Option<Self> {
        let instruction = kernel.instruction(block.range.start + number);
        let (value, target) = match (instruction.opcode.as_str(), instruction.operands.as_slice()) {
            ("ld", [value, target]) | ("st", [target, value]) => (value, address(target)?),
            _ => return None,
        };
        if !matches!(block.effects[number], Effect::Read(_) | Effect::Write(_)) {
            return None;
        }
        let vector = ["v2", "v4", "v8"].iter().any(|v| instruction.has(v));
        let Operand::Name(register) = value else {
            return None;
        };
        let bytes = element_bytes(instruction)?;
        let base = target.base.as_deref()?;
        if vector || kernel.register_type(register).is_none() || !matches!(bytes, 1 | 2 | 4 | 8) {
            return None;
        }
        let guard = instruction.guard.as_ref();
        Some(Self {
            instruction,
            base,
            version: block.version(number, base),
            guard_version: guard.map_or(0, |guard| block.version(number, &guard.register)),
            offset: target.offset,
            bytes,
        })
    }

    fn is_like(&self, other: &Self) -> bool {
        self.instruction.opcode == other.instruction.opcode
            && self.instruction.modifiers == other.instruction.modifiers
            && self.instruction.guard == other.instruction.guard
            && self.guard_version == other.guard_version
            && (self.base, self.version) == (other.base, other.version)
    }
}

/// `ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];`
fn vector(
    subject: &Subject<'_>,
    kernel: &Kernel<'_>,
    block: &Block<'_>,
    members: &[usize],
) -> Option<String> {
    let of = |number: &usize| kernel.instruction(block.range.start + number);
    let first = of(members.first()?);
    let is_load = first.opcode == "ld";
    let (value_at, address_at) = if is_load { (0, 1) } else { (1, 0) };
    let names: Vec<&str> = members
        .iter()
        .map(|number| subject.text(of(number).operand_spans[value_at]))
        .collect();
    let distinct = (1..names.len()).all(|at| !names[..at].contains(&names[at]));
    if is_load && !distinct {
        return None;
    }
    let (ty, rest) = first.modifiers.split_last()?;
    let mut text = String::new();
    if let Some(guard) = &first.guard {
        let not = if guard.negated { "!" } else { "" };
        text.push_str(&format!("@{not}{} ", guard.register));
    }
    text.push_str(&first.opcode);
    for modifier in rest {
        text.push('.');
        text.push_str(modifier);
    }
    let list = format!("{{{}}}", names.join(", "));
    let place = subject.text(first.operand_spans[address_at]);
    let (left, right) = if is_load {
        (list.as_str(), place)
    } else {
        (place, list.as_str())
    };
    text.push_str(&format!(".v{}.{ty} \t{left}, {right};", members.len()));
    Some(text)
}
