//! How an access that must not be is told.

use super::super::{Env, Stop};
use crate::sim::finding::{Finding, FindingKind};
use crate::sim::memory::Refusal;
use crate::sim::op::Pc;

pub(in crate::sim::machine) fn fault(
    env: &Env<'_>,
    pc: Pc,
    kind: FindingKind,
    message: &str,
) -> Stop {
    let text = format!("`{}`: {message}", env.program.mnemonic(pc));
    Stop::Fault(Finding::new(kind, env.program.line(pc), text))
}

pub(in crate::sim::machine) fn misaligned(
    env: &Env<'_>,
    pc: Pc,
    address: u64,
    bytes: usize,
) -> Stop {
    fault(
        env,
        pc,
        FindingKind::Misaligned,
        &format!("address {address:#x} is no multiple of the access's {bytes} bytes"),
    )
}

pub(in crate::sim::machine) fn refused(
    env: &Env<'_>,
    pc: Pc,
    refusal: &Refusal,
    address: u64,
    bytes: usize,
    lane: usize,
) -> Stop {
    match refusal {
        Refusal::Misaligned => misaligned(env, pc, address, bytes),
        Refusal::OutOfBounds(place) => fault(
            env,
            pc,
            FindingKind::OutOfBounds,
            &format!("lane {lane} accesses {place}"),
        ),
        Refusal::ReadOnly(name) => fault(
            env,
            pc,
            FindingKind::ReadOnlyWrite,
            &format!("lane {lane} writes to the input `{name}`"),
        ),
    }
}

pub(in crate::sim::machine) fn uninitialised(env: &mut Env<'_>, pc: Pc, what: &str) {
    env.report(FindingKind::UninitialisedRead, pc, None, |program| {
        (
            format!(
                "`{}` reads {what} that nothing has written",
                program.mnemonic(pc)
            ),
            "write it first, or declare the workspace zero".into(),
        )
    });
}
