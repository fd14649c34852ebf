//! The settings among which expected improvement chooses: near the best, anywhere, and in between.

use std::collections::HashSet;

use super::{Point, RngExt, Tuner};

impl Tuner {
    /// Unseen valid settings, without repeats, in a fixed order for a given state.
    pub(super) fn candidates(&mut self) -> Vec<Point> {
        let source = std::sync::Arc::clone(&self.source);
        let space = source.space();
        let top = |n: u32| -> Vec<Point> {
            self.ranking
                .iter()
                .take(n as usize)
                .map(|&trial| self.trials[trial].point.clone())
                .collect()
        };
        let frontier = top(self.params.frontier);
        let parents = top(self.params.parents);
        let choices: Vec<usize> = space.knobs().iter().map(|knob| knob.values.len()).collect();
        let free: Vec<usize> = (0..choices.len())
            .filter(|&knob| choices[knob] > 1)
            .collect();

        let mut pool = Pool::default();
        for best in &frontier {
            for point in space.neighbours(best) {
                pool.add(point, |_| true, &self.index);
            }
        }
        for _ in 0..self.params.uniform {
            pool.add(space.sample(&mut self.rng), |_| true, &self.index);
        }
        if free.len() >= 2 {
            for _ in 0..self.params.two_edits {
                let mut point = frontier[self.rng.random_range(0..frontier.len())].clone();
                let first = self.rng.random_range(0..free.len());
                let second = (first + self.rng.random_range(1..free.len())) % free.len();
                for knob in [free[first], free[second]] {
                    point.0[knob] = self.rng.random_range(0..choices[knob]) as u16;
                }
                pool.add(point, |point| space.is_valid(point), &self.index);
            }
        }
        if parents.len() >= 2 {
            for _ in 0..self.params.crossovers {
                let first = self.rng.random_range(0..parents.len());
                let second = (first + self.rng.random_range(1..parents.len())) % parents.len();
                let mut point = parents[first].clone();
                for &knob in &free {
                    if self.rng.random_bool(0.5) {
                        point.0[knob] = parents[second].0[knob];
                    }
                }
                pool.add(point, |point| space.is_valid(point), &self.index);
            }
        }
        pool.points
    }
}

#[derive(Default)]
struct Pool {
    points: Vec<Point>,
    known: HashSet<Point>,
}

impl Pool {
    fn add(
        &mut self,
        point: Point,
        valid: impl Fn(&Point) -> bool,
        seen: &std::collections::HashMap<Point, usize>,
    ) {
        if !seen.contains_key(&point) && !self.known.contains(&point) && valid(&point) {
            self.known.insert(point.clone());
            self.points.push(point);
        }
    }
}
