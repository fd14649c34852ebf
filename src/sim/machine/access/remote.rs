//! Accesses to the shared memory of another block of the cluster: done when the warp's turn is over, before
//! anything else runs. A block must not end before they are done.

use super::super::asynchronous::{is_remote, no_such_block, resolve};
use super::super::regs::Wide;
use super::super::{Block, Env, Mail, Stop};
use super::shape::Places;
use super::{At, atomic, by, lanes, shared};
use crate::sim::finding::FindingKind;
use crate::sim::op::{Op, Pc};

/// A load, store or atomic of which some lanes leave their block.
pub(in crate::sim::machine) struct Remote {
    /// The warp's block, by rank.
    author: usize,
    at: At,
    addresses: Wide,
}

/// Work of another block, or of a bulk copy, in a block's shared memory: what must be known to be done when the
/// block ends.
#[derive(Clone, Copy)]
pub(in crate::sim::machine) struct Visit {
    pub actor: usize,
    pub epoch: u32,
    pub pc: Pc,
}

impl Remote {
    pub fn run(self, env: &mut Env<'_>, blocks: &mut [Block]) -> Result<(), Stop> {
        let Self {
            author,
            at,
            addresses,
        } = self;
        let places = addresses.map(|address| resolve(address as u32, author));
        let own = places.map(|(_, address)| u64::from(address));
        let mut left = at.mask;
        while left != 0 {
            let rank = places[left.trailing_zeros() as usize].0;
            let same = lanes(left)
                .filter(|&lane| places[lane].0 == rank)
                .fold(0u32, |bits, lane| bits | 1 << lane);
            access(env, blocks, [author, rank], &own, At { mask: same, ..at })?;
            left &= !same;
        }
        Ok(())
    }
}

/// One block's part of an access.
fn access(
    env: &mut Env<'_>,
    blocks: &mut [Block],
    [author, rank]: [usize; 2],
    addresses: &Wide,
    at: At,
) -> Result<(), Stop> {
    let count = blocks.len();
    let op = &env.program.code[at.pc as usize].op;
    let held = &Places::held(env, addresses, at);
    if rank == author {
        let block = &mut blocks[author];
        return match op {
            Op::Load(access) => block.load_shared(env, held, at, access),
            Op::Store(access) => block.store_shared(env, held, at, access),
            Op::Atomic(atom) => block.atomic_shared(env, addresses, at, atom),
            _ => unreachable!("only these leave a block"),
        };
    }
    let Ok([from, to]) = blocks.get_disjoint_mut([author, rank]) else {
        return Err(no_such_block(env, at.pc, rank, count));
    };
    let by = &by(from.actors, &from.knowledge, at);
    to.visited(
        env,
        Visit {
            actor: by.actor,
            epoch: by.epoch,
            pc: at.pc,
        },
    );
    let (warp, memory) = (&mut from.warps[at.warp], &mut to.shared);
    match op {
        Op::Load(access) => shared::load(env, warp, memory, by, held, at, access),
        Op::Store(access) => shared::store(env, warp, memory, by, held, at, access),
        Op::Atomic(atom) => atomic::update(env, warp, memory, by, addresses, at, atom),
        _ => unreachable!("only these leave a block"),
    }
}

impl Block {
    /// Leaves an access to the cluster if any lane leaves the block. Tells whether it did.
    pub(super) fn leaves(&self, env: &mut Env<'_>, addresses: &Wide, at: At) -> bool {
        let leaves =
            env.program.reaches_out && lanes(at.mask).any(|lane| is_remote(addresses[lane]));
        if leaves {
            env.mail.push(Mail::Remote(Box::new(Remote {
                author: self.actors.rank(),
                at,
                addresses: *addresses,
            })));
        }
        leaves
    }

    /// Notes work of others in the block's shared memory, which must not be gone.
    pub(in crate::sim::machine) fn visited(&mut self, env: &mut Env<'_>, visit: Visit) {
        if !env.options.checks {
            return;
        }
        let Visit { actor, epoch, pc } = visit;
        if let Some(end) = self.ended {
            env.report(FindingKind::EarlyRelease, pc, Some(end), |_| {
                (
                    "reaches for the shared memory of a block of its cluster that has ended".into(),
                    MEET.into(),
                )
            });
            return;
        }
        let known = self
            .visits
            .iter_mut()
            .find(|known| (known.actor, known.pc) == (actor, pc));
        match known {
            Some(known) => known.epoch = known.epoch.max(epoch),
            None => self.visits.push(visit),
        }
    }

    /// The block's last warp ends: nobody may be at work in its shared memory.
    pub(in crate::sim::machine) fn ends(&mut self, env: &mut Env<'_>, pc: Pc) {
        self.ended = Some(pc);
        for visit in std::mem::take(&mut self.visits) {
            let known = (self.knowledge.iter()).any(|known| known.seen[visit.actor] >= visit.epoch);
            if known || !env.options.checks {
                continue;
            }
            let detached = self.actors.layout.detached(visit.actor);
            env.report(FindingKind::EarlyRelease, pc, Some(visit.pc), |_| {
                if detached {
                    (
                        "a block ends while a copy into its shared memory may be under way".into(),
                        "wait for the mbarrier phase that counts its bytes before the end".into(),
                    )
                } else {
                    (
                        "a block ends while another block of its cluster may still reach for its shared memory"
                            .into(),
                        MEET.into(),
                    )
                }
            });
        }
    }
}

const MEET: &str = "let all blocks of the cluster meet at `barrier.cluster` after the last such access, before any of them ends";
