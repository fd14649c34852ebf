//! The interpreter's loop: one warp, one group of lanes at a time.

use super::super::finding::{Finding, FindingKind};
use super::super::op::{Call, Clock, Op, Passed, Pc, Pred};
use super::access::At;
use super::asynchronous::{Step, report_disturbed};
use super::exchange::{self, Shfl};
use super::regs::{LANES, Wide};
use super::straight::Stretch;
use super::warp::{Caller, Fragment, Frame, State};
use super::{Block, Env, POLLS, Stop, matrix};

/// Calls may nest this deep.
const MOST_CALLS: usize = 64;

/// What an instruction does to its group's course.
enum Course {
    Next,
    Jump(Pc),
    /// The group changed: choose again.
    Changed,
}

impl Block {
    /// Runs a warp until all its groups wait, it exits, or its turn is over. Tells whether anything ran.
    pub(super) fn run_warp(
        &mut self,
        env: &mut Env<'_>,
        warp: usize,
        turn: u64,
    ) -> Result<bool, Stop> {
        let mut left = turn;
        let mut moved = false;
        loop {
            let Some((fragment, stop)) = self.warps[warp].choose() else {
                if self.release_stragglers(env, warp) {
                    moved = true;
                    continue;
                }
                return Ok(moved);
            };
            if left == 0 || env.polls >= POLLS {
                self.warps[warp].tire(turn - left, env.polls >= POLLS);
                return Ok(true);
            }
            let before = left;
            self.run_fragment(env, warp, fragment, stop, &mut left)?;
            moved |= left != before;
            if !env.mail.is_empty() {
                return Ok(moved);
            }
        }
    }

    /// Lanes at a warp-wide operation whose partners never come go on alone.
    fn release_stragglers(&mut self, env: &mut Env<'_>, warp: usize) -> bool {
        let stuck = self.warps[warp]
            .fragments
            .iter()
            .position(|f| f.state == State::Converging);
        let Some(index) = stuck else { return false };
        let (pc, mask, frame) = {
            let fragment = &self.warps[warp].fragments[index];
            (fragment.pc, fragment.mask, fragment.frame)
        };
        env.report(FindingKind::DivergentBarrier, pc, None, |program| {
            (
                format!(
                    "`{}` names lanes that do not reach it together: {} lanes are here",
                    program.mnemonic(pc),
                    mask.count_ones()
                ),
                "name only the lanes that take part, or move it out of the divergent branch".into(),
            )
        });
        let exec = mask;
        self.exchange(env, warp, frame, pc, exec);
        let fragment = &mut self.warps[warp].fragments[index];
        fragment.state = State::Running;
        fragment.pc += 1;
        true
    }

    fn run_fragment(
        &mut self,
        env: &mut Env<'_>,
        warp: usize,
        index: usize,
        stop: Pc,
        left: &mut u64,
    ) -> Result<(), Stop> {
        let program = env.program;
        let (mut pc, mask, frame) = {
            let fragment = &self.warps[warp].fragments[index];
            (fragment.pc, fragment.mask, fragment.frame)
        };
        let alone = self.warps[warp].fragments.len() == 1;
        let started = *left;
        let mut budget = (*left).min(env.left);
        let outcome = loop {
            if budget == 0 {
                break Ok(());
            }
            // Products under way read and write registers: each instruction is looked at.
            let watched = self.warps[warp].products.any();
            if watched && let Some(instr) = program.code.get(pc as usize) {
                let exec = match instr.guard {
                    None => mask,
                    Some(guard) => mask & self.warps[warp].regs(frame).pred(guard),
                };
                let products = &self.warps[warp].products;
                if exec != 0
                    && let Some(product) = products.disturbed(program, pc, frame, instr)
                {
                    report_disturbed(env, pc, Some(product));
                }
            }
            let stretch = Stretch {
                pc,
                mask,
                frame,
                stop,
                most: if watched { 1 } else { budget },
                alone,
            };
            let ran;
            (pc, ran) = self.warps[warp].straight(program, &mut env.executions, stretch, env.arch);
            budget -= ran;
            *left -= ran;
            if pc >= stop {
                break Ok(());
            }
            if budget == 0 || watched && ran > 0 {
                continue;
            }
            let Some(instr) = program.code.get(pc as usize) else {
                break Ok(());
            };
            budget -= 1;
            *left -= 1;
            let exec = match instr.guard {
                None => mask,
                Some(guard) => mask & self.warps[warp].regs(frame).pred(guard),
            };
            env.executions[pc as usize].count(exec);
            // The group's place must be right for whoever looks at it.
            self.warps[warp].fragments[index].pc = pc;
            let at = At {
                warp,
                frame,
                pc,
                mask: exec,
            };
            let course = match self.control(env, warp, index, &instr.op, at, mask) {
                Ok(course) => course,
                Err(stop) => break Err(stop),
            };
            match course {
                Course::Next => pc += 1,
                Course::Jump(target) => {
                    pc = target;
                    if !alone {
                        self.warps[warp].fragments[index].pc = pc;
                        break Ok(());
                    }
                }
                Course::Changed => {
                    env.left -= started - *left;
                    self.warps[warp].executed += started - *left;
                    return Ok(());
                }
            }
            if pc >= stop {
                break Ok(());
            }
        };
        self.warps[warp].fragments[index].pc = pc;
        env.left -= started - *left;
        self.warps[warp].executed += started - *left;
        outcome?;
        if env.left == 0 {
            return Err(out_of_budget(env, pc));
        }
        Ok(())
    }

