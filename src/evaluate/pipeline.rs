//! The judge: source and setting in, verdict out. Front end, ptxas, limits, verification, timing, audit and
//! score, the cheap stages first; the first that fails is the verdict. It never sees the search tree or the
//! reward, and shows nobody its seed.

mod conclude;
mod estimate;
mod front;
mod watch;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use self::conclude::Seen;
use self::front::Front;
use super::audit::{self, Floor};
use super::cache::Keyed;
use super::observe::Observers;
use super::ptxas::{Assembler, Cubin, in_source};
use super::stages::{Stage, Stages};
use super::verify::{self, Depth, Subject, Verified, Verifier};
use super::{Evaluation, Evaluator, Kernel, Retiming, Timer, baseline, limits};
use crate::device::{Buffer, Contents, Device, Gpu, Job, RigError, Timing};
use crate::expr::Value;
use crate::ptx::ir::Module;
use crate::sim::FindingKind;
use crate::source::{Candidate, LaunchPlan, Point, Source, SourceError};
use crate::task::{Poison, Problem, Purpose, Role, Task};
use crate::units::{Digest, Nanos, SmArch};
use crate::verdict::{Baselines, Claim, Denominator, Diagnostic, Speedup, Verdict};

/// Raised whenever the same candidate could get another verdict: part of every cache key.
const JUDGE_VERSION: u32 = 4;

/// What a pipeline is made of.
pub struct Settings {
    /// The task.
    pub task: Arc<Task>,
    /// Runs and times.
    pub device: Arc<dyn Device>,
    /// Assembles.
    pub assembler: Assembler,
    /// What is assembled for: the GPU's own architecture, or one whose code it runs.
    pub arch: SmArch,
    /// Further options of ptxas.
    pub ptxas_options: Vec<String>,
    /// Secret seed of the inputs; another for each run of the program.
    pub verify_seed: u64,
    /// Further runs of each size's first input case, compared with the first run.
    pub repeats: u32,
    /// Whether two evaluations of one candidate give the same verdict: true for the simulator.
    pub deterministic: bool,
}

/// The judge.
pub struct Pipeline {
    settings: Settings,
    verifier: Verifier,
    simulator: Option<Arc<dyn Device>>,
    /// One problem for each of the task's sizes, in order; their seed and case do not matter.
    sizes: Vec<Problem>,
    /// Index in `sizes` of the one that is timed, and that problem itself.
    headline: usize,
    timed: Problem,
    /// Its buffers: made once, so that a device knows them again and uploads them once.
    timed_buffers: Vec<Buffer>,
    seed_time: OnceLock<Nanos>,
    baselines: OnceLock<Baselines>,
    baseline_options: baseline::Options,
    observers: Option<Observers>,
    stages: Arc<Stages>,
}

/// What an evaluation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// To rank it among others.
    Search,
    /// To claim something about it.
    Claim,
    /// To see another machine code of a kernel that is claimed: brief, and watched by no tool.
    Variant,
}

impl Pipeline {
    /// An error if the task cannot be judged: it declares no size to time, or a formula fails.
    pub fn new(settings: Settings) -> Result<Self, RigError> {
        let task = &settings.task;
        let broken = |message: String| RigError::Reference {
            task: task.name.clone(),
            message,
        };
        let headline = task
            .sizes
            .iter()
            .position(|size| size.purpose == Purpose::Bench)
            .ok_or_else(|| broken("it declares no bench size".to_owned()))?;
        let case = *task
            .cases
            .first()
            .ok_or_else(|| broken("it declares no input case".to_owned()))?;
        let sizes = task
            .sizes
            .iter()
            .map(|size| Problem::new(task, size, case, settings.verify_seed))
            .collect::<Result<Vec<Problem>, _>>()
            .map_err(|error| broken(error.to_string()))?;
        let timed = sizes[headline].clone();
        let verifier = Verifier::new(
            Arc::clone(task),
            settings.verify_seed,
            settings.repeats,
            Some(settings.assembler.clone()),
        );
        Ok(Self {
            settings,
            verifier,
            simulator: None,
            sizes,
            headline,
            timed_buffers: timed_buffers(&timed),
            timed,
            seed_time: OnceLock::new(),
            baselines: OnceLock::new(),
            baseline_options: baseline::Options::default(),
            observers: None,
            stages: Arc::default(),
        })
    }

