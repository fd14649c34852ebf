//! Which blocks run: all of them where outputs are wanted, a few that stand for the grid where a time is.

use serde::{Deserialize, Serialize};

use crate::sim::cost::{Work, resident};
use crate::sim::{self, Counts, Options, Outcome, Program, Stop, Touched};
use crate::turns::Helpers;

use super::super::{Job, Timing};
use super::apart::apart;
use super::prepare::{Prepared, Refusal};
use super::{SimDevice, diagnostics};

/// Least instruction budget of a launch that is checked, in warp instructions.
const LEAST_BUDGET: u64 = 50_000_000;
/// Budget of each warp of the grid beyond it.
const WARP_BUDGET: u64 = 20_000;
/// Budget of the blocks that are sampled to estimate a time.
const TIMING_BUDGET: u64 = 400_000_000;
/// Blocks that stand for a grid.
const SAMPLED_BLOCKS: u64 = 4;
/// The same where those differ.
const MORE_BLOCKS: u64 = 16;
/// What so many may execute: some two seconds of a core.
const MORE_BUDGET: u64 = 100_000_000;
/// Instructions of the longest of them over those of the shortest, from where they differ.
const DIFFERENT: f64 = 1.02;
/// Strides over a grid that are tried.
const STRIDES: u64 = 64;
/// First-level cache of an SM beyond its largest shared memory, bytes.
const CACHE_BEYOND_SHARED: u64 = 28 * 1024;

/// A launch, and what the blocks that stand for it did.
pub struct Observed {
    /// The kernel's name.
    pub entry: String,
    /// The kernel.
    pub program: Program,
    /// Geometry.
    pub launch: sim::Launch,
    /// Registers a thread, where known.
    pub registers: Option<u32>,
    /// What its blocks did.
    pub did: Did,
}

/// What the blocks that stand for a launch did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Did {
    /// Instruction by instruction.
    pub counts: Counts,
    /// To each buffer.
    pub touched: Vec<Touched>,
}

/// Which blocks of a grid run.
#[derive(Clone, Copy)]
enum Sample {
    /// Few that stand for it.
    Few,
    /// All where all are resident at once, and may wait for each other; else few.
    Resident,
    /// So many, spread over it.
    Spread(u64),
}

impl Did {
    /// Some blocks did more than others.
    fn differs(&self) -> bool {
        self.counts.longest_block as f64 > DIFFERENT * self.counts.shortest_block as f64
    }
}

impl Observed {
    /// For the cost model.
    pub fn work(&self) -> Work<'_> {
        Work {
            program: &self.program,
            launch: &self.launch,
            registers: self.registers,
            counts: &self.did.counts,
            touched: &self.did.touched,
        }
    }
}

impl SimDevice {
    /// Runs the blocks that stand for each launch of a job. `Err`: it ended otherwise.
    pub fn observe(&self, job: &Job<'_>) -> Result<Vec<Observed>, Timing> {
        match self.observe_blocks(job, Sample::Few) {
            // Blocks that wait for each other: all must run.
            Err(Timing::Hung(_)) => self.observe_blocks(job, Sample::Resident),
            // The few that ran may be far from the mean.
            Ok(few) if worth_more(&few) => self.observe_spread(job, MORE_BLOCKS).or(Ok(few)),
            observed => observed,
        }
    }

    /// The same, but runs every block of a grid that is resident at once: what its blocks do may differ.
    pub fn observe_whole(&self, job: &Job<'_>) -> Result<Vec<Observed>, Timing> {
        self.observe_blocks(job, Sample::Resident)
    }

    /// The same, but runs so many blocks, spread over the grid: what few of them do may be far from the mean.
    pub fn observe_spread(&self, job: &Job<'_>, blocks: u64) -> Result<Vec<Observed>, Timing> {
        self.observe_blocks(job, Sample::Spread(blocks))
    }

    /// The same from what was seen earlier of the same job; nothing runs.
    pub fn recall(&self, job: &Job<'_>, seen: Vec<Did>) -> Result<Vec<Observed>, Timing> {
        let prepared = self.prepare(job).map_err(refused)?;
        Ok(observed(prepared, seen))
    }

