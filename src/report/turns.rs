//! A benchmark of a model over trajectories: the three metrics, the correct rate and the best speedup by turn,
//! how turns failed, and what they cost. It reads stored turns; it asks and judges nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::csv::csv;
use crate::driver::trajectory::Turn;
use crate::llm::Spent;
use crate::units::{Nanos, counted};
use crate::verdict::InstructionScore;

/// A model on a suite.
#[derive(Clone, Debug, Serialize)]
pub struct TurnsReport {
    /// The suite.
    pub suite: String,
    /// The model, as `--model` names it.
    pub model: String,
    /// Turns of each trajectory.
    pub turns: u32,
    /// Trajectories of each task.
    pub trajectories: u32,
    /// Each task.
    pub tasks: Vec<TaskTurns>,
}

/// A model on a task.
#[derive(Clone, Debug, Serialize)]
pub struct TaskTurns {
    /// The task.
    pub task: String,
    /// The GPU its kernels were judged on or for.
    pub gpu: String,
    /// `measured`, `estimated`.
    pub times: String,
    /// What speedups are over.
    pub over: Option<String>,
    /// By turn, from the first.
    pub by_turn: Vec<ByTurn>,
    /// Turns by how they ended; `measured` is correct.
    pub endings: BTreeMap<String, u64>,
    /// Correct turns that executed target instructions; absent where the task has none or nobody counted.
    pub instructions: Option<Share>,
    /// What all turns cost.
    pub spent: Spent,
    /// The best kernel, judged once more in full at the end; absent where none was correct.
    pub best: Option<BestTurn>,
    /// Why it is not complete, if it is not.
    pub stopped: Option<String>,
}

/// A part of a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    /// The part.
    pub of: u64,
    /// The whole.
    pub all: u64,
}

/// One turn over all trajectories.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ByTurn {
    /// Trajectories whose kernel of this turn is correct, of those that came so far.
    pub correct: Share,
    /// Trajectories that had a correct kernel in this turn or before.
    pub correct_so_far: Share,
    /// The best speedup of any trajectory in this turn or before.
    pub best: Option<f64>,
    /// The mean over trajectories of each one's best speedup so far; one without a correct kernel counts 0.
    pub mean: Option<f64>,
}

/// A task's best kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BestTurn {
    /// Which trajectory, from 0.
    pub trajectory: u32,
    /// Which turn, from 0.
    pub turn: u32,
    /// Its time when it was found.
    pub time: Nanos,
    /// Over the baseline.
    pub speedup: Option<f64>,
    /// Judged again in full: its time then, or why it fell; absent while that was not done.
    pub again: Option<Result<Nanos, String>>,
}

impl TaskTurns {
    /// Of stored turns; `baseline` is the time that speedups are over.
    pub fn new(task: &str, turns: &[Turn], wanted: u32, baseline: Option<(&str, Nanos)>) -> Self {
        let mut endings: BTreeMap<String, u64> = BTreeMap::new();
        let mut spent = Spent::default();
        let mut executed = Share { of: 0, all: 0 };
        let mut counted = false;
        let mut best: Option<BestTurn> = None;
        for turn in turns {
            *endings.entry(turn.stage().to_owned()).or_default() += 1;
            spent.add(&turn.spent);
            let Some(measurement) = turn.verdict().and_then(|verdict| verdict.measurement()) else {
                continue;
            };
            match measurement.score.instructions {
                InstructionScore::Counted { value } => {
                    counted = true;
                    executed.all += 1;
                    executed.of += u64::from(value > 0.0);
                }
                InstructionScore::NotRequired { .. } | InstructionScore::NotProfiled { .. } => {}
            }
            let time = measurement.time.nanos();
            if best.as_ref().is_none_or(|best| time < best.time) {
                best = Some(BestTurn {
                    trajectory: turn.trajectory,
                    turn: turn.turn,
                    time,
                    speedup: baseline.map(|(_, base)| base.get() / time.get()),
                    again: None,
                });
            }
        }
        Self {
            task: task.to_owned(),
            gpu: String::new(),
            times: String::new(),
            over: baseline.map(|(name, _)| name.to_owned()),
            by_turn: by_turn(turns, wanted, baseline.map(|(_, time)| time)),
            endings,
            instructions: counted.then_some(executed),
            spent,
            best,
            stopped: None,
        }
    }
}

