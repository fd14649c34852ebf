//! `wgmma`: each warp of a warpgroup computes its sixteen rows. Accumulators stay out of the registers until
//! their group is waited for; the registers hold poison meanwhile, and touching them is a finding.

use std::collections::VecDeque;

use super::super::access::{At, fault, report_race, uninitialised};
use super::super::regs::{FULL, LANES, Narrow};
use super::super::tensor_core::{self, HALF, SINGLE, Terms};
use super::super::warp::{Frame, POISON, State};
use super::super::{Block, Env, Stop};
use super::Step;
use super::operand::{Descriptor, Operand};
use crate::sim::causal::WARPGROUP;
use crate::sim::decode::SHARED_BASE;
use crate::sim::finding::FindingKind;
use crate::sim::op::{Instr, Op, Operands, Pc, Product, Program, Side, Slot};
use crate::sim::shared::By;

const ROWS: usize = Product::ROWS;

/// A warp's products under way.
#[derive(Default)]
pub(in crate::sim) struct Products {
    list: Vec<UnderWay>,
    /// Epochs of committed groups that were not waited for. A warpgroup's warps count alike.
    groups: VecDeque<u32>,
    /// The epoch that is under way.
    epoch: u32,
    /// Registers of accumulators under way, and of A operands, by absolute slot.
    accumulators: Slots,
    operands: Slots,
}

/// Accumulators that products add to.
struct UnderWay {
    d: Vec<Slot>,
    frame: Frame,
    halves: bool,
    columns: usize,
    /// By row, then by column.
    values: Vec<f32>,
    /// The group of the latest product; absent while it is not committed.
    group: Option<u32>,
    pc: Pc,
}

/// A set of register slots.
#[derive(Default)]
struct Slots(Vec<u64>);

impl Slots {
    fn insert(&mut self, slot: usize) {
        if self.0.len() <= slot / 64 {
            self.0.resize(slot / 64 + 1, 0);
        }
        self.0[slot / 64] |= 1 << (slot % 64);
    }

    fn contains(&self, slot: usize) -> bool {
        self.0
            .get(slot / 64)
            .is_some_and(|word| word >> (slot % 64) & 1 != 0)
    }
}

impl Products {
    #[inline]
    pub fn any(&self) -> bool {
        !self.list.is_empty()
    }

    pub fn new(base: u32) -> Self {
        Self {
            epoch: base + 1,
            ..Self::default()
        }
    }

    /// The epoch under way.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// An instruction's register that a product under way owns, and the product's own instruction.
    pub fn disturbed(&self, program: &Program, pc: Pc, frame: Frame, instr: &Instr) -> Option<Pc> {
        if matches!(instr.op, Op::Async(_)) {
            return None;
        }
        let depends = program.depends.get(pc as usize)?;
        // Registers of the 32-bit file have no mark above their slot.
        let narrow = |register: &&u32| **register <= u32::from(Slot::MAX);
        let absolute = |register: &u32| frame.narrow + *register as usize;
        let hit = (depends.writes.iter().filter(narrow).map(absolute))
            .any(|slot| self.accumulators.contains(slot) || self.operands.contains(slot))
            || (depends.reads.iter().filter(narrow).map(absolute))
                .any(|slot| self.accumulators.contains(slot));
        hit.then(|| self.list.last().map_or(pc, |product| product.pc))
    }

    fn own_registers(&mut self) {
        self.accumulators.0.clear();
        for product in &self.list {
            for &slot in &product.d {
                self.accumulators
                    .insert(product.frame.narrow + usize::from(slot));
            }
        }
    }
}

