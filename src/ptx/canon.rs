//! The canonical form: one text for all spellings of the same kernel. Registers, labels and local symbols
//! are renamed in order, modifiers and commutative operands take a fixed order, comments, debug
//! information, braces and unused registers are gone. The text is PTX again. Entry names and symbols that
//! the host can look up stay. Two kernels that differ in meaning never get the same text; two that mean the
//! same may still differ.

use std::collections::HashMap;
use std::fmt::Write;

use super::ir::{
    Address, Directive, Function, FunctionKind, Instruction, Item, Module, Operand, Variable,
};
use super::lex::{Kind, lex};
use super::modifier;
use super::scope::{Body, DeclarationId, Flat, ScopeId, Symbol};
use crate::units::Digest;

/// The canonical text.
pub fn canonical(module: &Module) -> String {
    let globals = module_names(module);
    let global = |name: &str| globals.get(name).cloned();
    let mut out = String::with_capacity(module.text.len());
    for item in &module.items {
        match item {
            Item::Directive(directive) => write_directive(&mut out, directive, &global),
            Item::Variable(variable) => {
                let names: Vec<String> = (variable.names.iter())
                    .map(|n| global(&n.name).unwrap_or_else(|| n.name.clone()))
                    .collect();
                write_variable(&mut out, variable, &names, &global);
                out.push_str(";\n");
            }
            Item::Function(function) => Canon::new(function, &globals).write(&mut out),
        }
    }
    out
}

/// The hash of the canonical text: a kernel's identity.
pub fn digest(module: &Module) -> Digest {
    Digest::of(canonical(module))
}

/// New names of module-scope symbols that nothing outside the module can name.
fn module_names(module: &Module) -> HashMap<&str, String> {
    let mut names = HashMap::new();
    let mut add = |name, prefix: &str| {
        let number = names.len();
        names
            .entry(name)
            .or_insert_with(|| format!("${prefix}{number}"));
    };
    for item in &module.items {
        match item {
            Item::Variable(variable) if variable.linkage.is_none() => {
                variable
                    .names
                    .iter()
                    .for_each(|n| add(n.name.as_str(), "g"));
            }
            Item::Function(f) if f.linkage.is_none() && f.kind == FunctionKind::Func => {
                add(f.name.as_str(), "f");
            }
            Item::Variable(_) | Item::Function(_) | Item::Directive(_) => {}
        }
    }
    names
}

/// Renames within one function.
struct Canon<'m> {
    function: &'m Function,
    globals: &'m HashMap<&'m str, String>,
    body: Body<'m>,
    names: HashMap<Symbol, String>,
    /// Kinds of register (`.b32`) with how many are used, in order of first use.
    registers: Vec<(String, u32)>,
}

impl<'m> Canon<'m> {
    fn new(function: &'m Function, globals: &'m HashMap<&'m str, String>) -> Self {
        let mut canon = Self {
            function,
            globals,
            body: Body::new(function),
            names: HashMap::new(),
            registers: Vec::new(),
        };
        canon.name_parameters();
        canon.name_statements();
        canon
    }

    fn name_parameters(&mut self) {
        let mut id = 0;
        for (variables, prefix) in [(&self.function.returns, 'r'), (&self.function.params, 'p')] {
            let names = variables.iter().flat_map(|variable| &variable.names);
            for (position, _) in names.enumerate() {
                self.names
                    .insert(plain(DeclarationId(id)), format!("${prefix}{position}"));
                id += 1;
            }
        }
    }

    /// Destinations number registers first: the operands that may be exchanged come after, so their order
    /// cannot matter to the numbers.
    fn name_statements(&mut self) {
        let statements = std::mem::take(&mut self.body.statements);
        let (mut labels, mut variables) = (0, 0);
        for &(scope, flat) in &statements {
            match flat {
                Flat::Label(id) => {
                    self.names.insert(plain(id), format!("$L{labels}"));
                    labels += 1;
                }
                Flat::Variable(variable, _) if variable.space == ".reg" => {}
                Flat::Variable(variable, first) => {
                    for id in first.0..first.0 + variable.names.len() as u32 {
                        self.names
                            .insert(plain(DeclarationId(id)), format!("$v{variables}"));
                        variables += 1;
                    }
                }
                Flat::Directive(_) => {}
                Flat::Instruction(instruction) => {
                    if let Some(first) = instruction.operands.first() {
                        self.name_registers(scope, first);
                    }
                }
            }
        }
        for &(scope, flat) in &statements {
            if let Flat::Instruction(instruction) = flat {
                if let Some(guard) = &instruction.guard {
                    self.name_register(scope, &guard.register);
                }
                for operand in &instruction.operands {
                    self.name_registers(scope, operand);
                }
            }
        }
        self.body.statements = statements;
    }

