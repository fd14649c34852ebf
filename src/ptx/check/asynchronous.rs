//! Asynchronous work of Hopper's kernels (wgmma, bulk copies) that is not waited for or not fenced, and what
//! makes it slow. Flow-sensitive, but blind to addresses: where that matters, a finding says "may".

use std::collections::HashSet;

use super::{Context, Findings};
use crate::ptx::ir::Instruction;
use crate::ptx::scope::Symbol;
use crate::verdict::Severity;

/// Follows every path. A fence or a wait ends what comes before it, a predicated one too.
pub(super) fn lint(context: &Context<'_>, findings: &mut Findings) {
    let cfg = &context.cfg;
    let mut opcodes = cfg.instructions.iter().map(|i| i.opcode.as_str());
    if cfg.blocks.is_empty()
        || !opcodes.any(|opcode| matches!(opcode, "wgmma" | "cp" | "mbarrier" | "setmaxnreg"))
    {
        return;
    }
    let mut before: Vec<Option<Pending>> = vec![None; cfg.blocks.len()];
    before[0] = Some(Pending::default());
    let mut open = vec![0];
    while let Some(at) = open.pop() {
        let Some(mut pending) = before[at].clone() else {
            continue;
        };
        let block = &cfg.blocks[at];
        for index in block.instructions.clone() {
            pending.pass(context, index);
        }
        for next in block.successors.iter().map(|next| next.0 as usize) {
            let changed = match &mut before[next] {
                Some(known) => known.join(&pending),
                unknown => {
                    *unknown = Some(pending.clone());
                    true
                }
            };
            if changed {
                open.push(next);
            }
        }
    }
    let mut told = HashSet::new();
    for (block, pending) in cfg.blocks.iter().zip(before) {
        let Some(mut pending) = pending else { continue };
        for index in block.instructions.clone() {
            pending.report(context, index, &mut told, findings);
            pending.pass(context, index);
        }
    }
}

/// What may be under way on some path; instructions by index.
#[derive(Clone, Default)]
struct Pending {
    /// An ordinary write to shared memory that no proxy fence has followed.
    written: Option<usize>,
    /// A wgmma that no wait has followed, and the registers that such ones add to.
    multiplying: Option<usize>,
    sums: HashSet<Symbol>,
    /// A setmaxnreg.
    moved: Option<usize>,
}

impl Pending {
    /// What is under way on either of two paths; whether that is more than before.
    fn join(&mut self, other: &Self) -> bool {
        let before = self.clone();
        self.written = self.written.or(other.written);
        self.multiplying = self.multiplying.or(other.multiplying);
        self.moved = self.moved.or(other.moved);
        self.sums.extend(&other.sums);
        (before.written, before.multiplying, before.moved)
            != (self.written, self.multiplying, self.moved)
            || before.sums.len() != self.sums.len()
    }

    fn pass(&mut self, context: &Context<'_>, index: usize) {
        let instruction = context.cfg.instructions[index];
        match instruction.opcode.as_str() {
            "st" | "stmatrix" | "atom" | "red" if is_shared(instruction) => {
                self.written = self.written.or(Some(index));
            }
            "fence" if instruction.has("proxy") => self.written = None,
            "wgmma" if instruction.has("mma_async") => {
                self.multiplying = self.multiplying.or(Some(index));
                self.sums.extend(sums(context, index));
            }
            // Groups end in order: of those before, some have, and which is not followed.
            "wgmma" if instruction.has("wait_group") => {
                self.multiplying = None;
                self.sums.clear();
            }
            "setmaxnreg" => self.moved = self.moved.or(Some(index)),
            _ => {}
        }
    }

    /// `told`: products whose sums' early use has been told.
    fn report(
        &self,
        context: &Context<'_>,
        index: usize,
        told: &mut HashSet<usize>,
        findings: &mut Findings,
    ) {
        let instruction = context.cfg.instructions[index];
        let mut add = |code: &str, other: Option<usize>, message: String, help: &str| {
            findings.add(Severity::Warning, code, instruction.span, message, help);
            let line = other.map(|other| {
                findings
                    .lines
                    .line(context.cfg.instructions[other].span.start)
            });
            if let Some(last) = findings.found.last_mut() {
                last.other_line = line;
            }
        };
        match instruction.opcode.as_str() {
            "cp" if instruction.has("bulk_group") && self.written.is_some() => add(
                "missing-proxy-fence",
                self.written,
                "this bulk copy may read what ordinary stores wrote to shared memory, and no proxy fence lies between"
                    .to_owned(),
                "after the stores, in every thread that stores: `fence.proxy.async.shared::cta;`, then a barrier",
            ),
            "mbarrier" if arrives(instruction) && self.multiplying.is_some() => add(
                "early-release",
                self.multiplying,
                "this thread tells others to go on while a wgmma may still read its tiles".to_owned(),
                "put `wgmma.wait_group` between the products and the arrival",
            ),
            "trap" if self.moved.is_some() => add(
                "trap-after-setmaxnreg",
                self.moved,
                "a `trap` that can be reached after `setmaxnreg` makes ptxas allocate as if no register had moved"
                    .to_owned(),
                "use `brkpt`, which stops the kernel as well",
            ),
            _ => {}
        }
        if instruction.opcode == "mbarrier" && arrives_for_cluster(instruction) {
            add(
                "slow-arrive",
                None,
                "an arrival with `.release.cluster` waits for all of the thread's memory accesses"
                    .to_owned(),
                "arrive without it (or `.relaxed.cluster`) where only tiles that wgmma has read are given back",
            );
        }
        let used = (instruction.opcode != "wgmma").then(|| {
            let access = &context.accesses[index];
            let mut names = access.reads.iter().chain(&access.writes);
            names.find(|name| {
                let symbol = context.body.resolve(context.scopes[index], name);
                symbol.is_some_and(|symbol| self.sums.contains(&symbol))
            })
        });
        if let Some(name) = used.flatten()
            && self.multiplying.is_some_and(|product| told.insert(product))
        {
            add(
                "not-waited-for",
                self.multiplying,
                format!("`{name}` is used while a wgmma may still add to it"),
                "put `wgmma.wait_group` between the products and the use of their sums",
            );
        }
    }
}

/// The registers that a wgmma adds to.
fn sums(context: &Context<'_>, index: usize) -> Vec<Symbol> {
    let mut found = Vec::new();
    if let Some(first) = context.cfg.instructions[index].operands.first() {
        first.for_each_name(&mut |name| {
            found.extend(context.body.resolve(context.scopes[index], name));
        });
    }
    found
}

fn is_shared(instruction: &Instruction) -> bool {
    ["shared", "shared::cta", "shared::cluster"]
        .iter()
        .any(|space| instruction.has(space))
}

/// An arrival that announces no bytes: others may go on.
fn arrives(instruction: &Instruction) -> bool {
    (instruction.has("arrive") || instruction.has("arrive_drop")) && !instruction.has("expect_tx")
}

fn arrives_for_cluster(instruction: &Instruction) -> bool {
    arrives(instruction) && instruction.has("release") && instruction.has("cluster")
}
