//! Unrolls counted loops. In front of each round of several turns it is proved, in registers wide enough to
//! hold it, that none of their tests would have ended the loop; what is left runs through the loop as it
//! was. A register that each turn writes before it reads it gets a name for each turn, so that turns do not
//! wait for each other.

use std::collections::{BTreeMap, BTreeSet};

use super::change::{Change, Subject};
use super::counted::{CountedLoop, Test, counted_loops};
use super::header::free_prefix;
use super::kernel::Kernel;
use super::memory::{Effect, effect, is_pure};
use super::rename::renamed;
use crate::ptx::edit::Edit;
use crate::ptx::ir::{Operand, Span};

/// Turns in a round, in the order in which they are worth trying.
const FACTORS: [u32; 3] = [4, 2, 8];

/// Instructions that a round may have.
const LONGEST: usize = 1500;

pub(super) fn changes(subject: &Subject<'_>) -> Vec<Change> {
    let kernels = subject.kernels();
    let own = free_prefix(&subject.module.text, "turn");
    FACTORS
        .into_iter()
        .filter_map(|factor| {
            let mut edits = Vec::new();
            let mut count = 0;
            for kernel in &kernels {
                let mut declared: Vec<String> = Vec::new();
                for counted in counted_loops(kernel) {
                    let prefix = format!("%{own}{count}");
                    let label = format!("$L_{own}{count}");
                    let Some(round) = unrolled(subject, kernel, &counted, factor, &prefix, &label)
                    else {
                        continue;
                    };
                    count += 1;
                    edits.extend(round.edits);
                    declared.extend(round.declarations);
                }
                let body = kernel.function.body.as_ref()?;
                if !declared.is_empty() {
                    edits.push(Edit {
                        span: Span {
                            start: body.span.start + 1,
                            end: body.span.start + 1,
                        },
                        replacement: format!("\n{}", declared.join("\n")),
                    });
                }
            }
            let what = match count {
                0 => return None,
                1 => "a counted loop".to_owned(),
                _ => format!("{count} counted loops"),
            };
            Some(Change {
                label: format!("unroll by {factor}"),
                edits,
                rationale: format!(
                    "{what} made {factor} turns a round: fewer tests, and more loads in flight together."
                ),
            })
        })
        .collect()
}

struct Round {
    edits: Vec<Edit>,
    declarations: Vec<String>,
}

fn unrolled(
    subject: &Subject<'_>,
    kernel: &Kernel<'_>,
    counted: &CountedLoop<'_>,
    factor: u32,
    prefix: &str,
    label: &str,
) -> Option<Round> {
    let range = counted.range.clone();
    if range.len() * factor as usize > LONGEST {
        return None;
    }
    let convergent = range.clone().any(|index| meets(kernel, index));
    if convergent && !counted.is_uniform(kernel) {
        return None;
    }
    let guard = Guard::new(counted, factor, prefix)?;
    let mut declarations = guard.declarations.clone();
    let local = local_registers(kernel, counted);
    let mut text = format!("\n{}", guard.text);
    text.push_str(&format!("\t@!{prefix}_go bra \t{label}_rest;\n{label}:\n"));
    let mut of_type: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for turn in 1..=factor {
        let last = turn == factor;
        let name = |register: &str| -> Option<String> {
            (!last && local.contains(register))
                .then(|| format!("{prefix}_{turn}_{}", register.trim_start_matches('%')))
        };
        for index in range.start..range.end - 1 {
            let instruction = kernel.instruction(index);
            text.push('\t');
            text.push_str(&renamed(subject, instruction, &name)?);
            text.push('\n');
        }
        for register in &local {
            if let Some(name) = name(register) {
                of_type
                    .entry(kernel.register_type(register)?)
                    .or_default()
                    .push(name);
            }
        }
    }
    let (go_on, leave) = match counted.negated {
        false => ("", "!"),
        true => ("!", ""),
    };
    let predicate = counted.predicate;
    text.push_str(&format!("\t@{leave}{predicate} bra \t{label}_end;\n"));
    text.push_str(&guard.text);
    text.push_str(&format!("\t@{prefix}_go bra \t{label};\n{label}_rest:"));
    let span = counted.span;
    let body = Span {
        start: span.start,
        end: kernel.instruction(range.end - 1).span.start,
    };
    text.push_str(subject.text(body));
    text.push_str(&format!(
        "@{go_on}{predicate} bra \t{label}_rest;\n{label}_end:"
    ));
    for (ty, names) in of_type {
        declarations.push(format!("\t.reg {ty} \t{};", names.join(", ")));
    }
    Some(Round {
        edits: vec![Edit {
            span,
            replacement: text,
        }],
        declarations,
    })
}

