//! The numbers the process is fitted to: normal scores of ranks, or log times for comparison.

use super::Trial;
use crate::search::earlier::{normal_scores, standardised};
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
            Surrogate::RankGp | Surrogate::Uniform => {
                let values: Vec<_> = ranking.iter().map(|&trial| trials[trial].value).collect();
                normal_scores(&values)
            }
            Surrogate::LogTimeGp => log_times(trials, ranking),
        };
        let mut by_trial = vec![None; trials.len()];
        for (&trial, target) in ranking.iter().zip(standardised(raw)) {
            by_trial[trial] = Some(target);
        }
        Self { by_trial }
    }

    /// A judged trial's target; what was believed of one in flight.
    pub(super) fn of_trial(&self, trials: &[Trial], trial: usize) -> f64 {
        self.by_trial[trial].unwrap_or(trials[trial].belief)
    }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::search::params::TunerParams;
    use crate::search::tuner::Tuner;
    use crate::source::Source;
    use crate::units::Nanos;

    /// The targets of these times in the order told; `None` fails.
    fn targets(surrogate: Surrogate, times: &[Option<f64>]) -> Vec<f64> {
        let source = Source::parse("//@ knob a = 1 in {1, 2, 3, 4, 5, 6, 7, 8}\n");
        let source = Arc::new(source.expect("the test's source parses"));
        let mut tuner = Tuner::new(source, Vec::new(), &[], &TunerParams::default(), 0);
        for time in times {
            let point = tuner.ask().expect("a setting is left");
            let time = time.and_then(Nanos::new);
            tuner.tell(
                &point,
                time.map_or(Value::Failed, |time| Value::valid(time, 1.0)),
            );
        }
        let targets = Targets::new(surrogate, &tuner.trials, &tuner.ranking);
        (0..times.len())
            .map(|trial| targets.of_trial(&tuner.trials, trial))
            .collect()
    }

    #[test]
    fn ranks_become_normal_scores_whatever_the_times() {
        let even = targets(Surrogate::RankGp, &[1.0, 2.0, 3.0, 4.0, 5.0].map(Some));
        let odd = targets(Surrogate::RankGp, &[1.0, 1.1, 1.2, 9.0, 1e6].map(Some));
        assert_eq!(even, odd);
        let gaps: Vec<f64> = even.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps[0] > 1.3 * gaps[1], "the best stands apart: {gaps:?}");
        let square: f64 = even.iter().map(|x| x * x).sum();
        assert!(even.iter().sum::<f64>().abs() < 1e-9 && (square - 5.0).abs() < 1e-9);
    }

    #[test]
    fn failures_are_equals_and_last() {
        let got = targets(Surrogate::RankGp, &[None, Some(2.0), None, Some(1.0)]);
        assert_eq!(got[0], got[2]);
        assert!(got[3] < got[1] && got[1] < got[0]);
        let all = targets(Surrogate::RankGp, &[None, None]);
        assert_eq!(all, [0.0, 0.0], "nothing to tell apart");
    }
}
