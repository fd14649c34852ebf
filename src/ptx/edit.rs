//! Edits of plain text: spans, search-and-replace hunks, unified diffs, a directive for a function. They
//! work on sources (with a `//@` header and `${…}` holes) as well as on PTX. What an edit does not name is
//! kept byte for byte; an edit that could mean two places is refused, never guessed.

use super::ir::Span;
use super::lex::{Kind, Token, lex};
use super::place::{Lines, position};

/// Replace what stands at `span`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Bytes to replace; empty to insert.
    pub span: Span,
    /// What to put there.
    pub replacement: String,
}

/// Find `search`, put `replace` there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    /// Lines as they are; white space is forgiven where that leaves one match.
    pub search: String,
    /// Lines as they shall be.
    pub replace: String,
}

/// An edit does not apply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// A span is reversed, past the end of the text, or inside a character.
    #[error("an edit's span {0}..{1} is not a range of the text")]
    BadSpan(u32, u32),
    /// Two edits want the same bytes.
    #[error("two edits overlap at line {line}")]
    Overlap {
        /// 1-based.
        line: u32,
    },
    /// Nothing to search for.
    #[error("hunk {hunk}: the text to search for is empty; quote at least one line of the source")]
    EmptySearch {
        /// 1-based.
        hunk: usize,
    },
    /// The search text is not there.
    #[error(
        "hunk {hunk}: the text to search for is not in the source; it begins `{first}`{}",
        nearest_text(.nearest)
    )]
    NotFound {
        /// 1-based.
        hunk: usize,
        /// The first line searched for.
        first: String,
        /// The source's lines most like it, with their 1-based numbers, best first.
        nearest: Vec<(u32, String)>,
    },
    /// The search text is there more than once.
    #[error(
        "hunk {hunk}: the text to search for is at lines {}; quote more lines round it",
        join_lines(.lines)
    )]
    Ambiguous {
        /// 1-based.
        hunk: usize,
        /// 1-based line of each match.
        lines: Vec<u32>,
    },
    /// No kernel of this name, or its header does not end.
    #[error("there is no `.entry {0}` with a body in the text")]
    NoEntry(String),
    /// The diff has no hunks, or a line in one begins with none of ` `, `+`, `-`.
    #[error("line {line} of the diff: {message}")]
    BadDiff {
        /// 1-based line in the diff.
        line: u32,
        /// What is wrong.
        message: String,
    },
}

/// Applies edits to `text`, in any order.
///
/// # Errors
/// [`EditError::BadSpan`] and [`EditError::Overlap`]. Two insertions at one place are no overlap; they keep
/// their order.
pub fn apply(text: &str, edits: &[Edit]) -> Result<String, EditError> {
    let mut order: Vec<&Edit> = edits.iter().collect();
    order.sort_by_key(|edit| (edit.span.start, edit.span.end));
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for edit in order {
        let Span { start, end } = edit.span;
        if start > end || text.get(edit.span.range()).is_none() {
            return Err(EditError::BadSpan(start, end));
        }
        let Some(kept) = text.get(at..start as usize) else {
            return Err(EditError::Overlap {
                line: position(text, start).line,
            });
        };
        out.push_str(kept);
        out.push_str(&edit.replacement);
        at = end as usize;
    }
    out.push_str(&text[at..]);
    Ok(out)
}

/// Applies hunks one after the other, each to the result of the one before.
///
/// A search text matches exactly, or else line by line with white space forgiven (indentation, runs of
/// blanks, blank lines at its ends). The replacement then takes the indentation of what it replaces.
///
/// # Errors
/// Where a hunk matches nowhere, or more than once, or is empty; the text is then unchanged.
pub fn apply_hunks(text: &str, hunks: &[Hunk]) -> Result<String, EditError> {
    let mut text = text.to_owned();
    for (index, hunk) in hunks.iter().enumerate() {
        let edit = locate(&text, hunk, index + 1, None)?;
        text = apply(&text, &[edit])?;
    }
    Ok(text)
}

