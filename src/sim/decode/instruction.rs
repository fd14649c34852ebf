//! One instruction to one operation: modifiers read, operands typed.

use crate::ptx::ir::{Immediate, Instruction, Operand};

use super::super::float::{Format, Rounding};
use super::super::op::{
    Access, Alu, Atom, AtomOp, AtomType, Barrier, BarrierKind, BitQuery, Call, CarryOp, Clock,
    Combine, Compare, CompareType, Cvt, CvtType, FloatMode, FloatOp, FloatTest, FloatUnary, IntOp,
    IntUnary, Mma, Op, Passed, Piece, PrmtMode, ReduxOp, Reg, ShflMode, Space, VoteMode,
};
use super::operand::{AddressOf, Kind, Ty, show};
use super::symbols::Symbol;
use super::{Body, Decoder, Place};

type Decoded = Result<Op, String>;

/// An instruction's modifiers and operands, with the usual questions.
#[derive(Clone, Copy)]
struct Parts<'a> {
    instruction: &'a Instruction,
}

impl<'a> Parts<'a> {
    fn has(self, modifier: &str) -> bool {
        self.instruction.has(modifier)
    }

    fn any(self, modifiers: &[&str]) -> bool {
        modifiers.iter().any(|m| self.has(m))
    }

    fn types(self) -> impl Iterator<Item = Ty> + 'a {
        self.instruction
            .modifiers
            .iter()
            .filter_map(|m| Ty::parse(m))
    }

    /// The last type among the modifiers: the instruction's, or a conversion's source.
    fn ty(self) -> Result<Ty, String> {
        self.types().last().ok_or_else(|| self.unknown())
    }

    fn operand(self, index: usize) -> Result<&'a Operand, String> {
        self.instruction
            .operands
            .get(index)
            .ok_or_else(|| format!("`{}` needs more operands", self.instruction.mnemonic()))
    }

    fn len(self) -> usize {
        self.instruction.operands.len()
    }

    fn unknown(self) -> String {
        format!(
            "the simulator does not know `{}`",
            self.instruction.mnemonic()
        )
    }

    fn rounding(self) -> Option<Rounding> {
        self.instruction.modifiers.iter().find_map(|m| {
            Some(match m.as_str() {
                "rn" | "rni" => Rounding::NearestEven,
                "rna" => Rounding::NearestAway,
                "rz" | "rzi" => Rounding::Zero,
                "rm" | "rmi" => Rounding::Down,
                "rp" | "rpi" => Rounding::Up,
                _ => return None,
            })
        })
    }

    fn mode(self) -> FloatMode {
        FloatMode {
            rounding: self.rounding().unwrap_or(Rounding::NearestEven),
            ftz: self.has("ftz"),
            sat: self.has("sat"),
        }
    }

    fn space(self) -> Space {
        self.instruction
            .modifiers
            .iter()
            .find_map(|m| {
                Some(match m.split("::").next().unwrap_or(m) {
                    "global" => Space::Global,
                    "shared" => Space::Shared,
                    "local" => Space::Local,
                    "const" => Space::Const,
                    "param" => Space::Param,
                    _ => return None,
                })
            })
            .unwrap_or(Space::Generic)
    }

    fn compare(self) -> Result<Compare, String> {
        self.instruction
            .modifiers
            .iter()
            .find_map(|m| {
                Some(match m.as_str() {
                    "eq" => Compare::Eq,
                    "ne" => Compare::Ne,
                    "lt" | "lo" => Compare::Lt,
                    "le" | "ls" => Compare::Le,
                    "gt" | "hi" => Compare::Gt,
                    "ge" | "hs" => Compare::Ge,
                    "equ" => Compare::Equ,
                    "neu" => Compare::Neu,
                    "ltu" => Compare::Ltu,
                    "leu" => Compare::Leu,
                    "gtu" => Compare::Gtu,
                    "geu" => Compare::Geu,
                    "num" => Compare::Num,
                    "nan" => Compare::Nan,
                    _ => return None,
                })
            })
            .ok_or_else(|| self.unknown())
    }

    fn compare_type(self, ty: Ty) -> Result<CompareType, String> {
        Ok(match ty.kind {
            Kind::Float(format) => CompareType::Float {
                format,
                ftz: self.has("ftz"),
            },
            // `lo`, `ls`, `hi`, `hs` are unsigned whatever the type says.
            Kind::Bits | Kind::Unsigned | Kind::Signed => CompareType::Int {
                width: ty.width(),
                signed: ty.signed() && !self.any(&["lo", "ls", "hi", "hs"]),
            },
            Kind::Packed(_) | Kind::Predicate => return Err(self.unknown()),
        })
    }

    fn combine(self) -> Option<Combine> {
        if self.has("and") {
            Some(Combine::And)
        } else if self.has("or") {
            Some(Combine::Or)
        } else if self.has("xor") {
            Some(Combine::Xor)
        } else {
            None
        }
    }
}

