//! A **race** of the few best-looking kernels: each is timed again, in turns, until one is ahead beyond noise.
//! A search takes the least of many times, and the least is lucky as well as fast. It times nothing itself.

use serde::{Deserialize, Serialize};

use crate::units::Nanos;
use crate::verdict::Time;

/// How the best-looking are told apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RaceParams {
    /// How many run. Noise seldom hides the best behind more.
    pub runners: u32,
    /// Each is timed at least so often: what differs between timings of one kernel does not show in one.
    pub least: u32,
    /// And at most so often: what is undecided then is a tie, and the least median wins.
    pub most: u32,
    /// Whoever is behind by so many standard errors of the difference is out.
    pub beyond: f64,
}

impl Default for RaceParams {
    fn default() -> Self {
        Self {
            runners: 5,
            least: 2,
            most: 7,
            beyond: 3.0,
        }
    }
}

/// The standard error of a median of n normal samples, in quartile distances over √n: 1.253 / 1.349.
const MEDIAN_ERROR: f64 = 0.929;

/// One more timing of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// The median of its samples, or its only one.
    pub time: Nanos,
    /// Standard error of that by the samples themselves, as a fraction; 0 where there is only one.
    pub error: f64,
}

impl Timing {
    /// Of a call, with the standard error of its median by robust statistics: outliers are the rule.
    pub fn of(time: &Time) -> Self {
        let error = match time {
            Time::Measured {
                median, samples, ..
            } => {
                let mut sorted = samples.clone();
                sorted.sort_by(f64::total_cmp);
                let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
                match sorted.len() {
                    0 | 1 => 0.0,
                    n => MEDIAN_ERROR * (at(0.75) - at(0.25)) / (n as f64).sqrt() / median.get(),
                }
            }
            Time::Estimated { .. } | Time::Recorded { .. } => 0.0,
        };
        Self {
            time: time.nanos(),
            error,
        }
    }
}

/// A race under way.
#[derive(Clone, Debug)]
pub struct Race {
    params: RaceParams,
    runners: Vec<Runner>,
}

#[derive(Clone, Debug)]
struct Runner {
    /// What its time is divided by to rank it.
    factor: f64,
    timings: Vec<Timing>,
    /// It is behind beyond noise, or failed.
    out: bool,
}

impl Race {
    /// Of kernels whose times are divided by these factors to rank them.
    pub fn new(params: RaceParams, factors: impl IntoIterator<Item = f64>) -> Self {
        let runner = |factor| Runner {
            factor,
            timings: Vec::new(),
            out: false,
        };
        Self {
            params,
            runners: factors.into_iter().map(runner).collect(),
        }
    }

    /// Whose turn it is; `None` once the race is decided.
    pub fn next(&self) -> Option<usize> {
        let running = || self.runners.iter().filter(|runner| !runner.out);
        if running().count() < 2 {
            return None;
        }
        let fewest = running().map(|runner| runner.timings.len()).min()?;
        let turn = |runner: &Runner| !runner.out && runner.timings.len() == fewest;
        (fewest < self.params.most as usize).then(|| self.runners.iter().position(turn))?
    }

    /// Takes in what came of a turn; `None`: the kernel failed.
    pub fn tell(&mut self, runner: usize, timing: Option<Timing>) {
        match timing {
            Some(timing) => self.runners[runner].timings.push(timing),
            None => {
                self.runners[runner].out = true;
                self.runners[runner].timings.clear();
            }
        }
        let running = || self.runners.iter().filter(|runner| !runner.out);
        let rounds = running().map(|runner| runner.timings.len());
        let (fewest, latest) = (rounds.clone().min(), rounds.max());
        if fewest == latest && fewest >= Some(self.params.least as usize) {
            self.drop_out();
        }
    }

    /// The times of each, in the order told; none where it failed.
    pub fn times(&self) -> impl Iterator<Item = Vec<Nanos>> + '_ {
        let times = |runner: &Runner| runner.timings.iter().map(|timing| timing.time).collect();
        self.runners.iter().map(times)
    }

    /// Drops whoever is behind the leader beyond noise.
    fn drop_out(&mut self) {
        let between = self.between();
        let standing = |runner: &Runner| {
            let n = runner.timings.len() as f64;
            let own = runner.timings.iter().map(|timing| timing.error.powi(2));
            let variance = between.max(own.sum::<f64>() / n);
            Some((runner.ln_cost()?, variance / n))
        };
        let all: Vec<Option<(f64, f64)>> = self.runners.iter().map(standing).collect();
        let running = std::iter::zip(&self.runners, &all).filter(|(runner, _)| !runner.out);
        let leader = running
            .filter_map(|(_, standing)| *standing)
            .min_by(|a, b| a.0.total_cmp(&b.0));
        let Some((least, error)) = leader else {
            return;
        };
        for (runner, standing) in self.runners.iter_mut().zip(all) {
            runner.out |= standing
                .is_none_or(|(cost, own)| cost - least > self.params.beyond * (own + error).sqrt());
        }
    }

    /// The variance of ln time between timings of one kernel, pooled.
    fn between(&self) -> f64 {
        let (mut squares, mut freedom) = (0.0, 0.0);
        for runner in &self.runners {
            let n = runner.timings.len() as f64;
            let ln = || runner.timings.iter().map(|timing| timing.time.get().ln());
            let mean = ln().sum::<f64>() / n;
            squares += ln().map(|x| (x - mean).powi(2)).sum::<f64>();
            freedom += (n - 1.0).max(0.0);
        }
        if freedom > 0.0 {
            squares / freedom
        } else {
            0.0
        }
    }
}

