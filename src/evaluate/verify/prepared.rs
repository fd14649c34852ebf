//! A problem made ready once for all candidates: its inputs, and what the reference expects of its outputs.

use std::sync::Arc;
use std::time::Duration;

use super::Verifier;
use super::run::bytes_of;
use crate::device::{Buffer, Contents, Device, Ended, Job, RigError, Sampled};
use crate::evaluate::pipeline::launch_names;
use crate::evaluate::ptxas::Assembly;
use crate::source::Source;
use crate::task::reference::{Elements, Expected, expected};
use crate::task::{self, InputCase, Poison, Problem, Reference, Role, Size};
use crate::units::Bytes;

/// How long an external reference may take for one problem.
const REFERENCE_LIMIT: Duration = Duration::from_secs(300);

/// Inputs up to this size are kept as bytes between candidates.
const LARGEST_IN_MEMORY: Bytes = Bytes(16 << 20);

/// A problem with its inputs and expected outputs.
pub(super) struct Prepared {
    pub(super) problem: Arc<Problem>,
    pub(super) inputs: Vec<(String, Contents)>,
    pub(super) expected: Vec<Expected>,
    /// Outputs of which only some elements are known: no others need come back.
    pub(super) sampled: Vec<Sampled>,
}

impl Prepared {
    /// How much of each sampled output is known, in words; empty where all of it is.
    pub(super) fn known(&self) -> String {
        self.sampled
            .iter()
            .map(|sampled| {
                let known = sampled.elements.len() / 8;
                format!(
                    "; {known} sampled elements of {}, the whole of it written and compared by hash",
                    sampled.output
                )
            })
            .collect()
    }
}

impl Verifier {
    pub(super) fn problem(&self, size: &Size, case: InputCase) -> Result<Problem, RigError> {
        Problem::new(&self.task, size, case, self.seed)
            .map_err(|error| self.broken(error.to_string()))
    }

    pub(super) fn prepare(
        &self,
        device: &dyn Device,
        key: (usize, usize),
        size: &Size,
        case: InputCase,
    ) -> Result<Arc<Prepared>, RigError> {
        let make = || {
            let problem = self.problem(size, case)?;
            let inputs = problem
                .inputs()
                .map(|input| {
                    let contents = contents(&problem, input);
                    let missing =
                        || self.broken(format!("there is no generator of {}", input.name));
                    Ok((input.name.clone(), contents.ok_or_else(missing)?))
                })
                .collect::<Result<Vec<(String, Contents)>, RigError>>()?;
            let expected = match &self.task.reference {
                Reference::Builtin(_) | Reference::Command(_) => {
                    expected(&problem, REFERENCE_LIMIT)
                        .map_err(|error| self.broken(error.to_string()))?
                }
                Reference::Kernel(file) => self.trusted(device, &problem, &inputs, file)?,
            };
            Ok(Arc::new(Prepared {
                problem: Arc::new(problem),
                inputs,
                sampled: expected.iter().filter_map(sampled).collect(),
                expected,
            }))
        };
        Ok(self.prepared.get_or_make(key, make)?.0)
    }

    /// Runs the task's own kernel and takes what it writes for the truth.
    fn trusted(
        &self,
        device: &dyn Device,
        problem: &Problem,
        inputs: &[(String, Contents)],
        file: &str,
    ) -> Result<Vec<Expected>, RigError> {
        let broken = |message: String| self.broken(format!("kernel {file}: {message}"));
        let text = self
            .task
            .files
            .get(file)
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .ok_or_else(|| broken("is not in the task's folder, or is no text".to_owned()))?;
        let source = Source::parse(text).map_err(|error| broken(error.to_string()))?;
        let point = source
            .space()
            .default_point()
            .map_err(|error| broken(error.to_string()))?;
        let candidate = source
            .render(&point)
            .map_err(|error| broken(error.to_string()))?;
        let module = candidate
            .module
            .as_ref()
            .map_err(|error| broken(error.to_string()))?;
        let names = launch_names(problem, device.gpu());
        let plan = candidate
            .plan(&names)
            .map_err(|error| broken(error.to_string()))?;
        let cubin = match &self.assembler {
            Some(assembler) => match assembler.assemble(&candidate.ptx, device.gpu().arch, &[])? {
                Assembly::Cubin(cubin) => Some(cubin),
                Assembly::Refused(errors) => {
                    let messages: Vec<&str> = errors.iter().map(|e| e.message.as_str()).collect();
                    return Err(broken(messages.join("; ")));
                }
                Assembly::OverLimits(message) | Assembly::Failed(message) => {
                    return Err(broken(message));
                }
            },
            None => None,
        };
        let registers = cubin
            .as_ref()
            .map(|cubin| cubin.registers())
            .unwrap_or_default();
        let buffers = buffers(problem, inputs, Poison::Nan);
        let job = Job {
            module,
            cubin: cubin.as_ref().map(|cubin| &*cubin.bytes),
            registers: &registers,
            plan: &plan,
            buffers: &buffers,
            sampled: &[],
            order: 0,
        };
        let execution = device.execute(&job)?;
        match &execution.ended {
            Ended::Completed => {}
            Ended::Faulted(diagnostics) | Ended::Hung(diagnostics) => {
                let first = diagnostics.first().map_or("failed", |d| &d.message);
                return Err(broken(format!("at {}: {first}", problem.label())));
            }
            Ended::Refused(message) => return Err(broken(message.clone())),
        }
        problem
            .outputs()
            .map(|output| {
                let bytes = bytes_of(&execution, &output.name)
                    .ok_or_else(|| broken(format!("gave no `{}`", output.name)))?;
                Expected::trusted(problem, output, bytes.to_vec())
                    .map_err(|error| broken(error.to_string()))
            })
            .collect()
    }

    fn broken(&self, message: String) -> RigError {
        RigError::Reference {
            task: self.task.name.clone(),
            message,
        }
    }
}

/// The indices of an output's known elements, where they are few.
fn sampled(expected: &Expected) -> Option<Sampled> {
    match &expected.elements {
        Elements::All => None,
        Elements::Sampled(indices) => Some(Sampled {
            output: expected.output.clone(),
            elements: indices
                .iter()
                .flat_map(|index| index.to_le_bytes())
                .collect(),
        }),
    }
}

/// An input's contents: as bytes where they are few, else made where they are read.
fn contents(problem: &Problem, input: &task::Buffer) -> Option<Contents> {
    if input.bytes <= LARGEST_IN_MEMORY {
        return Some(Contents::Bytes(problem.input_bytes(&input.name)?.into()));
    }
    Some(Contents::Generated(problem.generator(&input.name)?))
}

/// The task's buffers as they are before a launch.
pub(super) fn buffers(
    problem: &Problem,
    inputs: &[(String, Contents)],
    poison: Poison,
) -> Vec<Buffer> {
    problem
        .buffers
        .iter()
        .map(|buffer| {
            let input = inputs.iter().find(|(name, _)| *name == buffer.name);
            Buffer {
                name: buffer.name.clone(),
                dtype: buffer.dtype,
                bytes: buffer.bytes,
                writable: buffer.role == Role::Output,
                contents: match input {
                    Some((_, contents)) => contents.clone(),
                    None => Contents::Fill(poison.byte()),
                },
            }
        })
        .collect()
}
