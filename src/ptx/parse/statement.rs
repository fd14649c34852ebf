//! A body's statements: blocks, labels, instructions.

use super::super::ir::{Block, Guard, Instruction, Label, Span, Statement};
use super::super::lex::{Kind, Token};
use super::super::operand;
use super::cursor::Parser;
use super::declaration::{Declaration, Declared, is_linkage, is_space};
use super::directive::Ends;
use super::{MAX_DEPTH, Result};

impl Parser<'_> {
    pub(super) fn block(&mut self, depth: u32) -> Result<Block> {
        let open = self.peek().map_or_else(Span::default, |t| t.span);
        self.next += 1;
        if depth >= MAX_DEPTH {
            return self.error(open, "braces nest too deeply");
        }
        let mut statements = Vec::new();
        loop {
            let Some(token) = self.peek() else {
                return self.error(open, "this `{` is never closed; add `}`");
            };
            match token.kind {
                Kind::Punct(b'}') => {
                    self.next += 1;
                    return Ok(Block {
                        statements,
                        span: self.span_from(open.start),
                    });
                }
                Kind::Punct(b';') => self.next += 1,
                Kind::Punct(b'{') => statements.push(Statement::Block(self.block(depth + 1)?)),
                Kind::Dotted => statements.push(self.dotted_statement(token)?),
                Kind::Ident if self.tokens.get(self.next + 1).is_some_and(|t| t.is(b':')) => {
                    self.next += 2;
                    statements.push(Statement::Label(Label {
                        name: self.str(token).to_owned(),
                        span: self.span_from(token.span.start),
                    }));
                }
                Kind::Ident | Kind::Punct(b'@') => {
                    statements.push(Statement::Instruction(self.instruction(token)?));
                }
                Kind::Number | Kind::String | Kind::Punct(_) => {
                    statements.push(Statement::Directive(self.unknown(Ends::Semicolon)?));
                }
            }
        }
    }

    fn dotted_statement(&mut self, token: Token) -> Result<Statement> {
        let word = self.str(token);
        let second = self
            .tokens
            .get(self.next + 1)
            .map(|&t| self.str(t))
            .unwrap_or_default();
        // `.L_x:` is a label that ptxas refuses; the tree keeps it so that others can say so.
        if second == ":" {
            self.next += 2;
            return Ok(Statement::Label(Label {
                name: word.to_owned(),
                span: self.span_from(token.span.start),
            }));
        }
        if word == ".entry"
            || word == ".func"
            || is_linkage(word) && matches!(second, ".entry" | ".func")
        {
            return self.error(
                token.span,
                "a function begins inside another; the one before lacks its closing `}`",
            );
        }
        if is_space(word) || is_linkage(word) && is_space(second) {
            return Ok(match self.variable(Declaration::Statement)? {
                Declared::Variable(variable) => Statement::Variable(variable),
                Declared::Unknown(directive) => Statement::Directive(directive),
            });
        }
        Ok(Statement::Directive(self.directive(word)?))
    }

    fn instruction(&mut self, first: Token) -> Result<Instruction> {
        let start = first.span.start;
        let guard = match self.eat(b'@') {
            false => None,
            true => {
                let negated = self.eat(b'!');
                let Some(register) = self.peek_str(Kind::Ident) else {
                    return self.error(first.span, "expected a predicate register after `@`");
                };
                self.next += 1;
                Some(Guard {
                    register: register.to_owned(),
                    negated,
                })
            }
        };
        // Only after a guard can this be anything but the identifier the caller saw.
        let Some(opcode) = self.peek().filter(|t| t.kind == Kind::Ident) else {
            let span = self.peek().map_or(first.span, |t| t.span);
            return self.error(span, "expected an instruction after the predicate");
        };
        self.next += 1;
        let mut modifiers = Vec::new();
        while let Some(modifier) = self.peek_str(Kind::Dotted) {
            modifiers.push(modifier[1..].to_owned());
            self.next += 1;
        }
        let mnemonic_span = self.span_from(opcode.span.start);
        let mut operands = Vec::new();
        let mut operand_spans = Vec::new();
        if !self.peek_is(b';') {
            loop {
                if let Some(t) = self.peek()
                    && operands.is_empty()
                    && t.first_on_line
                    && (t.is(b'@')
                        || t.is(b'}')
                        || t.kind == Kind::Dotted
                        || self.starts_statement())
                {
                    return self.missing_semicolon("instruction", opcode);
                }
                let from = self.peek().map_or(start, |t| t.span.start);
                operands.push(operand::parse(self, 0)?);
                operand_spans.push(self.span_from(from));
                if !self.eat(b',') {
                    break;
                }
            }
        }
        if !self.eat(b';') {
            return self.missing_semicolon("instruction", opcode);
        }
        Ok(Instruction {
            guard,
            opcode: self.str(opcode).to_owned(),
            modifiers,
            operands,
            operand_spans,
            mnemonic_span,
            span: self.span_from(start),
        })
    }

    /// Whether an unprefixed word with a modifier stands next: `add.s32`, never an operand.
    pub(super) fn starts_statement(&self) -> bool {
        let adjacent = |a: Token, b: &Token| b.kind == Kind::Dotted && a.span.end == b.span.start;
        self.peek().is_some_and(|t| {
            t.kind == Kind::Ident
                && self.text.as_bytes()[t.span.start as usize] != b'%'
                && self
                    .tokens
                    .get(self.next + 1)
                    .is_some_and(|n| adjacent(t, n))
        })
    }

    pub(super) fn missing_semicolon<T>(&self, what: &str, first: Token) -> Result<T> {
        let end = self.last_end();
        self.error(
            Span { start: end, end },
            format!("expected `;` at the end of {what} `{}`", self.str(first)),
        )
    }
}
