//! Loads and stores in shared memory: bank conflicts counted, races and unwritten words noted.

use super::super::regs::Wide;
use super::super::warp::Warp;
use super::super::{Block, Env, SHARED_BASE, Stop};
use super::count::count_shared;
use super::fault::{fault, misaligned};
use super::gather::gather;
use super::hazard::Hazards;
use super::lane::{extend, get, put};
use super::shape::Places;
use super::{At, by, lanes};
use crate::sim::finding::FindingKind;
use crate::sim::footprint::Passes;
use crate::sim::op::{Access, Pc};
use crate::sim::shared::{By, Shared};

impl Block {
    pub(super) fn load_shared(
        &mut self,
        env: &mut Env<'_>,
        places: &Places,
        at: At,
        access: &Access,
    ) -> Result<(), Stop> {
        let by = &by(self.actors, &self.knowledge, at);
        let (warp, shared) = (&mut self.warps[at.warp], &mut self.shared);
        load(env, warp, shared, by, places, at, access)
    }

    pub(super) fn store_shared(
        &mut self,
        env: &mut Env<'_>,
        places: &Places,
        at: At,
        access: &Access,
    ) -> Result<(), Stop> {
        let by = &by(self.actors, &self.knowledge, at);
        let (warp, shared) = (&mut self.warps[at.warp], &mut self.shared);
        store(env, warp, shared, by, places, at, access)
    }
}

#[inline]
pub(super) fn load(
    env: &mut Env<'_>,
    warp: &mut Warp,
    shared: &mut Shared,
    by: &By<'_>,
    places: &Places,
    at: At,
    access: &Access,
) -> Result<(), Stop> {
    let bytes = u32::from(access.bytes);
    let total = bytes * u32::from(access.count);
    check_all_shared(env, shared, at, places, total)?;
    let addresses = &places.addresses;
    let mut regs = warp.regs(at.frame);
    let mut seen = Hazards::default();
    shared.begin_request();
    let passes = |addresses: &Wide| Passes::of_load(addresses, at.mask, total);
    let shape = if total >= 4 {
        env.shapes.of(at.pc, places, total, passes, env.arch)
    } else {
        None
    };
    if let Some(shape) = shape {
        shared.count_all(&shape.footprint);
        if env.options.checks {
            for words in shape.runs(places) {
                seen.note(shared.check_read_run(words, access.strong, by));
            }
        }
    } else {
        for pass in passes(&places.wide()) {
            shared.begin_pass();
            let mut previous = None;
            for lane in lanes(pass) {
                let address = addresses[lane];
                if previous == Some(address) {
                    continue;
                }
                previous = Some(address);
                for byte in (address..address + total).step_by(bytes as usize) {
                    let first = byte as usize / 4;
                    let mask = ((1 << bytes.min(4)) - 1) << (byte % 4);
                    for word in first..first + (bytes as usize / 4).max(1) {
                        seen.note(shared.read(word, mask, access.strong, by));
                    }
                }
            }
        }
    }
    let regs_of = &access.regs[..usize::from(access.count)];
    let narrow = bytes == 4 && regs_of.iter().all(|reg| !reg.wide);
    match regs_of.len() {
        1 if narrow => gather::<1>(shared.words(), &mut regs, places, regs_of, env.arch),
        2 if narrow => gather::<2>(shared.words(), &mut regs, places, regs_of, env.arch),
        4 if narrow => gather::<4>(shared.words(), &mut regs, places, regs_of, env.arch),
        _ => {
            for (index, reg) in regs_of.iter().enumerate() {
                let offset = index as u32 * bytes;
                for lane in lanes(at.mask) {
                    let place = addresses[lane] + offset;
                    let low = u64::from(shared.word(place as usize / 4));
                    let value = match bytes {
                        8 => u64::from(shared.word(place as usize / 4 + 1)) << 32 | low,
                        4 => low,
                        _ => low >> (8 * (place % 4)) & ((1 << (8 * bytes)) - 1),
                    };
                    let value = extend(value, access.bytes, access.signed);
                    put(&mut regs, *reg, lane, value);
                }
            }
        }
    }
    count_shared(env, shared, at, total);
    seen.report(env, at.pc);
    Ok(())
}

#[inline]
pub(super) fn store(
    env: &mut Env<'_>,
    warp: &mut Warp,
    shared: &mut Shared,
    by: &By<'_>,
    places: &Places,
    at: At,
    access: &Access,
) -> Result<(), Stop> {
    let bytes = u32::from(access.bytes);
    let total = bytes * u32::from(access.count);
    let mut seen = Hazards::default();
    let regs = warp.regs(at.frame);
    shared.begin_request();
    check_all_shared(env, shared, at, places, total)?;
    let addresses = &places.addresses;
    let shape = if bytes == 4 {
        let passes = |_: &Wide| Passes::of_store(at.mask, total);
        env.shapes.of(at.pc, places, total, passes, env.arch)
    } else {
        None
    };
    if let Some(shape) = shape.filter(|shape| {
        shape.disjoint && (shape.runs(places)).all(|words| shared.may_write_run(words, by))
    }) {
        // No lane writes what another one writes, and nobody's work is overtaken but perhaps asynchronous reading.
        shared.count_all(&shape.footprint);
        if env.options.checks {
            for words in shape.runs(places) {
                let [from, to] = [words.start, words.end].map(|word| 4 * word as u32);
                seen.race(shared.overwrites_reading(from, to, by));
                shared.note_write_run(words, access.strong, by);
            }
        }
        let words = shared.words_mut();
        for (index, reg) in access.regs[..usize::from(access.count)].iter().enumerate() {
            for lane in lanes(at.mask) {
                words[addresses[lane] as usize / 4 + index] = get(&regs, *reg, lane) as u32;
            }
        }
        count_shared(env, shared, at, total);
        seen.report(env, at.pc);
        return Ok(());
    }
    let mut passes = Passes::of_store(at.mask, total);
    let mut pass = 0;
    for lane in lanes(at.mask) {
        if pass >> lane & 1 == 0 {
            pass = passes.next().unwrap_or_default();
            shared.begin_pass();
        }
        let address = addresses[lane];
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

/// Whether each access of `total` bytes is aligned and inside.
#[inline]
fn check_all_shared(
    env: &Env<'_>,
    shared: &Shared,
    at: At,
    places: &Places,
    total: u32,
) -> Result<(), Stop> {
    if !places.lie_in(SHARED_BASE, shared.limit(), total, env.shapes.last(at.pc)) {
        for lane in lanes(at.mask) {
            check_shared(env, shared, at.pc, places.addresses[lane], total, lane)?;
        }
    }
    Ok(())
}
