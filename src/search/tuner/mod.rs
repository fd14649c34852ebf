//! The **tuner** of one node: which setting of a source to evaluate next. Rank-GP frontier search
//! (candidates near the best, chosen by expected improvement under a Gaussian process over ranks).
//! It sees values, never verdicts; its randomness comes from the seed it is given.

mod axis;
mod candidates;
mod cholesky;
mod gp;
mod prior;
mod response;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::Serialize;
use statrs::function::erf::erfc;

use super::earlier::Earlier;
use super::params::{Start, Surrogate, TunerParams};
use super::value::Value;
use crate::source::{Point, Source};
use crate::verdict::Estimate;
use cholesky::BLOCK;
use gp::{Gp, Learning};
use prior::Prior;

/// One setting that was asked for.
#[derive(Clone, Debug, Serialize)]
pub struct Trial {
    /// The setting.
    pub point: Point,
    /// Its value; `None` while in flight.
    pub value: Option<Value>,
    /// What the surrogate expected when it was asked for: stands in for the value while in flight.
    belief: f64,
}

/// What is asked for next.
pub struct Choice {
    /// A setting.
    pub point: Point,
    /// Further ones, of which it may be that one is judged instead.
    pub beside: Vec<Point>,
    /// The tuner chose them: nobody suggested them, and they are new.
    pub own: bool,
}

/// A candidate and what the surrogate expects of it.
struct Promise {
    point: Point,
    improvement: f64,
    mean: f64,
}

/// Tunes one source.
#[derive(Clone, Debug)]
pub struct Tuner {
    params: TunerParams,
    source: Arc<Source>,
    rng: Pcg64,
    /// To be tried before any other, in this order: the default, what proposers suggest.
    suggested: VecDeque<Point>,
    /// Asked for and not judged, for what the cost model expects of them.
    aside: Vec<(Point, Estimate)>,
    /// In the order asked.
    trials: Vec<Trial>,
    index: HashMap<Point, usize>,
    /// Judged trials, best first; equals by order of arrival.
    ranking: Vec<usize>,
    /// What earlier runs lead to expect.
    prior: Prior,
    gp: Gp,
    /// The trial behind each row of the process.
    rows: Vec<usize>,
    /// Judged trials when the kernel was last learnt.
    learnt_at: usize,
}

impl Tuner {
    /// A tuner that tries `first` before anything else, in this order, and learns from earlier runs.
    pub fn new(
        source: Arc<Source>,
        first: Vec<Point>,
        earlier: &[Earlier],
        params: &TunerParams,
        seed: u64,
    ) -> Self {
        let space = source.space();
        let mut rng = Pcg64::seed_from_u64(seed);
        let prior = Prior::new(space, earlier, params.earlier_limit as usize, &mut rng);
        let mut gp = Gp::new(space.knobs());
        if let Some(kernel) = prior.kernel() {
            gp.set_kernel(kernel);
        }
        let mut tuner = Self {
            params: params.clone(),
            rng,
            suggested: VecDeque::new(),
            aside: Vec::new(),
            trials: Vec::new(),
            index: HashMap::new(),
            ranking: Vec::new(),
            prior,
            gp,
            rows: Vec::new(),
            learnt_at: 0,
            source,
        };
        first.into_iter().for_each(|point| tuner.suggest(point));
        tuner
    }

    /// Puts a setting at the end of those to be tried first; one already tried is ignored.
    pub fn suggest(&mut self, point: Point) {
        if self.is_open(&point) && !self.suggested.contains(&point) {
            self.suggested.push_back(point);
        }
    }

    /// Puts a setting at the head of those to be tried first; one already tried is ignored.
    pub fn prefer(&mut self, point: Point) {
        // The default stays first: it is what the source's author meant.
        if self.is_open(&point) && !self.trials.is_empty() {
            self.suggested.retain(|other| *other != point);
            self.suggested.push_front(point);
        }
    }

