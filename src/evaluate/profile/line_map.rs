//! Which line of PTX each machine instruction comes from: read from a second cubin, assembled with
//! `-lineinfo`, and trusted only where its machine code is that of the cubin that runs, byte for byte.

use std::collections::HashMap;

/// Line-number programs of ptxas: DWARF 2, rows of address and line.
const SECTION: &str = ".nv_debug_line_sass";

/// Lines of every entry of a cubin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineMap {
    /// By entry: offsets from its start, rising, and the line from there on.
    entries: HashMap<String, Vec<(u64, u32)>>,
}

impl LineMap {
    /// From the cubin that runs and the same text assembled with line numbers. `None` where the machine
    /// code differs, or the numbers do not read: a wrong line is worse than none.
    pub fn new(running: &[u8], with_lines: &[u8]) -> Option<Self> {
        let running = Elf::parse(running)?;
        let described = Elf::parse(with_lines)?;
        let code = |elf: &Elf<'_>| -> Vec<(String, Vec<u8>)> {
            let mut code: Vec<_> = elf
                .sections
                .iter()
                .filter(|section| section.name.starts_with(".text."))
                .map(|section| (section.name.to_owned(), section.bytes.to_vec()))
                .collect();
            code.sort();
            code
        };
        if code(&running) != code(&described) {
            return None;
        }
        let programs = described.section(SECTION)?;
        let targets = described.relocations(&format!(".rela{SECTION}"))?;
        let entries = sequences(programs.bytes, &targets)?;
        (!entries.is_empty()).then_some(Self { entries })
    }

    /// The line, from 1, of the instruction at an offset from the entry's start.
    pub fn line(&self, entry: &str, offset: u64) -> Option<u32> {
        let rows = self.entries.get(entry)?;
        let after = rows.partition_point(|(at, _)| *at <= offset);
        rows.get(after.checked_sub(1)?)
            .map(|(_, line)| *line)
            .filter(|line| *line > 0)
    }
}

struct Elf<'a> {
    sections: Vec<Section<'a>>,
}

struct Section<'a> {
    name: &'a str,
    bytes: &'a [u8],
}

fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(width)?)?;
    Some(bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)))
}

