//! Where to spend the next request: which node, and there a setting, a rewrite or the model.
//! PUCT over max-backed-up rewards, after a short trial of every new source. It changes nothing.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use serde::Serialize;

use super::asks::{AskedHere, Asks};
use super::graph::{EdgeId, Graph, Node, NodeId};
use super::params::{Backup, SearchParams};
use super::request::Expander;
use super::tuner::Tuner;
use super::value::Value;
use crate::propose::Ask;
use crate::source::{Point, Source};
use crate::units::Nanos;
use crate::verdict::{Bottleneck, TimeRatio};

/// Requests to the model about one source after which the next is believed to gain half as much as the first.
const FRUITLESS: f64 = 8.0;

/// Of the best time so far, what a source must be expected to stay below to be tried before all else: closer than
/// this, the cost model's order is not to be relied on.
const PROMISING: f64 = 0.95;

/// What a node of the graph holds.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// The root.
    Task,
    /// Any other.
    Source(Box<SourceState>),
}

/// A source, its tuner, and what was asked about it.
#[derive(Clone, Debug)]
pub(super) struct SourceState {
    pub(super) label: String,
    pub(super) source: Arc<Source>,
    pub(super) tuner: Tuner,
    /// Valid evaluations.
    pub(super) valid: u32,
    /// Who made it; `None` for the sources given at the start.
    pub(super) origin: Option<Origin>,
    pub(super) rewrites: ExpanderState,
    pub(super) model: ExpanderState,
    /// How many more repairs a model may try, should this source be broken. A repair that is broken too takes
    /// over what is left: repairs are a chain, each told how the one before failed.
    pub(super) repairs: u32,
    /// How often the way down ended here with an expansion, whatever source that was then asked about.
    pub(super) granted: u32,
    /// How often it ended here with a source that had waited.
    pub(super) begun: u32,
    /// What one more setting is believed to gain, as a fraction of the cost.
    pub(super) tune_gain: f64,
    /// What limits its best setting.
    pub(super) limit: Option<Bottleneck>,
    /// What a model was asked for here.
    pub(super) asked_here: AskedHere,
    /// Settings that a model chose and that are not judged yet.
    pub(super) guesses: Option<Guesses>,
}

/// Who made a source, from what.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Origin {
    pub(super) by: Expander,
    /// What a model was asked for.
    pub(super) ask: Option<Ask>,
    /// The parent's best cost when it was made.
    pub(super) parent_best: Option<Nanos>,
    /// Whether its success was credited to who made it.
    pub(super) credited: bool,
}

/// A model's choice of settings, to be credited once all are judged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Guesses {
    /// The node's best cost before them.
    pub(super) before: Nanos,
    pub(super) left: Vec<Point>,
    /// The best cost among them.
    pub(super) best: Option<Nanos>,
}

/// One expander's record on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct ExpanderState {
    /// Requests so far.
    pub(super) asked: u32,
    /// One at a time: an attempt sees how the one before ended.
    pub(super) in_flight: bool,
    /// Unusable or duplicate answers in a row.
    pub(super) failures: u32,
    /// Nothing more to expect.
    pub(super) closed: bool,
}

/// Which expanders are in service, and what they are believed to gain.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Expanders {
    pub(super) rewrites: bool,
    pub(super) model: Service,
    /// Model calls in flight, and whether there may be no more.
    pub(super) model_in_flight: u32,
    pub(super) model_full: bool,
    /// Times in a row that the model did not answer.
    pub(super) model_away: u32,
    pub(super) rewrite_gain: f64,
    pub(super) model_gain: f64,
    pub(super) asks: Asks,
}

/// Whether an expander answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Service {
    On,
    /// Not before so many evaluations are judged.
    Away {
        until: u32,
    },
    Off,
}

impl Expanders {
    fn enabled(&self, by: Expander) -> bool {
        match by {
            Expander::Rewrites => self.rewrites,
            Expander::Model => self.model == Service::On && !self.model_full,
        }
    }
}

