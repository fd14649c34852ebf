//! Counts to an estimated time on a named GPU. An order among kernels, never a claim: each limit is a simple
//! bound, their constants are global, and no task is known here.
//!
//! A block that is alone on its SM is worked at and waits in turn; others are worked at meanwhile. So
//! T = launch + own + ‖rest, waits‖: *own* is the share of the work that hides no wait, since those who wait do it
//! themselves; the *rest* is what others do. Work is ‖issue, arithmetic pipes, load/store unit, shared memory, L2,
//! device memory, atomics, starting blocks‖. Both are norms of a power above 2: units overlap, but never wholly. The
//! eight [`Constants`] are fitted; the other numbers here are facts of the hardware.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;

use super::counts::Counts;
use super::flow::{Distance, distance, live, width};
use super::machine::Launch;
use super::memory::Touched;
use super::mix::{MOST_LOADS, MOST_PARALLEL, Pipe, mix};
use super::op::{AsyncOp, Mbarrier, MbarrierAction, Op, Program};

/// Facts of a GPU that the model needs.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Streaming multiprocessors.
    pub sm_count: f64,
    /// SM clock, Hz.
    pub clock: f64,
    /// Device-memory bandwidth, bytes a second.
    pub bandwidth: f64,
    /// L2 size, bytes.
    pub l2: f64,
    /// Shared memory of an SM, bytes.
    pub shared_per_sm: u32,
    /// Registers of an SM.
    pub registers_per_sm: u32,
    /// Threads of an SM.
    pub threads_per_sm: u32,
    /// Blocks of an SM.
    pub blocks_per_sm: u32,
    /// fp32 lanes of an SM.
    pub fp32_lanes: f64,
    /// fp64 lanes of an SM.
    pub fp64_lanes: f64,
    /// Operations of an SM's tensor cores on 16-bit numbers in a cycle.
    pub tensor_flops: f64,
}

/// The model's constants, all that is fitted: to the order of measured kernels, by `benches/ordering`. No task
/// is scored by constants that were fitted on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// Share of the theoretical bandwidth of device memory, as it enters the sum.
    pub dram_efficiency: f64,
    /// Seconds from a load to its data, from device memory under load.
    pub dram_latency: f64,
    /// Cycles from an instruction to its dependent one.
    pub dependent: f64,
    /// L2 bytes per cycle and SM; bulk copies get twice as many.
    pub l2_bytes: f64,
    /// Instructions, as `mix` counts them from PTX, that a scheduler issues in a cycle.
    pub issue: f64,
    /// Cycles that an SM takes to start a block and to end it.
    pub block: f64,
    /// How units overlap: the time is the norm of this power over theirs; 1 would be their sum.
    pub overlap: f64,
    /// Share of device memory's time that is added where all blocks run at once: nobody then takes over from an SM
    /// that gets fewer bytes. Less by as many times as the grid is larger.
    pub uneven: f64,
}

impl Default for Constants {
    /// Fitted on 2026-11-30 to traces of an H200.
    fn default() -> Self {
        Self {
            dram_efficiency: 1.0,
            dram_latency: 510e-9,
            dependent: 7.66,
            l2_bytes: 34.5,
            issue: 1.04,
            block: 121.0,
            overlap: 3.17,
            uneven: 0.13,
        }
    }
}

/// Seconds of a launch that does nothing.
const LAUNCH: f64 = 1.5e-6;
/// Latency of the L2 over that of device memory.
const L2_LATENCY: f64 = 0.4;
/// Cycles to data in the first level or in shared memory.
const NEAR_LATENCY: f64 = 30.0;
/// Cycles from the last warp's arrival at a barrier until all go on at full pace.
const BARRIER: f64 = 60.0;
/// Cycles from the phase's end to the first instruction of a warp that waits for an mbarrier.
const ARRIVAL: f64 = 60.0;
/// Atomics on one address that the L2 does in a cycle.
const ATOMICS: f64 = 0.5;
/// Share of further uses that miss an L2 which their buffers do not fit, at most.
const REFETCHED: f64 = 0.1;

/// What a launch was and did.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    /// The kernel.
    pub program: &'a Program,
    /// Geometry.
    pub launch: &'a Launch,
    /// Registers a thread, from the assembler; guessed from the kernel where unknown.
    pub registers: Option<u32>,
    /// Counts of the blocks that ran.
    pub counts: &'a Counts,
    /// What those blocks accessed of each buffer.
    pub touched: &'a [Touched],
}