    fn name_registers(&mut self, scope: ScopeId, operand: &Operand) {
        operand.for_each_name(&mut |name| self.name_register(scope, name));
        if let Operand::Verbatim(text) = operand {
            for token in lex(text).unwrap_or_default() {
                self.name_register(scope, &text[token.span.range()]);
            }
        }
    }

    fn name_register(&mut self, scope: ScopeId, name: &str) {
        let Some(symbol) = self.body.resolve(scope, name) else {
            return;
        };
        let Some(variable) = self.body.register(symbol) else {
            return;
        };
        if self.names.contains_key(&symbol) {
            return;
        }
        let kind = match variable.vector {
            Some(lanes) => format!(".v{lanes} {}", variable.ty),
            None => variable.ty.clone(),
        };
        let slot = match self.registers.iter().position(|(known, _)| *known == kind) {
            Some(slot) => slot,
            None => {
                self.registers.push((kind, 0));
                self.registers.len() - 1
            }
        };
        let (kind, count) = &mut self.registers[slot];
        self.names
            .insert(symbol, format!("%{}_{count}", family(kind)));
        *count += 1;
    }

    fn rename(&self, scope: ScopeId, name: &str) -> Option<String> {
        let Some(symbol) = self.body.resolve(scope, name) else {
            return self.globals.get(name).cloned();
        };
        let new = self.names.get(&symbol)?;
        let member = name.find('.').map_or("", |dot| &name[dot..]);
        Some(format!("{new}{member}"))
    }

    fn write(&self, out: &mut String) {
        let function = self.function;
        if let Some(linkage) = &function.linkage {
            let _ = write!(out, "{linkage} ");
        }
        out.push_str(match function.kind {
            FunctionKind::Entry => ".entry ",
            FunctionKind::Func => ".func ",
        });
        if !function.returns.is_empty() {
            self.write_parameters(out, &function.returns, 0);
        }
        out.push_str(
            self.globals
                .get(function.name.as_str())
                .unwrap_or(&function.name),
        );
        let returned = function
            .returns
            .iter()
            .map(|variable| variable.names.len())
            .sum();
        self.write_parameters(out, &function.params, returned);
        let mut directives: Vec<String> =
            function.directives.iter().map(header_directive).collect();
        directives.sort_unstable();
        for directive in directives {
            let _ = write!(out, "\n{directive}");
        }
        if function.body.is_none() {
            out.push_str(";\n");
            return;
        }
        out.push_str("\n{\n");
        for (kind, count) in &self.registers {
            let _ = writeln!(out, ".reg {kind} %{}_<{count}>;", family(kind));
        }
        for &(scope, flat) in &self.body.statements {
            self.write_statement(out, scope, flat);
        }
        out.push_str("}\n");
    }

    fn write_statement(&self, out: &mut String, scope: ScopeId, flat: Flat<'m>) {
        let rename = |name: &str| self.rename(scope, name);
        match flat {
            Flat::Label(id) => {
                let _ = writeln!(out, "{}:", self.declared(id));
            }
            Flat::Variable(variable, _) if variable.space == ".reg" => {}
            Flat::Variable(variable, first) => {
                write_variable(
                    out,
                    variable,
                    &self.declared_names(variable, first),
                    &rename,
                );
                out.push_str(";\n");
            }
            Flat::Directive(directive) => write_directive(out, directive, &rename),
            Flat::Instruction(instruction) => write_instruction(out, instruction, &rename),
        }
    }

    fn write_parameters(&self, out: &mut String, variables: &[Variable], first: usize) {
        let mut id = first as u32;
        out.push('(');
        for (position, variable) in variables.iter().enumerate() {
            if position > 0 {
                out.push_str(", ");
            }
            let names = self.declared_names(variable, DeclarationId(id));
            write_variable(out, variable, &names, &|_| None);
            id += variable.names.len() as u32;
        }
        out.push_str(") ");
    }

    fn declared(&self, id: DeclarationId) -> &str {
        self.names.get(&plain(id)).map_or("", String::as_str)
    }

