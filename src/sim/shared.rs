//! A block's shared memory and its shadow: who wrote and read each word last, by vector clocks over the
//! block's warps. Two accesses are ordered when a chain of barriers leads from one to the other; else, if
//! one of them writes, they race. Accesses of one warp are never called a race: they execute in program
//! order, and warp-synchronous code relies on it.

use super::op::Pc;

/// Most warps of a block.
pub(crate) const WARPS: usize = 32;

/// A vector clock: for each warp, the latest epoch known.
pub(crate) type Clock = [u32; WARPS];

/// An access packed for the shadow: bytes of the word, atomic or not, warp, instruction.
#[derive(Clone, Copy, Default)]
struct Mark {
    clock: u32,
    info: u32,
}

impl Mark {
    fn new(clock: u32, bytes: u32, atomic: bool, warp: usize, pc: Pc) -> Self {
        Self {
            clock,
            info: bytes << 28 | u32::from(atomic) << 27 | (warp as u32) << 22 | (pc & 0x3f_ffff),
        }
    }

    fn bytes(self) -> u32 {
        self.info >> 28
    }

    fn atomic(self) -> bool {
        self.info >> 27 & 1 != 0
    }

    fn warp(self) -> usize {
        (self.info >> 22 & 31) as usize
    }

    fn pc(self) -> Pc {
        self.info & 0x3f_ffff
    }
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
    WriteAfterRead,
    WriteAfterWrite,
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
}

impl Shared {
    pub fn new(limit: u32, checks: bool) -> Self {
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
        }
    }

    /// Begins a block: everything is unwritten, whatever bytes an earlier block left.
    pub fn begin(&mut self, base: u32) {
        self.base = base;
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
    pub fn read(
        &mut self,
        index: usize,
        bytes: u32,
        atomic: bool,
        warp: usize,
        clock: &Clock,
        pc: Pc,
    ) -> Seen {
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
        self.check_read(index, bytes, atomic, warp, clock, pc)
    }

    /// Notes a read of some bytes of a word.
    #[inline]
    pub fn check_read(
        &mut self,
        index: usize,
        bytes: u32,
        atomic: bool,
        warp: usize,
        clock: &Clock,
        pc: Pc,
    ) -> Seen {
        if !self.checks {
            return Seen::default();
        }
        let cell = &mut self.cells[index];
        let write = cell.write;
        let mut seen = Seen {
            race: None,
            undefined: write.clock <= self.base,
        };
        let clash = write.clock > clock[write.warp()]
            && write.clock > self.base
            && write.warp() != warp
            && write.bytes() & bytes != 0
            && !(write.atomic() && atomic);
        if clash {
            seen.race = Some(Race {
                hazard: Hazard::ReadAfterWrite,
                earlier: write.pc(),
            });
        }
        let own = clock[warp];
        let [first, second] = &mut cell.reads;
        // Read again by the same warp: nothing new to know.
        if first.clock == own && first.warp() == warp && first.bytes() & bytes == bytes {
            return seen;
        }
        if first.clock > self.base && first.warp() != warp {
            if !(second.clock > self.base && second.warp() == warp) {
                *second = *first;
            } else {
                std::mem::swap(first, second);
            }
        }
        let merged = if first.clock == own && first.warp() == warp {
            first.bytes() | bytes
        } else {
            bytes
        };
        *first = Mark::new(own, merged, atomic, warp, pc);
        seen
    }

    /// Notes a write; `same` when the bytes do not change.
    #[inline]
    #[expect(
        clippy::too_many_arguments,
        reason = "an access has these parts; it is the hot path"
    )]
    pub fn write(
        &mut self,
        index: usize,
        bytes: u32,
        atomic: bool,
        same: bool,
        warp: usize,
        clock: &Clock,
        pc: Pc,
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
        let base = self.base;
        let clash = |mark: Mark| {
            mark.clock > base
                && mark.warp() != warp
                && mark.clock > clock[mark.warp()]
                && mark.bytes() & bytes != 0
                && !(mark.atomic() && atomic)
        };
        let race = if clash(cell.write) && !same {
            Some(Race {
                hazard: Hazard::WriteAfterWrite,
                earlier: cell.write.pc(),
            })
        } else {
            cell.reads
                .into_iter()
                .find(|&mark| clash(mark) && !same)
                .map(|mark| Race {
                    hazard: Hazard::WriteAfterRead,
                    earlier: mark.pc(),
                })
        };
        let merged = if cell.write.clock == clock[warp] && cell.write.warp() == warp {
            cell.write.bytes() | bytes
        } else {
            bytes
        };
        cell.write = Mark::new(clock[warp], merged, atomic, warp, pc);
        if !repeated {
            cell.reads = [Mark::default(); 2];
        }
        race
    }
}

#[inline]
fn count(banks: &mut [u8; 32], wavefronts: &mut u8, distinct: &mut u32, index: usize) {
    let bank = &mut banks[index & 31];
    *bank += 1;
    *wavefronts = (*wavefronts).max(*bank);
    *distinct += 1;
}
