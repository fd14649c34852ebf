//! Opens whether loops that ask an mbarrier without rest (`test_wait`) wait at it (`try_wait`): the answer means the
//! same, and the loop does nothing else meanwhile. Only where the target has it and all that ask are such loops.

use super::{header, proposal, written};
use crate::propose::{Proposal, ProposalRequest};
use crate::ptx::cfg::Cfg;
use crate::ptx::edit::{Edit, apply};
use crate::ptx::ir::{Item, Module, Span};
use crate::source::KnobValue;

const ASKS: &str = "mbarrier.test_wait";

pub(super) fn propose(request: &ProposalRequest<'_>) -> Option<Proposal> {
    let source = request.source;
    let text = &source.text;
    let candidate = source.render(&source.space().default_point().ok()?).ok()?;
    let module = candidate.module.as_ref().ok()?;
    let loops = asking_loops(module).filter(|loops| *loops > 0 && knows_try_wait(module))?;
    let knob = header::free_name(text, "ASK");
    let edit = |call: Span| Edit {
        span: Span {
            start: call.start + "mbarrier.".len() as u32,
            end: call.start + ASKS.len() as u32,
        },
        replacement: format!("${{{knob}}}"),
    };
    let edits: Vec<Edit> = written::calls(text, &format!("{ASKS}."))
        .into_iter()
        .map(edit)
        .collect();
    let line = format!("//@ knob {knob} = \"test_wait\" in {{\"test_wait\", \"try_wait\"}}");
    proposal(
        request,
        "waits instead of questions at an mbarrier",
        header::with_lines(&apply(text, &edits).ok()?, &[line]),
        &knob,
        vec![KnobValue::Text("try_wait".to_owned())],
        format!(
            "{loops} loops ask an mbarrier without rest: `try_wait` sleeps until the phase is over."
        ),
    )
}

/// Loops of nothing but a question and a branch back to it; `None` where something asks otherwise.
fn asking_loops(module: &Module) -> Option<usize> {
    let mut loops = 0;
    for item in &module.items {
        let Item::Function(function) = item else {
            continue;
        };
        let cfg = Cfg::new(function);
        for (index, instruction) in cfg.instructions.iter().enumerate() {
            if instruction.opcode != "mbarrier" || !instruction.has("test_wait") {
                continue;
            }
            let block = cfg.block(cfg.block_of(index)).instructions.clone();
            let again = cfg.instructions.get(index + 1)?;
            let spins = block == (index..index + 2)
                && again.opcode == "bra"
                && again.guard.is_some()
                && cfg.targets(index + 1) == [index];
            spins.then_some(())?;
            loops += 1;
        }
    }
    Some(loops)
}

/// `.target sm_90` and `.version 7.8` at least.
fn knows_try_wait(module: &Module) -> bool {
    let directive = |name: &str| {
        module.items.iter().find_map(|item| match item {
            Item::Directive(directive) if directive.name == name => {
                Some(directive.arguments.as_str())
            }
            Item::Directive(_) | Item::Function(_) | Item::Variable(_) => None,
        })
    };
    let target = directive(".target").and_then(|target| target.trim().strip_prefix("sm_"));
    let digits = target.map(|sm| sm.trim_matches(|c: char| !c.is_ascii_digit()));
    let sm = digits.and_then(|digits| digits.parse::<u32>().ok());
    let version = directive(".version").and_then(|version| {
        let (major, minor) = version.trim().split_once('.')?;
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
    });
    sm.is_some_and(|sm| sm >= 90) && version.is_some_and(|version| version >= (7, 8))
}
