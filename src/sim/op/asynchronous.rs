//! Work that goes on beside the warp that started it, and what waits for it: mbarriers, copies, products of
//! warpgroups, clusters.

use super::{Address, AtomOp, Operands, Pred, Reg, Slot, Space};

/// An address in shared memory: a block's own, or of another block of its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedPlace {
    /// `Shared`, or `Generic`.
    pub space: Space,
    pub address: Address,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AsyncOp {
    Mbarrier(Mbarrier),
    BulkLoad(BulkLoad),
    BulkStore(BulkStore),
    BulkCommit,
    /// Leaves the newest `pending` groups under way. Reads and writes of a group end at once here.
    BulkWait {
        pending: u32,
    },
    Copy(Copy),
    CopyCommit,
    /// `None`: whatever was copied, committed or not.
    CopyWait {
        pending: Option<u32>,
    },
    /// Arrives on an mbarrier when the copies so far are done.
    CopyArrive {
        place: SharedPlace,
        /// The arrival is one of those that the barrier counts.
        counted: bool,
    },
    ProxyFence,
    /// Shows initialised mbarriers to the asynchronous proxy.
    MbarrierFence,
    Product(Box<Product>),
    ProductFence,
    ProductCommit,
    ProductWait {
        pending: u32,
    },
    SetRegisters {
        count: u32,
        more: bool,
    },
    /// A block's own shared address to that of the same place in another block of the cluster.
    MapShared {
        generic: bool,
        dst: Reg,
        a: Reg,
        rank: Slot,
    },
    /// The rank of the block that a shared address names.
    RankOf {
        generic: bool,
        dst: Slot,
        a: Reg,
    },
    Send(Send),
    ClusterArrive,
    ClusterWait,
}

/// `st.async`, `red.async`: registers of each lane to shared memory of the cluster, told to an mbarrier beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Send {
    pub dst: SharedPlace,
    pub mbarrier: SharedPlace,
    /// Of each register.
    pub bytes: u8,
    pub regs: Vec<Reg>,
    /// Of `red.async`.
    pub reduce: Option<(AtomOp, super::AtomType)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mbarrier {
    pub place: SharedPlace,
    pub action: MbarrierAction,
}

impl Mbarrier {
    /// Where a token holds the arrivals that its phase still wanted: the first bit, and how many. The phase's
    /// number is below.
    pub(crate) const PENDING: (u8, u8) = (40, 20);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MbarrierAction {
    Initialise {
        count: Slot,
    },
    Invalidate,
    Arrive {
        count: Option<Slot>,
        /// Bytes that the phase is to wait for besides.
        expects: Option<Slot>,
        /// Gets the phase's token.
        state: Option<Slot>,
        /// Later phases count so many arrivals less.
        drops: bool,
        /// `.noComplete`: the arrival must not be the phase's last.
        never_last: bool,
    },
    Expect {
        bytes: Slot,
    },
    Complete {
        bytes: Slot,
    },
    Wait {
        dst: Slot,
        phase: PhaseOf,
        /// `try_wait`: may suspend; `test_wait` does not.
        suspends: bool,
    },
}

/// How a wait names the phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PhaseOf {
    /// 0 or 1, in a 32-bit register.
    Parity(Slot),
    /// A token of `arrive`, in a 64-bit register.
    Token(Slot),
}

/// Where a bulk copy's bytes lie, besides shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BulkPlace {
    /// Bytes in a row in global memory.
    Global { address: Address, bytes: Slot },
    /// The box of a tensor map at these coordinates, innermost first.
    Tensor { map: Address, at: Vec<Slot> },
    /// Bytes in a row in this block's shared memory.
    Shared { address: Address, bytes: Slot },
}

/// Into shared memory, of one or several blocks; an mbarrier counts the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BulkLoad {
    pub dst: SharedPlace,
    pub src: BulkPlace,
    pub mbarrier: SharedPlace,
    /// Ranks of blocks that get it; absent: the one that `dst` names.
    pub multicast: Option<Slot>,
    /// Changes what is there instead of replacing it.
    pub reduce: Option<(AtomOp, super::AtomType)>,
}

/// Out of shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BulkStore {
    pub src: SharedPlace,
    pub dst: BulkPlace,
    pub reduce: Option<BulkReduce>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BulkReduce {
    pub op: AtomOp,
    /// Absent with a tensor map, which tells it.
    pub ty: Option<super::AtomType>,
}

/// `cp.async`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    pub dst: SharedPlace,
    pub src: SourcePlace,
    /// 4, 8 or 16.
    pub bytes: u8,
    /// Bytes taken from the source; zeros follow.
    pub taken: Option<Slot>,
    /// Takes nothing where it holds.
    pub ignored: Option<Pred>,
}

/// A global or generic address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourcePlace {
    pub address: Address,
}

/// `wgmma`: a warpgroup's product of 64 rows, added to accumulators in registers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Product {
    /// Columns.
    pub columns: u16,
    pub a_type: Operands,
    pub b_type: Operands,
    /// Accumulators: one f32 a register, or two f16.
    pub halves: bool,
    pub d: Vec<Slot>,
    pub a: Side,
    /// Descriptor.
    pub b: Slot,
    /// Adds to what the accumulators hold; else overwrites them.
    pub adds: Pred,
    pub negate_a: bool,
    pub negate_b: bool,
    pub transpose_a: bool,
    pub transpose_b: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Registers([Slot; 4]),
    Descriptor(Slot),
}

impl Product {
    /// Rows of one warp.
    pub(crate) const ROWS: usize = 16;

    /// Depth of a product.
    pub(crate) fn depth(&self) -> usize {
        32 / self.a_type.bytes()
    }

    /// Multiplications and additions of one execution by a warp.
    pub(crate) fn flops(&self) -> f64 {
        2.0 * Self::ROWS as f64 * f64::from(self.columns) * self.depth() as f64
    }
}
