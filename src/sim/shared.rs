//! A block's shared memory and its shadow: who wrote and read each word last, by vector clocks over the
//! actors of its cluster. Two accesses are ordered when a chain of barriers leads from one to the other; else, if
//! one of them writes, they race. Accesses of one warp are never called a race: they execute in program
//! order, and warp-synchronous code relies on it.

use super::causal::{Knowledge, Layout};
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

#[derive(Clone, Copy, Default)]
struct Cell {
    /// The last request that touched the word: lanes that share it count and are checked once.
    request: u32,
    write: Mark,
    /// The last reads by two different warps.
    reads: [Mark; 2],
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
    cells: Vec<Cell>,
    /// Bytes that may be accessed, from address 0.
    limit: u32,
    /// Clocks up to here belong to earlier blocks.
    base: u32,
    request: u32,
    banks: [u8; 32],
    wavefronts: u8,
    distinct: u32,
    checks: bool,
    packing: Packing,
    layout: Layout,
    readings: Readings,
    tiles: Vec<Tile>,
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
            cells: vec![Cell::default(); words],
            limit,
            base: 0,
            request: 0,
            banks: [0; 32],
            wavefronts: 0,
            distinct: 0,
            checks,
            packing: Packing {
                pc_bits: pc_bits(layout),
            },
            layout,
            readings: Readings::default(),
            tiles: Vec::new(),
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

    /// Begins a warp's request.
    #[inline]
    pub fn begin_request(&mut self) {
        self.request = self.request.wrapping_add(1).max(1);
        self.banks = [0; 32];
        self.wavefronts = 0;
        self.distinct = 0;
    }

    /// Wavefronts the request took, and the least its distinct words need.
    #[inline]
    pub fn end_request(&self) -> (u32, u32) {
        (
            u32::from(self.wavefronts).max(1),
            self.distinct.div_ceil(32).max(1),
        )
    }

    #[inline]
    pub fn word(&self, index: usize) -> u32 {
        self.words[index]
    }

    #[inline]
    pub fn set_word(&mut self, index: usize, value: u32) {
        self.words[index] = value;
    }

    /// Counts words side by side, each once.
    #[inline]
    pub fn count_run(&mut self, words: usize) {
        self.distinct += words as u32;
        self.wavefronts += words.div_ceil(32) as u8;
    }

    /// Notes a read of some bytes of a word, and counts the word once a request.
    #[inline]
    pub fn read(&mut self, index: usize, bytes: u32, atomic: bool, by: &By<'_>) -> Seen {
        let cell = &mut self.cells[index];
        if cell.request == self.request {
            return Seen::default();
        }
        cell.request = self.request;
        count(
            &mut self.banks,
            &mut self.wavefronts,
            &mut self.distinct,
            index,
        );
        self.check_read(index, bytes, atomic, by)
    }

    /// Notes a read of some bytes of a word.
    #[inline]
    pub fn check_read(&mut self, index: usize, bytes: u32, atomic: bool, by: &By<'_>) -> Seen {
        if !self.checks {
            return Seen::default();
        }
        let cell = &mut self.cells[index];
        let write = cell.write;
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
        let [first, second] = &mut cell.reads;
        let mine = packing.actor(*first) == by.actor;
        // Read again by the same warp: nothing new to know.
        if first.clock == own && mine && first.bytes() & bytes == bytes {
            return seen;
        }
        if first.clock > self.base && !mine {
            if !(second.clock > self.base && packing.actor(*second) == by.actor) {
                *second = *first;
            } else {
                std::mem::swap(first, second);
            }
        }
        let merged = if first.clock == own && packing.actor(*first) == by.actor {
            first.bytes() | bytes
        } else {
            bytes
        };
        *first = packing.pack(own, merged, atomic, by.actor, by.pc);
        seen
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
        let cell = &mut self.cells[index];
        let repeated = cell.request == self.request;
        if !repeated {
            cell.request = self.request;
            count(
                &mut self.banks,
                &mut self.wavefronts,
                &mut self.distinct,
                index,
            );
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
        let race = if clash(cell.write) && !same {
            Some(Race {
                hazard: if self.layout.detached(packing.actor(cell.write)) {
                    Hazard::WriteInFlight
                } else {
                    Hazard::WriteAfterWrite
                },
                earlier: packing.pc(cell.write),
            })
        } else {
            cell.reads
                .into_iter()
                .find(|&mark| clash(mark) && !same)
                .map(|mark| Race {
                    hazard: Hazard::WriteAfterRead,
                    earlier: packing.pc(mark),
                })
        };
        let merged = if cell.write.clock == by.epoch && packing.actor(cell.write) == by.actor {
            cell.write.bytes() | bytes
        } else {
            bytes
        };
        cell.write = packing.pack(by.epoch, merged, atomic, by.actor, by.pc);
        if !repeated {
            cell.reads = [Mark::default(); 2];
        }
        race
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
    pub fn check_async_read(&self, words: std::ops::Range<usize>, by: &By<'_>) -> Seen {
        let mut seen = Seen::default();
        if !self.checks {
            return seen;
        }
        let packing = self.packing;
        for cell in &self.cells[words] {
            let write = cell.write;
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
        let cell = &mut self.cells[index];
        let clash = |mark: Mark| {
            mark.clock > base
                && packing.actor(mark) != by.actor
                && mark.clock > by.knows.seen[packing.actor(mark)]
        };
        let race = if clash(cell.write) {
            Some(Race {
                hazard: Hazard::WriteInFlight,
                earlier: packing.pc(cell.write),
            })
        } else {
            let reader = cell.reads.into_iter().find(|&mark| clash(mark));
            reader.map(|mark| Race {
                hazard: Hazard::WriteAfterRead,
                earlier: packing.pc(mark),
            })
        };
        cell.write = packing.pack(by.epoch, 0xf, false, by.actor, by.pc);
        cell.reads = [Mark::default(); 2];
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
        let write = self.cells[address as usize / 4].write;
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
fn count(banks: &mut [u8; 32], wavefronts: &mut u8, distinct: &mut u32, index: usize) {
    let bank = &mut banks[index & 31];
    *bank += 1;
    *wavefronts = (*wavefronts).max(*bank);
    *distinct += 1;
}