    fn observe_blocks(&self, job: &Job<'_>, sample: Sample) -> Result<Vec<Observed>, Timing> {
        let mut prepared = self.prepare(job).map_err(refused)?;
        let helpers = (!self.one_core).then(Helpers::of_host);
        let mut seen = Vec::with_capacity(prepared.launches.len());
        for (entry, launch, registers) in &prepared.launches {
            let program = &prepared.programs[entry];
            let options = self.sampling(program, launch, *registers, sample);
            prepared.memory.forget_touched();
            let Outcome { stop, counts, .. } =
                apart(program, &mut prepared.memory, launch, &options, helpers);
            match stop {
                None => {}
                Some(Stop::Fault(finding)) => {
                    return Err(Timing::Faulted(diagnostics(vec![finding])));
                }
                Some(Stop::Hung(findings)) => return Err(Timing::Hung(diagnostics(findings))),
            }
            seen.push(Did {
                counts,
                touched: prepared.memory.touched(),
            });
        }
        Ok(observed(prepared, seen))
    }

    pub(super) fn options(
        &self,
        program: &Program,
        launch: &sim::Launch,
        registers: Option<u32>,
    ) -> Options {
        let resident = resident(&self.limits(), program, launch, registers);
        let threads: u64 = launch.block.iter().map(|&n| u64::from(n)).product();
        let blocks = launch.blocks();
        Options {
            checks: true,
            budget: (blocks * threads.div_ceil(32))
                .saturating_mul(WARP_BUDGET)
                .max(LEAST_BUDGET),
            sm_count: self.gpu.sm_count,
            resident_blocks: resident.blocks.saturating_mul(self.gpu.sm_count),
            blocks: None,
            cache_bytes: None,
            skip_products: false,
            registers,
            seed: 0,
        }
    }

    /// Options to run the blocks that stand for the grid.
    fn sampling(
        &self,
        program: &Program,
        launch: &sim::Launch,
        registers: Option<u32>,
        sample: Sample,
    ) -> Options {
        let full = self.options(program, launch, registers);
        let resident = resident(&self.limits(), program, launch, registers)
            .blocks
            .max(1);
        let blocks = launch.blocks();
        let shared =
            u64::from(program.static_shared() + launch.dynamic_shared) * u64::from(resident);
        let cache = (self.gpu.smem_per_sm.0 + CACHE_BEYOND_SHARED).saturating_sub(shared)
            / u64::from(resident);
        let all = match sample {
            Sample::Few => SAMPLED_BLOCKS,
            Sample::Resident => u64::from(full.resident_blocks),
            Sample::Spread(count) => count,
        };
        let sample = match sample {
            _ if blocks <= all.max(SAMPLED_BLOCKS) => None,
            Sample::Few | Sample::Resident => Some(standing_for(launch.grid)),
            Sample::Spread(count) => Some(spread(count, blocks)),
        };
        Options {
            checks: false,
            skip_products: true,
            budget: TIMING_BUDGET,
            blocks: sample,
            cache_bytes: Some(cache),
            ..full
        }
    }
}

/// Whether blocks differ, and more of them cost little.
fn worth_more(few: &[Observed]) -> bool {
    let ran = few.iter().map(|launch| launch.did.counts.instructions);
    few.iter().any(|launch| launch.did.differs())
        && ran.sum::<u64>() * MORE_BLOCKS / SAMPLED_BLOCKS <= MORE_BUDGET
}

fn refused(refusal: Refusal) -> Timing {
    match refusal {
        Refusal::Unsupported(findings) => Timing::Faulted(diagnostics(findings)),
        Refusal::DoesNotFit(message) => Timing::Refused(message),
    }
}

fn observed(prepared: Prepared, seen: Vec<Did>) -> Vec<Observed> {
    let Prepared {
        programs, launches, ..
    } = prepared;
    std::iter::zip(launches, seen)
        .map(|((entry, launch, registers), did)| Observed {
            program: programs[&entry].clone(),
            entry,
            launch,
            registers,
            did,
        })
        .collect()
}

/// Blocks that stand for a grid too large to run.
fn standing_for(grid: [u32; 3]) -> Vec<u64> {
    let columns = u64::from(grid[0]);
    let rows = u64::from(grid[1]) * u64::from(grid[2]);
    // Near the middles of equal parts: neither the first nor a ragged last one stands for the rest, and no
    // two at a distance that a power of two or a grid's width divides.
    let near_middle = |part: u64, of: u64| {
        let reach = of / (4 * SAMPLED_BLOCKS) + 1;
        let middle = of * (2 * part + 1) / (2 * SAMPLED_BLOCKS);
        middle + (part + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) % reach
    };
    let parts = 0..SAMPLED_BLOCKS;
    if columns < SAMPLED_BLOCKS || rows < SAMPLED_BLOCKS {
        return parts
            .map(|part| near_middle(part, columns * rows))
            .collect();
    }
    // Work may grow along a row of blocks, as under a causal mask, or from row to row: one in each part of both.
    parts
        .map(|row| {
            let column = (2 * row + 1) % (SAMPLED_BLOCKS + 1);
            near_middle(row, rows) * columns + near_middle(column, columns)
        })
        .collect()
}

