//! Takes an edit of a rendering back to the source it came from. Where every line that it touches is a line
//! of the source as it stands, and the edit is the same whatever the knobs, the source itself is edited and
//! keeps its knobs. Else the child is the edited rendering, its knobs fixed at one setting, and says so.

use std::collections::BTreeMap;

use super::kernel::{Kernel, kernels};
use crate::propose::{Proposal, ProposalRequest, sample_names};
use crate::ptx;
use crate::ptx::edit::{Edit, apply};
use crate::ptx::ir::{Module, Span};
use crate::source::{Candidate, KnobValue, LaunchPlan, Source};
use crate::task::Task;

/// Settings that an edit is compared over; a source with more of them is rendered.
const SETTINGS: u64 = 32;

/// A rendering that a rewrite looks at.
pub(super) struct Subject<'a> {
    pub(super) task: &'a Task,
    pub(super) module: &'a Module,
    plan: LaunchPlan,
}

/// An edit of a rendering that keeps what it computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// `unroll 4 times the loop at line 40`, without a line where there is but one.
    pub(super) label: String,
    pub(super) edits: Vec<Edit>,
    /// Why it may pay.
    pub(super) rationale: String,
}

/// A rewrite of PTX: every change it can prove, in the order in which they are worth trying.
pub(super) type Changes = fn(&Subject<'_>) -> Vec<Change>;

impl<'a> Subject<'a> {
    /// `None` where the rendering is no PTX, or its launches cannot be known.
    fn new(candidate: &'a Candidate, task: &'a Task) -> Option<Self> {
        Some(Self {
            task,
            module: candidate.module.as_deref().ok()?,
            plan: candidate.plan(&sample_names(task)).ok()?,
        })
    }

    /// Its kernels; none where one of them is beyond what rewrites understand.
    pub(super) fn kernels(&self) -> Vec<Kernel<'a>> {
        kernels(self.module, &self.plan)
            .filter(|kernels| kernels.iter().all(Kernel::is_plain))
            .unwrap_or_default()
    }

    /// The text at `span`.
    pub(super) fn text(&self, span: Span) -> &'a str {
        &self.module.text[span.range()]
    }
}

/// An instruction with the white space in front of it and its line's end, where it has the line to itself.
pub(super) fn line_of(subject: &Subject<'_>, span: Span) -> Span {
    let text = &subject.module.text;
    let before = &text[..span.start as usize];
    let start = before.trim_end_matches([' ', '\t']).len();
    let alone = before[..start].ends_with('\n') || start == 0;
    match text[span.end as usize..].strip_prefix('\n') {
        Some(_) if alone => Span {
            start: start as u32,
            end: span.end + 1,
        },
        Some(_) | None => span,
    }
}

/// The children that a rewrite gives, each from the setting that the feedback is about.
pub(super) fn proposals(request: &ProposalRequest<'_>, rewrite: Changes) -> Vec<Proposal> {
    propose(request, rewrite).unwrap_or_default()
}

fn propose(request: &ProposalRequest<'_>, rewrite: Changes) -> Option<Vec<Proposal>> {
    let source = request.source;
    let space = source.space();
    let point = match &request.setting {
        Some(setting) => space.point(setting).ok()?,
        None => space.default_point().ok()?,
    };
    let candidate = source.render(&point).ok()?;
    let changes = rewrite(&Subject::new(&candidate, request.task)?);
    let proposals = changes.into_iter().enumerate().filter_map(|(nth, change)| {
        let settings = request.setting.iter().cloned().collect();
        if let Some(text) = in_source(request, rewrite, nth) {
            return Some(Proposal {
                label: change.label,
                text: text.into(),
                settings,
                rationale: Some(change.rationale),
            });
        }
        let text = frozen(source, &candidate, &change.edits)?;
        Some(Proposal {
            label: format!("{} (knobs fixed)", change.label),
            text: text.into(),
            settings,
            rationale: Some(format!(
                "{} It is made from one rendering: the knobs are fixed at {}.",
                change.rationale,
                setting_text(&candidate)
            )),
        })
    });
    Some(proposals.collect())
}

