//! Arithmetic on a warp's registers, one file a kind of operand. No memory, no control flow.

mod bits;
mod compare;
mod convert;
mod float;
mod integer;

use super::regs::{LANES, Regs, lanes};
use super::window;
use crate::sim::float::{Format, to_tf32};
use crate::sim::op::{Alu, Width};
use bits::{
    bit_field_extract, bit_field_insert, bit_query, byte, extended, find_nth_set, ones, permute,
};
use compare::{compare_halves, compare_lanes, gather, logic, select, select_by_sign};
use convert::{convert, convert_packed, pack, unpack};
use float::{
    binary, canonical, float_binary, float_fma, fused, half, halves, test_property, unary,
};
use integer::{beside, carry_chain, int_unary, int16, int32, int64, mad, mul_wide, mul24, sad};

/// Executes one operation for the lanes of `mask`. `carry` is the warp's carry flag, one bit a lane. What is
/// common is inlined, so that it becomes the vector instructions that its caller is compiled for.
#[inline(always)]
pub(super) fn execute(alu: &Alu, regs: &mut Regs<'_>, mask: u32, carry: &mut u32) {
    match *alu {
        Alu::FFma { dst, a, b, c } => regs.n3(mask, dst, [a, b, c], |a, b, c| {
            canonical(f32::from_bits(a).mul_add(f32::from_bits(b), f32::from_bits(c)))
        }),
        Alu::FAdd { dst, a, b } => regs.n2(mask, dst, a, b, |a, b| {
            canonical(f32::from_bits(a) + f32::from_bits(b))
        }),
        Alu::FMul { dst, a, b } => regs.n2(mask, dst, a, b, |a, b| {
            canonical(f32::from_bits(a) * f32::from_bits(b))
        }),
        Alu::Int {
            width,
            op,
            signed,
            dst,
            a,
            b,
        } => match width {
            Width::B16 => int16(regs, mask, op, signed, dst, a, b),
            Width::B32 => int32(regs, mask, op, signed, dst, a, b),
            Width::B64 => int64(regs, mask, op, signed, dst, a, b),
        },
        Alu::AddSat {
            subtract,
            dst,
            a,
            b,
        } => regs.n2(mask, dst, a, b, |a, b| {
            let (a, b) = (a as i32, b as i32);
            (if subtract {
                a.saturating_sub(b)
            } else {
                a.saturating_add(b)
            }) as u32
        }),
        Alu::IntUnary { width, op, dst, a } => int_unary(regs, mask, width, op, dst, a),
        Alu::BitQuery {
            width,
            op,
            signed,
            dst,
            a,
        } => bit_query(regs, mask, width, op, signed, dst, a),
        Alu::MulWide {
            width,
            signed,
            dst,
            a,
            b,
        } => mul_wide(regs, mask, width, signed, dst, a, b, None),
        Alu::MadWide {
            width,
            signed,
            dst,
            a,
            b,
            c,
        } => mul_wide(regs, mask, width, signed, dst, a, b, Some(c)),
        Alu::Mad {
            width,
            high,
            signed,
            saturate,
            dst,
            a,
            b,
            c,
        } => {
            mad(regs, mask, (width, high, signed, saturate), dst, [a, b, c]);
        }
        Alu::Mul24 {
            high,
            signed,
            dst,
            a,
            b,
            c,
        } => mul24(regs, mask, (high, signed), dst, [a, b], c),
        Alu::Sad {
            width,
            signed,
            dst,
            a,
            b,
            c,
        } => sad(regs, mask, (width, signed), dst, [a, b, c]),
        Alu::Carry {
            wide,
            op,
            signed,
            carry_in,
            carry_out,
            dst,
            a,
            b,
            c,
        } => {
            let input = if carry_in { *carry } else { 0 };
            let out = carry_chain(regs, mask, (wide, op, signed), input, dst, [a, b, c]);
            if carry_out {
                *carry = (*carry & !mask) | (out & mask);
            }
        }
        Alu::Bfe {
            wide,
            signed,
            dst,
            a,
            b,
            c,
        } => bit_field_extract(regs, mask, (wide, signed), dst, [a, b, c]),
        Alu::Bfi {
            wide,
            dst,
            a,
            b,
            c,
            d,
        } => bit_field_insert(regs, mask, wide, dst, [a, b, c, d]),
        Alu::Fns {
            dst,
            mask: bits,
            base,
            offset,
        } => {
            regs.n3(mask, dst, [bits, base, offset], |bits, base, offset| {
                find_nth_set(bits, base, offset as i32)
            });
        }
        Alu::Prmt { mode, dst, a, b, c } => {
            regs.n3(mask, dst, [a, b, c], |a, b, c| permute(mode, a, b, c))
        }
        Alu::Lop3 {
            lut,
            dst,
            a,
            b,
            c,
            test,
        } => {
            regs.n3(mask, dst, [a, b, c], |a, b, c| {
                let term = |bit: u8, x: u32, y: u32, z: u32| {
                    let wanted = u32::from(lut >> bit & 1).wrapping_neg();
                    wanted & x & y & z
                };
                term(0, !a, !b, !c)
                    | term(1, !a, !b, c)
                    | term(2, !a, b, !c)
                    | term(3, !a, b, c)
                    | term(4, a, !b, !c)
                    | term(5, a, !b, c)
                    | term(6, a, b, !c)
                    | term(7, a, b, c)
            });
            if let Some((op, with, any)) = test {
                let result = regs.n(dst);
                let set = gather(|lane| result[lane] != 0);
                let bits = logic(op, set, regs.pred(with));
                regs.set_pred(mask, any, bits);
            }
        }
        Alu::Shf {
            left,
            clamp,
            dst,
            a,
            b,
            c,
        } => regs.n3(mask, dst, [a, b, c], |a, b, c| {
            let n = if clamp { c.min(32) } else { c & 31 };
            let both = u64::from(b) << 32 | u64::from(a);
            if left {
                ((both << n) >> 32) as u32
            } else {
                (both >> n) as u32
            }
        }),
        Alu::Dp4a {
            a_signed,
            b_signed,
            dst,
            a,
            b,
            c,
        } => regs.n3(mask, dst, [a, b, c], |a, b, c| {
            (0..4).fold(c, |sum, i| {
                let (x, y) = (byte(a, i, a_signed), byte(b, i, b_signed));
                sum.wrapping_add(x.wrapping_mul(y) as u32)
            })
        }),
        Alu::Dp2a {
            high,
            a_signed,
            b_signed,
            dst,
            a,
            b,
            c,
        } => regs.n3(mask, dst, [a, b, c], |a, b, c| {
            (0..2).fold(c, |sum, i| {
                let half = (a >> (16 * i)) as u16;
                let x = if a_signed {
                    i32::from(half as i16)
                } else {
                    i32::from(half)
                };
                let y = byte(b, i + if high { 2 } else { 0 }, b_signed);
                sum.wrapping_add(x.wrapping_mul(y) as u32)
            })
        }),
        Alu::Float {
            format,
            op,
            mode,
            dst,
            a,
            b,
        } => float_binary(regs, mask, format, op, mode, dst, a, b),
        Alu::FloatFma {
            format,
            mode,
            clamp,
            dst,
            a,
            b,
            c,
        } => {
            float_fma(regs, mask, format, mode, clamp, dst, [a, b, c]);
        }
        Alu::FloatUnary {
            format,
            op,
            mode,
            dst,
            a,
        } => {
            let wide = format == Format::F64;
            let x = regs.bits(wide, a);
            let mut out = [0; LANES];
            lanes!(mask, lane => { out[lane] = unary(format, op, mode, x[lane]); });
            regs.set_bits(mask, wide, dst, &out);
        }
        Alu::Packed {
            format,
            op,
            mode,
            dst,
            a,
            b,
        } => {
            let (x, y) = (regs.n(a), regs.n(b));
            let mut out = [0; LANES];
            lanes!(mask, lane => { out[lane] = halves(|i| binary(format, op, mode, half(x[lane], i), half(y[lane], i))); });
            regs.set_n(mask, dst, &out);
        }
        Alu::PackedFma {
            format,
            mode,
            clamp,
            dst,
            a,
            b,
            c,
        } => {
            let (x, y, z) = (regs.n(a), regs.n(b), regs.n(c));
            let mut out = [0; LANES];
            lanes!(mask, lane => {
                out[lane] = halves(|i| fused(format, mode, clamp, [half(x[lane], i), half(y[lane], i), half(z[lane], i)]));
            });
            regs.set_n(mask, dst, &out);
        }
        Alu::PackedUnary {
            format,
            op,
            mode,
            dst,
            a,
        } => {
            let x = regs.n(a);
            let mut out = [0; LANES];
            lanes!(mask, lane => { out[lane] = halves(|i| unary(format, op, mode, half(x[lane], i))); });
            regs.set_n(mask, dst, &out);
        }
        Alu::Copysign {
            wide: false,
            dst,
            a,
            b,
        } => {
            regs.n2(mask, dst, a, b, |a, b| {
                (b & 0x7fff_ffff) | (a & 0x8000_0000)
            });
        }
        Alu::Copysign {
            wide: true,
            dst,
            a,
            b,
        } => {
            regs.w2(mask, dst, a, b, |a, b| (b & !(1 << 63)) | (a & 1 << 63));
        }
        Alu::Testp {
            format,
            test,
            dst,
            a,
        } => test_property(regs, mask, (format, test), dst, a),
        Alu::Setp {
            ty,
            compare,
            combine,
            dst,
            inverse,
            a,
            b,
        } => {
            let plain = compare_lanes(regs, ty, compare, a, b);
            let (mut yes, mut no) = (plain, !plain);
            if let Some((op, with)) = combine {
                let with = regs.pred(with);
                yes = logic(op, yes, with);
                no = logic(op, no, with);
            }
            regs.set_pred(mask, dst, yes);
            if let Some(inverse) = inverse {
                regs.set_pred(mask, inverse, no);
            }
        }
        Alu::SetpPacked {
            format,
            ftz,
            compare,
            combine,
            dst,
            a,
            b,
        } => {
            let bits = compare_halves(regs, (format, ftz), (compare, combine), a, b);
            regs.set_pred(mask, dst[0], bits[0]);
            regs.set_pred(mask, dst[1], bits[1]);
        }
        Alu::SetPacked {
            format,
            ftz,
            compare,
            combine,
            truth,
            dst,
            a,
            b,
        } => {
            let bits = compare_halves(regs, (format, ftz), (compare, combine), a, b);
            let half = |at: usize, lane: usize| (bits[at] >> lane & 1) * u32::from(truth);
            let values = std::array::from_fn(|lane| half(1, lane) << 16 | half(0, lane));
            regs.set_n(mask, dst, &values);
        }
        Alu::Set {
            ty,
            compare,
            combine,
            truth,
            dst,
            a,
            b,
        } => {
            let mut bits = compare_lanes(regs, ty, compare, a, b);
            if let Some((op, with)) = combine {
                bits = logic(op, bits, regs.pred(with));
            }
            let values = std::array::from_fn(|lane| if bits >> lane & 1 != 0 { truth } else { 0 });
            regs.set_n(mask, dst, &values);
        }
        Alu::Selp {
            wide,
            dst,
            a,
            b,
            condition,
        } => select(regs, mask, wide, dst, [a, b], condition),
        Alu::Slct {
            wide,
            float,
            ftz,
            dst,
            a,
            b,
            c,
        } => select_by_sign(regs, mask, (wide, float, ftz), dst, [a, b, c]),
        Alu::PredLogic { op, dst, a, b } => {
            let bits = logic(op, regs.pred(a), regs.pred(b));
            regs.set_pred(mask, dst, bits);
        }
        Alu::PredMove { dst, a } => {
            let bits = regs.pred(a);
            regs.set_pred(mask, dst, bits);
        }
        Alu::Move32 { dst, a } => regs.n1(mask, dst, a, |a| a),
        Alu::Move64 { dst, a } => regs.w1(mask, dst, a, |a| a),
        Alu::Move128 { lower, upper } => {
            let values = [regs.w(lower[1]), regs.w(upper[1])];
            regs.set_w(mask, lower[0], &values[0]);
            regs.set_w(mask, upper[0], &values[1]);
        }
        Alu::Beside {
            parts,
            op,
            signed,
            relu,
            dst,
            a,
            b,
        } => regs.n2(mask, dst, a, b, |a, b| {
            beside(parts, op, (signed, relu), a, b)
        }),
        Alu::Mask {
            extends,
            signed,
            clamp,
            dst,
            a,
            b,
        } => regs.n2(mask, dst, a, b, |a, b| {
            let b = if clamp { b.min(32) } else { b & 31 };
            match extends {
                true => extended(a, b, signed),
                false => ones(if clamp { a } else { a & 31 }, b),
            }
        }),
        Alu::Pack { dst, ref parts } => pack(regs, mask, dst, parts),
        Alu::Unpack { src, ref parts } => unpack(regs, mask, src, parts),
        Alu::Convert { cvt, dst, a } => convert(regs, mask, &cvt, dst, a),
        Alu::ConvertPacked { cvt, dst, a, b } => convert_packed(regs, mask, &cvt, dst, [a, b]),
        Alu::ToSmall {
            small,
            packed,
            relu,
            dst,
            a,
            b,
        } => regs.n2(mask, dst, a, b, |a, b| {
            let [high, low] = if packed {
                [a >> 16, a].map(|bits| half::f16::from_bits(bits as u16).to_f64())
            } else {
                [a, b].map(|bits| f64::from(f32::from_bits(bits)))
            };
            u32::from(small.round(high, relu)) << 8 | u32::from(small.round(low, relu))
        }),
        Alu::FromSmall {
            small,
            relu,
            dst,
            a,
        } => regs.n1(mask, dst, a, |a| {
            let wide = |bits: u32| {
                let value = small.value(bits as u8);
                let out = half::f16::from_f32(value).to_bits();
                match (value.is_nan(), relu && out & 0x8000 != 0) {
                    (true, _) => 0x7fff,
                    (false, true) => 0,
                    (false, false) => u32::from(out),
                }
            };
            wide(a >> 8) << 16 | wide(a)
        }),
        Alu::ToTf32 {
            rounding,
            relu,
            finite,
            dst,
            a,
        } => regs.n1(mask, dst, a, |a| to_tf32(a, rounding, relu, finite)),
        Alu::PackSaturated {
            bits,
            signed,
            dst,
            a,
            b,
            c,
        } => convert::pack_saturated(regs, mask, (bits, signed), dst, [a, b], c),
        Alu::Cvta {
            space,
            to_generic,
            dst,
            a,
        } => {
            let base = window::base(space);
            let x = regs.any(a);
            let values = x.map(|x| {
                if to_generic {
                    x.wrapping_add(base)
                } else {
                    x.wrapping_sub(base)
                }
            });
            regs.set_any(mask, dst, &values);
        }
        Alu::Isspacep { space, dst, a } => {
            let x = regs.any(a);
            let bits = gather(|lane| window::of(x[lane]) == space);
            regs.set_pred(mask, dst, bits);
        }
    }
}