impl Decoder<'_> {
    pub(super) fn instruction(&mut self, body: &mut Body, instruction: &Instruction) -> Decoded {
        let p = Parts { instruction };
        match instruction.opcode.as_str() {
            "add" | "sub" | "mul" | "div" | "rem" | "min" | "max" | "and" | "or" | "xor"
            | "shl" | "shr" => self.binary(body, p),
            "addc" | "subc" | "madc" => self.carry(body, p, true),
            "mad" | "fma" => self.multiply_add(body, p),
            "mul24" | "mad24" => self.mul24(body, p),
            "sad" => {
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
            "neg" | "abs" | "not" | "cnot" | "brev" | "rcp" | "sqrt" | "rsqrt" | "ex2" | "lg2"
            | "sin" | "cos" | "tanh" => self.unary(body, p),
            "popc" | "clz" | "bfind" => self.bit_query(body, p),
            "bfe" => {
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
            "bfi" => {
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
            "fns" => {
                let [dst, mask, base, offset] = self.four(body, p, Ty::B32)?;
                Ok(Op::Alu(Alu::Fns {
                    dst,
                    mask,
                    base,
                    offset,
                }))
            }
            "prmt" => self.prmt(body, p),
            "lop3" => self.lop3(body, p),
            "shf" => {
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
            "dp4a" | "dp2a" => self.dot(body, p),
            "copysign" => {
                let ty = p.ty()?;
                let [dst, a, b] = self.three(body, p, ty)?;
                Ok(Op::Alu(Alu::Copysign {
                    wide: ty.wide(),
                    dst,
                    a,
                    b,
                }))
            }
            "testp" => self.testp(body, p),
            "setp" => self.setp(body, p),
            "set" => self.set(body, p),
            "selp" => {
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
            "slct" => self.slct(body, p),
            "mov" => self.mov(body, p),
            "cvt" => self.cvt(body, p),
            "cvta" => {
                let ty = p.ty()?;
                let dst = self.dst_any(body, p.operand(0)?, ty)?;
                let a = self.src_any(body, p.operand(1)?, ty)?;
                Ok(Op::Alu(Alu::Cvta {
                    space: p.space(),
                    to_generic: !p.has("to"),
                    dst,
                    a,
                }))
            }
            "isspacep" => {
                let dst = self.dst_pred(body, p.operand(0)?)?;
                let a = self.src_any(body, p.operand(1)?, Ty::B64)?;
                Ok(Op::Alu(Alu::Isspacep {
                    space: p.space(),
                    dst,
                    a,
                }))
            }
            "ld" | "ldu" => self.load(body, p),
            "st" => self.store(body, p),
            "atom" | "red" => self.atomic(body, p),
            "shfl" => self.shfl(body, p),
            "vote" => self.vote(body, p),
            "match" => self.match_any(body, p),
            "mma" => self.mma(body, p),
            "redux" => self.redux(body, p),
            "elect" => {
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
            "fence"
                if !p
                    .instruction
                    .modifiers
                    .iter()
                    .any(|m| m.starts_with("mbarrier")) =>
            {
                Ok(Op::Fence)
            }
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

    fn binary(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let opcode = p.instruction.opcode.as_str();
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
                if p.any(&["xorsign", "abs", "relu"]) {
                    return Err(p.unknown());
                }
                let op = match (opcode, p.has("NaN")) {
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

    fn carry(&mut self, body: &mut Body, p: Parts, carry_in: bool) -> Decoded {
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

    fn multiply_add(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let ty = p.ty()?;
        match ty.kind {
            Kind::Float(format) => {
                let [dst, a, b, c] = self.four(body, p, ty)?;
                let (mode, relu) = (p.mode(), p.has("relu"));
                let plain =
                    mode.rounding == Rounding::NearestEven && !mode.ftz && !mode.sat && !relu;
                Ok(if plain && format == Format::F32 {
                    Op::Alu(Alu::FFma { dst, a, b, c })
                } else {
                    Op::Alu(Alu::FloatFma {
                        format,
                        mode,
                        relu,
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
                    relu: p.has("relu"),
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

    fn mul24(&mut self, body: &mut Body, p: Parts) -> Decoded {
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

    fn unary(&mut self, body: &mut Body, p: Parts) -> Decoded {
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

    fn bit_query(&mut self, body: &mut Body, p: Parts) -> Decoded {
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

    fn prmt(&mut self, body: &mut Body, p: Parts) -> Decoded {
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

    fn lop3(&mut self, body: &mut Body, p: Parts) -> Decoded {
        if p.any(&["or", "and"]) {
            return Err(p.unknown());
        }
        let [dst, a, b, c] = self.four(body, p, Ty::B32)?;
        match p.operand(4)? {
            Operand::Immediate(Immediate::Int(lut)) if (0..256).contains(lut) => {
                Ok(Op::Alu(Alu::Lop3 {
                    lut: *lut as u8,
                    dst,
                    a,
                    b,
                    c,
                }))
            }
            other => Err(format!(
                "lop3 wants a table between 0 and 0xFF, not `{}`",
                show(other)
            )),
        }
    }

    fn dot(&mut self, body: &mut Body, p: Parts) -> Decoded {
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

    fn testp(&mut self, body: &mut Body, p: Parts) -> Decoded {
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

    fn pair<'a>(&self, operand: &'a Operand) -> (&'a Operand, Option<&'a Operand>) {
        match operand {
            Operand::Pair(first, second) => (first, Some(second)),
            other => (other, None),
        }
    }

    fn combined(
        &mut self,
        body: &mut Body,
        p: Parts,
    ) -> Result<Option<(Combine, super::super::op::Pred)>, String> {
        match (p.combine(), p.instruction.operands.get(3)) {
            (Some(op), Some(operand)) => Ok(Some((op, self.pred(body, operand)?))),
            (None, None) => Ok(None),
            _ => Err(p.unknown()),
        }
    }

    fn setp(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let ty = p.ty()?;
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

    fn set(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let mut types = p.types();
        let (Some(to), Some(from)) = (types.next(), types.next()) else {
            return Err(p.unknown());
        };
        let float = match to {
            Ty {
                kind: Kind::Float(Format::F32),
                ..
            } => true,
            Ty {
                kind: Kind::Unsigned | Kind::Signed,
                bits: 32,
            } => false,
            _ => return Err(p.unknown()),
        };
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
            float,
            dst,
            a,
            b,
        }))
    }

    fn slct(&mut self, body: &mut Body, p: Parts) -> Decoded {
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

    fn mov(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let ty = p.ty()?;
        let (to, from) = (p.operand(0)?, p.operand(1)?);
        if ty.kind == Kind::Predicate {
            let dst = self.dst_pred(body, to)?;
            return Ok(Op::Alu(Alu::PredMove {
                dst,
                a: self.pred(body, from)?,
            }));
        }
        match (to, from) {
            (Operand::Vector(items), _) => {
                let src = self.src_any(body, from, ty)?;
                let bits = ty.bits / items.len().max(1) as u8;
                let part = Ty {
                    kind: Kind::Bits,
                    bits,
                };
                let mut parts = Vec::new();
                for (index, item) in items.iter().enumerate() {
                    let reg = self.dst_any(body, item, part)?;
                    parts.push(Piece {
                        reg,
                        shift: index as u8 * bits,
                        bits,
                    });
                }
                Ok(Op::Alu(Alu::Unpack { src, parts }))
            }
            (_, Operand::Vector(items)) => {
                let dst = self.dst_any(body, to, ty)?;
                let bits = ty.bits / items.len().max(1) as u8;
                let part = Ty {
                    kind: Kind::Bits,
                    bits,
                };
                let mut parts = Vec::new();
                for (index, item) in items.iter().enumerate() {
                    let reg = self.src_any(body, item, part)?;
                    parts.push(Piece {
                        reg,
                        shift: index as u8 * bits,
                        bits,
                    });
                }
                Ok(Op::Alu(Alu::Pack { dst, parts }))
            }
            (_, Operand::Name(name)) if clock(name).is_some() => {
                let dst = self.dst_any(body, to, ty)?;
                match clock(name) {
                    Some(clock) => Ok(Op::ReadClock { clock, dst }),
                    None => Err(p.unknown()),
                }
            }
            _ => {
                let stack = match from {
                    Operand::Name(name) => Some((name, 0)),
                    Operand::Offset { base, offset } => Some((base, *offset)),
                    _ => None,
                };
                if let Some((name, extra)) = stack
                    && let Some(Symbol::Stack { offset, .. }) = self.symbol(body, name)
                {
                    let dst = self.dst_any(body, to, ty)?;
                    return Ok(Op::StackAddress {
                        dst,
                        offset: (i64::from(offset) + extra) as u32,
                    });
                }
                let dst = self.dst(body, to, ty)?;
                let a = self.src(body, from, ty)?;
                Ok(if ty.wide() {
                    Op::Alu(Alu::Move64 { dst, a })
                } else {
                    Op::Alu(Alu::Move32 { dst, a })
                })
            }
        }
    }

    fn cvt(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let types: Vec<Ty> = p.types().collect();
        let &[to, from] = types.as_slice() else {
            return Err(p.unknown());
        };
        if p.any(&["pack", "satfinite", "rs"])
            || p.instruction.modifiers.iter().any(|m| unknown_float(m))
        {
            return Err(p.unknown());
        }
        let side = |ty: Ty| -> Result<CvtType, String> {
            Ok(match ty.kind {
                Kind::Float(format) | Kind::Packed(format) => CvtType::Float(format),
                Kind::Bits | Kind::Unsigned | Kind::Signed => CvtType::Int {
                    bits: ty.bits,
                    signed: ty.signed(),
                },
                Kind::Predicate => return Err(p.unknown()),
            })
        };
        let cvt = Cvt {
            to: side(to)?,
            from: side(from)?,
            rounding: p.rounding(),
            integral: p.any(&["rni", "rzi", "rmi", "rpi"]),
            ftz: p.has("ftz"),
            sat: p.has("sat"),
            relu: p.has("relu"),
        };
        if matches!(to.kind, Kind::Packed(_)) {
            let dst = self.dst(body, p.operand(0)?, to)?;
            let (a, b) = (
                self.src(body, p.operand(1)?, from)?,
                self.src(body, p.operand(2)?, from)?,
            );
            return Ok(Op::Alu(Alu::ConvertPacked { cvt, dst, a, b }));
        }
        let dst = self.dst_any(body, p.operand(0)?, to)?;
        let a = self.src_any(body, p.operand(1)?, from)?;
        Ok(Op::Alu(Alu::Convert { cvt, dst, a }))
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

    fn load(&mut self, body: &mut Body, p: Parts) -> Decoded {
        Ok(Op::Load(Box::new(self.access(
            body,
            p,
            p.operand(1)?,
            p.operand(0)?,
        )?)))
    }

    fn store(&mut self, body: &mut Body, p: Parts) -> Decoded {
        if p.any(&["async", "bulk"]) {
            return Err(p.unknown());
        }
        Ok(Op::Store(Box::new(self.access(
            body,
            p,
            p.operand(0)?,
            p.operand(1)?,
        )?)))
    }

    fn atomic(&mut self, body: &mut Body, p: Parts) -> Decoded {
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
            Kind::Bits | Kind::Unsigned | Kind::Signed if ty.bits >= 32 => AtomType::Int {
                wide: ty.wide(),
                signed: ty.signed(),
            },
            Kind::Bits | Kind::Unsigned | Kind::Signed | Kind::Packed(_) | Kind::Predicate => {
                return Err(p.unknown());
            }
        };
        if p.any(&["v2", "v4", "v8", "async"]) {
            return Err(p.unknown());
        }
        let returns = p.instruction.opcode == "atom";
        let first = usize::from(returns);
        let dst = match (returns, p.operand(0)?) {
            (false, _) | (true, Operand::Sink) => None,
            (true, operand) => Some(self.dst_any(body, operand, ty)?),
        };
        let (address, _) = self.address(body, p.operand(first)?)?;
        let value = self.src_any(body, p.operand(first + 1)?, ty)?;
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
            swap,
        })))
    }

    fn shfl(&mut self, body: &mut Body, p: Parts) -> Decoded {
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

    /// The shape and the types that most kernels use; other ones are unknown.
    fn mma(&mut self, body: &mut Body, p: Parts) -> Decoded {
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

    fn vote(&mut self, body: &mut Body, p: Parts) -> Decoded {
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

    fn match_any(&mut self, body: &mut Body, p: Parts) -> Decoded {
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

    fn redux(&mut self, body: &mut Body, p: Parts) -> Decoded {
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

    /// A label's number; `resolve_labels` turns it into a program counter.
    fn label(&mut self, body: &Body, operand: &Operand) -> Result<u32, String> {
        match operand {
            Operand::Name(name) => match body.lookup(name) {
                Some(Symbol::Label(id)) => Ok(id as u32),
                _ => Err(format!("no label `{name}` in scope")),
            },
            other => Err(format!("`{}` is no label", show(other))),
        }
    }

    fn indexed_branch(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let index = self.src(body, p.operand(0)?, Ty::B32)?;
        let Operand::Name(table) = p.operand(1)? else {
            return Err(p.unknown());
        };
        let names = body
            .tables
            .get(table)
            .cloned()
            .ok_or_else(|| format!("no branch table `{table}` before here"))?;
        let mut targets = Vec::new();
        for name in names {
            targets.push(self.label(body, &Operand::Name(name))?);
        }
        Ok(Op::BranchIndexed { index, targets })
    }

    fn call(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let operands = &p.instruction.operands;
        let (results, name, arguments): (&[Operand], &Operand, &[Operand]) =
            match operands.as_slice() {
                [Operand::Tuple(r), name, Operand::Tuple(a), ..] => (r, name, a),
                [name, Operand::Tuple(a), ..] => (&[], name, a),
                [Operand::Tuple(r), name, ..] => (r, name, &[]),
                [name, ..] => (&[], name, &[]),
                [] => return Err(p.unknown()),
            };
        let Operand::Name(name) = name else {
            return Err(p.unknown());
        };
        let Some(function) = self.find(name) else {
            return Err(format!(
                "the simulator does not know calls through `{name}`: no such function in the module"
            ));
        };
        let index = self.declare(function);
        let (takes, gives) = (
            self.functions[index].arguments.clone(),
            self.functions[index].results.clone(),
        );
        if takes.len() != arguments.len() || gives.len() != results.len() {
            return Err(format!(
                "`{name}` takes {} arguments and gives {} results",
                takes.len(),
                gives.len()
            ));
        }
        let mut passed = Vec::new();
        for (operand, place) in arguments.iter().zip(&takes) {
            passed.push(self.passed(body, operand, place, true)?);
        }
        let mut returned = Vec::new();
        for (operand, place) in results.iter().zip(&gives) {
            returned.push(self.passed(body, operand, place, false)?);
        }
        Ok(Op::Call(Box::new(Call {
            function: index,
            arguments: passed,
            results: returned,
        })))
    }

    /// How one argument travels; for results the callee's place is the source.
    fn passed(
        &mut self,
        body: &mut Body,
        operand: &Operand,
        place: &Place,
        forth: bool,
    ) -> Result<Passed, String> {
        match place {
            Place::Stack { offset, bytes } => match operand {
                Operand::Name(name) => match self.symbol(body, name) {
                    Some(Symbol::Stack { offset: here, .. }) => {
                        let (from, to) = if forth {
                            (here, *offset)
                        } else {
                            (*offset, here)
                        };
                        Ok(Passed::Stack {
                            from,
                            to,
                            bytes: *bytes,
                        })
                    }
                    _ => Err(format!("`{name}` is no .param variable of this function")),
                },
                other => Err(format!("`{}` cannot be passed through .param", show(other))),
            },
            Place::Register(reg) => {
                let ty = if reg.wide { Ty::B64 } else { Ty::B32 };
                let (from, to) = if forth {
                    (self.src_any(body, operand, ty)?, *reg)
                } else {
                    (*reg, self.dst_any(body, operand, ty)?)
                };
                if from.wide == to.wide {
                    Ok(Passed::Register { from, to })
                } else {
                    Err(format!(
                        "`{}` has not the width of the parameter",
                        show(operand)
                    ))
                }
            }
            Place::Predicate(slot) => {
                let here = self.pred(body, operand)?;
                if here.negated {
                    return Err(format!("`{}` cannot be passed", show(operand)));
                }
                let (from, to) = if forth {
                    (here.slot, *slot)
                } else {
                    (*slot, here.slot)
                };
                Ok(Passed::Predicate { from, to })
            }
        }
    }

    fn barrier(&mut self, body: &mut Body, p: Parts) -> Decoded {
        if p.has("cluster") {
            return Err(p.unknown());
        }
        if p.has("warp") {
            return Ok(Op::WarpSync {
                members: self.src(body, p.operand(0)?, Ty::B32)?,
            });
        }
        let aligned = p.instruction.opcode == "bar" || p.has("aligned");
        let kind = if p.has("arrive") {
            BarrierKind::Arrive
        } else if p.has("popc") {
            BarrierKind::Popc
        } else if p.has("and") {
            BarrierKind::And
        } else if p.has("or") {
            BarrierKind::Or
        } else if p.has("sync") {
            BarrierKind::Sync
        } else {
            return Err(p.unknown());
        };
        match kind {
            BarrierKind::Sync | BarrierKind::Arrive => {
                let id = self.src(body, p.operand(0)?, Ty::B32)?;
                let threads = match p.instruction.operands.get(1) {
                    Some(operand) => Some(self.src(body, operand, Ty::B32)?),
                    None => None,
                };
                Ok(Op::Barrier(Box::new(Barrier {
                    kind,
                    id,
                    threads,
                    aligned,
                    input: None,
                    dst: None,
                })))
            }
            BarrierKind::Popc | BarrierKind::And | BarrierKind::Or => {
                let dst = if kind == BarrierKind::Popc {
                    self.dst(body, p.operand(0)?, Ty::B32)?
                } else {
                    self.dst_pred(body, p.operand(0)?)?
                };
                let id = self.src(body, p.operand(1)?, Ty::B32)?;
                let threads = if p.len() > 3 {
                    Some(self.src(body, p.operand(2)?, Ty::B32)?)
                } else {
                    None
                };
                let input = Some(self.pred(body, p.operand(p.len() - 1)?)?);
                Ok(Op::Barrier(Box::new(Barrier {
                    kind,
                    id,
                    threads,
                    aligned,
                    input,
                    dst: Some(dst),
                })))
            }
        }
    }
}

fn clock(name: &str) -> Option<Clock> {
    Some(match name {
        "%clock" => Clock::Low,
        "%clock64" => Clock::Whole,
        "%clock_hi" => Clock::High,
        "%globaltimer" => Clock::Timer64,
        "%globaltimer_lo" => Clock::TimerLo,
        "%globaltimer_hi" => Clock::TimerHi,
        _ => return None,
    })
}

/// Narrow float types that the first tier does not have.
fn unknown_float(modifier: &str) -> bool {
    matches!(
        modifier,
        "tf32" | "e4m3x2" | "e5m2x2" | "e2m1x2" | "e2m3x2" | "e3m2x2" | "ue8m0x2"
    )
}
