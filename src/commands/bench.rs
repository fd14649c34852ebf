//! `bench`: searches every task of a suite, each in a run folder of its own, and reports on all of them.
//! Stopped and started again, it goes on where it stood.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, bail};

use super::judge::{self, DeviceSpec, Over, Wanted};
use super::session::{self, Session};
use super::{Exit, answer, bench_model, note, resume, search};
use crate::cli::{BenchArgs, Global, JudgeArgs, LimitArgs};
use crate::llm::{self, Budget};
use crate::propose::ProposerKind;
use crate::report::Format;
use crate::report::suite::{SuiteReport, TaskResult, finished};
use crate::search::StopRules;
use crate::store::{ModelConfig, RunConfig, RunWriter, StoredRun};
use crate::task::{Catalogue, Suite, Task};
use crate::units::counted;

/// Stands for the task's name in `--device recorded:…` and `--model replay:…`.
pub(super) const TASK: &str = "{task}";

pub(super) fn run(args: &BenchArgs, global: &Global) -> anyhow::Result<Exit> {
    if let Some(turns) = args.turns {
        return bench_model::run(args, turns, global);
    }
    let interrupt = super::on_interrupt()?;
    let catalogue = Catalogue::open(global.tasks.as_deref())?;
    let suite = catalogue.suite(&args.suite)?;
    let (chosen, left_out) = chosen(&suite, &args.tasks_only)?;
    let model = search::model_config(&args.model)?;
    let first = model.clone().map(|model| of_task(model, chosen.first()));
    if let Some(first) = &first {
        session::check_model(first)?;
    }
    let bench = Bench {
        args,
        global,
        budget: first.as_ref().map(session::budget).transpose()?,
        model,
        stop: search::stop_rules(
            &LimitArgs {
                budget: args.budget,
                time: args.time,
                target_speedup: None,
                plateau: None,
            },
            None,
        )?,
        proposers: search::proposers(args.proposers.as_deref(), args.model.model.is_some(), true)?,
    };
    let mut tasks = chosen
        .iter()
        .map(|name| {
            let task = catalogue.task(name);
            let task = task.with_context(|| format!("suite {}", suite.name))?;
            bench.check(&task)?;
            Ok(task)
        })
        .collect::<anyhow::Result<Vec<Task>>>()?;
    tasks.sort_by_key(|task| task.level);
    fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot create {}", args.out.display()))?;
    if let Some(budget) = &bench.budget {
        for task in &tasks {
            llm::recall(&bench.folder(task).join(llm::RECORDING), budget)?;
        }
    }

    let mut results: Vec<TaskResult> = tasks
        .iter()
        .map(|task| bench.result(task, None))
        .collect::<anyhow::Result<_>>()?;
    let mut errors = Vec::new();
    for (nth, task) in tasks.iter().enumerate() {
        if interrupt.load(Ordering::Relaxed) {
            break;
        }
        note(&format!(
            "task {} of {}: {}",
            nth + 1,
            tasks.len(),
            task.name
        ));
        let error = bench.search(task, &interrupt).err();
        let why = error.as_ref().map(|error| format!("{error:#}"));
        if let Some(why) = &why {
            note(&format!("{}: {why}", task.name));
        }
        errors.extend(error);
        results[nth] = bench.result(task, why)?;
        let report = SuiteReport::new(suite.name.clone(), left_out.clone(), results.clone());
        write(&args.out, &report)?;
    }
    if errors.len() == tasks.len() {
        let first = errors.swap_remove(0);
        return Err(first.context("no task could be searched to its end"));
    }
    let correct = results.iter().all(|task| task.correct() == Some(true));
    let report = SuiteReport::new(suite.name, left_out, results);
    write(&args.out, &report)?;
    answer(global.json, &report, &report)?;
    if interrupt.load(Ordering::Relaxed) {
        note("stopped; the same command goes on");
        return Ok(Exit::Interrupted);
    }
    if !errors.is_empty() {
        bail!(
            "{} of {} tasks could not be searched to their end; the same command tries them again",
            errors.len(),
            tasks.len()
        );
    }
    Ok(match correct {
        true => Exit::Success,
        false => Exit::No,
    })
}

/// The tasks wanted and those left out, in the suite's order.
pub(super) fn chosen(suite: &Suite, only: &[String]) -> anyhow::Result<(Vec<String>, Vec<String>)> {
    if let Some(stranger) = only.iter().find(|name| !suite.tasks.contains(name)) {
        bail!(
            "--tasks-only {stranger}: suite {} has no such task; it has {}",
            suite.name,
            suite.tasks.join(", ")
        );
    }
    Ok(suite
        .tasks
        .iter()
        .cloned()
        .partition(|name| only.is_empty() || only.contains(name)))
}

/// A model whose name may depend on the task.
pub(super) fn of_task(model: ModelConfig, task: Option<&String>) -> ModelConfig {
    ModelConfig {
        name: model.name.replace(TASK, task.map_or("", String::as_str)),
        ..model
    }
}

