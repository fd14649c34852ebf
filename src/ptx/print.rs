//! Writes a module or one of its parts as text. A module is laid out from its own text, so comments and
//! spellings of literals survive and only white space changes; parts are written from the tree alone, for
//! new code and for messages. To change a module, edit its text (`edit`) instead.

use std::fmt::{self, Display, Write};

use super::ir::{Address, Immediate, Instruction, Module, Operand};
use super::lex::comments;

/// The module with one statement a line, indented by nesting. Equal to `module.text` up to white space.
pub fn print(module: &Module) -> String {
    let mut printer = Printer {
        out: String::with_capacity(module.text.len()),
        depth: 0,
        groups: 0,
        line_open: false,
    };
    let text = &module.text;
    let mut at = 0;
    for comment in comments(text) {
        printer.code(&text[at..comment.start as usize]);
        printer.comment(&text[comment.range()]);
        at = comment.end as usize;
    }
    printer.code(&text[at..]);
    printer.end_line();
    printer.out
}

struct Printer {
    out: String,
    /// Braces that hold statements.
    depth: usize,
    /// Parentheses, brackets, and braces inside a statement.
    groups: usize,
    /// Whether something stands on the current line already.
    line_open: bool,
}

impl Printer {
    /// Text free of comments; strings are kept whole.
    fn code(&mut self, code: &str) {
        for line in code.split_inclusive('\n') {
            let ended = line.ends_with('\n');
            let mut rest = line.trim();
            if rest.is_empty() {
                if ended && self.groups == 0 {
                    self.end_line();
                }
                continue;
            }
            while !rest.is_empty() {
                rest = self.piece(rest);
            }
            if ended && self.groups == 0 && !self.out.ends_with(',') {
                self.end_line();
            }
        }
    }

    /// Writes what belongs on one line; returns the rest.
    fn piece<'a>(&mut self, code: &'a str) -> &'a str {
        let mut in_string = false;
        for (at, byte) in code.bytes().enumerate() {
            if in_string {
                in_string = byte != b'"';
                continue;
            }
            match byte {
                b'"' => in_string = true,
                b'(' | b'[' => self.groups += 1,
                b')' | b']' => self.groups = self.groups.saturating_sub(1),
                b'{' if self.groups == 0 && code[..at].trim().is_empty() && !self.line_open => {
                    self.write(&code[..=at]);
                    self.end_line();
                    self.depth += 1;
                    return code[at + 1..].trim_start();
                }
                b'{' => self.groups += 1,
                b'}' if self.groups > 0 => self.groups -= 1,
                b'}' => {
                    self.write(code[..at].trim_end());
                    self.end_line();
                    self.depth = self.depth.saturating_sub(1);
                    self.write("}");
                    self.end_line();
                    return code[at + 1..].trim_start();
                }
                b';' if self.groups == 0 => {
                    self.write(&code[..=at]);
                    let rest = code[at + 1..].trim_start();
                    if !rest.is_empty() {
                        self.end_line();
                    }
                    return rest;
                }
                _ => {}
            }
        }
        self.write(code);
        ""
    }

    fn comment(&mut self, comment: &str) {
        self.write(comment);
        if comment.starts_with("//") {
            self.end_line();
        }
    }

    fn write(&mut self, text: &str) {
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        if self.line_open {
            self.out.push(' ');
        } else {
            let label = text.ends_with(':');
            let indent = if label {
                self.depth.saturating_sub(1)
            } else {
                self.depth
            };
            self.out.extend(std::iter::repeat_n('\t', indent));
        }
        self.out.push_str(text);
        self.line_open = true;
    }

    fn end_line(&mut self) {
        if self.line_open {
            self.out.push('\n');
        }
        self.line_open = false;
    }
}

impl Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(guard) = &self.guard {
            let not = if guard.negated { "!" } else { "" };
            write!(f, "@{not}{} ", guard.register)?;
        }
        f.write_str(&self.opcode)?;
        for modifier in &self.modifiers {
            write!(f, ".{modifier}")?;
        }
        if !self.operands.is_empty() {
            f.write_char(' ')?;
            write_list(f, &self.operands)?;
        }
        f.write_char(';')
    }
}

impl Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) | Self::Verbatim(name) => f.write_str(name),
            Self::Not(inner) => write!(f, "!{inner}"),
            Self::Negated(inner) => write!(f, "-{inner}"),
            Self::Immediate(value) => value.fmt(f),
            Self::Vector(members) => {
                f.write_char('{')?;
                write_list(f, members)?;
                f.write_char('}')
            }
            Self::Address(address) => address.fmt(f),
            Self::Offset { base, offset } => write!(f, "{base}+{offset}"),
            Self::Element { base, index } => write!(f, "{base}[{index}]"),
            Self::Pair(first, second) => write!(f, "{first}|{second}"),
            Self::Tuple(members) => {
                f.write_char('(')?;
                write_list(f, members)?;
                f.write_char(')')
            }
            Self::Sink => f.write_char('_'),
        }
    }
}

impl Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('[')?;
        match &self.base {
            Some(base) if self.offset == 0 => f.write_str(base)?,
            // ptxas takes `+-16` and refuses `-16`.
            Some(base) => write!(f, "{base}+{}", self.offset)?,
            None => write!(f, "{}", self.offset)?,
        }
        for member in &self.rest {
            write!(f, ", {member}")?;
        }
        f.write_char(']')
    }
}

impl Display for Immediate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => value.fmt(f),
            Self::F32(bits) => write!(f, "0f{bits:08X}"),
            Self::F64(bits) => write!(f, "0d{bits:016X}"),
        }
    }
}

fn write_list(f: &mut fmt::Formatter<'_>, operands: &[Operand]) -> fmt::Result {
    for (index, operand) in operands.iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        operand.fmt(f)?;
    }
    Ok(())
}
