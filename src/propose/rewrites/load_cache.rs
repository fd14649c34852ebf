//! Leaves the cache operator of plain global loads open: through the read-only path (`.nc`), past L1, or
//! without a line in it. Only loads of the task's inputs take part: their base comes from a parameter that
//! every launch of the kernel binds to an input, and no kernel stores to it. A source that gives some such
//! load an operator, or a knob for one, is left alone.

use std::collections::{BTreeMap, BTreeSet};

use super::{header, proposal};
use crate::propose::{Proposal, ProposalRequest, sample_names};
use crate::ptx::Lines;
use crate::ptx::ir::{
    Address, Block, Function, FunctionKind, Instruction, Item, Module, Operand, Statement,
};
use crate::source::{Argument, Candidate, KnobValue, LaunchPlan, Source};
use crate::task::{Role, Task};

/// In the order in which the search walks them.
const OPERATORS: [&str; 5] = ["", ".nc", ".nc.L1::no_allocate", ".L1::no_allocate", ".cg"];

/// Renderings looked at: the default and those one knob away from it.
const RENDERINGS: usize = 64;

pub(super) fn propose(request: &ProposalRequest<'_>) -> Option<Proposal> {
    let source = request.source;
    let lines = open_lines(source, request.task)?;
    let knob = header::free_name(&source.text, "LOAD_CACHE");
    let hole = format!("${{{knob}}}");
    let mut count = 0;
    let body: String = (1..)
        .zip(source.text.split_inclusive('\n'))
        .map(|(number, line)| {
            if !lines.contains(&number) {
                return line.to_owned();
            }
            let (edited, edits) = with_hole(line, &hole);
            count += edits;
            edited
        })
        .collect();
    if count == 0 {
        return None;
    }
    let values: Vec<String> = OPERATORS.iter().map(|text| format!("{text:?}")).collect();
    let line = format!("//@ knob {knob} = \"\" in {{{}}}", values.join(", "));
    proposal(
        request,
        "cache operator on loads",
        header::with_lines(&body, &[line]),
        &knob,
        [".nc.L1::no_allocate", ".nc"]
            .map(|text| KnobValue::Text(text.to_owned()))
            .to_vec(),
        format!(
            "{count} load instructions read inputs that nothing writes: they may take the read-only path or leave no line in L1."
        ),
    )
}

/// The source lines (from 1) on which every global load is a plain one of an unwritten input, whatever
/// rendering one looks at.
fn open_lines(source: &Source, task: &Task) -> Option<BTreeSet<u32>> {
    let space = source.space();
    let default = space.default_point().ok()?;
    let mut points = space.neighbours(&default);
    points.insert(0, default);
    points.truncate(RENDERINGS);
    let (mut open, mut closed) = (BTreeSet::new(), BTreeSet::new());
    let names = sample_names(task);
    for point in points {
        let candidate = source.render(&point).ok()?;
        let module = candidate.module.as_ref().ok()?;
        let plan = candidate.plan(&names).ok()?;
        classify(&candidate, module, &plan, task, &mut open, &mut closed)?;
    }
    Some(&open - &closed)
}

/// Sorts the lines of one rendering's global loads. `None` where it cannot be known what is written, or
/// where a load of an input has an operator.
fn classify(
    candidate: &Candidate,
    module: &Module,
    plan: &LaunchPlan,
    task: &Task,
    open: &mut BTreeSet<u32>,
    closed: &mut BTreeSet<u32>,
) -> Option<()> {
    let lines = Lines::new(&module.text);
    let mut kernels = Vec::new();
    for item in &module.items {
        match item {
            Item::Function(function) if function.kind == FunctionKind::Entry => {
                kernels.push(Kernel::new(function, plan)?);
            }
            // A device function may do anything with a pointer.
            Item::Function(_) => return None,
            Item::Directive(_) | Item::Variable(_) => {}
        }
    }
    let mut written = BTreeSet::new();
    for kernel in &kernels {
        written.extend(kernel.written()?);
    }
    for kernel in &kernels {
        for load in kernel.instructions.iter().filter(|i| is_global_load(i)) {
            let source_line = candidate.source_line(lines.line(load.span.start))?;
            let base = kernel.base_of(load);
            let is_input = base.is_some_and(|base| {
                let param = task.param(&base);
                param.is_some_and(|param| param.role == Role::Input) && !written.contains(&base)
            });
            match (is_input, is_plain(load)) {
                (true, true) => open.insert(source_line),
                // Whoever wrote it has thought of operators: what is plain here is plain on purpose.
                (true, false) => return None,
                (false, _) => closed.insert(source_line),
            };
        }
    }
    Some(())
}

