//! Conversions between types, and registers packed of parts.

use super::super::regs::{LANES, Regs, Wide, lanes};
use crate::sim::float;
use crate::sim::op::{Cvt, CvtType, Piece, Reg, Slot};

pub(super) fn convert(regs: &mut Regs<'_>, mask: u32, cvt: &Cvt, dst: Reg, a: Reg) {
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

/// Two floats to the halves of one register; `a` is the upper half.
pub(super) fn convert_packed(
    regs: &mut Regs<'_>,
    mask: u32,
    cvt: &Cvt,
    dst: Slot,
    [a, b]: [Slot; 2],
) {
    let (x, y) = (regs.n(a), regs.n(b));
    let mut out = [0; LANES];
    lanes!(mask, lane => {
        let (high, low) = (float::convert(cvt, u64::from(x[lane])), float::convert(cvt, u64::from(y[lane])));
        out[lane] = (high as u32) << 16 | low as u32;
    });
    regs.set_n(mask, dst, &out);
}

/// Two clamped integers side by side, below what `c` holds.
pub(super) fn pack_saturated(
    regs: &mut Regs<'_>,
    mask: u32,
    (bits, signed): (u8, bool),
    dst: Slot,
    [a, b]: [Slot; 2],
    c: Option<Slot>,
) {
    let (least, most) = if signed {
        (-1i64 << (bits - 1), (1i64 << (bits - 1)) - 1)
    } else {
        (0, (1i64 << bits) - 1)
    };
    let clamped = |value: u32| {
        let value = i64::from(value as i32).clamp(least, most);
        value as u64 & field(bits)
    };
    let (x, y) = (regs.n(a), regs.n(b));
    let above = c.map_or([0; LANES], |slot| regs.n(slot));
    let out = std::array::from_fn(|lane| {
        let both = clamped(x[lane]) << bits | clamped(y[lane]);
        (u64::from(above[lane]) << (2 * bits) | both) as u32
    });
    regs.set_n(mask, dst, &out);
}

pub(super) fn pack(regs: &mut Regs<'_>, mask: u32, dst: Reg, parts: &[Piece]) {
    let mut out: Wide = [0; LANES];
    for part in parts {
        let x = regs.any(part.reg);
        for lane in 0..LANES {
            out[lane] |= (x[lane] & field(part.bits)) << part.shift;
        }
    }
    regs.set_any(mask, dst, &out);
}

pub(super) fn unpack(regs: &mut Regs<'_>, mask: u32, src: Reg, parts: &[Piece]) {
    let x = regs.any(src);
    for part in parts {
        let values = x.map(|x| x >> part.shift & field(part.bits));
        regs.set_any(mask, part.reg, &values);
    }
}

fn field(bits: u8) -> u64 {
    if bits == 64 {
        u64::MAX
    } else {
        (1 << bits) - 1
    }
}
