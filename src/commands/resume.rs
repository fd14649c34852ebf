//! `resume`: goes on with a run that was stopped, exactly where it stood.

use anyhow::bail;

use super::judge::{self, Judge, Over, Wanted};
use super::session::{self, Session};
use super::{Exit, note, search};
use crate::cli::{Global, JudgeArgs, LimitArgs, ResumeArgs};
use crate::driver::{Fold, FoldError};
use crate::search::StopRules;
use crate::store::{Event, Line, RunConfig, RunWriter};

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
    let stop = new_limits(&args.limits, &run, &past)?;
    let judge = reopen(&config, args.jobs, global)?;
    let limited = stop.is_some();
    if let Some(stop) = stop {
        run.set_stop(stop)?;
    }
    let finished = past.iter().rev().find_map(|line| match &line.event {
        Event::Finished { reason } => Some(Some(*reason)),
        Event::Evaluated { .. }
        | Event::Expanded { .. }
        | Event::Retimed { .. }
        | Event::Confirmed { .. } => Some(None),
        Event::ExpandFailed { .. } | Event::Away { .. } | Event::Unavailable { .. } => None,
    });
    if let (Some(Some(reason)), false) = (finished, limited) {
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

/// The stop rules that replace those of a run, where any limit is given. A run is never given less than it has
/// used: what it judged could not have come about so, and it could not go on.
fn new_limits(
    limits: &LimitArgs,
    run: &RunWriter,
    past: &[Line],
) -> anyhow::Result<Option<StopRules>> {
    let LimitArgs {
        budget,
        time,
        target_speedup,
        plateau,
    } = limits;
    let more = budget.is_some() || time.is_some();
    if !more && target_speedup.is_none() && plateau.is_none() {
        return Ok(None);
    }
    let before = &run.config.search.stop;
    let baseline = run.config.baseline.as_ref().map(|baseline| baseline.time);
    let mut stop = search::stop_rules(limits, baseline)?;
    if !more {
        stop.evaluations = before.evaluations;
        stop.time = before.time;
    }
    if let Err(FoldError::Diverged { seq, .. }) = replay(run, past, &stop) {
        replay(run, past, before)?;
        bail!(
            "{} went further than these limits allow: they end it before event {seq} of its {}. Give it at least \
             what it has used; what it was given is under [search.stop] in its run.toml",
            run.folder.display(),
            past.len()
        );
    }
    Ok(Some(stop))
}

/// Whether the log is one that a run under these stop rules writes.
fn replay(run: &RunWriter, past: &[Line], stop: &StopRules) -> Result<(), FoldError> {
    let mut config = run.config.clone();
    config.search.stop = stop.clone();
    let mut fold = Fold::new(&config, &run.objects)?;
    past.iter()
        .try_for_each(|line| fold.replay(line, &run.objects))
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
