//! Leaves the cache operator of plain global stores open: streaming, or without a line in L1. An operator
//! is a hint; what is stored is the same. A source that gives some store one, or a knob for one, is left
//! alone.

use std::collections::BTreeSet;

use super::load_cache::{Opened, renderings};
use crate::propose::{Proposal, ProposalRequest};
use crate::ptx::Lines;
use crate::ptx::ir::{Block, Instruction, Item, Statement};
use crate::source::{Candidate, Source};

/// In the order in which the search walks them.
const OPERATORS: [&str; 4] = ["", ".cs", ".cg", ".L1::no_allocate"];

pub(super) fn propose(request: &ProposalRequest<'_>) -> Option<Proposal> {
    let opened = Opened {
        operation: "st.global",
        knob: "STORE_CACHE",
        operators: &OPERATORS,
        first: [".cs", ".L1::no_allocate"],
        label: "cache operator on stores",
        rationale: "store instructions may stream past the caches, which then keep what is read again.",
    };
    opened.propose(request, &open_lines(request.source)?)
}

/// The source lines (from 1) on which every global store is a plain one, whatever rendering one looks at.
fn open_lines(source: &Source) -> Option<BTreeSet<u32>> {
    let mut open = BTreeSet::new();
    for candidate in renderings(source)? {
        let module = candidate.module.as_ref().ok()?;
        let lines = Lines::new(&module.text);
        for item in &module.items {
            let Item::Function(function) = item else {
                continue;
            };
            if let Some(body) = &function.body {
                stores(body, &mut |store| {
                    open_line(&candidate, &lines, store, &mut open)
                })?;
            }
        }
    }
    Some(open)
}

fn open_line(
    candidate: &Candidate,
    lines: &Lines,
    store: &Instruction,
    open: &mut BTreeSet<u32>,
) -> Option<()> {
    open.insert(candidate.source_line(lines.line(store.span.start))?);
    let plain = |modifier: &String| {
        let is_vector = matches!(modifier.as_str(), "v2" | "v4" | "v8");
        let (kind, bits) = modifier.split_at_checked(1).unwrap_or(("", ""));
        let is_type = matches!(kind, "b" | "u" | "s" | "f") && bits.parse::<u32>().is_ok();
        is_vector || is_type
    };
    let (first, rest) = store.modifiers.split_first()?;
    (first == "global" && rest.iter().all(plain)).then_some(())
}

/// Visits every global store; ends where a visit gives nothing.
fn stores(block: &Block, visit: &mut impl FnMut(&Instruction) -> Option<()>) -> Option<()> {
    for statement in &block.statements {
        match statement {
            Statement::Instruction(i) if i.opcode == "st" && i.has("global") => visit(i)?,
            Statement::Block(inner) => stores(inner, visit)?,
            Statement::Instruction(_)
            | Statement::Label(_)
            | Statement::Variable(_)
            | Statement::Directive(_) => {}
        }
    }
    Some(())
}
