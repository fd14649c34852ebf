//! Mistakes: kernels in `tasks/<name>/mistakes/*.ptx` that must be caught, each saying how and why.
//!
//! A mistake is an ordinary source whose first line is
//!
//! ```text
//! //! expect: STAGE [| STAGE …] [; line N | ; here] [; code NAME] [; lint NAME] [; bottleneck NAME] [; instructions SHARE] [; only sim | ; only cuda]; WHY
//! ```
//!
//! - `STAGE`: the stage at which the verdict must end, in the words of [`Verdict::stage`]: `wrong`, `racy`,
//!   `faulted`, `hung`, `forbidden`, `unassembled`, `over limits`, `voided`, `measured` (correct, but slow for
//!   a reason the diagnosis must name) and so on; `|` separates stages that are all acceptable.
//! - `line N`: a finding must name line N of this file (1-based, this comment being line 1). `here`: the line
//!   above the comment `//! ^ here`.
//! - `code NAME`: a finding or warning must have this code: `missing-barrier`.
//! - `lint NAME`: the front end must find this in the text, whatever a device sees; a line that is named is then the
//!   lint's, and asked of it alone.
//! - `bottleneck NAME`: the diagnosis must name it, in the words of [`Bottleneck`]: `shared_memory`. Only
//!   with `measured`.
//! - `instructions SHARE`: of the work that the task asks of its target instructions they may have done this much at
//!   most, 0 to 1. Only with `measured`: the numbers are right, and worth so little.
//! - `only sim`, `only cuda`: the other kind of device cannot tell, and is not asked.
//! - `WHY`: a sentence for people, at the end.
//!
//! The task's own folder is judged by these files: they are the proof that a cheat or a slip is seen.
//!
//! [`Verdict::stage`]: crate::verdict::Verdict::stage

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as ValueError, StrDeserializer};

use super::error::TaskError;
use crate::verdict::{Bottleneck, InstructionScore, Verdict};

/// A kernel that must be caught.
#[derive(Clone, Debug, PartialEq)]
pub struct Mistake {
    /// File name without `.ptx`.
    pub name: String,
    /// The whole file: a source.
    pub text: Arc<str>,
    /// What must become of it.
    pub expect: Expectation,
}

/// What must become of a mistake.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// Acceptable stages, in the words of `Verdict::stage`.
    pub stages: Vec<&'static str>,
    /// 1-based line of the file that a finding must name.
    pub line: Option<u32>,
    /// Code that a finding or warning must have.
    pub code: Option<String>,
    /// Code of a finding that the text alone must give; `line` is then its line.
    pub lint: Option<String>,
    /// What the diagnosis must say limits it.
    pub bottleneck: Option<Bottleneck>,
    /// Most of their work that the target instructions may have done, 0 to 1.
    pub instructions: Option<f64>,
    /// The one kind of device that can tell; `None`: every one.
    pub only: Option<DeviceKind>,
    /// A sentence for people.
    pub why: String,
}

/// What judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// The simulator: sees every access, measures nothing.
    Sim,
    /// A GPU: measures, sees what is left in memory.
    Cuda,
}

impl Expectation {
    /// `Ok` when `verdict` ended at an expected stage, and target instructions were worth no more than expected: all
    /// that a GPU can show, which knows no lines.
    pub fn check_stage(&self, verdict: &Verdict) -> Result<(), String> {
        let stage = verdict.stage();
        if !self.stages.contains(&stage) {
            return Err(format!(
                "expected {}, the verdict is {stage}",
                self.stages.join(" or ")
            ));
        }
        let score = verdict.measurement().map(|m| m.score.instructions);
        match (self.instructions, score) {
            (Some(most), Some(InstructionScore::Counted { value })) if value <= most => Ok(()),
            (Some(most), Some(score)) => Err(format!(
                "expected target instructions to do {most} of the work at most, found {score:?}"
            )),
            (Some(_), None) | (None, _) => Ok(()),
        }
    }

    /// `Ok` when `verdict` is as expected in full; otherwise what differs, in words. Line and code are asked
    /// of verdicts that name places, which `wrong`, for one, does not.
    pub fn check(&self, verdict: &Verdict) -> Result<(), String> {
        self.check_stage(verdict)?;
        let measurement = verdict.measurement();
        let warnings = measurement.map_or(&[][..], |measurement| &measurement.warnings);
        let findings: Vec<_> = verdict.diagnostics().iter().chain(warnings).collect();
        let diagnosis = measurement.and_then(|measurement| measurement.diagnosis.as_ref());
        let names_places = measurement.is_some() || !verdict.diagnostics().is_empty();
        if let Some(line) = self.line.filter(|_| names_places && self.lint.is_none()) {
            let evidence = diagnosis.map_or(&[][..], |diagnosis| &diagnosis.evidence);
            let seen: Vec<u32> = findings
                .iter()
                .flat_map(|finding| [finding.line, finding.other_line])
                .chain(evidence.iter().map(|evidence| evidence.line))
                .flatten()
                .collect();
            if !seen.contains(&line) {
                return Err(format!("expected a finding at line {line}, found {seen:?}"));
            }
        }
        if let Some(code) = self.code.as_ref().filter(|_| names_places) {
            let seen: Vec<&str> = findings
                .iter()
                .map(|finding| finding.code.as_str())
                .collect();
            if !seen.contains(&code.as_str()) {
                return Err(format!("expected a finding `{code}`, found {seen:?}"));
            }
        }
        if let Some(bottleneck) = self.bottleneck {
            let seen = diagnosis.map(|diagnosis| diagnosis.bottleneck);
            if seen != Some(bottleneck) {
                return Err(format!(
                    "expected bottleneck {bottleneck:?}, found {seen:?}"
                ));
            }
        }
        Ok(())
    }
}

