//! What a kernel does with its tensor maps against what the maps say: swizzles that no descriptor reads, and bytes
//! that a barrier is told of and boxes do not bring.

use std::collections::{BTreeMap, BTreeSet};

use super::descriptor::Descriptors;
use super::{Context, Findings};
use crate::ptx::ir::{
    Address, Function, FunctionKind, Immediate, Instruction, Item, Module, Operand,
};
use crate::ptx::place::Lines;
use crate::ptx::scope::Symbol;
use crate::verdict::{Diagnostic, Severity};

/// A tensor map that a launch passes to a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundMap {
    /// The kernel.
    pub entry: String,
    /// Index of its parameter.
    pub param: usize,
    /// Bytes of a row of the swizzle's pattern; 0: rows lie as they are.
    pub swizzle: u32,
    /// Bytes of a box.
    pub bytes: u64,
}

/// Findings that only show with the launches' tensor maps beside the text, by line.
pub fn check_tensor_maps(module: &Module, maps: &[BoundMap]) -> Vec<Diagnostic> {
    let mut findings = Findings {
        lines: Lines::new(&module.text),
        found: Vec::new(),
    };
    for item in &module.items {
        let Item::Function(function) = item else {
            continue;
        };
        let bound: Vec<&BoundMap> = maps.iter().filter(|m| m.entry == function.name).collect();
        if function.kind == FunctionKind::Entry && function.body.is_some() && !bound.is_empty() {
            let context = Context::new(module, function);
            if let Some(copies) = Copies::new(&context, function, &bound) {
                swizzles(&context, &copies, &mut findings);
                bytes(&context, &copies, &mut findings);
            }
        }
    }
    findings.found.sort_by_key(|diagnostic| diagnostic.line);
    findings.found
}

/// Every copy from memory by a tensor map, with its map.
struct Copies<'m> {
    by_map: Vec<(usize, &'m BoundMap)>,
}

impl<'m> Copies<'m> {
    /// `None` where a copy's map is not known, or a bulk copy goes without one.
    fn new(context: &Context<'_>, function: &Function, bound: &[&'m BoundMap]) -> Option<Self> {
        let params: Vec<&str> = (function.params.iter())
            .flat_map(|param| param.names.iter().map(|name| name.name.as_str()))
            .collect();
        let maps = maps_of_registers(context, &params);
        let mut by_map = Vec::new();
        for (index, instruction) in context.cfg.instructions.iter().enumerate() {
            if !brings(instruction) {
                continue;
            }
            let map = instruction.operands.iter().filter_map(address).nth(1)?;
            let name = map.base.as_deref()?;
            let mut named = match context.body.resolve(context.scopes[index], name) {
                Some(symbol) if context.body.register(symbol).is_some() => {
                    maps.get(&symbol)?.iter().copied()
                }
                _ => return None,
            };
            let (Some(param), None) = (named.next(), named.next()) else {
                return None;
            };
            let same: Vec<&&BoundMap> = bound.iter().filter(|m| m.param == param).collect();
            let (first, rest) = same.split_first()?;
            rest.iter().all(|other| *other == *first).then_some(())?;
            by_map.push((index, **first));
        }
        Some(Self { by_map })
    }
}

/// Tiles that TMA lays down in one pattern, where every descriptor reads another: only where products alone read
/// what comes.
fn swizzles(context: &Context<'_>, copies: &Copies<'_>, findings: &mut Findings) {
    let read_otherwise = context.cfg.instructions.iter().any(|i| {
        matches!(i.opcode.as_str(), "ld" | "ldmatrix")
            && i.modifiers.iter().any(|m| m.starts_with("shared"))
            || i.opcode == "ld" && !i.modifiers.iter().any(|m| is_space(m))
    });
    let all = Descriptors::new(context).and_then(|descriptors| descriptors.all(context));
    let Some(all) = all.filter(|all| !read_otherwise && !all.is_empty()) else {
        return;
    };
    let known: BTreeSet<u64> = all.iter().map(|d| d.swizzle().unwrap_or(0)).collect();
    let mut told = BTreeSet::new();
    for (index, map) in &copies.by_map {
        if known.contains(&u64::from(map.swizzle)) || !told.insert(map.param) {
            continue;
        }
        let named: Vec<String> = known.iter().map(|w| pattern(*w)).collect();
        findings.add(
            Severity::Warning,
            "swizzle-mismatch",
            context.cfg.instructions[*index].span,
            format!(
                "the tensor map lays its tiles down {}; every descriptor reads {}",
                pattern(u64::from(map.swizzle)),
                named.join(" or ")
            ),
            "the header's `swizzle=` and bits 62 and 63 of the descriptor must agree: 128 is 1, 64 is 2, 32 is 3, none is 0",
        );
    }
}

