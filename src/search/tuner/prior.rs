//! What earlier runs of other GPUs or sizes lead to expect of a space: which of its knobs matter, and which of
//! its settings are bad. Which of the good ones is best differs too often from one GPU to another to be
//! expected of anything.

use std::collections::HashSet;

use rand::Rng;
use serde::Serialize;

use super::cholesky::dot;
use super::gp::{Gp, Kernel, Learning};
use crate::search::earlier::{Earlier, spread};
use crate::source::{Point, Space};

/// No setting is expected to be better than this, a normal score: the best sixth of what was judged are equals.
const BEST_EXPECTED: f64 = -1.0;
/// Of what a run leads to expect, so much is believed before anything was judged here, with this deviation.
const TRUST: (f64, f64) = (0.3, 1.0);
/// Rounds in which the runs share out what shows here.
const ROUNDS: usize = 4;
/// Runs that explain this share of what is judged here, beside what the process does, are believed for good; the
/// less they explain, the sooner they are forgotten. Runs of a like GPU explain 0.3 to 0.5 from the first 20
/// settings on, the one that misleads most 0.1.
const EXPLAINED: f64 = 0.3;
/// Random kernels tried on what a run judged.
const PROPOSALS: u32 = 150;

/// What each of the earlier runs leads to expect, and how much of it is believed.
#[derive(Clone, Debug)]
pub(super) struct Prior {
    runs: Vec<Run>,
    /// By run.
    trust: Vec<f64>,
}

/// What an earlier run judged, and the process over it.
#[derive(Clone, Debug)]
struct Run {
    known: Vec<Known>,
    gp: Gp,
    /// What it leads to expect of each trial.
    expected: Vec<f64>,
}

/// A setting that an earlier run judged, as a point of this space; it may be one that is not valid here.
#[derive(Clone, Debug, Serialize)]
struct Known {
    point: Point,
    score: f64,
}

impl Prior {
    /// From `most` settings of each run. Runs that judged nothing that this space has are left out.
    pub(super) fn new(space: &Space, earlier: &[Earlier], most: usize, rng: &mut impl Rng) -> Self {
        let runs = earlier.iter().map(|earlier| known(space, earlier, most));
        let runs: Vec<Run> = runs
            .filter(|known| !known.is_empty())
            .map(|known| Run::new(space, known, rng))
            .collect();
        Self {
            trust: vec![0.0; runs.len()],
            runs,
        }
    }

    /// The kernel that a process over this space begins with, where runs taught one.
    pub(super) fn kernel(&self) -> Option<Kernel> {
        Kernel::taught_by(self.runs.iter().map(|run| run.gp.kernel()))
    }

    /// Finds out how much of what the runs lead to expect shows in the targets of `gp`, one per row; takes it
    /// off them, as far as it is believed. What contradicts a run is not believed in reverse. `points`: of
    /// all trials; `rows`: which of them the rows are; `memory`: trials until 1/e is believed of what explains
    /// nothing.
    pub(super) fn weigh<'p>(
        &mut self,
        gp: &Gp,
        points: impl Iterator<Item = &'p Point> + Clone,
        rows: &[usize],
        memory: f64,
        targets: &mut [f64],
    ) {
        if self.runs.is_empty() {
            return;
        }
        let mut scratch = Vec::new();
        let mut features = Vec::new();
        for run in &mut self.runs {
            let fresh = points.clone().skip(run.expected.len());
            let fresh: Vec<f64> = fresh.map(|point| run.expect(point, &mut scratch)).collect();
            run.expected.extend(fresh);
            let own: Vec<f64> = rows.iter().map(|&trial| run.expected[trial]).collect();
            features.push(gp.whitened(own));
        }
        let whole = gp.whitened(targets.to_vec());
        let mut left = whole.clone();
        let (before, deviation) = TRUST;
        let precision = deviation.powi(-2);
        self.trust.fill(0.0);
        for _ in 0..ROUNDS {
            for (trust, feature) in self.trust.iter_mut().zip(&features) {
                let weight = dot(feature, feature);
                let shown = dot(feature, &left) + *trust * weight;
                let now = ((shown + before * precision) / (weight + precision)).max(0.0);
                for (left, feature) in left.iter_mut().zip(feature) {
                    *left -= (now - *trust) * feature;
                }
                *trust = now;
            }
        }
        // Where all targets are alike there is nothing to explain.
        let unexplained = dot(&left, &left) / dot(&whole, &whole).max(f64::MIN_POSITIVE);
        let doubt = (1.0 - (1.0 - unexplained) / EXPLAINED).clamp(0.0, 1.0);
        let asked = points.count() as f64;
        let believed = (-doubt * asked / memory).exp();
        for (trust, run) in self.trust.iter_mut().zip(&self.runs) {
            *trust *= believed;
            for (target, &trial) in targets.iter_mut().zip(rows) {
                *target -= *trust * run.expected[trial];
            }
        }
    }

    /// What is believed of a setting: the normal score that the runs lead to expect, as far as they are trusted.
    pub(super) fn believed(&self, point: &Point, scratch: &mut Vec<f64>) -> f64 {
        let trusted = self.trust.iter().zip(&self.runs);
        trusted
            .filter(|(trust, _)| **trust > 0.0)
            .map(|(trust, run)| trust * run.expect(point, scratch))
            .sum()
    }

    /// All that it depends on, for fingerprints.
    pub(super) fn state(&self) -> impl Serialize + '_ {
        let runs = self.runs.iter().map(|run| (&run.known, run.gp.kernel()));
        runs.collect::<Vec<_>>()
    }
}

impl Run {
    fn new(space: &Space, known: Vec<Known>, rng: &mut impl Rng) -> Self {
        let mut gp = Gp::new(space.knobs());
        known.iter().for_each(|known| gp.push(&known.point));
        let scores: Vec<f64> = known.iter().map(|known| known.score).collect();
        let learning = Learning {
            proposals: PROPOSALS,
            moves: 2.0,
            step: 0.8,
        };
        gp.learn(&scores, learning, rng);
        gp.condition(&scores);
        Self {
            known,
            gp,
            expected: Vec::new(),
        }
    }

    fn expect(&self, point: &Point, scratch: &mut Vec<f64>) -> f64 {
        scratch.clear();
        self.gp.covariances(point, scratch);
        self.gp.mean(scratch).max(BEST_EXPECTED)
    }
}

/// Of a run the best and a spread over the ranks, `most` in all. Of settings that differ only in knobs that are
/// none here, the best stands.
fn known(space: &Space, earlier: &Earlier, most: usize) -> Vec<Known> {
    let mut seen = HashSet::new();
    let known = earlier.known().iter().filter_map(|known| {
        let point = space.project(&known.setting)?;
        let score = known.score;
        seen.insert(point.clone()).then_some(Known { point, score })
    });
    let known: Vec<Known> = known.collect();
    spread(known.len(), most)
        .map(|place| known[place].clone())
        .collect()
}
