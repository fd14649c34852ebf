//! Atomics and reductions in global and shared memory, lane after lane.

use super::super::regs::Wide;
use super::super::warp::Warp;
use super::super::{Block, Env, Stop};
use super::count::{Pattern, count_atomic, count_global, count_shared};
use super::fault::{refused, uninitialised};
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
        let all = bytes * (1 + atom.further.len());
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
        self.synchronised |= atom.dst.is_some();
        let mut cursor = Cursor::default();
        let mut undefined = false;
        let mut regs = self.warps[at.warp].regs(at.frame);
        for lane in lanes(at.mask) {
            let (value, swap) = (
                get(&regs, atom.value, lane),
                atom.swap.map_or(0, |reg| get(&regs, reg, lane)),
            );
            let (old, defined) = env
                .memory
                .update(
                    &mut cursor,
                    addresses[lane],
                    bytes,
                    |old| apply(atom.op, atom.ty, old, value, swap, Subnormals::Flushed),
                    env.options.checks,
                )
                .map_err(|refusal| refused(env, at.pc, &refusal, addresses[lane], bytes, lane))?;
            undefined |= !defined && atom.op != AtomOp::Exch;
            if let Some(dst) = atom.dst {
                put(&mut regs, dst, lane, old);
            }
            for (part, reg) in atom.further.iter().enumerate() {
                let address = addresses[lane] + ((part + 1) * bytes) as u64;
                let value = get(&regs, *reg, lane);
                let (_, defined) = env
                    .memory
                    .update(
                        &mut cursor,
                        address,
                        bytes,
                        |old| apply(atom.op, atom.ty, old, value, 0, Subnormals::Flushed),
                        env.options.checks,
                    )
                    .map_err(|refusal| refused(env, at.pc, &refusal, address, bytes, lane))?;
                undefined |= !defined;
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
    count_atomic(env, addresses, at, false);
    let mut seen = Hazards::default();
    let mut regs = warp.regs(at.frame);
    shared.begin_request();
    for lane in lanes(at.mask) {
        let address = addresses[lane] as u32;
        check_shared(env, shared, at.pc, address, bytes.max(4), lane)?;
        let word = (address / 4) as usize;
        let (value, swap) = (
            get(&regs, atom.value, lane),
            atom.swap.map_or(0, |reg| get(&regs, reg, lane)),
        );
        let words = (bytes / 4).max(1) as usize;
        let mut old = 0;
        for part in 0..words {
            seen.note(shared.read(word + part, 0xf, true, by));
            old |= u64::from(shared.word(word + part)) << (32 * part);
        }
        let new = apply(atom.op, atom.ty, old, value, swap, Subnormals::Kept);
        for part in 0..words {
            seen.race(shared.write(word + part, 0xf, true, false, by));
            shared.set_word(word + part, (new >> (32 * part)) as u32);
        }
        if let Some(dst) = atom.dst {
            put(&mut regs, dst, lane, old);
        }
    }
    if atom.op == AtomOp::Exch {
        seen.undefined = false;
    }
    count_shared(env, shared, at, bytes);
    seen.report(env, at.pc);
    Ok(())
}

pub(in crate::sim::machine) fn atom_bytes(ty: AtomType) -> usize {
    match ty {
        AtomType::Int { wide, .. } => {
            if wide {
                8
            } else {
                4
            }
        }
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

/// The new value of an atomic.
pub(in crate::sim::machine) fn apply(
    op: AtomOp,
    ty: AtomType,
    old: u64,
    value: u64,
    swap: u64,
    subnormals: Subnormals,
) -> u64 {
    match (op, ty) {
        (AtomOp::Exch, _) => value,
        (AtomOp::Cas, _) => {
            let keep = match ty {
                AtomType::Int { wide: true, .. } => u64::MAX,
                AtomType::Int { wide: false, .. } | AtomType::Float(_) | AtomType::Pair(_) => {
                    u64::from(u32::MAX)
                }
            };
            if old & keep == value & keep {
                swap
            } else {
                old
            }
        }
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
                let new = apply(
                    op,
                    AtomType::Float(format),
                    of(old),
                    of(value),
                    0,
                    subnormals,
                );
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
        (AtomOp::Min, AtomType::Int { wide, signed }) => {
            if less(old, value, wide, signed) {
                old
            } else {
                value
            }
        }
        (AtomOp::Max, AtomType::Int { wide, signed }) => {
            if less(old, value, wide, signed) {
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
