//! Reads what ptxas writes to standard error: resources of each entry, errors, advisories.
//! Pure text in, typed facts out; samples of real output per tool version are the tests. Lines are those of
//! the file that ptxas was given.

use std::collections::BTreeMap;

use crate::units::Bytes;
use crate::verdict::{Diagnostic, Resources, Severity};

/// What ptxas said about one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// One for each entry, in the order of the report (which is not the file's).
    pub entries: Vec<Resources>,
    /// Errors: one for each defect, by line. Empty where it assembled.
    pub errors: Vec<Diagnostic>,
    /// Warnings and performance advisories.
    pub advisories: Vec<Diagnostic>,
    /// Entries whose static shared memory exceeds what the architecture has.
    pub over_shared: Vec<OverShared>,
    /// Module-level memory: `.global` variables.
    pub global: Bytes,
}

/// An entry that declares more shared memory than there is.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct OverShared {
    /// The entry's name.
    pub entry: String,
    /// What it declares.
    pub wanted: Bytes,
    /// What ptxas allows for static shared memory.
    pub allowed: Bytes,
}

/// Reads a whole standard error of `ptxas -v`.
pub fn parse(stderr: &str) -> Report {
    let mut reader = Reader::default();
    for line in stderr.lines() {
        match Line::of(line) {
            Some(line) => reader.said(line),
            None => reader.continued(line.trim()),
        }
    }
    reader.finish()
}

/// What to do about a message of ptxas, for those often met.
pub fn advice(message: &str) -> Option<&'static str> {
    ADVICE
        .iter()
        .find(|(parts, _)| parts.iter().all(|part| message.contains(part)))
        .map(|(_, advice)| *advice)
}

