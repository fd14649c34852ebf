//! Loads, stores and atomics.

use super::super::operand::{AddressOf, Kind};
use super::super::{Body, Decoder};
use super::Decoded;
use super::parts::Parts;
use crate::ptx::ir::Operand;
use crate::sim::float::Format;
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
        let ty = p.ty()?;
        let kind = match ty.kind {
            Kind::Float(format) => AtomType::Float(format),
            Kind::Packed(format) => AtomType::Pair(format),
            Kind::Bits | Kind::Unsigned | Kind::Signed if ty.bits >= 32 => AtomType::Int {
                wide: ty.wide(),
                signed: ty.signed(),
            },
            Kind::Bits | Kind::Unsigned | Kind::Signed | Kind::Predicate => {
                return Err(p.unknown());
            }
        };
        let returns = p.instruction.opcode == "atom";
        let vector = p.any(&["v2", "v4"]);
        let added = op == AtomOp::Add && kind == AtomType::Float(Format::F32);
        if p.any(&["v8", "async"])
            || vector && (returns || !added || !matches!(p.space(), Space::Global))
        {
            return Err(p.unknown());
        }
        let first = usize::from(returns);
        let dst = match (returns, p.operand(0)?) {
            (false, _) | (true, Operand::Sink) => None,
            (true, operand) => Some(self.dst_any(body, operand, ty)?),
        };
        let (address, _) = self.address(body, p.operand(first)?)?;
        let values = match p.operand(first + 1)? {
            Operand::Vector(items) if vector => items.as_slice(),
            other => std::slice::from_ref(other),
        };
        let mut regs = Vec::with_capacity(values.len());
        for value in values {
            regs.push(self.src_any(body, value, ty)?);
        }
        let value = regs.remove(0);
        let swap = match op {
            AtomOp::Cas => Some(self.src_any(body, p.operand(first + 2)?, ty)?),
            AtomOp::Add
            | AtomOp::Min
            | AtomOp::Max
            | AtomOp::Inc
            | AtomOp::Dec
            | AtomOp::And
            | AtomOp::Or
            | AtomOp::Xor
            | AtomOp::Exch => None,
        };
        Ok(Op::Atomic(Box::new(Atom {
            space: p.space(),
            address,
            op,
            ty: kind,
            dst,
            value,
            further: regs,
            swap,
        })))
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
        let list: &[Operand] = match values {
            Operand::Vector(items) => items,
            other => std::slice::from_ref(other),
        };
        if !matches!(list.len(), 1 | 2 | 4 | 8) {
            return Err(p.unknown());
        }
        let mut regs = [Reg {
            slot: 0,
            wide: false,
        }; 8];
        for (reg, operand) in regs.iter_mut().zip(list) {
            *reg = if load {
                self.dst_any(body, operand, ty)?
            } else {
                self.src_any(body, operand, ty)?
            };
        }
        Ok(Access {
            space,
            address,
            bytes: ty.bits / 8,
            count: list.len() as u8,
            signed: ty.signed(),
            strong: p.any(&["relaxed", "acquire", "release", "mmio"]),
            private,
            regs,
        })
    }
}
