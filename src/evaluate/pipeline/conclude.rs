//! The end: audit, score and all the words. Nothing runs here.

use super::Pipeline;
use super::front::Front;
use crate::device::{RigError, Timed};
use crate::evaluate::audit::{self, Audited, Finding, Target, TargetCounts};
use crate::evaluate::observe::Checked;
use crate::evaluate::ptxas::Cubin;
use crate::evaluate::verify::{self, Counts};
use crate::expr::Expr;
use crate::ptx;
use crate::task::{Problem, Purpose, TargetInstruction};
use crate::units::Nanos;
use crate::verdict::{
    Audit, Diagnosis, Evidence, InstructionScore, Measurement, Score, TargetShare, Time, Verdict,
    spilled,
};

/// Reasons beyond these add nothing: the same cheat shows at every size.
const MOST_REASONS: usize = 4;

/// What the tools that watch a GPU saw.
pub(super) struct Seen {
    /// Where the machine code comes from.
    pub(super) made: String,
    pub(super) sanitised: Checked,
    /// What a profile does not tell, or why there is none.
    pub(super) unprofiled: Vec<String>,
}

impl Pipeline {
    /// Audit, score and all the words: from here on nothing runs.
    pub(super) fn conclude(
        &self,
        front: &Front,
        cubin: &Cubin,
        verified: verify::Evidence,
        timed: Timed,
        seen: Seen,
        source_line: &dyn Fn(u32) -> Option<u32>,
    ) -> Result<Verdict, RigError> {
        let about = self.settings.device.about();
        let time = timed.time.nanos();
        let (share, targets) = self.target_instructions(&verified.counts, &timed)?;
        let mut audited = self.audit(&verified, &timed)?;
        let state = ptx::module_state(&front.module);
        audited.add(audit::module_state(&state, source_line));
        audited.add(targets);
        let mut checked = vec![
            "allowed PTX and lints".to_owned(),
            seen.made,
            format!("limits of the {}", self.gpu().name),
        ];
        checked.extend(verified.checked);
        checked.extend(about.checks.iter().cloned());
        checked.extend(audited.checked);
        checked.extend(seen.sanitised.checked);
        let mut not_checked = verified.not_checked;
        not_checked.extend(seen.sanitised.not_checked);
        match &timed.time {
            Time::Estimated { .. } => not_checked.extend(timed.notes),
            Time::Measured { .. } | Time::Recorded { .. } => {
                checked.extend(timed.notes);
                not_checked.extend(seen.unprofiled);
            }
        }
        not_checked.extend(about.cannot_check.iter().cloned());
        not_checked.extend(audited.not_checked);
        if !about.runs_timed_size {
            not_checked.push(format!("outputs at the timed size, {}", self.timed.size));
        }
        not_checked.extend(self.frontier_gaps());
        let mut warnings = front.warnings.clone();
        warnings.extend(cubin.advisories.iter().cloned());
        warnings.extend(verified.warnings);
        warnings.extend(seen.sanitised.warnings);
        let diagnosis = timed.diagnosis.map(|diagnosis| Diagnosis {
            evidence: self.evidence(diagnosis.evidence, time, source_line),
            executed: diagnosis
                .executed
                .map(|executed| Box::new(executed.in_source(source_line))),
            ..diagnosis
        });
        let void = audited.void;
        let measurement = Box::new(Measurement {
            score: Score {
                correct: true,
                instructions: InstructionScore::new(share, spilled(&cubin.resources))
                    .serialised(&cubin.advisories),
                speedup: self.speedup(time),
                audit: if void.is_empty() {
                    Audit::Passed
                } else {
                    Audit::Void {
                        reasons: void.clone(),
                    }
                },
            },
            time: timed.time,
            resources: cubin.resources.clone(),
            diagnosis,
            checked,
            not_checked,
            warnings,
        });
        Ok(if void.is_empty() {
            Verdict::Measured(measurement)
        } else {
            Verdict::Voided {
                reasons: void,
                measurement,
            }
        })
    }

    /// Counted on the smoke sizes where the device counts as it runs, else in the timed size's profile.
    fn target_instructions(
        &self,
        counts: &[Counts],
        timed: &Timed,
    ) -> Result<(TargetShare, Finding), RigError> {
        let task = &self.settings.task;
        let wanted = task.targets.get(&self.settings.arch);
        let wanted = wanted.map_or(&[][..], Vec::as_slice);
        let names: Vec<&str> = wanted.iter().map(|t| t.mnemonic.as_str()).collect();
        let needed = |problem: &Problem| -> Result<Vec<Target>, RigError> {
            wanted
                .iter()
                .map(|target| {
                    let needed = match &target.at_least {
                        Some(text) => Expr::new(text)
                            .and_then(|expr| expr.float(&problem.names()))
                            .map_err(|error| RigError::Reference {
                                task: task.name.clone(),
                                message: format!("at_least of {}: {error}", target.mnemonic),
                            })?,
                        None => 1.0,
                    };
                    Ok(Target {
                        mnemonic: target.mnemonic.clone(),
                        needed,
                    })
                })
                .collect()
        };
        let mut counted = Vec::new();
        for count in counts {
            if let (Purpose::Smoke, Some(executed)) = (count.problem.size.purpose, &count.executed)
            {
                counted.push(TargetCounts {
                    executed,
                    targets: needed(&count.problem)?,
                });
            }
        }
        if let (true, Some(profile)) = (counted.is_empty(), &timed.diagnosis)
            && !profile.target_instructions.is_empty()
            && (profile.hardware.is_none() || all_counted(wanted, &profile.target_instructions))
        {
            counted.push(TargetCounts {
                executed: &profile.target_instructions,
                targets: needed(&self.timed)?,
            });
        }
        Ok(audit::target_instructions(&names, &counted))
    }

