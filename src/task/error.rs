//! What can be wrong with a task: always what, where, and what to do.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A task that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// No task has this name.
    #[error("no task `{name}`{}; known: {}", suggestion(nearest), known.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
        /// The likeliest one that was meant.
        nearest: Option<String>,
        /// Every known name.
        known: Vec<String>,
    },
    /// No suite has this name.
    #[error("no suite `{name}`{}; known: {}", suggestion(nearest), known.join(", "))]
    UnknownSuite {
        /// What was asked for.
        name: String,
        /// The likeliest one that was meant.
        nearest: Option<String>,
        /// Every known name.
        known: Vec<String>,
    },
    /// A file of the task is wrong.
    #[error("{}{}: {message}{}", path.display(), place(*line, *column), note(help))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// 1-based.
        line: Option<u32>,
        /// 1-based, in bytes.
        column: Option<u32>,
        /// What is wrong.
        message: String,
        /// What to do.
        help: Option<String>,
    },
    /// A file or folder cannot be read or written.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// `read`, `list`, `create`.
        action: &'static str,
        /// The system's word.
        source: std::io::Error,
    },
}

impl TaskError {
    /// An error about a file as a whole.
    pub(super) fn whole(path: &Path, message: impl fmt::Display, help: impl fmt::Display) -> Self {
        Self::Invalid {
            path: path.to_owned(),
            line: None,
            column: None,
            message: message.to_string(),
            help: non_empty(help),
        }
    }

    /// An error about a byte range of a file's text.
    pub(super) fn at(
        path: &Path,
        text: &str,
        span: Range<usize>,
        message: impl fmt::Display,
        help: impl fmt::Display,
    ) -> Self {
        let (line, column) = position(text, span.start);
        Self::Invalid {
            path: path.to_owned(),
            line: Some(line),
            column: Some(column),
            message: message.to_string(),
            help: non_empty(help),
        }
    }

    /// An error about a line of a file.
    pub(super) fn line(
        path: &Path,
        line: u32,
        message: impl fmt::Display,
        help: impl fmt::Display,
    ) -> Self {
        Self::Invalid {
            path: path.to_owned(),
            line: Some(line),
            column: None,
            message: message.to_string(),
            help: non_empty(help),
        }
    }

    pub(super) fn io(path: &Path, action: &'static str, source: std::io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            action,
            source,
        }
    }
}

/// The name of `known` that is closest to `name`, if any is close.
pub(super) fn nearest_name<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
        .min()
        .filter(|&(distance, candidate)| distance <= 1 + candidate.len() / 3)
        .map(|(_, candidate)| candidate)
}

fn position(text: &str, offset: usize) -> (u32, u32) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    let start = before
        .iter()
        .rposition(|&byte| byte == b'\n')
        .map_or(0, |at| at + 1);
    let as_u32 = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    (as_u32(line), as_u32(before.len() - start + 1))
}

fn place(line: Option<u32>, column: Option<u32>) -> String {
    match (line, column) {
        (Some(line), Some(column)) => format!(":{line}:{column}"),
        (Some(line), None) => format!(":{line}"),
        (None, _) => String::new(),
    }
}

fn note(help: &Option<String>) -> String {
    help.as_ref()
        .map_or_else(String::new, |help| format!("; {help}"))
}

fn suggestion(name: &Option<String>) -> String {
    name.as_ref()
        .map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"))
}

fn non_empty(help: impl fmt::Display) -> Option<String> {
    let help = help.to_string();
    (!help.is_empty()).then_some(help)
}
