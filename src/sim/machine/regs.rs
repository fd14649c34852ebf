//! A frame's registers as structure of arrays: one row of 32 lanes per register. Every write honours the
//! active mask.

use super::super::op::{Pred, Reg, Slot};

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;
/// All lanes.
pub(crate) const FULL: u32 = u32::MAX;

/// A row of a 32-bit register.
pub(crate) type Narrow = [u32; LANES];
/// A row of a 64-bit register.
pub(crate) type Wide = [u64; LANES];

/// The three files of the current frame.
pub(crate) struct Regs<'a> {
    pub narrow: &'a mut [Narrow],
    pub wide: &'a mut [Wide],
    pub preds: &'a mut [u32],
}

/// Runs a body for every active lane.
macro_rules! lanes {
    ($mask:expr, $lane:ident => $body:block) => {
        if $mask == $crate::sim::machine::regs::FULL {
            for $lane in 0..$crate::sim::machine::regs::LANES $body
        } else {
            for $lane in 0..$crate::sim::machine::regs::LANES {
                if $mask >> $lane & 1 != 0 $body
            }
        }
    };
}
pub(crate) use lanes;

impl Regs<'_> {
    #[inline(always)]
    pub fn n(&self, slot: Slot) -> Narrow {
        self.narrow[usize::from(slot)]
    }

    #[inline(always)]
    pub fn w(&self, slot: Slot) -> Wide {
        self.wide[usize::from(slot)]
    }

    /// Any data register, zero-extended.
    pub fn any(&self, reg: Reg) -> Wide {
        if reg.wide {
            self.w(reg.slot)
        } else {
            self.n(reg.slot).map(u64::from)
        }
    }

    /// Lanes where a predicate holds.
    #[inline(always)]
    pub fn pred(&self, pred: Pred) -> u32 {
        let bits = self.preds[usize::from(pred.slot)];
        if pred.negated { !bits } else { bits }
    }

    #[inline(always)]
    pub fn set_pred(&mut self, mask: u32, slot: Slot, bits: u32) {
        let row = &mut self.preds[usize::from(slot)];
        *row = (*row & !mask) | (bits & mask);
    }

    #[inline(always)]
    pub fn set_n(&mut self, mask: u32, slot: Slot, values: &Narrow) {
        select(mask, &mut self.narrow[usize::from(slot)], values);
    }

    #[inline(always)]
    pub fn set_w(&mut self, mask: u32, slot: Slot, values: &Wide) {
        select(mask, &mut self.wide[usize::from(slot)], values);
    }

    /// Any data register; the upper half is dropped where it does not fit.
    pub fn set_any(&mut self, mask: u32, reg: Reg, values: &Wide) {
        if reg.wide {
            self.set_w(mask, reg.slot, values);
        } else {
            self.set_n(mask, reg.slot, &values.map(|v| v as u32));
        }
    }

    // Results are made whole before any is stored: the loops stay free of aliases and of branches. Values of
    // inactive lanes are computed and dropped, so the functions must not panic on any bits.

    #[inline(always)]
    pub fn n1(&mut self, mask: u32, dst: Slot, a: Slot, f: impl Fn(u32) -> u32) {
        let a = &self.narrow[usize::from(a)];
        let mut out: Narrow = [0; LANES];
        for lane in 0..LANES {
            out[lane] = f(a[lane]);
        }
        self.set_n(mask, dst, &out);
    }

    #[inline(always)]
    pub fn n2(&mut self, mask: u32, dst: Slot, a: Slot, b: Slot, f: impl Fn(u32, u32) -> u32) {
        let (a, b) = (&self.narrow[usize::from(a)], &self.narrow[usize::from(b)]);
        let mut out: Narrow = [0; LANES];
        for lane in 0..LANES {
            out[lane] = f(a[lane], b[lane]);
        }
        self.set_n(mask, dst, &out);
    }

    #[inline(always)]
    pub fn n3(&mut self, mask: u32, dst: Slot, slots: [Slot; 3], f: impl Fn(u32, u32, u32) -> u32) {
        let [a, b, c] = slots.map(|slot| &self.narrow[usize::from(slot)]);
        let mut out: Narrow = [0; LANES];
        for lane in 0..LANES {
            out[lane] = f(a[lane], b[lane], c[lane]);
        }
        self.set_n(mask, dst, &out);
    }

    #[inline(always)]
    pub fn w1(&mut self, mask: u32, dst: Slot, a: Slot, f: impl Fn(u64) -> u64) {
        let a = &self.wide[usize::from(a)];
        let mut out: Wide = [0; LANES];
        for lane in 0..LANES {
            out[lane] = f(a[lane]);
        }
        self.set_w(mask, dst, &out);
    }

    #[inline(always)]
    pub fn w2(&mut self, mask: u32, dst: Slot, a: Slot, b: Slot, f: impl Fn(u64, u64) -> u64) {
        let (a, b) = (&self.wide[usize::from(a)], &self.wide[usize::from(b)]);
        let mut out: Wide = [0; LANES];
        for lane in 0..LANES {
            out[lane] = f(a[lane], b[lane]);
        }
        self.set_w(mask, dst, &out);
    }

    #[inline(always)]
    pub fn w3(&mut self, mask: u32, dst: Slot, slots: [Slot; 3], f: impl Fn(u64, u64, u64) -> u64) {
        let [a, b, c] = slots.map(|slot| &self.wide[usize::from(slot)]);
        let mut out: Wide = [0; LANES];
        for lane in 0..LANES {
            out[lane] = f(a[lane], b[lane], c[lane]);
        }
        self.set_w(mask, dst, &out);
    }

    /// Operands of one format's width as 64-bit patterns, for the slow exact paths.
    pub fn bits(&self, wide: bool, slot: Slot) -> Wide {
        if wide {
            self.w(slot)
        } else {
            self.n(slot).map(u64::from)
        }
    }

    pub fn set_bits(&mut self, mask: u32, wide: bool, slot: Slot, values: &Wide) {
        self.set_any(mask, Reg { slot, wide }, values);
    }
}

/// Active lanes of `values` into a row.
#[inline(always)]
fn select<T: Copy>(mask: u32, row: &mut [T; LANES], values: &[T; LANES]) {
    if mask == FULL {
        *row = *values;
    } else {
        // A choice in every lane instead of a branch: the loop stays one of vectors.
        for (lane, (to, from)) in row.iter_mut().zip(values).enumerate() {
            *to = if mask >> lane & 1 != 0 { *from } else { *to };
        }
    }
}
