//! Owns the threads: takes requests from the search, has them answered by evaluators and proposers, writes
//! each answer to the log and then tells the search. It decides nothing.
//!
//! A fixed window of requests is in flight; its size is a parameter of the search, not of the machine.
//! Where every judge and proposer is deterministic, answers are applied in ticket order, so the same seed
//! gives the same run whatever the threads did. Elsewhere they are applied as they arrive; the log keeps
//! that order, and replaying it through the same loop gives the same state.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::device::RigError;
use crate::evaluate::{Evaluator, Kernel};
use crate::propose::{Proposal, ProposeError, Proposer};
use crate::search::{
    Applied, Child, Cost, Expander, NodeId, Outcome, Request, Search, StopReason, Ticket,
};
use crate::source::{Point, Source};
use crate::store::{Asked, Event, LeftOut, Line, RunWriter, StoreError, StoredChild, StoredKernel};
use crate::task::Task;

mod answer;
mod batch;
mod contenders;
mod estimates;
mod finish;
mod fold;
mod history;
pub mod trajectory;

use answer::{Answer, Picked, ProposeWork, Proposed, Work, serve};
pub use batch::{Item, batch};
pub use contenders::Contenders;
use estimates::Estimates;
pub use estimates::Estimator;
pub use fold::{Fold, FoldError};
use fold::{cost, evaluated};
pub use history::History;

/// Threads that wait for proposers, at most.
const MOST_PROPOSERS: u32 = 64;

/// How long the loop sleeps at most before it looks at the clock and at Ctrl-C.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Who answers requests.
pub struct Rig<'a> {
    /// Judges settings.
    pub evaluator: &'a dyn Evaluator,
    /// Propose children, each under the name the search asks for.
    pub proposers: Vec<(Expander, &'a dyn Proposer)>,
    /// What is computed; tables recorded elsewhere have none, and nobody proposes for them.
    pub task: Option<&'a Task>,
    /// Threads.
    pub jobs: usize,
    /// Every judge and proposer answers the same question the same way.
    pub deterministic: bool,
    /// Says what to expect of a setting, for runs that judge only a part of those that tuners choose, or that try
    /// new sources in the order of what is expected of them.
    pub estimator: Option<Estimator<'a>>,
    /// Judge the leader again at the end, in full: for runs that make a claim.
    pub confirm: bool,
}

/// Watches a run: the terminal, a JSON stream, nothing.
pub trait Observer {
    /// An event was applied, now or in an earlier session of the run.
    fn applied(&mut self, line: &Line, search: &Search);

    /// A tenth of a second passed.
    fn tick(&mut self) {}
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The search said so.
    Stopped(StopReason),
    /// Ctrl-C: what was in flight was waited for, and the run can be resumed.
    Interrupted,
}

/// A run cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The rig broke.
    #[error(
        "{error}\nnothing judged so far is lost: `warptree resume {folder}` goes on once this is mended"
    )]
    Rig {
        /// What broke.
        error: RigError,
        /// The run's folder.
        folder: String,
    },
    /// The run folder cannot be written or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The log does not give a search.
    #[error(transparent)]
    Fold(#[from] FoldError),
}

/// Runs until the search stops or `interrupt` is set. `past` is what the log holds already.
pub fn drive(
    rig: &Rig<'_>,
    run: &mut RunWriter,
    past: &[Line],
    interrupt: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<Ended, DriveError> {
    let mut fold = Fold::new(&run.config, &run.objects)?;
    for line in past {
        fold.replay(line, &run.objects)?;
        observer.applied(line, &fold.search);
    }
    let elapsed_before = past.last().map_or(0, |line| line.elapsed_ms);
    let (to_judges, to_judge) = mpsc::channel::<Work>();
    let (to_proposers, to_propose) = mpsc::channel::<Work>();
    let (to_driver, answers) = mpsc::channel::<(Ticket, Answer)>();
    let (to_judge, to_propose) = (Mutex::new(to_judge), Mutex::new(to_propose));
    let params = fold.search.params();
    let estimates = rig
        .estimator
        .map(|estimator| Estimates::new(estimator, params, rig.jobs))
        .transpose()
        .map_err(|error| DriveError::Rig {
            error,
            folder: run.folder.display().to_string(),
        })?;
    let estimates = estimates.as_ref();
    let proposers = params
        .window
        .saturating_add(params.model_window)
        .clamp(1, MOST_PROPOSERS);
    let drive = Drive {
        rig,
        run,
        fold,
        to_judges,
        to_proposers,
        finished: past.last().and_then(|line| match line.event {
            Event::Finished { reason } => Some(reason),
            Event::Evaluated { .. }
            | Event::Expanded { .. }
            | Event::ExpandFailed { .. }
            | Event::Away { .. }
            | Event::Unavailable { .. }
            | Event::Retimed { .. }
            | Event::Confirmed { .. } => None,
        }),
        elapsed_before: Duration::from_millis(elapsed_before),
        started: Instant::now(),
    };
    thread::scope(|scope| {
        // A model that takes its time holds up no judge.
        for (threads, work) in [
            (rig.jobs.max(1), &to_judge),
            (proposers as usize, &to_propose),
        ] {
            for _ in 0..threads {
                let to_driver = to_driver.clone();
                scope.spawn(move || serve(rig, estimates, work, &to_driver));
            }
        }
        drop(to_driver);
        drive.run(&answers, interrupt, observer)
    })
}

/// A run being driven; dropping it hangs up on the workers.
struct Drive<'a> {
    rig: &'a Rig<'a>,
    run: &'a mut RunWriter,
    fold: Fold,
    to_judges: Sender<Work>,
    to_proposers: Sender<Work>,
    /// How the log ends, while nothing was added to it: an end is not told twice.
    finished: Option<StopReason>,
    elapsed_before: Duration,
    started: Instant,
}

