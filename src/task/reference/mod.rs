//! What computes the expected outputs: float64 references of this crate, or an external command.
//! A trusted kernel is run by the evaluation pipeline on the device, never here.

use super::{Builtin, Param, Role};
use crate::source::DType;

impl Builtin {
    /// Whether the parameters, scalars aside, are the ones this reference takes.
    pub(super) fn check_signature(self, params: &[Param]) -> Result<(), String> {
        let (form, inputs, outputs): (_, &[usize], &[usize]) = match self {
            Self::ReduceSum => ("one input of 1 dimension, one output of 1", &[1], &[1]),
            Self::Transpose => ("one input of 2 dimensions, one output of 2", &[2], &[2]),
            Self::Sgemm => ("two inputs of 2 dimensions, one output of 2", &[2, 2], &[2]),
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
        match self {
            Self::ReduceSum | Self::Sgemm if !floats => {
                Err("this reference takes floating-point buffers".into())
            }
            Self::Transpose if !same_dtype(params) => {
                Err("this reference takes buffers of one element type".into())
            }
            Self::ReduceSum | Self::Sgemm | Self::Transpose => Ok(()),
        }
    }
}

fn same_dtype(params: &[Param]) -> bool {
    let mut buffers = params.iter().filter(|param| param.role != Role::Scalar);
    let first = buffers.next().map(|param| param.dtype);
    buffers.all(|param| Some(param.dtype) == first)
}
