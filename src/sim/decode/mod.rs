//! From the syntax tree to a [`Program`]: symbols laid out, registers numbered, labels resolved, every
//! operand checked against its instruction. What the machine cannot do is said here, with the line, and
//! never later.

mod fences;
mod folds;
mod instruction;
mod operand;
mod symbols;

use std::collections::HashMap;

use crate::ptx::Lines;
use crate::ptx::ir::{
    Block, Function, FunctionKind, Immediate, Instruction, Item, Module, Operand, Span, Statement,
    Variable,
};

use super::finding::{Finding, FindingKind};
use super::op::{
    AsyncOp, Depends, FrameLayout, Init, Instr, ModuleVariable, Op, ParamInfo, Pc, Pred, Program,
    Reg, Slot,
};
use symbols::{Scope, Symbol, align_up, element_bytes, initial_bytes, variable_bytes};

/// First byte of the module's `.global` variables.
pub(crate) const MODULE_BASE: u64 = 0x6f00_0000_0000;
/// Shared addresses begin here, as on Hopper: the first KiB is the system's.
pub(crate) const SHARED_BASE: u32 = 1024;

/// Decodes one kernel and the functions it calls.
pub(crate) fn decode(module: &Module, entry: &str) -> Result<Program, Vec<Finding>> {
    let mut decoder = Decoder::new(module);
    decoder.run(entry)
}

/// Where a `.func` takes its parameters and leaves its results.
#[derive(Clone, Debug)]
enum Place {
    Stack { offset: u32, bytes: u32 },
    Register(Reg),
    Predicate(Slot),
}

/// A function that is called or will be decoded.
struct Pending<'m> {
    function: &'m Function,
    layout: FrameLayout,
    scope: Scope,
    arguments: Vec<Place>,
    results: Vec<Place>,
}

struct Decoder<'m> {
    module: &'m Module,
    lines: Lines,
    findings: Vec<Finding>,
    code: Vec<Instr>,
    depends: Vec<Depends>,
    expressions: HashMap<String, u32>,
    mnemonics: Vec<String>,
    mnemonic_ids: HashMap<String, u16>,
    functions: Vec<Pending<'m>>,
    function_ids: HashMap<&'m str, usize>,
    module_scope: Scope,
    globals: Vec<ModuleVariable>,
    global_top: u64,
    constants: Vec<u8>,
    shared_top: u32,
    dynamic_align: u32,
    params: Vec<ParamInfo>,
    param_bytes: u32,
}

/// What decoding one body needs.
struct Body {
    index: usize,
    layout: FrameLayout,
    scopes: Vec<Scope>,
    slots: HashMap<Init, Slot>,
    labels: Vec<Option<Pc>>,
    label_names: Vec<String>,
    tables: HashMap<String, Vec<String>>,
}

impl<'m> Decoder<'m> {
    fn new(module: &'m Module) -> Self {
        Self {
            module,
            lines: Lines::new(&module.text),
            findings: Vec::new(),
            code: Vec::new(),
            depends: Vec::new(),
            expressions: HashMap::new(),
            mnemonics: Vec::new(),
            mnemonic_ids: HashMap::new(),
            functions: Vec::new(),
            function_ids: HashMap::new(),
            module_scope: Scope::default(),
            globals: Vec::new(),
            global_top: MODULE_BASE,
            constants: Vec::new(),
            shared_top: SHARED_BASE,
            dynamic_align: 16,
            params: Vec::new(),
            param_bytes: 0,
        }
    }

