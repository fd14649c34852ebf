//! `mma`: products of small matrices that a warp's lanes hold together. Lane 4g + t holds, p elements a register,
//! of A rows g and g + 8 from column p·t on, of B column g at the same rows, of C and D rows g and g + 8 at columns
//! 2t and 2t + 1.

use pulp::{Arch, NullaryFnOnce};

use super::regs::{LANES, Narrow, Regs, Wide};
use super::tensor_core::{self, HALF, ROWS, SINGLE, Terms};
use crate::sim::op::{Mma, MmaDouble, Operands, Slot, Sums};

/// Columns of B and of the sums.
const COLUMNS: usize = 8;
/// Deepest product, of 8-bit elements.
const DEPTH: usize = 32;

/// Elements by depth, then by row or column.
type ByDepth<const N: usize> = [[f32; N]; DEPTH];
type Table = [[f32; COLUMNS]; ROWS];

pub(super) fn mma(regs: &mut Regs<'_>, mask: u32, op: &Mma, arch: Arch) {
    let (mut a, mut b) = ([[0.0; ROWS]; DEPTH], [[0.0; COLUMNS]; DEPTH]);
    for (part, &slot) in op.a.iter().enumerate() {
        let (quarter, half) = (part / op.halves(), part % op.halves());
        elements(
            op.a_type,
            op.depth(),
            &regs.n(slot),
            quarter,
            |lane, k, value| {
                a[k][lane / 4 + 8 * half] = value;
            },
        );
    }
    for (part, &slot) in op.b.iter().enumerate() {
        elements(
            op.b_type,
            op.depth(),
            &regs.n(slot),
            part,
            |lane, k, value| {
                b[k][lane / 4] = value;
            },
        );
    }
    let added: Vec<Narrow> = op.c.iter().map(|&slot| regs.n(slot)).collect();
    let results: Vec<(Slot, Narrow)> = match op.d_type {
        Sums::S32 => {
            let dots = arch.dispatch(Dots { a: &a, b: &b });
            let row = |(part, &slot): (usize, &Slot)| {
                let row = std::array::from_fn(|lane| {
                    let (row, column) = place(part, lane);
                    // Exact: products have 19 bits.
                    let dot = f64::from(dots[row][column]);
                    let sum = f64::from(added[part][lane] as i32) + dot;
                    if op.saturates {
                        sum as i32 as u32
                    } else {
                        sum as i64 as u32
                    }
                });
                (slot, row)
            };
            op.d.iter().enumerate().map(row).collect()
        }
        Sums::F32 | Sums::F16 => {
            let sums = float_sums(op, &a, &b, &added, arch);
            let row = |(part, &slot): (usize, &Slot)| {
                let at = |part: usize, lane: usize| {
                    let (row, column) = place(part, lane);
                    sums[row][column]
                };
                let row = std::array::from_fn(|lane| match op.d_type {
                    Sums::F16 => {
                        let [low, high] = [0, 1].map(|half| half_bits(at(2 * part + half, lane)));
                        low | high << 16
                    }
                    Sums::F32 | Sums::S32 => at(part, lane).to_bits(),
                });
                (slot, row)
            };
            op.d.iter().enumerate().map(row).collect()
        }
    };
    for (slot, row) in results {
        regs.set_n(mask, slot, &row);
    }
}

/// `mma` where only what a launch does is counted: the sums stay what they were.
pub(super) fn keep_sums(regs: &mut Regs<'_>, mask: u32, op: &Mma) {
    let kept: Vec<Narrow> = op.c.iter().map(|&slot| regs.n(slot)).collect();
    for (&slot, row) in op.d.iter().zip(&kept) {
        regs.set_n(mask, slot, row);
    }
}

/// Row and column of a lane's accumulator.
fn place(part: usize, lane: usize) -> (usize, usize) {
    (lane / 4 + 8 * (part / 2), 2 * (lane % 4) + part % 2)
}

