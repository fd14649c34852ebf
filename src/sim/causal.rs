//! Who knows of whose work: vector clocks over the actors of a cluster. An actor is a warp, or what works for
//! it on its own: its asynchronous copies, its products, its bulk stores, and the bulk loads that report to
//! one mbarrier. Work is ordered before what follows when a chain of barriers and waits leads from one to the
//! other. Nothing here knows memory.

use std::ops::Range;

/// Actors for the mbarriers of a block; further ones share them, which hides hazards and invents none.
const ARRIVALS: usize = 32;

/// Warps of a warpgroup.
pub(crate) const WARPGROUP: usize = 4;

/// What a warp knows to be done: for each actor, the latest epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Knowledge {
    pub seen: Vec<u32>,
    /// The part of it that the asynchronous proxy sees too: what lies before a proxy fence. Empty where a
    /// program has no asynchronous work.
    pub proxied: Vec<u32>,
}

impl Knowledge {
    pub fn new(layout: &Layout, base: u32) -> Self {
        let width = layout.width();
        Self {
            seen: vec![base; width],
            proxied: if layout.asynchronous {
                vec![base; width]
            } else {
                Vec::new()
            },
        }
    }

    pub fn join(&mut self, other: &Self) {
        join(&mut self.seen, &other.seen);
        join(&mut self.proxied, &other.proxied);
    }

    /// Work of `actor` up to `epoch` is done.
    pub fn learn(&mut self, actor: usize, epoch: u32) {
        self.seen[actor] = self.seen[actor].max(epoch);
    }

    /// A proxy fence: the asynchronous proxy sees all that is known.
    pub fn fence_proxy(&mut self) {
        join(&mut self.proxied, &self.seen);
    }
}

fn join(into: &mut [u32], from: &[u32]) {
    for (own, other) in into.iter_mut().zip(from) {
        *own = (*own).max(*other);
    }
}

/// How a cluster's actors are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Of a block.
    pub warps: usize,
    /// Of the cluster.
    pub blocks: usize,
    pub asynchronous: bool,
}

impl Layout {
    pub fn width(&self) -> usize {
        self.blocks * self.of_block()
    }

    fn of_block(&self) -> usize {
        if self.asynchronous {
            4 * self.warps + ARRIVALS
        } else {
            self.warps
        }
    }

    pub fn block(self, rank: usize) -> Actors {
        Actors { layout: self, rank }
    }

    /// Whether an actor writes through the generic proxy: a warp, or its copies that are not bulk copies.
    pub fn generic(&self, actor: usize) -> bool {
        actor % self.of_block() < self.warps * if self.asynchronous { 2 } else { 1 }
    }

    /// Whether an actor is something else than a warp.
    pub fn detached(&self, actor: usize) -> bool {
        actor % self.of_block() >= self.warps
    }
}

/// The actors of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Actors {
    pub layout: Layout,
    rank: usize,
}

impl Actors {
    pub fn rank(self) -> usize {
        self.rank
    }

    fn first(self) -> usize {
        self.rank * self.layout.of_block()
    }

    pub fn warp(self, warp: usize) -> usize {
        self.first() + warp
    }

    pub fn warps(self) -> Range<usize> {
        self.first()..self.first() + self.layout.warps
    }

    /// Everything of the block.
    pub fn all(self) -> Range<usize> {
        self.first()..self.first() + self.layout.of_block()
    }

    /// `cp.async` of a warp.
    pub fn copies(self, warp: usize) -> usize {
        self.first() + self.layout.warps + warp
    }

    /// `wgmma` of a warpgroup: its four warps' parts are one piece of work.
    pub fn products(self, warp: usize) -> usize {
        self.first() + 2 * self.layout.warps + warp / WARPGROUP * WARPGROUP
    }

    /// Warps of the same warpgroup.
    pub fn warpgroup(self, warp: usize) -> Range<usize> {
        let first = warp / WARPGROUP * WARPGROUP;
        first..(first + WARPGROUP).min(self.layout.warps)
    }

    /// Bulk stores of a warp.
    pub fn stores(self, warp: usize) -> usize {
        self.first() + 3 * self.layout.warps + warp
    }

    /// Bulk loads that report to the block's mbarrier of this number.
    pub fn arrivals(self, mbarrier: usize) -> usize {
        self.first() + 4 * self.layout.warps + mbarrier % ARRIVALS
    }
}
