//! Which words of shared memory a request touches: each once, however many lanes share it, and what the banks make
//! of them, pass by pass.

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
    pub low: u32,
    pub high: u32,
}

impl Extent {
    /// Of the lanes of `mask`, at least one.
    #[inline]
    pub fn of(addresses: &[u64; LANES], mask: u32, arch: Arch) -> Self {
        arch.dispatch(FindExtent { addresses, mask })
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
        let [mut low, mut high] = [some, some];
        for (lane, &address) in self.addresses.iter().enumerate() {
            let active = self.mask >> lane & 1 != 0;
            let address = if active { address as u32 } else { some };
            low = low.min(address);
            high = high.max(address);
        }
        Extent { low, high }
    }
}

/// Lanes that shared memory serves together, pass after pass: all 32 where each wants a word; of accesses of 8 bytes
/// each half of them, of 16 bytes each quarter. Two neighbouring passes of a load are one where, all over the
/// warp, lanes `i` and `i ^ 1`, or all over it lanes `i` and `i ^ 2`, want the same; halves of 16-byte loads stay
/// apart. So an H200 counts (`tests/data/sim/wavefronts.txt`).
pub(crate) struct Passes {
    mask: u32,
    lanes: u32,
}

impl Passes {
    /// Of loads of `bytes` each by the lanes of `mask`.
    #[inline(always)]
    pub fn of_load(addresses: &[u64; LANES], mask: u32, bytes: u32) -> Self {
        let apart = Self::of_store(mask, bytes);
        let paired = apart.lanes < 32 && (paired(addresses, mask, 1) || paired(addresses, mask, 2));
        Self {
            lanes: apart.lanes << u32::from(paired),
            ..apart
        }
    }

    /// Of stores of `bytes` each by the lanes of `mask`.
    #[inline(always)]
    pub fn of_store(mask: u32, bytes: u32) -> Self {
        let lanes = match bytes {
            8 => 16,
            16 => 8,
            _ => 32,
        };
        Self { mask, lanes }
    }

    /// All lanes at once.
    #[inline(always)]
    fn whole(&self) -> bool {
        self.lanes == 32
    }
}

impl Iterator for Passes {
    type Item = u32;

    /// The lanes of the next pass in which any takes part.
    #[inline(always)]
    fn next(&mut self) -> Option<u32> {
        if self.mask == 0 {
            return None;
        }
        let start = self.mask.trailing_zeros() / self.lanes * self.lanes;
        let lanes = (u32::MAX >> (32 - self.lanes)) << start;
        let pass = self.mask & lanes;
        self.mask &= !lanes;
        Some(pass)
    }
}

/// Whether lanes that are `apart` (1 or 2) want the same, where both take part.
#[inline(always)]
fn paired(addresses: &[u64; LANES], mask: u32, apart: usize) -> bool {
    (0..LANES).filter(|lane| lane & apart == 0).all(|lane| {
        let both = mask >> lane & mask >> (lane + apart) & 1 != 0;
        !both || addresses[lane] == addresses[lane + apart]
    })
}

/// The words of a request, one bit each.
pub(crate) struct Footprint {
    rows: [u32; ROWS],
    used: usize,
    /// Of the first row.
    first: usize,
    wavefronts: u32,
    passes: u32,
}

impl Footprint {
    #[inline(always)]
    pub fn new() -> Self {
        Self {
            rows: [0; ROWS],
            used: 0,
            first: 0,
            wavefronts: 0,
            passes: 0,
        }
    }

    /// Takes in accesses of `bytes` each (a multiple of a word, and aligned), pass by pass, once.
    /// `false`: they are too widely spread.
    #[inline(always)]
    pub fn cover(
        &mut self,
        addresses: &[u64; LANES],
        passes: Passes,
        bytes: u32,
        extent: Extent,
    ) -> bool {
        self.first = extent.low as usize / 4 / BANKS;
        self.used = extent.high as usize / 4 / BANKS - self.first + 1;
        if self.used > ROWS {
            return false;
        }
        let piece = u32::MAX >> (32 - bytes / 4);
        if passes.whole() {
            self.mark(addresses, passes.mask, piece);
            self.wavefronts = busiest(&self.rows[..self.used]);
            self.passes = 1;
            return true;
        }
        let mut all = [0; ROWS];
        for pass in passes {
            self.mark(addresses, pass, piece);
            self.wavefronts += busiest(&self.rows[..self.used]);
            self.passes += 1;
            for (all, row) in all.iter_mut().zip(&mut self.rows[..self.used]) {
                *all |= std::mem::take(row);
            }
        }
        self.rows = all;
        true
    }

