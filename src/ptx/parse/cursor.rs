//! A place in the tokens: looks ahead, takes, and says where something was.

use super::super::ir::Span;
use super::super::lex::{Kind, Token};
use super::{ParseError, Result};

pub struct Parser<'a> {
    pub text: &'a str,
    pub tokens: &'a [Token],
    pub next: usize,
}

impl<'a> Parser<'a> {
    pub fn peek(&self) -> Option<Token> {
        self.tokens.get(self.next).copied()
    }

    pub fn peek_is(&self, punct: u8) -> bool {
        self.peek().is_some_and(|t| t.is(punct))
    }

    pub fn eat(&mut self, punct: u8) -> bool {
        let found = self.peek_is(punct);
        self.next += usize::from(found);
        found
    }

    pub fn str(&self, token: Token) -> &'a str {
        &self.text[token.span.range()]
    }

    /// The next token's text if it is of this kind.
    pub fn peek_str(&self, kind: Kind) -> Option<&'a str> {
        self.peek().filter(|t| t.kind == kind).map(|t| self.str(t))
    }

    pub fn error<T>(&self, span: Span, message: impl Into<String>) -> Result<T> {
        Err(ParseError::at(self.text, span, message))
    }

    /// The end of the last token that was taken.
    pub fn last_end(&self) -> u32 {
        match self.next.checked_sub(1).and_then(|n| self.tokens.get(n)) {
            Some(token) => token.span.end,
            None => 0,
        }
    }

    pub fn span_from(&self, start: u32) -> Span {
        Span {
            start,
            end: self.last_end().max(start),
        }
    }
}