/// `count` of `blocks`: multiples of a stride whose places are spread over the whole grid and over each of its equal
/// parts. What a block does may grow with its place within any of them: a row of blocks, or the tiles of some heads
/// under a causal mask.
fn spread(count: u64, blocks: u64) -> Vec<u64> {
    let periods = periods(blocks);
    let mut best = (f64::INFINITY, Vec::new());
    // The first of them is 1, whose multiples are as many as asked for.
    for candidate in 0..STRIDES {
        let bits = candidate.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let [first, stride] = [bits % blocks, ((bits >> 32) % blocks) | 1];
        let at =
            |n: u64| (u128::from(first) + u128::from(n) * u128::from(stride)) % u128::from(blocks);
        let mut sample: Vec<u64> = (0..count).map(|n| at(n) as u64).collect();
        sample.sort_unstable();
        sample.dedup();
        if (sample.len() as u64) < count {
            continue;
        }
        let mut worst = 0f64;
        for &period in &periods {
            worst = worst.max(unevenness(&sample, period));
            if worst >= best.0 {
                break;
            }
        }
        if worst < best.0 {
            best = (worst, sample);
        }
    }
    best.1
}

/// The parts that a grid is a multiple of, the whole of it first.
fn periods(blocks: u64) -> Vec<u64> {
    let small = (1..=blocks.isqrt()).filter(|n| blocks.is_multiple_of(*n));
    let pairs = small.flat_map(|n| [blocks / n, n]);
    let mut periods: Vec<u64> = pairs.filter(|period| *period > 1).collect();
    periods.sort_unstable_by(|a, b| b.cmp(a));
    periods.dedup();
    periods
}

/// How far the places of blocks within their parts of the grid are from equal steps through one, as a share of it: a
/// mean over the sample of what grows with the place is no farther from the true one, as a share of its range.
fn unevenness(sample: &[u64], period: u64) -> f64 {
    let mut places: Vec<u64> = sample.iter().map(|block| block % period).collect();
    places.sort_unstable();
    let step = period as f64 / sample.len() as f64;
    let steps = (0..sample.len()).map(|n| ((n as f64 + 0.5) * step) as u64);
    let farthest = std::iter::zip(places, steps).map(|(place, step)| place.abs_diff(step));
    farthest.max().unwrap_or(0) as f64 / period as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_blocks_are_as_many_as_asked_for_and_different() {
        for (count, blocks) in [(5, 6), (7, 7), (64, 1000), (1000, 200_704)] {
            let spread = spread(count, blocks);
            assert_eq!(spread.len() as u64, count);
            assert!(spread.windows(2).all(|pair| pair[0] < pair[1]));
            assert!(spread.iter().all(|&block| block < blocks));
        }
    }

    #[test]
    fn spread_blocks_stand_for_every_part_of_the_grid() {
        // What a block does grows along rows of 64, through the tiles of four heads, or through the grid.
        for (blocks, period) in [(64 * 192, 64), (32 * 192, 32 * 4), (1 << 20, 1 << 20)] {
            let spread = spread(MORE_BLOCKS, blocks);
            assert!(unevenness(&spread, period) <= 0.125, "{spread:?}");
            let places = spread.iter().map(|block| (block % period) as f64);
            let mean = places.sum::<f64>() / MORE_BLOCKS as f64 / period as f64;
            assert!((mean - 0.5).abs() <= 0.05, "{blocks} {period}: {mean}");
        }
    }

    #[test]
    fn blocks_that_stand_for_a_grid_stand_for_its_columns_and_rows() {
        let grid = [64, 192, 1];
        let blocks = standing_for(grid);
        let mean = |of: &dyn Fn(u64) -> u64| {
            blocks.iter().map(|block| of(*block) as f64).sum::<f64>() / blocks.len() as f64
        };
        let near = |mean: f64, half: f64| (mean / half - 1.0).abs() <= 1.0 / 8.0;
        assert!(near(mean(&|block| block % 64), 32.0), "{blocks:?}");
        assert!(near(mean(&|block| block / 64), 96.0), "{blocks:?}");
        for grid in [[7, 1, 1], [1 << 20, 1, 1], [2, 9, 9], [5, 2, 2]] {
            let total = grid.iter().map(|&n| u64::from(n)).product();
            let mut blocks = standing_for(grid);
            blocks.sort_unstable();
            blocks.dedup();
            assert_eq!(blocks.len() as u64, SAMPLED_BLOCKS, "{grid:?}");
            assert!(blocks.iter().all(|block| *block < total), "{grid:?}");
        }
    }
}
