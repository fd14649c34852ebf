//! A kernel of a rendering, taken apart for rewrites: its instructions in order, who writes and reads each
//! register, which buffers an address may lead to, what must stay in order. It claims only what holds for
//! every launch of the plan; buffers and workspaces of a plan never overlap and begin at multiples of
//! [`BUFFER_ALIGNMENT`].

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::asynchronous;
use crate::ptx::cfg::Cfg;
use crate::ptx::ir::{
    Address, Block, Function, FunctionKind, Instruction, Item, Label, Module, Operand, Span,
    Statement, Variable,
};
use crate::ptx::{Access, access};
use crate::source::{Argument, LaunchPlan};

/// Bytes: every device hands buffers out at multiples of this.
pub(super) const BUFFER_ALIGNMENT: u64 = 256;

/// A kernel with a body.
pub(super) struct Kernel<'m> {
    pub(super) function: &'m Function,
    pub(super) cfg: Cfg<'m>,
    /// What each instruction reads and writes.
    pub(super) access: Vec<Access<'m>>,
    /// Indices of the instructions that write a register, in order.
    pub(super) writers: HashMap<&'m str, Vec<usize>>,
    /// Indices of the instructions that read a register or symbol, in order.
    pub(super) readers: HashMap<&'m str, Vec<usize>>,
    /// Every label, with the index of the instruction after it.
    pub(super) labels: Vec<(&'m Label, usize)>,
    /// Registers that a wgmma may read or write after the instructions behind it.
    pub(super) in_flight: BTreeSet<&'m str>,
    /// Variables that its instructions may name, by name: its own and the module's.
    pub(super) variables: BTreeMap<&'m str, &'m Variable>,
    /// By parameter: the buffers that launches bind to it; `None` for a number.
    bound: Vec<BTreeSet<Option<String>>>,
    params: Vec<&'m str>,
    /// Braces within the body.
    inner: Vec<Span>,
    registers: Registers<'m>,
    origins: BTreeMap<&'m str, Origin<'m>>,
    plain: bool,
}

/// Where a register's value may come from, in any part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Origin<'m> {
    /// Indices of parameters.
    params: BTreeSet<usize>,
    /// Variables whose address it may hold.
    pub(super) variables: BTreeSet<&'m str>,
    /// Also from memory: it may be any pointer.
    pub(super) memory: bool,
}

impl<'m> Kernel<'m> {
    /// `None` for a function without a body, one that calls another (which may do anything with a pointer),
    /// and one whose launches do not fit its parameters.
    pub(super) fn new(
        module: &'m Module,
        function: &'m Function,
        plan: &LaunchPlan,
    ) -> Option<Self> {
        let body = function.body.as_ref()?;
        let cfg = Cfg::new(function);
        if cfg.instructions.iter().any(|i| i.opcode == "call") {
            return None;
        }
        let params: Vec<&str> = function
            .params
            .iter()
            .flat_map(|param| param.names.iter().map(|name| name.name.as_str()))
            .collect();
        let bound = bound(function, params.len(), plan)?;
        let mut contents = Contents::default();
        contents.collect(body, 0);
        let labels = contents
            .labels
            .iter()
            .map(|(label, next)| (*label, *next))
            .collect();
        let own = contents.variables.iter().copied();
        let shared = module.items.iter().filter_map(|item| match item {
            Item::Variable(variable) => Some(variable),
            Item::Function(_) | Item::Directive(_) => None,
        });
        let variables = shared
            .chain(own)
            .flat_map(|variable| {
                variable
                    .names
                    .iter()
                    .map(move |n| (n.name.as_str(), variable))
            })
            .collect();
        let registers = Registers::new(&contents);
        let mut access: Vec<Access<'m>> = cfg.instructions.iter().map(|i| access(i)).collect();
        let in_flight = asynchronous::complete(&cfg.instructions, &mut access);
        let plain = registers.unique
            && cfg.unresolved.is_empty()
            && cfg.instructions.iter().all(|i| i.opcode != "brx")
            && access.iter().all(|access| !access.unknown)
            && cfg
                .instructions
                .iter()
                .all(|i| !i.operands.iter().any(is_verbatim));
        let mut kernel = Self {
            function,
            access,
            writers: HashMap::new(),
            readers: HashMap::new(),
            labels,
            in_flight,
            variables,
            bound,
            params,
            inner: contents.inner,
            registers,
            origins: BTreeMap::new(),
            plain,
            cfg,
        };
        for (index, access) in kernel.access.iter().enumerate() {
            for name in &access.writes {
                kernel.writers.entry(name).or_default().push(index);
            }
            for name in &access.reads {
                kernel.readers.entry(name).or_default().push(index);
            }
        }
        kernel.trace();
        Some(kernel)
    }

    /// Whether a name means one register everywhere, every instruction is known, and control goes only
    /// where labels say: what every structural rewrite needs.
    pub(super) fn is_plain(&self) -> bool {
        self.plain
    }

