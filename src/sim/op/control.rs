//! Barriers and calls.

use super::{Pred, Reg, Slot};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BarrierKind {
    Sync,
    Arrive,
    Popc,
    And,
    Or,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Barrier {
    pub kind: BarrierKind,
    pub id: Slot,
    /// Threads expected; absent: the whole block.
    pub threads: Option<Slot>,
    /// All threads of a warp must execute it together.
    pub aligned: bool,
    pub input: Option<Pred>,
    /// A predicate for `and`/`or`, a 32-bit register for `popc`.
    pub dst: Option<Slot>,
}

/// Data passed at a call: a thread's stack bytes or a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// From a stack offset of the giving frame to one of the taking frame.
    Stack {
        from: u32,
        to: u32,
        bytes: u32,
    },
    Register {
        from: Reg,
        to: Reg,
    },
    Predicate {
        from: Slot,
        to: Slot,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub function: usize,
    pub arguments: Vec<Passed>,
    pub results: Vec<Passed>,
}