    /// What is claimed also runs, at the small sizes, on a device that sees every access: the simulator that
    /// stands for the GPU.
    pub fn with_simulator(mut self, simulator: Arc<dyn Device>) -> Self {
        self.simulator = Some(simulator);
        self
    }

    /// Lets these tools watch candidates on a GPU.
    pub fn with_observers(mut self, observers: Observers) -> Self {
        self.observers = Some(observers);
        self
    }

    /// The problem whose time counts.
    pub fn timed_problem(&self) -> &Problem {
        &self.timed
    }

    /// What it is made of.
    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Who judges outputs.
    pub(super) fn verifier(&self) -> &Verifier {
        &self.verifier
    }

    /// Where the time of judging went so far.
    pub fn stages(&self) -> Arc<Stages> {
        Arc::clone(&self.stages)
    }

    /// Index of the timed size among the task's.
    pub(super) fn headline(&self) -> usize {
        self.headline
    }

    /// No call can be faster than this on the device's GPU.
    pub fn floor(&self) -> Option<Floor> {
        let gpu = self.gpu();
        audit::floor(&self.timed.work, audit::peak(&self.settings.task, gpu), gpu)
    }

    /// Measures baselines and final claims with these instead of the defaults.
    pub fn with_baseline_options(mut self, options: baseline::Options) -> Self {
        self.baseline_options = options;
        self
    }

    /// Measures the task's baselines on the device's GPU and makes the frontier the denominator of every
    /// later speedup; `tell` hears what comes next. `None`: the device is no GPU.
    pub fn measure_baselines(&self, tell: &dyn Fn(&str)) -> Result<Option<&Baselines>, RigError> {
        let Some(gpu) = self.settings.device.cuda() else {
            return Ok(None);
        };
        let baselines = baseline::measure(self, gpu, &self.baseline_options, tell)?;
        Ok(Some(self.baselines.get_or_init(|| baselines)))
    }

    /// Takes baselines measured earlier in the same run. The first call counts.
    pub fn set_baselines(&self, baselines: Baselines) {
        let _kept_the_first = self.baselines.set(baselines);
    }

    /// Makes the seed's time the denominator of every later speedup, where no frontier was measured. The
    /// first call counts.
    pub fn set_seed_time(&self, time: Nanos) {
        let _kept_the_first = self.seed_time.set(time);
    }

    /// Judges the task's seed at its default setting and, if it is valid, makes its time the denominator.
    pub fn judge_seed(&self) -> Result<Evaluation, RigError> {
        let broken = |error: &dyn std::fmt::Display| RigError::Reference {
            task: self.settings.task.name.clone(),
            message: format!("its seed: {error}"),
        };
        let source = Source::parse(&self.settings.task.seed).map_err(|error| broken(&error))?;
        let point = source
            .space()
            .default_point()
            .map_err(|error| broken(&error))?;
        let mut evaluation = self.evaluate(&source, &point)?;
        if let Verdict::Measured(measurement) = &mut evaluation.verdict {
            let time = measurement.time.nanos();
            self.set_seed_time(time);
            measurement.score.speedup = self.speedup(time);
        }
        Ok(evaluation)
    }

    fn evaluate_to(
        &self,
        aim: Aim,
        source: &Source,
        point: &Point,
    ) -> Result<Evaluation, RigError> {
        let candidate = match source.render(point) {
            Ok(candidate) => candidate,
            Err(error) => {
                return Ok(Evaluation {
                    candidate: None,
                    verdict: Verdict::Unrenderable {
                        diagnostics: error.diagnostics,
                    },
                    kernel: None,
                });
            }
        };
        let (verdict, kernel) = self.judge(&candidate, aim)?;
        Ok(Evaluation {
            candidate: Some(candidate.id()),
            verdict,
            kernel,
        })
    }

    fn gpu(&self) -> &Gpu {
        self.settings.device.gpu()
    }

    fn speedup(&self, time: Nanos) -> Option<Speedup> {
        if let Some(frontier) = self.baselines.get().and_then(Baselines::frontier) {
            let over = Denominator::Frontier(frontier.title());
            return Some(Speedup::new(over, frontier.time, time));
        }
        let seed = *self.seed_time.get()?;
        Some(Speedup::new(Denominator::Seed, seed, time))
    }

