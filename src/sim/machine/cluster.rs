//! A cluster: the blocks that run together, reach each other's shared memory and meet at the cluster's
//! barrier. Most clusters are one block. A cluster that runs very long yields to the next ones, so that
//! kernels whose blocks wait for each other end too.

use std::collections::VecDeque;

use super::super::causal::{Knowledge, Layout};
use super::asynchronous::Mail;
use super::warp::State;
use super::{Block, Env, IDLE_ROUNDS, POLLS, Stop};

pub(super) struct Cluster {
    blocks: Vec<Block>,
    /// Each warp with its block's rank, in the order of the latest turns.
    order: Vec<(usize, usize)>,
    /// Bulk copies under way, with the turns that each still lasts.
    under_way: Vec<(u32, Mail)>,
}

/// A block's part of the cluster's barrier.
#[derive(Default)]
pub(super) struct Gate {
    /// Lanes of each warp that arrived in this phase.
    arrived: Vec<u32>,
    /// The phase in which each warp arrived last.
    joined: Vec<u64>,
    phase: u64,
    /// What those know who arrived in this phase, and all who arrived in earlier ones.
    arriving: Knowledge,
    completed: Knowledge,
    changed: bool,
}

impl Gate {
    pub fn new(layout: &Layout, base: u32) -> Self {
        Self {
            arrived: vec![0; layout.warps],
            joined: vec![0; layout.warps],
            phase: 0,
            arriving: Knowledge::new(layout, base),
            completed: Knowledge::new(layout, base),
            changed: false,
        }
    }
}

impl Block {
    /// `barrier.cluster.arrive`
    pub(super) fn cluster_arrive(&mut self, warp: usize, exec: u32) {
        self.gate.arrived[warp] |= exec;
        self.gate.joined[warp] = self.gate.phase;
        self.gate.arriving.join(&self.knowledge[warp]);
        self.gate.changed = true;
        self.advance(warp);
    }

    /// Threads ended: the cluster's barrier no longer counts them, and may have waited for them alone.
    pub(super) fn cluster_leave(&mut self) {
        self.gate.changed = true;
    }

    /// `barrier.cluster.wait`; `true`: it must wait.
    pub(super) fn cluster_wait(&mut self, warp: usize, fragment: usize) -> bool {
        let passed = self.gate.phase > self.gate.joined[warp];
        if passed {
            self.knowledge[warp].join(&self.gate.completed);
        } else {
            self.warps[warp].fragments[fragment].state = State::Cluster;
            self.gate.changed = true;
        }
        !passed
    }
}

pub(super) fn run_clusters(env: &mut Env<'_>, mut order: Vec<u64>) -> Result<(), Stop> {
    let mut waiting: VecDeque<Cluster> = VecDeque::new();
    let mut spare: Option<Cluster> = None;
    let size: u32 = env.launch.cluster.iter().product();
    let resident = (env.options.resident_blocks / size).max(1) as usize;
    env.schedule.clusters(&mut order, resident);
    let mut next = order.into_iter().enumerate();
    let mut exhausted = false;
    let mut idle = 0;
    loop {
        // A new cluster before an old one's next turn, while the GPU has room.
        let mut cluster = if waiting.len() < resident && !exhausted {
            match next.next() {
                Some((index, linear)) => {
                    let mut cluster = spare.take().unwrap_or_else(|| Cluster::new(env));
                    cluster.begin(env, linear, env.first_block + index as u32 * size);
                    cluster
                }
                None => {
                    exhausted = true;
                    continue;
                }
            }
        } else if let Some(cluster) = waiting.pop_front() {
            cluster
        } else {
            return Ok(());
        };
        let changes = env.changes;
        let turn = env.schedule.cluster_turn(waiting.len());
        if cluster.run(env, turn)? {
            idle = 0;
            for block in &cluster.blocks {
                env.counts
                    .block_ran(block.warps.iter().map(|warp| warp.executed));
            }
            spare = Some(cluster);
        } else {
            idle = if env.polls < POLLS || env.changes > changes {
                0
            } else {
                idle + 1
            };
            if idle > IDLE_ROUNDS * (waiting.len() + 1) {
                return Err(cluster.blocks[0].starved(env));
            }
            waiting.push_back(cluster);
        }
    }
}

impl Cluster {
    fn new(env: &Env<'_>) -> Self {
        let size: u32 = env.launch.cluster.iter().product();
        Self {
            blocks: (0..size as usize)
                .map(|rank| Block::new(env, rank))
                .collect(),
            order: Vec::new(),
            under_way: Vec::new(),
        }
    }

