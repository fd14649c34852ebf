//! Timing from the parent's side: which replays to ask for, when to stop, and what the samples mean.
//! Raw samples are always handed on.

use std::time::Duration;

use super::conversation::{Conversation, slack, unexpected};
use super::protocol::{Checked, Prepared, Replay, Reply, Request};
use super::timing::{
    self, Estimate, GATE_PAIRS, Outcome, Rule, clock_spread, estimate, judge, log_ratios, settled,
};
use super::{Call, CudaDevice, State, Stop, Stopped, Subject};
use crate::device::{Device, Ended, RigError, Timed, Timing};
use crate::units::{Bytes, Nanos};
use crate::verdict::Time;

/// Rotated sets hold this many times the L2 cache together.
const L2_MULTIPLE: u64 = 5;

/// Error allowed when a median counts as settled.
const SETTLED_ALPHA: f64 = 0.05;

/// Most rounds of warming up.
const WARM_UP_ROUNDS: u32 = 20;

/// A clock that moves by less in a round stands still.
const STEADY_CLOCK: f64 = 0.005;

/// Share of the highest clock below which power or heat holds the clock down.
const CAPPED_CLOCK: f64 = 0.97;

/// Samples of a call that the GPU slows down for, and how long it rests before each: at a duty of a tenth it
/// shows its burst time, whatever ran before.
const BURSTS: u32 = 12;
const REST_PER_WORK: f64 = 9.0;
const FIRST_REST: Duration = Duration::from_millis(100);

/// How long a call runs at full load before it is timed, and then while it is: the clock settles in the first.
const FULL_LOAD: Duration = Duration::from_millis(250);

/// Share of the highest clock below which a GPU still sleeps.
const AWAKE_CLOCK: f64 = 0.6;

/// How candidates are timed.
#[derive(Clone, Debug)]
pub struct Sampling {
    /// A replay takes at least this.
    pub replay: Duration,
    /// Replays of each call in a round of warming up, thrown away.
    pub warmup: u32,
    /// Fewest samples.
    pub least: u32,
    /// Most samples.
    pub most: u32,
    /// Samples are enough when the median's interval is this narrow: half-width over median.
    pub settled: f64,
    /// Never more rotated sets than this.
    pub max_sets: u32,
    /// No further samples after about this long: a kernel that takes seconds is not worth more.
    pub budget: Duration,
}

/// How hard a GPU works while a call is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    /// In bursts with rests, where power would hold the clock down.
    Eased,
    /// Without a rest, and so before it.
    Full,
}

/// How many replays a timing of one call takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Course {
    /// In a round of warming up.
    warmup: u32,
    /// Rounds of warming up at most.
    rounds: u32,
    /// Between two looks at the samples.
    block: u32,
    /// At most.
    most: u32,
}

impl Sampling {
    /// What is affordable for replays of `replay_ns` nanoseconds: all that is asked for short ones, two
    /// samples for those beyond the budget.
    fn course(&self, replay_ns: f64) -> Course {
        let affordable = (self.budget.as_nanos() as f64 / replay_ns.max(1.0)) as u32;
        let least = self.least.max(2);
        Course {
            warmup: self.warmup.min(affordable / 8).max(1),
            rounds: WARM_UP_ROUNDS.min(affordable / 16).max(1),
            block: least.min(affordable).max(2),
            most: self.most.max(least).min(affordable).max(2),
        }
    }
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            replay: Duration::from_micros(400),
            warmup: 4,
            least: 8,
            most: 32,
            settled: 0.002,
            max_sets: 64,
            budget: Duration::from_secs(1),
        }
    }
}

/// Which of two jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first: incumbent or baseline.
    A,
    /// The second: the candidate.
    B,
}

/// How a comparison went.
#[derive(Clone, Debug)]
pub enum Compared {
    /// Both were timed.
    Timed(Box<Comparison>),
    /// One did not come that far.
    Stopped(Side, Ended),
}

