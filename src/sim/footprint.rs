//! Which words of shared memory a request touches: each once, however many lanes share it, and what the banks make
//! of them.

use std::ops::Range;

use pulp::{Arch, NullaryFnOnce};

/// Lanes of a warp.
const LANES: usize = 32;
/// Banks of shared memory, words of a row.
const BANKS: usize = 32;
/// Rows from the first to the last one: requests that spread wider are followed word by word.
const ROWS: usize = 128;

/// Where a request's addresses lie.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    low: u32,
    high: u32,
    /// Bits that are set in any of them.
    bits: u32,
}

impl Extent {
    /// Of the lanes of `mask`, at least one.
    #[inline]
    pub fn of(addresses: &[u64; LANES], mask: u32, arch: Arch) -> Self {
        arch.dispatch(FindExtent { addresses, mask })
    }

    /// Whether accesses of `bytes` each are aligned and within `from..to`.
    #[inline]
    pub fn lies_in(&self, from: u32, to: u32, bytes: u32) -> bool {
        let end = u64::from(self.high) + u64::from(bytes);
        self.low >= from && end <= u64::from(to) && self.bits & (bytes - 1) == 0
    }
}

struct FindExtent<'a> {
    addresses: &'a [u64; LANES],
    mask: u32,
}

impl NullaryFnOnce for FindExtent<'_> {
    type Output = Extent;

    #[inline(always)]
    fn call(self) -> Extent {
        // Lanes that do not take part stand for one that does.
        let some = self.addresses[self.mask.trailing_zeros() as usize % LANES] as u32;
        let [mut low, mut high, mut bits] = [some, some, some];
        for (lane, &address) in self.addresses.iter().enumerate() {
            let active = self.mask >> lane & 1 != 0;
            let address = if active { address as u32 } else { some };
            low = low.min(address);
            high = high.max(address);
            bits |= address;
        }
        Extent { low, high, bits }
    }
}

/// The words of a request, one bit each.
pub(crate) struct Footprint {
    rows: [u32; ROWS],
    used: usize,
    /// Of the first row.
    first: usize,
}

impl Footprint {
    #[inline(always)]
    pub fn new() -> Self {
        Self {
            rows: [0; ROWS],
            used: 0,
            first: 0,
        }
    }

    /// Takes in accesses of `bytes` each (a multiple of a word, and aligned) by the lanes of `mask`, once.
    /// `false`: they are too widely spread.
    #[inline(always)]
    pub fn cover(
        &mut self,
        addresses: &[u64; LANES],
        mask: u32,
        bytes: u32,
        extent: Extent,
    ) -> bool {
        self.first = extent.low as usize / 4 / BANKS;
        self.used = extent.high as usize / 4 / BANKS - self.first + 1;
        if self.used > ROWS {
            return false;
        }
        let piece = u32::MAX >> (32 - bytes / 4);
        let from = 4 * (self.first * BANKS) as u32;
        let mut previous = None;
        for (lane, &address) in addresses.iter().enumerate() {
            let address = address as u32;
            if mask >> lane & 1 != 0 && previous != Some(address) {
                previous = Some(address);
                let word = (address - from) as usize / 4;
                self.rows[word / BANKS % ROWS] |= piece << (word % BANKS);
            }
        }
        true
    }

    pub fn distinct(&self) -> u32 {
        self.rows[..self.used]
            .iter()
            .map(|row| row.count_ones())
            .sum()
    }

    /// The most words of any bank.
    pub fn wavefronts(&self) -> u8 {
        // Counters of all banks at once: one number a bit of their binary form.
        let mut planes = [0u32; 8];
        for &row in &self.rows[..self.used] {
            let mut carry = row;
            for plane in &mut planes {
                if carry == 0 {
                    break;
                }
                (*plane, carry) = (*plane ^ carry, *plane & carry);
            }
        }
        let mut most = 0;
        let mut banks = u32::MAX;
        for (bit, plane) in planes.into_iter().enumerate().rev() {
            if banks & plane != 0 {
                banks &= plane;
                most |= 1 << bit;
            }
        }
        most
    }

    /// Runs of words side by side, in order.
    #[inline]
    pub fn runs(&self) -> impl Iterator<Item = Range<usize>> {
        let mut row = 0;
        let mut left = self.rows[0];
        std::iter::from_fn(move || {
            while left == 0 {
                row += 1;
                if row >= self.used {
                    return None;
                }
                left = self.rows[row];
            }
            let start = left.trailing_zeros();
            let mut end = start + (left >> start).trailing_ones();
            let from = (self.first + row) * BANKS + start as usize;
            let mut length = (end - start) as usize;
            // On over the ends of rows.
            while end == BANKS as u32 && row + 1 < self.used {
                row += 1;
                end = self.rows[row].trailing_ones();
                length += end as usize;
                left = self.rows[row];
            }
            left = if end == BANKS as u32 {
                0
            } else {
                left >> end << end
            };
            Some(from..from + length)
        })
    }
}

#[cfg(test)]
mod tests {
    use pulp::Arch;

    use super::{Extent, Footprint};

    /// Of lanes this many bytes apart; `None`: too widely spread.
    fn strided(stride: u64, mask: u32, bytes: u32) -> Option<Footprint> {
        let addresses = std::array::from_fn(|lane| 1024 + lane as u64 * stride);
        let extent = Extent::of(&addresses, mask, Arch::new());
        assert!(extent.lies_in(1024, 1024 + 31 * stride as u32 + bytes, bytes));
        assert!(!extent.lies_in(1024 + 31 * stride as u32 + 1, u32::MAX, bytes));
        let mut footprint = Footprint::new();
        footprint
            .cover(&addresses, mask, bytes, extent)
            .then_some(footprint)
    }

    #[test]
    fn words_count_once_and_banks_by_their_words() {
        for (stride, bytes, distinct, wavefronts) in [
            (4, 4, 32, 1),
            (0, 16, 4, 1),
            (16, 16, 128, 4),
            (8, 4, 32, 2),
            (128, 4, 32, 32),
            (132, 4, 32, 1),
            (128, 16, 128, 32),
        ] {
            let footprint = strided(stride, u32::MAX, bytes).unwrap();
            let seen = (footprint.distinct(), footprint.wavefronts());
            assert_eq!(seen, (distinct, wavefronts), "{stride} {bytes}");
        }
        assert!(strided(1024, u32::MAX, 4).is_none());
    }

    #[test]
    fn runs_go_on_over_rows() {
        let runs = |stride, mask| {
            let footprint = strided(stride, mask, 8).unwrap();
            let ends = footprint.runs().map(|words| (words.start, words.end));
            ends.collect::<Vec<_>>()
        };
        assert_eq!(runs(8, u32::MAX), [(256, 320)]);
        assert_eq!(runs(8, 0xf0f0), [(264, 272), (280, 288)]);
        assert_eq!(runs(64, 7), [(256, 258), (272, 274), (288, 290)]);
        assert_eq!(runs(8, 1 << 31), [(318, 320)]);
    }
}
