//! Errors that point at a place in a source's text.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::expr::ExprError;
use crate::verdict::{Diagnostic, Severity};

/// What is wrong with a source, its setting or its launches.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceError {
    /// At least one; in the order of the text where they have lines.
    pub diagnostics: Vec<Diagnostic>,
    /// Where on its line each of them points, where known.
    pub places: Vec<Option<Place>>,
    /// The text they point into.
    pub text: Arc<str>,
}

/// A place in a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// 1-based.
    pub line: u32,
    /// Bytes of that line, from 0.
    pub columns: Range<usize>,
}

impl std::error::Error for SourceError {}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (diagnostic, place)) in
            std::iter::zip(&self.diagnostics, &self.places).enumerate()
        {
            if index > 0 {
                writeln!(f)?;
            }
            match (diagnostic.line, place) {
                (Some(line), Some(place)) => {
                    write!(f, "line {line}, column {}: ", place.columns.start + 1)?;
                }
                (Some(line), None) => write!(f, "line {line}: ")?,
                (None, Some(_) | None) => {}
            }
            f.write_str(&diagnostic.message)?;
            if let Some(place) = place
                && let Some(text) = self.text.lines().nth(place.line as usize - 1)
                && let Some(before) = text.get(..place.columns.start)
            {
                let pad: String = before
                    .chars()
                    .map(|c| if c == '\t' { '\t' } else { ' ' })
                    .collect();
                let marked = text.get(place.columns.clone()).unwrap_or("");
                let carets = "^".repeat(marked.chars().count().max(1));
                write!(f, "\n  | {text}\n  | {pad}{carets}")?;
            }
            if let Some(help) = &diagnostic.help {
                write!(f, "\n  help: {help}")?;
            }
        }
        Ok(())
    }
}

/// One thing that is wrong, before the text is at hand.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) line: Option<u32>,
    pub(super) columns: Option<Range<usize>>,
    pub(super) help: Option<String>,
}

impl Finding {
    /// About the header.
    pub(super) fn header(place: Place, message: impl Into<String>) -> Self {
        Self {
            code: "header",
            message: message.into(),
            line: Some(place.line),
            columns: Some(place.columns),
            help: None,
        }
    }

    /// An expression's error; `place` is where the expression stands.
    pub(super) fn expression(place: &Place, error: ExprError) -> Self {
        let columns = match error.at {
            Some(at) => place.columns.start + at.start..place.columns.start + at.end,
            None => place.columns.clone(),
        };
        Self {
            code: "expression",
            message: error.message,
            line: Some(place.line),
            columns: Some(columns),
            help: error.help,
        }
    }

    /// About a line of the body, or about no line.
    pub(super) fn at_line(code: &'static str, line: Option<u32>, message: String) -> Self {
        Self {
            code,
            message,
            line,
            columns: None,
            help: None,
        }
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl SourceError {
    pub(super) fn new(text: &Arc<str>, mut findings: Vec<Finding>) -> Self {
        findings.sort_by_key(|finding| finding.line.unwrap_or(u32::MAX));
        let places = findings
            .iter()
            .map(|finding| {
                Some(Place {
                    line: finding.line?,
                    columns: finding.columns.clone()?,
                })
            })
            .collect();
        let diagnostics = findings
            .into_iter()
            .map(|finding| Diagnostic {
                severity: Severity::Error,
                code: finding.code.to_owned(),
                message: finding.message,
                line: finding.line,
                other_line: None,
                help: finding.help,
            })
            .collect();
        Self {
            diagnostics,
            places,
            text: Arc::clone(text),
        }
    }
}
