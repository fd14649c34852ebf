//! Accesses to memory: state spaces, addresses, loads, stores and atomics.

use super::{Reg, Slot};
use crate::sim::float::Format;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Space {
    Global,
    Shared,
    Local,
    Const,
    /// A kernel's parameter bank.
    Param,
    Generic,
}

/// Base of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// Absolute: the offset says all.
    None,
    /// Offset from this frame's part of the thread's stack.
    Frame,
    Narrow(Slot),
    Wide(Slot),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub base: Base,
    pub offset: i64,
}

/// A load's or store's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub space: Space,
    pub address: Address,
    /// Bytes of one element: 1, 2, 4 or 8.
    pub bytes: u8,
    /// Elements: 1, 2, 4 or 8.
    pub count: u8,
    /// Sign-extend on load.
    pub signed: bool,
    /// A strong (relaxed, acquire, release) access: no data race with other strong ones.
    pub strong: bool,
    /// Parameter passing and spill-free stack use of `call`: not counted, not checked.
    pub private: bool,
    pub regs: [Reg; 8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtomOp {
    Add,
    Min,
    Max,
    Inc,
    Dec,
    And,
    Or,
    Xor,
    Exch,
    Cas,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtomType {
    Int {
        /// 16, 32 or 64.
        bits: u8,
        signed: bool,
    },
    Float(Format),
    /// Two 16-bit floats side by side.
    Pair(Format),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Atom {
    pub space: Space,
    pub address: Address,
    pub op: AtomOp,
    pub ty: AtomType,
    /// Empty for `red`, else one for each value.
    pub dst: Vec<Reg>,
    /// Of a vector, or of 128 bits: each for the place behind the one before it.
    pub values: Vec<Reg>,
    /// The new values of `cas` (then `values` are what it compares with), else empty.
    pub swap: Vec<Reg>,
}
