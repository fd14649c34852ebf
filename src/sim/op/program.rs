//! A decoded kernel: its instructions, frames, parameters and variables.

use std::collections::BTreeMap;

use super::{Op, Pc, Pred, Reg};

/// One kernel of a module, ready to run.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) entry_name: String,
    pub(crate) code: Vec<Instr>,
    pub(crate) depends: Vec<Depends>,
    /// What the assembler leaves of each instruction.
    pub(crate) folds: Vec<Fold>,
    /// Products that a write of their registers may precede with no fence between, and that write.
    pub(crate) unfenced: BTreeMap<Pc, Pc>,
    pub(crate) functions: Vec<FrameLayout>,
    pub(crate) mnemonics: Vec<String>,
    pub(crate) params: Vec<ParamInfo>,
    pub(crate) param_bytes: u32,
    pub(crate) globals: Vec<ModuleVariable>,
    pub(crate) constants: Vec<u8>,
    /// Static shared memory, the reserved first KiB left out.
    pub(crate) static_shared: u32,
    /// Alignment of the dynamic array.
    pub(crate) dynamic_align: u32,
    /// Bound on threads of a block: `.maxntid` or `.reqntid`.
    pub(crate) max_threads: Option<u32>,
    pub(crate) required_threads: Option<[u32; 3]>,
    /// Blocks of a cluster that `.reqnctapercluster` demands.
    pub(crate) required_cluster: Option<[u32; 3]>,
    /// Registers of a thread that `.maxnreg` sets.
    pub(crate) max_registers: Option<u32>,
    /// Anything of it works beside the warps.
    pub(crate) asynchronous: bool,
    /// It may reach other blocks' shared memory.
    pub(crate) reaches_out: bool,
}

impl Program {
    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.entry_name
    }

    /// Its parameters, in order.
    pub fn params(&self) -> &[ParamInfo] {
        &self.params
    }

    /// Bytes of the parameter bank.
    pub fn param_bytes(&self) -> u32 {
        self.param_bytes
    }

    /// Most threads of a block: `.maxntid`.
    pub fn max_threads(&self) -> Option<u32> {
        self.max_threads
    }

    /// The block that `.reqntid` demands.
    pub fn required_threads(&self) -> Option<[u32; 3]> {
        self.required_threads
    }

    /// The cluster that `.reqnctapercluster` demands.
    pub fn required_cluster(&self) -> Option<[u32; 3]> {
        self.required_cluster
    }

    /// Bytes of static shared memory.
    pub fn static_shared(&self) -> u32 {
        self.static_shared
    }

    /// Bytes of local memory a thread of the kernel itself owns, its callees left out.
    pub fn local_bytes(&self) -> u32 {
        self.functions.first().map_or(0, |f| f.stack)
    }

    /// Line of an instruction.
    pub(crate) fn line(&self, pc: Pc) -> u32 {
        self.code.get(pc as usize).map_or(0, |i| i.line)
    }

    /// Whether an instruction's work goes on beside its warp.
    pub(crate) fn works_beside(&self, pc: Pc) -> bool {
        (self.code.get(pc as usize)).is_some_and(|instr| matches!(instr.op, Op::Async(_)))
    }

    /// Mnemonic of an instruction.
    pub(crate) fn mnemonic(&self, pc: Pc) -> &str {
        self.code
            .get(pc as usize)
            .and_then(|i| self.mnemonics.get(i.mnemonic as usize))
            .map_or("", String::as_str)
    }
}

/// An instruction: an operation under a guard, and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Instr {
    pub op: Op,
    pub guard: Option<Pred>,
    /// 1-based line of the text.
    pub line: u32,
    /// Index into [`Program::mnemonics`].
    pub mnemonic: u16,
}

impl Instr {
    /// Where it sends control; `None`: always on to the next instruction. Under a guard, there as well.
    pub(crate) fn sends_to(&self) -> Option<&[Pc]> {
        match &self.op {
            Op::Branch { target } => Some(std::slice::from_ref(target)),
            Op::BranchIndexed { targets, .. } => Some(targets),
            Op::Return | Op::Exit | Op::Trap => Some(&[]),
            _ => None,
        }
    }
}

/// What a frame's slot holds when the frame is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Init {
    Const32(u32),
    Const64(u64),
    /// Shared address of the dynamic array.
    DynamicShared,
    DynamicSharedWide,
    Special(Special),
}

/// Special registers that do not change while a thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    LaneId,
    WarpId,
    NWarpId,
    SmId,
    NSmId,
    GridId,
    /// Of the block in its cluster.
    ClusterCtaid(u8),
    ClusterNctaid(u8),
    ClusterRank,
    ClusterSize,
    /// Of the cluster in the grid.
    Clusterid(u8),
    Nclusterid(u8),
    LaneMaskEq,
    LaneMaskLt,
    LaneMaskLe,
    LaneMaskGt,
    LaneMaskGe,
    DynamicSharedSize,
    TotalSharedSize,
}

/// A function's frame: how many slots of each file, what some of them hold at first, and stack bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct FrameLayout {
    pub entry: Pc,
    pub narrow: usize,
    pub wide: usize,
    pub predicates: usize,
    pub init: Vec<(Reg, Init)>,
    /// Bytes of the thread's stack: `.local` variables, then parameters passed by `call`.
    pub stack: u32,
}

/// Registers that an instruction writes and reads, as numbers of its own function's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Depends {
    pub writes: Vec<u32>,
    pub reads: Vec<u32>,
    /// The same for all that compute the same of what they read.
    pub expression: Option<u32>,
    /// The register that the result is a copy of: one that is multiplied by one.
    pub kept: Option<u32>,
    /// All that it reads are registers, or numbers.
    pub literal: bool,
}

/// What the assembler leaves of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fold {
    Kept,
    /// Nothing: nobody reads it, it was computed before, or it is part of the sums that read it.
    Gone,
    /// A sum that takes in a product: a fused multiply-add.
    Fused,
}

/// A parameter of the kernel.
#[derive(Clone, Debug)]
pub struct ParamInfo {
    /// Its name.
    pub name: String,
    /// Offset in the parameter bank.
    pub offset: u32,
    /// Bytes.
    pub bytes: u32,
    /// `.f32` and `.f64` parameters.
    pub float: bool,
}

/// A module-scope `.global` variable.
#[derive(Clone, Debug)]
pub(crate) struct ModuleVariable {
    pub address: u64,
    pub bytes: Vec<u8>,
    /// Bytes that an initialiser set; the rest is zero, which CUDA guarantees.
    pub name: String,
}
