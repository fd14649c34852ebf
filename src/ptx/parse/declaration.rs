//! Declarations of variables, registers and parameters.

use super::super::ir::{DeclaredName, Directive, Span, Variable};
use super::super::lex::Kind;
use super::super::operand;
use super::Result;
use super::cursor::Parser;
use super::directive::{Ends, Statements};

/// Where a declaration stands: that decides how it ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Declaration {
    Statement,
    Parameter,
}

pub(super) enum Declared {
    Variable(Variable),
    Unknown(Directive),
}

impl Parser<'_> {
    /// `.reg .b32 %r<4>;`, `.param .u64 .ptr .global .align 16 x`. What has no type or no name is kept
    /// as text.
    pub(super) fn variable(&mut self, declaration: Declaration) -> Result<Declared> {
        let Some(first) = self.peek() else {
            return self.error(self.span_from(0), "expected a declaration");
        };
        let begin = self.next;
        let linkage = Some(self.str(first))
            .filter(|s| is_linkage(s))
            .map(str::to_owned);
        self.next += usize::from(linkage.is_some());
        let space = self.peek_str(Kind::Dotted).unwrap_or_default().to_owned();
        self.next += 1;
        let mut variable = Variable {
            space,
            linkage,
            align: None,
            vector: None,
            ty: String::new(),
            attributes: Vec::new(),
            names: Vec::new(),
            span: first.span,
        };
        while let Some(word) = self.peek_str(Kind::Dotted) {
            self.next += 1;
            let pointer = variable.attributes.iter().any(|a| a == ".ptr");
            match word {
                ".align" => {
                    let number = self.peek_str(Kind::Number).unwrap_or_default();
                    self.next += usize::from(!number.is_empty());
                    match number.parse() {
                        Ok(align) if !pointer => variable.align = Some(align),
                        Ok(_) | Err(_) => variable.attributes.push(format!(".align {number}")),
                    }
                }
                ".v2" | ".v4" | ".v8" => variable.vector = Some(word.as_bytes()[2] - b'0'),
                ".attribute" => {
                    let from = self.peek().map_or(0, |t| t.span.start);
                    self.skip_group(Statements::Refused)?;
                    let group = &self.text[self.span_from(from).range()];
                    variable.attributes.push(format!("{word}{group}"));
                }
                _ if is_type(word) && variable.ty.is_empty() => variable.ty = word.to_owned(),
                _ => variable.attributes.push(word.to_owned()),
            }
        }
        if declaration == Declaration::Statement
            && self
                .peek()
                .is_none_or(|t| t.first_on_line && t.kind != Kind::Ident || t.is(b'}'))
        {
            return self.missing_semicolon("declaration", first);
        }
        if declaration == Declaration::Parameter
            && (variable.ty.is_empty() || self.peek_str(Kind::Ident).is_none())
        {
            let what = "this parameter is not understood; write `.param .TYPE NAME`";
            return self.error(self.span_from(first.span.start), what);
        }
        if variable.ty.is_empty() || self.peek_str(Kind::Ident).is_none() {
            self.next = begin;
            return Ok(Declared::Unknown(self.unknown(Ends::Semicolon)?));
        }
        loop {
            match self.declared_name()? {
                Some(name) => variable.names.push(name),
                None => {
                    self.next = begin;
                    return Ok(Declared::Unknown(self.unknown(Ends::Semicolon)?));
                }
            }
            match declaration {
                Declaration::Parameter => break,
                Declaration::Statement if !self.eat(b',') => break,
                Declaration::Statement => {}
            }
        }
        match declaration {
            Declaration::Parameter if self.peek_is(b',') || self.peek_is(b')') => {}
            Declaration::Parameter => {
                let end = self.last_end();
                return self.error(
                    Span { start: end, end },
                    "expected `,` or `)` after this parameter",
                );
            }
            Declaration::Statement if self.eat(b';') => {}
            Declaration::Statement => match self.peek() {
                Some(t) if !t.first_on_line && !t.is(b'}') => {
                    self.next = begin;
                    return Ok(Declared::Unknown(self.unknown(Ends::Semicolon)?));
                }
                Some(_) | None => return self.missing_semicolon("declaration", first),
            },
        }
        variable.span = self.span_from(first.span.start);
        Ok(Declared::Variable(variable))
    }

    /// `%r<12>`, `tile[32][33]`, `x = 4`; `None` where it is something else.
    fn declared_name(&mut self) -> Result<Option<DeclaredName>> {
        let Some(token) = self.peek().filter(|t| t.kind == Kind::Ident) else {
            return Ok(None);
        };
        self.next += 1;
        let mut name = DeclaredName {
            name: self.str(token).to_owned(),
            count: None,
            dimensions: Vec::new(),
            initializer: None,
            span: token.span,
        };
        if self.eat(b'<') {
            let count = operand::integer(self, 0).and_then(|n| u32::try_from(n).ok());
            if count.is_none() || !self.eat(b'>') {
                return Ok(None);
            }
            name.count = count;
        }
        while self.eat(b'[') {
            let dimension = match self.peek_is(b']') {
                true => None,
                false => match operand::integer(self, 0).and_then(|n| u64::try_from(n).ok()) {
                    None => return Ok(None),
                    dimension => dimension,
                },
            };
            name.dimensions.push(dimension);
            if !self.eat(b']') {
                return Ok(None);
            }
        }
        if self.eat(b'=') {
            let from = self.peek().map_or(token.span.end, |t| t.span.start);
            while let Some(t) = self.peek() {
                match t.kind {
                    Kind::Punct(b',' | b';' | b'}' | b')') => break,
                    Kind::Punct(b'{' | b'(' | b'[') => self.skip_group(Statements::Refused)?,
                    Kind::Ident | Kind::Dotted | Kind::Number | Kind::String | Kind::Punct(_) => {
                        self.next += 1;
                    }
                }
            }
            name.initializer = Some(self.text[self.span_from(from).range()].to_owned());
        }
        Ok(Some(name))
    }
}

pub(super) fn is_linkage(word: &str) -> bool {
    matches!(word, ".visible" | ".extern" | ".weak" | ".common")
}

pub(super) fn is_space(word: &str) -> bool {
    matches!(
        word,
        ".reg" | ".global" | ".shared" | ".const" | ".local" | ".param" | ".tex"
    )
}

/// Whether `word` is a fundamental or opaque type, with its dot.
fn is_type(word: &str) -> bool {
    let Some(rest) = word.get(1..) else {
        return false;
    };
    matches!(rest, "pred" | "texref" | "samplerref" | "surfref")
        || ["bf", "b", "u", "s", "f", "e", "tf"].iter().any(|kind| {
            rest.strip_prefix(kind)
                .is_some_and(|bits| bits.starts_with(|c: char| c.is_ascii_digit()))
        })
}