/// Warps that fit an SM.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Resident {
    /// Blocks of an SM.
    pub blocks: u32,
    /// Warps of an SM, no more than the grid gives.
    pub warps: u32,
    /// Most warps of an SM.
    pub most: u32,
    /// What caps it: `registers`, `shared memory`, `threads`, `blocks`, `grid`.
    pub limiter: &'static str,
}

/// Each limit's own time, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Parts {
    /// Issue slots.
    pub issue: f64,
    /// The busiest arithmetic pipe.
    pub pipe: f64,
    /// Load/store unit: global requests and their lines.
    pub global: f64,
    /// Shared-memory wavefronts.
    pub shared: f64,
    /// L2 traffic.
    pub l2: f64,
    /// Device memory.
    pub dram: f64,
    /// Waiting with nothing of one's own to run.
    pub latency: f64,
    /// Atomics on one address.
    pub atomics: f64,
    /// Starting and ending blocks.
    pub blocks: f64,
}

impl Parts {
    /// Each with its name.
    pub fn named(&self) -> [(&'static str, f64); 9] {
        [
            ("instruction issue", self.issue),
            ("busiest arithmetic pipe", self.pipe),
            ("load/store unit", self.global),
            ("shared memory", self.shared),
            ("L2", self.l2),
            ("device memory", self.dram),
            ("latency", self.latency),
            ("atomics on one address", self.atomics),
            ("starting blocks", self.blocks),
        ]
    }
}

/// A launch's estimate.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// Seconds, overhead included.
    pub seconds: f64,
    /// Each limit's time.
    pub parts: Parts,
    /// Occupancy.
    pub resident: Resident,
    /// Whole-grid counts ÷ counted ones.
    pub scale: f64,
    /// Bytes to and from device memory.
    pub dram_bytes: f64,
    /// Bytes of partly used sectors ÷ all sectors of global requests.
    pub wasted: f64,
    /// Share of SMs that have a block in the last wave, times whole waves: the tail's cost.
    pub tail: f64,
    /// Bytes in flight per SM.
    pub in_flight: f64,
}

/// Blocks and warps of an SM at once; 0 blocks when a block does not fit.
pub fn resident(
    limits: &Limits,
    program: &Program,
    launch: &Launch,
    registers: Option<u32>,
) -> Resident {
    let threads: u32 = launch.block.iter().product::<u32>().max(1);
    let warps = threads.div_ceil(32);
    let per_thread = registers.unwrap_or(32).max(16).div_ceil(8) * 8;
    let by_registers = limits.registers_per_sm / (per_thread * 32 * warps).max(1);
    // Each block's shared memory, a KiB for the system included, comes in steps of 128 bytes.
    let shared = (program.static_shared() + launch.dynamic_shared + 1024).div_ceil(128) * 128;
    let by_shared = limits.shared_per_sm / shared;
    let by_threads = limits.threads_per_sm / (warps * 32);
    let caps = [
        (by_registers, "registers"),
        (by_shared, "shared memory"),
        (by_threads, "threads"),
        (limits.blocks_per_sm, "blocks"),
    ];
    let (blocks, mut limiter) = caps
        .into_iter()
        .min_by_key(|(n, _)| *n)
        .unwrap_or((0, "blocks"));
    let total: u64 = launch.blocks();
    let share = total
        .div_ceil(limits.sm_count as u64)
        .min(u64::from(u32::MAX)) as u32;
    if share < blocks {
        limiter = "grid";
    }
    Resident {
        blocks,
        warps: blocks.min(share) * warps,
        most: limits.threads_per_sm / 32,
        limiter,
    }
}

/// What the model sees of a launch: all that does not depend on its constants. Sums are of an average block
/// or warp, the bytes of the whole grid.
#[derive(Clone, Debug, Serialize)]
pub struct Facts {
    /// Occupancy.
    pub resident: Resident,
    /// Blocks of the grid.
    pub blocks: f64,
    /// Whole-grid counts ÷ counted ones.
    pub scale: f64,
    /// Machine instructions that a block issues.
    pub slots: f64,
    /// Cycles of the busiest arithmetic pipe for a block.
    pub pipe: f64,
    /// Lines of global requests of a block.
    pub lines: f64,
    /// Shared-memory wavefronts of a block.
    pub wavefronts: f64,
    /// Sectors that a block moves from and to the L2, bulk copies left out.
    pub sectors: f64,
    /// Those that a store covered only in part.
    pub partial: f64,
    /// The same of bulk copies.
    pub bulk: f64,
    /// Instructions in the longest chains of dependent ones that a warp goes through.
    pub chain: f64,
    /// Times that a warp waits for a load out of the first level or shared memory.
    pub near: f64,
    /// The same from beyond the first level.
    pub far: Vec<Wait>,
    /// Of the longest warp over the average one.
    pub longest: f64,
    /// Times that a warp waits for an mbarrier.
    pub arrivals: f64,
    /// Barriers of a block.
    pub barriers: f64,
    /// Bytes a warp has in flight while it waits.
    pub in_flight: f64,
    /// Bytes read from device memory: distinct ones.
    pub read: f64,
    /// Bytes written there.
    pub written: f64,
    /// Bytes of all buffers touched.
    pub footprint: f64,
    /// Atomics on the busiest address.
    pub atomics: f64,
    /// Bytes of partly used sectors ÷ all sectors of global requests.
    pub wasted: f64,
}

