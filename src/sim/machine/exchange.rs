//! Warp-wide exchanges: shuffles, votes, matches and reductions over the lanes that take part.

use super::super::op::{ReduxOp, ShflMode, Slot, VoteMode};
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

/// `movmatrix`: lane 4r + c/2 holds columns c and c + 1 of row r.
pub(super) fn transpose(regs: &mut Regs<'_>, mask: u32, dst: Slot, a: Slot) {
    let from = regs.n(a);
    let element =
        |row: usize, column: usize| from[4 * row + column / 2] >> (16 * (column % 2)) & 0xffff;
    let out = std::array::from_fn(|lane| {
        let (row, column) = (lane / 4, 2 * (lane % 4));
        element(column, row) | element(column + 1, row) << 16
    });
    regs.set_n(mask, dst, &out);
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
