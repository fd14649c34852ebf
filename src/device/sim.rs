//! The simulator as a device: a job's plan and buffers to launches on simulated memory, findings to
//! diagnostics, counts to an *estimated* time. It makes no measurement and knows no task.

use std::collections::BTreeMap;

use crate::sim::cost::{Constants, Estimate, Limits, Work, estimate, fp64_lanes, resident};
use crate::sim::{
    self, Counts, Finding, Initial, Memory, Options, Outcome, Program, Stop, Swizzle, TensorMap,
    Touched,
};
use crate::sim::{cost, diagnosis};
use crate::source::{self, Argument, Launch};
use crate::units::{Bytes, Flops, Nanos};
use crate::verdict::{Diagnostic, Severity, Time};

use super::{About, Contents, Device, Ended, Execution, Gpu, Job, RigError, Timed, Timing};

/// Version of interpreter and cost model: part of verdict cache keys, raised when an answer changes.
const COST_MODEL: &str = "4";
/// Jobs up to here are executed in full.
const LARGEST_JOB: Bytes = Bytes(256 << 20);
/// Unwritten bytes of workspaces: a NaN in every float format.
const POISON: u8 = 0xff;
/// Least instruction budget of a launch that is checked, in warp instructions.
const LEAST_BUDGET: u64 = 50_000_000;
/// Budget of each warp of the grid beyond it.
const WARP_BUDGET: u64 = 20_000;
/// Budget of the blocks that are sampled to estimate a time.
const TIMING_BUDGET: u64 = 400_000_000;
/// Blocks that stand for a grid.
const SAMPLED_BLOCKS: u64 = 4;
/// Bytes of a tensor map among a kernel's parameters.
const TENSOR_MAP_BYTES: u32 = 128;
/// Blocks of a cluster.
const LARGEST_CLUSTER: u32 = 8;
/// First-level cache of an SM beyond its largest shared memory, bytes.
const CACHE_BEYOND_SHARED: u64 = 28 * 1024;

/// A GPU stood for by the simulator.
#[derive(Clone, Debug)]
pub struct SimDevice {
    gpu: Gpu,
    about: About,
    constants: Constants,
}

impl SimDevice {
    /// The simulator, standing for `gpu`.
    pub fn new(gpu: Gpu) -> Self {
        let about = About {
            identity: format!("simulator {COST_MODEL}, {}", gpu.name),
            checks: [
                "addresses in bounds and aligned",
                "inputs not written",
                "no read of unwritten memory",
                "shared-memory races between warps",
                "asynchronous copies and products waited for, and shared memory not given back before",
                "proxy fences between ordinary stores and asynchronous reads of shared memory",
                "barriers reached by whole warps",
                "blocks do not overwrite each other's result",
            ]
            .map(String::from)
            .into(),
            cannot_check: [
                "the time: estimated, not measured",
                "order between blocks through flags in global memory",
                "order of bulk copies and ordinary accesses in global memory",
                "races between lanes of one warp",
            ]
            .map(String::from)
            .into(),
            largest: LARGEST_JOB,
            runs_timed_size: false,
        };
        Self {
            gpu,
            about,
            constants: Constants::default(),
        }
    }

    fn limits(&self) -> Limits {
        let gpu = &self.gpu;
        Limits {
            sm_count: f64::from(gpu.sm_count),
            clock: gpu.sm_clock_mhz * 1e6,
            bandwidth: gpu.memory_bandwidth,
            l2: gpu.l2.0 as f64,
            shared_per_sm: gpu.smem_per_sm.0 as u32,
            registers_per_sm: gpu.registers_per_sm,
            threads_per_sm: gpu.threads_per_sm,
            blocks_per_sm: gpu.blocks_per_sm,
            fp32_lanes: f64::from(gpu.fp32_fma_per_cycle),
            fp64_lanes: fp64_lanes(gpu.arch.number),
            tensor_flops: f64::from(gpu.tensor_bf16_flops_per_cycle),
        }
    }

