//! Warp-wide exchanges: shuffles, votes, matches and reductions over the lanes that take part, and products of
//! small matrices that a warp's lanes hold together.

use half::{bf16, f16};

use super::super::float::Format;
use super::super::op::{Mma, ReduxOp, ShflMode, Slot, VoteMode};
use super::regs::{FULL, LANES, Regs};

/// `shfl`: each lane reads another one's value; out of its segment it keeps its own.
pub(super) struct Shfl {
    pub mode: ShflMode,
    pub dst: Slot,
    pub valid: Option<Slot>,
    pub a: Slot,
    pub lane: Slot,
    pub clamp: Slot,
}

pub(super) fn shfl(regs: &mut Regs<'_>, mask: u32, op: &Shfl) {
    let (values, by, clamp) = (regs.n(op.a), regs.n(op.lane), regs.n(op.clamp));
    let mut out = values;
    let mut valid = 0;
    for lane in 0..LANES {
        let me = lane as i32;
        let b = (by[lane] & 31) as i32;
        let c = (clamp[lane] & 31) as i32;
        let segment = (clamp[lane] >> 8 & 31) as i32;
        let most = (me & segment) | (c & !segment);
        let least = me & segment;
        let (from, inside) = match op.mode {
            ShflMode::Up => (me - b, me - b >= most),
            ShflMode::Down => (me + b, me + b <= most),
            ShflMode::Bfly => (me ^ b, (me ^ b) <= most),
            ShflMode::Idx => {
                let from = least | (b & !segment);
                (from, from <= most)
            }
        };
        let from = if inside { from } else { me };
        valid |= u32::from(inside) << lane;
        out[lane] = values[(from & 31) as usize];
    }
    regs.set_n(mask, op.dst, &out);
    if let Some(slot) = op.valid {
        regs.set_pred(mask, slot, valid);
    }
}

/// `vote` over the active lanes.
pub(super) fn vote(regs: &mut Regs<'_>, mask: u32, mode: VoteMode, dst: Slot, bits: u32) {
    let yes = bits & mask;
    let answer = match mode {
        VoteMode::Ballot => {
            regs.set_n(mask, dst, &[yes; LANES]);
            return;
        }
        VoteMode::All => yes == mask,
        VoteMode::Any => yes != 0,
        VoteMode::Uni => yes == mask || yes == 0,
    };
    regs.set_pred(mask, dst, if answer { FULL } else { 0 });
}

/// `match.any` and `match.all`.
pub(super) fn matches(
    regs: &mut Regs<'_>,
    mask: u32,
    all: bool,
    wide: bool,
    dst: Slot,
    valid: Option<Slot>,
    a: Slot,
) {
    let values = regs.bits(wide, a);
    let equal = |lane: usize| {
        (0..LANES)
            .filter(|&other| mask >> other & 1 != 0 && values[other] == values[lane])
            .fold(0u32, |bits, other| bits | 1 << other)
    };
    if all {
        let first = mask.trailing_zeros() as usize;
        let agree = mask != 0 && equal(first.min(LANES - 1)) == mask;
        regs.set_n(mask, dst, &[if agree { mask } else { 0 }; LANES]);
        if let Some(slot) = valid {
            regs.set_pred(mask, slot, if agree { FULL } else { 0 });
        }
    } else {
        let out = std::array::from_fn(equal);
        regs.set_n(mask, dst, &out);
    }
}

/// `redux` over the active lanes.
pub(super) fn redux(regs: &mut Regs<'_>, mask: u32, op: ReduxOp, signed: bool, dst: Slot, a: Slot) {
    let values = regs.n(a);
    let result = (0..LANES)
        .filter(|&lane| mask >> lane & 1 != 0)
        .map(|lane| values[lane])
        .reduce(|x, y| match (op, signed) {
            (ReduxOp::Add, _) => x.wrapping_add(y),
            (ReduxOp::Min, false) => x.min(y),
            (ReduxOp::Min, true) => (x as i32).min(y as i32) as u32,
            (ReduxOp::Max, false) => x.max(y),
            (ReduxOp::Max, true) => (x as i32).max(y as i32) as u32,
            (ReduxOp::And, _) => x & y,
            (ReduxOp::Or, _) => x | y,
            (ReduxOp::Xor, _) => x ^ y,
        })
        .unwrap_or(0);
    regs.set_n(mask, dst, &[result; LANES]);
}

/// `mma` m16n8k16. Lane 4g + t holds, two elements a register, of A rows g and g + 8 at columns 2t and 2t + 8,
/// of B column g at the same rows, of C and D rows g and g + 8 at column 2t. Products are summed in float64 and
/// rounded once: tensor cores keep fewer bits, in an order of their own.
pub(super) fn mma(regs: &mut Regs<'_>, mask: u32, op: &Mma) {
    let value = |word: u32, half: usize| {
        let bits = (word >> (16 * half)) as u16;
        match op.format {
            Format::F16 => f16::from_bits(bits).to_f64(),
            Format::Bf16 | Format::F32 | Format::F64 => bf16::from_bits(bits).to_f64(),
        }
    };
    let (a, b) = (op.a.map(|slot| regs.n(slot)), op.b.map(|slot| regs.n(slot)));
    let (mut by_rows, mut by_columns) = ([[0.0; 16]; 16], [[0.0; 16]; 8]);
    for lane in 0..LANES {
        let (group, first) = (lane / 4, 2 * (lane % 4));
        for half in 0..2 {
            for (part, word) in a.iter().enumerate() {
                let (row, k) = (group + 8 * (part % 2), first + 8 * (part / 2) + half);
                by_rows[row][k] = value(word[lane], half);
            }
            for (part, word) in b.iter().enumerate() {
                by_columns[group][first + 8 * part + half] = value(word[lane], half);
            }
        }
    }
    let c = op.c.map(|slot| regs.n(slot));
    for (part, (slot, c)) in op.d.iter().zip(&c).enumerate() {
        let out = std::array::from_fn(|lane| {
            let row = &by_rows[lane / 4 + 8 * (part / 2)];
            let column = &by_columns[2 * (lane % 4) + part % 2];
            let sum: f64 = row.iter().zip(column).map(|(a, b)| a * b).sum();
            ((f64::from(f32::from_bits(c[lane])) + sum) as f32).to_bits()
        });
        regs.set_n(mask, *slot, &out);
    }
}