    fn judge(
        &self,
        candidate: &Candidate,
        aim: Aim,
    ) -> Result<(Verdict, Option<Kernel>), RigError> {
        let source_line = |line| candidate.source_line(line);
        let front = self
            .stages
            .during(Stage::Front, || self.front(candidate, &source_line));
        let front = match front {
            Ok(front) => front,
            Err(verdict) => return Ok((*verdict, None)),
        };
        let settings = &self.settings;
        let assembly = self.stages.during(Stage::Assemble, || {
            let options = &settings.ptxas_options;
            settings
                .assembler
                .assemble(&candidate.ptx, settings.arch, options)
        })?;
        let cubin = match assembly.into_cubin(source_line) {
            Ok(cubin) => cubin,
            Err(verdict) => return Ok((*verdict, None)),
        };
        let kernel = Kernel {
            ptx: Arc::clone(&candidate.ptx),
            cubin: Arc::clone(&cubin.bytes),
        };
        let made = self.assembled();
        let verdict = self.run(&front, &cubin, aim, made, &source_line)?;
        Ok((verdict, Some(kernel)))
    }

    /// Judges machine code that was made earlier or elsewhere of the rendering (or its text, for the driver
    /// to compile): nothing is assembled here, and what `cubin` says of its resources is believed.
    pub fn judge_image(
        &self,
        source: &Source,
        point: &Point,
        aim: Aim,
        cubin: &Cubin,
    ) -> Result<Verdict, RigError> {
        let candidate = match source.render(point) {
            Ok(candidate) => candidate,
            Err(SourceError { diagnostics, .. }) => {
                return Ok(Verdict::Unrenderable { diagnostics });
            }
        };
        let source_line = |line| candidate.source_line(line);
        match self.front(&candidate, &source_line) {
            Ok(front) => {
                let made = "machine code as it was handed in".to_owned();
                self.run(&front, cubin, aim, made, &source_line)
            }
            Err(verdict) => Ok(*verdict),
        }
    }

    /// The check that an assembly is, in words.
    fn assembled(&self) -> String {
        let Settings {
            assembler, arch, ..
        } = &self.settings;
        format!("assembled by ptxas {} for {arch}", assembler.tool().version)
    }

    /// A kernel made ready to be timed at the headline size, unjudged; or why it cannot be.
    pub(super) fn ready(
        &self,
        source: &Source,
        point: &Point,
    ) -> Result<Result<Ready, Box<Verdict>>, RigError> {
        let candidate = match source.render(point) {
            Ok(candidate) => candidate,
            Err(SourceError { diagnostics, .. }) => {
                return Ok(Err(Box::new(Verdict::Unrenderable { diagnostics })));
            }
        };
        let source_line = |line| candidate.source_line(line);
        let front = match self.front(&candidate, &source_line) {
            Ok(front) => front,
            Err(verdict) => return Ok(Err(verdict)),
        };
        let settings = &self.settings;
        let assembly =
            settings
                .assembler
                .assemble(&candidate.ptx, settings.arch, &settings.ptxas_options)?;
        let cubin = match assembly.into_cubin(source_line) {
            Ok(cubin) => cubin,
            Err(verdict) => return Ok(Err(verdict)),
        };
        let mut plans = front.plans;
        Ok(Ok(Ready {
            module: front.module,
            registers: cubin.registers(),
            cubin: cubin.bytes,
            plan: plans.swap_remove(self.headline),
        }))
    }

