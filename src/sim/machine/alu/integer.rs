//! Integers: sums, products and quotients of each width, and carry chains.

use super::super::regs::{LANES, Regs};
use crate::sim::op::{CarryOp, IntOp, IntUnary, Slot, Width};

pub(super) fn int16(
    regs: &mut Regs<'_>,
    mask: u32,
    op: IntOp,
    signed: bool,
    dst: Slot,
    a: Slot,
    b: Slot,
) {
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

#[inline(always)]
pub(super) fn int32(
    regs: &mut Regs<'_>,
    mask: u32,
    op: IntOp,
    signed: bool,
    dst: Slot,
    a: Slot,
    b: Slot,
) {
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

#[inline(always)]
pub(super) fn int64(
    regs: &mut Regs<'_>,
    mask: u32,
    op: IntOp,
    signed: bool,
    dst: Slot,
    a: Slot,
    b: Slot,
) {
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

#[inline(always)]
pub(super) fn int_unary(
    regs: &mut Regs<'_>,
    mask: u32,
    width: Width,
    op: IntUnary,
    dst: Slot,
    a: Slot,
) {
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

#[expect(clippy::too_many_arguments, reason = "an instruction's fields")]
#[inline(always)]
pub(super) fn mul_wide(
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

#[inline(always)]
pub(super) fn mad(
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

pub(super) fn mul24(
    regs: &mut Regs<'_>,
    mask: u32,
    (high, signed): (bool, bool),
    dst: Slot,
    [a, b]: [Slot; 2],
    c: Option<Slot>,
) {
    let add = c.map_or([0; LANES], |c| regs.n(c));
    let (x, y) = (regs.n(a), regs.n(b));
    let mut out = [0; LANES];
    for lane in 0..LANES {
        let product = if signed {
            (i64::from((x[lane] << 8) as i32 >> 8) * i64::from((y[lane] << 8) as i32 >> 8)) as u64
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

/// `c + |a - b|`.
pub(super) fn sad(
    regs: &mut Regs<'_>,
    mask: u32,
    (width, signed): (Width, bool),
    dst: Slot,
    [a, b, c]: [Slot; 3],
) {
    match (width, signed) {
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
    }
}

/// Gives the carry (or borrow) out of every lane.
pub(super) fn carry_chain(
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

/// An operation on 16-bit integers side by side, or on one of 32 bits.
pub(super) fn beside(parts: u8, op: IntOp, (signed, relu): (bool, bool), a: u32, b: u32) -> u32 {
    let bits = 32 / u32::from(parts);
    let keep = u32::MAX >> (32 - bits);
    let part = |x: u32, at: u32| {
        let x = x >> at & keep;
        if signed {
            i64::from(((x << (32 - bits)) as i32) >> (32 - bits))
        } else {
            i64::from(x)
        }
    };
    (0..32).step_by(bits as usize).fold(0, |out, at| {
        let (x, y) = (part(a, at), part(b, at));
        let value = match op {
            IntOp::Min => x.min(y),
            IntOp::Max => x.max(y),
            IntOp::Add
            | IntOp::Sub
            | IntOp::MulLo
            | IntOp::MulHi
            | IntOp::Div
            | IntOp::Rem
            | IntOp::And
            | IntOp::Or
            | IntOp::Xor
            | IntOp::Shl
            | IntOp::Shr => x + y,
        };
        let value = if relu { value.max(0) } else { value };
        out | (value as u32 & keep) << at
    })
}
