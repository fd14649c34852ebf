//! What the tools that watch a GPU add to a verdict: a profile of those that take the lead, a memory
//! checker's word on those about which a claim is made.

use super::{Aim, Front, Pipeline, mapped};
use crate::device::{Job, RigError, Timed};
use crate::evaluate::audit::{self, Audited};
use crate::evaluate::observe::{Checked, Observers, Watched};
use crate::evaluate::profile;
use crate::evaluate::ptxas::Cubin;
use crate::evaluate::sanitizer::Check;
use crate::task::Role;
use crate::units::Bytes;
use crate::verdict::{Diagnosis, Time, Verdict};

/// Why a candidate has no profile though it could have one.
const NOT_THE_LEADER: &str = "only kernels that take the lead are";

impl Pipeline {
    /// Profiles a timed call where that is worth it; beside the diagnosis, what could not be had. The inner
    /// error says why there is none.
    pub(super) fn profiled(
        &self,
        aim: Aim,
        front: &Front,
        cubin: &Cubin,
        job: &Job<'_>,
        timed: &Timed,
    ) -> Result<Result<(Diagnosis, Vec<String>), String>, RigError> {
        let (Some(observers), Time::Measured { median, .. }) = (&self.observers, &timed.time)
        else {
            return Ok(Err("no profiler was asked for".to_owned()));
        };
        if aim == Aim::Variant {
            return Ok(Err("the kernel itself is what is profiled".to_owned()));
        }
        let leads = observers.takes_the_lead(*median);
        match aim {
            Aim::Search if !leads => return Ok(Err(NOT_THE_LEADER.to_owned())),
            Aim::Search | Aim::Claim | Aim::Variant => {}
        }
        let profile = observers.profile(&self.watched(front, cubin), job)?;
        Ok(profile.map(|profile| {
            let targets = self.settings.task.targets.get(&self.settings.arch);
            let names: Vec<&str> = targets
                .into_iter()
                .flatten()
                .map(|target| target.mnemonic.as_str())
                .collect();
            let diagnosis = profile::diagnose(&profile, self.gpu(), &names);
            (diagnosis, profile.missing)
        }))
    }

    /// A memory checker's word on the smoke sizes; a verdict where it finds an error.
    pub(super) fn sanitised(
        &self,
        observers: &Observers,
        front: &Front,
        cubin: &Cubin,
        source_line: &dyn Fn(u32) -> Option<u32>,
    ) -> Result<Result<Checked, Box<Verdict>>, RigError> {
        let device = &*self.settings.device;
        let registers = cubin.registers();
        let smoke = self.verifier.smoke(device)?;
        let jobs: Vec<Job<'_>> = smoke
            .iter()
            .map(|(size, buffers)| Job {
                module: &front.module,
                cubin: Some(&cubin.bytes),
                registers: &registers,
                plan: &front.plans[*size],
                buffers,
                sampled: &[],
                order: 0,
            })
            .collect();
        let mut found = observers.check(&self.watched(front, cubin), &jobs)?;
        found.warnings = mapped(found.warnings, source_line);
        let Some((first, _)) = found.errors.first() else {
            return Ok(Ok(found));
        };
        let first = *first;
        let of_first = found
            .errors
            .into_iter()
            .filter(|(check, _)| *check == first);
        let diagnostics = mapped(of_first.map(|(_, error)| error).collect(), source_line);
        Ok(Err(Box::new(match first {
            Check::Memory => Verdict::Faulted { diagnostics },
            Check::Races | Check::Barriers => Verdict::Racy { diagnostics },
        })))
    }

    /// What a profile of the timed size says of the kernel's honesty.
    pub(super) fn audit_profile(&self, audited: &mut Audited, profile: &Diagnosis, read: Bytes) {
        let problem = &self.timed;
        let at = problem.size.to_string();
        let flops = Some(profile.flops.as_slice());
        audited.add(audit::executed_flops(flops, &problem.work, &at));
        let allowed = audit::allowed_tensor_types(&self.settings.task);
        audited.add(audit::tensor_types(flops, &allowed));
        audited.add(audit::dram_reads(Some(read), self.compulsory_reads()));
    }

    /// What any honest call reads from memory at least: no more than its inputs have, nor than the task's
    /// compulsory traffic leaves beside its outputs.
    fn compulsory_reads(&self) -> Bytes {
        let of = |role: Role| -> u64 {
            let buffers = self.timed.buffers.iter();
            buffers
                .filter(|buffer| buffer.role == role)
                .map(|buffer| buffer.bytes.0)
                .sum()
        };
        let by_formula = self.timed.work.bytes.0.saturating_sub(of(Role::Output));
        Bytes(by_formula.min(of(Role::Input)))
    }

    fn watched<'a>(&'a self, front: &'a Front, cubin: &'a Cubin) -> Watched<'a> {
        Watched {
            device: &*self.settings.device,
            assembler: &self.settings.assembler,
            arch: self.settings.arch,
            options: &self.settings.ptxas_options,
            ptx: &front.ptx,
            module: &front.module,
            cubin: &cubin.bytes,
        }
    }
}