/// Two jobs, interleaved A B B A.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// B against A.
    pub outcome: Outcome,
    /// ln(t_B / t_A): median and interval; `None` when the gate dropped B before there was one.
    pub log_ratio: Option<Estimate>,
    /// Nanoseconds per call of A, pair by pair.
    pub a: Vec<f64>,
    /// Nanoseconds per call of B, pair by pair.
    pub b: Vec<f64>,
    /// SM clock in MHz before and after each block of replays.
    pub clock_mhz: Vec<(f64, f64)>,
    /// What the checks of A's and B's timed calls found.
    pub checked: [Checked; 2],
    /// How the replays of A and B were set up.
    pub prepared: [Prepared; 2],
}

/// Replays at the caller's call: subjects that are loaded, verified against themselves and warm.
pub struct Replays<'s, 'c, 'l> {
    timer: &'s mut Timer<'c, 'l>,
}

/// Why replays did not come.
pub struct Halt(Stop);

impl From<RigError> for Halt {
    fn from(error: RigError) -> Self {
        Self(Stop::Rig(error.to_string()))
    }
}

impl Replays<'_, '_, '_> {
    /// Times one replay for each entry of `order` (an index among the subjects): nanoseconds per call, and
    /// the SM clock in MHz just before and just after.
    pub fn block(&mut self, order: Vec<u8>) -> Result<(Vec<f64>, (f64, f64)), Halt> {
        self.timer.sample(order).map_err(Halt)?;
        let clock = self.timer.clock_mhz.pop().unwrap_or_default();
        Ok((std::mem::take(&mut self.timer.samples), clock))
    }

    /// Nanoseconds that one replay of a subject takes: rough.
    pub fn rough_ns(&self, subject: u8) -> f64 {
        self.timer
            .prepared
            .get(usize::from(subject))
            .map_or(1.0, replay_ns)
    }
}

/// What replays came to: the caller's value and what the checks of each subject's timed calls found; or
/// which subject did not come that far, and how it ended.
pub type Replayed<T> = Result<(T, Vec<Checked>), (u8, Ended)>;

