//! What an edit changed, line by line, with a little around it.

use serde::Serialize;
use similar::{ChangeTag, TextDiff};

/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// A line of a diff.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct DiffLine {
    /// What became of it.
    pub(super) change: Change,
    /// 1-based line: in the new text, or in the old one where it is gone.
    pub(super) line: usize,
    /// The line.
    pub(super) text: String,
}

/// What became of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Change {
    Same,
    Added,
    Removed,
    /// Lines are left out before the next.
    Gap,
}

/// From `old` to `new`; empty where they are equal.
pub(super) fn diff(old: &str, new: &str) -> Vec<DiffLine> {
    let diff = TextDiff::from_lines(old, new);
    let mut lines = Vec::new();
    for (nth, group) in diff.grouped_ops(CONTEXT).iter().enumerate() {
        if nth > 0 {
            lines.push(DiffLine {
                change: Change::Gap,
                line: 0,
                text: String::new(),
            });
        }
        for operation in group {
            for change in diff.iter_changes(operation) {
                let (kind, index) = match change.tag() {
                    ChangeTag::Equal => (Change::Same, change.new_index()),
                    ChangeTag::Insert => (Change::Added, change.new_index()),
                    ChangeTag::Delete => (Change::Removed, change.old_index()),
                };
                lines.push(DiffLine {
                    change: kind,
                    line: index.map_or(0, |index| index + 1),
                    text: change.value().trim_end_matches(['\r', '\n']).to_owned(),
                });
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_changes_stand_apart_and_equal_texts_differ_in_nothing() {
        let old: String = (1..=30).map(|line| format!("line {line}\n")).collect();
        let new = old.replace("line 2\n", "two\n").replace("line 28\n", "");
        let lines = diff(&old, &new);
        let of = |change| {
            let lines = lines.iter().filter(|line| line.change == change);
            lines
                .map(|line| (line.line, &*line.text))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(Change::Removed), [(2, "line 2"), (28, "line 28")]);
        assert_eq!(of(Change::Added), [(2, "two")]);
        assert_eq!(of(Change::Gap).len(), 1);
        assert_eq!(diff(&old, &old), []);
    }
}
