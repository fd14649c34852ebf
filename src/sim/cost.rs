//! Counts to an estimated time on a named GPU. An order among kernels, never a claim: each limit is a simple
//! bound, their constants are global, and no task is known here.
//!
//! T = overhead + max(issue, arithmetic pipes, load/store unit, L2, device memory, latency, atomics), the
//! maximum softened so that the second-worst limit still counts a little.

use super::counts::{Counts, LineCounts};
use super::machine::Launch;
use super::memory::Touched;
use super::mix::{Mix, Pipe, mix};
use super::op::Program;

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

/// The model's constants. Set by hand from measured facts: a copy reaches about nine tenths of the bus, one
/// 4-byte load in flight per thread at full occupancy about two thirds, a transposition with scattered stores
/// a fifth of a tiled one, one output per thread a tenth of a good SGEMM.
#[derive(Clone, Copy, Debug)]
pub struct Constants {
    /// Seconds of a launch that does nothing.
    pub launch: f64,
    /// Share of the theoretical bandwidth that reads can reach.
    pub dram_efficiency: f64,
    /// What a written byte costs in read bytes.
    pub write_cost: f64,
    /// Seconds from a load to its data, from device memory under load.
    pub dram_latency: f64,
    /// The same from the L2.
    pub l2_latency: f64,
    /// The same from the first level or from shared memory.
    pub near_latency: f64,
    /// L2 bytes per cycle and SM.
    pub l2_bytes: f64,
    /// Sectors that a partly written sector counts as.
    pub partial_sector: f64,
    /// Share of issue slots that real schedules fill.
    pub issue_efficiency: f64,
    /// Cycles from an instruction to its dependent one.
    pub dependent: f64,
    /// Atomics on one address per cycle of the L2.
    pub atomic_rate: f64,
}

impl Default for Constants {
    fn default() -> Self {
        Self {
            launch: 1.5e-6,
            dram_efficiency: 0.945,
            write_cost: 1.12,
            dram_latency: 330e-9,
            l2_latency: 140e-9,
            near_latency: 17e-9,
            l2_bytes: 26.0,
            partial_sector: 1.9,
            issue_efficiency: 0.78,
            dependent: 4.5,
            atomic_rate: 0.5,
        }
    }
}

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
#[derive(Clone, Debug, PartialEq)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq)]
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
    /// Waiting with nothing else to run.
    pub latency: f64,
    /// Atomics on one address.
    pub atomics: f64,
}