    /// Limits, verification, timing and what follows from them.
    fn run(
        &self,
        front: &Front,
        cubin: &Cubin,
        aim: Aim,
        made: String,
        source_line: &(dyn Fn(u32) -> Option<u32> + Sync),
    ) -> Result<Verdict, RigError> {
        let device = &*self.settings.device;
        let over = front
            .plans
            .iter()
            .find_map(|plan| limits::exceeded(plan, &front.module, &cubin.resources, device.gpu()));
        if let Some(message) = over {
            return Ok(Verdict::OverLimits { message });
        }
        let registers = cubin.registers();
        let subject = Subject {
            module: &front.module,
            cubin: Some(&cubin.bytes),
            registers: &registers,
            plans: &front.plans,
            source_line,
        };
        // On a device that repeats itself exactly, a search verifies briefly.
        let depth = match aim {
            Aim::Search if !self.settings.deterministic => Depth::Full,
            Aim::Search | Aim::Variant => Depth::Brief,
            Aim::Claim if !self.settings.deterministic => Depth::Claim,
            Aim::Claim => Depth::Full,
        };
        let verified = self.stages.during(Stage::Verify, || {
            self.verifier.verify_to(depth, device, &subject)
        })?;
        let mut verified = match verified {
            Verified::Passed(evidence) => evidence,
            Verified::Failed(verdict) => return Ok(*verdict),
        };
        if let (Aim::Claim, Some(simulator)) = (aim, self.simulator.as_deref())
            && let Some(verdict) = self.simulated(simulator, &subject, &mut verified)?
        {
            return Ok(verdict);
        }
        let sanitised = match (aim, &self.observers) {
            (Aim::Claim, Some(observers)) => {
                let sanitised = self.stages.during(Stage::Observe, || {
                    self.sanitised(observers, front, cubin, source_line)
                })?;
                match sanitised {
                    Ok(checked) => Some(checked),
                    Err(verdict) => return Ok(*verdict),
                }
            }
            (Aim::Claim, None) | (Aim::Search | Aim::Variant, _) => None,
        };
        let sampled = self.verifier.sampled(device, self.headline)?;
        let job = Job {
            module: &front.module,
            cubin: subject.cubin,
            registers: &registers,
            plan: &front.plans[self.headline],
            buffers: &self.timed_buffers,
            sampled: &sampled,
            order: 0,
        };
        let timed = match self.stages.during(Stage::Time, || device.time(&job))? {
            Timing::Timed(timed) => timed,
            Timing::Faulted(diagnostics) => {
                let diagnostics = mapped(diagnostics, source_line);
                return Ok(Verdict::Faulted { diagnostics });
            }
            Timing::Hung(diagnostics) => {
                let diagnostics = mapped(diagnostics, source_line);
                return Ok(Verdict::Hung { diagnostics });
            }
            Timing::Refused(message) => return Ok(Verdict::OverLimits { message }),
        };
        let mut timed = *timed;
        let profiled = self.stages.during(Stage::Observe, || {
            self.profiled(aim, front, cubin, &job, &timed)
        })?;
        let unprofiled = match profiled {
            Ok((diagnosis, missing)) => {
                timed.diagnosis = Some(diagnosis);
                missing
            }
            Err(reason) => vec![format!("not profiled: {reason}")],
        };
        let seen = Seen {
            sanitised: sanitised.unwrap_or_default(),
            unprofiled,
            made,
        };
        self.conclude(front, cubin, verified, timed, seen, source_line)
    }

    /// Memory read before it is written, races and strayed accesses leave no trace on a GPU while they happen
    /// to do no harm. Only these findings count: about numbers the GPU itself has the last word.
    fn simulated(
        &self,
        simulator: &dyn Device,
        subject: &Subject<'_>,
        evidence: &mut verify::Evidence,
    ) -> Result<Option<Verdict>, RigError> {
        let looked = "races, barriers, bounds and unwritten memory, by the simulator";
        let verdict = match self.verifier.verify_to(Depth::Brief, simulator, subject)? {
            Verified::Passed(_) => {
                evidence.checked.push(looked.to_owned());
                return Ok(None);
            }
            Verified::Failed(verdict) => *verdict,
        };
        let unknown = FindingKind::Unsupported.code();
        let known = verdict.diagnostics().iter().all(|d| d.code != unknown);
        match verdict {
            Verdict::Faulted { .. } | Verdict::Racy { .. } if known => Ok(Some(verdict)),
            Verdict::Faulted { .. }
            | Verdict::Racy { .. }
            | Verdict::Unrenderable { .. }
            | Verdict::Forbidden { .. }
            | Verdict::Unassembled { .. }
            | Verdict::AssemblerFailed { .. }
            | Verdict::OverLimits { .. }
            | Verdict::Hung { .. }
            | Verdict::Wrong { .. }
            | Verdict::Voided { .. }
            | Verdict::Measured(_)
            | Verdict::RecordedFailure { .. } => {
                let reason = verdict.reason().unwrap_or_default();
                evidence.not_checked.push(format!("{looked}: {reason}"));
                Ok(None)
            }
        }
    }
}

impl Evaluator for Pipeline {
    fn evaluate(&self, source: &Source, point: &Point) -> Result<Evaluation, RigError> {
        self.evaluate_to(Aim::Search, source, point)
    }

    fn confirm(&self, source: &Source, point: &Point) -> Result<Evaluation, RigError> {
        self.evaluate_to(Aim::Claim, source, point)
    }