/// Substrings that must all occur, and what helps. The first match counts, so the particular stands before
/// the general.
const ADVICE: &[(&[&str], &str)] = &[
    (
        &["Parsing error near '.L"],
        "labels that start with `.L` do not assemble: write `$L__name`",
    ),
    (
        &["Parsing error near '.reqnreg'"],
        "there is no `.reqnreg`: write `.maxnreg N`",
    ),
    (
        &["Parsing error near 'f'"],
        "write floating-point literals as `1.0` or as bits, `0f3F800000`; a suffix `f` is C",
    ),
    (
        &["Parsing error near '%"],
        "an address is `[register+constant]`: compute anything else into a register first; or the line before lacks its `;`",
    ),
    (
        &["Parsing error near 'float'"],
        "parameters are written `.param .u64 name`; there are no C types",
    ),
    (
        &["Parsing error near '':"],
        "the file ends too early: close every `{` and every `/*`",
    ),
    (
        &["Parsing error near '}'"],
        "one `}` too many, or a `;` is missing before it",
    ),
    (
        &["Parsing error near"],
        "look at the line before too: a missing `;` shows one line late",
    ),
    (
        &["Unexpected non-ASCII"],
        "PTX is plain ASCII, comments included: replace typographic dashes, quotes and letters, and drop a byte order mark",
    ),
    (&["Unexpected EOF"], "the text is no PTX module"),
    (
        &["Missing .version"],
        "the file must start with `.version 8.0`, `.target sm_90a`, `.address_size 64`, with no prose or Markdown fence before",
    ),
    (
        &["Missing .target"],
        "put `.target sm_90a` after `.version`",
    ),
    (
        &["Unsupported .version"],
        "write a `.version` that this ptxas knows; 8.0 is enough for sm_90a",
    ),
    (
        &["PTX .version", "does not support .target"],
        "raise `.version`: sm_90a needs 8.0, sm_100a 8.6, sm_120a 8.7",
    ),
    (
        &["Unsupported .target"],
        "there is no such architecture; write for example `.target sm_90a`",
    ),
    (
        &["SM version specified by .target is higher"],
        "`.target` must not exceed the architecture that is assembled for",
    ),
    (
        &["cannot be compiled to future architecture"],
        "an `a` target runs on exactly that architecture: make `.target` that of the GPU",
    ),
    (
        &["Instruction 'wgmma", "not supported on .target"],
        "wgmma needs `.target sm_90a` (with the `a`) and `.version` 8.0",
    ),
    (
        &["Instruction 'setmaxnreg", "not supported on .target"],
        "setmaxnreg needs `.target sm_90a` (with the `a`) and `.version` 8.0",
    ),
    (
        &["not supported on .target"],
        "the target lacks this instruction: use another, or name the `a` variant in `.target`",
    ),
    (&["requires .target"], "raise `.target`, or do without"),
    (&["requires PTX ISA"], "raise `.version`"),
    (
        &["Unknown symbol '%"],
        "declare the register: `.reg .b32 %r<N>;` declares %r0 to %r(N-1)",
    ),
    (
        &["Unknown symbol '$"],
        "define the label, in this function and scope: `name:`",
    ),
    (&["Unknown symbol"], "declare it before its use"),
    (
        &["Duplicate definition of variable"],
        "declare it once: one `.reg .b32 %r<N>;` with N large enough",
    ),
    (
        &["Duplicate definition of label"],
        "give each label its own name",
    ),
    (
        &["Duplicate definition of function"],
        "give each function its own name",
    ),
    (
        &["State space mismatch"],
        "the variable lives in another state space than the instruction names",
    ),
    (
        &["Rounding modifier"],
        "write the rounding: `.rn` (IEEE) or, where the task allows fast math, `.approx`",
    ),
    (
        &["Arguments mismatch"],
        "number, width or type of the operands do not fit the instruction's type",
    ),
    (
        &["Not a name of any known instruction"],
        "there is no such opcode",
    ),
    (
        &["Unknown modifier"],
        "the instruction has no such modifier, or `.version` is too low for it",
    ),
    (
        &["Illegal vector size"],
        "a vector has 2 or 4 elements (8 for some .b32 loads of sm_100 and later) and as many registers",
    ),
    (
        &["Predicate expression expected"],
        "a guard needs a `.pred` register: setp first",
    ),
    (
        &["cannot both be specified"],
        "keep one of `.maxntid` and `.reqntid`",
    ),
    (
        &["Unresolved extern function"],
        "define the function in this file: nothing is linked in",
    ),
    (&["Barrier number"], "there are 16 barriers, 0 to 15"),
    (
        &["(C7508)"],
        "give the entry a register count: `.maxnreg N` or `.minnctapersm 1` beside `.maxntid`",
    ),
    (
        &["(C75", "serialized"],
        "wgmma loses its overlap: touch its accumulators only between wait_group and the next fence, and call nothing in between",
    ),
    (
        &["(C7517)"],
        "wait for the group (`wgmma.wait_group`) before touching its accumulators",
    ),
    (
        &["(C7519)"],
        "put `wgmma.fence` before the first wgmma and after accumulators are written",
    ),
    (
        &["without '.sync'"],
        "write the `.sync` form with a member mask: `shfl.sync`, `vote.sync`",
    ),
    (
        &[".minnctapersm will be ignored"],
        "lower `.minnctapersm`: with this `.maxntid` an SM cannot hold so many blocks",
    ),
    (
        &["Illegal to take address of parameter"],
        "read entry parameters with `ld.param`; only a `.const`/`.global`/`.shared`/`.local` variable has an address here",
    ),
    (
        &["expected to be multiple of 8"],
        "register counts of setmaxnreg are multiples of 8 from 24 to 256",
    ),
    (
        &["Unexpected instruction types"],
        "the instruction needs another type suffix, or lacks one: `add.u32`",
    ),
    (
        &["Result register required"],
        "the first operand is the result: a register",
    ),
    (
        &["uses too much shared data"],
        "static shared memory is limited: declare it `.extern .shared` and give the size as `smem=` of the launch",
    ),
];

/// Messages that only follow from another error of the same line.
const CONSEQUENCES: [&str; 5] = [
    "Arguments mismatch for instruction",
    "Illegal operand type to instruction",
    "Argument vector size mismatch",
    "Shape modifier required",
    "requires call prototype",
];

