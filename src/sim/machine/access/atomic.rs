//! Atomics and reductions in global and shared memory, lane after lane.

use super::super::regs::{Regs, Wide};
use super::super::warp::Warp;
use super::super::{Block, Env, Stop};
use super::count::{Pattern, count_atomic, count_global, count_shared};
use super::fault::{misaligned, refused, uninitialised};
use super::hazard::Hazards;
use super::lane::{get, put};
use super::shared::check_shared;
use super::{At, by, lanes};
use crate::sim::float::{self, Format, Rounding};
use crate::sim::memory::Cursor;
use crate::sim::op::{Atom, AtomOp, AtomType, FloatOp};
use crate::sim::shared::{By, Shared};

impl Block {
    pub(super) fn atomic_global(
        &mut self,
        env: &mut Env<'_>,
        addresses: &Wide,
        at: At,
        atom: &Atom,
    ) -> Result<(), Stop> {
        env.changes += 1;
        let bytes = atom_bytes(atom.ty);
        let all = bytes * atom.values.len();
        count_global(
            env,
            addresses,
            at,
            all,
            true,
            Pattern::of(addresses, at.mask, all as u64),
        );
        count_atomic(env, addresses, at, true);
        // A returned value may be a ticket or a flag: from here on other blocks' writes may be ordered.
        self.synchronised |= !atom.dst.is_empty();
        let mut cursor = Cursor::default();
        let mut undefined = false;
        let mut regs = self.warps[at.warp].regs(at.frame);
        for lane in lanes(at.mask) {
            if !addresses[lane].is_multiple_of(all as u64) {
                return Err(misaligned(env, at.pc, addresses[lane], all));
            }
            let mut olds = [0; PARTS];
            for (part, place) in olds.iter_mut().enumerate().take(atom.values.len()) {
                let address = addresses[lane] + (part * bytes) as u64;
                let (old, defined) = env
                    .memory
                    .update(&mut cursor, address, bytes, |old| old, env.options.checks)
                    .map_err(|refusal| refused(env, at.pc, &refusal, address, bytes, lane))?;
                undefined |= !defined && atom.op != AtomOp::Exch;
                *place = old;
            }
            let news = changed(atom, &regs, lane, &olds, Subnormals::Flushed);
            for (part, new) in news.iter().enumerate().take(atom.values.len()) {
                let address = addresses[lane] + (part * bytes) as u64;
                env.memory
                    .update(&mut cursor, address, bytes, |_| *new, false)
                    .map_err(|refusal| refused(env, at.pc, &refusal, address, bytes, lane))?;
            }
            for (reg, old) in atom.dst.iter().zip(olds) {
                put(&mut regs, *reg, lane, old);
            }
        }
        if undefined {
            uninitialised(env, at.pc, "global memory");
        }
        Ok(())
    }

    pub(super) fn atomic_shared(
        &mut self,
        env: &mut Env<'_>,
        addresses: &Wide,
        at: At,
        atom: &Atom,
    ) -> Result<(), Stop> {
        let by = &by(self.actors, &self.knowledge, at);
        let (warp, shared) = (&mut self.warps[at.warp], &mut self.shared);
        update(env, warp, shared, by, addresses, at, atom)
    }
}

/// An atomic on shared memory.
pub(super) fn update(
    env: &mut Env<'_>,
    warp: &mut Warp,
    shared: &mut Shared,
    by: &By<'_>,
    addresses: &Wide,
    at: At,
    atom: &Atom,
) -> Result<(), Stop> {
    let bytes = atom_bytes(atom.ty) as u32;
    let all = bytes * atom.values.len() as u32;
    count_atomic(env, addresses, at, false);
    let mut seen = Hazards::default();
    let mut regs = warp.regs(at.frame);
    shared.begin_request();
    for lane in lanes(at.mask) {
        let address = addresses[lane] as u32;
        check_shared(env, shared, at.pc, address, all, lane)?;
        let word = (address / 4) as usize;
        // Of a word, where the atomic is smaller.
        let (shift, touched) = if bytes < 4 {
            (8 * (address & 3), 3 << (address & 3))
        } else {
            (0, 0xf)
        };
        let words = (bytes / 4).max(1) as usize;
        let mut olds = [0; PARTS];
        for (part, old) in olds.iter_mut().enumerate().take(atom.values.len()) {
            for at in 0..words {
                let word = word + part * words + at;
                seen.note(shared.read(word, touched, true, by));
                *old |= u64::from(shared.word(word) >> shift) << (32 * at);
            }
            if bytes < 4 {
                *old &= 0xffff;
            }
        }
        let news = changed(atom, &regs, lane, &olds, Subnormals::Kept);
        for (part, new) in news.iter().enumerate().take(atom.values.len()) {
            for at in 0..words {
                let word = word + part * words + at;
                seen.race(shared.write(word, touched, true, false, by));
                let new = (new >> (32 * at)) as u32;
                let new = if bytes < 4 {
                    shared.word(word) & !(0xffff << shift) | (new & 0xffff) << shift
                } else {
                    new
                };
                shared.set_word(word, new);
            }
        }
        for (reg, old) in atom.dst.iter().zip(olds) {
            put(&mut regs, *reg, lane, old);
        }
    }
    if atom.op == AtomOp::Exch {
        seen.undefined = false;
    }
    count_shared(env, shared, at, all);
    seen.report(env, at.pc);
    Ok(())
}

