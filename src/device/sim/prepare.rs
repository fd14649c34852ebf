//! A job as the simulator takes it: decoded kernels, memory and parameters; or why it cannot run there.

use std::collections::BTreeMap;

use crate::sim::cost::resident;
use crate::sim::{self, Finding, Initial, Memory, Program, Swizzle, TensorMap};
use crate::source::{self, Argument, Launch};

use super::super::{Contents, Job};
use super::SimDevice;

/// Unwritten bytes of workspaces: a NaN in every float format.
const POISON: u8 = 0xff;
/// Bytes of a tensor map among a kernel's parameters.
const TENSOR_MAP_BYTES: u32 = 128;
/// Blocks of a cluster.
const LARGEST_CLUSTER: u32 = 8;

pub(super) struct Prepared {
    pub programs: BTreeMap<String, Program>,
    pub memory: Memory,
    pub addresses: BTreeMap<String, u64>,
    pub launches: Vec<(String, sim::Launch, Option<u32>)>,
}

pub(super) enum Refusal {
    Unsupported(Vec<Finding>),
    DoesNotFit(String),
}

impl SimDevice {
    pub(super) fn prepare(&self, job: &Job<'_>) -> Result<Prepared, Refusal> {
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
