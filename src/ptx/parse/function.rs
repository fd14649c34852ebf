//! Functions: their header, parameters and the directives between it and the body.

use super::super::ir::{Directive, Function, FunctionKind, Span, Variable};
use super::super::lex::Kind;
use super::Result;
use super::cursor::Parser;
use super::declaration::{Declaration, Declared, is_linkage};

impl Parser<'_> {
    pub(super) fn function(&mut self) -> Result<Function> {
        let start = self.peek().map_or(0, |t| t.span.start);
        let linkage = self
            .peek_str(Kind::Dotted)
            .filter(|s| is_linkage(s))
            .map(str::to_owned);
        self.next += usize::from(linkage.is_some());
        let kind = match self.peek_str(Kind::Dotted) {
            Some(".entry") => FunctionKind::Entry,
            Some(_) | None => FunctionKind::Func,
        };
        self.next += 1;
        let mut directives = Vec::new();
        while self.peek_str(Kind::Dotted) == Some(".attribute") {
            directives.push(self.header_directive()?);
        }
        let returns = match self.peek_is(b'(') {
            true => self.parameters()?,
            false => Vec::new(),
        };
        let Some(name) = self.peek().filter(|t| t.kind == Kind::Ident) else {
            let span = self.peek().map_or(self.span_from(start), |t| t.span);
            return self.error(span, "expected the function's name here");
        };
        self.next += 1;
        let params = match self.peek_is(b'(') {
            true => self.parameters()?,
            false => Vec::new(),
        };
        let directives_at = self.last_end();
        let mut body = None;
        loop {
            match self.peek() {
                None => {
                    return self.error(
                        self.span_from(start),
                        format!(
                            "function `{}` has no body; write `{{ … }}`, or `;` for a declaration",
                            self.str(name)
                        ),
                    );
                }
                Some(t) if t.is(b'{') => {
                    body = Some(self.block(0)?);
                    break;
                }
                Some(t) if t.is(b';') => {
                    self.next += 1;
                    break;
                }
                Some(t) if t.kind == Kind::Dotted => directives.push(self.header_directive()?),
                Some(t) => {
                    return self.error(
                        t.span,
                        format!(
                            "expected a directive, `{{` or `;` after the header of function `{}`",
                            self.str(name)
                        ),
                    );
                }
            }
        }
        Ok(Function {
            kind,
            linkage,
            name: self.str(name).to_owned(),
            name_span: name.span,
            returns,
            params,
            directives,
            directives_at,
            body,
            span: self.span_from(start),
        })
    }

    /// `( .param …, .param … )`.
    fn parameters(&mut self) -> Result<Vec<Variable>> {
        let open = self.peek().map_or_else(Span::default, |t| t.span);
        self.next += 1;
        let mut found = Vec::new();
        loop {
            match self.peek() {
                Some(t) if t.is(b')') => {
                    self.next += 1;
                    return Ok(found);
                }
                Some(t) if t.is(b',') => self.next += 1,
                Some(t) if t.kind == Kind::Dotted => {
                    match self.variable(Declaration::Parameter)? {
                        Declared::Variable(variable) => found.push(variable),
                        Declared::Unknown(directive) => {
                            return self.error(
                                directive.span,
                                "this parameter is not understood; write `.param .TYPE NAME`",
                            );
                        }
                    }
                }
                Some(t) if !t.is(b'{') && !t.is(b'}') && !t.is(b';') => {
                    return self.error(
                        t.span,
                        "a parameter begins with `.param .TYPE`; C syntax is not PTX",
                    );
                }
                Some(_) | None => {
                    return self.error(open, "this parameter list is not closed; add `)`");
                }
            }
        }
    }

    /// A directive between parameters and body: ends at the next directive, `{` or `;`.
    fn header_directive(&mut self) -> Result<Directive> {
        let Some(first) = self.peek() else {
            return self.error(self.span_from(0), "expected a directive");
        };
        self.next += 1;
        let mut depth = 0u32;
        while let Some(t) = self.peek() {
            match t.kind {
                Kind::Punct(b'(') => depth += 1,
                Kind::Punct(b')') => depth = depth.saturating_sub(1),
                Kind::Dotted if depth == 0 => break,
                Kind::Punct(b'{' | b';' | b'}') => break,
                // `.func .attribute(…) name` and `.func .attribute(…) (ret) name`.
                Kind::Ident if depth == 0 && self.tokens[self.next - 1].is(b')') => break,
                Kind::Ident | Kind::Dotted | Kind::Number | Kind::String | Kind::Punct(_) => {}
            }
            self.next += 1;
            if depth == 0 && t.is(b')') {
                break;
            }
        }
        if self.peek_is(b';') && self.str(first) == ".pragma" {
            self.next += 1;
        }
        Ok(self.directive_from(first))
    }
}