    fn run(&mut self, entry: &str) -> Result<Program, Vec<Finding>> {
        let module = self.module;
        for item in &module.items {
            if let Item::Variable(variable) = item {
                self.module_variable(variable);
            }
        }
        let Some(kernel) = self.find(entry).filter(|f| f.kind == FunctionKind::Entry) else {
            let names: Vec<&str> = module
                .items
                .iter()
                .filter_map(|item| match item {
                    Item::Function(f) if f.kind == FunctionKind::Entry => Some(f.name.as_str()),
                    Item::Function(_) | Item::Variable(_) | Item::Directive(_) => None,
                })
                .collect();
            return Err(vec![Finding::new(
                FindingKind::BadLaunch,
                0,
                format!(
                    "the module has no kernel named `{entry}`; it has: {}",
                    names.join(", ")
                ),
            )]);
        };
        self.declare(kernel);
        let mut next = 0;
        while next < self.functions.len() && self.findings.len() < 20 {
            self.body(next);
            next += 1;
        }
        if !self.findings.is_empty() {
            return Err(std::mem::take(&mut self.findings));
        }
        let bounds = bounds(kernel);
        let asynchronous = (self.code.iter()).any(|instr| matches!(instr.op, Op::Async(_)));
        let reaches_out = (self.code.iter()).any(|instr| match &instr.op {
            Op::Async(op) => matches!(**op, AsyncOp::MapShared { .. }),
            _ => false,
        });
        let unfenced = fences::unfenced(&self.code, &self.depends);
        let functions =
            (self.functions.get(1)).map_or(self.code.len(), |f| f.layout.entry as usize);
        let folds = folds::folds(&self.code, &self.depends, &self.mnemonics, functions);
        Ok(Program {
            unfenced,
            entry_name: entry.to_owned(),
            code: std::mem::take(&mut self.code),
            depends: std::mem::take(&mut self.depends),
            folds,
            functions: std::mem::take(&mut self.functions)
                .into_iter()
                .map(|f| f.layout)
                .collect(),
            mnemonics: std::mem::take(&mut self.mnemonics),
            params: std::mem::take(&mut self.params),
            param_bytes: self.param_bytes,
            globals: std::mem::take(&mut self.globals),
            constants: std::mem::take(&mut self.constants),
            static_shared: self.shared_top - SHARED_BASE,
            dynamic_align: self.dynamic_align,
            max_threads: bounds.max_threads,
            required_threads: bounds.required_threads,
            required_cluster: bounds.required_cluster,
            max_registers: bounds.max_registers,
            asynchronous,
            reaches_out,
        })
    }

    fn line(&self, span: Span) -> u32 {
        self.lines.line(span.start)
    }

    fn problem(&mut self, line: u32, message: impl Into<String>) {
        self.findings.push(
            Finding::new(FindingKind::Unsupported, line, message)
                .help("run it on a GPU (`--device cuda:0`), or write it with instructions the simulator knows"),
        );
    }

