//! What the prior from estimates saves the search itself: the engine goes through a recorded graph once more, with the
//! prior and without. Its rewrites are those that were recorded, its judge the recorded times. A setting that nobody
//! measured fails; an edit of which no first setting was measured has no estimate.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use warptree::search::{
    Child, Cost, Expander, Grown, Next, NodeId, Outcome, Request, Root, Search, SearchParams,
    StopRules, Value,
};
use warptree::source::{Setting, Source};
use warptree::store::{Event, RunGraph, StoredRun};
use warptree::units::{Digest, Nanos};
use warptree::verdict::{Estimate, TimeRatio, Verdict};

use crate::judged::Ranking;

/// Of the search; they decide where knobs are tuned.
const SEEDS: u64 = 20;
/// Requests in flight: one, and as many as a search has by default.
pub const WINDOWS: [u32; 2] = [1, 4];
/// As near to the best as is good enough.
pub const NEAR: [f64; 2] = [1.02, 1.01];

/// Evaluations until one is near to the best, by window, then without and with the prior, then by how near.
pub type Evaluations = [[[f64; NEAR.len()]; 2]; WINDOWS.len()];

/// A recorded graph.
pub struct Recording {
    root: NodeId,
    sources: BTreeMap<NodeId, Arc<Source>>,
    nodes: HashMap<Digest, NodeId>,
    /// In the order of the log: where it led, its label, settings to begin with.
    edits: HashMap<NodeId, Vec<(NodeId, String, Vec<Setting>)>>,
    times: HashMap<(NodeId, Setting), f64>,
    estimates: HashMap<(NodeId, Setting), Estimate>,
    best: f64,
}

impl Recording {
    /// Of the file that a ranking was read from, with its estimates; `None` where nothing was rewritten, or not every
    /// setting is in the ranking.
    pub fn read(ranking: &Ranking, estimates: &[f64]) -> Result<Option<Self>, Box<dyn Error>> {
        let run = StoredRun::open(&ranking.file)?;
        let graph = RunGraph::read(&run)?;
        let root = run.config.roots.first().ok_or("no root")?.node;
        let mut edits: HashMap<NodeId, Vec<_>> = HashMap::new();
        let mut times = HashMap::new();
        for line in &run.lines {
            match &line.event {
                Event::Evaluated {
                    node,
                    setting,
                    evaluation,
                    ..
                } => {
                    if let Verdict::Measured(measurement) = &evaluation.verdict {
                        let time = measurement.time.nanos().get();
                        times.insert((*node, setting.clone()), time);
                    }
                }
                Event::Expanded { node, children, .. } => {
                    for child in children {
                        if let Grown::New { node: to } | Grown::Joined { node: to } = child.grown {
                            let edit = (to, child.label.clone(), child.settings.clone());
                            edits.entry(*node).or_default().push(edit);
                        }
                    }
                }
                _ => {}
            }
        }
        if edits.is_empty() || times.len() > ranking.settings.len() {
            return Ok(None);
        }
        let known = std::iter::zip(&ranking.settings, estimates);
        let sources: BTreeMap<NodeId, Arc<Source>> = graph
            .nodes()
            .map(|(id, node)| (id, Arc::clone(&node.source)))
            .collect();
        Ok(Some(Self {
            root,
            nodes: (sources.iter())
                .map(|(&id, source)| (source.digest(), id))
                .collect(),
            sources,
            edits,
            best: times.values().copied().fold(f64::INFINITY, f64::min),
            times,
            estimates: known
                .filter_map(|(judged, seconds)| {
                    let time = Estimate::Time(Nanos::new(seconds * 1e9)?);
                    Some(((judged.node, judged.setting.clone()), time))
                })
                .collect(),
        }))
    }