/// A kernel's instructions and where its registers' values come from.
struct Kernel<'a> {
    instructions: Vec<&'a Instruction>,
    origins: BTreeMap<&'a str, Origin>,
    /// By parameter: the buffers that launches bind to it; `None` for a number.
    bound: Vec<BTreeSet<Option<String>>>,
}

/// Where a register's value may come from, in any part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Origin {
    /// Indices of parameters.
    params: BTreeSet<usize>,
    /// Also from memory: it may be any pointer.
    memory: bool,
}

impl<'a> Kernel<'a> {
    fn new(function: &'a Function, plan: &LaunchPlan) -> Option<Self> {
        let mut instructions = Vec::new();
        collect(function.body.as_ref()?, &mut instructions);
        if instructions.iter().any(|i| i.opcode == "call") {
            return None;
        }
        let names: Vec<&str> = function
            .params
            .iter()
            .flat_map(|param| param.names.iter().map(|name| name.name.as_str()))
            .collect();
        let mut bound = vec![BTreeSet::new(); names.len()];
        for launch in plan.launches.iter().filter(|l| l.entry == function.name) {
            if launch.args.len() != names.len() {
                return None;
            }
            for (bound, arg) in bound.iter_mut().zip(&launch.args) {
                bound.insert(match arg {
                    Argument::Buffer(name) | Argument::Workspace(name) => Some(name.clone()),
                    Argument::TensorMap(name) => {
                        let map = plan.tensor_maps.iter().find(|map| map.name == *name)?;
                        Some(map.base.clone())
                    }
                    Argument::Int(_) | Argument::Float(_) => None,
                });
            }
        }
        let mut kernel = Self {
            origins: BTreeMap::new(),
            instructions,
            bound,
        };
        kernel.trace(&names);
        Some(kernel)
    }

    /// Follows values from parameters through registers, without regard to order, until nothing is new. A
    /// register of one name in two scopes counts as one: more origins, never fewer.
    fn trace(&mut self, params: &[&str]) {
        let index = |name: &str| params.iter().position(|param| *param == name);
        loop {
            let mut changed = false;
            for instruction in &self.instructions {
                let Some((first, rest)) = instruction.operands.split_first() else {
                    continue;
                };
                let mut origin = Origin::default();
                let reads_memory = matches!(
                    instruction.opcode.as_str(),
                    "ld" | "ldu" | "atom" | "ldmatrix"
                );
                if reads_memory && !instruction.has("param") {
                    origin.memory = true;
                } else {
                    for name in rest.iter().flat_map(names_in) {
                        origin.params.extend(index(name));
                        if let Some(from) = self.origins.get(name) {
                            origin.params.extend(&from.params);
                            origin.memory |= from.memory;
                        }
                    }
                }
                if address(first).is_some() {
                    continue;
                }
                // A branch's or barrier's first operand is no destination: it then only gains origins.
                for name in names_in(first) {
                    let known = self.origins.entry(name).or_default();
                    let before = known.clone();
                    known.params.extend(&origin.params);
                    known.memory |= origin.memory;
                    changed |= *known != before;
                }
            }
            if !changed {
                return;
            }
        }
    }

    /// Names of the buffers that its stores may reach; `None` where one may reach any.
    fn written(&self) -> Option<BTreeSet<String>> {
        let mut written = BTreeSet::new();
        for store in self.instructions.iter().filter(|i| is_global_store(i)) {
            let addresses: Vec<&Address> = store.operands.iter().filter_map(address).collect();
            if addresses.is_empty() {
                return None;
            }
            for address in addresses {
                let buffers = self.buffers(address.base.as_deref()?)?;
                if buffers.is_empty() {
                    return None;
                }
                written.extend(buffers);
            }
        }
        Some(written)
    }

    /// The one buffer that a load reads from, where it is known.
    fn base_of(&self, load: &Instruction) -> Option<String> {
        let address = load.operands.iter().find_map(address)?;
        let mut buffers = self.buffers(address.base.as_deref()?)?.into_iter();
        let base = buffers.next()?;
        buffers.next().is_none().then_some(base)
    }

