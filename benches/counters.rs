//! The simulator's counters beside those of Nsight Compute, of the same kernels at the same sizes:
//! `cargo bench --bench counters`. What ncu counted on an H200 is in `benches/tables/ncu-h200.json`, the table in
//! `benches/tables/counters.txt`.
//!
//! A kernel whose blocks all fit the GPU at once runs whole; of others four blocks stand for the grid, as in the
//! program, or as many as the file asks for where blocks differ (at an image's edge, say).

use std::error::Error;
use std::sync::Arc;

use rayon::prelude::*;
use serde::Deserialize;
use warptree::device::{Device as _, Gpu, Job, Observed, SimDevice, Timing};
use warptree::evaluate::{launch_names, timed_buffers};
use warptree::sim::cost::{Constants, estimate};
use warptree::sim::{FlopCounts, executed};
use warptree::source::{Setting, Source};
use warptree::task::{Catalogue, Problem, Purpose};

#[derive(Deserialize)]
struct Recorded {
    about: String,
    kernels: Vec<Kernel>,
}

#[derive(Deserialize)]
struct Kernel {
    kernel: String,
    task: String,
    /// A space's name, or `seed`.
    source: String,
    setting: Setting,
    /// Blocks that stand for a grid whose blocks differ.
    blocks: Option<u64>,
    launches: Vec<Counters>,
}

/// Of one launch, or of a call.
#[derive(Clone, Copy, Default, Deserialize)]
struct Counters {
    fp32: f64,
    tensor: f64,
    load_sectors: f64,
    store_sectors: f64,
    atomic_sectors: f64,
    shared_wavefronts: f64,
    shared_ideal: f64,
    bulk_read: f64,
    bulk_written: f64,
}

type Of = fn(&Counters) -> f64;

/// What is compared, and how far the two may be apart.
const COMPARED: [(&str, Of, f64); 8] = [
    ("FLOPs, fp32", |c| c.fp32, 0.01),
    ("FLOPs, tensor", |c| c.tensor, 0.01),
    ("sectors loaded", |c| c.load_sectors, 0.02),
    ("sectors stored", |c| c.store_sectors, 0.02),
    ("sectors of atomics", |c| c.atomic_sectors, 0.02),
    (
        "bank conflicts",
        |c| c.shared_wavefronts - c.shared_ideal,
        0.1,
    ),
    ("bulk copies, bytes read", |c| c.bulk_read, 0.0),
    ("bulk copies, bytes written", |c| c.bulk_written, 0.0),
];

fn main() -> Result<(), Box<dyn Error>> {
    let text = std::fs::read_to_string("benches/tables/ncu-h200.json")?;
    let recorded: Recorded = serde_json::from_str(&text)?;
    let device = SimDevice::new(Gpu::default());
    println!("{}\n", recorded.about);
    println!(
        "{:<28} {:<27} {:>16} {:>16} {:>9}",
        "kernel", "counter", "ncu", "simulator", "apart"
    );
    let simulated: Vec<Result<Counters, String>> = recorded
        .kernels
        .par_iter()
        .map(|kernel| simulate(&device, kernel).map_err(|error| error.to_string()))
        .collect();
    let (mut compared, mut within) = (0, 0);
    for (kernel, simulated) in std::iter::zip(&recorded.kernels, simulated) {
        let name = &kernel.kernel;
        let simulated = simulated.map_err(|error| format!("{name}: {error}"))?;
        let measured = kernel
            .launches
            .iter()
            .fold(Counters::default(), |sum, launch| sum.plus(launch));
        for (what, of, most) in COMPARED {
            let (ncu, sim) = (of(&measured), of(&simulated));
            if ncu == 0.0 && sim == 0.0 {
                continue;
            }
            let apart = sim / ncu - 1.0;
            let agree = apart.abs() <= most;
            compared += 1;
            within += usize::from(agree);
            println!(
                "{name:<28} {what:<27} {ncu:>16.0} {sim:>16.0} {:>8.2}%{}",
                apart * 100.0,
                if agree { "" } else { "  beyond the bar" }
            );
        }
    }
    println!(
        "\n{within} of {compared} within the bar (FLOPs 1 %, sectors 2 %, conflicts 10 %, bulk bytes equal)"
    );
    Ok(())
}

impl Counters {
    fn plus(&self, other: &Self) -> Self {
        Self {
            fp32: self.fp32 + other.fp32,
            tensor: self.tensor + other.tensor,
            load_sectors: self.load_sectors + other.load_sectors,
            store_sectors: self.store_sectors + other.store_sectors,
            atomic_sectors: self.atomic_sectors + other.atomic_sectors,
            shared_wavefronts: self.shared_wavefronts + other.shared_wavefronts,
            shared_ideal: self.shared_ideal + other.shared_ideal,
            bulk_read: self.bulk_read + other.bulk_read,
            bulk_written: self.bulk_written + other.bulk_written,
        }
    }
}

fn simulate(device: &SimDevice, kernel: &Kernel) -> Result<Counters, Box<dyn Error>> {
    let task = Arc::new(Catalogue::embedded().task(&kernel.task)?);
    let size = (task.sizes.iter())
        .find(|size| size.purpose == Purpose::Bench)
        .ok_or("no size to time")?;
    let case = *task.cases.first().ok_or("no input case")?;
    let problem = Problem::new(&task, size, case, 0)?;
    let text = match kernel.source.as_str() {
        "seed" => &task.seed,
        name => {
            let space = task.spaces.iter().find(|space| space.name == name);
            &space.ok_or_else(|| format!("no space `{name}`"))?.text
        }
    };
    let source = Source::parse(text)?;
    let candidate = source.render(&source.space().point(&kernel.setting)?)?;
    let module = candidate.module.clone()?;
    let plan = candidate.plan(&launch_names(&problem, device.gpu()))?;
    let buffers = timed_buffers(&problem);
    let job = Job {
        module: &module,
        cubin: None,
        registers: &[],
        plan: &plan,
        buffers: &buffers,
        sampled: &[],
        order: 0,
    };
    // Blocks of a persistent kernel take different numbers of tiles.
    let few = |launch: &warptree::source::Launch| {
        launch.grid.iter().product::<u32>() <= device.gpu().sm_count
    };
    let observed = match kernel.blocks {
        Some(blocks) => device.observe_spread(&job, blocks),
        None if plan.launches.iter().all(few) => device.observe_whole(&job),
        None => device.observe(&job),
    };
    Ok(counters(
        device,
        &observed.map_err(|ended: Timing| format!("{ended:?}"))?,
    ))
}

fn counters(device: &SimDevice, observed: &[Observed]) -> Counters {
    let limits = device.limits();
    let constants = Constants::default();
    let works: Vec<_> = observed
        .iter()
        .map(|launch| (launch.work(), estimate(&launch.work(), &limits, &constants)))
        .collect();
    let mut flops = FlopCounts::default();
    for (work, estimate) in &works {
        flops.add(&work.counts.flops(work.program), estimate.scale);
    }
    let all = executed(&works, &limits);
    Counters {
        fp32: flops.fp32,
        tensor: flops.tensor_bf16,
        load_sectors: (all.loads.sectors + all.copies.sectors) as f64,
        store_sectors: all.stores.sectors as f64,
        atomic_sectors: all.atomics.sectors as f64,
        shared_wavefronts: all.shared.wavefronts as f64,
        shared_ideal: all.shared.ideal as f64,
        bulk_read: all.bulk_read.0 as f64,
        bulk_written: all.bulk_written.0 as f64,
    }
}
