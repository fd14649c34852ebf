//! Floats narrower than 16 bits, and the nineteen bits of tf32.

use super::{Format, Rounding};

/// The value of an `e4m3` number: no infinities, one NaN a sign.
pub(crate) fn e4m3_value(bits: u8) -> f32 {
    let magnitude = bits & 0x7f;
    let value = if magnitude == 0x7f {
        f32::NAN
    } else {
        small_value(u32::from(magnitude), 3, 7)
    };
    if bits & 0x80 != 0 { -value } else { value }
}

/// The value of an `e5m2` number: the upper half of a half.
pub(crate) fn e5m2_value(bits: u8) -> f32 {
    half::f16::from_bits(u16::from(bits) << 8).to_f32()
}

/// The value of a small positive float without special values.
fn small_value(bits: u32, mantissa_bits: u32, bias: i32) -> f32 {
    let exponent = (bits >> mantissa_bits) as i32;
    let mantissa = (bits & ((1 << mantissa_bits) - 1)) as f32;
    let one = (1 << mantissa_bits) as f32;
    if exponent == 0 {
        mantissa / one * 2f32.powi(1 - bias)
    } else {
        (1.0 + mantissa / one) * 2f32.powi(exponent - bias)
    }
}

/// The nearest small float, ties to even; what is too large becomes the largest, as `.satfinite` wants.
fn small_round(value: f64, mantissa_bits: u32, bias: i32, largest: u8) -> u8 {
    if value.is_nan() {
        return 0x7f;
    }
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let magnitude = value.abs();
    if magnitude.is_infinite() {
        return sign | largest;
    }
    // Doubles hold all sources exactly, as normal numbers.
    let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(1 - bias);
    let steps = (magnitude * 2f64.powi(mantissa_bits as i32 - exponent)).round_ties_even();
    // Where rounding reaches the next power of two, the carry does the right thing.
    let bits = (f64::from((exponent + bias - 1) << mantissa_bits) + steps).min(f64::from(largest));
    sign | bits as u8
}

/// An 8-bit float format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Small {
    E4m3,
    E5m2,
}

impl Small {
    pub(crate) fn value(self, bits: u8) -> f32 {
        match self {
            Self::E4m3 => e4m3_value(bits),
            Self::E5m2 => e5m2_value(bits),
        }
    }

    /// To nearest even, finite; with `relu` negative numbers become zero.
    pub(crate) fn round(self, value: f64, relu: bool) -> u8 {
        if relu && value.is_sign_negative() && !value.is_nan() {
            return 0;
        }
        match self {
            Self::E4m3 => small_round(value, 3, 7, 0x7e),
            Self::E5m2 => small_round(value, 2, 15, 0x7b),
        }
    }
}

/// f32 to the nineteen bits that tf32 keeps, in place.
pub(crate) fn to_tf32(bits: u32, rounding: Rounding, relu: bool, finite: bool) -> u32 {
    const DROPPED: u32 = 13;
    const INFINITE: u32 = 0x7f80_0000;
    if f32::from_bits(bits).is_nan() {
        // Half away from zero keeps what it can of a NaN; the others give the one whose kept bits are set.
        let kept = match rounding {
            Rounding::NearestAway => bits,
            Rounding::NearestEven | Rounding::Zero | Rounding::Down | Rounding::Up => {
                Format::F32.nan() as u32
            }
        };
        let kept = kept >> DROPPED << DROPPED;
        // The greatest finite value is made of an infinity by a subtraction that NaNs undergo too.
        return match rounding {
            Rounding::NearestAway if finite => kept - (1 << DROPPED),
            _ => kept,
        };
    }
    if relu && bits >> 31 != 0 {
        return 0;
    }
    let half = 1 << (DROPPED - 1);
    let magnitude = bits & 0x7fff_ffff;
    if magnitude == INFINITE {
        return if finite { bits - (1 << DROPPED) } else { bits };
    }
    let rounded = match rounding {
        Rounding::NearestAway => magnitude + half,
        Rounding::NearestEven => magnitude + half - 1 + (magnitude >> DROPPED & 1),
        Rounding::Zero | Rounding::Down | Rounding::Up => magnitude,
    };
    let kept = rounded >> DROPPED << DROPPED;
    let kept = if finite {
        kept.min(INFINITE - (1 << DROPPED))
    } else {
        kept
    };
    bits & 0x8000_0000 | kept
}

#[cfg(test)]
mod tests {
    use super::Small;

    #[test]
    fn small_floats_come_back_from_their_values() {
        for small in [Small::E4m3, Small::E5m2] {
            for bits in 0..=u8::MAX {
                let value = small.value(bits);
                if value.is_finite() {
                    assert_eq!(small.round(f64::from(value), false), bits, "{small:?}");
                }
            }
        }
    }

    #[test]
    fn small_floats_round_to_even_and_stay_finite() {
        // Halfway between 16 and 18, 18 and 20; beyond the largest; below half the least.
        for (value, bits) in [
            (17.0, 0x58),
            (19.0, 0x5a),
            (1e9, 0x7e),
            (-1e9, 0xfe),
            (1e-9, 0),
        ] {
            assert_eq!(Small::E4m3.round(value, false), bits, "{value}");
        }
        assert_eq!(Small::E5m2.round(f64::INFINITY, false), 0x7b);
        assert_eq!(Small::E5m2.round(-1.0, true), 0);
    }
}
