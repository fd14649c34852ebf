//! Bytes of memory to and from one lane's registers.

use std::ops::Range;

use super::super::regs::Regs;
use crate::sim::op::{Access, Reg};

#[inline(always)]
pub(super) fn put(regs: &mut Regs<'_>, reg: Reg, lane: usize, value: u64) {
    if reg.wide {
        regs.wide[usize::from(reg.slot)][lane] = value;
    } else {
        regs.narrow[usize::from(reg.slot)][lane] = value as u32;
    }
}

#[inline(always)]
pub(super) fn get(regs: &Regs<'_>, reg: Reg, lane: usize) -> u64 {
    if reg.wide {
        regs.wide[usize::from(reg.slot)][lane]
    } else {
        u64::from(regs.narrow[usize::from(reg.slot)][lane])
    }
}

#[inline(always)]
pub(super) fn extend(value: u64, bytes: u8, signed: bool) -> u64 {
    if signed && bytes < 8 {
        let shift = 64 - 8 * u32::from(bytes);
        ((value << shift) as i64 >> shift) as u64
    } else {
        value
    }
}

/// Bytes to a lane's registers.
pub(super) fn scatter(regs: &mut Regs<'_>, access: &Access, lane: usize, data: &[u8]) {
    let bytes = usize::from(access.bytes);
    for (part, reg) in data.chunks_exact(bytes).zip(&access.regs) {
        let value = if let Ok(four) = <[u8; 4]>::try_from(part) {
            u64::from(u32::from_le_bytes(four))
        } else {
            let mut whole = [0; 8];
            whole[..bytes].copy_from_slice(part);
            u64::from_le_bytes(whole)
        };
        put(regs, *reg, lane, extend(value, access.bytes, access.signed));
    }
}

/// Bytes of lanes `step` apart to their registers.
pub(super) fn scatter_run(
    regs: &mut Regs<'_>,
    access: &Access,
    lanes: Range<usize>,
    step: usize,
    run: &[u8],
) {
    match access.bytes {
        1 => scatter_elements::<1>(regs, access, lanes, step, run),
        2 => scatter_elements::<2>(regs, access, lanes, step, run),
        4 => scatter_elements::<4>(regs, access, lanes, step, run),
        _ => scatter_elements::<8>(regs, access, lanes, step, run),
    }
}

#[inline(always)]
fn scatter_elements<const BYTES: usize>(
    regs: &mut Regs<'_>,
    access: &Access,
    lanes: Range<usize>,
    step: usize,
    run: &[u8],
) {
    for (index, reg) in access.regs[..usize::from(access.count)].iter().enumerate() {
        let value = |at: usize| {
            let mut whole = [0; 8];
            let from = at * step + index * BYTES;
            whole[..BYTES].copy_from_slice(&run[from..from + BYTES]);
            extend(u64::from_le_bytes(whole), BYTES as u8, access.signed)
        };
        let slot = usize::from(reg.slot);
        if reg.wide {
            for (at, to) in regs.wide[slot][lanes.clone()].iter_mut().enumerate() {
                *to = value(at);
            }
        } else {
            for (at, to) in regs.narrow[slot][lanes.clone()].iter_mut().enumerate() {
                *to = value(at) as u32;
            }
        }
    }
}

/// Registers of lanes to their bytes, side by side.
pub(super) fn collect_run(regs: &Regs<'_>, access: &Access, lanes: Range<usize>, run: &mut [u8]) {
    match access.bytes {
        1 => collect_elements::<1>(regs, access, lanes, run),
        2 => collect_elements::<2>(regs, access, lanes, run),
        4 => collect_elements::<4>(regs, access, lanes, run),
        _ => collect_elements::<8>(regs, access, lanes, run),
    }
}

#[inline(always)]
fn collect_elements<const BYTES: usize>(
    regs: &Regs<'_>,
    access: &Access,
    lanes: Range<usize>,
    run: &mut [u8],
) {
    let step = BYTES * usize::from(access.count);
    for (index, reg) in access.regs[..usize::from(access.count)].iter().enumerate() {
        let slot = usize::from(reg.slot);
        for (at, lane) in lanes.clone().enumerate() {
            let value = if reg.wide {
                regs.wide[slot][lane]
            } else {
                u64::from(regs.narrow[slot][lane])
            };
            let from = at * step + index * BYTES;
            run[from..from + BYTES].copy_from_slice(&value.to_le_bytes()[..BYTES]);
        }
    }
}

/// A lane's registers to bytes.
pub(super) fn collect(regs: &Regs<'_>, access: &Access, lane: usize, data: &mut [u8]) {
    let bytes = usize::from(access.bytes);
    for (part, reg) in data.chunks_exact_mut(bytes).zip(&access.regs) {
        part.copy_from_slice(&get(regs, *reg, lane).to_le_bytes()[..bytes]);
    }
}