impl Block {
    pub(super) fn product(
        &mut self,
        env: &mut Env<'_>,
        at: At,
        product: &Product,
    ) -> Result<(), Stop> {
        let whole = self.actors.warpgroup(at.warp).len() == WARPGROUP;
        if at.mask != FULL || !whole {
            let message = "a warpgroup of four whole warps must execute it together";
            return Err(fault(env, at.pc, FindingKind::DivergentBarrier, message));
        }
        if env.options.checks
            && let Some(&write) = env.program.unfenced.get(&at.pc)
        {
            env.report(FindingKind::MissingProductFence, at.pc, Some(write), |_| {
                (
                    "uses registers that were written before it, with no `wgmma.fence` between".into(),
                    "put `wgmma.fence.sync.aligned;` after the last write of accumulators and of A's registers".into(),
                )
            });
        }
        let columns = usize::from(product.columns);
        let factors = if env.options.skip_products {
            None
        } else {
            Some(self.factors(env, at, product)?)
        };
        let warp = &mut self.warps[at.warp];
        let known = (warp.products.list.iter())
            .position(|other| other.d == product.d && other.frame == at.frame);
        let adds = warp.regs(at.frame).pred(product.adds) & 1 != 0;
        let index = match known {
            Some(index) => index,
            None => {
                self.untouched(env, at, &product.d);
                let warp = &mut self.warps[at.warp];
                let values = gather(warp.regs(at.frame).narrow, product, columns);
                for &slot in &product.d {
                    warp.regs(at.frame)
                        .set_n(FULL, slot, &[POISON as u32; LANES]);
                }
                warp.products.list.push(UnderWay {
                    d: product.d.clone(),
                    frame: at.frame,
                    halves: product.halves,
                    columns,
                    values,
                    group: None,
                    pc: at.pc,
                });
                warp.products.own_registers();
                warp.products.list.len() - 1
            }
        };
        let under_way = &mut self.warps[at.warp].products.list[index];
        (under_way.group, under_way.pc) = (None, at.pc);
        if !adds {
            under_way.values.fill(0.0);
        }
        if let Some((a, b)) = factors {
            let sums = &mut under_way.values;
            match (least(product.a_type), least(product.b_type)) {
                (Some(a_least), Some(b_least)) => {
                    let terms = Terms {
                        a: &a,
                        b: &b,
                        columns,
                        least: [a_least, b_least, if product.halves { HALF } else { SINGLE }],
                        places: Terms::FEW_PLACES,
                    };
                    terms.add_to(sums, env.arch);
                }
                _ => multiply(env.arch, &a, &b, columns, sums),
            }
        }
        if product.halves {
            for value in &mut under_way.values {
                *value = half::f16::from_f32(*value).to_f32();
            }
        }
        Ok(())
    }

    /// The values of both operands, A by depth and then by row, B by depth and then by column.
    fn factors(
        &mut self,
        env: &mut Env<'_>,
        at: At,
        product: &Product,
    ) -> Result<(Vec<f32>, Vec<f32>), Stop> {
        let columns = usize::from(product.columns);
        let depth = product.depth();
        let bits = self.warps[at.warp].regs(at.frame).w(product.b)[0];
        let b = Operand {
            descriptor: Descriptor::of(bits),
            ty: product.b_type,
            row_major: product.transpose_b,
            first_row: 0,
            rows: u32::from(product.columns),
        };
        self.operand(env, at, b, "B")?;
        let mut b_values = vec![0.0; depth * columns];
        b.read(&self.shared, product.negate_b, columns, &mut b_values);
        let mut a_values = vec![0.0; depth * ROWS];
        match product.a {
            Side::Descriptor(slot) => {
                let bits = self.warps[at.warp].regs(at.frame).w(slot)[0];
                let a = Operand {
                    descriptor: Descriptor::of(bits),
                    ty: product.a_type,
                    row_major: product.transpose_a,
                    first_row: (at.warp % WARPGROUP * ROWS) as u32,
                    rows: ROWS as u32,
                };
                self.operand(env, at, a, "A")?;
                a.read(&self.shared, product.negate_a, ROWS, &mut a_values);
            }
            Side::Registers(slots) => {
                let rows = slots.map(|slot| self.warps[at.warp].regs(at.frame).n(slot));
                self.untouched(env, at, &slots);
                a_of_registers(product, &rows, &mut a_values);
                for slot in slots {
                    let absolute = at.frame.narrow + usize::from(slot);
                    self.warps[at.warp].products.operands.insert(absolute);
                }
            }
        }
        Ok((a_values, b_values))
    }

    /// Reports registers that another product under way still owns.
    fn untouched(&self, env: &mut Env<'_>, at: At, slots: &[Slot]) {
        let products = &self.warps[at.warp].products;
        let absolute = |slot: &Slot| at.frame.narrow + usize::from(*slot);
        if slots
            .iter()
            .map(absolute)
            .any(|slot| products.accumulators.contains(slot))
        {
            let other = products.list.last().map(|product| product.pc);
            report_disturbed(env, at.pc, other);
        }
    }