/// What stood in C is added to products of 8-bit elements by itself, after both halves of the depth, which are steps
/// of their own, each with a result of D's type; all others meet at once.
fn float_sums(
    op: &Mma,
    a: &ByDepth<ROWS>,
    b: &ByDepth<COLUMNS>,
    added: &[Narrow],
    arch: Arch,
) -> Table {
    let mut c = Table::default();
    let each = match op.c_type {
        Sums::F16 => 2,
        Sums::F32 | Sums::S32 => 1,
    };
    for (register, words) in added.iter().enumerate() {
        for (lane, &word) in words.iter().enumerate() {
            for half in 0..each {
                let (row, column) = place(each * register + half, lane);
                c[row][column] = match op.c_type {
                    Sums::F16 => half_of(word, half).to_f32(),
                    Sums::F32 | Sums::S32 => f32::from_bits(word),
                };
            }
        }
    }
    let least_sum = match op.c_type {
        Sums::F16 => HALF,
        Sums::F32 | Sums::S32 => SINGLE,
    };
    let step = |from: usize, to: usize, sums: &mut Table| {
        let terms = Terms {
            a: a[from..to].as_flattened(),
            b: b[from..to].as_flattened(),
            columns: COLUMNS,
            least: [least(op.a_type), least(op.b_type), least_sum],
            places: Terms::PLACES,
        };
        terms.add_to(sums.as_flattened_mut(), arch);
    };
    let depth = op.depth();
    if op.a_type.bytes() > 1 {
        step(0, depth, &mut c);
        return c;
    }
    let mut sums = Table::default();
    for from in [0, depth / 2] {
        step(from, from + depth / 2, &mut sums);
        if op.d_type == Sums::F16 {
            for sum in sums.as_flattened_mut() {
                *sum = half::f16::from_bits(half_bits(*sum) as u16).to_f32();
            }
        }
    }
    let added = std::iter::zip(sums.as_flattened_mut(), c.as_flattened());
    added.for_each(|(sum, c)| *sum = tensor_core::add(*sum, *c));
    sums
}

/// The least normal number: elements of 8 bits are widened to float16 first.
fn least(ty: Operands) -> f64 {
    match ty {
        Operands::F16 | Operands::E4m3 | Operands::E5m2 => HALF,
        Operands::Bf16 | Operands::Tf32 | Operands::S8 | Operands::U8 => SINGLE,
    }
}

/// Rounded to nearest.
fn half_bits(value: f32) -> u32 {
    if value.is_nan() {
        return 0x7fff;
    }
    u32::from(half::f16::from_f32(value).to_bits())
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

/// Products of integers.
struct Dots<'a> {
    a: &'a ByDepth<ROWS>,
    b: &'a ByDepth<COLUMNS>,
}

impl NullaryFnOnce for Dots<'_> {
    type Output = Table;

    #[inline(always)]
    fn call(self) -> Table {
        let mut out = Table::default();
        for (a, b) in self.a.iter().zip(self.b) {
            for (sums, factor) in out.iter_mut().zip(a) {
                for (sum, value) in sums.iter_mut().zip(b) {
                    *sum += factor * value;
                }
            }
        }
        out
    }
}

/// Hands over the elements of a register, each with its lane and its place along the depth. Of small floats the first
/// two of four stand in the first half of the depth, where their step finds them.
#[inline(always)]
fn elements(
    ty: Operands,
    depth: usize,
    register: &Narrow,
    quarter: usize,
    mut take: impl FnMut(usize, usize, f32),
) {
    let each = 4 / ty.bytes();
    let bits = 32 / each as u32;
    for (lane, word) in register.iter().enumerate().take(LANES) {
        for element in 0..each {
            let value = word >> (bits * element as u32) & (u32::MAX >> (32 - bits));
            let k = 4 * each * quarter + each * (lane % 4) + element;
            let k = match ty {
                Operands::E4m3 | Operands::E5m2 => depth / 2 * (k % 4 / 2) + k / 4 * 2 + k % 2,
                Operands::F16 | Operands::Bf16 | Operands::Tf32 | Operands::S8 | Operands::U8 => k,
            };
            take(lane, k, ty.value(value));
        }
    }
}

fn half_of(word: u32, which: usize) -> half::f16 {
    half::f16::from_bits((word >> (16 * which)) as u16)
}
