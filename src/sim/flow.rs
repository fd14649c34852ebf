//! Where a kernel's values go: how far ahead of its use a load stands, and how many registers hold what is wanted
//! later. Over the program as it is written; the assembler's own order is unknown here.

use std::collections::HashMap;

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
    let mut numbers: HashMap<u32, usize> = HashMap::new();
    let mut widths: Vec<u32> = Vec::new();
    let mut number = |register: u32| {
        let next = numbers.len();
        *numbers.entry(register).or_insert_with(|| {
            widths.push(width(register));
            next
        })
    };
    let depends: Vec<(Vec<usize>, Vec<usize>)> = program
        .depends
        .iter()
        .map(|depends| {
            let numbers = |of: &[u32], number: &mut dyn FnMut(u32) -> usize| {
                of.iter().map(|&register| number(register)).collect()
            };
            (
                numbers(&depends.writes, &mut number),
                numbers(&depends.reads, &mut number),
            )
        })
        .collect();
    let blocks = basic_blocks(program);
    let at: HashMap<usize, usize> = (blocks.iter().enumerate())
        .map(|(index, block)| (block.start, index))
        .collect();
    let mut wanted = vec![vec![false; widths.len()]; blocks.len()];
    let mut live = vec![0; program.code.len()];
    loop {
        let mut changed = false;
        for (index, block) in blocks.iter().enumerate().rev() {
            let mut now = vec![false; widths.len()];
            for next in successors(program, block.clone()) {
                if let Some(&next) = at.get(&next) {
                    for (now, next) in now.iter_mut().zip(&wanted[next]) {
                        *now |= next;
                    }
                }
            }
            for pc in block.clone().rev() {
                live[pc] = (now.iter().zip(&widths))
                    .filter(|(now, _)| **now)
                    .map(|(_, width)| width)
                    .sum();
                let (writes, reads) = &depends[pc];
                // A write under a condition too: what it leaves alone is seldom wanted.
                writes.iter().for_each(|&register| now[register] = false);
                reads.iter().for_each(|&register| now[register] = true);
            }
            if now != wanted[index] {
                wanted[index] = now;
                changed = true;
            }
        }
        if !changed {
            return live;
        }
    }
}

/// 32-bit registers that a register takes; none for a predicate.
pub(super) fn width(register: u32) -> u32 {
    match register >> 16 {
        0 => 1,
        1 => 2,
        _ => 0,
    }
}

/// Where control goes from a basic block.
fn successors(program: &Program, block: std::ops::Range<usize>) -> Vec<usize> {
    let mut out = Vec::new();
    let Some(last) = block.clone().next_back() else {
        return out;
    };
    let mut falls_through = true;
    for pc in block.clone() {
        let instr = &program.code[pc];
        if let Some(targets) = instr.sends_to() {
            out.extend(targets.iter().map(|target| *target as usize));
            falls_through &= pc != last || instr.guard.is_some();
        }
    }
    if falls_through {
        out.push(block.end);
    }
    out
}
