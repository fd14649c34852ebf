//! Names and what they stand for; sizes and initial bytes of variables.

use std::collections::HashMap;

use crate::ptx::ir::{DeclaredName, Variable};

use super::super::op::{FrameLayout, Init, Reg, Slot};
use super::Body;

/// What a name stands for.
#[derive(Clone, Debug)]
pub(super) enum Symbol {
    Register {
        reg: Reg,
        bits: u8,
    },
    Predicate(Slot),
    Label(usize),
    /// A shared address.
    Shared(u32),
    /// A module-scope shared variable that this kernel has not named yet.
    ModuleShared {
        bytes: u64,
        align: u32,
    },
    DynamicShared,
    /// An offset in the frame's stack; `parameter` for `.param` variables.
    Stack {
        offset: u32,
        parameter: bool,
    },
    EntryParam(u32),
    Global(u64),
    Const(u32),
}

/// Names of one `{ … }`.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    names: HashMap<String, Symbol>,
    /// `%r<12>`: prefix, count, first slot.
    ranges: Vec<(String, u32, Symbol)>,
}

impl Scope {
    pub(super) fn insert(&mut self, name: String, symbol: Symbol) {
        self.names.insert(name, symbol);
    }

    pub(super) fn get(&self, name: &str) -> Option<&Symbol> {
        self.names.get(name)
    }

    fn lookup(&self, name: &str) -> Option<Symbol> {
        if let Some(symbol) = self.names.get(name) {
            return Some(symbol.clone());
        }
        self.ranges.iter().find_map(|(prefix, count, first)| {
            let digits = name.strip_prefix(prefix.as_str())?;
            let number: u32 = digits.parse().ok()?;
            // `%r01` is not `%r1`.
            if number >= *count || (digits.len() > 1 && digits.starts_with('0')) {
                return None;
            }
            Some(match first {
                Symbol::Register { reg, bits } => Symbol::Register {
                    reg: Reg {
                        slot: reg.slot + number as Slot * slots(*bits),
                        wide: reg.wide,
                    },
                    bits: *bits,
                },
                Symbol::Predicate(slot) => Symbol::Predicate(slot + number as Slot),
                other => other.clone(),
            })
        })
    }
}

impl Body {
    pub(super) fn lookup(&self, name: &str) -> Option<Symbol> {
        self.scopes
            .iter()
            .rev()
            .find_map(|scope| scope.lookup(name))
    }

    pub(super) fn declare(&mut self, name: String, symbol: Symbol) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name, symbol);
        }
    }

    pub(super) fn declare_registers(
        &mut self,
        variable: &Variable,
        name: &DeclaredName,
    ) -> Result<(), String> {
        if variable.vector.is_some() {
            return Err(
                "the simulator does not know vector registers; declare scalars and use {a, b}"
                    .into(),
            );
        }
        let first = self.layout.register(&variable.ty)?;
        for _ in 1..name.count.unwrap_or(1) {
            self.layout.register(&variable.ty)?;
        }
        match name.count {
            Some(count) => {
                if let Some(scope) = self.scopes.last_mut() {
                    scope.ranges.push((name.name.clone(), count, first));
                }
            }
            None => self.declare(name.name.clone(), first),
        }
        Ok(())
    }

    /// The slot that holds a constant or a special register from the frame's start.
    pub(super) fn initial(&mut self, init: Init, wide: bool) -> Slot {
        let key = init;
        if let Some(&slot) = self.slots.get(&key) {
            return slot;
        }
        let slot = if wide {
            self.layout.wide
        } else {
            self.layout.narrow
        } as Slot;
        if wide {
            self.layout.wide += 1;
        } else {
            self.layout.narrow += 1;
        }
        self.layout.init.push((Reg { slot, wide }, init));
        self.slots.insert(key, slot);
        slot
    }
}

impl FrameLayout {
    /// A fresh register of a declared type.
    pub(super) fn register(&mut self, ty: &str) -> Result<Symbol, String> {
        let bits: u8 = match ty {
            ".pred" => {
                self.predicates += 1;
                return Ok(Symbol::Predicate((self.predicates - 1) as Slot));
            }
            ".b8" | ".u8" | ".s8" => 8,
            ".b16" | ".u16" | ".s16" | ".f16" | ".bf16" => 16,
            ".b32" | ".u32" | ".s32" | ".f32" | ".f16x2" | ".bf16x2" | ".tf32" => 32,
            ".b64" | ".u64" | ".s64" | ".f64" => 64,
            ".b128" => 128,
            other => {
                return Err(format!(
                    "the simulator does not know registers of type `{other}`"
                ));
            }
        };
        let wide = bits >= 64;
        let count = if wide {
            &mut self.wide
        } else {
            &mut self.narrow
        };
        let slot = *count as Slot;
        *count += usize::from(slots(bits));
        Ok(Symbol::Register {
            reg: Reg { slot, wide },
            bits,
        })
    }

