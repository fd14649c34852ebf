//! Builds the syntax tree of a module. It is tolerant: an unknown directive or instruction is kept as
//! written, and whether a statement makes sense is left to ptxas. Only a broken structure is an error:
//! unbalanced braces, a statement without its `;`, a comment or string that never ends.

use super::ir::{
    Block, DeclaredName, Directive, Function, FunctionKind, Guard, Instruction, Item, Label,
    Module, Span, Statement, Variable,
};
use super::lex::{Kind, Token, lex};
use super::operand;
use super::place::position;

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

pub(super) struct Parser<'a> {
    pub(super) text: &'a str,
    pub(super) tokens: &'a [Token],
    pub(super) next: usize,
}

type Result<T, E = ParseError> = std::result::Result<T, E>;

impl<'a> Parser<'a> {
    pub(super) fn peek(&self) -> Option<Token> {
        self.tokens.get(self.next).copied()
    }

    pub(super) fn peek_is(&self, punct: u8) -> bool {
        self.peek().is_some_and(|t| t.is(punct))
    }

    pub(super) fn eat(&mut self, punct: u8) -> bool {
        let found = self.peek_is(punct);
        self.next += usize::from(found);
        found
    }

    pub(super) fn str(&self, token: Token) -> &'a str {
        &self.text[token.span.range()]
    }

    /// The next token's text if it is of this kind.
    pub(super) fn peek_str(&self, kind: Kind) -> Option<&'a str> {
        self.peek().filter(|t| t.kind == kind).map(|t| self.str(t))
    }

    pub(super) fn error<T>(&self, span: Span, message: impl Into<String>) -> Result<T> {
        Err(ParseError::at(self.text, span, message))
    }

    /// The end of the last token that was taken.
    pub(super) fn last_end(&self) -> u32 {
        match self.next.checked_sub(1).and_then(|n| self.tokens.get(n)) {
            Some(token) => token.span.end,
            None => 0,
        }
    }

    pub(super) fn span_from(&self, start: u32) -> Span {
        Span {
            start,
            end: self.last_end().max(start),
        }
    }

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

    fn function(&mut self) -> Result<Function> {
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

    fn block(&mut self, depth: u32) -> Result<Block> {
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
    fn starts_statement(&self) -> bool {
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

    fn missing_semicolon<T>(&self, what: &str, first: Token) -> Result<T> {
        let end = self.last_end();
        self.error(
            Span { start: end, end },
            format!("expected `;` at the end of {what} `{}`", self.str(first)),
        )
    }

    /// `.reg .b32 %r<4>;`, `.param .u64 .ptr .global .align 16 x`. What has no type or no name is kept
    /// as text.
    fn variable(&mut self, declaration: Declaration) -> Result<Declared> {
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

    /// A directive that is kept as text; where it ends depends on which it is.
    fn directive(&mut self, name: &str) -> Result<Directive> {
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

    /// Anything, up to its end: `;`, or the line's where no bracket is open and no comma is last.
    fn unknown(&mut self, ends: Ends) -> Result<Directive> {
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
    pub(super) fn skip_group(&mut self, statements: Statements) -> Result<()> {
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

    fn unclosed<T>(&self, open: Token) -> Result<T> {
        self.error(
            open.span,
            format!("this `{}` is never closed", self.str(open)),
        )
    }

    fn directive_from(&self, first: Token) -> Directive {
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
}

/// Whether a bracketed group may hold `;`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Statements {
    Allowed,
    Refused,
}

/// Where a declaration stands: that decides how it ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Declaration {
    Statement,
    Parameter,
}

enum Declared {
    Variable(Variable),
    Unknown(Directive),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    Semicolon,
    LineOrSemicolon,
}

fn is_linkage(word: &str) -> bool {
    matches!(word, ".visible" | ".extern" | ".weak" | ".common")
}

fn is_space(word: &str) -> bool {
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
