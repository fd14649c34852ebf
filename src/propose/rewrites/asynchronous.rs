//! What runs on after its instruction: wgmma's products, which read and write registers until a wait, and the waits
//! for them and for copies. Instructions that change places round a wait are found here, where that is proved.

use std::collections::{BTreeMap, BTreeSet};

use super::change::Subject;
use super::kernel::Kernel;
use super::memory::is_pure;
use crate::ptx::Access;
use crate::ptx::edit::Edit;
use crate::ptx::ir::{Immediate, Instruction, Operand};

/// Makes accesses say what products in flight do, and gives their registers: a product also reads its sums; the
/// fence before it and the wait after it touch the registers of every product, for nothing that touches those may
/// change places with either.
pub(super) fn complete<'m>(
    instructions: &[&'m Instruction],
    access: &mut [Access<'m>],
) -> BTreeSet<&'m str> {
    let products = || instructions.iter().filter(|i| is_product(i));
    let registers: BTreeSet<&'m str> = products()
        .flat_map(|product| registers_of(product))
        .collect();
    for (instruction, access) in instructions.iter().zip(access) {
        if is_product(instruction) {
            access.reads.extend(sums_of(instruction));
        } else if instruction.opcode == "wgmma" && !instruction.has("commit_group") {
            access.reads.extend(&registers);
            access.writes.extend(&registers);
        }
    }
    registers
}

/// `wgmma.mma_async`.
pub(super) fn is_product(instruction: &Instruction) -> bool {
    instruction.opcode == "wgmma" && instruction.has("mma_async")
}

/// The registers that a product adds to.
pub(super) fn sums_of(product: &Instruction) -> Vec<&str> {
    names(product.operands.first())
}

/// The registers that a product may touch while it runs: its sums, and factors that are no tiles in memory.
pub(super) fn registers_of(product: &Instruction) -> Vec<&str> {
    let mut found = sums_of(product);
    found.extend(factors_of(product));
    found
}

/// The registers of a product's first factor, where that is no tile in memory.
pub(super) fn factors_of(product: &Instruction) -> Vec<&str> {
    match product.operands.get(1) {
        Some(factor @ Operand::Vector(_)) => names(Some(factor)),
        Some(_) | None => Vec::new(),
    }
}

/// The groups that a wait for products leaves running; `None` for another instruction, or a wait under a guard.
pub(super) fn left_running(instruction: &Instruction) -> Option<usize> {
    let waits = instruction.opcode == "wgmma" && instruction.has("wait_group");
    match instruction.operands.as_slice() {
        [Operand::Immediate(Immediate::Int(n))] if waits && instruction.guard.is_none() => {
            usize::try_from(*n).ok()
        }
        _ => None,
    }
}

/// Whether it waits for copies that this thread started: `cp.async.wait_group`, `cp.async.bulk.wait_group.read` and
/// the like.
pub(super) fn waits_for_copies(instruction: &Instruction) -> bool {
    instruction.opcode == "cp" && (instruction.has("wait_group") || instruction.has("wait_all"))
}

/// Whether nothing but registers is touched: of one lane, or of lanes that all come here.
pub(super) fn is_register_only(instruction: &Instruction) -> bool {
    let exchanges = matches!(
        instruction.opcode.as_str(),
        "shfl" | "vote" | "redux" | "match"
    );
    is_pure(instruction) || exchanges && instruction.has("sync") && instruction.guard.is_none()
}

