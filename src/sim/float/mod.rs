//! Floating point as the GPU does it: every rounding mode, subnormal flushing, saturation, canonical NaNs
//! and conversions between all scalar types. Bits in, bits out; pure. The machine's fast paths cover the
//! common modes; everything here may be slow but is exact.

mod convert;
mod small;

use std::ops::{Add, Div, Mul, Sub};

use rustc_apfloat::ieee::{BFloat, Double, Half, Quad, Single};
use rustc_apfloat::{Float, FloatConvert, Round};

use super::op::{FloatOp, FloatTest, FloatUnary};

pub(crate) use convert::convert;
pub(crate) use small::{Small, e4m3_value, e5m2_value, to_tf32};

/// A scalar float format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Format {
    F16,
    Bf16,
    F32,
    F64,
}

/// A rounding mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rounding {
    NearestEven,
    NearestAway,
    Zero,
    Down,
    Up,
}

impl Rounding {
    fn apfloat(self) -> Round {
        match self {
            Self::NearestEven => Round::NearestTiesToEven,
            Self::NearestAway => Round::NearestTiesToAway,
            Self::Zero => Round::TowardZero,
            Self::Down => Round::TowardNegative,
            Self::Up => Round::TowardPositive,
        }
    }
}

impl Format {
    pub(crate) fn bits(self) -> u32 {
        match self {
            Self::F16 | Self::Bf16 => 16,
            Self::F32 => 32,
            Self::F64 => 64,
        }
    }

    fn mantissa_bits(self) -> u32 {
        match self {
            Self::F16 => 10,
            Self::Bf16 => 7,
            Self::F32 => 23,
            Self::F64 => 52,
        }
    }

    pub(crate) fn sign(self) -> u64 {
        1 << (self.bits() - 1)
    }

    fn exponent_mask(self) -> u64 {
        (self.sign() - 1) & !self.mantissa_mask()
    }

    fn mantissa_mask(self) -> u64 {
        (1 << self.mantissa_bits()) - 1
    }

    /// The NaN that operations on NaNs give; doubles hand theirs on.
    pub(crate) fn nan(self) -> u64 {
        match self {
            Self::F16 | Self::Bf16 => 0x7fff,
            Self::F32 => 0x7fff_ffff,
            Self::F64 => 0x7ff8_0000_0000_0000,
        }
    }

    /// The NaN of an operation without a result, such as ∞ − ∞.
    fn invalid(self) -> u64 {
        match self {
            Self::F16 | Self::Bf16 | Self::F32 => self.nan(),
            Self::F64 => self.nan() | self.sign(),
        }
    }

    /// 1.0
    pub(crate) fn one(self) -> u64 {
        match self {
            Self::F16 => 0x3c00,
            Self::Bf16 => 0x3f80,
            Self::F32 => 0x3f80_0000,
            Self::F64 => 0x3ff0_0000_0000_0000,
        }
    }

    pub(crate) fn is_nan(self, bits: u64) -> bool {
        bits & self.exponent_mask() == self.exponent_mask() && bits & self.mantissa_mask() != 0
    }

    fn is_subnormal(self, bits: u64) -> bool {
        bits & self.exponent_mask() == 0 && bits & self.mantissa_mask() != 0
    }

    /// A subnormal becomes a zero of its sign.
    pub(crate) fn flush(self, bits: u64) -> u64 {
        if self.is_subnormal(bits) {
            bits & self.sign()
        } else {
            bits
        }
    }

    /// Clamps to [0, 1]; NaN gives +0.
    pub(crate) fn saturate(self, bits: u64) -> u64 {
        if self.is_nan(bits) || bits & self.sign() != 0 {
            0
        } else {
            bits.min(self.one())
        }
    }

    /// The value; exact for every format.
    pub(crate) fn value(self, bits: u64) -> f64 {
        match self {
            Self::F16 => half::f16::from_bits(bits as u16).to_f64(),
            Self::Bf16 => half::bf16::from_bits(bits as u16).to_f64(),
            Self::F32 => f64::from(f32::from_bits(bits as u32)),
            Self::F64 => f64::from_bits(bits),
        }
    }

