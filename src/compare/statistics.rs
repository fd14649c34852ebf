//! Paired comparison of two methods over the seeds they share.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use serde::Serialize;

/// Resamples of the bootstrap.
const RESAMPLES: usize = 10_000;

/// One method against another, over the same seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Paired {
    /// Seeds.
    pub pairs: usize,
    /// Geometric mean of the other's time ÷ this one's: above 1, this one is faster.
    pub ratio: f64,
    /// Its 95 % interval.
    pub low: f64,
    /// See `low`.
    pub high: f64,
    /// Two-sided, of no difference; never below what the signs of so many pairs can say.
    pub p: f64,
}

/// From ln(other's time ÷ this one's), a value a seed; `None` below two seeds. Resampling over seeds, always
/// with the same draws.
pub fn paired(differences: &[f64]) -> Option<Paired> {
    let count = differences.len();
    if count < 2 {
        return None;
    }
    let mut rng = Pcg64::seed_from_u64(0);
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let sum: f64 = (0..count)
                .map(|_| differences[rng.random_range(0..count)])
                .sum();
            sum / count as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    let share = |holds: &dyn Fn(f64) -> bool| {
        let count = means.iter().filter(|mean| holds(**mean)).count();
        (count + 1) as f64 / (RESAMPLES + 1) as f64
    };
    let p = 2.0 * share(&|mean| mean <= 0.0).min(share(&|mean| mean >= 0.0));
    let mean = differences.iter().sum::<f64>() / count as f64;
    Some(Paired {
        pairs: count,
        ratio: mean.exp(),
        low: means[RESAMPLES / 40].exp(),
        high: means[RESAMPLES - 1 - RESAMPLES / 40].exp(),
        // few pairs cannot say more than their signs
        p: p.max(0.5_f64.powi(count as i32 - 1)).min(1.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clear_difference_is_told_from_none() {
        let clear: Vec<f64> = (0..20)
            .map(|seed| 0.2 + 0.01 * f64::from(seed % 5))
            .collect();
        let clear = paired(&clear).expect("pairs");
        assert!(clear.p < 0.001 && clear.low > 1.2 && clear.ratio < clear.high);
        let none: Vec<f64> = (0..20)
            .map(|seed| if seed % 2 == 0 { 0.1 } else { -0.1 })
            .collect();
        let none = paired(&none).expect("pairs");
        assert!(
            none.p > 0.5 && none.low < 1.0 && none.high > 1.0,
            "{none:?}"
        );
        assert_eq!(paired(&[0.0; 8]).map(|equal| equal.p), Some(1.0));
        let two = paired(&[0.3, 0.2]).map(|two| two.p);
        assert_eq!(two, Some(0.5), "two pairs say little");
        assert_eq!(paired(&[0.3]), None);
    }
}