fn by_turn(turns: &[Turn], wanted: u32, baseline: Option<Nanos>) -> Vec<ByTurn> {
    let time = |turn: &Turn| {
        let measurement = turn.verdict()?.measurement()?;
        Some(measurement.time.nanos())
    };
    let all: BTreeSet<u32> = turns.iter().map(|turn| turn.trajectory).collect();
    (0..wanted)
        .map(|at| {
            let here: Vec<&Turn> = turns.iter().filter(|turn| turn.turn == at).collect();
            let bests: Vec<Option<Nanos>> = all
                .iter()
                .map(|trajectory| {
                    let own = turns
                        .iter()
                        .filter(|turn| turn.trajectory == *trajectory && turn.turn <= at);
                    own.filter_map(time)
                        .min_by(|a, b| a.get().total_cmp(&b.get()))
                })
                .collect();
            let speedup = |time: Nanos| baseline.map(|base| base.get() / time.get());
            let speedups: Vec<f64> = bests
                .iter()
                .flatten()
                .filter_map(|time| speedup(*time))
                .collect();
            let share = |of: usize, all: usize| Share {
                of: of as u64,
                all: all as u64,
            };
            ByTurn {
                correct: share(
                    here.iter().filter(|turn| time(turn).is_some()).count(),
                    here.len(),
                ),
                correct_so_far: share(bests.iter().flatten().count(), all.len()),
                best: speedups.iter().copied().max_by(f64::total_cmp),
                mean: baseline
                    .filter(|_| !all.is_empty())
                    .map(|_| speedups.iter().fold(0.0, |sum, one| sum + one) / all.len() as f64),
            }
        })
        .collect()
}

impl TurnsReport {
    /// One line a task and turn.
    pub fn csv(&self) -> String {
        let header = [
            "task",
            "turn",
            "correct",
            "played",
            "correct_so_far",
            "trajectories",
            "best_speedup",
            "mean_speedup",
        ];
        let mut lines = Vec::new();
        let number =
            |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.6}"));
        for task in &self.tasks {
            for (at, turn) in task.by_turn.iter().enumerate() {
                lines.push([
                    task.task.clone(),
                    (at + 1).to_string(),
                    turn.correct.of.to_string(),
                    turn.correct.all.to_string(),
                    turn.correct_so_far.of.to_string(),
                    turn.correct_so_far.all.to_string(),
                    number(turn.best),
                    number(turn.mean),
                ]);
            }
        }
        csv(header, lines)
    }
}

impl fmt::Display for TurnsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} on suite {}: {} of {} a task",
            self.model,
            self.suite,
            counted(self.trajectories, "trajectory"),
            counted(self.turns, "turn")
        )?;
        let mut whole = Spent::default();
        for task in &self.tasks {
            whole.add(&task.spent);
            write!(f, "\n{task}")?;
        }
        writeln!(f, "\nin all {whole}")
    }
}

impl fmt::Display for TaskTurns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let over = self.over.as_deref().unwrap_or("nothing: no speedups");
        writeln!(
            f,
            "{} on {} ({}), over {over}",
            self.task, self.gpu, self.times
        )?;
        let row = |f: &mut fmt::Formatter<'_>, name: &str, cells: Vec<String>| {
            write!(f, "  {name:<14}")?;
            for cell in cells {
                write!(f, " {cell:>7}")?;
            }
            writeln!(f)
        };
        let cells = |cell: &dyn Fn(&ByTurn) -> String| self.by_turn.iter().map(cell).collect();
        let speedup =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}×"));
        let turns = (1..=self.by_turn.len())
            .map(|turn| turn.to_string())
            .collect();
        row(f, "turn", turns)?;
        let share = |share: Share| format!("{}/{}", share.of, share.all);
        row(f, "correct", cells(&|turn| share(turn.correct)))?;
        row(
            f,
            "correct so far",
            cells(&|turn| share(turn.correct_so_far)),
        )?;
        row(f, "best", cells(&|turn| speedup(turn.best)))?;
        row(f, "mean", cells(&|turn| speedup(turn.mean)))?;
        let all: u64 = self.endings.values().sum();
        let mut mix: Vec<(&String, &u64)> = self.endings.iter().collect();
        mix.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let mix: Vec<String> = mix
            .iter()
            .map(|(stage, count)| {
                let part = 100.0 * **count as f64 / all.max(1) as f64;
                format!("{stage} {part:.0} %")
            })
            .collect();
        writeln!(f, "  {}: {}", counted(all, "turn"), mix.join(", "))?;
        match self.instructions {
            Some(share) => writeln!(
                f,
                "  target instructions executed in {} of {} correct turns",
                share.of, share.all
            )?,
            None => writeln!(
                f,
                "  target instructions: none asked for, or not counted here"
            )?,
        }
        match &self.best {
            Some(best) => {
                let again = match &best.again {
                    Some(Ok(time)) => format!("judged again in full: {time}"),
                    Some(Err(why)) => format!("refuted when judged again in full: {why}"),
                    None => "not judged again".to_owned(),
                };
                writeln!(
                    f,
                    "  best {} ({}), trajectory {} turn {}; {again}",
                    best.time,
                    speedup(best.speedup),
                    best.trajectory + 1,
                    best.turn + 1
                )?;
            }
            None => writeln!(f, "  no correct kernel")?,
        }
        writeln!(f, "  {}", self.spent)?;
        match &self.stopped {
            Some(why) => writeln!(f, "  not complete: {why}"),
            None => Ok(()),
        }
    }
}
