//! What an access costs: requests, sectors, lines, wavefronts and bytes, by instruction.

use super::super::Env;
use super::super::regs::{FULL, LANES, Wide};
use super::{At, lanes};
use crate::sim::shared::Shared;

/// How a warp's addresses lie, in the cases that need no search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// All active lanes have one address.
    Uniform,
    /// All lanes are active, and side by side.
    Consecutive,
    Other,
}

impl Pattern {
    #[inline]
    pub(super) fn of(addresses: &Wide, mask: u32, step: u64) -> Self {
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

pub(super) fn count_global(
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

pub(in crate::sim::machine) fn count_shared(
    env: &mut Env<'_>,
    shared: &mut Shared,
    at: At,
    total: u32,
) {
    let (wavefronts, ideal) = shared.end_request();
    let line = &mut env.counts.by_pc[at.pc as usize];
    line.requests += 1;
    line.wavefronts += u64::from(wavefronts);
    line.ideal_wavefronts += u64::from(ideal);
    line.bytes += u64::from(at.mask.count_ones()) * u64::from(total);
}

/// The reading half of copies from global to shared memory.
pub(in crate::sim::machine) fn count_copy(
    env: &mut Env<'_>,
    addresses: &Wide,
    at: At,
    total: usize,
) {
    let pattern = Pattern::of(addresses, at.mask, total as u64);
    count_global(env, addresses, at, total, true, pattern);
}

pub(super) fn count_local(env: &mut Env<'_>, at: At, total: usize) {
    let line = &mut env.counts.by_pc[at.pc as usize];
    // The hardware interleaves lanes, so each word of a full warp is four sectors.
    line.local_sectors += (total as u64).div_ceil(4) * u64::from(at.mask.count_ones().div_ceil(8));
    line.bytes += u64::from(at.mask.count_ones()) * total as u64;
}

pub(super) fn count_atomic(env: &mut Env<'_>, addresses: &Wide, at: At, global: bool) {
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
        let mut most = 0;
        for lane in lanes(mask) {
            let number = addresses[lane] >> shift;
            let known = &out.numbers[..out.count];
            // Ascending addresses, the usual case, meet their match last or not at all.
            let found = match known.last() {
                Some(&last) if last == number => Some(out.count - 1),
                Some(_) if number > most => None,
                Some(_) => known.iter().rposition(|&n| n == number),
                None => None,
            };
            most = most.max(number);
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
