//! `ldmatrix` and `stmatrix`: eight by eight matrices of 16-bit elements, a row an address.

use super::super::regs::Narrow;
use super::super::{Block, Env, Stop};
use super::count::count_shared;
use super::hazard::Hazards;
use super::shared::check_shared;
use super::{At, by};
use crate::sim::op::MatrixMove;

const ROWS: usize = 8;
/// Bytes of a row.
const ROW: u32 = 16;

impl Block {
    pub(in crate::sim::machine) fn move_matrix(
        &mut self,
        env: &mut Env<'_>,
        at: At,
        matrix: &MatrixMove,
    ) -> Result<(), Stop> {
        let addresses = self.shared_addresses(at, matrix.place);
        let Self {
            warps,
            shared,
            knowledge,
            actors,
            ..
        } = self;
        let by = &by(*actors, knowledge, at);
        let mut regs = warps[at.warp].regs(at.frame);
        let mut seen = Hazards::default();
        shared.begin_request();
        for index in 0..usize::from(matrix.count) {
            let slot = matrix.regs[index];
            shared.begin_pass();
            // Lanes 8i to 8i + 7 name the rows of matrix i.
            let mut rows = [0; ROWS];
            for (row, first) in rows.iter_mut().enumerate() {
                let lane = ROWS * index + row;
                let address = addresses[lane] as u32;
                check_shared(env, shared, at.pc, address, ROW, lane)?;
                *first = address as usize / 4;
            }
            if matrix.store {
                let words = words_of(&regs.n(slot), matrix.transposed);
                for (first, row) in rows.into_iter().zip(words) {
                    let address = 4 * first as u32;
                    seen.race(shared.overwrites_reading(address, address + ROW, by));
                    for (word, value) in (first..).zip(row) {
                        let same = shared.word(word) == value;
                        seen.race(shared.write(word, 0xf, false, same, by));
                        shared.set_word(word, value);
                    }
                }
            } else {
                let words = rows.map(|first| {
                    std::array::from_fn(|part| {
                        seen.note(shared.read(first + part, 0xf, false, by));
                        shared.word(first + part)
                    })
                });
                let values = lanes_of(&words, matrix.transposed);
                regs.set_n(at.mask, slot, &values);
            }
        }
        count_shared(env, shared, at, u32::from(matrix.count) * 4);
        seen.report(env, at.pc);
        Ok(())
    }
}

type Words = [[u32; 4]; ROWS];

/// An element of a matrix by row and column.
fn element(words: &Words, row: usize, column: usize) -> u32 {
    words[row][column / 2] >> (16 * (column % 2)) & 0xffff
}

/// Lane 4r + c holds columns 2c and 2c + 1 of row r; transposed, rows 2c and 2c + 1 of column r.
fn lanes_of(words: &Words, transposed: bool) -> Narrow {
    std::array::from_fn(|lane: usize| {
        let (r, c) = (lane / 4, lane % 4);
        if transposed {
            element(words, 2 * c, r) | element(words, 2 * c + 1, r) << 16
        } else {
            words[r][c]
        }
    })
}

fn words_of(lanes: &Narrow, transposed: bool) -> Words {
    let mut words = [[0; 4]; ROWS];
    for (lane, own) in lanes.iter().enumerate() {
        let (r, c) = (lane / 4, lane % 4);
        if transposed {
            for half in 0..2 {
                let value = own >> (16 * half) & 0xffff;
                words[2 * c + half][r / 2] |= value << (16 * (r % 2));
            }
        } else {
            words[r][c] = *own;
        }
    }
    words
}
