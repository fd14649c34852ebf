//! Products of matrices on the tensor cores, and the moves that feed them.

use super::super::operand::Ty;
use super::super::{Body, Decoder};
use super::Decoded;
use super::parts::Parts;
use crate::ptx::ir::{Immediate, Operand};
use crate::sim::op::{
    AsyncOp, MatrixMove, Mma, MmaDouble, Op, Operands, Product, Side, Slot, Sums,
};

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

    /// `mma.sync` of 16 rows, or 8, and 8 columns.
    pub(super) fn mma(&mut self, body: &mut Body, p: Parts) -> Decoded {
        if p.has("f64") {
            return self.mma_double(body, p);
        }
        let saturates = p.has("satfinite");
        let modifiers: Vec<&str> = (p.instruction.modifiers.iter())
            .map(String::as_str)
            .filter(|modifier| *modifier != "satfinite")
            .collect();
        let [
            "sync",
            "aligned",
            shape,
            "row",
            "col",
            d_type,
            a_type,
            b_type,
            c_type,
        ] = modifiers.as_slice()
        else {
            return Err(p.unknown());
        };
        let (Some(a_type), Some(b_type)) = (operands(a_type), operands(b_type)) else {
            return Err(p.unknown());
        };
        let (Some(d_type), Some(c_type)) = (sums(d_type), sums(c_type)) else {
            return Err(p.unknown());
        };
        let integers = |ty| matches!(ty, Operands::S8 | Operands::U8);
        // Eight rows: of integers only.
        let (halves, depth) = match (shape.strip_prefix("m16n8k"), *shape) {
            (Some(depth), _) => (2, depth.parse().map_err(|_| p.unknown())?),
            (None, "m8n8k16") if integers(a_type) => (1, 16),
            (None, _) => return Err(p.unknown()),
        };
        let depth: usize = depth;
        let rows = depth * a_type.bytes() / 16;
        let known = matches!(rows, 1 | 2)
            && depth * a_type.bytes() == 16 * rows
            && (a_type == b_type
                || integers(a_type) && integers(b_type)
                || a_type.bytes() == 1 && !integers(a_type) && !integers(b_type))
            && a_type.bytes() == b_type.bytes()
            && integers(a_type) == (d_type == Sums::S32)
            && integers(a_type) == (c_type == Sums::S32)
            && (a_type == Operands::F16
                || a_type.bytes() == 1
                || (d_type, c_type) == (Sums::F32, Sums::F32));
        if !known {
            return Err(p.unknown());
        }
        let parts = |ty| halves * if ty == Sums::F16 { 1 } else { 2 };
        Ok(Op::Mma {
            product: Box::new(Mma {
                a_type,
                b_type,
                c_type,
                d_type,
                saturates,
                d: self.registers_of(body, p, 0, parts(d_type), Ty::B32)?,
                a: self.registers_of(body, p, 1, halves * rows, Ty::B32)?,
                b: self.registers_of(body, p, 2, rows, Ty::B32)?,
                c: self.registers_of(body, p, 3, parts(c_type), Ty::B32)?,
            }),
            members: self.constant(body, u64::from(u32::MAX), Ty::B32).slot,
        })
    }

    fn mma_double(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let modifiers: Vec<&str> = (p.instruction.modifiers.iter())
            .map(String::as_str)
            .filter(|modifier| *modifier != "rn")
            .collect();
        let [
            "sync",
            "aligned",
            shape,
            "row",
            "col",
            "f64",
            "f64",
            "f64",
            "f64",
        ] = modifiers.as_slice()
        else {
            return Err(p.unknown());
        };
        let (halves, quarters) = match *shape {
            "m8n8k4" => (1, 1),
            "m16n8k4" => (2, 1),
            "m16n8k8" => (2, 2),
            "m16n8k16" => (2, 4),
            _ => return Err(p.unknown()),
        };
        let mut of = |at: usize, wanted: usize| self.registers_of(body, p, at, wanted, Ty::B64);
        let product = Box::new(MmaDouble {
            d: of(0, 2 * halves)?,
            a: of(1, halves * quarters)?,
            b: of(2, quarters)?,
            c: of(3, 2 * halves)?,
        });
        Ok(Op::MmaDouble {
            product,
            members: self.constant(body, u64::from(u32::MAX), Ty::B32).slot,
        })
    }

    /// A vector of registers, or one of them alone; the first operand is written.
    fn registers_of(
        &mut self,
        body: &mut Body,
        p: Parts,
        at: usize,
        wanted: usize,
        ty: Ty,
    ) -> Result<Vec<Slot>, String> {
        let items = match p.operand(at)? {
            Operand::Vector(items) => items.as_slice(),
            other => std::slice::from_ref(other),
        };
        if items.len() != wanted {
            return Err(format!(
                "`{}` wants {wanted} registers for its operand {}, not {}",
                p.instruction.mnemonic(),
                at + 1,
                items.len()
            ));
        }
        let mut slots = Vec::new();
        for item in items {
            slots.push(if at == 0 {
                self.dst(body, item, ty)?
            } else {
                self.src(body, item, ty)?
            });
        }
        Ok(slots)
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
        let known = |ty| {
            operands(ty).filter(|ty| !matches!(ty, Operands::Tf32 | Operands::S8 | Operands::U8))
        };
        let (Some(a_type), Some(b_type)) = (known(a_type), known(b_type)) else {
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
        let wanted = usize::from(columns) / if halves { 4 } else { 2 };
        let d = self.registers_of(body, p, 0, wanted, Ty::B32)?;
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

    /// `movmatrix`
    pub(super) fn transpose(&mut self, body: &mut Body, p: Parts) -> Decoded {
        if !p.has("m8n8") || !p.has("trans") || !p.has("b16") {
            return Err(p.unknown());
        }
        Ok(Op::Transpose {
            dst: self.dst(body, p.operand(0)?, Ty::B32)?,
            a: self.src(body, p.operand(1)?, Ty::B32)?,
            members: self.constant(body, u64::from(u32::MAX), Ty::B32).slot,
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
        "tf32" => Operands::Tf32,
        "s8" => Operands::S8,
        "u8" => Operands::U8,
        _ => return None,
    })
}

fn sums(ty: &str) -> Option<Sums> {
    Some(match ty {
        "f32" => Sums::F32,
        "f16" => Sums::F16,
        "s32" => Sums::S32,
        _ => return None,
    })
}
