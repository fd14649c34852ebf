//! Where a kernel's values go: how far ahead of its use a load stands, and how many registers hold what is wanted
//! later. Over the program as it is written; the assembler's own order is unknown here.

use std::collections::HashSet;

use super::liveness::{Block, wanted_after};
use super::mix::{MOST_PARALLEL, Mix, basic_blocks};
use super::op::{Op, Program};

/// What a warp does from a load to the first use of its value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Distance {
    /// In the longest chain of dependent instructions.
    pub chain: f64,
    /// All that is issued.
    pub slots: f64,
}

/// The distance of a load's first use, along the path as it is laid out: through loops as often as they ran, and once
/// round the loop that the load is in. `times`: how often each instruction ran.
pub(super) fn distance(program: &Program, mix: &[Mix], times: &[f64], load: usize) -> Distance {
    let awaited = &program.depends[load].writes;
    let runs = times[load].max(1.0);
    let mut out = Distance::default();
    let mut pc = load + 1;
    let mut round = false;
    while pc < program.code.len() && !(round && pc == load) {
        let depends = &program.depends[pc];
        let used = |registers: &[u32]| registers.iter().any(|r| awaited.contains(r));
        if times[pc] > 0.0 && (used(&depends.reads) || used(&depends.writes)) {
            break;
        }
        let slots = mix[pc].slots * times[pc] / runs;
        out.slots += slots;
        out.chain += slots / mix[pc].parallel.clamp(1.0, MOST_PARALLEL);
        let instr = &program.code[pc];
        match &instr.op {
            Op::Branch { target } if *target as usize <= load && !round && times[pc] > 0.0 => {
                round = true;
                pc = *target as usize;
                continue;
            }
            Op::Branch { target } if *target as usize > pc && instr.guard.is_none() => {
                pc = *target as usize;
                continue;
            }
            Op::Exit | Op::Return | Op::Trap if instr.guard.is_none() => break,
            _ => {}
        }
        pc += 1;
    }
    out
}

/// 32-bit registers that hold a value wanted later, after each instruction.
pub(super) fn live(program: &Program) -> Vec<u32> {
    let step_back = |pc: usize, wanted: &mut HashSet<u32>| {
        let depends = &program.depends[pc];
        // A write under a condition too: what it leaves alone is seldom wanted.
        for register in &depends.writes {
            wanted.remove(register);
        }
        wanted.extend(&depends.reads);
    };
    let blocks = basic_blocks(program).into_iter();
    let blocks: Vec<Block> = blocks.map(|pcs| Block::new(&program.code, pcs)).collect();
    let mut live = vec![0; program.code.len()];
    for (block, mut wanted) in std::iter::zip(&blocks, wanted_after(&blocks, step_back)) {
        for pc in block.pcs.clone().rev() {
            live[pc] = wanted.iter().map(|&register| width(register)).sum();
            step_back(pc, &mut wanted);
        }
    }
    live
}

/// 32-bit registers that a register takes; none for a predicate.
pub(super) fn width(register: u32) -> u32 {
    match register >> 16 {
        0 => 1,
        1 => 2,
        _ => 0,
    }
}
