//! Runs a candidate on every small size of its task and compares what it wrote with the reference, before
//! anything is timed. Expected outputs are computed here, never where the candidate runs. It knows devices
//! only through their trait, so the simulator and a GPU's worker are judged alike.

mod prepared;
mod run;

use std::ops::ControlFlow;
use std::sync::Arc;

use self::prepared::{Prepared, buffers};
use self::run::{Run, bytes_of};
use super::once::Once;
use super::ptxas::Assembler;
use crate::device::{Buffer, Device, Execution, RigError, Sampled};
use crate::ptx::ir::Module;
use crate::source::LaunchPlan;
use crate::task::compare::{Got, compare};
use crate::task::reference::Elements;
use crate::task::{InputCase, Poison, Problem, Purpose, Reference, Size, Task};
use crate::turns::{Helpers, in_turn};
use crate::units::{Bytes, Digest, Flops};
use crate::verdict::{Diagnostic, Mismatch, Severity, Verdict};

/// Further runs for a claim: a race that shows once in ten runs is missed by them one time in seven.
const CLAIM_REPEATS: u32 = 19;

/// Buffers up to this total are compared as a whole with what a command or a trusted kernel computed.
const LARGEST_WHOLE: Bytes = Bytes(256 << 20);

/// A candidate, ready to run.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The parsed rendering.
    pub module: &'a Module,
    /// What ptxas made of it.
    pub cubin: Option<&'a [u8]>,
    /// Registers per thread by entry.
    pub registers: &'a [(String, u32)],
    /// Its launches, one plan for each of the task's sizes.
    pub plans: &'a [LaunchPlan],
    /// The source line of a line of the rendering.
    pub source_line: &'a (dyn Fn(u32) -> Option<u32> + Sync),
}

/// How much a verification runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// As [`Depth::Full`], and many repeats at the smoke sizes: for what is claimed on a device that does not
    /// repeat itself exactly.
    Claim,
    /// Every input case at every size, repeats of the first at each.
    Full,
    /// Every input case and repeats at the smoke sizes; at each edge size the first case and one of the
    /// others in turn. For a search on a device that is slow and repeats itself exactly; a winner still needs
    /// [`Depth::Full`].
    Brief,
}

/// How a verification ended.
#[derive(Debug)]
pub enum Verified {
    /// Everything that was run is right.
    Passed(Evidence),
    /// The first thing that is not.
    Failed(Box<Verdict>),
}

/// What a passed verification knows.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Checks done, in words.
    pub checked: Vec<String>,
    /// Checks that could not be done, in words.
    pub not_checked: Vec<String>,
    /// Findings that did not fail it; lines are those of the source.
    pub warnings: Vec<Diagnostic>,
    /// Work counted while it ran: each size with each input case, in the order they ran.
    pub counts: Vec<Counts>,
}

/// Work counted on one problem.
#[derive(Clone, Debug)]
pub struct Counts {
    /// The problem it was counted on.
    pub problem: Arc<Problem>,
    /// Floating-point operations by unit, where the device counts.
    pub flops: Option<Vec<(String, Flops)>>,
    /// Executions by full mnemonic, where the device counts.
    pub executed: Option<Vec<(String, u64)>>,
}

/// Verifies candidates of one task with one secret seed.
pub struct Verifier {
    task: Arc<Task>,
    seed: u64,
    repeats: u32,
    assembler: Option<Assembler>,
    /// By the indices of size and input case in the task.
    prepared: Once<(usize, usize), Arc<Prepared>>,
}

/// Input cases to run at one size.
struct Cases {
    /// Indices into the task's cases.
    run: Vec<usize>,
    /// Further runs of the first.
    repeats: u32,
}

/// One run at a size.
#[derive(Clone, Copy)]
struct Turn {
    /// Index of the input case in the task.
    nth: usize,
    /// It is of the size's first case.
    first: bool,
    /// So many have run it before.
    repeat: u32,
}

/// What became of a turn.
struct Ran {
    prepared: Arc<Prepared>,
    ended: Result<Execution, Box<Verdict>>,
    warnings: Vec<Diagnostic>,
}

impl Verifier {
    /// `seed` decides all inputs and is kept from whoever proposes kernels. `repeats`: further runs of each
    /// size's first input case, at least one. `assembler` assembles a task's trusted kernel; `None` for
    /// devices that run parsed PTX.
    pub fn new(task: Arc<Task>, seed: u64, repeats: u32, assembler: Option<Assembler>) -> Self {
        Self {
            task,
            seed,
            repeats: repeats.max(1),
            assembler,
            prepared: Once::new(),
        }
    }

