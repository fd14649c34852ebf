//! Loads, stores and atomics of a warp, in every state space, with their checks and counts.

use super::super::finding::{Finding, FindingKind};
use super::super::float::{self, Format, Rounding};
use super::super::memory::{Author, Cursor, Overwrite, Refusal};
use super::super::op::{Access, Address, Atom, AtomOp, AtomType, Base, FloatOp, Pc, Reg, Space};
use super::super::shared::{Hazard, Race, Shared};
use super::regs::{FULL, LANES, Regs, Wide};
use super::warp::{Frame, Warp};
use super::{Block, Env, Stop, window};

/// Where an access happens.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub warp: usize,
    pub frame: Frame,
    pub pc: Pc,
    pub mask: u32,
}

enum Direction {
    Load,
    Store,
}

impl Block {
    pub(super) fn load(&mut self, env: &mut Env<'_>, at: At, access: &Access) -> Result<(), Stop> {
        self.transfer(env, at, access, &Direction::Load)
    }

    pub(super) fn store(&mut self, env: &mut Env<'_>, at: At, access: &Access) -> Result<(), Stop> {
        self.transfer(env, at, access, &Direction::Store)
    }

    fn transfer(
        &mut self,
        env: &mut Env<'_>,
        at: At,
        access: &Access,
        direction: &Direction,
    ) -> Result<(), Stop> {
        let addresses = addresses(
            &self.warps[at.warp].regs(at.frame),
            at.frame,
            &access.address,
        );
        self.by_space(
            access.space,
            &addresses,
            at,
            |block, space, addresses, at| {
                block.in_space(env, space, addresses, at, access, direction)
            },
        )
    }

    /// Splits a generic access by the spaces its lanes point into.
    fn by_space(
        &mut self,
        space: Space,
        addresses: &Wide,
        at: At,
        mut go: impl FnMut(&mut Self, Space, &Wide, At) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        if space != Space::Generic {
            return go(self, space, addresses, at);
        }
        let mut left = at.mask;
        while left != 0 {
            let space = window::of(addresses[left.trailing_zeros() as usize]);
            let same = (0..LANES)
                .filter(|&lane| left >> lane & 1 != 0 && window::of(addresses[lane]) == space)
                .fold(0u32, |bits, lane| bits | 1 << lane);
            let local = addresses.map(|a| a.wrapping_sub(window::base(space)));
            go(self, space, &local, At { mask: same, ..at })?;
            left &= !same;
        }
        Ok(())
    }

    fn in_space(
        &mut self,
        env: &mut Env<'_>,
        space: Space,
        addresses: &Wide,
        at: At,
        access: &Access,
        direction: &Direction,
    ) -> Result<(), Stop> {
        match (space, direction) {
            (Space::Global | Space::Generic, Direction::Load) => {
                self.load_global(env, addresses, at, access)
            }
            (Space::Global | Space::Generic, Direction::Store) => {
                self.store_global(env, addresses, at, access)
            }
            (Space::Shared, Direction::Load) => self.load_shared(env, addresses, at, access),
            (Space::Shared, Direction::Store) => self.store_shared(env, addresses, at, access),
            (Space::Local, Direction::Load) => self.load_local(env, addresses, at, access),
            (Space::Local, Direction::Store) => self.store_local(env, addresses, at, access),
            (Space::Param, Direction::Load) => load_bytes(
                env,
                &mut self.warps[at.warp],
                addresses,
                at,
                access,
                "the parameters",
                &env.launch.params,
            ),
            (Space::Const, Direction::Load) => load_bytes(
                env,
                &mut self.warps[at.warp],
                addresses,
                at,
                access,
                "constant memory",
                &env.program.constants,
            ),
            (Space::Param | Space::Const, Direction::Store) => Err(fault(
                env,
                at.pc,
                FindingKind::ReadOnlyWrite,
                "a store to constant memory or to the kernel's parameters",
            )),
        }
    }

