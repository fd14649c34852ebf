//! References that are more than sums of products. Their outputs fall into **pieces** (an element, a row, a
//! signal), each computed alone from the inputs, so that one formula serves the full reference, the sampling
//! of large problems and, in f32, the honest kernel of a proof. Pure; it never rounds to an output's type.

use std::ops::{Add, Div, Mul, Neg, Range, Sub};

use statrs::function::erf::erf;

use super::attention::{Attention, Direction};
use crate::task::{Builtin, Problem};

/// Added to a mean of squares before its root is taken.
const RMS_EPSILON: f64 = 1e-5;

/// The pieces of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::task) struct Pieces {
    formula: Formula,
    /// How many there are.
    pub count: u64,
    /// Output elements of each.
    pub length: u64,
    /// Products that an element takes, where they are many.
    pub terms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Formula {
    Silu,
    Gelu,
    Softmax,
    RmsNorm,
    Rope { heads: u64 },
    Stencil5pt,
    Fft,
    Conv2d3x3 { height: u64, width: u64, c: u64 },
    Attention(Attention),
}

/// The arithmetic that a formula is computed with.
pub(in crate::task) struct Arithmetic<'a, T> {
    /// Elements of the input numbered so.
    pub read: &'a dyn Fn(usize, Range<u64>) -> Vec<T>,
    /// The sum of some terms.
    pub sum: &'a dyn Fn(&[T]) -> T,
    /// A factor as it is multiplied, where a tolerance lets it be rounded.
    pub factor: &'a dyn Fn(T) -> T,
}

/// f32 or f64. Functions are rounded once.
pub(in crate::task) trait Real:
    Copy
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// The nearest number of this type.
    fn of(value: f64) -> Self;
    /// Its value.
    fn wide(self) -> f64;
}

impl Real for f64 {
    fn of(value: f64) -> Self {
        value
    }
    fn wide(self) -> f64 {
        self
    }
}

impl Real for f32 {
    fn of(value: f64) -> Self {
        value as Self
    }
    fn wide(self) -> f64 {
        f64::from(self)
    }
}

impl Pieces {
    /// Those of the output numbered `output`. Checks that the problem's shapes are what the reference takes.
    pub(super) fn of(builtin: Builtin, output: usize, problem: &Problem) -> Result<Self, String> {
        let attention = match builtin {
            Builtin::AttentionFwd => Attention::of(Direction::Forward, false, output, problem),
            Builtin::AttentionFwdCausal => Attention::of(Direction::Forward, true, output, problem),
            Builtin::AttentionBwd => Attention::of(Direction::Backward, false, output, problem),
            Builtin::AttentionBwdCausal => {
                Attention::of(Direction::Backward, true, output, problem)
            }
            Builtin::Silu
            | Builtin::Gelu
            | Builtin::Softmax
            | Builtin::RmsNorm
            | Builtin::Rope
            | Builtin::Stencil5pt
            | Builtin::Fft
            | Builtin::Conv2d3x3
            | Builtin::ReduceSum
            | Builtin::Transpose
            | Builtin::Sgemm
            | Builtin::GemmNt => None,
        };
        let output = problem
            .outputs()
            .nth(output)
            .ok_or("the task has no such output")?;
        if let Some(attention) = attention {
            return Ok(Self {
                count: output.elements / attention.length(),
                length: attention.length(),
                terms: attention.terms(),
                formula: Formula::Attention(attention),
            });
        }
        let shapes: Vec<&[u64]> = problem.inputs().map(|input| &*input.shape).collect();
        let elements = output.elements;
        let (formula, length) = match (builtin, shapes.as_slice()) {
            (Builtin::Silu, [_]) => (Formula::Silu, 1),
            (Builtin::Gelu, [_]) => (Formula::Gelu, 1),
            (Builtin::Softmax, [[_, cols]]) => (Formula::Softmax, *cols),
            (Builtin::RmsNorm, [[_, cols], [weights]]) if cols == weights => {
                (Formula::RmsNorm, *cols)
            }
            (Builtin::Rope, [[positions, heads, d], cos, sin])
                if d % 2 == 0 && cos == sin && **cos == [*positions, d / 2] =>
            {
                (Formula::Rope { heads: *heads }, *d)
            }
            (Builtin::Stencil5pt, [[_, cols]]) => (Formula::Stencil5pt, *cols),
            (Builtin::Conv2d3x3, [[batch, height, width, c], [k, 3, 3, same]])
                if c == same && output.shape == [*batch, *height, *width, *k] =>
            {
                let (height, width, c) = (*height, *width, *c);
                return Ok(Self {
                    formula: Formula::Conv2d3x3 { height, width, c },
                    count: elements / k,
                    length: *k,
                    terms: 9 * c,
                });
            }
            (Builtin::Fft, [[_, n, 2]]) if n.is_power_of_two() => (Formula::Fft, 2 * n),
            (
                Builtin::Silu
                | Builtin::Gelu
                | Builtin::Softmax
                | Builtin::RmsNorm
                | Builtin::Rope
                | Builtin::Stencil5pt
                | Builtin::Fft
                | Builtin::Conv2d3x3
                | Builtin::ReduceSum
                | Builtin::Transpose
                | Builtin::Sgemm
                | Builtin::GemmNt
                | Builtin::AttentionFwd
                | Builtin::AttentionFwdCausal
                | Builtin::AttentionBwd
                | Builtin::AttentionBwdCausal,
                _,
            ) => {
                return Err(format!(
                    "inputs of shapes {shapes:?} are not the reference's"
                ));
            }
        };
        if shapes.first() != Some(&&*output.shape) {
            return Err(format!(
                "output {} has shape {:?}, the reference gives that of the first input",
                output.name, output.shape
            ));
        }
        Ok(Self {
            formula,
            count: elements / length,
            length,
            terms: 1,
        })
    }

