//! `cvt`: from any scalar type to any other, rounded, saturated and flushed as the GPU does it.

use rustc_apfloat::ieee::Quad;
use rustc_apfloat::{Float, Round};

use super::{Format, Rounding};
use crate::sim::op::{Cvt, CvtType};

/// `cvt` between any two scalar types. The source is masked to its width; the result is not extended.
#[inline]
pub(crate) fn convert(cvt: &Cvt, a: u64) -> u64 {
    match native_conversion(cvt, a) {
        Some(bits) => bits,
        None => exact_conversion(cvt, a),
    }
}

/// What the host converts exactly as the GPU does.
#[inline]
fn native_conversion(cvt: &Cvt, a: u64) -> Option<u64> {
    if cvt.sat || cvt.relu || cvt.ftz || cvt.finite {
        return None;
    }
    let single = f32::from_bits(a as u32);
    match (cvt.from, cvt.to) {
        (CvtType::Int { bits, signed }, CvtType::Float(Format::F32)) => {
            let nearest = cvt.rounding.is_none_or(|by| by == Rounding::NearestEven);
            let shift = 64 - u32::from(bits);
            let value = a << shift;
            let value = if signed {
                (value as i64 >> shift) as f32
            } else {
                (value >> shift) as f32
            };
            nearest.then_some(u64::from(value.to_bits()))
        }
        (CvtType::Float(Format::F32), CvtType::Int { bits, signed }) if bits <= 32 => {
            if single.is_nan() {
                return Some(0);
            }
            let whole = integral(single, cvt.rounding.unwrap_or(Rounding::Zero))? as i64;
            let within = whole.clamp(least(bits, signed) as i64, most(bits, signed) as i64);
            Some(mask(within as u64, bits))
        }
        (CvtType::Float(Format::F32), CvtType::Float(Format::F32)) if cvt.integral => {
            let by = cvt.rounding.unwrap_or(Rounding::NearestEven);
            let whole = integral(single, by).filter(|whole| !whole.is_nan())?;
            Some(u64::from(whole.to_bits()))
        }
        (CvtType::Float(from), CvtType::Float(to)) if !cvt.integral && !from.is_nan(a) => {
            let nearest = cvt.rounding.is_none_or(|by| by == Rounding::NearestEven);
            match (from, to) {
                (Format::F32, Format::F16) if nearest => {
                    Some(u64::from(half::f16::from_f32(single).to_bits()))
                }
                (Format::F32, Format::Bf16) if nearest => {
                    Some(u64::from(half::bf16::from_f32(single).to_bits()))
                }
                (Format::F16 | Format::Bf16 | Format::F32, Format::F32) => {
                    Some(u64::from((from.value(a) as f32).to_bits()))
                }
                (Format::F16 | Format::Bf16 | Format::F32 | Format::F64, Format::F64) => {
                    Some(from.value(a).to_bits())
                }
                (Format::F64, Format::F32) if nearest => {
                    Some(to.round(from.value(a), Rounding::NearestEven))
                }
                (Format::F16 | Format::Bf16 | Format::F32 | Format::F64, _) => None,
            }
        }
        (CvtType::Int { .. } | CvtType::Float(_), CvtType::Int { .. } | CvtType::Float(_)) => None,
    }
}

fn integral(x: f32, rounding: Rounding) -> Option<f32> {
    match rounding {
        Rounding::NearestEven => Some(x.round_ties_even()),
        Rounding::Zero => Some(x.trunc()),
        Rounding::Down => Some(x.floor()),
        Rounding::Up => Some(x.ceil()),
        Rounding::NearestAway => None,
    }
}

