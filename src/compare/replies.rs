//! The methods that are a model's replies and nothing else: single shot, independent draws, serial repair.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::log::Log;
use super::methods::{Contender, judged, unusable};
use super::{Bench, Cost, Judged, Method, MethodError};
use crate::llm::Tally;
use crate::propose::{Proposal, ProposalRequest, ProposeError};
use crate::source::{Point, Setting, Source};
use crate::units::Digest;
use crate::verdict::Verdict;

/// Where a serial repair stands.
struct Chain {
    source: Arc<Source>,
    setting: Option<Setting>,
    feedback: Option<Verdict>,
    history: Vec<(String, String)>,
}

impl Chain {
    fn new(source: &Arc<Source>) -> Self {
        Self {
            source: Arc::clone(source),
            setting: None,
            feedback: None,
            history: Vec::new(),
        }
    }
}

impl Bench<'_> {
    /// The replies of `method`, judged one after the other.
    pub(super) fn replies(
        &self,
        method: Method,
        seed: u64,
        interrupt: &AtomicBool,
        contenders: &mut Vec<Contender>,
    ) -> Result<Vec<Judged>, MethodError> {
        let (Some(make), Some(task)) = (self.model, self.task) else {
            return Err(MethodError::NoModel {
                method: method.name(),
            });
        };
        let model = make(method, seed)?;
        let folder = self.folder.join(Self::name(method, seed));
        let mut log = Log::open(&folder, self.key(method, seed))?;
        let turns = match method {
            Method::Refine => self.turns.max(1),
            Method::SingleShot
            | Method::BestOfN
            | Method::Search
            | Method::KnobsOnly
            | Method::Random => 1,
        };
        let start = &self.sources[0];
        let mut chain = Chain::new(start);
        let mut cost = Cost::default();
        let mut series: Vec<Judged> = Vec::new();
        let mut known: HashSet<Digest> = HashSet::new();
        let mut idle = 0;
        for attempt in 0.. {
            let once = method == Method::SingleShot && attempt > 0;
            if once || self.budget.is_spent(&cost) || self.is_idle(idle) {
                break;
            }
            if interrupt.load(Ordering::Relaxed) {
                return Err(MethodError::Interrupted);
            }
            let turn = attempt % turns;
            if turn == 0 {
                chain = Chain::new(start);
            }
            let mut tally = Tally::default();
            let answer = model.propose(
                &ProposalRequest {
                    setting: chain.setting.clone(),
                    feedback: chain.feedback.as_ref(),
                    history: &chain.history,
                    attempt,
                    ..ProposalRequest::first(task, &chain.source)
                },
                &mut tally,
            );
            cost.charge(&tally.spent);
            let proposal = match answer {
                Ok(proposals) => proposals.into_iter().next(),
                Err(ProposeError::Unusable(message)) => {
                    let edit = "an answer that could not be used".to_owned();
                    chain.history.push((edit, message));
                    None
                }
                Err(error @ (ProposeError::Away(_) | ProposeError::Unavailable(_))) => {
                    return Err(error.into());
                }
            };
            let kernel = proposal.and_then(|proposal| {
                let (source, point) = kernel(&proposal)?;
                Some((proposal, source, point))
            });
            let Some((proposal, source, point)) = kernel else {
                idle += 1;
                cost.judge(0.0);
                series.push(unusable(turn + 1, cost));
                continue;
            };
            let (evaluation, seconds) = log.judge(self.evaluator, &source, &point)?;
            let again = evaluation
                .candidate
                .is_some_and(|kernel| !known.insert(kernel));
            idle = if again { idle + 1 } else { 0 };
            cost.judge(seconds);
            series.push(judged(&evaluation.verdict, turn + 1, cost));
            chain
                .history
                .push((proposal.label, words(&evaluation.verdict)));
            chain.setting = Some(source.space().setting(&point));
            chain.feedback = Some(evaluation.verdict.clone());
            chain.source = Arc::clone(&source);
            contenders.extend(evaluation.cost().map(|cost| Contender {
                cost,
                source,
                point,
            }));
        }
        Ok(series)
    }
}

/// The kernel that a proposal means: with its first setting, else the default one.
fn kernel(proposal: &Proposal) -> Option<(Arc<Source>, Point)> {
    let source = Source::parse(&proposal.text).ok()?;
    let wanted = proposal.settings.first();
    let point = wanted.and_then(|setting| source.space().point(setting).ok());
    let point = point.or_else(|| source.space().default_point().ok())?;
    Some((Arc::new(source), point))
}

/// What became of an edit, as the next prompt says it.
fn words(verdict: &Verdict) -> String {
    match (verdict.measurement(), verdict.reason()) {
        (Some(measurement), _) => format!(
            "correct, {} ({})",
            measurement.time.nanos(),
            measurement.time.label()
        ),
        (None, Some(reason)) => format!("{}: {reason}", verdict.stage()),
        (None, None) => verdict.stage().to_owned(),
    }
}