/// The places in `order`, a block's instructions, of those after `wait` that may run before it: they touch registers
/// alone, none of `untouchable`, and nothing that stays behind them has to come first. Up to the next of wgmma's
/// instructions; what exchanges values with other lanes keeps its order among its kind.
pub(super) fn independent(
    kernel: &Kernel<'_>,
    order: &[usize],
    wait: usize,
    untouchable: &BTreeSet<&str>,
) -> Vec<usize> {
    let mut read: BTreeSet<&str> = BTreeSet::new();
    let mut written: BTreeSet<&str> = BTreeSet::new();
    if let Some(guard) = &kernel.instruction(order[wait]).guard {
        read.insert(&guard.register);
    }
    let mut may = Vec::new();
    let mut exchange_stays = false;
    for (place, &index) in order.iter().enumerate().skip(wait + 1) {
        let instruction = kernel.instruction(index);
        if instruction.opcode == "wgmma" {
            break;
        }
        let access = &kernel.access[index];
        let exchanges = !is_pure(instruction);
        let free = is_register_only(instruction)
            && !(exchanges && exchange_stays)
            && access
                .reads
                .iter()
                .all(|name| !written.contains(name) && !untouchable.contains(name))
            && access.writes.iter().all(|name| {
                !written.contains(name) && !read.contains(name) && !untouchable.contains(name)
            });
        if free {
            may.push(place);
        } else {
            exchange_stays |= exchanges && is_register_only(instruction);
            read.extend(&access.reads);
            written.extend(&access.writes);
        }
    }
    may
}

/// The products of a block before `place` in `order`, by group, the newest first: the registers of each. `None`
/// where a product before `place` is in no group yet. The oldest group may have begun before the block.
pub(super) fn groups_before<'m>(
    kernel: &Kernel<'m>,
    order: &[usize],
    place: usize,
) -> Option<Vec<BTreeSet<&'m str>>> {
    let mut groups: Vec<BTreeSet<&'m str>> = Vec::new();
    for &index in order[..place].iter().rev() {
        let instruction = kernel.instruction(index);
        if instruction.opcode != "wgmma" {
            continue;
        }
        if instruction.has("commit_group") {
            instruction.guard.is_none().then_some(())?;
            groups.push(BTreeSet::new());
        } else if is_product(instruction) {
            groups.last_mut()?.extend(registers_of(instruction));
        }
    }
    Some(groups)
}

/// By block: whether a product may be in no group yet where the block begins.
pub(super) fn begun(kernel: &Kernel<'_>) -> Vec<bool> {
    let blocks = &kernel.cfg.blocks;
    let mut begun = vec![false; blocks.len()];
    let mut open: Vec<usize> = (0..blocks.len()).collect();
    while let Some(at) = open.pop() {
        let mut state = begun[at];
        for index in blocks[at].instructions.clone() {
            let instruction = kernel.instruction(index);
            if is_product(instruction) {
                state = true;
            } else if instruction.opcode == "wgmma" && instruction.has("commit_group") {
                state &= instruction.guard.is_some();
            }
        }
        for next in blocks[at].successors.iter().map(|next| next.0 as usize) {
            if state && !begun[next] {
                begun[next] = true;
                open.push(next);
            }
        }
    }
    begun
}

/// A block's instructions in a new order, some with text in front of them.
pub(super) struct Reordered {
    /// Indices of the block's instructions.
    pub(super) order: Vec<usize>,
    /// What is written instead of an instruction, by its index.
    pub(super) text: BTreeMap<usize, String>,
}

impl Reordered {
    /// The edits that put it where the block's instructions stood.
    pub(super) fn edits(&self, subject: &Subject<'_>, kernel: &Kernel<'_>) -> Vec<Edit> {
        let first = self.order.iter().min().copied().unwrap_or(0);
        let spans = (first..).map(|index| kernel.instruction(index).span);
        let edits = self.order.iter().zip(spans).map(|(index, span)| {
            let own = subject.text(kernel.instruction(*index).span);
            let replacement = self.text.get(index).cloned().unwrap_or(own.to_owned());
            Edit { span, replacement }
        });
        edits
            .filter(|edit| edit.replacement != subject.text(edit.span))
            .collect()
    }
}

/// `order` with the instructions at some later `places` moved in front of `wait`.
pub(super) fn moved_before(order: &[usize], wait: usize, places: &[usize]) -> Vec<usize> {
    let later = (wait..order.len()).filter(|place| !places.contains(place));
    let places = (0..wait).chain(places.iter().copied()).chain(later);
    places.map(|place| order[place]).collect()
}

fn names(operand: Option<&Operand>) -> Vec<&str> {
    let mut found = Vec::new();
    if let Some(operand) = operand {
        operand.for_each_name(&mut |name| found.push(name));
    }
    found
}
