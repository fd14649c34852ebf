//! `check`: whether an exported kernel is still what its certificate says, on this machine.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use serde::Serialize;

use super::judge::{self, DeviceSpec};
use super::{Exit, answer, note};
use crate::check::{self, Asked, Assembled, Bench, Bundle, Report};
use crate::cli::{CheckArgs, Global};
use crate::device::{Gpu, cuda};
use crate::evaluate::Pipeline;
use crate::evaluate::ptxas::Assembler;
use crate::task::{Catalogue, Task};

#[derive(Serialize)]
struct Found<'a> {
    passed: bool,
    #[serde(flatten)]
    report: &'a Report,
}

pub(super) fn run(args: &CheckArgs, global: &Global) -> anyhow::Result<Exit> {
    let folder = &args.dir;
    if !folder.is_dir() {
        bail!(
            "{} is no folder; name the one that `warptree export` wrote",
            folder.display()
        );
    }
    if folder.join("run.toml").exists() {
        bail!(
            "{0} is a run; export its winner first: warptree export {0} --to KERNEL, then check KERNEL",
            folder.display()
        );
    }
    if let DeviceSpec::Recorded(_) = DeviceSpec::parse(&args.device)? {
        bail!(
            "--device {}: a table judges no kernel; name sim or a GPU",
            args.device
        );
    }
    let mut report = Report::new(folder.clone());
    if let Some(bundle) = Bundle::read(folder, &mut report.checks) {
        look(args, global, &bundle, &mut report)?;
    }
    if let Some(path) = &args.junit {
        let xml = check::junit(&report).context("cannot write JUnit XML")?;
        super::write(path, xml)?;
    }
    let passed = report.passed();
    let found = Found {
        passed,
        report: &report,
    };
    answer(global.json, &report, &found)?;
    Ok(if passed { Exit::Success } else { Exit::No })
}

/// All that needs tools: task, assembler, judge.
fn look(
    args: &CheckArgs,
    global: &Global,
    bundle: &Bundle,
    report: &mut Report,
) -> anyhow::Result<()> {
    let certificate = &bundle.certificate;
    let confirmed = if certificate.confirmed {
        ""
    } else {
        ", not confirmed in full there"
    };
    report.certified = Some(format!(
        "{} certified by warptree {} on {} ({}){confirmed}",
        certificate.task, certificate.warptree, certificate.gpu, certificate.device
    ));
    let task = Catalogue::open(global.tasks.as_deref())
        .and_then(|catalogue| catalogue.task(&certificate.task))
        .map(Arc::new)
        .map_err(|error| error.to_string());
    let at_hand = task.as_deref().map_err(Clone::clone);
    report.checks.push(check::same_task(certificate, at_hand));
    let assembler = Assembler::new(judge::find_ptxas(global)?);
    let (assembled, assembly) = check::assembly(bundle, &assembler)?;
    report.checks.push(assembly);

    let spec = DeviceSpec::parse(&device(&args.device, &certificate.gpu))?;
    let asked = Asked {
        min_speedup: args.min_speedup,
        baselines: !args.no_baselines,
    };
    let judged = match (&bundle.intact, &task) {
        (Some(_), _) if assembled == Assembled::Foreign => {
            Err("kernel.cubin is not what ptxas makes of kernel.ptx, so it was not run")
        }
        (Some((source, point)), Ok(task)) => {
            Ok((source, point, judges(&spec, task, bundle, global)?))
        }
        (None, _) => Err("the files are not what was certified, so nothing of them was run"),
        (Some(_), Err(_)) => Err("there is no task to judge it by"),
    };
    let benches: Result<Vec<Bench<'_>>, String> = match &judged {
        Ok((source, point, judges)) => Ok(judges
            .iter()
            .map(|judge| Bench {
                bundle,
                source,
                point,
                pipeline: &judge.pipeline,
                device: &judge.device,
                gpu: &judge.gpu,
                simulated: judge.simulated,
                assembled,
            })
            .collect()),
        Err(why) => Err((*why).to_owned()),
    };
    let (benches, first) = match &benches {
        Ok(benches) => (
            benches.as_slice(),
            benches
                .first()
                .ok_or_else(|| "no GPU judges here".to_owned()),
        ),
        Err(why) => (&[][..], Err(why.clone())),
    };
    report.device = first.as_ref().ok().map(|bench| bench.device.to_owned());
    check::judge(first, asked, report, &note)?;
    report.checks.extend(check::architectures(
        bundle,
        &args.arch,
        task.as_deref().ok(),
        &assembler,
        benches,
    )?);
    Ok(())
}

/// Who judges on one device.
struct Judge {
    pipeline: Pipeline,
    device: String,
    gpu: Gpu,
    simulated: bool,
}

/// The first judges in full, the others time.
fn judges(
    spec: &DeviceSpec,
    task: &Arc<Task>,
    bundle: &Bundle,
    global: &Global,
) -> anyhow::Result<Vec<Judge>> {
    let certificate = &bundle.certificate;
    let open = |spec: &DeviceSpec| -> anyhow::Result<Judge> {
        let (device, label, simulated) = judge::open_device(spec)?;
        let gpu = device.gpu().clone();
        let arch = certificate.arch;
        let arch = if arch.runs_on(gpu.arch) {
            arch
        } else {
            gpu.arch
        };
        // inputs that nobody chose: no kernel can be written for the hash of its own machine code
        let seed = certificate.cubin.seed();
        let (pipeline, _) =
            judge::open_pipeline(task, device, arch, seed, simulated, None, global)?;
        Ok(Judge {
            pipeline,
            device: label,
            gpu,
            simulated,
        })
    };
    spec.each()?.iter().map(open).collect()
}

/// The simulator stands for the certified GPU, where it knows that one.
fn device(wanted: &str, certified: &str) -> String {
    let simulated = wanted == "sim" || (wanted == "auto" && !cuda::driver_present());
    if simulated && Gpu::named(certified).is_ok() {
        format!("sim:{certified}")
    } else {
        wanted.to_owned()
    }
}