    #[inline(never)]
    fn control(
        &mut self,
        env: &mut Env<'_>,
        warp: usize,
        index: usize,
        op: &Op,
        at: At,
        mask: u32,
    ) -> Result<Course, Stop> {
        let exec = at.mask;
        if exec == 0 {
            return Ok(Course::Next);
        }
        match op {
            Op::Alu(_) | Op::Nothing | Op::Fence => Ok(Course::Next),
            Op::Load(access) => {
                self.load(env, at, access)?;
                Ok(self.after_access(env, warp, index, at.pc))
            }
            Op::Store(access) => {
                self.store(env, at, access)?;
                Ok(self.after_access(env, warp, index, at.pc))
            }
            Op::Atomic(atom) => {
                self.atomic(env, at, atom)?;
                Ok(self.after_access(env, warp, index, at.pc))
            }
            Op::Branch { target } => Ok(self.branch(warp, index, at.pc, mask, exec, *target)),
            Op::BranchIndexed { index: by, targets } => {
                self.indexed(env, warp, index, at, mask, *by, targets)
            }
            Op::Call(call) => self.call(env, warp, index, at, mask, call),
            Op::Return => {
                if self.warps[warp].fragments[index].callers.is_empty() {
                    return Ok(self.exit(env, warp, index, at.pc, mask, exec));
                }
                Ok(self.leave(env, warp, index, at.pc, mask, exec))
            }
            Op::Exit => Ok(self.exit(env, warp, index, at.pc, mask, exec)),
            Op::Trap => Err(Stop::Fault(Finding::new(
                FindingKind::Trap,
                env.program.line(at.pc),
                format!("`{}` was executed", env.program.mnemonic(at.pc)),
            ))),
            Op::Barrier(barrier) => {
                if exec != mask {
                    // The others go on: the waiting lanes become a group of their own.
                    self.split(warp, index, mask & !exec, at.pc + 1);
                    self.warps[warp].fragments[index].mask = exec;
                }
                let waits = self.arrive(env, warp, index, barrier, at.pc, exec)?;
                if !waits {
                    self.warps[warp].fragments[index].pc = at.pc + 1;
                }
                Ok(Course::Changed)
            }
            Op::Shfl { members, .. }
            | Op::Vote { members, .. }
            | Op::Match { members, .. }
            | Op::Redux { members, .. }
            | Op::Mma { members, .. }
            | Op::MmaDouble { members, .. }
            | Op::Transpose { members, .. }
            | Op::Elect { members, .. }
            | Op::WarpSync { members } => {
                let lane = exec.trailing_zeros() as usize;
                let warp_state = &mut self.warps[warp];
                let named = warp_state.regs(at.frame).n(*members)[lane] & warp_state.live;
                if named & !exec != 0 && warp_state.fragments.len() > 1 {
                    if exec != mask {
                        self.split(warp, index, mask & !exec, at.pc + 1);
                        self.warps[warp].fragments[index].mask = exec;
                    }
                    self.warps[warp].fragments[index].state = State::Converging;
                    return Ok(Course::Changed);
                }
                if named & !exec != 0 {
                    let lanes = exec.count_ones();
                    env.report(FindingKind::DivergentBarrier, at.pc, None, |program| {
                        (
                            format!(
                                "`{}` names lanes that do not execute it: {lanes} lanes do",
                                program.mnemonic(at.pc)
                            ),
                            "name only the lanes that take part".into(),
                        )
                    });
                }
                self.exchange(env, warp, at.frame, at.pc, exec);
                Ok(Course::Next)
            }
            Op::MoveMatrix(matrix) => {
                let live = self.warps[warp].live;
                if exec != live {
                    env.report(FindingKind::DivergentBarrier, at.pc, None, |program| {
                        (
                            format!(
                                "`{}` is reached by {} of {} live threads of a warp together",
                                program.mnemonic(at.pc),
                                exec.count_ones(),
                                live.count_ones()
                            ),
                            "move it out of the divergent branch".into(),
                        )
                    });
                }
                self.move_matrix(env, at, matrix).map(|()| Course::Next)
            }
            Op::Async(op) => {
                let parted = exec != mask;
                if parted {
                    // Whoever may wait becomes a group of its own.
                    self.split(warp, index, mask & !exec, at.pc + 1);
                    self.warps[warp].fragments[index].mask = exec;
                }
                match self.asynchronous(env, at, index, op)? {
                    Step::Waits => Ok(Course::Changed),
                    // What was left to the cluster is done before anything else.
                    Step::Next if !parted && env.mail.is_empty() => Ok(Course::Next),
                    Step::Yields if !parted && env.polls < POLLS => Ok(Course::Next),
                    Step::Next | Step::Yields => {
                        self.warps[warp].fragments[index].pc = at.pc + 1;
                        Ok(Course::Changed)
                    }
                }
            }
            Op::Activemask { dst } => {
                self.warps[warp]
                    .regs(at.frame)
                    .set_n(exec, *dst, &[mask; LANES]);
                Ok(Course::Next)
            }
            Op::ReadClock { clock, dst } => {
                let now = env.options.budget - env.left + self.warps[warp].executed;
                let value = match clock {
                    Clock::Low | Clock::Whole | Clock::TimerLo | Clock::Timer64 => now,
                    Clock::High | Clock::TimerHi => now >> 32,
                };
                self.warps[warp]
                    .regs(at.frame)
                    .set_any(exec, *dst, &[value; LANES]);
                Ok(Course::Next)
            }
            Op::StackAddress { dst, offset } => {
                let value = u64::from(at.frame.stack + offset);
                self.warps[warp]
                    .regs(at.frame)
                    .set_any(exec, *dst, &[value; LANES]);
                Ok(Course::Next)
            }
        }
    }

