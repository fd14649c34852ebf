//! What limits an estimated launch, in words, with lines. It derives; it measures nothing.

use crate::units::{Bytes, Flops};
use crate::verdict::{Bottleneck, Diagnosis, Evidence, Occupancy};

use super::cost::{Estimate, Limits, Parts, Work};
use super::executed::executed;
use super::flops::FlopCounts;
use super::op::{Op, Pc};

/// Diagnoses the launch that takes longest; FLOPs and bytes are sums over all.
pub fn diagnose(launches: &[(Work<'_>, Estimate)], limits: &Limits) -> Option<Diagnosis> {
    let (work, estimate) = launches
        .iter()
        .max_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds))?;
    let total: f64 = launches.iter().map(|(_, e)| e.seconds).sum();
    let bottleneck = bottleneck(work, estimate);
    let mut evidence = vec![headline(estimate, bottleneck, total, launches.len())];
    evidence.extend(shared_conflicts(work));
    evidence.extend(scattered(work));
    evidence.extend(spills(work));
    evidence.extend(atomics(work, estimate));
    evidence.extend(occupancy_note(estimate));
    Some(Diagnosis {
        source: "simulator".into(),
        bottleneck,
        evidence,
        stalls: Vec::new(),
        occupancy: Some(Occupancy {
            warps: estimate.resident.warps,
            of: estimate.resident.most,
            limiter: estimate.resident.limiter.into(),
        }),
        flops: flops(launches),
        dram: Some(Bytes(
            launches.iter().map(|(_, e)| e.dram_bytes).sum::<f64>() as u64,
        )),
        target_instructions: Vec::new(),
        executed: Some(Box::new(executed(launches, limits))),
        hardware: None,
    })
}

