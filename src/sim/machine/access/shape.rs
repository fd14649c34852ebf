//! Where a request's lanes go in shared memory, and how they lie to each other. An instruction's lanes mostly lie as
//! they did the last time, only elsewhere, and neither what the banks make of them nor which words are side by side
//! hangs on where: both are found once for each shape, not once for each request.

use std::ops::Range;

use pulp::{Arch, NullaryFnOnce};

use super::super::Env;
use super::super::regs::{FULL, LANES, Narrow, Regs, Wide};
use super::At;
use crate::sim::footprint::{Extent, Footprint, Passes};
use crate::sim::op::{Address, Base, Pc};

/// Shared addresses of a request's lanes; one that does not take part stands where the first that does stands.
pub(super) struct Places {
    pub addresses: Narrow,
    pub mask: u32,
    /// Of the first lane that takes part.
    first: u32,
    /// They lie to each other as the shape says that they were held against.
    alike: bool,
}

/// Registers that hold addresses.
pub(super) enum Bases<'a> {
    Narrow(&'a Narrow),
    Wide(&'a Wide),
}

impl<'a> Bases<'a> {
    /// `None`: the address needs no register.
    #[inline(always)]
    pub fn of(regs: &'a Regs<'_>, address: &Address) -> Option<Self> {
        match address.base {
            Base::Narrow(slot) => Some(Self::Narrow(&regs.narrow[usize::from(slot)])),
            Base::Wide(slot) => Some(Self::Wide(&regs.wide[usize::from(slot)])),
            Base::None | Base::Frame => None,
        }
    }
}

impl Places {
    /// Nowhere yet, for the lanes of `mask`, at least one.
    #[inline(always)]
    pub fn new(mask: u32) -> Self {
        Self {
            addresses: [0; LANES],
            mask,
            first: 0,
            alike: false,
        }
    }

    /// Whole addresses within a block, held against the shape of the instruction's last request.
    pub fn held(env: &Env<'_>, addresses: &Wide, at: At) -> Self {
        let mut places = Self::new(at.mask);
        let last = env.shapes.last(at.pc);
        places.locate(Bases::Wide(addresses), 0, last, env.arch);
        places
    }

    /// `offset` from what registers hold; held against the shape of the instruction's last request.
    #[inline(always)]
    pub fn locate(&mut self, bases: Bases<'_>, offset: u32, last: Option<&Shape>, arch: Arch) {
        let last = last.filter(|shape| shape.mask == self.mask);
        let (first, alike) = arch.dispatch(Locate {
            bases,
            offset,
            mask: self.mask,
            apart: last.map(|shape| &shape.apart),
            to: &mut self.addresses,
        });
        (self.first, self.alike) = (first, alike);
    }

    /// The same, as wide as generic addresses.
    pub fn wide(&self) -> Wide {
        self.addresses.map(u64::from)
    }

    /// Whether accesses of `bytes` each are aligned and within `from..to`. `last` is what they were held against.
    #[inline]
    pub fn lie_in(&self, from: u32, to: u32, bytes: u32, last: Option<&Shape>) -> bool {
        let (from, to) = (i64::from(from), i64::from(to) - i64::from(bytes));
        match last {
            Some(shape) if self.alike => {
                let first = i64::from(self.first);
                first - i64::from(shape.below) >= from
                    && first + i64::from(shape.above) <= to
                    && self.first & (bytes - 1) == 0
            }
            _ => (self.addresses.iter()).all(|&address| {
                (from..=to).contains(&i64::from(address)) && address & (bytes - 1) == 0
            }),
        }
    }
}

struct Locate<'a> {
    bases: Bases<'a>,
    offset: u32,
    mask: u32,
    apart: Option<&'a Narrow>,
    to: &'a mut Narrow,
}

impl NullaryFnOnce for Locate<'_> {
    type Output = (u32, bool);

    #[inline(always)]
    fn call(self) -> (u32, bool) {
        let lane = self.mask.trailing_zeros() as usize % LANES;
        let first = self.offset.wrapping_add(match self.bases {
            Bases::Narrow(bases) => bases[lane],
            Bases::Wide(bases) => bases[lane] as u32,
        });
        match self.bases {
            Bases::Narrow(bases) => {
                for (to, base) in self.to.iter_mut().zip(bases) {
                    *to = base.wrapping_add(self.offset);
                }
            }
            Bases::Wide(bases) => {
                for (to, base) in self.to.iter_mut().zip(bases) {
                    *to = (*base as u32).wrapping_add(self.offset);
                }
            }
        }
        if self.mask != FULL {
            for (lane, address) in self.to.iter_mut().enumerate() {
                let active = self.mask >> lane & 1 != 0;
                *address = if active { *address } else { first };
            }
        }
        let Some(apart) = self.apart else {
            return (first, false);
        };
        let mut differ = 0;
        for (address, apart) in self.to.iter().zip(apart) {
            differ |= address.wrapping_sub(first) ^ apart;
        }
        (first, differ == 0)
    }
}

/// How the lanes of a request lie to each other.
pub(in crate::sim::machine) struct Shape {
    mask: u32,
    /// Bytes from the first lane that takes part.
    apart: Narrow,
    /// Bytes from the lowest address to that of the first lane.
    below: u32,
    /// Bytes from there to the highest one.
    above: u32,
    /// The words of the request that was the first of this shape.
    pub footprint: Footprint,
    /// Words side by side, from the lowest one.
    runs: Vec<Range<usize>>,
    /// No lane shares a word with another one.
    pub disjoint: bool,
}

