//! What the templates see of a candidate and its task, every formula in the loader's language. It holds code
//! as text, never numbers that a template would have to work out.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::super::formula::Language;
use super::LoaderError;
use super::identifiers::identifiers;
use super::lower::Lower;
use crate::expr::Expr;
use crate::source::Candidate;
use crate::task::{Purpose, Role, Task};

/// The one fact of the device that the judge lets launch formulas name.
const SM_COUNT: &str = "sm_count";

/// What the templates of one language see: its own spelling of every formula.
#[derive(Serialize)]
pub(super) struct View {
    pub task: String,
    pub title: String,
    /// Buffers and scalars that the caller passes, in the order of the task's parameters.
    pub params: Vec<Param>,
    /// The task's dimensions.
    pub dims: Vec<String>,
    /// What formulas may name besides `sm_count`: dimensions and integer scalars.
    pub numbers: Vec<String>,
    /// The entries that are launched, each once.
    pub entries: Vec<String>,
    /// Whether any launch asks for clusters.
    pub clustered: bool,
    pub workspaces: Vec<Workspace>,
    pub maps: Vec<TensorMap>,
    pub launches: Vec<Launch>,
    /// The most integers that one launch passes, at least 1.
    pub most_scalars: usize,
    /// A small problem for an example: a value for each of `dims`.
    pub example: Vec<i64>,
}

