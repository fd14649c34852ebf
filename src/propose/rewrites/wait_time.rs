//! Opens how long a `mbarrier.try_wait` may hold its thread before it answers that the phase still goes on. The answer
//! means the same whatever the time, so code that is right with one is right with all. A source that names a time for
//! some wait, at some value of a knob, is left alone.

use super::{header, proposal, written};
use crate::propose::{Proposal, ProposalRequest};
use crate::ptx::edit::{Edit, apply};
use crate::ptx::ir::{Block, Instruction, Item, Span, Statement};
use crate::source::{KnobValue, Source};

/// Nanoseconds, as a last operand: none, and up to what compilers of tensor programs write.
const TIMES: [&str; 4] = ["", ", 200", ", 2000", ", 10000000"];

pub(super) fn propose(request: &ProposalRequest<'_>) -> Option<Proposal> {
    let source = request.source;
    let text = &source.text;
    let calls = written::calls(text, "mbarrier.try_wait.");
    let waits = untimed(source, &calls)?;
    let knob = header::free_name(text, "WAIT_TIME");
    let edit = |call: Span| Edit {
        span: Span {
            start: call.end,
            end: call.end,
        },
        replacement: format!("${{{knob}}}"),
    };
    let edits: Vec<Edit> = calls.into_iter().map(edit).collect();
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

/// Waits of a source, if there are any, where no value of the knobs that these `calls` mention gives one of them a time.
fn untimed(source: &Source, calls: &[Span]) -> Option<u32> {
    let space = source.space();
    let default = space.setting(&space.default_point().ok()?);
    let mentioned = |name: &str| {
        calls
            .iter()
            .any(|call| source.text[call.range()].contains(name))
    };
    let others = (space.knobs().iter())
        .filter(|knob| mentioned(&knob.name))
        .flat_map(|knob| {
            knob.values
                .iter()
                .map(|value| (knob.name.clone(), value.clone()))
        })
        .filter_map(|(name, value)| {
            let mut setting = default.clone();
            setting.insert(name, value);
            space.point(&setting).ok()
        });
    let mut waits = 0;
    for point in std::iter::once(space.default_point().ok()?).chain(others) {
        let module = source.render(&point).ok()?.module.ok()?;
        waits = 0;
        for item in &module.items {
            if let Item::Function(function) = item
                && let Some(body) = &function.body
            {
                waits += untimed_in(body)?;
            }
        }
    }
    (waits > 0).then_some(waits)
}

/// Waits that name no time; `None` where one does.
fn untimed_in(block: &Block) -> Option<u32> {
    let is_wait = |i: &Instruction| i.opcode == "mbarrier" && i.has("try_wait");
    let mut count = 0;
    for statement in &block.statements {
        match statement {
            Statement::Instruction(wait) if is_wait(wait) => {
                (wait.operands.len() == 3).then_some(())?;
                count += 1;
            }
            Statement::Block(inner) => count += untimed_in(inner)?,
            Statement::Instruction(_)
            | Statement::Label(_)
            | Statement::Variable(_)
            | Statement::Directive(_) => {}
        }
    }
    Some(count)
}
