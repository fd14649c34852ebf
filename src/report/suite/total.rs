//! A suite's totals: pure arithmetic over its tasks' results.
//!
//! A task's points are correct · target instructions · speedup. A level's are the mean over its tasks, a
//! failed one counting 0; the total is the mean over levels, weighted 30 : 50 : 20. L1 is a veto: where one
//! of its tasks has no correct kernel, there is no total. Where a level was left out, the weights of the
//! others are scaled to one.

use std::collections::BTreeMap;

use serde::Serialize;

use super::TaskResult;
use crate::task::Level;
use crate::verdict::Denominator;

/// The speedups of which a report says how many tasks passed them.
const THRESHOLDS: [f64; 5] = [0.5, 0.8, 1.0, 1.5, 2.0];

/// What a level counts in the total.
pub fn weight(level: Level) -> f64 {
    match level {
        Level::L1 => 0.3,
        Level::L2 => 0.5,
        Level::L3 => 0.2,
    }
}

/// Numbers over all tasks of a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Totals {
    /// The weighted total, or why there is none.
    pub total: Total,
    /// What its speedups are over.
    pub overs: Overs,
    /// Each level that has tasks.
    pub levels: Vec<LevelTotal>,
    /// Geometric mean of the correct tasks' speedups: one outlier moves it less than the total.
    pub geometric_mean: Option<f64>,
    /// fast_p: the share of tasks that are correct and more than p times as fast.
    pub fast: Vec<Fast>,
    /// Kernels judged in all tasks.
    pub evaluations: u64,
    /// The share of each ending over all evaluations, the most frequent first.
    pub endings: Vec<Share>,
    /// Answers of proposers that gave no source to judge; no evaluation among them.
    pub unusable: u64,
}

/// The weighted total.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Total {
    /// Weighted mean of the levels' points.
    Counts {
        /// 1: everything correct, on the target instructions, as fast as what it is set against.
        value: f64,
    },
    /// L1's veto.
    Void {
        /// The L1 tasks without a correct kernel.
        failed: Vec<String>,
    },
    /// Some task has no points yet.
    Open {
        /// Which, and why.
        missing: Vec<Missing>,
    },
}

/// A task without points.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// The task.
    pub task: String,
    /// `not finished`, `nothing to set it against`.
    pub why: String,
}

/// How many correct tasks' speedups are over what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Overs {
    /// The fastest correct baseline.
    pub frontier: usize,
    /// The task's seed: no frontier was measured.
    pub seed: usize,
    /// Nothing.
    pub nothing: usize,
}

/// A level's part of the total.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LevelTotal {
    /// The level.
    pub level: Level,
    /// Its weight.
    pub weight: f64,
    /// Its tasks.
    pub tasks: usize,
    /// Those with a correct kernel.
    pub correct: usize,
    /// Mean of their points; `None` where one has none yet.
    pub points: Option<f64>,
}

/// fast_p.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fast {
    /// A speedup.
    pub p: f64,
    /// Share of tasks that are correct and faster than that, 0 to 1.
    pub share: f64,
}

/// A share of evaluations.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Share {
    /// How they ended.
    pub ending: String,
    /// How many.
    pub count: u64,
    /// Of all, 0 to 1.
    pub share: f64,
}

/// The totals of tasks.
pub fn totals(tasks: &[TaskResult]) -> Totals {
    let levels = levels(tasks);
    let speedups: Vec<f64> = tasks.iter().filter_map(speedup).collect();
    let logs: f64 = speedups.iter().map(|ratio| ratio.ln()).sum();
    Totals {
        total: total(tasks, &levels),
        overs: overs(tasks),
        levels,
        geometric_mean: (!speedups.is_empty()).then(|| (logs / speedups.len() as f64).exp()),
        fast: THRESHOLDS
            .into_iter()
            .map(|p| Fast {
                p,
                share: share(
                    speedups.iter().filter(|ratio| **ratio > p).count(),
                    tasks.len(),
                ),
            })
            .collect(),
        evaluations: tasks.iter().map(|task| task.evaluations).sum(),
        endings: endings(tasks),
        unusable: tasks.iter().map(|task| task.unusable).sum(),
    }
}

