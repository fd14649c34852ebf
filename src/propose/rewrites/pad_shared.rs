//! Pads arrays in shared memory: after every 128 bytes, once round the banks, a gap is left, so that
//! elements a power of two apart no longer share a bank. Each access to the array goes to
//! `a + (a - start) / 128 · gap` instead of `a`; nothing else knows the addresses, and accesses are aligned,
//! so none straddles a gap.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::change::{Change, Subject};
use super::header::free_prefix;
use super::kernel::{Kernel, address};
use super::memory::access_bytes;
use super::multiples::{Multiples, variable_zeros};
use crate::ptx::edit::Edit;
use crate::ptx::ir::{Address, Instruction, Span, Variable};

/// Bytes of a row: 32 banks of 4.
const ROW: i64 = 128;

/// Most bytes of static shared memory that a block may have.
const MOST_STATIC: i64 = 48 << 10;

/// Arrays with fewer rows have few conflicts.
const FEWEST_ROWS: i64 = 4;

pub(super) fn changes(subject: &Subject<'_>) -> Vec<Change> {
    let own = free_prefix(&subject.module.text, "pad");
    let mut edits = Vec::new();
    let mut padded = Vec::new();
    for (nth, kernel) in subject.kernels().iter().enumerate() {
        let mut room = MOST_STATIC - static_bytes(kernel);
        let mut registers = Registers {
            prefix: format!("%{own}{nth}_"),
            declared: BTreeMap::new(),
        };
        for (name, variable) in &kernel.variables {
            let Some(array) = Array::new(kernel, name, variable) else {
                continue;
            };
            if array.padded - array.bytes > room {
                continue;
            }
            let Some(more) = array.edits(subject, kernel, &mut registers) else {
                continue;
            };
            room -= array.padded - array.bytes;
            padded.push((*name).to_owned());
            edits.extend(more);
        }
        edits.extend(registers.declaration(kernel));
    }
    if padded.is_empty() {
        return Vec::new();
    }
    let list = padded.join(", ");
    vec![Change {
        label: "shared-memory padding".to_owned(),
        edits,
        rationale: format!(
            "{list}: a gap after every 128 bytes spreads elements a power of two apart over the banks."
        ),
    }]
}

fn static_bytes(kernel: &Kernel<'_>) -> i64 {
    let shared = kernel.variables.values().filter(|v| v.space == ".shared");
    shared.filter_map(|v| variable_bytes(v)).sum()
}

/// Bytes of the array that is declared alone; `None` for another declaration.
fn variable_bytes(variable: &Variable) -> Option<i64> {
    let [name] = variable.names.as_slice() else {
        return None;
    };
    let element = variable.ty.strip_prefix(['.'])?;
    let bits: i64 = element.strip_prefix(['u', 's', 'b', 'f'])?.parse().ok()?;
    let counts = name.dimensions.iter();
    let mut elements = counts.map(|count| i64::try_from((*count)?).ok());
    elements
        .try_fold(bits / 8, |product, count| product.checked_mul(count?))
        .map(|bytes| bytes * i64::from(variable.vector.unwrap_or(1)))
}

/// An array that may be padded: everything that touches it is known.
struct Array<'k> {
    name: &'k str,
    variable: &'k Variable,
    bytes: i64,
    padded: i64,
    gap: i64,
    accesses: Vec<usize>,
}

impl<'k> Array<'k> {
    fn new(kernel: &Kernel<'k>, name: &'k str, variable: &'k Variable) -> Option<Self> {
        if variable.space != ".shared"
            || variable.linkage.is_some()
            || kernel.register_type(name).is_some()
            || !kernel.owns(variable)
        {
            return None;
        }
        let bytes = variable_bytes(variable)?;
        if bytes % ROW != 0 || bytes / ROW < FEWEST_ROWS {
            return None;
        }
        let mut accesses = Vec::new();
        let mut widest = 4;
        for (index, instruction) in kernel.cfg.instructions.iter().enumerate() {
            let mut concerned = false;
            for operand in &instruction.operands {
                operand.for_each_name(&mut |own| concerned |= leads_to(kernel, own, name));
            }
            if !concerned {
                continue;
            }
            if moves_address(kernel, instruction, name) {
                continue;
            }
            match instruction.opcode.as_str() {
                "ld" | "st" | "atom" | "red" => {
                    let values = instruction.operands.iter().filter(|o| address(o).is_none());
                    let mut stored = false;
                    for value in values {
                        value.for_each_name(&mut |own| stored |= leads_to(kernel, own, name));
                    }
                    let place = instruction.operands.iter().find_map(address)?;
                    let shared = instruction.has("shared") || instruction.has("shared::cta");
                    if stored || !shared || !place.rest.is_empty() || !is_alone(kernel, place, name)
                    {
                        return None;
                    }
                    let width = i64::from(access_bytes(instruction)?);
                    // Aligned accesses within 128 bytes never straddle.
                    if !matches!(width, 1 | 2 | 4 | 8 | 16) {
                        return None;
                    }
                    widest = widest.max(width);
                    accesses.push(index);
                }
                _ => return None,
            }
        }
        // The start must be as aligned as the widest access, or rows and gaps do not keep alignment.
        let aligned = 1 << variable_zeros(variable).min(16) >= widest;
        (!accesses.is_empty() && aligned).then_some(Self {
            name,
            variable,
            bytes,
            padded: bytes + bytes / ROW * widest,
            gap: widest,
            accesses,
        })
    }

