//! Operands of an instruction to slots, addresses and predicates.

use crate::ptx::ir::{Address as IrAddress, Immediate, Instruction, Operand};

use super::super::float::Format;
use super::super::op::{Address, Base, Depends, Init, Pred, Reg, Slot, Special, Width};
use super::symbols::Symbol;
use super::{Body, Decoder};

/// A PTX scalar type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ty {
    pub kind: Kind,
    pub bits: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bits,
    Unsigned,
    Signed,
    Float(Format),
    /// Two halves of this format in 32 bits.
    Packed(Format),
    Predicate,
}

impl Ty {
    pub(super) const B32: Self = Self {
        kind: Kind::Bits,
        bits: 32,
    };
    pub(super) const B64: Self = Self {
        kind: Kind::Bits,
        bits: 64,
    };

    pub(super) fn parse(modifier: &str) -> Option<Self> {
        let (kind, bits) = match modifier {
            "pred" => (Kind::Predicate, 1),
            "f16" => (Kind::Float(Format::F16), 16),
            "bf16" => (Kind::Float(Format::Bf16), 16),
            "f32" => (Kind::Float(Format::F32), 32),
            "f64" => (Kind::Float(Format::F64), 64),
            "f16x2" => (Kind::Packed(Format::F16), 32),
            "bf16x2" => (Kind::Packed(Format::Bf16), 32),
            _ => {
                let kind = match modifier.as_bytes().first()? {
                    b'b' => Kind::Bits,
                    b'u' => Kind::Unsigned,
                    b's' => Kind::Signed,
                    _ => return None,
                };
                let bits = match &modifier[1..] {
                    "8" => 8,
                    "16" => 16,
                    "32" => 32,
                    "64" => 64,
                    "128" if kind == Kind::Bits => 128,
                    _ => return None,
                };
                (kind, bits)
            }
        };
        Some(Self { kind, bits })
    }

    /// 128 bits are two such registers side by side.
    pub(super) fn wide(self) -> bool {
        self.bits >= 64
    }

    pub(super) fn signed(self) -> bool {
        self.kind == Kind::Signed
    }

    pub(super) fn width(self) -> Width {
        match self.bits {
            64 | 128 => Width::B64,
            32 => Width::B32,
            _ => Width::B16,
        }
    }
}