    /// Rounds a double into this format; NaN becomes the canonical one.
    pub(crate) fn round(self, value: f64, rounding: Rounding) -> u64 {
        if self == Self::F32 && rounding == Rounding::NearestEven && !value.is_nan() {
            return u64::from((value as f32).to_bits());
        }
        self.narrow_quad(
            to_quad(Double::from_bits(u128::from(value.to_bits()))),
            rounding,
        )
    }

    fn quad(self, bits: u64) -> Quad {
        let bits = u128::from(bits);
        match self {
            Self::F16 => to_quad(Half::from_bits(bits)),
            Self::Bf16 => to_quad(BFloat::from_bits(bits)),
            Self::F32 => to_quad(Single::from_bits(bits)),
            Self::F64 => to_quad(Double::from_bits(bits)),
        }
    }

    fn narrow_quad(self, value: Quad, rounding: Rounding) -> u64 {
        if value.is_nan() {
            return self.nan();
        }
        let mode = rounding.apfloat();
        let mut lost = false;
        let bits = match self {
            Self::F16 => FloatConvert::<Half>::convert_r(value, mode, &mut lost)
                .value
                .to_bits(),
            Self::Bf16 => FloatConvert::<BFloat>::convert_r(value, mode, &mut lost)
                .value
                .to_bits(),
            Self::F32 => FloatConvert::<Single>::convert_r(value, mode, &mut lost)
                .value
                .to_bits(),
            Self::F64 => FloatConvert::<Double>::convert_r(value, mode, &mut lost)
                .value
                .to_bits(),
        };
        bits as u64
    }
}

fn to_quad<F: FloatConvert<Quad>>(value: F) -> Quad {
    value.convert(&mut false).value
}

/// Runs a body with the format's soft-float type.
macro_rules! with_format {
    ($format:expr, $float:ident => $body:expr) => {
        match $format {
            Format::F16 => {
                type $float = Half;
                $body
            }
            Format::Bf16 => {
                type $float = BFloat;
                $body
            }
            Format::F32 => {
                type $float = Single;
                $body
            }
            Format::F64 => {
                type $float = Double;
                $body
            }
        }
    };
}

/// Two-operand arithmetic, correctly rounded.
pub(crate) fn binary(format: Format, op: FloatOp, rounding: Rounding, a: u64, b: u64) -> u64 {
    match op {
        FloatOp::Min | FloatOp::Max | FloatOp::MinNan | FloatOp::MaxNan => {
            return extremum(format, op, a, b);
        }
        FloatOp::MinXorsign => return extremum_of_magnitudes(format, FloatOp::Min, a, b),
        FloatOp::MaxXorsign => return extremum_of_magnitudes(format, FloatOp::Max, a, b),
        FloatOp::MinNanXorsign => return extremum_of_magnitudes(format, FloatOp::MinNan, a, b),
        FloatOp::MaxNanXorsign => return extremum_of_magnitudes(format, FloatOp::MaxNan, a, b),
        FloatOp::Add | FloatOp::Sub | FloatOp::Mul | FloatOp::Div => {}
    }
    if format == Format::F64 && (format.is_nan(a) || format.is_nan(b)) {
        return propagate(a, b, a);
    }
    if rounding == Rounding::NearestEven
        && let Some(bits) = native(format, op, a, b)
    {
        return bits;
    }
    let mode = rounding.apfloat();
    let bits = with_format!(format, F => {
        let (a, b) = (F::from_bits(u128::from(a)), F::from_bits(u128::from(b)));
        let result = match op {
            FloatOp::Add => a.add_r(b, mode),
            FloatOp::Sub => a.sub_r(b, mode),
            FloatOp::Mul => a.mul_r(b, mode),
            FloatOp::Div
            | FloatOp::Min
            | FloatOp::Max
            | FloatOp::MinNan
            | FloatOp::MaxNan
            | FloatOp::MinXorsign
            | FloatOp::MaxXorsign
            | FloatOp::MinNanXorsign
            | FloatOp::MaxNanXorsign => a.div_r(b, mode),
        }
        .value;
        if result.is_nan() { None } else { Some(result.to_bits() as u64) }
    });
    bits.unwrap_or(format.invalid())
}

