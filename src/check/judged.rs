//! The kernel before a judge: the task it was certified for, the assembler here, a full verification of the
//! very cubin, its time beside the certified one, and what it is worth against the seed and the frontier.

use super::{Bundle, Check, Outcome, Report};
use crate::device::{Gpu, RigError};
use crate::evaluate::ptxas::{Assembler, Cubin};
use crate::evaluate::{Aim, Evaluator as _, Pipeline};
use crate::export::Certificate;
use crate::source::{Point, Source};
use crate::task::Task;
use crate::units::Nanos;
use crate::verdict::{Baselines, Claim, Resources, Standing, Time, Verdict};

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
            let enough = asked.min_speedup.is_none_or(|least| worth.ratio >= least);
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

/// What the kernel is worth: its speedup over the best that there is to compare it with.
#[derive(Debug)]
struct Worth {
    /// Over what.
    name: String,
    ratio: f64,
    /// What the final measurement lets us say, and the ratio's interval.
    said: Option<(Standing, f64, f64)>,
    /// Over the seed, where that is another thing.
    seed: Option<f64>,
    frontier: bool,
}

impl Worth {
    fn of(
        time: Nanos,
        seed: Option<Nanos>,
        baselines: Option<&Baselines>,
        claim: Option<&Claim>,
    ) -> Option<Self> {
        let over_seed = seed.map(|seed| seed.get() / time.get());
        let Some(frontier) = baselines.and_then(Baselines::frontier) else {
            return over_seed.map(|ratio| Self {
                name: "the seed".to_owned(),
                ratio,
                said: None,
                seed: None,
                frontier: false,
            });
        };
        let name = frontier.title();
        let duel = claim.and_then(|claim| claim.duels.iter().find(|duel| duel.title() == name));
        Some(Self {
            ratio: duel.map_or(frontier.time.get() / time.get(), |duel| duel.ratio.median),
            said: duel.map(|duel| (duel.standing, duel.ratio.low, duel.ratio.high)),
            name,
            seed: over_seed,
            frontier: true,
        })
    }

    fn sentence(&self, label: &str, least: Option<f64>) -> String {
        let mut text = format!("{:.3}× {}", self.ratio, self.name);
        if let Some((standing, low, high)) = self.said {
            text.push_str(&format!(" [{low:.3}, {high:.3}], {standing}"));
        }
        if let Some(seed) = self.seed {
            text.push_str(&format!(", {seed:.3}× the seed"));
        }
        text.push_str(&format!(", times {label} in this process"));
        if !self.frontier {
            text.push_str("; frontier: not measured");
        }
        if let Some(least) = least {
            text.push_str(&format!("; at least {least}× was asked for"));
        }
        text
    }

    /// What to do where it is not faster, or not by as much as was asked for.
    fn advice(&self, least: Option<f64>) -> Option<String> {
        let Self { name, ratio, .. } = self;
        let slower = match self.said {
            Some((standing, _, _)) => standing == Standing::Slower,
            None => *ratio < 1.0,
        };
        let tie = matches!(self.said, Some((Standing::Tie, _, _)));
        if slower {
            Some(format!(
                "keep {name} as the fallback, and use it: the kernel is slower here ({ratio:.3}×)"
            ))
        } else if tie {
            Some(format!(
                "keep {name} as the fallback: the kernel is no faster here, as far as noise lets one tell \
                 ({ratio:.3}×)"
            ))
        } else {
            least.filter(|least| ratio < least).map(|least| {
                format!(
                    "keep {name} as the fallback where {least}× is what makes the kernel worth its place"
                )
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{
        Correctness, Duel, Interleaving, MeasuredBaseline, Ratio, Times, Variant,
    };

    fn nanos(ns: f64) -> Nanos {
        Nanos::new(ns).expect("positive")
    }

    fn library(ns: f64) -> Baselines {
        Baselines {
            measured: vec![MeasuredBaseline {
                name: "torch.sum".to_owned(),
                variant: Variant::Eager,
                time: nanos(ns),
                quartiles: (nanos(ns), nanos(ns)),
                samples: vec![ns],
                correctness: Correctness::Verified {
                    on: "smoke".to_owned(),
                },
                notes: Vec::new(),
            }],
            missing: Vec::new(),
        }
    }

    fn claim(standing: Standing, median: f64) -> Claim {
        let times = || Times {
            median: nanos(100.0),
            quartiles: (nanos(100.0), nanos(100.0)),
            samples: vec![100.0],
        };
        Claim {
            gpu: "NVIDIA H200".to_owned(),
            rounds: 3,
            winner: Some(times()),
            duels: vec![Duel {
                name: "torch.sum".to_owned(),
                variant: Variant::Eager,
                interleaving: Interleaving::Blocks,
                winner: times(),
                baseline: times(),
                ratio: Ratio {
                    median,
                    low: median - 0.01,
                    high: median + 0.01,
                },
                rounds: vec![median; 3],
                standing,
            }],
            noise_floor: Some(0.005),
            power: None,
            flaws: Vec::new(),
            not_checked: Vec::new(),
        }
    }

    #[test]
    fn the_frontier_counts_before_the_seed_and_the_final_measurement_before_both() {
        let seed = Some(nanos(300.0));
        let alone = Worth::of(nanos(100.0), seed, None, None).expect("the seed");
        assert_eq!((alone.name.as_str(), alone.ratio), ("the seed", 3.0));
        assert!(
            alone
                .sentence("estimated", None)
                .contains("frontier: not measured")
        );
        let library = library(120.0);
        let beside = Worth::of(nanos(100.0), seed, Some(&library), None).expect("both");
        assert_eq!(
            (beside.name.as_str(), beside.ratio),
            ("torch.sum (eager)", 1.2)
        );
        let claim = claim(Standing::Faster, 1.15);
        let again = Worth::of(nanos(100.0), seed, Some(&library), Some(&claim)).expect("all");
        assert_eq!(
            again.sentence("measured", Some(1.1)),
            "1.150× torch.sum (eager) [1.140, 1.160], faster, 3.000× the seed, times measured in this \
             process; at least 1.1× was asked for"
        );
        assert!(Worth::of(nanos(100.0), None, None, None).is_none());
    }

    #[test]
    fn the_library_is_kept_where_the_kernel_is_not_faster() {
        let library = library(100.0);
        let advice = |standing, ratio, least| {
            let claim = claim(standing, ratio);
            Worth::of(nanos(100.0), None, Some(&library), Some(&claim))
                .expect("compared")
                .advice(least)
        };
        assert_eq!(advice(Standing::Faster, 1.3, Some(1.2)), None);
        assert_eq!(advice(Standing::Faster, 1.1, None), None);
        for (standing, ratio, says) in [
            (Standing::Slower, 0.9, "slower here"),
            (Standing::Tie, 1.001, "no faster here"),
            (Standing::Faster, 1.1, "where 1.2× is"),
        ] {
            let advice = advice(standing, ratio, Some(1.2)).expect("advised");
            assert!(
                advice.contains(says) && advice.contains("keep torch.sum (eager) as the fallback"),
                "{advice}"
            );
        }
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
