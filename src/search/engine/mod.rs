//! The search as a state machine: [`Search::next`] asks, [`Search::apply`] tells. Its state is the fold of
//! what it was told; it has no threads, reads no clock and touches no file.

mod answers;
mod view;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use serde::Serialize;

use super::asks::Asks;
use super::graph::{EdgeId, Graph, NodeId};
use super::params::SearchParams;
use super::policy::{Action, Content, Expanders, Policy, Service, SourceState, source};
use super::request::{ApplyError, Expander, Next, Request, Root, Ticket, points};
use super::stop::{Progress, StopReason};
use super::tuner::Choice;
use crate::propose::Ask;
use crate::source::Point;
use crate::units::{Digest, Nanos};
use crate::verdict::Estimate;

pub use view::NodeView;

/// Times in a row that a model may fail to answer before a search with nothing else to do ends.
const MOST_AWAY: u32 = 3;

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
    /// New sources that wait until what the cost model expects of them gives them their turn.
    expected: BTreeSet<NodeId>,
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
            expected: BTreeSet::new(),
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
            first.extend(points(&root.source, root.source.tries()));
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

    fn policy(&self) -> Policy<'_> {
        Policy {
            graph: &self.graph,
            params: &self.params,
            expanders: &self.expanders,
            best: self.best.map(|(_, cost)| cost),
            waiting: &self.expected,
        }
    }

    fn decide(&mut self) -> Option<(Vec<EdgeId>, NodeId, Action)> {
        let visits = self.graph.node(NodeId::ROOT).visits;
        let given = self.graph.children(NodeId::ROOT).count();
        if let Some(node) = self.policy().promising() {
            return Some(self.begin(node));
        }
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

    /// Gives a source that has waited its trial.
    fn begin(&mut self, node: NodeId) -> (Vec<EdgeId>, NodeId, Action) {
        self.expected.remove(&node);
        self.on_trial.push_back(node);
        (self.graph.lineage(node), node, Action::Tune)
    }

    /// The way down decides whether to expand; about which source a model is asked, and which of the sources that
    /// wait is tried, are questions of their own.
    fn granted(
        &mut self,
        (path, end, action): (Vec<EdgeId>, NodeId, Action),
    ) -> (Vec<EdgeId>, NodeId, Action) {
        let by = match action {
            Action::Tune => return (path, end, action),
            Action::Begin => {
                let state = self.state_mut(end);
                state.granted += 1;
                state.begun += 1;
                let most = self.policy().most_expected();
                let (_, node) = most.expect("invariant: a child of this node waits");
                return self.begin(node);
            }
            Action::Expand(by) => by,
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
            Action::Tune | Action::Begin => {
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
