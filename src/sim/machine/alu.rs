//! Arithmetic on a warp's registers. No memory, no control flow.

use pulp::Arch;

use super::super::float::{self, Format, Rounding};
use super::super::op::{
    Alu, BitQuery, CarryOp, Combine, Compare, CompareType, Cvt, CvtType, FloatMode, FloatOp,
    FloatUnary, IntOp, IntUnary, Piece, PrmtMode, Reg, Slot, Width,
};
use super::regs::{LANES, Regs, Wide, lanes};
use super::window;

/// Executes one operation for the lanes of `mask`. `carry` is the warp's carry flag, one bit a lane.
#[inline]
pub(super) fn execute(alu: &Alu, regs: &mut Regs<'_>, mask: u32, carry: &mut u32, arch: Arch) {
    match *alu {
        Alu::FFma { dst, a, b, c } => fma(regs, mask, dst, [a, b, c], arch),
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
        } => {
            let add = c.map_or([0; LANES], |c| regs.n(c));
            let (x, y) = (regs.n(a), regs.n(b));
            let mut out = [0; LANES];
            for lane in 0..LANES {
                let product = if signed {
                    (i64::from((x[lane] << 8) as i32 >> 8) * i64::from((y[lane] << 8) as i32 >> 8))
                        as u64
                } else {
                    u64::from(x[lane] & 0xff_ffff) * u64::from(y[lane] & 0xff_ffff)
                };
                let part = if high {
                    (product >> 16) as u32
                } else {
                    product as u32
                };
                out[lane] = part.wrapping_add(add[lane]);
            }
            regs.set_n(mask, dst, &out);
        }
        Alu::Sad {
            width,
            signed,
            dst,
            a,
            b,
            c,
        } => match (width, signed) {
            (Width::B64, true) => {
                regs.w3(mask, dst, [a, b, c], |a, b, c| {
                    c.wrapping_add((a as i64).abs_diff(b as i64))
                });
            }
            (Width::B64, false) => regs.w3(mask, dst, [a, b, c], |a, b, c| {
                c.wrapping_add(a.abs_diff(b))
            }),
            (Width::B32, true) => {
                regs.n3(mask, dst, [a, b, c], |a, b, c| {
                    c.wrapping_add((a as i32).abs_diff(b as i32))
                });
            }
            (Width::B32, false) => regs.n3(mask, dst, [a, b, c], |a, b, c| {
                c.wrapping_add(a.abs_diff(b))
            }),
            (Width::B16, true) => regs.n3(mask, dst, [a, b, c], |a, b, c| {
                u32::from((c as u16).wrapping_add((a as i16).abs_diff(b as i16)))
            }),
            (Width::B16, false) => {
                regs.n3(mask, dst, [a, b, c], |a, b, c| {
                    u32::from((c as u16).wrapping_add((a as u16).abs_diff(b as u16)))
                });
            }
        },
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
        } => {
            let (x, pos, len) = (regs.bits(wide, a), regs.n(b), regs.n(c));
            let mut out = [0; LANES];
            for lane in 0..LANES {
                out[lane] =
                    bit_field_extract(x[lane], pos[lane] & 0xff, len[lane] & 0xff, wide, signed);
            }
            regs.set_bits(mask, wide, dst, &out);
        }
        Alu::Bfi {
            wide,
            dst,
            a,
            b,
            c,
            d,
        } => {
            let (x, y, pos, len) = (regs.bits(wide, a), regs.bits(wide, b), regs.n(c), regs.n(d));
            let bits = if wide { 64 } else { 32 };
            let mut out = [0; LANES];
            for lane in 0..LANES {
                let (pos, len) = (pos[lane] & 0xff, (len[lane] & 0xff).min(bits));
                let field = if len == 0 || pos >= bits {
                    0
                } else {
                    (u64::MAX >> (64 - len)) << pos
                };
                out[lane] = (y[lane] & !field) | (x[lane].checked_shl(pos).unwrap_or(0) & field);
            }
            regs.set_bits(mask, wide, dst, &out);
        }
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
        Alu::Lop3 { lut, dst, a, b, c } => regs.n3(mask, dst, [a, b, c], |a, b, c| {
            let term =
                |bit: u8, x: u32, y: u32, z: u32| if lut >> bit & 1 != 0 { x & y & z } else { 0 };
            term(0, !a, !b, !c)
                | term(1, !a, !b, c)
                | term(2, !a, b, !c)
                | term(3, !a, b, c)
                | term(4, a, !b, !c)
                | term(5, a, !b, c)
                | term(6, a, b, !c)
                | term(7, a, b, c)
        }),
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
            relu,
            dst,
            a,
            b,
            c,
        } => {
            float_fma(regs, mask, format, mode, relu, dst, [a, b, c]);
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
            relu,
            dst,
            a,
            b,
            c,
        } => {
            let (x, y, z) = (regs.n(a), regs.n(b), regs.n(c));
            let mut out = [0; LANES];
            lanes!(mask, lane => {
                out[lane] = halves(|i| fused(format, mode, relu, [half(x[lane], i), half(y[lane], i), half(z[lane], i)]));
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
        } => {
            let x = regs.bits(format == Format::F64, a);
            let bits = gather(|lane| float::test(format, test, x[lane]));
            regs.set_pred(mask, dst, bits);
        }
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
        Alu::Set {
            ty,
            compare,
            combine,
            float,
            dst,
            a,
            b,
        } => {
            let mut bits = compare_lanes(regs, ty, compare, a, b);
            if let Some((op, with)) = combine {
                bits = logic(op, bits, regs.pred(with));
            }
            let truth = if float { 1f32.to_bits() } else { u32::MAX };
            let values = std::array::from_fn(|lane| if bits >> lane & 1 != 0 { truth } else { 0 });
            regs.set_n(mask, dst, &values);
        }
        Alu::Selp {
            wide,
            dst,
            a,
            b,
            condition,
        } => {
            let bits = regs.pred(condition);
            if wide {
                let (a, b) = (regs.w(a), regs.w(b));
                let values = std::array::from_fn(|lane| {
                    if bits >> lane & 1 != 0 {
                        a[lane]
                    } else {
                        b[lane]
                    }
                });
                regs.set_w(mask, dst, &values);
            } else {
                let (a, b) = (regs.n(a), regs.n(b));
                let values = std::array::from_fn(|lane| {
                    if bits >> lane & 1 != 0 {
                        a[lane]
                    } else {
                        b[lane]
                    }
                });
                regs.set_n(mask, dst, &values);
            }
        }
        Alu::Slct {
            wide,
            float,
            ftz,
            dst,
            a,
            b,
            c,
        } => {
            let by = regs.n(c);
            let bits = gather(|lane| {
                if float {
                    let c = if ftz {
                        float::Format::F32.flush(u64::from(by[lane])) as u32
                    } else {
                        by[lane]
                    };
                    f32::from_bits(c) >= 0.0
                } else {
                    by[lane] as i32 >= 0
                }
            });
            let (x, y) = (regs.bits(wide, a), regs.bits(wide, b));
            let values = std::array::from_fn(|lane| {
                if bits >> lane & 1 != 0 {
                    x[lane]
                } else {
                    y[lane]
                }
            });
            regs.set_bits(mask, wide, dst, &values);
        }
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
        Alu::Pack { dst, ref parts } => pack(regs, mask, dst, parts),
        Alu::Unpack { src, ref parts } => unpack(regs, mask, src, parts),
        Alu::Convert { cvt, dst, a } => convert(regs, mask, &cvt, dst, a),
        Alu::ConvertPacked { cvt, dst, a, b } => {
            let (x, y) = (regs.n(a), regs.n(b));
            let mut out = [0; LANES];
            lanes!(mask, lane => {
                let (high, low) = (float::convert(&cvt, u64::from(x[lane])), float::convert(&cvt, u64::from(y[lane])));
                out[lane] = (high as u32) << 16 | low as u32;
            });
            regs.set_n(mask, dst, &out);
        }
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

/// f32 results carry the one canonical NaN.
#[inline(always)]
fn canonical(x: f32) -> u32 {
    if x.is_nan() { 0x7fff_ffff } else { x.to_bits() }
}

#[inline(always)]
fn gather(f: impl Fn(usize) -> bool) -> u32 {
    (0..LANES).fold(0, |bits, lane| bits | u32::from(f(lane)) << lane)
}

fn logic(op: Combine, a: u32, b: u32) -> u32 {
    match op {
        Combine::And => a & b,
        Combine::Or => a | b,
        Combine::Xor => a ^ b,
    }
}

/// The hottest operation of all: fused in hardware where the host can, in software where it cannot.
#[inline(always)]
fn fma(regs: &mut Regs<'_>, mask: u32, dst: Slot, slots: [Slot; 3], arch: Arch) {
    let [a, b, c] = slots.map(|slot| &regs.narrow[usize::from(slot)]);
    let mut out = [0; LANES];
    arch.dispatch(
        #[inline(always)]
        || {
            for lane in 0..LANES {
                let [a, b, c] = [a, b, c].map(|row| f32::from_bits(row[lane]));
                out[lane] = canonical(a.mul_add(b, c));
            }
        },
    );
    regs.set_n(mask, dst, &out);
}

fn int16(regs: &mut Regs<'_>, mask: u32, op: IntOp, signed: bool, dst: Slot, a: Slot, b: Slot) {
    // Shift amounts are 32-bit registers whatever the width.
    let wrap = |x: u16| u32::from(x);
    match (op, signed) {
        (IntOp::Add, _) => regs.n2(mask, dst, a, b, |a, b| {
            wrap((a as u16).wrapping_add(b as u16))
        }),
        (IntOp::Sub, _) => regs.n2(mask, dst, a, b, |a, b| {
            wrap((a as u16).wrapping_sub(b as u16))
        }),
        (IntOp::MulLo, _) => regs.n2(mask, dst, a, b, |a, b| {
            wrap((a as u16).wrapping_mul(b as u16))
        }),
        (IntOp::MulHi, false) => {
            regs.n2(mask, dst, a, b, |a, b| ((a & 0xffff) * (b & 0xffff)) >> 16)
        }
        (IntOp::MulHi, true) => {
            regs.n2(mask, dst, a, b, |a, b| {
                wrap(((i32::from(a as i16) * i32::from(b as i16)) >> 16) as u16)
            });
        }
        (IntOp::Div, false) => regs.n2(mask, dst, a, b, |a, b| {
            wrap((a as u16).checked_div(b as u16).unwrap_or(u16::MAX))
        }),
        (IntOp::Div, true) => regs.n2(mask, dst, a, b, |a, b| {
            let (a, b) = (a as i16, b as i16);
            wrap(if b == 0 {
                u16::MAX
            } else {
                a.wrapping_div(b) as u16
            })
        }),
        (IntOp::Rem, false) => regs.n2(mask, dst, a, b, |a, b| {
            wrap((a as u16).checked_rem(b as u16).unwrap_or(u16::MAX))
        }),
        (IntOp::Rem, true) => regs.n2(mask, dst, a, b, |a, b| {
            let (a, b) = (a as i16, b as i16);
            wrap(if b == 0 {
                u16::MAX
            } else {
                a.wrapping_rem(b) as u16
            })
        }),
        (IntOp::Min, false) => regs.n2(mask, dst, a, b, |a, b| wrap((a as u16).min(b as u16))),
        (IntOp::Min, true) => regs.n2(
            mask,
            dst,
            a,
            b,
            |a, b| wrap((a as i16).min(b as i16) as u16),
        ),
        (IntOp::Max, false) => regs.n2(mask, dst, a, b, |a, b| wrap((a as u16).max(b as u16))),
        (IntOp::Max, true) => regs.n2(
            mask,
            dst,
            a,
            b,
            |a, b| wrap((a as i16).max(b as i16) as u16),
        ),
        (IntOp::And, _) => regs.n2(mask, dst, a, b, |a, b| a & b & 0xffff),
        (IntOp::Or, _) => regs.n2(mask, dst, a, b, |a, b| (a | b) & 0xffff),
        (IntOp::Xor, _) => regs.n2(mask, dst, a, b, |a, b| (a ^ b) & 0xffff),
        (IntOp::Shl, _) => regs.n2(mask, dst, a, b, |a, b| {
            wrap((a as u16).checked_shl(b).unwrap_or(0))
        }),
        (IntOp::Shr, false) => regs.n2(mask, dst, a, b, |a, b| {
            wrap((a as u16).checked_shr(b).unwrap_or(0))
        }),
        (IntOp::Shr, true) => regs.n2(mask, dst, a, b, |a, b| {
            wrap(((a as i16) >> b.min(15)) as u16)
        }),
    }
}

fn int32(regs: &mut Regs<'_>, mask: u32, op: IntOp, signed: bool, dst: Slot, a: Slot, b: Slot) {
    match (op, signed) {
        (IntOp::Add, _) => regs.n2(mask, dst, a, b, u32::wrapping_add),
        (IntOp::Sub, _) => regs.n2(mask, dst, a, b, u32::wrapping_sub),
        (IntOp::MulLo, _) => regs.n2(mask, dst, a, b, u32::wrapping_mul),
        (IntOp::MulHi, false) => regs.n2(mask, dst, a, b, |a, b| {
            ((u64::from(a) * u64::from(b)) >> 32) as u32
        }),
        (IntOp::MulHi, true) => {
            regs.n2(mask, dst, a, b, |a, b| {
                ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32
            });
        }
        (IntOp::Div, false) => {
            regs.n2(mask, dst, a, b, |a, b| a.checked_div(b).unwrap_or(u32::MAX))
        }
        (IntOp::Div, true) => regs.n2(mask, dst, a, b, |a, b| {
            if b == 0 {
                u32::MAX
            } else {
                (a as i32).wrapping_div(b as i32) as u32
            }
        }),
        (IntOp::Rem, false) => {
            regs.n2(mask, dst, a, b, |a, b| a.checked_rem(b).unwrap_or(u32::MAX))
        }
        (IntOp::Rem, true) => {
            regs.n2(mask, dst, a, b, |a, b| {
                if b == 0 {
                    u32::MAX
                } else {
                    (a as i32).wrapping_rem(b as i32) as u32
                }
            });
        }
        (IntOp::Min, false) => regs.n2(mask, dst, a, b, u32::min),
        (IntOp::Min, true) => regs.n2(mask, dst, a, b, |a, b| (a as i32).min(b as i32) as u32),
        (IntOp::Max, false) => regs.n2(mask, dst, a, b, u32::max),
        (IntOp::Max, true) => regs.n2(mask, dst, a, b, |a, b| (a as i32).max(b as i32) as u32),
        (IntOp::And, _) => regs.n2(mask, dst, a, b, |a, b| a & b),
        (IntOp::Or, _) => regs.n2(mask, dst, a, b, |a, b| a | b),
        (IntOp::Xor, _) => regs.n2(mask, dst, a, b, |a, b| a ^ b),
        (IntOp::Shl, _) => regs.n2(mask, dst, a, b, |a, b| if b > 31 { 0 } else { a << b }),
        (IntOp::Shr, false) => regs.n2(mask, dst, a, b, |a, b| if b > 31 { 0 } else { a >> b }),
        (IntOp::Shr, true) => regs.n2(mask, dst, a, b, |a, b| (a as i32 >> b.min(31)) as u32),
    }
}

fn int64(regs: &mut Regs<'_>, mask: u32, op: IntOp, signed: bool, dst: Slot, a: Slot, b: Slot) {
    match (op, signed) {
        (IntOp::Add, _) => regs.w2(mask, dst, a, b, u64::wrapping_add),
        (IntOp::Sub, _) => regs.w2(mask, dst, a, b, u64::wrapping_sub),
        (IntOp::MulLo, _) => regs.w2(mask, dst, a, b, u64::wrapping_mul),
        (IntOp::MulHi, false) => regs.w2(mask, dst, a, b, |a, b| {
            ((u128::from(a) * u128::from(b)) >> 64) as u64
        }),
        (IntOp::MulHi, true) => {
            regs.w2(mask, dst, a, b, |a, b| {
                ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64
            });
        }
        (IntOp::Div, false) => {
            regs.w2(mask, dst, a, b, |a, b| a.checked_div(b).unwrap_or(u64::MAX))
        }
        (IntOp::Div, true) => regs.w2(mask, dst, a, b, |a, b| {
            if b == 0 {
                u64::MAX
            } else {
                (a as i64).wrapping_div(b as i64) as u64
            }
        }),
        (IntOp::Rem, false) => {
            regs.w2(mask, dst, a, b, |a, b| a.checked_rem(b).unwrap_or(u64::MAX))
        }
        (IntOp::Rem, true) => {
            regs.w2(mask, dst, a, b, |a, b| {
                if b == 0 {
                    u64::MAX
                } else {
                    (a as i64).wrapping_rem(b as i64) as u64
                }
            });
        }
        (IntOp::Min, false) => regs.w2(mask, dst, a, b, u64::min),
        (IntOp::Min, true) => regs.w2(mask, dst, a, b, |a, b| (a as i64).min(b as i64) as u64),
        (IntOp::Max, false) => regs.w2(mask, dst, a, b, u64::max),
        (IntOp::Max, true) => regs.w2(mask, dst, a, b, |a, b| (a as i64).max(b as i64) as u64),
        (IntOp::And, _) => regs.w2(mask, dst, a, b, |a, b| a & b),
        (IntOp::Or, _) => regs.w2(mask, dst, a, b, |a, b| a | b),
        (IntOp::Xor, _) => regs.w2(mask, dst, a, b, |a, b| a ^ b),
        (IntOp::Shl | IntOp::Shr, _) => {
            let (x, by) = (regs.w(a), regs.n(b));
            let values = std::array::from_fn(|lane| match (op == IntOp::Shl, signed) {
                (true, _) => x[lane].checked_shl(by[lane]).unwrap_or(0),
                (false, false) => x[lane].checked_shr(by[lane]).unwrap_or(0),
                (false, true) => (x[lane] as i64 >> by[lane].min(63)) as u64,
            });
            regs.set_w(mask, dst, &values);
        }
    }
}

fn int_unary(regs: &mut Regs<'_>, mask: u32, width: Width, op: IntUnary, dst: Slot, a: Slot) {
    match (width, op) {
        (Width::B32, IntUnary::Neg) => regs.n1(mask, dst, a, u32::wrapping_neg),
        (Width::B32, IntUnary::Abs) => regs.n1(mask, dst, a, |a| (a as i32).wrapping_abs() as u32),
        (Width::B32, IntUnary::Not) => regs.n1(mask, dst, a, |a| !a),
        (Width::B32, IntUnary::Cnot) => regs.n1(mask, dst, a, |a| u32::from(a == 0)),
        (Width::B32, IntUnary::Brev) => regs.n1(mask, dst, a, u32::reverse_bits),
        (Width::B16, IntUnary::Neg) => {
            regs.n1(mask, dst, a, |a| u32::from((a as u16).wrapping_neg()))
        }
        (Width::B16, IntUnary::Abs) => {
            regs.n1(
                mask,
                dst,
                a,
                |a| u32::from((a as i16).wrapping_abs() as u16),
            )
        }
        (Width::B16, IntUnary::Not) => regs.n1(mask, dst, a, |a| !a & 0xffff),
        (Width::B16, IntUnary::Cnot) => regs.n1(mask, dst, a, |a| u32::from(a as u16 == 0)),
        (Width::B16, IntUnary::Brev) => {
            regs.n1(mask, dst, a, |a| u32::from((a as u16).reverse_bits()))
        }
        (Width::B64, IntUnary::Neg) => regs.w1(mask, dst, a, u64::wrapping_neg),
        (Width::B64, IntUnary::Abs) => regs.w1(mask, dst, a, |a| (a as i64).wrapping_abs() as u64),
        (Width::B64, IntUnary::Not) => regs.w1(mask, dst, a, |a| !a),
        (Width::B64, IntUnary::Cnot) => regs.w1(mask, dst, a, |a| u64::from(a == 0)),
        (Width::B64, IntUnary::Brev) => regs.w1(mask, dst, a, u64::reverse_bits),
    }
}

fn bit_query(
    regs: &mut Regs<'_>,
    mask: u32,
    width: Width,
    op: BitQuery,
    signed: bool,
    dst: Slot,
    a: Slot,
) {
    let bits = width.bits();
    let x = regs.bits(width == Width::B64, a);
    let values = std::array::from_fn(|lane| {
        let x = x[lane];
        match op {
            BitQuery::Popc => x.count_ones(),
            BitQuery::Clz => x.leading_zeros() - (64 - bits),
            BitQuery::Bfind | BitQuery::BfindShift => {
                let negative = signed && x >> (bits - 1) & 1 != 0;
                let keep = u64::MAX >> (64 - bits);
                let x = if negative { !x & keep } else { x };
                match (x == 0, op == BitQuery::BfindShift) {
                    (true, _) => u32::MAX,
                    (false, false) => 63 - x.leading_zeros(),
                    (false, true) => bits - 1 - (63 - x.leading_zeros()),
                }
            }
        }
    });
    regs.set_n(mask, dst, &values);
}

#[expect(clippy::too_many_arguments, reason = "an instruction's fields")]
fn mul_wide(
    regs: &mut Regs<'_>,
    mask: u32,
    width: Width,
    signed: bool,
    dst: Slot,
    a: Slot,
    b: Slot,
    c: Option<Slot>,
) {
    let (x, y) = (regs.n(a), regs.n(b));
    match width {
        Width::B16 => {
            let add = c.map_or([0; LANES], |c| regs.n(c));
            let values = std::array::from_fn(|lane| {
                let product = if signed {
                    (i32::from(x[lane] as i16) * i32::from(y[lane] as i16)) as u32
                } else {
                    (x[lane] & 0xffff) * (y[lane] & 0xffff)
                };
                product.wrapping_add(add[lane])
            });
            regs.set_n(mask, dst, &values);
        }
        Width::B32 | Width::B64 => {
            let add = c.map_or([0; LANES], |c| regs.w(c));
            let values = std::array::from_fn(|lane| {
                let product = if signed {
                    (i64::from(x[lane] as i32) * i64::from(y[lane] as i32)) as u64
                } else {
                    u64::from(x[lane]) * u64::from(y[lane])
                };
                product.wrapping_add(add[lane])
            });
            regs.set_w(mask, dst, &values);
        }
    }
}

fn mad(
    regs: &mut Regs<'_>,
    mask: u32,
    (width, high, signed, saturate): (Width, bool, bool, bool),
    dst: Slot,
    slots @ [a, b, c]: [Slot; 3],
) {
    match (width, high) {
        (Width::B32, false) => regs.n3(mask, dst, slots, |a, b, c| {
            a.wrapping_mul(b).wrapping_add(c)
        }),
        (Width::B64, false) => regs.w3(mask, dst, slots, |a, b, c| {
            a.wrapping_mul(b).wrapping_add(c)
        }),
        (Width::B16, false) => regs.n3(mask, dst, slots, |a, b, c| {
            u32::from((a as u16).wrapping_mul(b as u16).wrapping_add(c as u16))
        }),
        (Width::B32, true) => {
            let (x, y, z) = (regs.n(a), regs.n(b), regs.n(c));
            let values = std::array::from_fn(|lane| {
                let product = if signed {
                    ((i64::from(x[lane] as i32) * i64::from(y[lane] as i32)) >> 32) as u32
                } else {
                    ((u64::from(x[lane]) * u64::from(y[lane])) >> 32) as u32
                };
                if saturate {
                    (product as i32).saturating_add(z[lane] as i32) as u32
                } else {
                    product.wrapping_add(z[lane])
                }
            });
            regs.set_n(mask, dst, &values);
        }
        (Width::B64, true) => regs.w3(mask, dst, slots, |a, b, c| {
            let product = if signed {
                ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64
            } else {
                ((u128::from(a) * u128::from(b)) >> 64) as u64
            };
            product.wrapping_add(c)
        }),
        (Width::B16, true) => regs.n3(mask, dst, slots, |a, b, c| {
            let product = if signed {
                ((i32::from(a as i16) * i32::from(b as i16)) >> 16) as u16
            } else {
                (((a & 0xffff) * (b & 0xffff)) >> 16) as u16
            };
            u32::from(product.wrapping_add(c as u16))
        }),
    }
}

/// Gives the carry (or borrow) out of every lane.
fn carry_chain(
    regs: &mut Regs<'_>,
    mask: u32,
    (wide, op, signed): (bool, CarryOp, bool),
    input: u32,
    dst: Slot,
    [a, b, c]: [Slot; 3],
) -> u32 {
    let (x, y, z) = (regs.bits(wide, a), regs.bits(wide, b), regs.bits(wide, c));
    let bits = if wide { 64 } else { 32 };
    let modulus = 1u128 << bits;
    let mut out = 0;
    let mut values = [0; LANES];
    for lane in 0..LANES {
        let carry = u128::from(input >> lane & 1);
        let product = || -> u128 {
            if signed {
                let extend = |v: u64| {
                    if wide {
                        i128::from(v as i64)
                    } else {
                        i128::from(v as u32 as i32)
                    }
                };
                (extend(x[lane]) * extend(y[lane])) as u128
            } else {
                u128::from(x[lane]) * u128::from(y[lane])
            }
        };
        let (value, overflow) = match op {
            CarryOp::Add => {
                let sum = u128::from(x[lane]) + u128::from(y[lane]) + carry;
                (sum, sum >= modulus)
            }
            CarryOp::Sub => {
                let take = u128::from(y[lane]) + carry;
                let have = u128::from(x[lane]);
                (have.wrapping_sub(take), have < take)
            }
            CarryOp::MadLo | CarryOp::MadHi => {
                let part = if op == CarryOp::MadLo {
                    product()
                } else {
                    product() >> bits
                };
                let sum = (part & (modulus - 1)) + u128::from(z[lane]) + carry;
                (sum, sum >= modulus)
            }
        };
        values[lane] = (value & (modulus - 1)) as u64;
        out |= u32::from(overflow) << lane;
    }
    regs.set_bits(mask, wide, dst, &values);
    out
}

fn bit_field_extract(x: u64, pos: u32, len: u32, wide: bool, signed: bool) -> u64 {
    let msb = if wide { 63 } else { 31 };
    if len == 0 {
        return 0;
    }
    let sign = signed && x >> (pos + len - 1).min(msb) & 1 != 0;
    let mut out = if sign { u64::MAX } else { 0 };
    for i in 0..len.min(msb + 1) {
        let bit = if pos + i <= msb {
            x >> (pos + i) & 1 != 0
        } else {
            sign
        };
        out = (out & !(1 << i)) | u64::from(bit) << i;
    }
    if wide { out } else { out & 0xffff_ffff }
}

fn find_nth_set(bits: u32, base: u32, offset: i32) -> u32 {
    let base = base & 31;
    if offset == 0 {
        return if bits >> base & 1 != 0 {
            base
        } else {
            u32::MAX
        };
    }
    let mut left = offset.unsigned_abs();
    let mut at = base as i32;
    while (0..32).contains(&at) {
        if bits >> at & 1 != 0 {
            left -= 1;
            if left == 0 {
                return at as u32;
            }
        }
        at += offset.signum();
    }
    u32::MAX
}

fn permute(mode: PrmtMode, a: u32, b: u32, c: u32) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    let byte = |i: u32| (bytes >> (8 * (i & 7))) as u32 & 0xff;
    let n = c & 3;
    let pick: [u32; 4] = match mode {
        PrmtMode::Index => {
            return (0..4).fold(0, |out, i| {
                let selector = c >> (4 * i);
                let value = byte(selector & 7);
                let value = if selector & 8 == 0 {
                    value
                } else if value & 0x80 != 0 {
                    0xff
                } else {
                    0
                };
                out | value << (8 * i)
            });
        }
        PrmtMode::F4e => [n, n + 1, n + 2, n + 3],
        PrmtMode::B4e => [n, n.wrapping_sub(1), n.wrapping_sub(2), n.wrapping_sub(3)],
        PrmtMode::Rc8 => [n; 4],
        PrmtMode::Ecl => [n, n.max(1), n.max(2), 3],
        PrmtMode::Ecr => [0, n.min(1), n.min(2), n],
        PrmtMode::Rc16 => {
            let low = 2 * (n & 1);
            [low, low + 1, low, low + 1]
        }
    };
    pick.iter().rev().fold(0, |out, &i| out << 8 | byte(i))
}

fn byte(x: u32, i: u32, signed: bool) -> i32 {
    let byte = (x >> (8 * i)) as u8;
    if signed {
        i32::from(byte as i8)
    } else {
        i32::from(byte)
    }
}

fn half(x: u32, i: u32) -> u64 {
    u64::from(x >> (16 * i) & 0xffff)
}

fn halves(f: impl Fn(u32) -> u64) -> u32 {
    (f(1) as u32) << 16 | f(0) as u32
}

#[expect(clippy::too_many_arguments, reason = "an instruction's fields")]
fn float_binary(
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

#[inline]
fn binary(format: Format, op: FloatOp, mode: FloatMode, a: u64, b: u64) -> u64 {
    let (a, b) = if mode.ftz {
        (format.flush(a), format.flush(b))
    } else {
        (a, b)
    };
    finish(format, mode, float::binary(format, op, mode.rounding, a, b))
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

fn float_fma(
    regs: &mut Regs<'_>,
    mask: u32,
    format: Format,
    mode: FloatMode,
    relu: bool,
    dst: Slot,
    [a, b, c]: [Slot; 3],
) {
    let wide = format == Format::F64;
    let (x, y, z) = (regs.bits(wide, a), regs.bits(wide, b), regs.bits(wide, c));
    let mut out: Wide = [0; LANES];
    lanes!(mask, lane => { out[lane] = fused(format, mode, relu, [x[lane], y[lane], z[lane]]); });
    regs.set_bits(mask, wide, dst, &out);
}

fn fused(format: Format, mode: FloatMode, relu: bool, operands: [u64; 3]) -> u64 {
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
    if relu && negative && !format.is_nan(result) {
        0
    } else {
        result
    }
}

fn unary(format: Format, op: FloatUnary, mode: FloatMode, a: u64) -> u64 {
    let a = if mode.ftz { format.flush(a) } else { a };
    finish(format, mode, float::unary(format, op, mode.rounding, a))
}

fn compare_lanes(regs: &Regs<'_>, ty: CompareType, compare: Compare, a: Slot, b: Slot) -> u32 {
    match ty {
        CompareType::Int {
            width: Width::B32,
            signed: false,
        } => {
            let (a, b) = (regs.n(a), regs.n(b));
            ordered(compare, |lane| (a[lane], b[lane]))
        }
        CompareType::Int {
            width: Width::B32,
            signed: true,
        } => {
            let (a, b) = (regs.n(a), regs.n(b));
            ordered(compare, |lane| (a[lane] as i32, b[lane] as i32))
        }
        CompareType::Int {
            width: Width::B16,
            signed,
        } => {
            let (a, b) = (regs.n(a), regs.n(b));
            if signed {
                ordered(compare, |lane| (a[lane] as i16, b[lane] as i16))
            } else {
                ordered(compare, |lane| (a[lane] as u16, b[lane] as u16))
            }
        }
        CompareType::Int {
            width: Width::B64,
            signed,
        } => {
            let (a, b) = (regs.w(a), regs.w(b));
            if signed {
                ordered(compare, |lane| (a[lane] as i64, b[lane] as i64))
            } else {
                ordered(compare, |lane| (a[lane], b[lane]))
            }
        }
        CompareType::Float { format, ftz } => {
            let wide = format == Format::F64;
            let (a, b) = (regs.bits(wide, a), regs.bits(wide, b));
            let value = |x: u64| format.value(if ftz { format.flush(x) } else { x });
            ordered(compare, |lane| (value(a[lane]), value(b[lane])))
        }
    }
}

#[inline(always)]
fn ordered<T: PartialOrd>(compare: Compare, at: impl Fn(usize) -> (T, T)) -> u32 {
    let each = |f: &dyn Fn(T, T) -> bool| {
        gather(|lane| {
            let (a, b) = at(lane);
            f(a, b)
        })
    };
    let unordered = |a: &T, b: &T| a.partial_cmp(b).is_none();
    match compare {
        Compare::Eq => gather(|lane| {
            let (a, b) = at(lane);
            a == b
        }),
        // `ne` is an ordered comparison: false where an operand is NaN.
        Compare::Ne => gather(|lane| {
            let (a, b) = at(lane);
            a.partial_cmp(&b).is_some_and(std::cmp::Ordering::is_ne)
        }),
        Compare::Lt => gather(|lane| {
            let (a, b) = at(lane);
            a < b
        }),
        Compare::Le => gather(|lane| {
            let (a, b) = at(lane);
            a <= b
        }),
        Compare::Gt => gather(|lane| {
            let (a, b) = at(lane);
            a > b
        }),
        Compare::Ge => gather(|lane| {
            let (a, b) = at(lane);
            a >= b
        }),
        Compare::Equ => each(&|a, b| a == b || unordered(&a, &b)),
        Compare::Neu => each(&|a, b| a != b),
        Compare::Ltu => each(&|a, b| a < b || unordered(&a, &b)),
        Compare::Leu => each(&|a, b| a <= b || unordered(&a, &b)),
        Compare::Gtu => each(&|a, b| a > b || unordered(&a, &b)),
        Compare::Geu => each(&|a, b| a >= b || unordered(&a, &b)),
        Compare::Num => each(&|a, b| !unordered(&a, &b)),
        Compare::Nan => each(&|a, b| unordered(&a, &b)),
    }
}

fn field(bits: u8) -> u64 {
    if bits == 64 {
        u64::MAX
    } else {
        (1 << bits) - 1
    }
}

fn pack(regs: &mut Regs<'_>, mask: u32, dst: Reg, parts: &[Piece]) {
    let mut out: Wide = [0; LANES];
    for part in parts {
        let x = regs.any(part.reg);
        for lane in 0..LANES {
            out[lane] |= (x[lane] & field(part.bits)) << part.shift;
        }
    }
    regs.set_any(mask, dst, &out);
}

fn unpack(regs: &mut Regs<'_>, mask: u32, src: Reg, parts: &[Piece]) {
    let x = regs.any(src);
    for part in parts {
        let values = x.map(|x| x >> part.shift & field(part.bits));
        regs.set_any(mask, part.reg, &values);
    }
}

fn convert(regs: &mut Regs<'_>, mask: u32, cvt: &Cvt, dst: Reg, a: Reg) {
    let x = regs.any(a);
    let mut out: Wide = [0; LANES];
    match (cvt.from, cvt.to, cvt.sat) {
        (CvtType::Int { bits, signed }, CvtType::Int { .. }, false) => {
            let shift = 64 - u32::from(bits);
            for lane in 0..LANES {
                let x = x[lane] << shift;
                out[lane] = if signed {
                    (x as i64 >> shift) as u64
                } else {
                    x >> shift
                };
            }
        }
        (CvtType::Int { .. }, CvtType::Int { .. }, true)
        | (CvtType::Float(_), CvtType::Int { .. } | CvtType::Float(_), _)
        | (CvtType::Int { .. }, CvtType::Float(_), _) => {
            lanes!(mask, lane => { out[lane] = float::convert(cvt, x[lane]); });
        }
    }
    // A destination wider than the type is filled by the type's own extension.
    if let CvtType::Int { bits, signed } = cvt.to {
        let shift = 64 - u32::from(bits);
        let stored = if dst.wide { 0 } else { 32 };
        for value in &mut out {
            let x = *value << shift;
            let extended = if signed {
                (x as i64 >> shift) as u64
            } else {
                x >> shift
            };
            *value = extended << stored >> stored;
        }
    }
    regs.set_any(mask, dst, &out);
}