    /// Who polls much lets others run; what was left to the cluster is done before anything else.
    #[inline]
    fn after_access(&mut self, env: &Env<'_>, warp: usize, index: usize, pc: Pc) -> Course {
        if env.polls < POLLS && env.mail.is_empty() {
            return Course::Next;
        }
        self.warps[warp].fragments[index].pc = pc + 1;
        Course::Changed
    }

    /// A warp-wide exchange among the lanes of `exec`.
    fn exchange(&mut self, env: &Env<'_>, warp: usize, frame: Frame, pc: Pc, exec: u32) {
        let Some(instr) = env.program.code.get(pc as usize) else {
            return;
        };
        let mut regs = self.warps[warp].regs(frame);
        match &instr.op {
            &Op::Shfl {
                mode,
                dst,
                valid,
                a,
                lane,
                clamp,
                ..
            } => {
                exchange::shfl(
                    &mut regs,
                    exec,
                    &Shfl {
                        mode,
                        dst,
                        valid,
                        a,
                        lane,
                        clamp,
                    },
                );
            }
            &Op::Vote { mode, dst, a, .. } => {
                let bits = regs.pred(a);
                exchange::vote(&mut regs, exec, mode, dst, bits);
            }
            &Op::Match {
                all,
                wide,
                dst,
                valid,
                a,
                ..
            } => {
                exchange::matches(&mut regs, exec, all, wide, dst, valid, a);
            }
            &Op::Redux {
                op, signed, dst, a, ..
            } => exchange::redux(&mut regs, exec, op, signed, dst, a),
            &Op::Transpose { dst, a, .. } => exchange::transpose(&mut regs, exec, dst, a),
            Op::Mma { product, .. }
                if env.options.skip_products && product.c_type == product.d_type =>
            {
                matrix::keep_sums(&mut regs, exec, product);
            }
            Op::Mma { product, .. } => matrix::mma(&mut regs, exec, product, env.arch),
            Op::MmaDouble { product, .. } => matrix::mma_double(&mut regs, exec, product),
            &Op::Elect {
                leader, elected, ..
            } => {
                let first = exec.trailing_zeros();
                regs.set_n(exec, leader, &[first; LANES]);
                regs.set_pred(exec, elected, 1 << (first & 31));
            }
            Op::Alu(_)
            | Op::StackAddress { .. }
            | Op::ReadClock { .. }
            | Op::Load(_)
            | Op::Store(_)
            | Op::Atomic(_)
            | Op::Activemask { .. }
            | Op::Branch { .. }
            | Op::BranchIndexed { .. }
            | Op::Call(_)
            | Op::Return
            | Op::Exit
            | Op::Trap
            | Op::Barrier(_)
            | Op::WarpSync { .. }
            | Op::Fence
            | Op::MoveMatrix(_)
            | Op::Async(_)
            | Op::Nothing => {}
        }
    }

