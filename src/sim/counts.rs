//! What a launch did, instruction by instruction. Facts only; the cost model draws the conclusions.

use serde::{Deserialize, Serialize};

use super::causal::WARPGROUP;
use super::op::{AsyncOp, Op, Pc, Program};

/// Counters of one instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LineCounts {
    /// Executions by warps.
    pub warps: u64,
    /// Executions by threads (guard and divergence counted).
    pub threads: u64,
    /// Global requests by warps.
    pub requests: u64,
    /// 32-byte sectors of global requests.
    pub sectors: u64,
    /// 128-byte lines of global requests.
    pub lines: u64,
    /// Sectors that the first-level cache did not hold, where it was modelled; else all.
    pub missed_sectors: u64,
    /// Sectors that a store covered only in part.
    pub partial_sectors: u64,
    /// Bytes that threads asked for.
    pub bytes: u64,
    /// Shared-memory wavefronts.
    pub wavefronts: u64,
    /// Those that no bank conflict explains: passes over its lanes.
    pub ideal_wavefronts: u64,
    /// Lanes of atomics.
    pub atomic_lanes: u64,
    /// Most lanes of one request on one address, summed over requests.
    pub atomic_serial: u64,
    /// Sectors of local memory.
    pub local_sectors: u64,
    /// Bytes that bulk copies moved between global and shared memory: those of a multicast once.
    pub bulk_bytes: u64,
    /// The same where they arrive: those of a multicast once in each block that gets them.
    pub arrived_bytes: u64,
}

impl LineCounts {
    fn add(&mut self, other: &Self) {
        let Self {
            warps,
            threads,
            requests,
            sectors,
            lines,
            missed_sectors,
            partial_sectors,
            bytes,
            wavefronts,
            ideal_wavefronts,
            atomic_lanes,
            atomic_serial,
            local_sectors,
            bulk_bytes,
            arrived_bytes,
        } = other;
        self.warps += warps;
        self.threads += threads;
        self.requests += requests;
        self.sectors += sectors;
        self.lines += lines;
        self.missed_sectors += missed_sectors;
        self.partial_sectors += partial_sectors;
        self.bytes += bytes;
        self.wavefronts += wavefronts;
        self.ideal_wavefronts += ideal_wavefronts;
        self.atomic_lanes += atomic_lanes;
        self.atomic_serial += atomic_serial;
        self.local_sectors += local_sectors;
        self.bulk_bytes += bulk_bytes;
        self.arrived_bytes += arrived_bytes;
    }
}

/// Counters of a launch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// By instruction, in the program's order.
    pub by_pc: Vec<LineCounts>,
    /// Blocks that ran.
    pub blocks: u64,
    /// Executed warp instructions of the longest warp of each block, summed over blocks.
    pub longest_warp: u64,
    /// Of the block that executed most warp instructions, how many.
    pub longest_block: u64,
    /// Of the block that executed fewest; 0 where none ran.
    pub shortest_block: u64,
    /// Warp instructions executed.
    pub instructions: u64,
    /// Barriers completed.
    pub barriers: u64,
    /// Executions of global atomics by address, the most of any one.
    pub hottest_atomic: u64,
}

impl Counts {
    pub(crate) fn new(program: &Program) -> Self {
        Self {
            by_pc: vec![LineCounts::default(); program.code.len()],
            ..Self::default()
        }
    }

    /// Adds what other blocks of the same launch did, but for `hottest_atomic`, which is no sum.
    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, line) in self.by_pc.iter_mut().zip(&other.by_pc) {
            sum.add(line);
        }
        self.shortest_block = match (self.blocks, other.blocks) {
            (0, _) => other.shortest_block,
            (_, 0) => self.shortest_block,
            _ => self.shortest_block.min(other.shortest_block),
        };
        self.longest_block = self.longest_block.max(other.longest_block);
        self.blocks += other.blocks;
        self.longest_warp += other.longest_warp;
        self.instructions += other.instructions;
        self.barriers += other.barriers;
    }

    /// Adds one block, by its warps' executed instructions.
    pub(crate) fn block_ran(&mut self, warps: impl Iterator<Item = u64> + Clone) {
        let (longest, all) = (warps.clone().max().unwrap_or(0), warps.sum());
        self.shortest_block = match self.blocks {
            0 => all,
            _ => self.shortest_block.min(all),
        };
        self.longest_block = self.longest_block.max(all);
        self.longest_warp += longest;
        self.blocks += 1;
    }

    /// Executions by full mnemonic, in order of first appearance: by a warp, products of a warpgroup by all its warps.
    pub fn executed(&self, program: &Program) -> Vec<(String, u64)> {
        let mut sums = vec![0; program.mnemonics.len()];
        for (counts, instr) in self.by_pc.iter().zip(&program.code) {
            let together = match &instr.op {
                Op::Async(op) if matches!(**op, AsyncOp::Product(_)) => WARPGROUP as u64,
                _ => 1,
            };
            sums[usize::from(instr.mnemonic)] += counts.warps / together;
        }
        program
            .mnemonics
            .iter()
            .cloned()
            .zip(sums)
            .filter(|(_, n)| *n > 0)
            .collect()
    }

    /// Counters summed by line of the text, only lines that ran.
    pub fn by_line(&self, program: &Program) -> Vec<(u32, LineCounts)> {
        let mut out: Vec<(u32, LineCounts)> = (0..self.by_pc.len())
            .filter(|&pc| self.by_pc[pc].warps > 0)
            .map(|pc| (program.line(pc as Pc), self.by_pc[pc]))
            .collect();
        out.sort_by_key(|(line, _)| *line);
        out
    }
}
