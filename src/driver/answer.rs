//! The threads that answer: they ask evaluators and proposers what the driver hands out, and hand back what they said.
//! They decide nothing but which of several settings of one request is judged, by the estimate given.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Rig;
use super::estimates::Estimates;
use crate::device::{RigError, panic_text};
use crate::evaluate::Evaluation;
use crate::llm::Tally;
use crate::propose::{Ask, Proposal, ProposalRequest, ProposeError};
use crate::search::{Child, Expander, Ticket};
use crate::source::{Point, Setting, Source};
use crate::verdict::{Estimate, Verdict};

pub(super) enum Work {
    Evaluate {
        ticket: Ticket,
        source: Arc<Source>,
        /// Of which one is judged.
        points: Vec<Point>,
    },
    Propose(Box<ProposeWork>),
}

pub(super) struct ProposeWork {
    pub ticket: Ticket,
    pub by: Expander,
    pub source: Arc<Source>,
    pub setting: Option<Setting>,
    pub feedback: Option<Verdict>,
    pub tried: Vec<(String, String)>,
    pub path: Vec<(String, String)>,
    pub beside: Vec<(String, String)>,
    pub ask: Option<Ask>,
    pub attempt: u32,
}

pub(super) enum Answer {
    Evaluated(Result<(Picked, Evaluation), RigError>, Duration),
    Proposed(Result<Proposed, RigError>, Tally, Duration),
}

/// What a proposer answered.
pub(super) type Proposed = Result<Vec<(Proposal, Child)>, ProposeError>;

/// Which of several settings is judged, and what is expected of the others.
pub(super) struct Picked {
    pub point: Point,
    pub left_out: Vec<(Point, Estimate)>,
}

/// The setting of which most is expected; of equals the first.
fn pick(
    estimates: Option<&Estimates<'_>>,
    source: &Source,
    points: Vec<Point>,
) -> Result<Picked, RigError> {
    let mut estimated: Vec<(Point, Estimate)> = match estimates {
        Some(estimates) if points.len() > 1 => estimates.of_all(source, points)?,
        Some(_) | None => points
            .into_iter()
            .map(|point| (point, Estimate::Unknown))
            .collect(),
    };
    let ranks = estimated.iter().map(|(_, estimate)| estimate.rank());
    let best = ranks.enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
    let best = best.map_or(0, |(place, _)| place);
    let (point, _) = estimated.remove(best);
    Ok(Picked {
        point,
        left_out: estimated,
    })
}

/// A worker thread: answers until the driver hangs up.
pub(super) fn serve(
    rig: &Rig<'_>,
    estimates: Option<&Estimates<'_>>,
    work: &Mutex<Receiver<Work>>,
    to_driver: &Sender<(Ticket, Answer)>,
) {
    loop {
        let next = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(next) = next else { return };
        let answer = match next {
            Work::Evaluate {
                ticket,
                source,
                points,
            } => {
                let started = Instant::now();
                let result = caught(|| {
                    let picked = pick(estimates, &source, points)?;
                    let evaluation = rig.evaluator.evaluate(&source, &picked.point)?;
                    Ok((picked, evaluation))
                });
                (ticket, Answer::Evaluated(result, started.elapsed()))
            }
            Work::Propose(work) => {
                let (started, mut tally) = (Instant::now(), Tally::default());
                let result = caught(|| propose(rig, estimates, &work, &mut tally));
                (
                    work.ticket,
                    Answer::Proposed(result, tally, started.elapsed()),
                )
            }
        };
        if to_driver.send(answer).is_err() {
            return;
        }
    }
}

/// A panic is an answer too: without one the driver would wait for ever.
fn caught<T>(answer: impl FnOnce() -> Result<T, RigError>) -> Result<T, RigError> {
    catch_unwind(AssertUnwindSafe(answer)).unwrap_or_else(|panic| {
        Err(RigError::Panicked {
            message: panic_text(&*panic).to_owned(),
        })
    })
}

/// The answer to a request for children. Where they are estimated, rewrites give all that is left at once: which of
/// them comes first is then decided by what is expected of each.
fn propose(
    rig: &Rig<'_>,
    estimates: Option<&Estimates<'_>>,
    work: &ProposeWork,
    tally: &mut Tally,
) -> Result<Proposed, RigError> {
    let mut proposed = match propose_once(rig, work, work.attempt, tally) {
        Ok(proposed) => proposed,
        Err(error) => return Ok(Err(error)),
    };
    let (Some(estimates), Some(stands), false) = (estimates, &work.setting, proposed.is_empty())
    else {
        return Ok(Ok(proposed));
    };
    let Some(parent) = estimates.of_parent(&work.source, stands)? else {
        return Ok(Ok(proposed));
    };
    if work.by == Expander::Rewrites {
        for attempt in work.attempt + 1.. {
            match propose_once(rig, work, attempt, tally) {
                Ok(further) if !further.is_empty() => proposed.extend(further),
                // what cannot be used is told to the request that begins with it
                Ok(_) | Err(_) => break,
            }
        }
    }
    let (proposals, mut children): (Vec<_>, Vec<_>) = proposed.into_iter().unzip();
    estimates.put_beside(parent, stands, &mut children)?;
    Ok(Ok(proposals.into_iter().zip(children).collect()))
}

fn propose_once(rig: &Rig<'_>, work: &ProposeWork, attempt: u32, tally: &mut Tally) -> Proposed {
    let proposer = rig
        .proposers
        .iter()
        .find(|(by, _)| *by == work.by)
        .map(|(_, proposer)| proposer);
    let (Some(proposer), Some(task)) = (proposer, rig.task) else {
        return Err(ProposeError::Unavailable(format!(
            "this run has no {} proposer",
            work.by
        )));
    };
    let request = ProposalRequest {
        task,
        source: &work.source,
        setting: work.setting.clone(),
        feedback: work.feedback.as_ref(),
        history: &work.tried,
        path: &work.path,
        beside: &work.beside,
        ask: work.ask,
        attempt,
    };
    let proposals = proposer.propose(&request, tally)?;
    proposals
        .into_iter()
        .map(|proposal| {
            let source = Source::parse(&proposal.text)
                .map_err(|error| ProposeError::Unusable(format!("{}: {error}", proposal.label)))?;
            let child = Child {
                label: proposal.label.clone(),
                source: Arc::new(source),
                settings: proposal.settings.clone(),
                estimated: None,
            };
            Ok((proposal, child))
        })
        .collect()
}