    fn begin(&mut self, env: &mut Env<'_>, linear: u64, serial: u32) {
        let grid = env.launch.grid;
        let [cx, cy, cz] = env.launch.cluster;
        let (across, down) = (u64::from(grid[0] / cx), u64::from(grid[1] / cy));
        let corner = [
            (linear % across) as u32 * cx,
            (linear / across % down) as u32 * cy,
            (linear / (across * down)) as u32 * cz,
        ];
        let base = env.next_epoch;
        for (rank, block) in (0..).zip(&mut self.blocks) {
            let within = [rank % cx, rank / cx % cy, rank / (cx * cy)];
            let coordinates = std::array::from_fn(|axis| corner[axis] + within[axis]);
            block.begin(env, coordinates, rank, serial + rank, base);
        }
        env.next_epoch = base + 1;
        self.order.clear();
        for (rank, block) in self.blocks.iter().enumerate() {
            self.order
                .extend((0..block.warps.len()).map(|warp| (rank, warp)));
        }
        if let Some(cache) = &mut env.cache {
            cache.clear();
        }
    }

    /// Runs until the cluster is done (`true`) or its turn is over.
    fn run(&mut self, env: &mut Env<'_>, turn: u64) -> Result<bool, Stop> {
        let enough = env.left.saturating_sub(turn);
        loop {
            let before = env.left;
            let mut moved = false;
            let mut polls = 0;
            env.schedule.warps(&mut self.order);
            for at in 0..self.order.len() {
                let (rank, warp) = self.order[at];
                env.polls = 0;
                let turn = env.schedule.warp_turn();
                moved |= self.blocks[rank].run_warp(env, warp, turn)?;
                polls = polls.max(env.polls);
                moved |= self.settle(env)?;
            }
            env.polls = polls;
            let done = self.blocks.iter().all(Block::done);
            if done || !moved {
                moved |= self.land_all(env)?;
            }
            if done {
                let latest = self.blocks.iter().map(Block::latest).max().unwrap_or(0);
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

    /// Does what a warp left for its cluster, and what is due by now. Tells whether anything was done.
    fn settle(&mut self, env: &mut Env<'_>) -> Result<bool, Stop> {
        let mut moved = false;
        if !self.under_way.is_empty() {
            for (turns, _) in &mut self.under_way {
                *turns = turns.saturating_sub(1);
            }
            let due = self.under_way.extract_if(.., |(turns, _)| *turns == 0);
            for (_, mail) in due.collect::<Vec<_>>() {
                moved = true;
                mail.deliver(env, &mut self.blocks)?;
            }
        }
        while !env.mail.is_empty() {
            moved = true;
            for mail in std::mem::take(&mut env.mail) {
                let turns = match &mail {
                    Mail::Arrive { .. } | Mail::Remote(_) => 0,
                    Mail::Deliver(_) => env.schedule.copy_turns(),
                };
                if turns > 0 {
                    self.under_way.push((turns, mail));
                } else {
                    mail.deliver(env, &mut self.blocks)?;
                }
            }
        }
        if self.blocks.iter().any(|block| block.gate.changed) {
            moved |= self.open_gate();
        }
        Ok(moved)
    }

    /// Ends all copies that are under way. Tells whether there were any.
    fn land_all(&mut self, env: &mut Env<'_>) -> Result<bool, Stop> {
        let landing = std::mem::take(&mut self.under_way);
        let any = !landing.is_empty();
        for (_, mail) in landing {
            mail.deliver(env, &mut self.blocks)?;
        }
        Ok(any)
    }

    /// Lets the cluster's barrier go if all threads that live have arrived.
    fn open_gate(&mut self) -> bool {
        for block in &mut self.blocks {
            block.gate.changed = false;
        }
        let complete = self.blocks.iter().all(|block| {
            let arrived = block.gate.arrived.iter();
            (arrived.zip(&block.warps)).all(|(lanes, warp)| lanes & warp.live == warp.live)
        });
        let anyone = (self.blocks.iter()).any(|b| b.gate.arrived.iter().any(|&lanes| lanes != 0));
        if !complete || !anyone {
            return false;
        }
        let mut known = self.blocks[0].gate.arriving.clone();
        for block in &self.blocks {
            known.join(&block.gate.arriving);
        }
        for block in &mut self.blocks {
            let gate = &mut block.gate;
            gate.phase += 1;
            gate.arrived.fill(0);
            gate.arriving.join(&known);
            gate.completed = known.clone();
            for (warp, state) in block.warps.iter_mut().enumerate() {
                for fragment in &mut state.fragments {
                    if fragment.state == State::Cluster {
                        fragment.state = State::Running;
                        fragment.pc += 1;
                        block.knowledge[warp].join(&known);
                    }
                }
            }
        }
        true
    }

    fn deadlock(&self, env: &Env<'_>) -> Stop {
        let mut findings = Vec::new();
        for block in &self.blocks {
            findings.extend(block.deadlock(env));
        }
        Stop::Hung(findings)
    }
}
