//! Words of shared memory from where each lane points to rows of registers. Stores of single words that vectors then
//! read would stall the host, so rows are put together in its vector registers where it has those of AVX2.

use pulp::{Arch, NullaryFnOnce};

use super::super::regs::{LANES, Narrow, Regs};
use super::shape::Places;
use crate::sim::op::Reg;

/// `N` words of each lane, all inside of `words`, to as many registers.
#[inline]
pub(super) fn gather<const N: usize>(
    words: &[u32],
    regs: &mut Regs<'_>,
    places: &Places,
    to: &[Reg],
    arch: Arch,
) {
    let gather = Gather {
        words,
        regs,
        places,
        to,
    };
    match arch {
        #[cfg(target_arch = "x86_64")]
        Arch::V3(simd) => simd.vectorize(avx2::Gather::<N> { simd, gather }),
        arch => arch.dispatch(Portable::<N>(gather)),
    }
}

struct Gather<'a, 'r> {
    words: &'a [u32],
    regs: &'a mut Regs<'r>,
    places: &'a Places,
    to: &'a [Reg],
}

impl Gather<'_, '_> {
    /// What one lane brings.
    #[inline(always)]
    fn own<const N: usize>(&self, lane: usize) -> [u32; N] {
        let first = self.places.addresses[lane] as usize / 4;
        let mut own = [0; N];
        own.copy_from_slice(&self.words[first..first + N]);
        own
    }

    #[inline(always)]
    fn put<const N: usize>(self, rows: &[Narrow; N]) {
        for (reg, row) in self.to.iter().zip(rows) {
            self.regs.set_n(self.places.mask, reg.slot, row);
        }
    }
}

struct Portable<'a, 'r, const N: usize>(Gather<'a, 'r>);

impl<const N: usize> NullaryFnOnce for Portable<'_, '_, N> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let mut rows = [[0; LANES]; N];
        for lane in 0..LANES {
            let own: [u32; N] = self.0.own(lane);
            for (row, word) in rows.iter_mut().zip(own) {
                row[lane] = word;
            }
        }
        self.0.put(&rows);
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{__m128i, __m256i};

    use pulp::x86::V3;
    use pulp::{NullaryFnOnce, cast};

    use super::super::super::regs::{LANES, Narrow};

    /// Lanes of one vector.
    const PART: usize = 8;

    pub(super) struct Gather<'a, 'r, const N: usize> {
        pub simd: V3,
        pub gather: super::Gather<'a, 'r>,
    }

    impl<const N: usize> NullaryFnOnce for Gather<'_, '_, N> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            let Self { simd, gather } = self;
            let mut rows: [Narrow; N] = [[0; LANES]; N];
            for from in (0..LANES).step_by(PART) {
                if N == 4 {
                    let parts = transposed(simd, &gather, from);
                    for (row, part) in rows.iter_mut().zip(parts) {
                        let part: [u32; PART] = cast(part);
                        row[from..from + PART].copy_from_slice(&part);
                    }
                } else {
                    for (index, row) in rows.iter_mut().enumerate() {
                        let part: [u32; PART] = cast(one::<N>(simd, &gather, from, index));
                        row[from..from + PART].copy_from_slice(&part);
                    }
                }
            }
            gather.put(&rows);
        }
    }

    // Functions, and no closures: those would not be compiled for AVX2.

    /// Word by word what eight lanes have lane by lane.
    #[inline(always)]
    fn transposed(simd: V3, gather: &super::Gather<'_, '_>, from: usize) -> [__m256i; 4] {
        let a = both(simd, gather, from);
        let b = both(simd, gather, from + 1);
        let c = both(simd, gather, from + 2);
        let d = both(simd, gather, from + 3);
        let low = simd.avx2._mm256_unpacklo_epi32(a, b);
        let high = simd.avx2._mm256_unpackhi_epi32(a, b);
        let next_low = simd.avx2._mm256_unpacklo_epi32(c, d);
        let next_high = simd.avx2._mm256_unpackhi_epi32(c, d);
        [
            simd.avx2._mm256_unpacklo_epi64(low, next_low),
            simd.avx2._mm256_unpackhi_epi64(low, next_low),
            simd.avx2._mm256_unpacklo_epi64(high, next_high),
            simd.avx2._mm256_unpackhi_epi64(high, next_high),
        ]
    }

    /// Four words of a lane, and of the fourth one after it.
    #[inline(always)]
    fn both(simd: V3, gather: &super::Gather<'_, '_>, lane: usize) -> __m256i {
        let low: __m128i = cast(gather.own::<4>(lane));
        let high: __m128i = cast(gather.own::<4>(lane + PART / 2));
        let low = simd.avx._mm256_castsi128_si256(low);
        simd.avx2._mm256_inserti128_si256::<1>(low, high)
    }

    /// One word of each of eight lanes.
    #[inline(always)]
    fn one<const N: usize>(
        simd: V3,
        gather: &super::Gather<'_, '_>,
        from: usize,
        index: usize,
    ) -> __m256i {
        simd.avx._mm256_setr_epi32(
            gather.own::<N>(from)[index] as i32,
            gather.own::<N>(from + 1)[index] as i32,
            gather.own::<N>(from + 2)[index] as i32,
            gather.own::<N>(from + 3)[index] as i32,
            gather.own::<N>(from + 4)[index] as i32,
            gather.own::<N>(from + 5)[index] as i32,
            gather.own::<N>(from + 6)[index] as i32,
            gather.own::<N>(from + 7)[index] as i32,
        )
    }
}

#[cfg(test)]
mod tests {
    use pulp::Arch;

    use super::super::shape::{Bases, Places};
    use super::gather;
    use crate::sim::machine::regs::{LANES, Regs};
    use crate::sim::op::Reg;

    /// Rows of the registers 1 to `N` after lanes of `mask` have read from every third word on, the last first.
    fn rows<const N: usize>(mask: u32, arch: Arch) -> Vec<[u32; LANES]> {
        let words: Vec<u32> = (0..128).map(|word| word * 0x0101_0101).collect();
        let addresses = std::array::from_fn(|lane| 12 * (31 - lane as u64));
        let mut places = Places::new(mask);
        places.locate(Bases::Wide(&addresses), 0, None, arch);
        let mut narrow = vec![[7; LANES]; 5];
        let regs = &mut Regs {
            narrow: &mut narrow,
            wide: &mut [],
            preds: &mut [],
        };
        let to: [Reg; N] = std::array::from_fn(|index| Reg {
            slot: 1 + index as u16,
            wide: false,
        });
        gather::<N>(&words, regs, &places, &to, arch);
        narrow
    }

    #[test]
    fn each_lane_gets_its_words_on_every_host() {
        fn check<const N: usize>(mask: u32) {
            for arch in [Arch::Scalar, Arch::new()] {
                let rows = rows::<N>(mask, arch);
                for (slot, row) in rows.iter().enumerate() {
                    for (lane, &value) in row.iter().enumerate() {
                        let expected = if (1..=N).contains(&slot) && mask >> lane & 1 != 0 {
                            (3 * (31 - lane) + slot - 1) as u32 * 0x0101_0101
                        } else {
                            7
                        };
                        assert_eq!(value, expected, "{N} words, {mask:#x}, {slot}, {lane}");
                    }
                }
            }
        }
        for mask in [u32::MAX, 0x8000_f00f] {
            check::<1>(mask);
            check::<2>(mask);
            check::<4>(mask);
        }
    }
}