fn total(tasks: &[TaskResult], levels: &[LevelTotal]) -> Total {
    let failed: Vec<String> = tasks
        .iter()
        .filter(|task| task.level == Level::L1 && task.correct() == Some(false))
        .map(|task| task.task.clone())
        .collect();
    if !failed.is_empty() {
        return Total::Void { failed };
    }
    let missing: Vec<Missing> = tasks
        .iter()
        .filter(|task| task.points().is_none())
        .map(|task| Missing {
            task: task.task.clone(),
            why: match task.correct() {
                Some(_) => "nothing to set it against".to_owned(),
                None => "not finished".to_owned(),
            },
        })
        .collect();
    if !missing.is_empty() {
        return Total::Open { missing };
    }
    let weights: f64 = levels.iter().map(|level| level.weight).sum();
    let points: f64 = levels
        .iter()
        .filter_map(|level| Some(level.weight * level.points?))
        .sum();
    Total::Counts {
        value: points / weights,
    }
}

fn levels(tasks: &[TaskResult]) -> Vec<LevelTotal> {
    let mut levels: BTreeMap<Level, Vec<&TaskResult>> = BTreeMap::new();
    for task in tasks {
        levels.entry(task.level).or_default().push(task);
    }
    levels
        .into_iter()
        .map(|(level, tasks)| {
            let points: Option<f64> = tasks.iter().map(|task| task.points()).sum();
            LevelTotal {
                level,
                weight: weight(level),
                tasks: tasks.len(),
                correct: tasks
                    .iter()
                    .filter(|task| task.correct() == Some(true))
                    .count(),
                points: points.map(|points| points / tasks.len() as f64),
            }
        })
        .collect()
}

/// Of a task that is finished and correct.
fn speedup(task: &TaskResult) -> Option<f64> {
    task.correct()?;
    Some(task.winner.as_ref()?.speedup.as_ref()?.ratio)
}

fn overs(tasks: &[TaskResult]) -> Overs {
    let mut overs = Overs::default();
    for task in tasks.iter().filter(|task| task.correct() == Some(true)) {
        let speedup = task.winner.as_ref().and_then(|best| best.speedup.as_ref());
        match speedup.map(|speedup| &speedup.over) {
            Some(Denominator::Frontier(_)) => overs.frontier += 1,
            Some(Denominator::Seed) => overs.seed += 1,
            None => overs.nothing += 1,
        }
    }
    overs
}

fn endings(tasks: &[TaskResult]) -> Vec<Share> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (ending, count) in tasks.iter().flat_map(|task| &task.endings) {
        *counts.entry(ending).or_default() += count;
    }
    let all: u64 = counts.values().sum();
    let mut endings: Vec<Share> = counts
        .into_iter()
        .map(|(ending, count)| Share {
            ending: ending.to_owned(),
            count,
            share: share(count as usize, all as usize),
        })
        .collect();
    endings.sort_by_key(|ending| std::cmp::Reverse(ending.count));
    endings
}