    pub(super) fn reserve_stack(&mut self, bytes: u32, align: u32) -> u32 {
        let offset = align_up(u64::from(self.stack), u64::from(align.max(4))) as u32;
        self.stack = offset + bytes;
        offset
    }
}

/// Slots that a register takes in its file.
fn slots(bits: u8) -> Slot {
    if bits == 128 { 2 } else { 1 }
}

pub(super) fn align_up(value: u64, align: u64) -> u64 {
    value.div_ceil(align) * align
}

/// Bytes of one element, vectors counted whole.
pub(super) fn element_bytes(variable: &Variable) -> u32 {
    let scalar = match variable.ty.trim_start_matches(['.', 'b', 'u', 's', 'f']) {
        "8" => 1,
        "16" => 2,
        "64" => 8,
        "128" => 16,
        _ => 4,
    };
    scalar * u32::from(variable.vector.unwrap_or(1))
}

/// `None` for an open array without an initialiser.
pub(super) fn variable_bytes(variable: &Variable, name: &DeclaredName) -> Option<u64> {
    let element = u64::from(element_bytes(variable));
    let open_length = || {
        let text = name.initializer.as_deref()?;
        Some(
            text.split(',')
                .filter(|part| !part.trim().is_empty())
                .count() as u64,
        )
    };
    name.dimensions.iter().try_fold(element, |bytes, dim| {
        Some(bytes * dim.or_else(open_length)?)
    })
}

/// Bytes an initialiser gives, zero elsewhere.
pub(super) fn initial_bytes(
    variable: &Variable,
    name: &DeclaredName,
    bytes: u64,
) -> Result<Vec<u8>, String> {
    let mut data = vec![0; bytes as usize];
    let Some(text) = &name.initializer else {
        return Ok(data);
    };
    let element = (element_bytes(variable) / u32::from(variable.vector.unwrap_or(1))) as usize;
    let float = variable.ty.starts_with(".f");
    let values = text
        .split([',', '{', '}'])
        .map(str::trim)
        .filter(|part| !part.is_empty());
    for (index, value) in values.enumerate() {
        let bits = literal(value, float, element).ok_or_else(|| {
            format!(
                "the simulator does not know the initial value `{value}` of `{}`",
                name.name
            )
        })?;
        let at = index * element;
        let Some(place) = data.get_mut(at..at + element) else {
            return Err(format!(
                "`{}` has more initial values than elements",
                name.name
            ));
        };
        place.copy_from_slice(&bits.to_le_bytes()[..element]);
    }
    Ok(data)
}

fn literal(text: &str, float: bool, bytes: usize) -> Option<u64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest.trim()),
        None => (false, text),
    };
    if let Some(hex) = digits
        .strip_prefix("0f")
        .or_else(|| digits.strip_prefix("0F"))
    {
        let bits = u32::from_str_radix(hex, 16).ok()?;
        return Some(u64::from(bits) ^ (u64::from(negative) << 31));
    }
    if let Some(hex) = digits
        .strip_prefix("0d")
        .or_else(|| digits.strip_prefix("0D"))
    {
        let bits = u64::from_str_radix(hex, 16).ok()?;
        let bits = bits ^ (u64::from(negative) << 63);
        return Some(if bytes == 4 {
            u64::from((f64::from_bits(bits) as f32).to_bits())
        } else {
            bits
        });
    }
    if float {
        let value: f64 = text.parse().ok()?;
        return Some(if bytes == 4 {
            u64::from((value as f32).to_bits())
        } else {
            value.to_bits()
        });
    }
    let digits = digits.trim_end_matches(['U', 'u']);
    let value = if let Some(hex) = digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"))
    {
        u64::from_str_radix(hex, 16).ok()?
    } else {
        digits.parse().ok()?
    };
    Some(if negative {
        value.wrapping_neg()
    } else {
        value
    })
}
