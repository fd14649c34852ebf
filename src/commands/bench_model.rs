//! `bench --turns`: a model on every task of a suite, in trajectories of so many turns each. Every turn is on
//! disk before the next begins; the same command goes on where it stood.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use super::bench::{TASK, chosen, of_task};
use super::judge::{self, Judge, Over, Wanted};
use super::session::{self, open_model};
use super::{Exit, answer, note, search};
use crate::cli::{BenchArgs, Global, JudgeArgs};
use crate::driver::trajectory::{Gave, Players, TrajectoryError, Turn, play};
use crate::files::Lines;
use crate::llm::{self, Budget};
use crate::report::turns::{TaskTurns, TurnsReport};
use crate::source::Source;
use crate::store::{BaselineTime, ModelConfig};
use crate::task::Catalogue;
use crate::units::Digest;

/// Version of `turns.jsonl`: its first line, then a turn a line.
const FORMAT: u32 = 1;

/// What was asked: the first line of a task's file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    format: u32,
    task: String,
    task_digest: Digest,
    device: String,
    assembler: Option<String>,
    model: ModelConfig,
    seed: u64,
    turns: u32,
    baseline: Option<BaselineTime>,
}

pub(super) fn run(args: &BenchArgs, turns: u32, global: &Global) -> anyhow::Result<Exit> {
    let interrupt = super::on_interrupt()?;
    let catalogue = Catalogue::open(global.tasks.as_deref())?;
    let suite = catalogue.suite(&args.suite)?;
    let (names, _) = chosen(&suite, &args.tasks_only)?;
    let model = search::model_config(&args.model)?.context("--turns needs --model")?;
    let first = of_task(model.clone(), names.first());
    session::check_model(&first)?;
    // hard over all tasks together, earlier sessions included
    let budget = session::budget(&first)?;
    for name in &names {
        llm::recall(&args.out.join(name).join(llm::RECORDING), &budget)?;
    }
    let mut report = TurnsReport {
        suite: suite.name.clone(),
        model: model.name.clone(),
        turns,
        trajectories: args.trajectories,
        tasks: Vec::new(),
    };
    for (nth, name) in names.iter().enumerate() {
        if interrupt.load(Ordering::Relaxed) {
            break;
        }
        note(&format!("task {} of {}: {name}", nth + 1, names.len()));
        let bench = Bench {
            args,
            global,
            turns,
            name,
            model: of_task(model.clone(), Some(name)),
            budget: &budget,
        };
        let task = bench
            .run(&interrupt)
            .with_context(|| format!("task {name}"))?;
        note(&task.to_string());
        report.tasks.push(task);
        write(&args.out, &report)?;
    }
    answer(global.json, &report, &report)?;
    if interrupt.load(Ordering::Relaxed) {
        note("stopped; the same command goes on");
        return Ok(Exit::Interrupted);
    }
    let complete = report.tasks.iter().all(|task| task.stopped.is_none());
    let correct = report.tasks.iter().all(|task| task.best.is_some());
    Ok(match complete && correct {
        true => Exit::Success,
        false => Exit::No,
    })
}

fn write(folder: &Path, report: &TurnsReport) -> anyhow::Result<()> {
    for (name, text) in [
        ("turns.txt", report.to_string()),
        ("turns.json", serde_json::to_string_pretty(report)?),
        ("turns.csv", report.csv()),
    ] {
        super::write(&folder.join(name), text)?;
    }
    Ok(())
}

/// One task of the suite.
struct Bench<'a> {
    args: &'a BenchArgs,
    global: &'a Global,
    turns: u32,
    name: &'a str,
    model: ModelConfig,
    budget: &'a Arc<Budget>,
}

