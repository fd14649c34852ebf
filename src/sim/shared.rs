//! A block's shared memory and its shadow: who wrote and read each word last, by vector clocks over the
//! actors of its cluster. Two accesses are ordered when a chain of barriers leads from one to the other; else, if
//! one of them writes, they race. Accesses of one warp are never called a race: they execute in program
//! order, and warp-synchronous code relies on it.

use std::ops::Range;

use pulp::{Arch, NullaryFnOnce};

use super::causal::{Knowledge, Layout};
use super::footprint::Footprint;
use super::op::Pc;
use super::reading::Readings;
use super::tensor_map::Swizzle;

/// Bits of a mark that say actor and instruction.
const PLACE_BITS: u32 = 27;

/// An access packed for the shadow: bytes of the word, atomic or not, actor, instruction.
#[derive(Clone, Copy, Default)]
struct Mark {
    clock: u32,
    info: u32,
}

impl Mark {
    fn bytes(self) -> u32 {
        self.info >> 28
    }

    fn atomic(self) -> bool {
        self.info >> PLACE_BITS & 1 != 0
    }
}

/// How marks hold actor and instruction.
#[derive(Clone, Copy)]
struct Packing {
    pc_bits: u32,
}

impl Packing {
    fn pack(self, clock: u32, bytes: u32, atomic: bool, actor: usize, pc: Pc) -> Mark {
        let place = (actor as u32) << self.pc_bits | pc & ((1 << self.pc_bits) - 1);
        Mark {
            clock,
            info: bytes << 28 | u32::from(atomic) << PLACE_BITS | place,
        }
    }

    #[inline]
    fn actor(self, mark: Mark) -> usize {
        ((mark.info & ((1 << PLACE_BITS) - 1)) >> self.pc_bits) as usize
    }

    /// The bits that say the actor.
    fn actors(self) -> u32 {
        ((1 << PLACE_BITS) - 1) & !((1 << self.pc_bits) - 1)
    }

    fn pc(self, mark: Mark) -> Pc {
        mark.info & ((1 << self.pc_bits) - 1)
    }
}

/// Who accesses: an actor, what it knows, and its instruction.
#[derive(Clone, Copy)]
pub(crate) struct By<'a> {
    pub actor: usize,
    /// Of the actor's own work.
    pub epoch: u32,
    pub knows: &'a Knowledge,
    pub pc: Pc,
}

/// One mark a word, as two arrays: what many words side by side have in common is found by vectors.
struct Marks {
    clock: Vec<u32>,
    info: Vec<u32>,
}

impl Marks {
    fn new(words: usize) -> Self {
        Self {
            clock: vec![0; words],
            info: vec![0; words],
        }
    }

    #[inline(always)]
    fn get(&self, index: usize) -> Mark {
        Mark {
            clock: self.clock[index],
            info: self.info[index],
        }
    }

    #[inline(always)]
    fn set(&mut self, index: usize, mark: Mark) {
        self.clock[index] = mark.clock;
        self.info[index] = mark.info;
    }

    fn fill(&mut self, words: Range<usize>, mark: Mark) {
        self.clock[words.clone()].fill(mark.clock);
        self.info[words].fill(mark.info);
    }
}

/// What the marks of words side by side have in common.
struct Common {
    oldest: u32,
    newest: u32,
    /// The actors lie from the one to the other.
    actors: [usize; 2],
}

/// How two accesses clash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Hazard {
    /// Read what another warp wrote.
    ReadAfterWrite,
    /// Read what an asynchronous copy writes, before it was waited for.
    ReadInFlight,
    WriteAfterRead,
    WriteAfterWrite,
    /// Wrote what an asynchronous copy writes, before it was waited for.
    WriteInFlight,
    /// Wrote what an asynchronous copy or product reads, before it was waited for.
    OverwritesReading,
    /// Asynchronous work reads what ordinary code wrote before it, with no proxy fence between.
    Unfenced,
}

/// A clash with the instruction of the earlier access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Race {
    pub hazard: Hazard,
    pub earlier: Pc,
}

