//! Takes the code out of a reply: line endings, fences and prose round it, characters that ptxas refuses.

use super::Fix;
use crate::ptx::lex::comments;

/// The code of a reply.
pub(super) struct Unwrapped {
    pub(super) text: String,
    /// Lines of the reply before `text`.
    pub(super) lines_before: u32,
    pub(super) fixes: Vec<Fix>,
}

pub(super) fn unwrap(reply: &str) -> Unwrapped {
    let mut fixes = Vec::new();
    let mut say = |line: u32, what: &str| {
        fixes.push(Fix {
            what: what.to_owned(),
            line,
        });
    };
    let mut text = reply.to_owned();
    if let Some(rest) = text.strip_prefix('\u{feff}') {
        text = rest.to_owned();
        say(1, "removed the byte order mark");
    }
    if text.contains('\r') {
        text = text.replace("\r\n", "\n").replace('\r', "\n");
        say(1, "turned Windows line ends into plain ones");
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut range = 0..lines.len();
    if let Some(block) = fenced(&lines) {
        say(
            block.start as u32,
            "took the code out of its Markdown fence",
        );
        range = block;
    } else if let Some(code) = without_prose(&lines) {
        if code.start > 0 {
            say(1, "removed the prose before the code");
        }
        if code.end < lines.len() {
            say(code.end as u32 + 1, "removed the prose after the code");
        }
        range = code;
    }
    let lines_before = range.start as u32;
    let code = lines[range].concat();
    let (text, odd_lines) = ascii(&code);
    for line in odd_lines {
        say(
            line + lines_before,
            "replaced characters that are not ASCII",
        );
    }
    Unwrapped {
        text,
        lines_before,
        fixes,
    }
}

/// The lines inside the last fence that holds PTX; a fence that is never closed ends with the reply.
fn fenced(lines: &[&str]) -> Option<std::ops::Range<usize>> {
    let is_fence =
        |line: &str| line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~");
    let mut blocks = Vec::new();
    let mut open = None;
    for (number, line) in lines.iter().enumerate() {
        if !is_fence(line) {
            continue;
        }
        match open.take() {
            None => open = Some(number + 1),
            Some(start) => blocks.push(start..number),
        }
    }
    if let Some(start) = open {
        blocks.push(start..lines.len());
    }
    // A reply that begins inside a fence has its first mark at the code's end.
    if let Some(first) = lines.iter().position(|line| is_fence(line))
        && !blocks.iter().any(|block| is_ptx(&lines[block.clone()]))
    {
        blocks.push(0..first);
    }
    blocks
        .into_iter()
        .rev()
        .find(|block| is_ptx(&lines[block.clone()]))
}

/// Whether a kernel or a module's head is among the lines.
fn is_ptx(lines: &[&str]) -> bool {
    lines.iter().any(|line| {
        let line = line.trim_start();
        line.starts_with(".version") || line.starts_with(".entry") || line.starts_with(".visible")
    })
}

/// The lines from the first that may be PTX to the last, where others stand round them.
fn without_prose(lines: &[&str]) -> Option<std::ops::Range<usize>> {
    let begins = |line: &str| {
        let line = line.trim_start();
        line.starts_with("//") || line.starts_with("/*") || begins_item(line)
    };
    let filled = |line: &str| !line.trim().is_empty();
    if !is_ptx(lines) {
        return None;
    }
    let mut start = 0;
    if !lines
        .iter()
        .copied()
        .find(|line| filled(line))
        .is_some_and(&begins)
    {
        start = lines.iter().position(|line| begins(line))?;
    }
    let close = lines
        .iter()
        .rposition(|line| line.trim_end().ends_with('}'))?;
    let is_prose = |line: &str| {
        let line = line.trim_start();
        line.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '*' | '#' | '-' | '>'))
            && !line.trim_end().ends_with([';', ':', ','])
            && line.contains(' ')
    };
    let mut end = lines.len();
    let after = &lines[close + 1..];
    if after.iter().any(|line| is_prose(line))
        && !after.iter().any(|line| begins_item(line.trim_start()))
    {
        end = close + 1;
    }
    (start > 0 || end < lines.len()).then_some(start..end)
}

/// Whether a line begins something that stands at module level.
pub(super) fn begins_item(line: &str) -> bool {
    [
        ".version",
        ".target",
        ".address_size",
        ".visible",
        ".extern",
        ".weak",
        ".common",
        ".entry",
        ".func",
        ".global",
        ".const",
        ".shared",
        ".file",
        ".section",
        ".alias",
        ".pragma",
    ]
    .iter()
    .any(|directive| line.starts_with(directive))
}

/// The text with its odd characters replaced, and the lines where. In code only what has one meaning is
/// replaced; in comments everything. `//@` and `//%` lines stay.
fn ascii(text: &str) -> (String, Vec<u32>) {
    if text.is_ascii() {
        return (text.to_owned(), Vec::new());
    }
    let mut out = String::with_capacity(text.len());
    let mut odd_lines = Vec::new();
    let mut line = 1;
    let mut in_comment = comments(text).into_iter().peekable();
    for (at, c) in text.char_indices() {
        while in_comment
            .peek()
            .is_some_and(|comment| comment.end as usize <= at)
        {
            in_comment.next();
        }
        let comment = in_comment
            .peek()
            .filter(|comment| comment.start as usize <= at);
        let kept = comment.is_some_and(|comment| {
            let own = &text[comment.range()];
            own.starts_with("//@") || own.starts_with("//%")
        });
        let replacement = match c {
            _ if c.is_ascii() || kept => None,
            _ => plain(c).or(comment.map(|_| "?")),
        };
        match replacement {
            Some(replacement) => {
                out.push_str(replacement);
                if odd_lines.last() != Some(&line) {
                    odd_lines.push(line);
                }
            }
            None => out.push(c),
        }
        line += u32::from(c == '\n');
    }
    (out, odd_lines)
}

/// What a character stands for, where that is plain.
fn plain(c: char) -> Option<&'static str> {
    Some(match c {
        '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{3000}' => " ",
        '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' => "",
        '\u{2018}' | '\u{2019}' | '\u{2032}' => "'",
        '\u{201c}' | '\u{201d}' | '\u{2033}' => "\"",
        '\u{2010}'..='\u{2015}' | '\u{2212}' => "-",
        '\u{2026}' => "...",
        '\u{d7}' => "x",
        '\u{b7}' | '\u{2022}' | '\u{2219}' => "*",
        '\u{2190}' => "<-",
        '\u{2192}' => "->",
        '\u{21d2}' => "=>",
        '\u{2264}' => "<=",
        '\u{2265}' => ">=",
        '\u{2260}' => "!=",
        '\u{2248}' => "~",
        '\u{b5}' | '\u{3bc}' => "u",
        'ä' => "ae",
        'ö' => "oe",
        'ü' => "ue",
        'Ä' => "Ae",
        'Ö' => "Oe",
        'Ü' => "Ue",
        'ß' => "ss",
        _ => return None,
    })
}