fn exact_conversion(cvt: &Cvt, a: u64) -> u64 {
    match (cvt.from, cvt.to) {
        (
            CvtType::Int { bits, signed },
            CvtType::Int {
                bits: to,
                signed: to_signed,
            },
        ) => {
            let value = integer(a, bits, signed);
            let value = if cvt.sat {
                value.clamp(least(to, to_signed), most(to, to_signed))
            } else {
                value
            };
            mask(value as u64, to)
        }
        (CvtType::Int { bits, signed }, CvtType::Float(format)) => {
            let value = Quad::from_i128(integer(a, bits, signed)).value;
            let out = format.narrow_quad(value, cvt.rounding.unwrap_or(Rounding::NearestEven));
            if cvt.sat { format.saturate(out) } else { out }
        }
        (CvtType::Float(format), CvtType::Int { bits, signed }) => {
            let a = if cvt.ftz { format.flush(a) } else { a };
            if format.is_nan(a) {
                // 64-bit conversions, and those from doubles, give the sign bit alone; the rest give zero.
                return if bits == 64 || format == Format::F64 {
                    1u64 << (bits - 1)
                } else {
                    0
                };
            }
            let value = format.quad(a);
            let rounded = value
                .round_to_integral(cvt.rounding.unwrap_or(Rounding::Zero).apfloat())
                .value;
            let value = rounded.to_i128_r(128, Round::TowardZero, &mut false).value;
            mask(
                value.clamp(least(bits, signed), most(bits, signed)) as u64,
                bits,
            )
        }
        (CvtType::Float(from), CvtType::Float(to)) => {
            let flush_source = cvt.ftz && from == Format::F32;
            let a = if flush_source { from.flush(a) } else { a };
            let rounding = cvt.rounding.unwrap_or(Rounding::NearestEven);
            let out = if from.is_nan(a) {
                convert_nan(from, to, a)
            } else if cvt.integral {
                let rounded = from.quad(a).round_to_integral(rounding.apfloat()).value;
                to.narrow_quad(rounded, Rounding::NearestEven)
            } else {
                to.narrow_quad(from.quad(a), rounding)
            };
            let out = if cvt.ftz && to == Format::F32 {
                to.flush(out)
            } else {
                out
            };
            let out = if cvt.sat { to.saturate(out) } else { out };
            let infinite = out & !to.sign() == to.exponent_mask();
            // The bits below infinity's are those of the greatest finite value.
            let out = if cvt.finite && infinite { out - 1 } else { out };
            if cvt.relu && out & to.sign() != 0 && !to.is_nan(out) {
                0
            } else {
                out
            }
        }
    }
}

/// Doubles keep the top of a NaN's payload and take it over from others; bf16 to f32 is a shift; all else
/// gives the canonical NaN.
fn convert_nan(from: Format, to: Format, a: u64) -> u64 {
    match (from, to) {
        (Format::Bf16, Format::F32) => a << 16,
        (Format::F64, _) | (_, Format::F64) => {
            let sign = if a & from.sign() != 0 { to.sign() } else { 0 };
            let payload = a & from.mantissa_mask();
            let (wide, narrow) = (from.mantissa_bits(), to.mantissa_bits());
            let payload = if wide > narrow {
                payload >> (wide - narrow)
            } else {
                payload << (narrow - wide)
            };
            sign | to.exponent_mask() | payload | 1 << (narrow - 1)
        }
        (Format::F16 | Format::Bf16 | Format::F32, Format::F16 | Format::Bf16 | Format::F32) => {
            to.nan()
        }
    }
}

fn mask(value: u64, bits: u8) -> u64 {
    if bits == 64 {
        value
    } else {
        value & ((1 << bits) - 1)
    }
}

fn integer(value: u64, bits: u8, signed: bool) -> i128 {
    let shift = 64 - u32::from(bits);
    if signed {
        i128::from(((value << shift) as i64) >> shift)
    } else {
        i128::from((value << shift) >> shift)
    }
}

fn least(bits: u8, signed: bool) -> i128 {
    if signed { -(1 << (bits - 1)) } else { 0 }
}

fn most(bits: u8, signed: bool) -> i128 {
    if signed {
        (1 << (bits - 1)) - 1
    } else {
        (1 << bits) - 1
    }
}
