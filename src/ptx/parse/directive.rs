//! Directives, and what is unknown: kept as text up to where it ends.

use super::super::ir::Directive;
use super::super::lex::{Kind, Token};
use super::Result;
use super::cursor::Parser;

/// Whether a bracketed group may hold `;`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Statements {
    Allowed,
    Refused,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    Semicolon,
    LineOrSemicolon,
}

impl Parser<'_> {
    /// A directive that is kept as text; where it ends depends on which it is.
    pub(super) fn directive(&mut self, name: &str) -> Result<Directive> {
        match name {
            ".version" | ".address_size" => self.counted(1),
            ".target" | ".file" | ".loc" => Ok(self.listed()),
            ".section" => {
                let first = self.next;
                self.next += 1;
                self.next += usize::from(self.peek().is_some_and(|t| !t.is(b'{')));
                if self.peek_is(b'{') {
                    self.skip_group(Statements::Allowed)?;
                }
                Ok(self.directive_from(self.tokens[first]))
            }
            ".pragma" | ".alias" | ".callprototype" | ".branchtargets" | ".calltargets" => {
                self.unknown(Ends::Semicolon)
            }
            _ => self.unknown(Ends::LineOrSemicolon),
        }
    }

    /// Anything, up to its end: `;`, or the line's where no bracket is open and no comma is last.
    pub(super) fn unknown(&mut self, ends: Ends) -> Result<Directive> {
        let first = self.tokens[self.next];
        let mut started = false;
        while let Some(t) = self.peek() {
            let continues = self.next > 0 && self.tokens[self.next - 1].is(b',');
            if started && t.first_on_line && !continues && ends == Ends::LineOrSemicolon {
                break;
            }
            if started
                && t.first_on_line
                && !continues
                && ends == Ends::Semicolon
                && self.starts_statement()
            {
                return self.missing_semicolon("statement", first);
            }
            started = true;
            match t.kind {
                Kind::Punct(b';') => {
                    self.next += 1;
                    return Ok(self.directive_from(first));
                }
                Kind::Punct(b'}') if ends == Ends::LineOrSemicolon => break,
                Kind::Punct(b'}') => return self.missing_semicolon("statement", first),
                Kind::Punct(b'{' | b'(' | b'[') => self.skip_group(Statements::Allowed)?,
                Kind::Ident | Kind::Dotted | Kind::Number | Kind::String | Kind::Punct(_) => {
                    self.next += 1;
                }
            }
        }
        match ends {
            Ends::Semicolon if self.peek().is_none() => self.missing_semicolon("statement", first),
            Ends::Semicolon | Ends::LineOrSemicolon => Ok(self.directive_from(first)),
        }
    }

    /// Past a balanced `( … )`, `[ … ]` or `{ … }` that opens here; past nothing where none does.
    pub fn skip_group(&mut self, statements: Statements) -> Result<()> {
        let mut open: Vec<Token> = Vec::new();
        while let Some(t) = self.peek() {
            match t.kind {
                Kind::Punct(b';') if statements == Statements::Refused => break,
                Kind::Punct(b'(' | b'[' | b'{') => open.push(t),
                Kind::Punct(close @ (b')' | b']' | b'}')) => {
                    let Some(last) = open.pop() else {
                        return Ok(());
                    };
                    let matches = matches!(
                        (last.kind, close),
                        (Kind::Punct(b'('), b')')
                            | (Kind::Punct(b'['), b']')
                            | (Kind::Punct(b'{'), b'}')
                    );
                    if !matches {
                        return self.unclosed(last);
                    }
                }
                Kind::Ident | Kind::Dotted | Kind::Number | Kind::String | Kind::Punct(_) => {}
            }
            if open.is_empty() && !matches!(t.kind, Kind::Punct(b')' | b']' | b'}')) {
                return Ok(());
            }
            self.next += 1;
            if open.is_empty() {
                return Ok(());
            }
        }
        match open.pop() {
            Some(last) => self.unclosed(last),
            None => Ok(()),
        }
    }

    pub(super) fn directive_from(&self, first: Token) -> Directive {
        let span = self.span_from(first.span.start);
        let name_end = match first.kind {
            Kind::Dotted | Kind::Ident => first.span.end,
            Kind::Number | Kind::String | Kind::Punct(_) => first.span.start,
        };
        let rest = &self.text[name_end as usize..span.end.max(name_end) as usize];
        Directive {
            name: self.text[first.span.start as usize..name_end as usize].to_owned(),
            arguments: rest.trim().trim_end_matches(';').trim_end().to_owned(),
            span,
        }
    }

    /// A directive and this many tokens after it.
    fn counted(&mut self, arguments: usize) -> Result<Directive> {
        let first = self.tokens[self.next];
        self.next += 1;
        for _ in 0..arguments {
            self.next += usize::from(
                self.peek()
                    .is_some_and(|t| t.kind != Kind::Dotted && !t.is(b'{')),
            );
        }
        Ok(self.directive_from(first))
    }

    /// A directive and its list: numbers, strings, and words where one may stand. What follows on the same
    /// line is a statement of its own, as for ptxas.
    fn listed(&mut self) -> Directive {
        let first = self.tokens[self.next];
        let takes_words = self.str(first) == ".target";
        self.next += 1;
        while let Some(t) = self.peek() {
            let before = self.tokens[self.next - 1];
            let follows = before.is(b',');
            let named = self.str(before) == "function_name";
            let belongs = match t.kind {
                Kind::Ident => {
                    named
                        || takes_words && (follows || before.span.start == first.span.start)
                        || matches!(self.str(t), "function_name" | "inlined_at")
                }
                Kind::Number | Kind::String => true,
                Kind::Punct(punct) => matches!(punct, b',' | b'+' | b'-'),
                Kind::Dotted => false,
            };
            if !belongs || t.first_on_line && !follows {
                break;
            }
            self.next += 1;
        }
        self.directive_from(first)
    }

    fn unclosed<T>(&self, open: Token) -> Result<T> {
        self.error(
            open.span,
            format!("this `{}` is never closed", self.str(open)),
        )
    }
}