    pub(super) fn instruction(&self, index: usize) -> &'m Instruction {
        self.cfg.instructions[index]
    }

    /// `.b32` of `%r7`; `None` where it is no register.
    pub(super) fn register_type(&self, name: &str) -> Option<&'m str> {
        self.registers.type_of(name)
    }

    /// The only instruction that writes a register.
    pub(super) fn only_writer(&self, name: &str) -> Option<usize> {
        match self.writers.get(name).map(Vec::as_slice) {
            Some([only]) => Some(*only),
            Some(_) | None => None,
        }
    }

    /// Names of the buffers that its stores may reach; `None` where one may reach any.
    pub(super) fn written(&self) -> Option<BTreeSet<String>> {
        let mut written = BTreeSet::new();
        for store in self.cfg.instructions.iter().filter(|i| is_global_store(i)) {
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
    pub(super) fn base_of(&self, load: &Instruction) -> Option<String> {
        let address = load.operands.iter().find_map(address)?;
        let mut buffers = self.buffers(address.base.as_deref()?)?.into_iter();
        let base = buffers.next()?;
        buffers.next().is_none().then_some(base)
    }

    /// The buffers that a register may point into; `None` where it may be any.
    pub(super) fn buffers(&self, register: &str) -> Option<BTreeSet<String>> {
        let origin = self.origins.get(register)?;
        if origin.memory || !origin.variables.is_empty() {
            return None;
        }
        let bound = origin.params.iter().map(|param| &self.bound[*param]);
        Some(bound.flatten().flatten().cloned().collect())
    }

    /// Where a register's value comes from.
    pub(super) fn origin(&self, register: &str) -> Option<&Origin<'m>> {
        self.origins.get(register)
    }

    /// Whether the function declares it, so that no other function can name it.
    pub(super) fn owns(&self, variable: &Variable) -> bool {
        let body = self.function.span;
        body.start <= variable.span.start && variable.span.end <= body.end
    }

    /// Whether braces open or close between two bytes of the body.
    pub(super) fn crosses_braces(&self, start: u32, end: u32) -> bool {
        self.inner.iter().any(|span| {
            let within = |at: u32| start <= at && at < end;
            within(span.start) || within(span.end.saturating_sub(1))
        })
    }

    /// Whether no parameter that the value may come from is bound to a buffer.
    pub(super) fn points_to_no_buffer(&self, origin: &Origin<'_>) -> bool {
        let mut bound = origin.params.iter().map(|param| &self.bound[*param]);
        bound.all(|bound| bound.iter().all(Option::is_none))
    }

    /// Whether a parameter of this name is bound to nothing but buffers.
    pub(super) fn is_pointer(&self, param: &str) -> bool {
        let index = self.params.iter().position(|name| *name == param);
        index.is_some_and(|index| {
            !self.bound[index].is_empty() && self.bound[index].iter().all(Option::is_some)
        })
    }

    /// Follows values from parameters and variables through registers, without regard to order, until
    /// nothing is new. A register of one name in two scopes counts as one: more origins, never fewer.
    fn trace(&mut self) {
        let mut ids: HashMap<&'m str, usize> = HashMap::new();
        let mut id = |name: &'m str| {
            let next = ids.len();
            *ids.entry(name).or_insert(next)
        };
        let mut steps = Vec::new();
        for instruction in &self.cfg.instructions {
            let Some((first, rest)) = instruction.operands.split_first() else {
                continue;
            };
            if address(first).is_some() {
                continue;
            }
            let mut step = Step::default();
            let reads_memory = matches!(
                instruction.opcode.as_str(),
                "ld" | "ldu" | "atom" | "ldmatrix"
            );
            if reads_memory && !instruction.has("param") {
                step.own.memory = true;
            } else {
                for name in rest.iter().flat_map(names_in) {
                    let param = self.params.iter().position(|param| *param == name);
                    step.own.params.extend(param);
                    if let Some((known, _)) = self.variables.get_key_value(name) {
                        step.own.variables.insert(known);
                    }
                    step.from.push(id(name));
                }
            }
            // A branch's or barrier's first operand is no destination: it then only gains origins.
            step.to = names_in(first).into_iter().map(&mut id).collect();
            steps.push(step);
        }
        let mut origins: Vec<Origin<'m>> = vec![Origin::default(); ids.len()];
        loop {
            let mut changed = false;
            for step in &steps {
                let mut origin = step.own.clone();
                for &from in &step.from {
                    origin.join(&origins[from]);
                }
                if !origin.is_nothing() {
                    for &to in &step.to {
                        changed |= origins[to].join(&origin);
                    }
                }
            }
            if !changed {
                break;
            }
        }
        let written: BTreeSet<usize> = steps.iter().flat_map(|step| &step.to).copied().collect();
        let written = ids.into_iter().filter(|(_, id)| written.contains(id));
        self.origins = written
            .map(|(name, id)| (name, std::mem::take(&mut origins[id])))
            .collect();
    }
}

