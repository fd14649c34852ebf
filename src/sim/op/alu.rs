//! Work within a thread's registers.

use super::{Pred, Reg, Slot, Space};
use crate::sim::float::{Format, Rounding, Small};

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
    /// Sums, least and greatest of 16-bit integers side by side, and of 32-bit ones cut off below zero.
    Beside {
        /// 1 or 2.
        parts: u8,
        op: IntOp,
        signed: bool,
        /// Results below zero become zero.
        relu: bool,
        dst: Slot,
        a: Slot,
        b: Slot,
    },
    /// `bmsk`: ones from bit `a` on, `b` of them. `szext`: the lower `b` bits of `a` extended.
    Mask {
        extends: bool,
        signed: bool,
        clamp: bool,
        dst: Slot,
        a: Slot,
        b: Slot,
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
        /// Whether any bit of the result is set, combined with a predicate, goes to another one.
        test: Option<(Combine, Pred, Slot)>,
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
        clamp: FusedClamp,
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
        clamp: FusedClamp,
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
    /// Of 16-bit floats side by side: the lower pair to the first predicate.
    SetpPacked {
        format: Format,
        ftz: bool,
        compare: Compare,
        combine: Option<(Combine, Pred)>,
        dst: [Slot; 2],
        a: Slot,
        b: Slot,
    },
    /// Of 16-bit floats side by side: `truth` in each half where true.
    SetPacked {
        format: Format,
        ftz: bool,
        compare: Compare,
        combine: Option<(Combine, Pred)>,
        truth: u16,
        dst: Slot,
        a: Slot,
        b: Slot,
    },
    /// `truth` (all ones, or 1.0) where true.
    Set {
        ty: CompareType,
        compare: Compare,
        combine: Option<(Combine, Pred)>,
        truth: u32,
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
    /// Between the halves of 128-bit registers: to, from.
    Move128 {
        lower: [Slot; 2],
        upper: [Slot; 2],
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
    /// Two floats to two 8-bit ones; `a` is the upper byte. From f16x2, `a` holds both.
    ToSmall {
        small: Small,
        packed: bool,
        relu: bool,
        dst: Slot,
        a: Slot,
        b: Slot,
    },
    /// Two 8-bit floats to two f16.
    FromSmall {
        small: Small,
        relu: bool,
        dst: Slot,
        a: Slot,
    },
    ToTf32 {
        rounding: Rounding,
        relu: bool,
        /// What overflows becomes the greatest finite value.
        finite: bool,
        dst: Slot,
        a: Slot,
    },
    /// Two 32-bit integers, clamped, side by side; `a` is the upper. What `c` holds moves up by both.
    PackSaturated {
        /// Of each: 2, 4, 8 or 16.
        bits: u8,
        signed: bool,
        dst: Slot,
        a: Slot,
        b: Slot,
        c: Option<Slot>,
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
    /// Of the magnitudes; the sign is that of the product.
    MinXorsign,
    MaxXorsign,
    /// The same where a NaN operand gives NaN.
    MinNanXorsign,
    MaxNanXorsign,
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

/// Which results of a fused multiply-add become zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FusedClamp {
    /// `.relu`: those below it.
    pub relu: bool,
    /// `.oob`: those of a factor that is the NaN which stands for an element outside a tensor.
    pub outside: bool,
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
    /// What overflows becomes the greatest finite value.
    pub finite: bool,
}

/// A bit-field copy between slots: pack, unpack and width changes of `mov`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub reg: Reg,
    pub shift: u8,
    pub bits: u8,
}
