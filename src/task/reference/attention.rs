//! Attention and its gradient: for each query, a softmax over its products with the keys weighs the values.
//! The parts of a result are told apart here; each row is computed alone, from its own head. Pure.

use std::ops::Range;

use super::pieces::{Arithmetic, Real};
use crate::task::Problem;

/// One output of attention, or of its gradient, over queries `[b, h, s, d]`, keys and values of the same shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attention {
    /// A query sees the keys up to its own position only.
    causal: bool,
    part: Part,
    /// Positions of a head.
    s: u64,
    /// Elements of a position.
    d: u64,
}

/// Which way a task goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From q, k and v to o and the logarithms.
    Forward,
    /// From those, o's gradient and the logarithms to the gradients of q, k and v.
    Backward,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The weighed values, d elements a query.
    Values,
    /// The natural logarithm of the weights' sum, before they are divided by it.
    LogSum,
    /// The gradients, d elements a position.
    Dq,
    Dk,
    Dv,
}

/// The inputs, in the order that a task declares them.
const Q: usize = 0;
const K: usize = 1;
const V: usize = 2;
const O: usize = 3;
const DOUT: usize = 4;
const LSE: usize = 5;

impl Attention {
    /// The output numbered `output`; `None` where the shapes are not those of attention.
    pub(super) fn of(
        direction: Direction,
        causal: bool,
        output: usize,
        problem: &Problem,
    ) -> Option<Self> {
        let shapes: Vec<&[u64]> = problem.inputs().map(|input| &*input.shape).collect();
        let wanted = &*problem.outputs().nth(output)?.shape;
        let q: &[u64; 4] = (*shapes.first()?).try_into().ok()?;
        let logarithms = &q[..3];
        let (part, inputs): (_, &[&[u64]]) = match (direction, output) {
            (Direction::Forward, 0) => (Part::Values, &[q, q, q]),
            (Direction::Forward, _) => (Part::LogSum, &[q, q, q]),
            (Direction::Backward, 0) => (Part::Dq, &[q, q, q, q, q, logarithms]),
            (Direction::Backward, 1) => (Part::Dk, &[q, q, q, q, q, logarithms]),
            (Direction::Backward, _) => (Part::Dv, &[q, q, q, q, q, logarithms]),
        };
        let own = match part {
            Part::LogSum => logarithms,
            Part::Values | Part::Dq | Part::Dk | Part::Dv => q,
        };
        let [_, _, s, d] = *q;
        (shapes == inputs && wanted == own).then_some(Self { causal, part, s, d })
    }

    /// Output elements of one row.
    pub(super) fn length(&self) -> u64 {
        match self.part {
            Part::LogSum => 1,
            Part::Values | Part::Dq | Part::Dk | Part::Dv => self.d,
        }
    }

    /// Products that an element takes.
    pub(super) fn terms(&self) -> u64 {
        let products = match self.part {
            Part::LogSum | Part::Values => 2,
            Part::Dq | Part::Dk | Part::Dv => 4,
        };
        products * self.s * self.d / self.length()
    }

    /// The elements of the row numbered so, counted through all heads.
    pub(super) fn row<T: Real>(&self, row: u64, with: &Arithmetic<'_, T>) -> Vec<(T, T)> {
        let head = Head {
            first: row / self.s * self.s,
            d: self.d,
            with,
        };
        let position = row % self.s;
        let seen = 0..if self.causal { position + 1 } else { self.s };
        let seeing = if self.causal { position } else { 0 }..self.s;
        match self.part {
            Part::LogSum | Part::Values => self.forward(position, seen, &head),
            Part::Dq => {
                let (_, changes) = head.query(position, seen.clone());
                head.gradient(&changes, K, seen, head.scale())
            }
            Part::Dk => {
                let (_, changes) = head.key(position, seeing.clone());
                head.gradient(&changes, Q, seeing, head.scale())
            }
            Part::Dv => {
                let (weights, _) = head.key(position, seeing.clone());
                head.gradient(&weights, DOUT, seeing, T::of(1.0))
            }
        }
    }

