//! `selftest --adversarial`: the ordinary judge judges the planted kernels; a table of what came of them.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, bail};
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use rayon::prelude::*;
use serde::Serialize;

use super::judge::{self, DeviceSpec};
use super::{Exit, answer, session};
use crate::cli::{Global, SelftestArgs};
use crate::evaluate::{Evaluator, Pipeline};
use crate::source::Source;
use crate::task::adversarial::{self, Adversary, Outcome, Plant, PlantKind};
use crate::task::mistakes::DeviceKind;
use crate::verdict::{Verdict, feedback};

/// Longest text of an unexpected verdict.
const TEXT_LIMIT: usize = 1200;

/// What came of all planted kernels.
#[derive(Serialize)]
struct Trial {
    device: String,
    gpu: String,
    false_accepts: usize,
    false_rejects: usize,
    caught_otherwise: usize,
    judged: Vec<Judged>,
}

/// What came of one.
#[derive(Serialize)]
struct Judged {
    task: String,
    name: String,
    kind: PlantKind,
    why: String,
    #[serde(flatten)]
    outcome: Outcome,
    /// Where the verdict ended.
    stage: Option<&'static str>,
    seconds: f64,
    /// The verdict's text, where it is not as expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    feedback: Option<String>,
}

pub(super) fn run(args: &SelftestArgs, global: &Global) -> anyhow::Result<Exit> {
    let spec = DeviceSpec::parse(&args.judge.device)?;
    if let DeviceSpec::Recorded(_) = spec {
        bail!("--device {}: a table judges no kernel", args.judge.device);
    }
    let (device, label, simulated) = judge::open_device(&spec)?;
    let gpu = device.gpu().clone();
    let arch = args.judge.arch.unwrap_or(gpu.arch);
    let kind = if simulated {
        DeviceKind::Sim
    } else {
        DeviceKind::Cuda
    };
    let seed = args.seed.unwrap_or_else(judge::secret_seed);
    let threads = rayon::ThreadPoolBuilder::new()
        .num_threads(session::jobs(args.judge.jobs))
        .build()
        .context("cannot start threads")?;
    let mut judged = Vec::new();
    for mut adversary in adversarial::catalogue()? {
        let name = adversary.task.name.clone();
        adversary
            .plants
            .retain(|plant| wanted(&args.only, &format!("{name}/{}", plant.name)));
        if !adversary.plants.is_empty() {
            let task = &adversary.task;
            let device = Arc::clone(&device);
            let logs = args.judge.tool_logs.as_deref();
            let (pipeline, _) =
                judge::open_pipeline(task, device, arch, seed, simulated, logs, global)?;
            judged.extend(threads.install(|| try_all(&pipeline, kind, &adversary))?);
        }
    }
    if judged.is_empty() {
        bail!(
            "--only {}: no planted kernel of this name",
            args.only.join(" --only ")
        );
    }
    let count = |is: fn(&Outcome) -> bool| judged.iter().filter(|j| is(&j.outcome)).count();
    let trial = Trial {
        false_accepts: count(|o| matches!(o, Outcome::FalseAccept)),
        false_rejects: count(|o| matches!(o, Outcome::FalseReject)),
        caught_otherwise: count(|o| matches!(o, Outcome::CaughtOtherwise(_))),
        gpu: gpu.name,
        device: label,
        judged,
    };
    answer(global.json, &trial, &trial)?;
    Ok(if trial.false_accepts + trial.false_rejects == 0 {
        Exit::Success
    } else {
        Exit::No
    })
}

fn wanted(only: &[String], name: &str) -> bool {
    only.is_empty() || only.iter().any(|part| name.contains(part.as_str()))
}

fn try_all(
    pipeline: &Pipeline,
    kind: DeviceKind,
    adversary: &Adversary,
) -> anyhow::Result<Vec<Judged>> {
    adversary
        .plants
        .par_iter()
        .map(|plant| try_one(pipeline, kind, &adversary.task.name, plant))
        .collect()
}

fn try_one(
    pipeline: &Pipeline,
    kind: DeviceKind,
    task: &str,
    plant: &Plant,
) -> anyhow::Result<Judged> {
    let started = Instant::now();
    let (outcome, verdict) = if plant.judged_by(kind) {
        let verdict = verdict(pipeline, plant)
            .with_context(|| format!("planted kernel {task}/{}", plant.name))?;
        (plant.outcome(&verdict), Some(verdict))
    } else {
        (Outcome::NotJudgedHere, None)
    };
    let unexpected = !matches!(outcome, Outcome::AsExpected);
    Ok(Judged {
        task: task.to_owned(),
        name: plant.name.clone(),
        kind: plant.kind,
        why: plant.expect.why.clone(),
        stage: verdict.as_ref().map(Verdict::stage),
        seconds: started.elapsed().as_secs_f64(),
        feedback: verdict
            .filter(|_| unexpected)
            .map(|verdict| feedback(&verdict, &plant.text, TEXT_LIMIT)),
        outcome,
    })
}

/// As for a claim: nothing is skipped.
fn verdict(pipeline: &Pipeline, plant: &Plant) -> anyhow::Result<Verdict> {
    let source = Source::parse(&plant.text)?;
    let point = source.space().default_point()?;
    Ok(pipeline.confirm(&source, &point)?.verdict)
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(NOTHING);
        table.set_header(["planted", "kind", "verdict", "outcome", "seconds"]);
        for judged in &self.judged {
            table.add_row([
                format!("{}/{}", judged.task, judged.name),
                match judged.kind {
                    PlantKind::Cheat => "cheat".to_owned(),
                    PlantKind::Honest => "honest".to_owned(),
                },
                judged.stage.unwrap_or("-").to_owned(),
                match &judged.outcome {
                    Outcome::AsExpected => "ok".to_owned(),
                    Outcome::FalseAccept => "FALSE ACCEPT".to_owned(),
                    Outcome::FalseReject => "FALSE REJECT".to_owned(),
                    Outcome::CaughtOtherwise(difference) => {
                        format!("caught otherwise: {difference}")
                    }
                    Outcome::NotJudgedHere => "not judged here".to_owned(),
                },
                format!("{:.2}", judged.seconds),
            ]);
        }
        writeln!(f, "{}", table)?;
        for judged in &self.judged {
            if let Some(feedback) = &judged.feedback {
                writeln!(
                    f,
                    "\n{}/{}: {}\n{feedback}",
                    judged.task, judged.name, judged.why
                )?;
            }
        }
        let of = |kind| self.judged.iter().filter(|j| j.kind == kind).count();
        let skipped = |j: &&Judged| matches!(j.outcome, Outcome::NotJudgedHere);
        writeln!(
            f,
            "\n{} cheats and {} honest kernels on {} ({}), {} not judged here: {} false accepts, {} false rejects, \
             {} caught otherwise",
            of(PlantKind::Cheat),
            of(PlantKind::Honest),
            self.device,
            self.gpu,
            self.judged.iter().filter(skipped).count(),
            self.false_accepts,
            self.false_rejects,
            self.caught_otherwise
        )
    }
}
