//! The Gaussian process over a space's knobs: an L1-exponential kernel with one weight for each scale of
//! each knob. It predicts standardised targets; it does not know times, what to try next, or where points
//! come from.

use rand::{Rng, RngExt};
use rand_distr::{Distribution, StandardNormal};
use serde::{Deserialize, Serialize};

use super::axis::{Axis, Scale};
use super::cholesky::{BLOCK, Cholesky, dot};
use crate::source::{Knob, Point};

/// Mean and deviation of ln w by the scale it weighs; a fresh kernel begins at the mean: 0.5 for a knob's
/// order. Alignment matters for few knobs, so that it must show in the data before it counts: 0.14.
const fn prior_ln_weight(scale: Scale) -> (f64, f64) {
    match scale {
        Scale::Order => (-0.7, 0.7),
        Scale::Alignment => (-2.0, 0.7),
    }
}
/// w stays within [0.005, 50].
const WEIGHT_RANGE: (f64, f64) = (0.005, 50.0);
/// ln of a fresh nugget, and the centre of its prior: 0.01.
const START_LN_NUGGET: f64 = -4.605;
/// Deviation of the nugget's prior.
const PRIOR_NUGGET_DEVIATION: f64 = 1.5;
/// Deviation of ln w where another run of the space taught its mean.
const LEARNT_DEVIATION: f64 = 0.35;
/// The nugget stays within [1e-5, 0.5].
const NUGGET_RANGE: (f64, f64) = (1e-5, 0.5);

/// What is learnt about a space: how much each knob matters, and how noisy its ranks are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Kernel {
    /// ln w, one for each scale of each knob with a choice.
    ln_weights: Vec<f64>,
    /// The prior's mean and deviation of each.
    ln_weight_priors: Vec<(f64, f64)>,
    /// ln of the variance added to each observation.
    ln_nugget: f64,
}

/// How a kernel is relearnt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Learning {
    /// Random kernels tried.
    pub(super) proposals: u32,
    /// Parameters changed in each, on average.
    pub(super) moves: f64,
    /// Deviation of a change, on the logarithm.
    pub(super) step: f64,
}

impl Kernel {
    /// What runs of this space taught, in the mean: a fresh kernel begins here, and stays near. `None` of none.
    pub(super) fn taught_by<'k>(runs: impl ExactSizeIterator<Item = &'k Self>) -> Option<Self> {
        let share = 1.0 / runs.len() as f64;
        let mut runs = runs.cloned();
        let mut mean = runs.next()?;
        let parts = |kernel: &mut Self| {
            kernel.ln_weights.iter_mut().for_each(|ln_w| *ln_w *= share);
            kernel.ln_nugget *= share;
        };
        parts(&mut mean);
        for mut run in runs {
            parts(&mut run);
            for (sum, ln_w) in mean.ln_weights.iter_mut().zip(&run.ln_weights) {
                *sum += ln_w;
            }
            mean.ln_nugget += run.ln_nugget;
        }
        let priors = mean.ln_weights.iter();
        mean.ln_weight_priors = priors.map(|&ln_w| (ln_w, LEARNT_DEVIATION)).collect();
        Some(mean)
    }

    fn nugget(&self) -> f64 {
        self.ln_nugget.exp()
    }

    fn log_prior(&self) -> f64 {
        let square = |x: f64, mean: f64, deviation: f64| ((x - mean) / deviation).powi(2);
        let weights: f64 = std::iter::zip(&self.ln_weights, &self.ln_weight_priors)
            .map(|(&ln_w, &(mean, deviation))| square(ln_w, mean, deviation))
            .sum();
        let nugget = square(self.ln_nugget, START_LN_NUGGET, PRIOR_NUGGET_DEVIATION);
        -0.5 * (weights + nugget)
    }

    /// A random step on a few of the parameters, kept in range. A step on all of them at once would
    /// seldom be an improvement where there are many.
    fn propose(&self, learning: Learning, rng: &mut impl Rng) -> Self {
        let share = (learning.moves / (self.ln_weights.len() + 1) as f64).min(1.0);
        let mut stepped = |x: f64, (low, high): (f64, f64)| {
            if !rng.random_bool(share) {
                return x;
            }
            let normal: f64 = StandardNormal.sample(rng);
            (x + learning.step * normal).clamp(low.ln(), high.ln())
        };
        Self {
            ln_weights: self
                .ln_weights
                .iter()
                .map(|&ln_w| stepped(ln_w, WEIGHT_RANGE))
                .collect(),
            ln_weight_priors: self.ln_weight_priors.clone(),
            ln_nugget: stepped(self.ln_nugget, NUGGET_RANGE),
        }
    }
}

