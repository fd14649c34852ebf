//! What computes the expected outputs: float64 references of this crate, or an external command.
//! A trusted kernel is run by the evaluation pipeline on the device, never here; see [`Expected::trusted`].
//! Expected outputs never enter the process that runs a candidate.

mod attention;
mod builtin;
mod command;
mod npy;
mod pieces;

use std::time::Duration;

pub(super) use builtin::{Form, Sum};
pub(super) use pieces::{Arithmetic, Pieces};

use super::element::decode_all;
use super::{Buffer, Builtin, Param, Problem, Reference, Role, Tolerance};
use crate::source::DType;

/// What an output must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    /// The output parameter.
    pub output: String,
    /// Which of its elements are known.
    pub elements: Elements,
    /// Their values, in the order of `elements`.
    pub values: Values,
}

/// Which elements of an output are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Elements {
    /// Every one.
    All,
    /// These, by row-major index, where a full reference would take too long. Chosen by the problem's seed.
    Sampled(Vec<u64>),
}

/// Expected values.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Elements as bytes of the output's type: compared bit for bit.
    Bits(Vec<u8>),
    /// Float64 values.
    Reals {
        /// The value.
        y: Vec<f64>,
        /// √Σ a²b² over the element's terms, where the tolerance is that of a sum; else |y|.
        scale: Vec<f64>,
    },
}

/// Why there are no expected outputs.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ReferenceError(pub(super) String);

/// Computes a problem's expected outputs. An external command is given `limit` to end.
///
/// A task whose reference is a trusted kernel gives an error: run its kernel on the problem's inputs and
/// make the expected outputs with [`Expected::trusted`].
pub fn expected(problem: &Problem, limit: Duration) -> Result<Vec<Expected>, ReferenceError> {
    let fail = |message| ReferenceError(format!("at {}: {message}", problem.label()));
    match &problem.task.reference {
        Reference::Builtin(builtin) => builtin::expected(*builtin, problem).map_err(fail),
        Reference::Command(command) => command::expected(command, problem, limit).map_err(fail),
        Reference::Kernel(file) => Err(fail(format!(
            "the reference is the kernel {file}, which a device must run"
        ))),
    }
}

impl Expected {
    /// How many elements are known.
    pub fn count(&self, dtype: DType) -> usize {
        match &self.values {
            Values::Bits(bytes) => bytes.len() / dtype.size() as usize,
            Values::Reals { y, .. } => y.len(),
        }
    }

    /// What a trusted kernel wrote to `output`: `bytes` is the whole buffer.
    pub fn trusted(
        problem: &Problem,
        output: &Buffer,
        bytes: Vec<u8>,
    ) -> Result<Self, ReferenceError> {
        if bytes.len() as u64 != output.bytes.0 {
            return Err(ReferenceError(format!(
                "the reference kernel gave {} bytes for {}, {} are wanted",
                bytes.len(),
                output.name,
                output.bytes.0
            )));
        }
        let values = match problem.task.tolerances.get(&output.name) {
            Some(Tolerance::Exact) | None => Values::Bits(bytes),
            Some(Tolerance::Dot { .. } | Tolerance::Pointwise { .. } | Tolerance::Norm { .. }) => {
                let y = decode_all(output.dtype, &bytes);
                let scale = y.iter().map(|y| y.abs()).collect();
                Values::Reals { y, scale }
            }
        };
        Ok(Self {
            output: output.name.clone(),
            elements: Elements::All,
            values,
        })
    }
}

impl Builtin {
    /// Whether the parameters, scalars aside, are the ones this reference takes.
    pub(super) fn check_signature(self, params: &[Param]) -> Result<(), String> {
        let (form, inputs, outputs): (_, &[usize], &[usize]) = match self {
            Self::ReduceSum => ("one input of 1 dimension, one output of 1", &[1], &[1]),
            Self::Transpose => ("one input of 2 dimensions, one output of 2", &[2], &[2]),
            Self::Sgemm | Self::GemmNt => {
                ("two inputs of 2 dimensions, one output of 2", &[2, 2], &[2])
            }
            Self::Silu | Self::Gelu => ("one input of 1 dimension, one output of 1", &[1], &[1]),
            Self::Softmax | Self::Stencil5pt => {
                ("one input of 2 dimensions, one output of 2", &[2], &[2])
            }
            Self::RmsNorm => (
                "one input of 2 dimensions, one of 1, one output of 2",
                &[2, 1],
                &[2],
            ),
            Self::Rope => (
                "one input of 3 dimensions, two of 2, one output of 3",
                &[3, 2, 2],
                &[3],
            ),
            Self::Conv2d3x3 => ("two inputs of 4 dimensions, one output of 4", &[4, 4], &[4]),
            Self::AttentionFwd | Self::AttentionFwdCausal => (
                "three inputs of 4 dimensions, one output of 4 and one of 3",
                &[4, 4, 4],
                &[4, 3],
            ),
            Self::AttentionBwd | Self::AttentionBwdCausal => (
                "five inputs of 4 dimensions, one of 3, three outputs of 4",
                &[4, 4, 4, 4, 4, 3],
                &[4, 4, 4],
            ),
            Self::Fft => ("one input of 3 dimensions, one output of 3", &[3], &[3]),
        };
        let ranks = |role: Role| -> Vec<usize> {
            params
                .iter()
                .filter(|param| param.role == role)
                .map(|param| param.shape.len())
                .collect()
        };
        if ranks(Role::Input) != inputs || ranks(Role::Output) != outputs {
            return Err(format!("this reference takes {form}"));
        }
        let floats = params
            .iter()
            .filter(|param| param.role != Role::Scalar)
            .all(|param| match param.dtype {
                DType::F64 | DType::F32 | DType::F16 | DType::Bf16 => true,
                DType::I32 | DType::U32 | DType::I64 | DType::U64 | DType::U8 => false,
            });
        let moves = self == Self::Transpose;
        if moves && !same_dtype(params) {
            Err("this reference takes buffers of one element type".into())
        } else if !moves && !floats {
            Err("this reference takes floating-point buffers".into())
        } else {
            Ok(())
        }
    }
}

fn same_dtype(params: &[Param]) -> bool {
    let mut buffers = params.iter().filter(|param| param.role != Role::Scalar);
    let first = buffers.next().map(|param| param.dtype);
    buffers.all(|param| Some(param.dtype) == first)
}
