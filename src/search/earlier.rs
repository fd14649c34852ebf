//! What an **earlier** search judged of a source, for a search of another GPU or size to learn from. Ranks
//! alone carry over, never times: those of another GPU mean nothing here.

use serde::{Deserialize, Serialize};
use statrs::function::erf::erf_inv;

use super::value::Value;
use crate::source::Setting;

/// Settings of one source that one run judged, best first, each with how it did among all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Earlier(Vec<Known>);

/// A setting that was judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Known {
    /// By name.
    pub(super) setting: Setting,
    /// The normal score of its rank, mean 0 and deviation 1 over all that were judged; lower is better.
    pub(super) score: f64,
}

impl Earlier {
    /// Of all that was judged, at most `most` are kept: the best and a spread over the ranks.
    pub fn new(judged: impl IntoIterator<Item = (Setting, Value)>, most: usize) -> Self {
        let mut judged: Vec<(Setting, Value)> = judged.into_iter().collect();
        judged.sort_by_key(|&(_, value)| value);
        let values: Vec<Value> = judged.iter().map(|&(_, value)| value).collect();
        let scores = standardised(normal_scores(&values));
        let kept = spread(judged.len(), most);
        let known = |place: usize| Known {
            setting: judged[place].0.clone(),
            score: scores[place],
        };
        Self(kept.map(known).collect())
    }

    /// How many settings.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn known(&self) -> &[Known] {
        &self.0
    }
}

/// At most `most` of `all` places, ascending: the first ones, and from the others one in so many. The best
/// show where to look, the others what not to try.
pub(super) fn spread(all: usize, most: usize) -> impl Iterator<Item = usize> {
    let first = if all <= most { all } else { most.div_ceil(2) };
    let (others, wanted) = (all - first, most.min(all) - first);
    let one_in_so_many = (0..wanted).map(move |nth| first + (2 * nth + 1) * others / (2 * wanted));
    (0..first).chain(one_in_so_many)
}

/// The normal quantile of each rank: what a Gaussian process expects of its targets whatever the times'
/// distribution, and the best few stand apart as they do not where ranks are spaced evenly. Equals share
/// their average rank; failures are equals, and last. `ranked` is best first.
pub(super) fn normal_scores<T: PartialEq>(ranked: &[T]) -> Vec<f64> {
    let n = ranked.len() as f64;
    let mut scores = Vec::with_capacity(ranked.len());
    for equals in ranked.chunk_by(|a, b| a == b) {
        let average = scores.len() as f64 + (equals.len() - 1) as f64 / 2.0;
        let below = (average + 0.5) / n;
        let score = erf_inv(2.0 * below - 1.0);
        scores.extend(std::iter::repeat_n(score, equals.len()));
    }
    scores
}

/// Mean 0 and deviation 1; all 0 where all are alike: there is nothing to tell apart.
pub(super) fn standardised(mut scores: Vec<f64>) -> Vec<f64> {
    let n = scores.len().max(1) as f64;
    let mean = scores.iter().sum::<f64>() / n;
    let variance = scores.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    let scale = if variance > 0.0 {
        variance.sqrt().recip()
    } else {
        0.0
    };
    scores.iter_mut().for_each(|x| *x = (*x - mean) * scale);
    scores
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::KnobValue;
    use crate::units::Nanos;

    fn judged(times: &[Option<f64>]) -> Vec<(Setting, Value)> {
        let value = |time: &Option<f64>| {
            time.and_then(Nanos::new)
                .map_or(Value::Failed, |time| Value::valid(time, 1.0))
        };
        let setting = |i: usize| Setting::from([("k".to_owned(), KnobValue::Int(i as i64))]);
        let judged = times.iter().enumerate();
        judged.map(|(i, time)| (setting(i), value(time))).collect()
    }

    fn kept(earlier: &Earlier) -> Vec<i64> {
        let knob = |known: &Known| match &known.setting["k"] {
            KnobValue::Int(value) => *value,
            KnobValue::Text(text) => panic!("an integer, not {text}"),
        };
        earlier.known().iter().map(knob).collect()
    }

    #[test]
    fn ranks_carry_over_and_times_do_not() {
        let one = Earlier::new(judged(&[Some(3.0), None, Some(1.0), Some(2.0)]), 9);
        let other = Earlier::new(judged(&[Some(9e6), None, Some(10.0), Some(11.0)]), 9);
        assert_eq!(one, other);
        assert_eq!(kept(&one), [2, 3, 0, 1], "best first, failures last");
        let scores: Vec<f64> = one.known().iter().map(|known| known.score).collect();
        assert!(scores.is_sorted() && scores.iter().sum::<f64>().abs() < 1e-9);
    }

    #[test]
    fn of_thousands_the_best_and_a_spread_are_kept_with_the_scores_they_had() {
        let times: Vec<Option<f64>> = (0..10_000).map(|i| Some(f64::from(i + 1))).collect();
        let all = Earlier::new(judged(&times), 10_000);
        let some = Earlier::new(judged(&times), 10);
        assert_eq!(kept(&some), [0, 1, 2, 3, 4, 1004, 3003, 5002, 7001, 9000]);
        for known in some.known() {
            assert!(all.known().contains(known));
        }
        assert!(Earlier::new(judged(&times), 0).is_empty());
        assert_eq!(spread(3, 3).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(spread(0, 3).count(), 0);
    }

    #[test]
    fn what_is_stored_is_read_again_bit_for_bit() {
        let times: Vec<Option<f64>> = (0..97).map(|i| Some(f64::from(i * 31 % 97 + 1))).collect();
        let earlier = Earlier::new(judged(&times), 64);
        let text = serde_json::to_string(&earlier).expect("serialises");
        assert_eq!(
            serde_json::from_str::<Earlier>(&text).expect("reads"),
            earlier
        );
    }
}