    /// The definition of a function, else its declaration.
    fn find(&self, name: &str) -> Option<&'m Function> {
        let all = || {
            self.module.items.iter().filter_map(|item| match item {
                Item::Function(f) if f.name == name => Some(f),
                Item::Function(_) | Item::Variable(_) | Item::Directive(_) => None,
            })
        };
        all().find(|f| f.body.is_some()).or_else(|| all().next())
    }

    fn module_variable(&mut self, variable: &Variable) {
        let line = self.line(variable.span);
        for name in &variable.names {
            let bytes = variable_bytes(variable, name);
            let align = u64::from(
                variable
                    .align
                    .unwrap_or(0)
                    .max(element_bytes(variable))
                    .max(1),
            );
            let symbol = match variable.space.as_str() {
                ".global" => {
                    let Some(bytes) = bytes else {
                        self.problem(line, format!("`{}` has no size", name.name));
                        continue;
                    };
                    let address = align_up(self.global_top, align.max(256));
                    self.global_top = address + bytes;
                    match initial_bytes(variable, name, bytes) {
                        Ok(data) => self.globals.push(ModuleVariable {
                            address,
                            bytes: data,
                            name: name.name.clone(),
                        }),
                        Err(message) => {
                            self.problem(line, message);
                            continue;
                        }
                    }
                    Symbol::Global(address)
                }
                ".const" => {
                    let Some(bytes) = bytes else {
                        self.problem(line, format!("`{}` has no size", name.name));
                        continue;
                    };
                    let offset = align_up(self.constants.len() as u64, align);
                    self.constants.resize(offset as usize, 0);
                    match initial_bytes(variable, name, bytes) {
                        Ok(data) => self.constants.extend(data),
                        Err(message) => {
                            self.problem(line, message);
                            continue;
                        }
                    }
                    Symbol::Const(offset as u32)
                }
                ".shared" => match bytes {
                    Some(bytes) if variable.linkage.as_deref() != Some(".extern") => {
                        Symbol::ModuleShared {
                            bytes,
                            align: align as u32,
                        }
                    }
                    _ => {
                        self.dynamic_align = self.dynamic_align.max(align as u32);
                        Symbol::DynamicShared
                    }
                },
                other => {
                    self.problem(
                        line,
                        format!("the simulator does not know module-scope `{other}` variables"),
                    );
                    continue;
                }
            };
            self.module_scope.insert(name.name.clone(), symbol);
        }
    }

    /// Numbers a function and lays out its parameters; its body is decoded when its turn comes.
    fn declare(&mut self, function: &'m Function) -> usize {
        if let Some(&index) = self.function_ids.get(function.name.as_str()) {
            return index;
        }
        let index = self.functions.len();
        self.function_ids.insert(&function.name, index);
        let mut pending = Pending {
            function,
            layout: FrameLayout::default(),
            scope: Scope::default(),
            arguments: Vec::new(),
            results: Vec::new(),
        };
        let line = self.line(function.name_span);
        if function.kind == FunctionKind::Entry {
            self.entry_params(function, &mut pending.scope);
        } else {
            for (variables, results) in [(&function.returns, true), (&function.params, false)] {
                for variable in variables {
                    for name in &variable.names {
                        match self.formal(variable, name, &mut pending) {
                            Ok(place) if results => pending.results.push(place),
                            Ok(place) => pending.arguments.push(place),
                            Err(message) => self.problem(line, message),
                        }
                    }
                }
            }
        }
        self.functions.push(pending);
        index
    }

    fn entry_params(&mut self, function: &Function, scope: &mut Scope) {
        for variable in &function.params {
            for name in &variable.names {
                let bytes = variable_bytes(variable, name).unwrap_or(0) as u32;
                let align = variable
                    .align
                    .unwrap_or(0)
                    .max(element_bytes(variable))
                    .max(1);
                let offset = align_up(u64::from(self.param_bytes), u64::from(align)) as u32;
                self.param_bytes = offset + bytes;
                self.params.push(ParamInfo {
                    name: name.name.clone(),
                    offset,
                    bytes,
                    float: variable.ty.starts_with(".f"),
                });
                scope.insert(name.name.clone(), Symbol::EntryParam(offset));
            }
        }
    }

    fn formal(
        &mut self,
        variable: &Variable,
        name: &crate::ptx::ir::DeclaredName,
        pending: &mut Pending<'m>,
    ) -> Result<Place, String> {
        if variable.space == ".reg" {
            let symbol = pending.layout.register(&variable.ty)?;
            pending.scope.insert(name.name.clone(), symbol.clone());
            return Ok(match symbol {
                Symbol::Predicate(slot) => Place::Predicate(slot),
                Symbol::Register { reg, .. } => Place::Register(reg),
                other => return Err(format!("unexpected parameter {other:?}")),
            });
        }
        let bytes = variable_bytes(variable, name)
            .ok_or_else(|| format!("parameter `{}` has no size", name.name))?
            as u32;
        let align = variable
            .align
            .unwrap_or(0)
            .max(element_bytes(variable))
            .max(1);
        let offset = pending.layout.reserve_stack(bytes, align);
        pending.scope.insert(
            name.name.clone(),
            Symbol::Stack {
                offset,
                parameter: true,
            },
        );
        Ok(Place::Stack { offset, bytes })
    }

    fn body(&mut self, index: usize) {
        let pending = &self.functions[index];
        let function = pending.function;
        let Some(block) = &function.body else {
            let line = self.line(function.name_span);
            self.problem(
                line,
                format!(
                    "function `{}` is called but has no body in this module",
                    function.name
                ),
            );
            return;
        };
        let mut body = Body {
            index,
            layout: pending.layout.clone(),
            scopes: vec![pending.scope.clone()],
            slots: HashMap::new(),
            labels: Vec::new(),
            label_names: Vec::new(),
            tables: HashMap::new(),
        };
        let start = self.code.len();
        body.layout.entry = start as Pc;
        self.block(&mut body, block);
        // Falling off the end returns.
        let end_line = self.lines.line(block.span.end.saturating_sub(1));
        self.push(Op::Return, None, end_line, "ret");
        self.depends.push(Depends::default());
        self.resolve_labels(&body, start);
        if body
            .layout
            .narrow
            .max(body.layout.wide)
            .max(body.layout.predicates)
            > usize::from(Slot::MAX)
        {
            let line = self.line(function.name_span);
            self.problem(
                line,
                format!(
                    "function `{}` has more than {} registers",
                    function.name,
                    Slot::MAX
                ),
            );
        }
        self.functions[index].layout = body.layout;
    }

    fn resolve_labels(&mut self, body: &Body, start: usize) {
        let mut missing = Vec::new();
        let mut resolve = |target: &mut Pc, line: u32| match body.labels[*target as usize] {
            Some(pc) => *target = pc,
            None => missing.push((line, body.label_names[*target as usize].clone())),
        };
        for instr in &mut self.code[start..] {
            match &mut instr.op {
                Op::Branch { target } => resolve(target, instr.line),
                Op::BranchIndexed { targets, .. } => {
                    targets.iter_mut().for_each(|t| resolve(t, instr.line))
                }
                _ => {}
            }
        }
        for (line, name) in missing {
            self.problem(line, format!("no label `{name}` in scope"));
        }
    }

    fn push(&mut self, op: Op, guard: Option<Pred>, line: u32, mnemonic: &str) {
        let id = match self.mnemonic_ids.get(mnemonic) {
            Some(&id) => id,
            None => {
                let id = self.mnemonics.len() as u16;
                self.mnemonics.push(mnemonic.to_owned());
                self.mnemonic_ids.insert(mnemonic.to_owned(), id);
                id
            }
        };
        self.code.push(Instr {
            op,
            guard,
            line,
            mnemonic: id,
        });
    }

    fn block(&mut self, body: &mut Body, block: &Block) {
        let mut scope = Scope::default();
        for statement in &block.statements {
            if let Statement::Label(label) = statement {
                scope.insert(label.name.clone(), Symbol::Label(body.labels.len()));
                body.labels.push(None);
                body.label_names.push(label.name.clone());
            }
        }
        body.scopes.push(scope);
        let mut last_label: Option<&str> = None;
        for statement in &block.statements {
            match statement {
                Statement::Label(label) => {
                    if let Some(Symbol::Label(id)) = body.lookup(&label.name) {
                        body.labels[id] = Some(self.code.len() as Pc);
                    }
                    last_label = Some(&label.name);
                }
                Statement::Variable(variable) => self.local_variable(body, variable),
                Statement::Instruction(instruction) => self.statement(body, instruction),
                Statement::Block(inner) => self.block(body, inner),
                Statement::Directive(directive) => {
                    if let (".branchtargets", Some(label)) = (directive.name.as_str(), last_label) {
                        let targets = directive
                            .arguments
                            .trim_end_matches(';')
                            .split(',')
                            .map(|name| name.trim().to_owned())
                            .collect();
                        body.tables.insert(label.to_owned(), targets);
                    }
                }
            }
        }
        body.scopes.pop();
    }

    fn statement(&mut self, body: &mut Body, instruction: &Instruction) {
        let line = self.line(instruction.mnemonic_span);
        let guard = match &instruction.guard {
            None => None,
            Some(guard) => match body.lookup(&guard.register) {
                Some(Symbol::Predicate(slot)) => Some(Pred {
                    slot,
                    negated: guard.negated,
                }),
                _ => {
                    self.problem(
                        line,
                        format!("`{}` is no predicate register in scope", guard.register),
                    );
                    return;
                }
            },
        };
        let mnemonic = instruction.mnemonic();
        match self.instruction(body, instruction) {
            Ok(op) => {
                self.push(op, guard, line, &mnemonic);
                let mut depends = body.depends(instruction);
                (depends.expression, depends.literal) = self.expression(body, instruction);
                if times_one(instruction) {
                    depends.kept = depends.reads.first().copied();
                }
                self.depends.push(depends);
            }
            Err(message) => self.problem(line, message),
        }
    }

    /// The number of what an instruction computes, its registers left out; and whether it names nothing else but
    /// numbers. Clocks tell something new each time.
    fn expression(&mut self, body: &Body, instruction: &Instruction) -> (Option<u32>, bool) {
        let mut text = instruction.mnemonic();
        let mut literal = true;
        for operand in instruction.operands.iter().skip(1) {
            text.push(' ');
            literal &= body.masked(operand, &mut text);
        }
        if text.contains("clock") || text.contains("%globaltimer") {
            return (None, false);
        }
        let next = self.expressions.len() as u32;
        let number = *self.expressions.entry(text).or_insert(next);
        (Some(number), literal)
    }

    fn local_variable(&mut self, body: &mut Body, variable: &Variable) {
        let line = self.line(variable.span);
        for name in &variable.names {
            let bytes = variable_bytes(variable, name);
            let align = variable
                .align
                .unwrap_or(0)
                .max(element_bytes(variable))
                .max(1);
            let symbol = match (variable.space.as_str(), bytes) {
                (".reg", _) => {
                    if let Err(message) = body.declare_registers(variable, name) {
                        self.problem(line, message);
                    }
                    continue;
                }
                (".local", Some(bytes)) => Symbol::Stack {
                    offset: body.layout.reserve_stack(bytes as u32, align),
                    parameter: false,
                },
                (".param", Some(bytes)) => Symbol::Stack {
                    offset: body.layout.reserve_stack(bytes as u32, align),
                    parameter: true,
                },
                (".shared", Some(bytes)) if variable.linkage.as_deref() != Some(".extern") => {
                    Symbol::Shared(self.reserve_shared(bytes, align))
                }
                (".shared", _) => {
                    self.dynamic_align = self.dynamic_align.max(align);
                    Symbol::DynamicShared
                }
                (space, _) => {
                    self.problem(
                        line,
                        format!("the simulator does not know `{space} {}` here", name.name),
                    );
                    continue;
                }
            };
            body.declare(name.name.clone(), symbol);
        }
    }

    fn reserve_shared(&mut self, bytes: u64, align: u32) -> u32 {
        let address = align_up(u64::from(self.shared_top), u64::from(align.max(1)));
        self.shared_top = (address + bytes) as u32;
        address as u32
    }

    /// A name's meaning: the innermost scope's, then the module's. Module-scope shared variables get their
    /// address when the kernel first names them.
    fn symbol(&mut self, body: &Body, name: &str) -> Option<Symbol> {
        if let Some(symbol) = body.lookup(name) {
            return Some(symbol);
        }
        match self.module_scope.get(name)? {
            Symbol::ModuleShared { bytes, align } => {
                let (bytes, align) = (*bytes, *align);
                let symbol = Symbol::Shared(self.reserve_shared(bytes, align));
                self.module_scope.insert(name.to_owned(), symbol.clone());
                Some(symbol)
            }
            symbol => Some(symbol.clone()),
        }
    }
}

