//! A profile → what limits the kernel, in words, with lines. It derives; it measures nothing.

use super::advice;
use super::counters::{Launch, Place, Profile, Shared};
use super::slots::{FILLED, empty, issued};
use crate::device::Gpu;
use crate::units::Bytes;
use crate::verdict::{Bottleneck, Diagnosis, Evidence, Hardware, Occupancy, Stall};

/// A unit this busy is what limits.
const BUSY: f64 = 0.8;

/// Device memory this busy is near its limit: no kernel reaches more than about 93 %.
const DRAM_BUSY: f64 = 0.75;

/// A stall with a larger share matters, while issue slots are not busy.
const STALL: f64 = 0.3;

/// Conflicts, spills and separate operations beyond this share matter.
const TENTH: f64 = 0.1;

/// Where this much of what is issued is arithmetic, there is little to save beside it.
const ARITHMETIC: f64 = 0.85;

/// Device memory this busy is at its limit: the grid's shape changes nothing any more.
const DRAM_FULL: f64 = 0.9;

/// Sectors of the widest access that is coalesced: 32 lanes of 16 bytes.
const WIDEST: f64 = 16.0;

/// Time that a last wave may waste without being told.
const TAIL: f64 = 0.02;

/// A call below this is mostly launch overhead.
const SHORT_NS: f64 = 3000.0;

/// Diagnoses the launch that takes longest; FLOPs and bytes are sums over all. `targets`: mnemonics that
/// the task wants counted. Lines are those of the rendering.
pub fn diagnose(profile: &Profile, gpu: &Gpu, targets: &[&str]) -> Diagnosis {
    let launch = profile.longest();
    let stalls = stalls(launch);
    let bottleneck = bottleneck(profile, launch, &stalls);
    let mut evidence = vec![headline(profile, launch, bottleneck)];
    evidence.extend(waiting(launch, &stalls).or_else(|| empty(launch, &stalls)));
    evidence.extend(conflicts(launch, &stalls));
    if bottleneck != Bottleneck::Uncoalesced {
        evidence.extend(scattered(launch));
    }
    evidence.extend(spills(launch));
    evidence.extend(grid(launch, gpu));
    evidence.extend(unfused(launch));
    let (hits, misses) = (profile.sum(|l| l.l2_hits), profile.sum(|l| l.l2_misses));
    let loads = profile.sum(|l| l.global_loads.sectors);
    let ratio = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
    Diagnosis {
        source: profile.tool.clone(),
        bottleneck,
        evidence,
        stalls,
        occupancy: Some(occupancy(launch, gpu)),
        flops: profile.flops(),
        dram: Some(Bytes(profile.sum(|l| l.dram_read + l.dram_write) as u64)),
        target_instructions: targets
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), profile.executed(name)?)))
            .collect(),
        executed: None,
        hardware: Some(Hardware {
            dram_read: profile.dram_read(),
            l1_hit: ratio(profile.sum(|l| l.global_loads.hits), loads),
            l2_hit: ratio(hits, hits + misses),
            issue: launch.issue,
            units: units(launch),
        }),
    }
}

/// Shares of warp latency, largest first; what is under a hundredth says nothing.
fn stalls(launch: &Launch) -> Vec<Stall> {
    let total: f64 = launch.stalls.iter().map(|(_, n)| n).sum();
    let mut stalls: Vec<Stall> = launch
        .stalls
        .iter()
        .filter(|(_, n)| total > 0.0 && *n > 0.01 * total)
        .map(|(reason, n)| Stall {
            reason: reason.clone(),
            share: n / total,
        })
        .collect();
    stalls.sort_by(|a, b| b.share.total_cmp(&a.share));
    stalls
}

fn units(launch: &Launch) -> Vec<(String, f64)> {
    let mut units = launch.units.clone();
    units.extend([
        ("device memory".to_owned(), launch.dram),
        ("L2".to_owned(), launch.l2),
        ("L1".to_owned(), launch.l1),
        ("shared memory".to_owned(), launch.shared),
    ]);
    units.retain(|(_, share)| *share > 0.01);
    units.sort_by(|a, b| b.1.total_cmp(&a.1));
    units
}

fn unit(launch: &Launch, word: &str) -> f64 {
    let of = launch.units.iter().filter(|(name, _)| name.contains(word));
    of.map(|(_, share)| *share).fold(0.0, f64::max)
}

/// The busiest arithmetic pipe but the tensor cores'.
fn busiest_pipe(launch: &Launch) -> Option<(&str, f64)> {
    launch
        .units
        .iter()
        .filter(|(name, _)| !name.contains("tensor") && !name.contains("load/store"))
        .map(|(name, share)| (name.as_str(), *share))
        .max_by(|a, b| a.1.total_cmp(&b.1))
}

