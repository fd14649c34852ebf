//! **Check**: whether an exported kernel is still what its certificate says, on this machine. Named checks,
//! each with an outcome and a sentence: its files, its source, its task, its machine code, a full
//! verification, its time, every architecture it is meant for. It trusts nothing in the folder, and runs
//! nothing of it before the files are what was certified. It searches nothing and changes nothing.

mod architectures;
mod bundle;
mod judged;
mod junit;
mod worth;

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

pub use architectures::architectures;
pub use bundle::Bundle;
pub use judged::{Asked, Assembled, Bench, assembly, judge, same_task};
pub use junit::junit;

use crate::report::by_size;
use crate::verdict::Claim;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// A stable name: `kernel.cubin`, `verification`, `sm_90a`.
    pub name: String,
    /// How it went.
    pub outcome: Outcome,
    /// The whole passes only if this does.
    pub required: bool,
    /// In a sentence.
    pub detail: String,
}

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// As it should be.
    Pass,
    /// Not as it should be.
    Fail,
    /// It could not be looked at here; the sentence says why.
    NotDone,
}

impl Check {
    /// One that must pass.
    pub fn required(name: &str, outcome: Outcome, detail: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            outcome,
            required: true,
            detail: detail.into(),
        }
    }

    /// One that tells, and decides nothing.
    pub fn told(name: &str, outcome: Outcome, detail: impl Into<String>) -> Self {
        Self {
            required: false,
            ..Self::required(name, outcome, detail)
        }
    }
}

/// All that a check found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The exported folder.
    pub folder: PathBuf,
    /// What the certificate is about, as far as it could be read: task, GPU, program.
    pub certified: Option<String>,
    /// What judged here: `sim:H200`, `cuda:0`.
    pub device: Option<String>,
    /// In the order done.
    pub checks: Vec<Check>,
    /// What the verification here checked.
    pub checked: Vec<String>,
    /// What it could not check.
    pub not_checked: Vec<String>,
    /// It measured again beside its baselines, in fresh processes, where that was done.
    pub claim: Option<Claim>,
    /// What to do where the kernel is not worth its place.
    pub advice: Option<String>,
}

impl Report {
    /// Nothing was looked at yet.
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            certified: None,
            device: None,
            checks: Vec::new(),
            checked: Vec::new(),
            not_checked: Vec::new(),
            claim: None,
            advice: None,
        }
    }

    /// Whether every required check passed.
    pub fn passed(&self) -> bool {
        self.short_of().next().is_none()
    }

    /// The required checks that did not pass.
    fn short_of(&self) -> impl Iterator<Item = &Check> {
        self.checks
            .iter()
            .filter(|check| check.required && check.outcome != Outcome::Pass)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let certified = self.certified.as_deref().unwrap_or("no certificate");
        let device = self.device.as_deref().unwrap_or("no device");
        writeln!(f, "{}: {certified}; here {device}", self.folder.display())?;
        for check in &self.checks {
            let mark = match (check.outcome, check.required) {
                (Outcome::Pass, true | false) => "ok",
                (Outcome::Fail, true | false) => "!!",
                (Outcome::NotDone, true | false) => "--",
            };
            writeln!(f, "{mark}  {:<13} {}", check.name, check.detail)?;
        }
        for (title, checks) in [
            ("checked", &self.checked),
            ("not checked", &self.not_checked),
        ] {
            for (nth, line) in by_size(checks).iter().enumerate() {
                let title = if nth == 0 { title } else { "" };
                writeln!(f, "    {title:<13} {line}")?;
            }
        }
        if let Some(claim) = &self.claim {
            write!(f, "{claim}")?;
        }
        if let Some(advice) = &self.advice {
            writeln!(f, "{advice}")?;
        }
        let short: Vec<&str> = self.short_of().map(|check| check.name.as_str()).collect();
        if short.is_empty() {
            writeln!(f, "every required check passed")
        } else {
            writeln!(f, "not passed: {}", short.join(", "))
        }
    }
}
