//! Executes a launch: clusters of blocks, each one's warps in turns until all wait or are done, in the order that
//! the seed gives. So the same launch gives the same bytes every time; parallelism is across candidates, their runs and
//! blocks that stand for a grid, never inside one launch. A block that runs very long yields to the next ones, so that kernels
//! whose blocks wait for each other end too.

mod access;
mod alu;
mod asynchronous;
mod barrier;
mod block;
mod cache;
mod cluster;
mod exchange;
mod matrix;
pub(crate) mod regs;
mod run;
mod schedule;
mod straight;
mod tensor_core;
mod warp;
pub(crate) mod window;

use std::collections::{BTreeSet, HashMap};

use pulp::Arch;

use super::causal::Layout;
use super::counts::Counts;
use super::decode::SHARED_BASE;
use super::finding::{Finding, FindingKind};
use super::memory::Memory;
use super::op::{Pc, Program};
use super::shared::most_instructions;
use super::tensor_map::TensorMap;
use access::Shapes;
use asynchronous::Mail;
use block::Block;
use cache::Cache;
use cluster::run_clusters;
use schedule::Schedule;
use straight::Executions;

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Look for races and reads of unwritten memory.
    pub checks: bool,
    /// Warp instructions a launch may execute.
    pub budget: u64,
    /// Streaming multiprocessors that `%nsmid` tells.
    pub sm_count: u32,
    /// Blocks that are on the GPU at once.
    pub resident_blocks: u32,
    /// Linear indices of the blocks to run; all where absent.
    pub blocks: Option<Vec<u64>>,
    /// First-level cache share of a block, to count sectors that miss it; all miss where absent.
    pub cache_bytes: Option<u64>,
    /// Leave out the arithmetic of `mma` and `wgmma`: sums stay what they were. For counting what a large launch does,
    /// where no branch hangs on them.
    pub skip_products: bool,
    /// Registers a thread that the assembler gave; `setmaxnreg` shares out what a block's threads have
    /// together. Where absent, what the kernel's own bounds allow.
    pub registers: Option<u32>,
    /// Decides the order in which blocks, warps and bulk copies advance; 0: blocks and warps in turn, each as
    /// far as it goes, and copies at once.
    pub seed: u64,
}

/// A kernel launch.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory, bytes.
    pub dynamic_shared: u32,
    /// Blocks of a cluster; all 1 for none.
    pub cluster: [u32; 3],
    /// The parameter bank.
    pub params: Vec<u8>,
    /// Tensor maps by their offset in the bank.
    pub tensor_maps: Vec<(u32, TensorMap)>,
}

/// How a launch ended that did not complete.
#[derive(Clone, Debug)]
pub enum Stop {
    /// A fault.
    Fault(Finding),
    /// Deadlock, or the budget ran out.
    Hung(Vec<Finding>),
}

/// What a launch did: everything it found on the way and its counts, whether it completed or not.
pub struct Outcome {
    /// `None`: it completed.
    pub stop: Option<Stop>,
    /// Hazards that do not end a run, in the order of their lines.
    pub findings: Vec<Finding>,
    /// Counters.
    pub counts: Counts,
    /// Executions of global atomics by address.
    pub(crate) atomics: HashMap<u64, u64>,
}

impl Outcome {
    /// Adds other blocks of the same launch that ran apart.
    pub(crate) fn add(&mut self, other: Self) {
        let Self {
            stop,
            findings,
            counts,
            atomics,
        } = other;
        self.stop = self.stop.take().or(stop);
        self.findings.extend(findings);
        self.counts.add(&counts);
        for (address, executions) in atomics {
            *self.atomics.entry(address).or_insert(0) += executions;
        }
        self.counts.hottest_atomic = hottest(&self.atomics);
    }
}

/// Executions of the address that has most.
fn hottest(atomics: &HashMap<u64, u64>) -> u64 {
    atomics.values().copied().max().unwrap_or(0)
}

/// Instructions a block runs before the next one gets a turn.
const BLOCK_TURN: u64 = 1 << 24;
/// Instructions a warp runs before the next one gets a turn.
const WARP_TURN: u64 = 1 << 18;
/// Strong loads a warp makes in one turn: who polls gives way to whom it waits for.
const POLLS: u32 = 256;
/// Turns in a row that end in polling while no block writes: then nobody ever will.
const IDLE_ROUNDS: usize = 64;
/// Findings of one launch that are kept.
const MOST_FINDINGS: usize = 24;

/// State of a launch that all blocks share.
struct Env<'a> {
    program: &'a Program,
    memory: &'a mut Memory,
    launch: &'a Launch,
    options: &'a Options,
    counts: Counts,
    /// Beside the other counts: every instruction touches its own.
    executions: Vec<Executions>,
    findings: Vec<Finding>,
    seen: BTreeSet<(FindingKind, Pc, Pc)>,
    arch: Arch,
    left: u64,
    first_block: u32,
    next_epoch: u32,
    cache: Option<Cache>,
    atomics: HashMap<u64, u64>,
    /// Of requests to shared memory.
    shapes: Shapes,
    /// Strong loads of the warp's turn.
    polls: u32,
    /// Global stores, atomics and phases of mbarriers so far: what someone who polls may wait for.
    changes: u64,
    /// Work for the block's cluster, to be done when the warp's turn is over.
    mail: Vec<Mail>,
    schedule: Schedule,
}