impl Parts {
    fn list(&self) -> [f64; 8] {
        [
            self.issue,
            self.pipe,
            self.global,
            self.shared,
            self.l2,
            self.dram,
            self.latency,
            self.atomics,
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
    let total: u64 = launch.grid.iter().map(|&n| u64::from(n)).product();
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

/// Estimates one launch.
pub fn estimate(work: &Work<'_>, limits: &Limits, constants: &Constants) -> Estimate {
    let Work {
        program,
        launch,
        counts,
        ..
    } = *work;
    let resident = resident(limits, program, launch, work.registers);
    let total: f64 = launch.grid.iter().map(|&n| f64::from(n)).product();
    let ran = (counts.blocks.max(1)) as f64;
    let scale = total / ran;
    let threads: u32 = launch.block.iter().product();
    let warps_per_block = f64::from(threads.div_ceil(32));
    let mix = mix(program);

    // The busiest SM's share of the grid, in blocks, and how full the waves are.
    let at_once = limits.sm_count * f64::from(resident.blocks.max(1));
    let busiest = (total / limits.sm_count).ceil();
    let waves = (total / at_once).ceil().max(1.0);
    let per_sm = busiest / ran;
    let cycle = 1.0 / limits.clock;

    let mut slots = 0.0;
    let mut pipes = [0.0; Pipe::COUNT];
    let (mut lines, mut wavefronts, mut l2_sectors) = (0.0, 0.0, 0.0);
    let (mut bytes, mut sectors) = (0.0, 0.0);
    for (line, mix) in counts.by_pc.iter().zip(&mix) {
        slots += line.warps as f64 * mix.slots;
        if let Some(pipe) = mix.pipe {
            pipes[pipe as usize] += line.warps as f64 * mix.pipe_uses;
        }
        lines += line.lines.max(line.sectors.div_ceil(4)) as f64;
        wavefronts += line.wavefronts as f64;
        l2_sectors += line.bulk_bytes as f64 / 32.0
            + line.missed_sectors as f64
            + line.partial_sectors as f64 * (constants.partial_sector - 1.0)
            + line.local_sectors as f64;
        if line.sectors > 0 {
            bytes += line.bytes as f64;
            sectors += line.sectors as f64;
        }
    }
    let pipe_cycles = Pipe::ALL
        .iter()
        .map(|&pipe| pipes[pipe as usize] * 32.0 / pipe.lanes(limits))
        .fold(0.0, f64::max);

    let (read, written) = dram_traffic(work.touched, scale, l2_sectors * scale * 32.0, limits);
    let dram_bytes = read + written;
    let latency = warp_latency(
        counts,
        &mix,
        ran * warps_per_block,
        dram_bytes / (l2_sectors * scale * 32.0).max(1.0),
        constants,
        cycle,
    );
    let whole_grid = sectors * scale * 32.0;

    let parts = Parts {
        issue: slots * per_sm / 4.0 * cycle / constants.issue_efficiency,
        pipe: pipe_cycles * per_sm * cycle / constants.issue_efficiency,
        global: lines * per_sm * cycle,
        shared: wavefronts * per_sm * cycle,
        l2: l2_sectors * 32.0 * per_sm / constants.l2_bytes * cycle,
        dram: (read + written * constants.write_cost)
            / (limits.bandwidth * constants.dram_efficiency),
        latency: latency.seconds * waves,
        atomics: counts.hottest_atomic as f64 * scale / constants.atomic_rate * cycle,
    };
    const SOFTNESS: f64 = 6.0;
    let soft = parts
        .list()
        .iter()
        .map(|t| t.powf(SOFTNESS))
        .sum::<f64>()
        .powf(1.0 / SOFTNESS);
    Estimate {
        seconds: constants.launch + soft,
        parts,
        scale,
        dram_bytes,
        wasted: if whole_grid > 0.0 {
            (1.0 - bytes * scale / whole_grid).max(0.0)
        } else {
            0.0
        },
        tail: waves * at_once / total,
        in_flight: f64::from(resident.warps) * latency.bytes,
        resident,
    }
}

/// Device-memory bytes: distinct sectors of each buffer, never more than the buffer where its parts are
/// shared between blocks, never more than what passes the L2.
fn dram_traffic(touched: &[Touched], scale: f64, l2_bytes: f64, limits: &Limits) -> (f64, f64) {
    let (mut read, mut written) = (0.0, 0.0);
    let mut footprint = 0.0;
    for &Touched {
        read: r,
        written: w,
        size,
    } in touched
    {
        let size = (size as f64 / 32.0).ceil() * 32.0;
        read += (r as f64 * scale).min(size);
        written += (w as f64 * scale).min(size);
        footprint += ((r.max(w)) as f64 * scale).min(size);
    }
    // What does not fit the L2 is fetched again for a part of the further uses.
    let again = (l2_bytes - read - written).max(0.0);
    let spilled = if footprint > limits.l2 {
        (1.0 - limits.l2 / footprint) * 0.1
    } else {
        0.0
    };
    (read + again * spilled, written)
}

struct Latency {
    /// One warp's waiting, start to end.
    seconds: f64,
    /// Bytes a warp has in flight while it waits.
    bytes: f64,
}

/// How long an average warp takes when nothing but its own dependences slows it.
fn warp_latency(
    counts: &Counts,
    mix: &[Mix],
    warps: f64,
    dram_share: f64,
    constants: &Constants,
    cycle: f64,
) -> Latency {
    let mut seconds = 0.0;
    let (mut weighted, mut requests) = (0.0, 0.0);
    for (line, mix) in counts.by_pc.iter().zip(mix) {
        let times = line.warps as f64 / warps.max(1.0);
        seconds += times * mix.slots * constants.dependent / mix.parallel.max(1.0) * cycle;
        if mix.overlapped > 0.0 {
            let each = load_latency(line, dram_share, constants);
            seconds += times * each / mix.overlapped;
            if line.sectors > 0 && line.requests > 0 {
                weighted += line.bytes as f64 * mix.overlapped;
                requests += line.requests as f64;
            }
        }
    }
    Latency {
        seconds,
        bytes: if requests > 0.0 {
            weighted / requests
        } else {
            0.0
        },
    }
}

fn load_latency(line: &LineCounts, dram_share: f64, constants: &Constants) -> f64 {
    if line.sectors == 0 {
        return constants.near_latency;
    }
    let missed = line.missed_sectors as f64 / line.sectors as f64;
    let far = dram_share.min(1.0);
    constants.near_latency * (1.0 - missed)
        + missed * (constants.l2_latency * (1.0 - far) + constants.dram_latency * far)
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