/// Loads beyond the first level that a warp waits for.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Wait {
    /// How often.
    pub times: f64,
    /// Dependent instructions between the load and what wants its value.
    pub chain: f64,
    /// Instructions between them.
    pub slots: f64,
}

/// Reads a launch's facts.
pub fn facts(work: &Work<'_>, limits: &Limits) -> Facts {
    let Work {
        program,
        launch,
        counts,
        ..
    } = *work;
    let total: f64 = launch.grid.iter().map(|&n| f64::from(n)).product();
    let ran = counts.blocks.max(1) as f64;
    let threads: u32 = launch.block.iter().product();
    let warps = f64::from(threads.div_ceil(32));
    let mixes = mix(program);
    let mut facts = Facts {
        resident: resident(limits, program, launch, work.registers),
        blocks: total,
        scale: total / ran,
        slots: 0.0,
        pipe: 0.0,
        lines: 0.0,
        wavefronts: 0.0,
        sectors: 0.0,
        partial: 0.0,
        bulk: 0.0,
        chain: 0.0,
        near: 0.0,
        far: Vec::new(),
        longest: (counts.longest_warp as f64 * warps / counts.instructions.max(1) as f64).max(1.0),
        arrivals: 0.0,
        barriers: counts.barriers as f64 / ran,
        in_flight: 0.0,
        read: 0.0,
        written: 0.0,
        footprint: 0.0,
        atomics: counts.hottest_atomic as f64 * total / ran,
        wasted: 0.0,
    };
    let ran_by: Vec<f64> = counts.by_pc.iter().map(|line| line.warps as f64).collect();
    let spare = spare(program, work.registers, &ran_by);
    let mut pipes = [0.0; Pipe::COUNT];
    let mut groups: BTreeMap<usize, Group> = BTreeMap::new();
    let (mut bytes, mut sectors) = (0.0, 0.0);
    let (mut weighted, mut requests) = (0.0, 0.0);
    for (pc, (line, mix)) in counts.by_pc.iter().zip(&mixes).enumerate() {
        let times = line.warps as f64 / ran;
        facts.slots += times * mix.slots;
        if let Some(pipe) = mix.pipe {
            pipes[pipe as usize] += times * mix.pipe_uses;
        }
        facts.lines += line.lines.max(line.sectors.div_ceil(4)) as f64 / ran;
        facts.wavefronts += line.wavefronts as f64 / ran;
        // What is told to leave no line in the first level finds none there.
        let missed = if bypasses(program, pc) {
            line.sectors
        } else {
            line.missed_sectors
        };
        facts.sectors += (missed + line.local_sectors) as f64 / ran;
        facts.partial += line.partial_sectors as f64 / ran;
        facts.bulk += line.bulk_bytes as f64 / 32.0 / ran;
        facts.chain += times / warps * mix.slots / mix.parallel.clamp(1.0, MOST_PARALLEL);
        if mix.overlapped > 0.0 {
            let missed = times / warps * missed as f64 / line.sectors.max(1) as f64;
            let group = groups.entry(mix.group).or_default();
            group.loads += 1.0;
            for &register in &program.depends[pc].writes {
                group.loaded += f64::from(width(register));
                if group.registers.insert(register) {
                    group.distinct += f64::from(width(register));
                }
            }
            group.waits = group.waits.max(times / warps);
            // Other instructions of the warp go on until the value is wanted.
            if missed > group.far {
                group.far = missed;
                group.distance = distance(program, &mixes, &ran_by, pc);
            }
            if line.sectors > 0 && line.requests > 0 {
                weighted += line.bytes as f64 * mix.overlapped;
                requests += line.requests as f64;
            }
        }
        if waits_for_mbarrier(&program.code[pc].op) {
            facts.arrivals += times / warps;
        }
        if line.sectors > 0 {
            bytes += line.bytes as f64;
            sectors += line.sectors as f64;
        }
    }
    for group in groups.values() {
        // As many are under way as find registers.
        let each = (group.loaded / group.loads).max(1.0);
        let at_once = ((group.distinct + spare) / each).clamp(1.0, MOST_LOADS);
        let rounds = (group.loads / at_once).max(1.0);
        // Values that go to registers in use come while others are worked with, where there is room for them.
        let reuses = (group.loaded / group.distinct.max(1.0) - 1.0).max(0.0);
        let late = (1.0 - spare / group.distinct.max(1.0)).clamp(0.0, 1.0);
        facts.near += (group.waits - group.far) * (1.0 + reuses * late);
        if group.far > 0.0 {
            facts.far.push(Wait {
                times: group.far * rounds,
                chain: group.distance.chain,
                slots: group.distance.slots,
            });
        }
    }
    facts.pipe = Pipe::ALL
        .iter()
        .map(|&pipe| pipes[pipe as usize] * 32.0 / pipe.lanes(limits))
        .fold(0.0, f64::max);
    if requests > 0.0 {
        facts.in_flight = weighted / requests;
    }
    if sectors > 0.0 {
        facts.wasted = (1.0 - bytes / (sectors * 32.0)).max(0.0);
    }
    for touched in work.touched {
        // Never more than the buffer, where its parts are shared between blocks.
        let size = (touched.size as f64 / 32.0).ceil() * 32.0;
        let whole = |bytes: u64| (bytes as f64 * facts.scale).min(size);
        facts.read += whole(touched.read);
        facts.written += whole(touched.written);
        facts.footprint += whole(touched.read.max(touched.written));
    }
    facts
}