    fn load_global(
        &mut self,
        env: &mut Env<'_>,
        addresses: &Wide,
        at: At,
        access: &Access,
    ) -> Result<(), Stop> {
        let total = usize::from(access.bytes) * usize::from(access.count);
        let pattern = Pattern::of(addresses, at.mask, total as u64);
        count_global(env, addresses, at, total, true, pattern);
        self.synchronised |= access.strong;
        env.polls += u32::from(access.strong);
        let mut cursor = Cursor::default();
        let mut regs = self.warps[at.warp].regs(at.frame);
        if pattern == Pattern::Consecutive {
            let run = env
                .memory
                .read_run(&mut cursor, addresses[0], total as u64, total * LANES);
            if let Some(run) = run {
                scatter_run(&mut regs, access, run);
                return Ok(());
            }
        }
        let undefined = match (access.bytes, access.count) {
            (4, 1) => load_lanes::<4>(env, &mut regs, addresses, at, access),
            (4, 4) => load_lanes::<16>(env, &mut regs, addresses, at, access),
            (1, 1) => load_lanes::<1>(env, &mut regs, addresses, at, access),
            (2, 1) => load_lanes::<2>(env, &mut regs, addresses, at, access),
            (4, 2) | (8, 1) => load_lanes::<8>(env, &mut regs, addresses, at, access),
            (2, 2) => load_lanes::<4>(env, &mut regs, addresses, at, access),
            (2, 4) => load_lanes::<8>(env, &mut regs, addresses, at, access),
            (8, 2) => load_lanes::<16>(env, &mut regs, addresses, at, access),
            (1, 2) => load_lanes::<2>(env, &mut regs, addresses, at, access),
            (1, 4) => load_lanes::<4>(env, &mut regs, addresses, at, access),
            _ => load_lanes::<32>(env, &mut regs, addresses, at, access),
        }?;
        if undefined {
            uninitialised(env, at.pc, "global memory");
        }
        Ok(())
    }

    fn store_global(
        &mut self,
        env: &mut Env<'_>,
        addresses: &Wide,
        at: At,
        access: &Access,
    ) -> Result<(), Stop> {
        env.writes += 1;
        let total = usize::from(access.bytes) * usize::from(access.count);
        count_global(
            env,
            addresses,
            at,
            total,
            false,
            Pattern::of(addresses, at.mask, total as u64),
        );
        let author = Author {
            block: self.serial,
            warp: at.warp as u8,
            seen: &self.clocks[at.warp],
            pc: at.pc,
            launch_start: env.first_block,
            synchronised: self.synchronised,
        };
        let author = (env.options.checks && !access.strong).then_some(author);
        let mut cursor = Cursor::default();
        let mut buffer = [0u8; 64];
        let mut overwritten: Option<Overwrite> = None;
        let regs = self.warps[at.warp].regs(at.frame);
        for lane in lanes(at.mask) {
            let data = &mut buffer[..total];
            collect(&regs, access, lane, data);
            let overwrite = env
                .memory
                .write(&mut cursor, addresses[lane], data, author.as_ref())
                .map_err(|refusal| refused(env, at.pc, &refusal, addresses[lane], total, lane))?;
            overwritten = overwritten.or(overwrite);
        }
        if let Some(overwrite) = overwritten {
            env.report(FindingKind::ConflictingWrites, at.pc, Some(overwrite.pc), |_| {
                let (who, help) = if overwrite.other_block {
                    ("two blocks write", "give each block its own part of the result, or combine with atomics")
                } else {
                    ("two warps of a block write", "let one thread write it, or put a barrier between")
                };
                (
                    format!("{who} different values to the same global address; which one stays is left to chance"),
                    help.into(),
                )
            });
        }
        Ok(())
    }

