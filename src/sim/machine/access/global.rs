//! Loads and stores in global memory, with a fast path for lanes that lie side by side.

use std::ops::Range;

use super::super::regs::{LANES, Regs, Wide};
use super::super::{Block, Env, Stop};
use super::count::{Pattern, count_global};
use super::fault::{refused, uninitialised};
use super::lane::{collect_run, scatter, scatter_run};
use super::{At, lanes};
use crate::sim::finding::FindingKind;
use crate::sim::memory::{Author, Cursor, Overwrite};
use crate::sim::op::{Access, Pc};

/// Bytes of a lane's largest access.
const MOST_BYTES: usize = 32;

impl Block {
    pub(super) fn load_global(
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
        let checks = env.options.checks;
        let mut cursor = Cursor::default();
        let mut regs = self.warps[at.warp].regs(at.frame);
        let mut rest = 0;
        for (lanes, step) in runs(addresses, at.mask, total, true) {
            let length = (lanes.len() - 1) * step + total;
            let address = addresses[lanes.start];
            let run = (env.memory).read_run(&mut cursor, address, total as u64, length, checks);
            match run {
                Some(run) => scatter_run(&mut regs, access, lanes, step, run),
                None => rest |= mask_of(&lanes),
            }
        }
        if rest == 0 {
            return Ok(());
        }
        // Over the end of a page, outside, or not all written: lane by lane.
        let at = At { mask: rest, ..at };
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

    pub(super) fn store_global(
        &mut self,
        env: &mut Env<'_>,
        addresses: &Wide,
        at: At,
        access: &Access,
    ) -> Result<(), Stop> {
        env.changes += 1;
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
            seen: &self.knowledge[at.warp].seen[self.actors.warps()],
            pc: at.pc,
            launch_start: env.first_block,
            synchronised: self.synchronised,
        };
        let author = (env.options.checks && !access.strong).then_some(author);
        let mut cursor = Cursor::default();
        let mut buffer = [0u8; LANES * MOST_BYTES];
        let mut overwritten: Option<Overwrite> = None;
        let regs = self.warps[at.warp].regs(at.frame);
        for (run, step) in runs(addresses, at.mask, total, false) {
            let data = &mut buffer[..(run.len() - 1) * step + total];
            collect_run(&regs, access, run.clone(), data);
            let address = addresses[run.start];
            let whole =
                (env.memory).write_run(&mut cursor, address, total as u64, data, author.as_ref());
            if let Some(overwrite) = whole {
                overwritten = overwritten.or(overwrite);
                continue;
            }
            for (lane, data) in run.zip(data.chunks_exact(total)) {
                let overwrite = (env.memory)
                    .write(&mut cursor, addresses[lane], data, author.as_ref())
                    .map_err(|refusal| {
                        refused(env, at.pc, &refusal, addresses[lane], total, lane)
                    })?;
                overwritten = overwritten.or(overwrite);
            }
        }
        if let Some(overwrite) = overwritten {
            report_overwrite(env, at.pc, overwrite);
        }
        Ok(())
    }
}

pub(in crate::sim::machine) fn report_overwrite(env: &mut Env<'_>, pc: Pc, overwrite: Overwrite) {
    env.report(FindingKind::ConflictingWrites, pc, Some(overwrite.pc), |_| {
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

/// Lanes in order whose accesses of `total` bytes lie side by side, or, where `shared` is allowed, in one place; and
/// how far apart.
fn runs(
    addresses: &Wide,
    mask: u32,
    total: usize,
    shared: bool,
) -> impl Iterator<Item = (Range<usize>, usize)> {
    let mut left = mask;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let first = left.trailing_zeros() as usize;
        let active = |lane: usize| lane < LANES && left >> lane & 1 != 0;
        let apart = |lane: usize| addresses[lane].wrapping_sub(addresses[lane - 1]);
        let step = if shared && active(first + 1) && apart(first + 1) == 0 {
            0
        } else {
            total
        };
        let mut end = first + 1;
        while active(end) && apart(end) == step as u64 {
            end += 1;
        }
        left &= !mask_of(&(first..end));
        Some((first..end, step))
    })
}

fn mask_of(lanes: &Range<usize>) -> u32 {
    (u32::MAX >> (LANES - lanes.len())) << lanes.start
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