    /// The elements of one piece: each its value, and √Σ of its terms' squares where it is a sum, else |value|.
    pub(in crate::task) fn compute<T: Real>(
        &self,
        piece: u64,
        with: &Arithmetic<'_, T>,
    ) -> Vec<(T, T)> {
        let own = piece * self.length..(piece + 1) * self.length;
        match &self.formula {
            Formula::Silu => map(&(with.read)(0, own), |x| {
                x / (T::of(1.0) + T::of((-x).wide().exp()))
            }),
            Formula::Gelu => (with.read)(0, own)
                .into_iter()
                .map(|x| {
                    let half = T::of(0.5) * x;
                    let erf = T::of(erf((T::of(std::f64::consts::FRAC_1_SQRT_2) * x).wide()));
                    scaled_sum(with, &[half, half * erf])
                })
                .collect(),
            Formula::Softmax => softmax(&(with.read)(0, own), with),
            Formula::RmsNorm => {
                let x = (with.read)(0, own);
                let w = (with.read)(1, 0..self.length);
                let squares: Vec<T> = x.iter().map(|x| *x * *x).collect();
                let mean = (with.sum)(&squares) / T::of(self.length as f64);
                let root = T::of((mean + T::of(RMS_EPSILON)).wide().sqrt());
                x.iter()
                    .zip(&w)
                    .map(|(x, w)| magnitude(*x / root * *w))
                    .collect()
            }
            Formula::Rope { heads } => {
                let half = self.length / 2;
                let position = piece / *heads;
                let angles = position * half..(position + 1) * half;
                let (cos, sin) = ((with.read)(1, angles.clone()), (with.read)(2, angles));
                let x = (with.read)(0, own);
                let (low, high) = x.split_at(half as usize);
                let turned = |i: usize| {
                    (
                        scaled_sum(with, &[low[i] * cos[i], -(high[i] * sin[i])]),
                        scaled_sum(with, &[high[i] * cos[i], low[i] * sin[i]]),
                    )
                };
                let (mut out, upper): (Vec<_>, Vec<_>) = (0..half as usize).map(turned).unzip();
                out.extend(upper);
                out
            }
            Formula::Stencil5pt => self.stencil(piece, with),
            Formula::Fft => fft(&(with.read)(0, own)),
            Formula::Attention(attention) => attention.row(piece, with),
            Formula::Conv2d3x3 { height, width, c } => {
                let (height, width, c) = (*height, *width, *c);
                let (row, column) = (piece / width % height, piece % width);
                let image = piece / (width * height) * height;
                let mut taps = Vec::new();
                for (tap, (down, right)) in
                    (0..3).flat_map(|d| (0..3).map(move |r| (d, r))).enumerate()
                {
                    let (y, x) = (
                        (row + down).wrapping_sub(1),
                        (column + right).wrapping_sub(1),
                    );
                    if y < height && x < width {
                        let first = ((image + y) * width + x) * c;
                        taps.push((tap as u64 * c, (with.read)(0, first..first + c)));
                    }
                }
                let weights = (with.read)(1, 0..self.length * 9 * c);
                weights
                    .chunks_exact(9 * c as usize)
                    .map(|weights| {
                        let products = taps.iter().flat_map(|(first, values)| {
                            values
                                .iter()
                                .zip(&weights[*first as usize..])
                                .map(|(x, w)| *x * *w)
                        });
                        scaled_sum(with, &products.collect::<Vec<T>>())
                    })
                    .collect()
            }
        }
    }

