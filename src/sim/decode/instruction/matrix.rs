//! Products of matrices on the tensor cores, and the moves that feed them.

use super::super::operand::Ty;
use super::super::{Body, Decoder};
use super::Decoded;
use super::parts::Parts;
use crate::ptx::ir::{Immediate, Operand};
use crate::sim::op::{AsyncOp, MatrixMove, Op, Operands, Product, Side, Slot};

impl Decoder<'_> {
    /// `wgmma.…`
    pub(super) fn warpgroup(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let op = match p.instruction.modifiers.first().map(String::as_str) {
            Some("fence") => AsyncOp::ProductFence,
            Some("commit_group") => AsyncOp::ProductCommit,
            Some("wait_group") => match p.operand(0)? {
                Operand::Immediate(Immediate::Int(pending)) => AsyncOp::ProductWait {
                    pending: *pending as u32,
                },
                _ => return Err(p.unknown()),
            },
            Some("mma_async") => AsyncOp::Product(Box::new(self.product(body, p)?)),
            _ => return Err(p.unknown()),
        };
        Ok(Op::Async(Box::new(op)))
    }

    fn product(&mut self, body: &mut Body, p: Parts) -> Result<Product, String> {
        let modifiers: Vec<&str> = (p.instruction.modifiers.iter())
            .map(String::as_str)
            .collect();
        let [
            "mma_async",
            "sync",
            "aligned",
            shape,
            d_type,
            a_type,
            b_type,
        ] = modifiers.as_slice()
        else {
            return Err(p.unknown());
        };
        let (Some(a_type), Some(b_type)) = (operands(a_type), operands(b_type)) else {
            return Err(p.unknown());
        };
        let depth = 32 / a_type.bytes();
        let columns: u16 = shape
            .strip_prefix("m64n")
            .and_then(|rest| rest.strip_suffix(&format!("k{depth}")))
            .and_then(|n| n.parse().ok())
            .filter(|n: &u16| n.is_multiple_of(8) && (8..=256).contains(n))
            .ok_or_else(|| p.unknown())?;
        let halves = match *d_type {
            "f32" => false,
            "f16" if a_type != Operands::Bf16 => true,
            _ => return Err(p.unknown()),
        };
        let Operand::Vector(items) = p.operand(0)? else {
            return Err(p.unknown());
        };
        let wanted = usize::from(columns) / if halves { 4 } else { 2 };
        if items.len() != wanted {
            return Err(format!(
                "`{}` wants {wanted} accumulator registers, not {}",
                p.instruction.mnemonic(),
                items.len()
            ));
        }
        let mut d: Vec<Slot> = Vec::new();
        for item in items {
            d.push(self.dst(body, item, Ty::B32)?);
        }
        let a = match p.operand(1)? {
            Operand::Vector(items) => {
                let [a, b, c, d] = items.as_slice() else {
                    return Err(p.unknown());
                };
                Side::Registers([
                    self.src(body, a, Ty::B32)?,
                    self.src(body, b, Ty::B32)?,
                    self.src(body, c, Ty::B32)?,
                    self.src(body, d, Ty::B32)?,
                ])
            }
            operand => Side::Descriptor(self.src(body, operand, Ty::B64)?),
        };
        let b = self.src(body, p.operand(2)?, Ty::B64)?;
        let adds = self.pred(body, p.operand(3)?)?;
        let number = |at: usize| match p.operand(at)? {
            Operand::Immediate(Immediate::Int(value)) => Ok(*value),
            Operand::Negated(inner) => match inner.as_ref() {
                Operand::Immediate(Immediate::Int(value)) => Ok(-value),
                _ => Err(p.unknown()),
            },
            _ => Err(p.unknown()),
        };
        let sign = |at: usize| match number(at)? {
            1 => Ok(false),
            -1 => Ok(true),
            _ => Err(p.unknown()),
        };
        let transposed = |at: usize| {
            if a_type.bytes() == 1 {
                return Ok(false);
            }
            match number(at)? {
                0 => Ok(false),
                1 => Ok(true),
                _ => Err(p.unknown()),
            }
        };
        let (negate_a, negate_b) = (sign(4)?, sign(5)?);
        let (transpose_a, transpose_b) = match a {
            Side::Registers(_) => (false, transposed(6)?),
            Side::Descriptor(_) => (transposed(6)?, transposed(7)?),
        };
        Ok(Product {
            columns,
            a_type,
            b_type,
            halves,
            d,
            a,
            b,
            adds,
            negate_a,
            negate_b,
            transpose_a,
            transpose_b,
        })
    }

    /// `ldmatrix`, `stmatrix`.
    pub(super) fn move_matrix(&mut self, body: &mut Body, p: Parts) -> Decoded {
        if !p.has("m8n8") || !p.has("b16") {
            return Err(p.unknown());
        }
        let store = p.instruction.opcode == "stmatrix";
        let (address, values) = if store { (0, 1) } else { (1, 0) };
        let place = self.shared_place(body, p.operand(address)?, p.space())?;
        let values = match p.operand(values)? {
            Operand::Vector(items) => items.as_slice(),
            other => std::slice::from_ref(other),
        };
        let count = if p.has("x1") {
            1
        } else if p.has("x2") {
            2
        } else if p.has("x4") {
            4
        } else {
            return Err(p.unknown());
        };
        if values.len() != count {
            return Err(format!(
                "`{}` wants {count} registers",
                p.instruction.mnemonic()
            ));
        }
        let mut regs = [0; 4];
        for (reg, operand) in regs.iter_mut().zip(values) {
            *reg = if store {
                self.src(body, operand, Ty::B32)?
            } else {
                self.dst(body, operand, Ty::B32)?
            };
        }
        Ok(Op::MoveMatrix(Box::new(MatrixMove {
            place,
            store,
            transposed: p.has("trans"),
            count: count as u8,
            regs,
        })))
    }
}

fn operands(ty: &str) -> Option<Operands> {
    Some(match ty {
        "f16" => Operands::F16,
        "bf16" => Operands::Bf16,
        "e4m3" => Operands::E4m3,
        "e5m2" => Operands::E5m2,
        _ => return None,
    })
}