    /// Checks an operand in shared memory, and notes that it is read until the product's group is over.
    fn operand(
        &mut self,
        env: &mut Env<'_>,
        at: At,
        operand: Operand,
        which: &str,
    ) -> Result<(), Stop> {
        let Operand { descriptor, .. } = operand;
        if descriptor.base_offset != 0 {
            let message =
                format!("the descriptor of {which} has a base offset; the simulator knows 0 only");
            return Err(fault(env, at.pc, FindingKind::Unsupported, &message));
        }
        let (from, to) = operand.bounds();
        if from < SHARED_BASE || to > self.shared.limit() {
            let message = format!(
                "operand {which} reaches from shared offset {} to {}, and the block has {} bytes of shared memory",
                i64::from(from) - i64::from(SHARED_BASE),
                i64::from(to) - i64::from(SHARED_BASE),
                self.shared.limit() - SHARED_BASE
            );
            return Err(fault(env, at.pc, FindingKind::OutOfBounds, &message));
        }
        if !env.options.checks {
            return Ok(());
        }
        let ranges = operand.ranges();
        let actor = self.actors.products(at.warp);
        let by = By {
            actor,
            epoch: self.warps[at.warp].products.epoch,
            knows: &self.knowledge[at.warp],
            pc: at.pc,
        };
        let (mut race, mut undefined) = (None, false);
        for &(start, end) in &ranges {
            let words = start as usize / 4..end as usize / 4;
            let seen = self.shared.check_async_read(words, &by);
            race = race.or(seen.race);
            undefined |= seen.undefined;
        }
        let epoch = by.epoch;
        self.shared.note_reading(ranges, actor, epoch, at.pc);
        if undefined {
            uninitialised(env, at.pc, "shared memory");
        }
        if let Some(race) = race {
            report_race(env, at.pc, race);
        } else if let Some((written, copy)) =
            self.shared.swizzled_otherwise(from, descriptor.swizzle)
        {
            let text = format!(
                "operand {which} is read with {}, and the bulk copy wrote it with {}",
                descriptor.swizzle.name(),
                written.name()
            );
            env.report(FindingKind::SwizzleMismatch, at.pc, Some(copy), |_| {
                (
                    text,
                    "give the descriptor (bits 62–63) and the tensor map one swizzle".into(),
                )
            });
        }
        Ok(())
    }

    /// Ends a group, and wakes warps of the warpgroup that wait for this one's part.
    pub(super) fn product_commit(&mut self, at: At) {
        let products = &mut self.warps[at.warp].products;
        let epoch = products.epoch;
        for product in &mut products.list {
            product.group.get_or_insert(epoch);
        }
        products.groups.push_back(epoch);
        products.epoch += 1;
        for warp in self.actors.warpgroup(at.warp) {
            for fragment in 0..self.warps[warp].fragments.len() {
                let state = self.warps[warp].fragments[fragment].state;
                if let State::Warpgroup(epoch) = state
                    && self.committed(warp, epoch)
                {
                    self.end_products(warp, epoch);
                    let fragment = &mut self.warps[warp].fragments[fragment];
                    fragment.state = State::Running;
                    fragment.pc += 1;
                }
            }
        }
    }

    /// A product is the whole warpgroup's: it ends when all four warps have issued their part.
    pub(super) fn product_wait(&mut self, at: At, fragment: usize, pending: u32) -> Step {
        let groups = &self.warps[at.warp].products.groups;
        let last = groups.len().checked_sub(pending as usize + 1);
        let Some(epoch) = last.and_then(|last| groups.get(last)).copied() else {
            return Step::Next;
        };
        if self.committed(at.warp, epoch) {
            self.end_products(at.warp, epoch);
            Step::Next
        } else {
            self.warps[at.warp].fragments[fragment].state = State::Warpgroup(epoch);
            Step::Waits
        }
    }

    /// Whether all warps of a warp's group have committed the epoch.
    fn committed(&self, warp: usize, epoch: u32) -> bool {
        let mut peers = self.actors.warpgroup(warp);
        peers.all(|peer| self.warps[peer].products.epoch > epoch)
    }

    /// Groups up to an epoch are over: their accumulators are in the registers.
    fn end_products(&mut self, warp: usize, epoch: u32) {
        let actor = self.actors.products(warp);
        self.knowledge[warp].learn(actor, epoch);
        let warp = &mut self.warps[warp];
        warp.products.groups.retain(|&group| group > epoch);
        let list = std::mem::take(&mut warp.products.list);
        let (over, still): (Vec<_>, Vec<_>) = list
            .into_iter()
            .partition(|product| product.group.is_some_and(|group| group <= epoch));
        warp.products.list = still;
        for product in over {
            scatter(warp.regs(product.frame).narrow, &product);
        }
        warp.products.own_registers();
        if warp.products.groups.is_empty() && warp.products.list.is_empty() {
            warp.products.operands.0.clear();
        }
    }
}