/// Applies a unified diff. Line numbers are only hints: a hunk goes where its context stands, and where
/// that is several times, to the one nearest the number.
///
/// # Errors
/// Where the diff is malformed, or a hunk's context is not in the text, or equally near twice.
pub fn apply_diff(text: &str, diff: &str) -> Result<String, EditError> {
    let mut text = text.to_owned();
    let mut moved = 0i64;
    for (index, parsed) in diff_hunks(diff)?.into_iter().enumerate() {
        let hint = parsed.line.map(|line| i64::from(line) + moved);
        let edit = locate(&text, &parsed.hunk, index + 1, hint)?;
        let count = |text: &str| text.matches('\n').count() as i64;
        moved += count(&edit.replacement) - count(&text[edit.span.range()]);
        text = apply(&text, &[edit])?;
    }
    Ok(text)
}

/// The edit that gives the kernel `entry` a performance directive, `.maxnreg` `64`; one of the same name
/// that stands there already is replaced. Works on sources: holes are stepped over.
///
/// # Errors
/// [`EditError::NoEntry`].
pub fn set_directive(
    text: &str,
    entry: &str,
    name: &str,
    arguments: &str,
) -> Result<Edit, EditError> {
    let header = header(text, entry)?;
    let written = format!("{name} {arguments}");
    let written = written.trim_end();
    if let Some((_, span)) = header
        .directives
        .into_iter()
        .find(|(known, _)| known == name)
    {
        return Ok(Edit {
            span,
            replacement: written.to_owned(),
        });
    }
    let blank_follows = text[header.at as usize..].starts_with(char::is_whitespace);
    Ok(Edit {
        span: Span {
            start: header.at,
            end: header.at,
        },
        replacement: format!("\n{written}{}", if blank_follows { "" } else { " " }),
    })
}

/// The edits that take a performance directive away from the kernel `entry`; none where it has none.
///
/// # Errors
/// [`EditError::NoEntry`].
pub fn remove_directive(text: &str, entry: &str, name: &str) -> Result<Vec<Edit>, EditError> {
    Ok(header(text, entry)?
        .directives
        .into_iter()
        .filter(|(known, _)| known == name)
        .map(|(_, span)| Edit {
            span,
            replacement: String::new(),
        })
        .collect())
}

/// What stands between a kernel's parameters and its body.
struct Header {
    /// Just after the parameter list.
    at: u32,
    directives: Vec<(String, Span)>,
}

fn header(text: &str, entry: &str) -> Result<Header, EditError> {
    let missing = || EditError::NoEntry(entry.to_owned());
    let tokens = lex(text).map_err(|_| missing())?;
    let str = |token: &Token| &text[token.span.range()];
    let name = tokens
        .windows(2)
        .position(|pair| str(&pair[0]) == ".entry" && str(&pair[1]) == entry)
        .ok_or_else(missing)?
        + 1;
    // The `{` of `${BM}` opens no body.
    let holds_hole = |at: usize| {
        let before = &tokens[at - 1];
        tokens[at].is(b'{')
            && before.span.end == tokens[at].span.start
            && str(before).ends_with('$')
    };
    let mut depth = 0;
    let mut at = tokens[name].span.end;
    let mut parameters = tokens.get(name + 1).is_some_and(|t| t.is(b'('));
    let mut directives: Vec<(String, Span)> = Vec::new();
    for (index, token) in tokens.iter().enumerate().skip(name + 1) {
        let hole = holds_hole(index);
        match token.kind {
            _ if hole => depth += 1,
            Kind::Punct(b'(' | b'[') => depth += 1,
            Kind::Punct(b'{') if depth > 0 => depth += 1,
            Kind::Punct(b'{' | b';') if depth == 0 => return Ok(Header { at, directives }),
            Kind::Punct(b')' | b']' | b'}') => depth -= 1,
            Kind::Dotted if depth == 0 => {
                directives.push((str(token).to_owned(), token.span));
                continue;
            }
            Kind::Ident | Kind::Dotted | Kind::Number | Kind::String | Kind::Punct(_) => {}
        }
        if depth == 0 && parameters && token.is(b')') {
            parameters = false;
            at = token.span.end;
        } else if let Some((_, span)) = directives.last_mut() {
            span.end = token.span.end;
        }
    }
    Err(missing())
}