impl Shape {
    /// Runs of words side by side of a request of this shape.
    #[inline]
    pub(super) fn runs(&self, places: &Places) -> impl Iterator<Item = Range<usize>> {
        let low = (places.first - self.below) as usize / 4;
        (self.runs.iter()).map(move |words| words.start + low..words.end + low)
    }

    #[cold]
    fn new(
        places: &Places,
        total: u32,
        passes: impl FnOnce(&Wide) -> Passes,
        arch: Arch,
    ) -> Option<Self> {
        let addresses = places.wide();
        let mut footprint = Footprint::new();
        let extent = Extent::of(&addresses, places.mask, arch);
        if !footprint.cover(&addresses, passes(&addresses), total, extent) {
            return None;
        }
        let [low, high] = [extent.low, extent.high];
        let from = low as usize / 4;
        let runs = (footprint.runs())
            .map(|words| words.start - from..words.end - from)
            .collect();
        let disjoint = footprint.distinct() == places.mask.count_ones() * total / 4;
        Some(Self {
            mask: places.mask,
            apart: (places.addresses).map(|address| address.wrapping_sub(places.first)),
            below: places.first - low,
            above: high - places.first,
            footprint,
            runs,
            disjoint,
        })
    }
}

/// Of each instruction, the shape of its last request.
pub(in crate::sim::machine) struct Shapes(Vec<Option<Box<Shape>>>);

impl Shapes {
    /// For a kernel of so many instructions.
    pub fn new(instructions: usize) -> Self {
        Self((0..instructions).map(|_| None).collect())
    }

    /// Of an instruction's last request.
    #[inline]
    pub(super) fn last(&self, pc: Pc) -> Option<&Shape> {
        self.0[pc as usize].as_deref()
    }

    /// Of an instruction's accesses of `total` bytes each, a multiple of a word and aligned, held against its last
    /// ones; `passes` are those of their addresses. `None`: they are too widely spread.
    #[inline]
    pub(super) fn of(
        &mut self,
        pc: Pc,
        places: &Places,
        total: u32,
        passes: impl FnOnce(&Wide) -> Passes,
        arch: Arch,
    ) -> Option<&Shape> {
        let last = &mut self.0[pc as usize];
        if !places.alike {
            *last = Some(Box::new(Shape::new(places, total, passes, arch)?));
        }
        last.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use pulp::Arch;

    use super::super::super::regs::Wide;
    use super::{Bases, Passes, Places, Shape, Shapes};

    /// An instruction's requests of 8 bytes a lane.
    fn located(shapes: &Shapes, of: impl Fn(u64) -> u64, mask: u32) -> Places {
        let addresses = std::array::from_fn(|lane| of(lane as u64));
        let mut places = Places::new(mask);
        places.locate(Bases::Wide(&addresses), 0, shapes.last(0), Arch::new());
        places
    }

    fn of<'a>(shapes: &'a mut Shapes, places: &Places) -> Option<&'a Shape> {
        let passes = |_: &Wide| Passes::of_store(places.mask, 8);
        shapes.of(0, places, 8, passes, Arch::new())
    }

    #[test]
    fn a_shape_holds_wherever_it_lies_and_gives_way_to_another() {
        let mut shapes = Shapes::new(1);
        for (stride, mask, from, alike, expected) in [
            (8, u32::MAX, 1024, false, Some(vec![[256, 320]])),
            (8, u32::MAX, 1096, true, Some(vec![[274, 338]])),
            (8, 0xf0f0, 1096, false, Some(vec![[282, 290], [298, 306]])),
            (
                64,
                7,
                1024,
                false,
                Some(vec![[256, 258], [272, 274], [288, 290]]),
            ),
            (
                64,
                7,
                1144,
                true,
                Some(vec![[286, 288], [302, 304], [318, 320]]),
            ),
            (1024, u32::MAX, 1024, false, None),
            (0, u32::MAX, 2048, false, Some(vec![[512, 514]])),
        ] {
            let places = located(&shapes, |lane| from + stride * lane, mask);
            assert_eq!(places.alike, alike, "{stride} {mask:#x} {from}");
            let shape = of(&mut shapes, &places);
            let seen = shape.map(|shape| {
                let ends = shape.runs(&places).map(|words| [words.start, words.end]);
                ends.collect::<Vec<_>>()
            });
            assert_eq!(seen, expected, "{stride} {mask:#x} {from}");
        }
    }

    #[test]
    fn where_lanes_that_take_part_lie_is_the_same_question_whatever_is_known() {
        let mut shapes = Shapes::new(1);
        let down = |from: u64| {
            move |lane: u64| match lane {
                3 => from + 64,
                9 => from,
                _ => 1 << 30,
            }
        };
        for known in [false, true] {
            for (from, to, inside) in [
                (1024, 1096, true),
                (1024, 1095, false),
                (1032, 1104, true),
                (1016, 4096, false),
                (1028, 4096, false),
                (0, 4096, false),
                // The lowest wraps below zero.
                (u64::from(u32::MAX) - 31, 4096, false),
            ] {
                let places = located(&shapes, down(from), 1 << 3 | 1 << 9);
                assert_eq!(places.alike, known);
                let seen = places.lie_in(1024, to, 8, shapes.last(0));
                assert_eq!(seen, inside, "{from} {to} {known}");
            }
            let places = located(&shapes, down(2048), 1 << 3 | 1 << 9);
            assert!(of(&mut shapes, &places).is_some());
        }
    }
}
