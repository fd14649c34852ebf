//! Asynchronous work of Hopper's kernels (wgmma, bulk copies) that is not waited for or not fenced, and what
//! makes it slow. Flow-sensitive, but blind to addresses: where that matters, a finding says "may".

use std::collections::{BTreeSet, HashSet};

use super::{Context, Findings};
use crate::ptx::ir::{Immediate, Instruction, Operand};
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
    let products = Products::new(context);
    let mut before: Vec<Option<Pending>> = vec![None; cfg.blocks.len()];
    before[0] = Some(Pending::default());
    let mut open = vec![0];
    while let Some(at) = open.pop() {
        let Some(mut pending) = before[at].clone() else {
            continue;
        };
        let block = &cfg.blocks[at];
        for index in block.instructions.clone() {
            pending.pass(context, &products, index);
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
            pending.report(context, &products, index, &mut told, findings);
            pending.pass(context, &products, index);
        }
    }
}

/// Groups of products that are told apart; older ones count as ended.
const GROUPS: usize = 8;

/// Products that are waited for together, and the registers they hold.
#[derive(Clone, Default, PartialEq)]
struct Group {
    /// The first of them.
    product: Option<usize>,
    sums: BTreeSet<Symbol>,
    /// First factors that come from registers.
    factors: BTreeSet<Symbol>,
}

/// What may be under way on some path; instructions by index.
#[derive(Clone, Default, PartialEq)]
struct Pending {
    /// An ordinary write to shared memory that no proxy fence has followed.
    written: Option<usize>,
    /// A wgmma that no wait has followed.
    multiplying: Option<usize>,
    /// Those that no commit has followed.
    open: Group,
    /// Those that a commit has followed and no wait for them, the newest first.
    groups: Vec<Group>,
    /// Whether a wgmma.fence has been met; registers of products that were written since.
    fenced: bool,
    touched: BTreeSet<Symbol>,
    /// A setmaxnreg.
    moved: Option<usize>,
}

impl Group {
    fn join(&mut self, other: &Self) {
        self.product = self.product.or(other.product);
        self.sums.extend(&other.sums);
        self.factors.extend(&other.factors);
    }

    fn add(&mut self, context: &Context<'_>, index: usize) {
        self.product = self.product.or(Some(index));
        self.sums.extend(sums(context, index));
        self.factors.extend(factors(context, index));
    }
}

impl Pending {
    /// What is under way on either of two paths; whether that is more than before.
    fn join(&mut self, other: &Self) -> bool {
        let before = self.clone();
        self.written = self.written.or(other.written);
        self.multiplying = self.multiplying.or(other.multiplying);
        self.moved = self.moved.or(other.moved);
        self.fenced &= other.fenced;
        self.touched.extend(&other.touched);
        self.open.join(&other.open);
        for (place, group) in other.groups.iter().enumerate() {
            match self.groups.get_mut(place) {
                Some(own) => own.join(group),
                None => self.groups.push(group.clone()),
            }
        }
        *self != before
    }

    fn pass(&mut self, context: &Context<'_>, products: &Products, index: usize) {
        let instruction = context.cfg.instructions[index];
        match instruction.opcode.as_str() {
            "st" | "stmatrix" | "atom" | "red" if is_shared(instruction) => {
                self.written = self.written.or(Some(index));
            }
            "fence" if instruction.has("proxy") => self.written = None,
            "wgmma" if instruction.has("mma_async") => {
                self.multiplying = self.multiplying.or(Some(index));
                self.open.add(context, index);
                // Told once, or put there by ptxas.
                self.fenced = true;
                self.touched.clear();
            }
            "wgmma" if instruction.has("fence") => {
                self.fenced = true;
                self.touched.clear();
            }
            "wgmma" if instruction.has("commit_group") => {
                self.groups.insert(0, std::mem::take(&mut self.open));
                self.groups.truncate(GROUPS);
            }
            "wgmma" if instruction.has("wait_group") => {
                // Which group a barrier's tiles belong to is not followed.
                self.multiplying = None;
                self.groups.truncate(left_running(instruction));
            }
            "setmaxnreg" => self.moved = self.moved.or(Some(index)),
            // Compilers copy sums between the fence and the product; ptxas makes them one.
            "mov" => {}
            _ => {
                let written = context.accesses[index].writes.iter();
                let written =
                    written.filter_map(|name| context.body.resolve(context.scopes[index], name));
                self.touched
                    .extend(written.filter(|symbol| products.registers.contains(symbol)));
            }
        }
    }

