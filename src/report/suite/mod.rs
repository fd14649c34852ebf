//! A suite's report: what became of each task's run, and the totals. It reads stored runs; it searches,
//! judges and writes nothing.

mod table;
mod total;

use std::collections::BTreeMap;

use serde::Serialize;

pub use total::{Fast, LevelTotal, Missing, Overs, Share, Total, Totals, totals, weight};

use super::Story;
use super::story::Winner;
use crate::source::Setting;
use crate::store::{Event, StoreError, StoredRun};
use crate::task::Level;
use crate::units::Nanos;
use crate::verdict::{Denominator, Duel, InstructionScore, Measurement, Speedup};

/// What a suite's runs gave.
#[derive(Clone, Debug, Serialize)]
pub struct SuiteReport {
    /// The suite's name.
    pub suite: String,
    /// Tasks of the suite that were left out on request.
    pub left_out: Vec<String>,
    /// The others, in the suite's order.
    pub tasks: Vec<TaskResult>,
    /// Over all of them.
    pub totals: Totals,
}

/// What became of a task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskResult {
    /// Its name.
    pub task: String,
    /// Its class.
    pub level: Level,
    /// How far its run came.
    #[serde(flatten)]
    pub state: State,
    /// Where it was judged; absent before its run began.
    pub rig: Option<RigFacts>,
    /// The best valid kernel; final only where the run is finished.
    pub winner: Option<Best>,
    /// Kernels judged.
    pub evaluations: u64,
    /// How they ended: `measured`, `wrong`, … Their counts add up to `evaluations`.
    pub endings: BTreeMap<String, u64>,
    /// The most frequent reason of a failure.
    pub mostly: Option<String>,
    /// Answers of proposers that gave no source to judge.
    pub unusable: u64,
    /// Search time, milliseconds.
    pub elapsed_ms: u64,
}

/// How far a task's run came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// It ended as its stop rules say.
    Finished,
    /// It began and can go on.
    Unfinished {
        /// Why it stopped, where that is known.
        why: Option<String>,
    },
    /// It did not begin.
    NotRun {
        /// Why, where that is known.
        why: Option<String>,
    },
}

/// Where a run was judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RigFacts {
    /// The GPU it was, stands for, or was recorded on.
    pub gpu: String,
    /// As `--device` names it.
    pub device: String,
    /// ptxas's version; absent for tables.
    pub assembler: Option<String>,
}

/// A task's best kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Best {
    /// A call: the claim's median where the kernel was measured again at the end, else the search's.
    pub time: Nanos,
    /// `measured`, `estimated`, `recorded`.
    pub times: String,
    /// Whether the target instructions did the work, after the spill rule.
    pub instructions: InstructionScore,
    /// Over what; `None` where nothing gave a time.
    pub speedup: Option<Speedup>,
    /// The speedup's interval, where a claim gave one.
    pub interval: Option<(f64, f64)>,
    /// Of which source.
    pub source: String,
    /// With which setting.
    pub setting: Setting,
}

impl SuiteReport {
    /// Of the tasks given; `left_out` were not wanted.
    pub fn new(suite: String, left_out: Vec<String>, tasks: Vec<TaskResult>) -> Self {
        let totals = totals(&tasks);
        Self {
            suite,
            left_out,
            tasks,
            totals,
        }
    }
}

impl TaskResult {
    /// A task whose run did not begin.
    pub fn not_run(task: String, level: Level, why: Option<String>) -> Self {
        Self {
            task,
            level,
            state: State::NotRun { why },
            rig: None,
            winner: None,
            evaluations: 0,
            endings: BTreeMap::new(),
            mostly: None,
            unusable: 0,
            elapsed_ms: 0,
        }
    }

    /// Reads a run as far as it came. `why` says what stopped one that is not finished.
    pub fn read(level: Level, run: &StoredRun, why: Option<String>) -> Result<Self, StoreError> {
        let story = Story::read(run, 0)?;
        let mut endings: BTreeMap<String, u64> = BTreeMap::new();
        let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
        let mut unusable = 0;
        for line in &run.lines {
            match &line.event {
                Event::Evaluated { evaluation, .. } => {
                    let verdict = &evaluation.verdict;
                    *endings.entry(verdict.stage().to_owned()).or_default() += 1;
                    if let Some(reason) = verdict.reason() {
                        let reason = format!("{}: {reason}", verdict.stage());
                        *reasons.entry(reason).or_default() += 1;
                    }
                }
                Event::Confirmed { evaluation, .. } => {
                    if let Some(reason) = evaluation.verdict.reason() {
                        let stage = evaluation.verdict.stage();
                        let reason = format!("refuted in full, {stage}: {reason}");
                        *reasons.entry(reason).or_default() += 1;
                    }
                }
                Event::ExpandFailed { .. } => unusable += 1,
                Event::Expanded { .. }
                | Event::Away { .. }
                | Event::Unavailable { .. }
                | Event::Retimed { .. }
                | Event::Finished { .. } => {}
            }
        }
        let state = match finished(run) {
            true => State::Finished,
            false => State::Unfinished { why },
        };
        let winner = story.winner.as_ref().map(|winner| {
            let source = story.sources.iter().find(|one| one.node == winner.node);
            best(winner, source.map_or("", |source| &source.label))
        });
        Ok(Self {
            task: run.config.task.clone(),
            level,
            state,
            rig: Some(RigFacts {
                gpu: run.config.gpu.clone(),
                device: run.config.device.clone(),
                assembler: run.config.assembler.clone(),
            }),
            winner,
            evaluations: story.evaluations,
            endings,
            mostly: reasons
                .into_iter()
                .max_by_key(|(_, count)| *count)
                .map(|(reason, _)| reason),
            unusable,
            elapsed_ms: story.elapsed_ms,
        })
    }

