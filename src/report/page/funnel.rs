//! How many proposals got how far: proposed, assembled, correct, timed, faster.

use serde::Serialize;

use crate::store::{Event, StoredRun};
use crate::verdict::Verdict;

/// A step and who did not get past it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Step {
    name: &'static str,
    count: u64,
    /// What fell here, the most frequent first.
    lost: Vec<(&'static str, u64)>,
}

/// How far one got.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reached {
    Proposed,
    Assembled,
    Correct,
    Timed,
    Faster,
}

const STEPS: [(Reached, &str); 5] = [
    (Reached::Proposed, "proposed"),
    (Reached::Assembled, "assembled"),
    (Reached::Correct, "correct"),
    (Reached::Timed, "timed"),
    (Reached::Faster, "faster than what it is set against"),
];

/// The funnel of a run. A table that says only "failed" does not say where: that counts as not assembled.
pub(super) fn funnel(run: &StoredRun) -> Vec<Step> {
    let baseline = run.config.baseline.as_ref().map(|one| one.time);
    let ended = run.lines.iter().filter_map(|line| match &line.event {
        Event::Evaluated { evaluation, .. } => {
            let verdict = &evaluation.verdict;
            let mut reached = reached(verdict);
            let time = verdict.measurement().map(|one| one.time.nanos());
            if baseline.zip(time).is_some_and(|(over, time)| time < over) {
                reached = Reached::Faster;
            }
            Some((reached, verdict.stage()))
        }
        Event::ExpandFailed { .. } => Some((Reached::Proposed, "no usable proposal")),
        Event::Expanded { .. }
        | Event::Away { .. }
        | Event::Unavailable { .. }
        | Event::Retimed { .. }
        | Event::Confirmed { .. }
        | Event::Finished { .. } => None,
    });
    let left_out = (run.lines.iter())
        .filter_map(|line| line.event.left_out())
        .flatten()
        .map(|_| (Reached::Proposed, "estimated only"));
    let ended: Vec<(Reached, &str)> = ended.chain(left_out).collect();
    let steps = if baseline.is_some() { 5 } else { 4 };
    STEPS[..steps]
        .iter()
        .map(|(step, name)| {
            let mut lost: Vec<(&str, u64)> = Vec::new();
            for (_, stage) in ended.iter().filter(|(reached, _)| reached == step) {
                match lost.iter_mut().find(|(known, _)| known == stage) {
                    Some((_, count)) => *count += 1,
                    None => lost.push((stage, 1)),
                }
            }
            // whoever was timed is not lost
            lost.retain(|(stage, _)| *stage != "measured");
            lost.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            Step {
                name,
                count: ended.iter().filter(|(reached, _)| reached >= step).count() as u64,
                lost,
            }
        })
        .collect()
}

fn reached(verdict: &Verdict) -> Reached {
    match verdict {
        Verdict::Unrenderable { .. }
        | Verdict::Forbidden { .. }
        | Verdict::Unassembled { .. }
        | Verdict::AssemblerFailed { .. }
        | Verdict::RecordedFailure { .. } => Reached::Proposed,
        Verdict::OverLimits { .. }
        | Verdict::Faulted { .. }
        | Verdict::Hung { .. }
        | Verdict::Racy { .. }
        | Verdict::Wrong { .. } => Reached::Assembled,
        Verdict::Voided { .. } => Reached::Correct,
        Verdict::Measured(_) => Reached::Timed,
    }
}
