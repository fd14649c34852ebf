//! A **task** says what to compute and what counts as right: `tasks/<name>/task.toml` and `seed.ptx`.
//! It never says how. `catalogue` reads files, `scaffold` writes them and `reference::command` runs a
//! process; everything else here is pure.
//!
//! A task is a folder:
//!
//! ```text
//! tasks/<name>/task.toml        parameters, sizes, inputs, tolerance, cost
//! tasks/<name>/seed.ptx         the honest, simple kernel every search starts from
//! tasks/<name>/mistakes/*.ptx   kernels that must be caught, each saying how (see `mistakes`)
//! tasks/<name>/*                what a reference or a baseline needs
//! search_spaces/<name>/*.ptx    sources worth starting from besides the seed
//! tasks/suites.toml             which tasks are searched and totalled together
//! ```

pub mod adversarial;
mod baseline;
mod catalogue;
pub mod compare;
mod element;
mod error;
mod file;
pub mod inputs;
pub mod mistakes;
mod problem;
pub mod proof;
pub mod reference;
pub mod scaffold;
mod suite;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::source::DType;
use crate::units::{Digest, SmArch};

pub use baseline::{Baseline, Extents, Factor, Multiplication, Operation};
pub use catalogue::Catalogue;
pub use error::TaskError;
pub use mistakes::Mistake;
pub use problem::{Buffer, GUARD_BYTE, GUARD_ZONE, Poison, Problem, Work};
pub use suite::Suite;

/// A loaded and checked task.
#[derive(Clone, Debug)]
pub struct Task {
    /// Folder name: `reduce_sum`.
    pub name: String,
    /// One line for people and prompts.
    pub title: String,
    /// Class of the task, for suite totals only.
    pub level: Level,
    /// What the arithmetic may do.
    pub math: MathMode,
    /// In the order of the reference's signature; launches pick from them by name.
    pub params: Vec<Param>,
    /// Declared problem sizes.
    pub sizes: Vec<Size>,
    /// Input distributions to verify with; the first is the one that is timed.
    pub cases: Vec<InputCase>,
    /// What computes the expected outputs.
    pub reference: Reference,
    /// How far an output may be from them, per output parameter.
    pub tolerances: BTreeMap<String, Tolerance>,
    /// Outputs that may differ between repeats, within tolerance (atomics).
    pub nondeterministic: Vec<String>,
    /// Work, as expressions over the size's names.
    pub cost: Cost,
    /// Instructions that must do the work, by architecture; absent or empty: none required.
    pub targets: BTreeMap<SmArch, Vec<TargetInstruction>>,
    /// What PTX a candidate may contain.
    pub policy: PtxPolicy,
    /// What to be faster than.
    pub baselines: Vec<Baseline>,
    /// The honest, simple kernel every search starts from: a source text.
    pub seed: Arc<str>,
    /// Sources worth starting from besides the seed: `search_spaces/<task>/<name>.ptx`.
    pub spaces: Vec<SpaceFile>,
    /// Other files of the folder, by name: what references and baselines name.
    pub files: BTreeMap<String, Arc<[u8]>>,
    /// Kernels that must be caught, and how.
    pub mistakes: Vec<Mistake>,
    /// Where it was read from.
    pub origin: Origin,
    /// Hash over everything that decides a verdict: `task.toml`, seed, other files. Spaces and mistakes are no
    /// part of it.
    pub digest: Digest,
}

impl Task {
    /// The sizes declared for `purpose`, in order.
    pub fn sizes_for(&self, purpose: Purpose) -> impl Iterator<Item = &Size> {
        self.sizes
            .iter()
            .filter(move |size| size.purpose == purpose)
    }

    /// The parameter of this name.
    pub fn param(&self, name: &str) -> Option<&Param> {
        self.params.iter().find(|param| param.name == name)
    }

    /// The outputs, in order.
    pub fn outputs(&self) -> impl Iterator<Item = &Param> {
        self.params
            .iter()
            .filter(|param| param.role == Role::Output)
    }
}