    /// Whether a kernel passed every check; `None` while the run is not finished.
    pub fn correct(&self) -> Option<bool> {
        match self.state {
            State::Finished => Some(self.winner.is_some()),
            State::Unfinished { .. } | State::NotRun { .. } => None,
        }
    }

    /// Correct · target instructions · speedup: 1 is a correct kernel on the target instructions that is as
    /// fast as what it is set against; 0 where nothing is correct. `None` while the run is not finished, and
    /// where there is nothing to set it against.
    pub fn points(&self) -> Option<f64> {
        match (self.correct()?, &self.winner) {
            (true, Some(best)) => Some(best.instructions.factor() * best.speedup.as_ref()?.ratio),
            (true, None) | (false, _) => Some(0.0),
        }
    }
}

/// Whether a run came to its end.
pub fn finished(run: &StoredRun) -> bool {
    run.lines.last().is_some_and(|line| match line.event {
        Event::Finished { .. } => true,
        Event::Evaluated { .. }
        | Event::Expanded { .. }
        | Event::ExpandFailed { .. }
        | Event::Away { .. }
        | Event::Unavailable { .. }
        | Event::Retimed { .. }
        | Event::Confirmed { .. } => false,
    })
}

/// What a claim measured counts before what the search did.
fn best(winner: &Winner, source: &str) -> Best {
    let measurement = &winner.measurement;
    let again = winner
        .claim
        .as_ref()
        .and_then(|claim| claim.winner.as_ref());
    let duel = winner.claim.as_ref().and_then(|claim| {
        let Some(Denominator::Frontier(name)) = searched_over(measurement) else {
            return None;
        };
        hardest(&claim.duels, name)
    });
    Best {
        time: again.map_or(measurement.time.nanos(), |times| times.median),
        times: measurement.time.label().to_owned(),
        instructions: measurement.score.instructions,
        speedup: match duel {
            Some(duel) => Some(Speedup {
                ratio: duel.ratio.median,
                over: Denominator::Frontier(duel.title()),
            }),
            None => measurement.score.speedup.clone(),
        },
        interval: duel.map(|duel| (duel.ratio.low, duel.ratio.high)),
        source: source.to_owned(),
        setting: winner.setting.clone(),
    }
}

fn searched_over(measurement: &Measurement) -> Option<&Denominator> {
    measurement.score.speedup.as_ref().map(|one| &one.over)
}

/// The duel that the winner did worst in, whichever baseline led when the search began. Where that one could
/// not be measured again, none stands for the frontier.
fn hardest<'a>(duels: &'a [Duel], frontier: &str) -> Option<&'a Duel> {
    duels
        .iter()
        .find(|duel| duel.title() == frontier)
        .and_then(|_| {
            duels
                .iter()
                .min_by(|a, b| a.ratio.median.total_cmp(&b.ratio.median))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{Interleaving, Ratio, Standing, Times, Variant};

    fn duel(name: &str, ratio: f64) -> Duel {
        let time = Nanos::new(1e3).expect("positive");
        let times = || Times {
            median: time,
            quartiles: (time, time),
            samples: Vec::new(),
        };
        Duel {
            name: name.to_owned(),
            variant: Variant::Eager,
            interleaving: Interleaving::Pairs,
            winner: times(),
            baseline: times(),
            ratio: Ratio {
                median: ratio,
                low: ratio,
                high: ratio,
            },
            rounds: Vec::new(),
            burst: None,
            standing: Standing::Faster,
        }
    }

    #[test]
    fn a_claim_is_as_good_as_its_hardest_duel_and_needs_the_frontier_among_them() {
        let duels = [duel("torch.mm", 1.10), duel("cuBLAS", 1.05)];
        let title = |frontier| hardest(&duels, frontier).map(Duel::title);
        assert_eq!(title("torch.mm (eager)").as_deref(), Some("cuBLAS (eager)"));
        assert_eq!(title("mine (PTX)"), None);
        assert!(hardest(&[], "torch.mm (eager)").is_none());
    }
}
