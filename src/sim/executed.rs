//! Counts of the blocks that ran to what the whole call executes, in total and by line.

use std::collections::BTreeMap;

use crate::units::{Bytes, Nanos};
use crate::verdict::{Executed, LineWork, Traffic, Wavefronts};

use super::cost::{Estimate, Limits, Work};
use super::counts::LineCounts;
use super::mix::mix;
use super::op::{AsyncOp, Op, Pc};

/// Of all launches together.
pub fn executed(launches: &[(Work<'_>, Estimate)], limits: &Limits) -> Executed {
    let mut all = Executed::default();
    let mut parts: BTreeMap<&'static str, f64> = BTreeMap::new();
    let mut lines: BTreeMap<u32, LineWork> = BTreeMap::new();
    for (work, estimate) in launches {
        let whole = |count: u64| (count as f64 * estimate.scale).round() as u64;
        all.instructions += whole(work.counts.instructions);
        all.barriers += whole(work.counts.barriers);
        for (name, seconds) in estimate.parts.named() {
            *parts.entry(name).or_default() += seconds;
        }
        let busy = busy(work, estimate, limits);
        for (pc, (counts, instr)) in
            std::iter::zip(&work.counts.by_pc, &work.program.code).enumerate()
        {
            if counts.warps == 0 {
                continue;
            }
            let global = Traffic {
                requests: if counts.sectors > 0 {
                    whole(counts.requests)
                } else {
                    0
                },
                sectors: whole(counts.sectors),
                bytes: if counts.sectors > 0 {
                    Bytes(whole(counts.bytes))
                } else {
                    Bytes(0)
                },
            };
            let shared = Wavefronts {
                requests: if counts.wavefronts > 0 {
                    whole(counts.requests)
                } else {
                    0
                },
                wavefronts: whole(counts.wavefronts),
                ideal: whole(counts.ideal_wavefronts),
            };
            let bulk = Bytes(whole(counts.arrived_bytes));
            match kind(&instr.op) {
                Kind::Load => all.loads.add(global),
                Kind::Store => all.stores.add(global),
                Kind::Atomic => all.atomics.add(global),
                Kind::Copy => all.copies.add(global),
                Kind::BulkLoad => all.bulk_read.0 += bulk.0,
                Kind::BulkStore => all.bulk_written.0 += bulk.0,
                Kind::Other => {}
            }
            all.shared.add(shared);
            all.local_sectors += whole(counts.local_sectors);
            let line = work.program.line(pc as Pc);
            lines.entry(line).or_default().add(&LineWork {
                line,
                instructions: whole(counts.warps),
                share: busy[pc],
                global,
                shared,
                bulk,
            });
        }
    }
    let sum: f64 = lines.values().map(|line| line.share).sum();
    all.lines = lines
        .into_iter()
        .map(|(number, line)| LineWork {
            line: number,
            share: if sum > 0.0 { line.share / sum } else { 0.0 },
            ..line
        })
        .collect();
    all.limits = parts
        .into_iter()
        .filter(|(_, seconds)| *seconds > 0.0)
        .filter_map(|(name, seconds)| Some((name.to_owned(), Nanos::new(seconds * 1e9)?)))
        .collect();
    all.limits.sort_by(|a, b| b.1.get().total_cmp(&a.1.get()));
    all
}

enum Kind {
    Load,
    Store,
    Atomic,
    Copy,
    BulkLoad,
    BulkStore,
    Other,
}

fn kind(op: &Op) -> Kind {
    match op {
        Op::Load(_) => Kind::Load,
        Op::Store(_) => Kind::Store,
        Op::Atomic(_) => Kind::Atomic,
        Op::Async(op) => match op.as_ref() {
            AsyncOp::Copy(_) => Kind::Copy,
            AsyncOp::BulkLoad(_) => Kind::BulkLoad,
            AsyncOp::BulkStore(_) => Kind::BulkStore,
            AsyncOp::RankOf { .. } | AsyncOp::Send(_) => Kind::Other,
            AsyncOp::Mbarrier(_)
            | AsyncOp::BulkCommit
            | AsyncOp::BulkWait { .. }
            | AsyncOp::CopyCommit
            | AsyncOp::CopyWait { .. }
            | AsyncOp::CopyArrive { .. }
            | AsyncOp::ProxyFence
            | AsyncOp::MbarrierFence
            | AsyncOp::Product(_)
            | AsyncOp::ProductFence
            | AsyncOp::ProductCommit
            | AsyncOp::ProductWait { .. }
            | AsyncOp::SetRegisters { .. }
            | AsyncOp::MapShared { .. }
            | AsyncOp::ClusterArrive
            | AsyncOp::ClusterWait => Kind::Other,
        },
        Op::Alu(_)
        | Op::StackAddress { .. }
        | Op::ReadClock { .. }
        | Op::Shfl { .. }
        | Op::Vote { .. }
        | Op::Match { .. }
        | Op::Redux { .. }
        | Op::Mma { .. }
        | Op::MmaDouble { .. }
        | Op::Transpose { .. }
        | Op::Elect { .. }
        | Op::Activemask { .. }
        | Op::Branch { .. }
        | Op::BranchIndexed { .. }
        | Op::Call(_)
        | Op::Return
        | Op::Exit
        | Op::Trap
        | Op::Barrier(_)
        | Op::WarpSync { .. }
        | Op::Fence
        | Op::MoveMatrix(_)
        | Op::Nothing => Kind::Other,
    }
}

/// Seconds of each instruction in the unit that it keeps busiest.
fn busy(work: &Work<'_>, estimate: &Estimate, limits: &Limits) -> Vec<f64> {
    let parts = &estimate.parts;
    let mix = mix(work.program);
    let issue = |pc: usize, line: &LineCounts| line.warps as f64 * mix[pc].slots;
    let moved = |_: usize, line: &LineCounts| line.sectors as f64 + line.bulk_bytes as f64 / 32.0;
    let passes = |_: usize, line: &LineCounts| line.wavefronts as f64;
    let pipes = |pc: usize, line: &LineCounts| {
        let unit = mix[pc].pipe.map_or(0.0, |pipe| 1.0 / pipe.lanes(limits));
        line.warps as f64 * mix[pc].pipe_uses * unit
    };
    type Of<'a> = &'a dyn Fn(usize, &LineCounts) -> f64;
    let units: [(Of<'_>, f64); 4] = [
        (&issue, parts.issue),
        (&moved, parts.l2.max(parts.dram).max(parts.global)),
        (&passes, parts.shared),
        (&pipes, parts.pipe),
    ];
    let mut out = vec![0.0; work.counts.by_pc.len()];
    for (of, seconds) in units {
        let all: f64 = (work.counts.by_pc.iter().enumerate())
            .map(|(pc, line)| of(pc, line))
            .sum();
        if all <= 0.0 {
            continue;
        }
        for (pc, line) in work.counts.by_pc.iter().enumerate() {
            out[pc] = f64::max(out[pc], of(pc, line) / all * seconds);
        }
    }
    out
}
