//! Attention: for each query, a softmax over its products with the keys weighs the values. The parts of the
//! result are told apart here; each row is computed alone, from its own head. Pure.

use super::pieces::{Arithmetic, Real};
use crate::task::Problem;

/// One output of attention over `queries[b, h, s, d]`, keys and values of the same shape.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The weighed values, d elements a query.
    Values,
    /// The natural logarithm of the weights' sum, before they are divided by it.
    LogSum,
}

impl Attention {
    /// The output numbered `output`; `None` where the shapes are not those of attention.
    pub(super) fn of(causal: bool, output: usize, problem: &Problem) -> Option<Self> {
        let shapes: Vec<&[u64]> = problem.inputs().map(|input| &*input.shape).collect();
        let wanted = &problem.outputs().nth(output)?.shape;
        let [q @ [_, _, s, d], k, v] = shapes.as_slice() else {
            return None;
        };
        let part = match output {
            0 => Part::Values,
            _ => Part::LogSum,
        };
        let fits = q == k && q == v && wanted[..] == q[..4 - part.dropped()];
        fits.then_some(Self {
            causal,
            part,
            s: *s,
            d: *d,
        })
    }

    /// Output elements of one row.
    pub(super) fn length(&self) -> u64 {
        match self.part {
            Part::Values => self.d,
            Part::LogSum => 1,
        }
    }

    /// Products that an element takes.
    pub(super) fn terms(&self) -> u64 {
        2 * self.s * self.d / self.length()
    }

    /// The elements of the row numbered so, counted through all heads.
    pub(super) fn row<T: Real>(&self, row: u64, with: &Arithmetic<'_, T>) -> Vec<(T, T)> {
        let (s, d) = (self.s, self.d);
        let (head, position) = (row / s, row % s);
        let keys = if self.causal { position + 1 } else { s };
        let of_head = head * s * d..(head * s + keys) * d;
        let q = (with.read)(0, row * d..(row + 1) * d);
        let scale = T::of(1.0 / (d as f64).sqrt());
        let scores: Vec<T> = (with.read)(1, of_head.clone())
            .chunks_exact(d as usize)
            .map(|k| {
                let products: Vec<T> = q.iter().zip(k).map(|(q, k)| *q * *k).collect();
                (with.sum)(&products) * scale
            })
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
        let sum = (with.sum)(&weights);
        match self.part {
            Part::LogSum => {
                let y = largest + T::of(sum.wide().ln());
                vec![(y, T::of(y.wide().abs()))]
            }
            Part::Values => {
                let weights: Vec<T> = weights.into_iter().map(with.factor).collect();
                let v = (with.read)(2, of_head);
                (0..d as usize)
                    .map(|column| {
                        let values = v[column..].iter().step_by(d as usize);
                        let terms: Vec<T> =
                            weights.iter().zip(values).map(|(p, v)| *p * *v).collect();
                        let squares: f64 = terms.iter().map(|term| term.wide().powi(2)).sum();
                        ((with.sum)(&terms) / sum, T::of(squares.sqrt()) / sum)
                    })
                    .collect()
            }
        }
    }
}

impl Part {
    /// Inner dimensions of the inputs that this output lacks.
    fn dropped(self) -> usize {
        match self {
            Self::Values => 0,
            Self::LogSum => 1,
        }
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
}
