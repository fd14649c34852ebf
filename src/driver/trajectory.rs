//! A **trajectory**: one source repaired and improved turn by turn, each turn one question to a model and one
//! kernel judged, with what became of the turn before as feedback. It is how models are benchmarked; it searches
//! nothing. A trajectory goes on from the turns it is given, so one that was stopped is taken up again.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::device::RigError;
use crate::evaluate::{Evaluation, Evaluator};
use crate::llm::{Spent, Tally};
use crate::propose::{Ask, ProposalRequest, ProposeError, Proposer};
use crate::source::{Setting, Source};
use crate::task::Task;
use crate::verdict::Verdict;

/// What one turn came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Which trajectory, from 0.
    pub trajectory: u32,
    /// Which turn of it, from 0.
    pub turn: u32,
    /// What the reply gave.
    #[serde(flatten)]
    pub gave: Gave,
    /// What it cost.
    pub spent: Spent,
}

/// What a reply gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "gave", rename_all = "snake_case")]
pub enum Gave {
    /// A kernel, which was judged.
    Kernel {
        /// The edit in one line.
        label: String,
        /// The source's text.
        source: Arc<str>,
        /// The setting that was judged.
        setting: Setting,
        /// What became of it.
        evaluation: Box<Evaluation>,
    },
    /// Nothing that can be judged.
    Nothing {
        /// Why.
        message: String,
    },
}

impl Turn {
    /// Its verdict, where there was a kernel.
    pub fn verdict(&self) -> Option<&Verdict> {
        match &self.gave {
            Gave::Kernel { evaluation, .. } => Some(&evaluation.verdict),
            Gave::Nothing { .. } => None,
        }
    }

    /// How it ended: a verdict's stage, or `no kernel`.
    pub fn stage(&self) -> &'static str {
        self.verdict().map_or("no kernel", Verdict::stage)
    }
}

/// Who plays.
pub struct Players<'a> {
    /// What is computed.
    pub task: &'a Task,
    /// What every trajectory begins with.
    pub seed: &'a Arc<Source>,
    /// The model.
    pub model: &'a dyn Proposer,
    /// The judge.
    pub evaluator: &'a dyn Evaluator,
}

/// A trajectory cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum TrajectoryError {
    /// The judge broke.
    #[error(transparent)]
    Rig(#[from] RigError),
    /// The model is out of service, or may not be asked any more.
    #[error("{0}")]
    Model(String),
    /// A turn cannot be kept.
    #[error("{0}")]
    Kept(String),
    /// A stored turn holds no source.
    #[error("a stored turn's source does not parse any more: {0}")]
    Stored(String),
}

/// Where a trajectory stands.
struct Standing {
    source: Arc<Source>,
    judged: Option<(Setting, Verdict)>,
    best: Option<(Arc<Source>, Setting, Verdict, f64)>,
    history: Vec<(String, String)>,
}

/// Plays the turns of one trajectory that are still to be played; `past` are those before, in order. Each is
/// handed to `keep` before the next begins; `keep` says whether to go on.
pub fn play(
    players: &Players<'_>,
    trajectory: u32,
    turns: u32,
    past: &[Turn],
    mut keep: impl FnMut(Turn) -> Result<bool, String>,
) -> Result<(), TrajectoryError> {
    let mut standing = Standing {
        source: Arc::clone(players.seed),
        judged: None,
        best: None,
        history: Vec::new(),
    };
    for turn in past {
        standing.take(turn).map_err(TrajectoryError::Stored)?;
    }
    for turn in past.len() as u32..turns {
        let played = players.turn(&standing, trajectory, turn, turns)?;
        standing.take(&played).map_err(TrajectoryError::Stored)?;
        if !keep(played).map_err(TrajectoryError::Kept)? {
            return Ok(());
        }
    }
    Ok(())
}