    fn split(&mut self, warp: usize, index: usize, mask: u32, target: Pc) {
        let fragments = &mut self.warps[warp].fragments;
        let Fragment {
            frame, ref callers, ..
        } = fragments[index];
        let callers = callers.clone();
        fragments.push(Fragment {
            pc: target,
            mask,
            frame,
            callers,
            state: State::Running,
        });
    }

    fn branch(
        &mut self,
        warp: usize,
        index: usize,
        pc: Pc,
        mask: u32,
        taken: u32,
        target: Pc,
    ) -> Course {
        if taken == mask {
            return Course::Jump(target);
        }
        self.split(warp, index, taken, target);
        let fragment = &mut self.warps[warp].fragments[index];
        fragment.mask = mask & !taken;
        fragment.pc = pc + 1;
        Course::Changed
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "a group, an instruction and its fields"
    )]
    fn indexed(
        &mut self,
        env: &Env<'_>,
        warp: usize,
        index: usize,
        at: At,
        mask: u32,
        by: u16,
        targets: &[Pc],
    ) -> Result<Course, Stop> {
        let values = self.warps[warp].regs(at.frame).n(by);
        let mut left = at.mask;
        while left != 0 {
            let lane = left.trailing_zeros() as usize;
            let same = (0..LANES)
                .filter(|&l| left >> l & 1 != 0 && values[l] == values[lane])
                .fold(0u32, |m, l| m | 1 << l);
            let Some(&target) = targets.get(values[lane] as usize) else {
                return Err(Stop::Fault(Finding::new(
                    FindingKind::OutOfBounds,
                    env.program.line(at.pc),
                    format!(
                        "branch index {} of a table of {}",
                        values[lane],
                        targets.len()
                    ),
                )));
            };
            self.split(warp, index, same, target);
            left &= !same;
        }
        let fragment = &mut self.warps[warp].fragments[index];
        fragment.mask = mask & !at.mask;
        fragment.pc = at.pc + 1;
        Ok(Course::Changed)
    }

    fn exit(
        &mut self,
        env: &mut Env<'_>,
        warp: usize,
        index: usize,
        pc: Pc,
        mask: u32,
        exec: u32,
    ) -> Course {
        self.warps[warp].live &= !exec;
        self.cluster_leave();
        if self.warps[warp].live == 0 {
            self.abandons(env, warp, pc);
            if self.done() {
                self.ends(env, pc);
            }
        }
        let rest = mask & !exec;
        if rest == 0 {
            self.warps[warp].fragments.swap_remove(index);
        } else {
            let fragment = &mut self.warps[warp].fragments[index];
            fragment.mask = rest;
            fragment.pc = pc + 1;
        }
        self.settle_all(env);
        Course::Changed
    }

    fn call(
        &mut self,
        env: &Env<'_>,
        warp: usize,
        index: usize,
        at: At,
        mask: u32,
        call: &Call,
    ) -> Result<Course, Stop> {
        if at.mask != mask {
            self.split(warp, index, mask & !at.mask, at.pc + 1);
            self.warps[warp].fragments[index].mask = at.mask;
        }
        let depth = self.warps[warp].fragments[index].callers.len();
        if depth >= MOST_CALLS {
            return Err(Stop::Fault(Finding::new(
                FindingKind::CallDepth,
                env.program.line(at.pc),
                format!("calls nest deeper than {MOST_CALLS}"),
            )));
        }
        let here = &env.program.functions[at.frame.function];
        let frame = Frame {
            narrow: at.frame.narrow + here.narrow,
            wide: at.frame.wide + here.wide,
            preds: at.frame.preds + here.predicates,
            stack: (at.frame.stack + here.stack).div_ceil(16) * 16,
            function: call.function,
        };
        let place = self.places[warp];
        let state = &mut self.warps[warp];
        state.enter(env.program, frame, at.mask, &place);
        for passed in &call.arguments {
            state.pass(*passed, at.frame, frame, at.mask);
        }
        let fragment = &mut state.fragments[index];
        fragment.callers.push(Caller {
            frame: at.frame,
            pc: at.pc,
        });
        fragment.frame = frame;
        fragment.pc = env.program.functions[call.function].entry;
        Ok(Course::Changed)
    }

    fn leave(
        &mut self,
        env: &Env<'_>,
        warp: usize,
        index: usize,
        pc: Pc,
        mask: u32,
        exec: u32,
    ) -> Course {
        if exec != mask {
            self.split(warp, index, mask & !exec, pc + 1);
            self.warps[warp].fragments[index].mask = exec;
        }
        let state = &mut self.warps[warp];
        let fragment = &mut state.fragments[index];
        let from = fragment.frame;
        let Some(caller) = fragment.callers.pop() else {
            return Course::Changed;
        };
        fragment.frame = caller.frame;
        fragment.pc = caller.pc + 1;
        if let Some(Op::Call(call)) = env.program.code.get(caller.pc as usize).map(|i| &i.op) {
            for passed in &call.results {
                state.pass(*passed, from, caller.frame, exec);
            }
        }
        Course::Changed
    }
}

