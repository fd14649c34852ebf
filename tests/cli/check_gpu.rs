//! What a check does on a GPU, with a device in its place that runs kernels as the simulator does and gives
//! each machine code a measured time: the cubin that was exported is what runs, every architecture of the
//! GPU's kind is timed, and so is what the driver makes of the PTX.

use std::path::Path;
use std::sync::{Arc, Mutex};

use warptree::check::{
    Asked, Assembled, Bench, Bundle, Check, Outcome, Report, architectures, assembly, judge,
};
use warptree::device::{About, Device, Execution, Gpu, Job, RigError, SimDevice, Timed, Timing};
use warptree::evaluate::ptxas::Assembler;
use warptree::evaluate::{Pipeline, Settings};
use warptree::task::{Catalogue, Task};
use warptree::toolchain::{self, Network, Places};
use warptree::units::{Nanos, SmArch};
use warptree::verdict::Time;

/// Stands for a GPU.
struct Pretended {
    inner: SimDevice,
    certified: Vec<u8>,
    /// The driver is too old for what is not the certified cubin.
    old: bool,
    timed: Mutex<Vec<&'static str>>,
}

const CERTIFIED: &str = "the certified cubin";
const CUBIN: &str = "another cubin";
const TEXT: &str = "PTX text";

impl Pretended {
    fn kind(&self, job: &Job<'_>) -> &'static str {
        match job.cubin.expect("a GPU runs machine code") {
            image if image == self.certified => CERTIFIED,
            image if image.starts_with(b"\x7fELF") => CUBIN,
            _ => TEXT,
        }
    }
}

impl Device for Pretended {
    fn gpu(&self) -> &Gpu {
        self.inner.gpu()
    }

    fn about(&self) -> &About {
        self.inner.about()
    }

    fn execute(&self, job: &Job<'_>) -> Result<Execution, RigError> {
        if self.old && self.kind(job) == TEXT {
            return Err(RigError::Device {
                device: "cuda:0".to_owned(),
                message: "the driver does not load the module".to_owned(),
            });
        }
        self.inner.execute(job)
    }

    fn time(&self, job: &Job<'_>) -> Result<Timing, RigError> {
        let kind = self.kind(job);
        self.timed.lock().expect("whole").push(kind);
        let ns = match kind {
            CERTIFIED => 1.0e6,
            CUBIN => 1.1e6,
            _ => 1.2e6,
        };
        Ok(Timing::Timed(Box::new(Timed {
            time: Time::Measured {
                median: Nanos::new(ns).expect("positive"),
                samples: vec![ns],
                gpu: self.gpu().name.clone(),
            },
            diagnosis: None,
            floor: None,
            unsteady: Vec::new(),
            violations: Vec::new(),
            left: Vec::new(),
            afterwards: None,
            notes: Vec::new(),
        })))
    }
}

/// Checks the export in `scratch` on these GPUs; what each timed, in order, comes back too.
fn looked_at(
    scratch: &Path,
    gpus: &[&str],
    old: bool,
    named: &[SmArch],
) -> (Report, Vec<&'static str>) {
    let folder = scratch.join("kernel");
    let mut report = Report::new(folder.clone());
    let bundle = Bundle::read(&folder, &mut report.checks).expect("a certificate");
    let catalogue = Catalogue::embedded();
    let task: Arc<Task> = Arc::new(catalogue.task("transpose").expect("there"));
    let tool = toolchain::ptxas(&Places::from_environment(None), Network::Allowed, &|_| ());
    let assembler = Assembler::new(tool.expect("is there"));
    let devices: Vec<Arc<Pretended>> = gpus
        .iter()
        .map(|name| {
            Arc::new(Pretended {
                inner: SimDevice::new(Gpu::named(name).expect("known")),
                certified: bundle.cubin.clone().expect("there"),
                old,
                timed: Mutex::default(),
            })
        })
        .collect();
    let pipelines: Vec<Pipeline> = devices
        .iter()
        .map(|device| {
            Pipeline::new(Settings {
                task: Arc::clone(&task),
                device: Arc::<Pretended>::clone(device),
                assembler: assembler.clone(),
                ptxas_options: Vec::new(),
                arch: device.gpu().arch,
                verify_seed: 1,
                repeats: 1,
                deterministic: false,
            })
            .expect("judges")
        })
        .collect();
    let (source, point) = bundle.intact.as_ref().expect("whole");
    let (assembled, _) = assembly(&bundle, &assembler).expect("runs");
    assert_eq!(assembled, Assembled::Same);
    let benches: Vec<Bench<'_>> = pipelines
        .iter()
        .zip(&devices)
        .zip(["cuda:0", "cuda:1"])
        .map(|((pipeline, device), label)| Bench {
            bundle: &bundle,
            source,
            point,
            pipeline,
            device: label,
            gpu: device.gpu(),
            simulated: false,
            assembled,
        })
        .collect();
    let asked = Asked {
        min_speedup: None,
        baselines: false,
    };
    judge(Ok(&benches[0]), asked, &mut report, &|_| ()).expect("judges");
    let looked = architectures(&bundle, named, Some(&task), &assembler, &benches);
    report.checks.extend(looked.expect("assembles"));
    let timed = |device: &Arc<Pretended>| device.timed.lock().expect("whole").clone();
    (report, devices.iter().flat_map(timed).collect())
}

fn named<'a>(report: &'a Report, name: &str) -> &'a Check {
    let mut checks = report.checks.iter();
    checks.find(|check| check.name == name).expect("looked at")
}