impl Env<'_> {
    /// Keeps a finding once per pair of instructions.
    fn report(
        &mut self,
        kind: FindingKind,
        pc: Pc,
        other: Option<Pc>,
        describe: impl FnOnce(&Program) -> (String, String),
    ) {
        if self.findings.len() >= MOST_FINDINGS
            || !self.seen.insert((kind, pc, other.unwrap_or(Pc::MAX)))
        {
            return;
        }
        let (message, help) = describe(self.program);
        let mut finding = Finding::new(kind, self.program.line(pc), message);
        if let Some(other) = other {
            finding = finding.and_line(self.program.line(other));
        }
        self.findings.push(if help.is_empty() {
            finding
        } else {
            finding.help(help)
        });
    }
}

/// Runs a launch.
pub(crate) fn launch(
    program: &Program,
    memory: &mut Memory,
    launch: &Launch,
    options: &Options,
) -> Outcome {
    let layout = layout(program, launch);
    if program.code.len() > most_instructions(layout) {
        let finding = Finding::new(
            FindingKind::Unsupported,
            0,
            format!(
                "a kernel of {} instructions: the simulator follows {} with blocks like these",
                program.code.len(),
                most_instructions(layout)
            ),
        );
        return Outcome {
            stop: Some(Stop::Fault(finding)),
            findings: Vec::new(),
            counts: Counts::new(program),
            atomics: HashMap::new(),
        };
    }
    let total = launch.blocks();
    let order: Vec<u64> = match &options.blocks {
        Some(blocks) => blocks.iter().copied().filter(|b| *b < total).collect(),
        None => (0..total).collect(),
    };
    let order = clusters_of(launch, &order);
    let size = launch.cluster.iter().product::<u32>();
    let first_block = memory.number_blocks(order.len() as u32 * size);
    let mut env = Env {
        program,
        memory,
        launch,
        options,
        counts: Counts::new(program),
        executions: vec![Executions::default(); program.code.len()],
        findings: Vec::new(),
        seen: BTreeSet::new(),
        arch: Arch::new(),
        left: options.budget,
        first_block,
        next_epoch: 1,
        cache: options.cache_bytes.map(Cache::new),
        atomics: HashMap::new(),
        shapes: Shapes::new(program.code.len()),
        polls: 0,
        changes: 0,
        mail: Vec::new(),
        schedule: Schedule::new(options.seed),
    };
    let stop = run_clusters(&mut env, order).err();
    for (line, executions) in env.counts.by_pc.iter_mut().zip(&env.executions) {
        line.warps = executions.warps;
        line.threads = executions.threads;
    }
    env.counts.instructions = options.budget - env.left;
    env.counts.hottest_atomic = hottest(&env.atomics);
    let mut findings = env.findings;
    findings.sort_by_key(|f| (f.line, f.other_line, f.kind));
    Outcome {
        stop,
        findings,
        counts: env.counts,
        atomics: env.atomics,
    }
}

impl Launch {
    /// Blocks.
    pub fn blocks(&self) -> u64 {
        self.grid.iter().map(|&n| u64::from(n)).product()
    }

    /// The number among clusters of the one that holds a block.
    pub(crate) fn cluster_of(&self, block: u64) -> u64 {
        let [gx, gy, _] = self.grid.map(u64::from);
        let [cx, cy, cz] = self.cluster.map(u64::from);
        let (x, y, z) = (
            block % gx / cx,
            block / gx % gy / cy,
            block / (gx * gy) / cz,
        );
        (z * (gy / cy) + y) * (gx / cx) + x
    }
}

/// The clusters that hold these blocks, each once.
fn clusters_of(launch: &Launch, blocks: &[u64]) -> Vec<u64> {
    if launch.cluster == [1; 3] {
        return blocks.to_vec();
    }
    let mut out: Vec<u64> = Vec::new();
    for block in blocks {
        let cluster = launch.cluster_of(*block);
        if !out.contains(&cluster) {
            out.push(cluster);
        }
    }
    out
}

/// Actors of a launch's clusters.
fn layout(program: &Program, launch: &Launch) -> Layout {
    let threads: u32 = launch.block.iter().product();
    Layout {
        warps: (threads as usize).div_ceil(regs::LANES),
        blocks: launch.cluster.iter().product::<u32>() as usize,
        asynchronous: program.asynchronous,
    }
}

/// Address of the dynamic array, and the end of shared memory.
pub(crate) fn shared_layout(program: &Program, dynamic: u32) -> (u32, u32) {
    let end = SHARED_BASE + program.static_shared;
    let base = end.div_ceil(program.dynamic_align) * program.dynamic_align;
    if dynamic == 0 {
        (base, end)
    } else {
        (base, base + dynamic)
    }
}