/// The source with the `nth` change in place: the same edit at every setting, on lines without holes.
fn in_source(request: &ProposalRequest<'_>, rewrite: Changes, nth: usize) -> Option<String> {
    let source = request.source;
    let space = source.space();
    if space.len() > SETTINGS {
        return None;
    }
    let mut found: Option<Vec<Edit>> = None;
    let mut expected = Vec::new();
    for point in space.iter() {
        let candidate = source.render(&point).ok()?;
        let mut changes = rewrite(&Subject::new(&candidate, request.task)?);
        if nth >= changes.len() {
            return None;
        }
        let change = changes.swap_remove(nth);
        let lifted = lifted(source, &candidate, &change.edits)?;
        match &found {
            Some(found) if *found != lifted => return None,
            Some(_) => {}
            None => found = Some(lifted),
        }
        expected.push((point, apply(&candidate.ptx, &change.edits).ok()?));
    }
    let text = apply(&source.text, &found?).ok()?;
    let child = Source::parse(&text).ok()?;
    for (point, ptx) in expected {
        let rendered = child.render(&point).ok()?.ptx;
        if !code_lines(&rendered).eq(code_lines(&ptx)) {
            return None;
        }
    }
    Some(text)
}

fn code_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty())
}

/// Edits of a rendering as edits of its source; `None` where one touches a line that the source does not
/// hold exactly so, once.
fn lifted(source: &Source, candidate: &Candidate, edits: &[Edit]) -> Option<Vec<Edit>> {
    let rendered = LineStarts::new(&candidate.ptx);
    let written = LineStarts::new(&source.text);
    let mut uses: BTreeMap<u32, u32> = BTreeMap::new();
    for line in 1..=rendered.count() {
        *uses.entry(candidate.source_line(line)?).or_default() += 1;
    }
    let origin = |line: u32| {
        let source_line = candidate.source_line(line)?;
        let same = rendered.text(line)? == written.text(source_line)?;
        (same && uses.get(&source_line) == Some(&1)).then_some(source_line)
    };
    let place = |at: u32| {
        let (line, column) = rendered.line_and_column(at)?;
        written.start(origin(line)?)?.checked_add(column)
    };
    edits
        .iter()
        .map(|edit| {
            let (first, _) = rendered.line_and_column(edit.span.start)?;
            let (last, _) = rendered.line_and_column(edit.span.end)?;
            let from = origin(first)?;
            let unbroken = (first..=last).all(|line| origin(line) == Some(from + (line - first)));
            unbroken.then_some(())?;
            Some(Edit {
                span: Span {
                    start: place(edit.span.start)?,
                    end: place(edit.span.end)?,
                },
                replacement: edit.replacement.clone(),
            })
        })
        .collect()
}

/// The edited rendering under the source's header, every knob left with one value.
fn frozen(source: &Source, candidate: &Candidate, edits: &[Edit]) -> Option<String> {
    let mut text = String::new();
    for line in source.text.lines() {
        let trimmed = line.trim_start();
        let Some(rest) = trimmed.strip_prefix("//@") else {
            if trimmed.is_empty() || trimmed.starts_with("//") && !trimmed.starts_with("//%") {
                continue;
            }
            break;
        };
        let mut words = rest.split_whitespace();
        match (words.next(), words.next()) {
            (Some("knob"), Some(name)) => {
                let value = match candidate.setting.get(name)? {
                    KnobValue::Int(value) => value.to_string(),
                    KnobValue::Text(value) => format!("{value:?}"),
                };
                text.push_str(&format!("//@ knob {name} = {value} in {{{value}}}\n"));
            }
            // The cap stands in the rendering, and there is nothing left to try.
            (Some("maxnreg" | "try"), _) => {}
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text.push_str(&apply(&candidate.ptx, edits).ok()?);
    let child = Source::parse(&text).ok()?;
    let rendered = child.render(&child.space().default_point().ok()?).ok()?;
    ptx::parse(&rendered.ptx).ok()?;
    Some(text)
}

fn setting_text(candidate: &Candidate) -> String {
    let pairs: Vec<String> = candidate
        .setting
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    pairs.join(", ")
}

/// Where lines begin, to go from bytes to lines and back. Lines count from 1.
struct LineStarts<'t> {
    text: &'t str,
    starts: Vec<u32>,
}

impl<'t> LineStarts<'t> {
    fn new(text: &'t str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0)
            .chain(breaks.map(|(at, _)| at as u32 + 1))
            .filter(|start| (*start as usize) < text.len())
            .collect();
        Self { text, starts }
    }

    fn count(&self) -> u32 {
        self.starts.len() as u32
    }

    fn start(&self, line: u32) -> Option<u32> {
        self.starts.get(line.checked_sub(1)? as usize).copied()
    }

    fn text(&self, line: u32) -> Option<&'t str> {
        let start = self.start(line)? as usize;
        self.text[start..].split('\n').next()
    }

    fn line_and_column(&self, at: u32) -> Option<(u32, u32)> {
        let line = self.starts.partition_point(|start| *start <= at) as u32;
        Some((line, at - self.start(line)?))
    }
}
