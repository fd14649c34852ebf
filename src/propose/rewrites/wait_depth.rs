//! Opens how many groups a wait may leave running, from what it leaves now down to none: to wait for more is always
//! right. That more may go on is never assumed: it would have to be known which stage each group reads.

use super::{header, proposal, written};
use crate::propose::{Proposal, ProposalRequest};
use crate::ptx::edit::{Edit, apply};
use crate::source::KnobValue;

/// What waits, and what its number is called as a knob.
const WAITS: [(&str, &str); 2] = [
    ("wgmma.wait_group.", "PRODUCTS_RUNNING"),
    ("cp.async.wait_group ", "COPIES_RUNNING"),
];

pub(super) fn propose(request: &ProposalRequest<'_>) -> Option<Proposal> {
    let text = &request.source.text;
    let mut edits = Vec::new();
    let mut lines = Vec::new();
    let mut first = None;
    for (wait, wanted) in WAITS {
        let numbers = written::last_numbers(text, wait);
        let values: Vec<u64> = numbers.iter().map(|number| number.0).collect();
        let Some(most) = values.iter().copied().max().filter(|most| *most > 0) else {
            continue;
        };
        // One number at every wait that leaves any: else knobs would be many, and mean little.
        if values.iter().any(|value| *value != most && *value != 0) {
            continue;
        }
        let knob = header::free_name(text, wanted);
        let open = numbers.into_iter().filter(|number| number.0 == most);
        edits.extend(open.map(|(_, span)| Edit {
            span,
            replacement: format!("${{{knob}}}"),
        }));
        let all: Vec<String> = (0..=most).map(|n| n.to_string()).collect();
        lines.push(format!(
            "//@ knob {knob} = {most} in {{{}}}",
            all.join(", ")
        ));
        first.get_or_insert((knob, most - 1));
    }
    let (knob, less) = first?;
    proposal(
        request,
        "groups that waits leave running",
        header::with_lines(&apply(text, &edits).ok()?, &lines),
        &knob,
        vec![KnobValue::Int(i64::try_from(less).ok()?)],
        "A wait may leave fewer groups running: what they read is free earlier.".to_owned(),
    )
}
