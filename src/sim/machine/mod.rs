//! Executes a launch: blocks in order, each block's warps in turn until all wait or are done. The order is
//! fixed, so the same launch gives the same bytes every time; parallelism is across candidates and sampled
//! blocks, never inside one launch. A block that runs very long yields to the next ones, so that kernels
//! whose blocks wait for each other end too.

mod access;
mod alu;
mod barrier;
mod cache;
mod exchange;
pub(crate) mod regs;
mod run;
mod warp;
pub(crate) mod window;

use std::collections::{BTreeSet, HashMap, VecDeque};

use pulp::Arch;

use super::counts::Counts;
use super::decode::SHARED_BASE;
use super::finding::{Finding, FindingKind};
use super::memory::Memory;
use super::op::{Pc, Program};
use super::shared::{Clock, Shared, WARPS};
use barrier::Barriers;
use cache::Cache;
use regs::LANES;
use warp::{Place, Warp};

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
    /// The parameter bank.
    pub params: Vec<u8>,
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
    findings: Vec<Finding>,
    seen: BTreeSet<(FindingKind, Pc, Pc)>,
    arch: Arch,
    left: u64,
    first_block: u32,
    next_epoch: u32,
    cache: Option<Cache>,
    atomics: HashMap<u64, u64>,
    /// Strong loads of the warp's turn.
    polls: u32,
    /// Global stores and atomics so far.
    writes: u64,
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

/// A block in flight.
struct Block {
    warps: Vec<Warp>,
    places: Vec<Place>,
    shared: Shared,
    clocks: Vec<Clock>,
    barriers: Barriers,
    /// Its number over the whole run.
    serial: u32,
    /// It took part in an exchange with other blocks.
    synchronised: bool,
}

/// Runs a launch.
pub(crate) fn launch(
    program: &Program,
    memory: &mut Memory,
    launch: &Launch,
    options: &Options,
) -> Outcome {
    let total: u64 = launch.grid.iter().map(|&n| u64::from(n)).product();
    let order: Vec<u64> = match &options.blocks {
        Some(blocks) => blocks.iter().copied().filter(|b| *b < total).collect(),
        None => (0..total).collect(),
    };
    let first_block = memory.number_blocks(order.len() as u32);
    let mut env = Env {
        program,
        memory,
        launch,
        options,
        counts: Counts::new(program),
        findings: Vec::new(),
        seen: BTreeSet::new(),
        arch: Arch::new(),
        left: options.budget,
        first_block,
        next_epoch: 1,
        cache: options.cache_bytes.map(Cache::new),
        atomics: HashMap::new(),
        polls: 0,
        writes: 0,
    };
    let stop = run_blocks(&mut env, &order).err();
    env.counts.instructions = options.budget - env.left;
    env.counts.hottest_atomic = env.atomics.values().copied().max().unwrap_or(0);
    let mut findings = env.findings;
    findings.sort_by_key(|f| (f.line, f.other_line, f.kind));
    Outcome {
        stop,
        findings,
        counts: env.counts,
    }
}

fn run_blocks(env: &mut Env<'_>, order: &[u64]) -> Result<(), Stop> {
    let mut waiting: VecDeque<Block> = VecDeque::new();
    let mut spare: Option<Block> = None;
    let mut next = order.iter().enumerate();
    let resident = (env.options.resident_blocks.max(1)) as usize;
    let mut exhausted = false;
    let mut idle = 0;
    loop {
        // A new block before an old one's next turn, while the GPU has room.
        let mut block = if waiting.len() < resident && !exhausted {
            match next.next() {
                Some((index, &linear)) => {
                    let block = spare.take().unwrap_or_else(|| Block::new(env));
                    block.begin(env, linear, env.first_block + index as u32)
                }
                None => {
                    exhausted = true;
                    continue;
                }
            }
        } else if let Some(block) = waiting.pop_front() {
            block
        } else {
            return Ok(());
        };
        let writes = env.writes;
        if block.run(env, BLOCK_TURN)? {
            idle = 0;
            env.counts.blocks += 1;
            env.counts.longest_warp += block.warps.iter().map(|w| w.executed).max().unwrap_or(0);
            spare = Some(block);
        } else {
            idle = if env.polls < POLLS || env.writes > writes {
                0
            } else {
                idle + 1
            };
            if idle > IDLE_ROUNDS * (waiting.len() + 1) {
                return Err(block.starved(env));
            }
            waiting.push_back(block);
        }
    }
}

impl Block {
    fn new(env: &Env<'_>) -> Self {
        let threads: u32 = env.launch.block.iter().product();
        let warps = (threads as usize).div_ceil(LANES);
        let limit = shared_layout(env.program, env.launch.dynamic_shared).1;
        Self {
            warps: (0..warps).map(|_| Warp::default()).collect(),
            places: Vec::new(),
            shared: Shared::new(limit, env.options.checks),
            clocks: vec![[0; WARPS]; warps],
            barriers: Barriers::new(warps),
            serial: 0,
            synchronised: false,
        }
    }

    fn begin(mut self, env: &mut Env<'_>, linear: u64, serial: u32) -> Self {
        let [gx, gy, _] = env.launch.grid.map(u64::from);
        let coordinates = [
            (linear % gx) as u32,
            (linear / gx % gy) as u32,
            (linear / (gx * gy)) as u32,
        ];
        let threads: u32 = env.launch.block.iter().product();
        let (dynamic_base, limit) = shared_layout(env.program, env.launch.dynamic_shared);
        let base = env.next_epoch;
        self.serial = serial;
        self.synchronised = false;
        self.barriers = Barriers::new(self.warps.len());
        self.shared.begin(base);
        self.places.clear();
        let warps = self.warps.len();
        for (index, warp) in self.warps.iter_mut().enumerate() {
            let place = Place {
                block: coordinates,
                grid: env.launch.grid,
                ntid: env.launch.block,
                warp: index,
                warps,
                sm: (linear % u64::from(env.options.sm_count.max(1))) as u32,
                sms: env.options.sm_count,
                dynamic_base,
                dynamic_bytes: env.launch.dynamic_shared,
                shared_bytes: limit - SHARED_BASE,
            };
            let lanes = (threads as usize - index * LANES).min(LANES);
            let live = u32::MAX >> (LANES - lanes);
            warp.begin(env.program, live, &place);
            self.clocks[index] = [base; WARPS];
            self.clocks[index][index] = base + 1;
            self.places.push(place);
        }
        env.next_epoch = base + 1;
        if let Some(cache) = &mut env.cache {
            cache.clear();
        }
        self
    }

    /// Runs until the block is done (`true`) or its turn is over.
    fn run(&mut self, env: &mut Env<'_>, turn: u64) -> Result<bool, Stop> {
        let enough = env.left.saturating_sub(turn);
        loop {
            let before = env.left;
            let mut moved = false;
            let mut polls = 0;
            for warp in 0..self.warps.len() {
                env.polls = 0;
                moved |= self.run_warp(env, warp, WARP_TURN)?;
                polls = polls.max(env.polls);
            }
            env.polls = polls;
            if self.warps.iter().all(|w| w.live == 0) {
                let latest = self
                    .clocks
                    .iter()
                    .enumerate()
                    .map(|(w, c)| c[w])
                    .max()
                    .unwrap_or(0);
                env.next_epoch = env.next_epoch.max(latest + 1);
                return Ok(true);
            }
            if !moved && env.left == before {
                return Err(self.deadlock(env));
            }
            if env.left <= enough || polls >= POLLS {
                return Ok(false);
            }
        }
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
