//! Sums, products and functions of integers and floats.

use super::super::operand::{Kind, Ty};
use super::super::{Body, Decoder};
use super::Decoded;
use super::parts::Parts;
use crate::sim::float::{Format, Rounding};
use crate::sim::op::{Alu, CarryOp, Combine, FloatOp, FloatUnary, IntOp, IntUnary, Op};

impl Decoder<'_> {
    pub(super) fn binary(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let opcode = p.instruction.opcode.as_str();
        if p.any(&["u16x2", "s16x2"]) || p.has("relu") && p.any(&["s32"]) {
            return self.beside(body, p);
        }
        let ty = p.ty()?;
        if p.has("cc") {
            return self.carry(body, p, false);
        }
        if p.len() != 3 {
            return Err(p.unknown());
        }
        match ty.kind {
            Kind::Predicate => {
                let op = match opcode {
                    "and" => Combine::And,
                    "or" => Combine::Or,
                    "xor" => Combine::Xor,
                    _ => return Err(p.unknown()),
                };
                let dst = self.dst_pred(body, p.operand(0)?)?;
                let (a, b) = (
                    self.pred(body, p.operand(1)?)?,
                    self.pred(body, p.operand(2)?)?,
                );
                Ok(Op::Alu(Alu::PredLogic { op, dst, a, b }))
            }
            Kind::Float(format) | Kind::Packed(format) => {
                let signs = p.has("xorsign") && p.has("abs");
                if p.has("relu") || p.any(&["xorsign", "abs"]) && !signs {
                    return Err(p.unknown());
                }
                let op = match (opcode, p.has("NaN")) {
                    ("min", false) if signs => FloatOp::MinXorsign,
                    ("max", false) if signs => FloatOp::MaxXorsign,
                    ("min", true) if signs => FloatOp::MinNanXorsign,
                    ("max", true) if signs => FloatOp::MaxNanXorsign,
                    ("add", _) => FloatOp::Add,
                    ("sub", _) => FloatOp::Sub,
                    ("mul", _) => FloatOp::Mul,
                    ("div", _) => FloatOp::Div,
                    ("min", false) => FloatOp::Min,
                    ("max", false) => FloatOp::Max,
                    ("min", true) => FloatOp::MinNan,
                    ("max", true) => FloatOp::MaxNan,
                    _ => return Err(p.unknown()),
                };
                let [dst, a, b] = self.three(body, p, ty)?;
                let mode = p.mode();
                let plain = mode.rounding == Rounding::NearestEven && !mode.ftz && !mode.sat;
                Ok(match (ty.kind, op) {
                    (Kind::Packed(_), _) => Op::Alu(Alu::Packed {
                        format,
                        op,
                        mode,
                        dst,
                        a,
                        b,
                    }),
                    (_, FloatOp::Add) if plain && format == Format::F32 => {
                        Op::Alu(Alu::FAdd { dst, a, b })
                    }
                    (_, FloatOp::Mul) if plain && format == Format::F32 => {
                        Op::Alu(Alu::FMul { dst, a, b })
                    }
                    _ => Op::Alu(Alu::Float {
                        format,
                        op,
                        mode,
                        dst,
                        a,
                        b,
                    }),
                })
            }
            Kind::Bits | Kind::Unsigned | Kind::Signed => self.integer(body, p, ty),
        }
    }

    /// 16-bit integers side by side; and what cuts 32-bit ones off below zero.
    fn beside(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let parts = if p.any(&["u16x2", "s16x2"]) { 2 } else { 1 };
        let op = match p.instruction.opcode.as_str() {
            "add" if parts == 2 && !p.any(&["sat", "cc"]) => IntOp::Add,
            "min" => IntOp::Min,
            "max" => IntOp::Max,
            _ => return Err(p.unknown()),
        };
        let [dst, a, b] = self.three(body, p, Ty::B32)?;
        Ok(Op::Alu(Alu::Beside {
            parts,
            op,
            signed: p.any(&["s16x2", "s32"]),
            relu: p.has("relu"),
            dst,
            a,
            b,
        }))
    }

    pub(super) fn carry(&mut self, body: &mut Body, p: Parts, carry_in: bool) -> Decoded {
        let ty = p.ty()?;
        let carry_out = p.has("cc");
        let wide = ty.wide();
        let signed = ty.signed();
        let op = match p.instruction.opcode.as_str() {
            "add" | "addc" => CarryOp::Add,
            "sub" | "subc" => CarryOp::Sub,
            "mad" | "madc" if p.has("hi") => CarryOp::MadHi,
            "mad" | "madc" if p.has("lo") => CarryOp::MadLo,
            _ => return Err(p.unknown()),
        };
        let [dst, a, b] = self.three(body, p, ty)?;
        let c = match op {
            CarryOp::MadLo | CarryOp::MadHi => self.src(body, p.operand(3)?, ty)?,
            CarryOp::Add | CarryOp::Sub => a,
        };
        Ok(Op::Alu(Alu::Carry {
            wide,
            op,
            signed,
            carry_in,
            carry_out,
            dst,
            a,
            b,
            c,
        }))
    }

    pub(super) fn multiply_add(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let ty = p.ty()?;
        // The assembler takes other roundings of 16-bit floats, and makes something else of them.
        let rounds = p.mode().rounding != Rounding::NearestEven;
        match ty.kind {
            Kind::Float(Format::F16 | Format::Bf16) | Kind::Packed(_) if rounds => Err(p.unknown()),
            Kind::Float(format) => {
                let [dst, a, b, c] = self.four(body, p, ty)?;
                let mode = p.mode();
                let plain = mode.rounding == Rounding::NearestEven && !mode.ftz && !mode.sat;
                Ok(if plain && format == Format::F32 {
                    Op::Alu(Alu::FFma { dst, a, b, c })
                } else {
                    Op::Alu(Alu::FloatFma {
                        format,
                        mode,
                        clamp: p.fused_clamp(),
                        dst,
                        a,
                        b,
                        c,
                    })
                })
            }
            Kind::Packed(format) => {
                let [dst, a, b, c] = self.four(body, p, ty)?;
                Ok(Op::Alu(Alu::PackedFma {
                    format,
                    mode: p.mode(),
                    clamp: p.fused_clamp(),
                    dst,
                    a,
                    b,
                    c,
                }))
            }
            Kind::Bits | Kind::Unsigned | Kind::Signed => {
                if p.has("cc") {
                    return self.carry(body, p, false);
                }
                let signed = ty.signed();
                if p.has("wide") {
                    let wide = Ty {
                        bits: ty.bits * 2,
                        ..ty
                    };
                    let dst = self.dst(body, p.operand(0)?, wide)?;
                    let (a, b) = (
                        self.src(body, p.operand(1)?, ty)?,
                        self.src(body, p.operand(2)?, ty)?,
                    );
                    let c = self.src(body, p.operand(3)?, wide)?;
                    return Ok(Op::Alu(Alu::MadWide {
                        width: ty.width(),
                        signed,
                        dst,
                        a,
                        b,
                        c,
                    }));
                }
                let [dst, a, b, c] = self.four(body, p, ty)?;
                Ok(Op::Alu(Alu::Mad {
                    width: ty.width(),
                    high: p.has("hi"),
                    signed,
                    saturate: p.has("sat"),
                    dst,
                    a,
                    b,
                    c,
                }))
            }
            Kind::Predicate => Err(p.unknown()),
        }
    }

    pub(super) fn mul24(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let ty = p.ty()?;
        let [dst, a, b] = self.three(body, p, ty)?;
        let c = if p.instruction.opcode == "mad24" {
            Some(self.src(body, p.operand(3)?, ty)?)
        } else {
            None
        };
        Ok(Op::Alu(Alu::Mul24 {
            high: p.has("hi"),
            signed: ty.signed(),
            dst,
            a,
            b,
            c,
        }))
    }

    pub(super) fn unary(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let opcode = p.instruction.opcode.as_str();
        let ty = p.ty()?;
        if ty.kind == Kind::Predicate {
            let dst = self.dst_pred(body, p.operand(0)?)?;
            let mut a = self.pred(body, p.operand(1)?)?;
            a.negated = !a.negated;
            return if opcode == "not" {
                Ok(Op::Alu(Alu::PredMove { dst, a }))
            } else {
                Err(p.unknown())
            };
        }
        let (dst, a) = (
            self.dst(body, p.operand(0)?, ty)?,
            self.src(body, p.operand(1)?, ty)?,
        );
        match ty.kind {
            Kind::Float(format) | Kind::Packed(format) => {
                let op = match opcode {
                    "neg" => FloatUnary::Neg,
                    "abs" => FloatUnary::Abs,
                    "rcp" => FloatUnary::Rcp,
                    "sqrt" => FloatUnary::Sqrt,
                    "rsqrt" => FloatUnary::Rsqrt,
                    "ex2" => FloatUnary::Ex2,
                    "lg2" => FloatUnary::Lg2,
                    "sin" => FloatUnary::Sin,
                    "cos" => FloatUnary::Cos,
                    "tanh" => FloatUnary::Tanh,
                    _ => return Err(p.unknown()),
                };
                let mode = p.mode();
                Ok(if matches!(ty.kind, Kind::Packed(_)) {
                    Op::Alu(Alu::PackedUnary {
                        format,
                        op,
                        mode,
                        dst,
                        a,
                    })
                } else {
                    Op::Alu(Alu::FloatUnary {
                        format,
                        op,
                        mode,
                        dst,
                        a,
                    })
                })
            }
            Kind::Bits | Kind::Unsigned | Kind::Signed => {
                let op = match opcode {
                    "neg" => IntUnary::Neg,
                    "abs" => IntUnary::Abs,
                    "not" => IntUnary::Not,
                    "cnot" => IntUnary::Cnot,
                    "brev" => IntUnary::Brev,
                    _ => return Err(p.unknown()),
                };
                Ok(Op::Alu(Alu::IntUnary {
                    width: ty.width(),
                    op,
                    dst,
                    a,
                }))
            }
            Kind::Predicate => Err(p.unknown()),
        }
    }

    pub(super) fn dot(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let mut types = p.types();
        let (Some(first), Some(second)) = (types.next(), types.next()) else {
            return Err(p.unknown());
        };
        let [dst, a, b, c] = self.four(body, p, Ty::B32)?;
        let (a_signed, b_signed) = (first.signed(), second.signed());
        Ok(if p.instruction.opcode == "dp4a" {
            Op::Alu(Alu::Dp4a {
                a_signed,
                b_signed,
                dst,
                a,
                b,
                c,
            })
        } else {
            Op::Alu(Alu::Dp2a {
                high: p.has("hi"),
                a_signed,
                b_signed,
                dst,
                a,
                b,
                c,
            })
        })
    }

    pub(super) fn sad(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let ty = p.ty()?;
        let [dst, a, b, c] = self.four(body, p, ty)?;
        Ok(Op::Alu(Alu::Sad {
            width: ty.width(),
            signed: ty.signed(),
            dst,
            a,
            b,
            c,
        }))
    }

    pub(super) fn copysign(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let ty = p.ty()?;
        let [dst, a, b] = self.three(body, p, ty)?;
        Ok(Op::Alu(Alu::Copysign {
            wide: ty.wide(),
            dst,
            a,
            b,
        }))
    }
}

