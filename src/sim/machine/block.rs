//! A block in flight: its warps, shared memory, barriers, and what each warp knows to be done.

use super::super::causal::{Actors, Knowledge};
use super::super::decode::SHARED_BASE;
use super::super::op::Pc;
use super::super::shared::Shared;
use super::access::Visit;
use super::asynchronous::{Asynchronous, Products};
use super::barrier::Barriers;
use super::cluster::Gate;
use super::regs::LANES;
use super::warp::{Place, Warp};
use super::{Env, layout, shared_layout};

pub(super) struct Block {
    pub warps: Vec<Warp>,
    pub places: Vec<Place>,
    pub shared: Shared,
    /// Of each warp.
    pub knowledge: Vec<Knowledge>,
    pub actors: Actors,
    pub barriers: Barriers,
    pub asynchronous: Asynchronous,
    pub gate: Gate,
    /// Its number over the whole run.
    pub serial: u32,
    /// It took part in an exchange with other blocks.
    pub synchronised: bool,
    /// Work of others in its shared memory, the latest of each.
    pub visits: Vec<Visit>,
    /// Where its last warp ended.
    pub ended: Option<Pc>,
}

impl Block {
    pub fn new(env: &Env<'_>, rank: usize) -> Self {
        let layout = layout(env.program, env.launch);
        let limit = shared_layout(env.program, env.launch.dynamic_shared).1;
        Self {
            warps: (0..layout.warps).map(|_| Warp::default()).collect(),
            places: Vec::new(),
            shared: Shared::new(limit, env.options.checks, layout),
            knowledge: Vec::new(),
            actors: layout.block(rank),
            barriers: Barriers::new(layout.warps),
            asynchronous: Asynchronous::default(),
            gate: Gate::default(),
            serial: 0,
            synchronised: false,
            visits: Vec::new(),
            ended: None,
        }
    }

    /// Begins the block at `coordinates` of the grid, `rank` of its cluster.
    pub fn begin(
        &mut self,
        env: &mut Env<'_>,
        coordinates: [u32; 3],
        rank: u32,
        serial: u32,
        base: u32,
    ) {
        let threads: u32 = env.launch.block.iter().product();
        let (dynamic_base, limit) = shared_layout(env.program, env.launch.dynamic_shared);
        self.serial = serial;
        self.synchronised = false;
        self.visits.clear();
        self.ended = None;
        let warps = self.warps.len();
        self.barriers = Barriers::new(warps);
        self.shared.begin(base);
        self.asynchronous = Asynchronous::new(env, &self.actors.layout, base);
        self.gate = Gate::new(&self.actors.layout, base);
        self.places.clear();
        self.knowledge.clear();
        for (index, warp) in self.warps.iter_mut().enumerate() {
            let place = Place {
                block: coordinates,
                grid: env.launch.grid,
                cluster: env.launch.cluster,
                rank,
                ntid: env.launch.block,
                warp: index,
                warps,
                sm: serial % env.options.sm_count.max(1),
                sms: env.options.sm_count,
                dynamic_base,
                dynamic_bytes: env.launch.dynamic_shared,
                shared_bytes: limit - SHARED_BASE,
            };
            let lanes = (threads as usize - index * LANES).min(LANES);
            let live = u32::MAX >> (LANES - lanes);
            warp.begin(env.program, live, &place);
            warp.products = Products::new(base);
            let mut known = Knowledge::new(&self.actors.layout, base);
            known.seen[self.actors.warp(index)] = base + 1;
            self.knowledge.push(known);
            self.places.push(place);
        }
    }

    pub fn done(&self) -> bool {
        self.warps.iter().all(|warp| warp.live == 0)
    }

    /// What a warp does from here on is not covered by what it has told others.
    pub fn advance(&mut self, warp: usize) {
        let own = self.actors.warp(warp);
        self.knowledge[warp].seen[own] += 1;
    }

    /// The latest epoch of any of the block's actors.
    pub fn latest(&self) -> u32 {
        let own = (self.knowledge.iter().enumerate())
            .map(|(warp, known)| known.seen[self.actors.warp(warp)]);
        let products = self.warps.iter().map(|warp| warp.products.epoch());
        (own.chain(self.asynchronous.latest()).chain(products))
            .max()
            .unwrap_or(0)
    }
}