    fn declared_names(&self, variable: &Variable, first: DeclarationId) -> Vec<String> {
        (first.0..first.0 + variable.names.len() as u32)
            .map(|id| self.declared(DeclarationId(id)).to_owned())
            .collect()
    }
}

/// A new name, where the old one has one.
type Rename<'a> = &'a dyn Fn(&str) -> Option<String>;

fn plain(declaration: DeclarationId) -> Symbol {
    Symbol {
        declaration,
        index: None,
    }
}

/// `.v4 .f32` as `v4f32`, to begin register names with.
fn family(kind: &str) -> String {
    kind.chars().filter(char::is_ascii_alphanumeric).collect()
}

fn write_variable(out: &mut String, variable: &Variable, names: &[String], rename: Rename<'_>) {
    if let Some(linkage) = &variable.linkage {
        let _ = write!(out, "{linkage} ");
    }
    out.push_str(&variable.space);
    // ptxas wants `.attribute(…)` here and all others after the type.
    let (first, last): (Vec<_>, Vec<_>) =
        (variable.attributes.iter()).partition(|a| a.starts_with(".attribute"));
    for attribute in first {
        let _ = write!(out, " {attribute}");
    }
    if let Some(align) = variable.align {
        let _ = write!(out, " .align {align}");
    }
    if let Some(lanes) = variable.vector {
        let _ = write!(out, " .v{lanes}");
    }
    let _ = write!(out, " {}", variable.ty);
    for attribute in last {
        let _ = write!(out, " {attribute}");
    }
    for (position, (declared, name)) in variable.names.iter().zip(names).enumerate() {
        out.push_str(if position > 0 { ", " } else { " " });
        out.push_str(name);
        if let Some(count) = declared.count {
            let _ = write!(out, "<{count}>");
        }
        for dimension in &declared.dimensions {
            let _ = match dimension {
                Some(size) => write!(out, "[{size}]"),
                None => write!(out, "[]"),
            };
        }
        if let Some(initializer) = &declared.initializer {
            let _ = write!(out, " = {}", renamed_text(initializer, rename));
        }
    }
}

/// Debug information says nothing about what runs.
fn write_directive(out: &mut String, directive: &Directive, rename: Rename<'_>) {
    if matches!(directive.name.as_str(), ".loc" | ".file" | ".section") {
        return;
    }
    let arguments = renamed_text(&directive.arguments, rename);
    let end = match directive.name.as_str() {
        ".version" | ".target" | ".address_size" => "",
        _ => ";",
    };
    let _ = writeln!(out, "{} {arguments}{end}", directive.name);
}

/// A performance directive; sizes in x, y, z are written in full.
fn header_directive(directive: &Directive) -> String {
    let mut arguments = renamed_text(&directive.arguments, &|_| None);
    if matches!(
        directive.name.as_str(),
        ".maxntid" | ".reqntid" | ".reqnctapercluster"
    ) {
        for _ in arguments.split(',').count()..3 {
            arguments.push_str(", 1");
        }
        arguments = arguments
            .split(',')
            .map(str::trim)
            .collect::<Vec<_>>()
            .join(", ");
    }
    format!("{} {arguments}", directive.name)
}

/// Text with its names renamed, comments gone and one blank between tokens.
fn renamed_text(text: &str, rename: Rename<'_>) -> String {
    let Ok(tokens) = lex(text) else {
        return text.to_owned();
    };
    let mut out = String::with_capacity(text.len());
    let mut last = None;
    for token in tokens {
        let own = &text[token.span.range()];
        let words = |kind| {
            matches!(
                kind,
                Some(Kind::Ident | Kind::Number | Kind::Dotted | Kind::String)
            )
        };
        if words(last) && words(Some(token.kind)) {
            out.push(' ');
        }
        match rename(own).filter(|_| token.kind == Kind::Ident) {
            Some(new) => out.push_str(&new),
            None => out.push_str(own),
        }
        last = Some(token.kind);
    }
    out
}