impl Bench<'_> {
    fn run(&self, interrupt: &AtomicBool) -> anyhow::Result<TaskTurns> {
        let folder = self.args.out.join(self.name);
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let path = folder.join("turns.jsonl");
        let (lines, written) =
            Lines::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        let (header, past) = parse(&path, &written)?;
        let log = Log(Mutex::new(lines));
        let judge = judge::open(
            Wanted {
                task: self.name,
                judge: &JudgeArgs {
                    device: self.args.judge.device.replace(TASK, self.name),
                    ..self.args.judge.clone()
                },
                seed: self.args.seed,
                secret: true,
                over: match &header {
                    Some(header) => Over::Earlier {
                        baseline: header.baseline.clone(),
                        baselines: None,
                    },
                    None => Over::Frontier,
                },
            },
            self.global,
        )?;
        let wanted = Header {
            format: FORMAT,
            task: judge.name.clone(),
            task_digest: judge.digest,
            device: judge.device.clone(),
            assembler: judge.assembler.clone(),
            model: self.model.clone(),
            seed: self.args.seed,
            turns: self.turns,
            baseline: judge.baseline.clone(),
        };
        if header.as_ref().is_some_and(|header| *header != wanted) {
            bail!(
                "{} was made with another task, device, ptxas, model, seed or number of turns; name a new folder \
                 with --out",
                path.display()
            );
        }
        if header.is_none() {
            log.append(&wanted)?;
        }
        let stopped = self.play(&judge, &folder, &past, &log, interrupt)?;
        let written = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let (_, turns) = parse(&path, &written)?;
        let baseline = wanted
            .baseline
            .as_ref()
            .map(|one| (one.name.as_str(), one.time));
        let mut told = TaskTurns::new(self.name, &turns, self.turns, baseline);
        told.gpu.clone_from(&judge.gpu_name);
        judge.times.clone_into(&mut told.times);
        told.stopped = stopped;
        if told.stopped.is_none() {
            again(&judge, &turns, &mut told)?;
        }
        Ok(told)
    }

    /// Plays what is left of every trajectory; says why not all of it was, where the model or the user stopped it.
    fn play(
        &self,
        judge: &Judge,
        folder: &Path,
        past: &[Turn],
        log: &Log,
        interrupt: &AtomicBool,
    ) -> anyhow::Result<Option<String>> {
        let task = judge
            .task
            .as_deref()
            .context("a table has no task to ask a model about")?;
        let seed = Arc::new(Source::parse(&task.seed)?);
        let record = folder.join(llm::RECORDING);
        let model = open_model(&self.model, judge, record, self.budget)?;
        let players = Players {
            task,
            seed: &seed,
            model: &model,
            evaluator: &*judge.evaluator,
        };
        let mut by_trajectory: BTreeMap<u32, Vec<Turn>> = BTreeMap::new();
        for turn in past {
            by_trajectory
                .entry(turn.trajectory)
                .or_default()
                .push(turn.clone());
        }
        for turns in by_trajectory.values_mut() {
            turns.sort_by_key(|turn| turn.turn);
        }
        let next = AtomicU32::new(0);
        let stopped: Mutex<Option<TrajectoryError>> = Mutex::new(None);
        let jobs = session::jobs(self.args.judge.jobs).min(self.args.trajectories as usize);
        let ended = || {
            let stopped = stopped.lock().unwrap_or_else(PoisonError::into_inner);
            interrupt.load(Ordering::Relaxed) || stopped.is_some()
        };
        thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    loop {
                        let trajectory = next.fetch_add(1, Ordering::Relaxed);
                        if trajectory >= self.args.trajectories || ended() {
                            return;
                        }
                        let past = by_trajectory
                            .get(&trajectory)
                            .map_or(&[][..], Vec::as_slice);
                        let keep = |turn: Turn| {
                            log.append(&turn)
                                .map(|()| !ended())
                                .map_err(|error| format!("{error:#}"))
                        };
                        if let Err(error) = play(&players, trajectory, self.turns, past, keep) {
                            let mut stopped =
                                stopped.lock().unwrap_or_else(PoisonError::into_inner);
                            stopped.get_or_insert(error);
                            return;
                        }
                    }
                });
            }
        });
        match stopped.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(
                broken @ (TrajectoryError::Rig(_)
                | TrajectoryError::Kept(_)
                | TrajectoryError::Stored(_)),
            ) => Err(broken.into()),
            _ if interrupt.load(Ordering::Relaxed) => Ok(Some("stopped by Ctrl-C".to_owned())),
            Some(TrajectoryError::Model(why)) => Ok(Some(why)),
            None => Ok(None),
        }
    }
}

/// The best kernel, judged once more and in full: the best of many draws is a lucky one.
fn again(judge: &Judge, turns: &[Turn], told: &mut TaskTurns) -> anyhow::Result<()> {
    let Some(best) = &mut told.best else {
        return Ok(());
    };
    let found = turns
        .iter()
        .find(|turn| (turn.trajectory, turn.turn) == (best.trajectory, best.turn));
    let Some(Gave::Kernel {
        source, setting, ..
    }) = found.map(|turn| &turn.gave)
    else {
        return Ok(());
    };
    let source = Source::parse(source)?;
    let point = source.space().point(setting)?;
    let verdict = judge.evaluator.confirm(&source, &point)?.verdict;
    best.again = Some(match verdict.measurement() {
        Some(measurement) => Ok(measurement.time.nanos()),
        None => Err(format!(
            "{}: {}",
            verdict.stage(),
            verdict.reason().unwrap_or_default()
        )),
    });
    Ok(())
}

/// A task's file, open for appending.
struct Log(Mutex<Lines>);

impl Log {
    fn append(&self, line: &impl Serialize) -> anyhow::Result<()> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines
            .append(line)
            .and_then(|()| lines.sync())
            .context("cannot write turns.jsonl")
    }
}

/// What a task's file says.
fn parse(path: &Path, bytes: &[u8]) -> anyhow::Result<(Option<Header>, Vec<Turn>)> {
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').zip(1_u32..);
    let fault = |number: u32| format!("{}: line {number}", path.display());
    let Some((first, number)) = lines.next() else {
        return Ok((None, Vec::new()));
    };
    let header: Header = serde_json::from_slice(first).with_context(|| fault(number))?;
    if header.format != FORMAT {
        bail!(
            "{} has format {}, this warptree reads {FORMAT}",
            path.display(),
            header.format
        );
    }
    let turns = lines
        .map(|(line, number)| serde_json::from_slice(line).with_context(|| fault(number)))
        .collect::<anyhow::Result<Vec<Turn>>>()?;
    Ok((Some(header), turns))
}
