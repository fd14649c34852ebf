//! Packs a job into the call a worker runs: regions by index, arguments as bytes of exactly the width
//! that the entry's `.param` list declares. Pure; a plan that does not fit its module is told in words.

use std::collections::HashMap;

use half::{bf16, f16};

use super::ProductJob;
use super::protocol::{Call, Initial, Launch, Map, Param, Planned, Region, Role, Sample};
use crate::device::{Buffer, Job, Sampled};
use crate::ptx::ir::{FunctionKind, Item, Module, Variable};
use crate::source::Argument;

/// What a workspace holds when it is not cleared: NaN in every float type.
const POISON: u8 = 0xff;

/// Packs `job`; `initial` gives the contents of each of the task's buffers, in order, then the indices of
/// each sampled output.
///
/// An error says which launch and argument does not fit, and is the candidate's fault.
pub fn pack(job: &Job<'_>, cubin: &[u8], initial: &[Initial]) -> Result<Call, String> {
    let mut regions = regions(job.buffers, initial);
    let mut index: HashMap<&str, u32> = job
        .buffers
        .iter()
        .zip(0..)
        .map(|(buffer, at)| (buffer.name.as_str(), at))
        .collect();
    let buffers = index.clone();
    let mut workspaces = HashMap::new();
    for workspace in &job.plan.workspaces {
        let at = regions.len() as u32;
        workspaces.insert(workspace.name.as_str(), at);
        index.insert(workspace.name.as_str(), at);
        regions.push(Region {
            name: workspace.name.clone(),
            bytes: workspace.bytes.0,
            role: Role::Workspace {
                zero: workspace.zero,
            },
            initial: Initial::Fill(if workspace.zero { 0 } else { POISON }),
        });
    }
    let mut maps = Vec::new();
    let mut map_index = HashMap::new();
    for map in &job.plan.tensor_maps {
        let region = *index.get(map.base.as_str()).ok_or_else(|| {
            format!(
                "tensor map `{}` describes `{}`, which is neither a parameter nor a workspace",
                map.name, map.base
            )
        })?;
        map_index.insert(map.name.as_str(), maps.len() as u32);
        maps.push(Map {
            region,
            map: map.clone(),
        });
    }
    let mut launches = Vec::new();
    for launch in &job.plan.launches {
        let declared = parameters(job.module, &launch.entry)?;
        if declared.len() != launch.args.len() {
            return Err(format!(
                "`{}` takes {} parameters, its launch passes {}",
                launch.entry,
                declared.len(),
                launch.args.len()
            ));
        }
        let mut params = Vec::with_capacity(declared.len());
        for (argument, param) in launch.args.iter().zip(&declared) {
            let packed = match argument {
                Argument::Buffer(name) => address(&buffers, name, param),
                Argument::Workspace(name) => address(&workspaces, name, param),
                Argument::TensorMap(name) => tensor_map(&map_index, name, param),
                Argument::Int(value) => integer(*value, param),
                Argument::Float(value) => float(*value, param),
            };
            params.push(packed.map_err(|what| {
                format!(
                    "launch of `{}`, parameter `{}`: {what}",
                    launch.entry, param.name
                )
            })?);
        }
        launches.push(Launch {
            entry: launch.entry.clone(),
            grid: launch.grid,
            block: launch.block,
            cluster: launch.cluster,
            smem: u32::try_from(launch.smem.0).map_err(|_| {
                format!(
                    "launch of `{}` asks {} of shared memory",
                    launch.entry, launch.smem
                )
            })?,
            params,
        });
    }
    let samples = samples(job.sampled, job.buffers, initial)?;
    Ok(Call {
        image: cubin.to_vec(),
        regions,
        maps,
        launches,
        product: None,
        samples,
    })
}

/// Packs a library's product; `initial` gives the contents of each buffer, in order, then the indices
/// of each sampled output.
pub fn pack_product(job: &ProductJob<'_>, initial: &[Initial]) -> Result<Call, String> {
    let mut regions = regions(job.buffers, initial);
    let region = |name: &str| {
        let at = job.buffers.iter().position(|buffer| buffer.name == name);
        at.map(|at| at as u32)
            .ok_or_else(|| format!("`{name}` is not among the buffers"))
    };
    let [a, b, c] = job.names;
    let planned = Planned {
        product: job.product,
        algorithm: job.algorithm,
        regions: [region(a)?, region(b)?, region(c)?],
        workspace: (job.algorithm.workspace > 0).then_some(regions.len() as u32),
    };
    if job.algorithm.workspace > 0 {
        regions.push(Region {
            name: "the library's workspace".to_owned(),
            bytes: job.algorithm.workspace,
            role: Role::Workspace { zero: false },
            initial: Initial::Fill(POISON),
        });
    }
    Ok(Call {
        image: Vec::new(),
        regions,
        maps: Vec::new(),
        launches: Vec::new(),
        product: Some(planned),
        samples: samples(job.sampled, job.buffers, initial)?,
    })
}

/// The elements to hand back of sampled outputs; their indices' slots follow those of the buffers.
fn samples(
    sampled: &[Sampled],
    buffers: &[Buffer],
    initial: &[Initial],
) -> Result<Vec<Sample>, String> {
    sampled
        .iter()
        .zip(initial.iter().skip(buffers.len()))
        .map(|(sampled, indices)| {
            let name = sampled.output.as_str();
            let region = buffers.iter().position(|buffer| buffer.name == name);
            let (Some(region), Initial::Slot(indices)) = (region, *indices) else {
                return Err(format!(
                    "elements of `{name}` are wanted, which is no output"
                ));
            };
            Ok(Sample {
                region: region as u32,
                indices,
                count: sampled.elements.len() as u64 / 8,
                width: buffers[region].dtype.size(),
            })
        })
        .collect()
}