impl Decoder<'_> {
    fn integer(&mut self, body: &mut Body, p: Parts, ty: Ty) -> Decoded {
        let signed = ty.signed();
        let op = match p.instruction.opcode.as_str() {
            "mul" if p.has("wide") => {
                let wide = Ty {
                    bits: ty.bits * 2,
                    ..ty
                };
                let dst = self.dst(body, p.operand(0)?, wide)?;
                let (a, b) = (
                    self.src(body, p.operand(1)?, ty)?,
                    self.src(body, p.operand(2)?, ty)?,
                );
                return Ok(Op::Alu(Alu::MulWide {
                    width: ty.width(),
                    signed,
                    dst,
                    a,
                    b,
                }));
            }
            "add" | "sub" if p.has("sat") => {
                let [dst, a, b] = self.three(body, p, ty)?;
                return Ok(Op::Alu(Alu::AddSat {
                    subtract: p.instruction.opcode == "sub",
                    dst,
                    a,
                    b,
                }));
            }
            "shl" | "shr" => {
                let dst = self.dst(body, p.operand(0)?, ty)?;
                let a = self.src(body, p.operand(1)?, ty)?;
                let b = self.src(body, p.operand(2)?, Ty::B32)?;
                let op = if p.instruction.opcode == "shl" {
                    IntOp::Shl
                } else {
                    IntOp::Shr
                };
                return Ok(Op::Alu(Alu::Int {
                    width: ty.width(),
                    op,
                    signed,
                    dst,
                    a,
                    b,
                }));
            }
            "add" => IntOp::Add,
            "sub" => IntOp::Sub,
            "mul" if p.has("hi") => IntOp::MulHi,
            "mul" => IntOp::MulLo,
            "div" => IntOp::Div,
            "rem" => IntOp::Rem,
            "min" => IntOp::Min,
            "max" => IntOp::Max,
            "and" => IntOp::And,
            "or" => IntOp::Or,
            "xor" => IntOp::Xor,
            _ => return Err(p.unknown()),
        };
        let [dst, a, b] = self.three(body, p, ty)?;
        Ok(Op::Alu(Alu::Int {
            width: ty.width(),
            op,
            signed,
            dst,
            a,
            b,
        }))
    }
}
