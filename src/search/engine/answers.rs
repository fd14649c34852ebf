//! How a search takes in what became of its requests: values, new sources, models that do not answer.

use std::sync::Arc;

use super::{Flight, Search};
use crate::propose::Ask;
use crate::search::earlier::Earlier;
use crate::search::graph::{NodeId, Refused};
use crate::search::policy::{Content, Origin, Service, SourceState};
use crate::search::request::{Applied, ApplyError, Child, Cost, Expander, Grown, Outcome, points};
use crate::search::tuner::Tuner;
use crate::search::value::Value;
use crate::source::{Point, Source};
use crate::units::Digest;
use crate::verdict::{Bottleneck, TimeRatio};

/// How fast old gains are forgotten: the weight of the newest.
const GAIN_MEMORY: f64 = 0.1;

/// A model's rest doubles at most so often.
const LONGEST_REST: u32 = 6;

/// What is known of a source that an expander made.
#[derive(Clone, Copy)]
pub(super) struct Made {
    origin: Origin,
    repairs: u32,
    estimated: Option<TimeRatio>,
}

impl Search {
    /// Tells how a request ended.
    pub fn apply(&mut self, outcome: &Outcome) -> Result<Applied, ApplyError> {
        let ticket = outcome.ticket();
        let flight = self
            .flights
            .get(&ticket)
            .ok_or(ApplyError::NotInFlight(ticket))?
            .clone();
        let applied = match (flight, outcome) {
            (Flight::Evaluation { node, point, .. }, Outcome::Evaluated { value, limit, .. }) => {
                self.evaluated(node, &point, *value, *limit)
            }
            (Flight::Expansion { node, by, ask }, Outcome::Expanded { children, cost, .. }) => {
                self.answered(by, ask, *cost);
                self.expanded(node, by, ask, children)
            }
            (Flight::Expansion { node, by, ask }, Outcome::ExpandFailed { cost, .. }) => {
                self.answered(by, ask, *cost);
                self.expand_failed(node, by, ask);
                Applied::default()
            }
            (Flight::Expansion { node, by, ask }, Outcome::Unavailable { passing, .. }) => {
                self.unavailable(node, by, ask, *passing);
                Applied::default()
            }
            (Flight::Evaluation { .. }, _) | (Flight::Expansion { .. }, _) => {
                return Err(ApplyError::WrongKind(ticket));
            }
        };
        self.flights.remove(&ticket);
        Ok(applied)
    }

    fn evaluated(
        &mut self,
        id: NodeId,
        point: &Point,
        value: Value,
        limit: Option<Bottleneck>,
    ) -> Applied {
        self.evaluations_in_flight -= 1;
        self.progress.record(value.cost(), &self.params.stop);
        let trial = self.params.trial as usize;
        let before = self.graph.node(id).own;
        let state = self.state_mut(id);
        state.tuner.tell(point, value);
        state.valid += u32::from(value != Value::Failed);
        if value
            .cost()
            .is_some_and(|cost| before.is_none_or(|before| cost < before))
        {
            state.limit = limit;
        }
        let guessed = state.guessed(point, value);
        let gain = match (before, value.cost()) {
            (Some(before), Some(cost)) => (1.0 - cost.get() / before.get()).max(0.0),
            (Some(_), None) | (None, _) => 0.0,
        };
        if before.is_some() {
            state.tune_gain += GAIN_MEMORY * (gain - state.tune_gain);
        }
        let through = state.tuner.judged() >= trial || state.tuner.is_exhausted();
        let credit = match &mut state.origin {
            Some(origin) if through && !origin.credited => {
                origin.credited = true;
                Some(*origin)
            }
            Some(_) | None => None,
        };
        if let Some(cost) = value.cost() {
            self.graph.improve(id, cost);
        }
        if let Some(origin) = credit {
            let gain = match (origin.parent_best, self.graph.node(id).own) {
                (Some(parent), Some(own)) => (1.0 - own.get() / parent.get()).max(0.0),
                (None, _) | (_, None) => 0.0,
            };
            self.learn_gain(origin.by, origin.ask, gain);
            if let Some(ask) = origin.ask {
                let valid = self.state_mut(id).valid > 0;
                self.learn_end(ask, valid);
            }
        }
        if let Some(gain) = guessed {
            self.expanders.asks.gained(Ask::KnobChange, gain);
        }
        if let Service::Away { until } = self.expanders.model
            && self.progress.judged >= until
        {
            self.recall_model();
        }
        let best = value
            .cost()
            .is_some_and(|cost| self.best.is_none_or(|(_, best)| cost < best));
        if best {
            self.best = value.cost().map(|cost| (id, cost));
        }
        self.refresh(id);
        Applied {
            best,
            children: Vec::new(),
        }
    }

