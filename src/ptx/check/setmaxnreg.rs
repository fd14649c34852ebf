//! Register budgets that are moved between warpgroups.

use super::{Context, Findings, product};
use crate::ptx::ir::{Function, Immediate, Instruction, Operand};
use crate::verdict::Severity;

/// Registers of a multiprocessor.
const REGISTER_FILE: u64 = 65_536;
/// Threads of a warpgroup.
const WARPGROUP: u64 = 128;

/// What `setmaxnreg` can move within a kernel, if one warpgroup comes to each decrease and the rest to an increase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterBudget {
    /// Warpgroups of a block.
    pub warpgroups: u64,
    /// Registers that each thread has at the start.
    pub at_start: u64,
    /// One thread of each warpgroup together.
    pub pool: u64,
    /// Warpgroups that give registers away.
    pub givers: u64,
    /// Warpgroups that take them.
    pub takers: u64,
}

impl RegisterBudget {
    /// `None` where the kernel does not say how many threads a block has, nor how many registers they get.
    pub fn of(function: &Function, instructions: &[&Instruction]) -> Option<Self> {
        let directive = |name: &str| function.directives.iter().find(|d| d.name == name);
        let number = |name: &str| directive(name).and_then(|d| product(&d.arguments));
        let (cap, resident) = (number(".maxnreg"), number(".minnctapersm"));
        if cap.is_none() && resident.is_none() {
            return None;
        }
        let threads = number(".reqntid")
            .or(number(".maxntid"))
            .filter(|&threads| threads >= WARPGROUP)?;
        let warpgroups = threads / WARPGROUP;
        // in steps of eight
        let fair =
            (REGISTER_FILE / threads.saturating_mul(resident.unwrap_or(1).max(1))).min(255) / 8 * 8;
        let at_start = cap.unwrap_or(fair);
        let gives = |i: &&&Instruction| i.opcode == "setmaxnreg" && i.has("dec");
        let givers = instructions.iter().filter(gives).count() as u64;
        Some(Self {
            warpgroups,
            at_start,
            pool: at_start.saturating_mul(warpgroups),
            givers,
            takers: warpgroups.saturating_sub(givers),
        })
    }
}

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
    let declared = |name: &str| context.function.directives.iter().any(|d| d.name == name);
    if !declared(".maxnreg") && !declared(".minnctapersm") {
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
    let Some(budget) = RegisterBudget::of(context.function, &context.cfg.instructions) else {
        return;
    };
    let given: Vec<u64> = (moves.iter().filter(|(i, _)| i.has("dec")))
        .map(|&(_, n)| n)
        .collect();
    let Some(&(largest, wanted)) =
        (moves.iter().filter(|(i, _)| i.has("inc"))).max_by_key(|(_, n)| n)
    else {
        return;
    };
    let taken = budget.takers.saturating_mul(wanted);
    let total = given.iter().fold(taken, |sum, n| sum.saturating_add(*n));
    if total > budget.pool {
        findings.add(
            Severity::Warning,
            "setmaxnreg-budget",
            largest.span,
            format!(
                "{} warpgroups start with {} registers a thread, {} together; with one \
                 warpgroup at each `dec` and the rest at {wanted} they want {total}, and `inc` waits for ever",
                budget.warpgroups, budget.at_start, budget.pool
            ),
            "lower the increases or the decreases until the sum fits",
        );
    }
}