/// Where a hunk applies. `hint`: the 1-based line that decides between several matches.
fn locate(text: &str, hunk: &Hunk, number: usize, hint: Option<i64>) -> Result<Edit, EditError> {
    if hunk.search.trim().is_empty() {
        return Err(EditError::EmptySearch { hunk: number });
    }
    let mut found = exact_matches(text, hunk);
    if found.is_empty() {
        found = forgiving_matches(text, hunk);
    }
    let lines = Lines::new(text);
    let line = |edit: &Edit| i64::from(lines.line(edit.span.start));
    if let Some(hint) = hint {
        found.sort_by_key(|edit| (line(edit) - hint).abs());
        let distance = |at: usize| found.get(at).map(|edit| (line(edit) - hint).abs());
        if found.len() > 1 && distance(0) != distance(1) {
            found.truncate(1);
        }
    }
    match found.len() {
        1 => Ok(found.swap_remove(0)),
        0 => Err(EditError::NotFound {
            hunk: number,
            first: first_line(&hunk.search).to_owned(),
            nearest: nearest(text, first_line(&hunk.search)),
        }),
        _ => {
            let mut places: Vec<u32> = found
                .iter()
                .map(|edit| lines.line(edit.span.start))
                .collect();
            places.sort_unstable();
            Err(EditError::Ambiguous {
                hunk: number,
                lines: places,
            })
        }
    }
}

/// The search text byte for byte. One without a line break may stand within a line, but not within a word:
/// `%r1` is not in `%r12`.
fn exact_matches(text: &str, hunk: &Hunk) -> Vec<Edit> {
    let search = hunk.search.as_str();
    // Replacing whole lines must not join the last to the next.
    let joins = search.ends_with('\n') && !hunk.replace.is_empty() && !hunk.replace.ends_with('\n');
    let replacement = format!("{}{}", hunk.replace, if joins { "\n" } else { "" });
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '%');
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(offset) = text[from..].find(search) {
        let start = from + offset;
        let end = start + search.len();
        let joined = |left: Option<char>, right: Option<char>| {
            left.is_some_and(is_word) && right.is_some_and(is_word)
        };
        let inside_word = joined(text[..start].chars().next_back(), search.chars().next())
            || joined(search.chars().next_back(), text[end..].chars().next());
        if !inside_word {
            found.push(Edit {
                span: span(start, end),
                replacement: replacement.clone(),
            });
        }
        // Matches may overlap: `aa` is in `aaa` twice.
        from = start + search.chars().next().map_or(1, char::len_utf8);
    }
    found
}

/// Whole lines that agree once white space is squeezed.
fn forgiving_matches(text: &str, hunk: &Hunk) -> Vec<Edit> {
    let wanted: Vec<String> = trimmed_lines(&hunk.search)
        .into_iter()
        .map(squeezed)
        .collect();
    let mut lines: Vec<(usize, &str)> = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        lines.push((at, line));
        at += line.len();
    }
    let squeezed_lines: Vec<String> = lines.iter().map(|(_, line)| squeezed(line)).collect();
    let mut found = Vec::new();
    for (first, window) in squeezed_lines.windows(wanted.len()).enumerate() {
        if window != wanted {
            continue;
        }
        let last = lines[first + wanted.len() - 1];
        let body = last.1.strip_suffix('\n').unwrap_or(last.1);
        found.push(Edit {
            span: span(lines[first].0, last.0 + body.len()),
            replacement: reindented(hunk, lines[first].1),
        });
    }
    found
}

/// The replacement, shifted by the difference between the indentation found and the one searched for.
fn reindented(hunk: &Hunk, found: &str) -> String {
    let searched = trimmed_lines(&hunk.search);
    let old = searched.first().map_or("", |line| indentation(line));
    let new = indentation(found);
    let lines: Vec<String> = trimmed_lines(&hunk.replace)
        .into_iter()
        .map(|line| match line.strip_prefix(old) {
            Some(rest) if !line.trim().is_empty() => format!("{new}{rest}"),
            Some(_) | None => line.to_owned(),
        })
        .collect();
    lines.join("\n")
}

struct DiffHunk {
    line: Option<u32>,
    hunk: Hunk,
}