/// What an instruction does to where values come from, registers by number.
#[derive(Default)]
struct Step<'m> {
    own: Origin<'m>,
    from: Vec<usize>,
    to: Vec<usize>,
}

impl<'m> Origin<'m> {
    fn is_nothing(&self) -> bool {
        self.params.is_empty() && self.variables.is_empty() && !self.memory
    }

    /// Whether that is more than before.
    fn join(&mut self, other: &Self) -> bool {
        let size = |own: &Self| (own.params.len(), own.variables.len(), own.memory);
        let before = size(self);
        self.params.extend(&other.params);
        self.variables.extend(&other.variables);
        self.memory |= other.memory;
        size(self) != before
    }
}

/// By parameter, what the launches of `function` bind to it.
fn bound(
    function: &Function,
    count: usize,
    plan: &LaunchPlan,
) -> Option<Vec<BTreeSet<Option<String>>>> {
    let mut bound = vec![BTreeSet::new(); count];
    for launch in plan.launches.iter().filter(|l| l.entry == function.name) {
        if launch.args.len() != count {
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
    Some(bound)
}

/// The kernels of a module, each prepared; `None` where one cannot be, or a device function is there.
pub(super) fn kernels<'m>(module: &'m Module, plan: &LaunchPlan) -> Option<Vec<Kernel<'m>>> {
    let mut kernels = Vec::new();
    for item in &module.items {
        match item {
            Item::Function(function) if function.kind == FunctionKind::Entry => {
                kernels.push(Kernel::new(module, function, plan)?);
            }
            // A device function may do anything with a pointer.
            Item::Function(_) => return None,
            Item::Directive(_) | Item::Variable(_) => {}
        }
    }
    Some(kernels)
}

/// What a body holds, nesting removed.
#[derive(Default)]
struct Contents<'m> {
    variables: Vec<&'m Variable>,
    labels: Vec<(&'m Label, usize)>,
    inner: Vec<Span>,
    instructions: usize,
    /// Some declaration stands in inner braces.
    nested: bool,
}

impl<'m> Contents<'m> {
    fn collect(&mut self, block: &'m Block, depth: u32) {
        for statement in &block.statements {
            match statement {
                Statement::Instruction(_) => self.instructions += 1,
                Statement::Block(inner) => {
                    self.inner.push(inner.span);
                    self.collect(inner, depth + 1);
                }
                Statement::Label(label) => {
                    self.nested |= depth > 0;
                    self.labels.push((label, self.instructions));
                }
                Statement::Variable(variable) => {
                    self.nested |= depth > 0;
                    self.variables.push(variable);
                }
                Statement::Directive(_) => {}
            }
        }
    }
}

struct Registers<'m> {
    /// Type by name, or by prefix and count.
    single: HashMap<&'m str, &'m str>,
    families: HashMap<&'m str, (&'m str, u32)>,
    unique: bool,
}

impl<'m> Registers<'m> {
    fn new(contents: &Contents<'m>) -> Self {
        let mut registers = Self {
            single: HashMap::new(),
            families: HashMap::new(),
            unique: !contents.nested,
        };
        for variable in contents.variables.iter().filter(|v| v.space == ".reg") {
            registers.unique &= variable.vector.is_none();
            for name in &variable.names {
                let (ty, key) = (variable.ty.as_str(), name.name.as_str());
                let known = match name.count {
                    Some(count) => registers.families.insert(key, (ty, count)).is_some(),
                    None => registers.single.insert(key, ty).is_some(),
                };
                registers.unique &= !known;
            }
        }
        registers
    }

    fn type_of(&self, name: &str) -> Option<&'m str> {
        if let Some(ty) = self.single.get(name) {
            return Some(ty);
        }
        let base = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let index: u32 = name[base.len()..].parse().ok()?;
        let (ty, count) = self.families.get(base)?;
        (index < *count).then_some(*ty)
    }
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

pub(super) fn address(operand: &Operand) -> Option<&Address> {
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
    if let Operand::Verbatim(text) = operand {
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '%' | '_' | '$');
        return text
            .split(|c| !is_word(c))
            .filter(|word| !word.is_empty())
            .collect();
    }
    let mut names = Vec::new();
    operand.for_each_name(&mut |name| {
        names.push(name.split_once('.').map_or(name, |(vector, _)| vector));
    });
    names
}

fn is_verbatim(operand: &Operand) -> bool {
    match operand {
        Operand::Verbatim(_) => true,
        Operand::Vector(members) | Operand::Tuple(members) => members.iter().any(is_verbatim),
        Operand::Address(address) => address.rest.iter().any(is_verbatim),
        Operand::Pair(a, b) => is_verbatim(a) || is_verbatim(b),
        Operand::Not(inner) | Operand::Negated(inner) => is_verbatim(inner),
        Operand::Name(_)
        | Operand::Immediate(_)
        | Operand::Offset { .. }
        | Operand::Element { .. }
        | Operand::Sink => false,
    }
}
