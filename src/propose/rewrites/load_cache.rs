//! Leaves the cache operator of plain global loads open: through the read-only path (`.nc`), past L1, without a
//! line in it, or with more around it brought into L2 (a hint, which no access depends on). Only loads of the task's inputs take part: their base comes from a parameter that
//! every launch of the kernel binds to an input, and no kernel stores to it. A source that gives some such
//! load an operator, or a knob for one, is left alone.

use std::collections::BTreeSet;

use super::kernel::kernels;
use super::{header, proposal};
use crate::propose::{Proposal, ProposalRequest, sample_names};
use crate::ptx::Lines;
use crate::ptx::ir::{Instruction, Module};
use crate::source::{Candidate, KnobValue, LaunchPlan, Source};
use crate::task::{Role, Task};

/// In the order in which the search walks them.
const OPERATORS: [&str; 8] = [
    "",
    ".nc",
    ".nc.L1::no_allocate",
    ".L1::no_allocate",
    ".cg",
    ".L2::128B",
    ".L2::256B",
    ".nc.L1::no_allocate.L2::256B",
];

/// Renderings looked at: the default and those one knob away from it.
const RENDERINGS: usize = 64;

pub(super) fn propose(request: &ProposalRequest<'_>) -> Option<Proposal> {
    let opened = Opened {
        operation: "ld.global",
        knob: "LOAD_CACHE",
        operators: &OPERATORS,
        first: [".nc.L1::no_allocate", ".nc"],
        label: "cache operator on loads",
        rationale: "load instructions read inputs that nothing writes: they may take the read-only path, leave no line in L1 or bring more into L2.",
    };
    opened.propose(request, &open_lines(request.source, request.task)?)
}

/// An operator after each of some instructions, left open as a knob whose default is none.
pub(super) struct Opened<'a> {
    pub(super) operation: &'a str,
    pub(super) knob: &'a str,
    pub(super) operators: &'a [&'a str],
    /// What to try first.
    pub(super) first: [&'a str; 2],
    pub(super) label: &'a str,
    /// Goes on from the number of instructions.
    pub(super) rationale: &'a str,
}

impl Opened<'_> {
    /// The source with the knob on these lines; `None` where no such instruction stands there.
    pub(super) fn propose(
        &self,
        request: &ProposalRequest<'_>,
        lines: &BTreeSet<u32>,
    ) -> Option<Proposal> {
        let text = &request.source.text;
        let knob = header::free_name(text, self.knob);
        let hole = format!("${{{knob}}}");
        let (body, count) = holes_after(text, self.operation, &hole, lines);
        if count == 0 {
            return None;
        }
        let values: Vec<String> = self
            .operators
            .iter()
            .map(|text| format!("{text:?}"))
            .collect();
        let line = format!("//@ knob {knob} = \"\" in {{{}}}", values.join(", "));
        proposal(
            request,
            self.label,
            header::with_lines(&body, &[line]),
            &knob,
            self.first
                .map(|text| KnobValue::Text(text.to_owned()))
                .to_vec(),
            format!("{count} {}", self.rationale),
        )
    }
}

/// The source lines (from 1) on which every global load is a plain one of an unwritten input, whatever
/// rendering one looks at.
fn open_lines(source: &Source, task: &Task) -> Option<BTreeSet<u32>> {
    let (mut open, mut closed) = (BTreeSet::new(), BTreeSet::new());
    let names = sample_names(task);
    for candidate in renderings(source)? {
        let module = candidate.module.as_ref().ok()?;
        let plan = candidate.plan(&names).ok()?;
        classify(&candidate, module, &plan, task, &mut open, &mut closed)?;
    }
    Some(&open - &closed)
}

/// The default rendering and those one knob away from it.
pub(super) fn renderings(source: &Source) -> Option<Vec<Candidate>> {
    let space = source.space();
    let default = space.default_point().ok()?;
    let mut points = space.neighbours(&default);
    points.insert(0, default);
    points.truncate(RENDERINGS);
    let rendered = points.iter().map(|point| source.render(point).ok());
    rendered.collect()
}

/// Sorts the lines of one rendering's global loads. `None` where it cannot be known what is written, or
/// where a load of an input has an operator.
fn classify(
    candidate: &Candidate,
    module: &Module,
    plan: &LaunchPlan,
    task: &Task,
    open: &mut BTreeSet<u32>,
    closed: &mut BTreeSet<u32>,
) -> Option<()> {
    let lines = Lines::new(&module.text);
    let kernels = kernels(module, plan)?;
    let mut written = BTreeSet::new();
    for kernel in &kernels {
        written.extend(kernel.written()?);
    }
    for kernel in &kernels {
        for load in kernel.cfg.instructions.iter().filter(|i| is_global_load(i)) {
            let source_line = candidate.source_line(lines.line(load.span.start))?;
            let base = kernel.base_of(load);
            let is_input = base.is_some_and(|base| {
                let param = task.param(&base);
                param.is_some_and(|param| param.role == Role::Input) && !written.contains(&base)
            });
            match (is_input, is_plain(load)) {
                (true, true) => open.insert(source_line),
                // Whoever wrote it has thought of operators: what is plain here is plain on purpose.
                (true, false) => return None,
                (false, _) => closed.insert(source_line),
            };
        }
    }
    Some(())
}

fn is_global_load(instruction: &Instruction) -> bool {
    matches!(instruction.opcode.as_str(), "ld" | "ldu") && instruction.has("global")
}

/// `ld.global`, a vector and a type: no cache operator, no ordering.
fn is_plain(load: &Instruction) -> bool {
    let plain = |modifier: &String| {
        let is_vector = matches!(modifier.as_str(), "v2" | "v4" | "v8");
        let (kind, bits) = modifier.split_at_checked(1).unwrap_or(("", ""));
        let is_type = matches!(kind, "b" | "u" | "s" | "f") && bits.parse::<u32>().is_ok();
        is_vector || is_type
    };
    load.opcode == "ld"
        && load
            .modifiers
            .first()
            .is_some_and(|first| first == "global")
        && load.modifiers[1..].iter().all(plain)
}

/// The text with the hole after each `operation` that a modifier follows, on these lines, and how many
/// there are.
fn holes_after(text: &str, operation: &str, hole: &str, lines: &BTreeSet<u32>) -> (String, u32) {
    let mut count = 0;
    let body = (1..)
        .zip(text.split_inclusive('\n'))
        .map(|(number, line)| {
            if !lines.contains(&number) {
                return line.to_owned();
            }
            let (edited, edits) = with_hole(line, operation, hole);
            count += edits;
            edited
        })
        .collect();
    (body, count)
}

fn with_hole(line: &str, operation: &str, hole: &str) -> (String, u32) {
    let code = line.find("//").unwrap_or(line.len());
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$' | '%');
    let mut out = String::with_capacity(line.len() + hole.len());
    let (mut from, mut count) = (0, 0);
    while let Some(offset) = line[from..code].find(operation) {
        let (start, end) = (from + offset, from + offset + operation.len());
        out.push_str(&line[from..end]);
        let begins = !line[..start].chars().next_back().is_some_and(is_word);
        if begins && line[end..].starts_with('.') {
            out.push_str(hole);
            count += 1;
        }
        from = end;
    }
    out.push_str(&line[from..]);
    (out, count)
}