    fn expanded(
        &mut self,
        id: NodeId,
        by: Expander,
        ask: Option<Ask>,
        children: &[Child],
    ) -> Applied {
        if by == Expander::Rewrites {
            // Several at once are the answers of as many requests.
            let further = children.len().saturating_sub(1) as u32;
            self.state_mut(id).expander_mut(by).asked += further;
        }
        let grown: Vec<Grown> = children
            .iter()
            .map(|child| self.adopt(id, by, ask, child))
            .collect();
        let fresh = grown.iter().any(|grown| match grown {
            Grown::New { .. } | Grown::Joined { .. } => true,
            Grown::Settings { fresh } => *fresh > 0,
            Grown::Duplicate { .. } => false,
        });
        if fresh {
            let expander = self.state_mut(id).expander_mut(by);
            expander.failures = 0;
            expander.in_flight = false;
            self.refresh(id);
        } else if children.is_empty() {
            let expander = self.state_mut(id).expander_mut(by);
            expander.closed = true;
            expander.in_flight = false;
            self.refresh(id);
        } else {
            self.expand_failed(id, by, ask);
        }
        Applied {
            best: false,
            children: grown,
        }
    }

    fn adopt(&mut self, parent: NodeId, by: Expander, ask: Option<Ask>, child: &Child) -> Grown {
        let known = self.by_digest.get(&child.source.digest()).copied();
        if known == Some(parent) {
            let first = points(&child.source, &child.settings);
            if ask.is_some() {
                let before = self.graph.node(parent).own;
                self.state_mut(parent).expect_guesses(before, &first);
            }
            let fresh = self.suggest(parent, first);
            return Grown::Settings { fresh };
        }
        if let Some(known) = known {
            self.suggest(known, points(&child.source, &child.settings));
            let label = child.label.clone();
            return match self.graph.link(parent, known, label, child.estimated) {
                Ok(_) => Grown::Joined { node: known },
                Err(Refused::Cycle | Refused::Known) => Grown::Duplicate { node: known },
            };
        }
        let fresh = self.params.repairs;
        let state = self.state_mut(parent);
        let best = state.tuner.best().map(|trial| &trial.point);
        let best = best.map(|point| state.source.space().setting(point));
        let first = child.first(best.as_ref());
        let broken = state.is_broken();
        let repairs = match broken {
            true => std::mem::take(&mut state.repairs),
            false => fresh,
        };
        // what a repair gains shows against the source that was edited when it broke
        let edited = state.origin.filter(|_| broken);
        let origin = Origin {
            by,
            ask,
            parent_best: match edited {
                Some(edited) => edited.parent_best,
                None => self.graph.node(parent).own,
            },
            credited: false,
        };
        let (label, source) = (child.label.clone(), Arc::clone(&child.source));
        let made = Made {
            origin,
            repairs,
            estimated: child.estimated,
        };
        let node = self.grow(parent, label, source, first, &[], Some(made));
        match self.policy().waits(by, parent, child.estimated) {
            true => {
                self.expected.insert(node);
            }
            false => self.on_trial.push_back(node),
        }
        Grown::New { node }
    }

    fn expand_failed(&mut self, id: NodeId, by: Expander, ask: Option<Ask>) {
        let patience = self.params.repairs;
        let expander = self.state_mut(id).expander_mut(by);
        expander.in_flight = false;
        expander.failures += 1;
        // Rewrites end by themselves; a model is given up after some repairs.
        expander.closed |= by == Expander::Model && expander.failures > patience;
        self.learn_gain(by, None, 0.0);
        if let Some(ask) = ask {
            self.learn_end(ask, false);
        }
        self.refresh(id);
    }

