//! Runs candidates under NVIDIA's compute-sanitizer: memory, races, barriers. What it reports becomes
//! findings with the place in the machine code. It decides no verdict.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::watcher::Watcher;
use crate::device::cuda::WorkerCommand;
use crate::device::{Job, RigError};
use crate::toolchain::process::Limits;
use crate::toolchain::{Found, Observer, Places};

/// All calls under one tool: instrumented code runs ten to a hundred times slower.
const TIME: Duration = Duration::from_secs(180);

/// Most that it may write.
const OUTPUT: u64 = 16 << 20;

/// Reports of one kind that are asked for.
const REPORTS: &str = "20";

/// One of its tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Check {
    /// Accesses outside of buffers, or misaligned.
    Memory,
    /// Races in shared memory.
    Races,
    /// Barriers that not all threads meet, wrong mbarriers.
    Barriers,
}

impl Check {
    /// All, the cheapest first.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Barriers, Self::Races];

    /// As the tool is called.
    pub fn tool(self) -> &'static str {
        match self {
            Self::Memory => "memcheck",
            Self::Races => "racecheck",
            Self::Barriers => "synccheck",
        }
    }
}

/// A report; what many threads do at one place is one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Finding {
    /// What it says, in a line, and of which thread first.
    pub message: String,
    /// It calls it a warning only.
    pub warning: bool,
    /// Entry and offset of the instruction, and of the other one of a race.
    pub places: Vec<(String, u64)>,
}

/// A compute-sanitizer that is installed, and the program that launches calls under it.
#[derive(Clone, Debug)]
pub struct Sanitizer(Watcher);

impl Sanitizer {
    /// Finds it. The error is a sentence for people.
    pub fn find(places: &Places) -> Result<Self, String> {
        Watcher::find(Observer::Sanitizer, places).map(Self)
    }

    /// With a given tool and runner.
    pub fn new(found: Found, runner: WorkerCommand) -> Self {
        Self(Watcher::new(Observer::Sanitizer, found, runner))
    }

    /// Leaves what it writes in this folder, as `TOOL-N.log`.
    pub fn keeping(mut self, folder: PathBuf) -> Self {
        self.0.keep = Some(folder);
        self
    }

    /// `compute-sanitizer 2025.3.1.0`.
    pub fn name(&self) -> String {
        self.0.name()
    }

    /// Launches the calls under one tool on GPU `ordinal`, which nobody else uses meanwhile. The inner error
    /// says why nothing is known.
    pub fn check(
        &self,
        check: Check,
        ordinal: u32,
        jobs: &[Job<'_>],
    ) -> Result<Result<Vec<Finding>, String>, RigError> {
        let tool = check.tool();
        let arguments = |log: &Path| {
            let fixed = ["--tool", tool, "--print-limit", REPORTS]
                .into_iter()
                .chain(["--show-backtrace", "no", "--log-file"]);
            fixed.map(OsString::from).chain([log.into()]).collect()
        };
        let limits = Limits {
            time: TIME,
            output: OUTPUT,
        };
        let said = match self.0.run(ordinal, jobs, arguments, limits, tool)? {
            Ok(said) => said,
            Err((_, message)) => return Ok(Err(message)),
        };
        Ok(match (parse(&said.text), said.failed) {
            (Err(message), _) => Err(format!("{tool}: {message} ({})", said.ending)),
            // a report explains why a call broke off
            (Ok(findings), Some(failed)) if findings.is_empty() => Err(format!("{tool}: {failed}")),
            (Ok(findings), _) => Ok(findings),
        })
    }
}

/// Reads its reports. The error says why it came to no summary.
pub fn parse(log: &str) -> Result<Vec<Finding>, String> {
    let mut findings: Vec<Finding> = Vec::new();
    let mut threads: Vec<Option<&str>> = Vec::new();
    let mut summary = false;
    let mut open = false;
    let mut last = String::new();
    for line in log.lines() {
        let Some(rest) = line.strip_prefix("=========") else {
            continue;
        };
        let text = rest.trim();
        if text.contains("SUMMARY:") {
            summary = true;
            open = false;
        } else if text.is_empty() {
            open = false;
        } else if rest.starts_with("    ") {
            if let (true, Some(finding)) = (open, findings.last_mut()) {
                finding.places.extend(place(text));
                if text.starts_with("by thread") {
                    threads[findings.len() - 1].get_or_insert(text);
                }
            }
        } else if let Some((message, warning)) = headline(text) {
            open = true;
            threads.push(None);
            findings.push(Finding {
                message: message.to_owned(),
                warning,
                places: place(text).into_iter().collect(),
            });
        } else {
            open = false;
            last = text.to_owned();
        }
    }
    match (summary, last.is_empty()) {
        (true, _) => Ok(distinct(std::iter::zip(findings, threads))),
        (false, false) => Err(last),
        (false, true) => Err("it gave no summary".to_owned()),
    }
}

/// Each thread at fault is a report: one of them is enough for a place. A driver's error is a finding's
/// consequence, or the runner's own business: it asks for a kernel's parameters until there are no more.
fn distinct<'a>(reports: impl Iterator<Item = (Finding, Option<&'a str>)>) -> Vec<Finding> {
    let mut seen: HashSet<Finding> = HashSet::new();
    let mut findings = Vec::new();
    for (finding, thread) in reports {
        if finding.message.starts_with(CONSEQUENCE) || !seen.insert(finding.clone()) {
            continue;
        }
        let message = match thread {
            Some(thread) => format!("{}, first {thread}", finding.message.trim_end_matches('.')),
            None => finding.message,
        };
        findings.push(Finding { message, ..finding });
    }
    findings
}

