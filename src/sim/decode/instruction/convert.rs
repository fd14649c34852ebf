//! Moves, conversions between types, and of addresses between state spaces.

use super::super::operand::{Kind, Ty, show};
use super::super::symbols::Symbol;
use super::super::{Body, Decoder};
use super::Decoded;
use super::parts::Parts;
use crate::ptx::ir::Operand;
use crate::sim::float::Small;
use crate::sim::op::{Alu, Clock, Cvt, CvtType, Op, Piece, Reg, Slot};

impl Decoder<'_> {
    pub(super) fn mov(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let ty = p.ty()?;
        let (to, from) = (p.operand(0)?, p.operand(1)?);
        if ty.kind == Kind::Predicate {
            let dst = self.dst_pred(body, to)?;
            return Ok(Op::Alu(Alu::PredMove {
                dst,
                a: self.pred(body, from)?,
            }));
        }
        if ty.bits == 128 {
            let (to, from) = (
                self.halves(body, to, Self::dst_any)?,
                self.halves(body, from, Self::src_any)?,
            );
            return Ok(Op::Alu(Alu::Move128 {
                lower: [to[0], from[0]],
                upper: [to[1], from[1]],
            }));
        }
        match (to, from) {
            (Operand::Vector(items), _) => {
                let src = self.src_any(body, from, ty)?;
                let parts = self.pieces(body, items, ty, Self::dst_any)?;
                Ok(Op::Alu(Alu::Unpack { src, parts }))
            }
            (_, Operand::Vector(items)) => {
                let dst = self.dst_any(body, to, ty)?;
                let parts = self.pieces(body, items, ty, Self::src_any)?;
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

    /// The two 64-bit registers that a 128-bit one, or a vector, stands for.
    fn halves(
        &mut self,
        body: &mut Body,
        operand: &Operand,
        register: fn(&mut Self, &mut Body, &Operand, Ty) -> Result<Reg, String>,
    ) -> Result<[Slot; 2], String> {
        let ty = match operand {
            Operand::Vector(_) => Ty::B64,
            _ => Ty {
                bits: 128,
                ..Ty::B64
            },
        };
        match self.elements(body, operand, ty, register)?.as_slice() {
            [lower, upper] if lower.wide && upper.wide => Ok([lower.slot, upper.slot]),
            _ => Err(format!("`{}` is not of 128 bits", show(operand))),
        }
    }

    /// The items of a vector as equal parts of a register of type `whole`, the lowest bits first; `register`
    /// reads or writes each.
    fn pieces(
        &mut self,
        body: &mut Body,
        items: &[Operand],
        whole: Ty,
        register: fn(&mut Self, &mut Body, &Operand, Ty) -> Result<Reg, String>,
    ) -> Result<Vec<Piece>, String> {
        let bits = whole.bits / items.len().max(1) as u8;
        let part = Ty {
            kind: Kind::Bits,
            bits,
        };
        let mut parts = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            parts.push(Piece {
                reg: register(self, body, item, part)?,
                shift: index as u8 * bits,
                bits,
            });
        }
        Ok(parts)
    }

    pub(super) fn cvt(&mut self, body: &mut Body, p: Parts) -> Decoded {
        if p.has("pack") {
            return self.cvt_pack(body, p);
        }
        if let Some(op) = self.cvt_small(body, p)? {
            return Ok(op);
        }
        let types: Vec<Ty> = p.types().collect();
        let &[to, from] = types.as_slice() else {
            return Err(p.unknown());
        };
        if p.has("rs") || p.instruction.modifiers.iter().any(|m| unknown_float(m)) {
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
            finite: p.has("satfinite"),
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

    /// `cvt.pack.sat`: the pair's type, that of what is clamped, and where a third operand goes on.
    fn cvt_pack(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let modifiers: Vec<&str> = (p.instruction.modifiers.iter())
            .map(String::as_str)
            .collect();
        let ["pack", "sat", to, "s32", rest @ ..] = modifiers.as_slice() else {
            return Err(p.unknown());
        };
        let signed = to.starts_with('s');
        let bits = match &to[1..] {
            "16" if rest.is_empty() => 16,
            "8" if *rest == ["b32"] => 8,
            "4" if *rest == ["b32"] => 4,
            "2" if *rest == ["b32"] => 2,
            _ => return Err(p.unknown()),
        };
        let dst = self.dst(body, p.operand(0)?, Ty::B32)?;
        let a = self.src(body, p.operand(1)?, Ty::B32)?;
        let b = self.src(body, p.operand(2)?, Ty::B32)?;
        let c = if rest.is_empty() {
            None
        } else {
            Some(self.src(body, p.operand(3)?, Ty::B32)?)
        };
        Ok(Op::Alu(Alu::PackSaturated {
            bits,
            signed,
            dst,
            a,
            b,
            c,
        }))
    }

    /// Conversions to and from 8-bit floats, and to tf32.
    fn cvt_small(&mut self, body: &mut Body, p: Parts) -> Result<Option<Op>, String> {
        let small = |modifier: &str| match modifier {
            "e4m3x2" => Some(Small::E4m3),
            "e5m2x2" => Some(Small::E5m2),
            _ => None,
        };
        let [.., to, from] = p.instruction.modifiers.as_slice() else {
            return Ok(None);
        };
        let relu = p.has("relu");
        let alu = match (to.as_str(), from.as_str()) {
            (to, from @ ("f32" | "f16x2")) if small(to).is_some() && p.has("satfinite") => {
                let Some(small) = small(to) else {
                    return Err(p.unknown());
                };
                let dst = self.dst(body, p.operand(0)?, Ty::B32)?;
                let a = self.src(body, p.operand(1)?, Ty::B32)?;
                let packed = from == "f16x2";
                let b = if packed {
                    a
                } else {
                    self.src(body, p.operand(2)?, Ty::B32)?
                };
                Alu::ToSmall {
                    small,
                    packed,
                    relu,
                    dst,
                    a,
                    b,
                }
            }
            ("f16x2", from) if small(from).is_some() => {
                let Some(small) = small(from) else {
                    return Err(p.unknown());
                };
                Alu::FromSmall {
                    small,
                    relu,
                    dst: self.dst(body, p.operand(0)?, Ty::B32)?,
                    a: self.src(body, p.operand(1)?, Ty::B32)?,
                }
            }
            ("tf32", "f32") => Alu::ToTf32 {
                rounding: p.rounding().ok_or_else(|| p.unknown())?,
                relu,
                finite: p.has("satfinite"),
                dst: self.dst(body, p.operand(0)?, Ty::B32)?,
                a: self.src(body, p.operand(1)?, Ty::B32)?,
            },
            _ => return Ok(None),
        };
        Ok(Some(Op::Alu(alu)))
    }

    pub(super) fn cvta(&mut self, body: &mut Body, p: Parts) -> Decoded {
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

    pub(super) fn is_space(&mut self, body: &mut Body, p: Parts) -> Decoded {
        let dst = self.dst_pred(body, p.operand(0)?)?;
        let a = self.src_any(body, p.operand(1)?, Ty::B64)?;
        Ok(Op::Alu(Alu::Isspacep {
            space: p.space(),
            dst,
            a,
        }))
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