impl CudaDevice {
    /// Makes subjects ready, warms them up and lets `replay` time them in any order it likes. It may be
    /// called again from the start, when a worker died.
    pub fn replay_with<T>(
        &self,
        subjects: &[Subject<'_>],
        mut replay: impl FnMut(&mut Replays<'_, '_, '_>) -> Result<T, Halt>,
    ) -> Result<Replayed<T>, RigError> {
        let set_up = self.replay();
        let mut state = self.lock();
        let done = self.converse(&mut state, subjects, |conversation, calls| {
            let wanted = calls.len();
            let prepared = conversation.prepare(calls, set_up)?;
            if prepared.len() != wanted {
                return Err(miscounted(wanted, prepared.len()));
            }
            let all: f64 = prepared.iter().map(replay_ns).sum();
            let mut timer = Timer {
                conversation,
                prepared,
                samples: Vec::new(),
                clock_mhz: Vec::new(),
            };
            timer.warm_up(self.options.sampling.course(all), self.gpu().sm_clock_mhz)?;
            let value = replay(&mut Replays { timer: &mut timer }).map_err(|halt| halt.0)?;
            Ok((value, timer.finish()?))
        })?;
        Ok(done.map_err(|(index, stopped)| (index, stopped.ended())))
    }

    /// Times two jobs against each other. A in `a` is the incumbent or baseline; `rule` says when to look
    /// and what to claim.
    pub fn compare_times(
        &self,
        a: Subject<'_>,
        b: Subject<'_>,
        rule: &Rule,
    ) -> Result<Compared, RigError> {
        let replay = self.replay();
        let mut state = self.lock();
        let done = self.converse(&mut state, &[a, b], |conversation, calls| {
            let prepared = conversation.prepare(calls, replay)?;
            let [a, b] = prepared[..] else {
                return Err(miscounted(2, prepared.len()));
            };
            let mut timer = Timer {
                conversation,
                prepared: vec![a, b],
                samples: Vec::new(),
                clock_mhz: Vec::new(),
            };
            let course = self.options.sampling.course(replay_ns(&a) + replay_ns(&b));
            timer.warm_up(course, self.gpu().sm_clock_mhz)?;
            let mut pairs = 0;
            let (outcome, times) = loop {
                let goal = next_goal(rule, pairs);
                timer.sample(timing::abba(pairs, goal - pairs))?;
                pairs = goal;
                let (a, b) = timing::split(&timer.samples);
                if let Some(outcome) = judge(rule, &a, &b) {
                    break (outcome, (a, b));
                }
            };
            let clock_mhz = std::mem::take(&mut timer.clock_mhz);
            let checked = timer.finish()?;
            let Ok(checked) = <[Checked; 2]>::try_from(checked) else {
                return Err(miscounted(2, 1));
            };
            Ok(Comparison {
                outcome,
                log_ratio: estimate(&log_ratios(&times.0, &times.1), rule.alpha),
                a: times.0,
                b: times.1,
                clock_mhz,
                checked,
                prepared: [a, b],
            })
        })?;
        Ok(match done {
            Ok(comparison) => Compared::Timed(Box::new(comparison)),
            Err((index, stopped)) => {
                let side = if index == 0 { Side::A } else { Side::B };
                Compared::Stopped(side, stopped.ended())
            }
        })
    }

    /// Times a job against itself: the |ln ratio| below which nothing should be claimed in this run.
    pub fn noise_floor(&self, job: Subject<'_>, pairs: u32) -> Result<Option<f64>, RigError> {
        let rule = Rule {
            looks: vec![pairs],
            gate: f64::INFINITY,
            ..Rule::default()
        };
        Ok(match self.compare_times(job, job, &rule)? {
            Compared::Timed(c) => timing::noise_floor(&c.a, &c.b, rule.alpha),
            Compared::Stopped(..) => None,
        })
    }

    pub(super) fn time_locked(
        &self,
        state: &mut State,
        job: Subject<'_>,
        duty: Duty,
    ) -> Result<Timing, RigError> {
        let replay = self.replay();
        let sampling = &self.options.sampling;
        let done = self.converse(state, &[job], |conversation, calls| {
            let prepared = conversation.prepare(calls, replay)?;
            let [only] = prepared[..] else {
                return Err(miscounted(1, prepared.len()));
            };
            let mut timer = Timer {
                conversation,
                prepared,
                samples: Vec::new(),
                clock_mhz: Vec::new(),
            };
            let course = sampling.course(replay_ns(&only));
            timer.warm_up(course, self.gpu().sm_clock_mhz)?;
            let mut bursts = false;
            match duty {
                Duty::Full => timer.full_load()?,
                Duty::Eased => loop {
                    timer.sample(vec![0; course.block as usize])?;
                    if timer.capped(self.gpu().sm_clock_mhz) {
                        timer.bursts(course.most)?;
                        bursts = true;
                        break;
                    }
                    let enough = settled(&timer.samples, sampling.settled, SETTLED_ALPHA);
                    if enough || timer.samples.len() >= course.most as usize {
                        break;
                    }
                },
            }
            let samples = std::mem::take(&mut timer.samples);
            let clock_mhz = std::mem::take(&mut timer.clock_mhz);
            let mut checked = timer.finish()?;
            let checked = checked.pop().unwrap_or_default();
            let median = timing::median(&samples)
                .and_then(Nanos::new)
                .ok_or_else(|| Stop::Rig("the GPU's clock read no time".to_owned()))?;
            Ok(Timed {
                notes: notes(&only, replay, &samples, &clock_mhz, bursts),
                time: Time::Measured {
                    median,
                    samples,
                    gpu: self.gpu().name.clone(),
                },
                diagnosis: None,
                floor: None,
                unsteady: checked.unsteady,
                violations: checked.violations,
                afterwards: timing::median(&checked.nanos).and_then(Nanos::new),
                left: checked
                    .left
                    .into_iter()
                    .map(|left| (left.output, left.bytes))
                    .collect(),
            })
        })?;
        Ok(match done {
            Ok(timed) => Timing::Timed(Box::new(timed)),
            Err((_, Stopped::Hung(diagnostics))) => Timing::Hung(diagnostics),
            Err((_, Stopped::Faulted(diagnostics))) => Timing::Faulted(diagnostics),
            Err((_, Stopped::Refused(message))) => Timing::Refused(message),
        })
    }

    fn replay(&self) -> Replay {
        Replay {
            target_ns: self.options.sampling.replay.as_nanos() as f64,
            rotate_bytes: L2_MULTIPLE * self.gpu().l2.0,
            max_sets: self.options.sampling.max_sets,
        }
    }
}

impl Conversation<'_> {
    fn prepare(&mut self, calls: Vec<Call>, replay: Replay) -> Result<Vec<Prepared>, Stop> {
        match self.ask(&Request::Prepare { calls, replay })? {
            Reply::Prepared(prepared) => Ok(prepared),
            other => Err(unexpected("Prepare", &other)),
        }
    }
}

/// A timing under way.
struct Timer<'c, 'l> {
    conversation: &'c mut Conversation<'l>,
    prepared: Vec<Prepared>,
    samples: Vec<f64>,
    clock_mhz: Vec<(f64, f64)>,
}

impl Timer<'_, '_> {
    /// Replays until the SM clock stands still and is no longer that of an idle GPU, or for long enough: a
    /// power-limited GPU never reaches it.
    fn warm_up(&mut self, course: Course, full_mhz: f64) -> Result<(), Stop> {
        let calls = self.prepared.len() as u32;
        for _ in 0..course.rounds {
            let order = (0..course.warmup * calls)
                .map(|i| (i % calls) as u8)
                .collect();
            self.sample(order)?;
            self.samples.clear();
            let awake = self.clock_mhz.iter().all(|(before, after)| {
                (after / before - 1.0).abs() < STEADY_CLOCK && *after > AWAKE_CLOCK * full_mhz
            });
            self.clock_mhz.clear();
            if awake {
                break;
            }
        }
        Ok(())
    }

