//! `setmaxnreg`: a block's warps share out the registers that the block started with.

use super::super::access::At;
use super::super::warp::State;
use super::super::{Block, Env};
use super::Step;

/// Most registers of a thread.
const MOST: u32 = 255;
/// Registers of an SM.
const FILE: u32 = 65_536;

/// A block's registers, a thread's count each.
#[derive(Default)]
pub(super) struct Pool {
    /// Of each warp.
    held: Vec<u32>,
    free: u32,
}

impl Pool {
    pub fn new(env: &Env<'_>, warps: usize) -> Self {
        let each = (env.options.registers)
            .or(env.program.max_registers)
            .unwrap_or_else(|| {
                // Registers come to the four parts of an SM, so warps count in fours.
                let threads = 32 * warps.next_multiple_of(4) as u32;
                (FILE / threads / 8 * 8).min(MOST)
            });
        Self {
            held: vec![each.next_multiple_of(8); warps],
            free: 0,
        }
    }
}

impl super::Asynchronous {
    /// What a deadlocked thread waits for.
    pub fn lacking(&self, wanted: u32) -> String {
        format!(
            "{wanted} registers a thread: the block's warps hold {} of the {} they started with",
            self.pool.held.iter().sum::<u32>(),
            self.pool.held.iter().sum::<u32>() + self.pool.free,
        )
    }
}

impl Block {
    pub(super) fn set_registers(
        &mut self,
        at: At,
        fragment: usize,
        count: u32,
        more: bool,
    ) -> Step {
        let pool = &mut self.asynchronous.pool;
        let held = &mut pool.held[at.warp];
        let more_than_held = count > *held;
        if more != more_than_held {
            // Nothing to give, or to take.
            return Step::Next;
        }
        if more && count - *held > pool.free {
            self.warps[at.warp].fragments[fragment].state = State::Registers(count);
            return Step::Waits;
        }
        pool.free = pool.free + *held - count;
        *held = count;
        if !more {
            self.grant();
        }
        Step::Next
    }

    /// Gives freed registers to those who wait for them.
    fn grant(&mut self) {
        for (index, warp) in self.warps.iter_mut().enumerate() {
            for fragment in &mut warp.fragments {
                let State::Registers(wanted) = fragment.state else {
                    continue;
                };
                let pool = &mut self.asynchronous.pool;
                let held = &mut pool.held[index];
                if wanted.saturating_sub(*held) <= pool.free {
                    pool.free = pool.free + *held - wanted;
                    *held = wanted;
                    fragment.state = State::Running;
                    fragment.pc += 1;
                }
            }
        }
    }
}