impl Drive<'_> {
    fn run(
        mut self,
        answers: &Receiver<(Ticket, Answer)>,
        interrupt: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Ended, DriveError> {
        for request in self.fold.in_flight.values() {
            self.dispatch(request);
        }
        let mut arrived: BTreeMap<Ticket, Answer> = BTreeMap::new();
        loop {
            let interrupted = interrupt.load(Ordering::Relaxed);
            let mut stop = None;
            if !interrupted {
                let (requests, done) = self.fold.ask(self.elapsed());
                stop = done;
                for request in &requests {
                    self.dispatch(request);
                }
            }
            if let Some((request, answer)) = self.take_next(&mut arrived) {
                let event = self.take(request, answer)?;
                self.record(event, observer)?;
                continue;
            }
            if self.fold.in_flight.is_empty() {
                if interrupted {
                    self.run.log.sync()?;
                    return Ok(Ended::Interrupted);
                }
                let end = match self.race(interrupt)? {
                    Some(event) => Some(event),
                    // what is interrupted is done again
                    None if interrupt.load(Ordering::Relaxed) => continue,
                    None => self.confirm()?,
                };
                if let Some(event) = end {
                    self.record(event, observer)?;
                    continue;
                }
                let reason = stop.unwrap_or(StopReason::Exhausted);
                if self.finished != Some(reason) {
                    self.record(Event::Finished { reason }, observer)?;
                }
                self.run.log.sync()?;
                return Ok(Ended::Stopped(reason));
            }
            match answers.recv_timeout(LOOK_EVERY) {
                Ok((ticket, answer)) => {
                    arrived.insert(ticket, answer);
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.run.log.settle()?;
                    observer.tick();
                }
                Err(RecvTimeoutError::Disconnected) => {
                    unreachable!("workers end only after the driver hung up")
                }
            }
        }
    }

    /// The answer to apply next, if it is there. Between two of them the search is always asked again,
    /// so that a replay of the log asks at the same points.
    fn take_next(&self, arrived: &mut BTreeMap<Ticket, Answer>) -> Option<(Request, Answer)> {
        let oldest = *self.fold.in_flight.keys().next()?;
        let ticket = if self.rig.deterministic {
            oldest
        } else {
            *arrived.keys().next()?
        };
        let answer = arrived.remove(&ticket)?;
        Some((self.fold.in_flight.get(&ticket)?.clone(), answer))
    }

    fn dispatch(&self, request: &Request) {
        let source = self
            .fold
            .search
            .source(request.node())
            .expect("invariant: requests are about nodes that have a source")
            .clone();
        let (work, to) = match request {
            Request::Evaluate {
                ticket,
                point,
                beside,
                ..
            } => {
                let work = Work::Evaluate {
                    ticket: *ticket,
                    source,
                    points: [std::slice::from_ref(point), beside].concat(),
                };
                (work, &self.to_judges)
            }
            Request::Expand {
                ticket,
                node,
                by,
                attempt,
                ask,
            } => {
                let (setting, feedback) = self.fold.history.feedback(*node).unzip();
                let lineage: Vec<_> = self.fold.search.lineage(*node);
                let work = Work::Propose(Box::new(ProposeWork {
                    ticket: *ticket,
                    by: *by,
                    source,
                    setting,
                    feedback,
                    tried: self.fold.history.tried(*node),
                    path: self.fold.history.path(&lineage),
                    beside: self.fold.history.beside(&lineage),
                    ask: *ask,
                    attempt: *attempt,
                }));
                (work, &self.to_proposers)
            }
        };
        to.send(work)
            .expect("invariant: workers live as long as the driver");
    }

    /// Tells the search and writes down what it was told and what that changed. A process that dies in
    /// between has told nobody: the request is made again on resume.
    fn take(&mut self, request: Request, answer: Answer) -> Result<Event, DriveError> {
        let ticket = request.ticket();
        Ok(match (request, answer) {
            (Request::Evaluate { node, .. }, Answer::Evaluated(result, took)) => {
                let (picked, mut evaluation) = result.map_err(|error| self.broken(error))?;
                let kernel = evaluation.kernel.take();
                let Picked { point, left_out } = picked;
                self.fold
                    .pick(ticket, &point, &left_out)
                    .expect("invariant: one of those asked for is judged");
                let applied = self.tell(&evaluated(ticket, &evaluation.verdict));
                let source = self.fold.search.source(node);
                let setting = |point: &Point| {
                    source
                        .map(|source| source.space().setting(point))
                        .unwrap_or_default()
                };
                Event::Evaluated {
                    ticket,
                    node,
                    setting: setting(&point),
                    left_out: left_out
                        .into_iter()
                        .map(|(point, estimate)| LeftOut {
                            setting: setting(&point),
                            point,
                            estimate,
                        })
                        .collect(),
                    point,
                    kernel: self.store_if(applied.best, kernel)?,
                    best: applied.best,
                    evaluation: Box::new(evaluation),
                    took_ms: took.as_millis() as u64,
                }
            }
            (Request::Expand { node, by, ask, .. }, Answer::Proposed(result, tally, took)) => {
                let cost = cost(&tally.spent);
                let asked = ask.map(|ask| {
                    Box::new(Asked {
                        ask,
                        spent: tally.spent,
                        exchanges: tally.exchanges,
                        took_ms: took.as_millis() as u64,
                    })
                });
                let result = result.map_err(|error| self.broken(error))?;
                self.take_proposed(ticket, node, by, cost, asked, result)?
            }
            (Request::Evaluate { .. }, Answer::Proposed(..))
            | (Request::Expand { .. }, Answer::Evaluated(..)) => {
                unreachable!("a request is answered by who served it")
            }
        })
    }

    fn take_proposed(
        &mut self,
        ticket: Ticket,
        node: NodeId,
        by: Expander,
        cost: Cost,
        asked: Option<Box<Asked>>,
        result: Proposed,
    ) -> Result<Event, DriveError> {
        Ok(match result {
            Ok(proposed) => {
                let children = proposed.iter().map(|(_, child)| child.clone()).collect();
                let applied = self.tell(&Outcome::Expanded {
                    ticket,
                    children,
                    cost,
                });
                let children = self.store_children(proposed, applied)?;
                Event::Expanded {
                    ticket,
                    node,
                    by,
                    children,
                    asked,
                }
            }
            Err(ProposeError::Unusable(message)) => {
                self.tell(&Outcome::ExpandFailed { ticket, cost });
                Event::ExpandFailed {
                    ticket,
                    node,
                    by,
                    message,
                    asked,
                }
            }
            Err(ProposeError::Away(message)) => {
                self.tell(&Outcome::Unavailable {
                    ticket,
                    passing: true,
                });
                Event::Away {
                    ticket,
                    node,
                    by,
                    message,
                    asked,
                }
            }
            Err(ProposeError::Unavailable(message)) => {
                self.tell(&Outcome::Unavailable {
                    ticket,
                    passing: false,
                });
                Event::Unavailable {
                    ticket,
                    node,
                    by,
                    message,
                    asked,
                }
            }
        })
    }

    /// The source of a node of which a setting was judged.
    fn source(&self, node: NodeId) -> &Arc<Source> {
        let source = self.fold.search.source(node);
        source.expect("invariant: what was judged has a source")
    }

    fn broken(&self, error: RigError) -> DriveError {
        DriveError::Rig {
            error,
            folder: self.run.folder.display().to_string(),
        }
    }

    fn tell(&mut self, outcome: &Outcome) -> Applied {
        self.fold
            .tell(outcome)
            .expect("invariant: only what is in flight is answered, and in kind")
    }

    /// Keeps the bytes of a kernel that beats all before it, or was confirmed: they are what an export hands
    /// out.
    fn store_if(
        &self,
        wanted: bool,
        kernel: Option<Kernel>,
    ) -> Result<Option<StoredKernel>, StoreError> {
        let (true, Some(kernel)) = (wanted, kernel) else {
            return Ok(None);
        };
        Ok(Some(StoredKernel {
            ptx: self.run.objects.put(kernel.ptx.as_bytes())?,
            cubin: self.run.objects.put(&kernel.cubin)?,
        }))
    }

    fn store_children(
        &self,
        proposed: Vec<(Proposal, Child)>,
        applied: Applied,
    ) -> Result<Vec<StoredChild>, StoreError> {
        proposed
            .into_iter()
            .zip(applied.children)
            .map(|((proposal, child), grown)| {
                Ok(StoredChild {
                    label: proposal.label,
                    source: self.run.objects.put(proposal.text.as_bytes())?,
                    grown,
                    settings: proposal.settings,
                    rationale: proposal.rationale,
                    estimated: child.estimated,
                })
            })
            .collect()
    }

    fn record(&mut self, event: Event, observer: &mut dyn Observer) -> Result<(), DriveError> {
        self.finished = None;
        let line = self.run.log.append(self.elapsed(), event)?;
        self.fold.note(&line);
        observer.applied(&line, &self.fold.search);
        Ok(())
    }

    fn elapsed(&self) -> Duration {
        self.elapsed_before + self.started.elapsed()
    }
}
