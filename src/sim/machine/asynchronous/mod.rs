//! What works beside the warps: bulk copies, copies in groups, products of warpgroups, and the mbarriers that
//! tell of them. The work itself is done at once, where it is issued or, for other blocks' sake, when the
//! warp's turn is over; that it *might* be done later is what the actors' epochs stand for, so whoever does
//! not wait is found whatever the schedule.

mod bulk;
mod copy;
mod mbarrier;
mod operand;
mod product;
mod registers;

use std::collections::{BTreeMap, VecDeque};

use super::access::{At, Remote, addresses, fault};
use super::regs::Wide;
use super::{Block, Env, Stop, window};
use crate::sim::causal::Layout;
use crate::sim::finding::FindingKind;
use crate::sim::op::{AsyncOp, Pc, SharedPlace, Space};
use crate::sim::shared::By;
use bulk::Delivery;
use mbarrier::Arrival;
use mbarrier::Mbarrier;
pub(super) use product::{Products, report_disturbed};
use registers::Pool;

/// Work that a warp leaves to its cluster.
pub(super) enum Mail {
    /// An arrival on another block's mbarrier.
    Arrive {
        rank: usize,
        arrival: Arrival,
    },
    Deliver(Box<Delivery>),
    Remote(Box<Remote>),
}

impl Mail {
    pub fn deliver(self, env: &mut Env<'_>, blocks: &mut [Block]) -> Result<(), Stop> {
        match self {
            Self::Arrive { rank, arrival } => match blocks.get_mut(rank) {
                Some(block) => {
                    block.visited(env, arrival.by);
                    // Bytes alone are told with no knowledge.
                    if !arrival.knows.seen.is_empty() {
                        block.used_by(env, arrival.pc, arrival.address, &arrival.knows);
                    }
                    block.arrive_at(env, arrival)
                }
                None => Err(no_such_block(env, arrival.pc, rank, blocks.len())),
            },
            Self::Deliver(delivery) => delivery.run(env, blocks),
            Self::Remote(access) => access.run(env, blocks),
        }
    }
}

pub(super) fn no_such_block(env: &Env<'_>, pc: Pc, rank: usize, blocks: usize) -> Stop {
    fault(
        env,
        pc,
        FindingKind::OutOfBounds,
        &format!("block {rank} of a cluster of {blocks}"),
    )
}

/// A block's asynchronous state.
#[derive(Default)]
pub(super) struct Asynchronous {
    /// By shared address.
    mbarriers: BTreeMap<u32, Mbarrier>,
    /// Latest epoch of each of the block's actors but its warps, as they are numbered in the block.
    epochs: Vec<u32>,
    copies: Vec<Groups>,
    stores: Vec<Groups>,
    pool: Pool,
}

/// A warp's groups of one kind of work, which end in order.
#[derive(Clone, Debug, Default)]
struct Groups {
    /// Epoch of each committed group that was not waited for.
    committed: VecDeque<u32>,
    /// The latest work that was not waited for.
    last: Option<Pc>,
}

impl Groups {
    /// The epoch of the newest group that is over when `pending` may still be under way.
    fn over(&mut self, pending: u32) -> Option<u32> {
        let mut last = None;
        while self.committed.len() > pending as usize {
            last = self.committed.pop_front();
        }
        if self.committed.is_empty() {
            self.last = None;
        }
        last
    }
}

/// How an instruction goes on.
pub(super) enum Step {
    Next,
    /// The group waits; its state says for what.
    Waits,
    /// The group goes on, and lets others run first.
    Yields,
}

impl Asynchronous {
    pub fn new(env: &Env<'_>, layout: &Layout, base: u32) -> Self {
        if !layout.asynchronous {
            return Self::default();
        }
        Self {
            mbarriers: BTreeMap::new(),
            epochs: vec![base; layout.block(0).all().len()],
            copies: vec![Groups::default(); layout.warps],
            stores: vec![Groups::default(); layout.warps],
            pool: Pool::new(env, layout.warps),
        }
    }

    pub fn latest(&self) -> impl Iterator<Item = u32> {
        self.epochs.iter().copied()
    }
}