impl Decoder<'_> {
    /// A source in the file of its type.
    pub(super) fn src(
        &mut self,
        body: &mut Body,
        operand: &Operand,
        ty: Ty,
    ) -> Result<Slot, String> {
        let reg = self.src_any(body, operand, ty)?;
        if reg.wide != ty.wide() {
            return Err(format!(
                "operand `{}` is a {}-bit register where {} bits are wanted",
                show(operand),
                if reg.wide { 64 } else { 32 },
                ty.bits
            ));
        }
        Ok(reg.slot)
    }

    /// A source of any declared width (`st`, `cvt`); constants take the type's.
    pub(super) fn src_any(
        &mut self,
        body: &mut Body,
        operand: &Operand,
        ty: Ty,
    ) -> Result<Reg, String> {
        match operand {
            Operand::Name(name) => {
                if let Some(symbol) = self.symbol(body, name) {
                    return match symbol {
                        Symbol::Register { reg, bits } if (bits == 128) == (ty.bits == 128) => {
                            Ok(reg)
                        }
                        Symbol::Register { bits, .. } => Err(format!(
                            "`{name}` has {bits} bits where {} are wanted",
                            ty.bits
                        )),
                        other => self.address_constant(body, &other, 0, ty),
                    };
                }
                match special(name) {
                    Some(special) => {
                        let slot = body.initial(Init::Special(special), false);
                        if ty.wide() {
                            return Err(format!("`{name}` has 32 bits where 64 are wanted"));
                        }
                        Ok(Reg { slot, wide: false })
                    }
                    None if name == "WARP_SZ" => Ok(self.constant(body, 32, ty)),
                    None => Err(format!(
                        "`{name}` is not declared in scope, or the simulator does not know it"
                    )),
                }
            }
            Operand::Immediate(immediate) => {
                Ok(self.constant(body, immediate_bits(*immediate, ty), ty))
            }
            Operand::Negated(inner) => match inner.as_ref() {
                Operand::Immediate(immediate) => {
                    let bits = immediate_bits(*immediate, ty);
                    let bits = match ty.kind {
                        Kind::Float(format) => bits ^ (1 << (format.bits() - 1)),
                        Kind::Bits
                        | Kind::Unsigned
                        | Kind::Signed
                        | Kind::Packed(_)
                        | Kind::Predicate => bits.wrapping_neg(),
                    };
                    Ok(self.constant(body, bits, ty))
                }
                _ => Err(format!(
                    "the simulator does not know the operand `{}`",
                    show(operand)
                )),
            },
            Operand::Offset { base, offset } => match self.symbol(body, base) {
                Some(symbol) => self.address_constant(body, &symbol, *offset, ty),
                None => Err(format!("`{base}` is not declared in scope")),
            },
            Operand::Element { base, .. } => Err(format!(
                "the simulator does not know `{}`; write `{base}+BYTES`",
                show(operand)
            )),
            Operand::Not(_)
            | Operand::Vector(_)
            | Operand::Address(_)
            | Operand::Pair(..)
            | Operand::Tuple(_)
            | Operand::Sink
            | Operand::Verbatim(_) => Err(format!(
                "the simulator does not know the operand `{}`",
                show(operand)
            )),
        }
    }

    pub(super) fn constant(&mut self, body: &mut Body, bits: u64, ty: Ty) -> Reg {
        let wide = ty.wide();
        let init = if wide {
            Init::Const64(bits)
        } else {
            let keep = if ty.bits >= 32 {
                u32::MAX
            } else {
                (1 << ty.bits) - 1
            };
            Init::Const32(bits as u32 & keep)
        };
        Reg {
            slot: body.initial(init, wide),
            wide,
        }
    }

    fn address_constant(
        &mut self,
        body: &mut Body,
        symbol: &Symbol,
        offset: i64,
        ty: Ty,
    ) -> Result<Reg, String> {
        let value = match symbol {
            Symbol::Shared(address) => i64::from(*address) + offset,
            Symbol::EntryParam(at) | Symbol::Const(at) => i64::from(*at) + offset,
            Symbol::Global(address) => *address as i64 + offset,
            Symbol::DynamicShared if offset == 0 && !ty.wide() => {
                return Ok(Reg {
                    slot: body.initial(Init::DynamicShared, false),
                    wide: false,
                });
            }
            Symbol::DynamicShared if offset == 0 => {
                return Ok(Reg {
                    slot: body.dynamic_wide(),
                    wide: true,
                });
            }
            Symbol::Stack { offset: at, .. } => {
                return if body.index == 0 {
                    Ok(self.constant(body, (i64::from(*at) + offset) as u64, ty))
                } else {
                    Err("the simulator does not know addresses of local variables in device functions".into())
                };
            }
            Symbol::DynamicShared => {
                return Err("write the dynamic array's offset in a register".into());
            }
            Symbol::Register { .. }
            | Symbol::Predicate(_)
            | Symbol::Label(_)
            | Symbol::ModuleShared { .. } => {
                return Err("this name has no address".into());
            }
        };
        Ok(self.constant(body, value as u64, ty))
    }

    /// A destination register of any declared width; `_` gets a register of its own.
    pub(super) fn dst_any(
        &mut self,
        body: &mut Body,
        operand: &Operand,
        ty: Ty,
    ) -> Result<Reg, String> {
        match operand {
            Operand::Sink => {
                let ty = if ty.wide() { ".b64" } else { ".b32" };
                match body.layout.register(ty)? {
                    Symbol::Register { reg, .. } => Ok(reg),
                    other => Err(format!("unexpected register {other:?}")),
                }
            }
            Operand::Name(name) => match self.symbol(body, name) {
                Some(Symbol::Register { reg, bits }) if (bits == 128) == (ty.bits == 128) => {
                    Ok(reg)
                }
                _ => Err(format!(
                    "`{name}` is no data register of this width in scope"
                )),
            },
            _ => Err(format!("`{}` cannot be written", show(operand))),
        }
    }

    pub(super) fn dst(
        &mut self,
        body: &mut Body,
        operand: &Operand,
        ty: Ty,
    ) -> Result<Slot, String> {
        let reg = self.dst_any(body, operand, ty)?;
        if reg.wide != ty.wide() {
            return Err(format!(
                "`{}` has not the {} bits of the result",
                show(operand),
                ty.bits
            ));
        }
        Ok(reg.slot)
    }

    /// The second register of one of 128 bits, whose first is `lower`.
    pub(super) fn upper_half(
        &mut self,
        body: &Body,
        operand: &Operand,
        lower: Reg,
    ) -> Result<Reg, String> {
        match operand {
            Operand::Name(name)
                if matches!(
                    self.symbol(body, name),
                    Some(Symbol::Register { bits: 128, .. })
                ) =>
            {
                Ok(Reg {
                    slot: lower.slot + 1,
                    wide: true,
                })
            }
            _ => Err(format!("`{}` is no register of 128 bits", show(operand))),
        }
    }

    /// `{!}p`, or the immediates 0 and 1.
    pub(super) fn pred(&mut self, body: &mut Body, operand: &Operand) -> Result<Pred, String> {
        match operand {
            Operand::Name(name) => match self.symbol(body, name) {
                Some(Symbol::Predicate(slot)) => Ok(Pred {
                    slot,
                    negated: false,
                }),
                _ => Err(format!("`{name}` is no predicate register in scope")),
            },
            Operand::Not(inner) => {
                let pred = self.pred(body, inner)?;
                Ok(Pred {
                    negated: !pred.negated,
                    ..pred
                })
            }
            // A predicate that nothing writes is false: the machine clears predicate files.
            Operand::Immediate(Immediate::Int(value)) => match body.layout.register(".pred")? {
                Symbol::Predicate(slot) => Ok(Pred {
                    slot,
                    negated: *value != 0,
                }),
                other => Err(format!("unexpected register {other:?}")),
            },
            _ => Err(format!("`{}` is no predicate", show(operand))),
        }
    }

    pub(super) fn dst_pred(&mut self, body: &mut Body, operand: &Operand) -> Result<Slot, String> {
        match operand {
            Operand::Sink => match body.layout.register(".pred")? {
                Symbol::Predicate(slot) => Ok(slot),
                other => Err(format!("unexpected register {other:?}")),
            },
            _ => {
                let pred = self.pred(body, operand)?;
                if pred.negated {
                    Err(format!("`{}` cannot be written", show(operand)))
                } else {
                    Ok(pred.slot)
                }
            }
        }
    }

    /// `[base+offset]`. The flag tells whether the symbol is a stack parameter.
    pub(super) fn address(
        &mut self,
        body: &mut Body,
        operand: &Operand,
    ) -> Result<(Address, AddressOf), String> {
        let (address, of, rest) = self.address_of(body, operand)?;
        if rest.is_empty() {
            Ok((address, of))
        } else {
            Err(format!(
                "the simulator does not know the address `{}`",
                show(operand)
            ))
        }
    }

    /// `[map, {x, y}]`: the map's address and its coordinates.
    pub(super) fn coordinates<'a>(
        &mut self,
        body: &mut Body,
        operand: &'a Operand,
    ) -> Result<(Address, &'a [Operand]), String> {
        match self.address_of(body, operand)? {
            (address, _, [Operand::Vector(at)]) => Ok((address, at)),
            _ => Err(format!(
                "`{}` names no place in a tensor: `[map, {{x, y}}]`",
                show(operand)
            )),
        }
    }

    fn address_of<'a>(
        &mut self,
        body: &mut Body,
        operand: &'a Operand,
    ) -> Result<(Address, AddressOf, &'a [Operand]), String> {
        let Operand::Address(IrAddress { base, offset, rest }) = operand else {
            return Err(format!("`{}` is no address", show(operand)));
        };
        let (address, of) = self.plain_address(body, base.as_deref(), *offset)?;
        Ok((address, of, rest))
    }

    fn plain_address(
        &mut self,
        body: &mut Body,
        base: Option<&str>,
        offset: i64,
    ) -> Result<(Address, AddressOf), String> {
        let Some(name) = base else {
            return Ok((
                Address {
                    base: Base::None,
                    offset,
                },
                AddressOf::Anything,
            ));
        };
        let Some(symbol) = self.symbol(body, name) else {
            return Err(format!("`{name}` is not declared in scope"));
        };
        let absolute = |value: i64| Address {
            base: Base::None,
            offset: value + offset,
        };
        Ok(match symbol {
            Symbol::Register { reg, .. } => {
                let base = if reg.wide {
                    Base::Wide(reg.slot)
                } else {
                    Base::Narrow(reg.slot)
                };
                (Address { base, offset }, AddressOf::Anything)
            }
            Symbol::Shared(address) => (absolute(i64::from(address)), AddressOf::Anything),
            Symbol::Global(address) => (absolute(address as i64), AddressOf::Anything),
            Symbol::Const(at) => (absolute(i64::from(at)), AddressOf::Anything),
            Symbol::EntryParam(at) => (absolute(i64::from(at)), AddressOf::EntryParam),
            Symbol::DynamicShared => {
                let slot = body.initial(Init::DynamicShared, false);
                (
                    Address {
                        base: Base::Narrow(slot),
                        offset,
                    },
                    AddressOf::Anything,
                )
            }
            Symbol::Stack {
                offset: at,
                parameter,
            } => {
                let address = Address {
                    base: Base::Frame,
                    offset: i64::from(at) + offset,
                };
                (
                    address,
                    if parameter {
                        AddressOf::StackParam
                    } else {
                        AddressOf::Anything
                    },
                )
            }
            Symbol::Predicate(_) | Symbol::Label(_) | Symbol::ModuleShared { .. } => {
                return Err(format!("`{name}` has no address"));
            }
        })
    }
}

