//! Block-wide barriers that only some of the threads reach.

use std::collections::{HashMap, HashSet};

use super::{Context, Findings};
use crate::ptx::cfg::{BlockId, is_end};
use crate::ptx::ir::{Immediate, Instruction, Operand};
use crate::ptx::scope::Symbol;
use crate::verdict::Severity;

/// Reports a barrier for the whole block that stands on one side of a branch on the thread's index, where
/// the other side meets it again without a barrier. Loops, named barriers with a thread count and sides that
/// end the thread are left alone: there such code can be right.
pub(super) fn lint(context: &Context<'_>, findings: &mut Findings) {
    let cfg = &context.cfg;
    let waits: Vec<Option<usize>> = (cfg.blocks.iter())
        .map(|block| {
            block
                .instructions
                .clone()
                .find(|&i| is_block_wide(cfg.instructions[i]))
        })
        .collect();
    if waits.iter().all(Option::is_none) {
        return;
    }
    let divergent = divergent_registers(context);
    let mut reported = HashSet::new();
    for (index, instruction) in cfg.instructions.iter().enumerate() {
        let Some(guard) = instruction
            .guard
            .as_ref()
            .filter(|_| instruction.opcode == "bra")
        else {
            continue;
        };
        let condition = context.body.resolve(context.scopes[index], &guard.register);
        if !condition.is_some_and(|symbol| divergent.contains(&symbol)) {
            continue;
        }
        let branch = cfg.block_of(index);
        let Some(meet) = cfg.immediate_post_dominator(branch) else {
            continue;
        };
        // Where they meet only to end, the side that skips has left early.
        let first = cfg.block(meet).instructions.start;
        if is_end(cfg.instructions[first]) {
            continue;
        }
        let sides: Vec<Side> = (cfg.block(branch).successors.iter())
            .map(|&start| side(context, start, branch, meet, &waits))
            .collect();
        let skips = sides.iter().any(|side| side.skips);
        let loops = sides.iter().any(|side| side.loops);
        for wait in sides.iter().flat_map(|side| &side.waits) {
            if skips && !loops && reported.insert(*wait) {
                findings.add(
                    Severity::Warning,
                    "divergent-barrier",
                    cfg.instructions[*wait].span,
                    format!(
                        "only the threads that `@{}{}` selects reach this barrier for the whole block",
                        if guard.negated { "!" } else { "" },
                        guard.register
                    ),
                    "move the barrier to where the threads meet again, or give it a number and a thread count",
                );
                if let Some(last) = findings.found.last_mut() {
                    last.other_line = Some(findings.lines.line(instruction.span.start));
                }
            }
        }
    }
}

struct Side {
    /// Barriers met before the sides meet.
    waits: Vec<usize>,
    /// Whether the meeting point can be reached past no barrier.
    skips: bool,
    /// Whether the branch itself can be reached again.
    loops: bool,
}

fn side(
    context: &Context<'_>,
    start: BlockId,
    branch: BlockId,
    meet: BlockId,
    waits: &[Option<usize>],
) -> Side {
    let mut found = Side {
        waits: Vec::new(),
        skips: false,
        loops: false,
    };
    // A block may be reached with and without a barrier behind.
    let mut seen = HashSet::new();
    let mut open = vec![(start, false)];
    while let Some((at, mut waited)) = open.pop() {
        if at == meet {
            found.skips |= !waited;
            continue;
        }
        found.loops |= at == branch;
        if at == branch || !seen.insert((at, waited)) {
            continue;
        }
        if let Some(wait) = waits[at.0 as usize] {
            waited = true;
            found.waits.push(wait);
        }
        open.extend(
            context
                .cfg
                .block(at)
                .successors
                .iter()
                .map(|&next| (next, waited)),
        );
    }
    found.waits.sort_unstable();
    found.waits.dedup();
    found
}

/// `bar.sync 0`, `barrier.sync.aligned 0`, `bar.red…`: every thread of the block must come.
fn is_block_wide(instruction: &Instruction) -> bool {
    let waits = instruction.has("sync") || instruction.has("red");
    let whole = !instruction.has("warp") && !instruction.has("cluster");
    let number = match instruction.has("red") {
        true => instruction.operands.get(1),
        false => instruction.operands.first(),
    };
    let counted = instruction.has("sync") && instruction.operands.len() > 1;
    matches!(instruction.opcode.as_str(), "bar" | "barrier")
        && waits
        && whole
        && !counted
        && number == Some(&Operand::Immediate(Immediate::Int(0)))
}

/// Registers all of whose definitions compute with the thread's index.
fn divergent_registers(context: &Context<'_>) -> HashSet<Symbol> {
    let mut definitions: HashMap<Symbol, Vec<usize>> = HashMap::new();
    for (index, access) in context.accesses.iter().enumerate() {
        for name in &access.writes {
            if let Some(symbol) = context.body.resolve(context.scopes[index], name) {
                definitions.entry(symbol).or_default().push(index);
            }
        }
    }
    // In text order, so that a chain of definitions settles in one pass.
    let mut definitions: Vec<(Symbol, Vec<usize>)> = definitions.into_iter().collect();
    definitions.sort_unstable_by_key(|(_, instructions)| instructions[0]);
    let mut divergent = HashSet::new();
    loop {
        let before = divergent.len();
        for (symbol, instructions) in &definitions {
            if !divergent.contains(symbol)
                && instructions
                    .iter()
                    .all(|&index| computes_with_index(context, index, &divergent))
            {
                divergent.insert(*symbol);
            }
        }
        if divergent.len() == before {
            return divergent;
        }
    }
}

fn computes_with_index(context: &Context<'_>, index: usize, divergent: &HashSet<Symbol>) -> bool {
    let instruction = context.cfg.instructions[index];
    let arithmetic = matches!(
        instruction.opcode.as_str(),
        "mov"
            | "add"
            | "sub"
            | "mul"
            | "mad"
            | "shl"
            | "shr"
            | "and"
            | "or"
            | "xor"
            | "setp"
            | "cvt"
            | "not"
    );
    arithmetic
        && context.accesses[index].reads.iter().any(|name| {
            matches!(*name, "%tid.x" | "%tid.y" | "%tid.z" | "%laneid")
                || (context.body.resolve(context.scopes[index], name))
                    .is_some_and(|symbol| divergent.contains(&symbol))
        })
}