    /// `told`: products whose sums' early use has been told.
    fn report(
        &self,
        context: &Context<'_>,
        products: &Products,
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
            "wgmma" if instruction.has("mma_async") => {
                let own = sums(context, index).into_iter().chain(factors(context, index));
                if !self.fenced || own.into_iter().any(|own| self.touched.contains(&own)) {
                    add(
                        "missing-wgmma-fence",
                        None,
                        "no `wgmma.fence` stands between ordinary use of this product's registers and the product"
                            .to_owned(),
                        "put `wgmma.fence.sync.aligned;` in front of the products: ptxas puts one where it must, and may serialise them",
                    );
                }
                if self.written.is_some() && products.by_hand && reads_memory(instruction) {
                    add(
                        "missing-proxy-fence",
                        self.written,
                        "this product may read what ordinary stores wrote to shared memory, and no proxy fence lies between"
                            .to_owned(),
                        "after the stores, in every thread that stores: `fence.proxy.async.shared::cta;`, then a barrier",
                    );
                }
            }
            "ret" | "exit" => {
                let group = self.groups.iter().chain([&self.open]);
                let product = group.filter_map(|group| group.product).find(|p| told.insert(*p));
                if let Some(product) = product {
                    add(
                        "not-waited-for",
                        Some(product),
                        "the kernel may end while a wgmma still runs".to_owned(),
                        "put `wgmma.commit_group` and `wgmma.wait_group 0` behind the last products",
                    );
                }
            }
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
        if instruction.opcode == "wgmma" {
            return;
        }
        let access = &context.accesses[index];
        let meets = |names: &[&'_ str], registers: &BTreeSet<Symbol>| {
            let symbol = |name| context.body.resolve(context.scopes[index], name);
            let mut names = names.iter();
            let found = names.find(|name| symbol(name).is_some_and(|s| registers.contains(&s)));
            found.map(|name| (*name).to_owned())
        };
        let groups = self.groups.iter().map(|group| (group, true));
        for (group, committed) in groups.chain([(&self.open, false)]) {
            let sum = meets(&access.reads, &group.sums).or(meets(&access.writes, &group.sums));
            let factor = meets(&access.writes, &group.factors);
            let (message, code) = match (sum, factor) {
                (Some(name), _) => (
                    format!("`{name}` is used while a wgmma may still add to it"),
                    "not-waited-for",
                ),
                (None, Some(name)) => (
                    format!("`{name}` is written while a wgmma may still read it"),
                    "not-waited-for",
                ),
                (None, None) => continue,
            };
            if !group.product.is_some_and(|product| told.insert(product)) {
                continue;
            }
            match committed {
                true => add(
                    code,
                    group.product,
                    message,
                    "put `wgmma.wait_group` between the products and the use of their registers",
                ),
                false => add(
                    code,
                    group.product,
                    format!(
                        "{message}: no `wgmma.commit_group` follows it, and a wait is for groups"
                    ),
                    "put `wgmma.commit_group.sync.aligned;` behind the products and `wgmma.wait_group` before the use of their registers",
                ),
            }
        }
    }
}

/// What the products of a function need.
struct Products {
    /// All of their sums and factors.
    registers: BTreeSet<Symbol>,
    /// Whether no bulk copy brings tiles: what they read from shared memory, ordinary stores have written.
    by_hand: bool,
}

impl Products {
    fn new(context: &Context<'_>) -> Self {
        let all = || context.cfg.instructions.iter().enumerate();
        let products = all().filter(|(_, i)| i.opcode == "wgmma" && i.has("mma_async"));
        let brings = |i: &Instruction| {
            i.opcode == "cp"
                && i.has("bulk")
                && i.modifiers.iter().any(|m| m.starts_with("mbarrier"))
        };
        Self {
            registers: products
                .flat_map(|(at, _)| sums(context, at).into_iter().chain(factors(context, at)))
                .collect(),
            by_hand: !all()
                .any(|(_, i)| brings(i) || i.opcode == "cp" && i.has("async") && !i.has("bulk")),
        }
    }
}

/// Groups that a wait leaves running.
fn left_running(wait: &Instruction) -> usize {
    match wait.operands.first() {
        Some(Operand::Immediate(Immediate::Int(n))) => usize::try_from(*n).unwrap_or(GROUPS),
        Some(_) | None => 0,
    }
}

/// A product always reads its second factor from memory, but by a descriptor that may be a placeholder.
fn reads_memory(product: &Instruction) -> bool {
    matches!(product.operands.get(2), Some(Operand::Name(_)))
}

/// The registers of a wgmma's first factor, where that is no tile in memory.
fn factors(context: &Context<'_>, index: usize) -> Vec<Symbol> {
    let mut found = Vec::new();
    if let Some(factor @ Operand::Vector(_)) = context.cfg.instructions[index].operands.get(1) {
        factor.for_each_name(&mut |name| {
            found.extend(context.body.resolve(context.scopes[index], name));
        });
    }
    found
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
