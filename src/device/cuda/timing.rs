//! The statistics of timing: what raw samples allow to be said. Pure: nothing here runs or measures.
//!
//! Two kernels are compared by replays in the order A B B A A B B A …; each adjacent pair gives
//! d = ln(t_B / t_A), in which drift and throttling cancel. The median of d has an exact interval from the
//! binomial distribution (no normality assumed: outliers are the rule). Looks are few and each has its own
//! share of the error, so that stopping early stays honest.

use statrs::distribution::{Binomial, DiscreteCDF};

/// How a comparison proceeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Pairs after which to look, ascending.
    pub looks: Vec<u32>,
    /// Error allowed at each look.
    pub alpha: f64,
    /// After the first few pairs: B is dropped when all of it is this many times slower than all of A.
    pub gate: f64,
    /// |ln ratio| below which nothing is claimed: the noise floor of an A/A test, or 0.
    pub floor: f64,
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            looks: vec![8, 16, 32, 64],
            alpha: 0.0125,
            gate: 1.5,
            floor: 0.0,
        }
    }
}

/// Pairs before the gate is tried.
pub const GATE_PAIRS: u32 = 3;

/// What the samples so far say of B against A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// B is faster, beyond noise.
    Faster,
    /// B is slower, beyond noise.
    Slower,
    /// No difference that may be claimed after all looks.
    Tie,
}

/// The median of a statistic and its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Median.
    pub median: f64,
    /// Low end of the interval.
    pub low: f64,
    /// High end of the interval.
    pub high: f64,
}

impl Estimate {
    /// Half of the interval's width.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// Indices of the calls to replay for `pairs` pairs: A B, B A, A B, …; continue with `first` = pairs so far.
pub fn abba(first: u32, pairs: u32) -> Vec<u8> {
    (first..first + pairs)
        .flat_map(|pair| if pair % 2 == 0 { [0, 1] } else { [1, 0] })
        .collect()
}

/// Splits the samples of [`abba`] from pair 0 on into those of A and those of B, pair by pair.
pub fn split(samples: &[f64]) -> (Vec<f64>, Vec<f64>) {
    samples
        .chunks_exact(2)
        .enumerate()
        .map(|(pair, two)| {
            if pair % 2 == 0 {
                (two[0], two[1])
            } else {
                (two[1], two[0])
            }
        })
        .unzip()
}

/// ln(t_B / t_A), pair by pair. Pairs with a time that is not positive and finite are left out: a clock
/// that read nothing says nothing.
pub fn log_ratios(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter()
        .zip(b)
        .map(|(a, b)| (b / a).ln())
        .filter(|d| d.is_finite())
        .collect()
}

/// The `p`-quantile (0 to 1) by linear interpolation; `None` for no samples.
pub fn quantile(samples: &[f64], p: f64) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let position = p.clamp(0.0, 1.0) * last as f64;
    let below = position.floor() as usize;
    let above = position.ceil() as usize;
    Some(sorted[below] + (sorted[above] - sorted[below]) * position.fract())
}

/// The median; `None` for no samples.
pub fn median(samples: &[f64]) -> Option<f64> {
    quantile(samples, 0.5)
}

/// The median with an exact interval of error at most `alpha`; `None` where too few samples allow none.
pub fn estimate(samples: &[f64], alpha: f64) -> Option<Estimate> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as u64;
    let binomial = Binomial::new(0.5, n).ok()?;
    // the widest cut k from both ends such that the median lies outside with at most alpha
    let cut = (0..n / 2)
        .take_while(|&k| 2.0 * binomial.cdf(k) <= alpha)
        .last()? as usize;
    Some(Estimate {
        median: median(&sorted)?,
        low: sorted[cut],
        high: sorted[sorted.len() - 1 - cut],
    })
}