#[test]
fn the_exported_cubin_runs_and_every_code_of_the_gpu_is_timed() {
    let scratch = tempfile::tempdir().expect("scratch");
    super::check::exported(scratch.path());
    let (report, timed) = looked_at(scratch.path(), &["H200"], false, &[]);
    assert!(report.passed(), "{report}");
    // the seed, which is the certified kernel; the kernel; sm_90; the same PTX by the driver
    assert_eq!(timed, [CERTIFIED, CERTIFIED, CUBIN, TEXT]);
    let verification = &named(&report, "verification").detail;
    assert!(
        verification.ends_with("the GPU ran kernel.cubin itself"),
        "{verification}"
    );
    let time = named(&report, "time");
    assert_eq!(time.outcome, Outcome::NotDone, "an estimate was certified");
    let hopper = &named(&report, "sm_90").detail;
    assert!(
        hopper.ends_with("; cubin 1.100 ms measured; PTX compiled by the driver 1.200 ms measured"),
        "{hopper}"
    );
    assert!(
        named(&report, "sm_80")
            .detail
            .ends_with("no such GPU judges here")
    );
}

#[test]
fn a_driver_that_takes_no_such_ptx_is_told_and_fails_what_was_named() {
    let scratch = tempfile::tempdir().expect("scratch");
    super::check::exported(scratch.path());
    let named_arch = "sm_90".parse().expect("an architecture");
    let (report, _) = looked_at(scratch.path(), &["H200"], true, &[named_arch]);
    let hopper = named(&report, "sm_90");
    assert_eq!(hopper.outcome, Outcome::NotDone);
    assert!(
        hopper
            .detail
            .contains("driver not measured: the driver does not load"),
        "{hopper:?}"
    );
    assert!(hopper.required && !report.passed());
    assert_eq!(named(&report, "verification").outcome, Outcome::Pass);
}

#[test]
fn every_gpu_here_times_the_code_of_its_kind() {
    let scratch = tempfile::tempdir().expect("scratch");
    super::check::exported(scratch.path());
    let (report, timed) = looked_at(scratch.path(), &["H200", "A100"], false, &[]);
    assert!(report.passed(), "{report}");
    // the A100 takes code of sm_80 alone, which the H200 does not take; its driver compiles the PTX for it
    assert_eq!(timed, [CERTIFIED, CERTIFIED, CUBIN, TEXT, CUBIN, TEXT]);
    let hopper = &named(&report, "sm_90").detail;
    assert!(
        hopper.contains("; on cuda:0 (NVIDIA H200); cubin 1.100 ms measured"),
        "{hopper}"
    );
    let ampere = &named(&report, "sm_80").detail;
    assert!(
        ampere.contains("; on cuda:1 (") && ampere.ends_with("driver 1.200 ms measured"),
        "{ampere}"
    );
}