/// Floating-point work of the whole grids, by unit.
pub fn flops(launches: &[(Work<'_>, Estimate)]) -> Vec<(String, Flops)> {
    let mut sum = FlopCounts::default();
    for (work, estimate) in launches {
        sum.add(&work.counts.flops(work.program), estimate.scale);
    }
    sum.by_unit()
        .map(|(unit, work)| (unit.to_owned(), Flops(work)))
        .collect()
}

fn bottleneck(work: &Work<'_>, estimate: &Estimate) -> Bottleneck {
    let Parts {
        issue,
        pipe,
        global,
        shared,
        l2,
        dram,
        latency,
        atomics,
        blocks,
    } = estimate.parts;
    let all = [
        (blocks, Bottleneck::Launch),
        (issue, Bottleneck::Issue),
        (pipe, Bottleneck::Compute),
        (
            global.max(l2),
            if estimate.wasted > 0.3 {
                Bottleneck::Uncoalesced
            } else {
                Bottleneck::MemoryBandwidth
            },
        ),
        (shared, Bottleneck::SharedMemory),
        (dram, Bottleneck::MemoryBandwidth),
        (latency, Bottleneck::MemoryLatency),
        (atomics, Bottleneck::Atomics),
    ];
    let (worst, kind) = all
        .into_iter()
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .unwrap_or((0.0, Bottleneck::Launch));
    let spilled: u64 = work
        .counts
        .by_pc
        .iter()
        .map(|line| line.local_sectors)
        .sum();
    let moved: u64 = work.counts.by_pc.iter().map(|line| line.sectors).sum();
    if worst < (estimate.seconds - worst).max(0.0) {
        Bottleneck::Launch
    } else if spilled * 4 > moved && spilled > 0 {
        Bottleneck::Spills
    } else if kind == Bottleneck::MemoryLatency
        && estimate.resident.limiter == "grid"
        && estimate.resident.warps * 4 < estimate.resident.most
    {
        Bottleneck::Occupancy
    } else {
        kind
    }
}

fn headline(estimate: &Estimate, bottleneck: Bottleneck, total: f64, launches: usize) -> Evidence {
    let us = |seconds: f64| format!("{:.1} µs", seconds * 1e6);
    let Parts {
        issue,
        pipe,
        global,
        shared,
        l2,
        dram,
        latency,
        atomics,
        blocks,
    } = estimate.parts;
    let (text, advice) = match bottleneck {
        Bottleneck::MemoryBandwidth => (
            format!(
                "estimated: device memory and L2 alone take {} of {}",
                us(dram.max(l2)),
                us(estimate.seconds)
            ),
            "move fewer bytes; otherwise this is near the limit",
        ),
        Bottleneck::MemoryLatency => (
            format!(
                "estimated: waiting for loads takes {}, their bytes only {}; {:.1} KiB in flight per SM",
                us(latency),
                us(dram),
                estimate.in_flight / 1024.0
            ),
            "16-byte loads, several independent loads before the first use, more warps",
        ),
        Bottleneck::Uncoalesced => (
            format!(
                "estimated: {:.0} % of the bytes of global sectors are not used; they take {}",
                estimate.wasted * 100.0,
                us(l2.max(global))
            ),
            "let neighbouring lanes touch neighbouring addresses; stage through shared memory",
        ),
        Bottleneck::SharedMemory => (
            format!(
                "estimated: shared-memory wavefronts take {} of {}",
                us(shared),
                us(estimate.seconds)
            ),
            "remove conflicts, use 16-byte shared loads, keep more in registers",
        ),
        Bottleneck::Issue => (
            format!(
                "estimated: issue slots take {} of {}; arithmetic alone {}",
                us(issue),
                us(estimate.seconds),
                us(pipe)
            ),
            "fewer instructions per result: wider accesses, unrolling, larger register tiles",
        ),
        Bottleneck::Compute => (
            format!(
                "estimated: an arithmetic pipe takes {} of {}",
                us(pipe),
                us(estimate.seconds)
            ),
            "this is near the limit of the pipe; move work to another one",
        ),
        Bottleneck::Atomics => (
            format!(
                "estimated: atomics on one address take {} of {}",
                us(atomics),
                us(estimate.seconds)
            ),
            "reduce within the warp and the block first",
        ),
        Bottleneck::Occupancy => (
            format!(
                "estimated: the grid fills {} of {} warps of an SM",
                estimate.resident.warps, estimate.resident.most
            ),
            "more blocks or more threads",
        ),
        Bottleneck::Spills => (
            "estimated: spilled registers move more than a quarter of the bytes".into(),
            "fewer live values, or a higher register cap",
        ),
        Bottleneck::Launch => (
            format!(
                "estimated: most of {} is launch overhead; starting blocks takes {}",
                us(estimate.seconds),
                us(blocks)
            ),
            "fewer launches; fewer blocks that do more each",
        ),
        Bottleneck::Tensor | Bottleneck::Synchronisation => {
            (format!("estimated: {}", us(estimate.seconds)), "")
        }
    };
    let text = if launches > 1 {
        format!(
            "{text}; this launch is {:.0} % of the call",
            estimate.seconds / total * 100.0
        )
    } else {
        text
    };
    Evidence {
        text,
        line: None,
        advice: (!advice.is_empty()).then(|| advice.to_owned()),
    }
}

/// The worst line of some measure, if all lines together are bad enough: an unrolled loop spreads one flaw
/// over many instructions.
fn worst(work: &Work<'_>, measure: impl Fn(usize) -> f64, least: f64) -> Option<(u32, usize)> {
    let all = 0..work.counts.by_pc.len();
    let total: f64 = all.clone().map(|pc| measure(pc).max(0.0)).sum();
    let pc = all.max_by(|&a, &b| measure(a).total_cmp(&measure(b)))?;
    (total > least).then(|| (work.program.line(pc as Pc), pc))
}

fn shared_conflicts(work: &Work<'_>) -> Option<Evidence> {
    let all: u64 = work.counts.by_pc.iter().map(|line| line.wavefronts).sum();
    let excess = |pc: usize| {
        let line = &work.counts.by_pc[pc];
        (line.wavefronts - line.ideal_wavefronts) as f64
    };
    let (line, pc) = worst(work, excess, all as f64 * 0.1)?;
    let counts = &work.counts.by_pc[pc];
    let ways = counts.wavefronts as f64 / counts.ideal_wavefronts.max(1) as f64;
    let what = if matches!(work.program.code[pc].op, Op::Store(_)) {
        "stores"
    } else {
        "loads"
    };
    Some(Evidence {
        text: format!("shared {what} conflict {ways:.0}-way"),
        line: Some(line),
        advice: Some("pad the row by one element, or swizzle".into()),
    })
}

fn scattered(work: &Work<'_>) -> Option<Evidence> {
    let all: u64 = work.counts.by_pc.iter().map(|line| line.sectors).sum();
    let excess = |pc: usize| {
        let line = &work.counts.by_pc[pc];
        line.sectors as f64 - (line.bytes as f64 / 32.0)
    };
    let (line, pc) = worst(work, excess, all as f64 * 0.2)?;
    let counts = &work.counts.by_pc[pc];
    let per = counts.sectors as f64 / counts.requests.max(1) as f64;
    let used = counts.bytes as f64 / (counts.sectors.max(1) * 32) as f64 * 100.0;
    let what = if matches!(work.program.code[pc].op, Op::Store(_)) {
        "stores"
    } else {
        "loads"
    };
    Some(Evidence {
        text: format!(
            "global {what} touch {per:.1} sectors per request and use {used:.0} % of their bytes"
        ),
        line: Some(line),
        advice: Some("let neighbouring lanes access neighbouring addresses".into()),
    })
}

fn spills(work: &Work<'_>) -> Option<Evidence> {
    let (line, pc) = worst(work, |pc| work.counts.by_pc[pc].local_sectors as f64, 0.0)?;
    Some(Evidence {
        text: format!(
            "local memory moves {} sectors here",
            work.counts.by_pc[pc].local_sectors
        ),
        line: Some(line),
        advice: Some("keep arrays in registers: constant indices, unrolled loops".into()),
    })
}

fn atomics(work: &Work<'_>, estimate: &Estimate) -> Option<Evidence> {
    let (line, pc) = worst(work, |pc| work.counts.by_pc[pc].atomic_serial as f64, 0.0)?;
    let share = estimate.parts.atomics / estimate.seconds;
    (share > 0.05).then(|| Evidence {
        text: format!(
            "{} atomic lanes, most on one address",
            work.counts.by_pc[pc].atomic_lanes
        ),
        line: Some(line),
        advice: Some("reduce within the warp and the block first".into()),
    })
}

fn occupancy_note(estimate: &Estimate) -> Option<Evidence> {
    let resident = &estimate.resident;
    (estimate.tail > 1.2 && resident.limiter != "grid").then(|| Evidence {
        text: format!(
            "the last wave is mostly empty: {:.0} % of the time is tail",
            (1.0 - 1.0 / estimate.tail) * 100.0
        ),
        line: None,
        advice: Some(format!(
            "{} blocks fit an SM (limited by {}); choose a grid that fills whole waves",
            resident.blocks, resident.limiter
        )),
    })
}