impl Block {
    /// Executes what works beside the warp, or waits for it. `fragment` holds just the lanes of `at`.
    pub(super) fn asynchronous(
        &mut self,
        env: &mut Env<'_>,
        at: At,
        fragment: usize,
        op: &AsyncOp,
    ) -> Result<Step, Stop> {
        match op {
            AsyncOp::Mbarrier(mbarrier) => return self.mbarrier(env, at, fragment, mbarrier),
            AsyncOp::BulkLoad(load) => self.bulk_load(env, at, load)?,
            AsyncOp::BulkStore(store) => self.bulk_store(env, at, store)?,
            AsyncOp::BulkCommit => {
                let actor = self.actors.stores(at.warp);
                let epoch = self.next_epoch(actor);
                self.asynchronous.stores[at.warp].committed.push_back(epoch);
            }
            AsyncOp::BulkWait { pending } => {
                if let Some(epoch) = self.asynchronous.stores[at.warp].over(*pending) {
                    let actor = self.actors.stores(at.warp);
                    self.knowledge[at.warp].learn(actor, epoch);
                }
            }
            AsyncOp::Copy(copy) => self.copy(env, at, copy)?,
            AsyncOp::CopyCommit => {
                let actor = self.actors.copies(at.warp);
                let epoch = self.next_epoch(actor);
                self.asynchronous.copies[at.warp].committed.push_back(epoch);
            }
            AsyncOp::CopyWait { pending } => {
                let actor = self.actors.copies(at.warp);
                let epoch = match pending {
                    Some(pending) => self.asynchronous.copies[at.warp].over(*pending),
                    None => {
                        self.asynchronous.copies[at.warp].committed.clear();
                        Some(self.next_epoch(actor))
                    }
                };
                if let Some(epoch) = epoch {
                    self.knowledge[at.warp].learn(actor, epoch);
                }
            }
            AsyncOp::CopyArrive { place, counted } => {
                self.copy_arrive(env, at, *place, *counted)?;
            }
            AsyncOp::ProxyFence => {
                self.knowledge[at.warp].fence_proxy();
                self.announce(at.warp);
                self.advance(at.warp);
            }
            AsyncOp::MbarrierFence => self.announce(at.warp),
            AsyncOp::Product(product) => self.product(env, at, product)?,
            AsyncOp::ProductFence => {}
            AsyncOp::ProductCommit => self.product_commit(at),
            AsyncOp::ProductWait { pending } => {
                return Ok(self.product_wait(at, fragment, *pending));
            }
            AsyncOp::SetRegisters { count, more } => {
                return Ok(self.set_registers(at, fragment, *count, *more));
            }
            AsyncOp::MapShared {
                generic,
                dst,
                a,
                rank,
            } => {
                let mut regs = self.warps[at.warp].regs(at.frame);
                let (from, ranks) = (regs.any(*a), regs.n(*rank));
                let base = if *generic {
                    window::base(Space::Shared)
                } else {
                    0
                };
                let values: Wide = std::array::from_fn(|lane| {
                    let own = from[lane].wrapping_sub(base) & OWN;
                    base + (own | (u64::from(ranks[lane] & 0x7f) + 1) << RANK_SHIFT)
                });
                regs.set_any(at.mask, *dst, &values);
            }
            AsyncOp::RankOf { generic, dst, a } => {
                let base = if *generic {
                    window::base(Space::Shared)
                } else {
                    0
                };
                let rank = self.rank();
                let mut regs = self.warps[at.warp].regs(at.frame);
                let ranks = regs
                    .any(*a)
                    .map(|address| resolve(address.wrapping_sub(base) as u32, rank).0 as u32);
                regs.set_n(at.mask, *dst, &ranks);
            }
            AsyncOp::Send(send) => self.send(env, at, send)?,
            AsyncOp::ClusterArrive => self.cluster_arrive(at.warp, at.mask),
            AsyncOp::ClusterWait => {
                if self.cluster_wait(at.warp, fragment) {
                    return Ok(Step::Waits);
                }
            }
        }
        Ok(Step::Next)
    }

    /// Reports a warp that ends while bulk stores may still read the block's shared memory.
    pub(super) fn abandons(&self, env: &mut Env<'_>, warp: usize, pc: Pc) {
        let Some(groups) = self.asynchronous.stores.get(warp) else {
            return;
        };
        let Some(store) = groups.last.filter(|_| env.options.checks) else {
            return;
        };
        env.report(FindingKind::EarlyRelease, pc, Some(store), |_| {
            (
                "a warp ends while its bulk stores may still read shared memory".into(),
                "put `cp.async.bulk.wait_group 0;` before the end, in the thread that committed the stores".into(),
            )
        });
    }

    /// Ends an epoch of one of the block's actors: what it did so far belongs to the epoch given back.
    fn next_epoch(&mut self, actor: usize) -> u32 {
        let epoch = &mut self.asynchronous.epochs[actor - self.actors.all().start];
        *epoch += 1;
        *epoch
    }

    /// An asynchronous actor at work for a warp: what it does now belongs to the epoch that is under way.
    fn beside(&self, actor: usize, at: At) -> By<'_> {
        By {
            actor,
            epoch: self.asynchronous.epochs[actor - self.actors.all().start] + 1,
            knows: &self.knowledge[at.warp],
            pc: at.pc,
        }
    }

    /// The block's in its cluster.
    fn rank(&self) -> usize {
        self.actors.rank()
    }

    /// Addresses in the cluster's shared memory.
    pub(super) fn shared_addresses(&mut self, at: At, place: SharedPlace) -> Wide {
        let regs = self.warps[at.warp].regs(at.frame);
        let out = addresses(&regs, at.frame, &place.address);
        if place.space == Space::Generic {
            out.map(|address| address.wrapping_sub(window::base(Space::Shared)))
        } else {
            out
        }
    }
}

/// Where a cluster's shared address keeps the block's rank, plus one; 0 for the own block.
const RANK_SHIFT: u32 = 24;
const OWN: u64 = (1 << RANK_SHIFT) - 1;

/// Whether a shared address names a block of the cluster.
pub(super) fn is_remote(address: u64) -> bool {
    address >> RANK_SHIFT != 0
}

/// A place in the cluster's shared memory: a block's rank and its own address.
pub(super) fn resolve(address: u32, own_rank: usize) -> (usize, u32) {
    match address >> RANK_SHIFT {
        0 => (own_rank, address),
        named => (named as usize - 1, address & OWN as u32),
    }
}
