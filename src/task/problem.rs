//! A **problem** is a task at one size, with one input case and one seed: every number is known.
//! Arithmetic is checked; nothing is allocated until bytes are asked for.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::error::TaskError;
use super::file::LARGEST_PROBLEM;
use super::inputs::{Fill, Stream, SumLength, random_bits};
use super::{InputCase, Param, Role, Size, Task, Tolerance};
use crate::expr::{Expr, ExprError, Value};
use crate::source::DType;
use crate::units::{Bytes, Flops};

/// A task at one size, with one input case and one seed.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The task.
    pub task: Arc<Task>,
    /// The size.
    pub size: Size,
    /// The input case.
    pub case: InputCase,
    /// Decides every input.
    pub seed: u64,
    /// The pointer parameters, in the order declared.
    pub buffers: Vec<Buffer>,
    /// The scalar parameters, in the order declared.
    pub scalars: Vec<(String, Value)>,
    /// What must be done at least.
    pub work: Work,
}

/// A pointer parameter at the problem's size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The parameter's name.
    pub name: String,
    /// Input or output.
    pub role: Role,
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: Vec<u64>,
    /// Their product.
    pub elements: u64,
    /// Size.
    pub bytes: Bytes,
}

/// The task's cost at the problem's size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Nominal.
    pub flops: Flops,
    /// Least for any honest algorithm.
    pub flops_min: Flops,
    /// Compulsory traffic.
    pub bytes: Bytes,
}

/// What an output holds before a launch: never what a kernel would write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poison {
    /// All bits set: a NaN in every floating-point type, −1 or the largest number in integer types.
    Nan,
    /// Another pattern, large but finite: what is left of one run is not taken for the other's result.
    Finite,
}

impl Poison {
    /// The byte that fills the buffer.
    pub fn byte(self) -> u8 {
        match self {
            Self::Nan => 0xff,
            Self::Finite => 0x7b,
        }
    }
}

/// Bytes on either side of every buffer that a kernel must leave alone.
pub const GUARD_ZONE: Bytes = Bytes(256);
/// What fills them.
pub const GUARD_BYTE: u8 = 0xa5;

/// Up to here, special values are placed: sizes take NaN and the infinities in turn.
const FEW_OUTPUTS: u64 = 8;
/// Rows from which each kind of special value has one of its own.
const SPECIAL_ROWS: u64 = 3;

impl Problem {
    /// Evaluates every expression of the task at `size`.
    pub fn new(
        task: &Arc<Task>,
        size: &Size,
        case: InputCase,
        seed: u64,
    ) -> Result<Self, TaskError> {
        let mut buffers = Vec::new();
        let mut scalars = Vec::new();
        for param in &task.params {
            match param.role {
                Role::Input | Role::Output => buffers.push(buffer(task, param, size)?),
                Role::Scalar => {
                    let text = param.value.as_deref().unwrap_or_default();
                    let value = match evaluate(task, size, text, Expr::value)? {
                        Value::Int(value) if param.dtype.is_float() => Value::Float(value as f64),
                        value => value,
                    };
                    scalars.push((param.name.clone(), value));
                }
            }
        }
        let total = buffers
            .iter()
            .try_fold(0u64, |total, buffer| total.checked_add(buffer.bytes.0));
        if total.is_none_or(|total| total > LARGEST_PROBLEM) {
            return Err(wrong(
                task,
                format!("buffers of {size} exceed {LARGEST_PROBLEM} bytes"),
            ));
        }
        let cost = |text: &str| evaluate(task, size, text, Expr::float);
        let work = Work {
            flops: Flops(cost(&task.cost.flops)?),
            flops_min: Flops(cost(&task.cost.flops_min)?),
            bytes: Bytes(cost(&task.cost.bytes)?.ceil() as u64),
        };
        Ok(Self {
            task: Arc::clone(task),
            size: size.clone(),
            case,
            seed,
            buffers,
            scalars,
            work,
        })
    }

    /// For people: `edge n=1000, normal`.
    pub fn label(&self) -> String {
        format!("{}, {}", self.size, self.case.word())
    }

    /// What launch expressions may name: dimensions and scalars.
    pub fn names(&self) -> BTreeMap<String, Value> {
        let dims = self
            .size
            .dims
            .iter()
            .map(|(name, value)| (name.clone(), Value::Int(*value)));
        dims.chain(self.scalars.iter().cloned()).collect()
    }

    /// The buffer of this name.
    pub fn buffer(&self, name: &str) -> Option<&Buffer> {
        self.buffers.iter().find(|buffer| buffer.name == name)
    }

    /// The inputs, in order.
    pub fn inputs(&self) -> impl Iterator<Item = &Buffer> {
        self.buffers.iter().filter(|b| b.role == Role::Input)
    }

    /// The outputs, in order.
    pub fn outputs(&self) -> impl Iterator<Item = &Buffer> {
        self.buffers.iter().filter(|b| b.role == Role::Output)
    }

