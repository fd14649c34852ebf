//! The fold: the search's state from a run's configuration and its log, by asking and telling the engine as
//! the live run did. `resume` goes on from it. It waits for nobody and writes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Contenders, History};
use crate::llm::Spent;
use crate::propose::ProposerKind;
use crate::search::{
    Applied, ApplyError, Child, Cost, Earlier, Expander, Next, Outcome, Request, Root, Search,
    StopReason, Ticket, Value,
};
use crate::source::{Point, Source};
use crate::store::{Event, Line, Objects, RunConfig, StoreError};
use crate::units::Digest;
use crate::verdict::{Estimate, Verdict};

/// A search, what is in flight, and what became of every node so far.
#[derive(Debug)]
pub struct Fold {
    /// The state.
    pub search: Search,
    /// What proposers are told.
    pub history: History,
    /// Who leads, and who was looked at again.
    pub contenders: Contenders,
    /// Requests that were made and not answered.
    pub in_flight: BTreeMap<Ticket, Request>,
    /// Search time when the last event was recorded.
    elapsed: Duration,
}

/// A run's log or objects do not give a search.
#[derive(Debug, thiserror::Error)]
pub enum FoldError {
    /// The run folder.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A stored source is none.
    #[error("stored source {digest} does not parse any more: {message}")]
    Source {
        /// Which.
        digest: Digest,
        /// Why.
        message: String,
    },
    /// What an earlier run judged cannot be read.
    #[error("stored settings of an earlier run, {digest}, cannot be read: {message}")]
    Earlier {
        /// Which.
        digest: Digest,
        /// Why.
        message: String,
    },
    /// The log answers what was not asked.
    #[error(
        "event {seq}: {message}; the log was edited, or made by another version of the engine, and the run \
         cannot go on: `show` and `export` still read it, a new `search` starts afresh"
    )]
    Diverged {
        /// Which event.
        seq: u64,
        /// What does not fit.
        message: String,
    },
}

impl Fold {
    /// The state before anything was judged.
    pub fn new(config: &RunConfig, objects: &Objects) -> Result<Self, FoldError> {
        let roots = config
            .roots
            .iter()
            .map(|root| {
                Ok(Root {
                    label: root.label.clone(),
                    source: load(root.source, objects)?,
                    settings: root.settings.clone(),
                    earlier: root
                        .earlier
                        .iter()
                        .map(|&digest| earlier(digest, objects))
                        .collect::<Result<_, FoldError>>()?,
                })
            })
            .collect::<Result<Vec<_>, FoldError>>()?;
        let expanders: Vec<Expander> = config
            .proposers
            .iter()
            .copied()
            .filter_map(expander)
            .collect();
        Ok(Self {
            search: Search::new(config.search.clone(), config.seed, roots, &expanders),
            history: History::default(),
            contenders: Contenders::default(),
            in_flight: BTreeMap::new(),
            elapsed: Duration::ZERO,
        })
    }

    /// Takes in a stored line as the live run did: all requests are asked for before each answer, as soon
    /// as the one before it was recorded. An answer that came after the time limit was asked for before it.
    pub fn replay(&mut self, line: &Line, objects: &Objects) -> Result<(), FoldError> {
        self.ask(self.elapsed);
        let diverged = |message: String| FoldError::Diverged {
            seq: line.seq,
            message,
        };
        if let Event::Evaluated {
            ticket,
            point,
            left_out,
            ..
        } = &line.event
        {
            let left_out: Vec<(Point, Estimate)> = (left_out.iter())
                .map(|one| (one.point.clone(), one.estimate))
                .collect();
            self.pick(*ticket, point, &left_out)
                .map_err(|error| diverged(error.to_string()))?;
        }
        if let Some(outcome) = outcome(&line.event, objects)? {
            let applied = self
                .tell(&outcome)
                .map_err(|error| diverged(error.to_string()))?;
            if applied != recorded(&line.event) {
                return Err(diverged(
                    "it changes another thing now than it did then".into(),
                ));
            }
        }
        self.note(line);
        Ok(())
    }

    /// Asks for as many requests as the search gives; also says why it gives none any more.
    pub fn ask(&mut self, elapsed: Duration) -> (Vec<Request>, Option<StopReason>) {
        let mut new = Vec::new();
        loop {
            match self.search.next(elapsed) {
                Next::Request(request) => {
                    self.in_flight.insert(request.ticket(), request.clone());
                    new.push(request);
                }
                Next::Wait => return (new, None),
                Next::Done(reason) => return (new, Some(reason)),
            }
        }
    }

