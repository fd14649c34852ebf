//! `mma`: products of small matrices that a warp's lanes hold together. Lane 4g + t holds, p elements a register,
//! of A rows g and g + 8 from column p·t on, of B column g at the same rows, of C and D rows g and g + 8 at columns
//! 2t and 2t + 1. Sums are made in float64 and rounded once: tensor cores keep fewer bits, in an order of their
//! own.

use pulp::{Arch, NullaryFnOnce};

use super::regs::{LANES, Narrow, Regs, Wide};
use crate::sim::op::{Mma, MmaDouble, Operands, Slot, Sums};

const ROWS: usize = 16;
const COLUMNS: usize = 8;
/// Deepest product, of 8-bit elements.
const DEPTH: usize = 32;

pub(super) fn mma(regs: &mut Regs<'_>, mask: u32, op: &Mma, arch: Arch) {
    let (mut by_rows, mut by_depth) = ([[0.0; DEPTH]; ROWS], [[0.0; COLUMNS]; DEPTH]);
    for (part, &slot) in op.a.iter().enumerate() {
        let (quarter, half) = (part / op.halves(), part % op.halves());
        elements(op.a_type, &regs.n(slot), quarter, |lane, k, value| {
            by_rows[lane / 4 + 8 * half][k] = value;
        });
    }
    for (part, &slot) in op.b.iter().enumerate() {
        elements(op.b_type, &regs.n(slot), part, |lane, k, value| {
            by_depth[k][lane / 4] = value;
        });
    }
    let dots = arch.dispatch(Dots {
        by_rows: &by_rows,
        by_depth: &by_depth[..op.depth()],
    });
    let added: Vec<Narrow> = op.c.iter().map(|&slot| regs.n(slot)).collect();
    let sum = |lane: usize, part: usize| -> f64 {
        let c = match op.c_type {
            Sums::F32 => f64::from(f32::from_bits(added[part][lane])),
            Sums::F16 => half_of(added[part / 2][lane], part % 2).to_f64(),
            Sums::S32 => f64::from(added[part][lane] as i32),
        };
        c + dots[lane / 4 + 8 * (part / 2)][2 * (lane % 4) + part % 2]
    };
    let results: Vec<(Slot, Narrow)> = (op.d.iter().enumerate())
        .map(|(index, &slot)| {
            let row = std::array::from_fn(|lane| match op.d_type {
                Sums::F32 => (sum(lane, index) as f32).to_bits(),
                Sums::F16 => {
                    let [low, high] =
                        [0, 1].map(|half| half::f16::from_f64(sum(lane, 2 * index + half)));
                    u32::from(low.to_bits()) | u32::from(high.to_bits()) << 16
                }
                // Exact: all sums are far below 2⁵³.
                Sums::S32 if op.saturates => sum(lane, index) as i32 as u32,
                Sums::S32 => sum(lane, index) as i64 as u32,
            });
            (slot, row)
        })
        .collect();
    for (slot, row) in results {
        regs.set_n(mask, slot, &row);
    }
}

/// Like [`mma`] for float64: a lane's registers of A alternate between rows g and g + 8, then go on four columns
/// further; those of B go on four rows further. Each sum is a chain of fused multiply-adds.
pub(super) fn mma_double(regs: &mut Regs<'_>, mask: u32, op: &MmaDouble) {
    let halves = op.rows() / 8;
    let [a, b, c] = [&op.a, &op.b, &op.c]
        .map(|slots| -> Vec<Wide> { slots.iter().map(|&slot| regs.w(slot)).collect() });
    let value = |bits: u64| f64::from_bits(bits);
    for (part, &slot) in op.d.iter().enumerate() {
        let row = std::array::from_fn(|lane| {
            let (half, column) = (part / 2, 2 * (lane % 4) + part % 2);
            let sum = (0..op.depth()).fold(value(c[part][lane]), |sum, k| {
                let x = a[halves * (k / 4) + half][lane / 4 * 4 + k % 4];
                let y = b[k / 4][column * 4 + k % 4];
                value(x).mul_add(value(y), sum)
            });
            sum.to_bits()
        });
        regs.set_w(mask, slot, &row);
    }
}

/// The products of rows and columns, each summed in order of depth.
struct Dots<'a> {
    by_rows: &'a [[f64; DEPTH]; ROWS],
    by_depth: &'a [[f64; COLUMNS]],
}

impl NullaryFnOnce for Dots<'_> {
    type Output = [[f64; COLUMNS]; ROWS];

    #[inline(always)]
    fn call(self) -> [[f64; COLUMNS]; ROWS] {
        // As sums of none begin: the sign of a zero is not lost.
        let mut out = [[-0.0; COLUMNS]; ROWS];
        for (sums, row) in out.iter_mut().zip(self.by_rows) {
            for (factor, values) in row.iter().zip(self.by_depth) {
                for (sum, value) in sums.iter_mut().zip(values) {
                    *sum += factor * value;
                }
            }
        }
        out
    }
}

/// Hands over the elements of a register, each with its lane and its place along the depth.
#[inline(always)]
fn elements(
    ty: Operands,
    register: &Narrow,
    quarter: usize,
    mut take: impl FnMut(usize, usize, f64),
) {
    let each = 4 / ty.bytes();
    let bits = 32 / each as u32;
    for (lane, word) in register.iter().enumerate().take(LANES) {
        for element in 0..each {
            let value = word >> (bits * element as u32) & (u32::MAX >> (32 - bits));
            let k = 4 * each * quarter + each * (lane % 4) + element;
            take(lane, k, f64::from(ty.value(value)));
        }
    }
}

fn half_of(word: u32, which: usize) -> half::f16 {
    half::f16::from_bits((word >> (16 * which)) as u16)
}