    /// A hash of what decides its answers besides the candidate, the device and the task.
    pub fn policy(&self) -> Digest {
        Digest::of_parts([
            self.seed.to_le_bytes().as_slice(),
            self.repeats.to_le_bytes().as_slice(),
        ])
    }

    /// [`Verifier::verify_to`] in full.
    pub fn verify(&self, device: &dyn Device, subject: &Subject<'_>) -> Result<Verified, RigError> {
        self.verify_to(Depth::Full, device, subject)
    }

    /// Whether outputs that a baseline computed are right, for the size and the input case of these numbers
    /// in the task. The first that is not is told.
    pub fn judge(
        &self,
        device: &dyn Device,
        (at, nth): (usize, usize),
        outputs: &[(String, Vec<u8>)],
    ) -> Result<Result<(), Mismatch>, RigError> {
        let (size, case) = (&self.task.sizes[at], self.task.cases[nth]);
        let prepared = self.prepare(device, (at, nth), size, case)?;
        for expected in &prepared.expected {
            let got = outputs.iter().find(|(name, _)| *name == expected.output);
            let got = got.map_or(&[][..], |(_, bytes)| bytes);
            if let Err(mismatch) =
                compare(&prepared.problem, expected, Got::Whole(got), Poison::Finite)
            {
                return Ok(Err(mismatch));
            }
        }
        Ok(Ok(()))
    }

    /// Outputs of a size of which the reference knows only some elements, for a device that runs that size.
    pub fn sampled(&self, device: &dyn Device, at: usize) -> Result<Vec<Sampled>, RigError> {
        Ok(match self.timed(device, at)? {
            Some(prepared) => prepared.sampled.clone(),
            None => Vec::new(),
        })
    }

    /// Whether an output of a timed call on a size's first input case is right: `bytes` is all of it, or the
    /// elements that [`Verifier::sampled`] names. `None`: the reference does not know.
    pub fn judge_left(
        &self,
        device: &dyn Device,
        at: usize,
        output: &str,
        bytes: &[u8],
    ) -> Result<Option<Result<(), Mismatch>>, RigError> {
        let Some(prepared) = self.timed(device, at)? else {
            return Ok(None);
        };
        let expected = prepared.expected.iter().find(|e| e.output == output);
        Ok(expected.map(|expected| {
            let got = match expected.elements {
                Elements::All => Got::Whole(bytes),
                Elements::Sampled(_) => Got::Known(bytes),
            };
            compare(&prepared.problem, expected, got, Poison::Finite)
        }))
    }

    /// The first input case of a size that the device and the reference run.
    fn timed(&self, device: &dyn Device, at: usize) -> Result<Option<Arc<Prepared>>, RigError> {
        let (size, case) = (&self.task.sizes[at], self.task.cases[0]);
        let problem = self.problem(size, case)?;
        let bytes: u64 = problem.buffers.iter().map(|buffer| buffer.bytes.0).sum();
        if !device.about().runs_timed_size || bytes > self.largest(device).0 {
            return Ok(None);
        }
        self.prepare(device, (at, 0), size, case).map(Some)
    }

    /// Smoke sizes, then edge sizes, then (where the device runs it) the timed size; the cheapest first.
    pub fn verify_to(
        &self,
        depth: Depth,
        device: &dyn Device,
        subject: &Subject<'_>,
    ) -> Result<Verified, RigError> {
        let mut evidence = Evidence::default();
        let mut ran = false;
        for (turn, (at, size)) in self.order(device).enumerate() {
            let problem = self.problem(size, self.task.cases[0])?;
            let bytes: u64 = problem.buffers.iter().map(|buffer| buffer.bytes.0).sum();
            let largest = self.largest(device);
            if bytes > largest.0 {
                evidence.not_checked.push(format!(
                    "outputs at {size}: {} of buffers, at most {largest} are compared here",
                    Bytes(bytes)
                ));
                continue;
            }
            let cases = self.cases(depth, turn, size.purpose);
            let ended = self.verify_size(device, subject, at, &cases, &mut evidence)?;
            if let Err(verdict) = ended {
                return Ok(Verified::Failed(verdict));
            }
            ran = true;
        }
        if !ran {
            return Err(RigError::Reference {
                task: self.task.name.clone(),
                message: format!(
                    "none of its smoke and edge sizes fits the {} bytes that the device runs; declare smaller ones",
                    device.about().largest.0
                ),
            });
        }
        evidence.checked.push(
            "every output element written: buffers arrive filled with NaN, and at the next run with another pattern"
                .to_owned(),
        );
        evidence.checked.push("inputs unchanged".to_owned());
        Ok(Verified::Passed(evidence))
    }

