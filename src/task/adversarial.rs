//! The judge on trial: planted kernels in `tests/adversarial/<task>/`, embedded in the program. `cheats/*.ptx` must
//! be caught and `honest/*.ptx` must pass, each saying how in its first line, as a mistake does (see
//! `mistakes`). What is planted says what must become of it; who judges, and how, it never knows.
//!
//! The tasks are those of the same name in `tasks/` at sizes that the simulator judges in a moment, and
//! variants that allow what those forbid.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use super::catalogue;
use super::error::TaskError;
use super::mistakes::{self, DeviceKind, Expectation};
use super::{Mistake, Task};
use crate::verdict::{InstructionScore, Verdict};

/// A task and what is planted in it.
#[derive(Clone, Debug)]
pub struct Adversary {
    /// What the kernels claim to compute.
    pub task: Arc<Task>,
    /// Cheats, then honest kernels, each by name.
    pub plants: Vec<Plant>,
}

/// Every task with planted kernels, by name.
pub fn catalogue() -> Result<Vec<Adversary>, TaskError> {
    catalogue::adversarial()
}

/// A planted kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Plant {
    /// What it is.
    pub kind: PlantKind,
    /// File name without `.ptx`.
    pub name: String,
    /// The whole file: a source.
    pub text: Arc<str>,
    /// What must become of it.
    pub expect: Expectation,
}

/// What a planted kernel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlantKind {
    /// It must be caught.
    Cheat,
    /// Odd, and right: it must pass.
    Honest,
}

/// How the judge did on a planted kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", content = "difference", rename_all = "snake_case")]
pub enum Outcome {
    /// As it says.
    AsExpected,
    /// A cheat passed.
    FalseAccept,
    /// An honest kernel did not.
    FalseReject,
    /// A cheat was caught, but not as it says: the check it is meant for may be missing.
    CaughtOtherwise(String),
    /// This device cannot tell: of its kind, or for want of a profiler.
    NotJudgedHere,
}

impl Plant {
    /// Reads a file.
    pub(super) fn parse(
        kind: PlantKind,
        name: &str,
        path: &Path,
        text: Arc<str>,
    ) -> Result<Self, TaskError> {
        let Mistake { name, text, expect } = mistakes::parse(name, path, text)?;
        let passes = expect.stages == ["measured"] && expect.instructions.is_none();
        if passes == (kind == PlantKind::Cheat) {
            return Err(TaskError::line(
                path,
                1,
                "a cheat must not pass, and an honest kernel must",
                "write `//! expect: measured; WHY` in `honest/`; another stage, or a share of instructions, in `cheats/`",
            ));
        }
        Ok(Self {
            kind,
            name,
            text,
            expect,
        })
    }

    /// Whether this kind of device can tell.
    pub fn judged_by(&self, kind: DeviceKind) -> bool {
        self.expect.only.is_none_or(|only| only == kind)
    }

    /// What to think of the judge's verdict.
    pub fn outcome(&self, verdict: &Verdict) -> Outcome {
        let passed = matches!(verdict, Verdict::Measured(_));
        let counted = verdict.measurement().is_none_or(|measurement| {
            !matches!(
                measurement.score.instructions,
                InstructionScore::NotProfiled { .. }
            )
        });
        if self.expect.instructions.is_some() && !counted {
            return Outcome::NotJudgedHere;
        }
        match (self.kind, passed, self.expect.check_stage(verdict)) {
            (PlantKind::Honest, false, _) => Outcome::FalseReject,
            (PlantKind::Honest, true, _) | (PlantKind::Cheat, _, Ok(())) => Outcome::AsExpected,
            (PlantKind::Cheat, true, Err(_)) => Outcome::FalseAccept,
            (PlantKind::Cheat, false, Err(difference)) => Outcome::CaughtOtherwise(difference),
        }
    }
}
