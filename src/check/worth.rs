//! What a kernel is worth where it was checked: its speedup, over what, and whether to keep the library. Pure
//! arithmetic and words; it measures nothing.

use crate::units::Nanos;
use crate::verdict::{Baselines, Claim, Standing};

/// What the kernel is worth: its speedup over the best that there is to compare it with.
#[derive(Debug)]
pub(super) struct Worth {
    /// Over what.
    name: String,
    ratio: f64,
    /// What the final measurement lets us say, and the ratio's interval.
    said: Option<(Standing, f64, f64)>,
    /// Over the seed, where that is another thing.
    seed: Option<f64>,
    frontier: bool,
}

impl Worth {
    /// The frontier counts before the seed, and the final measurement before both; `None` without any.
    pub(super) fn of(
        time: Nanos,
        seed: Option<Nanos>,
        baselines: Option<&Baselines>,
        claim: Option<&Claim>,
    ) -> Option<Self> {
        let over_seed = seed.map(|seed| seed.get() / time.get());
        let Some(frontier) = baselines.and_then(Baselines::frontier) else {
            return over_seed.map(|ratio| Self {
                name: "the seed".to_owned(),
                ratio,
                said: None,
                seed: None,
                frontier: false,
            });
        };
        let name = frontier.title();
        let duel = claim.and_then(|claim| claim.duels.iter().find(|duel| duel.title() == name));
        Some(Self {
            ratio: duel.map_or(frontier.time.get() / time.get(), |duel| duel.ratio.median),
            said: duel.map(|duel| (duel.standing, duel.ratio.low, duel.ratio.high)),
            name,
            seed: over_seed,
            frontier: true,
        })
    }

    /// The denominator's time ÷ the kernel's.
    pub(super) fn ratio(&self) -> f64 {
        self.ratio
    }

    /// In a sentence; `label` is the word beside the times.
    pub(super) fn sentence(&self, label: &str, least: Option<f64>) -> String {
        let mut text = format!("{:.3}× {}", self.ratio, self.name);
        if let Some((standing, low, high)) = self.said {
            text.push_str(&format!(" [{low:.3}, {high:.3}], {standing}"));
        }
        if let Some(seed) = self.seed {
            text.push_str(&format!(", {seed:.3}× the seed"));
        }
        text.push_str(&format!(", times {label} in this process"));
        if !self.frontier {
            text.push_str("; frontier: not measured");
        }
        if let Some(least) = least {
            text.push_str(&format!("; at least {least}× was asked for"));
        }
        text
    }

    /// What to do where it is not faster, or not by as much as was asked for.
    pub(super) fn advice(&self, least: Option<f64>) -> Option<String> {
        let Self { name, ratio, .. } = self;
        let slower = match self.said {
            Some((standing, _, _)) => standing == Standing::Slower,
            None => *ratio < 1.0,
        };
        let tie = matches!(self.said, Some((Standing::Tie, _, _)));
        if slower {
            Some(format!(
                "keep {name} as the fallback, and use it: the kernel is slower here ({ratio:.3}×)"
            ))
        } else if tie {
            Some(format!(
                "keep {name} as the fallback: the kernel is no faster here, as far as noise lets one tell \
                 ({ratio:.3}×)"
            ))
        } else {
            least.filter(|least| ratio < least).map(|least| {
                format!(
                    "keep {name} as the fallback where {least}× is what makes the kernel worth its place"
                )
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{
        Correctness, Duel, Interleaving, MeasuredBaseline, Ratio, Times, Variant,
    };

    fn nanos(ns: f64) -> Nanos {
        Nanos::new(ns).expect("positive")
    }

    fn library(ns: f64) -> Baselines {
        Baselines {
            measured: vec![MeasuredBaseline {
                name: "torch.sum".to_owned(),
                variant: Variant::Eager,
                time: nanos(ns),
                quartiles: (nanos(ns), nanos(ns)),
                samples: vec![ns],
                correctness: Correctness::Verified {
                    on: "smoke".to_owned(),
                },
                notes: Vec::new(),
            }],
            missing: Vec::new(),
        }
    }

    fn claim(standing: Standing, median: f64) -> Claim {
        let times = || Times {
            median: nanos(100.0),
            quartiles: (nanos(100.0), nanos(100.0)),
            samples: vec![100.0],
        };
        Claim {
            gpu: "NVIDIA H200".to_owned(),
            rounds: 3,
            winner: Some(times()),
            duels: vec![Duel {
                name: "torch.sum".to_owned(),
                variant: Variant::Eager,
                interleaving: Interleaving::Blocks,
                winner: times(),
                baseline: times(),
                ratio: Ratio {
                    median,
                    low: median - 0.01,
                    high: median + 0.01,
                },
                rounds: vec![median; 3],
                burst: None,
                standing,
            }],
            noise_floor: Some(0.005),
            power: None,
            flaws: Vec::new(),
            not_checked: Vec::new(),
        }
    }

    #[test]
    fn the_frontier_counts_before_the_seed_and_the_final_measurement_before_both() {
        let seed = Some(nanos(300.0));
        let alone = Worth::of(nanos(100.0), seed, None, None).expect("the seed");
        assert_eq!((alone.name.as_str(), alone.ratio), ("the seed", 3.0));
        assert!(
            alone
                .sentence("estimated", None)
                .contains("frontier: not measured")
        );
        let library = library(120.0);
        let beside = Worth::of(nanos(100.0), seed, Some(&library), None).expect("both");
        assert_eq!(
            (beside.name.as_str(), beside.ratio),
            ("torch.sum (eager)", 1.2)
        );
        let claim = claim(Standing::Faster, 1.15);
        let again = Worth::of(nanos(100.0), seed, Some(&library), Some(&claim)).expect("all");
        assert_eq!(
            again.sentence("measured", Some(1.1)),
            "1.150× torch.sum (eager) [1.140, 1.160], faster, 3.000× the seed, times measured in this \
             process; at least 1.1× was asked for"
        );
        assert!(Worth::of(nanos(100.0), None, None, None).is_none());
    }

    #[test]
    fn the_library_is_kept_where_the_kernel_is_not_faster() {
        let library = library(100.0);
        let advice = |standing, ratio, least| {
            let claim = claim(standing, ratio);
            Worth::of(nanos(100.0), None, Some(&library), Some(&claim))
                .expect("compared")
                .advice(least)
        };
        assert_eq!(advice(Standing::Faster, 1.3, Some(1.2)), None);
        assert_eq!(advice(Standing::Faster, 1.1, None), None);
        for (standing, ratio, says) in [
            (Standing::Slower, 0.9, "slower here"),
            (Standing::Tie, 1.001, "no faster here"),
            (Standing::Faster, 1.1, "where 1.2× is"),
        ] {
            let advice = advice(standing, ratio, Some(1.2)).expect("advised");
            assert!(
                advice.contains(says) && advice.contains("keep torch.sum (eager) as the fallback"),
                "{advice}"
            );
        }
    }
}
