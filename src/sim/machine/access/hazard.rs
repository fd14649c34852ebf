//! How clashes in shared memory are told: which two accesses, why they clash, and what would order them.

use super::super::Env;
use super::fault::uninitialised;
use crate::sim::finding::FindingKind;
use crate::sim::op::Pc;
use crate::sim::shared::{Hazard, Race, Seen};

/// What a request saw, to report once.
#[derive(Default)]
pub(in crate::sim::machine) struct Hazards {
    race: Option<Race>,
    pub undefined: bool,
}

impl Hazards {
    #[inline]
    pub fn note(&mut self, seen: Seen) {
        self.race = self.race.or(seen.race);
        self.undefined |= seen.undefined;
    }

    #[inline]
    pub fn race(&mut self, race: Option<Race>) {
        self.race = self.race.or(race);
    }

    pub fn report(&self, env: &mut Env<'_>, pc: Pc) {
        if !env.options.checks {
            return;
        }
        if self.undefined {
            uninitialised(env, pc, "shared memory");
        }
        if let Some(race) = self.race {
            report_race(env, pc, race);
        }
    }
}

/// Tells of a clash. The report carries both lines; a number in the text would be that of the rendering.
pub(in crate::sim::machine) fn report_race(env: &mut Env<'_>, pc: Pc, race: Race) {
    let asynchronous = env.program.works_beside(pc);
    let (kind, what, help) = match race.hazard {
        Hazard::ReadAfterWrite => (
            FindingKind::MissingBarrier,
            "reads shared memory that another warp writes, with no barrier between",
            "put `bar.sync 0;` between the two",
        ),
        Hazard::WriteAfterRead if asynchronous => (
            FindingKind::EarlyRelease,
            "overwrites shared memory that a warp may still read",
            "let every reader arrive on the stage's `empty` mbarrier after its last read, and wait for that phase before the copy",
        ),
        Hazard::WriteAfterRead => (
            FindingKind::MissingBarrier,
            "writes shared memory that another warp reads, with no barrier between",
            "put `bar.sync 0;` between the two",
        ),
        Hazard::WriteAfterWrite => (
            FindingKind::MissingBarrier,
            "writes shared memory that another warp writes too, with no barrier between",
            "put `bar.sync 0;` between the two",
        ),
        Hazard::ReadInFlight => (
            FindingKind::AsyncNotWaited,
            "reads shared memory that an asynchronous copy writes, before the copy was waited for",
            "wait for the copy first: for the mbarrier phase that counts its bytes, in that round's parity, or for its group, and then at a barrier for other threads' copies",
        ),
        Hazard::WriteInFlight => (
            FindingKind::AsyncNotWaited,
            "writes shared memory that an asynchronous copy writes, before the copy was waited for",
            "wait for the copy first: for the mbarrier phase that counts its bytes, or for its group",
        ),
        Hazard::OverwritesReading => (
            FindingKind::EarlyRelease,
            "overwrites shared memory that asynchronous work may still read",
            "wait for its group first (`wgmma.wait_group`, `cp.async.bulk.wait_group.read`), then let the writer know by an mbarrier or a barrier",
        ),
        Hazard::Unfenced => (
            FindingKind::MissingProxyFence,
            "asynchronous work reads shared memory that ordinary stores wrote, with no proxy fence between",
            "put `fence.proxy.async.shared::cta;` after the stores in every thread that stores, before the barrier",
        ),
    };
    env.report(kind, pc, Some(race.earlier), |_| {
        (what.to_owned(), help.to_owned())
    });
}
