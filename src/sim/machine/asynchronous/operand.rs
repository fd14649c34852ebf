//! A product's operands in shared memory: what a descriptor says, and where each element lies.

use crate::sim::op::Operands;
use crate::sim::reading::merge;
use crate::sim::shared::Shared;
use crate::sim::tensor_map::Swizzle;

/// Bytes of a piece that no swizzle parts.
const PIECE: u32 = 16;
/// Bytes of a row of one product, along its depth.
const DEPTH_BYTES: u32 = 32;

/// A shared-memory descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub start: u32,
    leading: u32,
    stride: u32,
    pub base_offset: u32,
    pub swizzle: Swizzle,
}

impl Descriptor {
    pub fn of(bits: u64) -> Self {
        let field = |from: u32| (bits >> from & 0x3fff) as u32 * 16;
        Self {
            start: field(0),
            leading: field(16),
            stride: field(32),
            base_offset: (bits >> 49 & 7) as u32,
            swizzle: match bits >> 62 {
                0 => Swizzle::None,
                1 => Swizzle::Span128,
                2 => Swizzle::Span64,
                _ => Swizzle::Span32,
            },
        }
    }
}

/// An operand: rows are those of A, columns those of B.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operand {
    pub descriptor: Descriptor,
    pub ty: Operands,
    /// The row index runs fastest in memory; else the depth.
    pub row_major: bool,
    pub first_row: u32,
    pub rows: u32,
}

/// Sixteen bytes of an operand: elements along its depth, or along its rows.
struct Piece {
    address: u32,
    row: u32,
    depth: u32,
}

impl Operand {
    /// Its pieces, by the address that they have after the swizzle.
    fn pieces(self) -> impl Iterator<Item = Piece> {
        let Descriptor {
            start,
            leading,
            stride,
            swizzle,
            ..
        } = self.descriptor;
        let span = swizzle.span();
        let plain = swizzle == Swizzle::None;
        let elements = PIECE / self.ty.bytes() as u32;
        let (outer, inner) = if self.row_major {
            (DEPTH_BYTES / self.ty.bytes() as u32, self.rows / 8)
        } else {
            (self.rows, DEPTH_BYTES / PIECE)
        };
        (0..outer * inner).map(move |index| {
            let (a, b) = (index / inner, index % inner);
            let (row, depth, address) = if self.row_major {
                let (k, row) = (a, self.first_row + 8 * b);
                let address = if plain {
                    k % 8 * PIECE + row / 8 * stride + k / 8 * leading
                } else {
                    let wide = span / 2;
                    k % 8 * span + 2 * (row % wide) + row / wide * leading + k / 8 * stride
                };
                (row, k, address)
            } else {
                let row = self.first_row + a;
                let address = if plain {
                    row % 8 * PIECE + b * leading + row / 8 * stride
                } else {
                    row % 8 * span + b * PIECE + row / 8 * stride
                };
                (row, b * elements, address)
            };
            Piece {
                address: swizzle.apply(start + address),
                row: row - self.first_row,
                depth,
            }
        })
    }

    /// The lowest and the highest byte it touches, one past.
    pub fn bounds(self) -> (u32, u32) {
        self.pieces().fold((u32::MAX, 0), |(low, high), piece| {
            (low.min(piece.address), high.max(piece.address + PIECE))
        })
    }

    /// Byte ranges that it touches.
    pub fn ranges(self) -> Vec<(u32, u32)> {
        let pieces = self.pieces().map(|p| (p.address, p.address + PIECE));
        merge(pieces.collect())
    }

    /// Values, by depth and then by row: `out[depth * stride + row]`.
    pub fn read(self, shared: &Shared, negated: bool, stride: usize, out: &mut [f32]) {
        let per_word = 4 / self.ty.bytes();
        let bits = 32 / per_word as u32;
        for piece in self.pieces() {
            let first = piece.address as usize / 4;
            for index in 0..PIECE as usize / self.ty.bytes() {
                let word = shared.word(first + index / per_word);
                let element = word >> (bits * (index % per_word) as u32);
                let value = self.ty.value(element & (u32::MAX >> (32 - bits)));
                let value = if negated { -value } else { value };
                let (row, depth) = if self.row_major {
                    (piece.row as usize + index, piece.depth as usize)
                } else {
                    (piece.row as usize, piece.depth as usize + index)
                };
                out[depth * stride + row] = value;
            }
        }
    }
}
