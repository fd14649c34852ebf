//! Exchanges between a warp's lanes, and products of matrices that they hold together.

use super::Slot;
use crate::sim::float::Format;

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