impl super::warp::Warp {
    /// Copies one argument or result between frames.
    fn pass(&mut self, passed: Passed, from: Frame, to: Frame, mask: u32) {
        match passed {
            Passed::Stack {
                from: source,
                to: target,
                bytes,
            } => {
                for word in 0..bytes.div_ceil(4) {
                    let source = ((from.stack + source) / 4 + word) as usize;
                    let target = ((to.stack + target) / 4 + word) as usize;
                    let row = self.stack[source];
                    let defined = self.stack_defined[source];
                    for (lane, value) in row.into_iter().enumerate() {
                        if mask >> lane & 1 != 0 {
                            self.stack[target][lane] = value;
                        }
                    }
                    self.stack_defined[target] =
                        self.stack_defined[target] & !mask | defined & mask;
                }
            }
            Passed::Register {
                from: source,
                to: target,
            } => {
                let values: Wide = self.regs(from).any(source);
                self.regs(to).set_any(mask, target, &values);
            }
            Passed::Predicate {
                from: source,
                to: target,
            } => {
                let bits = self.regs(from).pred(Pred {
                    slot: source,
                    negated: false,
                });
                self.regs(to).set_pred(mask, target, bits);
            }
        }
    }
}

fn out_of_budget(env: &Env<'_>, pc: Pc) -> Stop {
    Stop::Hung(vec![
        Finding::new(
            FindingKind::Budget,
            env.program.line(pc),
            format!(
                "the launch had not ended after {} warp instructions; it was here",
                env.options.budget
            ),
        )
        .help(
            "look for a loop that never ends, or for threads that wait for others that cannot run",
        ),
    ])
}