    /// Searches of it, means over seeds.
    pub fn evaluations(&self) -> Evaluations {
        WINDOWS.map(|window| {
            [false, true].map(|prior| {
                let mut sums = [0.0; NEAR.len()];
                for seed in 0..SEEDS {
                    let best = self.best_after_each(&params(window, prior), seed);
                    for (sum, near) in sums.iter_mut().zip(NEAR) {
                        let before = best.iter().position(|&time| time <= self.best * near);
                        *sum += before.map_or(f64::NAN, |before| before as f64 + 1.0);
                    }
                }
                sums.map(|sum| sum / SEEDS as f64)
            })
        })
    }

    fn best_after_each(&self, params: &SearchParams, seed: u64) -> Vec<f64> {
        let root = Root {
            label: "seed".to_owned(),
            source: Arc::clone(&self.sources[&self.root]),
            settings: Vec::new(),
            earlier: Vec::new(),
        };
        let mut search = Search::new(params.clone(), seed, vec![root], &[Expander::Rewrites]);
        let mut in_flight: VecDeque<Request> = VecDeque::new();
        let (mut best, mut after) = (f64::INFINITY, Vec::new());
        loop {
            while let Next::Request(request) = search.next(Duration::ZERO) {
                in_flight.push_back(request);
            }
            let Some(request) = in_flight.pop_front() else {
                return after;
            };
            let source = search
                .source(request.node())
                .expect("requests are about sources");
            let node = self.nodes[&source.digest()];
            let outcome = match &request {
                Request::Evaluate { ticket, point, .. } => {
                    let time = self.times.get(&(node, source.space().setting(point)));
                    best = time.map_or(best, |&t| best.min(t));
                    after.push(best);
                    let value = time.and_then(|&time| Nanos::new(time));
                    Outcome::Evaluated {
                        ticket: *ticket,
                        value: value.map_or(Value::Failed, |time| Value::valid(time, 1.0)),
                        limit: None,
                    }
                }
                Request::Expand {
                    ticket, attempt, ..
                } => Outcome::Expanded {
                    ticket: *ticket,
                    children: self.children(&search, request.node(), *attempt, params.prior),
                    cost: Cost::FREE,
                },
            };
            search.apply(&outcome).expect("the ticket is in flight");
        }
    }

    /// As the driver answers: with estimates all that is left at once.
    fn children(&self, search: &Search, at: NodeId, attempt: u32, prior: bool) -> Vec<Child> {
        let next = |attempt: u32| self.child(search, at, attempt, prior);
        let first = next(attempt);
        let estimated = first
            .as_ref()
            .is_some_and(|child| child.estimated.is_some());
        let further = (attempt + 1..).map_while(|attempt| next(attempt).filter(|_| estimated));
        first.into_iter().chain(further).collect()
    }

    fn child(&self, search: &Search, at: NodeId, attempt: u32, prior: bool) -> Option<Child> {
        let node = self.nodes[&search.source(at)?.digest()];
        let (to, label, settings) = self.edits.get(&node)?.get(attempt as usize)?;
        let parent = search.node(at)?;
        let stands = parent.source.space().setting(&parent.best?.point);
        let mut child = Child {
            label: label.clone(),
            source: Arc::clone(&self.sources[to]),
            settings: settings.clone(),
            estimated: None,
        };
        child.estimated = self.ratio(node, &stands, *to, &child).filter(|_| prior);
        Some(child)
    }

    fn ratio(
        &self,
        parent: NodeId,
        stands: &Setting,
        to: NodeId,
        child: &Child,
    ) -> Option<TimeRatio> {
        let parent = *self.estimates.get(&(parent, stands.clone()))?;
        let space = child.source.space();
        let own = (child.first(Some(stands)).into_iter())
            .take(SearchParams::default().trial as usize)
            .filter_map(|point| self.estimates.get(&(to, space.setting(&point))));
        own.min_by(|a, b| a.rank().total_cmp(&b.rank()))?
            .beside(parent)
    }
}

/// The defaults, but for what is in flight at once and the prior.
fn params(window: u32, prior: bool) -> SearchParams {
    SearchParams {
        window,
        prior,
        stop: StopRules {
            evaluations: None,
            ..StopRules::default()
        },
        ..SearchParams::default()
    }
}