/// The process and the points it stands on.
#[derive(Clone, Debug)]
pub(super) struct Gp {
    axes: Vec<Axis>,
    kernel: Kernel,
    /// Per axis: how alike each pair of its values is.
    tables: Vec<Vec<f64>>,
    /// Per axis: the value index of each row.
    columns: Vec<Vec<u16>>,
    factor: Cholesky,
    /// K⁻¹·y for the targets last given.
    weights: Vec<f64>,
    scratch: Vec<f64>,
    block: Vec<[f64; BLOCK]>,
}

impl Gp {
    /// A process over these knobs.
    pub(super) fn new(knobs: &[Knob]) -> Self {
        let axes: Vec<Axis> = knobs
            .iter()
            .enumerate()
            .filter_map(|(index, knob)| Axis::new(index, knob))
            .collect();
        let ln_weight_priors: Vec<(f64, f64)> = axes
            .iter()
            .flat_map(Axis::scales)
            .map(prior_ln_weight)
            .collect();
        let kernel = Kernel {
            ln_weights: ln_weight_priors.iter().map(|&(mean, _)| mean).collect(),
            ln_weight_priors,
            ln_nugget: START_LN_NUGGET,
        };
        let tables = tables(&axes, &kernel);
        let columns = vec![Vec::new(); axes.len()];
        Self {
            axes,
            kernel,
            tables,
            columns,
            factor: Cholesky::default(),
            weights: Vec::new(),
            scratch: Vec::new(),
            block: Vec::new(),
        }
    }

    /// Rows so far.
    pub(super) fn len(&self) -> usize {
        self.factor.len()
    }

    /// What was learnt.
    pub(super) fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Appends a point.
    pub(super) fn push(&mut self, point: &Point) {
        let mut row = std::mem::take(&mut self.scratch);
        row.clear();
        self.covariances(point, &mut row);
        self.factor.push(&row, 1.0 + self.kernel.nugget());
        self.scratch = row;
        for (column, axis) in self.columns.iter_mut().zip(&self.axes) {
            column.push(point.0[axis.knob]);
        }
    }

    /// Forgets the points, not the kernel.
    pub(super) fn clear(&mut self) {
        self.factor.clear();
        self.columns.iter_mut().for_each(Vec::clear);
        self.weights.clear();
    }

    /// Conditions on one target per row.
    pub(super) fn condition(&mut self, targets: &[f64]) {
        self.weights.clear();
        self.weights.extend_from_slice(targets);
        self.factor.solve_lower(&mut self.weights);
        self.factor.solve_upper(&mut self.weights);
    }

    /// Appends the covariances of `point` with every row to `out`.
    pub(super) fn covariances(&self, point: &Point, out: &mut Vec<f64>) {
        let first = out.len();
        out.resize(first + self.factor.len(), 1.0);
        for ((axis, table), column) in self.axes.iter().zip(&self.tables).zip(&self.columns) {
            let start = usize::from(point.0[axis.knob]) * axis.values;
            let line = &table[start..start + axis.values];
            for (entry, &value) in out[first..].iter_mut().zip(column) {
                *entry *= line[usize::from(value)];
            }
        }
    }