    fn audit(&self, verified: &verify::Evidence, timed: &Timed) -> Result<Audited, RigError> {
        let mut audited = Audited::default();
        let time = timed.time.nanos();
        match &timed.time {
            // An estimate cannot be too good to be true, and nothing was called to watch.
            Time::Estimated { .. } => {
                audited.add(audit::Finding::NotChecked(
                    "time floor and outputs of timed calls: the time is estimated".to_owned(),
                ));
                let work = &self.timed.work;
                audited.add(audit::estimated_work(
                    timed.diagnosis.as_ref(),
                    work,
                    self.gpu(),
                ));
            }
            Time::Measured { .. } | Time::Recorded { .. } => {
                audited.add(audit::time_floor(time, self.floor()));
                audited.add(audit::device_floor(time, timed.floor));
                audited.add(audit::steady(
                    &timed.unsteady,
                    &self.settings.task.nondeterministic,
                    &self.compared(timed)?,
                ));
                audited.add(audit::forgetful(time, timed.afterwards));
                audited.add(audit::timed_memory(&timed.violations));
            }
        }
        let profile = timed.diagnosis.as_ref();
        if let Some((profile, hardware)) = profile.and_then(|p| Some((p, p.hardware.as_ref()?))) {
            self.audit_profile(&mut audited, profile, hardware.dram_read);
            return Ok(audited);
        }
        let allowed = audit::allowed_tensor_types(&self.settings.task);
        if verified.counts.is_empty() {
            audited.add(audit::executed_flops(None, &self.timed.work, ""));
            audited.add(audit::tensor_types(None, &allowed));
        }
        for (nth, counts) in verified.counts.iter().enumerate() {
            let flops = counts.flops.as_deref();
            let at = counts.problem.size.to_string();
            for finding in [
                audit::executed_flops(flops, &counts.problem.work, &at),
                audit::tensor_types(flops, &allowed),
            ] {
                tell(&mut audited, nth, finding);
            }
        }
        let by_size = |a: &Counts, b: &Counts| a.problem.size == b.problem.size;
        for (nth, counts) in verified.counts.chunk_by(by_size).enumerate() {
            let by_case: Vec<_> = counts
                .iter()
                .filter_map(|c| Some((c.problem.case.word(), c.flops.as_deref()?)))
                .collect();
            let at = counts[0].problem.size.to_string();
            tell(&mut audited, nth, audit::distribution(&by_case, &at));
        }
        Ok(audited)
    }

    /// What timed calls left in outputs that may differ between repeats, against the reference.
    fn compared(&self, timed: &Timed) -> Result<Vec<audit::Compared>, RigError> {
        let device = &*self.settings.device;
        let mut compared = Vec::with_capacity(timed.left.len());
        for (output, bytes) in &timed.left {
            let judged = self
                .verifier
                .judge_left(device, self.headline, output, bytes)?;
            compared.extend(judged.map(|judged| (output.clone(), judged)));
        }
        Ok(compared)
    }

    /// The device's evidence about the source, and where the time stands on the roofline.
    fn evidence(
        &self,
        evidence: Vec<Evidence>,
        time: Nanos,
        source_line: &dyn Fn(u32) -> Option<u32>,
    ) -> Vec<Evidence> {
        let roofline = self.floor().map(|floor| Evidence {
            text: format!(
                "{:.0} % of the roofline: {} is {}",
                100.0 * floor.time.get() / time.get(),
                floor.bound.word(),
                floor.time
            ),
            line: None,
            advice: None,
        });
        let mapped = evidence.into_iter().map(|evidence| Evidence {
            line: evidence.line.and_then(source_line),
            ..evidence
        });
        mapped.chain(roofline).collect()
    }

    /// What is not known of the frontier, a sentence each.
    fn frontier_gaps(&self) -> Vec<String> {
        let unmeasured = "frontier: not measured".to_owned();
        match self.baselines.get() {
            None => vec![unmeasured],
            Some(baselines) => {
                let none = baselines.frontier().is_none().then_some(unmeasured);
                none.into_iter().chain(baselines.gaps()).collect()
            }
        }
    }
}

/// Machine code does not tell every PTX instruction: one that was not counted is not one that did not run.
fn all_counted(wanted: &[TargetInstruction], counted: &[(String, u64)]) -> bool {
    wanted
        .iter()
        .all(|target| counted.iter().any(|(name, _)| *name == target.mnemonic))
}

/// Every problem is looked at; a check that passes is told once, for the first of them.
fn tell(audited: &mut Audited, nth: usize, finding: Finding) {
    let news = match finding {
        Finding::Void(_) => audited.void.len() < MOST_REASONS,
        Finding::Passed(_) | Finding::NotChecked(_) => nth == 0,
    };
    if news {
        audited.add(finding);
    }
}
