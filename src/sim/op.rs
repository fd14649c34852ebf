//! The decoded form that the machine executes: typed operations over dense register slots, every symbol,
//! label and constant resolved. It holds no text but mnemonics, and no state.

use super::float::{Format, Rounding};

/// An index into one of a frame's three register files (32-bit, 64-bit, predicate): which one, the
/// operation's width says.
pub(crate) type Slot = u16;

/// Program counter: an index into [`Program::code`].
pub(crate) type Pc = u32;

/// Operand width of integer and bit operations. 16-bit values live zero-extended in 32-bit slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    B16,
    B32,
    B64,
}

impl Width {
    pub(crate) fn bits(self) -> u32 {
        match self {
            Self::B16 => 16,
            Self::B32 => 32,
            Self::B64 => 64,
        }
    }
}

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntOp {
    Add,
    Sub,
    MulLo,
    MulHi,
    Div,
    Rem,
    Min,
    Max,
    And,
    Or,
    Xor,
    Shl,
    Shr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntUnary {
    Neg,
    Abs,
    Not,
    Cnot,
    Brev,
}

/// Results are 32-bit whatever the operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BitQuery {
    Popc,
    Clz,
    Bfind,
    BfindShift,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CarryOp {
    Add,
    Sub,
    /// mad.lo.cc, madc.lo
    MadLo,
    /// mad.hi.cc, madc.hi
    MadHi,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloatOp {
    Add,
    Sub,
    Mul,
    Div,
    Min,
    Max,
    /// `.NaN` variants: a NaN operand gives NaN.
    MinNan,
    MaxNan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloatUnary {
    Neg,
    Abs,
    Rcp,
    Sqrt,
    Rsqrt,
    Ex2,
    Lg2,
    Sin,
    Cos,
    Tanh,
}

/// How a float operation rounds and what it does to subnormals and range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FloatMode {
    pub rounding: Rounding,
    pub ftz: bool,
    pub sat: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// Unordered forms: also true where an operand is NaN.
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    Num,
    Nan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompareType {
    Int { width: Width, signed: bool },
    Float { format: Format, ftz: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Combine {
    And,
    Or,
    Xor,
}

/// One side of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CvtType {
    Int { bits: u8, signed: bool },
    Float(Format),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cvt {
    pub to: CvtType,
    pub from: CvtType,
    /// Of the floating result, or of the integer result of a float source.
    pub rounding: Option<Rounding>,
    /// `.rni` and its like on float → float: round to an integral value.
    pub integral: bool,
    pub ftz: bool,
    pub sat: bool,
    pub relu: bool,
}

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
    Int { wide: bool, signed: bool },
    Float(Format),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Atom {
    pub space: Space,
    pub address: Address,
    pub op: AtomOp,
    pub ty: AtomType,
    /// Absent for `red`.
    pub dst: Option<Reg>,
    pub value: Reg,
    /// The new value of `cas` (then `value` is what it compares with).
    pub swap: Option<Reg>,
}

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    Low,
    Whole,
    High,
    Timer64,
    TimerLo,
    TimerHi,
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

/// A bit-field copy between slots: pack, unpack and width changes of `mov`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub reg: Reg,
    pub shift: u8,
    pub bits: u8,
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

/// Work within a thread's registers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Alu {
    Int {
        width: Width,
        op: IntOp,
        signed: bool,
        dst: Slot,
        a: Slot,
        b: Slot,
    },
    AddSat {
        subtract: bool,
        dst: Slot,
        a: Slot,
        b: Slot,
    },
    IntUnary {
        width: Width,
        op: IntUnary,
        dst: Slot,
        a: Slot,
    },
    BitQuery {
        width: Width,
        op: BitQuery,
        signed: bool,
        dst: Slot,
        a: Slot,
    },
    MulWide {
        width: Width,
        signed: bool,
        dst: Slot,
        a: Slot,
        b: Slot,
    },
    MadWide {
        width: Width,
        signed: bool,
        dst: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    Mad {
        width: Width,
        high: bool,
        signed: bool,
        saturate: bool,
        dst: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    Mul24 {
        high: bool,
        signed: bool,
        dst: Slot,
        a: Slot,
        b: Slot,
        c: Option<Slot>,
    },
    Sad {
        width: Width,
        signed: bool,
        dst: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    Carry {
        wide: bool,
        op: CarryOp,
        signed: bool,
        carry_in: bool,
        carry_out: bool,
        dst: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    Bfe {
        wide: bool,
        signed: bool,
        dst: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    Bfi {
        wide: bool,
        dst: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
        d: Slot,
    },
    Fns {
        dst: Slot,
        mask: Slot,
        base: Slot,
        offset: Slot,
    },
    Prmt {
        mode: PrmtMode,
        dst: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    Lop3 {
        lut: u8,
        dst: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    Shf {
        left: bool,
        clamp: bool,
        dst: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    Dp4a {
        a_signed: bool,
        b_signed: bool,
        dst: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    Dp2a {
        high: bool,
        a_signed: bool,
        b_signed: bool,
        dst: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },

    /// The hot ones: round to nearest even, subnormals kept, no saturation.
    FAdd {
        dst: Slot,
        a: Slot,
        b: Slot,
    },
    FMul {
        dst: Slot,
        a: Slot,
        b: Slot,
    },
    FFma {
        dst: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    Float {
        format: Format,
        op: FloatOp,
        mode: FloatMode,
        dst: Slot,
        a: Slot,
        b: Slot,
    },
    FloatFma {
        format: Format,
        mode: FloatMode,
        relu: bool,
        dst: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    FloatUnary {
        format: Format,
        op: FloatUnary,
        mode: FloatMode,
        dst: Slot,
        a: Slot,
    },
    /// Two 16-bit halves at once.
    Packed {
        format: Format,
        op: FloatOp,
        mode: FloatMode,
        dst: Slot,
        a: Slot,
        b: Slot,
    },
    PackedFma {
        format: Format,
        mode: FloatMode,
        relu: bool,
        dst: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    PackedUnary {
        format: Format,
        op: FloatUnary,
        mode: FloatMode,
        dst: Slot,
        a: Slot,
    },
    Copysign {
        wide: bool,
        dst: Slot,
        a: Slot,
        b: Slot,
    },
    Testp {
        format: Format,
        test: FloatTest,
        dst: Slot,
        a: Slot,
    },

    Setp {
        ty: CompareType,
        compare: Compare,
        combine: Option<(Combine, Pred)>,
        dst: Slot,
        inverse: Option<Slot>,
        a: Slot,
        b: Slot,
    },
    /// All ones (or 1.0) where true.
    Set {
        ty: CompareType,
        compare: Compare,
        combine: Option<(Combine, Pred)>,
        float: bool,
        dst: Slot,
        a: Slot,
        b: Slot,
    },
    Selp {
        wide: bool,
        dst: Slot,
        a: Slot,
        b: Slot,
        condition: Pred,
    },
    Slct {
        wide: bool,
        float: bool,
        ftz: bool,
        dst: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    PredLogic {
        op: Combine,
        dst: Slot,
        a: Pred,
        b: Pred,
    },
    PredMove {
        dst: Slot,
        a: Pred,
    },

    Move32 {
        dst: Slot,
        a: Slot,
    },
    Move64 {
        dst: Slot,
        a: Slot,
    },
    Pack {
        dst: Reg,
        parts: Vec<Piece>,
    },
    Unpack {
        src: Reg,
        parts: Vec<Piece>,
    },
    Convert {
        cvt: Cvt,
        dst: Reg,
        a: Reg,
    },
    /// Two floats into the halves of one register; `a` is the upper half.
    ConvertPacked {
        cvt: Cvt,
        dst: Slot,
        a: Slot,
        b: Slot,
    },
    /// Generic ↔ space addresses: adds (or removes) the space's window.
    Cvta {
        space: Space,
        to_generic: bool,
        dst: Reg,
        a: Reg,
    },
    Isspacep {
        space: Space,
        dst: Slot,
        a: Reg,
    },
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
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrmtMode {
    Index,
    F4e,
    B4e,
    Rc8,
    Ecl,
    Ecr,
    Rc16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloatTest {
    Finite,
    Infinite,
    Number,
    NotANumber,
    Normal,
    Subnormal,
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
    LaneMaskEq,
    LaneMaskLt,
    LaneMaskLe,
    LaneMaskGt,
    LaneMaskGe,
    DynamicSharedSize,
    TotalSharedSize,
    Zero,
    One,
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

/// One kernel of a module, ready to run.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) entry_name: String,
    pub(crate) code: Vec<Instr>,
    pub(crate) depends: Vec<Depends>,
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

    /// Mnemonic of an instruction.
    pub(crate) fn mnemonic(&self, pc: Pc) -> &str {
        self.code
            .get(pc as usize)
            .and_then(|i| self.mnemonics.get(i.mnemonic as usize))
            .map_or("", String::as_str)
    }
}
