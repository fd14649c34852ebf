//! Parses operands and literals. What it does not understand becomes [`Operand::Verbatim`], never an
//! error; whether an operand suits its instruction is not its business.

use super::ir::{Address, Immediate, Operand, Span};
use super::lex::{Kind, Token};
use super::parse::{MAX_DEPTH, ParseError, Parser, Statements};

/// One operand; stops before the `,`, `;` or closing bracket after it.
pub(super) fn parse(p: &mut Parser<'_>, depth: u32) -> Result<Operand, ParseError> {
    let begin = p.next;
    if let Some(operand) = understood(p, depth)? {
        let ends = match p.peek() {
            None => true,
            Some(t) => {
                t.first_on_line || matches!(t.kind, Kind::Punct(b',' | b';' | b')' | b']' | b'}'))
            }
        };
        if ends {
            return Ok(operand);
        }
    }
    p.next = begin;
    verbatim(p)
}

/// A constant integer expression, or `None` with the position unspecified.
pub(super) fn integer(p: &mut Parser<'_>, depth: u32) -> Option<i128> {
    binary(p, 0, depth)
}

/// What a literal means; `None` where it is none.
fn literal(text: &str) -> Option<Immediate> {
    let bits = |digits: &str, len: usize| {
        (digits.len() == len && digits.bytes().all(|b| b.is_ascii_hexdigit()))
            .then(|| u64::from_str_radix(digits, 16).ok())
            .flatten()
    };
    match text.get(..2) {
        Some("0f" | "0F") => return bits(&text[2..], 8).map(|b| Immediate::F32(b as u32)),
        Some("0d" | "0D") => return bits(&text[2..], 16).map(Immediate::F64),
        Some(_) | None => {}
    }
    if let Some(n) = integer_literal(text) {
        return Some(Immediate::Int(n));
    }
    let float = text.starts_with(|c: char| c.is_ascii_digit() || c == '.') && !text.contains('_');
    let value = float.then(|| text.parse::<f64>().ok()).flatten()?;
    Some(Immediate::F64(value.to_bits()))
}

fn integer_literal(text: &str) -> Option<i128> {
    let digits = text.strip_suffix(['U', 'u']).unwrap_or(text);
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', b'b' | b'B', ..] => (&digits[2..], 2),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    let plain = digits.bytes().all(|b| b.is_ascii_hexdigit());
    plain
        .then(|| i128::from_str_radix(digits, radix).ok())
        .flatten()
}

fn understood(p: &mut Parser<'_>, depth: u32) -> Result<Option<Operand>, ParseError> {
    let Some(token) = p.peek() else {
        return Ok(None);
    };
    if depth >= MAX_DEPTH {
        return p.error(token.span, "operands nest too deeply");
    }
    let first = match simple(p, token, depth)? {
        Some(operand) => operand,
        None => return Ok(None),
    };
    if p.peek_is(b'|') {
        p.next += 1;
        let Some(token) = p.peek() else {
            return Ok(None);
        };
        return Ok(
            simple(p, token, depth)?.map(|second| Operand::Pair(Box::new(first), Box::new(second)))
        );
    }
    Ok(Some(first))
}

/// An operand that is not a pair.
fn simple(p: &mut Parser<'_>, token: Token, depth: u32) -> Result<Option<Operand>, ParseError> {
    Ok(match token.kind {
        Kind::Ident => Some(named(p)),
        Kind::Number | Kind::Dotted => number(p, depth),
        Kind::Punct(b'-') => {
            let begin = p.next;
            p.next += 1;
            match p.peek() {
                Some(t) if t.kind == Kind::Ident => Some(Operand::Negated(Box::new(named(p)))),
                Some(_) | None => {
                    p.next = begin;
                    number(p, depth)
                }
            }
        }
        Kind::Punct(b'!') => {
            p.next += 1;
            match p.peek().map(|t| t.kind) {
                Some(Kind::Ident) => Some(Operand::Not(Box::new(named(p)))),
                Some(_) | None => None,
            }
        }
        Kind::Punct(b'~') => number(p, depth),
        Kind::Punct(b'{') => list(p, b'}', depth)?.map(Operand::Vector),
        Kind::Punct(b'(') => {
            let begin = p.next;
            match list(p, b')', depth)? {
                Some(members)
                    if p.peek()
                        .is_none_or(|t| matches!(t.kind, Kind::Punct(b',' | b';'))) =>
                {
                    Some(Operand::Tuple(members))
                }
                Some(_) | None => {
                    p.next = begin;
                    number(p, depth)
                }
            }
        }
        Kind::Punct(b'[') => address(p, depth)?,
        Kind::String | Kind::Punct(_) => None,
    })
}

