//! The decoded form that the machine executes: typed operations over dense register slots, every symbol,
//! label and constant resolved. It holds no text but mnemonics, and no state.

mod alu;
mod asynchronous;
mod control;
mod memory;
mod program;
mod warp;

pub(crate) use alu::{
    Alu, BitQuery, CarryOp, Combine, Compare, CompareType, Cvt, CvtType, FloatMode, FloatOp,
    FloatTest, FloatUnary, FusedClamp, IntOp, IntUnary, Piece, PrmtMode, Width,
};
pub(crate) use asynchronous::{
    AsyncOp, BulkLoad, BulkPlace, BulkReduce, BulkStore, Copy, Mbarrier, MbarrierAction, PhaseOf,
    Product, Send, SharedPlace, Side, SourcePlace,
};
pub(crate) use control::{Barrier, BarrierKind, Call, Passed};
pub(crate) use memory::{Access, Address, Atom, AtomOp, AtomType, Base, Space};
pub(crate) use program::{Depends, Fold, FrameLayout, Init, Instr, ModuleVariable, Special};
pub use program::{ParamInfo, Program};
pub(crate) use warp::{MatrixMove, Mma, MmaDouble, Operands, ReduxOp, ShflMode, Sums, VoteMode};

/// An index into one of a frame's three register files (32-bit, 64-bit, predicate): which one, the
/// operation's width says.
pub(crate) type Slot = u16;

/// Program counter: an index into [`Program::code`].
pub(crate) type Pc = u32;

/// A register of either data file, for operations that mix widths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reg {
    pub slot: Slot,
    /// In the 64-bit file.
    pub wide: bool,
}

/// A predicate operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pred {
    pub slot: Slot,
    pub negated: bool,
}

/// What an instruction does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    Alu(Alu),
    /// Address of a place in this frame's stack.
    StackAddress {
        dst: Reg,
        offset: u32,
    },
    ReadClock {
        clock: Clock,
        dst: Reg,
    },

    Load(Box<Access>),
    Store(Box<Access>),
    Atomic(Box<Atom>),
    Shfl {
        mode: ShflMode,
        dst: Slot,
        valid: Option<Slot>,
        a: Slot,
        lane: Slot,
        clamp: Slot,
        members: Slot,
    },
    Vote {
        mode: VoteMode,
        dst: Slot,
        a: Pred,
        members: Slot,
    },
    Match {
        all: bool,
        wide: bool,
        dst: Slot,
        valid: Option<Slot>,
        a: Slot,
        members: Slot,
    },
    Redux {
        op: ReduxOp,
        signed: bool,
        dst: Slot,
        a: Slot,
        members: Slot,
    },
    Mma {
        product: Box<Mma>,
        members: Slot,
    },
    MmaDouble {
        product: Box<MmaDouble>,
        members: Slot,
    },
    /// `movmatrix`: an 8 × 8 matrix of 16-bit elements, two a lane by rows, on its side.
    Transpose {
        dst: Slot,
        a: Slot,
        members: Slot,
    },
    Elect {
        leader: Slot,
        elected: Slot,
        members: Slot,
    },
    Activemask {
        dst: Slot,
    },

    Branch {
        target: Pc,
    },
    BranchIndexed {
        index: Slot,
        targets: Vec<Pc>,
    },
    Call(Box<Call>),
    Return,
    Exit,
    Trap,
    Barrier(Box<Barrier>),
    WarpSync {
        members: Slot,
    },
    Fence,
    /// `ldmatrix`, `stmatrix`.
    MoveMatrix(Box<MatrixMove>),
    Async(Box<AsyncOp>),
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    Low,
    Whole,
    High,
    Timer64,
    TimerLo,
    TimerHi,
}
