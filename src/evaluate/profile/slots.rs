//! What fills the issue slots, and why the rest stays empty: what there is to say of a kernel in which no unit
//! and no stall stands out. It measures nothing.

use super::advice;
use super::counters::Launch;
use super::diagnose::percent;
use crate::verdict::{Evidence, Stall};

/// Slots this busy are worth an account.
pub(super) const FILLED: f64 = 0.6;

/// From here on there is nothing left to fill.
const FULL: f64 = 0.9;

/// Machine instructions that compute; on others the hardware's time is overhead.
const COMPUTES: [&str; 22] = [
    "FFMA", "FADD", "FMUL", "FFMA2", "FADD2", "FMUL2", "HFMA2", "HADD2", "HMUL2", "DFMA", "DADD",
    "DMUL", "MUFU", "HMMA", "IMMA", "DMMA", "QMMA", "BMMA", "OMMA", "HGMMA", "IGMMA", "QGMMA",
];

/// What fills the issue slots, `74 % FFMA, 4 % LDS, 3 % others`, and how much of it computes.
pub(super) fn issued(launch: &Launch) -> (String, f64) {
    const NAMED: usize = 3;
    let mut opcodes: Vec<(&str, f64)> = Vec::new();
    for (opcode, n) in &launch.opcodes {
        let base = opcode.split('.').next().unwrap_or(opcode);
        match opcodes.iter_mut().find(|(known, _)| *known == base) {
            Some((_, sum)) => *sum += n,
            None => opcodes.push((base, *n)),
        }
    }
    opcodes.sort_by(|a, b| b.1.total_cmp(&a.1));
    let sum = |opcodes: &[(&str, f64)]| opcodes.iter().map(|(_, n)| n).sum::<f64>();
    let all = sum(&opcodes).max(1.0);
    let slots = |n: f64| launch.issue * n / all;
    let (named, others) = opcodes.split_at(opcodes.len().min(NAMED));
    let mut parts: Vec<String> = named
        .iter()
        .map(|(opcode, n)| format!("{} {opcode}", percent(slots(*n))))
        .collect();
    if slots(sum(others)) > 0.005 {
        parts.push(format!("{} others", percent(slots(sum(others)))));
    }
    opcodes.retain(|(opcode, _)| COMPUTES.contains(opcode));
    (parts.join(", "), sum(&opcodes) / all)
}

/// Why slots stay empty while most are filled: no single stall is large then, so the largest are named.
pub(super) fn empty(launch: &Launch, stalls: &[Stall]) -> Option<Evidence> {
    const NAMED: usize = 3;
    if !(FILLED..FULL).contains(&launch.issue) {
        return None;
    }
    let largest: Vec<_> = stalls
        .iter()
        .filter_map(|stall| Some((stall.share, advice::about(&stall.reason)?)))
        .take(NAMED)
        .filter(|(share, _)| *share > 0.05)
        .collect();
    let (_, first) = largest.first()?;
    let named: Vec<String> = largest
        .iter()
        .map(|(share, advice)| format!("{} {}", advice.words, percent(*share)))
        .collect();
    let mut help = vec![first.help.to_owned()];
    for (_, advice) in &largest[1..] {
        help.push(format!("{}: {}", advice.words, advice.help));
    }
    let (blocks, _) = launch.limits.tightest();
    if blocks < 2.0 && largest.iter().any(|(_, advice)| advice.reason == "barrier") {
        help.push(format!(
            "all {} warps of an SM are one block and wait at its barriers together: two blocks of half the size, or \
             fewer barriers",
            launch.warps_per_block()
        ));
    }
    Some(Evidence {
        text: format!(
            "{} of the issue slots stay empty; warps wait for: {}",
            percent(1.0 - launch.issue),
            named.join(", ")
        ),
        line: None,
        advice: Some(help.join("; ")),
    })
}
