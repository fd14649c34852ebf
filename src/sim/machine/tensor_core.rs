//! Sums of products as Hopper's tensor cores make them for `mma`, bit for bit: the products of a step and what they are
//! added to are cut below a last place that the largest exponent among them sets, added exactly, and the sum is cut
//! to float32. Exponents are those of the operands added, before a product is normalised; a subnormal number has the
//! exponent of the least normal one.

use pulp::{Arch, NullaryFnOnce};

/// Places after the point that a term keeps, where the largest exponent is 0.
const PLACES: f64 = (1u64 << 25) as f64;

/// The first power of two that float32 does not reach.
const BEYOND: f64 = 2.0 * (1u128 << 127) as f64;

/// Columns of B and of the sums.
pub(super) const COLUMNS: usize = 8;
pub(super) const ROWS: usize = 16;
/// Deepest product, of 8-bit elements.
pub(super) const DEPTH: usize = 32;

/// What tensor cores make of a NaN, and of infinities that cancel.
const NAN: f32 = f32::from_bits(0x7fff_ffff);

pub(super) type ByRows = [[f64; DEPTH]; ROWS];
pub(super) type ByDepth = [[f64; COLUMNS]; DEPTH];
pub(super) type Table = [[f32; COLUMNS]; ROWS];

/// Products of rows and columns of which elements `steps[n]` meet in step n, added to `sums`. `least`: the smallest
/// normal number of A, B and the sums.
pub(super) struct Steps<'a> {
    pub by_rows: &'a ByRows,
    pub by_depth: &'a ByDepth,
    pub steps: &'a [Vec<usize>],
    pub least: [f64; 3],
    pub sums: Table,
}

impl Steps<'_> {
    pub fn sum(self, arch: Arch) -> Table {
        arch.dispatch(self)
    }
}

impl NullaryFnOnce for Steps<'_> {
    type Output = Table;

    #[inline(always)]
    fn call(self) -> Table {
        let Self {
            by_rows,
            by_depth,
            steps,
            least,
            mut sums,
        } = self;
        let mut b_powers = [[0.0; COLUMNS]; DEPTH];
        for (powers, values) in b_powers.iter_mut().zip(by_depth) {
            *powers = values.map(|value| power(value, least[1]));
        }
        for step in steps {
            for (sums, row) in sums.iter_mut().zip(by_rows) {
                let before: [f64; COLUMNS] = sums.map(f64::from);
                let mut largest = before.map(|sum| power(sum, least[2]));
                for &k in step {
                    let a = power(row[k], least[0]);
                    for (largest, b) in largest.iter_mut().zip(&b_powers[k]) {
                        let product = a * b;
                        *largest = if product > *largest {
                            product
                        } else {
                            *largest
                        };
                    }
                }
                let scale = largest.map(|power| PLACES / power);
                let mut total: [f64; COLUMNS] =
                    std::array::from_fn(|column| (before[column] * scale[column]).trunc());
                for &k in step {
                    for (column, total) in total.iter_mut().enumerate() {
                        let product = row[k] * by_depth[k][column];
                        *total += (product * scale[column]).trunc();
                    }
                }
                for (column, sum) in sums.iter_mut().enumerate() {
                    let value = total[column] / scale[column];
                    *sum = if value.is_finite() && largest[column].is_finite() {
                        cut(value)
                    } else {
                        let products = step.iter().map(|&k| row[k] * by_depth[k][column]);
                        single(before[column] + products.sum::<f64>())
                    };
                }
            }
        }
        sums
    }
}

/// The power of two that a number's exponent names; 0 of a zero, infinity of what is not finite.
#[inline(always)]
fn power(value: f64, least: f64) -> f64 {
    let power = f64::from_bits(value.to_bits() & 0x7ff0_0000_0000_0000);
    if power > 0.0 { power.max(least) } else { 0.0 }
}

/// To float32, towards zero; what is cut to nothing is plus zero.
#[inline(always)]
fn cut(value: f64) -> f32 {
    let near = value as f32;
    let toward = if near.is_infinite() && value.abs() >= BEYOND {
        near
    } else if f64::from(near).abs() > value.abs() {
        f32::from_bits(near.to_bits() - 1)
    } else {
        near
    };
    if toward == 0.0 { 0.0 } else { toward }
}

/// A sum of which nothing is cut before.
pub(in crate::sim::machine) fn single(value: f64) -> f32 {
    if value.is_nan() { NAN } else { cut(value) }
}

/// A float32 addition whose NaN is a tensor core's.
pub(super) fn add(a: f32, b: f32) -> f32 {
    let sum = a + b;
    if sum.is_nan() { NAN } else { sum }
}