/// What proves, before a round, that `factor` turns will be made.
struct Guard {
    /// Instructions, each on its line, that leave the answer in `PREFIX_go`.
    text: String,
    declarations: Vec<String>,
}

impl Guard {
    /// After the k-th turn of a round the counter is i + k·step; the tests of the turns before the last must
    /// all pass. For an order that is so where the last of them passes and the counter moves towards the
    /// bound without wrapping; for `!=` with a fixed step, where the bound is at least all turns away.
    fn new(counted: &CountedLoop<'_>, factor: u32, prefix: &str) -> Option<Self> {
        let turns = i64::from(factor - 1);
        let (i, bits) = (counted.counter, counted.bits);
        let bound = plain(counted.bound)?;
        let mut text = String::new();
        let mut line = |instruction: String| {
            text.push('\t');
            text.push_str(&instruction);
            text.push('\n');
        };
        let go = format!("{prefix}_go");
        let mut wide = Vec::new();
        let mut same = Vec::new();
        let mut predicates = vec![go.clone()];
        let kind = if counted.signed { 's' } else { 'u' };
        let rising = match counted.test {
            Test::Less | Test::LessEqual => true,
            Test::Greater | Test::GreaterEqual => false,
            Test::NotEqual => {
                let step = counted.fixed_step().filter(|step| *step != 0)?;
                let away = u64::from(factor).checked_mul(step.unsigned_abs())?;
                (away < 1 << 31).then_some(())?;
                let distance = format!("{prefix}_away");
                let (from, to) = match step > 0 {
                    true => (bound.as_str(), i),
                    false => (i, bound.as_str()),
                };
                // An immediate may not stand first.
                let first = format!("{prefix}_from");
                line(format!("mov.b{bits} \t{first}, {from};"));
                line(format!("sub.s{bits} \t{distance}, {first}, {to};"));
                line(format!("setp.ge.u{bits} \t{go}, {distance}, {away};"));
                same.extend([distance, first]);
                return Some(Self {
                    text,
                    declarations: declarations(&predicates, &same, bits, &[]),
                });
            }
        };
        let last = format!("{prefix}_last");
        let test = counted.test.suffix();
        match (counted.fixed_step(), bits) {
            (Some(step), 32) if (step > 0) == rising && step != 0 => {
                // 64 bits hold any i + turns · step.
                let limit = format!("{prefix}_bound");
                line(format!("cvt.{kind}64.{kind}32 \t{last}, {i};"));
                line(format!(
                    "add.s64 \t{last}, {last}, {};",
                    step.checked_mul(turns)?
                ));
                let narrow = format!("{prefix}_narrow");
                line(format!("mov.b32 \t{narrow}, {bound};"));
                line(format!("cvt.{kind}64.{kind}32 \t{limit}, {narrow};"));
                line(format!("setp.{test}.s64 \t{go}, {last}, {limit};"));
                wide.extend([last, limit]);
                same.push(narrow);
            }
            (Some(step), 64) if (step > 0) == rising && step != 0 => {
                let moved = format!("{prefix}_moved");
                let no_wrap = if rising { "ge" } else { "le" };
                line(format!(
                    "add.s64 \t{last}, {i}, {};",
                    step.checked_mul(turns)?
                ));
                line(format!("setp.{no_wrap}.{kind}64 \t{moved}, {last}, {i};"));
                line(format!("setp.{test}.{kind}64 \t{go}, {last}, {bound};"));
                line(format!("and.pred \t{go}, {go}, {moved};"));
                wide.push(last);
                predicates.push(moved);
            }
            // A step from a register: its sign is looked at, too.
            (None, 32) if rising => {
                let step = plain(counted.step)?;
                let (limit, by) = (format!("{prefix}_bound"), format!("{prefix}_by"));
                let (narrow, forward) = (format!("{prefix}_narrow"), format!("{prefix}_forward"));
                line(format!("cvt.{kind}64.{kind}32 \t{last}, {i};"));
                line(format!("cvt.{kind}64.{kind}32 \t{by}, {step};"));
                line(format!("mad.lo.s64 \t{last}, {by}, {turns}, {last};"));
                line(format!("mov.b32 \t{narrow}, {bound};"));
                line(format!("cvt.{kind}64.{kind}32 \t{limit}, {narrow};"));
                line(format!("setp.ge.s64 \t{forward}, {by}, 0;"));
                line(format!("setp.{test}.s64 \t{go}, {last}, {limit};"));
                line(format!("and.pred \t{go}, {go}, {forward};"));
                wide.extend([last, limit, by]);
                same.push(narrow);
                predicates.push(forward);
            }
            _ => return None,
        }
        Some(Self {
            text,
            declarations: declarations(&predicates, &same, bits, &wide),
        })
    }
}