fn write_instruction(out: &mut String, instruction: &Instruction, rename: Rename<'_>) {
    let mut modifiers = modifier::sorted(instruction);
    let mut operands: Vec<String> = (instruction.operands.iter())
        .map(|operand| renamed(operand, rename).to_string())
        .collect();
    if let Some((first, second)) = exchangeable(instruction) {
        let compares = matches!(instruction.opcode.as_str(), "setp" | "set");
        // Of two equal operands the comparison that comes first in the alphabet stays.
        let smaller =
            |modifier: &&str| compares && mirrored(modifier).is_some_and(|m| m < *modifier);
        let equal = operands[first] == operands[second];
        if operands[first] > operands[second] || equal && modifiers.iter().any(smaller) {
            operands.swap(first, second);
            for modifier in modifiers.iter_mut().filter(|_| compares) {
                *modifier = mirrored(modifier).unwrap_or(modifier);
            }
        }
    }
    if let Some(guard) = &instruction.guard {
        let not = if guard.negated { "!" } else { "" };
        let name = rename(&guard.register);
        let _ = write!(out, "@{not}{} ", name.as_ref().unwrap_or(&guard.register));
    }
    out.push_str(&instruction.opcode);
    for modifier in modifiers {
        let _ = write!(out, ".{modifier}");
    }
    for (position, operand) in operands.iter().enumerate() {
        out.push_str(if position > 0 { ", " } else { " " });
        out.push_str(operand);
    }
    out.push_str(";\n");
}

/// Two operands whose order does not matter (of `set` and `setp`: once the comparison is mirrored).
fn exchangeable(instruction: &Instruction) -> Option<(usize, usize)> {
    let one_type = modifier::types(instruction).count() == 1;
    let operands = instruction.operands.len();
    match instruction.opcode.as_str() {
        "add" | "addc" | "mul" | "mul24" | "and" | "or" | "xor" | "min" | "max" => {
            (one_type && operands >= 3).then_some((1, 2))
        }
        "mad" | "mad24" | "madc" | "fma" => {
            // `fma.rn.f32.f16`: both factors are of the second type.
            let factors_alike = modifier::types(instruction).count() <= 2;
            (factors_alike && operands == 4).then_some((1, 2))
        }
        "setp" => (one_type && operands >= 3 && mirrors(instruction)).then_some((1, 2)),
        "set" => (operands >= 3 && mirrors(instruction)).then_some((1, 2)),
        _ => None,
    }
}

/// Whether exactly one modifier is a comparison, and it has a mirror image.
fn mirrors(instruction: &Instruction) -> bool {
    instruction
        .modifiers
        .iter()
        .filter(|m| mirrored(m).is_some())
        .count()
        == 1
}

/// The comparison that holds for (b, a) where this one holds for (a, b).
fn mirrored(comparison: &str) -> Option<&'static str> {
    Some(match comparison {
        "eq" => "eq",
        "ne" => "ne",
        "equ" => "equ",
        "neu" => "neu",
        "num" => "num",
        "nan" => "nan",
        "lt" => "gt",
        "gt" => "lt",
        "le" => "ge",
        "ge" => "le",
        "ltu" => "gtu",
        "gtu" => "ltu",
        "leu" => "geu",
        "geu" => "leu",
        "lo" => "hi",
        "hi" => "lo",
        "ls" => "hs",
        "hs" => "ls",
        _ => return None,
    })
}

fn renamed(operand: &Operand, rename: Rename<'_>) -> Operand {
    let new = |name: &String| rename(name).unwrap_or_else(|| name.clone());
    let all = |members: &[Operand]| members.iter().map(|m| renamed(m, rename)).collect();
    match operand {
        Operand::Name(name) => Operand::Name(new(name)),
        Operand::Not(inner) => Operand::Not(Box::new(renamed(inner, rename))),
        Operand::Negated(inner) => Operand::Negated(Box::new(renamed(inner, rename))),
        Operand::Vector(members) => Operand::Vector(all(members)),
        Operand::Tuple(members) => Operand::Tuple(all(members)),
        Operand::Address(address) => Operand::Address(Address {
            base: address.base.as_ref().map(new),
            offset: address.offset,
            rest: all(&address.rest),
        }),
        Operand::Offset { base, offset } => Operand::Offset {
            base: new(base),
            offset: *offset,
        },
        Operand::Element { base, index } => Operand::Element {
            base: new(base),
            index: *index,
        },
        Operand::Pair(first, second) => Operand::Pair(
            Box::new(renamed(first, rename)),
            Box::new(renamed(second, rename)),
        ),
        Operand::Verbatim(text) => Operand::Verbatim(renamed_text(text, rename)),
        Operand::Immediate(_) | Operand::Sink => operand.clone(),
    }
}