/// The report's files: for people, for scripts, for spreadsheets.
fn write(folder: &Path, report: &SuiteReport) -> anyhow::Result<()> {
    for (name, text) in [
        ("suite.txt", report.to_string()),
        ("suite.json", serde_json::to_string_pretty(report)?),
        ("tasks.csv", report.tasks_csv()),
        ("endings.csv", report.endings_csv()),
    ] {
        super::write(&folder.join(name), text)?;
    }
    Ok(())
}

/// What is asked of every task.
struct Bench<'a> {
    args: &'a BenchArgs,
    global: &'a Global,
    stop: StopRules,
    proposers: Vec<ProposerKind>,
    /// As named for all tasks.
    model: Option<ModelConfig>,
    /// What it may cost on all tasks together, earlier sessions included.
    budget: Option<Arc<Budget>>,
}

impl Bench<'_> {
    fn folder(&self, task: &Task) -> PathBuf {
        self.args.out.join(&task.name)
    }

    fn device(&self, task: &Task) -> String {
        self.args.judge.device.replace(TASK, &task.name)
    }

    fn model(&self, task: &Task) -> Option<ModelConfig> {
        let model = self.model.clone();
        model.map(|model| of_task(model, Some(&task.name)))
    }

    /// A run that is there already must be what is asked for now: results of both would stand in one table.
    fn check(&self, task: &Task) -> anyhow::Result<()> {
        let device = DeviceSpec::parse(&self.device(task))?;
        let folder = self.folder(task);
        if !folder.join("run.toml").exists() {
            return Ok(());
        }
        let RunConfig {
            task: name,
            task_digest,
            device: label,
            arch,
            proposers,
            model,
            seed,
            search,
            ..
        } = StoredRun::open(&folder)?.config;
        // a trace has the task's files of its own time
        let digest = match device {
            DeviceSpec::Recorded(_) => task_digest,
            DeviceSpec::Auto | DeviceSpec::Sim(_) | DeviceSpec::Cuda(_) => task.digest,
        };
        let difference = [
            (name != task.name || task_digest != digest, "task"),
            (label != device.label(), "device"),
            (self.args.judge.arch.unwrap_or(arch) != arch, "architecture"),
            (proposers != self.proposers, "list of proposers"),
            (model != self.model(task), "model"),
            (seed != self.args.seed, "seed"),
            (search.stop != self.stop, "budget or time"),
        ]
        .into_iter()
        .find_map(|(differs, what)| differs.then_some(what));
        match difference {
            Some(what) => bail!(
                "the run in {} was made with another {what}; name a new folder with --out",
                folder.display()
            ),
            None => Ok(()),
        }
    }

    /// Searches a task to its end, from wherever its run stands.
    fn search(&self, task: &Task, interrupt: &AtomicBool) -> anyhow::Result<()> {
        let folder = self.folder(task);
        let jobs = self.args.judge.jobs;
        let (judge, run, past) = if folder.join("run.toml").exists() {
            if finished(&StoredRun::open(&folder)?) {
                note("finished already");
                return Ok(());
            }
            let (run, past) = RunWriter::resume(&folder)?;
            let judge = resume::reopen(&run.config, jobs, self.global)?;
            note(&format!("going on after {}", counted(past.len(), "event")));
            (judge, run, past)
        } else {
            let judge = judge::open(
                Wanted {
                    task: &task.name,
                    judge: &JudgeArgs {
                        device: self.device(task),
                        ..self.args.judge.clone()
                    },
                    seed: self.args.seed,
                    secret: true,
                    over: Over::Frontier,
                },
                self.global,
            )?;
            if judge.task.is_none() {
                bail!(
                    "{} is a table of other measurements; a suite needs runs or traces of its tasks",
                    judge.device
                );
            }
            let sources = search::wanted(&judge, &[])?;
            let config = search::config(
                &judge,
                self.args.seed,
                self.global,
                &sources,
                self.proposers.clone(),
                self.model(task),
                self.stop.clone(),
            )?;
            let texts = sources.iter().map(|(_, text)| &**text);
            let run = RunWriter::create(&folder, config, texts)?;
            note(&format!(
                "searching on {} ({}): times are {}",
                judge.gpu_name, judge.device, judge.times
            ));
            (judge, run, Vec::new())
        };
        let session = Session {
            judge,
            run,
            past,
            jobs: session::jobs(jobs),
            estimator: None,
            budget: self.budget.clone(),
        };
        session.search(Format::Text, interrupt)?;
        Ok(())
    }

    fn result(&self, task: &Task, why: Option<String>) -> anyhow::Result<TaskResult> {
        let folder = self.folder(task);
        if !folder.join("run.toml").exists() {
            return Ok(TaskResult::not_run(task.name.clone(), task.level, why));
        }
        Ok(TaskResult::read(
            task.level,
            &StoredRun::open(&folder)?,
            why,
        )?)
    }
}