/// A product with one, which changes nothing.
fn times_one(instruction: &Instruction) -> bool {
    let one = |operand: &Operand| match operand {
        Operand::Immediate(Immediate::F32(bits)) => *bits == 1f32.to_bits(),
        Operand::Immediate(Immediate::F64(bits)) => *bits == 1f64.to_bits(),
        _ => false,
    };
    instruction.opcode == "mul"
        && instruction.guard.is_none()
        && !instruction.has("ftz")
        && !instruction.has("sat")
        && instruction.operands.iter().any(one)
}

/// What a kernel's directives demand of its launch.
#[derive(Default)]
struct Bounds {
    max_threads: Option<u32>,
    required_threads: Option<[u32; 3]>,
    required_cluster: Option<[u32; 3]>,
    max_registers: Option<u32>,
}

fn bounds(kernel: &Function) -> Bounds {
    let dims = |text: &str| -> [u32; 3] {
        let mut out = [1; 3];
        for (slot, part) in out.iter_mut().zip(text.trim_end_matches(';').split(',')) {
            if let Ok(value) = part.trim().parse() {
                *slot = value;
            }
        }
        out
    };
    let mut bounds = Bounds::default();
    for directive in &kernel.directives {
        let given = dims(&directive.arguments);
        match directive.name.as_str() {
            ".maxntid" => bounds.max_threads = Some(given.iter().product()),
            ".reqntid" => bounds.required_threads = Some(given),
            ".reqnctapercluster" => bounds.required_cluster = Some(given),
            ".maxnreg" => bounds.max_registers = Some(given[0]),
            _ => {}
        }
    }
    bounds
}