/// Most values of one atomic.
const PARTS: usize = 8;

/// What a lane's places hold afterwards; `cas` changes all of them or none.
fn changed(
    atom: &Atom,
    regs: &Regs<'_>,
    lane: usize,
    olds: &[u64; PARTS],
    subnormals: Subnormals,
) -> [u64; PARTS] {
    let mut news = *olds;
    let values = |part: usize| get(regs, atom.values[part], lane);
    if atom.op == AtomOp::Cas {
        let keep = u64::MAX >> (64 - 8 * atom_bytes(atom.ty));
        let same = (0..atom.values.len()).all(|part| (olds[part] ^ values(part)) & keep == 0);
        if same {
            for (new, reg) in news.iter_mut().zip(&atom.swap) {
                *new = get(regs, *reg, lane);
            }
        }
        return news;
    }
    for part in 0..atom.values.len() {
        news[part] = apply(atom.op, atom.ty, olds[part], values(part), subnormals);
    }
    news
}

pub(in crate::sim::machine) fn atom_bytes(ty: AtomType) -> usize {
    match ty {
        AtomType::Int { bits, .. } => usize::from(bits / 8),
        AtomType::Float(format) => format.bits() as usize / 8,
        AtomType::Pair(_) => 4,
    }
}

/// What a float32 addition does to subnormal addends and sums: hardware flushes them in global memory only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sim::machine) enum Subnormals {
    Flushed,
    Kept,
}

/// The new value of an atomic that changes its place whatever that holds: any but `cas`.
pub(in crate::sim::machine) fn apply(
    op: AtomOp,
    ty: AtomType,
    old: u64,
    value: u64,
    subnormals: Subnormals,
) -> u64 {
    match (op, ty) {
        (AtomOp::Exch | AtomOp::Cas, _) => value,
        (AtomOp::Add, AtomType::Float(format)) => {
            let flush = |bits| {
                if format == Format::F32 && subnormals == Subnormals::Flushed {
                    format.flush(bits)
                } else {
                    bits
                }
            };
            let (old, value) = (flush(old), flush(value));
            flush(float::binary(
                format,
                FloatOp::Add,
                Rounding::NearestEven,
                old,
                value,
            ))
        }
        (op @ (AtomOp::Add | AtomOp::Min | AtomOp::Max), AtomType::Pair(format)) => {
            let half = |shift: u32| {
                let of = |bits: u64| bits >> shift & 0xffff;
                let new = apply(op, AtomType::Float(format), of(old), of(value), subnormals);
                (new & 0xffff) << shift
            };
            half(16) | half(0)
        }
        (AtomOp::Min, AtomType::Float(format)) => {
            float::binary(format, FloatOp::Min, Rounding::NearestEven, old, value)
        }
        (AtomOp::Max, AtomType::Float(format)) => {
            float::binary(format, FloatOp::Max, Rounding::NearestEven, old, value)
        }
        (AtomOp::Add, AtomType::Int { .. }) => old.wrapping_add(value),
        (AtomOp::Min, AtomType::Int { bits, signed }) => {
            if less(old, value, bits == 64, signed) {
                old
            } else {
                value
            }
        }
        (AtomOp::Max, AtomType::Int { bits, signed }) => {
            if less(old, value, bits == 64, signed) {
                value
            } else {
                old
            }
        }
        (AtomOp::Inc, _) => {
            if old as u32 >= value as u32 {
                0
            } else {
                old + 1
            }
        }
        (AtomOp::Dec, _) => {
            if old as u32 == 0 || old as u32 > value as u32 {
                value
            } else {
                old - 1
            }
        }
        (AtomOp::And, _) => old & value,
        (AtomOp::Or, _) => old | value,
        (AtomOp::Xor, _) => old ^ value,
    }
}

fn less(a: u64, b: u64, wide: bool, signed: bool) -> bool {
    match (wide, signed) {
        (true, true) => (a as i64) < b as i64,
        (true, false) => a < b,
        (false, true) => (a as i32) < b as i32,
        (false, false) => (a as u32) < b as u32,
    }
}
