//! Every number the search depends on, with its reason. Nothing else in this room is tunable.

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::race::RaceParams;
use super::stop::StopRules;

/// The search's parameters: stored with a run, so that it can be resumed and repeated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SearchParams {
    /// Weight of exploration in PUCT. Rewards lie in [0, 1] and good kernels crowd near 1, so a large
    /// weight is taking turns; a small one never returns to a source whose first settings were bad luck.
    pub exploration: f64,
    /// What a node is worth.
    pub backup: Backup,
    /// A node with N visits may have up to `widening · N^widening_power` children.
    pub widening: f64,
    /// See `widening`.
    pub widening_power: f64,
    /// The same for the root, whose children are the sources given: how many of them are open.
    pub root_widening: f64,
    /// See `root_widening`.
    pub root_widening_power: f64,
    /// Settings a source gets before it is judged against others: its default may be bad luck.
    pub trial: u32,
    /// Settings of an earlier run that a source tries first, besides its default. One shows whether what was
    /// good there is good here; more would leave too little of the start to look elsewhere.
    pub carried: u32,
    /// How often in a row a model may try to repair what it broke, or answer again after an unusable reply: as many
    /// turns as benchmarks of models give it.
    pub repairs: u32,
    /// What one mechanical rewrite costs, in evaluations.
    pub rewrite_cost: f64,
    /// What one model call costs, in evaluations.
    pub model_cost: f64,
    /// Model calls in flight at once, besides `window`: a slow model does not hold up the judge.
    pub model_window: u32,
    /// Evaluations until a model that did not answer is asked again; twice as many each further time.
    pub model_rest: u32,
    /// Reward a rewrite is believed to gain before any was tried here.
    pub rewrite_gain: f64,
    /// Reward a model's edit is believed to gain before any was tried here.
    pub model_gain: f64,
    /// Reward one more setting is believed to gain before any was tried on a source.
    pub tune_gain: f64,
    /// Requests in flight at once. More than about five per hundred evaluations cost quality.
    pub window: u32,
    /// Of the settings that tuners choose, the part that is judged: those of which the cost model expects most.
    /// Not before format 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefilter: Option<f64>,
    /// New sources are tried in the order of what the cost model expects of them, which is asked about each.
    /// Not before format 6.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub prior: bool,
    /// Inside a source.
    pub tuner: TunerParams,
    /// Between the best-looking, at the end.
    pub race: RaceParams,
    /// When to end.
    pub stop: StopRules,
}

impl Default for SearchParams {
    fn default() -> Self {
        Self {
            exploration: 0.6,
            backup: Backup::Max,
            widening: 2.0,
            widening_power: 0.6,
            root_widening: 2.0,
            root_widening_power: 0.5,
            trial: 4,
            carried: 1,
            repairs: 8,
            rewrite_cost: 1.0,
            model_cost: 8.0,
            model_window: 2,
            model_rest: 10,
            rewrite_gain: 0.03,
            model_gain: 0.15,
            tune_gain: 0.1,
            window: 4,
            prefilter: None,
            prior: false,
            tuner: TunerParams::default(),
            race: RaceParams::default(),
            stop: StopRules::default(),
        }
    }
}

/// What a node is worth to the search on its way down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backup {
    /// The best reward here or below: only the best kernel counts.
    Max,
    /// The mean of all rewards here and below; kept to show what the maximum gains.
    Mean,
}

/// How one source's knobs are tuned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TunerParams {
    /// What chooses the next setting.
    pub surrogate: Surrogate,
    /// How the first settings are spread.
    pub start: Start,
    /// Settings before the surrogate decides, the default among them.
    pub start_points: u32,
    /// Random draws for each of them; the one farthest from all others is kept.
    pub start_draws: u32,
    /// The kernel is relearnt each time at least this many settings were judged anew,
    pub learn_every: u32,
    /// and this share of those before: early on each one tells much, later each relearning costs much.
    pub learn_growth: f64,
    /// Random kernels tried then.
    pub learn_proposals: u32,
    /// How many of the kernel's parameters each of them changes, on average.
    pub learn_moves: f64,
    /// Deviation of a change, on the parameter's logarithm.
    pub learn_step: f64,
    /// The best settings whose one-knob neighbours are candidates.
    pub frontier: u32,
    /// Uniformly drawn candidates.
    pub uniform: u32,
    /// Candidates two knobs away from the frontier.
    pub two_edits: u32,
    /// Candidates crossed from pairs of the best.
    pub crossovers: u32,
    /// How many of the best are crossed.
    pub parents: u32,
    /// Steps uphill from the best candidate, over its one-knob neighbours.
    pub climb: u32,
    /// At most this many settings stand in the surrogate: the best and the latest.
    pub model_limit: u32,
    /// What is known of each earlier run, at most so many settings: the best, and a spread over the ranks.
    pub earlier_limit: u32,
    /// Settings asked for here until 1/e is believed of what earlier runs lead to expect, where it explains
    /// nothing of what is judged here; what explains much is believed for good.
    pub earlier_memory: f64,
    /// Not used any more: runs stored while it was are still read.
    #[serde(skip_serializing)]
    pub earlier_start_points: IgnoredAny,
}

impl Default for TunerParams {
    fn default() -> Self {
        Self {
            surrogate: Surrogate::RankGp,
            start: Start::Maximin,
            start_points: 6,
            start_draws: 20,
            learn_every: 1,
            learn_growth: 0.02,
            learn_proposals: 4,
            learn_moves: 2.0,
            learn_step: 0.8,
            frontier: 4,
            uniform: 100,
            two_edits: 100,
            crossovers: 50,
            parents: 8,
            climb: 3,
            model_limit: 256,
            earlier_limit: 100,
            earlier_memory: 25.0,
            earlier_start_points: IgnoredAny,
        }
    }
}

/// What chooses a source's next setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Surrogate {
    /// Expected improvement under a Gaussian process over normal scores of ranks.
    RankGp,
    /// The same over the logarithm of time; kept to show what ranks gain.
    LogTimeGp,
    /// Uniform draws without repeats: the baseline, and the engine without its model.
    Uniform,
}

/// How the first settings are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// Far from each other.
    Maximin,
    /// Uniform draws; kept to show what spreading gains.
    Uniform,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_stored_with_one_that_is_not_used_any_more_are_read() {
        let stored = r#"{"earlier_limit": 96, "earlier_memory": 20.0, "earlier_start_points": 8}"#;
        let read: TunerParams = serde_json::from_str(stored).expect("they are read");
        assert_eq!((read.earlier_limit, read.earlier_memory), (96, 20.0));
        let again = serde_json::to_string(&read).expect("they are stored");
        assert!(!again.contains("earlier_start_points"));
        assert!(serde_json::from_str::<TunerParams>(r#"{"no_such": 1}"#).is_err());
    }
}