    fn prepare(&self, job: &Job<'_>) -> Result<Prepared, Refusal> {
        let mut programs = BTreeMap::new();
        for launch in &job.plan.launches {
            if !programs.contains_key(&launch.entry) {
                let program =
                    sim::decode(job.module, &launch.entry).map_err(Refusal::Unsupported)?;
                programs.insert(launch.entry.clone(), program);
            }
        }
        let Some(first) = programs.values().next() else {
            return Err(Refusal::DoesNotFit("the plan launches nothing".into()));
        };
        let mut memory = sim::memory(first);
        let mut addresses = BTreeMap::new();
        for buffer in job.buffers {
            let initial = match &buffer.contents {
                Contents::Bytes(bytes) => Initial::Bytes(bytes.clone()),
                Contents::Fill(byte) => Initial::Poison(*byte),
                Contents::Generated(generator) => Initial::Generated(generator.clone()),
            };
            let address = memory.add(&buffer.name, buffer.bytes.0, buffer.writable, initial);
            addresses.insert(buffer.name.clone(), address);
        }
        let mut workspaces = BTreeMap::new();
        for workspace in &job.plan.workspaces {
            let initial = if workspace.zero {
                Initial::Zero
            } else {
                Initial::Poison(POISON)
            };
            let name = format!("workspace {}", workspace.name);
            workspaces.insert(
                workspace.name.clone(),
                memory.add(name, workspace.bytes.0, true, initial),
            );
        }
        let mut launches = Vec::new();
        for launch in &job.plan.launches {
            let program = &programs[&launch.entry];
            let registers = job
                .registers
                .iter()
                .find(|(name, _)| *name == launch.entry)
                .map(|(_, n)| *n);
            let given = Given {
                maps: &job.plan.tensor_maps,
                buffers: &addresses,
                workspaces: &workspaces,
            };
            let (params, tensor_maps) = parameters(launch, program, &given)?;
            let prepared = sim::Launch {
                grid: launch.grid,
                block: launch.block,
                dynamic_shared: launch.smem.0 as u32,
                cluster: match (launch.cluster, program.required_cluster()) {
                    ([1, 1, 1], Some(cluster)) => cluster,
                    (cluster, _) => cluster,
                },
                params,
                tensor_maps,
            };
            self.fits(program, launch, &prepared, registers)?;
            launches.push((launch.entry.clone(), prepared, registers));
        }
        Ok(Prepared {
            programs,
            memory,
            addresses,
            launches,
        })
    }

    /// Whether the launch fits the GPU and the kernel's own bounds.
    fn fits(
        &self,
        program: &Program,
        launch: &Launch,
        prepared: &sim::Launch,
        registers: Option<u32>,
    ) -> Result<(), Refusal> {
        let refuse =
            |message: String| Err(Refusal::DoesNotFit(format!("{}: {message}", launch.entry)));
        let threads: u64 = launch.block.iter().map(|&n| u64::from(n)).product();
        if threads == 0 || launch.grid.contains(&0) {
            return refuse(format!(
                "grid {:?} of blocks {:?} has no threads",
                launch.grid, launch.block
            ));
        }
        if threads > 1024 || launch.block[2] > 64 {
            return refuse(format!(
                "a block of {:?} is {threads} threads; at most 1024, 64 in z",
                launch.block
            ));
        }
        if launch.grid[0] > i32::MAX as u32 || launch.grid[1] > 65_535 || launch.grid[2] > 65_535 {
            return refuse(format!(
                "a grid of {:?} blocks; at most 2147483647 × 65535 × 65535",
                launch.grid
            ));
        }
        let cluster = prepared.cluster;
        let blocks: u32 = cluster.iter().product();
        if blocks == 0 || blocks > LARGEST_CLUSTER {
            return refuse(format!(
                "clusters of {cluster:?}; at most {LARGEST_CLUSTER} blocks"
            ));
        }
        if (launch.grid.iter().zip(cluster)).any(|(grid, cluster)| grid % cluster != 0) {
            return refuse(format!(
                "a grid of {:?} blocks is no whole number of clusters of {cluster:?}",
                launch.grid
            ));
        }
        if let Some(wanted) = program
            .required_cluster()
            .filter(|&wanted| wanted != cluster)
        {
            return refuse(format!(
                "clusters of {cluster:?}, but the kernel declares .reqnctapercluster {wanted:?}"
            ));
        }
        if let Some(most) = program
            .max_threads()
            .filter(|&most| threads > u64::from(most))
        {
            return refuse(format!(
                "{threads} threads, but the kernel declares .maxntid {most}"
            ));
        }
        if let Some(wanted) = program
            .required_threads()
            .filter(|&wanted| wanted != launch.block)
        {
            return refuse(format!(
                "blocks of {:?}, but the kernel declares .reqntid {wanted:?}",
                launch.block
            ));
        }
        let shared = u64::from(program.static_shared()) + launch.smem.0;
        if shared > self.gpu.smem_per_block.0 {
            return refuse(format!(
                "{shared} bytes of shared memory a block; {} has {}",
                self.gpu.name, self.gpu.smem_per_block.0
            ));
        }
        let resident = resident(&self.limits(), program, prepared, registers);
        if resident.blocks == 0 {
            return refuse(format!(
                "no block fits an SM: too many {} ({threads} threads)",
                resident.limiter
            ));
        }
        Ok(())
    }

