//! Opens the numbers of `setmaxnreg`: how many registers a warpgroup that brings data keeps, and how many those that
//! compute get. Only sums that the registers at the start cover are among the settings: the increase never waits for
//! ever. Numbers that differ from place to place, and those with holes, are left alone.

use super::{header, proposal};
use crate::propose::{Proposal, ProposalRequest};
use crate::ptx::RegisterBudget;
use crate::ptx::cfg::Cfg;
use crate::ptx::edit::{Edit, apply};
use crate::ptx::ir::{Immediate, Instruction, Item, Operand, Span};
use crate::source::KnobValue;

/// What a warpgroup that only starts copies may keep; from 24 on nothing the instruction allows is in the way.
const FEW: [u64; 4] = [24, 32, 40, 56];

/// How far from what they get now those that compute are tried, in the instruction's steps.
const STEPS: [i64; 5] = [-16, -8, 0, 8, 16];

/// What the instruction allows.
const ALLOWED: std::ops::RangeInclusive<u64> = 24..=256;

pub(super) fn propose(request: &ProposalRequest<'_>) -> Option<Proposal> {
    let text = &request.source.text;
    let kept = Number::find(text, "setmaxnreg.dec.")?;
    let taken = Number::find(text, "setmaxnreg.inc.")?;
    let budget = budget(request, kept.value, taken.value)?;
    let fits = |few: u64, many: u64| budget.givers * few + budget.takers * many <= budget.pool;
    let mut few: Vec<u64> = FEW.into_iter().chain([kept.value]).collect();
    few.retain(|few| *few <= budget.at_start);
    few.sort_unstable();
    few.dedup();
    let least = *few.first()?;
    let many: Vec<u64> = STEPS
        .iter()
        .filter_map(|step| taken.value.checked_add_signed(*step))
        .filter(|many| ALLOWED.contains(many) && *many >= budget.at_start && fits(least, *many))
        .collect();
    if few.len() * many.len() < 2 {
        return None;
    }
    let [keep, take] =
        ["KEPT_REGISTERS", "TAKEN_REGISTERS"].map(|name| header::free_name(text, name));
    let line = |name: &str, value: u64, values: &[u64]| {
        let values: Vec<String> = values.iter().map(u64::to_string).collect();
        format!("//@ knob {name} = {value} in {{{}}}", values.join(", "))
    };
    let lines = [
        line(&keep, kept.value, &few),
        line(&take, taken.value, &many),
        format!(
            "//@ require {} * {keep} + {} * {take} <= {}",
            budget.givers, budget.takers, budget.pool
        ),
    ];
    let mut edits = kept.edits(&keep);
    edits.extend(taken.edits(&take));
    let body = apply(text, &edits).ok()?;
    let other = |many: &&u64| **many != taken.value;
    proposal(
        request,
        "registers moved between warpgroups",
        header::with_lines(&body, &lines),
        &take,
        many.iter()
            .rev()
            .filter(other)
            .map(|many| KnobValue::Int(*many as i64))
            .collect(),
        format!(
            "{} warpgroups start with {} registers a thread; what the first keep the others may get.",
            budget.warpgroups, budget.at_start
        ),
    )
}

/// A number that stands after each of some instructions.
struct Number {
    value: u64,
    spans: Vec<Span>,
}

impl Number {
    /// `None` where there is none, or not the same plain number at all of them.
    fn find(text: &str, instruction: &str) -> Option<Self> {
        let mut found: Option<Self> = None;
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            let code = line.split("//").next().unwrap_or_default();
            if let Some(start) = code.find(instruction) {
                let end = start + code[start..].find(';')?;
                let word = code[..end].rsplit(char::is_whitespace).next()?;
                let value: u64 = word.parse().ok()?;
                let span = Span {
                    start: (at + end - word.len()) as u32,
                    end: (at + end) as u32,
                };
                let number = found.get_or_insert(Self {
                    value,
                    spans: Vec::new(),
                });
                if number.value != value {
                    return None;
                }
                number.spans.push(span);
            }
            at += line.len();
        }
        found
    }

    fn edits(&self, knob: &str) -> Vec<Edit> {
        let edit = |span: &Span| Edit {
            span: *span,
            replacement: format!("${{{knob}}}"),
        };
        self.spans.iter().map(edit).collect()
    }
}

/// The budget of the only kernel that moves registers, whose numbers are these.
fn budget(request: &ProposalRequest<'_>, kept: u64, taken: u64) -> Option<RegisterBudget> {
    let source = request.source;
    let candidate = source.render(&source.space().default_point().ok()?).ok()?;
    let module = candidate.module.as_ref().ok()?;
    let mut found = None;
    for item in &module.items {
        let Item::Function(function) = item else {
            continue;
        };
        let cfg = Cfg::new(function);
        let moves: Vec<&Instruction> = (cfg.instructions.iter().copied())
            .filter(|instruction| instruction.opcode == "setmaxnreg")
            .collect();
        if moves.is_empty() {
            continue;
        }
        let as_told = moves.iter().all(|instruction| {
            let wanted = if instruction.has("dec") { kept } else { taken };
            matches!(instruction.operands.first(),
                Some(Operand::Immediate(Immediate::Int(n))) if u64::try_from(*n) == Ok(wanted))
        });
        let budget = RegisterBudget::of(function, &cfg.instructions).filter(|_| as_told)?;
        if found.replace(budget).is_some() {
            return None;
        }
    }
    found
}