    /// An answer ended, as a valid source or not; whether repairs pay may change with it.
    fn learn_end(&mut self, ask: Ask, valid: bool) {
        let paid = self.expanders.asks.repair_pays();
        self.expanders.asks.ended(ask, valid);
        if paid != self.expanders.asks.repair_pays() {
            self.refresh_all();
        }
    }

    fn unavailable(&mut self, id: NodeId, by: Expander, ask: Option<Ask>, passing: bool) {
        self.state_mut(id).expander_mut(by).in_flight = false;
        if let Some(ask) = ask {
            self.state_mut(id).asked_here[ask as usize] -= 1;
            self.expanders.asks.withdrawn(ask);
            self.model_returned();
        }
        match by {
            Expander::Rewrites => self.expanders.rewrites = false,
            Expander::Model => {
                self.expanders.model = match self.expanders.model {
                    Service::Off => Service::Off,
                    _ if !passing => Service::Off,
                    // Another call of the same outage.
                    Service::Away { until } => Service::Away { until },
                    Service::On => {
                        let times = self.expanders.model_away.min(LONGEST_REST);
                        self.expanders.model_away += 1;
                        let rest = self.params.model_rest.max(1).saturating_mul(1 << times);
                        Service::Away {
                            until: self.progress.judged.saturating_add(rest),
                        }
                    }
                };
            }
        }
        self.refresh_all();
    }

    /// An expander answered, well or badly.
    fn answered(&mut self, by: Expander, ask: Option<Ask>, cost: Cost) {
        if let Some(ask) = ask {
            self.expanders.asks.answered(ask, cost);
            self.model_returned();
        }
        match by {
            Expander::Rewrites => {}
            Expander::Model => self.expanders.model_away = 0,
        }
    }

    fn model_returned(&mut self) {
        self.expanders.model_in_flight -= 1;
        self.set_model_full();
    }

    pub(super) fn recall_model(&mut self) {
        self.expanders.model = Service::On;
        self.refresh_all();
    }

    pub(super) fn set_model_full(&mut self) {
        let full = self.expanders.model_in_flight >= self.params.model_window;
        if full != self.expanders.model_full {
            self.expanders.model_full = full;
            self.refresh_all();
        }
    }

    fn refresh_all(&mut self) {
        let all: Vec<NodeId> = self.graph.ids().collect();
        all.into_iter().for_each(|id| self.refresh(id));
    }

    fn learn_gain(&mut self, by: Expander, ask: Option<Ask>, gain: f64) {
        if let Some(ask) = ask {
            self.expanders.asks.gained(ask, gain);
        }
        let believed = match by {
            Expander::Rewrites => &mut self.expanders.rewrite_gain,
            Expander::Model => &mut self.expanders.model_gain,
        };
        *believed += GAIN_MEMORY * (gain - *believed);
    }

    pub(super) fn grow(
        &mut self,
        parent: NodeId,
        label: String,
        source: Arc<Source>,
        first: Vec<Point>,
        earlier: &[Earlier],
        made: Option<Made>,
    ) -> NodeId {
        let estimated = made.and_then(|made| made.estimated);
        let digest = source.digest();
        let seed = Digest::of_parts([&self.seed.to_le_bytes()[..], digest.to_string().as_bytes()]);
        let tuner = Tuner::new(
            Arc::clone(&source),
            first,
            earlier,
            &self.params.tuner,
            seed.seed(),
        );
        let state = SourceState {
            label: label.clone(),
            source,
            tuner,
            valid: 0,
            origin: made.map(|made| made.origin),
            rewrites: Default::default(),
            model: Default::default(),
            repairs: made.map_or(0, |made| made.repairs),
            granted: 0,
            begun: 0,
            tune_gain: self.params.tune_gain,
            limit: None,
            asked_here: Default::default(),
            guesses: None,
        };
        let node = self
            .graph
            .grow(parent, Content::Source(Box::new(state)), label, estimated);
        self.by_digest.insert(digest, node);
        self.refresh(node);
        node
    }

    pub(super) fn suggest(&mut self, id: NodeId, settings: Vec<Point>) -> u32 {
        let tuner = &mut self.state_mut(id).tuner;
        let before = tuner.suggested();
        settings.into_iter().for_each(|point| tuner.suggest(point));
        let fresh = (tuner.suggested() - before) as u32;
        self.refresh(id);
        fresh
    }
}
