//! Values of the next turn of a counted loop, computed before this one's work is done: registers that move
//! by a fixed amount each turn, and what is computed from them.

use std::collections::{BTreeMap, BTreeSet};

use super::change::Subject;
use super::counted::{CountedLoop, counted_loops};
use super::header::free_prefix;
use super::kernel::Kernel;
use super::memory::is_pure;
use super::rename::renamed;
use crate::ptx::edit::{Edit, apply};
use crate::ptx::ir::{Operand, Span};

/// What a rewrite did to one counted loop.
pub(super) struct Carried {
    pub(super) edit: Edit,
    /// Declarations for the top of the kernel.
    pub(super) declared: Vec<String>,
    /// Loads or products that it is about.
    pub(super) count: usize,
}

/// Code around a loop's body.
pub(super) struct Code {
    /// Before the loop.
    pub(super) before: String,
    /// At the top of each turn.
    pub(super) top: String,
    /// Before the branch back.
    pub(super) bottom: String,
}

/// Rewrites every counted loop that `rewritten` takes, given a prefix for its registers and a label for its
/// code, both of the stem and free. The edits, and how many loads or products they are about.
pub(super) fn each_loop(
    subject: &Subject<'_>,
    stem: &str,
    rewritten: impl Fn(&Kernel<'_>, &CountedLoop<'_>, String, &str) -> Option<Carried>,
) -> (Vec<Edit>, usize) {
    let own = free_prefix(&subject.module.text, stem);
    let mut edits = Vec::new();
    let mut count = 0;
    for kernel in subject.kernels() {
        let mut declared = Vec::new();
        for (nth, counted) in counted_loops(&kernel).iter().enumerate() {
            let prefix = format!("%{own}{nth}_");
            let label = format!("$L_{own}{nth}");
            let Some(carried) = rewritten(&kernel, counted, prefix, &label) else {
                continue;
            };
            edits.push(carried.edit);
            declared.extend(carried.declared);
            count += carried.count;
        }
        let body = kernel.function.body.as_ref();
        if let Some(body) = body.filter(|_| !declared.is_empty()) {
            let at = body.span.start + 1;
            edits.push(Edit {
                span: Span { start: at, end: at },
                replacement: format!("\n{}", declared.join("\n")),
            });
        }
    }
    (edits, count)
}

/// Computes a loop's values for the turn after this one, in fresh registers.
pub(super) struct Ahead<'k, 'm> {
    kernel: &'k Kernel<'m>,
    counted: &'k CountedLoop<'m>,
    prefix: String,
    /// Fresh registers by type.
    pub(super) declared: BTreeMap<String, Vec<String>>,
}

/// What a value at the top of the loop is computed from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Slice {
    /// Instructions of the loop, in order.
    pub(super) members: BTreeSet<usize>,
    /// The instructions that move the registers it begins with: `add x, x, step`.
    pub(super) moves: BTreeSet<usize>,
}

impl<'k, 'm> Ahead<'k, 'm> {
    pub(super) fn new(
        kernel: &'k Kernel<'m>,
        counted: &'k CountedLoop<'m>,
        prefix: String,
    ) -> Self {
        Self {
            kernel,
            counted,
            prefix,
            declared: BTreeMap::new(),
        }
    }

