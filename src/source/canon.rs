//! The text of a source without what does not matter: comments and white space.

/// Writes `text` so that two sources that differ in comments and white space only give the same.
/// Header and statement lines stay lines; code becomes one stream.
pub(super) fn without_comments(text: &str) -> String {
    let mut squeezer = Squeezer::default();
    for line in text.lines() {
        let trimmed = line.trim_start();
        let header = trimmed.strip_prefix("//@").filter(|_| !squeezer.in_comment);
        let statement = trimmed.strip_prefix("//%").filter(|_| !squeezer.in_comment);
        if let Some(header) = header {
            if !header.trim_start().starts_with("about") {
                squeezer.line('@', header, Comments::Header);
            }
        } else if let Some(statement) = statement {
            squeezer.line('%', statement, Comments::None);
        } else {
            squeezer.push(line, Comments::Code);
            squeezer.gap = true;
        }
    }
    squeezer.out
}

/// The same for one expression.
pub(super) fn squeezed(text: &str) -> String {
    let mut squeezer = Squeezer::default();
    squeezer.push(text, Comments::None);
    squeezer.out
}

/// What begins a comment.
#[derive(Clone, Copy, PartialEq)]
enum Comments {
    None,
    /// `#` to the end of the line.
    Header,
    /// `//` to the end of the line, `/* … */`.
    Code,
}

#[derive(Default)]
struct Squeezer {
    out: String,
    in_comment: bool,
    /// White space or a comment was left out since the last character.
    gap: bool,
}

impl Squeezer {
    fn line(&mut self, kind: char, content: &str, comments: Comments) {
        self.out.push('\n');
        self.out.push(kind);
        self.gap = false;
        self.push(content, comments);
        self.out.push('\n');
        self.gap = false;
    }

    fn push(&mut self, line: &str, comments: Comments) {
        let mut rest = line;
        let mut quote = None;
        while let Some(c) = rest.chars().next() {
            if self.in_comment {
                let Some(end) = rest.find("*/") else {
                    return;
                };
                self.in_comment = false;
                self.gap = true;
                rest = &rest[end + 2..];
                continue;
            }
            if quote.is_none() {
                match comments {
                    Comments::None => {}
                    Comments::Header if c == '#' => return,
                    Comments::Header => {}
                    Comments::Code if rest.starts_with("//") => return,
                    Comments::Code if rest.starts_with("/*") => {
                        self.in_comment = true;
                        rest = &rest[2..];
                        continue;
                    }
                    Comments::Code => {}
                }
            }
            rest = &rest[c.len_utf8()..];
            if quote.is_none() && c.is_whitespace() {
                self.gap = true;
                continue;
            }
            if self.gap && self.out.ends_with(is_word) && is_word(c) {
                self.out.push(' ');
            }
            self.gap = false;
            match quote {
                Some(open) if c == open => quote = None,
                Some(_) => {}
                None if c == '"' || c == '\'' => quote = Some(c),
                None => {}
            }
            self.out.push(c);
        }
    }
}

/// Characters that run together when nothing is between them.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '%' | '.')
}