fn share(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Best, State};
    use super::*;
    use crate::source::Setting;
    use crate::units::Nanos;
    use crate::verdict::{InstructionScore, Speedup};

    fn correct(task: &str, level: Level, ratio: f64) -> TaskResult {
        TaskResult {
            state: State::Finished,
            winner: Some(Best {
                time: Nanos::new(1e3).expect("positive"),
                times: "measured".to_owned(),
                instructions: InstructionScore::NotRequired { value: 1.0 },
                speedup: Some(Speedup {
                    ratio,
                    over: Denominator::Frontier("lib".to_owned()),
                }),
                interval: None,
                source: "seed".to_owned(),
                setting: Setting::new(),
            }),
            ..TaskResult::not_run(task.to_owned(), level, None)
        }
    }

    fn failed(task: &str, level: Level) -> TaskResult {
        TaskResult {
            winner: None,
            ..correct(task, level, 1.0)
        }
    }

    fn ended(endings: &[(&str, u64)]) -> TaskResult {
        let endings = endings
            .iter()
            .map(|(stage, count)| (stage.to_string(), *count));
        TaskResult {
            endings: endings.collect(),
            ..correct("a", Level::L1, 1.0)
        }
    }

    fn value(tasks: &[TaskResult]) -> f64 {
        match totals(tasks).total {
            Total::Counts { value } => value,
            Total::Void { .. } | Total::Open { .. } => panic!("no total"),
        }
    }

    /// 0.3 · (1.2 + 0.8)/2 + 0.5 · (2 + 0)/2 + 0.2 · 0.5 = 0.9
    #[test]
    fn the_total_weighs_levels_and_counts_a_failure_as_nothing() {
        let tasks = [
            correct("sum", Level::L1, 1.2),
            correct("silu", Level::L1, 0.8),
            correct("softmax", Level::L2, 2.0),
            failed("sgemm", Level::L2),
            correct("fft", Level::L3, 0.5),
        ];
        assert!((value(&tasks) - 0.9).abs() < 1e-12);
        let totals = totals(&tasks);
        let correct: Vec<usize> = totals.levels.iter().map(|level| level.correct).collect();
        assert_eq!(correct, [2, 1, 1]);
        assert_eq!(totals.overs.frontier, 4);
        let product: f64 = 1.2 * 0.8 * 2.0 * 0.5;
        let mean = totals.geometric_mean.expect("four speedups");
        assert!((mean - product.powf(0.25)).abs() < 1e-12);
    }

    #[test]
    fn half_of_the_work_on_target_instructions_is_worth_half() {
        let mut half = correct("mha", Level::L3, 1.5);
        if let Some(best) = &mut half.winner {
            best.instructions = InstructionScore::Counted { value: 0.5 };
        }
        assert!((value(&[half]) - 0.75).abs() < 1e-12);
    }

    #[test]
    fn without_a_level_the_others_weights_are_scaled() {
        // (0.5 · 2 + 0.2 · 1) / 0.7
        let tasks = [
            correct("softmax", Level::L2, 2.0),
            correct("fft", Level::L3, 1.0),
        ];
        assert!((value(&tasks) - 1.2 / 0.7).abs() < 1e-12);
    }

    #[test]
    fn a_failed_l1_task_voids_the_total_even_before_the_rest_is_done() {
        let open = TaskResult::not_run("fft".to_owned(), Level::L3, None);
        let tasks = [
            failed("sum", Level::L1),
            correct("silu", Level::L1, 9.0),
            open,
        ];
        let void = Total::Void {
            failed: vec!["sum".to_owned()],
        };
        assert_eq!(totals(&tasks).total, void);
    }

    #[test]
    fn an_unfinished_task_or_one_over_nothing_leaves_the_total_open() {
        let mut running = correct("fft", Level::L3, 3.0);
        running.state = State::Unfinished { why: None };
        let mut alone = correct("mine", Level::L2, 1.0);
        if let Some(best) = &mut alone.winner {
            best.speedup = None;
        }
        let totals = totals(&[correct("sum", Level::L1, 1.0), running, alone]);
        let missing = |task: &str, why: &str| Missing {
            task: task.to_owned(),
            why: why.to_owned(),
        };
        let open = Total::Open {
            missing: vec![
                missing("fft", "not finished"),
                missing("mine", "nothing to set it against"),
            ],
        };
        assert_eq!(totals.total, open);
        assert_eq!(totals.overs.nothing, 1);
        let one = totals.fast.iter().find(|fast| fast.p == 0.8);
        assert_eq!(one.map(|fast| fast.share), Some(1.0 / 3.0));
    }

    /// 4 tasks at 0.8, 1.0, 1.7 and wrong: strictly faster than 0.5, 0.8, 1, 1.5, 2.
    #[test]
    fn fast_p_is_a_share_of_all_tasks_and_strict() {
        let tasks = [
            correct("a", Level::L1, 0.8),
            correct("b", Level::L2, 1.0),
            correct("c", Level::L2, 1.7),
            failed("d", Level::L3),
        ];
        let shares: Vec<f64> = totals(&tasks).fast.iter().map(|fast| fast.share).collect();
        assert_eq!(shares, [0.75, 0.5, 0.25, 0.25, 0.0]);
    }

    #[test]
    fn the_failure_mix_is_over_all_evaluations() {
        let tasks = [
            ended(&[("measured", 6), ("wrong", 1)]),
            ended(&[("measured", 1), ("hung", 2)]),
        ];
        let endings = totals(&tasks).endings;
        let shown: Vec<(&str, u64, f64)> = endings
            .iter()
            .map(|one| (one.ending.as_str(), one.count, one.share))
            .collect();
        assert_eq!(
            shown,
            [("measured", 7, 0.7), ("hung", 2, 0.2), ("wrong", 1, 0.1)]
        );
    }

    proptest! {
        /// Failing never pays, nor does being slower.
        #[test]
        fn the_total_falls_with_any_task(
            ratios in proptest::collection::vec((0usize..3, 0.01..10.0f64), 1..12),
            at in 0usize..12, slower in 0.0..1.0f64,
        ) {
            let level = |index| [Level::L1, Level::L2, Level::L3][index];
            let tasks: Vec<TaskResult> = ratios
                .iter()
                .map(|(index, ratio)| correct("t", level(*index), *ratio))
                .collect();
            let at = at % tasks.len();
            let mut worse = tasks.clone();
            worse[at] = correct("t", tasks[at].level, ratios[at].1 * slower.max(1e-3));
            prop_assert!(value(&worse) <= value(&tasks));
            if tasks[at].level != Level::L1 {
                let mut lost = tasks.clone();
                lost[at] = failed("t", tasks[at].level);
                prop_assert!(value(&lost) <= value(&worse));
            }
        }
    }
}
