//! Loads and stores in shared memory: bank conflicts counted, races and unwritten words noted.

use super::super::regs::{LANES, Wide};
use super::super::{Block, Env, SHARED_BASE, Stop};
use super::count::{Pattern, count_shared};
use super::fault::{fault, misaligned};
use super::hazard::Hazards;
use super::lane::{extend, get, put};
use super::{At, by, lanes};
use crate::sim::finding::FindingKind;
use crate::sim::op::{Access, Pc};
use crate::sim::shared::Shared;

impl Block {
    pub(super) fn load_shared(
        &mut self,
        env: &mut Env<'_>,
        addresses: &Wide,
        at: At,
        access: &Access,
    ) -> Result<(), Stop> {
        let bytes = u32::from(access.bytes);
        let total = bytes * u32::from(access.count);
        check_all_shared(env, &self.shared, at, addresses, total)?;
        let Self {
            warps,
            shared,
            knowledge,
            actors,
            ..
        } = self;
        let by = &by(*actors, knowledge, at);
        let mut regs = warps[at.warp].regs(at.frame);
        let mut seen = Hazards::default();
        let words = (total / 4).max(1) as usize;
        let pattern = Pattern::of(addresses, at.mask, u64::from(total));
        shared.begin_request();
        match pattern {
            Pattern::Uniform | Pattern::Consecutive if bytes >= 4 => {
                let all = if pattern == Pattern::Uniform {
                    words
                } else {
                    words * LANES
                };
                let first = (addresses[at.mask.trailing_zeros() as usize] / 4) as usize;
                shared.count_run(all);
                for word in first..first + all {
                    seen.note(shared.check_read(word, 0xf, access.strong, by));
                }
            }
            Pattern::Uniform | Pattern::Consecutive | Pattern::Other => {
                let mut previous = u64::MAX;
                for lane in lanes(at.mask) {
                    let address = addresses[lane];
                    if address == previous {
                        continue;
                    }
                    previous = address;
                    let word = (address / 4) as usize;
                    if bytes >= 4 {
                        for word in word..word + words {
                            seen.note(shared.read(word, 0xf, access.strong, by));
                        }
                    } else {
                        for byte in (address as u32..address as u32 + total).step_by(bytes as usize)
                        {
                            let mask = ((1 << bytes) - 1) << (byte % 4);
                            seen.note(shared.read(byte as usize / 4, mask, access.strong, by));
                        }
                    }
                }
            }
        }
        for (index, reg) in access.regs[..usize::from(access.count)].iter().enumerate() {
            let offset = index as u32 * bytes;
            match (bytes, reg.wide) {
                (4, false) => {
                    let row = &mut regs.narrow[usize::from(reg.slot)];
                    crate::sim::machine::regs::lanes!(at.mask, lane => {
                        row[lane] = shared.word((addresses[lane] as u32 + offset) as usize / 4);
                    });
                }
                _ => {
                    for lane in lanes(at.mask) {
                        let place = addresses[lane] as u32 + offset;
                        let low = u64::from(shared.word(place as usize / 4));
                        let value = match bytes {
                            8 => u64::from(shared.word(place as usize / 4 + 1)) << 32 | low,
                            4 => low,
                            _ => low >> (8 * (place % 4)) & ((1 << (8 * bytes)) - 1),
                        };
                        put(
                            &mut regs,
                            *reg,
                            lane,
                            extend(value, access.bytes, access.signed),
                        );
                    }
                }
            }
        }
        count_shared(env, shared, at, total);
        seen.report(env, at.pc);
        Ok(())
    }

    pub(super) fn store_shared(
        &mut self,
        env: &mut Env<'_>,
        addresses: &Wide,
        at: At,
        access: &Access,
    ) -> Result<(), Stop> {
        let bytes = u32::from(access.bytes);
        let total = bytes * u32::from(access.count);
        let mut seen = Hazards::default();
        let Self {
            warps,
            shared,
            knowledge,
            actors,
            ..
        } = self;
        let by = &by(*actors, knowledge, at);
        let regs = warps[at.warp].regs(at.frame);
        shared.begin_request();
        for lane in lanes(at.mask) {
            let address = addresses[lane] as u32;
            check_shared(env, shared, at.pc, address, total, lane)?;
            seen.race(shared.overwrites_reading(address, address + total, by));
            for (index, reg) in access.regs[..usize::from(access.count)].iter().enumerate() {
                let value = get(&regs, *reg, lane);
                let place = address + index as u32 * bytes;
                let word = (place / 4) as usize;
                let mut one = |word: usize, mask: u32, keep: u32, value: u32| {
                    let old = shared.word(word);
                    let value = old & keep | value;
                    seen.race(shared.write(word, mask, access.strong, old == value, by));
                    shared.set_word(word, value);
                };
                match bytes {
                    4 => one(word, 0xf, 0, value as u32),
                    8 => {
                        one(word, 0xf, 0, value as u32);
                        one(word + 1, 0xf, 0, (value >> 32) as u32);
                    }
                    _ => {
                        let shift = place % 4;
                        let part = ((1u32 << (8 * bytes)) - 1) << (8 * shift);
                        one(
                            word,
                            ((1 << bytes) - 1) << shift,
                            !part,
                            (value as u32) << (8 * shift) & part,
                        );
                    }
                }
            }
        }
        count_shared(env, shared, at, total);
        seen.report(env, at.pc);
        Ok(())
    }
}

#[inline(always)]
pub(in crate::sim::machine) fn check_shared(
    env: &Env<'_>,
    shared: &Shared,
    pc: Pc,
    address: u32,
    bytes: u32,
    lane: usize,
) -> Result<(), Stop> {
    let inside = address >= SHARED_BASE
        && u64::from(address) + u64::from(bytes) <= u64::from(shared.limit());
    if inside && address & (bytes - 1) == 0 {
        return Ok(());
    }
    Err(bad_shared(env, shared, pc, address, bytes, lane))
}

#[cold]
fn bad_shared(
    env: &Env<'_>,
    shared: &Shared,
    pc: Pc,
    address: u32,
    bytes: u32,
    lane: usize,
) -> Stop {
    if address & (bytes - 1) != 0 {
        return misaligned(env, pc, u64::from(address), bytes as usize);
    }
    let message = format!(
        "lane {lane} accesses {bytes} bytes at shared offset {}, and the block has {} bytes of shared memory",
        i64::from(address) - i64::from(SHARED_BASE),
        shared.limit() - SHARED_BASE
    );
    fault(env, pc, FindingKind::OutOfBounds, &message)
}

fn check_all_shared(
    env: &Env<'_>,
    shared: &Shared,
    at: At,
    addresses: &Wide,
    total: u32,
) -> Result<(), Stop> {
    let mut bad = false;
    let most = u64::from(shared.limit()).saturating_sub(u64::from(total));
    for (lane, address) in addresses.iter().enumerate() {
        let address = address & u64::from(u32::MAX);
        let outside = address < u64::from(SHARED_BASE) || address > most;
        bad |= at.mask >> lane & 1 != 0 && (outside || address & u64::from(total - 1) != 0);
    }
    if bad {
        for lane in lanes(at.mask) {
            check_shared(env, shared, at.pc, addresses[lane] as u32, total, lane)?;
        }
    }
    Ok(())
}