/// f32 and f64 at round-to-nearest are the host's own.
fn native(format: Format, op: FloatOp, a: u64, b: u64) -> Option<u64> {
    match format {
        Format::F32 => {
            let (a, b) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
            let r = arithmetic(op, a, b)?;
            Some(if r.is_nan() {
                format.nan()
            } else {
                u64::from(r.to_bits())
            })
        }
        Format::F64 => {
            let (a, b) = (f64::from_bits(a), f64::from_bits(b));
            let r = arithmetic(op, a, b)?;
            Some(if r.is_nan() {
                format.invalid()
            } else {
                r.to_bits()
            })
        }
        Format::F16 | Format::Bf16 => None,
    }
}

/// The four operations of the host; `None` for the extrema, which have their own rules.
fn arithmetic<F>(op: FloatOp, a: F, b: F) -> Option<F>
where
    F: Add<Output = F> + Sub<Output = F> + Mul<Output = F> + Div<Output = F>,
{
    match op {
        FloatOp::Add => Some(a + b),
        FloatOp::Sub => Some(a - b),
        FloatOp::Mul => Some(a * b),
        FloatOp::Div => Some(a / b),
        FloatOp::Min
        | FloatOp::Max
        | FloatOp::MinNan
        | FloatOp::MaxNan
        | FloatOp::MinXorsign
        | FloatOp::MaxXorsign
        | FloatOp::MinNanXorsign
        | FloatOp::MaxNanXorsign => None,
    }
}

/// A double's NaN operand goes through, quieted; the first one wins.
fn propagate(a: u64, b: u64, c: u64) -> u64 {
    const QUIET: u64 = 1 << 51;
    [a, b, c]
        .into_iter()
        .find(|&x| Format::F64.is_nan(x))
        .map_or(Format::F64.nan(), |x| x | QUIET)
}

fn extremum(format: Format, op: FloatOp, a: u64, b: u64) -> u64 {
    let least = matches!(op, FloatOp::Min | FloatOp::MinNan);
    let nan_wins = matches!(op, FloatOp::MinNan | FloatOp::MaxNan);
    match (format.is_nan(a), format.is_nan(b)) {
        (true, true) if format == Format::F64 => return propagate(a, b, a),
        (true, true) => return format.nan(),
        (true, false) => return if nan_wins { format.nan() } else { b },
        (false, true) => return if nan_wins { format.nan() } else { a },
        (false, false) => {}
    }
    // Order by sign and magnitude, so that −0 is less than +0.
    let key = |x: u64| {
        let magnitude = (x & !format.sign()) as i128;
        if x & format.sign() != 0 {
            -magnitude - 1
        } else {
            magnitude
        }
    };
    if (key(a) <= key(b)) == least { a } else { b }
}

/// With the sign of the product.
fn extremum_of_magnitudes(format: Format, op: FloatOp, a: u64, b: u64) -> u64 {
    let sign = format.sign();
    let magnitude = extremum(format, op, a & !sign, b & !sign);
    if format.is_nan(magnitude) {
        magnitude
    } else {
        magnitude | (a ^ b) & sign
    }
}

/// a·b + c, rounded once.
pub(crate) fn fused(format: Format, rounding: Rounding, a: u64, b: u64, c: u64) -> u64 {
    if format == Format::F64 && [a, b, c].iter().any(|&x| format.is_nan(x)) {
        return propagate(a, b, c);
    }
    let mode = rounding.apfloat();
    let bits = with_format!(format, F => {
        let [a, b, c] = [a, b, c].map(|x| F::from_bits(u128::from(x)));
        let result = a.mul_add_r(b, c, mode).value;
        if result.is_nan() { None } else { Some(result.to_bits() as u64) }
    });
    bits.unwrap_or(format.invalid())
}