fn string(bytes: &[u8], at: usize) -> Option<&str> {
    let rest = bytes.get(at..)?;
    let end = rest.iter().position(|&b| b == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

impl<'a> Elf<'a> {
    fn parse(image: &'a [u8]) -> Option<Self> {
        const NO_BITS: u64 = 8;
        if !image.starts_with(b"\x7fELF\x02") {
            return None;
        }
        let table = usize::try_from(number(image, 0x28, 8)?).ok()?;
        let size = number(image, 0x3a, 2)? as usize;
        let count = number(image, 0x3c, 2)? as usize;
        let names = number(image, 0x3e, 2)? as usize;
        let header = |index: usize| -> Option<(u64, u64, &'a [u8])> {
            let at = table.checked_add(index.checked_mul(size)?)?;
            let kind = number(image, at + 4, 4)?;
            let offset = usize::try_from(number(image, at + 0x18, 8)?).ok()?;
            let length = usize::try_from(number(image, at + 0x20, 8)?).ok()?;
            let bytes = if kind == NO_BITS {
                &[]
            } else {
                image.get(offset..offset.checked_add(length)?)?
            };
            Some((number(image, at, 4)?, kind, bytes))
        };
        let (_, _, names) = header(names)?;
        let sections = (0..count)
            .map(|index| {
                let (name, _, bytes) = header(index)?;
                let name = string(names, name as usize)?;
                Some(Section { name, bytes })
            })
            .collect::<Option<_>>()?;
        Some(Self { sections })
    }

    fn section(&self, name: &str) -> Option<&Section<'a>> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// Symbols by the offset at which their address belongs.
    fn relocations(&self, name: &str) -> Option<HashMap<u64, &'a str>> {
        const ENTRY: usize = 24;
        let symbols = self.section(".symtab")?.bytes;
        let names = self.section(".strtab")?.bytes;
        let entries = self.section(name)?.bytes.chunks_exact(ENTRY);
        entries
            .map(|entry| {
                let offset = number(entry, 0, 8)?;
                let symbol = number(entry, 8, 8)? >> 32;
                let at = usize::try_from(symbol).ok()?.checked_mul(ENTRY)?;
                let name = number(symbols, at, 4)? as usize;
                Some((offset, string(names, name)?))
            })
            .collect()
    }
}

/// All line-number programs of a section. Each sequence starts with an address that a relocation fills.
fn sequences(
    bytes: &[u8],
    targets: &HashMap<u64, &str>,
) -> Option<HashMap<String, Vec<(u64, u32)>>> {
    let mut entries: HashMap<String, Vec<(u64, u32)>> = HashMap::new();
    let mut unit = 0usize;
    while unit < bytes.len() {
        let length = number(bytes, unit, 4)? as usize;
        let end = unit.checked_add(4)?.checked_add(length)?;
        if end > bytes.len() || number(bytes, unit + 4, 2)? > 4 {
            return None;
        }
        let header = number(bytes, unit + 6, 4)? as usize;
        let mut reader = Reader {
            bytes: bytes.get(..end)?,
            at: unit + 10 + header,
        };
        let format = Format {
            step: number(bytes, unit + 10, 1)?,
            line_base: i64::from(*bytes.get(unit + 12)? as i8),
            line_range: number(bytes, unit + 13, 1)?.max(1),
            opcode_base: number(bytes, unit + 14, 1)?,
            operands: bytes.get(unit + 15..unit + 10 + header)?,
        };
        while reader.at < end {
            let (entry, mut rows) = sequence(&mut reader, &format, targets)?;
            rows.sort_by_key(|(at, _)| *at);
            entries.entry(entry).or_default().extend(rows);
        }
        unit = end;
    }
    Some(entries)
}

struct Format<'a> {
    step: u64,
    line_base: i64,
    line_range: u64,
    opcode_base: u64,
    /// Operands of each standard opcode, from opcode 1.
    operands: &'a [u8],
}

fn sequence(
    reader: &mut Reader<'_>,
    format: &Format<'_>,
    targets: &HashMap<u64, &str>,
) -> Option<(String, Vec<(u64, u32)>)> {
    let mut entry = None;
    let mut rows = Vec::new();
    let (mut address, mut line) = (0u64, 1i64);
    let mut row = |address: u64, line: i64| {
        rows.push((address, u32::try_from(line).unwrap_or(0)));
    };
    loop {
        let opcode = u64::from(reader.byte()?);
        if opcode >= format.opcode_base {
            let special = opcode - format.opcode_base;
            address = address.saturating_add(special / format.line_range * format.step);
            line += format.line_base + (special % format.line_range) as i64;
            row(address, line);
            continue;
        }
        match opcode {
            0 => {
                let length = reader.unsigned()? as usize;
                let next = reader.at.checked_add(length)?;
                match reader.byte()? {
                    1 => {
                        reader.at = next;
                        return Some((entry?, rows));
                    }
                    2 => {
                        let symbol = targets.get(&(reader.at as u64))?;
                        entry = Some((*symbol).to_owned());
                        address = number(reader.bytes, reader.at, 8)?;
                    }
                    _ => {}
                }
                reader.at = next;
            }
            1 => row(address, line),
            2 => address = address.saturating_add(reader.unsigned()?.saturating_mul(format.step)),
            3 => line = line.saturating_add(reader.signed()?),
            8 => {
                let advance = 255u64.saturating_sub(format.opcode_base) / format.line_range;
                address = address.saturating_add(advance * format.step);
            }
            9 => {
                address = address.saturating_add(number(reader.bytes, reader.at, 2)?);
                reader.at += 2;
            }
            other => {
                for _ in 0..*format.operands.get(other as usize - 1)? {
                    reader.unsigned()?;
                }
            }
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i64> {
        let mut value = 0i64;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            value |= i64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let negative = byte & 0x40 != 0;
                return Some(if negative {
                    value - (1 << (shift + 7))
                } else {
                    value
                });
            }
        }
        None
    }
}