/// Loads that are under way together: their warp waits for the last of them, which is one that missed if any did.
#[derive(Default)]
struct Group {
    loads: f64,
    /// 32-bit registers that they write, each as often as one of them does.
    loaded: f64,
    /// The same, each once.
    distinct: f64,
    /// Those.
    registers: HashSet<u32>,
    /// How often a warp waits for them.
    waits: f64,
    /// How often for one that missed the first level.
    far: f64,
    /// Between that one and the use of its value.
    distance: Distance,
}

/// Registers that hold nothing wanted later, where what is wanted is most; less than none where it can not be as much
/// as it seems. Plenty where the assembler was not asked.
fn spare(program: &Program, launched: Option<u32>, ran: &[f64]) -> f64 {
    let asked = program.code.iter().filter_map(|instr| match &instr.op {
        Op::Async(op) => match op.as_ref() {
            AsyncOp::SetRegisters { count, more: true } => Some(*count),
            _ => None,
        },
        _ => None,
    });
    let Some(registers) = asked.max().or(launched) else {
        return f64::INFINITY;
    };
    let live = std::iter::zip(live(program), ran)
        .filter(|(_, ran)| **ran > 0.0)
        .map(|(live, _)| live)
        .max();
    f64::from(registers) - f64::from(live.unwrap_or(0))
}

fn waits_for_mbarrier(op: &Op) -> bool {
    matches!(op, Op::Async(op) if matches!(
        op.as_ref(),
        AsyncOp::Mbarrier(Mbarrier { action: MbarrierAction::Wait { .. }, .. })
    ))
}

/// A load that leaves the first level alone.
fn bypasses(program: &Program, pc: usize) -> bool {
    let instr = &program.code[pc];
    matches!(instr.op, Op::Load(_)) && {
        let mnemonic = &program.mnemonics[usize::from(instr.mnemonic)];
        mnemonic
            .split('.')
            .any(|part| part == "cg" || part == "L1::no_allocate")
    }
}

/// Estimates one launch.
pub fn estimate(work: &Work<'_>, limits: &Limits, constants: &Constants) -> Estimate {
    facts(work, limits).estimate(limits, constants)
}

