//! What to launch, with every number known: the host side of a candidate at one problem size.
//! It is made from the source's header alone; nothing a kernel's text says can change it.

use serde::{Deserialize, Serialize};

use crate::ptx::BoundMap;
use crate::units::Bytes;

/// The launches of a candidate at one problem size, in order, and the memory they share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaunchPlan {
    /// In order; timed together as one unit.
    pub launches: Vec<Launch>,
    /// Scratch buffers.
    pub workspaces: Vec<Workspace>,
    /// Tensor maps passed by value.
    pub tensor_maps: Vec<TensorMap>,
}

/// One kernel launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// The `.entry`'s name.
    pub entry: String,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory.
    pub smem: Bytes,
    /// Blocks per cluster in x, y, z; all 1 for none.
    pub cluster: [u32; 3],
    /// In the order of the `.param` list.
    pub args: Vec<Argument>,
}

/// A kernel argument.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Argument {
    /// The device pointer of the task's parameter of this name.
    Buffer(String),
    /// The device pointer of a workspace.
    Workspace(String),
    /// A 128-byte tensor map by value.
    TensorMap(String),
    /// An integer scalar; its width is that of the entry's `.param`.
    Int(i64),
    /// A floating-point scalar; its width is that of the entry's `.param`.
    Float(f64),
}

/// A scratch buffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workspace {
    /// As the header names it.
    pub name: String,
    /// Size.
    pub bytes: Bytes,
    /// `true`: cleared before each call, inside the timed region. `false`: arrives poisoned.
    pub zero: bool,
}

/// What `cuTensorMapEncodeTiled` is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TensorMap {
    /// As the header names it.
    pub name: String,
    /// The parameter or workspace it describes.
    pub base: String,
    /// Element type.
    pub dtype: DType,
    /// Elements, innermost first.
    pub dims: Vec<u64>,
    /// Byte strides of dims 1…
    pub strides: Vec<u64>,
    /// Elements, innermost first.
    pub tile: Vec<u32>,
    /// Shared-memory swizzle: 0 (none), 32, 64 or 128 bytes.
    pub swizzle: u32,
    /// L2 promotion: 0 (none), 64, 128 or 256 bytes.
    pub promotion: u32,
    /// Out-of-range reads give NaN instead of zero.
    pub nan_fill: bool,
}

impl LaunchPlan {
    /// The tensor maps as kernels get them, for the lints that need them beside the text.
    pub fn bound_maps(&self) -> Vec<BoundMap> {
        let mut bound = Vec::new();
        for launch in &self.launches {
            for (param, argument) in launch.args.iter().enumerate() {
                let Argument::TensorMap(name) = argument else {
                    continue;
                };
                let map = self.tensor_maps.iter().find(|map| map.name == *name);
                bound.extend(map.map(|map| BoundMap {
                    entry: launch.entry.clone(),
                    param,
                    swizzle: map.swizzle,
                    bytes: map.tile.iter().map(|n| u64::from(*n)).product::<u64>()
                        * map.dtype.size(),
                }));
            }
        }
        bound
    }
}

/// An element type of a task's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DType {
    /// 64-bit IEEE.
    F64,
    /// 32-bit IEEE.
    F32,
    /// 16-bit IEEE.
    F16,
    /// 16-bit brain float.
    Bf16,
    /// Signed 32-bit.
    I32,
    /// Unsigned 32-bit.
    U32,
    /// Signed 64-bit.
    I64,
    /// Unsigned 64-bit.
    U64,
    /// Unsigned 8-bit.
    U8,
}

impl DType {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::F64,
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::U8,
    ];

    /// As sources and tasks write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::U8 => "u8",
        }
    }

    /// Whether it is a floating-point type; the others are integers.
    pub fn is_float(self) -> bool {
        match self {
            Self::F64 | Self::F32 | Self::F16 | Self::Bf16 => true,
            Self::I32 | Self::U32 | Self::I64 | Self::U64 | Self::U8 => false,
        }
    }

    /// Bytes per element.
    pub fn size(self) -> u64 {
        match self {
            Self::F64 | Self::I64 | Self::U64 => 8,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::U8 => 1,
        }
    }
}