/// Where a task was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The binary itself.
    Embedded,
    /// This folder.
    Folder(PathBuf),
}

/// A file under `search_spaces/<task>/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceFile {
    /// File name without `.ptx`.
    pub name: String,
    /// Its text.
    pub text: Arc<str>,
}

/// PTXBench-style class of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    /// Logic.
    L1,
    /// Resources and scheduling.
    L2,
    /// Instruction choice.
    L3,
}

/// What the arithmetic may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MathMode {
    /// The declared precision throughout: no tf32, no approximate functions, denormals kept.
    Ieee,
    /// Approximate functions and flushed denormals are fine within the tolerance.
    Fast,
}

/// A parameter of the operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Param {
    /// As launches and references name it.
    pub name: String,
    /// Input, output or scalar.
    pub role: Role,
    /// Element type.
    pub dtype: DType,
    /// Dimensions, outermost first, as expressions over the size's names. Empty for scalars.
    #[serde(default)]
    pub shape: Vec<String>,
    /// A scalar's value, as an expression over the size's names.
    #[serde(default)]
    pub value: Option<String>,
}

/// What a parameter is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Read only: it must be unchanged afterwards.
    Input,
    /// Written in full: it arrives poisoned.
    Output,
    /// A number passed by value.
    Scalar,
}

/// A declared problem size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// What it is for.
    pub purpose: Purpose,
    /// `{"n": 65536}`.
    pub dims: BTreeMap<String, i64>,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.purpose.word())?;
        for (at, (name, value)) in self.dims.iter().enumerate() {
            write!(f, "{}{name}={value}", if at == 0 { " " } else { ", " })?;
        }
        Ok(())
    }
}

/// What a size is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Small enough for the simulator; correctness.
    Smoke,
    /// Awkward: one element, off a tile, a prime; correctness only.
    Edge,
    /// The size that is timed. The first one is the headline.
    Bench,
}

impl Purpose {
    /// As task files write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Smoke => "smoke",
            Self::Edge => "edge",
            Self::Bench => "bench",
        }
    }
}

/// How inputs are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputCase {
    /// N(0, 1).
    Normal,
    /// N(0, 1) plus N(0, 100) with probability 0.001.
    Spiky,
    /// Small integers such that every partial sum is exact: the answer is bit-exact.
    Integers,
    /// N(0, 1) scaled by 1e4.
    Large,
    /// N(0, 1) scaled by 1e-4.
    Small,
    /// NaN, infinities, −0 and subnormals strewn over N(0, 1).
    Special,
}

impl InputCase {
    /// As task files write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Spiky => "spiky",
            Self::Integers => "integers",
            Self::Large => "large",
            Self::Small => "small",
            Self::Special => "special",
        }
    }
}

/// What computes the expected outputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reference {
    /// A float64 reference of this crate.
    Builtin(Builtin),
    /// A trusted source (PTX with `//@` launches) in the task's folder: its file name.
    Kernel(String),
    /// An external command in the task's folder: it reads `<param>.npy` and `sizes.json` in its working
    /// directory and writes `<output>.npy` (float64).
    Command(Vec<String>),
}

