//! The search as a state machine: [`Search::next`] asks, [`Search::apply`] tells. Its state is the fold of
//! what it was told; it has no threads, reads no clock and touches no file.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::asks::Asks;
use super::earlier::Earlier;
use super::graph::{EdgeId, Graph, NodeId, Refused};
use super::params::SearchParams;
use super::policy::{Action, Content, Expanders, Origin, Policy, Service, SourceState, source};
use super::request::{
    Applied, ApplyError, Child, Cost, Expander, Grown, Next, Outcome, Request, Root, Ticket,
};
use super::stop::{Progress, StopReason};
use super::tuner::{Choice, Trial, Tuner};
use super::value::Value;
use crate::propose::Ask;
use crate::source::{Point, Setting, Source};
use crate::units::{Digest, Nanos};
use crate::verdict::{Bottleneck, Estimate};

/// How fast old gains are forgotten: the weight of the newest.
const GAIN_MEMORY: f64 = 0.1;

/// Times in a row that a model may fail to answer before a search with nothing else to do ends.
const MOST_AWAY: u32 = 3;

/// A model's rest doubles at most so often.
const LONGEST_REST: u32 = 6;

/// A search under way.
#[derive(Clone, Debug)]
pub struct Search {
    params: SearchParams,
    seed: u64,
    graph: Graph<Content>,
    by_digest: HashMap<Digest, NodeId>,
    expanders: Expanders,
    /// Given sources not yet admitted, then those new: each gets a trial before it is judged.
    waiting: VecDeque<NodeId>,
    on_trial: VecDeque<NodeId>,
    flights: BTreeMap<Ticket, Flight>,
    asked: u64,
    evaluations_in_flight: u32,
    /// Requests for settings that tuners chose, for the part of them that is judged.
    sifted: u64,
    progress: Progress,
    best: Option<(NodeId, Nanos)>,
}

/// A request in flight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
enum Flight {
    Evaluation {
        node: NodeId,
        point: Point,
        /// What else it may be that is judged.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        beside: Vec<Point>,
    },
    Expansion {
        node: NodeId,
        by: Expander,
        ask: Option<Ask>,
    },
}

/// A node as reports read it.
#[derive(Clone, Debug)]
pub struct NodeView<'a> {
    /// Its number, in order of creation.
    pub id: NodeId,
    /// Where it grew from; more than one where edits met.
    pub parents: Vec<NodeId>,
    /// What made it.
    pub label: &'a str,
    /// Its text.
    pub source: &'a Arc<Source>,
    /// Its own best setting that did not fail.
    pub best: Option<&'a Trial>,
    /// The best cost here or below.
    pub best_below: Option<Nanos>,
    /// Evaluations judged.
    pub evaluations: u32,
    /// Those that were valid.
    pub valid: u32,
    /// Its settings in the order asked.
    pub trials: &'a [Trial],
    /// Whether anything is left to try here or below.
    pub open: bool,
}

impl Search {
    /// A search from these sources with these expanders in service.
    pub fn new(params: SearchParams, seed: u64, roots: Vec<Root>, by: &[Expander]) -> Self {
        let expanders = Expanders {
            rewrites: by.contains(&Expander::Rewrites),
            model: match by.contains(&Expander::Model) {
                true => Service::On,
                false => Service::Off,
            },
            model_in_flight: 0,
            model_full: params.model_window == 0,
            model_away: 0,
            rewrite_gain: params.rewrite_gain,
            model_gain: params.model_gain,
            asks: Asks::default(),
        };
        let mut search = Self {
            params,
            seed,
            graph: Graph::new(Content::Task),
            by_digest: HashMap::new(),
            expanders,
            waiting: VecDeque::new(),
            on_trial: VecDeque::new(),
            flights: BTreeMap::new(),
            asked: 0,
            evaluations_in_flight: 0,
            sifted: 0,
            progress: Progress::default(),
            best: None,
        };
        for root in roots {
            let mut first: Vec<Point> = root.source.space().default_point().into_iter().collect();
            first.extend(points(&root.source, &root.settings));
            match search.by_digest.get(&root.source.digest()) {
                Some(&known) => {
                    search.suggest(known, first);
                }
                None => {
                    let node = search.grow(
                        NodeId::ROOT,
                        root.label,
                        root.source,
                        first,
                        &root.earlier,
                        None,
                    );
                    search.waiting.push_back(node);
                }
            }
        }
        search
    }