    /// The buffers of each smoke size with its first input case, beside the size's index in the task: for
    /// tools that launch by themselves and look at memory, not at numbers.
    pub fn smoke(&self, device: &dyn Device) -> Result<Vec<(usize, Vec<Buffer>)>, RigError> {
        let sizes = self.task.sizes.iter().enumerate();
        sizes
            .filter(|(_, size)| size.purpose == Purpose::Smoke)
            .map(|(at, size)| {
                let prepared = self.prepare(device, (at, 0), size, self.task.cases[0])?;
                let buffers = buffers(&prepared.problem, &prepared.inputs, Poison::Nan);
                Ok((at, buffers))
            })
            .collect()
    }

    /// What the device runs, and the reference can follow: those of this crate compute any elements of any
    /// size, the others always all of them.
    fn largest(&self, device: &dyn Device) -> Bytes {
        let runs = device.about().largest;
        match &self.task.reference {
            Reference::Builtin(_) => runs,
            Reference::Command(_) | Reference::Kernel(_) => Bytes(runs.0.min(LARGEST_WHOLE.0)),
        }
    }

    fn order(&self, device: &dyn Device) -> impl Iterator<Item = (usize, &Size)> {
        let purposes: &[Purpose] = if device.about().runs_timed_size {
            &[Purpose::Smoke, Purpose::Edge, Purpose::Bench]
        } else {
            &[Purpose::Smoke, Purpose::Edge]
        };
        purposes.iter().flat_map(|purpose| {
            let of = self.task.sizes.iter().enumerate();
            let sizes = of.filter(|(_, size)| size.purpose == *purpose);
            // Only the headline of the bench sizes is timed.
            sizes.take(match purpose {
                Purpose::Bench => 1,
                Purpose::Smoke | Purpose::Edge => usize::MAX,
            })
        })
    }

    /// What is run at one size, which is the `turn`th that is looked at.
    fn cases(&self, depth: Depth, turn: usize, purpose: Purpose) -> Cases {
        let all = self.task.cases.len();
        let whole = Cases {
            run: (0..all).collect(),
            repeats: self.repeats,
        };
        match (purpose, depth) {
            (Purpose::Smoke, Depth::Claim) => Cases {
                repeats: self.repeats.max(CLAIM_REPEATS),
                ..whole
            },
            (Purpose::Smoke, Depth::Full | Depth::Brief)
            | (Purpose::Edge, Depth::Claim | Depth::Full) => whole,
            (Purpose::Edge, Depth::Brief) => Cases {
                run: if all > 1 {
                    vec![0, 1 + turn % (all - 1)]
                } else {
                    vec![0]
                },
                repeats: 0,
            },
            // It is large: the input that is timed is enough.
            (Purpose::Bench, Depth::Claim | Depth::Full | Depth::Brief) => Cases {
                run: vec![0],
                ..whole
            },
        }
    }

    fn verify_size(
        &self,
        device: &dyn Device,
        subject: &Subject<'_>,
        at: usize,
        cases: &Cases,
        evidence: &mut Evidence,
    ) -> Result<Result<(), Box<Verdict>>, RigError> {
        let size = &self.task.sizes[at];
        let turns: Vec<Turn> = (cases.run.iter().enumerate())
            .flat_map(|(place, &nth)| {
                let first = place == 0;
                let repeats = if first { cases.repeats } else { 0 };
                (0..=repeats).map(move |repeat| Turn { nth, first, repeat })
            })
            .collect();
        let run = |turn: usize| self.turn(device, subject, at, turns[turn]);
        let last = |ran: &Result<Ran, RigError>| !matches!(ran, Ok(ran) if ran.ended.is_ok());
        let mut known = String::new();
        let mut first: Option<Execution> = None;
        let mut looked = 0;
        let look = |ran: Result<Ran, RigError>| {
            let turn = turns[looked];
            looked += 1;
            let ran = match ran {
                Ok(ran) => ran,
                Err(error) => return ControlFlow::Break(Err(error)),
            };
            let execution = match ran.ended {
                Ok(execution) => execution,
                Err(verdict) => return ControlFlow::Break(Ok(verdict)),
            };
            for warning in ran.warnings {
                if !evidence.warnings.contains(&warning) {
                    evidence.warnings.push(warning);
                }
            }
            if turn.repeat > 0 {
                let differs = (first.as_ref())
                    .and_then(|first| self.differs(&ran.prepared.problem, first, &execution));
                return differs.map_or(ControlFlow::Continue(()), |verdict| {
                    ControlFlow::Break(Ok(verdict))
                });
            }
            known = ran.prepared.known();
            evidence.counts.push(Counts {
                problem: Arc::clone(&ran.prepared.problem),
                flops: execution.flops.clone(),
                executed: execution.executed.clone(),
            });
            first = Some(execution);
            ControlFlow::Continue(())
        };
        let ended = if device.runs_at_once() {
            Helpers::of_host().run(turns.len(), run, last, look)
        } else {
            in_turn(turns.len(), run, look)
        };
        match ended {
            ControlFlow::Continue(()) => {}
            ControlFlow::Break(Ok(verdict)) => return Ok(Err(verdict)),
            ControlFlow::Break(Err(error)) => return Err(error),
        }
        let words: Vec<&str> = cases
            .run
            .iter()
            .map(|&nth| self.task.cases[nth].word())
            .collect();
        let mut told = format!("outputs at {size}: inputs {}", words.join(", "));
        told.push_str(&known);
        if cases.repeats > 0 {
            told.push_str(&format!(
                "; {} runs of the first compared ",
                cases.repeats + 1
            ));
            told.push_str(if self.task.nondeterministic.is_empty() {
                "bit for bit"
            } else {
                "within tolerance where the task allows differences, else bit for bit"
            });
        }
        evidence.checked.push(told);
        Ok(Ok(()))
    }