#[derive(Serialize)]
pub(super) struct Param {
    pub name: String,
    /// A device pointer, an integer or a float.
    pub kind: ParamKind,
    /// For people: `input f32[m, k]`.
    pub about: String,
    /// Size at the example's dimensions; 0 for scalars.
    pub example_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ParamKind {
    Pointer,
    Integer,
    Float,
}

#[derive(Serialize)]
pub(super) struct Workspace {
    pub name: String,
    pub elements: String,
    pub element_bytes: u64,
    pub zero: bool,
}

#[derive(Serialize)]
pub(super) struct TensorMap {
    pub name: String,
    pub base: Address,
    pub rank: usize,
    pub dims: Vec<String>,
    pub strides: Vec<String>,
    pub tile: Vec<String>,
    pub dtype: Code,
    pub swizzle: Code,
    pub promotion: Code,
    pub fill: Code,
}

/// A value of one of the driver's enums.
#[derive(Serialize)]
pub(super) struct Code {
    pub number: u32,
    /// Without what all of the enum begin with.
    pub name: &'static str,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Address {
    Buffer { name: String },
    Workspace { index: usize },
}

#[derive(Serialize)]
pub(super) struct Launch {
    pub entry: String,
    /// Index in `entries`.
    pub function: usize,
    pub grid: [String; 3],
    pub block: [String; 3],
    pub cluster: [String; 3],
    /// Whether the source asks for clusters.
    pub clustered: bool,
    pub smem: String,
    pub args: Vec<Argument>,
    /// The formulas of the integer arguments, in order.
    pub scalars: Vec<Scalar>,
}

/// An integer argument's formula and the least and largest value of its `.param`.
#[derive(Serialize)]
pub(super) struct Scalar {
    pub value: String,
    pub low: String,
    pub high: String,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Argument {
    Buffer {
        name: String,
    },
    Workspace {
        index: usize,
    },
    Map {
        index: usize,
    },
    /// The launch's `scalars[index]`, as this type.
    Integer {
        index: usize,
        ty: &'static str,
    },
    /// A parameter's name or a literal, as this type.
    Float {
        value: String,
        ty: &'static str,
    },
}

impl View {
    pub(super) fn new(
        candidate: &Candidate,
        task: &Task,
        language: Language,
    ) -> Result<Self, LoaderError> {
        let fail = |message: String| LoaderError::Task {
            task: task.name.clone(),
            message,
        };
        let module = candidate
            .module
            .as_ref()
            .map_err(|error| fail(format!("the kernel does not parse: {error}")))?;
        let size = task
            .sizes_for(Purpose::Smoke)
            .chain(&task.sizes)
            .next()
            .ok_or_else(|| fail("it declares no size".to_owned()))?;
        let dims: Vec<&str> = size.dims.keys().map(String::as_str).collect();
        let mut passed = Vec::new();
        for param in &task.params {
            if !dims.contains(&param.name.as_str()) {
                passed.push(param);
            } else if param.value.as_deref() != Some(param.name.as_str()) {
                return Err(fail(format!(
                    "`{}` names a dimension and a scalar of another value",
                    param.name
                )));
            }
        }
        if task.params.iter().any(|param| param.name == SM_COUNT) || dims.contains(&SM_COUNT) {
            return Err(fail(format!(
                "`{SM_COUNT}` is a fact of the device; a parameter or dimension needs another name"
            )));
        }
        let given = dims.iter().copied().chain([SM_COUNT]);
        let names = identifiers(
            given.chain(passed.iter().map(|param| param.name.as_str())),
            language,
        );
        let params = passed
            .iter()
            .map(|param| {
                let kind = match param.role {
                    Role::Input | Role::Output => ParamKind::Pointer,
                    Role::Scalar if param.dtype.is_float() => ParamKind::Float,
                    Role::Scalar => ParamKind::Integer,
                };
                let mut example_bytes = 0;
                if kind == ParamKind::Pointer {
                    example_bytes = param.dtype.size();
                    for extent in &param.shape {
                        let extent = Expr::new(extent)
                            .and_then(|extent| extent.int(&size.dims))
                            .map_err(|error| fail(error.to_string()))?;
                        example_bytes = u64::try_from(extent)
                            .ok()
                            .and_then(|extent| example_bytes.checked_mul(extent))
                            .ok_or_else(|| fail(format!("no size of `{}`", param.name)))?;
                    }
                }
                let dtype = param.dtype.word();
                Ok(Param {
                    name: names[&param.name].clone(),
                    kind,
                    about: match param.role {
                        Role::Input => format!("input, {dtype}[{}]", param.shape.join(", ")),
                        Role::Output => format!("output, {dtype}[{}]", param.shape.join(", ")),
                        Role::Scalar => format!(
                            "scalar, {dtype}; judged as {}",
                            param.value.as_deref().unwrap_or_default()
                        ),
                    },
                    example_bytes,
                })
            })
            .collect::<Result<Vec<Param>, LoaderError>>()?;
        let formulas = candidate.formulas();
        let integers: Vec<&str> = passed
            .iter()
            .filter(|param| param.role == Role::Scalar && !param.dtype.is_float())
            .map(|param| param.name.as_str())
            .collect();
        let numbers = dims.iter().chain(&integers).copied();
        let entries: BTreeSet<&str> = formulas.launches.iter().map(|l| l.entry.as_str()).collect();
        let entries: Vec<&str> = entries.into_iter().collect();
        let lower = Lower {
            language,
            formulas: &formulas,
            module,
            entries: &entries,
            pointers: named(&passed, |param| param.role != Role::Scalar, &names),
            floats: named(
                &passed,
                |param| param.role == Role::Scalar && param.dtype.is_float(),
                &names,
            ),
            numbers: numbers
                .clone()
                .chain([SM_COUNT])
                .map(|name| (name.to_owned(), names[name].clone()))
                .collect(),
        };
        let launches = formulas
            .launches
            .iter()
            .map(|launch| lower.launch(launch))
            .collect::<Result<Vec<Launch>, _>>()?;
        let most_scalars = launches.iter().map(|launch| launch.scalars.len()).max();
        Ok(Self {
            task: identifier(&task.name),
            title: task.title.clone(),
            params,
            dims: dims.iter().map(|name| names[*name].clone()).collect(),
            numbers: numbers.map(|name| names[name].clone()).collect(),
            entries: entries.iter().map(|&entry| entry.to_owned()).collect(),
            clustered: launches.iter().any(|launch| launch.clustered),
            workspaces: formulas
                .workspaces
                .iter()
                .map(|workspace| {
                    Ok(Workspace {
                        name: workspace.name.clone(),
                        elements: lower.formula(&workspace.elements)?,
                        element_bytes: workspace.dtype.size(),
                        zero: workspace.zero,
                    })
                })
                .collect::<Result<_, LoaderError>>()?,
            maps: formulas
                .tensor_maps
                .iter()
                .map(|map| lower.tensor_map(map))
                .collect::<Result<_, _>>()?,
            most_scalars: most_scalars.unwrap_or(0).max(1),
            launches,
            example: size.dims.values().copied().collect(),
        })
    }
}

fn named(
    params: &[&crate::task::Param],
    wanted: impl Fn(&crate::task::Param) -> bool,
    names: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    params
        .iter()
        .filter(|param| wanted(param))
        .map(|param| (param.name.clone(), names[&param.name].clone()))
        .collect()
}

/// A task's name as a part of names in C++ and Rust: `gemm_bf16@M=16` as `gemm_bf16_M_16`.
fn identifier(task: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    task.chars().map(plain).collect()
}
