//! Mbarriers: arrivals, bytes, phases, and who waits for them. An mbarrier's words in shared memory are opaque;
//! its state is kept beside them.

use super::super::access::{At, Visit, check_shared, fault, lanes};
use super::super::regs::{LANES, Wide};
use super::super::warp::State;
use super::super::{Block, Env, Stop};
use super::{Mail, Step, resolve};
use crate::sim::causal::Knowledge;
use crate::sim::finding::FindingKind;
use crate::sim::op::{self, AsyncOp, MbarrierAction, Op, Pc, PhaseOf, SharedPlace};

/// Bytes of an mbarrier.
const BYTES: u32 = 8;

pub(super) struct Mbarrier {
    /// Arrivals that complete a phase.
    expected: u32,
    /// Arrivals that this phase still wants.
    pending: u32,
    /// Bytes that this phase still wants; below zero where more came than were announced.
    bytes: i64,
    phase: u64,
    /// What those know who arrived up to now, and up to the last complete phase.
    arriving: Knowledge,
    completed: Knowledge,
    /// The bulk loads that report to it.
    actor: usize,
    made: Pc,
    maker: usize,
    /// The maker's epoch.
    since: u32,
    /// The asynchronous proxy may use it.
    announced: bool,
}

impl Mbarrier {
    /// What an arrival is given: the phase, and the arrivals that it still wants.
    fn token(&self) -> u64 {
        let (shift, _) = op::Mbarrier::PENDING;
        self.phase | u64::from(self.pending) << shift
    }
}

impl super::Asynchronous {
    /// What a deadlocked thread waits for.
    pub fn waited(&self, address: u32) -> String {
        let Some(barrier) = self.mbarriers.get(&address) else {
            return format!("an mbarrier at shared address {address}");
        };
        let Mbarrier {
            expected,
            pending,
            bytes,
            phase,
            ..
        } = barrier;
        let bytes = match *bytes {
            0 => "no bytes".to_owned(),
            left if left > 0 => format!("{left} bytes"),
            over => format!(
                "no bytes, and {} came that `expect_tx` never announced",
                -over
            ),
        };
        format!(
            "phase {phase} of the mbarrier at shared address {address}, which still wants {pending} of {expected} arrivals and {bytes}"
        )
    }

    /// Where the mbarrier was initialised.
    pub fn made(&self, address: u32) -> Pc {
        self.mbarriers.get(&address).map_or(0, |b| b.made)
    }
}

/// An arrival, as it reaches the block that holds the mbarrier.
pub(in crate::sim::machine) struct Arrival {
    pub address: u32,
    /// None: only bytes are announced or told of.
    pub count: u32,
    /// Bytes to wait for besides; below zero, bytes that came.
    pub expects: i64,
    pub drops: bool,
    /// It must not be the phase's last.
    pub never_last: bool,
    pub knows: Knowledge,
    /// Who arrives.
    pub by: Visit,
    pub pc: Pc,
}