/// What to do at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Evaluate the tuner's next setting.
    Tune,
    /// Ask an expander.
    Expand(Expander),
    /// Try the source of which most is expected among those that wait.
    Begin,
}

impl SourceState {
    pub(super) fn expander(&self, by: Expander) -> &ExpanderState {
        match by {
            Expander::Rewrites => &self.rewrites,
            Expander::Model => &self.model,
        }
    }

    pub(super) fn expander_mut(&mut self, by: Expander) -> &mut ExpanderState {
        match by {
            Expander::Rewrites => &mut self.rewrites,
            Expander::Model => &mut self.model,
        }
    }

    /// Judged, and never valid.
    pub(super) fn is_broken(&self) -> bool {
        self.valid == 0 && self.tuner.judged() > 0
    }

    /// Remembers which settings a model chose, to see what they gain. Settings beside a source that has no
    /// time yet gain nothing that could be told from luck.
    pub(super) fn expect_guesses(&mut self, before: Option<Nanos>, points: &[Point]) {
        let known = |point: &Point| {
            self.tuner
                .trials()
                .iter()
                .any(|trial| trial.point == *point)
        };
        let left: Vec<Point> = points
            .iter()
            .filter(|point| !known(point))
            .cloned()
            .collect();
        self.guesses = before.filter(|_| !left.is_empty()).map(|before| Guesses {
            before,
            left,
            best: None,
        });
    }

    /// A setting was judged; the gain of a model's choice once the last of it was.
    pub(super) fn guessed(&mut self, point: &Point, value: Value) -> Option<f64> {
        let guesses = self.guesses.as_mut()?;
        let at = guesses.left.iter().position(|left| left == point)?;
        guesses.left.swap_remove(at);
        guesses.best = guesses
            .best
            .into_iter()
            .chain(value.cost())
            .min_by(|a, b| a.get().total_cmp(&b.get()));
        if !guesses.left.is_empty() {
            return None;
        }
        let done = self.guesses.take()?;
        let best = done.best?;
        Some((1.0 - best.get() / done.before.get()).max(0.0))
    }

    fn can_tune(&self, params: &SearchParams) -> bool {
        // A proposed source that fails its whole trial is not tuned further; a given one is.
        let given_up = self.origin.is_some()
            && self.is_broken()
            && self.tuner.judged() >= params.trial as usize;
        !given_up && !self.tuner.is_exhausted()
    }

    fn can_repair(&self, expanders: &Expanders) -> bool {
        let by_model = self
            .origin
            .is_some_and(|origin| origin.by == Expander::Model);
        by_model
            && self.is_broken()
            && self.repairs > 0
            && expanders.asks.repair_pays()
            && self.answers(Expander::Model, expanders)
    }

    fn can_expand(&self, by: Expander, expanders: &Expanders) -> bool {
        self.valid > 0 && self.answers(by, expanders)
    }

    fn answers(&self, by: Expander, expanders: &Expanders) -> bool {
        let state = self.expander(by);
        expanders.enabled(by) && !state.closed && !state.in_flight
    }

    /// Whether anything can be asked of this node now.
    pub(super) fn has_request(&self, params: &SearchParams, expanders: &Expanders) -> bool {
        self.can_tune(params)
            || self.can_repair(expanders)
            || self.can_expand(Expander::Rewrites, expanders)
            || self.can_expand(Expander::Model, expanders)
    }
}

/// A view of the search that the policy decides on.
pub(super) struct Policy<'a> {
    pub(super) graph: &'a Graph<Content>,
    pub(super) params: &'a SearchParams,
    pub(super) expanders: &'a Expanders,
    /// The best cost anywhere.
    pub(super) best: Option<Nanos>,
    /// Sources that wait for their trial: what is expected of them says whose turn it is.
    pub(super) waiting: &'a BTreeSet<NodeId>,
}

