//! The numbers the process is fitted to: standardised ranks, or log times for comparison.

use super::Trial;
use crate::search::params::Surrogate;
use crate::search::value::Value;

/// One target per judged trial, mean 0 and deviation 1 over them; lower is better.
pub(super) struct Targets {
    /// By trial; `None` while in flight.
    by_trial: Vec<Option<f64>>,
}

impl Targets {
    pub(super) fn new(surrogate: Surrogate, trials: &[Trial], ranking: &[usize]) -> Self {
        let raw = match surrogate {
            Surrogate::RankGp | Surrogate::Uniform => tied_ranks(trials, ranking),
            Surrogate::LogTimeGp => log_times(trials, ranking),
        };
        let n = raw.len().max(1) as f64;
        let mean = raw.iter().sum::<f64>() / n;
        let variance = raw.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        // All alike: nothing to tell apart, every target is the mean.
        let scale = if variance > 0.0 {
            variance.sqrt().recip()
        } else {
            0.0
        };
        let mut by_trial = vec![None; trials.len()];
        for (&trial, x) in ranking.iter().zip(raw) {
            by_trial[trial] = Some((x - mean) * scale);
        }
        Self { by_trial }
    }

    /// A judged trial's target; what was believed of one in flight.
    pub(super) fn of_trial(&self, trials: &[Trial], trial: usize) -> f64 {
        self.by_trial[trial].unwrap_or(trials[trial].belief)
    }
}

/// Rank over count, equals sharing their average rank; failures are equals, and last.
fn tied_ranks(trials: &[Trial], ranking: &[usize]) -> Vec<f64> {
    let n = ranking.len() as f64;
    let mut ranks = Vec::with_capacity(ranking.len());
    for equals in ranking.chunk_by(|&a, &b| trials[a].value == trials[b].value) {
        let average = ranks.len() as f64 + (equals.len() - 1) as f64 / 2.0;
        ranks.extend(std::iter::repeat_n(average / n, equals.len()));
    }
    ranks
}

/// ln of the cost; whatever has none stands with the worst that has one.
fn log_times(trials: &[Trial], ranking: &[usize]) -> Vec<f64> {
    let cost = |&trial: &usize| trials[trial].value.and_then(Value::cost);
    let worst = ranking.iter().rev().find_map(cost);
    ranking
        .iter()
        .map(|trial| cost(trial).or(worst).map_or(0.0, |cost| cost.get().ln()))
        .collect()
}