/// The last line of every failure; it says nothing.
const ABORTED: &str = "Ptx assembly aborted due to errors";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Info,
    Warning,
    Error,
}

/// `ptxas F, line N; error   : MSG`, or the same without a place.
#[derive(Debug)]
struct Line<'a> {
    kind: Kind,
    number: Option<u32>,
    message: &'a str,
}

impl<'a> Line<'a> {
    /// `None` for a line that continues the one before.
    fn of(text: &'a str) -> Option<Self> {
        let rest = text.strip_prefix("ptxas ")?;
        // The place ends at the first `, line N; kind :`; a file name may hold anything but that.
        let placed = rest.match_indices(", line ").find_map(|(at, separator)| {
            let (number, tail) = rest[at + separator.len()..].split_once("; ")?;
            Some((number.parse().ok()?, tail))
        });
        let (number, tail) = match placed {
            Some((number, tail)) => (Some(number), tail),
            None => (None, rest),
        };
        let (word, message) = tail.split_once(':')?;
        let kind = match word.trim() {
            "info" => Kind::Info,
            "warning" => Kind::Warning,
            "error" | "fatal" => Kind::Error,
            _ => return None,
        };
        Some(Self {
            kind,
            number,
            message: message.trim(),
        })
    }
}

#[derive(Default)]
struct Reader {
    report: Report,
    /// The entry being compiled: an index into the report's entries.
    entry: Option<usize>,
    /// Whose properties come next, by name.
    properties: Option<String>,
    /// Stack and spills of functions that are no entries.
    functions: BTreeMap<String, Resources>,
}

impl Reader {
    fn said(&mut self, line: Line<'_>) {
        match line.kind {
            Kind::Error => self.error(line),
            Kind::Warning => self.advise(line, Severity::Warning),
            Kind::Info if line.message.starts_with("(C") => self.advise(line, Severity::Warning),
            Kind::Info => self.info(line.message),
        }
    }

    fn error(&mut self, line: Line<'_>) {
        if let Some(over) = over_shared(line.message) {
            self.report.over_shared.push(over);
        } else if line.message != ABORTED {
            let error = diagnostic(Severity::Error, line.number, line.message);
            self.report.errors.push(error);
        }
    }

    fn advise(&mut self, line: Line<'_>, severity: Severity) {
        let advisory = diagnostic(severity, line.number, line.message);
        if !self.report.advisories.contains(&advisory) {
            self.report.advisories.push(advisory);
        }
    }

    fn info(&mut self, message: &str) {
        if let Some(rest) = message.strip_prefix("Compiling entry function ") {
            if let Some(name) = quoted(rest) {
                self.entry = Some(self.entry_index(name));
                self.properties = Some(name.to_owned());
            }
        } else if let Some(name) = message.strip_prefix("Function properties for ") {
            self.properties = Some(name.trim_matches('\'').to_owned());
        } else if message.starts_with("Used ") {
            self.used(message);
        } else if let Some(bytes) = number_before(message, " bytes gmem") {
            self.report.global = Bytes(bytes);
        }
    }

    /// `Used 32 registers, used 1 barriers, 48 bytes cumulative stack size, 8448 bytes smem, 364 bytes cmem[0]`
    fn used(&mut self, message: &str) {
        let Some(entry) = self.entry.and_then(|at| self.report.entries.get_mut(at)) else {
            return;
        };
        let count = |word: &str| number_before(message, word).and_then(|n| u32::try_from(n).ok());
        entry.registers = count(" registers").unwrap_or(0);
        entry.barriers = count(" barriers").unwrap_or(0);
        entry.static_smem = Bytes(number_before(message, " bytes smem").unwrap_or(0));
    }

