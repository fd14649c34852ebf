//! Exchanges between a warp's lanes, and products of matrices that they hold together.

use super::{SharedPlace, Slot};
use crate::sim::float;

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

/// `mma.sync` of 16 rows, or 8, and 8 columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mma {
    pub a_type: Operands,
    pub b_type: Operands,
    pub c_type: Sums,
    pub d_type: Sums,
    /// Integer sums clamp instead of wrapping.
    pub saturates: bool,
    /// Rows × 8, two elements in each row pair.
    pub d: Vec<Slot>,
    /// Rows × depth by rows.
    pub a: Vec<Slot>,
    /// Depth × 8 by columns.
    pub b: Vec<Slot>,
    /// Like `d`.
    pub c: Vec<Slot>,
}

impl Mma {
    /// Multiplications and additions of one execution by a warp of m16n8k16.
    pub(crate) const FLOPS: f64 = 2.0 * 16.0 * 8.0 * 16.0;

    pub(crate) fn depth(&self) -> usize {
        self.b.len() * 16 / self.b_type.bytes()
    }

    /// Eights of rows.
    pub(crate) fn halves(&self) -> usize {
        self.a.len() / self.b.len()
    }

    /// Multiplications and additions of one execution by a warp.
    pub(crate) fn flops(&self) -> f64 {
        2.0 * (8 * self.halves() * 8 * self.depth()) as f64
    }
}

/// `mma.sync` of float64: 8 or 16 rows and 8 columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MmaDouble {
    /// Of 64-bit registers, as the others' are.
    pub d: Vec<Slot>,
    pub a: Vec<Slot>,
    pub b: Vec<Slot>,
    pub c: Vec<Slot>,
}

impl MmaDouble {
    pub(crate) fn rows(&self) -> usize {
        4 * self.d.len()
    }

    pub(crate) fn depth(&self) -> usize {
        4 * self.b.len()
    }

    /// Multiplications and additions of one execution by a warp.
    pub(crate) fn flops(&self) -> f64 {
        2.0 * (self.rows() * 8 * self.depth()) as f64
    }
}

/// Element type of a product's sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sums {
    F32,
    /// Two a register.
    F16,
    S32,
}

/// Element type of a matrix operand of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operands {
    F16,
    Bf16,
    E4m3,
    E5m2,
    Tf32,
    S8,
    U8,
}

impl Operands {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::E4m3 | Self::E5m2 | Self::S8 | Self::U8 => 1,
            Self::Tf32 => 4,
        }
    }

    /// An element's value; `bits` holds it in its lower end.
    #[inline]
    pub(crate) fn value(self, bits: u32) -> f32 {
        match self {
            Self::F16 => float::f16_value(bits),
            Self::Bf16 => f32::from_bits(bits << 16),
            Self::E4m3 => float::e4m3_value(bits as u8),
            Self::E5m2 => float::e5m2_value(bits as u8),
            // The lower bits of the register are not looked at.
            Self::Tf32 => f32::from_bits(bits & 0xffff_e000),
            Self::S8 => f32::from(bits as i8),
            Self::U8 => f32::from(bits as u8),
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
