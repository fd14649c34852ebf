//! Local edits as models write them: search/replace blocks and unified diffs, made into hunks. Whether a
//! hunk matches the source is not decided here.

use crate::ptx::edit::Hunk;

/// Whether there is a search marker in the text.
pub(super) fn has_search_marker(text: &str) -> bool {
    text.lines()
        .any(|line| marker(line) == Some(Marker::Search))
}

/// Whether the text reads as a unified diff.
pub(super) fn is_diff(text: &str) -> bool {
    let at = text.lines().any(|line| line.starts_with("@@"));
    at && has_changes(text)
}

/// Reads search/replace blocks. The error is one sentence for the model.
pub(super) fn search_replace(text: &str) -> Result<Vec<Hunk>, String> {
    enum At {
        Outside,
        Search,
        Replace,
    }
    let mut hunks = Vec::new();
    let mut at = At::Outside;
    let (mut search, mut replace) = (String::new(), String::new());
    let push = |hunks: &mut Vec<Hunk>, search: &mut String, replace: &mut String| {
        hunks.push(without_line_numbers(Hunk {
            search: std::mem::take(search),
            replace: std::mem::take(replace),
        }));
    };
    for line in text.lines() {
        let number = hunks.len() + 1;
        match (&at, marker(line)) {
            (At::Outside, Some(Marker::Search)) => at = At::Search,
            (At::Outside, _) => {}
            (At::Search, Some(Marker::Divider)) => at = At::Replace,
            (At::Search, Some(Marker::Search | Marker::Replace)) => {
                return Err(format!(
                    "hunk {number} has no ======= line between what to find and what to put there"
                ));
            }
            (At::Replace, Some(Marker::Replace)) => {
                push(&mut hunks, &mut search, &mut replace);
                at = At::Outside;
            }
            // The closing marker was forgotten; the next hunk says so.
            (At::Replace, Some(Marker::Search)) => {
                push(&mut hunks, &mut search, &mut replace);
                at = At::Search;
            }
            (At::Replace, Some(Marker::Divider)) => {
                return Err(format!(
                    "hunk {number} has two ======= lines; write one between what to find and what to put there"
                ));
            }
            (At::Search, None) => push_line(&mut search, line),
            (At::Replace, None) => push_line(&mut replace, line),
        }
    }
    match at {
        At::Outside => {}
        At::Replace => push(&mut hunks, &mut search, &mut replace),
        At::Search => {
            return Err(format!(
                "hunk {} breaks off before its ======= line",
                hunks.len() + 1
            ));
        }
    }
    Ok(hunks)
}

/// A unified diff, or a patch without line numbers, in plain form: each hunk begins with `@@`, each line
/// with ` `, `+` or `-`. File names in it mean nothing and are dropped.
pub(super) fn plain_diff(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let is_header = ["--- ", "+++ ", "*** ", "diff ", "index ", "\\ No newline"]
            .iter()
            .any(|start| line.starts_with(start));
        if is_header {
            continue;
        }
        let starts = line.starts_with("@@");
        if out.is_empty() && !starts {
            out.push_str("@@\n");
        }
        if !starts && !line.starts_with([' ', '+', '-']) {
            // The blank before an unchanged line is often forgotten.
            out.push(' ');
        }
        push_line(&mut out, line);
    }
    out
}

/// Whether a line is added or removed.
pub(super) fn has_changes(text: &str) -> bool {
    text.lines()
        .any(|line| is_change(line, '+') || is_change(line, '-'))
}

/// Strips the line numbers that the prompt puts before each line, where a model copied them.
pub(super) fn strip_line_numbers(text: &str) -> Option<String> {
    let mut out = String::new();
    for line in text.lines() {
        if line.trim().is_empty() {
            out.push('\n');
            continue;
        }
        let (number, rest) = line.split_once('|')?;
        let number = number.trim();
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        push_line(&mut out, rest.strip_prefix(' ').unwrap_or(rest));
    }
    (!out.trim().is_empty()).then_some(out)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Marker {
    Search,
    Divider,
    Replace,
}

fn marker(line: &str) -> Option<Marker> {
    let line = line.trim();
    let first = line.chars().next()?;
    let count = line.chars().take_while(|c| *c == first).count();
    let word = line[count * first.len_utf8()..].trim().to_ascii_uppercase();
    if !(5..=9).contains(&count) {
        return None;
    }
    match first {
        '<' if matches!(word.as_str(), "" | "SEARCH" | "ORIGINAL" | "HEAD") => Some(Marker::Search),
        '=' if word.is_empty() => Some(Marker::Divider),
        '>' if matches!(word.as_str(), "" | "REPLACE" | "UPDATED") => Some(Marker::Replace),
        _ => None,
    }
}

fn is_change(line: &str, sign: char) -> bool {
    let triple: String = [sign; 3].iter().collect();
    line.starts_with(sign) && !line.starts_with(&triple)
}

fn without_line_numbers(hunk: Hunk) -> Hunk {
    match strip_line_numbers(&hunk.search) {
        Some(search) => Hunk {
            search,
            replace: strip_line_numbers(&hunk.replace).unwrap_or(hunk.replace),
        },
        None => hunk,
    }
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hunk(search: &str, replace: &str) -> Hunk {
        Hunk {
            search: search.to_owned(),
            replace: replace.to_owned(),
        }
    }

    #[test]
    fn search_replace_blocks_are_read() {
        let text =
            "<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\nand\n<<<<<<<\nc\n=======\n>>>>>>>\n";
        assert_eq!(
            search_replace(text),
            Ok(vec![hunk("a\n", "b\n"), hunk("c\n", "")])
        );
        let unclosed = "<<<<<<< SEARCH\na\n=======\nb\n<<<<<<< SEARCH\nc\n=======\nd\n";
        assert_eq!(
            search_replace(unclosed),
            Ok(vec![hunk("a\n", "b\n"), hunk("c\n", "d\n")])
        );
    }

    #[test]
    fn broken_blocks_say_where() {
        for (text, words) in [
            (
                "<<<<<<< SEARCH\na\n>>>>>>> REPLACE\n",
                "hunk 1 has no =======",
            ),
            ("<<<<<<< SEARCH\na\n", "hunk 1 breaks off"),
            ("<<<<<<< SEARCH\na\n=======\nb\n=======\nc\n", "two ======="),
        ] {
            let error = search_replace(text).expect_err(text);
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn line_numbers_copied_from_the_prompt_are_stripped() {
        let text = "<<<<<<< SEARCH\n  12 |     ret;\n  13 | }\n=======\n  12 |     exit;\n  13 | }\n>>>>>>> REPLACE\n";
        assert_eq!(
            search_replace(text),
            Ok(vec![hunk("    ret;\n}\n", "    exit;\n}\n")])
        );
        assert_eq!(strip_line_numbers("or.b32 a|b, c;\n"), None);
    }

    #[test]
    fn diffs_are_made_plain_and_their_file_names_dropped() {
        let text = "--- a/etc/passwd\n+++ b/../x.ptx\n@@ -3,3 +3,3 @@ entry\n a\n-b\n+c\n\nd\n\\ No newline at end of file\n";
        assert_eq!(
            plain_diff(text),
            "@@ -3,3 +3,3 @@ entry\n a\n-b\n+c\n \n d\n"
        );
        assert_eq!(plain_diff("-b\n+c\n"), "@@\n-b\n+c\n");
        assert!(is_diff(text));
        assert!(!is_diff("add.u32 %r1, %r2, -1;\n"));
    }
}
