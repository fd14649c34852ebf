//! Loads what the next turn of a counted loop reads into registers while this turn works on what the turn
//! before loaded. The load is made only where that turn will be made, from buffers that the kernel never
//! writes, so that it reads what it would have read.

use std::collections::{BTreeMap, BTreeSet};

use super::carried::{Ahead, Carried, Code, Slice, each_loop};
use super::change::{Change, Subject};
use super::counted::CountedLoop;
use super::kernel::Kernel;
use super::memory::{Effect, effect};
use super::rename::renamed;
use crate::ptx::edit::Edit;
use crate::ptx::ir::{Operand, Span};

/// Loads of a turn; each takes a register or two.
const MOST: usize = 16;

pub(super) fn changes(subject: &Subject<'_>) -> Vec<Change> {
    let (edits, loads) = each_loop(subject, "ahead", |kernel, counted, prefix, label| {
        prefetched(subject, kernel, counted, prefix, label)
    });
    if edits.is_empty() {
        return Vec::new();
    }
    vec![Change {
        label: "prefetch into registers".to_owned(),
        edits,
        rationale: format!(
            "{loads} loads of the next turn are in flight while this turn is worked on."
        ),
    }]
}

fn prefetched(
    subject: &Subject<'_>,
    kernel: &Kernel<'_>,
    counted: &CountedLoop<'_>,
    prefix: String,
    label: &str,
) -> Option<Carried> {
    let mut ahead = Ahead::new(kernel, counted, prefix);
    let range = counted.range.clone();
    // `add i, i, step; setp p, i, bound;` for the turn after this one.
    let test = range
        .clone()
        .find(|index| kernel.access[*index].writes.contains(&counted.predicate))?;
    let written = kernel.written()?;
    let loads: Vec<(usize, Slice)> = range
        .clone()
        .filter_map(|index| Some((index, loadable(kernel, counted, &ahead, &written, index)?)))
        .take(MOST)
        .collect();
    if loads.is_empty() {
        return None;
    }
    let mut slice = Slice::default();
    for (_, own) in &loads {
        slice.members.extend(&own.members);
        slice.moves.extend(&own.moves);
    }
    let (first, first_names) = ahead.computed(subject, &slice, false)?;
    slice.moves.insert(counted.add);
    let (next, next_names) = ahead.computed(subject, &slice, true)?;
    let go = ahead.fresh("go", counted.predicate)?;
    let counter = next_names.get(counted.counter)?.clone();
    let tested = renamed(subject, kernel.instruction(test), &|name| match name {
        _ if name == counted.predicate => Some(go.clone()),
        _ if name == counted.counter => Some(counter.clone()),
        _ => None,
    })?;
    let not = if counted.negated { "!" } else { "" };

    // Into the turn's own registers before the loop; then this turn takes them over, and asks for the next.
    let (mut before, mut top, mut bottom) = (first, format!("{next}\t{tested}\n"), String::new());
    let mut replaced: Vec<Edit> = Vec::new();
    let start = counted.span.start;
    for (index, _) in &loads {
        let instruction = kernel.instruction(*index);
        let register = *kernel.access[*index].writes.first()?;
        let here = ahead.fresh("here", register)?;
        let coming = ahead.fresh("coming", register)?;
        let load = |names: &BTreeMap<&str, String>, target: &str| {
            renamed(subject, instruction, &|name| {
                if name == register {
                    Some(target.to_owned())
                } else {
                    names.get(name).cloned()
                }
            })
        };
        before.push_str(&format!("\t{}\n", load(&first_names, &here)?));
        top.push_str(&format!("\t@{not}{go} {}\n", load(&next_names, &coming)?));
        let bits = kernel
            .register_type(register)?
            .trim_start_matches(|c: char| !c.is_ascii_digit());
        replaced.push(Edit {
            span: Span {
                start: instruction.span.start - start,
                end: instruction.span.end - start,
            },
            replacement: format!("mov.b{bits} \t{register}, {here};"),
        });
        bottom.push_str(&format!("@{not}{go} mov.b{bits} \t{here}, {coming};\n\t"));
    }
    let code = Code {
        before,
        top,
        bottom,
    };
    ahead.carried(subject, label, replaced, &code, loads.len())
}

/// What the address of a load comes from, where the load may be made a turn early.
fn loadable(
    kernel: &Kernel<'_>,
    counted: &CountedLoop<'_>,
    ahead: &Ahead<'_, '_>,
    written: &BTreeSet<String>,
    index: usize,
) -> Option<Slice> {
    let instruction = kernel.instruction(index);
    let Effect::Read(_) = effect(kernel, index, &|_| 0) else {
        return None;
    };
    let [Operand::Name(register), Operand::Address(address)] = instruction.operands.as_slice()
    else {
        return None;
    };
    let base = address.base.as_deref()?;
    let buffers = kernel.buffers(base).filter(|buffers| !buffers.is_empty())?;
    let ty = kernel.register_type(register)?;
    let whole = matches!(
        ty,
        ".b32" | ".u32" | ".s32" | ".f32" | ".b64" | ".u64" | ".s64" | ".f64"
    );
    // Written here alone, read later in this turn alone.
    let only = kernel.only_writer(register) == Some(index);
    let readers = kernel.readers.get(register.as_str())?;
    let local = readers
        .iter()
        .all(|reader| counted.range.contains(reader) && *reader > index);
    (instruction.guard.is_none()
        && instruction.has("global")
        && whole
        && only
        && local
        && buffers.is_disjoint(written))
    .then_some(())?;
    let slice = ahead.slice(&[base], index)?;
    // An address that never moves needs no prefetch.
    (!slice.moves.is_empty()).then_some(slice)
}
