//! Loads, stores and atomics.

use super::super::operand::{AddressOf, Kind, Ty};
use super::super::{Body, Decoder};
use super::Decoded;
use super::parts::Parts;
use crate::ptx::ir::Operand;
use crate::sim::op::{Access, Atom, AtomOp, AtomType, Op, Reg, Space};

impl Decoder<'_> {
    pub(super) fn load(&mut self, body: &mut Body, p: Parts) -> Decoded {
        Ok(Op::Load(Box::new(self.access(
            body,
            p,
            p.operand(1)?,
            p.operand(0)?,
        )?)))
    }

    pub(super) fn store(&mut self, body: &mut Body, p: Parts) -> Decoded {
        if p.has("async") {
            return self.send(body, p);
        }
        if p.has("bulk") {
            return Err(p.unknown());
        }
        Ok(Op::Store(Box::new(self.access(
            body,
            p,
            p.operand(0)?,
            p.operand(1)?,
        )?)))
    }

    pub(super) fn atomic(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let op = p
            .instruction
            .modifiers
            .iter()
            .find_map(|m| {
                Some(match m.as_str() {
                    "add" => AtomOp::Add,
                    "min" => AtomOp::Min,
                    "max" => AtomOp::Max,
                    "inc" => AtomOp::Inc,
                    "dec" => AtomOp::Dec,
                    "and" => AtomOp::And,
                    "or" => AtomOp::Or,
                    "xor" => AtomOp::Xor,
                    "exch" => AtomOp::Exch,
                    "cas" => AtomOp::Cas,
                    _ => return None,
                })
            })
            .ok_or_else(|| p.unknown())?;
        if p.has("async") {
            return self.send_reduction(body, p, op);
        }
        let ty = p.ty()?;
        let vector = p.any(&["v2", "v4", "v8"]);
        let kind = atom_type(ty).ok_or_else(|| p.unknown())?;
        let known = match (op, ty.bits) {
            (AtomOp::Cas, _) => !vector,
            (AtomOp::Exch, 32..) => !vector,
            (AtomOp::Add | AtomOp::Min | AtomOp::Max, 16) => matches!(kind, AtomType::Float(_)),
            (_, 32 | 64) => !vector || !matches!(kind, AtomType::Int { .. }),
            _ => false,
        };
        if !known || vector && !matches!(p.space(), Space::Global | Space::Generic) {
            return Err(p.unknown());
        }
        let returns = p.instruction.opcode == "atom";
        let first = usize::from(returns);
        let dst = match (returns, p.operand(0)?) {
            (false, _) | (true, Operand::Sink) => Vec::new(),
            (true, operand) => self.elements(body, operand, ty, Self::dst_any)?,
        };
        let (address, _) = self.address(body, p.operand(first)?)?;
        let values = self.elements(body, p.operand(first + 1)?, ty, Self::src_any)?;
        let swap = match op {
            AtomOp::Cas => self.elements(body, p.operand(first + 2)?, ty, Self::src_any)?,
            AtomOp::Add
            | AtomOp::Min
            | AtomOp::Max
            | AtomOp::Inc
            | AtomOp::Dec
            | AtomOp::And
            | AtomOp::Or
            | AtomOp::Xor
            | AtomOp::Exch => Vec::new(),
        };
        if !dst.is_empty() && dst.len() != values.len() {
            return Err(p.unknown());
        }
        Ok(Op::Atomic(Box::new(Atom {
            space: p.space(),
            address,
            op,
            ty: kind,
            dst,
            values,
            swap,
        })))
    }

    /// The registers of a vector, or of one value; of 128 bits, both halves.
    pub(super) fn elements(
        &mut self,
        body: &mut Body,
        operand: &Operand,
        ty: Ty,
        register: fn(&mut Self, &mut Body, &Operand, Ty) -> Result<Reg, String>,
    ) -> Result<Vec<Reg>, String> {
        let items = match operand {
            Operand::Vector(items) => items.as_slice(),
            other => std::slice::from_ref(other),
        };
        let mut regs = Vec::with_capacity(items.len());
        for item in items {
            let reg = register(self, body, item, ty)?;
            regs.push(reg);
            if ty.bits == 128 {
                regs.push(self.upper_half(body, item, reg)?);
            }
        }
        Ok(regs)
    }

    fn access(
        &mut self,
        body: &mut Body,
        p: Parts,
        address: &Operand,
        values: &Operand,
    ) -> Result<Access, String> {
        let ty = p.ty()?;
        let load = p.instruction.opcode != "st";
        let (address, of) = self.address(body, address)?;
        let space = match (p.space(), of) {
            (Space::Param, AddressOf::StackParam) | (Space::Param, AddressOf::Anything)
                if body.index > 0 || of == AddressOf::StackParam =>
            {
                Space::Local
            }
            (space, _) => space,
        };
        let private = of == AddressOf::StackParam;
        let list = if load {
            self.elements(body, values, ty, Self::dst_any)?
        } else {
            self.elements(body, values, ty, Self::src_any)?
        };
        if !matches!(list.len(), 1 | 2 | 4 | 8) {
            return Err(p.unknown());
        }
        let mut regs = [Reg {
            slot: 0,
            wide: false,
        }; 8];
        regs[..list.len()].copy_from_slice(&list);
        Ok(Access {
            space,
            address,
            bytes: ty.bits.min(64) / 8,
            count: list.len() as u8,
            signed: ty.signed(),
            strong: p.any(&["relaxed", "acquire", "release", "mmio"]),
            private,
            regs,
        })
    }
}

/// What an atomic of this type works on; 128 bits are two values of 64.
pub(super) fn atom_type(ty: Ty) -> Option<AtomType> {
    match ty.kind {
        Kind::Float(format) => Some(AtomType::Float(format)),
        Kind::Packed(format) => Some(AtomType::Pair(format)),
        Kind::Bits | Kind::Unsigned | Kind::Signed if ty.bits >= 16 => Some(AtomType::Int {
            bits: ty.bits.min(64),
            signed: ty.signed(),
        }),
        Kind::Bits | Kind::Unsigned | Kind::Signed | Kind::Predicate => None,
    }
}