fn bottleneck(profile: &Profile, launch: &Launch, stalls: &[Stall]) -> Bottleneck {
    let actionable = stalls.iter().find_map(|stall| {
        let advice = advice::about(&stall.reason)?;
        (stall.share > STALL).then_some(advice.bottleneck)
    });
    if profile.sum(|l| l.time_ns) < SHORT_NS {
        Bottleneck::Launch
    } else if spilled_share(launch) > TENTH {
        Bottleneck::Spills
    } else if launch.busy < 0.6 || launch.waves < 0.5 {
        Bottleneck::Occupancy
    } else if unit(launch, "tensor") > BUSY {
        Bottleneck::Tensor
    } else if launch.dram > DRAM_BUSY {
        Bottleneck::MemoryBandwidth
    } else if is_scattered(launch) {
        Bottleneck::Uncoalesced
    } else if launch.shared > BUSY
        || (launch.shared > STALL && conflict_share(launch) > STALL)
        || (launch.l1 > BUSY && mostly_shared(launch))
    {
        Bottleneck::SharedMemory
    } else if launch.l2.max(launch.l1) > BUSY {
        Bottleneck::MemoryBandwidth
    } else if busiest_pipe(launch).is_some_and(|(_, share)| share > BUSY) {
        Bottleneck::Compute
    } else if launch.issue > BUSY {
        Bottleneck::Issue
    } else if mostly_atomics(launch) {
        Bottleneck::Atomics
    } else {
        let quieter = if launch.dram > launch.issue {
            Bottleneck::MemoryLatency
        } else {
            Bottleneck::Issue
        };
        actionable.unwrap_or(quieter)
    }
}