/// What a checked access saw.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub race: Option<Race>,
    pub undefined: bool,
}

/// Shared memory of one block at a time; kept between blocks.
pub(crate) struct Shared {
    words: Vec<u32>,
    /// The last request that touched each word: lanes that share it count and are checked once.
    requests: Vec<u32>,
    writes: Marks,
    /// The last reads by two different warps, the latest first.
    reads: [Marks; 2],
    /// Bytes that may be accessed, from address 0.
    limit: u32,
    /// Clocks up to here belong to earlier blocks.
    base: u32,
    request: u32,
    banks: [u8; 32],
    /// Of the busiest bank in this pass.
    busiest: u8,
    /// Of the passes before it.
    wavefronts: u32,
    passes: u32,
    checks: bool,
    packing: Packing,
    layout: Layout,
    readings: Readings,
    tiles: Vec<Tile>,
    arch: Arch,
}

/// A box that a bulk copy brought.
#[derive(Clone, Copy)]
struct Tile {
    from: u32,
    to: u32,
    swizzle: Swizzle,
    pc: Pc,
}

impl Shared {
    pub fn new(limit: u32, checks: bool, layout: Layout) -> Self {
        let words = (limit as usize).div_ceil(4);
        Self {
            words: vec![0; words],
            requests: vec![0; words],
            writes: Marks::new(words),
            reads: [Marks::new(words), Marks::new(words)],
            limit,
            base: 0,
            request: 0,
            banks: [0; 32],
            busiest: 0,
            wavefronts: 0,
            passes: 0,
            checks,
            packing: Packing {
                pc_bits: pc_bits(layout),
            },
            layout,
            readings: Readings::default(),
            tiles: Vec::new(),
            arch: Arch::new(),
        }
    }

    /// Begins a block: everything is unwritten, whatever bytes an earlier block left.
    pub fn begin(&mut self, base: u32) {
        self.base = base;
        self.readings.clear();
        self.tiles.clear();
        // Leftovers must not look like zeros by luck.
        self.words.fill(0x7fb1_ead5);
    }

    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Begins a warp's request, and its first pass.
    #[inline]
    pub fn begin_request(&mut self) {
        (self.busiest, self.wavefronts, self.passes) = (0, 0, 0);
        self.begin_pass();
    }

    /// Begins a pass of a request: what lanes of it share is one access, what they share with earlier ones is not.
    #[inline]
    pub fn begin_pass(&mut self) {
        self.wavefronts += u32::from(self.busiest);
        self.passes += u32::from(self.busiest > 0);
        self.request = self.request.wrapping_add(1).max(1);
        (self.banks, self.busiest) = ([0; 32], 0);
    }

    /// Wavefronts the request took, and how many it would without conflicts.
    #[inline]
    pub fn end_request(&mut self) -> (u32, u32) {
        self.begin_pass();
        (self.wavefronts.max(1), self.passes.max(1))
    }

    #[inline]
    pub fn word(&self, index: usize) -> u32 {
        self.words[index]
    }

    #[inline]
    pub fn set_word(&mut self, index: usize, value: u32) {
        self.words[index] = value;
    }

    /// Counts the words of a whole request.
    #[inline]
    pub fn count_all(&mut self, footprint: &Footprint) {
        (self.wavefronts, self.passes) = footprint.wavefronts();
    }

    /// All words.
    #[inline]
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// All words, to be written: what is not noted is not checked.
    #[inline]
    pub fn words_mut(&mut self) -> &mut [u32] {
        &mut self.words
    }

    /// Notes a read of some bytes of a word, and counts the word once a request.
    #[inline]
    pub fn read(&mut self, index: usize, bytes: u32, atomic: bool, by: &By<'_>) -> Seen {
        if self.requests[index] == self.request {
            return Seen::default();
        }
        self.requests[index] = self.request;
        count(&mut self.banks, &mut self.busiest, index);
        self.check_read(index, bytes, atomic, by)
    }