    /// One number per row, such that what the process explains of them is gone: L⁻¹·x for K = L·Lᵀ.
    pub(super) fn whitened(&self, mut numbers: Vec<f64>) -> Vec<f64> {
        self.factor.solve_lower(&mut numbers);
        numbers
    }

    /// The posterior mean of a point with these covariances.
    pub(super) fn mean(&self, covariances: &[f64]) -> f64 {
        dot(covariances, &self.weights)
    }

    /// The posterior standard deviations of as many points as `block` has columns: entry c of its
    /// row r is the covariance of point c with row r. Overwrites `block`.
    pub(super) fn deviations(&self, block: &mut [[f64; BLOCK]]) -> [f64; BLOCK] {
        self.factor.solve_lower_block(block);
        let mut explained = [0.0; BLOCK];
        for entries in &*block {
            for (sum, entry) in explained.iter_mut().zip(entries) {
                *sum += entry * entry;
            }
        }
        explained.map(|explained| (1.0 - explained).max(1e-12).sqrt())
    }

    /// No more than this can [`Self::deviation`] be: what the nearest row alone says.
    pub(super) fn deviation_bound(&self, covariances: &[f64]) -> f64 {
        let nearest = covariances.iter().copied().fold(0.0, f64::max);
        (1.0 - nearest * nearest / (1.0 + self.kernel.nugget()))
            .max(1e-12)
            .sqrt()
    }

    /// Tries random kernels on these targets and keeps each that raises log marginal likelihood plus
    /// prior.
    pub(super) fn learn(&mut self, targets: &[f64], learning: Learning, rng: &mut impl Rng) {
        let mut score = self.log_posterior(targets);
        let mut trial = self.clone();
        for _ in 0..learning.proposals {
            trial.set_kernel(self.kernel.propose(learning, rng));
            let trial_score = trial.log_posterior(targets);
            if trial_score > score {
                score = trial_score;
                std::mem::swap(self, &mut trial);
            }
        }
        self.weights.clear();
    }

    /// Takes another kernel for the same points.
    pub(super) fn set_kernel(&mut self, kernel: Kernel) {
        self.kernel = kernel;
        self.tables = tables(&self.axes, &self.kernel);
        let rows = self.factor.len();
        let variance = 1.0 + self.kernel.nugget();
        self.factor.clear();
        let mut entries = [1.0; BLOCK];
        for first in (0..rows).step_by(BLOCK) {
            let count = BLOCK.min(rows - first);
            self.block.clear();
            self.block.resize(first + count, [1.0; BLOCK]);
            for ((axis, table), column) in self.axes.iter().zip(&self.tables).zip(&self.columns) {
                let values = &column[first..first + count];
                for (row, &value) in self.block.iter_mut().zip(column) {
                    let line = &table[usize::from(value) * axis.values..][..axis.values];
                    for (entry, &value) in entries.iter_mut().zip(values) {
                        *entry = line[usize::from(value)];
                    }
                    for (product, entry) in row.iter_mut().zip(&entries) {
                        *product *= entry;
                    }
                }
            }
            let (before, within) = self.block.split_at_mut(first);
            self.factor.push_block(before, within, variance);
        }
    }

    fn log_posterior(&mut self, targets: &[f64]) -> f64 {
        self.scratch.clear();
        self.scratch.extend_from_slice(targets);
        self.factor.solve_lower(&mut self.scratch);
        let fit = -0.5 * dot(&self.scratch, &self.scratch) - self.factor.half_log_det();
        fit + self.kernel.log_prior()
    }
}

fn tables(axes: &[Axis], kernel: &Kernel) -> Vec<Vec<f64>> {
    let mut weights = kernel.ln_weights.iter().map(|ln_w| ln_w.exp());
    axes.iter()
        .map(|axis| {
            let own: Vec<f64> = weights.by_ref().take(axis.scales().count()).collect();
            axis.similarities(&own)
        })
        .collect()
}
