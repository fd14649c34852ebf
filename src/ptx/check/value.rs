//! Where the addresses in registers come from, and what follows: space and alignment errors. Only
//! registers with a single definition are followed, so that what is said holds wherever they are read.

use std::collections::HashMap;

use super::{Context, Findings};
use crate::ptx::ir::{Address, FunctionKind, Immediate, Instruction, Item, Operand, Variable};
use crate::ptx::modifier;
use crate::ptx::scope::{ScopeId, Symbol};
use crate::verdict::Severity;

/// What a register is known to hold.
#[derive(Clone, Copy)]
enum Value<'m> {
    /// The address of a declared variable plus bytes.
    AddressOf(&'m Variable, i64),
    /// The value of a kernel's parameter plus something: a global address where it is an address.
    Loaded,
}

/// What registers with one definition hold.
pub(super) struct Values<'m> {
    registers: HashMap<Symbol, Value<'m>>,
    /// Module-scope variables by name.
    globals: HashMap<&'m str, &'m Variable>,
}

impl<'m> Values<'m> {
    pub(super) fn new(context: &Context<'m>) -> Self {
        let globals = (context.module.items.iter())
            .filter_map(|item| match item {
                Item::Variable(variable) => Some(variable),
                Item::Function(_) | Item::Directive(_) => None,
            })
            .flat_map(|variable| {
                variable
                    .names
                    .iter()
                    .map(move |n| (n.name.as_str(), variable))
            })
            .collect();
        let mut values = Self {
            registers: HashMap::new(),
            globals,
        };
        // The only definition of each register.
        let mut definitions: HashMap<Symbol, Option<usize>> = HashMap::new();
        for (index, access) in context.accesses.iter().enumerate() {
            for name in &access.writes {
                if let Some(symbol) = context.body.resolve(context.scopes[index], name) {
                    definitions
                        .entry(symbol)
                        .and_modify(|only| *only = None)
                        .or_insert(Some(index));
                }
            }
        }
        // In text order; a chain that runs backwards in the text is not followed.
        let mut single: Vec<(usize, Symbol)> = (definitions.into_iter())
            .filter_map(|(symbol, only)| Some((only?, symbol)))
            .collect();
        single.sort_unstable();
        for (index, symbol) in single {
            if let Some(value) = values.of_instruction(context, index) {
                values.registers.insert(symbol, value);
            }
        }
        values
    }

    fn of_instruction(&self, context: &Context<'m>, index: usize) -> Option<Value<'m>> {
        let instruction = context.cfg.instructions[index];
        let scope = context.scopes[index];
        if instruction.guard.is_some() {
            return None;
        }
        let is_entry = context.function.kind == FunctionKind::Entry;
        match (instruction.opcode.as_str(), instruction.operands.as_slice()) {
            ("ld", [Operand::Name(_), Operand::Address(address)])
                if instruction.has("param") && is_entry =>
            {
                let base = address.base.as_ref()?;
                let variable = self.variable(context, scope, base)?;
                let is_parameter = context
                    .function
                    .params
                    .iter()
                    .any(|p| std::ptr::eq(p, variable));
                is_parameter.then_some(Value::Loaded)
            }
            ("mov" | "cvta", [Operand::Name(_), source]) => self.of_operand(context, scope, source),
            (
                "add",
                [
                    Operand::Name(_),
                    source,
                    Operand::Immediate(Immediate::Int(by)),
                ],
            ) => match self.of_operand(context, scope, source)? {
                Value::AddressOf(variable, offset) => {
                    let by = i64::try_from(*by).ok()?;
                    Some(Value::AddressOf(variable, offset.checked_add(by)?))
                }
                Value::Loaded => Some(Value::Loaded),
            },
            _ => None,
        }
    }

    fn of_operand(
        &self,
        context: &Context<'m>,
        scope: ScopeId,
        operand: &'m Operand,
    ) -> Option<Value<'m>> {
        match operand {
            Operand::Name(name) => self.of_name(context, scope, name),
            Operand::Offset { base, offset } => match self.of_name(context, scope, base)? {
                Value::AddressOf(variable, at) => {
                    Some(Value::AddressOf(variable, at.checked_add(*offset)?))
                }
                Value::Loaded => None,
            },
            _ => None,
        }
    }

    fn of_name(&self, context: &Context<'m>, scope: ScopeId, name: &str) -> Option<Value<'m>> {
        if let Some(symbol) = context.body.resolve(scope, name)
            && context.body.register(symbol).is_some()
        {
            return self.registers.get(&symbol).copied();
        }
        let variable = self.variable(context, scope, name)?;
        Some(Value::AddressOf(variable, 0))
    }

    /// What an address refers to: the variable and the whole offset.
    fn of_address(
        &self,
        context: &Context<'m>,
        scope: ScopeId,
        address: &Address,
    ) -> Option<Value<'m>> {
        match self.of_name(context, scope, address.base.as_ref()?)? {
            Value::AddressOf(variable, at) => {
                Some(Value::AddressOf(variable, at.checked_add(address.offset)?))
            }
            Value::Loaded => Some(Value::Loaded),
        }
    }

