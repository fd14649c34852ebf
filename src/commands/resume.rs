//! `resume`: goes on with a run that was stopped, exactly where it stood.

use anyhow::bail;

use super::judge::{self, Judge, Over, Wanted};
use super::session::{self, Session};
use super::{Exit, note, search};
use crate::cli::{Global, JudgeArgs, ResumeArgs};
use crate::store::{Event, RunConfig, RunWriter};

pub(super) fn run(args: &ResumeArgs, global: &Global) -> anyhow::Result<Exit> {
    let interrupt = super::on_interrupt()?;
    let (mut run, past) = RunWriter::resume(&args.dir)?;
    let config = run.config.clone();
    if config.proposers.is_empty() {
        bail!(
            "{} is a batch; the `warptree batch` command that began it goes on with it",
            args.dir.display()
        );
    }
    if config.warptree != env!("CARGO_PKG_VERSION") {
        note(&format!(
            "the run was made by warptree {}; this is {}",
            config.warptree,
            env!("CARGO_PKG_VERSION")
        ));
    }
    let judge = reopen(&config, args.jobs, global)?;
    let limits = &args.limits;
    let new_limits = limits.budget.is_some()
        || limits.time.is_some()
        || limits.plateau.is_some()
        || limits.target_speedup.is_some();
    if new_limits {
        let baseline = config.baseline.as_ref().map(|baseline| baseline.time);
        run.set_stop(search::stop_rules(limits, baseline)?)?;
    }
    let finished = past.iter().rev().find_map(|line| match &line.event {
        Event::Finished { reason } => Some(Some(*reason)),
        Event::Evaluated { .. }
        | Event::Expanded { .. }
        | Event::Retimed { .. }
        | Event::Confirmed { .. } => Some(None),
        Event::ExpandFailed { .. } | Event::Away { .. } | Event::Unavailable { .. } => None,
    });
    if let (Some(Some(reason)), false) = (finished, new_limits) {
        note(&format!(
            "the run has ended ({reason}); --budget or --time gives it more"
        ));
    }
    let jobs = session::jobs(args.jobs);
    let estimator = judge::estimator(&judge, &run.config, global)?;
    Session {
        judge,
        run,
        past,
        jobs,
        estimator,
        budget: None,
    }
    .drive(global.json, &interrupt)
}

/// The judge of a run that goes on: what judged it before, or an error that says what changed.
pub(super) fn reopen(
    config: &RunConfig,
    jobs: Option<usize>,
    global: &Global,
) -> anyhow::Result<Judge> {
    let mut global = global.clone();
    global.tasks = global.tasks.or_else(|| config.tasks_dir.clone());
    let judge_args = JudgeArgs {
        tool_logs: None,
        device: config.device.clone(),
        arch: Some(config.arch),
        jobs,
    };
    let judge = judge::open(
        Wanted {
            task: &config.task,
            judge: &judge_args,
            seed: config.seed,
            secret: true,
            over: Over::Earlier {
                baseline: config.baseline.clone(),
                baselines: config.baselines.clone(),
            },
        },
        &global,
    )?;
    if judge.digest != config.task_digest {
        bail!(
            "task {} changed since the run began (its files hash to {}, then to {}); verdicts of both would \
             mix. Put the old files back, or start a new search",
            config.task,
            judge.digest.short(),
            config.task_digest.short()
        );
    }
    if judge.assembler != config.assembler {
        bail!(
            "the run was assembled by {}, here is {}; other machine code would mix with the old. Name the old \
             one with --ptxas, or start a new search",
            config.assembler.as_deref().unwrap_or("nothing"),
            judge.assembler.as_deref().unwrap_or("nothing")
        );
    }
    if judge.gpu_name != config.gpu {
        bail!(
            "the run was judged on {}, here is {}; start a new search",
            config.gpu,
            judge.gpu_name
        );
    }
    Ok(judge)
}