    /// The elements of an input; `None` for any other name.
    pub fn stream(&self, input: &str) -> Option<Stream> {
        let index = self.task.params.iter().position(|p| p.name == input)?;
        let param = &self.task.params[index];
        if param.role != Role::Input {
            return None;
        }
        let stream = Stream::new(self.seed, index, param.dtype, self.case, self.longest_sum());
        let stream = match &self.inputs().find(|b| b.name == input)?.shape[..] {
            [rows @ .., elements] if rows.iter().product::<u64>() >= SPECIAL_ROWS => {
                stream.in_rows(*elements)
            }
            [..] => stream,
        };
        let outputs: u64 = self.outputs().map(|output| output.elements).sum();
        let first = self.inputs().next()?;
        if outputs > FEW_OUTPUTS || first.name != input {
            return Some(stream);
        }
        let size = self.task.sizes.iter().position(|size| *size == self.size);
        let turn = self.seed.wrapping_add(size.unwrap_or(0) as u64);
        Some(stream.with_one_special(random_bits(self.seed, turn) % first.elements, turn))
    }

    /// A generator of an input's bytes, made where they are read.
    pub fn generator(&self, input: &str) -> Option<Fill> {
        let stream = self.stream(input)?;
        Some(Arc::new(move |offset, out: &mut [u8]| {
            stream.fill(offset, out);
        }))
    }

    /// An input's bytes as a whole: for small problems.
    pub fn input_bytes(&self, input: &str) -> Option<Vec<u8>> {
        let stream = self.stream(input)?;
        let bytes = usize::try_from(self.buffer(input)?.bytes.0).ok()?;
        let mut out = vec![0; bytes];
        stream.fill(0, &mut out);
        Some(out)
    }

    /// Terms of the sums an output is made of; `None` where its tolerance names no sum.
    pub fn sum_length(&self, output: &str) -> Option<SumLength> {
        match self.task.tolerances.get(output)? {
            Tolerance::Dot {
                length, accumulate, ..
            } => Some(SumLength {
                terms: evaluate(&self.task, &self.size, length, Expr::int)
                    .ok()
                    .and_then(|terms| u64::try_from(terms).ok())?,
                bits: significant_bits(*accumulate),
            }),
            Tolerance::Exact | Tolerance::Pointwise { .. } | Tolerance::Norm { .. } => None,
        }
    }

    fn longest_sum(&self) -> Option<SumLength> {
        self.task
            .tolerances
            .keys()
            .filter_map(|output| self.sum_length(output))
            .max_by_key(|sum| sum.terms)
    }
}

/// Significant bits of a floating-point type, the hidden one included; the width of an integer type.
pub(super) fn significant_bits(dtype: DType) -> u32 {
    match dtype {
        DType::F64 => 53,
        DType::F32 => 24,
        DType::F16 => 11,
        DType::Bf16 => 8,
        DType::I32 | DType::U32 => 32,
        DType::I64 | DType::U64 => 64,
        DType::U8 => 8,
    }
}

fn buffer(task: &Task, param: &Param, size: &Size) -> Result<Buffer, TaskError> {
    let mut shape = Vec::with_capacity(param.shape.len());
    for text in &param.shape {
        let extent = evaluate(task, size, text, Expr::int)?;
        let extent = u64::try_from(extent)
            .ok()
            .filter(|&extent| extent > 0)
            .ok_or_else(|| {
                wrong(
                    task,
                    format!(
                        "`{text}` of {} gives {extent} at {size}, not an extent",
                        param.name
                    ),
                )
            })?;
        shape.push(extent);
    }
    let elements = shape
        .iter()
        .try_fold(1u64, |product, extent| product.checked_mul(*extent));
    let bytes = elements.and_then(|elements| elements.checked_mul(param.dtype.size()));
    match (elements, bytes) {
        (Some(elements), Some(bytes)) if bytes <= LARGEST_PROBLEM => Ok(Buffer {
            name: param.name.clone(),
            role: param.role,
            dtype: param.dtype,
            shape,
            elements,
            bytes: Bytes(bytes),
        }),
        _ => Err(wrong(
            task,
            format!("{} of {size} exceeds {LARGEST_PROBLEM} bytes", param.name),
        )),
    }
}

fn evaluate<T>(
    task: &Task,
    size: &Size,
    text: &str,
    get: impl Fn(&Expr, &BTreeMap<String, i64>) -> Result<T, ExprError>,
) -> Result<T, TaskError> {
    Expr::new(text)
        .and_then(|expr| get(&expr, &size.dims))
        .map_err(|error| wrong(task, format!("at {size}, {error}")))
}

fn wrong(task: &Task, message: String) -> TaskError {
    TaskError::whole(
        &Path::new(&task.name).join("task.toml"),
        message,
        "choose another size",
    )
}