    /// What `names`, as instruction `at` reads them, come from: through instructions that only compute, to
    /// registers that the loop leaves alone or moves by a fixed amount after they were read. `None` where
    /// anything else has a part.
    pub(super) fn slice(&self, names: &[&'m str], at: usize) -> Option<Slice> {
        let mut slice = Slice::default();
        let mut open: Vec<(&'m str, usize)> = names.iter().map(|name| (*name, at)).collect();
        while let Some((name, at)) = open.pop() {
            if self.kernel.register_type(name).is_none() {
                continue;
            }
            let inside = self.writers_inside(name);
            let [writer] = inside.as_slice() else {
                if inside.is_empty() {
                    continue;
                }
                return None;
            };
            let instruction = self.kernel.instruction(*writer);
            if instruction.guard.is_some() || !is_pure(instruction) {
                return None;
            }
            if *writer < at {
                // A pair of results would have to be renamed together.
                (self.kernel.access[*writer].writes.len() == 1).then_some(())?;
                if slice.members.insert(*writer) {
                    let reads = &self.kernel.access[*writer].reads;
                    open.extend(reads.iter().map(|read| (*read, *writer)));
                }
                continue;
            }
            self.moves(*writer, name).then_some(())?;
            slice.moves.insert(*writer);
        }
        Some(slice)
    }

    /// The slice's instructions for this turn, or for the next, each on its line; and what each register is
    /// called there.
    pub(super) fn computed(
        &mut self,
        subject: &Subject<'_>,
        slice: &Slice,
        next: bool,
    ) -> Option<(String, BTreeMap<&'m str, String>)> {
        // A register read both before and after it moves has two values a turn.
        slice.members.is_disjoint(&slice.moves).then_some(())?;
        let mut names: BTreeMap<&'m str, String> = BTreeMap::new();
        let mut text = String::new();
        let turn = if next { "next" } else { "first" };
        let moves = slice.moves.iter().filter(|_| next);
        for &index in moves.chain(&slice.members) {
            let register = *self.kernel.access[index].writes.first()?;
            let fresh = self.fresh(turn, register)?;
            let is_move = slice.moves.contains(&index);
            let instruction = self.kernel.instruction(index);
            // The result is the first register in the text; a register moved is read under its old name.
            let written = renamed(subject, instruction, &|name| match is_move {
                true => None,
                false => names.get(name).cloned(),
            })?;
            let at = written.find(register)?;
            text.push('\t');
            text.push_str(&written[..at]);
            text.push_str(&fresh);
            text.push_str(&written[at + register.len()..]);
            text.push('\n');
            names.insert(register, fresh);
        }
        Some((text, names))
    }

    /// A register of the same type as `like`.
    pub(super) fn fresh(&mut self, what: &str, like: &str) -> Option<String> {
        let ty = self.kernel.register_type(like)?;
        let name = format!("{}{what}_{}", self.prefix, like.trim_start_matches('%'));
        let known = self.declared.entry(ty.to_owned()).or_default();
        if !known.contains(&name) {
            known.push(name.clone());
        }
        Some(name)
    }

    /// The loop with these replacements, at offsets from its start, and `code` around them; its branch goes to
    /// `label`. It is about `count` loads or products.
    pub(super) fn carried(
        &self,
        subject: &Subject<'_>,
        label: &str,
        mut replaced: Vec<Edit>,
        code: &Code,
        count: usize,
    ) -> Option<Carried> {
        let counted = self.counted;
        let Code {
            before,
            top,
            bottom,
        } = code;
        let start = counted.span.start;
        let branch = self.kernel.instruction(counted.range.end - 1).span;
        let not = if counted.negated { "!" } else { "" };
        replaced.push(Edit {
            span: Span {
                start: branch.start - start,
                end: branch.end - start,
            },
            replacement: format!("{bottom}@{not}{} bra \t{label};", counted.predicate),
        });
        let body = apply(subject.text(counted.span), &replaced).ok()?;
        let body = body.trim_start_matches('\n');
        Some(Carried {
            edit: Edit {
                span: counted.span,
                replacement: format!("\n{before}{label}:\n{top}{body}"),
            },
            declared: self.declarations(),
            count,
        })
    }

    /// Declarations of all fresh registers, a line each.
    fn declarations(&self) -> Vec<String> {
        let types = self.declared.iter();
        types
            .map(|(ty, names)| format!("\t.reg {ty} \t{};", names.join(", ")))
            .collect()
    }

    fn writers_inside(&self, name: &str) -> Vec<usize> {
        let writers = self.kernel.writers.get(name).into_iter().flatten();
        writers
            .copied()
            .filter(|index| self.counted.range.contains(index))
            .collect()
    }

    /// `add x, x, step` with a step that the loop leaves alone.
    fn moves(&self, index: usize, register: &str) -> bool {
        let instruction = self.kernel.instruction(index);
        let [Operand::Name(to), Operand::Name(from), step] = instruction.operands.as_slice() else {
            return false;
        };
        let fixed = match step {
            Operand::Immediate(_) => true,
            Operand::Name(step) => {
                self.kernel.register_type(step).is_some() && self.writers_inside(step).is_empty()
            }
            _ => false,
        };
        instruction.opcode == "add"
            && instruction.modifiers.len() == 1
            && to == register
            && from == register
            && fixed
    }
}