impl Players<'_> {
    fn turn(
        &self,
        standing: &Standing,
        trajectory: u32,
        turn: u32,
        turns: u32,
    ) -> Result<Turn, TrajectoryError> {
        let (setting, verdict) = standing.judged.as_ref().map(|(s, v)| (s, v)).unzip();
        let broken = verdict.is_some_and(|verdict| verdict.measurement().is_none());
        let request = ProposalRequest {
            setting: setting.cloned(),
            feedback: verdict,
            history: &standing.history,
            ask: broken.then_some(Ask::Repair),
            // Every question of every trajectory is a draw of its own.
            attempt: trajectory * turns + turn,
            ..ProposalRequest::first(self.task, &standing.source)
        };
        let mut tally = Tally::default();
        let gave = match self.model.propose(&request, &mut tally) {
            Ok(mut proposals) if !proposals.is_empty() => {
                let proposal = proposals.swap_remove(0);
                self.judge(&proposal.label, proposal.text, proposal.settings.first())?
            }
            Ok(_) => Gave::Nothing {
                message: "the model proposed nothing".to_owned(),
            },
            Err(ProposeError::Unusable(message)) => Gave::Nothing { message },
            Err(ProposeError::Away(message) | ProposeError::Unavailable(message)) => {
                return Err(TrajectoryError::Model(message));
            }
        };
        Ok(Turn {
            trajectory,
            turn,
            gave,
            spent: tally.spent,
        })
    }

    fn judge(
        &self,
        label: &str,
        text: Arc<str>,
        setting: Option<&Setting>,
    ) -> Result<Gave, RigError> {
        let nothing = |message: String| Gave::Nothing { message };
        let source = match Source::parse(&text) {
            Ok(source) => source,
            Err(error) => return Ok(nothing(error.to_string())),
        };
        let space = source.space();
        let wanted = setting.and_then(|setting| space.point(setting).ok());
        let point = match wanted.map_or_else(|| space.default_point(), Ok) {
            Ok(point) => point,
            Err(error) => return Ok(nothing(error.to_string())),
        };
        let evaluation = self.evaluator.evaluate(&source, &point)?;
        let setting = space.setting(&point);
        Ok(Gave::Kernel {
            label: label.to_owned(),
            source: text,
            setting,
            evaluation: Box::new(evaluation),
        })
    }
}

impl Standing {
    /// Goes on from what a turn gave: a broken kernel is repaired, a slower one left for the best.
    fn take(&mut self, turn: &Turn) -> Result<(), String> {
        match &turn.gave {
            Gave::Nothing { message } => {
                self.history
                    .push(("a reply without a kernel".to_owned(), message.clone()));
            }
            Gave::Kernel {
                label,
                source,
                setting,
                evaluation,
            } => {
                let source = Arc::new(Source::parse(source).map_err(|error| error.to_string())?);
                let verdict = &evaluation.verdict;
                let outcome = match verdict.measurement() {
                    Some(measurement) => {
                        let time = measurement.time.nanos();
                        format!("correct, {time} ({})", measurement.time.label())
                    }
                    None => {
                        let reason = verdict.reason().unwrap_or_default();
                        format!("{}: {reason}", verdict.stage())
                    }
                };
                self.history.push((label.clone(), outcome));
                let cost = evaluation.cost().filter(|cost| cost.is_finite());
                let better = |cost: f64| self.best.as_ref().is_none_or(|(.., best)| cost < *best);
                match cost {
                    Some(cost) if better(cost) => {
                        self.best =
                            Some((Arc::clone(&source), setting.clone(), verdict.clone(), cost));
                        self.source = source;
                        self.judged = Some((setting.clone(), verdict.clone()));
                    }
                    Some(_) => {
                        if let Some((best, setting, verdict, _)) = &self.best {
                            self.source = Arc::clone(best);
                            self.judged = Some((setting.clone(), verdict.clone()));
                        }
                    }
                    None => {
                        self.source = source;
                        self.judged = Some((setting.clone(), verdict.clone()));
                    }
                }
            }
        }
        Ok(())
    }
}