impl Runner {
    /// ln of its median time over its factor; `None` before any.
    fn ln_cost(&self) -> Option<f64> {
        let times: Vec<Nanos> = self.timings.iter().map(|timing| timing.time).collect();
        Some((median(&times)?.get() / self.factor).ln())
    }
}

/// The middle of some times, the mean of the two in the middle of an even number; `None` of none.
pub fn median(times: &[Nanos]) -> Option<Nanos> {
    let mut sorted: Vec<f64> = times.iter().map(|time| time.get()).collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    Nanos::new((sorted[last / 2] + sorted[last.div_ceil(2)]) / 2.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_distr::{Distribution, LogNormal};
    use rand_pcg::Pcg64;

    use super::*;

    fn timing(time: f64, error: f64) -> Timing {
        let time = Nanos::new(time).expect("a positive time");
        Timing { time, error }
    }

    /// Runs a race; `time` gives the n-th timing of a runner. Returns how often each was timed.
    fn run(race: &mut Race, mut time: impl FnMut(usize, usize) -> Option<Timing>) -> Vec<usize> {
        let mut turns = vec![0; race.runners.len()];
        while let Some(runner) = race.next() {
            race.tell(runner, time(runner, turns[runner]));
            turns[runner] += 1;
        }
        turns
    }

    fn race(runners: usize) -> Race {
        Race::new(RaceParams::default(), vec![1.0; runners])
    }

    fn leader(race: &Race) -> Option<usize> {
        let medians = race.times().map(|times| median(&times));
        let timed = medians.enumerate().filter_map(|(i, time)| Some((time?, i)));
        timed
            .min_by(|a, b| a.0.get().total_cmp(&b.0.get()))
            .map(|(_, runner)| runner)
    }

    #[test]
    fn clear_differences_end_it_after_the_least_of_rounds_in_turns() {
        let mut order = Vec::new();
        let mut clear = race(3);
        while let Some(runner) = clear.next() {
            order.push(runner);
            clear.tell(runner, Some(timing(100.0 + 5.0 * runner as f64, 0.001)));
        }
        assert_eq!(order, [0, 1, 2, 0, 1, 2]);
        assert_eq!(leader(&clear), Some(0));
    }

    #[test]
    fn whoever_is_behind_drops_out_and_a_tie_takes_all_rounds() {
        let mut close = race(3);
        let wobble = [0.0, 0.3, -0.2, 0.1, -0.3, 0.2, 0.0];
        let turns = run(&mut close, |runner, turn| {
            let time = [100.0, 100.05, 110.0][runner] + wobble[(turn + runner) % 7];
            Some(timing(time, 0.0))
        });
        assert_eq!(turns, [7, 7, 2]);
    }

    #[test]
    fn what_a_timing_says_of_itself_counts_where_timings_agree_by_chance() {
        let turns = run(&mut race(2), |runner, _| {
            Some(timing([100.0, 100.5][runner], 0.01))
        });
        assert_eq!(
            turns,
            [7, 7],
            "half a percent is nothing where one percent is noise"
        );
        let turns = run(&mut race(2), |runner, _| {
            Some(timing([100.0, 100.5][runner], 0.0001))
        });
        assert_eq!(turns, [2, 2]);
    }

    #[test]
    fn a_kernel_that_fails_is_out_and_the_last_one_standing_is_timed_no_more() {
        let mut fails = race(2);
        let turns = run(&mut fails, |runner, _| {
            (runner == 1).then(|| timing(100.0, 0.0))
        });
        assert_eq!(turns, [1, 0]);
        assert_eq!(race(1).next(), None);
        assert_eq!(race(0).next(), None);
        let mut all = race(2);
        run(&mut all, |_, _| None);
        assert_eq!(all.times().collect::<Vec<_>>(), [Vec::new(), Vec::new()]);
    }

    #[test]
    fn a_kernel_that_is_worth_half_must_be_twice_as_fast() {
        let mut race = Race::new(RaceParams::default(), [0.5, 1.0]);
        let turns = run(&mut race, |runner, turn| {
            Some(timing([60.0, 100.0][runner] + turn as f64 * 0.01, 0.0))
        });
        assert_eq!(turns, [2, 2]);
        assert!(race.runners[0].out && !race.runners[1].out);
    }

    #[test]
    fn a_timing_knows_its_own_noise() {
        let samples: Vec<f64> = (0..100).map(|i| 1000.0 + f64::from(i % 10)).collect();
        let median = Nanos::new(1004.5).expect("positive");
        let gpu = String::new();
        let measured = Timing::of(&Time::Measured {
            median,
            samples,
            gpu,
        });
        assert!((measured.error - 0.929 * 5.0 / 10.0 / 1004.5).abs() < 1e-5);
        assert_eq!(Timing::of(&Time::Recorded { time: median }).error, 0.0);
    }

    proptest! {
        /// Under noise as large as the gaps the true best seldom drops out.
        #[test]
        fn the_truly_best_wins_or_is_as_good(seed in 0u64..64) {
            let mut rng = Pcg64::seed_from_u64(seed);
            let noise = LogNormal::new(0.0, 0.02).expect("a deviation");
            let truth = [100.0, 102.0, 104.0, 106.0, 130.0];
            let mut noisy = race(5);
            let turns = run(&mut noisy, |runner, _| {
                Some(timing(truth[runner] * noise.sample(&mut rng), 0.0))
            });
            prop_assert!(turns.iter().all(|&turns| (2..=7).contains(&turns)));
            prop_assert!(leader(&noisy).is_some_and(|leader| truth[leader] <= 104.0));
        }
    }
}
