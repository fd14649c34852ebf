//! What a tensor map says: a tensor in global memory, the box that a copy moves, and how the box lies in shared
//! memory. Its 128 bytes are opaque; this stands for what the encoding call was told.

use crate::source::DType;

/// A tensor map.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorMap {
    /// As messages name it.
    pub name: String,
    /// Device address of the first element.
    pub base: u64,
    /// Element type.
    pub dtype: DType,
    /// Elements, innermost first.
    pub dims: Vec<u64>,
    /// Byte strides of dims 1….
    pub strides: Vec<u64>,
    /// Elements of the box, innermost first.
    pub tile: Vec<u32>,
    /// Shared-memory swizzle.
    pub swizzle: Swizzle,
    /// Out-of-range elements read as NaN instead of zero.
    pub nan_fill: bool,
}

/// How rows are permuted in shared memory: 16-byte pieces within a span of this many bytes, by address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swizzle {
    /// As they come.
    None,
    /// 32 bytes.
    Span32,
    /// 64 bytes.
    Span64,
    /// 128 bytes.
    Span128,
}

impl Swizzle {
    /// Of a span in bytes; 0 for none.
    pub fn of_span(bytes: u32) -> Option<Self> {
        Some(match bytes {
            0 => Self::None,
            32 => Self::Span32,
            64 => Self::Span64,
            128 => Self::Span128,
            _ => return None,
        })
    }

    /// The span in bytes; 16, one piece, for none.
    pub(crate) fn span(self) -> u32 {
        match self {
            Self::None => 16,
            Self::Span32 => 32,
            Self::Span64 => 64,
            Self::Span128 => 128,
        }
    }

    /// Where a byte lies that would lie at `address`.
    #[inline]
    pub(crate) fn apply(self, address: u32) -> u32 {
        let mask = self.span() / 16 - 1;
        address ^ ((address >> 7 & mask) << 4)
    }

    /// For messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "no swizzle",
            Self::Span32 => "32-byte swizzle",
            Self::Span64 => "64-byte swizzle",
            Self::Span128 => "128-byte swizzle",
        }
    }
}

/// A row of a box: a run of elements side by side, in global and in shared memory.
pub(crate) struct Row {
    /// Byte offset in the box.
    pub offset: u32,
    /// Address of the row's first element that lies in the tensor; absent where none does.
    pub address: Option<u64>,
    /// Bytes before it that lie outside.
    pub before: u32,
    /// Bytes that lie inside.
    pub inside: u32,
    /// Bytes that a store writes: whole pieces, also where the tensor ends within one.
    pub stored: u32,
}

/// Bytes of a piece, in which hardware moves a row.
pub(crate) const PIECE: u32 = 16;
/// Two bytes of an element outside a tensor whose map says NaN.
pub(crate) const OUTSIDE_NAN: u16 = 0x7ff7;

impl TensorMap {
    /// Bytes of a box.
    pub(crate) fn box_bytes(&self) -> u32 {
        self.row_bytes() * self.tile[1..].iter().product::<u32>()
    }

    /// Bytes of a row of the box.
    pub(crate) fn row_bytes(&self) -> u32 {
        self.tile[0] * self.element()
    }

    /// Bytes from one row of the box to the next in shared memory: a row narrower than the swizzle's span has one to
    /// itself.
    pub(crate) fn pitch(&self) -> u32 {
        self.row_bytes().max(self.swizzle.span())
    }

    pub(crate) fn element(&self) -> u32 {
        self.dtype.size() as u32
    }

    /// What fills a box outside the tensor: zeros, or one pattern for all types, a NaN of each float format.
    pub(crate) fn filled(&self) -> Vec<u8> {
        let pair = if self.nan_fill { OUTSIDE_NAN } else { 0 };
        let mut bytes = pair
            .to_le_bytes()
            .repeat(self.box_bytes().div_ceil(2) as usize);
        bytes.truncate(self.box_bytes() as usize);
        bytes
    }

    /// The rows of the box at these coordinates.
    pub(crate) fn rows(&self, at: &[i32]) -> Vec<Row> {
        let outer: u32 = self.tile[1..].iter().product();
        let (element, width) = (i64::from(self.element()), i64::from(self.tile[0]));
        let first = i64::from(at[0]);
        let from = first.clamp(0, self.dims[0] as i64);
        let to = (first + width).clamp(0, self.dims[0] as i64);
        (0..outer)
            .map(|row| {
                let mut left = row;
                let mut address = self.base as i64 + from * element;
                let mut outside = from >= to;
                for (dim, &size) in self.tile.iter().enumerate().skip(1) {
                    let index = i64::from(at[dim]) + i64::from(left % size);
                    left /= size;
                    outside |= index < 0 || index >= self.dims[dim] as i64;
                    address += index.saturating_mul(self.strides[dim - 1] as i64);
                }
                let inside = if outside {
                    0
                } else {
                    ((to - from) * element) as u32
                };
                let before = ((from - first) * element) as u32;
                Row {
                    offset: row * self.row_bytes(),
                    address: (!outside).then_some(address as u64),
                    before,
                    inside,
                    stored: if inside == 0 {
                        0
                    } else {
                        (inside.next_multiple_of(PIECE)).min(self.row_bytes() - before)
                    },
                }
            })
            .collect()
    }
}
