//! Opens how long a `mbarrier.try_wait` may hold its thread before it answers that the phase still goes on. The answer
//! means the same whatever the time, so code that is right with one is right with all. A source that names a time for
//! some wait is left alone.

use super::{header, proposal, written};
use crate::propose::{Proposal, ProposalRequest};
use crate::ptx::edit::{Edit, apply};
use crate::ptx::ir::{Block, Instruction, Item, Span, Statement};
use crate::source::KnobValue;

/// Nanoseconds, as a last operand: none, and up to what compilers of tensor programs write.
const TIMES: [&str; 4] = ["", ", 200", ", 2000", ", 10000000"];

pub(super) fn propose(request: &ProposalRequest<'_>) -> Option<Proposal> {
    let source = request.source;
    let text = &source.text;
    let candidate = source.render(&source.space().default_point().ok()?).ok()?;
    let module = candidate.module.as_ref().ok()?;
    let mut waits = 0;
    for item in &module.items {
        if let Item::Function(function) = item
            && let Some(body) = &function.body
        {
            waits += untimed(body)?;
        }
    }
    if waits == 0 {
        return None;
    }
    let knob = header::free_name(text, "WAIT_TIME");
    let edit = |call: Span| Edit {
        span: Span {
            start: call.end,
            end: call.end,
        },
        replacement: format!("${{{knob}}}"),
    };
    let edits: Vec<Edit> = written::calls(text, "mbarrier.try_wait.")
        .into_iter()
        .map(edit)
        .collect();
    let values: Vec<String> = TIMES.iter().map(|time| format!("{time:?}")).collect();
    let line = format!("//@ knob {knob} = \"\" in {{{}}}", values.join(", "));
    proposal(
        request,
        "time of a wait at an mbarrier",
        header::with_lines(&apply(text, &edits).ok()?, &[line]),
        &knob,
        vec![KnobValue::Text(TIMES[3].to_owned())],
        format!(
            "{waits} waits may sleep longer before they look again: their loops turn less often."
        ),
    )
}

/// Waits that name no time; `None` where one does.
fn untimed(block: &Block) -> Option<u32> {
    let is_wait = |i: &Instruction| i.opcode == "mbarrier" && i.has("try_wait");
    let mut count = 0;
    for statement in &block.statements {
        match statement {
            Statement::Instruction(wait) if is_wait(wait) => {
                (wait.operands.len() == 3).then_some(())?;
                count += 1;
            }
            Statement::Block(inner) => count += untimed(inner)?,
            Statement::Instruction(_)
            | Statement::Label(_)
            | Statement::Variable(_)
            | Statement::Directive(_) => {}
        }
    }
    Some(count)
}
