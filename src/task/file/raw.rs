//! The form of `task.toml` as written, each value with its place; nothing here is checked but the form.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::super::{Builtin, InputCase, Level, MathMode, Role};
use crate::source::DType;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    pub title: Spanned<String>,
    pub level: Level,
    pub math: MathMode,
    pub cases: Spanned<Vec<Spanned<InputCase>>>,
    #[serde(default)]
    pub nondeterministic: Vec<Spanned<String>>,
    pub param: Spanned<Vec<RawParam>>,
    pub sizes: Spanned<RawSizes>,
    pub reference: Spanned<RawReference>,
    #[serde(default)]
    pub tolerance: BTreeMap<Spanned<String>, Spanned<RawTolerance>>,
    pub cost: RawCost,
    #[serde(default)]
    pub targets: BTreeMap<Spanned<String>, Vec<RawTarget>>,
    #[serde(default)]
    pub policy: RawPolicy,
    #[serde(default)]
    pub baseline: Vec<RawBaseline>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawParam {
    pub name: Spanned<String>,
    pub role: Role,
    pub dtype: DType,
    pub shape: Option<Vec<Spanned<String>>>,
    pub value: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSizes {
    pub smoke: Vec<Spanned<BTreeMap<String, Spanned<i64>>>>,
    #[serde(default)]
    pub edge: Vec<Spanned<BTreeMap<String, Spanned<i64>>>>,
    pub bench: Vec<Spanned<BTreeMap<String, Spanned<i64>>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawReference {
    pub builtin: Option<Builtin>,
    pub kernel: Option<Spanned<String>>,
    pub command: Option<Spanned<Vec<String>>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Exact,
    Dot,
    Pointwise,
    Norm,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTolerance {
    pub kind: Kind,
    pub length: Option<Spanned<String>>,
    pub accumulate: Option<Spanned<DType>>,
    pub rounded: Option<Spanned<DType>>,
    pub ulps: Option<Spanned<f64>>,
    pub absolute: Option<Spanned<f64>>,
    pub relative: Option<Spanned<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCost {
    pub flops: Spanned<String>,
    pub flops_min: Spanned<String>,
    pub bytes: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTarget {
    pub mnemonic: Spanned<String>,
    pub at_least: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawPolicy {
    pub allow: Vec<Spanned<String>>,
    pub deny: Vec<Spanned<String>>,
    pub reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawBaseline {
    pub name: Spanned<String>,
    pub provider: Provider,
    pub operation: Spanned<String>,
}

/// Who can run a baseline.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Provider {
    Cublaslt,
    Torch,
    Cudnn,
    Kernel,
    Cuda,
}
