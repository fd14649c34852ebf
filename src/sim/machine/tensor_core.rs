//! Sums of products as Hopper's tensor cores make them, bit for bit: the products of a step and what they are added to
//! are cut below a last place that the largest exponent among them sets, added exactly, and the sum is cut to
//! float32. Exponents are those of the operands added, before a product is normalised; a subnormal number has the
//! exponent of the least normal one.

use pulp::{Arch, NullaryFnOnce};

/// Rows of a warp's product.
pub(in crate::sim::machine) const ROWS: usize = 16;

/// Least normal numbers of float16 and of float32.
pub(in crate::sim::machine) const HALF: f64 = 1.0 / (1u64 << 14) as f64;
pub(in crate::sim::machine) const SINGLE: f64 = f32::MIN_POSITIVE as f64;

/// The first power of two that float32 does not reach.
const BEYOND: f64 = 2.0 * (1u128 << 127) as f64;

/// What tensor cores make of a NaN, and of infinities that cancel.
const NAN: f32 = f32::from_bits(0x7fff_ffff);

/// One step: A (by depth, then row) times B (by depth, then column), added to sums (by row, then column).
pub(in crate::sim::machine) struct Terms<'a> {
    pub a: &'a [f32],
    pub b: &'a [f32],
    pub columns: usize,
    /// The smallest normal numbers of A, B and the sums.
    pub least: [f64; 3],
    /// Places after the point that a term keeps, where the largest exponent is 0.
    pub places: i32,
}

impl Terms<'_> {
    /// Of products of 16 bits and more.
    pub const PLACES: i32 = 25;
    /// Of a warpgroup's products of 8 bits.
    pub const FEW_PLACES: i32 = 13;

    pub fn add_to(&self, sums: &mut [f32], arch: Arch) {
        arch.dispatch(Addition { terms: self, sums });
    }
}

struct Addition<'a> {
    terms: &'a Terms<'a>,
    sums: &'a mut [f32],
}

impl NullaryFnOnce for Addition<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let &Terms {
            a,
            b,
            columns,
            least,
            places,
        } = self.terms;
        let powers: Vec<f64> = b.iter().map(|&value| power(value, least[1])).collect();
        let (mut scale, mut total) = (vec![0.0; columns], vec![0.0; columns]);
        for (row, sums) in self.sums.chunks_exact_mut(columns).enumerate() {
            let depth = || a.iter().skip(row).step_by(ROWS);
            // The largest exponents first.
            for (largest, &sum) in scale.iter_mut().zip(&*sums) {
                *largest = power(sum, least[2]);
            }
            for (&a, powers) in depth().zip(powers.chunks_exact(columns)) {
                let a = power(a, least[0]);
                for (largest, &b) in scale.iter_mut().zip(powers) {
                    let product = a * b;
                    *largest = if product > *largest {
                        product
                    } else {
                        *largest
                    };
                }
            }
            for ((scale, total), &sum) in scale.iter_mut().zip(&mut total).zip(&*sums) {
                *scale = 2.0f64.powi(places) / *scale;
                *total = (f64::from(sum) * *scale).trunc();
            }
            for (&a, b) in depth().zip(b.chunks_exact(columns)) {
                for ((total, scale), &b) in total.iter_mut().zip(&scale).zip(b) {
                    *total += (f64::from(a) * f64::from(b) * scale).trunc();
                }
            }
            for (column, sum) in sums.iter_mut().enumerate() {
                let value = total[column] / scale[column];
                // Nothing but zeros, or something that is not finite: nothing is cut.
                *sum = if value.is_finite() && scale[column] > 0.0 {
                    single(value)
                } else {
                    let b = b.iter().skip(column).step_by(columns);
                    let products = depth().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b));
                    single(f64::from(*sum) + products.sum::<f64>())
                };
            }
        }
    }
}

/// The power of two that a number's exponent names; 0 of a zero, infinity of what is not finite.
#[inline(always)]
fn power(value: f32, least: f64) -> f64 {
    let power = f64::from_bits(f64::from(value).to_bits() & 0x7ff0_0000_0000_0000);
    if power > 0.0 { power.max(least) } else { 0.0 }
}

/// A sum as float32, cut towards zero; what is cut to nothing is plus zero.
#[inline(always)]
pub(in crate::sim::machine) fn single(value: f64) -> f32 {
    if value.is_nan() {
        return NAN;
    }
    let near = value as f32;
    let cut = if near.is_infinite() && value.abs() >= BEYOND {
        near
    } else if f64::from(near).abs() > value.abs() {
        f32::from_bits(near.to_bits() - 1)
    } else {
        near
    };
    if cut == 0.0 { 0.0 } else { cut }
}

/// A float32 addition whose NaN is a tensor core's.
pub(super) fn add(a: f32, b: f32) -> f32 {
    let sum = a + b;
    if sum.is_nan() { NAN } else { sum }
}
