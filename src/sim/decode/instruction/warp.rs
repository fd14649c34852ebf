//! Exchanges between a warp's lanes, and products of matrices that they hold together.

use super::super::operand::{Kind, Ty};
use super::super::{Body, Decoder};
use super::Decoded;
use super::parts::Parts;
use crate::ptx::ir::Operand;
use crate::sim::float::Format;
use crate::sim::op::{Mma, Op, ReduxOp, ShflMode, VoteMode};

impl Decoder<'_> {
    pub(super) fn shfl(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let mode = if p.has("up") {
            ShflMode::Up
        } else if p.has("down") {
            ShflMode::Down
        } else if p.has("bfly") {
            ShflMode::Bfly
        } else {
            ShflMode::Idx
        };
        let (first, second) = self.pair(p.operand(0)?);
        let dst = self.dst(body, first, Ty::B32)?;
        let valid = match second {
            Some(operand) => Some(self.dst_pred(body, operand)?),
            None => None,
        };
        let a = self.src(body, p.operand(1)?, Ty::B32)?;
        let lane = self.src(body, p.operand(2)?, Ty::B32)?;
        let clamp = self.src(body, p.operand(3)?, Ty::B32)?;
        let members = match p.instruction.operands.get(4) {
            Some(operand) => self.src(body, operand, Ty::B32)?,
            None => self.constant(body, u64::from(u32::MAX), Ty::B32).slot,
        };
        Ok(Op::Shfl {
            mode,
            dst,
            valid,
            a,
            lane,
            clamp,
            members,
        })
    }

    pub(super) fn vote(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let mode = if p.has("all") {
            VoteMode::All
        } else if p.has("any") {
            VoteMode::Any
        } else if p.has("uni") {
            VoteMode::Uni
        } else {
            VoteMode::Ballot
        };
        let dst = match mode {
            VoteMode::Ballot => self.dst(body, p.operand(0)?, Ty::B32)?,
            VoteMode::All | VoteMode::Any | VoteMode::Uni => self.dst_pred(body, p.operand(0)?)?,
        };
        let a = self.pred(body, p.operand(1)?)?;
        let members = match p.instruction.operands.get(2) {
            Some(operand) => self.src(body, operand, Ty::B32)?,
            None => self.constant(body, u64::from(u32::MAX), Ty::B32).slot,
        };
        Ok(Op::Vote {
            mode,
            dst,
            a,
            members,
        })
    }

    pub(super) fn match_any(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let ty = p.ty()?;
        let (first, second) = self.pair(p.operand(0)?);
        let dst = self.dst(body, first, Ty::B32)?;
        let valid = match second {
            Some(operand) => Some(self.dst_pred(body, operand)?),
            None => None,
        };
        let a = self.src(body, p.operand(1)?, ty)?;
        let members = self.src(body, p.operand(2)?, Ty::B32)?;
        Ok(Op::Match {
            all: p.has("all"),
            wide: ty.wide(),
            dst,
            valid,
            a,
            members,
        })
    }

    pub(super) fn redux(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let ty = p.ty()?;
        let op = p
            .instruction
            .modifiers
            .iter()
            .find_map(|m| {
                Some(match m.as_str() {
                    "add" => ReduxOp::Add,
                    "min" => ReduxOp::Min,
                    "max" => ReduxOp::Max,
                    "and" => ReduxOp::And,
                    "or" => ReduxOp::Or,
                    "xor" => ReduxOp::Xor,
                    _ => return None,
                })
            })
            .ok_or_else(|| p.unknown())?;
        if matches!(ty.kind, Kind::Float(_)) {
            return Err(p.unknown());
        }
        let [dst, a, members] = self.three(body, p, Ty::B32)?;
        Ok(Op::Redux {
            op,
            signed: ty.signed(),
            dst,
            a,
            members,
        })
    }

    /// The shape and the types that most kernels use; other ones are unknown.
    pub(super) fn mma(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let modifiers: Vec<&str> = (p.instruction.modifiers.iter())
            .map(|modifier| modifier.as_str())
            .collect();
        let format = match modifiers.as_slice() {
            [
                "sync",
                "aligned",
                "m16n8k16",
                "row",
                "col",
                "f32",
                "bf16",
                "bf16",
                "f32",
            ] => Format::Bf16,
            [
                "sync",
                "aligned",
                "m16n8k16",
                "row",
                "col",
                "f32",
                "f16",
                "f16",
                "f32",
            ] => Format::F16,
            _ => return Err(p.unknown()),
        };
        fn list<'a, const N: usize>(p: Parts<'a>, at: usize) -> Result<&'a [Operand; N], String> {
            match p.operand(at)? {
                Operand::Vector(items) => items.as_slice().try_into().map_err(|_| p.unknown()),
                _ => Err(p.unknown()),
            }
        }
        let mut mma = Mma {
            format,
            d: [0; 4],
            a: [0; 4],
            b: [0; 2],
            c: [0; 4],
        };
        for (slot, operand) in mma.d.iter_mut().zip(list::<4>(p, 0)?) {
            *slot = self.dst(body, operand, Ty::B32)?;
        }
        for (slot, operand) in mma.a.iter_mut().zip(list::<4>(p, 1)?) {
            *slot = self.src(body, operand, Ty::B32)?;
        }
        for (slot, operand) in mma.b.iter_mut().zip(list::<2>(p, 2)?) {
            *slot = self.src(body, operand, Ty::B32)?;
        }
        for (slot, operand) in mma.c.iter_mut().zip(list::<4>(p, 3)?) {
            *slot = self.src(body, operand, Ty::B32)?;
        }
        Ok(Op::Mma {
            product: Box::new(mma),
            members: self.constant(body, u64::from(u32::MAX), Ty::B32).slot,
        })
    }

    pub(super) fn elect(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let (leader, elected) = self.pair(p.operand(0)?);
        let leader = self.dst(body, leader, Ty::B32)?;
        let elected = self.dst_pred(body, elected.unwrap_or(&Operand::Sink))?;
        let members = self.src(body, p.operand(1)?, Ty::B32)?;
        Ok(Op::Elect {
            leader,
            elected,
            members,
        })
    }
}