    fn forward<T: Real>(&self, position: u64, seen: Range<u64>, head: &Head<'_, T>) -> Vec<(T, T)> {
        let q = head.rows(Q, position..position + 1);
        let k = head.rows(K, seen.clone());
        let scores: Vec<T> = k
            .chunks_exact(self.d as usize)
            .map(|k| head.dot(&q, k) * head.scale())
            .collect();
        let largest =
            scores.iter().fold(
                T::of(f64::NEG_INFINITY),
                |most, x| if *x > most { *x } else { most },
            );
        let weights: Vec<T> = scores
            .iter()
            .map(|x| T::of((*x - largest).wide().exp()))
            .collect();
        let sum = (head.with.sum)(&weights);
        if self.part == Part::LogSum {
            // What each score's products were before they cancelled, weighed as the scores are.
            let spread = weights.iter().zip(k.chunks_exact(self.d as usize));
            let spread = spread.map(|(weight, k)| {
                let squares = q.iter().zip(k).map(|(q, k)| (*q * *k).wide().powi(2));
                weight.wide() * squares.sum::<f64>().sqrt()
            });
            // An error of the sum relative to itself is one of its logarithm as it stands.
            let scale = 1.0 + spread.sum::<f64>() / sum.wide() * head.scale().wide();
            return vec![(largest + T::of(sum.wide().ln()), T::of(scale))];
        }
        head.gradient(&weights, V, seen, T::of(1.0) / sum)
    }
}

/// The rows of one head.
struct Head<'a, T> {
    /// Number of its first row.
    first: u64,
    d: u64,
    with: &'a Arithmetic<'a, T>,
}