    /// What to do next. `elapsed` is the time spent so far, over all sessions; nothing but the time
    /// rule looks at it.
    pub fn next(&mut self, elapsed: Duration) -> Next {
        if let Some(reason) = self.params.stop.reached(&self.progress, elapsed) {
            return Next::Done(reason);
        }
        let judging = self.flights.len() - self.expanders.model_in_flight as usize;
        if judging >= self.params.window.max(1) as usize {
            return Next::Wait;
        }
        let planned = self.progress.judged + self.evaluations_in_flight;
        if self
            .params
            .stop
            .evaluations
            .is_some_and(|most| planned >= most)
        {
            return Next::Wait;
        }
        if let Some((path, node, action)) = self.decide() {
            return Next::Request(self.dispatch(&path, node, action));
        }
        if !self.flights.is_empty() {
            return Next::Wait;
        }
        // Nothing but the model is left to ask: it is tried once more, but not for ever.
        let resting = matches!(self.expanders.model, Service::Away { .. });
        if resting && self.expanders.model_away < MOST_AWAY {
            self.recall_model();
            if let Some((path, node, action)) = self.decide() {
                return Next::Request(self.dispatch(&path, node, action));
            }
        }
        Next::Done(StopReason::Exhausted)
    }

    /// Tells which setting of a request for several is judged, and what is expected of the others. They are set
    /// aside: they come up again when all else was tried, and at once where nothing is known of them.
    pub fn pick(
        &mut self,
        ticket: Ticket,
        picked: &Point,
        left_out: &[(Point, Estimate)],
    ) -> Result<(), ApplyError> {
        let Some(Flight::Evaluation {
            node,
            point,
            beside,
        }) = self.flights.get_mut(&ticket)
        else {
            return Err(ApplyError::NotInFlight(ticket));
        };
        let asked = |one: &Point| *point == *one || beside.contains(one);
        let all = left_out.iter().map(|(point, _)| point).chain([picked]);
        if !all.clone().all(asked) || all.count() != beside.len() + 1 {
            return Err(ApplyError::NotAsked(ticket));
        }
        *point = picked.clone();
        beside.clear();
        let node = *node;
        let state = self.state_mut(node);
        for (point, estimate) in left_out {
            state.tuner.set_aside(point, *estimate);
        }
        self.refresh(node);
        Ok(())
    }

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

    /// The parameters it runs with.
    pub fn params(&self) -> &SearchParams {
        &self.params
    }

    /// Evaluations judged so far.
    pub fn evaluations(&self) -> u32 {
        self.progress.judged
    }