/// What may be said after `pairs` pairs; `None`: go on.
pub fn judge(rule: &Rule, a: &[f64], b: &[f64]) -> Option<Outcome> {
    let pairs = a.len().min(b.len()) as u32;
    if pairs >= GATE_PAIRS && all_slower(rule.gate, a, b) {
        return Some(Outcome::Slower);
    }
    let last = rule.looks.last().copied().unwrap_or(0);
    if !rule.looks.contains(&pairs) && pairs < last {
        return None;
    }
    let decided = estimate(&log_ratios(a, b), rule.alpha).and_then(|d| {
        if d.high < 0.0 && d.median < -rule.floor {
            Some(Outcome::Faster)
        } else if d.low > 0.0 && d.median > rule.floor {
            Some(Outcome::Slower)
        } else {
            None
        }
    });
    decided.or((pairs >= last).then_some(Outcome::Tie))
}

/// The noise floor that an A/A comparison shows: |median d| and the half-width of its interval together.
pub fn noise_floor(a: &[f64], b: &[f64], alpha: f64) -> Option<f64> {
    estimate(&log_ratios(a, b), alpha).map(|d| d.median.abs() + d.half_width())
}

/// Whether the median is known to within `relative` (half-width over median) with error at most `alpha`.
pub fn settled(samples: &[f64], relative: f64, alpha: f64) -> bool {
    estimate(samples, alpha).is_some_and(|e| e.half_width() <= relative * e.median)
}

/// Largest relative departure of the SM clock from its median, over the readings round each block.
pub fn clock_spread(readings: &[(f64, f64)]) -> Option<f64> {
    let all: Vec<f64> = readings.iter().flat_map(|&(a, b)| [a, b]).collect();
    let middle = median(&all)?;
    all.iter()
        .map(|clock| (clock / middle - 1.0).abs())
        .reduce(f64::max)
}