impl Block {
    pub(super) fn mbarrier(
        &mut self,
        env: &mut Env<'_>,
        at: At,
        fragment: usize,
        op: &op::Mbarrier,
    ) -> Result<Step, Stop> {
        let places = self.shared_addresses(at, op.place);
        let rank = self.rank();
        let own = |env: &Env<'_>, address: u64| match resolve(address as u32, rank) {
            (found, address) if found == rank => Ok(address),
            _ => Err(fault(
                env,
                at.pc,
                FindingKind::Unsupported,
                "an mbarrier of another block: only arrivals reach it here",
            )),
        };
        match op.action {
            MbarrierAction::Initialise { count } => {
                let counts = self.warps[at.warp].regs(at.frame).n(count);
                for lane in lanes(at.mask) {
                    let address = own(env, places[lane])?;
                    self.initialise(env, at, address, counts[lane], lane)?;
                }
            }
            MbarrierAction::Invalidate => {
                for lane in lanes(at.mask) {
                    let address = own(env, places[lane])?;
                    self.asynchronous.mbarriers.remove(&address);
                }
            }
            MbarrierAction::Arrive {
                count,
                expects,
                state,
                drops,
                never_last,
            } => {
                let regs = self.warps[at.warp].regs(at.frame);
                let counts = count.map_or([1; LANES], |slot| regs.n(slot));
                let bytes = expects.map_or([0; LANES], |slot| regs.n(slot));
                for lane in lanes(at.mask) {
                    let (rank, address) = resolve(places[lane] as u32, self.rank());
                    let arrival = Arrival {
                        by: self.visit(at),
                        address,
                        count: counts[lane],
                        expects: i64::from(bytes[lane]),
                        drops,
                        never_last,
                        knows: self.knowledge[at.warp].clone(),
                        pc: at.pc,
                    };
                    if rank == self.rank() {
                        if let Some(state) = state {
                            let token = self.barrier_at(env, at.pc, address)?.token();
                            let mut regs = self.warps[at.warp].regs(at.frame);
                            regs.set_w(1 << lane, state, &[token; LANES]);
                        }
                        self.used_by(env, at.pc, address, &arrival.knows);
                        self.arrive_at(env, arrival)?;
                    } else {
                        env.mail.push(Mail::Arrive { rank, arrival });
                    }
                }
                self.advance(at.warp);
            }
            MbarrierAction::Expect { bytes } => {
                let bytes = self.warps[at.warp].regs(at.frame).n(bytes);
                self.transact(env, at, &places, |lane| i64::from(bytes[lane]))?;
            }
            MbarrierAction::Complete { bytes } => {
                let bytes = self.warps[at.warp].regs(at.frame).n(bytes);
                self.transact(env, at, &places, |lane| -i64::from(bytes[lane]))?;
            }
            MbarrierAction::Wait {
                dst,
                phase,
                suspends,
            } => {
                let lead = places[at.mask.trailing_zeros() as usize & (LANES - 1)];
                let first = own(env, lead)?;
                self.used_by(env, at.pc, first, &self.knowledge[at.warp]);
                let together = lanes(at.mask).all(|lane| places[lane] == lead);
                let mut over = 0u32;
                for lane in lanes(at.mask) {
                    let address = own(env, places[lane])?;
                    let barrier = self.barrier_at(env, at.pc, address)?;
                    let now = barrier.phase;
                    let known = barrier.completed.clone();
                    let regs = self.warps[at.warp].regs(at.frame);
                    if is_over(now, phase_of(phase, &regs, lane)) {
                        over |= 1 << lane;
                        if !together || lane == at.mask.trailing_zeros() as usize {
                            self.knowledge[at.warp].join(&known);
                        }
                    }
                }
                if over == 0 && together && suspends {
                    self.warps[at.warp].fragments[fragment].state = State::Mbarrier(first);
                    return Ok(Step::Waits);
                }
                self.warps[at.warp]
                    .regs(at.frame)
                    .set_pred(at.mask, dst, over);
                if over != at.mask {
                    env.polls += 1;
                    return Ok(Step::Yields);
                }
            }
        }
        Ok(Step::Next)
    }

    /// Announces bytes, or tells that they came; orders nothing.
    fn transact(
        &mut self,
        env: &mut Env<'_>,
        at: At,
        places: &Wide,
        bytes: impl Fn(usize) -> i64,
    ) -> Result<(), Stop> {
        for lane in lanes(at.mask) {
            let (rank, address) = resolve(places[lane] as u32, self.rank());
            let arrival = Arrival {
                address,
                count: 0,
                expects: bytes(lane),
                drops: false,
                never_last: false,
                knows: Knowledge::default(),
                by: self.visit(at),
                pc: at.pc,
            };
            if rank == self.rank() {
                self.arrive_at(env, arrival)?;
            } else {
                env.mail.push(Mail::Arrive { rank, arrival });
            }
        }
        Ok(())
    }

    fn visit(&self, at: At) -> Visit {
        let actor = self.actors.warp(at.warp);
        Visit {
            actor,
            epoch: self.knowledge[at.warp].seen[actor],
            pc: at.pc,
        }
    }

    fn initialise(
        &mut self,
        env: &mut Env<'_>,
        at: At,
        address: u32,
        count: u32,
        lane: usize,
    ) -> Result<(), Stop> {
        check_shared(env, &self.shared, at.pc, address, BYTES, lane)?;
        if count == 0 || count >= 1 << 20 {
            return Err(fault(
                env,
                at.pc,
                FindingKind::BadMbarrier,
                &format!("an mbarrier of {count} arrivals; 1 to 1048575"),
            ));
        }
        let number = self.asynchronous.mbarriers.len();
        let known = self.knowledge[at.warp].clone();
        let again = self.asynchronous.mbarriers.get(&address).map(|b| b.actor);
        let barrier = Mbarrier {
            expected: count,
            pending: count,
            bytes: 0,
            phase: 0,
            arriving: known.clone(),
            completed: known,
            actor: again.unwrap_or_else(|| self.actors.arrivals(number)),
            made: at.pc,
            maker: at.warp,
            since: self.knowledge[at.warp].seen[self.actors.warp(at.warp)],
            announced: false,
        };
        self.asynchronous.mbarriers.insert(address, barrier);
        Ok(())
    }

    /// Reports the use of an mbarrier by one who need not know that it was initialised.
    pub(in crate::sim::machine) fn used_by(
        &self,
        env: &mut Env<'_>,
        pc: Pc,
        address: u32,
        knows: &Knowledge,
    ) {
        let Some(barrier) = self.asynchronous.mbarriers.get(&address) else {
            return;
        };
        let seen = knows.seen[self.actors.warp(barrier.maker)];
        if seen < barrier.since && env.options.checks {
            env.report(FindingKind::MissingBarrier, pc, Some(barrier.made), |_| {
                (
                    "uses an mbarrier that may not be initialised yet".into(),
                    "put a barrier after `mbarrier.init`: `bar.sync` for the threads of its block, `barrier.cluster` for other blocks".into(),
                )
            });
        }
    }

    /// The asynchronous proxy learns of the mbarriers that a warp initialised.
    pub(super) fn announce(&mut self, warp: usize) {
        for barrier in self.asynchronous.mbarriers.values_mut() {
            barrier.announced |= barrier.maker == warp;
        }
    }

    fn barrier_at(&mut self, env: &Env<'_>, pc: Pc, address: u32) -> Result<&mut Mbarrier, Stop> {
        match self.asynchronous.mbarriers.get_mut(&address) {
            Some(barrier) => Ok(barrier),
            None => Err(fault(
                env,
                pc,
                FindingKind::BadMbarrier,
                &format!("no mbarrier was initialised at shared address {address}"),
            )),
        }
    }

    /// The mbarrier as a bulk load's: the actor that stands for its loads.
    pub(super) fn reported_to(
        &mut self,
        env: &mut Env<'_>,
        pc: Pc,
        address: u32,
    ) -> Result<usize, Stop> {
        let barrier = self.barrier_at(env, pc, address)?;
        let (actor, made, announced) = (barrier.actor, barrier.made, barrier.announced);
        if !announced && env.options.checks {
            env.report(FindingKind::MissingInitFence, pc, Some(made), |_| {
                (
                    "a bulk copy reports to an mbarrier whose initialisation was not made known to the asynchronous proxy".into(),
                    "put `fence.mbarrier_init.release.cluster;` (or `fence.proxy.async;`) after `mbarrier.init`, before the barrier that follows it".into(),
                )
            });
        }
        Ok(actor)
    }

    pub(in crate::sim::machine) fn arrive_at(
        &mut self,
        env: &mut Env<'_>,
        arrival: Arrival,
    ) -> Result<(), Stop> {
        let Arrival {
            address, count, pc, ..
        } = arrival;
        let barrier = self.barrier_at(env, pc, address)?;
        if count > barrier.pending {
            let message = format!(
                "{count} more arrivals on an mbarrier whose phase {} wants {} of {}",
                barrier.phase, barrier.pending, barrier.expected
            );
            return Err(fault(env, pc, FindingKind::BadMbarrier, &message));
        }
        if arrival.never_last && count == barrier.pending {
            let message = format!(
                "`.noComplete` on the last of the arrivals that phase {} wants",
                barrier.phase
            );
            return Err(fault(env, pc, FindingKind::BadMbarrier, &message));
        }
        barrier.bytes += arrival.expects;
        barrier.pending -= count;
        barrier.expected -= if arrival.drops { count } else { 0 };
        barrier.arriving.join(&arrival.knows);
        self.settle_mbarrier(env, address);
        Ok(())
    }

    /// Bytes of a bulk load have come.
    pub(super) fn bytes_came(&mut self, env: &mut Env<'_>, address: u32, bytes: u32, epoch: u32) {
        if let Some(barrier) = self.asynchronous.mbarriers.get_mut(&address) {
            barrier.bytes -= i64::from(bytes);
            barrier.arriving.learn(barrier.actor, epoch);
            self.settle_mbarrier(env, address);
        }
    }

    pub(super) fn copy_arrive(
        &mut self,
        env: &mut Env<'_>,
        at: At,
        place: SharedPlace,
        counted: bool,
    ) -> Result<(), Stop> {
        let places = self.shared_addresses(at, place);
        let copies = self.actors.copies(at.warp);
        let epoch = self.next_epoch(copies);
        for lane in lanes(at.mask) {
            let address = places[lane] as u32 & super::OWN as u32;
            let barrier = self.barrier_at(env, at.pc, address)?;
            let mut knows = barrier.arriving.clone();
            knows.learn(copies, epoch);
            self.arrive_at(
                env,
                Arrival {
                    address,
                    count: u32::from(counted),
                    expects: 0,
                    drops: false,
                    never_last: false,
                    knows,
                    by: Visit {
                        actor: copies,
                        epoch,
                        pc: at.pc,
                    },
                    pc: at.pc,
                },
            )?;
        }
        Ok(())
    }

    /// Completes a phase that wants nothing more, and wakes those who wait for it.
    fn settle_mbarrier(&mut self, env: &mut Env<'_>, address: u32) {
        let Some(barrier) = self.asynchronous.mbarriers.get_mut(&address) else {
            return;
        };
        if barrier.pending > 0 || barrier.bytes != 0 {
            return;
        }
        barrier.phase += 1;
        barrier.pending = barrier.expected;
        barrier.completed = barrier.arriving.clone();
        env.changes += 1;
        let now = barrier.phase;
        for (index, warp) in self.warps.iter_mut().enumerate() {
            for at in 0..warp.fragments.len() {
                let fragment = &warp.fragments[at];
                if fragment.state != State::Mbarrier(address) {
                    continue;
                }
                let (pc, mask, frame) = (fragment.pc, fragment.mask, fragment.frame);
                let Op::Async(op) = &env.program.code[pc as usize].op else {
                    continue;
                };
                let AsyncOp::Mbarrier(op::Mbarrier {
                    action: MbarrierAction::Wait { dst, phase, .. },
                    ..
                }) = **op
                else {
                    continue;
                };
                let mut regs = warp.regs(frame);
                let over = lanes(mask)
                    .filter(|&lane| is_over(now, phase_of(phase, &regs, lane)))
                    .fold(0u32, |bits, lane| bits | 1 << lane);
                if over == 0 {
                    continue;
                }
                regs.set_pred(mask, dst, over);
                let fragment = &mut warp.fragments[at];
                fragment.state = State::Running;
                fragment.pc = pc + 1;
                self.knowledge[index].join(&barrier.completed);
            }
        }
    }
}

/// What a thread names when it waits.
enum Named {
    Parity(u64),
    Phase(u64),
}

fn phase_of(phase: PhaseOf, regs: &super::super::regs::Regs<'_>, lane: usize) -> Named {
    match phase {
        PhaseOf::Parity(slot) => Named::Parity(u64::from(regs.n(slot)[lane]) & 1),
        PhaseOf::Token(slot) => {
            let (shift, _) = op::Mbarrier::PENDING;
            Named::Phase(regs.w(slot)[lane] & ((1 << shift) - 1))
        }
    }
}

/// Whether the phase named is over when `now` is under way.
fn is_over(now: u64, named: Named) -> bool {
    match named {
        Named::Parity(parity) => now & 1 != parity,
        Named::Phase(phase) => now > phase,
    }
}