/// The task's buffers, in order.
fn regions(buffers: &[Buffer], initial: &[Initial]) -> Vec<Region> {
    buffers
        .iter()
        .zip(initial)
        .map(|(buffer, &initial)| Region {
            name: buffer.name.clone(),
            bytes: buffer.bytes.0,
            role: if buffer.writable {
                Role::Output
            } else {
                Role::Input {
                    shiftable: buffer.dtype.is_float(),
                }
            },
            initial,
        })
        .collect()
}

/// A `.param` of an entry.
struct Declared<'a> {
    name: &'a str,
    /// With its dot.
    ty: &'a str,
    /// Elements of an array; `None` for a scalar.
    elements: Option<u64>,
}

impl Declared<'_> {
    /// Bytes of one element.
    fn width(&self) -> Option<usize> {
        match self.ty {
            ".b8" | ".u8" | ".s8" => Some(1),
            ".b16" | ".u16" | ".s16" | ".f16" | ".bf16" => Some(2),
            ".b32" | ".u32" | ".s32" | ".f32" | ".f16x2" | ".bf16x2" => Some(4),
            ".b64" | ".u64" | ".s64" | ".f64" => Some(8),
            _ => None,
        }
    }

    /// As the PTX writes it.
    fn describe(&self) -> String {
        match self.elements {
            None => self.ty.to_owned(),
            Some(n) => format!("{}[{n}]", self.ty),
        }
    }
}

fn parameters<'a>(module: &'a Module, entry: &str) -> Result<Vec<Declared<'a>>, String> {
    let function = module
        .items
        .iter()
        .find_map(|item| match item {
            Item::Function(f)
                if f.kind == FunctionKind::Entry && f.name == entry && f.body.is_some() =>
            {
                Some(f)
            }
            Item::Function(_) | Item::Directive(_) | Item::Variable(_) => None,
        })
        .ok_or_else(|| format!("the module has no .entry `{entry}`"))?;
    Ok(function.params.iter().flat_map(declared).collect())
}

fn declared(variable: &Variable) -> impl Iterator<Item = Declared<'_>> {
    variable.names.iter().map(|name| Declared {
        name: &name.name,
        ty: &variable.ty,
        elements: if name.dimensions.is_empty() {
            variable.vector.map(u64::from)
        } else {
            Some(name.dimensions.iter().map(|d| d.unwrap_or(0)).product())
        },
    })
}

fn address(index: &HashMap<&str, u32>, name: &str, param: &Declared<'_>) -> Result<Param, String> {
    let region = *index
        .get(name)
        .ok_or_else(|| format!("`{name}` is not among the buffers"))?;
    match (param.ty, param.elements) {
        (".b64" | ".u64" | ".s64", None) => Ok(Param::Address(region)),
        _ => Err(format!(
            "the address of `{name}` needs a .u64, not {}",
            param.describe()
        )),
    }
}

fn tensor_map(
    index: &HashMap<&str, u32>,
    name: &str,
    param: &Declared<'_>,
) -> Result<Param, String> {
    let map = *index
        .get(name)
        .ok_or_else(|| format!("no tensor map `{name}` is declared"))?;
    match (param.width(), param.elements) {
        (Some(width), Some(n)) if width as u64 * n == 128 => Ok(Param::Map(map)),
        _ => Err(format!(
            "tensor map `{name}` needs a .align 64 .b8[128], not {}",
            param.describe()
        )),
    }
}

fn integer(value: i64, param: &Declared<'_>) -> Result<Param, String> {
    let misfit = || format!("{value} does not fit {}", param.describe());
    if param.elements.is_some() {
        return Err(misfit());
    }
    let (low, high) = match param.ty {
        // every integer that small is a float32
        ".f32" | ".f64" if value.unsigned_abs() <= 1 << f32::MANTISSA_DIGITS => {
            return float(value as f64, param);
        }
        ".u8" => (0, i64::from(u8::MAX)),
        ".s8" => (i64::from(i8::MIN), i64::from(i8::MAX)),
        ".b8" => (i64::from(i8::MIN), i64::from(u8::MAX)),
        ".u16" => (0, i64::from(u16::MAX)),
        ".s16" => (i64::from(i16::MIN), i64::from(i16::MAX)),
        ".b16" => (i64::from(i16::MIN), i64::from(u16::MAX)),
        ".u32" => (0, i64::from(u32::MAX)),
        ".s32" => (i64::from(i32::MIN), i64::from(i32::MAX)),
        ".b32" => (i64::from(i32::MIN), i64::from(u32::MAX)),
        ".u64" => (0, i64::MAX),
        ".s64" | ".b64" => (i64::MIN, i64::MAX),
        _ => return Err(misfit()),
    };
    if !(low..=high).contains(&value) {
        return Err(misfit());
    }
    let width = param.width().ok_or_else(misfit)?;
    Ok(Param::Bytes(value.to_le_bytes()[..width].to_vec()))
}

fn float(value: f64, param: &Declared<'_>) -> Result<Param, String> {
    if param.elements.is_some() {
        return Err(format!("{value} does not fit {}", param.describe()));
    }
    let bytes = match param.ty {
        ".f64" | ".b64" => value.to_le_bytes().to_vec(),
        ".f32" | ".b32" => (value as f32).to_le_bytes().to_vec(),
        ".f16" | ".b16" => f16::from_f64(value).to_le_bytes().to_vec(),
        ".bf16" => bf16::from_f64(value).to_le_bytes().to_vec(),
        _ => return Err(format!("{value} does not fit {}", param.describe())),
    };
    Ok(Param::Bytes(bytes))
}