fn all_slower(factor: f64, a: &[f64], b: &[f64]) -> bool {
    let slowest_a = a.iter().copied().reduce(f64::max);
    let fastest_b = b.iter().copied().reduce(f64::min);
    matches!((slowest_a, fastest_b), (Some(a), Some(b)) if b > factor * a)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    /// Pairs of times: `ratio` = t_B / t_A, noise of `sigma` on each, one outlier in 20, and a drift that
    /// slows everything by a third over the run.
    fn samples(seed: u64, pairs: usize, ratio: f64, sigma: f64) -> (Vec<f64>, Vec<f64>) {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut noise = || {
            let sum: f64 = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
            let outlier = if rng.random::<f64>() < 0.05 { 2.0 } else { 1.0 };
            (sum * sigma).exp() * outlier
        };
        (0..pairs)
            .map(|i| {
                let drift = 1.0 + i as f64 / pairs as f64 / 3.0;
                (100.0 * drift * noise(), 100.0 * drift * ratio * noise())
            })
            .unzip()
    }

    /// Looks one after the other, as the device does.
    fn outcome(rule: &Rule, a: &[f64], b: &[f64]) -> (Outcome, usize) {
        for pairs in 1..=a.len() {
            if let Some(outcome) = judge(rule, &a[..pairs], &b[..pairs]) {
                return (outcome, pairs);
            }
        }
        panic!("no outcome after {} pairs", a.len());
    }

    #[test]
    fn order_is_abba_and_splits_back() {
        assert_eq!(abba(0, 4), [0, 1, 1, 0, 0, 1, 1, 0]);
        assert_eq!([abba(0, 3), abba(3, 1)].concat(), abba(0, 4));
        let (a, b) = split(&[1.0, 2.0, 20.0, 10.0, 100.0, 200.0]);
        assert_eq!((a, b), (vec![1.0, 10.0, 100.0], vec![2.0, 20.0, 200.0]));
    }

    #[test]
    fn a_real_difference_is_found_through_drift_and_outliers() {
        let rule = Rule::default();
        for seed in 0..50 {
            let (a, b) = samples(seed, 64, 0.97, 0.005);
            assert_eq!(outcome(&rule, &a, &b).0, Outcome::Faster, "seed {seed}");
            assert_eq!(outcome(&rule, &b, &a).0, Outcome::Slower, "seed {seed}");
        }
    }

    #[test]
    fn equal_kernels_tie_but_for_the_error_allowed() {
        let rule = Rule::default();
        let wrong = (0..400)
            .filter(|&seed| {
                let (a, b) = samples(seed, 64, 1.0, 0.01);
                outcome(&rule, &a, &b).0 != Outcome::Tie
            })
            .count();
        assert!(
            wrong <= 400 / 20,
            "{wrong} of 400 A/A runs claim a difference"
        );
    }

    #[test]
    fn nothing_below_the_noise_floor_is_claimed() {
        let (a, b) = samples(1, 64, 0.995, 0.0005);
        let rule = Rule::default();
        assert_eq!(outcome(&rule, &a, &b).0, Outcome::Faster);
        let rule = Rule {
            floor: 0.01,
            ..rule
        };
        assert_eq!(outcome(&rule, &a, &b).0, Outcome::Tie);
    }

    #[test]
    fn a_much_slower_candidate_costs_few_pairs() {
        let (a, b) = samples(3, 64, 4.0, 0.01);
        let (outcome, pairs) = outcome(&Rule::default(), &a, &b);
        assert_eq!(outcome, Outcome::Slower);
        assert_eq!(pairs, GATE_PAIRS as usize);
    }

    #[test]
    fn a_clear_difference_stops_at_the_first_look() {
        let (a, b) = samples(4, 64, 0.8, 0.001);
        let rule = Rule::default();
        let clean: Vec<f64> = a.iter().map(|_| 100.0).collect();
        let faster: Vec<f64> = b.iter().map(|_| 80.0).collect();
        assert_eq!(outcome(&rule, &clean, &faster), (Outcome::Faster, 8));
    }

    #[test]
    fn the_interval_is_that_of_the_sign_test() {
        // eight samples: 2 / 2^8 = 0.0078 lies outside the whole range, 18 / 2^8 outside the next
        let eight: Vec<f64> = (1..=8).map(f64::from).collect();
        let whole = estimate(&eight, 0.0125).expect("eight are enough");
        assert_eq!((whole.low, whole.median, whole.high), (1.0, 4.5, 8.0));
        assert!(estimate(&eight[..7], 0.0125).is_none(), "2 / 2^7 is more");
    }

    #[test]
    fn times_that_are_no_times_are_left_out() {
        assert_eq!(log_ratios(&[1.0, 0.0, 2.0], &[1.0, 1.0, f64::NAN]), [0.0]);
        assert_eq!(median(&[]), None);
        assert_eq!(estimate(&[], 0.5), None);
        assert_eq!(clock_spread(&[]), None);
    }

    #[test]
    fn the_noise_floor_grows_with_the_noise() {
        let floor = |sigma| {
            let (a, b) = samples(5, 64, 1.0, sigma);
            noise_floor(&a, &b, 0.0125).expect("64 pairs are enough")
        };
        assert!(floor(0.001) < 0.003);
        assert!(floor(0.03) > floor(0.001) * 5.0);
    }

    #[test]
    fn settled_means_a_narrow_interval() {
        let steady: Vec<f64> = (0..16).map(|i| 100.0 + f64::from(i % 3) * 0.05).collect();
        assert!(settled(&steady, 0.003, 0.0125));
        let wild: Vec<f64> = (0..16).map(|i| 100.0 + f64::from(i * 7 % 16)).collect();
        assert!(!settled(&wild, 0.003, 0.0125));
        assert!(!settled(&[], 0.003, 0.0125));
    }

    #[test]
    fn a_throttled_clock_shows() {
        let spread = clock_spread(&[(1980.0, 1980.0), (1980.0, 1650.0)]).expect("readings");
        assert!((spread - 1.0 / 6.0).abs() < 1e-9);
    }
}