fn diff_hunks(diff: &str) -> Result<Vec<DiffHunk>, EditError> {
    let mut hunks: Vec<(Option<u32>, Vec<&str>, Vec<&str>)> = Vec::new();
    for (index, line) in diff.lines().enumerate() {
        let number = index as u32 + 1;
        if line.starts_with("@@") {
            let old = line
                .split_whitespace()
                .find_map(|word| word.strip_prefix('-'));
            let start = old.and_then(|old| old.split(',').next()?.parse().ok());
            hunks.push((start, Vec::new(), Vec::new()));
            continue;
        }
        let Some((_, old, new)) = hunks.last_mut() else {
            continue;
        };
        match line.split_at_checked(1) {
            Some((" ", rest)) => {
                old.push(rest);
                new.push(rest);
            }
            Some(("-", rest)) if !line.starts_with("--- ") || !old.is_empty() => old.push(rest),
            Some(("+", rest)) => new.push(rest),
            // `\ No newline at end of file`.
            Some(("\\", _)) => {}
            // An empty context line often loses its blank.
            None => {
                old.push("");
                new.push("");
            }
            Some(_) => {
                return Err(EditError::BadDiff {
                    line: number,
                    message: "a hunk's line begins with ` `, `+` or `-`".to_owned(),
                });
            }
        }
    }
    if hunks.is_empty() {
        return Err(EditError::BadDiff {
            line: 1,
            message: "no hunk; each begins with `@@ -LINE,COUNT +LINE,COUNT @@`".to_owned(),
        });
    }
    Ok(hunks
        .into_iter()
        .map(|(line, mut old, mut new)| {
            // Blank lines after a hunk belong to what comes after the diff.
            while old.last() == Some(&"") && new.last() == Some(&"") {
                old.pop();
                new.pop();
            }
            DiffHunk {
                line,
                hunk: Hunk {
                    search: old.join("\n"),
                    replace: new.join("\n"),
                },
            }
        })
        .collect())
}

/// Up to three lines that share most words with `wanted`.
fn nearest(text: &str, wanted: &str) -> Vec<(u32, String)> {
    fn words(line: &str) -> Vec<&str> {
        line.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '$' | '%')))
            .filter(|word| !word.is_empty())
            .collect()
    }
    let wanted = words(wanted);
    let mut scored: Vec<(usize, u32, &str)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let own = words(line);
        let shared = own.iter().filter(|word| wanted.contains(word)).count();
        let score = 200 * shared / (own.len() + wanted.len()).max(1);
        if score >= 60 {
            scored.push((score, index as u32 + 1, line));
        }
    }
    scored.sort_by_key(|&(score, line, _)| (std::cmp::Reverse(score), line));
    scored.truncate(3);
    scored
        .into_iter()
        .map(|(_, number, line)| (number, line.trim().to_owned()))
        .collect()
}

fn nearest_text(nearest: &[(u32, String)]) -> String {
    let mut out = String::new();
    for (index, (line, text)) in nearest.iter().enumerate() {
        out.push_str(if index == 0 { "; nearest: " } else { ", " });
        out.push_str(&format!("line {line} `{text}`"));
    }
    out
}

fn join_lines(lines: &[u32]) -> String {
    let lines: Vec<String> = lines.iter().map(u32::to_string).collect();
    match lines.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        Some(_) | None => lines.concat(),
    }
}

fn first_line(text: &str) -> &str {
    (text.lines().map(str::trim))
        .find(|line| !line.is_empty())
        .unwrap_or_default()
}

/// The lines without blank ones at either end.
fn trimmed_lines(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    let filled = |line: &&str| !line.trim().is_empty();
    let first = lines.iter().position(&filled).unwrap_or(lines.len());
    let last = lines.iter().rposition(&filled).map_or(first, |at| at + 1);
    lines[first..last].to_vec()
}

/// One blank between words; none beside punctuation.
fn squeezed(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '%' | '.' | '/');
    let mut blank = false;
    for c in line.trim().chars() {
        if c.is_whitespace() {
            blank = true;
            continue;
        }
        if blank && is_word(c) && out.chars().next_back().is_some_and(is_word) {
            out.push(' ');
        }
        blank = false;
        out.push(c);
    }
    out
}

fn indentation(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}

fn span(start: usize, end: usize) -> Span {
    Span {
        start: start as u32,
        end: end as u32,
    }
}