    /// Notes a read of some bytes of a word.
    #[inline]
    pub fn check_read(&mut self, index: usize, bytes: u32, atomic: bool, by: &By<'_>) -> Seen {
        if !self.checks {
            return Seen::default();
        }
        let write = self.writes.get(index);
        let packing = self.packing;
        let mut seen = Seen {
            race: None,
            undefined: write.clock <= self.base,
        };
        let clash = write.clock > self.base
            && write.clock > by.knows.seen[packing.actor(write)]
            && packing.actor(write) != by.actor
            && write.bytes() & bytes != 0
            && !(write.atomic() && atomic);
        if clash {
            seen.race = Some(Race {
                hazard: if self.layout.detached(packing.actor(write)) {
                    Hazard::ReadInFlight
                } else {
                    Hazard::ReadAfterWrite
                },
                earlier: packing.pc(write),
            });
        }
        let own = by.epoch;
        let [first, second] = self.reads.each_ref().map(|marks| marks.get(index));
        let mine = packing.actor(first) == by.actor;
        let again = first.clock == own && mine;
        // Read again by the same warp: nothing new to know.
        if again && first.bytes() & bytes == bytes {
            return seen;
        }
        let before = if mine || first.clock <= self.base {
            first
        } else {
            self.reads[1].set(index, first);
            second
        };
        let merged = if before.clock == own && packing.actor(before) == by.actor {
            before.bytes() | bytes
        } else {
            bytes
        };
        self.reads[0].set(index, packing.pack(own, merged, atomic, by.actor, by.pc));
        seen
    }

    /// Notes a read of whole words side by side.
    #[inline]
    pub fn check_read_run(&mut self, words: Range<usize>, atomic: bool, by: &By<'_>) -> Seen {
        if !self.checks {
            return Seen::default();
        }
        let writes = self.common(&self.writes, words.clone());
        if writes.oldest <= self.base || !self.done_before(&writes, by) {
            let mut all = Seen::default();
            for index in words {
                let seen = self.check_read(index, 0xf, atomic, by);
                all.race = all.race.or(seen.race);
                all.undefined |= seen.undefined;
            }
            return all;
        }
        let mark = self.packing.pack(by.epoch, 0xf, atomic, by.actor, by.pc);
        let actors = self.packing.actors();
        let [first, second] = &mut self.reads;
        self.arch.dispatch(NoteReads {
            first: (
                &mut first.clock[words.clone()],
                &mut first.info[words.clone()],
            ),
            second: (&mut second.clock[words.clone()], &mut second.info[words]),
            mark,
            actors,
        });
        Seen::default()
    }

    /// Whether whole words side by side can be written without overtaking anyone.
    #[inline]
    pub fn may_write_run(&self, words: Range<usize>, by: &By<'_>) -> bool {
        let quiet = |marks| {
            let common = self.common(marks, words.clone());
            common.newest <= self.base || self.done_before(&common, by)
        };
        !self.checks || quiet(&self.writes) && self.reads.iter().all(quiet)
    }

    /// Notes a write of whole words side by side that overtakes nobody.
    #[inline]
    pub fn note_write_run(&mut self, words: Range<usize>, atomic: bool, by: &By<'_>) {
        if self.checks {
            let mark = self.packing.pack(by.epoch, 0xf, atomic, by.actor, by.pc);
            self.writes.fill(words.clone(), mark);
            for marks in &mut self.reads {
                marks.clock[words.clone()].fill(0);
            }
        }
    }

    #[inline(always)]
    fn common(&self, marks: &Marks, words: Range<usize>) -> Common {
        let (clock, info) = (&marks.clock[words.clone()], &marks.info[words]);
        let actors = self.packing.actors();
        let [oldest, newest, least, most] = self.arch.dispatch(FindCommon {
            clock,
            info,
            actors,
        });
        let pc_bits = self.packing.pc_bits;
        Common {
            oldest,
            newest,
            actors: [least, most].map(|actor| (actor >> pc_bits) as usize),
        }
    }

    /// Whether all that the marks tell of is known to be done. `false` decides nothing.
    #[inline(always)]
    fn done_before(&self, common: &Common, by: &By<'_>) -> bool {
        let [least, most] = common.actors;
        let known = by.knows.seen[least..=most].iter().min();
        least == most && least == by.actor || known.is_some_and(|&known| common.newest <= known)
    }

