//! Splits PTX text into tokens; white space and comments fall between them. It knows no grammar and
//! never rejects a character it does not know: only a comment or string that never ends is an error.

use super::ir::Span;
use super::parse::ParseError;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `ld`, `%r1`, `$L__BB0_1`, `_`.
    Ident,
    /// `.global`, `.L1::no_allocate`, `.2d`: the dot included.
    Dotted,
    /// Starts with a digit; what it means is decided later.
    Number,
    /// Quotes included.
    String,
    /// One byte of punctuation, or a character that PTX does not use.
    Punct(u8),
}

/// A token and its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) span: Span,
    /// Whether it is the first on its line.
    pub(super) first_on_line: bool,
}

impl Token {
    /// Whether it is this punctuation.
    pub(super) fn is(&self, punct: u8) -> bool {
        self.kind == Kind::Punct(punct)
    }
}

/// All tokens of `text`, in order.
pub(super) fn lex(text: &str) -> Result<Vec<Token>, ParseError> {
    let bytes = text.as_bytes();
    if u32::try_from(bytes.len()).is_err() {
        return Err(ParseError::at(
            text,
            Span::default(),
            "the text is larger than 4 GiB",
        ));
    }
    let mut tokens = Vec::with_capacity(bytes.len() / 4);
    let mut at = 0;
    let mut first_on_line = true;
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        let kind = match byte {
            b'\n' => {
                first_on_line = true;
                at += 1;
                continue;
            }
            _ if byte.is_ascii_whitespace() || byte == 0x0b => {
                at += 1;
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at = end_of_line(bytes, at);
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                at = end_of_comment(text, at)?;
                first_on_line |= bytes[start..at].contains(&b'\n');
                continue;
            }
            b'"' => {
                at = end_of_string(text, at)?;
                Kind::String
            }
            b'.' if bytes.get(at + 1).copied().is_some_and(is_word) => {
                at = end_of_dotted(bytes, at + 1);
                Kind::Dotted
            }
            b'0'..=b'9' => {
                at = end_of_number(bytes, at);
                Kind::Number
            }
            _ if is_word(byte)
                || byte == b'%' && bytes.get(at + 1).copied().is_some_and(is_word) =>
            {
                at = end_of_word(bytes, at + 1);
                Kind::Ident
            }
            _ if byte.is_ascii() => {
                at += 1;
                Kind::Punct(byte)
            }
            _ => {
                at += text[at..].chars().next().map_or(1, char::len_utf8);
                Kind::Punct(byte)
            }
        };
        tokens.push(Token {
            kind,
            span: span(start, at),
            first_on_line,
        });
        first_on_line = false;
    }
    Ok(tokens)
}

/// The spans of all comments in `text`, `//` and `/* */`, in order; the line break is not part of one.
/// An unterminated comment or string ends at the end of the text.
pub(super) fn comments(text: &str) -> Vec<Span> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        match (bytes[at], bytes.get(at + 1)) {
            (b'"', _) => at = end_of_string(text, at).unwrap_or(bytes.len()),
            (b'/', Some(b'/')) => {
                at = end_of_line(bytes, at);
                found.push(span(start, at));
            }
            (b'/', Some(b'*')) => {
                at = end_of_comment(text, at).unwrap_or(bytes.len());
                found.push(span(start, at));
            }
            _ => at += 1,
        }
    }
    found
}

/// Whether `byte` may stand in a PTX identifier after its first character.
pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$'
}

fn span(start: usize, end: usize) -> Span {
    Span {
        start: start as u32,
        end: end as u32,
    }
}

fn end_of_line(bytes: &[u8], from: usize) -> usize {
    bytes[from..]
        .iter()
        .position(|&b| b == b'\n')
        .map_or(bytes.len(), |n| from + n)
}

fn end_of_comment(text: &str, from: usize) -> Result<usize, ParseError> {
    match text[from + 2..].find("*/") {
        Some(n) => Ok(from + 2 + n + 2),
        None => Err(ParseError::at(
            text,
            span(from, from + 2),
            "this comment never ends; close it with `*/`",
        )),
    }
}

/// A backslash escapes nothing, as for ptxas: else `"\"; mma…; //"` would hide an instruction from whoever
/// looks for it.
fn end_of_string(text: &str, from: usize) -> Result<usize, ParseError> {
    let bytes = text.as_bytes();
    let mut at = from + 1;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => return Ok(at + 1),
            b'\n' => break,
            _ => at += 1,
        }
    }
    Err(ParseError::at(
        text,
        span(from, from + 1),
        "this string never ends; close it with `\"` on the same line",
    ))
}

fn end_of_word(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).copied().is_some_and(is_word) {
        at += 1;
    }
    at
}

/// Words joined by `::`.
fn end_of_dotted(bytes: &[u8], at: usize) -> usize {
    let mut at = end_of_word(bytes, at);
    while bytes[at..].starts_with(b"::") && bytes.get(at + 2).copied().is_some_and(is_word) {
        at = end_of_word(bytes, at + 2);
    }
    at
}

/// `42`, `0x7f`, `0f3F800000`, `1.5e-3`, `42U`; a dot counts only where no other base is written.
fn end_of_number(bytes: &[u8], from: usize) -> usize {
    let mut at = end_of_word(bytes, from);
    let decimal = bytes[from..at]
        .iter()
        .all(|b| b.is_ascii_digit() || matches!(b, b'e' | b'E'));
    if !decimal {
        return at;
    }
    if bytes.get(at) == Some(&b'.') {
        at = end_of_word(bytes, at + 1);
    }
    let exponent =
        matches!(bytes[at - 1], b'e' | b'E') && matches!(bytes.get(at), Some(b'+' | b'-'));
    if exponent && bytes.get(at + 1).is_some_and(u8::is_ascii_digit) {
        at = end_of_word(bytes, at + 1);
    }
    at
}