    fn stencil<T: Real>(&self, row: u64, with: &Arithmetic<'_, T>) -> Vec<(T, T)> {
        let line = |row: u64| (with.read)(0, row * self.length..(row + 1) * self.length);
        let own = line(row);
        let above = (row > 0).then(|| line(row - 1));
        let below = (row + 1 < self.count).then(|| line(row + 1));
        let weight = |x: &T| T::of(0.125) * *x;
        (0..own.len())
            .map(|at| {
                let mut terms = vec![T::of(0.5) * own[at]];
                terms.extend(above.iter().map(|line| weight(&line[at])));
                terms.extend(at.checked_sub(1).map(|west| weight(&own[west])));
                terms.extend(own.get(at + 1).map(weight));
                terms.extend(below.iter().map(|line| weight(&line[at])));
                scaled_sum(with, &terms)
            })
            .collect()
    }
}

fn map<T: Real>(x: &[T], f: impl Fn(T) -> T) -> Vec<(T, T)> {
    x.iter().map(|x| magnitude(f(*x))).collect()
}

fn magnitude<T: Real>(y: T) -> (T, T) {
    (y, T::of(y.wide().abs()))
}

fn scaled_sum<T: Real>(with: &Arithmetic<'_, T>, terms: &[T]) -> (T, T) {
    let squares: f64 = terms.iter().map(|term| term.wide().powi(2)).sum();
    ((with.sum)(terms), T::of(squares.sqrt()))
}

fn softmax<T: Real>(x: &[T], with: &Arithmetic<'_, T>) -> Vec<(T, T)> {
    // A NaN is never the largest, but every exponential's sum.
    let largest = x.iter().fold(
        T::of(f64::NEG_INFINITY),
        |most, x| {
            if *x > most { *x } else { most }
        },
    );
    let powers: Vec<T> = x
        .iter()
        .map(|x| T::of((*x - largest).wide().exp()))
        .collect();
    let sum = (with.sum)(&powers);
    map(&powers, |power| power / sum)
}