/// `%tid.x`, `sym`, `sym+8`, `sym[2]`, `_`.
fn named(p: &mut Parser<'_>) -> Operand {
    let name = name(p);
    if name == "_" {
        return Operand::Sink;
    }
    if p.peek_is(b'[') {
        let begin = p.next;
        p.next += 1;
        let index = integer(p, 0).and_then(|n| i64::try_from(n).ok());
        if let Some(index) = index
            && p.eat(b']')
        {
            return Operand::Element { base: name, index };
        }
        p.next = begin;
        return Operand::Name(name);
    }
    let begin = p.next;
    if (p.peek_is(b'+') || p.peek_is(b'-'))
        && let Some(offset) = offset(p)
    {
        return Operand::Offset { base: name, offset };
    }
    p.next = begin;
    Operand::Name(name)
}

/// An identifier with its `.x`.
fn name(p: &mut Parser<'_>) -> String {
    let Some(first) = p.peek() else {
        return String::new();
    };
    p.next += 1;
    let mut span = first.span;
    while let Some(t) = p.peek()
        && t.kind == Kind::Dotted
        && t.span.start == span.end
    {
        span.end = t.span.end;
        p.next += 1;
    }
    p.text[span.range()].to_owned()
}

/// `+8`, `-4`, `+-16`, `+8+4`: the sum.
fn offset(p: &mut Parser<'_>) -> Option<i64> {
    let mut sum = 0i128;
    while p.peek_is(b'+') || p.peek_is(b'-') {
        let negative = p.eat(b'-') || !p.eat(b'+');
        let term = binary(p, PRODUCT, 0)?;
        sum = sum.checked_add(if negative { term.checked_neg()? } else { term })?;
    }
    i64::try_from(sum).ok()
}

fn number(p: &mut Parser<'_>, depth: u32) -> Option<Operand> {
    let begin = p.next;
    if let Some(n) = integer(p, depth) {
        return Some(Operand::Immediate(Immediate::Int(n)));
    }
    p.next = begin;
    let negative = p.eat(b'-');
    let value = match p.peek_str(Kind::Number) {
        Some(number) => literal(number)?,
        // `.5` reads as a modifier until it stands where an operand does.
        None => p
            .peek_str(Kind::Dotted)
            .filter(|d| d.as_bytes()[1].is_ascii_digit())
            .and_then(literal)?,
    };
    p.next += 1;
    let value = match value {
        Immediate::F32(bits) if negative => Immediate::F32(bits ^ 1 << 31),
        Immediate::F64(bits) if negative => Immediate::F64(bits ^ 1 << 63),
        Immediate::Int(_) | Immediate::F32(_) | Immediate::F64(_) => value,
    };
    Some(Operand::Immediate(value))
}

/// Operands up to `close`; `None` where they do not end there.
fn list(p: &mut Parser<'_>, close: u8, depth: u32) -> Result<Option<Vec<Operand>>, ParseError> {
    p.next += 1;
    let mut members = Vec::new();
    if p.eat(close) {
        return Ok(Some(members));
    }
    loop {
        members.push(parse(p, depth + 1)?);
        if p.eat(close) {
            return Ok(Some(members));
        }
        if !p.eat(b',') {
            return Ok(None);
        }
    }
}

