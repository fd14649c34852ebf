//! One instruction to one operation: modifiers read, operands typed.

mod arithmetic;
mod asynchronous;
mod bits;
mod compare;
mod control;
mod convert;
mod matrix;
mod memory;
mod parts;
mod warp;

use super::operand::Ty;
use super::{Body, Decoder};
use crate::ptx::ir::{Instruction, Operand};
use crate::sim::op::{Alu, Op};
use parts::Parts;

type Decoded = Result<Op, String>;

impl Decoder<'_> {
    pub(super) fn instruction(&mut self, body: &mut Body, instruction: &Instruction) -> Decoded {
        let p = Parts { instruction };
        match instruction.opcode.as_str() {
            "add" | "sub" | "mul" | "div" | "rem" | "min" | "max" | "and" | "or" | "xor"
            | "shl" | "shr" => self.binary(body, p),
            "addc" | "subc" | "madc" => self.carry(body, p, true),
            "mad" | "fma" => self.multiply_add(body, p),
            "mul24" | "mad24" => self.mul24(body, p),
            "sad" => self.sad(body, p),
            "neg" | "abs" | "not" | "cnot" | "brev" | "rcp" | "sqrt" | "rsqrt" | "ex2" | "lg2"
            | "sin" | "cos" | "tanh" => self.unary(body, p),
            "popc" | "clz" | "bfind" => self.bit_query(body, p),
            "bfe" => self.bit_field_extract(body, p),
            "bfi" => self.bit_field_insert(body, p),
            "fns" => self.find_nth_set(body, p),
            "prmt" => self.prmt(body, p),
            "lop3" => self.lop3(body, p),
            "shf" => self.funnel_shift(body, p),
            "dp4a" | "dp2a" => self.dot(body, p),
            "copysign" => self.copysign(body, p),
            "testp" => self.testp(body, p),
            "setp" => self.setp(body, p),
            "set" => self.set(body, p),
            "selp" => self.selp(body, p),
            "slct" => self.slct(body, p),
            "mov" => self.mov(body, p),
            "cvt" => self.cvt(body, p),
            "cvta" => self.cvta(body, p),
            "isspacep" => self.is_space(body, p),
            "ld" | "ldu" => self.load(body, p),
            "st" => self.store(body, p),
            "atom" | "red" => self.atomic(body, p),
            "shfl" => self.shfl(body, p),
            "vote" => self.vote(body, p),
            "match" => self.match_any(body, p),
            "mma" => self.mma(body, p),
            "movmatrix" => self.transpose(body, p),
            "bmsk" | "szext" => self.bit_mask(body, p),
            "redux" => self.redux(body, p),
            "elect" => self.elect(body, p),
            "activemask" => Ok(Op::Activemask {
                dst: self.dst(body, p.operand(0)?, Ty::B32)?,
            }),
            "bra" => Ok(Op::Branch {
                target: self.label(body, p.operand(0)?)?,
            }),
            "brx" => self.indexed_branch(body, p),
            "call" => self.call(body, p),
            "ret" => Ok(Op::Return),
            "exit" => Ok(Op::Exit),
            "trap" | "brkpt" => Ok(Op::Trap),
            "bar" | "barrier" => self.barrier(body, p),
            "membar" => Ok(Op::Fence),
            "fence" => self.fence(p),
            "mbarrier" => self.mbarrier(body, p),
            "cp" => self.copy(body, p),
            "wgmma" => self.warpgroup(body, p),
            "ldmatrix" | "stmatrix" => self.move_matrix(body, p),
            "setmaxnreg" => self.set_registers(p),
            "mapa" => self.map_shared(body, p),
            "getctarank" => self.rank_of(body, p),
            "prefetch" | "prefetchu" | "nanosleep" | "pmevent" | "griddepcontrol"
            | "applypriority" | "discard" => Ok(Op::Nothing),
            "createpolicy" => {
                let dst = self.dst(body, p.operand(0)?, Ty::B64)?;
                let a = self.constant(body, 0, Ty::B64).slot;
                Ok(Op::Alu(Alu::Move64 { dst, a }))
            }
            _ => Err(p.unknown()),
        }
    }

    fn three(&mut self, body: &mut Body, p: Parts, ty: Ty) -> Result<[u16; 3], String> {
        Ok([
            self.dst(body, p.operand(0)?, ty)?,
            self.src(body, p.operand(1)?, ty)?,
            self.src(body, p.operand(2)?, ty)?,
        ])
    }

    fn four(&mut self, body: &mut Body, p: Parts, ty: Ty) -> Result<[u16; 4], String> {
        let [dst, a, b] = self.three(body, p, ty)?;
        Ok([dst, a, b, self.src(body, p.operand(3)?, ty)?])
    }

    fn pair<'a>(&self, operand: &'a Operand) -> (&'a Operand, Option<&'a Operand>) {
        match operand {
            Operand::Pair(first, second) => (first, Some(second)),
            other => (other, None),
        }
    }
}
