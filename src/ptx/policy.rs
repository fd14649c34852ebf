//! What a task lets a kernel contain, and what a kernel could keep between calls. It reports; what follows
//! from a report the caller decides.

use std::collections::HashSet;

use super::access::access;
use super::ir::{DeclaredName, Directive, Function, Instruction, Item, Module, Span, Variable};
use super::place::Lines;
use super::scope::{Body, Flat, ScopeId, Symbol};
use crate::verdict::{Diagnostic, Severity};

/// Reports every instruction that the task does not allow. `allow` and `deny` are prefixes of mnemonics
/// (`wgmma`, `cp.async.bulk`, `mma.sync`), of whole words; `deny` beats `allow`, an empty `allow` allows all.
/// Modifiers are compared in any order. `reason` is told with each finding.
pub fn forbidden(
    module: &Module,
    allow: &[String],
    deny: &[String],
    reason: &str,
) -> Vec<Diagnostic> {
    let lines = Lines::new(&module.text);
    let mut found = Vec::new();
    for_each_instruction(module, &mut |instruction| {
        let denied = deny.iter().find(|prefix| begins_with(instruction, prefix));
        let allowed =
            allow.is_empty() || allow.iter().any(|prefix| begins_with(instruction, prefix));
        let message = match denied {
            Some(prefix) => format!(
                "`{}` is not allowed: the task denies `{prefix}`",
                instruction.mnemonic()
            ),
            None if !allowed => format!(
                "`{}` is not among what the task allows: {}",
                instruction.mnemonic(),
                allow.join(", ")
            ),
            None => return,
        };
        found.push(Diagnostic {
            severity: Severity::Error,
            code: "forbidden-instruction".to_owned(),
            message,
            line: Some(lines.line(instruction.span.start)),
            other_line: None,
            help: (!reason.is_empty()).then(|| reason.to_owned()),
        });
    });
    found.sort_by_key(|diagnostic| diagnostic.line);
    found
}

/// Special registers that differ between two calls on the same inputs: time, launch and performance
/// counters. Nothing that is computed can depend on them, only when it is computed.
const CALL_REGISTERS: [&str; 8] = [
    "%clock",
    "%clock_hi",
    "%clock64",
    "%globaltimer",
    "%globaltimer_lo",
    "%globaltimer_hi",
    "%gridid",
    "%current_graph_exec",
];

/// Reports every instruction that reads what tells one call from another: with it a kernel could work for
/// whoever verifies and rest while it is timed.
pub fn call_detectors(module: &Module) -> Vec<Diagnostic> {
    let lines = Lines::new(&module.text);
    let mut found = Vec::new();
    for_each_instruction(module, &mut |instruction| {
        let mut seen = None;
        for operand in &instruction.operands {
            operand.for_each_name(&mut |name| {
                if tells_calls_apart(name) {
                    seen = Some(name.to_owned());
                }
            });
        }
        if let Some(register) = seen {
            found.push(Diagnostic {
                severity: Severity::Error,
                code: "tells-calls-apart".to_owned(),
                message: format!(
                    "`{register}` tells one call from another; what a kernel does may depend on its inputs alone"
                ),
                line: Some(lines.line(instruction.span.start)),
                other_line: None,
                help: Some("take the clock or counter out: the judge times the kernel".to_owned()),
            });
        }
    });
    found.sort_by_key(|diagnostic| diagnostic.line);
    found
}

/// Counters come numbered: `%pm0`, `%pm7_64`, `%envreg31`.
fn tells_calls_apart(name: &str) -> bool {
    let digits = |rest: &str| {
        rest.trim_end_matches("_64")
            .bytes()
            .all(|b| b.is_ascii_digit())
    };
    CALL_REGISTERS.contains(&name)
        || ["%pm", "%envreg"].iter().any(|family| {
            name.strip_prefix(family)
                .is_some_and(|rest| !rest.is_empty() && digits(rest))
        })
}

/// A module-scope variable and where it is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleVariable {
    /// Its name.
    pub name: String,
    /// 1-based line of the declaration.
    pub line: u32,
    /// 1-based lines of the instructions that name it, in order.
    pub uses: Vec<u32>,
}

/// What a module keeps outside its kernels' parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleState {
    /// Variables that a kernel may write and a later call can read: `.global`, initialised or not.
    /// One declared inside a function counts as written.
    pub writable: Vec<ModuleVariable>,
    /// Constant tables: `.const`, and `.global` with initial values that nothing writes.
    pub tables: Vec<ModuleVariable>,
}

/// Sorts the module-scope variables that outlive a launch. An address is followed through registers; where
/// it is stored, passed on or used by an instruction other than a load, that counts as a write.
pub fn module_state(module: &Module) -> ModuleState {
    let lines = Lines::new(&module.text);
    let mut state = ModuleState::default();
    for item in &module.items {
        let variable = match item {
            Item::Variable(variable) => variable,
            Item::Function(function) => {
                state.writable.extend(inner_globals(function, &lines));
                continue;
            }
            Item::Directive(directive) => {
                state.writable.extend(unread_global(directive, &lines));
                continue;
            }
        };
        for declared in &variable.names {
            let uses = uses(module, &declared.name);
            let written = uses.iter().any(|u| u.writes);
            let entry = ModuleVariable {
                name: declared.name.clone(),
                line: lines.line(declared.span.start),
                uses: uses.iter().map(|u| lines.line(u.span.start)).collect(),
            };
            match variable.space.as_str() {
                ".const" => state.tables.push(entry),
                ".global" if is_opaque(variable) => {}
                ".global" if written => state.writable.push(entry),
                ".global" if declared.initializer.is_some() => state.tables.push(entry),
                _ => {}
            }
        }
    }
    state
}

