//! Bits within a register: counts, fields, permutations and tables.

use super::super::operand::{Ty, show};
use super::super::{Body, Decoder};
use super::Decoded;
use super::parts::Parts;
use crate::ptx::ir::{Immediate, Operand};
use crate::sim::op::{Alu, BitQuery, Combine, Op, PrmtMode};

impl Decoder<'_> {
    pub(super) fn bit_query(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let ty = p.ty()?;
        let dst = self.dst(body, p.operand(0)?, Ty::B32)?;
        let a = self.src(body, p.operand(1)?, ty)?;
        let op = match p.instruction.opcode.as_str() {
            "popc" => BitQuery::Popc,
            "clz" => BitQuery::Clz,
            _ if p.has("shiftamt") => BitQuery::BfindShift,
            _ => BitQuery::Bfind,
        };
        Ok(Op::Alu(Alu::BitQuery {
            width: ty.width(),
            op,
            signed: ty.signed(),
            dst,
            a,
        }))
    }

    pub(super) fn prmt(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let mode = p
            .instruction
            .modifiers
            .iter()
            .find_map(|m| {
                Some(match m.as_str() {
                    "f4e" => PrmtMode::F4e,
                    "b4e" => PrmtMode::B4e,
                    "rc8" => PrmtMode::Rc8,
                    "ecl" => PrmtMode::Ecl,
                    "ecr" => PrmtMode::Ecr,
                    "rc16" => PrmtMode::Rc16,
                    _ => return None,
                })
            })
            .unwrap_or(PrmtMode::Index);
        let [dst, a, b, c] = self.four(body, p, Ty::B32)?;
        Ok(Op::Alu(Alu::Prmt { mode, dst, a, b, c }))
    }

    pub(super) fn lop3(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let (result, any) = self.pair(p.operand(0)?);
        let dst = self.dst(body, result, Ty::B32)?;
        let [a, b, c] = [
            self.src(body, p.operand(1)?, Ty::B32)?,
            self.src(body, p.operand(2)?, Ty::B32)?,
            self.src(body, p.operand(3)?, Ty::B32)?,
        ];
        let lut = match p.operand(4)? {
            Operand::Immediate(Immediate::Int(lut)) if (0..256).contains(lut) => *lut as u8,
            other => {
                return Err(format!(
                    "lop3 wants a table between 0 and 0xFF, not `{}`",
                    show(other)
                ));
            }
        };
        let test = match (p.combine(), any) {
            (None, None) => None,
            (Some(op @ (Combine::And | Combine::Or)), Some(any)) => {
                let with = self.pred(body, p.operand(5)?)?;
                Some((op, with, self.dst_pred(body, any)?))
            }
            _ => return Err(p.unknown()),
        };
        Ok(Op::Alu(Alu::Lop3 {
            lut,
            dst,
            a,
            b,
            c,
            test,
        }))
    }

    pub(super) fn bit_field_extract(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let ty = p.ty()?;
        let (dst, a) = (
            self.dst(body, p.operand(0)?, ty)?,
            self.src(body, p.operand(1)?, ty)?,
        );
        let (b, c) = (
            self.src(body, p.operand(2)?, Ty::B32)?,
            self.src(body, p.operand(3)?, Ty::B32)?,
        );
        Ok(Op::Alu(Alu::Bfe {
            wide: ty.wide(),
            signed: ty.signed(),
            dst,
            a,
            b,
            c,
        }))
    }

    pub(super) fn bit_field_insert(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let ty = p.ty()?;
        let dst = self.dst(body, p.operand(0)?, ty)?;
        let (a, b) = (
            self.src(body, p.operand(1)?, ty)?,
            self.src(body, p.operand(2)?, ty)?,
        );
        let (c, d) = (
            self.src(body, p.operand(3)?, Ty::B32)?,
            self.src(body, p.operand(4)?, Ty::B32)?,
        );
        Ok(Op::Alu(Alu::Bfi {
            wide: ty.wide(),
            dst,
            a,
            b,
            c,
            d,
        }))
    }

    pub(super) fn find_nth_set(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let [dst, mask, base, offset] = self.four(body, p, Ty::B32)?;
        Ok(Op::Alu(Alu::Fns {
            dst,
            mask,
            base,
            offset,
        }))
    }

    pub(super) fn funnel_shift(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let [dst, a, b, c] = self.four(body, p, Ty::B32)?;
        Ok(Op::Alu(Alu::Shf {
            left: p.has("l"),
            clamp: p.has("clamp"),
            dst,
            a,
            b,
            c,
        }))
    }

    /// `bmsk`, `szext`
    pub(super) fn bit_mask(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let clamp = p.has("clamp");
        if !clamp && !p.has("wrap") {
            return Err(p.unknown());
        }
        let ty = p.ty()?;
        let [dst, a, b] = self.three(body, p, ty)?;
        Ok(Op::Alu(Alu::Mask {
            extends: p.instruction.opcode == "szext",
            signed: ty.signed(),
            clamp,
            dst,
            a,
            b,
        }))
    }
}