/// How the driver's own errors begin.
const CONSEQUENCE: &str = "Program hit";

/// The first line of a report, and whether it is a warning only.
fn headline(text: &str) -> Option<(&str, bool)> {
    const BEGINNINGS: [&str; 8] = [
        "Invalid ",
        "Barrier error",
        "Race reported",
        "Misaligned",
        "Stack overflow",
        "Illegal ",
        "Potential ",
        CONSEQUENCE,
    ];
    let (message, warning) = match (text.strip_prefix("Error: "), text.strip_prefix("Warning: ")) {
        (Some(rest), _) => (rest, false),
        (None, Some(rest)) => (rest, true),
        (None, None) => (text, false),
    };
    let known = BEGINNINGS
        .iter()
        .any(|beginning| message.starts_with(beginning));
    known.then_some((message, warning))
}

/// `… at k+0x110 in …`, or as older versions write, `… at 0x110 in k`.
fn place(text: &str) -> Option<(String, u64)> {
    let (_, after) = text.split_once("at ")?;
    let word = after.split_whitespace().next()?;
    let hex = |digits: &str| {
        let end = digits
            .find(|c: char| !c.is_ascii_hexdigit())
            .unwrap_or(digits.len());
        u64::from_str_radix(&digits[..end], 16).ok()
    };
    if let Some((entry, offset)) = word.split_once("+0x") {
        return Some((entry.to_owned(), hex(offset)?));
    }
    let offset = hex(word.strip_prefix("0x")?)?;
    let entry = after.split_once(" in ")?.1.split_whitespace().next()?;
    Some((entry.to_owned(), offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(entry: &str, offset: u64) -> (String, u64) {
        (entry.to_owned(), offset)
    }

    #[test]
    fn places_are_read_as_new_and_old_versions_write_them() {
        assert_eq!(place("at k+0x110 in k.ptx:4"), Some(at("k", 0x110)));
        assert_eq!(
            place("and Read access at k+0x90 [4 hazards]"),
            Some(at("k", 0x90))
        );
        assert_eq!(place("at 0x578 in kernel"), Some(at("kernel", 0x578)));
        assert_eq!(place("by thread (0,0,0) in block (0,0,0)"), None);
    }

    #[test]
    fn without_a_summary_nothing_is_known() {
        assert!(parse("").is_err());
        let refused = "========= COMPUTE-SANITIZER\n========= Error: Target application terminated before first instrumented API call\n";
        assert!(parse(refused).is_err_and(|text| text.contains("terminated")));
    }
}
