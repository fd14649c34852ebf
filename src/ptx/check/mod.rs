//! Lints: what ptxas accepts in silence and the GPU then does wrong. Each is a finding with a line and a
//! remedy. A lint speaks only where it is sure, or says what it assumes; compiler output has no findings.

mod asynchronous;
mod barrier;
mod descriptor;
mod parity;
mod registers;
mod setmaxnreg;
mod tensor_map;
mod value;

use super::access::{Access, access};
use super::cfg::Cfg;
use super::ir::{Function, FunctionKind, Immediate, Instruction, Item, Module, Operand, Span};
use super::place::Lines;
use super::scope::{Body, Flat, ScopeId};
use crate::verdict::{Diagnostic, Severity};
pub use setmaxnreg::RegisterBudget;
pub use tensor_map::{BoundMap, check_tensor_maps};
use value::Values;

/// All findings, by line. Lines are those of `module.text`.
pub fn check(module: &Module) -> Vec<Diagnostic> {
    let mut findings = Findings {
        lines: Lines::new(&module.text),
        found: Vec::new(),
    };
    for item in &module.items {
        if let Item::Function(function) = item {
            header(function, &mut findings);
            if function.body.is_some() {
                body(module, function, &mut findings);
            }
        }
    }
    findings.found.sort_by_key(|diagnostic| diagnostic.line);
    findings.found
}

/// A function prepared for the lints.
struct Context<'m> {
    module: &'m Module,
    function: &'m Function,
    body: Body<'m>,
    cfg: Cfg<'m>,
    /// Scope and accesses of each of the graph's instructions.
    scopes: Vec<ScopeId>,
    accesses: Vec<Access<'m>>,
}

struct Findings {
    lines: Lines,
    found: Vec<Diagnostic>,
}

impl Findings {
    fn add(&mut self, severity: Severity, code: &str, span: Span, message: String, help: &str) {
        self.found.push(Diagnostic {
            severity,
            code: code.to_owned(),
            message,
            line: Some(self.lines.line(span.start)),
            other_line: None,
            help: Some(help.to_owned()),
        });
    }
}

fn header(function: &Function, findings: &mut Findings) {
    for directive in &function.directives {
        if !matches!(directive.name.as_str(), ".maxntid" | ".reqntid") {
            continue;
        }
        if let Some(threads) = product(&directive.arguments)
            && threads > 1024
        {
            findings.add(
                Severity::Error,
                "too-many-threads",
                directive.span,
                format!(
                    "{} asks for {threads} threads a block; the limit is 1024",
                    directive.name
                ),
                "use fewer threads and let each do more",
            );
        }
    }
}

impl<'m> Context<'m> {
    fn new(module: &'m Module, function: &'m Function) -> Self {
        let body = Body::new(function);
        let cfg = Cfg::of_body(&body);
        let scopes = (body.statements.iter())
            .filter_map(|&(scope, flat)| matches!(flat, Flat::Instruction(_)).then_some(scope))
            .collect();
        let accesses = cfg.instructions.iter().map(|i| access(i)).collect();
        Self {
            module,
            function,
            body,
            cfg,
            scopes,
            accesses,
        }
    }
}

fn body(module: &Module, function: &Function, findings: &mut Findings) {
    let context = Context::new(module, function);
    let values = Values::new(&context);
    for (index, instruction) in context.cfg.instructions.iter().enumerate() {
        lop3(instruction, findings);
        value::lint(&context, &values, index, findings);
    }
    missing_ret(&context, findings);
    registers::lint(&context, findings);
    barrier::lint(&context, findings);
    setmaxnreg::lint(&context, findings);
    asynchronous::lint(&context, findings);
    parity::lint(&context, findings);
    if let Some(descriptors) = descriptor::Descriptors::new(&context) {
        descriptor::lint(&context, &descriptors, findings);
    }
}

fn lop3(instruction: &Instruction, findings: &mut Findings) {
    if instruction.opcode != "lop3" {
        return;
    }
    if let Some(Operand::Immediate(Immediate::Int(table))) = instruction.operands.get(4)
        && !(0..=0xff).contains(table)
    {
        findings.add(
            Severity::Error,
            "lop3-table",
            instruction.span,
            format!("lop3's truth table is {table:#x}; it has 8 bits"),
            "compute the table as F(0xf0, 0xcc, 0xaa) and keep its low byte",
        );
    }
}

fn missing_ret(context: &Context<'_>, findings: &mut Findings) {
    let cfg = &context.cfg;
    let (Some(last), Some(&reachable)) = (cfg.instructions.last(), cfg.reachable().last()) else {
        return;
    };
    // A call at the very end goes to a function that does not return.
    if reachable && Cfg::falls_through(last) && last.opcode != "call" {
        let what = match context.function.kind {
            FunctionKind::Entry => "kernel",
            FunctionKind::Func => "function",
        };
        findings.add(
            Severity::Error,
            "missing-ret",
            last.span,
            format!("{what} `{}` runs past its end", context.function.name),
            "end it with `ret;`",
        );
    }
}

/// `256, 2, 1` as 512; `None` where a part is no number.
fn product(arguments: &str) -> Option<u64> {
    (arguments.split(',')).try_fold(1u64, |product, part| {
        product.checked_mul(part.trim().parse().ok()?)
    })
}
