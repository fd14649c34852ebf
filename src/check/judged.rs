//! The kernel before a judge: the task it was certified for, the assembler here, a full verification of the
//! very cubin, its time beside the certified one, and what it is worth against the seed and the frontier.

use super::worth::Worth;
use super::{Bundle, Check, Outcome, Report};
use crate::device::{Gpu, RigError};
use crate::evaluate::ptxas::{Assembler, Cubin};
use crate::evaluate::{Aim, Evaluator as _, Pipeline};
use crate::export::Certificate;
use crate::source::{Point, Source};
use crate::task::Task;
use crate::verdict::{Claim, Resources, Time, Verdict};

/// What is wanted of its speed.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Least speedup; without it none is required.
    pub min_speedup: Option<f64>,
    /// Measure the task's baselines, where there is a GPU.
    pub baselines: bool,
}

/// A kernel whose files are what was certified, and who judges it here.
pub struct Bench<'a> {
    /// The files.
    pub bundle: &'a Bundle,
    /// The source that gives the kernel.
    pub source: &'a Source,
    /// With this setting.
    pub point: &'a Point,
    /// The judge.
    pub pipeline: &'a Pipeline,
    /// `sim:H200`, `cuda:0`.
    pub device: &'a str,
    /// The GPU that judges or is stood for.
    pub gpu: &'a Gpu,
    /// It is the simulator.
    pub simulated: bool,
    /// What ptxas here made of the PTX.
    pub assembled: Assembled,
}

/// Whether the task at hand is the one certified.
pub fn same_task(certificate: &Certificate, task: Result<&Task, String>) -> Check {
    let (outcome, detail) = match task {
        Err(why) => (
            Outcome::Fail,
            format!("the certified task `{}`: {why}", certificate.task),
        ),
        Ok(task) if task.digest == certificate.task_digest => (
            Outcome::Pass,
            format!(
                "{}, its files hash to {} as certified",
                task.name,
                task.digest.short()
            ),
        ),
        Ok(task) => (
            Outcome::Fail,
            format!(
                "the task `{}` at hand is not the one certified: its files hash to {}, those to {}; --tasks \
                 names the folder that has them. What follows is judged by the one at hand",
                task.name,
                task.digest.short(),
                certificate.task_digest.short()
            ),
        ),
    };
    Check::required("task", outcome, detail)
}

/// What ptxas here makes of `kernel.ptx`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assembled {
    /// The certified cubin, byte for byte.
    Same,
    /// Another one, as another version of ptxas may.
    Other,
    /// None, or not the one that this very version should make: the cubin is not to be trusted.
    Foreign,
    /// A file is not there.
    NotDone,
}

/// Whether ptxas here makes of `kernel.ptx` what was certified.
pub fn assembly(bundle: &Bundle, assembler: &Assembler) -> Result<(Assembled, Check), RigError> {
    let (assembled, detail) = assemble(bundle, assembler)?;
    let outcome = match assembled {
        Assembled::Same | Assembled::Other => Outcome::Pass,
        Assembled::Foreign => Outcome::Fail,
        Assembled::NotDone => Outcome::NotDone,
    };
    Ok((assembled, Check::required("assembly", outcome, detail)))
}

fn assemble(bundle: &Bundle, assembler: &Assembler) -> Result<(Assembled, String), RigError> {
    let certificate = &bundle.certificate;
    let (Some(ptx), Some(certified)) = (&bundle.ptx, &bundle.cubin) else {
        let why = "kernel.ptx and kernel.cubin are not both here";
        return Ok((Assembled::NotDone, why.to_owned()));
    };
    let arch = certificate.arch;
    let here = format!("ptxas {}", assembler.tool().version);
    let then = certificate.assembler.as_deref();
    Ok(match assembler.assemble(ptx, arch, &[])?.into_cubin(Some) {
        Err(verdict) => (
            Assembled::Foreign,
            format!("{here} for {arch}: {}", refusal(&verdict)),
        ),
        Ok(cubin) if *cubin.bytes == **certified => (
            Assembled::Same,
            format!("{here} makes kernel.cubin of kernel.ptx for {arch}, byte for byte"),
        ),
        Ok(_) if then == Some(&here) => (
            Assembled::Foreign,
            format!(
                "{here}, the version that was certified, makes another cubin of kernel.ptx for {arch}: \
                 kernel.cubin does not come from it"
            ),
        ),
        Ok(_) => (
            Assembled::Other,
            format!(
                "{here} assembles kernel.ptx for {arch}; kernel.cubin came from {}, so its bytes may differ, \
                 and do",
                then.unwrap_or("another")
            ),
        ),
    })
}