    fn options(&self, program: &Program, launch: &sim::Launch, registers: Option<u32>) -> Options {
        let resident = resident(&self.limits(), program, launch, registers);
        let threads: u64 = launch.block.iter().map(|&n| u64::from(n)).product();
        let blocks: u64 = launch.grid.iter().map(|&n| u64::from(n)).product();
        Options {
            checks: true,
            budget: (blocks * threads.div_ceil(32))
                .saturating_mul(WARP_BUDGET)
                .max(LEAST_BUDGET),
            sm_count: self.gpu.sm_count,
            resident_blocks: resident.blocks.saturating_mul(self.gpu.sm_count),
            blocks: None,
            cache_bytes: None,
            skip_products: false,
            registers,
        }
    }

    /// Options to run a few blocks that stand for the grid.
    ///
    /// With `whole`, a grid that is resident at once runs all of its blocks: they may wait for each other.
    fn sampling(
        &self,
        program: &Program,
        launch: &sim::Launch,
        registers: Option<u32>,
        whole: bool,
    ) -> Options {
        let full = self.options(program, launch, registers);
        let resident = resident(&self.limits(), program, launch, registers)
            .blocks
            .max(1);
        let blocks: u64 = launch.grid.iter().map(|&n| u64::from(n)).product();
        let shared =
            u64::from(program.static_shared() + launch.dynamic_shared) * u64::from(resident);
        let cache = (self.gpu.smem_per_sm.0 + CACHE_BEYOND_SHARED).saturating_sub(shared)
            / u64::from(resident);
        let at_once = whole && blocks <= u64::from(full.resident_blocks);
        let sample = if blocks <= SAMPLED_BLOCKS || at_once {
            (0..blocks).collect()
        } else {
            standing_for(launch.grid)
        };
        Options {
            checks: false,
            skip_products: true,
            budget: TIMING_BUDGET,
            blocks: Some(sample),
            cache_bytes: Some(cache),
            ..full
        }
    }
}

