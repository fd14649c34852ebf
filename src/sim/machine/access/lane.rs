//! Bytes of memory to and from one lane's registers.

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

/// A run of all lanes' bytes to their registers.
pub(super) fn scatter_run(regs: &mut Regs<'_>, access: &Access, run: &[u8]) {
    let (bytes, count) = (usize::from(access.bytes), usize::from(access.count));
    for (index, reg) in access.regs[..count].iter().enumerate() {
        if bytes == 4 && !reg.wide {
            let row = &mut regs.narrow[usize::from(reg.slot)];
            for (value, lane) in row.iter_mut().zip(run.chunks_exact(4 * count)) {
                if let Some(Ok(word)) = lane.get(4 * index..4 * index + 4).map(<[u8; 4]>::try_from)
                {
                    *value = u32::from_le_bytes(word);
                }
            }
        } else {
            for (lane, data) in run.chunks_exact(bytes * count).enumerate() {
                let mut whole = [0; 8];
                whole[..bytes].copy_from_slice(&data[bytes * index..bytes * (index + 1)]);
                put(
                    regs,
                    *reg,
                    lane,
                    extend(u64::from_le_bytes(whole), access.bytes, access.signed),
                );
            }
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
