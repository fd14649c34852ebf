//! Block barriers: sixteen of them, counted by threads, each joining the vector clocks of those who meet.

use super::super::causal::Knowledge;
use super::super::finding::{Finding, FindingKind};
use super::super::op::{Barrier, BarrierKind, Op, Pc};
use super::regs::FULL;
use super::warp::State;
use super::{Block, Env, Stop};

const COUNT: usize = 16;

#[derive(Clone)]
struct Meeting {
    /// Lanes of each warp that have arrived.
    arrived: Vec<u32>,
    /// Arrivals in threads; a whole warp counts 32, whatever lanes it lacks, and counts again when it arrives
    /// again.
    present: u32,
    /// Threads wanted; absent: all of the block that live.
    threads: Option<u32>,
    known: Knowledge,
    /// Threads whose predicate held, for reductions.
    held: u32,
    counted: u32,
    pc: Pc,
}

/// The block's barriers.
pub(super) struct Barriers {
    meetings: Vec<Option<Meeting>>,
    warps: usize,
}

impl Barriers {
    pub fn new(warps: usize) -> Self {
        Self {
            meetings: vec![None; COUNT],
            warps,
        }
    }
}

impl Block {
    /// A fragment arrives; it waits unless the barrier is an `arrive`. `Ok(true)`: it must wait.
    pub(super) fn arrive(
        &mut self,
        env: &mut Env<'_>,
        warp: usize,
        fragment: usize,
        op: &Barrier,
        pc: Pc,
        exec: u32,
    ) -> Result<bool, Stop> {
        let frame = self.warps[warp].fragments[fragment].frame;
        let lane = exec.trailing_zeros() as usize;
        let regs = self.warps[warp].regs(frame);
        let id = regs.n(op.id)[lane];
        let threads = op.threads.map(|slot| regs.n(slot)[lane]);
        let held = op
            .input
            .map_or(0, |input| (regs.pred(input) & exec).count_ones());
        if id as usize >= COUNT {
            return Err(Stop::Fault(Finding::new(
                FindingKind::BadLaunch,
                env.program.line(pc),
                format!("barrier {id} does not exist: there are {COUNT}"),
            )));
        }
        let live = self.warps[warp].live;
        if op.aligned && exec != live {
            env.report(FindingKind::DivergentBarrier, pc, None, |program| {
                (
                    format!(
                        "`{}` is reached by {} of {} live threads of a warp together; an aligned barrier needs all of them",
                        program.mnemonic(pc),
                        exec.count_ones(),
                        live.count_ones()
                    ),
                    "move the barrier out of the divergent branch".into(),
                )
            });
        }
        let warps = self.barriers.warps;
        let meeting = self.barriers.meetings[id as usize].get_or_insert_with(|| Meeting {
            arrived: vec![0; warps],
            present: 0,
            threads,
            known: self.knowledge[warp].clone(),
            held: 0,
            counted: 0,
            pc,
        });
        let whole = |arrived: u32| arrived & live == live;
        let before = meeting.arrived[warp];
        let again = before & exec != 0;
        meeting.arrived[warp] |= exec;
        meeting.present += exec.count_ones();
        if whole(before | exec) && (again || !whole(before)) {
            meeting.present += (!live).count_ones();
        }
        meeting.held += held;
        meeting.counted += exec.count_ones();
        meeting.pc = pc;
        if meeting.threads.is_none() {
            meeting.threads = threads;
        }
        meeting.known.join(&self.knowledge[warp]);
        let waits = op.kind != BarrierKind::Arrive;
        if waits {
            self.warps[warp].fragments[fragment].state = State::Barrier(id as u8);
        } else {
            // What the warp does from here on is not covered by its arrival.
            self.advance(warp);
        }
        self.settle(env, id as usize);
        Ok(waits)
    }