/// What an address names, where that changes the meaning of the state space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressOf {
    Anything,
    EntryParam,
    StackParam,
}

impl Body {
    /// The dynamic array's address as 64 bits.
    pub(super) fn dynamic_wide(&mut self) -> Slot {
        self.initial(Init::DynamicSharedWide, true)
    }
}

impl Body {
    /// Registers that an instruction writes (its first operand, where it has a result) and reads.
    pub(super) fn depends(&self, instruction: &Instruction) -> Depends {
        let mut out = Depends::default();
        let no_result = matches!(
            instruction.opcode.as_str(),
            "st" | "red"
                | "bra"
                | "bar"
                | "barrier"
                | "brx"
                | "call"
                | "cp"
                | "stmatrix"
                | "setmaxnreg"
        );
        for (index, operand) in instruction.operands.iter().enumerate() {
            let list = if index == 0 && !no_result {
                &mut out.writes
            } else {
                &mut out.reads
            };
            self.registers(operand, list);
        }
        if let Some(guard) = &instruction.guard {
            self.registers(&Operand::Name(guard.register.clone()), &mut out.reads);
        }
        out
    }

    /// An operand with its registers left out, for comparison. Tells whether it names nothing but registers and
    /// numbers.
    pub(super) fn masked(&self, operand: &Operand, into: &mut String) -> bool {
        match operand {
            Operand::Name(name) => match self.lookup(name) {
                Some(Symbol::Register { .. } | Symbol::Predicate(_)) => {
                    into.push('%');
                    true
                }
                _ => {
                    into.push_str(name);
                    false
                }
            },
            Operand::Not(inner) | Operand::Negated(inner) => {
                into.push('!');
                self.masked(inner, into)
            }
            Operand::Vector(items) => items.iter().fold(true, |literal, item| {
                into.push(',');
                self.masked(item, into) && literal
            }),
            Operand::Immediate(_) => {
                into.push_str(&show(operand));
                true
            }
            Operand::Address(IrAddress {
                base: Some(base),
                offset,
                rest,
            }) if rest.is_empty() && matches!(self.lookup(base), Some(Symbol::Register { .. })) => {
                into.push_str(&format!("[%+{offset}]"));
                false
            }
            Operand::Address(_)
            | Operand::Pair(..)
            | Operand::Tuple(_)
            | Operand::Offset { .. }
            | Operand::Element { .. }
            | Operand::Sink
            | Operand::Verbatim(_) => {
                into.push_str(&show(operand));
                false
            }
        }
    }