/// `[base+offset, …]`.
fn address(p: &mut Parser<'_>, depth: u32) -> Result<Option<Operand>, ParseError> {
    p.next += 1;
    let mut address = Address {
        base: None,
        offset: 0,
        rest: Vec::new(),
    };
    match p.peek().map(|t| t.kind) {
        Some(Kind::Ident) => {
            address.base = Some(name(p));
            if p.peek_is(b'+') || p.peek_is(b'-') {
                match offset(p) {
                    Some(offset) => address.offset = offset,
                    None => return Ok(None),
                }
            }
        }
        Some(_) => match integer(p, depth).and_then(|n| i64::try_from(n).ok()) {
            Some(offset) => address.offset = offset,
            None => return Ok(None),
        },
        None => return Ok(None),
    }
    while p.eat(b',') {
        address.rest.push(parse(p, depth + 1)?);
    }
    Ok(p.eat(b']').then_some(Operand::Address(address)))
}

/// Everything up to the end of the operand, as written.
fn verbatim(p: &mut Parser<'_>) -> Result<Operand, ParseError> {
    let start = p.peek().map_or(p.last_end(), |t| t.span.start);
    let begin = p.next;
    while let Some(t) = p.peek() {
        match t.kind {
            Kind::Punct(b',' | b';' | b')' | b']' | b'}') => break,
            Kind::Punct(b'(' | b'[' | b'{') => p.skip_group(Statements::Refused)?,
            // An instruction that lacks its `;` must not swallow the next line.
            _ if t.first_on_line && p.next > begin => break,
            Kind::Ident | Kind::Dotted | Kind::Number | Kind::String | Kind::Punct(_) => {
                p.next += 1
            }
        }
    }
    let span = Span {
        start,
        end: p.last_end().max(start),
    };
    Ok(Operand::Verbatim(p.text[span.range()].to_owned()))
}

const PRODUCT: u8 = 9;

/// A binary operator at the cursor: its precedence (higher binds tighter), tokens, and meaning.
fn operator(p: &Parser<'_>) -> Option<(u8, usize, Operator)> {
    let next = |n: usize| match p.tokens.get(p.next + n) {
        Some(Token {
            kind: Kind::Punct(b),
            ..
        }) => *b,
        Some(_) | None => 0,
    };
    Some(match (next(0), next(1)) {
        (b'<', b'<') => (7, 2, |a, b| shift(b).map(|n| a << n)),
        (b'>', b'>') => (7, 2, |a, b| shift(b).map(|n| a >> n)),
        (b'&', after) if after != b'&' => (5, 1, |a, b| Some(a & b)),
        (b'^', _) => (4, 1, |a, b| Some(a ^ b)),
        (b'+', _) => (8, 1, i128::checked_add),
        (b'-', _) => (8, 1, i128::checked_sub),
        (b'*', _) => (PRODUCT, 1, i128::checked_mul),
        (b'/', _) => (PRODUCT, 1, i128::checked_div),
        (b'%', _) => (PRODUCT, 1, i128::checked_rem),
        _ => return None,
    })
}

type Operator = fn(i128, i128) -> Option<i128>;

/// Shift amounts beyond a 64-bit constant's width mean nothing.
fn shift(by: i128) -> Option<u32> {
    u32::try_from(by).ok().filter(|&n| n < 64)
}

fn binary(p: &mut Parser<'_>, at_least: u8, depth: u32) -> Option<i128> {
    let mut left = unary(p, depth)?;
    while let Some((precedence, tokens, apply)) = operator(p)
        && precedence >= at_least
    {
        p.next += tokens;
        let right = binary(p, precedence + 1, depth + 1)?;
        left = apply(left, right)?;
    }
    Some(left)
}

fn unary(p: &mut Parser<'_>, depth: u32) -> Option<i128> {
    if depth >= MAX_DEPTH {
        return None;
    }
    if p.eat(b'-') {
        return unary(p, depth + 1)?.checked_neg();
    }
    if p.eat(b'+') {
        return unary(p, depth + 1);
    }
    if p.eat(b'~') {
        return Some(!unary(p, depth + 1)?);
    }
    if p.eat(b'(') {
        let inner = binary(p, 0, depth + 1)?;
        return p.eat(b')').then_some(inner);
    }
    let number = p.peek_str(Kind::Number).and_then(integer_literal)?;
    p.next += 1;
    Some(number)
}