    /// Lets a barrier's waiting fragments go if it is complete.
    fn settle(&mut self, env: &mut Env<'_>, id: usize) {
        let complete = match &self.barriers.meetings[id] {
            None => return,
            Some(meeting) => match meeting.threads {
                Some(wanted) => meeting.present >= wanted,
                None => meeting
                    .arrived
                    .iter()
                    .zip(&self.warps)
                    .all(|(arrived, warp)| arrived & warp.live == warp.live),
            },
        };
        if !complete {
            return;
        }
        let Some(meeting) = self.barriers.meetings[id].take() else {
            return;
        };
        env.counts.barriers += 1;
        for (index, warp) in self.warps.iter_mut().enumerate() {
            let mut woke = false;
            for at in 0..warp.fragments.len() {
                let fragment = &mut warp.fragments[at];
                if fragment.state != State::Barrier(id as u8) {
                    continue;
                }
                fragment.state = State::Running;
                let (pc, mask, frame) = (fragment.pc, fragment.mask, fragment.frame);
                fragment.pc += 1;
                woke = true;
                let Op::Barrier(op) = &env.program.code[pc as usize].op else {
                    continue;
                };
                if let Some(dst) = op.dst {
                    let mut regs = warp.regs(frame);
                    let all = meeting.held == meeting.counted;
                    match op.kind {
                        BarrierKind::Popc => regs.set_n(mask, dst, &[meeting.held; 32]),
                        BarrierKind::And => regs.set_pred(mask, dst, if all { FULL } else { 0 }),
                        BarrierKind::Or => {
                            regs.set_pred(mask, dst, if meeting.held > 0 { FULL } else { 0 })
                        }
                        BarrierKind::Sync | BarrierKind::Arrive => {}
                    }
                }
            }
            if woke {
                self.knowledge[index].join(&meeting.known);
                let own = self.actors.warp(index);
                self.knowledge[index].seen[own] += 1;
            }
        }
    }

    /// Exited threads count as arrived at barriers of the whole block.
    pub(super) fn settle_all(&mut self, env: &mut Env<'_>) {
        for id in 0..COUNT {
            self.settle(env, id);
        }
    }

    /// Every block polls memory, and none changes it.
    pub(super) fn starved(&self, env: &Env<'_>) -> Stop {
        let fragments = self.warps.iter().flat_map(|warp| &warp.fragments);
        let pc = fragments.map(|fragment| fragment.pc).max().unwrap_or(0);
        let finding = Finding::new(
            FindingKind::Deadlock,
            env.program.line(pc),
            "deadlock: every block polls memory, and none changes it",
        )
        .help("blocks that are not resident cannot be waited for, nor can other launches");
        Stop::Hung(vec![finding])
    }

    /// Says who waits where.
    pub(super) fn deadlock(&self, env: &Env<'_>) -> Vec<Finding> {
        let mut places: Vec<(Pc, State, u32)> = Vec::new();
        for warp in &self.warps {
            for fragment in &warp.fragments {
                match places
                    .iter_mut()
                    .find(|(pc, state, _)| *pc == fragment.pc && *state == fragment.state)
                {
                    Some((_, _, threads)) => *threads += fragment.mask.count_ones(),
                    None => places.push((fragment.pc, fragment.state, fragment.mask.count_ones())),
                }
            }
        }
        places.sort_by_key(|(pc, _, _)| *pc);
        let live: u32 = self.warps.iter().map(|w| w.live.count_ones()).sum();
        places
            .into_iter()
            .map(|(pc, state, threads)| {
                let wanted = match state {
                    State::Barrier(id) => match &self.barriers.meetings[usize::from(id)] {
                        Some(Meeting {
                            threads: Some(wanted),
                            ..
                        }) => format!("barrier {id}, which wants {wanted} threads"),
                        Some(_) | None => format!(
                            "barrier {id}, which wants all {live} live threads of the block"
                        ),
                    },
                    State::Mbarrier(address) => self.asynchronous.waited(address),
                    State::Warpgroup(_) => {
                        "the other warps of its warpgroup, which have not issued the same products".to_owned()
                    }
                    State::Registers(wanted) => self.asynchronous.lacking(wanted),
                    State::Cluster => "the cluster's barrier".to_owned(),
                    State::Converging => "the other lanes it names".to_owned(),
                    State::Running => "nothing".to_owned(),
                };
                let finding = Finding::new(
                    FindingKind::Deadlock,
                    env.program.line(pc),
                    format!("deadlock: {threads} threads wait here for {wanted}"),
                );
                match state {
                    State::Mbarrier(address) => finding
                        .and_line(env.program.line(self.asynchronous.made(address)))
                        .help("count what arrives on it in each phase, and the bytes that `expect_tx` announces; compare the parity with the round of the ring"),
                    State::Registers(_) => finding
                        .help("all warps together can have no more registers than the block started with"),
                    State::Barrier(_)
                    | State::Warpgroup(_)
                    | State::Cluster
                    | State::Converging
                    | State::Running => {
                        finding.help("every thread that a barrier counts must reach it")
                    }
                }
            })
            .collect()
    }
}
