//! Floating point: the fast paths that the host rounds as the GPU does, and the exact ones for every format.

use super::super::regs::{LANES, Regs, Wide, lanes};
use super::compare::gather;
use crate::sim::float::{self, Format, Rounding};
use crate::sim::op::{FloatMode, FloatOp, FloatTest, FloatUnary, FusedClamp, Slot};
use crate::sim::tensor_map::OUTSIDE_NAN;

const UPPER_WORD: u64 = 0xffff_ffff << 32;
/// As an operand of 16 bits, without its sign.
const OUTSIDE: u64 = OUTSIDE_NAN as u64;

/// f32 results carry the one canonical NaN.
#[inline(always)]
pub(super) fn canonical(x: f32) -> u32 {
    if x.is_nan() { 0x7fff_ffff } else { x.to_bits() }
}

#[expect(clippy::too_many_arguments, reason = "an instruction's fields")]
pub(super) fn float_binary(
    regs: &mut Regs<'_>,
    mask: u32,
    format: Format,
    op: FloatOp,
    mode: FloatMode,
    dst: Slot,
    a: Slot,
    b: Slot,
) {
    let wide = format == Format::F64;
    let (x, y) = (regs.bits(wide, a), regs.bits(wide, b));
    let mut out: Wide = [0; LANES];
    lanes!(mask, lane => { out[lane] = binary(format, op, mode, x[lane], y[lane]); });
    regs.set_bits(mask, wide, dst, &out);
}

pub(super) fn float_fma(
    regs: &mut Regs<'_>,
    mask: u32,
    format: Format,
    mode: FloatMode,
    clamp: FusedClamp,
    dst: Slot,
    [a, b, c]: [Slot; 3],
) {
    let wide = format == Format::F64;
    let (x, y, z) = (regs.bits(wide, a), regs.bits(wide, b), regs.bits(wide, c));
    let mut out: Wide = [0; LANES];
    lanes!(mask, lane => { out[lane] = fused(format, mode, clamp, [x[lane], y[lane], z[lane]]); });
    regs.set_bits(mask, wide, dst, &out);
}

/// `testp`.
pub(super) fn test_property(
    regs: &mut Regs<'_>,
    mask: u32,
    (format, test): (Format, FloatTest),
    dst: Slot,
    a: Slot,
) {
    let x = regs.bits(format == Format::F64, a);
    let bits = gather(|lane| float::test(format, test, x[lane]));
    regs.set_pred(mask, dst, bits);
}

#[inline]
pub(super) fn binary(format: Format, op: FloatOp, mode: FloatMode, a: u64, b: u64) -> u64 {
    let (a, b) = if mode.ftz {
        (format.flush(a), format.flush(b))
    } else {
        (a, b)
    };
    finish(format, mode, float::binary(format, op, mode.rounding, a, b))
}

#[inline]
pub(super) fn fused(format: Format, mode: FloatMode, clamp: FusedClamp, operands: [u64; 3]) -> u64 {
    if clamp.outside && operands[..2].iter().any(|x| x & !format.sign() == OUTSIDE) {
        return 0;
    }
    let [a, b, c] = if mode.ftz {
        operands.map(|x| format.flush(x))
    } else {
        operands
    };
    let result = match (format, mode.rounding) {
        (Format::F32, Rounding::NearestEven) => {
            let [a, b, c] = [a, b, c].map(|x| f32::from_bits(x as u32));
            u64::from(canonical(a.mul_add(b, c)))
        }
        (Format::F64, Rounding::NearestEven) => {
            let r = f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c));
            if r.is_nan() {
                float::fused(format, mode.rounding, a, b, c)
            } else {
                r.to_bits()
            }
        }
        (Format::F16 | Format::Bf16 | Format::F32 | Format::F64, _) => {
            float::fused(format, mode.rounding, a, b, c)
        }
    };
    let result = finish(format, mode, result);
    let negative = result >> (format.bits() - 1) != 0;
    if clamp.relu && negative && !format.is_nan(result) {
        0
    } else {
        result
    }
}

#[inline]
pub(super) fn unary(format: Format, op: FloatUnary, mode: FloatMode, a: u64) -> u64 {
    let a = if mode.ftz { format.flush(a) } else { a };
    if format == Format::F64 && mode.ftz {
        // Approximations of doubles look at the upper word alone, and give no more.
        let result = float::unary(format, op, mode.rounding, a & UPPER_WORD);
        let result = if format.is_nan(result) {
            u64::MAX >> 1
        } else {
            result
        };
        return result & UPPER_WORD;
    }
    finish(format, mode, float::unary(format, op, mode.rounding, a))
}

#[inline]
pub(super) fn half(x: u32, i: u32) -> u64 {
    u64::from(x >> (16 * i) & 0xffff)
}

#[inline]
pub(super) fn halves(f: impl Fn(u32) -> u64) -> u32 {
    (f(1) as u32) << 16 | f(0) as u32
}

fn finish(format: Format, mode: FloatMode, result: u64) -> u64 {
    let result = if mode.ftz {
        format.flush(result)
    } else {
        result
    };
    if mode.sat {
        format.saturate(result)
    } else {
        result
    }
}
