//! Exchanges between a warp's lanes.

use super::super::operand::{Kind, Ty};
use super::super::{Body, Decoder};
use super::Decoded;
use super::parts::Parts;
use crate::ptx::ir::Operand;
use crate::sim::op::{Op, ReduxOp, ShflMode, VoteMode};

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
