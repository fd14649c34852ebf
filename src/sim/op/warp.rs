//! Exchanges between a warp's lanes, and products of matrices that they hold together.

use super::{SharedPlace, Slot};
use crate::sim::float::{self, Format};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShflMode {
    Up,
    Down,
    Bfly,
    Idx,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VoteMode {
    All,
    Any,
    Uni,
    Ballot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReduxOp {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
}

/// `mma.sync` m16n8k16: a warp's product of 16-bit matrices, added to one of f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mma {
    /// Of A and B.
    pub format: Format,
    /// 16 × 8, two elements of f32 in each row pair.
    pub d: [Slot; 4],
    /// 16 × 16 by rows, two elements a register.
    pub a: [Slot; 4],
    /// 16 × 8 by columns, two elements a register.
    pub b: [Slot; 2],
    /// Like `d`.
    pub c: [Slot; 4],
}

impl Mma {
    /// Multiplications and additions of one execution by a warp.
    pub(crate) const FLOPS: f64 = 2.0 * 16.0 * 8.0 * 16.0;
}

/// Element type of a matrix operand of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operands {
    F16,
    Bf16,
    E4m3,
    E5m2,
}

impl Operands {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::E4m3 | Self::E5m2 => 1,
        }
    }

    /// An element's value; `bits` holds it in its lower end.
    pub(crate) fn value(self, bits: u32) -> f32 {
        match self {
            Self::F16 => half::f16::from_bits(bits as u16).to_f32(),
            Self::Bf16 => f32::from_bits(bits << 16),
            Self::E4m3 => float::e4m3_value(bits as u8),
            Self::E5m2 => float::e5m2_value(bits as u8),
        }
    }
}

/// `ldmatrix` and `stmatrix`: 8 × 8 matrices of 16-bit elements, a row an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MatrixMove {
    pub place: SharedPlace,
    pub store: bool,
    pub transposed: bool,
    /// 1, 2 or 4.
    pub count: u8,
    pub regs: [Slot; 4],
}