    /// The next setting, now in flight; `None` when every valid one was asked for.
    pub fn ask(&mut self) -> Option<Point> {
        let choice = self.choose()?;
        let point = choice.point.clone();
        if let Some(&trial) = self.index.get(&point) {
            self.aside.retain(|(other, _)| *other != point);
            self.trials[trial] = choice;
        } else {
            self.index.insert(point.clone(), self.trials.len());
            self.trials.push(choice);
        }
        Some(point)
    }

    /// The same with up to `others` more of the tuner's own choice, all of them in flight. What was suggested, and
    /// what was set aside before, is asked for alone.
    pub fn ask_among(&mut self, others: usize) -> Option<Choice> {
        let own = !self.all_asked() && !self.suggested.iter().any(|point| self.is_open(point));
        let point = self.ask()?;
        let mut beside = Vec::new();
        while own && beside.len() < others && !self.all_asked() {
            beside.extend(self.ask());
        }
        Some(Choice { point, beside, own })
    }

    /// Takes a setting that is in flight back: it is not judged for what is expected of it. Of what nothing is
    /// known is tried next.
    pub fn set_aside(&mut self, point: &Point, estimate: Estimate) {
        self.aside.push((point.clone(), estimate));
        match estimate {
            Estimate::Unknown => self.suggest(point.clone()),
            Estimate::Time(_) | Estimate::Refused => {}
        }
    }

    /// What became of a setting that was asked for; `false` if it was not in flight.
    pub fn tell(&mut self, point: &Point, value: Value) -> bool {
        let Some(&trial) = self.index.get(point) else {
            return false;
        };
        if self.trials[trial].value.is_some() {
            return false;
        }
        self.trials[trial].value = Some(value);
        let place = self
            .ranking
            .partition_point(|&other| self.trials[other].value <= Some(value));
        self.ranking.insert(place, trial);
        true
    }

    /// Whether nothing is left to ask for.
    pub fn is_exhausted(&self) -> bool {
        self.all_asked() && self.aside.is_empty()
    }

    /// Whether every valid setting was asked for, if only to be set aside.
    fn all_asked(&self) -> bool {
        self.trials.len() as u64 >= self.source.space().len()
    }

    /// The best judged trial that did not fail.
    pub fn best(&self) -> Option<&Trial> {
        let best = &self.trials[*self.ranking.first()?];
        (best.value != Some(Value::Failed)).then_some(best)
    }

    /// Judged trials, best first.
    pub fn ranked(&self) -> impl Iterator<Item = &Trial> {
        self.ranking.iter().map(|&trial| &self.trials[trial])
    }

    /// Every trial in the order asked.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// Trials with a value.
    pub fn judged(&self) -> usize {
        self.ranking.len()
    }

    /// Settings waiting to be tried before any other.
    pub fn suggested(&self) -> usize {
        self.suggested.len()
    }