impl Policy<'_> {
    /// What to do for a node on trial; `None` once its trial is over.
    pub(super) fn trial(&self, id: NodeId) -> Option<Action> {
        let node = self.graph.node(id);
        let state = source(node)?;
        if state.can_repair(self.expanders) {
            return Some(Action::Expand(Expander::Model));
        }
        let on_trial = node.own_visits < self.params.trial && state.can_tune(self.params);
        on_trial.then_some(Action::Tune)
    }

    /// The source that the model is best asked about, once the way down says that it is to be asked: where an edit
    /// is expected to improve on the best the most. An edit gains about as much of its parent's cost as those before
    /// it did, so a source far behind the best must do without; and one that was asked about often has less to give.
    pub(super) fn ask_about(&self) -> Option<NodeId> {
        let best = self.best?;
        let gain = self.expanders.asks.typical_gain(self.params.model_gain);
        let mut choice: Option<(f64, NodeId)> = None;
        for id in self.graph.ids() {
            let node = self.graph.node(id);
            let (Some(state), Some(own)) = (source(node), node.own) else {
                continue;
            };
            if !state.can_expand(Expander::Model, self.expanders) {
                continue;
            }
            let behind = 1.0 - best.get() / own.get();
            let asked = f64::from(state.model.asked);
            let expected = (-behind / gain).exp() * FRUITLESS / (FRUITLESS + asked);
            if choice.is_none_or(|(most, _)| expected > most) {
                choice = Some((expected, id));
            }
        }
        choice.map(|(_, id)| id)
    }

    /// Whether a new source of which the cost model expects so much waits for its trial until its turn comes. A model's
    /// edit waits only where it seems to make things worse: it was paid for.
    pub(super) fn waits(&self, by: Expander, parent: NodeId, estimated: Option<TimeRatio>) -> bool {
        let known = self.params.prior && self.graph.node(parent).own.is_some();
        known
            && estimated.is_some_and(|ratio| match by {
                Expander::Rewrites => true,
                Expander::Model => ratio.get() * PROMISING > 1.0,
            })
    }

    /// Of the sources that wait the one of which most is expected, where that is better than the best by more than
    /// the cost model may err.
    pub(super) fn promising(&self) -> Option<NodeId> {
        let best = self.best?;
        let (expected, id) = self.most_expected()?;
        (expected < best.get() * PROMISING).then_some(id)
    }

    /// Of the sources that wait the one of which most is expected, and its cost were the cost model right: what was
    /// measured of its parent, times the estimated ratio. It decides whose turn it is and nothing else.
    pub(super) fn most_expected(&self) -> Option<(f64, NodeId)> {
        let expected = |id: NodeId| {
            let known = self.graph.parents(id).filter_map(|(edge, parent)| {
                let ratio = self.graph.edge(edge).estimated?;
                Some(self.graph.node(parent).own?.get() * ratio.get())
            });
            known.min_by(f64::total_cmp)
        };
        let waiting = self.waiting.iter();
        waiting
            .filter_map(|&id| Some((expected(id)?, id)))
            .min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// How many of the given sources may be open after `visits` requests.
    pub(super) fn admitted(&self, visits: u32) -> usize {
        let cap =
            self.params.root_widening * f64::from(visits).powf(self.params.root_widening_power);
        (cap as usize).max(1)
    }

    /// The way down from the root, and what to do at its end; `None` where nothing can be asked.
    pub(super) fn descend(&self, admitted: usize) -> Option<(Vec<EdgeId>, NodeId, Action)> {
        let mut path = Vec::new();
        let mut at = NodeId::ROOT;
        loop {
            let node = self.graph.node(at);
            if !node.is_open() {
                return None;
            }
            let open = |&(_, child): &(EdgeId, NodeId)| {
                self.graph.node(child).is_open() && !self.waiting.contains(&child)
            };
            let mut children: Vec<(EdgeId, NodeId)> =
                self.graph.children(at).filter(open).collect();
            if at == NodeId::ROOT {
                children.sort_unstable();
                children.truncate(admitted);
            }
            let own = self.action(at, children.is_empty());
            let scale = self.params.exploration * f64::from(node.visits.max(1)).sqrt();
            let score = |worth: f64, visits: u32| worth + scale / f64::from(1 + visits);
            // Equal scores: the node itself, then the older edge.
            let own_visits = node.own_visits + source(node).map_or(0, |state| state.begun);
            let mut choice = own.map(|_| (score(self.own_worth(at), own_visits), None));
            for (edge, child) in children {
                let value = score(self.worth(child), self.graph.edge(edge).visits);
                let better = match choice {
                    None => true,
                    Some((most, Some((other, _)))) => value > most || value == most && edge < other,
                    Some((most, None)) => value > most,
                };
                if better {
                    choice = Some((value, Some((edge, child))));
                }
            }
            match (choice?, own) {
                ((_, Some((edge, child))), _) => {
                    path.push(edge);
                    at = child;
                }
                ((_, None), Some(action)) => return Some((path, at, action)),
                ((_, None), None) => return None,
            }
        }
    }

    /// What a node and all below it are worth, from 0 to 1.
    fn worth(&self, id: NodeId) -> f64 {
        match self.params.backup {
            Backup::Max => self.reward(self.graph.node(id).best),
            Backup::Mean => {
                let mut known = HashSet::from([id]);
                let mut work = vec![id];
                while let Some(at) = work.pop() {
                    let below = self.graph.children(at).map(|(_, child)| child);
                    work.extend(below.filter(|child| known.insert(*child)));
                }
                self.mean_reward(known.into_iter())
            }
        }
    }

    /// What the node's own settings are worth.
    fn own_worth(&self, id: NodeId) -> f64 {
        match self.params.backup {
            Backup::Max => self.reward(self.graph.node(id).own),
            Backup::Mean => self.mean_reward(std::iter::once(id)),
        }
    }

    fn reward(&self, cost: Option<Nanos>) -> f64 {
        match (cost, self.best) {
            (Some(cost), Some(best)) => best.get() / cost.get(),
            (None, _) | (_, None) => 0.0,
        }
    }

    /// Over every judged setting of these nodes; 0 where there is none.
    fn mean_reward(&self, ids: impl Iterator<Item = NodeId>) -> f64 {
        let (mut sum, mut count) = (0.0, 0_u32);
        for state in ids.filter_map(|id| source(self.graph.node(id))) {
            for value in state.tuner.ranked().filter_map(|trial| trial.value) {
                sum += self.reward(value.cost());
                count += 1;
            }
        }
        sum / f64::from(count.max(1))
    }

    /// The best thing to do at the node itself by expected gain over cost. `alone`: no child is open,
    /// so that the cap on children must not hold anything up.
    fn action(&self, id: NodeId, alone: bool) -> Option<Action> {
        let node = self.graph.node(id);
        let state = source(node)?;
        let cap = self.params.widening * f64::from(node.visits).powf(self.params.widening_power);
        let may_widen = alone || f64::from(state.granted) < cap;
        let (params, expanders) = (self.params, self.expanders);
        let rewritable = state.can_expand(Expander::Rewrites, expanders);
        let waiting = |(_, child)| self.waiting.contains(&child);
        let options = [
            (Action::Tune, state.can_tune(params), state.tune_gain),
            (
                Action::Expand(Expander::Rewrites),
                may_widen && rewritable,
                expanders.rewrite_gain / params.rewrite_cost,
            ),
            (
                Action::Begin,
                may_widen && !rewritable && self.graph.children(id).any(waiting),
                expanders.rewrite_gain / params.rewrite_cost,
            ),
            (
                Action::Expand(Expander::Model),
                may_widen
                    && (state.can_expand(Expander::Model, expanders)
                        || state.can_repair(expanders)),
                expanders.model_gain / params.model_cost,
            ),
        ];
        let mut best: Option<(f64, Action)> = None;
        for (action, possible, rate) in options {
            if possible && best.is_none_or(|(most, _)| rate > most) {
                best = Some((rate, action));
            }
        }
        best.map(|(_, action)| action)
    }
}

/// The source of a node that is not the root.
pub(super) fn source(node: &Node<Content>) -> Option<&SourceState> {
    match &node.content {
        Content::Task => None,
        Content::Source(state) => Some(state),
    }
}