fn pattern(swizzle: u64) -> String {
    match swizzle {
        0 => "without a swizzle".to_owned(),
        bytes => format!("swizzled in rows of {bytes} bytes"),
    }
}

/// Blocks of code in which a barrier is told of more or fewer bytes than the boxes that follow bring to it.
fn bytes(context: &Context<'_>, copies: &Copies<'_>, findings: &mut Findings) {
    let cfg = &context.cfg;
    // What comes from other blocks of a cluster counts, too.
    let several = |i: &Instruction| {
        i.opcode == "cp" && i.has("multicast::cluster")
            || i.opcode == "mapa"
            || i.opcode == "mbarrier"
                && (i.has("expect_tx") && !i.has("arrive") || i.has("complete_tx"))
    };
    if cfg.instructions.iter().any(|i| several(i)) {
        return;
    }
    let told = |index: &usize| {
        let instruction = cfg.instructions[*index];
        instruction.opcode == "mbarrier" && instruction.has("expect_tx")
    };
    let blocks: BTreeSet<u32> = (copies.by_map.iter())
        .map(|(index, _)| cfg.block_of(*index).0)
        .collect();
    let mut found = Vec::new();
    for block in blocks {
        let range = cfg.blocks[block as usize].instructions.clone();
        let mut expected: Vec<usize> = range.clone().filter(told).collect();
        // A copy here that another block of code announces: then nothing is known of any.
        let (Some(expects), true) = (expected.pop(), expected.is_empty()) else {
            return;
        };
        let instruction = cfg.instructions[expects];
        let Some(Operand::Immediate(Immediate::Int(said))) = instruction.operands.last() else {
            continue;
        };
        let own: Vec<&(usize, &BoundMap)> = copies
            .by_map
            .iter()
            .filter(|(index, _)| range.contains(index))
            .collect();
        let barrier = instruction.operands.iter().find_map(address);
        // One barrier, named alike and not moved meanwhile.
        let same = own.iter().all(|(index, _)| {
            let copy = cfg.instructions[*index];
            let to = copy.operands.iter().filter_map(address).nth(2);
            let base = barrier.and_then(|b| b.base.as_deref());
            let between = expects.min(*index)..expects.max(*index);
            let written = |at: usize| context.accesses[at].writes.iter().any(|n| Some(*n) == base);
            to == barrier && copy.guard.is_none() && !between.into_iter().any(written)
        });
        let brought: u64 = own.iter().map(|(_, map)| map.bytes).sum();
        if same && instruction.guard.is_none() && i128::from(brought) != *said {
            found.push((instruction.span, *said, brought));
        }
    }
    for (span, said, brought) in found {
        findings.add(
            Severity::Warning,
            "byte-count",
            span,
            format!(
                "the barrier is told of {said} bytes; the boxes that follow bring {brought}, and it waits for ever or ends early"
            ),
            "announce the sum of the boxes' bytes, parts beyond the tensor counted",
        );
    }
}

/// By register: parameters whose address it may hold, whatever the order.
fn maps_of_registers(context: &Context<'_>, params: &[&str]) -> BTreeMap<Symbol, BTreeSet<usize>> {
    let mut maps: BTreeMap<Symbol, BTreeSet<usize>> = BTreeMap::new();
    loop {
        let mut changed = false;
        for (index, instruction) in context.cfg.instructions.iter().enumerate() {
            if !matches!(instruction.opcode.as_str(), "mov" | "cvta" | "add" | "selp") {
                continue;
            }
            let mut from = BTreeSet::new();
            for name in &context.accesses[index].reads {
                if let Some(param) = params.iter().position(|param| param == name) {
                    from.insert(param);
                }
                let symbol = context.body.resolve(context.scopes[index], name);
                from.extend(symbol.and_then(|s| maps.get(&s)).into_iter().flatten());
            }
            for name in &context.accesses[index].writes {
                if let Some(symbol) = context.body.resolve(context.scopes[index], name)
                    && !from.is_empty()
                {
                    let known = maps.entry(symbol).or_default();
                    let before = known.len();
                    known.extend(&from);
                    changed |= known.len() > before;
                }
            }
        }
        if !changed {
            return maps;
        }
    }
}

/// A copy of a box from memory to shared memory.
fn brings(instruction: &Instruction) -> bool {
    let barrier = |m: &String| m.starts_with("mbarrier");
    instruction.opcode == "cp"
        && instruction.has("bulk")
        && instruction.modifiers.iter().any(barrier)
}

fn is_space(modifier: &str) -> bool {
    let space = modifier.split("::").next().unwrap_or(modifier);
    matches!(space, "global" | "shared" | "local" | "param" | "const")
}

fn address(operand: &Operand) -> Option<&Address> {
    match operand {
        Operand::Address(address) => Some(address),
        _ => None,
    }
}