impl Facts {
    /// The launch's time.
    pub fn estimate(&self, limits: &Limits, constants: &Constants) -> Estimate {
        let resident = &self.resident;
        // The busiest SM's share of the grid, in blocks, and how many of them it has at once.
        let at_once = limits.sm_count * f64::from(resident.blocks.max(1));
        let per_sm = (self.blocks / limits.sm_count).ceil();
        let blocks = f64::from(resident.blocks.max(1)).min(per_sm).max(1.0);
        let warps = f64::from(resident.warps.max(1));
        let waves = (self.blocks / at_once).ceil().max(1.0);
        let cycle = 1.0 / limits.clock;

        // A sector that is written in part is fetched first.
        let sectors = self.sectors + self.partial;
        let through_l2 = (sectors + self.bulk) * self.blocks * 32.0;
        // What does not fit the L2 is fetched again for a part of the further uses.
        let again = (through_l2 - self.read - self.written).max(0.0);
        let spilled = if self.footprint > limits.l2 {
            (1.0 - limits.l2 / self.footprint) * REFETCHED
        } else {
            0.0
        };
        let dram_bytes = self.read + again * spilled + self.written;
        let dram_share = (dram_bytes / through_l2.max(1.0)).min(1.0);
        let uneven = constants.uneven / (self.blocks / at_once).max(1.0);
        let mut parts = Parts {
            issue: self.slots * per_sm / 4.0 / constants.issue * cycle,
            pipe: self.pipe * per_sm * cycle,
            global: self.lines * per_sm * cycle,
            shared: self.wavefronts * per_sm * cycle,
            l2: (sectors + self.bulk / 2.0) * 32.0 * per_sm / constants.l2_bytes * cycle,
            dram: dram_bytes / (limits.bandwidth * constants.dram_efficiency) * (1.0 + uneven),
            latency: 0.0,
            atomics: self.atomics / ATOMICS * cycle,
            blocks: per_sm * constants.block * cycle,
        };
        let norm = |parts: &[f64]| {
            let sum: f64 = parts.iter().map(|part| part.powf(constants.overlap)).sum();
            sum.powf(1.0 / constants.overlap)
        };
        let work = norm(&parts.named().map(|(_, seconds)| seconds));
        // Warps of a block that wait oftener than they meet wait each on its own.
        let far_waits: f64 = self.far.iter().map(|wait| wait.times).sum();
        let apart = if far_waits > 0.0 {
            (far_waits / self.barriers).clamp(1.0, (warps / blocks).max(1.0))
        } else {
            1.0
        };
        let own = work / (blocks * apart);

        let far = constants.dram_latency * (L2_LATENCY * (1.0 - dram_share) + dram_share);
        let exposed: f64 = self
            .far
            .iter()
            .map(|wait| {
                // Until the value is wanted, the warp goes on as fast as its own chain and the others let it.
                let alone = wait.chain * constants.dependent;
                let among = wait.slots * warps / 4.0 / constants.issue;
                wait.times * (far - alone.max(among) * cycle).max(0.0)
            })
            .sum();
        let near = self.near * NEAR_LATENCY + self.arrivals * ARRIVAL;
        let met = self.barriers * BARRIER + constants.block;
        let rounds = per_sm / blocks;
        let chain = rounds * self.chain * constants.dependent * self.longest * cycle;
        parts.latency = rounds * ((near * self.longest + met) * cycle + exposed * self.longest)
            + (chain - own).max(0.0);
        Estimate {
            seconds: LAUNCH + own + norm(&[work - own, parts.latency]),
            parts,
            scale: self.scale,
            dram_bytes,
            wasted: self.wasted,
            tail: waves * at_once / self.blocks,
            in_flight: f64::from(resident.warps) * self.in_flight,
            resident: resident.clone(),
        }
    }
}

/// fp64 lanes by architecture number: data-centre parts have them, others two an SM.
pub fn fp64_lanes(arch: u16) -> f64 {
    match arch {
        80 => 32.0,
        90 | 100 => 64.0,
        _ => 2.0,
    }
}

/// Least seconds by the GPU's ceilings: FLOPs at full rate, device-memory bytes at full bandwidth.
pub fn floor(work: &Work<'_>, limits: &Limits) -> f64 {
    let scale = work
        .launch
        .grid
        .iter()
        .map(|&n| f64::from(n))
        .product::<f64>()
        / work.counts.blocks.max(1) as f64;
    let flops = work.counts.flops(work.program);
    let peak = |lanes: f64| lanes * 2.0 * limits.clock * limits.sm_count;
    let arithmetic = flops.fp32 / peak(limits.fp32_lanes)
        + flops.fp64 / peak(limits.fp64_lanes)
        + (flops.tensor_bf16 + flops.tensor_fp16) / peak(limits.tensor_flops / 2.0)
        + (flops.tensor_fp8 + flops.tensor_int8) / peak(limits.tensor_flops)
        + flops.tensor_tf32 / peak(limits.tensor_flops / 4.0);
    let bytes: f64 = work
        .touched
        .iter()
        .map(|t| {
            (t.read as f64 * scale).min(t.size as f64)
                + (t.written as f64 * scale).min(t.size as f64)
        })
        .sum();
    (arithmetic * scale).max(bytes / limits.bandwidth)
}
