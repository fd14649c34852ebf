//! The simulator as a device: a job's plan and buffers to launches on simulated memory, findings to
//! diagnostics, counts to an *estimated* time. It makes no measurement and knows no task.

mod apart;
mod prepare;
mod sample;

use crate::sim::cost::{self, Constants, Estimate, Limits, Work, estimate, fp64_lanes};
use crate::sim::diagnosis;
use crate::sim::{self, Finding, Outcome, Stop};
use crate::units::{Bytes, Flops, Nanos};
use crate::verdict::{Diagnostic, Severity, Time};

use self::prepare::Refusal;
pub use self::sample::{Did, Observed};
use super::{About, Device, Ended, Execution, Gpu, Job, RigError, Timed, Timing};

/// Version of interpreter and cost model: part of verdict cache keys, raised when an answer changes.
const COST_MODEL: &str = "10";
/// Jobs up to here are executed in full.
const LARGEST_JOB: Bytes = Bytes(256 << 20);

/// A GPU stood for by the simulator.
#[derive(Clone, Debug)]
pub struct SimDevice {
    gpu: Gpu,
    about: About,
    constants: Constants,
    one_core: bool,
}

impl SimDevice {
    /// The simulator, standing for `gpu`.
    pub fn new(gpu: Gpu) -> Self {
        let about = About {
            identity: format!("simulator {COST_MODEL}, {}", gpu.name),
            checks: [
                "addresses in bounds and aligned",
                "inputs not written",
                "no read of unwritten memory",
                "shared-memory races between warps",
                "asynchronous copies and products waited for, and shared memory not given back before",
                "proxy fences between ordinary stores and asynchronous reads of shared memory",
                "barriers reached by whole warps",
                "blocks do not overwrite each other's result",
            ]
            .map(String::from)
            .into(),
            cannot_check: [
                "the time: estimated, not measured",
                "order between blocks through flags in global memory",
                "order of bulk copies and ordinary accesses in global memory",
                "races between lanes of one warp",
            ]
            .map(String::from)
            .into(),
            largest: LARGEST_JOB,
            runs_timed_size: false,
            chooses_order: true,
        };
        Self {
            gpu,
            about,
            constants: Constants::default(),
            one_core: false,
        }
    }

    /// The same, but each estimate is made on its caller's core alone: for who shares a machine with GPUs that measure.
    pub fn on_one_core(self) -> Self {
        Self {
            one_core: true,
            ..self
        }
    }

    /// The GPU's facts that the cost model needs.
    pub fn limits(&self) -> Limits {
        let gpu = &self.gpu;
        Limits {
            sm_count: f64::from(gpu.sm_count),
            clock: gpu.sm_clock_mhz * 1e6,
            bandwidth: gpu.memory_bandwidth,
            l2: gpu.l2.0 as f64,
            shared_per_sm: gpu.smem_per_sm.0 as u32,
            registers_per_sm: gpu.registers_per_sm,
            threads_per_sm: gpu.threads_per_sm,
            blocks_per_sm: gpu.blocks_per_sm,
            fp32_lanes: f64::from(gpu.fp32_fma_per_cycle),
            fp64_lanes: fp64_lanes(gpu.arch.number),
            tensor_flops: f64::from(gpu.tensor_bf16_flops_per_cycle),
        }
    }
}

impl Device for SimDevice {
    fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    fn about(&self) -> &About {
        &self.about
    }

    fn runs_at_once(&self) -> bool {
        true
    }