/// Tells of an instruction that touches registers of a product under way.
pub(in crate::sim::machine) fn report_disturbed(env: &mut Env<'_>, pc: Pc, product: Option<Pc>) {
    env.report(FindingKind::AsyncNotWaited, pc, product, |_| {
        (
            "touches registers of a `wgmma` that was not waited for".into(),
            "put `wgmma.wait_group` before it: with 0, or with the number of newer groups that may stay under way".into(),
        )
    });
}

/// Row and column of an accumulator of a lane.
#[inline]
fn place(index: usize, lane: usize) -> (usize, usize) {
    (
        lane / 4 + 8 * (index >> 1 & 1),
        8 * (index >> 2) + 2 * (lane % 4) + (index & 1),
    )
}

fn gather(registers: &[Narrow], product: &Product, columns: usize) -> Vec<f32> {
    let mut values = vec![0.0; ROWS * columns];
    for index in 0..columns / 2 {
        let part = if product.halves { index / 2 } else { index };
        let register = &registers[usize::from(product.d[part])];
        for (lane, &word) in register.iter().enumerate() {
            let (row, column) = place(index, lane);
            values[row * columns + column] = if product.halves {
                half::f16::from_bits((word >> (16 * (index & 1))) as u16).to_f32()
            } else {
                f32::from_bits(word)
            };
        }
    }
    values
}

fn scatter(registers: &mut [Narrow], product: &UnderWay) {
    for index in 0..product.columns / 2 {
        let part = if product.halves { index / 2 } else { index };
        let register = &mut registers[usize::from(product.d[part])];
        for (lane, word) in register.iter_mut().enumerate() {
            let (row, column) = place(index, lane);
            let value = product.values[row * product.columns + column];
            *word = if product.halves {
                let bits = u32::from(half::f16::from_f32(value).to_bits());
                let shift = 16 * (index & 1);
                *word & !(0xffff << shift) | bits << shift
            } else {
                value.to_bits()
            };
        }
    }
}

/// A from registers: by depth, then by row.
fn a_of_registers(product: &Product, registers: &[Narrow; 4], out: &mut [f32]) {
    let ty = product.a_type;
    let per_word = 4 / ty.bytes();
    let bits = 32 / per_word as u32;
    let half = product.depth() / 2;
    for (which, row) in registers.iter().enumerate() {
        for (lane, word) in row.iter().enumerate() {
            for element in 0..per_word {
                let value = word >> (bits * element as u32) & (u32::MAX >> (32 - bits));
                let value = ty.value(value);
                let value = if product.negate_a { -value } else { value };
                let row = lane / 4 + 8 * (which & 1);
                let depth = half * (which >> 1) + per_word * (lane % 4) + element;
                out[depth * ROWS + row] = value;
            }
        }
    }
}

/// The least normal number of elements of 8 bits, whose sums are cut early.
fn least(ty: Operands) -> Option<f64> {
    match ty {
        Operands::E4m3 => Some(1.0 / 64.0),
        Operands::E5m2 => Some(HALF),
        Operands::F16 | Operands::Bf16 | Operands::Tf32 | Operands::S8 | Operands::U8 => None,
    }
}

/// Adds the product of A (by depth, then row) and B (by depth, then column). Products of 16-bit numbers are
/// exact in f32; sums are rounded each, where tensor cores keep fewer bits in an order of their own. Parts of a sum may
/// be beyond f32: what becomes infinite is added once more.
fn multiply(arch: pulp::Arch, a: &[f32], b: &[f32], columns: usize, out: &mut [f32]) {
    let before = out.to_vec();
    arch.dispatch(|| {
        for (a, b) in a.chunks_exact(ROWS).zip(b.chunks_exact(columns)) {
            for (factor, row) in a.iter().zip(out.chunks_exact_mut(columns)) {
                for (sum, value) in row.iter_mut().zip(b) {
                    *sum += factor * value;
                }
            }
        }
    });
    for (index, sum) in out.iter_mut().enumerate() {
        if !sum.is_finite() {
            let (row, column) = (index / columns, index % columns);
            let factors = a.chunks_exact(ROWS).zip(b.chunks_exact(columns));
            let products = factors.map(|(a, b)| f64::from(a[row]) * f64::from(b[column]));
            *sum = tensor_core::single(f64::from(before[index]) + products.sum::<f64>());
        }
    }
}
