//! The host side of a candidate as text: launches, workspaces and tensor maps with knobs and derived values
//! in place, over the task's sizes and the device's facts alone. What `plan` evaluates, for readers who
//! evaluate it elsewhere; a candidate's id is taken from it.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use super::plan::DType;

/// A candidate's host side for every problem size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Formulas {
    /// Scratch buffers, in the order declared.
    pub workspaces: Vec<WorkspaceFormula>,
    /// Tensor maps, in the order declared.
    pub tensor_maps: Vec<TensorMapFormula>,
    /// In order.
    pub launches: Vec<LaunchFormula>,
}

/// See [`super::Workspace`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceFormula {
    /// As the header names it.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// How many elements.
    pub elements: String,
    /// Cleared before each call.
    pub zero: bool,
}

/// See [`super::TensorMap`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorMapFormula {
    /// As the header names it.
    pub name: String,
    /// The parameter or workspace it describes.
    pub base: String,
    /// Element type.
    pub dtype: DType,
    /// Elements, innermost first.
    pub dims: Vec<String>,
    /// Byte strides of dims 1…
    pub strides: Vec<String>,
    /// Elements, innermost first.
    pub tile: Vec<String>,
    /// Bytes; absent for none.
    pub swizzle: Option<String>,
    /// Bytes; absent for none.
    pub promotion: Option<String>,
    /// Out-of-range reads give NaN instead of zero.
    pub nan_fill: bool,
}

/// See [`super::Launch`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchFormula {
    /// The `.entry`'s name.
    pub entry: String,
    /// Blocks in x, y, z; those left out are 1.
    pub grid: Vec<String>,
    /// Threads in x, y, z; those left out are 1.
    pub block: Vec<String>,
    /// Bytes of dynamic shared memory; absent for none.
    pub smem: Option<String>,
    /// Blocks per cluster in x, y, z; empty for none.
    pub cluster: Vec<String>,
    /// In the order of the `.param` list: a buffer, a workspace, a tensor map, or a number's formula.
    pub args: Vec<String>,
}

/// One declaration a line, its fields apart by tabs.
impl fmt::Display for Formulas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for workspace in &self.workspaces {
            writeln!(
                f,
                "workspace {} {:?} {}\t{}",
                workspace.name, workspace.dtype, workspace.zero, workspace.elements
            )?;
        }
        for map in &self.tensor_maps {
            writeln!(
                f,
                "tensormap {} {} {:?} {}",
                map.name, map.base, map.dtype, map.nan_fill
            )?;
            field(f, "dims", &map.dims)?;
            field(f, "strides", &map.strides)?;
            field(f, "box", &map.tile)?;
            field(f, "swizzle", map.swizzle.as_slice())?;
            field(f, "promotion", map.promotion.as_slice())?;
        }
        for launch in &self.launches {
            writeln!(f, "launch {}", launch.entry)?;
            field(f, "grid", &launch.grid)?;
            field(f, "block", &launch.block)?;
            field(f, "smem", launch.smem.as_slice())?;
            field(f, "cluster", &launch.cluster)?;
            field(f, "args", &launch.args)?;
        }
        Ok(())
    }
}

fn field(f: &mut fmt::Formatter<'_>, name: &str, values: &[String]) -> fmt::Result {
    f.write_str(name)?;
    for value in values {
        f.write_char('\t')?;
        f.write_str(value)?;
    }
    f.write_char('\n')
}
