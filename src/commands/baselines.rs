//! `baselines`: measures what a task is compared with, and prints it.

use std::sync::Arc;

use anyhow::bail;
use serde::Serialize;

use super::judge::{self, DeviceSpec};
use super::{Exit, answer, note};
use crate::cli::{BaselinesArgs, Global};
use crate::report::baselines_table;
use crate::task::Catalogue;
use crate::verdict::{Baselines, MeasuredBaseline};

#[derive(Serialize)]
struct Measured<'a> {
    task: &'a str,
    gpu: &'a str,
    /// The library as users call it.
    library: Option<String>,
    /// The fastest correct one.
    frontier: Option<String>,
    #[serde(flatten)]
    baselines: &'a Baselines,
}

pub(super) fn run(args: &BaselinesArgs, global: &Global) -> anyhow::Result<Exit> {
    let task = Arc::new(Catalogue::open(global.tasks.as_deref())?.task(&args.task)?);
    let spec = DeviceSpec::parse(&args.judge.device)?;
    if let DeviceSpec::Recorded(_) = spec {
        bail!("a table measures nothing; name a GPU: --device cuda:0");
    }
    let (device, label, _) = judge::open_device(&spec)?;
    let gpu = device.gpu().clone();
    if device.cuda().is_none() {
        bail!(
            "{label} is no GPU: baselines are measured, never estimated; name one: --device cuda:0"
        );
    }
    let arch = args.judge.arch.unwrap_or(gpu.arch);
    let (pipeline, _) = judge::open_pipeline(&task, device, arch, args.seed, false, None, global)?;
    let Some(baselines) = pipeline.measure_baselines(&note)? else {
        bail!("{label} is no GPU");
    };
    let title = |one: Option<&MeasuredBaseline>| one.map(MeasuredBaseline::title);
    let measured = Measured {
        task: &task.name,
        gpu: &gpu.name,
        library: title(baselines.library()),
        frontier: title(baselines.frontier()),
        baselines,
    };
    let text = format!(
        "{} at {} on {}\n{}",
        task.name,
        pipeline.timed_problem().label(),
        gpu.name,
        baselines_table(baselines, None)
    );
    answer(global.json, text, &measured)?;
    Ok(match baselines.frontier() {
        Some(_) => Exit::Success,
        None => Exit::No,
    })
}