    /// The buffers that a register may point into; `None` where it may be any.
    fn buffers(&self, register: &str) -> Option<BTreeSet<String>> {
        let origin = self.origins.get(register)?;
        if origin.memory {
            return None;
        }
        let bound = origin.params.iter().map(|param| &self.bound[*param]);
        Some(bound.flatten().flatten().cloned().collect())
    }
}

fn collect<'a>(block: &'a Block, instructions: &mut Vec<&'a Instruction>) {
    for statement in &block.statements {
        match statement {
            Statement::Instruction(instruction) => instructions.push(instruction),
            Statement::Block(inner) => collect(inner, instructions),
            Statement::Label(_) | Statement::Variable(_) | Statement::Directive(_) => {}
        }
    }
}

fn is_global_load(instruction: &Instruction) -> bool {
    matches!(instruction.opcode.as_str(), "ld" | "ldu") && instruction.has("global")
}

/// `ld.global`, a vector and a type: no cache operator, no ordering.
fn is_plain(load: &Instruction) -> bool {
    let plain = |modifier: &String| {
        let is_vector = matches!(modifier.as_str(), "v2" | "v4" | "v8");
        let (kind, bits) = modifier.split_at_checked(1).unwrap_or(("", ""));
        let is_type = matches!(kind, "b" | "u" | "s" | "f") && bits.parse::<u32>().is_ok();
        is_vector || is_type
    };
    load.opcode == "ld"
        && load
            .modifiers
            .first()
            .is_some_and(|first| first == "global")
        && load.modifiers[1..].iter().all(plain)
}

/// Whether it may write device memory.
fn is_global_store(instruction: &Instruction) -> bool {
    let mut spaces = instruction.modifiers.iter().filter(|modifier| {
        let space = modifier.split("::").next().unwrap_or(modifier);
        matches!(space, "global" | "shared" | "local" | "param")
    });
    let first = spaces
        .next()
        .map(|space| space.split("::").next().unwrap_or(space));
    match instruction.opcode.as_str() {
        // Without a space the address is generic.
        "st" | "red" | "atom" | "multimem" => first.is_none_or(|space| space == "global"),
        // The destination's space stands first.
        "cp" => first == Some("global") && !instruction.has("prefetch"),
        _ => false,
    }
}

fn address(operand: &Operand) -> Option<&Address> {
    match operand {
        Operand::Address(address) => Some(address),
        Operand::Name(_)
        | Operand::Not(_)
        | Operand::Negated(_)
        | Operand::Immediate(_)
        | Operand::Vector(_)
        | Operand::Offset { .. }
        | Operand::Element { .. }
        | Operand::Pair(..)
        | Operand::Tuple(_)
        | Operand::Sink
        | Operand::Verbatim(_) => None,
    }
}

/// Every name in an operand, those in verbatim text too; a vector register for its members.
fn names_in(operand: &Operand) -> Vec<&str> {
    let whole = |name| -> &str { str::split_once(name, '.').map_or(name, |(vector, _)| vector) };
    match operand {
        Operand::Name(name) => vec![whole(name)],
        Operand::Not(inner) | Operand::Negated(inner) => names_in(inner),
        Operand::Vector(list) | Operand::Tuple(list) => list.iter().flat_map(names_in).collect(),
        Operand::Pair(a, b) => [names_in(a), names_in(b)].concat(),
        Operand::Offset { base, .. } | Operand::Element { base, .. } => vec![base],
        Operand::Address(address) => {
            let rest = address.rest.iter().flat_map(names_in);
            address.base.as_deref().into_iter().chain(rest).collect()
        }
        Operand::Verbatim(text) => text
            .split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '%' | '_' | '$')))
            .filter(|word| !word.is_empty())
            .collect(),
        Operand::Immediate(_) | Operand::Sink => Vec::new(),
    }
}

/// The line with the hole after each `ld.global` that a modifier follows, and how many there are.
fn with_hole(line: &str, hole: &str) -> (String, u32) {
    const LOAD: &str = "ld.global";
    let code = line.find("//").unwrap_or(line.len());
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$' | '%');
    let mut out = String::with_capacity(line.len() + hole.len());
    let (mut from, mut count) = (0, 0);
    while let Some(offset) = line[from..code].find(LOAD) {
        let (start, end) = (from + offset, from + offset + LOAD.len());
        out.push_str(&line[from..end]);
        let begins = !line[..start].chars().next_back().is_some_and(is_word);
        if begins && line[end..].starts_with('.') {
            out.push_str(hole);
            count += 1;
        }
        from = end;
    }
    out.push_str(&line[from..]);
    (out, count)
}
