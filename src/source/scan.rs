//! A cursor over one header line: it takes words, literals and expressions, and knows their columns.

use super::error::{Finding, Place};
use super::header::Placed;
use super::knob::KnobValue;

/// `key=value`
pub(super) struct Field {
    pub(super) key: Placed<String>,
    pub(super) value: Placed<String>,
}

pub(super) struct Cursor<'a> {
    text: &'a str,
    line: u32,
    at: usize,
    /// Where the line's content ends; a comment may follow.
    end: usize,
}

impl<'a> Cursor<'a> {
    /// Over `text`, from the byte `at`.
    pub(super) fn new(text: &'a str, line: u32, at: usize) -> Self {
        Self {
            text,
            line,
            at,
            end: text.trim_end().len().max(at),
        }
    }

    pub(super) fn line(&self) -> u32 {
        self.line
    }

    pub(super) fn whole_line(&self) -> Place {
        let start = self.text.len() - self.text.trim_start().len();
        self.place(start, self.end)
    }

    /// Takes a trailing `# comment` off the line and gives its text.
    pub(super) fn cut_comment(&mut self) -> Option<String> {
        let mut quote = None;
        let content = &self.text[self.at..self.end];
        for (offset, c) in content.char_indices() {
            match (quote, c) {
                (Some(open), _) if c == open => quote = None,
                (Some(_), _) => {}
                (None, '"' | '\'') => quote = Some(c),
                (None, '#') => {
                    let comment = content[offset + 1..].trim().to_owned();
                    self.end = self.at + content[..offset].trim_end().len();
                    return Some(comment).filter(|comment| !comment.is_empty());
                }
                (None, _) => {}
            }
        }
        None
    }

