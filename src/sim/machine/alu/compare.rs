//! Comparisons of lanes to predicates, logic on predicates, and choices by them.

use super::super::regs::{LANES, Regs};
use crate::sim::float::Format;
use crate::sim::op::{Combine, Compare, CompareType, Pred, Slot, Width};

#[inline(always)]
pub(super) fn compare_lanes(
    regs: &Regs<'_>,
    ty: CompareType,
    compare: Compare,
    a: Slot,
    b: Slot,
) -> u32 {
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

/// Of 16-bit floats side by side: of the lower ones, of the upper ones.
pub(super) fn compare_halves(
    regs: &Regs<'_>,
    (format, ftz): (Format, bool),
    (compare, combine): (Compare, Option<(Combine, Pred)>),
    a: Slot,
    b: Slot,
) -> [u32; 2] {
    let (a, b) = (regs.n(a), regs.n(b));
    [0, 16].map(|shift| {
        let value = |x: u32| {
            let half = u64::from(x >> shift & 0xffff);
            format.value(if ftz { format.flush(half) } else { half })
        };
        let bits = ordered(compare, |lane| (value(a[lane]), value(b[lane])));
        match combine {
            Some((op, with)) => logic(op, bits, regs.pred(with)),
            None => bits,
        }
    })
}

#[inline]
pub(super) fn logic(op: Combine, a: u32, b: u32) -> u32 {
    match op {
        Combine::And => a & b,
        Combine::Or => a | b,
        Combine::Xor => a ^ b,
    }
}

/// `selp`.
#[inline(always)]
pub(super) fn select(
    regs: &mut Regs<'_>,
    mask: u32,
    wide: bool,
    dst: Slot,
    [a, b]: [Slot; 2],
    condition: Pred,
) {
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

/// `slct`: `a` where `c` is not negative, else `b`.
pub(super) fn select_by_sign(
    regs: &mut Regs<'_>,
    mask: u32,
    (wide, float, ftz): (bool, bool, bool),
    dst: Slot,
    [a, b, c]: [Slot; 3],
) {
    let by = regs.n(c);
    let bits = gather(|lane| {
        if float {
            let c = if ftz {
                Format::F32.flush(u64::from(by[lane])) as u32
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

#[inline(always)]
pub(super) fn gather(f: impl Fn(usize) -> bool) -> u32 {
    (0..LANES).fold(0, |bits, lane| bits | u32::from(f(lane)) << lane)
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