    fn timer(&self, source: &Source, point: &Point) -> Result<Option<Timer<'_>>, RigError> {
        if self.settings.deterministic {
            return Ok(None);
        }
        let ready = self.ready(source, point)?;
        Ok(Some(Box::new(move || {
            let job = match &ready {
                Ok(ready) => ready.job(&self.timed_buffers),
                Err(verdict) => return Ok(Err(failure(verdict))),
            };
            let device = &self.settings.device;
            let (timing, full_load) = self.stages.during(Stage::Time, || {
                Ok::<_, RigError>(match device.time_at_full_load(&job)? {
                    Some(timing) => (timing, true),
                    None => (device.time(&job)?, false),
                })
            })?;
            Ok(match timing {
                Timing::Timed(timed) => Ok(Retiming {
                    time: timed.time,
                    full_load,
                }),
                Timing::Faulted(diagnostics) => Err(failure(&Verdict::Faulted { diagnostics })),
                Timing::Hung(diagnostics) => Err(failure(&Verdict::Hung { diagnostics })),
                Timing::Refused(message) => Err(failure(&Verdict::OverLimits { message })),
            })
        })))
    }

    fn claim(&self, source: &Source, point: &Point) -> Result<Option<Claim>, RigError> {
        let Some(gpu) = self.settings.device.cuda() else {
            return Ok(None);
        };
        let none = Baselines::default();
        let baselines = self.baselines.get().unwrap_or(&none);
        let options = &self.baseline_options;
        baseline::remeasure(self, gpu, options, (source, point), baselines, &|_| {}).map(Some)
    }

    fn deterministic(&self) -> bool {
        self.settings.deterministic
    }
}

impl Keyed for Pipeline {
    fn key(&self, source: &Source, point: &Point) -> Option<Digest> {
        let candidate = source.render(point).ok()?;
        let settings = &self.settings;
        let tool = settings.assembler.tool();
        let parts = [
            JUDGE_VERSION.to_string(),
            env!("CARGO_PKG_VERSION").to_owned(),
            candidate.id().to_string(),
            settings.task.digest.to_string(),
            tool.version.clone(),
            tool.digest.to_string(),
            settings.ptxas_options.join(" "),
            settings.arch.to_string(),
            settings.device.about().identity.clone(),
            settings.device.gpu().name.clone(),
            self.verifier.policy().to_string(),
        ];
        Some(Digest::of_parts(parts.iter().map(String::as_bytes)))
    }
}

/// A kernel to time, and how it is launched.
pub(super) struct Ready {
    module: Arc<Module>,
    registers: Vec<(String, u32)>,
    cubin: Arc<[u8]>,
    plan: LaunchPlan,
}

impl Ready {
    /// On these buffers.
    pub(super) fn job<'a>(&'a self, buffers: &'a [Buffer]) -> Job<'a> {
        Job {
            module: &self.module,
            cubin: Some(&self.cubin),
            registers: &self.registers,
            plan: &self.plan,
            buffers,
            sampled: &[],
            order: 0,
        }
    }
}

/// What launch expressions may name: the problem's numbers and the GPU's.
pub fn launch_names(problem: &Problem, gpu: &Gpu) -> BTreeMap<String, Value> {
    let mut names = problem.names();
    names.insert("sm_count".to_owned(), Value::Int(i64::from(gpu.sm_count)));
    names
}

/// The timed problem's buffers: inputs are made where they are read.
pub fn timed_buffers(problem: &Problem) -> Vec<Buffer> {
    problem
        .buffers
        .iter()
        .map(|buffer| Buffer {
            name: buffer.name.clone(),
            dtype: buffer.dtype,
            bytes: buffer.bytes,
            writable: buffer.role == Role::Output,
            contents: match problem.generator(&buffer.name) {
                Some(generator) => Contents::Generated(generator),
                None => Contents::Fill(Poison::Nan.byte()),
            },
        })
        .collect()
}

fn failure(verdict: &Verdict) -> String {
    let reason = verdict.reason().unwrap_or_default();
    format!("{}: {reason}", verdict.stage())
}

fn mapped(
    diagnostics: Vec<Diagnostic>,
    source_line: &dyn Fn(u32) -> Option<u32>,
) -> Vec<Diagnostic> {
    let map = |diagnostic| in_source(diagnostic, source_line);
    diagnostics.into_iter().map(map).collect()
}
