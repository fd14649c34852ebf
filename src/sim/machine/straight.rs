//! The hot loop: a group's arithmetic and the branches that all of its lanes take, one after the other, until
//! something else comes. It touches registers and counters alone.

use pulp::{Arch, NullaryFnOnce};

use super::super::op::{Op, Pc, Program};
use super::alu;
use super::regs::Regs;
use super::warp::{Frame, Warp};

/// Executions of one instruction.
#[derive(Clone, Copy, Default)]
pub(super) struct Executions {
    /// By warps.
    pub warps: u64,
    /// By threads.
    pub threads: u64,
}

impl Executions {
    #[inline(always)]
    pub fn count(&mut self, exec: u32) {
        self.warps += 1;
        self.threads += u64::from(exec.count_ones());
    }
}

/// A group of lanes and how far it may go.
#[derive(Clone, Copy)]
pub(super) struct Stretch {
    pub pc: Pc,
    pub mask: u32,
    pub frame: Frame,
    /// Other groups may wait from here on.
    pub stop: Pc,
    /// Instructions at most.
    pub most: u64,
    /// No other group is about: a branch needs no new choice of whom to run.
    pub alone: bool,
}

impl Warp {
    /// Runs straight on; gives the next program counter and how many instructions it took.
    #[inline]
    pub fn straight(
        &mut self,
        program: &Program,
        executions: &mut [Executions],
        stretch: Stretch,
        arch: Arch,
    ) -> (Pc, u64) {
        let frame = stretch.frame;
        arch.dispatch(Straight {
            regs: Regs {
                narrow: &mut self.narrow[frame.narrow..],
                wide: &mut self.wide[frame.wide..],
                preds: &mut self.preds[frame.preds..],
            },
            carry: &mut self.carry,
            program,
            executions,
            stretch,
        })
    }
}

/// All that the loop needs. It is compiled once for each kind of host, so that its loops over lanes become the
/// host's widest vectors: a closure of this size would be a function of its own, compiled for none.
struct Straight<'a> {
    regs: Regs<'a>,
    carry: &'a mut u32,
    program: &'a Program,
    executions: &'a mut [Executions],
    stretch: Stretch,
}

impl NullaryFnOnce for Straight<'_> {
    type Output = (Pc, u64);

    #[inline(always)]
    fn call(self) -> (Pc, u64) {
        let Self {
            mut regs,
            carry,
            program,
            executions,
            stretch,
        } = self;
        let mut pc = stretch.pc;
        let mut left = stretch.most;
        while left > 0 && pc < stretch.stop {
            let Some(instr) = program.code.get(pc as usize) else {
                break;
            };
            let exec = match instr.guard {
                None => stretch.mask,
                Some(guard) => stretch.mask & regs.pred(guard),
            };
            let next = match &instr.op {
                Op::Alu(work) => {
                    if exec != 0 {
                        alu::execute(work, &mut regs, exec, carry);
                    }
                    pc + 1
                }
                Op::Branch { .. } if exec == 0 => pc + 1,
                Op::Branch { target } if stretch.alone && exec == stretch.mask => *target,
                _ => break,
            };
            executions[pc as usize].count(exec);
            left -= 1;
            pc = next;
        }
        (pc, stretch.most - left)
    }
}