    /// Requests in flight, oldest first.
    pub fn in_flight(&self) -> impl Iterator<Item = Ticket> + '_ {
        self.flights.keys().copied()
    }

    /// The node and setting of the best evaluation so far, and its cost.
    pub fn best(&self) -> Option<(NodeId, &Point, Nanos)> {
        let (node, cost) = self.best?;
        let point = &self.source_state(node)?.tuner.best()?.point;
        Some((node, point, cost))
    }

    /// A node's source; `None` for the root and for numbers that no node has.
    pub fn source(&self, id: NodeId) -> Option<&Arc<Source>> {
        self.source_state(id).map(|state| &state.source)
    }

    /// A node, for reports; `None` for the root and for numbers that no node has.
    pub fn node(&self, id: NodeId) -> Option<NodeView<'_>> {
        let state = self.source_state(id)?;
        let node = self.graph.node(id);
        let mut parents: Vec<NodeId> = self.graph.parents(id).map(|(_, parent)| parent).collect();
        parents.sort_unstable();
        Some(NodeView {
            id,
            parents,
            label: &state.label,
            source: &state.source,
            best: state.tuner.best(),
            best_below: node.best,
            evaluations: state.tuner.judged() as u32,
            valid: state.valid,
            trials: state.tuner.trials(),
            open: node.is_open(),
        })
    }

    /// Every node but the root, in order of creation.
    pub fn nodes(&self) -> impl Iterator<Item = NodeView<'_>> {
        self.graph.ids().filter_map(|id| self.node(id))
    }

    /// How a node came to be: the edits from the root's child to it, each with the node it led to.
    pub fn lineage(&self, id: NodeId) -> Vec<(NodeId, &str)> {
        let mut steps: Vec<(NodeId, &str)> = Vec::new();
        if (id.0 as usize) < self.graph.len() {
            let edges = self.graph.lineage(id);
            steps.extend(edges.into_iter().map(|edge| {
                let (_, end) = self.graph.ends(edge);
                (end, self.graph.edge(edge).label.as_str())
            }));
        }
        steps
    }

    /// A hash of everything that later choices depend on: equal states, equal futures.
    pub fn fingerprint(&self) -> Digest {
        let nodes: Vec<_> = self
            .graph
            .ids()
            .map(|id| {
                let node = self.graph.node(id);
                let state = source(node).map(|state| {
                    (
                        (&state.label, state.source.digest(), state.tuner.state()),
                        (state.valid, state.origin, state.rewrites, state.model),
                        (state.repairs, state.granted, state.tune_gain, state.limit),
                        (state.asked_here, &state.guesses),
                    )
                });
                let mut edges: Vec<_> = self
                    .graph
                    .children(id)
                    .map(|(edge, child)| (edge, child, self.graph.edge(edge)))
                    .collect();
                edges.sort_unstable_by_key(|&(edge, _, _)| edge);
                let counts = (node.own, node.best, node.visits, node.own_visits);
                (counts, node.own_open(), node.is_open(), state, edges)
            })
            .collect();
        let flights: Vec<_> = self.flights.iter().collect();
        let state = (
            (&self.params, self.seed, self.expanders, self.asked),
            (
                &self.waiting,
                &self.on_trial,
                flights,
                self.evaluations_in_flight,
                self.sifted,
            ),
            (&self.progress, self.best, nodes),
        );
        let bytes = serde_json::to_vec(&state);
        Digest::of(bytes.expect("invariant: the state has no map with odd keys"))
    }

    fn policy(&self) -> Policy<'_> {
        Policy {
            graph: &self.graph,
            params: &self.params,
            expanders: &self.expanders,
            best: self.best.map(|(_, cost)| cost),
        }
    }

    fn decide(&mut self) -> Option<(Vec<EdgeId>, NodeId, Action)> {
        let visits = self.graph.node(NodeId::ROOT).visits;
        let given = self.graph.children(NodeId::ROOT).count();
        loop {
            // Those on trial take turns; whoever is through drops out.
            while let Some(node) = self.on_trial.pop_front() {
                if let Some(action) = self.policy().trial(node) {
                    self.on_trial.push_back(node);
                    return Some((self.graph.lineage(node), node, action));
                }
            }
            let admitted = self.policy().admitted(visits);
            if given - self.waiting.len() < admitted
                && let Some(node) = self.waiting.pop_front()
            {
                self.on_trial.push_back(node);
                continue;
            }
            let admitted = given - self.waiting.len();
            if let Some(choice) = self.policy().descend(admitted) {
                return Some(self.granted(choice));
            }
            // Nothing to do among those admitted: the cap must not end the search.
            self.on_trial.push_back(self.waiting.pop_front()?);
        }
    }

    /// The way down decides whether to expand; about which source a model is asked is a question of its own.
    fn granted(
        &mut self,
        (path, end, action): (Vec<EdgeId>, NodeId, Action),
    ) -> (Vec<EdgeId>, NodeId, Action) {
        let Action::Expand(by) = action else {
            return (path, end, action);
        };
        let state = self.state_mut(end);
        state.granted += 1;
        let elsewhere = by == Expander::Model && !state.is_broken();
        let about = elsewhere.then(|| self.policy().ask_about()).flatten();
        (path, about.unwrap_or(end), action)
    }

    fn dispatch(&mut self, path: &[EdgeId], node: NodeId, action: Action) -> Request {
        let ticket = Ticket(self.asked);
        self.asked += 1;
        self.graph.visit(path);
        if action == Action::Tune {
            self.carry_best_to(node);
        }
        let others = self.others();
        let state = self.state_mut(node);
        let (request, flight) = match action {
            Action::Tune => {
                let Choice { point, beside, own } = state
                    .tuner
                    .ask_among(others)
                    .expect("invariant: a tuner that is not exhausted has a setting");
                self.evaluations_in_flight += 1;
                self.sifted += u64::from(own);
                let flight = Flight::Evaluation {
                    node,
                    point: point.clone(),
                    beside: beside.clone(),
                };
                (
                    Request::Evaluate {
                        ticket,
                        node,
                        point,
                        beside,
                    },
                    flight,
                )
            }
            Action::Expand(by) => {
                if state.is_broken() && by == Expander::Model {
                    state.repairs -= 1;
                }
                let expander = state.expander_mut(by);
                let attempt = expander.asked;
                expander.asked += 1;
                expander.in_flight = true;
                let ask = match by {
                    Expander::Rewrites => None,
                    Expander::Model => Some(self.choose_ask(node)),
                };
                let request = Request::Expand {
                    ticket,
                    node,
                    by,
                    attempt,
                    ask,
                };
                (request, Flight::Expansion { node, by, ask })
            }
        };
        self.flights.insert(ticket, flight);
        self.refresh(node);
        request
    }

    /// How many settings a tuner chooses beside the next one, so that the part wanted of all is judged.
    fn others(&self) -> usize {
        let Some(part) = self.params.prefilter else {
            return 0;
        };
        let whole = |requests: u64| (requests as f64 / part) as usize;
        (whole(self.sifted + 1) - whole(self.sifted)).saturating_sub(1)
    }

    /// Structures are compared fairly at the same setting, and good settings often carry over: the best
    /// known one is the next to try here, unless it was tried.
    fn carry_best_to(&mut self, id: NodeId) {
        let Some((best, point, _)) = self.best() else {
            return;
        };
        let carried = match (self.source(best), self.source(id)) {
            (Some(from), Some(to)) if best != id => to.space().adopt(&from.space().setting(point)),
            (Some(_) | None, Some(_) | None) => None,
        };
        if let Some(point) = carried {
            self.state_mut(id).tuner.prefer(point);
        }
    }

    /// What the model is asked for, and that it is asked.
    fn choose_ask(&mut self, id: NodeId) -> Ask {
        let state = self.state_mut(id);
        let ask = if state.is_broken() {
            Ask::Repair
        } else {
            let (limit, here) = (state.limit, state.asked_here);
            let knobs = state.source.space().len() > 1;
            let gain = self.params.model_gain;
            self.expanders.asks.choose(limit, &here, gain, knobs)
        };
        self.state_mut(id).asked_here[ask as usize] += 1;
        self.expanders.asks.asked(ask);
        self.expanders.model_in_flight += 1;
        self.set_model_full();
        ask
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
        let mut first = points(&child.source, &child.settings);
        let known = self.by_digest.get(&child.source.digest()).copied();
        if known == Some(parent) {
            if ask.is_some() {
                let before = self.graph.node(parent).own;
                self.state_mut(parent).expect_guesses(before, &first);
            }
            let fresh = self.suggest(parent, first);
            return Grown::Settings { fresh };
        }
        if let Some(known) = known {
            self.suggest(known, first);
            return match self.graph.link(parent, known, child.label.clone()) {
                Ok(_) => Grown::Joined { node: known },
                Err(Refused::Cycle | Refused::Known) => Grown::Duplicate { node: known },
            };
        }
        // Edits compose with knob moves: begin where the parent stands.
        let fresh = self.params.repairs;
        let state = self.state_mut(parent);
        let best = state.tuner.best().map(|trial| &trial.point);
        first.extend(best.and_then(|point| {
            child
                .source
                .space()
                .adopt(&state.source.space().setting(point))
        }));
        first.extend(child.source.space().default_point());
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
        let node = self.grow(parent, label, source, first, &[], Some((origin, repairs)));
        self.on_trial.push_back(node);
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

    fn recall_model(&mut self) {
        self.expanders.model = Service::On;
        self.refresh_all();
    }

    fn set_model_full(&mut self) {
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

    fn grow(
        &mut self,
        parent: NodeId,
        label: String,
        source: Arc<Source>,
        first: Vec<Point>,
        earlier: &[Earlier],
        made: Option<(Origin, u32)>,
    ) -> NodeId {
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
            origin: made.map(|(origin, _)| origin),
            rewrites: Default::default(),
            model: Default::default(),
            repairs: made.map_or(0, |(_, repairs)| repairs),
            granted: 0,
            tune_gain: self.params.tune_gain,
            limit: None,
            asked_here: Default::default(),
            guesses: None,
        };
        let node = self
            .graph
            .grow(parent, Content::Source(Box::new(state)), label);
        self.by_digest.insert(digest, node);
        self.refresh(node);
        node
    }

    fn suggest(&mut self, id: NodeId, settings: Vec<Point>) -> u32 {
        let tuner = &mut self.state_mut(id).tuner;
        let before = tuner.suggested();
        settings.into_iter().for_each(|point| tuner.suggest(point));
        let fresh = (tuner.suggested() - before) as u32;
        self.refresh(id);
        fresh
    }

    /// Keeps the graph's word on whether a node is open true.
    fn refresh(&mut self, id: NodeId) {
        if let Some(state) = source(self.graph.node(id)) {
            let open = state.has_request(&self.params, &self.expanders);
            self.graph.set_own_open(id, open);
        }
    }

    fn source_state(&self, id: NodeId) -> Option<&SourceState> {
        let known = (id.0 as usize) < self.graph.len();
        known.then(|| source(self.graph.node(id))).flatten()
    }

    fn state_mut(&mut self, id: NodeId) -> &mut SourceState {
        match self.graph.content_mut(id) {
            Content::Source(state) => state,
            Content::Task => unreachable!("invariant: nothing is asked of the root"),
        }
    }
}

/// The settings that are valid for a source, as points.
fn points(source: &Source, settings: &[Setting]) -> Vec<Point> {
    let space = source.space();
    settings
        .iter()
        .filter_map(|setting| space.point(setting).ok())
        .collect()
}