/// A float64 reference of this crate. It takes the task's inputs and outputs in the order declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Builtin {
    /// `x[n]` → `out[1]`: the sum.
    ReduceSum,
    /// `x[rows, cols]` → `out[cols, rows]`, bit for bit.
    Transpose,
    /// `a[m, k]`, `b[k, n]` → `c[m, n]`: the product, all row-major.
    Sgemm,
    /// `a[m, k]`, `b[n, k]` → `c[m, n]`: a times the transpose of b, all row-major.
    GemmNt,
    /// `x[n]` → `out[n]`: x ÷ (1 + e^−x).
    Silu,
    /// `x[n]` → `out[n]`: x/2 · (1 + erf(x/√2)).
    Gelu,
    /// `x[rows, cols]` → `out[rows, cols]`: e^(x − m) ÷ Σ e^(x − m) along each row of which m is the largest.
    Softmax,
    /// `x[rows, cols]`, `w[cols]` → `out[rows, cols]`: x · w ÷ √(mean of x² along the row + 10⁻⁵).
    RmsNorm,
    /// `x[positions, heads, d]`, `cos[positions, d/2]`, `sin[positions, d/2]` → `out[positions, heads, d]`: the pair
    /// of elements i and i + d/2 is turned by the angle of its position.
    Rope,
    /// `x[rows, cols]` → `out[rows, cols]`: x/2 + ⅛ of each of its four neighbours; beyond the edge they are 0.
    #[serde(rename = "stencil_5pt")]
    Stencil5pt,
    /// `x[batch, n, 2]` → `out[batch, n, 2]`: the forward discrete Fourier transform of n complex numbers, a
    /// power of two.
    Fft,
    /// `x[batch, height, width, c]`, `w[k, 3, 3, c]` → `out[batch, height, width, k]`: the cross-correlation; beyond
    /// the edge there are zeros.
    #[serde(rename = "conv2d_3x3")]
    Conv2d3x3,
    /// `q[b, h, s, d]`, `k` and `v` alike → `o[b, h, s, d]`: softmax(q·kᵀ/√d)·v for each head, and
    /// `lse[b, h, s]`: the natural logarithm of the sum that each softmax divides by.
    AttentionFwd,
    /// The same, where a query sees the keys up to its own position only.
    AttentionFwdCausal,
    /// `q[b, h, s, d]`, `k`, `v`, `o` and `dout` alike, `lse[b, h, s]` → `dq`, `dk`, `dv`, shaped as q. With
    /// p = e^(q·kᵀ/√d − lse) and t = p ∘ (dout·vᵀ − the sum along d of dout ∘ o): dq = t·k/√d, dk = tᵀ·q/√d,
    /// dv = pᵀ·dout. The gradient of attention where o and lse are its own.
    AttentionBwd,
    /// The same, where a query sees the keys up to its own position only.
    AttentionBwdCausal,
}

/// How far an output may be from its reference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Tolerance {
    /// Bit for bit (moves, integers).
    Exact,
    /// A sum or dot product of `length` terms:
    /// |ŷ − y| ≤ 4·u_acc·√length·max(|y|, √Σ a²b²) + u_out·|y|; where one factor of each product may be
    /// rounded first, 3·u_rounded·√Σ a²b² more: seven standard deviations of what that does.
    Dot {
        /// An expression over the size's names.
        length: String,
        /// Precision of the accumulator.
        accumulate: DType,
        /// Precision that one factor of each product may be rounded to before it is multiplied.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rounded: Option<DType>,
    },
    /// |ŷ − y| ≤ ulps·u_out·|y| + absolute.
    Pointwise {
        /// Units in the last place of the output type.
        ulps: f64,
        /// Absolute slack.
        absolute: f64,
    },
    /// ‖ŷ − y‖ ≤ relative·‖y‖ over the whole output.
    Norm {
        /// Relative error of norms.
        relative: f64,
    },
}

/// Work of one call, as expressions over the size's names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Nominal floating-point operations.
    pub flops: String,
    /// A lower bound for any honest algorithm.
    pub flops_min: String,
    /// Bytes that must cross device memory: each input read once, each output written once.
    pub bytes: String,
}

/// An instruction that must carry the work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetInstruction {
    /// Mnemonic prefix: `wgmma.mma_async`, `cp.async.bulk.tensor`.
    pub mnemonic: String,
    /// Least executions, as an expression over the size's names.
    pub at_least: Option<String>,
}

/// What PTX a candidate may contain. Prefixes of mnemonics; `deny` beats `allow`; empty `allow` allows all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PtxPolicy {
    /// Allowed mnemonic prefixes.
    pub allow: Vec<String>,
    /// Denied mnemonic prefixes.
    pub deny: Vec<String>,
    /// Why, told to the proposer.
    pub reason: String,
}
