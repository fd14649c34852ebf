//! Asks the assembler for registers such that several blocks reside on a multiprocessor (`.minnctapersm`).
//! That needs the block's size: declared by the kernel, or the same number in all of its launches. A source
//! that bounds registers or resident blocks has made up its mind.

use std::collections::BTreeMap;

use super::{header, proposal};
use crate::propose::{Proposal, ProposalRequest, sample_names};
use crate::ptx::edit::{Edit, apply, set_directive};
use crate::ptx::ir::{FunctionKind, Item};
use crate::source::KnobValue;

/// Threads that a multiprocessor holds.
const THREADS: u32 = 2048;

/// Blocks that it holds.
const BLOCKS: u32 = 32;

/// Shares of them that are asked for, most first.
const SHARES: [u32; 3] = [1, 2, 4];

pub(super) fn propose(request: &ProposalRequest<'_>) -> Option<Proposal> {
    let source = request.source;
    let decided = ["maxnreg", ".minnctapersm", "setmaxnreg", ".maxclusterrank"];
    if decided.iter().any(|word| source.text.contains(word)) {
        return None;
    }
    let blocks = blocks(request)?;
    let most = blocks.values().map(|(threads, _)| *threads).max()?;
    let knob = header::free_name(&source.text, "RESIDENT");
    let mut edits = Vec::new();
    for (entry, (threads, declared)) in &blocks {
        let place = set_directive(&source.text, entry, ".minnctapersm", "1").ok()?;
        let size = match declared {
            true => String::new(),
            false => format!(".maxntid {threads}, 1, 1 "),
        };
        edits.push(Edit {
            span: place.span,
            replacement: format!(
                "${{\"\" if {knob} == 0 else \" {size}.minnctapersm \" ~ {knob}}}"
            ),
        });
    }
    let body = apply(&source.text, &edits).ok()?;
    let mut counts: Vec<u32> = SHARES
        .iter()
        .map(|share| THREADS / most / share)
        .filter(|count| (2..=BLOCKS).contains(count))
        .collect();
    counts.dedup();
    if counts.is_empty() {
        return None;
    }
    let values: Vec<String> = counts.iter().map(u32::to_string).collect();
    let line = format!("//@ knob {knob} = 0 in {{0, {}}}", values.join(", "));
    proposal(
        request,
        "blocks that reside together",
        header::with_lines(&body, &[line]),
        &knob,
        counts
            .iter()
            .map(|count| KnobValue::Int(i64::from(*count)))
            .collect(),
        format!(
            "Blocks of {most} threads: with few enough registers {} of them reside at once.",
            counts[0]
        ),
    )
}

/// By kernel: its threads a block, and whether it declares them. `None` where launches differ.
fn blocks(request: &ProposalRequest<'_>) -> Option<BTreeMap<String, (u32, bool)>> {
    let source = request.source;
    let point = source.space().default_point().ok()?;
    let candidate = source.render(&point).ok()?;
    let module = candidate.module.as_ref().ok()?;
    let plan = candidate.plan(&sample_names(request.task)).ok()?;
    // A number in the header, whatever the problem's size and the knobs.
    let fixed = candidate.formulas().launches.iter().all(|launch| {
        launch
            .block
            .iter()
            .all(|text| text.trim().bytes().all(|byte| byte.is_ascii_digit()))
    });
    if !fixed || source.space().len() != 1 {
        return None;
    }
    let mut blocks = BTreeMap::new();
    for item in &module.items {
        let Item::Function(function) = item else {
            continue;
        };
        if function.kind != FunctionKind::Entry || function.body.is_none() {
            continue;
        }
        let declared = function
            .directives
            .iter()
            .any(|directive| matches!(directive.name.as_str(), ".maxntid" | ".reqntid"));
        let sizes = plan.launches.iter().filter(|l| l.entry == function.name);
        let mut sizes = sizes.map(|launch| launch.block.iter().product::<u32>());
        let first = sizes.next()?;
        if sizes.any(|size| size != first) {
            return None;
        }
        blocks.insert(function.name.clone(), (first, declared));
    }
    Some(blocks)
}