    fn execute(&self, job: &Job<'_>) -> Result<Execution, RigError> {
        let mut prepared = match self.prepare(job) {
            Ok(prepared) => prepared,
            Err(Refusal::Unsupported(findings)) => {
                return Ok(ended(Ended::Faulted(diagnostics(findings))));
            }
            Err(Refusal::DoesNotFit(message)) => return Ok(ended(Ended::Refused(message))),
        };
        let mut execution = ended(Ended::Completed);
        let mut executed: Vec<(String, u64)> = Vec::new();
        let mut flops = sim::FlopCounts::default();
        for (entry, launch, registers) in &prepared.launches {
            let program = &prepared.programs[entry];
            let options = sim::Options {
                seed: job.order,
                ..self.options(program, launch, *registers)
            };
            let Outcome {
                stop,
                findings,
                counts,
                ..
            } = sim::launch(program, &mut prepared.memory, launch, &options);
            let (races, others): (Vec<Finding>, Vec<Finding>) =
                findings.into_iter().partition(|f| f.kind.is_race());
            execution.races.extend(diagnostics(races));
            execution.findings.extend(diagnostics(others));
            flops.add(&counts.flops(program), 1.0);
            for (mnemonic, count) in counts.executed(program) {
                match executed.iter_mut().find(|(name, _)| *name == mnemonic) {
                    Some((_, sum)) => *sum += count,
                    None => executed.push((mnemonic, count)),
                }
            }
            match stop {
                None => {}
                Some(Stop::Fault(finding)) => {
                    execution.ended = Ended::Faulted(diagnostics(vec![finding]));
                    break;
                }
                Some(Stop::Hung(findings)) => {
                    execution.ended = Ended::Hung(diagnostics(findings));
                    break;
                }
            }
        }
        execution.executed = Some(executed);
        execution.flops = Some(
            flops
                .by_unit()
                .map(|(unit, work)| (unit.to_owned(), Flops(work)))
                .collect(),
        );
        if matches!(execution.ended, Ended::Completed) {
            for buffer in job.buffers.iter().filter(|b| b.writable) {
                if let Some(bytes) = prepared.memory.contents(prepared.addresses[&buffer.name]) {
                    execution.outputs.push((buffer.name.clone(), bytes));
                }
            }
        }
        Ok(execution)
    }

    fn time(&self, job: &Job<'_>) -> Result<Timing, RigError> {
        let observed = match self.observe(job) {
            Ok(observed) => observed,
            Err(ended) => return Ok(ended),
        };
        let limits = self.limits();
        let mut notes = Vec::new();
        let works: Vec<(Work<'_>, Estimate)> = observed
            .iter()
            .map(|launch| {
                let work = launch.work();
                (work, estimate(&work, &limits, &self.constants))
            })
            .collect();
        for launch in &observed {
            let blocks: u64 = launch.launch.blocks();
            notes.push(format!(
                "{}: estimated from {} of {blocks} blocks, {} warp instructions executed",
                launch.entry, launch.did.counts.blocks, launch.did.counts.instructions
            ));
        }
        let seconds: f64 = works.iter().map(|(_, e)| e.seconds).sum();
        let floor: f64 = works
            .iter()
            .map(|(work, _)| cost::floor(work, &limits))
            .sum();
        let Some(time) = Nanos::new(seconds * 1e9) else {
            return Err(RigError::Device {
                device: format!("simulated {}", self.gpu.name),
                message: format!("the cost model gave {seconds} seconds"),
            });
        };
        Ok(Timing::Timed(Box::new(Timed {
            time: Time::Estimated {
                time,
                gpu: self.gpu.name.clone(),
            },
            diagnosis: diagnosis::diagnose(&works, &limits),
            floor: Nanos::new(floor * 1e9),
            unsteady: Vec::new(),
            violations: Vec::new(),
            left: Vec::new(),
            afterwards: None,
            notes,
        })))
    }
}

fn ended(ended: Ended) -> Execution {
    Execution {
        wholes: Vec::new(),
        ended,
        outputs: Vec::new(),
        violations: Vec::new(),
        races: Vec::new(),
        findings: Vec::new(),
        flops: None,
        executed: None,
    }
}

fn diagnostics(findings: Vec<Finding>) -> Vec<Diagnostic> {
    findings
        .into_iter()
        .map(|finding| Diagnostic {
            severity: Severity::Error,
            code: finding.kind.code().to_owned(),
            message: finding.message,
            line: finding.line,
            other_line: finding.other_line,
            help: finding.help,
        })
        .collect()
}