    /// The declaration and every access; `None` where a constant address lies outside.
    fn edits(
        &self,
        subject: &Subject<'_>,
        kernel: &Kernel<'_>,
        registers: &mut Registers,
    ) -> Option<Vec<Edit>> {
        let multiples = Multiples::new(kernel, Some(self.name));
        let mut edits = vec![self.declaration(subject)?];
        // What is computed where, by place in the text: after a register's only write, or in front of an
        // access.
        let mut computed: BTreeMap<u32, String> = BTreeMap::new();
        let mut known: HashMap<(&str, i64), String> = HashMap::new();
        let mut replaced: BTreeSet<u32> = BTreeSet::new();
        for &index in &self.accesses {
            let instruction = kernel.instruction(index);
            let operand = instruction
                .operands
                .iter()
                .position(|o| address(o).is_some())?;
            let place = address(&instruction.operands[operand])?;
            let base = place.base.as_deref()?;
            let span = instruction.operand_spans[operand];
            let target = if base == self.name {
                if !(0..self.bytes).contains(&place.offset) {
                    return None;
                }
                format!("[{base}+{}]", self.moved(place.offset))
            } else {
                let (within, rest) = split(place.offset, multiples.zeros(base));
                let writer = kernel.only_writer(base);
                let writer = writer.filter(|at| kernel.instruction(*at).guard.is_none());
                let register = match (writer, known.get(&(base, within))) {
                    (Some(_), Some(register)) => register.clone(),
                    (_, _) => {
                        let ty = kernel.register_type(base)?;
                        let (text, register) = self.computation(base, within, ty, registers)?;
                        let at = match writer {
                            Some(writer) => {
                                known.insert((base, within), register.clone());
                                kernel.instruction(writer).span.end
                            }
                            None => instruction.span.start,
                        };
                        let entry = computed.entry(at).or_default();
                        match writer {
                            Some(_) => entry.push_str(&format!("\n{}", text.trim_end())),
                            None => entry.push_str(&format!("{}\n\t", text.trim())),
                        }
                        register
                    }
                };
                format!("[{register}+{}]", self.moved(rest))
            };
            if replaced.insert(span.start) {
                edits.push(Edit {
                    span,
                    replacement: target,
                });
            }
        }
        edits.extend(computed.into_iter().map(|(at, replacement)| Edit {
            span: Span { start: at, end: at },
            replacement,
        }));
        Some(edits)
    }

    /// `mov t, array; sub t, a, t; shr t, t, 7; mad t, t, gap, a;`
    fn computation(
        &self,
        base: &str,
        within: i64,
        ty: &str,
        registers: &mut Registers,
    ) -> Option<(String, String)> {
        let (bits, by) = match ty {
            ".b32" | ".u32" | ".s32" => (32, registers.fresh(".b32")),
            ".b64" | ".u64" | ".s64" => (64, registers.fresh(".b64")),
            _ => return None,
        };
        let mut text = format!(
            "\tmov.u{bits} \t{by}, {};\n\tsub.s{bits} \t{by}, {base}, {by};\n",
            self.name
        );
        if within != 0 {
            text.push_str(&format!("\tadd.s{bits} \t{by}, {by}, {within};\n"));
        }
        let shift = self.gap.trailing_zeros();
        text.push_str(&format!(
            "\tshr.s{bits} \t{by}, {by}, {};\n\tshl.b{bits} \t{by}, {by}, {shift};\n\tadd.s{bits} \t{by}, {by}, {base};\n",
            ROW.trailing_zeros()
        ));
        if within != 0 {
            text.push_str(&format!("\tadd.s{bits} \t{by}, {by}, {within};\n"));
        }
        Some((text, by))
    }