    fn sample(&mut self, order: Vec<u8>) -> Result<(), Stop> {
        let Some(&first) = order.first() else {
            return Ok(());
        };
        let wanted = order.len();
        let expected: f64 = order
            .iter()
            .filter_map(|&i| self.prepared.get(usize::from(i)))
            .map(replay_ns)
            .sum();
        self.conversation.send(&Request::Sample { order })?;
        let reply = self.conversation.answer(Some((first, slack(expected))))?;
        let Reply::Sampled { nanos, clock_mhz } = reply else {
            return Err(unexpected("Sample", &reply));
        };
        if nanos.len() != wanted {
            return Err(miscounted(wanted, nanos.len()));
        }
        // a time that is no time ends the timing here, not as a strange median later
        if let Some(bad) = nanos.iter().find(|ns| !(ns.is_finite() && **ns > 0.0)) {
            return Err(Stop::Rig(format!(
                "the GPU's clock read {bad} ns for a call"
            )));
        }
        self.samples.extend(nanos);
        self.clock_mhz.push(clock_mhz);
        Ok(())
    }

    /// Whether the clock was held down around the latest replays.
    fn capped(&self, full_mhz: f64) -> bool {
        let low = CAPPED_CLOCK * full_mhz;
        self.clock_mhz
            .last()
            .is_some_and(|&(before, after)| before.min(after) < low)
    }

    /// Samples of the only call anew, at most so many, each after a rest. The first replay after a rest wakes
    /// the GPU and does not count.
    fn bursts(&mut self, most: u32) -> Result<(), Stop> {
        self.clock_mhz.clear();
        self.samples.clear();
        let work: f64 = self.prepared.iter().map(replay_ns).sum::<f64>() * 2.0;
        let rest = Duration::from_nanos((REST_PER_WORK * work) as u64);
        std::thread::sleep(FIRST_REST.max(rest));
        let mut counted = Vec::new();
        for _ in 0..BURSTS.min(most) {
            self.sample(vec![0, 0])?;
            counted.extend(self.samples.pop());
            self.samples.clear();
            std::thread::sleep(rest);
        }
        self.samples = counted;
        Ok(())
    }