    fn turn(
        &self,
        device: &dyn Device,
        subject: &Subject<'_>,
        at: usize,
        turn: Turn,
    ) -> Result<Ran, RigError> {
        let Turn { nth, first, repeat } = turn;
        let case = self.task.cases[nth];
        let prepared = self.prepare(device, (at, nth), &self.task.sizes[at], case)?;
        let run = Run {
            device,
            subject,
            plan: &subject.plans[at],
            prepared: &prepared,
        };
        let poison = match case {
            // Where NaN may be right, NaN as poison would hide what is not written.
            InputCase::Special => Poison::Finite,
            InputCase::Normal
            | InputCase::Spiky
            | InputCase::Integers
            | InputCase::Large
            | InputCase::Small => {
                if first && repeat == 0 {
                    Poison::Nan
                } else {
                    Poison::Finite
                }
            }
        };
        let mut warnings = Vec::new();
        let order = self.thread_order(at, nth, repeat);
        let ended = run.ordered(poison, order, &mut warnings)?;
        Ok(Ran {
            prepared,
            ended,
            warnings,
        })
    }

    /// The order of threads in which a size runs with a case, where the device chooses: the plainest first, then
    /// a different one each time.
    fn thread_order(&self, at: usize, nth: usize, repeat: u32) -> u64 {
        if (nth, repeat) == (0, 0) {
            return 0;
        }
        let parts = [self.seed, at as u64, nth as u64, u64::from(repeat)];
        Digest::of_parts(parts.map(u64::to_le_bytes).iter().map(<[u8; 8]>::as_slice)).seed()
    }

    /// A verdict where two runs on the same inputs gave different bits that the task does not allow.
    fn differs(
        &self,
        problem: &Problem,
        first: &Execution,
        again: &Execution,
    ) -> Option<Box<Verdict>> {
        let outputs = problem
            .outputs()
            .filter(|output| !self.task.nondeterministic.contains(&output.name));
        for output in outputs {
            let (Some(a), Some(b)) = (bytes_of(first, &output.name), bytes_of(again, &output.name))
            else {
                continue;
            };
            let whole_of = |execution: &Execution| {
                let mut wholes = execution.wholes.iter();
                wholes
                    .find(|whole| whole.output == output.name)
                    .map(|whole| whole.digest)
            };
            let (whole, whole_again) = (whole_of(first), whole_of(again));
            if a == b && whole == whole_again {
                continue;
            }
            let width = output.dtype.size() as usize;
            let mut elements = std::iter::zip(a.chunks(width), b.chunks(width));
            let place = match (elements.position(|(a, b)| a != b), whole) {
                (Some(element), None) => format!("first at element {element}"),
                (_, _) => "by the hash of the whole".to_owned(),
            };
            return Some(Box::new(Verdict::Racy {
                diagnostics: vec![Diagnostic {
                    severity: Severity::Error,
                    code: "repeats-differ".to_owned(),
                    message: format!(
                        "two runs on the same inputs ({}) differ in `{}`, {place}",
                        problem.label(),
                        output.name
                    ),
                    line: None,
                    other_line: None,
                    help: Some(
                        "look for a missing barrier, for blocks that write the same place, and for elements that \
                         are written only sometimes"
                            .to_owned(),
                    ),
                }],
            }));
        }
        None
    }
}