/// Variables in global memory that a function's body declares; they outlive it all the same.
fn inner_globals(function: &Function, lines: &Lines) -> Vec<ModuleVariable> {
    let body = Body::new(function);
    let mut found = Vec::new();
    for (_, flat) in &body.statements {
        match flat {
            Flat::Variable(variable, _) if variable.space == ".global" && !is_opaque(variable) => {
                found.extend(variable.names.iter().map(|declared| ModuleVariable {
                    name: declared.name.clone(),
                    line: lines.line(declared.span.start),
                    uses: Vec::new(),
                }));
            }
            Flat::Directive(directive) => found.extend(unread_global(directive, lines)),
            Flat::Variable(..) | Flat::Instruction(_) | Flat::Label(_) => {}
        }
    }
    found
}

/// A declaration in global memory that the parser did not take apart.
fn unread_global(directive: &Directive, lines: &Lines) -> Option<ModuleVariable> {
    let words = |text: &str| text.split_whitespace().any(|word| word == ".global");
    (directive.name == ".global" || words(&directive.arguments)).then(|| ModuleVariable {
        name: format!("{} {}", directive.name, directive.arguments),
        line: lines.line(directive.span.start),
        uses: Vec::new(),
    })
}

struct Use {
    span: Span,
    /// Something may be written there because of this.
    writes: bool,
}

/// The instructions that name a module-scope variable or use an address computed from it, and the
/// initialisers that take its address.
fn uses(module: &Module, name: &str) -> Vec<Use> {
    let mut found = Vec::new();
    for item in &module.items {
        match item {
            // Most functions name no variable at all; looking at the text first keeps this linear.
            Item::Function(function) if !module.text[function.span.range()].contains(name) => {}
            Item::Function(function) => uses_in(function, name, &mut found),
            Item::Variable(variable) => {
                let words = |text: &str| text.split(|c: char| !is_word(c)).any(|word| word == name);
                let taken = |n: &&DeclaredName| n.initializer.as_deref().is_some_and(words);
                found.extend(variable.names.iter().filter(taken).map(|n| Use {
                    span: n.span,
                    writes: true,
                }));
            }
            Item::Directive(_) => {}
        }
    }
    found
}

fn uses_in(function: &Function, name: &str, found: &mut Vec<Use>) {
    let body = Body::new(function);
    let instructions: Vec<(ScopeId, &Instruction)> = (body.statements.iter())
        .filter_map(|&(scope, flat)| match flat {
            Flat::Instruction(instruction) => Some((scope, instruction)),
            Flat::Label(_) | Flat::Variable(..) | Flat::Directive(_) => None,
        })
        .collect();
    // Registers that may hold an address in the variable.
    let mut derived: HashSet<Symbol> = HashSet::new();
    loop {
        let before = derived.len();
        for &(scope, instruction) in &instructions {
            let access = access(instruction);
            let reads = access
                .reads
                .iter()
                .any(|own| refers(&body, scope, own, name, &derived));
            if reads && computes_address(instruction) {
                derived.extend(
                    access
                        .writes
                        .iter()
                        .filter_map(|own| body.resolve(scope, own)),
                );
            }
        }
        if derived.len() == before {
            break;
        }
    }
    for &(scope, instruction) in &instructions {
        let mut named = false;
        for operand in &instruction.operands {
            operand.for_each_name(&mut |own| named |= refers(&body, scope, own, name, &derived));
        }
        if named {
            let reads = matches!(
                instruction.opcode.as_str(),
                "ld" | "ldu" | "prefetch" | "prefetchu" | "setp" | "isspacep"
            );
            found.push(Use {
                span: instruction.span,
                writes: !reads && !computes_address(instruction),
            });
        }
    }
}

fn refers(
    body: &Body<'_>,
    scope: ScopeId,
    own: &str,
    name: &str,
    derived: &HashSet<Symbol>,
) -> bool {
    match body.resolve(scope, own) {
        Some(symbol) => derived.contains(&symbol),
        None => own == name,
    }
}

/// Whether the result may be an address that an operand was.
fn computes_address(instruction: &Instruction) -> bool {
    matches!(
        instruction.opcode.as_str(),
        "mov"
            | "cvta"
            | "cvt"
            | "add"
            | "sub"
            | "mad"
            | "and"
            | "or"
            | "xor"
            | "selp"
            | "shl"
            | "shr"
            | "max"
            | "min"
    )
}

/// Texture, sampler and surface references hold no data of their own.
fn is_opaque(variable: &Variable) -> bool {
    matches!(variable.ty.as_str(), ".texref" | ".samplerref" | ".surfref")
}

/// Whether the mnemonic begins with the words of `prefix`; after the opcode they may stand in any order.
fn begins_with(instruction: &Instruction, prefix: &str) -> bool {
    let mut words = prefix.trim_matches('.').split('.');
    words.next() == Some(instruction.opcode.as_str())
        && words.all(|word| {
            instruction
                .modifiers
                .iter()
                .any(|modifier| modifier == word)
        })
}

fn for_each_instruction<'m>(module: &'m Module, visit: &mut impl FnMut(&'m Instruction)) {
    for item in &module.items {
        if let Item::Function(function) = item {
            for (_, flat) in Body::new(function).statements {
                if let Flat::Instruction(instruction) = flat {
                    visit(instruction);
                }
            }
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '%')
}