/// Radix 2, decimation in time. Every output's terms are all inputs, turned: their squares are summed as if
/// spread evenly over real and imaginary parts.
fn fft<T: Real>(x: &[T]) -> Vec<(T, T)> {
    let n = x.len() / 2;
    let bits = n.trailing_zeros();
    let mut y: Vec<(T, T)> = (0..n)
        .map(|at| {
            let from = at.reverse_bits() >> (usize::BITS - bits).min(usize::BITS - 1);
            (x[2 * from], x[2 * from + 1])
        })
        .collect();
    let mut span = 1;
    while span < n {
        for start in (0..n).step_by(2 * span) {
            for k in 0..span {
                let angle = -std::f64::consts::PI * k as f64 / span as f64;
                let (sin, cos) = (T::of(angle.sin()), T::of(angle.cos()));
                let (a, b) = (y[start + k], y[start + k + span]);
                let turned = (b.0 * cos - b.1 * sin, b.0 * sin + b.1 * cos);
                y[start + k] = (a.0 + turned.0, a.1 + turned.1);
                y[start + k + span] = (a.0 - turned.0, a.1 - turned.1);
            }
        }
        span *= 2;
    }
    let squares: f64 = x.iter().map(|x| x.wide().powi(2)).sum();
    let scale = T::of((squares / 2.0).sqrt());
    y.into_iter()
        .flat_map(|(re, im)| [(re, scale), (im, scale)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(formula: Formula, count: u64, length: u64, inputs: &[&[f64]]) -> Vec<f64> {
        let pieces = Pieces {
            formula,
            count,
            length,
            terms: 1,
        };
        let with = Arithmetic {
            read: &|input, range: Range<u64>| {
                inputs[input][range.start as usize..range.end as usize].to_vec()
            },
            sum: &|terms: &[f64]| terms.iter().sum(),
            factor: &|factor| factor,
        };
        (0..count)
            .flat_map(|piece| pieces.compute(piece, &with))
            .map(|(y, _)| y)
            .collect()
    }

    fn assert_near(got: &[f64], wanted: &[f64]) {
        assert_eq!(got.len(), wanted.len());
        for (got, wanted) in got.iter().zip(wanted) {
            assert!((got - wanted).abs() < 1e-10, "{got} for {wanted}");
        }
    }

    /// From tables; the error function is good to ten digits, far more than any f32 has.
    #[test]
    fn activations_have_their_known_values() {
        let x = [-1.0, 0.0, 1.0];
        let silu = [-0.268_941_421_369_995, 0.0, 0.731_058_578_630_005];
        assert_near(&values(Formula::Silu, 3, 1, &[&x]), &silu);
        let gelu = [-0.158_655_253_931_457, 0.0, 0.841_344_746_068_543];
        assert_near(&values(Formula::Gelu, 3, 1, &[&x]), &gelu);
        let limits = [f64::NEG_INFINITY, f64::INFINITY];
        for formula in [Formula::Silu, Formula::Gelu] {
            let y = values(formula, 2, 1, &[&limits]);
            assert!(y[0].is_nan() && y[1] == f64::INFINITY);
        }
    }

    #[test]
    fn rows_are_normalised() {
        let x = [1e4, 1e4 + 2f64.ln(), f64::NEG_INFINITY, 0.0, f64::NAN, 1.0];
        let y = values(Formula::Softmax, 2, 3, &[&x]);
        assert_near(&y[..3], &[1.0 / 3.0, 2.0 / 3.0, 0.0]);
        assert!(y[3..].iter().all(|y| y.is_nan()));
        let root = f64::sqrt(12.5 + 1e-5);
        let y = values(Formula::RmsNorm, 1, 2, &[&[3.0, 4.0], &[1.0, -2.0]]);
        assert_near(&y, &[3.0 / root, -8.0 / root]);
    }

    #[test]
    fn a_quarter_turn_swaps_the_halves() {
        let x = [1.0, 2.0, 3.0, 4.0];
        let turned = values(
            Formula::Rope { heads: 1 },
            1,
            4,
            &[&x, &[0.0, 1.0], &[1.0, 0.0]],
        );
        assert_near(&turned, &[-3.0, 2.0, 1.0, 4.0]);
    }

    #[test]
    fn neighbours_beyond_the_edge_count_nothing() {
        let y = values(Formula::Stencil5pt, 2, 2, &[&[8.0, 16.0, 24.0, 32.0]]);
        assert_near(&y, &[9.0, 13.0, 17.0, 21.0]);
    }

    /// One image of 1 × 2 pixels, one channel in and out: both lie in the middle row of the weights.
    #[test]
    fn a_convolution_reaches_its_neighbours() {
        let formula = Formula::Conv2d3x3 {
            height: 1,
            width: 2,
            c: 1,
        };
        let weights = [0.0, 0.0, 0.0, 5.0, 7.0, 11.0, 0.0, 0.0, 0.0];
        let y = values(formula, 2, 1, &[&[2.0, 3.0], &weights]);
        assert_near(&y, &[2.0 * 7.0 + 3.0 * 11.0, 2.0 * 5.0 + 3.0 * 7.0]);
    }

    #[test]
    fn the_fast_transform_is_the_plain_one() {
        for n in [1usize, 2, 4, 32] {
            let x: Vec<f64> = (0..2 * n).map(|i| ((i * i) % 7) as f64 - 3.0).collect();
            let mut wanted = vec![0.0; 2 * n];
            for k in 0..n {
                for i in 0..n {
                    let angle = -2.0 * std::f64::consts::PI * (i * k % n) as f64 / n as f64;
                    let (re, im) = (x[2 * i], x[2 * i + 1]);
                    wanted[2 * k] += re * angle.cos() - im * angle.sin();
                    wanted[2 * k + 1] += re * angle.sin() + im * angle.cos();
                }
            }
            assert_near(&values(Formula::Fft, 1, 2 * n as u64, &[&x]), &wanted);
        }
    }
}