/// Blocks that stand for a grid too large to run.
fn standing_for(grid: [u32; 3]) -> Vec<u64> {
    let columns = u64::from(grid[0]);
    let rows = u64::from(grid[1]) * u64::from(grid[2]);
    // Near the middles of equal parts: neither the first nor a ragged last one stands for the rest, and no
    // two at a distance that a power of two or a grid's width divides.
    let near_middle = |part: u64, of: u64| {
        let reach = of / (4 * SAMPLED_BLOCKS) + 1;
        let middle = of * (2 * part + 1) / (2 * SAMPLED_BLOCKS);
        middle + (part + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) % reach
    };
    let parts = 0..SAMPLED_BLOCKS;
    if columns < SAMPLED_BLOCKS || rows < SAMPLED_BLOCKS {
        return parts
            .map(|part| near_middle(part, columns * rows))
            .collect();
    }
    // Work may grow along a row of blocks, as under a causal mask, or from row to row: one in each part of both.
    parts
        .map(|row| {
            let column = (2 * row + 1) % (SAMPLED_BLOCKS + 1);
            near_middle(row, rows) * columns + near_middle(column, columns)
        })
        .collect()
}

struct Prepared {
    programs: BTreeMap<String, Program>,
    memory: Memory,
    addresses: BTreeMap<String, u64>,
    launches: Vec<(String, sim::Launch, Option<u32>)>,
}

enum Refusal {
    Unsupported(Vec<Finding>),
    DoesNotFit(String),
}

impl Device for SimDevice {
    fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    fn about(&self) -> &About {
        &self.about
    }

    fn execute(&self, job: &Job<'_>) -> Result<Execution, RigError> {
        let mut prepared = match self.prepare(job) {
            Ok(prepared) => prepared,
            Err(Refusal::Unsupported(findings)) => {
                return Ok(ended(Ended::Faulted(diagnostics(findings))));
            }
            Err(Refusal::DoesNotFit(message)) => return Ok(ended(Ended::Refused(message))),
        };
        let mut execution = ended(Ended::Completed);
        let mut executed: Vec<(String, u64)> = Vec::new();
        let mut flops = sim::FlopCounts::default();
        for (entry, launch, registers) in &prepared.launches {
            let program = &prepared.programs[entry];
            let options = self.options(program, launch, *registers);
            let Outcome {
                stop,
                findings,
                counts,
            } = sim::launch(program, &mut prepared.memory, launch, &options);
            let (races, others): (Vec<Finding>, Vec<Finding>) =
                findings.into_iter().partition(|f| f.kind.is_race());
            execution.races.extend(diagnostics(races));
            execution.findings.extend(diagnostics(others));
            flops.add(&counts.flops(program), 1.0);
            for (mnemonic, count) in counts.executed(program) {
                match executed.iter_mut().find(|(name, _)| *name == mnemonic) {
                    Some((_, sum)) => *sum += count,
                    None => executed.push((mnemonic, count)),
                }
            }
            match stop {
                None => {}
                Some(Stop::Fault(finding)) => {
                    execution.ended = Ended::Faulted(diagnostics(vec![finding]));
                    break;
                }
                Some(Stop::Hung(findings)) => {
                    execution.ended = Ended::Hung(diagnostics(findings));
                    break;
                }
            }
        }
        execution.executed = Some(executed);
        execution.flops = Some(
            flops
                .by_unit()
                .map(|(unit, work)| (unit.to_owned(), Flops(work)))
                .collect(),
        );
        if matches!(execution.ended, Ended::Completed) {
            for buffer in job.buffers.iter().filter(|b| b.writable) {
                if let Some(bytes) = prepared.memory.contents(prepared.addresses[&buffer.name]) {
                    execution.outputs.push((buffer.name.clone(), bytes));
                }
            }
        }
        Ok(execution)
    }

    fn time(&self, job: &Job<'_>) -> Result<Timing, RigError> {
        match self.time_sampled(job, false)? {
            Timing::Hung(_) => self.time_sampled(job, true),
            timing @ (Timing::Timed(_) | Timing::Faulted(_) | Timing::Refused(_)) => Ok(timing),
        }
    }
}

