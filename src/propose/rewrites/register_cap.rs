//! Caps the registers per thread: fewer of them let more warps reside, at the price of spills. A source
//! that has a cap, or says how many blocks shall reside, has made up its mind.

use super::{header, proposal};
use crate::propose::{Proposal, ProposalRequest};
use crate::source::KnobValue;

/// 0 is no cap; the others are where another block of a common size fits an SM of 65,536 registers.
const CAPS: [i64; 8] = [0, 32, 40, 64, 96, 128, 168, 255];

/// With up to this many registers all 2,048 threads of an SM reside.
const ENOUGH: u32 = 32;

pub(super) fn propose(request: &ProposalRequest<'_>) -> Option<Proposal> {
    let text = &request.source.text;
    let decided = ["maxnreg", ".minnctapersm", "setmaxnreg"];
    if decided.iter().any(|word| text.contains(word)) {
        return None;
    }
    let used = registers(request);
    if used.is_some_and(|used| used <= ENOUGH) {
        return None;
    }
    let knob = header::free_name(text, "REGS");
    let values: Vec<String> = CAPS.iter().map(i64::to_string).collect();
    let lines = [
        format!("//@ knob {knob} = 0 in {{{}}}", values.join(", ")),
        format!("//@ maxnreg {knob}"),
    ];
    // A cap above what is used changes nothing; the two below it are the ones worth a look.
    let below = |cap: &i64| *cap > 0 && used.is_none_or(|used| *cap < i64::from(used));
    let mut first: Vec<i64> = CAPS.into_iter().filter(below).collect();
    first.reverse();
    match used {
        Some(_) => first.truncate(2),
        None => first = vec![128, 64],
    }
    let rationale = match used {
        Some(used) => {
            format!("It uses {used} registers; with fewer, more warps reside and hide latency.")
        }
        None => "With fewer registers more warps reside and hide latency.".to_owned(),
    };
    proposal(
        request,
        "register cap",
        header::with_lines(text, &lines),
        &knob,
        first.into_iter().map(KnobValue::Int).collect(),
        rationale,
    )
}

/// The most that an entry uses, as ptxas said of the setting that the feedback is about.
fn registers(request: &ProposalRequest<'_>) -> Option<u32> {
    let measurement = request.feedback?.measurement()?;
    measurement
        .resources
        .iter()
        .map(|entry| entry.registers)
        .max()
}