    /// Notes a write; `same` when the bytes do not change.
    #[inline]
    pub fn write(
        &mut self,
        index: usize,
        bytes: u32,
        atomic: bool,
        same: bool,
        by: &By<'_>,
    ) -> Option<Race> {
        let repeated = self.requests[index] == self.request;
        if !repeated {
            self.requests[index] = self.request;
            count(&mut self.banks, &mut self.busiest, index);
        }
        if !self.checks {
            return None;
        }
        let (base, packing) = (self.base, self.packing);
        let clash = |mark: Mark| {
            mark.clock > base
                && packing.actor(mark) != by.actor
                && mark.clock > by.knows.seen[packing.actor(mark)]
                && mark.bytes() & bytes != 0
                && !(mark.atomic() && atomic)
        };
        let write = self.writes.get(index);
        let race = if clash(write) && !same {
            Some(Race {
                hazard: if self.layout.detached(packing.actor(write)) {
                    Hazard::WriteInFlight
                } else {
                    Hazard::WriteAfterWrite
                },
                earlier: packing.pc(write),
            })
        } else {
            (self.reads.iter().map(|marks| marks.get(index)))
                .find(|&mark| clash(mark) && !same)
                .map(|mark| Race {
                    hazard: Hazard::WriteAfterRead,
                    earlier: packing.pc(mark),
                })
        };
        let merged = if write.clock == by.epoch && packing.actor(write) == by.actor {
            write.bytes() | bytes
        } else {
            bytes
        };
        self.writes.set(
            index,
            packing.pack(by.epoch, merged, atomic, by.actor, by.pc),
        );
        if !repeated {
            self.forget_reads(index);
        }
        race
    }

    fn forget_reads(&mut self, index: usize) {
        for marks in &mut self.reads {
            marks.set(index, Mark::default());
        }
    }
}

impl Shared {
    /// Whether a write of the bytes `from..to` overtakes asynchronous reads.
    #[inline]
    pub fn overwrites_reading(&self, from: u32, to: u32, by: &By<'_>) -> Option<Race> {
        if self.readings.is_empty() {
            return None;
        }
        let earlier = self.readings.unfinished(from, to, by.knows)?;
        Some(Race {
            hazard: Hazard::OverwritesReading,
            earlier,
        })
    }

    /// Checks a read of words by asynchronous work; what it reads is for [`Self::note_reading`].
    pub fn check_async_read(&self, words: Range<usize>, by: &By<'_>) -> Seen {
        let mut seen = Seen::default();
        if !self.checks {
            return seen;
        }
        let packing = self.packing;
        for write in words.map(|index| self.writes.get(index)) {
            if write.clock <= self.base {
                seen.undefined = true;
                continue;
            }
            let actor = packing.actor(write);
            let hazard = if actor == by.actor {
                continue;
            } else if write.clock > by.knows.seen[actor] {
                if self.layout.detached(actor) {
                    Hazard::ReadInFlight
                } else {
                    Hazard::ReadAfterWrite
                }
            } else if self.layout.generic(actor) && write.clock > by.knows.proxied[actor] {
                Hazard::Unfenced
            } else {
                continue;
            };
            seen.race = seen.race.or(Some(Race {
                hazard,
                earlier: packing.pc(write),
            }));
        }
        seen
    }

    /// Notes that asynchronous work reads byte ranges until its epoch is over.
    pub fn note_reading(&mut self, ranges: Vec<(u32, u32)>, actor: usize, epoch: u32, pc: Pc) {
        if self.checks {
            self.readings.note(ranges, actor, epoch, pc);
        }
    }