    /// All that later choices depend on, for fingerprints.
    pub(super) fn state(&self) -> impl Serialize + '_ {
        (
            &self.rng,
            &self.suggested,
            &self.aside,
            &self.trials,
            &self.ranking,
            self.gp.kernel(),
            &self.rows,
            self.prior.state(),
        )
    }

    fn is_open(&self, point: &Point) -> bool {
        let asked = self.index.contains_key(point);
        let aside = asked && self.aside.iter().any(|(other, _)| other == point);
        (!asked || aside) && self.source.space().is_valid(point)
    }

    fn choose(&mut self) -> Option<Trial> {
        let unbelieved = |point| Trial {
            point,
            value: None,
            belief: 0.0,
        };
        while let Some(point) = self.suggested.pop_front() {
            if self.is_open(&point) {
                return Some(unbelieved(point));
            }
        }
        if self.all_asked() {
            let ranked = self
                .aside
                .iter()
                .map(|(point, estimate)| (estimate.rank(), point));
            let best = ranked.min_by(|a, b| a.0.total_cmp(&b.0));
            return best.map(|(_, point)| unbelieved(point.clone()));
        }
        let started = self.trials.len() >= self.params.start_points as usize;
        match self.params.surrogate {
            Surrogate::Uniform => self.unseen().map(unbelieved),
            Surrogate::RankGp | Surrogate::LogTimeGp if started && !self.ranking.is_empty() => {
                self.improve()
            }
            Surrogate::RankGp | Surrogate::LogTimeGp => match self.params.start {
                Start::Uniform => self.unseen().map(unbelieved),
                Start::Maximin => self.farthest().map(unbelieved),
            },
        }
    }

    /// The candidate with the largest expected improvement, then the best uphill of it.
    fn improve(&mut self) -> Option<Trial> {
        let targets = self.refresh();
        let best = self
            .ranking
            .first()
            .map(|&trial| targets.of_trial(&self.trials, trial))?;
        let candidates = self.candidates();
        let mut winner = self.most_promising(candidates, best);
        for _ in 0..self.params.climb {
            let Some(Promise { point, .. }) = &winner else {
                break;
            };
            let mut around = self.source.space().neighbours(point);
            around.retain(|point| !self.index.contains_key(point));
            match (self.most_promising(around, best), &winner) {
                (Some(next), Some(now)) if next.improvement > now.improvement => {
                    winner = Some(next);
                }
                (Some(_), _) | (None, _) => break,
            }
        }
        match winner {
            Some(Promise { point, mean, .. }) => Some(Trial {
                point,
                value: None,
                belief: mean,
            }),
            None => self.unseen().map(|point| Trial {
                point,
                value: None,
                belief: 0.0,
            }),
        }
    }

    /// The first of those with the largest expected improvement over `best`.
    fn most_promising(&self, mut candidates: Vec<Point>, best: f64) -> Option<Promise> {
        let rows = self.gp.len();
        let mut known = Vec::with_capacity(rows * candidates.len());
        let mut bounded = Vec::with_capacity(candidates.len());
        let mut scratch = Vec::new();
        for (order, point) in candidates.iter().enumerate() {
            self.gp.covariances(point, &mut known);
            let covariances = &known[order * rows..];
            let mean = self.gp.mean(covariances) + self.prior.believed(point, &mut scratch);
            let bound = expected_improvement(best, mean, self.gp.deviation_bound(covariances));
            bounded.push((bound, order, mean));
        }
        // Best bound first: once a bound is below the best exact value, no other can win.
        bounded.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut winner: Option<(f64, usize, f64)> = None;
        let mut block = vec![[0.0; BLOCK]; rows];
        for together in bounded.chunks(BLOCK) {
            if winner.is_some_and(|(value, _, _)| value >= together[0].0) {
                break;
            }
            for (column, &(_, order, _)) in together.iter().enumerate() {
                let covariances = &known[order * rows..][..rows];
                for (entries, &covariance) in block.iter_mut().zip(covariances) {
                    entries[column] = covariance;
                }
            }
            let deviations = self.gp.deviations(&mut block);
            for (&(_, order, mean), deviation) in together.iter().zip(deviations) {
                let value = expected_improvement(best, mean, deviation);
                if winner.is_none_or(|(most, _, _)| value > most) {
                    winner = Some((value, order, mean));
                }
            }
        }
        winner.map(|(improvement, order, mean)| Promise {
            point: candidates.swap_remove(order),
            improvement,
            mean,
        })
    }

    /// Brings the process up to date with the trials, and returns the targets.
    fn refresh(&mut self) -> response::Targets {
        let limit = self.params.model_limit as usize;
        let known = self.rows.last().map_or(0, |&last| last + 1);
        self.rows.extend(known..self.trials.len());
        // Rebuilding costs as much as many appends: let a block of rows run over first.
        if self.rows.len() > limit + limit / 8 {
            self.rows = self.worth_keeping(limit);
            self.gp.clear();
        }
        for row in self.gp.len()..self.rows.len() {
            self.gp.push(&self.trials[self.rows[row]].point);
        }
        let targets = response::Targets::new(self.params.surrogate, &self.trials, &self.ranking);
        let here = self.rows.iter();
        let here = here.map(|&trial| targets.of_trial(&self.trials, trial));
        let mut rows: Vec<f64> = here.collect();
        let points = self.trials.iter().map(|trial| &trial.point);
        let memory = self.params.earlier_memory;
        self.prior
            .weigh(&self.gp, points, &self.rows, memory, &mut rows);
        let fresh = (self.ranking.len() - self.learnt_at) as f64;
        let share = self.learnt_at as f64 * self.params.learn_growth;
        if fresh >= share.max(f64::from(self.params.learn_every)) {
            self.learnt_at = self.ranking.len();
            let learning = Learning {
                proposals: self.params.learn_proposals,
                moves: self.params.learn_moves,
                step: self.params.learn_step,
            };
            self.gp.learn(&rows, learning, &mut self.rng);
        }
        self.gp.condition(&rows);
        targets
    }

    /// Half of them the best, the rest the latest, in the order asked.
    fn worth_keeping(&self, limit: usize) -> Vec<usize> {
        let mut kept: Vec<usize> = self.ranking.iter().copied().take(limit / 2).collect();
        let best: HashSet<usize> = kept.iter().copied().collect();
        let latest = (0..self.trials.len()).rev().filter(|t| !best.contains(t));
        kept.extend(latest.take(limit - kept.len()));
        kept.sort_unstable();
        kept
    }

    /// Of some random draws, the one with the most values of two-valued knobs that none asked for has; of equals the
    /// one farthest from everything asked for.
    fn farthest(&mut self) -> Option<Point> {
        let knobs = self.source.space().knobs();
        let scales: Vec<f64> = knobs
            .iter()
            .map(|knob| 1.0 / (knob.values.len().max(2) - 1) as f64)
            .collect();
        // A switch that is never on looks like no knob at all.
        let switches: Vec<usize> = (0..knobs.len())
            .filter(|&knob| knobs[knob].values.len() == 2)
            .collect();
        let distance = |a: &Point, b: &Point| -> f64 {
            let steps = a.0.iter().zip(&b.0).zip(&scales);
            steps
                .map(|((&x, &y), scale)| f64::from(x.abs_diff(y)) * scale)
                .sum()
        };
        let mut farthest: Option<((usize, f64), Point)> = None;
        for _ in 0..self.params.start_draws {
            let point = self.source.space().sample(&mut self.rng);
            if self.index.contains_key(&point) {
                continue;
            }
            let points = self.trials.iter().map(|trial| &trial.point);
            let new = |&&knob: &&usize| points.clone().all(|other| other.0[knob] != point.0[knob]);
            let fresh = switches.iter().filter(new).count();
            let nearest = points
                .clone()
                .map(|other| distance(other, &point))
                .fold(f64::INFINITY, f64::min);
            let merit = (fresh, nearest);
            if farthest.as_ref().is_none_or(|(most, _)| merit > *most) {
                farthest = Some((merit, point));
            }
        }
        match farthest {
            Some((_, point)) => Some(point),
            None => self.unseen(),
        }
    }

    /// A uniform draw from the settings not asked for.
    fn unseen(&mut self) -> Option<Point> {
        for _ in 0..64 {
            let point = self.source.space().sample(&mut self.rng);
            if !self.index.contains_key(&point) {
                return Some(point);
            }
        }
        // Most are used up: list what is left.
        let mut left: Vec<Point> = self
            .source
            .space()
            .iter()
            .filter(|point| !self.index.contains_key(point))
            .collect();
        if left.is_empty() {
            return None;
        }
        let place = self.rng.random_range(0..left.len());
        Some(left.swap_remove(place))
    }
}

/// E[max(0, best − x)] for x ~ N(mean, deviation²).
fn expected_improvement(best: f64, mean: f64, deviation: f64) -> f64 {
    let z = (best - mean) / deviation;
    let density = (-0.5 * z * z).exp() * std::f64::consts::FRAC_2_SQRT_PI / 8.0_f64.sqrt();
    let below = 0.5 * erfc(-z * std::f64::consts::FRAC_1_SQRT_2);
    deviation * (z * below + density)
}
