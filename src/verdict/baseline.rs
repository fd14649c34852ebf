//! Baselines as a run measured them: what a kernel's time is set against. Two denominators are told apart:
//! the library as users call it, and the fastest correct thing there is (the frontier). What could not be
//! measured is named, never left out.

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// All baselines of a task on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baselines {
    /// Those that were timed, in the order measured.
    #[serde(default)]
    pub measured: Vec<MeasuredBaseline>,
    /// Those that were not.
    #[serde(default)]
    pub missing: Vec<MissingBaseline>,
}

/// A baseline with its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredBaseline {
    /// As the task names it: `torch.mm`.
    pub name: String,
    /// Which way of it.
    pub variant: Variant,
    /// Median of a call.
    pub time: Nanos,
    /// First and third quartile.
    pub quartiles: (Nanos, Nanos),
    /// Raw samples, nanoseconds per call.
    pub samples: Vec<f64>,
    /// Whether its answers are right.
    pub correctness: Correctness,
    /// How it was timed, and versions, in words.
    pub notes: Vec<String>,
}

/// A baseline without a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MissingBaseline {
    /// As the task names it.
    pub name: String,
    /// Why, and what to do.
    pub reason: String,
}

/// Which way of doing what a baseline names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Variant {
    /// PyTorch, one operation after the other, in a captured graph.
    Eager,
    /// The same through `torch.compile`.
    Compiled,
    /// A graph of cuDNN's, with the plan that its heuristics put first.
    Graph,
    /// One of cuBLASLt's own choices; the first is the one it takes by itself.
    Algorithm {
        /// Position in the library's order, from 0.
        index: u32,
        /// How many the library offered.
        of: u32,
    },
    /// PTX of the task.
    Kernel,
    /// CUDA C of the task, through NVRTC.
    Cuda,
}

impl Variant {
    /// Whether users who tune nothing get this.
    pub fn as_called(self) -> bool {
        match self {
            Self::Eager | Self::Algorithm { index: 0, .. } => true,
            Self::Compiled | Self::Graph | Self::Algorithm { .. } | Self::Kernel | Self::Cuda => {
                false
            }
        }
    }
}

impl std::fmt::Display for Variant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Eager => f.write_str("eager"),
            Self::Compiled => f.write_str("torch.compile"),
            Self::Graph => f.write_str("graph"),
            Self::Algorithm { index: 0, .. } => f.write_str("default algorithm"),
            Self::Algorithm { index, of } => write!(f, "algorithm {} of {of}", index + 1),
            Self::Kernel => f.write_str("PTX"),
            Self::Cuda => f.write_str("CUDA C"),
        }
    }
}

/// Whether a baseline's answers are right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Correctness {
    /// Within the task's tolerance of its reference.
    Verified {
        /// On what, in words.
        on: String,
    },
    /// Not within it: no frontier.
    Wrong {
        /// Where and by how much.
        why: String,
    },
    /// Nobody looked: no frontier.
    NotChecked {
        /// Why.
        why: String,
    },
}

impl Correctness {
    /// Whether it counts.
    pub fn is_verified(&self) -> bool {
        match self {
            Self::Verified { .. } => true,
            Self::Wrong { .. } | Self::NotChecked { .. } => false,
        }
    }

    /// `yes`, or why not.
    pub fn words(&self) -> String {
        match self {
            Self::Verified { .. } => "yes".to_owned(),
            Self::Wrong { why } => format!("no: {why}"),
            Self::NotChecked { why } => format!("not checked: {why}"),
        }
    }
}

impl MeasuredBaseline {
    /// Name and way: `torch.mm (eager)`.
    pub fn title(&self) -> String {
        format!("{} ({})", self.name, self.variant)
    }
}

impl Baselines {
    /// The fastest whose answers are right.
    pub fn frontier(&self) -> Option<&MeasuredBaseline> {
        fastest(self.correct())
    }

    /// The fastest that users get without tuning anything and whose answers are right.
    pub fn library(&self) -> Option<&MeasuredBaseline> {
        fastest(self.correct().filter(|one| one.variant.as_called()))
    }

    /// What was not measured or does not count, a sentence each.
    pub fn gaps(&self) -> Vec<String> {
        let missing = self
            .missing
            .iter()
            .map(|one| format!("baseline {}: {}", one.name, one.reason));
        let uncounted = self
            .measured
            .iter()
            .filter_map(|one| match &one.correctness {
                Correctness::Verified { .. } => None,
                Correctness::Wrong { why } => Some(format!(
                    "baseline {}: its answers are wrong: {why}",
                    one.title()
                )),
                Correctness::NotChecked { why } => Some(format!(
                    "baseline {}: its answers were not checked: {why}",
                    one.title()
                )),
            });
        missing.chain(uncounted).collect()
    }

    fn correct(&self) -> impl Iterator<Item = &MeasuredBaseline> {
        self.measured
            .iter()
            .filter(|one| one.correctness.is_verified())
    }
}

fn fastest<'a>(
    baselines: impl Iterator<Item = &'a MeasuredBaseline>,
) -> Option<&'a MeasuredBaseline> {
    baselines.min_by(|a, b| a.time.get().total_cmp(&b.time.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, variant: Variant, ns: f64, correctness: Correctness) -> MeasuredBaseline {
        let time = Nanos::new(ns).expect("positive");
        MeasuredBaseline {
            name: name.to_owned(),
            variant,
            time,
            quartiles: (time, time),
            samples: vec![ns; 8],
            correctness,
            notes: vec!["8 replays".to_owned()],
        }
    }

    fn all() -> Baselines {
        let right = || Correctness::Verified {
            on: "smoke n=4".to_owned(),
        };
        let wrong = Correctness::Wrong {
            why: "3 of 4 elements".to_owned(),
        };
        let algorithm = |index| Variant::Algorithm { index, of: 3 };
        Baselines {
            measured: vec![
                one("lib", algorithm(0), 120.0, right()),
                one("lib", algorithm(1), 90.0, right()),
                one("lib", algorithm(2), 50.0, wrong),
                one("torch.mm", Variant::Eager, 110.0, right()),
            ],
            missing: vec![MissingBaseline {
                name: "mine".to_owned(),
                reason: "no such file".to_owned(),
            }],
        }
    }

    #[test]
    fn the_frontier_is_the_fastest_correct_one_and_the_library_the_fastest_untuned() {
        let all = all();
        let title = |one: Option<&MeasuredBaseline>| one.map(MeasuredBaseline::title);
        assert_eq!(
            title(all.frontier()).as_deref(),
            Some("lib (algorithm 2 of 3)")
        );
        assert_eq!(title(all.library()).as_deref(), Some("torch.mm (eager)"));
        assert_eq!(Baselines::default().frontier(), None);
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let gaps = all().gaps();
        assert_eq!(gaps.len(), 2);
        assert!(gaps[0].contains("mine") && gaps[0].contains("no such file"));
        assert!(gaps[1].contains("algorithm 3 of 3") && gaps[1].contains("wrong"));
    }

    #[test]
    fn they_come_back_from_toml_and_json() {
        let all = all();
        let toml = toml::to_string(&all).expect("it is written");
        assert_eq!(toml::from_str::<Baselines>(&toml).expect("read"), all);
        let json = serde_json::to_string(&all).expect("it is written");
        assert_eq!(serde_json::from_str::<Baselines>(&json).expect("read"), all);
    }
}
