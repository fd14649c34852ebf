//! Bits and bytes within a register: counts, fields, permutations, dot products of bytes.

use super::super::regs::{LANES, Regs};
use crate::sim::op::{BitQuery, PrmtMode, Slot, Width};

pub(super) fn bit_query(
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

pub(super) fn bit_field_extract(
    regs: &mut Regs<'_>,
    mask: u32,
    (wide, signed): (bool, bool),
    dst: Slot,
    [a, b, c]: [Slot; 3],
) {
    let (x, pos, len) = (regs.bits(wide, a), regs.n(b), regs.n(c));
    let mut out = [0; LANES];
    for lane in 0..LANES {
        out[lane] = field_of(x[lane], pos[lane] & 0xff, len[lane] & 0xff, wide, signed);
    }
    regs.set_bits(mask, wide, dst, &out);
}

pub(super) fn bit_field_insert(
    regs: &mut Regs<'_>,
    mask: u32,
    wide: bool,
    dst: Slot,
    [a, b, c, d]: [Slot; 4],
) {
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

#[inline]
pub(super) fn find_nth_set(bits: u32, base: u32, offset: i32) -> u32 {
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

#[inline]
pub(super) fn permute(mode: PrmtMode, a: u32, b: u32, c: u32) -> u32 {
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

#[inline]
pub(super) fn byte(x: u32, i: u32, signed: bool) -> i32 {
    let byte = (x >> (8 * i)) as u8;
    if signed {
        i32::from(byte as i8)
    } else {
        i32::from(byte)
    }
}

fn field_of(x: u64, pos: u32, len: u32, wide: bool, signed: bool) -> u64 {
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

/// `count` ones from bit `from` on.
pub(super) fn ones(from: u32, count: u32) -> u32 {
    let low = 1u64.checked_shl(count).map_or(0, |bit| bit - 1);
    low.checked_shl(from).unwrap_or(0) as u32
}

/// The lower `count` bits of `a`, extended to 32.
pub(super) fn extended(a: u32, count: u32, signed: bool) -> u32 {
    match count {
        0 => 0,
        1..32 if signed => ((a << (32 - count)) as i32 >> (32 - count)) as u32,
        _ => a & ones(0, count),
    }
}