    /// `48 bytes stack frame, 44 bytes spill stores, 48 bytes spill loads`
    fn continued(&mut self, line: &str) {
        let Some(stack) = number_before(line, " bytes stack frame") else {
            return;
        };
        let Some(name) = self.properties.take() else {
            return;
        };
        let known = self.report.entries.iter().position(|e| e.entry == name);
        let resources = match known {
            Some(at) => &mut self.report.entries[at],
            None => self.functions.entry(name).or_default(),
        };
        resources.stack = Bytes(stack);
        resources.spill_stores = Bytes(number_before(line, " bytes spill stores").unwrap_or(0));
        resources.spill_loads = Bytes(number_before(line, " bytes spill loads").unwrap_or(0));
    }

    fn entry_index(&mut self, name: &str) -> usize {
        let entries = &mut self.report.entries;
        entries
            .iter()
            .position(|e| e.entry == name)
            .unwrap_or_else(|| {
                entries.push(Resources {
                    entry: name.to_owned(),
                    ..Resources::default()
                });
                entries.len() - 1
            })
    }

    fn finish(mut self) -> Report {
        // ptxas does not say who calls a function that it did not inline: every entry is charged.
        for function in self.functions.values() {
            for entry in &mut self.report.entries {
                entry.spill_stores.0 += function.spill_stores.0;
                entry.spill_loads.0 += function.spill_loads.0;
                entry.stack.0 += function.stack.0;
            }
        }
        self.report.errors = one_per_defect(self.report.errors);
        self.report
    }
}

/// One defect is often told as two lines: keep the cause, drop what follows from it.
fn one_per_defect(errors: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let consequence =
        |error: &Diagnostic| CONSEQUENCES.iter().any(|text| error.message.contains(text));
    let mut kept: Vec<Diagnostic> = Vec::new();
    for error in &errors {
        let explained = error.line.is_some()
            && consequence(error)
            && errors
                .iter()
                .any(|other| other.line == error.line && !consequence(other));
        if !explained && !kept.contains(error) {
            kept.push(error.clone());
        }
    }
    kept.sort_by_key(|error| error.line);
    kept
}

fn diagnostic(severity: Severity, line: Option<u32>, message: &str) -> Diagnostic {
    let help = advice(message).map(str::to_owned);
    let (code, message) = match message
        .strip_prefix('(')
        .and_then(|rest| rest.split_once(") "))
    {
        Some((code, rest)) if code.starts_with('C') => {
            (format!("ptxas-{}", code.to_lowercase()), rest)
        }
        Some(_) | None => ("ptxas".to_owned(), message),
    };
    let message = message
        .split(" at start of file '")
        .next()
        .unwrap_or(message);
    let (message, within) = take_line(message);
    Diagnostic {
        severity,
        code,
        message,
        line: line.or(within),
        other_line: None,
        help,
    }
}

/// Takes a place out of a message's words: it is a line of the rendering, which nobody sees.
fn take_line(message: &str) -> (String, Option<u32>) {
    for words in [
        " encountered on line ",
        " in around line ",
        " around line ",
        " at line ",
        " on line ",
    ] {
        let Some(at) = message.find(words) else {
            continue;
        };
        let rest = &message[at + words.len()..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if let Ok(line) = rest[..digits].parse() {
            return (format!("{}{}", &message[..at], &rest[digits..]), Some(line));
        }
    }
    (message.to_owned(), None)
}

/// `Entry function 'k' uses too much shared data (0x10000 bytes, 0xc000 max)`
fn over_shared(message: &str) -> Option<OverShared> {
    let (before, after) = message.split_once(" uses too much shared data (")?;
    let hex = |text: &str| u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok();
    let (wanted, rest) = after.split_once(" bytes, ")?;
    Some(OverShared {
        entry: quoted(before)?.to_owned(),
        wanted: Bytes(hex(wanted)?),
        allowed: Bytes(hex(rest.split_once(" max")?.0)?),
    })
}

/// The first text in single quotes.
fn quoted(text: &str) -> Option<&str> {
    text.split('\'').nth(1)
}

/// The number directly before `words`: 48 of `48 bytes stack frame`.
fn number_before(text: &str, words: &str) -> Option<u64> {
    let before = &text[..text.find(words)?];
    before.rsplit([' ', ',']).next()?.parse().ok()
}