    /// The variable (no register) that a name refers to.
    fn variable(&self, context: &Context<'m>, scope: ScopeId, name: &str) -> Option<&'m Variable> {
        match context.body.resolve(scope, name) {
            Some(symbol) => context.body.variable(symbol),
            None => self.globals.get(name).copied(),
        }
    }
}

/// Findings about one instruction's addresses.
pub(super) fn lint<'m>(
    context: &Context<'m>,
    values: &Values<'m>,
    index: usize,
    findings: &mut Findings,
) {
    let instruction = context.cfg.instructions[index];
    let scope = context.scopes[index];
    let addresses: Vec<&Address> = (instruction.operands.iter())
        .filter_map(|operand| match operand {
            Operand::Address(address) => Some(address),
            _ => None,
        })
        .collect();
    let value = |address: &Address| values.of_address(context, scope, address);
    match (instruction.opcode.as_str(), addresses.as_slice()) {
        ("ld", [address]) => {
            if instruction.has("param") && matches!(value(address), Some(Value::Loaded)) {
                param_through_register(instruction, findings);
            }
            misaligned(instruction, address, value(address), findings);
        }
        ("st", [address]) => misaligned(instruction, address, value(address), findings),
        ("ldmatrix" | "stmatrix", [address]) if value(address).is_some_and(is_global) => {
            matrix_on_global(instruction, findings);
        }
        ("cvta", []) if instruction.has("to") && instruction.has("shared") => {
            let source = instruction.operands.get(1);
            if source
                .and_then(|s| values.of_operand(context, scope, s))
                .is_some_and(is_global)
            {
                shared_from_global(instruction, findings);
            }
        }
        ("cp" | "prefetch", _) if instruction.has("tensor") || instruction.has("tensormap") => {
            for address in addresses {
                if let Some(Value::AddressOf(variable, _)) = value(address) {
                    tensor_map(instruction, variable, findings);
                }
            }
        }
        _ => {}
    }
}

fn is_global(value: Value<'_>) -> bool {
    match value {
        Value::AddressOf(variable, _) => variable.space == ".global",
        Value::Loaded => true,
    }
}

fn param_through_register(instruction: &Instruction, findings: &mut Findings) {
    findings.add(
        Severity::Error,
        "param-through-register",
        instruction.span,
        "`ld.param` reads through a pointer that is itself a parameter's value".to_owned(),
        "load what the pointer points to with `ld.global`",
    );
}

fn matrix_on_global(instruction: &Instruction, findings: &mut Findings) {
    findings.add(
        Severity::Error,
        "matrix-on-global",
        instruction.span,
        format!(
            "`{}` works on shared memory; this address is global",
            instruction.opcode
        ),
        "copy the tile to shared memory first",
    );
}

fn shared_from_global(instruction: &Instruction, findings: &mut Findings) {
    findings.add(
        Severity::Error,
        "shared-from-global",
        instruction.span,
        "`cvta.to.shared` of a pointer to global memory".to_owned(),
        "use `cvta.to.global`",
    );
}

fn tensor_map(instruction: &Instruction, variable: &Variable, findings: &mut Findings) {
    let align = variable.align.unwrap_or(1);
    if variable.space == ".param" && align < 64 {
        findings.add(
            Severity::Error,
            "tensor-map-alignment",
            instruction.span,
            format!(
                "the tensor map's parameter is aligned to {align} bytes; the hardware needs 64"
            ),
            "declare it `.param .align 64 .b8 NAME[128]`",
        );
    }
}

/// Bytes one lane moves with this load or store; `None` where a modifier is not understood.
fn access_bytes(instruction: &Instruction) -> Option<u64> {
    let ty = modifier::types(instruction).last()?;
    let bits: u64 = ty
        .trim_start_matches(|c: char| c.is_ascii_alphabetic())
        .parse()
        .ok()?;
    let lanes = match () {
        () if instruction.has("v2") => 2,
        () if instruction.has("v4") => 4,
        () if instruction.has("v8") => 8,
        () => 1,
    };
    Some(bits / 8 * lanes)
}

fn misaligned(
    instruction: &Instruction,
    address: &Address,
    value: Option<Value<'_>>,
    findings: &mut Findings,
) {
    let Some(Value::AddressOf(variable, offset)) = value else {
        return;
    };
    // Parameters of calls lie in registers mostly; the declared alignment says nothing there.
    if !matches!(
        variable.space.as_str(),
        ".shared" | ".global" | ".const" | ".local"
    ) {
        return;
    }
    let Some(bytes) = access_bytes(instruction).filter(|&bytes| bytes > 1) else {
        return;
    };
    let mnemonic = instruction.mnemonic();
    let name = address.base.as_deref().unwrap_or_default();
    if offset.rem_euclid(bytes as i64) != 0 && variable_align(variable) >= bytes {
        findings.add(
            Severity::Error,
            "misaligned-access",
            instruction.span,
            format!("`{mnemonic}` needs an address divisible by {bytes}; `{name}` leads to offset {offset}"),
            "use an offset that is a multiple of the access, or a narrower access",
        );
    } else if variable_align(variable) < bytes && variable.linkage.as_deref() != Some(".extern") {
        findings.add(
            Severity::Warning,
            "misaligned-access",
            instruction.span,
            format!(
                "`{mnemonic}` needs an address divisible by {bytes}; its variable is aligned to {} only",
                variable_align(variable)
            ),
            "declare the variable with `.align`, at least as large as the access",
        );
    }
}

/// Declared, or that of the type.
fn variable_align(variable: &Variable) -> u64 {
    let bits = variable
        .ty
        .trim_start_matches(|c: char| !c.is_ascii_digit());
    let own =
        bits.parse::<u64>().map_or(1, |bits| bits / 8) * u64::from(variable.vector.unwrap_or(1));
    variable.align.map_or(own.max(1), u64::from)
}
