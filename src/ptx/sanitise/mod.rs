//! Repairs what models get wrong where the repair is mechanical and safe, and says each one. A correct text
//! comes out byte for byte. It works on PTX and on sources: `//@` and `//%` lines and `${…}` holes are never
//! touched. What it is not sure of it leaves for ptxas to refuse.

mod declare;
mod module;
mod repair;
mod unwrap;

use std::collections::BTreeMap;

use super::edit::{Edit, apply};
use super::lex::{Token, comments, lex};
use super::place::Lines;
use crate::units::SmArch;

/// A text that was looked over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sanitised {
    /// The text, repaired.
    pub text: String,
    /// What was done, in order of lines; empty where the text is as it was given.
    pub fixes: Vec<Fix>,
}

/// One repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix {
    /// In words, for the model and the log: "renamed label `.L_x` to `$L__x`".
    pub what: String,
    /// 1-based line of the text that was given.
    pub line: u32,
}

/// Repairs `reply_text`. `arch` is the architecture that a missing or too narrow `.target` gets.
pub fn sanitise(reply_text: &str, arch: SmArch) -> Sanitised {
    let unwrapped = unwrap::unwrap(reply_text);
    let mut repairs = Repairs {
        lines: Lines::new(&unwrapped.text),
        lines_before: unwrapped.lines_before,
        edits: Vec::new(),
        taken: BTreeMap::new(),
        inserted: Vec::new(),
        fixes: unwrapped.fixes,
    };
    // A text whose comments or strings never end is left to the parser to complain about.
    if let Ok(tokens) = lex(&unwrapped.text) {
        let text = Text {
            text: &unwrapped.text,
            tokens: &tokens,
            comments: comments(&unwrapped.text),
        };
        repair::labels(&text, &mut repairs);
        repair::literals(&text, &mut repairs);
        repair::register_cap(&text, &mut repairs);
        declare::duplicates(&text, &mut repairs);
        declare::families(&text, &mut repairs);
        module::directives(&text, arch, &mut repairs);
    }
    repairs.fixes.sort_by_key(|fix| fix.line);
    let text =
        apply(&unwrapped.text, &repairs.edits).expect("invariant: edits that meet were not taken");
    Sanitised {
        text,
        fixes: repairs.fixes,
    }
}

/// A text and what stands in it.
struct Text<'a> {
    text: &'a str,
    tokens: &'a [Token],
    comments: Vec<super::ir::Span>,
}

impl<'a> Text<'a> {
    fn str(&self, index: usize) -> &'a str {
        self.tokens
            .get(index)
            .map_or("", |token| &self.text[token.span.range()])
    }

    /// Whether the token follows the one before without white space.
    fn is_joined(&self, index: usize) -> bool {
        let before = index
            .checked_sub(1)
            .and_then(|before| self.tokens.get(before));
        match (before, self.tokens.get(index)) {
            (Some(before), Some(token)) => before.span.end == token.span.start,
            _ => false,
        }
    }

    /// Whether the token is the `{` of a `${…}` hole.
    fn opens_hole(&self, index: usize) -> bool {
        self.str(index) == "{" && self.is_joined(index) && self.str(index - 1).ends_with('$')
    }
}

/// What is to be done, gathered over one text so that places stay valid.
struct Repairs {
    lines: Lines,
    /// Lines of the reply before the text.
    lines_before: u32,
    edits: Vec<Edit>,
    /// Start and end of what the edits replace.
    taken: BTreeMap<u32, u32>,
    /// Where the edits insert.
    inserted: Vec<u32>,
    fixes: Vec<Fix>,
}

impl Repairs {
    fn add(&mut self, edit: Edit, what: String) {
        let start = edit.span.start;
        if self.edit(edit) {
            self.say(start, what);
        }
    }

    /// Whether the edit was taken: one that meets an earlier one is not.
    fn edit(&mut self, edit: Edit) -> bool {
        let (start, end) = (edit.span.start, edit.span.end);
        let before = self.taken.range(..end.max(start + 1)).next_back();
        if before.is_some_and(|(&from, &to)| to > start && (from < start || end > start)) {
            return false;
        }
        if self.inserted.iter().any(|&at| start < at && at < end) {
            return false;
        }
        if end > start {
            self.taken.insert(start, end);
        } else {
            self.inserted.push(start);
        }
        self.edits.push(edit);
        true
    }

    fn say(&mut self, offset: u32, what: String) {
        let line = self.lines.line(offset) + self.lines_before;
        self.fixes.push(Fix { what, line });
    }
}
