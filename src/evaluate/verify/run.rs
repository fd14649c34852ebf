//! One run of a candidate on a prepared problem: how it ended, what it touched, and whether its numbers are right.

use super::Subject;
use super::prepared::{Prepared, buffers};
use crate::device::{Device, Ended, Execution, Job, RigError, Whole};
use crate::evaluate::ptxas::in_source;
use crate::source::LaunchPlan;
use crate::task::Poison;
use crate::task::compare::{Got, compare};
use crate::verdict::{Diagnostic, Mismatch, Severity, Verdict};

/// One problem, to be run and compared.
pub(super) struct Run<'a> {
    pub(super) device: &'a dyn Device,
    pub(super) subject: &'a Subject<'a>,
    pub(super) plan: &'a LaunchPlan,
    pub(super) prepared: &'a Prepared,
}

impl Run<'_> {
    /// Runs it once, its threads in the order of this name where the device chooses it; what is wrong with the run
    /// or with the numbers is a verdict. Numbers that are wrong in this order alone tell of a race.
    pub(super) fn ordered(
        &self,
        poison: Poison,
        order: u64,
        warnings: &mut Vec<Diagnostic>,
    ) -> Result<Result<Execution, Box<Verdict>>, RigError> {
        let ended = self.once(poison, order, warnings)?;
        let Err(Verdict::Wrong { mismatch }) = ended.as_ref().map_err(|verdict| &**verdict) else {
            return Ok(ended);
        };
        if order == 0 || !self.device.about().chooses_order {
            return Ok(ended);
        }
        let racy = Verdict::Racy {
            diagnostics: vec![order_matters(mismatch)],
        };
        if self.once(poison, 0, warnings)?.is_err() {
            return Ok(ended);
        }
        Ok(Err(Box::new(racy)))
    }

    fn once(
        &self,
        poison: Poison,
        order: u64,
        warnings: &mut Vec<Diagnostic>,
    ) -> Result<Result<Execution, Box<Verdict>>, RigError> {
        let buffers = buffers(&self.prepared.problem, &self.prepared.inputs, poison);
        let job = Job {
            module: self.subject.module,
            cubin: self.subject.cubin,
            registers: self.subject.registers,
            plan: self.plan,
            buffers: &buffers,
            sampled: &self.prepared.sampled,
            order,
        };
        let execution = self.device.execute(&job)?;
        let mapped = |diagnostics: &[Diagnostic]| -> Vec<Diagnostic> {
            let map = |d: &Diagnostic| in_source(d.clone(), self.subject.source_line);
            diagnostics.iter().map(map).collect()
        };
        let failed = |verdict| Ok(Err(Box::new(verdict)));
        match &execution.ended {
            Ended::Completed => {}
            Ended::Faulted(diagnostics) => {
                let diagnostics = mapped(diagnostics);
                return failed(Verdict::Faulted { diagnostics });
            }
            Ended::Hung(diagnostics) => {
                let diagnostics = mapped(diagnostics);
                return failed(Verdict::Hung { diagnostics });
            }
            Ended::Refused(message) => {
                let message = message.clone();
                return failed(Verdict::OverLimits { message });
            }
        }
        if !execution.races.is_empty() {
            let diagnostics = mapped(&execution.races);
            return failed(Verdict::Racy { diagnostics });
        }
        let findings = mapped(&execution.findings);
        if findings
            .iter()
            .any(|finding| finding.severity == Severity::Error)
        {
            return failed(Verdict::Faulted {
                diagnostics: findings,
            });
        }
        if !execution.violations.is_empty() {
            return failed(Verdict::Wrong {
                mismatch: self.violated(&execution.violations),
            });
        }
        for expected in &self.prepared.expected {
            let got = bytes_of(&execution, &expected.output).ok_or_else(|| RigError::Device {
                device: self.device.gpu().name.clone(),
                message: format!("a run gave no output `{}`", expected.output),
            })?;
            let whole = execution
                .wholes
                .iter()
                .find(|whole| whole.output == expected.output);
            let got = match whole {
                Some(_) => Got::Known(got),
                None => Got::Whole(got),
            };
            if let Err(mismatch) = compare(&self.prepared.problem, expected, got, poison) {
                return failed(Verdict::Wrong { mismatch });
            }
            // A pattern of finite numbers may be a result; that of NaN is none.
            if let (Some(whole), Poison::Nan) = (whole, poison)
                && whole.untouched > 0
            {
                return failed(Verdict::Wrong {
                    mismatch: self.untouched(whole),
                });
            }
        }
        for finding in findings {
            if !warnings.contains(&finding) {
                warnings.push(finding);
            }
        }
        Ok(Ok(execution))
    }

    fn untouched(&self, whole: &Whole) -> Mismatch {
        let output = self.prepared.problem.buffer(&whole.output);
        let elements = output.map_or(whole.untouched, |output| output.elements);
        Mismatch {
            case: self.prepared.problem.label(),
            output: whole.output.clone(),
            wrong: whole.untouched,
            checked: elements,
            first: Vec::new(),
            pattern: Some(format!(
                "{} of {elements} elements never written: the poison is left",
                whole.untouched
            )),
        }
    }

    fn violated(&self, violations: &[String]) -> Mismatch {
        Mismatch {
            case: self.prepared.problem.label(),
            output: "memory it must not write".to_owned(),
            wrong: violations.len() as u64,
            checked: violations.len() as u64,
            first: Vec::new(),
            pattern: Some(violations.join("; ")),
        }
    }
}

/// What is right in one order of threads and wrong in another.
fn order_matters(mismatch: &Mismatch) -> Diagnostic {
    let Mismatch {
        case,
        output,
        wrong,
        checked,
        ..
    } = mismatch;
    Diagnostic {
        severity: Severity::Error,
        code: "order-matters".to_owned(),
        message: format!(
            "on the same inputs ({case}) `{output}` is right in one order of warps and blocks, and in another {wrong} \
             of {checked} elements are wrong"
        ),
        line: None,
        other_line: None,
        help: Some(
            "look for a missing barrier between warps that hand values to each other through memory, and for a wait \
             on asynchronous copies that is missing or too early"
                .to_owned(),
        ),
    }
}

pub(super) fn bytes_of<'a>(execution: &'a Execution, output: &str) -> Option<&'a [u8]> {
    let found = execution.outputs.iter().find(|(name, _)| name == output);
    found.map(|(_, bytes)| bytes.as_slice())
}
