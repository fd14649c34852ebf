//! Builds the syntax tree of a module. It is tolerant: an unknown directive or instruction is kept as
//! written, and whether a statement makes sense is left to ptxas. Only a broken structure is an error:
//! unbalanced braces, a statement without its `;`, a comment or string that never ends.

mod cursor;
mod declaration;
mod directive;
mod function;
mod statement;

use super::ir::{Item, Module, Span};
use super::lex::{Kind, Token, lex};
use super::place::position;
pub(super) use cursor::Parser;
use declaration::{Declaration, Declared, is_linkage, is_space};
use directive::Ends;
pub(super) use directive::Statements;

/// Nesting of braces and operands beyond which a text is refused rather than overflowing the stack.
pub(super) const MAX_DEPTH: u32 = 128;

/// The structure of the text is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ParseError {
    /// What is wrong and what to do.
    pub message: String,
    /// Where.
    pub span: Span,
    /// 1-based line of the span's start.
    pub line: u32,
    /// 1-based column of the span's start, in characters.
    pub column: u32,
}

impl ParseError {
    pub(super) fn at(text: &str, span: Span, message: impl Into<String>) -> Self {
        let place = position(text, span.start);
        Self {
            message: message.into(),
            span,
            line: place.line,
            column: place.column,
        }
    }
}

/// Parses a module.
///
/// # Errors
/// Where braces, statements, comments or strings do not end; never for what is merely unknown.
pub fn parse(text: &str) -> Result<Module, ParseError> {
    let tokens = lex(text)?;
    let mut parser = Parser {
        text,
        tokens: &tokens,
        next: 0,
    };
    let mut items = Vec::new();
    while let Some(token) = parser.peek() {
        if token.is(b';') {
            parser.next += 1;
            continue;
        }
        items.push(parser.item(token)?);
    }
    Ok(Module {
        text: text.to_owned(),
        items,
    })
}

type Result<T, E = ParseError> = std::result::Result<T, E>;

impl Parser<'_> {
    fn item(&mut self, token: Token) -> Result<Item> {
        if token.is(b'}') {
            return self.error(token.span, "this `}` closes nothing");
        }
        if token.kind != Kind::Dotted {
            // Something foreign at module level: kept, up to where it plausibly ends.
            return Ok(Item::Directive(self.unknown(Ends::LineOrSemicolon)?));
        }
        let linkage_follows = usize::from(is_linkage(self.str(token)));
        let word = match self.tokens.get(self.next + linkage_follows) {
            Some(&t) if t.kind == Kind::Dotted => self.str(t),
            Some(_) | None => "",
        };
        match word {
            ".entry" | ".func" => Ok(Item::Function(self.function()?)),
            _ if is_space(word) => Ok(match self.variable(Declaration::Statement)? {
                Declared::Variable(variable) => Item::Variable(variable),
                Declared::Unknown(directive) => Item::Directive(directive),
            }),
            _ => Ok(Item::Directive(self.directive(self.str(token))?)),
        }
    }
}