    fn load_shared(
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
            clocks,
            ..
        } = self;
        let clock = &clocks[at.warp];
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
                    seen.note(shared.check_read(word, 0xf, access.strong, at.warp, clock, at.pc));
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
                            seen.note(shared.read(word, 0xf, access.strong, at.warp, clock, at.pc));
                        }
                    } else {
                        for byte in (address as u32..address as u32 + total).step_by(bytes as usize)
                        {
                            let mask = ((1 << bytes) - 1) << (byte % 4);
                            seen.note(shared.read(
                                byte as usize / 4,
                                mask,
                                access.strong,
                                at.warp,
                                clock,
                                at.pc,
                            ));
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
                    super::regs::lanes!(at.mask, lane => {
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

    fn store_shared(
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
            clocks,
            ..
        } = self;
        let clock = &clocks[at.warp];
        let regs = warps[at.warp].regs(at.frame);
        shared.begin_request();
        for lane in lanes(at.mask) {
            let address = addresses[lane] as u32;
            check_shared(env, shared, at.pc, address, total, lane)?;
            for (index, reg) in access.regs[..usize::from(access.count)].iter().enumerate() {
                let value = get(&regs, *reg, lane);
                let place = address + index as u32 * bytes;
                let word = (place / 4) as usize;
                let mut one = |word: usize, mask: u32, keep: u32, value: u32| {
                    let old = shared.word(word);
                    let value = old & keep | value;
                    seen.race(shared.write(
                        word,
                        mask,
                        access.strong,
                        old == value,
                        at.warp,
                        clock,
                        at.pc,
                    ));
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

    fn load_local(
        &mut self,
        env: &mut Env<'_>,
        addresses: &Wide,
        at: At,
        access: &Access,
    ) -> Result<(), Stop> {
        let total = usize::from(access.bytes) * usize::from(access.count);
        let mut buffer = [0u8; 64];
        let mut undefined = false;
        for lane in lanes(at.mask) {
            let warp = &mut self.warps[at.warp];
            let address = check_local(env, warp, at.pc, addresses[lane], total, lane)?;
            let data = &mut buffer[..total];
            for (index, byte) in data.iter_mut().enumerate() {
                let place = address + index;
                undefined |= warp.stack_defined[place / 4] >> lane & 1 == 0;
                *byte = (warp.stack[place / 4][lane] >> (8 * (place % 4))) as u8;
            }
            scatter(&mut warp.regs(at.frame), access, lane, data);
        }
        if !access.private {
            count_local(env, at, total);
            if undefined && env.options.checks {
                uninitialised(env, at.pc, "local memory");
            }
        }
        Ok(())
    }

    fn store_local(
        &mut self,
        env: &mut Env<'_>,
        addresses: &Wide,
        at: At,
        access: &Access,
    ) -> Result<(), Stop> {
        let total = usize::from(access.bytes) * usize::from(access.count);
        let mut buffer = [0u8; 64];
        for lane in lanes(at.mask) {
            let warp = &mut self.warps[at.warp];
            let address = check_local(env, warp, at.pc, addresses[lane], total, lane)?;
            let data = &mut buffer[..total];
            collect(&warp.regs(at.frame), access, lane, data);
            for (index, byte) in data.iter().enumerate() {
                let place = address + index;
                let shift = 8 * (place % 4);
                let word = &mut warp.stack[place / 4][lane];
                *word = *word & !(0xff << shift) | u32::from(*byte) << shift;
                warp.stack_defined[place / 4] |= 1 << lane;
            }
        }
        if !access.private {
            count_local(env, at, total);
        }
        Ok(())
    }

    pub(super) fn atomic(&mut self, env: &mut Env<'_>, at: At, atom: &Atom) -> Result<(), Stop> {
        let addresses = addresses(&self.warps[at.warp].regs(at.frame), at.frame, &atom.address);
        self.by_space(
            atom.space,
            &addresses,
            at,
            |block, space, addresses, at| match space {
                Space::Global | Space::Generic => block.atomic_global(env, addresses, at, atom),
                Space::Shared => block.atomic_shared(env, addresses, at, atom),
                Space::Local | Space::Const | Space::Param => Err(fault(
                    env,
                    at.pc,
                    FindingKind::OutOfBounds,
                    "an atomic on an address that is neither global nor shared",
                )),
            },
        )
    }

    fn atomic_global(
        &mut self,
        env: &mut Env<'_>,
        addresses: &Wide,
        at: At,
        atom: &Atom,
    ) -> Result<(), Stop> {
        env.writes += 1;
        let bytes = atom_bytes(atom.ty);
        count_global(
            env,
            addresses,
            at,
            bytes,
            true,
            Pattern::of(addresses, at.mask, bytes as u64),
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
                    |old| apply(atom.op, atom.ty, old, value, swap),
                    env.options.checks,
                )
                .map_err(|refusal| refused(env, at.pc, &refusal, addresses[lane], bytes, lane))?;
            undefined |= !defined && atom.op != AtomOp::Exch;
            if let Some(dst) = atom.dst {
                put(&mut regs, dst, lane, old);
            }
        }
        if undefined {
            uninitialised(env, at.pc, "global memory");
        }
        Ok(())
    }

    fn atomic_shared(
        &mut self,
        env: &mut Env<'_>,
        addresses: &Wide,
        at: At,
        atom: &Atom,
    ) -> Result<(), Stop> {
        let bytes = atom_bytes(atom.ty) as u32;
        count_atomic(env, addresses, at, false);
        let mut seen = Hazards::default();
        let Self {
            warps,
            shared,
            clocks,
            ..
        } = self;
        let clock = &clocks[at.warp];
        let mut regs = warps[at.warp].regs(at.frame);
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
                seen.note(shared.read(word + part, 0xf, true, at.warp, clock, at.pc));
                old |= u64::from(shared.word(word + part)) << (32 * part);
            }
            let new = apply(atom.op, atom.ty, old, value, swap);
            for part in 0..words {
                seen.race(shared.write(word + part, 0xf, true, false, at.warp, clock, at.pc));
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
}

/// Global loads of `BYTES` bytes, lane by lane; tells whether some of them were never written.
fn load_lanes<const BYTES: usize>(
    env: &mut Env<'_>,
    regs: &mut Regs<'_>,
    addresses: &Wide,
    at: At,
    access: &Access,
) -> Result<bool, Stop> {
    let checks = env.options.checks;
    let mut cursor = Cursor::default();
    let mut data = [0; BYTES];
    let mut undefined = false;
    let mut previous = None;
    let single = access.regs[0];
    for lane in lanes(at.mask) {
        if previous != Some(addresses[lane]) {
            undefined |= !env
                .memory
                .read(&mut cursor, addresses[lane], &mut data, checks)
                .map_err(|refusal| refused(env, at.pc, &refusal, addresses[lane], BYTES, lane))?;
            previous = Some(addresses[lane]);
        }
        match <[u8; 4]>::try_from(&data[..]) {
            Ok(word) if access.count == 1 && !single.wide => {
                regs.narrow[usize::from(single.slot)][lane] = u32::from_le_bytes(word);
            }
            _ => scatter(regs, access, lane, &data),
        }
    }
    Ok(undefined)
}

/// What a request saw, to report once.
#[derive(Default)]
struct Hazards {
    race: Option<Race>,
    undefined: bool,
}

impl Hazards {
    #[inline]
    fn note(&mut self, seen: super::super::shared::Seen) {
        self.race = self.race.or(seen.race);
        self.undefined |= seen.undefined;
    }

    #[inline]
    fn race(&mut self, race: Option<Race>) {
        self.race = self.race.or(race);
    }

    fn report(&self, env: &mut Env<'_>, pc: Pc) {
        if !env.options.checks {
            return;
        }
        if self.undefined {
            uninitialised(env, pc, "shared memory");
        }
        if let Some(race) = self.race {
            // The report carries both lines; a number in the text would be that of the rendering.
            env.report(FindingKind::MissingBarrier, pc, Some(race.earlier), |_| {
                let what = match race.hazard {
                    Hazard::ReadAfterWrite => "reads shared memory that another warp writes",
                    Hazard::WriteAfterRead => "writes shared memory that another warp reads",
                    Hazard::WriteAfterWrite => "writes shared memory that another warp writes too",
                };
                (
                    format!("{what}, with no barrier between"),
                    "put `bar.sync 0;` between the two".into(),
                )
            });
        }
    }
}

fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut left = mask;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let lane = left.trailing_zeros() as usize;
        left &= left - 1;
        Some(lane)
    })
}

fn addresses(regs: &Regs<'_>, frame: Frame, address: &Address) -> Wide {
    let offset = address.offset as u64;
    match address.base {
        Base::None => [offset; LANES],
        Base::Frame => [offset.wrapping_add(u64::from(frame.stack)); LANES],
        Base::Wide(slot) => regs.w(slot).map(|base| base.wrapping_add(offset)),
        Base::Narrow(slot) => regs
            .n(slot)
            .map(|base| u64::from(base.wrapping_add(offset as u32))),
    }
}

#[inline(always)]
fn put(regs: &mut Regs<'_>, reg: Reg, lane: usize, value: u64) {
    if reg.wide {
        regs.wide[usize::from(reg.slot)][lane] = value;
    } else {
        regs.narrow[usize::from(reg.slot)][lane] = value as u32;
    }
}

#[inline(always)]
fn get(regs: &Regs<'_>, reg: Reg, lane: usize) -> u64 {
    if reg.wide {
        regs.wide[usize::from(reg.slot)][lane]
    } else {
        u64::from(regs.narrow[usize::from(reg.slot)][lane])
    }
}

#[inline(always)]
fn extend(value: u64, bytes: u8, signed: bool) -> u64 {
    if signed && bytes < 8 {
        let shift = 64 - 8 * u32::from(bytes);
        ((value << shift) as i64 >> shift) as u64
    } else {
        value
    }
}

/// Bytes to a lane's registers.
fn scatter(regs: &mut Regs<'_>, access: &Access, lane: usize, data: &[u8]) {
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
fn scatter_run(regs: &mut Regs<'_>, access: &Access, run: &[u8]) {
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
fn collect(regs: &Regs<'_>, access: &Access, lane: usize, data: &mut [u8]) {
    let bytes = usize::from(access.bytes);
    for (part, reg) in data.chunks_exact_mut(bytes).zip(&access.regs) {
        part.copy_from_slice(&get(regs, *reg, lane).to_le_bytes()[..bytes]);
    }
}

fn load_bytes(
    env: &Env<'_>,
    warp: &mut Warp,
    addresses: &Wide,
    at: At,
    access: &Access,
    what: &str,
    bank: &[u8],
) -> Result<(), Stop> {
    let total = usize::from(access.bytes) * usize::from(access.count);
    let mut regs = warp.regs(at.frame);
    for lane in lanes(at.mask) {
        let from = addresses[lane] as usize;
        if !from.is_multiple_of(total) {
            return Err(misaligned(env, at.pc, addresses[lane], total));
        }
        let Some(data) = bank.get(from..from.saturating_add(total)) else {
            let message = format!(
                "a load of {total} bytes at offset {from} of {what}, which have {} bytes",
                bank.len()
            );
            return Err(fault(env, at.pc, FindingKind::OutOfBounds, &message));
        };
        scatter(&mut regs, access, lane, data);
    }
    Ok(())
}

fn fault(env: &Env<'_>, pc: Pc, kind: FindingKind, message: &str) -> Stop {
    let text = format!("`{}`: {message}", env.program.mnemonic(pc));
    Stop::Fault(Finding::new(kind, env.program.line(pc), text))
}

fn misaligned(env: &Env<'_>, pc: Pc, address: u64, bytes: usize) -> Stop {
    fault(
        env,
        pc,
        FindingKind::Misaligned,
        &format!("address {address:#x} is no multiple of the access's {bytes} bytes"),
    )
}

fn refused(
    env: &Env<'_>,
    pc: Pc,
    refusal: &Refusal,
    address: u64,
    bytes: usize,
    lane: usize,
) -> Stop {
    match refusal {
        Refusal::Misaligned => misaligned(env, pc, address, bytes),
        Refusal::OutOfBounds(place) => fault(
            env,
            pc,
            FindingKind::OutOfBounds,
            &format!("lane {lane} accesses {place}"),
        ),
        Refusal::ReadOnly(name) => fault(
            env,
            pc,
            FindingKind::ReadOnlyWrite,
            &format!("lane {lane} writes to the input `{name}`"),
        ),
    }
}

fn uninitialised(env: &mut Env<'_>, pc: Pc, what: &str) {
    env.report(FindingKind::UninitialisedRead, pc, None, |program| {
        (
            format!(
                "`{}` reads {what} that nothing has written",
                program.mnemonic(pc)
            ),
            "write it first, or declare the workspace zero".into(),
        )
    });
}

#[inline(always)]
fn check_shared(
    env: &Env<'_>,
    shared: &Shared,
    pc: Pc,
    address: u32,
    bytes: u32,
    lane: usize,
) -> Result<(), Stop> {
    let inside = address >= super::SHARED_BASE
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
        i64::from(address) - i64::from(super::SHARED_BASE),
        shared.limit() - super::SHARED_BASE
    );
    fault(env, pc, FindingKind::OutOfBounds, &message)
}

fn check_local(
    env: &Env<'_>,
    warp: &Warp,
    pc: Pc,
    address: u64,
    bytes: usize,
    lane: usize,
) -> Result<usize, Stop> {
    if !address.is_multiple_of(bytes as u64) {
        return Err(misaligned(env, pc, address, bytes));
    }
    let size = warp.stack.len() as u64 * 4;
    if address.saturating_add(bytes as u64) > size {
        let message = format!(
            "lane {lane} accesses {bytes} bytes at local offset {address}, and the thread's stack has {size} bytes"
        );
        return Err(fault(env, pc, FindingKind::OutOfBounds, &message));
    }
    Ok(address as usize)
}

/// How a warp's addresses lie, in the cases that need no search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    /// All active lanes have one address.
    Uniform,
    /// All lanes are active, and side by side.
    Consecutive,
    Other,
}

impl Pattern {
    #[inline]
    fn of(addresses: &Wide, mask: u32, step: u64) -> Self {
        let first = addresses[mask.trailing_zeros() as usize & (LANES - 1)];
        if mask == FULL {
            let mut stepped = 0;
            let mut same = 0;
            for (lane, address) in addresses.iter().enumerate() {
                let apart = address.wrapping_sub(first);
                same |= apart;
                stepped |= apart ^ (lane as u64 * step);
            }
            return match (same, stepped) {
                (0, _) => Self::Uniform,
                (_, 0) => Self::Consecutive,
                _ => Self::Other,
            };
        }
        if lanes(mask).all(|lane| addresses[lane] == first) {
            Self::Uniform
        } else {
            Self::Other
        }
    }
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
        let outside = address < u64::from(super::SHARED_BASE) || address > most;
        bad |= at.mask >> lane & 1 != 0 && (outside || address & u64::from(total - 1) != 0);
    }
    if bad {
        for lane in lanes(at.mask) {
            check_shared(env, shared, at.pc, addresses[lane] as u32, total, lane)?;
        }
    }
    Ok(())
}

/// Distinct numbers of active lanes, and how many of them each got.
struct Distinct {
    numbers: [u64; LANES],
    lanes: [u32; LANES],
    count: usize,
}

impl Distinct {
    /// `count` numbers in a row, each with as many lanes.
    fn run(first: u64, count: usize, lanes: u32) -> Self {
        Self {
            numbers: std::array::from_fn(|i| first + i as u64),
            lanes: [lanes; LANES],
            count,
        }
    }

    fn of(addresses: &Wide, mask: u32, shift: u32) -> Self {
        let mut out = Self {
            numbers: [0; LANES],
            lanes: [0; LANES],
            count: 0,
        };
        for lane in lanes(mask) {
            let number = addresses[lane] >> shift;
            let known = &out.numbers[..out.count];
            // Ascending addresses, the usual case, meet their match last.
            let found = match known.last() {
                Some(&last) if last == number => Some(out.count - 1),
                Some(_) => known.iter().rposition(|&n| n == number),
                None => None,
            };
            match found {
                Some(at) => out.lanes[at] += 1,
                None => {
                    out.numbers[out.count] = number;
                    out.lanes[out.count] = 1;
                    out.count += 1;
                }
            }
        }
        out
    }
}

fn count_global(
    env: &mut Env<'_>,
    addresses: &Wide,
    at: At,
    total: usize,
    load: bool,
    pattern: Pattern,
) {
    let sectors = match pattern {
        Pattern::Uniform => Distinct::run(
            addresses[at.mask.trailing_zeros() as usize & (LANES - 1)] >> 5,
            1,
            at.mask.count_ones(),
        ),
        // Whole sectors but perhaps the first and the last, which share one.
        Pattern::Consecutive if addresses[0].is_multiple_of(32) && total <= 32 => {
            Distinct::run(addresses[0] >> 5, total, 32 / total as u32)
        }
        Pattern::Consecutive | Pattern::Other => Distinct::of(addresses, at.mask, 5),
    };
    let numbers = &sectors.numbers[..sectors.count];
    let mut lines = 0;
    let mut previous = None;
    for number in numbers {
        if previous != Some(number / 4) {
            lines += 1;
        }
        previous = Some(number / 4);
    }
    let missed = match &mut env.cache {
        Some(cache) if load => numbers
            .iter()
            .filter(|&&sector| !cache.touch(sector))
            .count(),
        _ => sectors.count,
    };
    let partial = if load {
        0
    } else {
        sectors.lanes[..sectors.count]
            .iter()
            .filter(|&&lanes| (lanes as usize) * total < 32)
            .count()
    };
    let line = &mut env.counts.by_pc[at.pc as usize];
    line.requests += 1;
    line.sectors += sectors.count as u64;
    line.missed_sectors += missed as u64;
    line.partial_sectors += partial as u64;
    line.lines += lines;
    line.bytes += u64::from(at.mask.count_ones()) * total as u64;
}

fn count_shared(env: &mut Env<'_>, shared: &Shared, at: At, total: u32) {
    let (wavefronts, ideal) = shared.end_request();
    let line = &mut env.counts.by_pc[at.pc as usize];
    line.requests += 1;
    line.wavefronts += u64::from(wavefronts);
    line.ideal_wavefronts += u64::from(ideal);
    line.bytes += u64::from(at.mask.count_ones()) * u64::from(total);
}

fn count_local(env: &mut Env<'_>, at: At, total: usize) {
    let line = &mut env.counts.by_pc[at.pc as usize];
    // The hardware interleaves lanes, so each word of a full warp is four sectors.
    line.local_sectors += (total as u64).div_ceil(4) * u64::from(at.mask.count_ones().div_ceil(8));
    line.bytes += u64::from(at.mask.count_ones()) * total as u64;
}

fn count_atomic(env: &mut Env<'_>, addresses: &Wide, at: At, global: bool) {
    let places = Distinct::of(addresses, at.mask, 2);
    let most = places.lanes[..places.count]
        .iter()
        .copied()
        .max()
        .unwrap_or(0);
    let line = &mut env.counts.by_pc[at.pc as usize];
    line.atomic_lanes += u64::from(at.mask.count_ones());
    line.atomic_serial += u64::from(most);
    if global {
        for number in &places.numbers[..places.count] {
            *env.atomics.entry(*number).or_insert(0) += 1;
        }
    }
}

fn atom_bytes(ty: AtomType) -> usize {
    match ty {
        AtomType::Int { wide, .. } => {
            if wide {
                8
            } else {
                4
            }
        }
        AtomType::Float(format) => format.bits() as usize / 8,
    }
}

/// The new value of an atomic.
fn apply(op: AtomOp, ty: AtomType, old: u64, value: u64, swap: u64) -> u64 {
    match (op, ty) {
        (AtomOp::Exch, _) => value,
        (AtomOp::Cas, _) => {
            let keep = match ty {
                AtomType::Int { wide: true, .. } => u64::MAX,
                AtomType::Int { wide: false, .. } | AtomType::Float(_) => u64::from(u32::MAX),
            };
            if old & keep == value & keep {
                swap
            } else {
                old
            }
        }
        (AtomOp::Add, AtomType::Float(format)) => {
            // f32 atomics in global memory flush subnormals.
            let sum = float::binary(format, FloatOp::Add, Rounding::NearestEven, old, value);
            if format == Format::F32 {
                format.flush(sum)
            } else {
                sum
            }
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