    fn registers(&self, operand: &Operand, into: &mut Vec<u32>) {
        match operand {
            Operand::Name(name) => match self.lookup(name) {
                Some(Symbol::Register { reg, .. }) => {
                    into.push(u32::from(reg.slot) | u32::from(reg.wide) << 16)
                }
                Some(Symbol::Predicate(slot)) => into.push(u32::from(slot) | 1 << 17),
                _ => {}
            },
            Operand::Not(inner) | Operand::Negated(inner) => self.registers(inner, into),
            Operand::Vector(items) | Operand::Tuple(items) => {
                items.iter().for_each(|item| self.registers(item, into))
            }
            Operand::Address(address) => {
                if let Some(base) = &address.base {
                    self.registers(&Operand::Name(base.clone()), into);
                }
                address
                    .rest
                    .iter()
                    .for_each(|item| self.registers(item, into));
            }
            Operand::Pair(a, b) => {
                self.registers(a, into);
                self.registers(b, into);
            }
            Operand::Offset { .. }
            | Operand::Element { .. }
            | Operand::Immediate(_)
            | Operand::Sink
            | Operand::Verbatim(_) => {}
        }
    }
}

/// A literal's bits for an operand of type `ty`.
fn immediate_bits(immediate: Immediate, ty: Ty) -> u64 {
    match (immediate, ty.kind) {
        (Immediate::Int(value), Kind::Float(Format::F32)) => u64::from((value as f32).to_bits()),
        (Immediate::Int(value), Kind::Float(Format::F64)) => (value as f64).to_bits(),
        (Immediate::Int(value), _) => value as u64,
        (Immediate::F32(bits), Kind::Float(Format::F64)) => {
            f64::from(f32::from_bits(bits)).to_bits()
        }
        (Immediate::F32(bits), _) => u64::from(bits),
        (Immediate::F64(bits), Kind::Float(Format::F64)) => bits,
        (Immediate::F64(bits), Kind::Float(Format::F32)) => {
            u64::from((f64::from_bits(bits) as f32).to_bits())
        }
        (Immediate::F64(bits), _) if ty.bits == 32 => {
            u64::from((f64::from_bits(bits) as f32).to_bits())
        }
        (Immediate::F64(bits), _) => bits,
    }
}