    /// Where an offset from the start of a row goes.
    fn moved(&self, offset: i64) -> i64 {
        offset + offset.div_euclid(ROW) * self.gap
    }

    /// `.shared .align 16 .b8 tile[4224];`
    fn declaration(&self, subject: &Subject<'_>) -> Option<Edit> {
        let name = self.variable.names.first()?;
        let text = subject.text(self.variable.span);
        let from = text.find(&name.name)? + name.name.len();
        let to = text.rfind(']')? + 1;
        let bytes = self.variable.ty.strip_prefix(['.'])?;
        let bits: i64 = bytes.strip_prefix(['u', 's', 'b', 'f'])?.parse().ok()?;
        let element = bits / 8 * i64::from(self.variable.vector.unwrap_or(1));
        (text[from..to].starts_with('[') && self.padded % element == 0).then(|| Edit {
            span: Span {
                start: self.variable.span.start + from as u32,
                end: self.variable.span.start + to as u32,
            },
            replacement: format!("[{}]", self.padded / element),
        })
    }
}

/// Parts an access's constant offset into what must be added before rows are counted, and the rest: whole
/// rows, and bytes that cannot lead into the next row because the register's offset has zeros there.
fn split(offset: i64, zeros: u32) -> (i64, i64) {
    let grain = 1i64 << zeros.min(ROW.trailing_zeros());
    let low = offset.rem_euclid(grain);
    let high = offset - low;
    if high % ROW == 0 {
        (0, offset)
    } else {
        // From the row that the whole offset leads to.
        (high.rem_euclid(ROW), high - high.rem_euclid(ROW) + low)
    }
}

/// Whether a name is the array or may hold an address in it.
fn leads_to(kernel: &Kernel<'_>, name: &str, array: &str) -> bool {
    if kernel.register_type(name).is_none() {
        return name == array;
    }
    let origin = kernel.origin(name);
    origin.is_some_and(|origin| origin.variables.contains(array))
}

/// Whether addresses in the array are copied, moved by a number, chosen or compared, and nothing else: then
/// every register holds its start plus an offset.
fn moves_address(kernel: &Kernel<'_>, instruction: &Instruction, array: &str) -> bool {
    let held: Vec<bool> = instruction
        .operands
        .iter()
        .map(|operand| {
            let mut held = false;
            operand.for_each_name(&mut |own| held |= leads_to(kernel, own, array));
            held
        })
        .collect();
    let sources = held.get(1..).unwrap_or_default();
    match (instruction.opcode.as_str(), sources) {
        ("mov" | "cvt", [_]) => true,
        ("add", [left, right]) => !(*left && *right),
        ("sub", [_, right]) | ("mad", [false, false, right]) => {
            instruction.opcode == "mad" || !*right
        }
        ("selp", [_, _, false]) | ("setp", _) => true,
        _ => false,
    }
}

/// Whether an address leads into this array and nowhere else.
fn is_alone(kernel: &Kernel<'_>, place: &Address, array: &str) -> bool {
    let Some(base) = place.base.as_deref() else {
        return false;
    };
    if kernel.register_type(base).is_none() {
        return base == array;
    }
    kernel.origin(base).is_some_and(|origin| {
        !origin.memory && origin.variables.len() == 1 && kernel.points_to_no_buffer(origin)
    })
}

struct Registers {
    prefix: String,
    declared: BTreeMap<&'static str, u32>,
}

impl Registers {
    fn fresh(&mut self, ty: &'static str) -> String {
        let count = self.declared.entry(ty).or_default();
        *count += 1;
        format!("{}{}{}", self.prefix, letters(ty), *count - 1)
    }

    /// `.reg .b32 %pad1_0_b32<3>;`
    fn declaration(&self, kernel: &Kernel<'_>) -> Option<Edit> {
        let at = kernel.function.body.as_ref()?.span.start + 1;
        let lines: Vec<String> = self
            .declared
            .iter()
            .map(|(ty, count)| format!("\n\t.reg {ty} \t{}{}<{count}>;", self.prefix, letters(ty)))
            .collect();
        (!lines.is_empty()).then(|| Edit {
            span: Span { start: at, end: at },
            replacement: lines.concat(),
        })
    }
}

/// As compilers call registers of the type.
fn letters(ty: &str) -> &'static str {
    if ty == ".b64" { "rd" } else { "r" }
}