impl<T: Real> Head<'_, T> {
    fn rows(&self, input: usize, positions: Range<u64>) -> Vec<T> {
        let at = |position| (self.first + position) * self.d;
        (self.with.read)(input, at(positions.start)..at(positions.end))
    }

    fn logarithms(&self, positions: Range<u64>) -> Vec<T> {
        let at = |position| self.first + position;
        (self.with.read)(LSE, at(positions.start)..at(positions.end))
    }

    fn scale(&self) -> T {
        T::of(1.0 / (self.d as f64).sqrt())
    }

    fn dot(&self, a: &[T], b: &[T]) -> T {
        let products: Vec<T> = a.iter().zip(b).map(|(a, b)| *a * *b).collect();
        (self.with.sum)(&products)
    }

    /// A query's weight of each key, and the gradient of its score.
    fn query(&self, position: u64, seen: Range<u64>) -> (Vec<T>, Vec<T>) {
        let own = |input| self.rows(input, position..position + 1);
        let (q, dout) = (own(Q), own(DOUT));
        let removed = self.dot(&dout, &own(O));
        let logarithm = self.logarithms(position..position + 1);
        let (k, v) = (self.rows(K, seen.clone()), self.rows(V, seen));
        k.chunks_exact(self.d as usize)
            .zip(v.chunks_exact(self.d as usize))
            .map(|(k, v)| {
                let score = self.dot(&q, k) * self.scale();
                let weight = T::of((score - logarithm[0]).wide().exp());
                (weight, weight * (self.dot(&dout, v) - removed))
            })
            .unzip()
    }

    /// Each query's weight of a key, and the gradient of its score.
    fn key(&self, position: u64, seeing: Range<u64>) -> (Vec<T>, Vec<T>) {
        let own = |input| self.rows(input, position..position + 1);
        let (k, v) = (own(K), own(V));
        let logarithms = self.logarithms(seeing.clone());
        let all = |input| self.rows(input, seeing.clone());
        let (q, o, dout) = (all(Q), all(O), all(DOUT));
        (0..logarithms.len())
            .map(|query| {
                let own = query * self.d as usize..(query + 1) * self.d as usize;
                let dout = &dout[own.clone()];
                let score = self.dot(&q[own.clone()], &k) * self.scale();
                let weight = T::of((score - logarithms[query]).wide().exp());
                let removed = self.dot(dout, &o[own]);
                (weight, weight * (self.dot(dout, &v) - removed))
            })
            .unzip()
    }

    /// Each column of some rows of an input, weighed, added and scaled; and the scale of its terms.
    fn gradient(
        &self,
        weights: &[T],
        input: usize,
        positions: Range<u64>,
        scale: T,
    ) -> Vec<(T, T)> {
        let rows = self.rows(input, positions);
        let weights: Vec<T> = weights
            .iter()
            .map(|weight| (self.with.factor)(*weight))
            .collect();
        (0..self.d as usize)
            .map(|column| {
                let column = rows[column..].iter().step_by(self.d as usize);
                let terms: Vec<T> = weights.iter().zip(column).map(|(p, x)| *p * *x).collect();
                let squares: f64 = terms.iter().map(|term| term.wide().powi(2)).sum();
                (
                    (self.with.sum)(&terms) * scale,
                    T::of(squares.sqrt()) * scale,
                )
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(causal: bool, part: Part, row: u64) -> Vec<f64> {
        let attention = Attention {
            causal,
            part,
            s: 2,
            d: 1,
        };
        // Two heads of two positions of one element.
        let inputs = [
            [0.0, 1.0, 1.0, 2.0],
            [0.0, 2f64.ln(), 0.0, 0.0],
            [3.0, 6.0, 1.0, 5.0],
        ];
        let with = Arithmetic {
            read: &|input, range: std::ops::Range<u64>| {
                inputs[input][range.start as usize..range.end as usize].to_vec()
            },
            sum: &|terms: &[f64]| terms.iter().sum(),
            factor: &|weight| weight,
        };
        let row = attention.row(row, &with);
        row.into_iter().map(|(y, _)| y).collect()
    }

    #[test]
    fn weights_are_those_of_a_softmax() {
        for (causal, part, at, wanted) in [
            (false, Part::Values, 0, 4.5),
            (false, Part::Values, 1, 5.0),
            (false, Part::Values, 2, 3.0),
            (false, Part::LogSum, 1, 3f64.ln()),
            (true, Part::Values, 0, 3.0),
            (true, Part::Values, 1, 5.0),
            (true, Part::Values, 2, 1.0),
            (true, Part::LogSum, 0, 0.0),
        ] {
            let y = row(causal, part, at);
            assert_eq!(y.len(), 1);
            assert!(
                (y[0] - wanted).abs() < 1e-12,
                "{causal} {part:?} {at}: {y:?}"
            );
        }
    }

    /// The gradients are those that small steps show, where o and the logarithms are the forward's own.
    #[test]
    fn gradients_are_slopes() {
        let (s, d) = (3u64, 2usize);
        let values =
            |seed: f64| -> Vec<f64> { (0..6).map(|i| ((i as f64 + 1.0) * seed).sin()).collect() };
        let inputs = [values(1.1), values(2.3), values(0.7)];
        let dout = values(1.9);
        let run = |causal, part, inputs: &[Vec<f64>]| -> Vec<f64> {
            let attention = Attention {
                causal,
                part,
                s,
                d: d as u64,
            };
            let with = Arithmetic {
                read: &|input, range: std::ops::Range<u64>| {
                    inputs[input][range.start as usize..range.end as usize].to_vec()
                },
                sum: &|terms: &[f64]| terms.iter().sum(),
                factor: &|weight| weight,
            };
            let rows = (0..s).flat_map(|row| attention.row(row, &with));
            rows.map(|(y, _)| y).collect()
        };
        for causal in [false, true] {
            let o = run(causal, Part::Values, &inputs);
            let lse = run(causal, Part::LogSum, &inputs);
            let mut all = inputs.to_vec();
            all.extend([o, dout.clone(), lse]);
            for (input, part) in [(Q, Part::Dq), (K, Part::Dk), (V, Part::Dv)] {
                let gradient = run(causal, part, &all);
                for (at, slope) in gradient.iter().enumerate() {
                    let loss = |step: f64| -> f64 {
                        let mut moved = inputs.to_vec();
                        moved[input][at] += step;
                        let o = run(causal, Part::Values, &moved);
                        o.iter().zip(&dout).map(|(o, g)| o * g).sum()
                    };
                    let seen = (loss(1e-5) - loss(-1e-5)) / 2e-5;
                    assert!(
                        (seen - slope).abs() < 1e-8,
                        "{causal} {part:?} {at}: {seen} {slope}"
                    );
                }
            }
        }
    }
}