    /// Samples of the only call anew, after as many that do not count.
    fn full_load(&mut self) -> Result<(), Stop> {
        let work = self.prepared.iter().map(replay_ns).sum::<f64>();
        let count = (FULL_LOAD.as_nanos() as f64 / work).clamp(2.0, 10_000.0) as usize;
        self.sample(vec![0; 2 * count])?;
        self.samples.drain(..count);
        Ok(())
    }

    fn finish(self) -> Result<Vec<Checked>, Stop> {
        match self.conversation.ask(&Request::Finish)? {
            Reply::Finished(checked) if checked.len() == self.prepared.len() => Ok(checked),
            other => Err(unexpected("Finish", &other)),
        }
    }
}

/// Nanoseconds of one replay: rough.
fn replay_ns(prepared: &Prepared) -> f64 {
    prepared.rough_ns * f64::from(prepared.calls)
}

/// Pairs to have before the next judgement.
fn next_goal(rule: &Rule, pairs: u32) -> u32 {
    std::iter::once(GATE_PAIRS)
        .chain(rule.looks.iter().copied())
        .filter(|&goal| goal > pairs)
        .min()
        .unwrap_or(pairs + 1)
}

fn miscounted(wanted: usize, got: usize) -> Stop {
    Stop::Rig(format!(
        "the worker answers for {got} where {wanted} were asked"
    ))
}

fn notes(
    prepared: &Prepared,
    replay: Replay,
    samples: &[f64],
    clock_mhz: &[(f64, f64)],
    bursts: bool,
) -> Vec<String> {
    let cold = if prepared.rotated_bytes >= replay.rotate_bytes {
        "cold cache"
    } else {
        "cache not cold: the sets together are smaller than five times the L2"
    };
    let mut notes = vec![
        format!(
            "{} replays of {} calls over {} rotated sets ({}; {cold}){}",
            samples.len(),
            prepared.calls,
            prepared.sets,
            Bytes(prepared.rotated_bytes),
            if bursts {
                "; the clock was held down under load, so each after nine times as much rest: burst"
            } else {
                ""
            }
        ),
        "outputs of timed calls equal untimed ones by hash, also on inputs that come only afterwards, unless \
         told otherwise"
            .to_owned(),
    ];
    let readings: Vec<f64> = clock_mhz.iter().flat_map(|&(a, b)| [a, b]).collect();
    if let (Some(clock), Some(spread)) = (timing::median(&readings), clock_spread(clock_mhz)) {
        notes.push(format!(
            "SM clock {clock:.0} MHz, within {:.1} %",
            spread * 100.0
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_replays_get_all_samples_and_long_ones_few() {
        let sampling = Sampling::default();
        let short = sampling.course(400e3);
        assert_eq!((short.warmup, short.rounds), (4, WARM_UP_ROUNDS));
        assert_eq!((short.block, short.most), (8, 32));
        let slow = sampling.course(100e6);
        assert_eq!((slow.warmup, slow.rounds), (1, 1));
        assert_eq!((slow.block, slow.most), (8, 10));
        let beyond = sampling.course(3e9);
        assert_eq!((beyond.warmup, beyond.rounds), (1, 1));
        assert_eq!((beyond.block, beyond.most), (2, 2));
    }

    #[test]
    fn judgements_come_at_the_gate_and_at_each_look() {
        let rule = Rule::default();
        let goals: Vec<u32> = std::iter::successors(Some(0), |&pairs| {
            (pairs < 64).then(|| next_goal(&rule, pairs))
        })
        .collect();
        assert_eq!(goals, [0, GATE_PAIRS, 8, 16, 32, 64]);
    }
}