/// One-operand functions. Reciprocal and square root are correctly rounded; the others are good to half
/// an ULP, better than the hardware's approximations.
pub(crate) fn unary(format: Format, op: FloatUnary, rounding: Rounding, a: u64) -> u64 {
    match op {
        // On all but bf16 these are additions: NaNs come out as those do.
        FloatUnary::Neg | FloatUnary::Abs
            if format.is_nan(a) && matches!(format, Format::F16 | Format::F32) =>
        {
            return format.nan();
        }
        FloatUnary::Neg | FloatUnary::Abs if format.is_nan(a) && format == Format::F64 => {
            return propagate(a, a, a);
        }
        FloatUnary::Neg => return a ^ format.sign(),
        FloatUnary::Abs => return a & !format.sign(),
        FloatUnary::Rcp => return binary(format, FloatOp::Div, rounding, format.one(), a),
        FloatUnary::Sqrt => return square_root(format, rounding, a),
        FloatUnary::Rsqrt
        | FloatUnary::Ex2
        | FloatUnary::Lg2
        | FloatUnary::Sin
        | FloatUnary::Cos
        | FloatUnary::Tanh => {}
    }
    let x = format.value(a);
    let y = match op {
        FloatUnary::Rsqrt => 1.0 / x.sqrt(),
        FloatUnary::Ex2 => x.exp2(),
        FloatUnary::Lg2 => x.log2(),
        FloatUnary::Sin => x.sin(),
        FloatUnary::Cos => x.cos(),
        FloatUnary::Tanh
        | FloatUnary::Neg
        | FloatUnary::Abs
        | FloatUnary::Rcp
        | FloatUnary::Sqrt => x.tanh(),
    };
    format.round(y, Rounding::NearestEven)
}

fn square_root(format: Format, rounding: Rounding, a: u64) -> u64 {
    let x = format.value(a);
    if x.is_nan() && format == Format::F64 {
        return propagate(a, a, a);
    }
    let root = x.sqrt();
    if root.is_nan() {
        return format.invalid();
    }
    if root == 0.0 || root.is_infinite() {
        return format.round(root, rounding);
    }
    // The double root is within half an ULP; the sign of its exact residue says on which side the true root lies.
    let exact = to_quad(Double::from_bits(u128::from(root.to_bits())));
    let square = exact.mul_r(exact, Round::NearestTiesToEven).value;
    let target = to_quad(Double::from_bits(u128::from(x.to_bits())));
    let order = square.partial_cmp(&target);
    if format == Format::F64 {
        let bits = match (rounding, order) {
            (Rounding::Up, Some(std::cmp::Ordering::Less)) => root.next_up(),
            (Rounding::Down | Rounding::Zero, Some(std::cmp::Ordering::Greater)) => {
                root.next_down()
            }
            _ => root,
        };
        return bits.to_bits();
    }
    // Narrower: nudge the double off any rounding boundary (round to odd), then round once.
    let odd = match order {
        Some(std::cmp::Ordering::Less) if root.to_bits() & 1 == 0 => root.next_up(),
        Some(std::cmp::Ordering::Greater) if root.to_bits() & 1 == 0 => root.next_down(),
        _ => root,
    };
    format.round(odd, rounding)
}

/// `testp`.
pub(crate) fn test(format: Format, test: FloatTest, a: u64) -> bool {
    let nan = format.is_nan(a);
    let magnitude = a & !format.sign();
    let infinite = magnitude == format.exponent_mask();
    match test {
        FloatTest::Finite => !nan && !infinite,
        FloatTest::Infinite => infinite,
        FloatTest::Number => !nan,
        FloatTest::NotANumber => nan,
        // Zero is no subnormal, so it counts as normal.
        FloatTest::Normal => !nan && !infinite && !format.is_subnormal(a),
        FloatTest::Subnormal => format.is_subnormal(a),
    }
}

/// The value of an f16 number; exact, but for what a NaN carries.
#[inline]
pub(crate) fn f16_value(bits: u32) -> f32 {
    // Its exponent and mantissa, read as those of an f32, are too small by a power of two: subnormals too.
    const SCALE: f32 = f32::from_bits((127 + 112) << 23);
    let magnitude = bits & 0x7fff;
    let value = if magnitude >= 0x7c00 {
        f32::from_bits(0x7f80_0000 | magnitude << 13)
    } else {
        f32::from_bits(magnitude << 13) * SCALE
    };
    f32::from_bits(value.to_bits() | (bits & 0x8000) << 16)
}

#[cfg(test)]
mod tests {
    #[test]
    fn halves_have_the_values_of_the_format() {
        for bits in 0..=u16::MAX {
            let (got, want) = (
                super::f16_value(u32::from(bits)),
                half::f16::from_bits(bits),
            );
            assert_eq!(got.is_nan(), want.is_nan(), "{bits:#x}");
            assert!(
                got.is_nan() || got.to_bits() == want.to_f32().to_bits(),
                "{bits:#x}"
            );
        }
    }
}