fn headline(profile: &Profile, launch: &Launch, bottleneck: Bottleneck) -> Evidence {
    let mut place: Option<Place> = None;
    let (text, advice) = match bottleneck {
        Bottleneck::MemoryBandwidth if launch.dram > DRAM_BUSY => (
            format!("device memory is {} busy", percent(launch.dram)),
            "move fewer bytes; otherwise this is near the limit",
        ),
        Bottleneck::MemoryBandwidth => (
            format!(
                "L1 is {} busy, L2 {}, device memory {}",
                percent(launch.l1),
                percent(launch.l2),
                percent(launch.dram)
            ),
            if launch.l1 > launch.l2 {
                "fewer and wider accesses; keep in registers what is used again"
            } else {
                "read each byte once: larger tiles, shared memory"
            },
        ),
        Bottleneck::MemoryLatency => (
            format!(
                "device memory is only {} busy and issue slots {}: too few bytes in flight",
                percent(launch.dram),
                percent(launch.issue)
            ),
            "16-byte loads, several independent loads before the first use, more warps or stages",
        ),
        Bottleneck::Uncoalesced => {
            place = launch.hot.scattered.filter(|place| place.ratio > 1.2);
            let needed = place.map_or_else(String::new, |place| {
                format!(": {:.1}× what they need", place.ratio)
            });
            let text = format!(
                "global accesses touch {:.1} sectors per load, {:.1} per store{needed}",
                per_request(launch.global_loads.sectors, launch.global_loads.requests),
                per_request(launch.global_stores.sectors, launch.global_stores.requests)
            );
            (
                with_share(text, place.as_ref()),
                "let neighbouring lanes touch neighbouring addresses; stage through shared memory",
            )
        }
        Bottleneck::SharedMemory => {
            let conflicts = conflict_share(launch);
            let whole = if launch.shared <= BUSY && launch.l1 > BUSY {
                format!(" (L1 with it {})", percent(launch.l1))
            } else {
                String::new()
            };
            (
                format!(
                    "shared memory is {} busy{whole}; {} of its wavefronts are conflicts",
                    percent(launch.shared),
                    percent(conflicts)
                ),
                if conflicts > TENTH {
                    "remove conflicts, use 16-byte shared accesses, keep more in registers"
                } else {
                    "use 16-byte shared accesses, larger register tiles: more arithmetic for each value read"
                },
            )
        }
        Bottleneck::Issue if launch.issue > FILLED => {
            let (what, arithmetic) = issued(launch);
            (
                format!("issue slots are {} busy: {what}", percent(launch.issue)),
                if arithmetic > ARITHMETIC {
                    "little is issued beside the arithmetic: fill the empty slots"
                } else {
                    "fewer instructions beside the arithmetic: wider accesses, unrolling, larger register tiles"
                },
            )
        }
        Bottleneck::Issue => (
            format!("issue slots are {} busy", percent(launch.issue)),
            "more independent work per thread",
        ),
        Bottleneck::Compute => {
            let (name, share) = busiest_pipe(launch).unwrap_or(("an arithmetic pipe", 0.0));
            (
                format!("the {name} is {} busy", percent(share)),
                "this pipe is near its limit; move work to another one",
            )
        }
        Bottleneck::Tensor => (
            format!("tensor cores are {} busy", percent(unit(launch, "tensor"))),
            if unit(launch, "tensor") > BUSY {
                "this is near the limit"
            } else {
                "keep more MMAs in flight"
            },
        ),
        Bottleneck::Synchronisation => (
            format!(
                "warps wait for each other; issue slots {}",
                percent(launch.issue)
            ),
            "fewer barriers, balanced warps, pipelines with mbarriers",
        ),
        Bottleneck::Atomics => (
            format!("{:.0} atomic requests of warps", launch.atomics),
            "reduce within the warp and the block first",
        ),
        Bottleneck::Occupancy => (
            format!("SMs are busy {} of the time", percent(launch.busy)),
            "more or smaller blocks, equal work for each, persistent blocks",
        ),
        Bottleneck::Spills => (
            format!(
                "{} of the sectors of loads and stores are local memory",
                percent(spilled_share(launch))
            ),
            "fewer live values, smaller tiles, or a higher register cap",
        ),
        Bottleneck::Launch => (
            format!("the call takes {:.1} µs", profile.sum(|l| l.time_ns) / 1e3),
            "merge launches",
        ),
    };
    let text = if profile.launches.len() > 1 {
        format!(
            "{text} (launch of `{}`, {} of the call)",
            launch.entry,
            percent(launch.time_ns / profile.sum(|l| l.time_ns))
        )
    } else {
        text
    };
    Evidence {
        text,
        line: place.map(|place| place.line),
        advice: Some(advice.to_owned()),
    }
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// The stall that matters most, if one does.
fn waiting(launch: &Launch, stalls: &[Stall]) -> Option<Evidence> {
    if launch.issue > BUSY {
        return None;
    }
    let (stall, advice) = stalls
        .iter()
        .find_map(|stall| Some((stall, advice::about(&stall.reason)?)))?;
    if stall.share <= STALL {
        return None;
    }
    let mut text = format!(
        "{:.0} % of stalls: {} ({})",
        stall.share * 100.0,
        advice.words,
        advice.meaning
    );
    let by_role = |opcode: &(String, f64)| {
        ["HGMMA", "UTMALDG", "UTCHMMA"].contains(&opcode.0.split('.').next().unwrap_or_default())
    };
    if ["long_scoreboard", "barrier"].contains(&stall.reason.as_str())
        && launch.opcodes.iter().any(by_role)
    {
        text.push_str("; warps that only start copies count here too");
    }
    let place = launch
        .hot
        .stalls
        .iter()
        .find(|(reason, _)| *reason == stall.reason);
    Some(Evidence {
        text: with_share(text, place.map(|(_, place)| place)),
        line: place.map(|(_, place)| place.line),
        advice: Some(advice.help.to_owned()),
    })
}

fn with_share(text: String, place: Option<&Place>) -> String {
    match place {
        Some(place) => format!("{text}; {:.0} % of it here", place.share * 100.0),
        None => text,
    }
}

fn conflicts(launch: &Launch, stalls: &[Stall]) -> Option<Evidence> {
    let shared = ["mio_throttle", "short_scoreboard"];
    let waits = stalls
        .iter()
        .any(|stall| stall.share > TENTH && shared.contains(&stall.reason.as_str()));
    // where shared memory is hardly used, its conflicts cost nothing
    if launch.shared < 0.05 && !waits {
        return None;
    }
    let all = launch.shared_loads.wavefronts + launch.shared_stores.wavefronts;
    let (what, worst) = if launch.shared_stores.conflicts > launch.shared_loads.conflicts {
        ("stores", launch.shared_stores)
    } else {
        ("loads", launch.shared_loads)
    };
    if worst.conflicts <= TENTH * all {
        return None;
    }
    let place = launch.hot.conflicts;
    let ways = place.map_or_else(|| ways(worst), |place| place.ratio);
    Some(Evidence {
        text: with_share(
            format!("shared {what} conflict {ways:.0}-way"),
            place.as_ref(),
        ),
        line: place.map(|place| place.line),
        advice: Some("pad the row by one element, or swizzle".to_owned()),
    })
}

/// Wavefronts over those without conflicts.
fn ways(shared: Shared) -> f64 {
    shared.wavefronts / (shared.wavefronts - shared.conflicts).max(1.0)
}

fn conflict_share(launch: &Launch) -> f64 {
    let all = launch.shared_loads.wavefronts + launch.shared_stores.wavefronts;
    (launch.shared_loads.conflicts + launch.shared_stores.conflicts) / all.max(1.0)
}

/// Most of what keeps L1 busy are shared-memory accesses.
fn mostly_shared(launch: &Launch) -> bool {
    launch.shared > 0.5 * launch.l1
}

fn per_request(sectors: f64, requests: f64) -> f64 {
    sectors / requests.max(1.0)
}

/// Wider than any access can be, or wider than these are by their own lanes.
fn is_scattered(launch: &Launch) -> bool {
    let wide = |sectors, requests| per_request(sectors, requests) > 1.1 * WIDEST;
    wide(launch.global_loads.sectors, launch.global_loads.requests)
        || wide(launch.global_stores.sectors, launch.global_stores.requests)
}

fn scattered(launch: &Launch) -> Option<Evidence> {
    let place = launch.hot.scattered.filter(|place| place.ratio > 1.2);
    if place.is_none() && !is_scattered(launch) {
        return None;
    }
    let text = match place {
        Some(place) => format!(
            "global accesses touch {:.1}× the sectors they need",
            place.ratio
        ),
        None => format!(
            "global accesses touch {:.1} sectors per load, {:.1} per store; 16 are enough for any",
            per_request(launch.global_loads.sectors, launch.global_loads.requests),
            per_request(launch.global_stores.sectors, launch.global_stores.requests)
        ),
    };
    Some(Evidence {
        text: with_share(text, place.as_ref()),
        line: place.map(|place| place.line),
        advice: Some("let neighbouring lanes access neighbouring addresses".to_owned()),
    })
}

fn mostly_atomics(launch: &Launch) -> bool {
    let others = launch.global_loads.requests + launch.global_stores.requests;
    launch.atomics > others
}

fn spilled_share(launch: &Launch) -> f64 {
    let global = launch.global_loads.sectors + launch.global_stores.sectors;
    launch.local_sectors / (launch.local_sectors + global).max(1.0)
}

fn spills(launch: &Launch) -> Option<Evidence> {
    (spilled_share(launch) > TENTH).then(|| Evidence {
        text: format!("local memory moves {:.0} sectors", launch.local_sectors),
        line: None,
        advice: Some("keep arrays in registers: constant indices, unrolled loops".to_owned()),
    })
}

/// Half-empty waves.
fn grid(launch: &Launch, gpu: &Gpu) -> Option<Evidence> {
    if launch.dram > DRAM_FULL {
        return None;
    }
    let (per_sm, limiter) = launch.limits.tightest();
    let advice = format!(
        "{} an SM (limited by {limiter}), {:.0} the GPU; choose a grid that fills whole waves, or persistent blocks",
        if per_sm < 2.0 {
            "1 block fits".to_owned()
        } else {
            format!("{per_sm:.0} blocks fit")
        },
        per_sm * f64::from(gpu.sm_count)
    );
    let text = if launch.waves < 0.95 {
        format!(
            "the grid of {} blocks fills {:.0} % of one wave",
            launch.blocks(),
            launch.waves * 100.0
        )
    } else {
        // the last wave takes as long as a full one, at the worst
        let lost = 1.0 - launch.waves / launch.waves.ceil();
        if lost < TAIL {
            return None;
        }
        format!(
            "{:.1} waves of blocks: the last leaves {} of its places empty, up to {} of the time",
            launch.waves,
            percent(launch.waves.ceil() - launch.waves),
            percent(lost)
        )
    };
    Some(Evidence {
        text,
        line: None,
        advice: Some(advice),
    })
}

fn unfused(launch: &Launch) -> Option<Evidence> {
    // where instructions are not what limits, fewer of them change nothing
    if launch.issue < FILLED {
        return None;
    }
    let count = |opcode: &str| -> f64 {
        let of = launch.opcodes.iter();
        of.filter(|(name, _)| name.split('.').next() == Some(opcode))
            .map(|(_, n)| n)
            .sum()
    };
    let (add, mul, fma) = (count("FADD"), count("FMUL"), count("FFMA"));
    let pairs = add.min(mul);
    (pairs > TENTH * (add + mul + fma)).then(|| Evidence {
        text: format!(
            "{:.0} % of fp32 instructions are separate additions and multiplications",
            100.0 * 2.0 * pairs / (add + mul + fma)
        ),
        line: None,
        advice: Some("fuse them (fma) where the task's rounding allows".to_owned()),
    })
}

fn occupancy(launch: &Launch, gpu: &Gpu) -> Occupancy {
    let most = gpu.threads_per_sm / 32;
    let (fit, limiter) = launch.limits.tightest();
    let given = launch.blocks() as f64 / f64::from(gpu.sm_count.max(1));
    let (blocks, limiter) = if given < fit {
        (given.ceil(), "grid")
    } else {
        (fit, limiter)
    };
    let warps = (blocks * launch.warps_per_block() as f64) as u32;
    Occupancy {
        warps: warps.min(most),
        of: most,
        limiter: limiter.to_owned(),
    }
}
