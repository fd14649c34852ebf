//! The order of a basic block's instructions: what must come before what, and another order that respects
//! it. Registers, memory, barriers and the branch at the end are respected; nothing leaves its block.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::ops::Range;

use super::change::Subject;
use super::kernel::Kernel;
use super::memory::{Effect, effect, may_meet};
use crate::ptx::edit::Edit;
use crate::ptx::ir::Span;

/// Longer blocks are left alone.
const LONGEST: usize = 4000;

/// A basic block, its instructions numbered from 0.
pub(super) struct Block<'m> {
    pub(super) range: Range<usize>,
    /// By instruction: those that must come before it, next of kin only.
    before: Vec<BTreeSet<usize>>,
    pub(super) effects: Vec<Effect<'m>>,
    /// By instruction: how often each register it names was written before it.
    versions: Vec<HashMap<&'m str, u32>>,
}

/// Instructions that stand together, and what is written in their place.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    /// Numbers in the block.
    pub(super) members: Vec<usize>,
    pub(super) text: String,
    /// Units are written in this order as far as they may.
    pub(super) rank: usize,
}

impl<'m> Block<'m> {
    /// `None` for a block too long to look at.
    pub(super) fn new(kernel: &Kernel<'m>, range: Range<usize>) -> Option<Self> {
        if range.len() > LONGEST {
            return None;
        }
        let mut block = Self {
            range: range.clone(),
            before: vec![BTreeSet::new(); range.len()],
            effects: Vec::new(),
            versions: Vec::new(),
        };
        let mut versions: HashMap<&'m str, u32> = HashMap::new();
        let mut last_write: HashMap<&'m str, usize> = HashMap::new();
        let mut reads_since: HashMap<&'m str, Vec<usize>> = HashMap::new();
        let mut in_memory: Vec<usize> = Vec::new();
        for (number, index) in range.enumerate() {
            let access = &kernel.access[index];
            let named = access.reads.iter().chain(&access.writes);
            block.versions.push(
                named
                    .map(|name| (*name, versions.get(name).copied().unwrap_or(0)))
                    .collect(),
            );
            let version = |name: &str| versions.get(name).copied().unwrap_or(0);
            let own = effect(kernel, index, &version);
            let before = &mut block.before[number];
            for name in &access.reads {
                before.extend(last_write.get(name));
            }
            for name in &access.writes {
                before.extend(last_write.get(name));
                before.extend(reads_since.get(name).into_iter().flatten());
            }
            for &earlier in &in_memory {
                let conflict = match (&block.effects[earlier], &own) {
                    (Effect::None, _) | (_, Effect::None) => false,
                    (Effect::Order, _) | (_, Effect::Order) => true,
                    (Effect::Read(_), Effect::Read(_)) => false,
                    (Effect::Read(a) | Effect::Write(a), Effect::Read(b) | Effect::Write(b)) => {
                        may_meet(a, b)
                    }
                };
                if conflict {
                    before.insert(earlier);
                }
            }
            let opcode = kernel.instruction(index).opcode.as_str();
            if matches!(opcode, "bra" | "brx" | "ret" | "exit" | "trap") {
                before.extend(0..number);
            }
            if !matches!(own, Effect::None) {
                in_memory.push(number);
            }
            block.effects.push(own);
            for name in &access.reads {
                reads_since.entry(name).or_default().push(number);
            }
            for name in &access.writes {
                *versions.entry(name).or_default() += 1;
                last_write.insert(name, number);
                reads_since.remove(name);
            }
        }
        Some(block)
    }

    /// How often a register that the instruction names was written before it in the block.
    pub(super) fn version(&self, number: usize, register: &str) -> u32 {
        self.versions[number].get(register).copied().unwrap_or(0)
    }