impl SimDevice {
    fn time_sampled(&self, job: &Job<'_>, whole: bool) -> Result<Timing, RigError> {
        let mut prepared = match self.prepare(job) {
            Ok(prepared) => prepared,
            Err(Refusal::Unsupported(findings)) => {
                return Ok(Timing::Faulted(diagnostics(findings)));
            }
            Err(Refusal::DoesNotFit(message)) => return Ok(Timing::Refused(message)),
        };
        let limits = self.limits();
        let mut runs: Vec<(Counts, Vec<Touched>)> = Vec::new();
        let mut notes = Vec::new();
        for (entry, launch, registers) in &prepared.launches {
            let program = &prepared.programs[entry];
            let options = self.sampling(program, launch, *registers, whole);
            prepared.memory.forget_touched();
            let outcome = sim::launch(program, &mut prepared.memory, launch, &options);
            match outcome.stop {
                None => {}
                Some(Stop::Fault(finding)) => {
                    return Ok(Timing::Faulted(diagnostics(vec![finding])));
                }
                Some(Stop::Hung(findings)) => return Ok(Timing::Hung(diagnostics(findings))),
            }
            let blocks: u64 = launch.grid.iter().map(|&n| u64::from(n)).product();
            notes.push(format!(
                "{entry}: estimated from {} of {blocks} blocks, {} warp instructions executed",
                outcome.counts.blocks, outcome.counts.instructions
            ));
            runs.push((outcome.counts, prepared.memory.touched()));
        }
        let works: Vec<(Work<'_>, Estimate)> = prepared
            .launches
            .iter()
            .zip(&runs)
            .map(|((entry, launch, registers), (counts, touched))| {
                let work = Work {
                    program: &prepared.programs[entry],
                    launch,
                    registers: *registers,
                    counts,
                    touched,
                };
                let estimate = estimate(&work, &limits, &self.constants);
                (work, estimate)
            })
            .collect();
        let seconds: f64 = works.iter().map(|(_, e)| e.seconds).sum();
        let floor: f64 = works
            .iter()
            .map(|(work, _)| cost::floor(work, &limits))
            .sum();
        let Some(time) = Nanos::new(seconds * 1e9) else {
            return Err(RigError::Device {
                device: format!("simulated {}", self.gpu.name),
                message: format!("the cost model gave {seconds} seconds"),
            });
        };
        Ok(Timing::Timed(Box::new(Timed {
            time: Time::Estimated {
                time,
                gpu: self.gpu.name.clone(),
            },
            diagnosis: diagnosis::diagnose(&works),
            floor: Nanos::new(floor * 1e9),
            unsteady: Vec::new(),
            violations: Vec::new(),
            left: Vec::new(),
            afterwards: None,
            notes,
        })))
    }
}

fn ended(ended: Ended) -> Execution {
    Execution {
        wholes: Vec::new(),
        ended,
        outputs: Vec::new(),
        violations: Vec::new(),
        races: Vec::new(),
        findings: Vec::new(),
        flops: None,
        executed: None,
    }
}

/// What a launch's arguments name.
struct Given<'a> {
    maps: &'a [source::TensorMap],
    buffers: &'a BTreeMap<String, u64>,
    workspaces: &'a BTreeMap<String, u64>,
}

/// A launch's parameter bank, and its tensor maps by their offset there.
type Arguments = (Vec<u8>, Vec<(u32, TensorMap)>);