/// Verifies and times the certified cubin, and sets it against the seed and the frontier of the same
/// process. `tell` hears what comes next.
pub fn judge(
    bench: Result<&Bench<'_>, String>,
    asked: Asked,
    report: &mut Report,
    tell: &dyn Fn(&str),
) -> Result<(), RigError> {
    let bench = match bench.and_then(Bench::fits) {
        Ok(bench) => bench,
        Err(why) => {
            let checks = &mut report.checks;
            checks.push(Check::required("verification", Outcome::NotDone, &*why));
            checks.push(Check::told("time", Outcome::NotDone, &*why));
            checks.push(speedup_check(asked, Outcome::NotDone, why));
            return Ok(());
        }
    };
    let pipeline = bench.pipeline;
    let baselines = if asked.baselines {
        pipeline.measure_baselines(tell)?.cloned()
    } else {
        None
    };
    let seed = pipeline.judge_seed()?;
    let seed = seed.verdict.measurement().map(|m| m.time.nanos());
    tell("verifying kernel.cubin in full");
    let certificate = &bench.bundle.certificate;
    let cubin = bench.bundle.cubin.as_deref().unwrap_or_default();
    let verdict = match bench.verdict(Aim::Claim, cubin, &certificate.resources) {
        Ok(verdict) => verdict,
        // the device stands, the seed ran on it: this is about the cubin
        Err(RigError::Device { message, .. }) => {
            let why = "kernel.cubin did not come to run";
            let checks = &mut report.checks;
            checks.push(Check::required("verification", Outcome::Fail, message));
            checks.push(Check::told("time", Outcome::NotDone, why));
            checks.push(speedup_check(asked, Outcome::NotDone, why.to_owned()));
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    report.checks.push(bench.verification(&verdict));
    let Some(measurement) = verdict.measurement() else {
        let why = "it did not pass the verification";
        report
            .checks
            .push(Check::told("time", Outcome::NotDone, why));
        report
            .checks
            .push(speedup_check(asked, Outcome::NotDone, why.to_owned()));
        return Ok(());
    };
    report.checked = measurement.checked.clone();
    report.not_checked = measurement.not_checked.clone();
    let (outcome, detail) = compared(&certificate.time, &measurement.time);
    report.checks.push(Check::told("time", outcome, detail));
    let claim = bench.claim(tell)?;
    report.checks.push(claim_check(&claim));
    let claim = claim.ok();
    let time = measurement.time.nanos();
    let worth = Worth::of(time, seed, baselines.as_ref(), claim.as_ref());
    let label = measurement.time.label();
    report.checks.push(match &worth {
        None => speedup_check(
            asked,
            Outcome::NotDone,
            "the task's own seed is not valid here, and no baseline was measured".to_owned(),
        ),
        Some(worth) => {
            let enough = asked.min_speedup.is_none_or(|least| worth.ratio() >= least);
            let outcome = if enough { Outcome::Pass } else { Outcome::Fail };
            speedup_check(asked, outcome, worth.sentence(label, asked.min_speedup))
        }
    });
    report.advice = worth.and_then(|worth| worth.advice(asked.min_speedup));
    report.claim = claim;
    Ok(())
}

/// The final measurement, or why there is none.
fn claim_check(claim: &Result<Claim, String>) -> Check {
    let claim = match claim {
        Ok(claim) => claim,
        Err(why) => return Check::told("claim", Outcome::NotDone, why.as_str()),
    };
    if let Some(flaw) = claim.flaws.first() {
        return Check::required("claim", Outcome::Fail, flaw.as_str());
    }
    let time = claim
        .winner
        .as_ref()
        .map_or_else(|| "no time".to_owned(), |times| times.median.to_string());
    let detail = format!(
        "{time} over {} rounds, each in a fresh process",
        claim.rounds
    );
    Check::told("claim", Outcome::Pass, detail)
}

fn speedup_check(asked: Asked, outcome: Outcome, detail: String) -> Check {
    match asked.min_speedup {
        Some(_) => Check::required("speedup", outcome, detail),
        None => Check::told("speedup", outcome, detail),
    }
}

/// In one line why a kernel is not valid.
pub(super) fn refusal(verdict: &Verdict) -> String {
    let line = verdict
        .diagnostics()
        .first()
        .and_then(|diagnostic| diagnostic.line)
        .map_or(String::new(), |line| format!(" (line {line})"));
    let reason = verdict.reason().unwrap_or_default();
    format!("{}: {reason}{line}", verdict.stage())
}

impl Bench<'_> {
    fn fits(&self) -> Result<&Self, String> {
        let arch = self.bundle.certificate.arch;
        if arch.runs_on(self.gpu.arch) {
            return Ok(self);
        }
        Err(format!(
            "kernel.cubin is code for {arch}, which does not run on {} ({})",
            self.gpu.name, self.gpu.arch
        ))
    }

    /// Judges this machine code, or PTX text that the driver is to compile.
    pub(super) fn verdict(
        &self,
        aim: Aim,
        image: &[u8],
        resources: &[Resources],
    ) -> Result<Verdict, RigError> {
        let cubin = Cubin {
            bytes: image.into(),
            resources: resources.to_vec(),
            advisories: Vec::new(),
        };
        self.pipeline
            .judge_image(self.source, self.point, aim, &cubin)
    }

    /// The final measurement, which assembles the kernel anew: only where that gives the certified cubin.
    fn claim(&self, tell: &dyn Fn(&str)) -> Result<Result<Claim, String>, RigError> {
        if self.simulated {
            return Ok(Err(
                "no GPU judges here, so nothing is measured again".to_owned()
            ));
        }
        match self.assembled {
            Assembled::Same => {}
            Assembled::Other | Assembled::Foreign | Assembled::NotDone => {
                return Ok(Err(
                    "ptxas here makes other machine code: name the certified version with --ptxas to have \
                     kernel.cubin measured again in fresh processes"
                        .to_owned(),
                ));
            }
        }
        tell("measuring it again in fresh processes");
        let claim = self.pipeline.claim(self.source, self.point)?;
        Ok(claim.ok_or_else(|| "no GPU judges here".to_owned()))
    }

    fn verification(&self, verdict: &Verdict) -> Check {
        let ran = if self.simulated {
            "the simulator ran kernel.ptx, not the cubin"
        } else {
            "the GPU ran kernel.cubin itself"
        };
        let (outcome, detail) = match verdict.measurement() {
            Some(measurement) => (
                Outcome::Pass,
                format!(
                    "{} checks passed, {} cannot be made here; {ran}",
                    measurement.checked.len(),
                    measurement.not_checked.len()
                ),
            ),
            None => (Outcome::Fail, format!("{}; {ran}", refusal(verdict))),
        };
        Check::required("verification", outcome, detail)
    }
}

/// The time here beside the certified one. An estimate and a measurement are never compared.
fn compared(certified: &Time, here: &Time) -> (Outcome, String) {
    let both = format!(
        "{} here ({}), {} certified ({})",
        here.nanos(),
        source_of(here),
        certified.nanos(),
        source_of(certified)
    );
    let ratio = here.nanos().get() / certified.nanos().get();
    match (certified, here) {
        (Time::Measured { gpu: then, .. }, Time::Measured { gpu: now, .. })
        | (Time::Estimated { gpu: then, .. }, Time::Estimated { gpu: now, .. }) => {
            let differ = if then == now { "" } else { ", of another GPU" };
            (
                Outcome::Pass,
                format!("{both}: {ratio:.3} of the certified time{differ}"),
            )
        }
        (Time::Measured { .. }, Time::Estimated { .. })
        | (Time::Estimated { .. }, Time::Measured { .. }) => (
            Outcome::NotDone,
            format!("{both}: an estimate is never compared with a measurement"),
        ),
        (Time::Recorded { .. }, _) | (_, Time::Recorded { .. }) => (
            Outcome::NotDone,
            format!("{both}: a recorded time is nobody's measurement of this kernel"),
        ),
    }
}

fn source_of(time: &Time) -> String {
    match time {
        Time::Measured { gpu, .. } => format!("measured on {gpu}"),
        Time::Estimated { gpu, .. } => format!("estimated for {gpu}"),
        Time::Recorded { .. } => "recorded".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Nanos;

    fn nanos(ns: f64) -> Nanos {
        Nanos::new(ns).expect("positive")
    }

    #[test]
    fn an_estimate_is_never_compared_with_a_measurement() {
        let gpu = || "NVIDIA H200".to_owned();
        let measured = |ns| Time::Measured {
            median: nanos(ns),
            samples: vec![ns],
            gpu: gpu(),
        };
        let estimated = |ns| Time::Estimated {
            time: nanos(ns),
            gpu: gpu(),
        };
        assert_eq!(
            compared(&measured(100.0), &estimated(90.0)).0,
            Outcome::NotDone
        );
        assert_eq!(
            compared(&estimated(100.0), &measured(90.0)).0,
            Outcome::NotDone
        );
        let (outcome, text) = compared(&measured(100.0), &measured(90.0));
        assert_eq!(outcome, Outcome::Pass);
        assert!(text.contains("0.900 of the certified time"), "{text}");
        assert!(text.contains("measured on NVIDIA H200"), "{text}");
    }
}