fn declarations(predicates: &[String], same: &[String], bits: u32, wide: &[String]) -> Vec<String> {
    let kinds = [
        (".pred".to_owned(), predicates),
        (format!(".b{bits}"), same),
        (".b64".to_owned(), wide),
    ];
    let used = kinds.into_iter().filter(|(_, names)| !names.is_empty());
    used.map(|(ty, names)| format!("\t.reg {ty} \t{};", names.join(", ")))
        .collect()
}

/// A register or a number, as written.
fn plain(operand: &Operand) -> Option<String> {
    match operand {
        Operand::Name(name) => Some(name.clone()),
        Operand::Immediate(crate::ptx::ir::Immediate::Int(value)) => Some(value.to_string()),
        _ => None,
    }
}

/// Whether lanes of a warp meet here, or threads of a block.
fn meets(kernel: &Kernel<'_>, index: usize) -> bool {
    let instruction = kernel.instruction(index);
    let known = matches!(
        instruction.opcode.as_str(),
        "bra" | "atom" | "red" | "prefetch"
    ) || is_pure(instruction)
        || matches!(
            effect(kernel, index, &|_| 0),
            Effect::Read(_) | Effect::Write(_)
        )
        || matches!(instruction.opcode.as_str(), "ld" | "st");
    !known || instruction.has("sync") || instruction.has("aligned")
}

/// Registers that each turn writes before it reads them: nothing of the turn before is left in them. One
/// that only instructions under one guard touch counts where nothing outside the loop reads it.
fn local_registers<'m>(kernel: &Kernel<'m>, counted: &CountedLoop<'m>) -> BTreeSet<&'m str> {
    let range = &counted.range;
    let mut first_touch: BTreeMap<&'m str, bool> = BTreeMap::new();
    for index in range.clone() {
        let access = &kernel.access[index];
        for name in &access.reads {
            first_touch.entry(name).or_insert(false);
        }
        let whole = kernel.instruction(index).guard.is_none();
        for name in &access.writes {
            first_touch.entry(name).or_insert(whole);
        }
    }
    let mut local: BTreeSet<&'m str> = first_touch
        .iter()
        .filter(|(name, whole)| **whole && kernel.register_type(name).is_some())
        .map(|(name, _)| *name)
        .collect();
    local.extend(
        first_touch
            .iter()
            .filter(|(name, whole)| !**whole && guarded_local(kernel, counted, name))
            .map(|(name, _)| *name),
    );
    local
}

/// Whether a register is written first, and touched only under one guard that does not change meanwhile.
fn guarded_local(kernel: &Kernel<'_>, counted: &CountedLoop<'_>, name: &str) -> bool {
    if kernel.register_type(name).is_none() {
        return false;
    }
    let touches = |index: usize| {
        let access = &kernel.access[index];
        access.reads.contains(&name) || access.writes.contains(&name)
    };
    let count = kernel.cfg.instructions.len();
    let all: Vec<usize> = (0..count).filter(|index| touches(*index)).collect();
    let (Some(&first), Some(&last)) = (all.first(), all.last()) else {
        return false;
    };
    let inside = all.iter().all(|index| counted.range.contains(index));
    let guard = &kernel.instruction(first).guard;
    let Some(condition) = guard else {
        return false;
    };
    let same = all
        .iter()
        .all(|index| kernel.instruction(*index).guard == *guard);
    let register = condition.register.as_str();
    let kept = (first..=last).all(|index| !kernel.access[index].writes.contains(&register));
    let begins = !kernel.access[first].reads.contains(&name);
    inside && same && kept && begins && register != name
}