    /// All that must come before some instruction that `wanted` holds for, themselves included.
    pub(super) fn ancestors(&self, wanted: impl Fn(usize) -> bool) -> Vec<bool> {
        let mut needed: Vec<bool> = (0..self.before.len()).map(wanted).collect();
        for number in (0..needed.len()).rev() {
            if needed[number] {
                for &earlier in &self.before[number] {
                    needed[earlier] = true;
                }
            }
        }
        needed
    }

    /// Every instruction as a unit of its own, as it stands.
    pub(super) fn units(&self, subject: &Subject<'_>, kernel: &Kernel<'_>) -> Vec<Unit> {
        (0..self.range.len())
            .map(|number| Unit {
                members: vec![number],
                text: subject.text(self.span(kernel, number)).to_owned(),
                rank: number,
            })
            .collect()
    }

    /// An order of the units that respects what must come before what; `None` where there is none.
    pub(super) fn order(&self, units: &[Unit]) -> Option<Vec<usize>> {
        let mut unit_of = vec![0; self.range.len()];
        for (unit, content) in units.iter().enumerate() {
            for &member in &content.members {
                unit_of[member] = unit;
            }
        }
        let mut waits = vec![0u32; units.len()];
        let mut after: Vec<Vec<usize>> = vec![Vec::new(); units.len()];
        for (unit, content) in units.iter().enumerate() {
            let before: BTreeSet<usize> = content
                .members
                .iter()
                .flat_map(|member| &self.before[*member])
                .map(|member| unit_of[*member])
                .collect();
            for earlier in before {
                if earlier == unit {
                    continue;
                }
                waits[unit] += 1;
                after[earlier].push(unit);
            }
        }
        let mut ready: BinaryHeap<Reverse<(usize, usize)>> = (0..units.len())
            .filter(|unit| waits[*unit] == 0)
            .map(|unit| Reverse((units[unit].rank, unit)))
            .collect();
        let mut order = Vec::with_capacity(units.len());
        while let Some(Reverse((_, unit))) = ready.pop() {
            order.push(unit);
            for &later in &after[unit] {
                waits[later] -= 1;
                if waits[later] == 0 {
                    ready.push(Reverse((units[later].rank, later)));
                }
            }
        }
        (order.len() == units.len()).then_some(order)
    }

    /// Whether two members of one unit depend on each other directly.
    pub(super) fn depend(&self, members: &[usize]) -> bool {
        members
            .iter()
            .any(|member| members.iter().any(|m| self.before[*member].contains(m)))
    }

    /// The edits that write the units in this order, where the block's instructions stood.
    pub(super) fn rewritten(
        &self,
        subject: &Subject<'_>,
        kernel: &Kernel<'_>,
        units: &[Unit],
        order: &[usize],
    ) -> Vec<Edit> {
        let mut edits = Vec::new();
        for number in 0..self.range.len() {
            let span = self.span(kernel, number);
            let Some(unit) = order.get(number) else {
                // Fewer units than instructions: the line goes too.
                let previous = self.span(kernel, number - 1).end;
                let gap = Span {
                    start: previous,
                    end: span.start,
                };
                let start = match subject.text(gap).trim().is_empty() {
                    true => previous,
                    false => span.start,
                };
                edits.push(Edit {
                    span: Span {
                        start,
                        end: span.end,
                    },
                    replacement: String::new(),
                });
                continue;
            };
            if units[*unit].text != subject.text(span) {
                edits.push(Edit {
                    span,
                    replacement: units[*unit].text.clone(),
                });
            }
        }
        edits
    }

    pub(super) fn span(&self, kernel: &Kernel<'_>, number: usize) -> Span {
        kernel.instruction(self.range.start + number).span
    }
}

/// The blocks of a kernel that can run at all, short enough to look at.
pub(super) fn blocks<'m>(kernel: &Kernel<'m>) -> Vec<Block<'m>> {
    let reachable = kernel.cfg.reachable();
    let live = kernel.cfg.blocks.iter().zip(reachable);
    live.filter(|(_, reachable)| *reachable)
        .filter_map(|(block, _)| Block::new(kernel, block.instructions.clone()))
        .collect()
}
