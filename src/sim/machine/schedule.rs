//! In which order a launch's blocks and warps advance, how far each goes at a time, and how long a bulk copy is
//! under way. Hardware promises none of this, so every seed's order is a right one, and a kernel that lacks a
//! barrier may give another result under one of them. It decides nothing but the order.

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;

use super::{BLOCK_TURN, WARP_TURN};

/// Seeded turns of a warp last 2 to some power of instructions, from the first to the last of these.
const WARP_TURNS: std::ops::RangeInclusive<u32> = 3..=14;
/// Likewise of a cluster.
const CLUSTER_TURNS: std::ops::RangeInclusive<u32> = 8..=18;
/// Clusters that take short turns beside each other: each keeps its shared memory meanwhile.
const BESIDE: usize = 3;
/// Warps' turns that a bulk copy may last.
const LONGEST_COPY: u32 = 24;

/// The order of one launch.
pub(super) struct Schedule {
    /// Absent: in turn, each as far as it goes, copies at once.
    draws: Option<Pcg32>,
}

impl Schedule {
    pub fn new(seed: u64) -> Self {
        Self {
            draws: (seed != 0).then(|| Pcg32::seed_from_u64(seed)),
        }
    }

    /// The order in which a cluster's warps take their next turns.
    pub fn warps<T>(&mut self, warps: &mut [T]) {
        if let Some(draws) = &mut self.draws {
            warps.shuffle(draws);
        }
    }

    /// The order in which clusters begin. The GPU begins them in the order of their numbers: only those that
    /// are `resident` together may come in any.
    pub fn clusters(&mut self, clusters: &mut [u64], resident: usize) {
        if let Some(draws) = &mut self.draws {
            for together in clusters.chunks_mut(resident.max(1)) {
                together.shuffle(draws);
            }
        }
    }

    /// Instructions of a warp's next turn.
    pub fn warp_turn(&mut self) -> u64 {
        match &mut self.draws {
            None => WARP_TURN,
            Some(draws) => 1 << draws.random_range(WARP_TURNS),
        }
    }

    /// Instructions of a cluster's next turn, while so many others are under way.
    pub fn cluster_turn(&mut self, others: usize) -> u64 {
        match &mut self.draws {
            Some(draws) if others < BESIDE => 1 << draws.random_range(CLUSTER_TURNS),
            Some(_) | None => BLOCK_TURN,
        }
    }

    /// Turns of its cluster's warps until a bulk copy's bytes are there.
    pub fn copy_turns(&mut self) -> u32 {
        match &mut self.draws {
            None => 0,
            Some(draws) => draws.random_range(0..=LONGEST_COPY),
        }
    }
}
