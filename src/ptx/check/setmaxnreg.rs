//! Register budgets that are moved between warpgroups.

use super::{Context, Findings, product};
use crate::ptx::ir::{Immediate, Instruction, Operand};
use crate::verdict::Severity;

/// Registers of a multiprocessor.
const REGISTER_FILE: u64 = 65_536;
/// Threads of a warpgroup.
const WARPGROUP: u64 = 128;

/// Reports `setmaxnreg` that ptxas drops, and increases that can never be granted.
pub(super) fn lint(context: &Context<'_>, findings: &mut Findings) {
    let moves: Vec<(&Instruction, u64)> = (context.cfg.instructions.iter())
        .filter(|instruction| instruction.opcode == "setmaxnreg")
        .filter_map(|&instruction| match instruction.operands.first() {
            Some(Operand::Immediate(Immediate::Int(n))) => {
                Some((instruction, u64::try_from(*n).ok()?))
            }
            _ => None,
        })
        .collect();
    let Some(&(first, _)) = moves.first() else {
        return;
    };
    let directive = |name: &str| context.function.directives.iter().find(|d| d.name == name);
    let number = |name: &str| directive(name).and_then(|d| product(&d.arguments));
    let (cap, resident) = (number(".maxnreg"), number(".minnctapersm"));
    if directive(".maxnreg").is_none() && directive(".minnctapersm").is_none() {
        findings.add(
            Severity::Warning,
            "setmaxnreg-ignored",
            first.span,
            "ptxas drops `setmaxnreg` from a kernel with neither `.minnctapersm` nor `.maxnreg`"
                .to_owned(),
            "add `.minnctapersm 1` after the parameters",
        );
        return;
    }
    let Some(threads) = number(".reqntid")
        .or(number(".maxntid"))
        .filter(|&t| t >= WARPGROUP)
    else {
        return;
    };
    let warpgroups = threads / WARPGROUP;
    // What each thread has at the start, in steps of eight.
    let fair = (REGISTER_FILE / (threads * resident.unwrap_or(1).max(1))).min(255) / 8 * 8;
    let at_start = cap.unwrap_or(fair);
    let pool = at_start * warpgroups;
    let given: Vec<u64> = (moves.iter().filter(|(i, _)| i.has("dec")))
        .map(|&(_, n)| n)
        .collect();
    let Some(&(largest, wanted)) =
        (moves.iter().filter(|(i, _)| i.has("inc"))).max_by_key(|(_, n)| n)
    else {
        return;
    };
    let takers = warpgroups.saturating_sub(given.len() as u64);
    let total = given.iter().sum::<u64>() + takers * wanted;
    if total > pool {
        findings.add(
            Severity::Warning,
            "setmaxnreg-budget",
            largest.span,
            format!(
                "{warpgroups} warpgroups start with {at_start} registers a thread, {pool} together; with one \
                 warpgroup at each `dec` and the rest at {wanted} they want {total}, and `inc` waits for ever"
            ),
            "lower the increases or the decreases until the sum fits",
        );
    }
}