/// Every word a `STAGE` may be, as `Verdict::stage` says it.
const STAGES: [&str; 12] = [
    "unrenderable",
    "forbidden",
    "unassembled",
    "assembler failed",
    "over limits",
    "faulted",
    "hung",
    "racy",
    "wrong",
    "voided",
    "measured",
    "failed",
];

const FORM: &str = "write `//! expect: STAGE; WHY`, for example `//! expect: racy; here; no barrier before the read`";

/// Reads the first line of a mistake and its `//! ^ here` marker.
pub(super) fn parse(name: &str, path: &Path, text: Arc<str>) -> Result<Mistake, TaskError> {
    let first = text.lines().next().unwrap_or_default();
    let fail = |message: String, help: &str| TaskError::line(path, 1, message, help);
    let clauses = first
        .strip_prefix("//! expect:")
        .ok_or_else(|| fail("a mistake says first what must become of it".into(), FORM))?;
    let mut clauses = clauses.split(';').map(str::trim).peekable();
    let stages = clauses
        .next()
        .unwrap_or_default()
        .split('|')
        .map(|word| {
            let word = word.trim();
            STAGES
                .into_iter()
                .find(|stage| *stage == word)
                .ok_or_else(|| {
                    fail(
                        format!("`{word}` is no verdict"),
                        &format!("verdicts: {}", STAGES.join(", ")),
                    )
                })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut expect = Expectation {
        stages,
        line: None,
        code: None,
        lint: None,
        bottleneck: None,
        instructions: None,
        only: None,
        why: String::new(),
    };
    while let Some(clause) = clauses.peek() {
        let (word, rest) = clause.split_once(' ').unwrap_or((clause, ""));
        match (word, rest.trim()) {
            ("here", "") => expect.line = Some(marked_line(path, &text)?),
            ("line", number) if !number.contains(' ') => {
                let lines = text.lines().count();
                let line = number
                    .parse::<u32>()
                    .ok()
                    .filter(|&line| (1..=lines).contains(&(line as usize)))
                    .ok_or_else(|| {
                        fail(
                            format!("`{number}` is no line of this file"),
                            &format!("it has {lines} lines"),
                        )
                    })?;
                expect.line = Some(line);
            }
            ("code", code) if !code.is_empty() && !code.contains(' ') => {
                expect.code = Some(code.to_owned());
            }
            ("lint", lint) if !lint.is_empty() && !lint.contains(' ') => {
                expect.lint = Some(lint.to_owned());
            }
            ("only", "sim") => expect.only = Some(DeviceKind::Sim),
            ("only", "cuda") => expect.only = Some(DeviceKind::Cuda),
            ("bottleneck", word) if !word.contains(' ') => {
                let bottleneck = bottleneck(word).map_err(|error| {
                    fail(format!("`{word}` is no bottleneck"), &error.to_string())
                })?;
                expect.bottleneck = Some(bottleneck);
            }
            ("instructions", share) if !share.contains(' ') => {
                let share = share.parse::<f64>().ok();
                let share = share.filter(|share| (0.0..=1.0).contains(share));
                expect.instructions = Some(share.ok_or_else(|| {
                    fail(
                        "a share is a number from 0 to 1".into(),
                        "write `instructions 0.1`",
                    )
                })?);
            }
            _ => break,
        }
        clauses.next();
    }
    expect.why = clauses.collect::<Vec<_>>().join("; ");
    if expect.why.is_empty() {
        return Err(fail("the reason is missing".into(), FORM));
    }
    if (expect.bottleneck.is_some() || expect.instructions.is_some())
        && expect.stages != ["measured"]
    {
        return Err(fail(
            "only a measured kernel has a bottleneck and a share".into(),
            "write `//! expect: measured; bottleneck NAME; WHY`",
        ));
    }
    Ok(Mistake {
        name: name.to_owned(),
        text,
        expect,
    })
}

fn bottleneck(word: &str) -> Result<Bottleneck, ValueError> {
    let deserializer: StrDeserializer<'_, ValueError> = word.into_deserializer();
    Bottleneck::deserialize(deserializer)
}

/// The line above the marker comment.
fn marked_line(path: &Path, text: &str) -> Result<u32, TaskError> {
    let mut marks = text
        .lines()
        .zip(0u32..)
        .filter(|(line, _)| line.trim() == "//! ^ here");
    match (marks.next(), marks.next()) {
        (Some((_, above)), None) => Ok(above),
        (None, _) => Err(TaskError::line(
            path,
            1,
            "`here` is said, but no line is marked",
            "put the comment `//! ^ here` below the line",
        )),
        (Some(_), Some((_, second))) => Err(TaskError::line(
            path,
            second + 1,
            "a second `//! ^ here`",
            "mark one line",
        )),
    }
}