    #[inline(always)]
    fn mark(&mut self, addresses: &[u64; LANES], mask: u32, piece: u32) {
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
    }

    pub fn distinct(&self) -> u32 {
        self.rows[..self.used]
            .iter()
            .map(|row| row.count_ones())
            .sum()
    }

    /// Wavefronts, and how many of them no conflict explains: one a pass.
    pub fn wavefronts(&self) -> (u32, u32) {
        (self.wavefronts, self.passes)
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

/// The most words of any bank.
#[inline(always)]
fn busiest(rows: &[u32]) -> u32 {
    // Counters of all banks at once: one number a bit of their binary form.
    let mut planes = [0u32; 8];
    for &row in rows {
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

#[cfg(test)]
mod tests {
    use pulp::Arch;

    use super::{Extent, Footprint, Passes};

    /// By a load; `None`: too widely spread.
    fn covered(of: impl Fn(u64) -> u64, mask: u32, bytes: u32) -> Option<Footprint> {
        let addresses = std::array::from_fn(|lane| 1024 + of(lane as u64));
        let extent = Extent::of(&addresses, mask, Arch::new());
        let mut footprint = Footprint::new();
        let passes = Passes::of_load(&addresses, mask, bytes);
        footprint
            .cover(&addresses, passes, bytes, extent)
            .then_some(footprint)
    }

    #[test]
    fn words_count_once_and_banks_by_their_words() {
        for (stride, bytes, distinct, wavefronts) in [
            (4, 4, 32, 1),
            (0, 16, 4, 2),
            (16, 16, 128, 4),
            (8, 4, 32, 2),
            (128, 4, 32, 32),
            (132, 4, 32, 1),
            (128, 16, 128, 32),
        ] {
            let footprint = covered(|lane| stride * lane, u32::MAX, bytes).unwrap();
            let seen = (footprint.distinct(), footprint.wavefronts().0);
            assert_eq!(seen, (distinct, wavefronts), "{stride} {bytes}");
        }
        assert!(covered(|lane| 1024 * lane, u32::MAX, 4).is_none());
    }

    /// `ld|st BYTES MASK WAVEFRONTS CONFLICTS`, then the lanes' addresses: what an H200 counted.
    #[test]
    fn wavefronts_are_those_of_the_hardware() {
        let recorded = include_str!("../../tests/data/sim/wavefronts.txt");
        for line in recorded.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split_whitespace();
            let load = words.next() == Some("ld");
            let bytes = words.next().unwrap().parse().unwrap();
            let mask = u32::from_str_radix(words.next().unwrap(), 16).unwrap();
            let mut numbers = words.map(|word| word.parse::<u64>().unwrap());
            let wavefronts = numbers.next().unwrap() as u32;
            let conflicts = numbers.next().unwrap() as u32;
            let addresses = std::array::from_fn(|_| 1024 + numbers.next().unwrap());
            let extent = Extent::of(&addresses, mask, Arch::new());
            let passes = if load {
                Passes::of_load(&addresses, mask, bytes)
            } else {
                Passes::of_store(mask, bytes)
            };
            let mut footprint = Footprint::new();
            assert!(footprint.cover(&addresses, passes, bytes, extent), "{line}");
            let seen = footprint.wavefronts();
            assert_eq!(seen, (wavefronts, wavefronts - conflicts), "{line}");
        }
    }

    #[test]
    fn runs_go_on_over_rows() {
        let runs = |stride: u64, mask| {
            let footprint = covered(|lane| stride * lane, mask, 8).unwrap();
            let ends = footprint.runs().map(|words| (words.start, words.end));
            ends.collect::<Vec<_>>()
        };
        assert_eq!(runs(8, u32::MAX), [(256, 320)]);
        assert_eq!(runs(8, 0xf0f0), [(264, 272), (280, 288)]);
        assert_eq!(runs(64, 7), [(256, 258), (272, 274), (288, 290)]);
        assert_eq!(runs(8, 1 << 31), [(318, 320)]);
    }
}
