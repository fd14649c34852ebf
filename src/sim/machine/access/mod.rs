//! Loads, stores and atomics of a warp: which lanes go to which state space. What an access does there, its
//! checks and its counts, is for the space's own file.

mod atomic;
mod bank;
mod count;
mod fault;
mod gather;
mod global;
mod hazard;
mod lane;
mod local;
mod matrix;
mod remote;
mod shape;
mod shared;

use super::regs::{LANES, Regs, Wide};
use super::warp::Frame;
use super::{Block, Env, Stop, window};
use crate::sim::causal::{Actors, Knowledge};
use crate::sim::finding::FindingKind;
use crate::sim::op::{Access, Address, Atom, Base, Pc, Space};
use crate::sim::shared::By;
pub(super) use atomic::{Subnormals, apply, atom_bytes};
use bank::load_bytes;
pub(super) use count::{count_copy, count_shared};
pub(super) use fault::{fault, misaligned, refused, uninitialised};
pub(super) use global::report_overwrite;
pub(super) use hazard::{Hazards, report_race};
pub(super) use remote::{Remote, Visit};
pub(super) use shape::Shapes;
use shape::{Bases, Places};
pub(super) use shared::check_shared;

/// Where an access happens.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub warp: usize,
    pub frame: Frame,
    pub pc: Pc,
    pub mask: u32,
}

/// A warp as the author of an access.
pub(super) fn by<'a>(actors: Actors, knowledge: &'a [Knowledge], at: At) -> By<'a> {
    let actor = actors.warp(at.warp);
    let knows = &knowledge[at.warp];
    By {
        actor,
        epoch: knows.seen[actor],
        knows,
        pc: at.pc,
    }
}

enum Direction {
    Load,
    Store,
}

impl Block {
    pub(in crate::sim::machine) fn load(
        &mut self,
        env: &mut Env<'_>,
        at: At,
        access: &Access,
    ) -> Result<(), Stop> {
        self.transfer(env, at, access, &Direction::Load)
    }

    pub(super) fn store(&mut self, env: &mut Env<'_>, at: At, access: &Access) -> Result<(), Stop> {
        self.transfer(env, at, access, &Direction::Store)
    }

    fn transfer(
        &mut self,
        env: &mut Env<'_>,
        at: At,
        access: &Access,
        direction: &Direction,
    ) -> Result<(), Stop> {
        let regs = self.warps[at.warp].regs(at.frame);
        // The most frequent way: no address is made wider than those of shared memory.
        if access.space == Space::Shared
            && !env.program.reaches_out
            && let Some(bases) = Bases::of(&regs, &access.address)
        {
            let offset = access.address.offset as u32;
            let mut places = Places::new(at.mask);
            places.locate(bases, offset, env.shapes.last(at.pc), env.arch);
            return self.in_shared(env, &places, at, access, direction);
        }
        let addresses = addresses(&regs, at.frame, &access.address);
        self.by_space(
            access.space,
            &addresses,
            at,
            |block, space, addresses, at| {
                block.in_space(env, space, addresses, at, access, direction)
            },
        )
    }

    fn in_space(
        &mut self,
        env: &mut Env<'_>,
        space: Space,
        addresses: &Wide,
        at: At,
        access: &Access,
        direction: &Direction,
    ) -> Result<(), Stop> {
        match (space, direction) {
            (Space::Global | Space::Generic, Direction::Load) => {
                self.load_global(env, addresses, at, access)
            }
            (Space::Global | Space::Generic, Direction::Store) => {
                self.store_global(env, addresses, at, access)
            }
            (Space::Shared, _) if self.leaves(env, addresses, at) => Ok(()),
            (Space::Shared, Direction::Load | Direction::Store) => {
                let places = Places::held(env, addresses, at);
                self.in_shared(env, &places, at, access, direction)
            }
            (Space::Local, Direction::Load) => self.load_local(env, addresses, at, access),
            (Space::Local, Direction::Store) => self.store_local(env, addresses, at, access),
            (Space::Param, Direction::Load) => load_bytes(
                env,
                &mut self.warps[at.warp],
                addresses,
                at,
                access,
                "the parameters",
                &env.launch.params,
            ),
            (Space::Const, Direction::Load) => load_bytes(
                env,
                &mut self.warps[at.warp],
                addresses,
                at,
                access,
                "constant memory",
                &env.program.constants,
            ),
            (Space::Param | Space::Const, Direction::Store) => Err(fault(
                env,
                at.pc,
                FindingKind::ReadOnlyWrite,
                "a store to constant memory or to the kernel's parameters",
            )),
        }
    }

    #[inline]
    fn in_shared(
        &mut self,
        env: &mut Env<'_>,
        places: &Places,
        at: At,
        access: &Access,
        direction: &Direction,
    ) -> Result<(), Stop> {
        match direction {
            Direction::Load => self.load_shared(env, places, at, access),
            Direction::Store => self.store_shared(env, places, at, access),
        }
    }

    pub(super) fn atomic(&mut self, env: &mut Env<'_>, at: At, atom: &Atom) -> Result<(), Stop> {
        let addresses = addresses(&self.warps[at.warp].regs(at.frame), at.frame, &atom.address);
        self.by_space(
            atom.space,
            &addresses,
            at,
            |block, space, addresses, at| match space {
                Space::Global | Space::Generic => block.atomic_global(env, addresses, at, atom),
                Space::Shared if block.leaves(env, addresses, at) => Ok(()),
                Space::Shared => block.atomic_shared(env, addresses, at, atom),
                Space::Local | Space::Const | Space::Param => Err(fault(
                    env,
                    at.pc,
                    FindingKind::OutOfBounds,
                    "an atomic on an address that is neither global nor shared",
                )),
            },
        )
    }

    /// Splits a generic access by the spaces its lanes point into.
    fn by_space(
        &mut self,
        space: Space,
        addresses: &Wide,
        at: At,
        mut go: impl FnMut(&mut Self, Space, &Wide, At) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        if space != Space::Generic {
            return go(self, space, addresses, at);
        }
        let mut left = at.mask;
        while left != 0 {
            let space = window::of(addresses[left.trailing_zeros() as usize]);
            let same = (0..LANES)
                .filter(|&lane| left >> lane & 1 != 0 && window::of(addresses[lane]) == space)
                .fold(0u32, |bits, lane| bits | 1 << lane);
            let local = addresses.map(|a| a.wrapping_sub(window::base(space)));
            go(self, space, &local, At { mask: same, ..at })?;
            left &= !same;
        }
        Ok(())
    }
}

pub(super) fn addresses(regs: &Regs<'_>, frame: Frame, address: &Address) -> Wide {
    let offset = address.offset as u64;
    match address.base {
        Base::None => [offset; LANES],
        Base::Frame => [offset.wrapping_add(u64::from(frame.stack)); LANES],
        Base::Wide(slot) => regs.w(slot).map(|base| base.wrapping_add(offset)),
        Base::Narrow(slot) => regs
            .n(slot)
            .map(|base| u64::from(base.wrapping_add(offset as u32))),
    }
}

pub(super) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut left = mask;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let lane = left.trailing_zeros() as usize;
        left &= left - 1;
        Some(lane)
    })
}