    /// A bulk copy's write of a whole word.
    pub fn write_async(&mut self, index: usize, value: u32, by: &By<'_>) -> Option<Race> {
        self.words[index] = value;
        if !self.checks {
            return None;
        }
        let (base, packing) = (self.base, self.packing);
        let clash = |mark: Mark| {
            mark.clock > base
                && packing.actor(mark) != by.actor
                && mark.clock > by.knows.seen[packing.actor(mark)]
        };
        let write = self.writes.get(index);
        let race = if clash(write) {
            Some(Race {
                hazard: Hazard::WriteInFlight,
                earlier: packing.pc(write),
            })
        } else {
            let mut readers = self.reads.iter().map(|marks| marks.get(index));
            let reader = readers.find(|&mark| clash(mark));
            reader.map(|mark| Race {
                hazard: Hazard::WriteAfterRead,
                earlier: packing.pc(mark),
            })
        };
        let mark = packing.pack(by.epoch, 0xf, false, by.actor, by.pc);
        self.writes.set(index, mark);
        self.forget_reads(index);
        race
    }

    /// Notes how a box that a bulk copy brought lies.
    pub fn note_tile(&mut self, from: u32, to: u32, swizzle: Swizzle, pc: Pc) {
        self.tiles.retain(|tile| tile.to <= from || tile.from >= to);
        self.tiles.push(Tile {
            from,
            to,
            swizzle,
            pc,
        });
    }

    /// The instruction of the bulk copy that brought the word at `address`, if its box lies in another way
    /// than `swizzle`.
    pub fn swizzled_otherwise(&self, address: u32, swizzle: Swizzle) -> Option<(Swizzle, Pc)> {
        let tile = (self.tiles.iter()).find(|tile| (tile.from..tile.to).contains(&address))?;
        let write = self.writes.get(address as usize / 4);
        let stands = write.clock > self.base && self.packing.pc(write) == tile.pc;
        (self.checks && stands && tile.swizzle != swizzle).then_some((tile.swizzle, tile.pc))
    }
}

/// Bits that remain for an instruction's number beside the actor's.
fn pc_bits(layout: Layout) -> u32 {
    PLACE_BITS - (usize::BITS - (layout.width().max(2) - 1).leading_zeros())
}

/// Instructions that the shadow can tell apart.
pub(crate) fn most_instructions(layout: Layout) -> usize {
    1 << pc_bits(layout)
}

#[inline]
fn count(banks: &mut [u8; 32], busiest: &mut u8, index: usize) {
    let bank = &mut banks[index & 31];
    *bank += 1;
    *busiest = (*busiest).max(*bank);
}

/// The loop of [`Shared::common`]: least and greatest clock and actor.
struct FindCommon<'a> {
    clock: &'a [u32],
    info: &'a [u32],
    actors: u32,
}

impl NullaryFnOnce for FindCommon<'_> {
    type Output = [u32; 4];

    #[inline(always)]
    fn call(self) -> [u32; 4] {
        let [mut oldest, mut newest, mut least, mut most] = [u32::MAX, 0, u32::MAX, 0];
        for (&clock, info) in self.clock.iter().zip(self.info) {
            oldest = oldest.min(clock);
            newest = newest.max(clock);
            least = least.min(info & self.actors);
            most = most.max(info & self.actors);
        }
        [oldest, newest, least, most]
    }
}

/// The loop of [`Shared::check_read_run`]: the same as [`Shared::check_read`] notes word by word, where all bytes are
/// read and no mark of an earlier block is told apart from one that nobody has to know.
struct NoteReads<'a> {
    first: (&'a mut [u32], &'a mut [u32]),
    second: (&'a mut [u32], &'a mut [u32]),
    mark: Mark,
    actors: u32,
}

impl NullaryFnOnce for NoteReads<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let first = self.first.0.iter_mut().zip(self.first.1);
        let second = self.second.0.iter_mut().zip(self.second.1);
        for ((clock, info), (second_clock, second_info)) in first.zip(second) {
            let mine = (*info ^ self.mark.info) & self.actors == 0;
            *second_clock = if mine { *second_clock } else { *clock };
            *second_info = if mine { *second_info } else { *info };
            let again = mine && *clock == self.mark.clock && *info >> 28 == 0xf;
            *clock = self.mark.clock;
            *info = if again { *info } else { self.mark.info };
        }
    }
}