fn special(name: &str) -> Option<Special> {
    let axis = |name: &str| match name.rsplit_once('.') {
        Some((_, "x")) => Some(0),
        Some((_, "y")) => Some(1),
        Some((_, "z")) => Some(2),
        _ => None,
    };
    Some(match name {
        "%laneid" => Special::LaneId,
        "%warpid" => Special::WarpId,
        "%nwarpid" => Special::NWarpId,
        "%smid" => Special::SmId,
        "%nsmid" => Special::NSmId,
        "%gridid" => Special::GridId,
        "%lanemask_eq" => Special::LaneMaskEq,
        "%lanemask_lt" => Special::LaneMaskLt,
        "%lanemask_le" => Special::LaneMaskLe,
        "%lanemask_gt" => Special::LaneMaskGt,
        "%lanemask_ge" => Special::LaneMaskGe,
        "%dynamic_smem_size" => Special::DynamicSharedSize,
        "%total_smem_size" | "%aggr_smem_size" => Special::TotalSharedSize,
        "%cluster_ctarank" => Special::ClusterRank,
        "%cluster_nctarank" => Special::ClusterSize,
        _ if name.starts_with("%cluster_ctaid.") => Special::ClusterCtaid(axis(name)?),
        _ if name.starts_with("%cluster_nctaid.") => Special::ClusterNctaid(axis(name)?),
        _ if name.starts_with("%clusterid.") => Special::Clusterid(axis(name)?),
        _ if name.starts_with("%nclusterid.") => Special::Nclusterid(axis(name)?),
        _ if name.starts_with("%tid.") => Special::Tid(axis(name)?),
        _ if name.starts_with("%ntid.") => Special::Ntid(axis(name)?),
        _ if name.starts_with("%ctaid.") => Special::Ctaid(axis(name)?),
        _ if name.starts_with("%nctaid.") => Special::Nctaid(axis(name)?),
        _ => return None,
    })
}

/// An operand for a message.
pub(super) fn show(operand: &Operand) -> String {
    let list = |items: &[Operand]| items.iter().map(show).collect::<Vec<_>>().join(", ");
    match operand {
        Operand::Name(name) => name.clone(),
        Operand::Not(inner) => format!("!{}", show(inner)),
        Operand::Negated(inner) => format!("-{}", show(inner)),
        Operand::Immediate(Immediate::Int(value)) => value.to_string(),
        Operand::Immediate(Immediate::F32(bits)) => format!("0f{bits:08X}"),
        Operand::Immediate(Immediate::F64(bits)) => format!("0d{bits:016X}"),
        Operand::Vector(items) => format!("{{{}}}", list(items)),
        Operand::Address(address) => {
            let base = address.base.as_deref().unwrap_or("");
            let rest: String = address
                .rest
                .iter()
                .map(|o| format!(", {}", show(o)))
                .collect();
            match address.offset {
                0 => format!("[{base}{rest}]"),
                offset => format!("[{base}+{offset}{rest}]"),
            }
        }
        Operand::Offset { base, offset } => format!("{base}+{offset}"),
        Operand::Element { base, index } => format!("{base}[{index}]"),
        Operand::Pair(a, b) => format!("{}|{}", show(a), show(b)),
        Operand::Tuple(items) => format!("({})", list(items)),
        Operand::Sink => "_".into(),
        Operand::Verbatim(text) => text.clone(),
    }
}