    /// Tells the search which of the settings that it asked for is judged.
    pub(super) fn pick(
        &mut self,
        ticket: Ticket,
        point: &Point,
        left_out: &[(Point, Estimate)],
    ) -> Result<(), ApplyError> {
        self.search.pick(ticket, point, left_out)
    }

    /// Tells the search an outcome.
    pub(super) fn tell(&mut self, outcome: &Outcome) -> Result<Applied, ApplyError> {
        let applied = self.search.apply(outcome)?;
        self.in_flight.remove(&outcome.ticket());
        Ok(applied)
    }

    /// Remembers an event that the search was told.
    pub(super) fn note(&mut self, line: &Line) {
        self.elapsed = Duration::from_millis(line.elapsed_ms);
        self.history.note(&line.event);
        self.contenders.note(&line.event);
    }
}

/// What an event changed when it was made.
fn recorded(event: &Event) -> Applied {
    match event {
        Event::Evaluated { best, .. } => Applied {
            best: *best,
            children: Vec::new(),
        },
        Event::Expanded { children, .. } => Applied {
            best: false,
            children: children.iter().map(|child| child.grown.clone()).collect(),
        },
        Event::ExpandFailed { .. }
        | Event::Away { .. }
        | Event::Unavailable { .. }
        | Event::Retimed { .. }
        | Event::Confirmed { .. }
        | Event::Finished { .. } => Applied::default(),
    }
}

fn expander(proposer: ProposerKind) -> Option<Expander> {
    match proposer {
        ProposerKind::Knobs => None,
        ProposerKind::Rewrites => Some(Expander::Rewrites),
        ProposerKind::Model => Some(Expander::Model),
    }
}

fn outcome(event: &Event, objects: &Objects) -> Result<Option<Outcome>, FoldError> {
    Ok(Some(match event {
        Event::Evaluated {
            ticket, evaluation, ..
        } => evaluated(*ticket, &evaluation.verdict),
        Event::Expanded {
            ticket,
            children,
            asked,
            ..
        } => Outcome::Expanded {
            ticket: *ticket,
            children: children
                .iter()
                .map(|child| {
                    Ok(Child {
                        label: child.label.clone(),
                        source: load(child.source, objects)?,
                        settings: child.settings.clone(),
                        estimated: child.estimated,
                    })
                })
                .collect::<Result<_, FoldError>>()?,
            cost: asked
                .as_ref()
                .map_or(Cost::FREE, |asked| cost(&asked.spent)),
        },
        Event::ExpandFailed { ticket, asked, .. } => Outcome::ExpandFailed {
            ticket: *ticket,
            cost: asked
                .as_ref()
                .map_or(Cost::FREE, |asked| cost(&asked.spent)),
        },
        Event::Away { ticket, .. } => Outcome::Unavailable {
            ticket: *ticket,
            passing: true,
        },
        Event::Unavailable { ticket, .. } => Outcome::Unavailable {
            ticket: *ticket,
            passing: false,
        },
        Event::Retimed { .. } | Event::Confirmed { .. } | Event::Finished { .. } => {
            return Ok(None);
        }
    }))
}

/// What the search is told of a verdict.
pub(super) fn evaluated(ticket: Ticket, verdict: &Verdict) -> Outcome {
    let diagnosis = verdict
        .measurement()
        .and_then(|measurement| measurement.diagnosis.as_ref());
    Outcome::Evaluated {
        ticket,
        value: Value::from(verdict),
        limit: diagnosis.map(|diagnosis| diagnosis.bottleneck),
    }
}

/// What the search is told of a bill: dollars where the model has a price, else millions of tokens.
pub(super) fn cost(spent: &Spent) -> Cost {
    let tokens = spent.tokens as f64 / 1e6;
    let cost = spent.dollars.map_or(tokens, |dollars| dollars.get());
    Cost::new(cost).unwrap_or_default()
}

fn load(digest: Digest, objects: &Objects) -> Result<Arc<Source>, FoldError> {
    let text = objects.text(digest)?;
    Source::parse(&text)
        .map(Arc::new)
        .map_err(|error| FoldError::Source {
            digest,
            message: error.to_string(),
        })
}

fn earlier(digest: Digest, objects: &Objects) -> Result<Earlier, FoldError> {
    let text = objects.text(digest)?;
    serde_json::from_str(&text).map_err(|error| FoldError::Earlier {
        digest,
        message: error.to_string(),
    })
}
