//! Comparisons and tests that give predicates, and choices by them.

use super::super::operand::{Kind, Ty};
use super::super::{Body, Decoder};
use super::Decoded;
use super::parts::Parts;
use crate::ptx::ir::Operand;
use crate::sim::float::Format;
use crate::sim::op::{Alu, Combine, FloatTest, Op, Pred};

impl Decoder<'_> {
    pub(super) fn testp(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let ty = p.ty()?;
        let Kind::Float(format) = ty.kind else {
            return Err(p.unknown());
        };
        let test = p
            .instruction
            .modifiers
            .iter()
            .find_map(|m| {
                Some(match m.as_str() {
                    "finite" => FloatTest::Finite,
                    "infinite" => FloatTest::Infinite,
                    "number" => FloatTest::Number,
                    "notanumber" => FloatTest::NotANumber,
                    "normal" => FloatTest::Normal,
                    "subnormal" => FloatTest::Subnormal,
                    _ => return None,
                })
            })
            .ok_or_else(|| p.unknown())?;
        let dst = self.dst_pred(body, p.operand(0)?)?;
        let a = self.src(body, p.operand(1)?, ty)?;
        Ok(Op::Alu(Alu::Testp {
            format,
            test,
            dst,
            a,
        }))
    }

    pub(super) fn setp(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let ty = p.ty()?;
        if let Kind::Packed(format) = ty.kind {
            let (lower, upper) = self.pair(p.operand(0)?);
            let upper = upper.unwrap_or(&Operand::Sink);
            return Ok(Op::Alu(Alu::SetpPacked {
                format,
                ftz: p.has("ftz"),
                compare: p.compare()?,
                combine: self.combined(body, p)?,
                dst: [self.dst_pred(body, lower)?, self.dst_pred(body, upper)?],
                a: self.src(body, p.operand(1)?, ty)?,
                b: self.src(body, p.operand(2)?, ty)?,
            }));
        }
        let compare_type = p.compare_type(ty)?;
        let (first, second) = self.pair(p.operand(0)?);
        let dst = self.dst_pred(body, first)?;
        let inverse = match second {
            Some(operand) => Some(self.dst_pred(body, operand)?),
            None => None,
        };
        let (a, b) = (
            self.src(body, p.operand(1)?, ty)?,
            self.src(body, p.operand(2)?, ty)?,
        );
        let combine = self.combined(body, p)?;
        Ok(Op::Alu(Alu::Setp {
            ty: compare_type,
            compare: p.compare()?,
            combine,
            dst,
            inverse,
            a,
            b,
        }))
    }

    pub(super) fn set(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let mut types = p.types();
        let (Some(to), Some(from)) = (types.next(), types.next()) else {
            return Err(p.unknown());
        };
        let truth = match (to.kind, to.bits) {
            (Kind::Float(Format::F32), _) => 1f32.to_bits(),
            (Kind::Float(Format::F16) | Kind::Packed(Format::F16), _) => {
                u32::from(half::f16::ONE.to_bits())
            }
            (Kind::Float(Format::Bf16) | Kind::Packed(Format::Bf16), _) => {
                u32::from(half::bf16::ONE.to_bits())
            }
            (Kind::Unsigned | Kind::Signed, 16 | 32) => u32::MAX >> (32 - to.bits),
            _ => return Err(p.unknown()),
        };
        if let Kind::Packed(format) = from.kind {
            let packed = matches!(to.kind, Kind::Packed(_) | Kind::Unsigned | Kind::Signed);
            if !packed || to.bits != 32 {
                return Err(p.unknown());
            }
            let [dst, a, b] = self.three(body, p, from)?;
            return Ok(Op::Alu(Alu::SetPacked {
                format,
                ftz: p.has("ftz"),
                compare: p.compare()?,
                combine: self.combined(body, p)?,
                truth: truth as u16,
                dst,
                a,
                b,
            }));
        }
        let dst = self.dst(body, p.operand(0)?, Ty::B32)?;
        let (a, b) = (
            self.src(body, p.operand(1)?, from)?,
            self.src(body, p.operand(2)?, from)?,
        );
        let combine = self.combined(body, p)?;
        Ok(Op::Alu(Alu::Set {
            ty: p.compare_type(from)?,
            compare: p.compare()?,
            combine,
            truth,
            dst,
            a,
            b,
        }))
    }

    pub(super) fn slct(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let mut types = p.types();
        let (Some(ty), Some(by)) = (types.next(), types.next()) else {
            return Err(p.unknown());
        };
        let [dst, a, b] = self.three(body, p, ty)?;
        let c = self.src(body, p.operand(3)?, by)?;
        let float = matches!(by.kind, Kind::Float(_));
        Ok(Op::Alu(Alu::Slct {
            wide: ty.wide(),
            float,
            ftz: p.has("ftz"),
            dst,
            a,
            b,
            c,
        }))
    }

    pub(super) fn selp(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let ty = p.ty()?;
        let [dst, a, b] = self.three(body, p, ty)?;
        let condition = self.pred(body, p.operand(3)?)?;
        Ok(Op::Alu(Alu::Selp {
            wide: ty.wide(),
            dst,
            a,
            b,
            condition,
        }))
    }
}

impl Decoder<'_> {
    fn combined(&mut self, body: &mut Body, p: Parts) -> Result<Option<(Combine, Pred)>, String> {
        match (p.combine(), p.instruction.operands.get(3)) {
            (Some(op), Some(operand)) => Ok(Some((op, self.pred(body, operand)?))),
            (None, None) => Ok(None),
            _ => Err(p.unknown()),
        }
    }
}