    /// Everything that is left.
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..self.end]
    }

    /// Everything that is left, trimmed, with its place.
    pub(super) fn rest_placed(&mut self) -> Placed<String> {
        self.skip();
        self.take(self.end)
    }

    /// An identifier.
    pub(super) fn word(&mut self, wanted: &str) -> Result<Placed<String>, Finding> {
        self.word_of(wanted, |b| b.is_ascii_alphanumeric() || b == b'_')
    }

    /// A PTX symbol: an identifier that may hold `$`.
    pub(super) fn symbol(&mut self, wanted: &str) -> Result<Placed<String>, Finding> {
        self.word_of(wanted, |b| {
            b.is_ascii_alphanumeric() || b == b'_' || b == b'$'
        })
    }

    fn word_of(
        &mut self,
        wanted: &str,
        part: impl Fn(u8) -> bool,
    ) -> Result<Placed<String>, Finding> {
        self.skip();
        let bytes = self.rest().as_bytes();
        let length = bytes.iter().take_while(|&&b| part(b)).count();
        if length == 0 || bytes[0].is_ascii_digit() {
            return Err(self.unexpected(wanted));
        }
        Ok(self.take(self.at + length))
    }

    /// A knob's value: an integer, a bare word, or text in quotes.
    pub(super) fn literal(&mut self, wanted: &str) -> Result<Placed<KnobValue>, Finding> {
        self.skip();
        let rest = self.rest();
        if let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) {
            let Some(length) = rest[1..].find(quote) else {
                let place = self.place(self.at, self.end);
                return Err(Finding::header(place, "this quote is not closed"));
            };
            let taken = self.take(self.at + length + 2);
            return Ok(Placed {
                value: KnobValue::Text(taken.value[1..=length].to_owned()),
                place: taken.place,
            });
        }
        let length = rest
            .find(|c: char| c.is_whitespace() || matches!(c, ',' | '{' | '}' | '=' | '"' | '\''))
            .unwrap_or(rest.len());
        if length == 0 {
            return Err(self.unexpected(wanted));
        }
        let taken = self.take(self.at + length);
        let number = taken
            .value
            .starts_with(|c: char| c == '-' || c.is_ascii_digit());
        let value = match taken.value.parse::<i64>() {
            Ok(value) => KnobValue::Int(value),
            Err(_) if number => {
                let message = format!("`{}` is no 64-bit integer", taken.value);
                return Err(Finding::header(taken.place, message)
                    .help("a knob's values are integers or text; put text that begins with a digit in quotes"));
            }
            Err(_) => KnobValue::Text(taken.value),
        };
        Ok(Placed {
            value,
            place: taken.place,
        })
    }

    /// What stands between two brackets.
    pub(super) fn bracketed(&mut self, open: char, close: char) -> Result<Placed<String>, Finding> {
        self.expect(open)?;
        let mut depth = 1usize;
        for (offset, c) in self.rest().char_indices() {
            if c == open {
                depth += 1;
            } else if c == close {
                depth -= 1;
            }
            if depth == 0 {
                let inner = self.take(self.at + offset);
                self.at += close.len_utf8();
                return Ok(inner);
            }
        }
        Err(self.unclosed(open))
    }

    /// The next `key=value`; the value ends where the next key begins.
    pub(super) fn field(&mut self) -> Result<Option<Field>, Finding> {
        self.skip();
        if self.at == self.end {
            return Ok(None);
        }
        let key = self.word("`key=value`")?;
        self.expect('=')?;
        self.skip();
        let rest = self.rest();
        let mut depth = 0usize;
        let mut quote = None;
        let mut length = rest.len();
        for (offset, c) in rest.char_indices() {
            match (quote, c) {
                (Some(open), _) if c == open => quote = None,
                (Some(_), _) => {}
                (None, '"' | '\'') => quote = Some(c),
                (None, '(' | '[' | '{') => depth += 1,
                (None, ')' | ']' | '}') => {
                    depth = depth.checked_sub(1).ok_or_else(|| {
                        let place = self.place(self.at + offset, self.at + offset + 1);
                        Finding::header(place, format!("`{c}` closes nothing"))
                    })?;
                }
                (None, _) if c.is_whitespace() && depth == 0 => {
                    if begins_field(rest[offset..].trim_start()) {
                        length = offset;
                        break;
                    }
                }
                (None, _) => {}
            }
        }
        if depth > 0 {
            return Err(self.unclosed('('));
        }
        let value = self.take(self.at + rest[..length].trim_end().len());
        if value.value.is_empty() {
            let message = format!("`{}=` has no value", key.value);
            return Err(Finding::header(key.place, message));
        }
        Ok(Some(Field { key, value }))
    }

    pub(super) fn expect(&mut self, wanted: char) -> Result<(), Finding> {
        if self.eat(wanted) {
            return Ok(());
        }
        Err(self.unexpected(&format!("`{wanted}`")))
    }

    pub(super) fn eat(&mut self, wanted: char) -> bool {
        self.skip();
        let found = self.rest().starts_with(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    /// Whether nothing more follows.
    pub(super) fn is_at_end(&mut self) -> bool {
        self.skip();
        self.at == self.end
    }

    /// Nothing may follow.
    pub(super) fn end(&mut self) -> Result<(), Finding> {
        if self.is_at_end() {
            return Ok(());
        }
        Err(self.unexpected("nothing more"))
    }

    fn skip(&mut self) {
        self.at = self.end - self.rest().trim_start().len();
    }

    fn take(&mut self, end: usize) -> Placed<String> {
        let raw = &self.text[self.at..end];
        let start = self.at + raw.len() - raw.trim_start().len();
        self.at = end;
        let value = raw.trim().to_owned();
        Placed {
            place: self.place(start, start + value.len()),
            value,
        }
    }

    fn place(&self, start: usize, end: usize) -> Place {
        Place {
            line: self.line,
            columns: start..end,
        }
    }

    fn unexpected(&self, wanted: &str) -> Finding {
        let found = self.rest().split_whitespace().next();
        let message = match found {
            Some(found) => format!("{wanted} is wanted here, not `{found}`"),
            None => format!("{wanted} is wanted here, but the line ends"),
        };
        let length = found.map_or(1, str::len);
        Finding::header(self.place(self.at, self.at + length), message)
    }

    fn unclosed(&self, open: char) -> Finding {
        Finding::header(
            self.place(self.at, self.end),
            format!("a `{open}` is not closed"),
        )
    }
}

/// Whether `key=`, not `key==`, comes next.
fn begins_field(text: &str) -> bool {
    let length = text
        .bytes()
        .take_while(|&b| b.is_ascii_alphanumeric() || b == b'_')
        .count();
    let after = &text[length..];
    length > 0 && after.starts_with('=') && !after.starts_with("==")
}