/// A launch's arguments, laid out as its kernel wants them.
fn parameters(launch: &Launch, program: &Program, given: &Given<'_>) -> Result<Arguments, Refusal> {
    let Given {
        buffers,
        workspaces,
        ..
    } = *given;
    let mut maps = Vec::new();
    let refuse = |message: String| Err(Refusal::DoesNotFit(format!("{}: {message}", launch.entry)));
    let params = program.params();
    if params.len() != launch.args.len() {
        return refuse(format!(
            "the kernel has {} parameters, the launch gives {}",
            params.len(),
            launch.args.len()
        ));
    }
    let mut bank = vec![0; program.param_bytes() as usize];
    for (param, argument) in params.iter().zip(&launch.args) {
        let pointer = |address: Option<&u64>, what: &str| match address {
            Some(address) => Ok(*address),
            None => Err(Refusal::DoesNotFit(format!("{}: no {what}", launch.entry))),
        };
        let bits = match argument {
            Argument::Buffer(name) => pointer(buffers.get(name), &format!("buffer `{name}`"))?,
            Argument::Workspace(name) => {
                pointer(workspaces.get(name), &format!("workspace `{name}`"))?
            }
            Argument::Int(value) => *value as u64,
            Argument::Float(value) if param.bytes == 4 => u64::from((*value as f32).to_bits()),
            Argument::Float(value) => value.to_bits(),
            Argument::TensorMap(name) => {
                if param.bytes != TENSOR_MAP_BYTES {
                    return refuse(format!(
                        "parameter `{}` has {} bytes; a tensor map has {TENSOR_MAP_BYTES}",
                        param.name, param.bytes
                    ));
                }
                maps.push((param.offset, tensor_map(launch, name, given)?));
                continue;
            }
        };
        let wants = match argument {
            Argument::Buffer(_) | Argument::Workspace(_) => 8,
            Argument::Int(_) | Argument::Float(_) | Argument::TensorMap(_) => param.bytes,
        };
        if param.bytes != wants || param.bytes > 8 {
            return refuse(format!(
                "parameter `{}` has {} bytes; {argument:?} does not fit",
                param.name, param.bytes
            ));
        }
        let at = param.offset as usize;
        let length = param.bytes as usize;
        bank[at..at + length].copy_from_slice(&bits.to_le_bytes()[..length]);
    }
    Ok((bank, maps))
}

/// A tensor map as the simulator takes it.
fn tensor_map(launch: &Launch, name: &str, given: &Given<'_>) -> Result<TensorMap, Refusal> {
    let refuse = |message: String| Refusal::DoesNotFit(format!("{}: {message}", launch.entry));
    let map = (given.maps.iter())
        .find(|map| map.name == name)
        .ok_or_else(|| refuse(format!("no tensor map `{name}`")))?;
    let base = (given.buffers.get(&map.base))
        .or_else(|| given.workspaces.get(&map.base))
        .ok_or_else(|| refuse(format!("tensor map `{name}`: no buffer `{}`", map.base)))?;
    let swizzle = Swizzle::of_span(map.swizzle)
        .ok_or_else(|| refuse(format!("tensor map `{name}`: swizzle {}", map.swizzle)))?;
    Ok(TensorMap {
        name: name.to_owned(),
        base: *base,
        dtype: map.dtype,
        dims: map.dims.clone(),
        strides: map.strides.clone(),
        tile: map.tile.clone(),
        swizzle,
        nan_fill: map.nan_fill,
    })
}

fn diagnostics(findings: Vec<Finding>) -> Vec<Diagnostic> {
    findings
        .into_iter()
        .map(|finding| Diagnostic {
            severity: Severity::Error,
            code: finding.kind.code().to_owned(),
            message: finding.message,
            line: finding.line,
            other_line: finding.other_line,
            help: finding.help,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_stand_for_a_grid_stand_for_its_columns_and_rows() {
        let grid = [64, 192, 1];
        let blocks = standing_for(grid);
        let mean = |of: &dyn Fn(u64) -> u64| {
            blocks.iter().map(|block| of(*block) as f64).sum::<f64>() / blocks.len() as f64
        };
        let near = |mean: f64, half: f64| (mean / half - 1.0).abs() <= 1.0 / 8.0;
        assert!(near(mean(&|block| block % 64), 32.0), "{blocks:?}");
        assert!(near(mean(&|block| block / 64), 96.0), "{blocks:?}");
        for grid in [[7, 1, 1], [1 << 20, 1, 1], [2, 9, 9], [5, 2, 2]] {
            let total = grid.iter().map(|&n| u64::from(n)).product();
            let mut blocks = standing_for(grid);
            blocks.sort_unstable();
            blocks.dedup();
            assert_eq!(blocks.len() as u64, SAMPLED_BLOCKS, "{grid:?}");
            assert!(blocks.iter().all(|block| *block < total), "{grid:?}");
        }
    }
}
