//! Global memory of a run: buffers at separated device addresses, made page by page where they are touched,
//! with shadow state beside each page: which bytes hold something, who wrote each word last, which sectors
//! were touched.

use std::sync::Arc;

use super::decode::MODULE_BASE;
use super::op::{ModuleVariable, Pc};

const PAGE: u64 = 4096;
const PAGE_BYTES: usize = PAGE as usize;
/// Buffers stand this far apart: no stray offset reaches another one.
const SPACING: u32 = 36;
/// Slots below this one belong to the module's own variables.
const FIRST_BUFFER: u64 = 16;

/// Fills `out` with a buffer's bytes from the offset given.
pub type Generator = Arc<dyn Fn(u64, &mut [u8]) + Send + Sync>;

/// What a buffer holds at first.
#[derive(Clone)]
pub enum Initial {
    /// These bytes.
    Bytes(Arc<[u8]>),
    /// This byte throughout, and reading it before writing is a finding.
    Poison(u8),
    /// Zeros.
    Zero,
    /// Made where it is read.
    Generated(Generator),
}

/// Who wrote a word last, by plain stores.
#[derive(Clone, Copy, Default)]
struct Writer {
    /// Serial number of the block over the whole run; 0 for nobody.
    block: u32,
    /// The writing warp's clock.
    clock: u32,
    pc: Pc,
    warp: u8,
    /// Bytes of the word.
    bytes: u8,
}

#[derive(Clone)]
struct Page {
    data: Box<[u8; PAGE_BYTES]>,
    /// One bit a byte; absent where all of it holds something.
    defined: Option<Box<[u64; PAGE_BYTES / 64]>>,
    writers: Option<Box<[Writer; PAGE_BYTES / 4]>>,
    /// One bit a 32-byte sector.
    read: u128,
    written: u128,
}

#[derive(Clone)]
struct Region {
    name: String,
    base: u64,
    bytes: u64,
    writable: bool,
    initial: Initial,
    /// Index into `pages` plus one; 0 for not yet made.
    table: Vec<u32>,
}

/// Why an access cannot be done.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    OutOfBounds(String),
    Misaligned,
    ReadOnly(String),
}

/// A store's author, for the shadow state.
#[derive(Clone, Copy)]
pub(crate) struct Author<'a> {
    pub block: u32,
    pub warp: u8,
    /// The warp's vector clock over its block.
    pub seen: &'a [u32],
    pub pc: Pc,
    /// Blocks before this one belong to earlier launches.
    pub launch_start: u32,
    /// The block took part in a flag protocol: cross-block order is not known.
    pub synchronised: bool,
}

/// Another plain store of a different value to the same word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overwrite {
    pub pc: Pc,
    pub other_block: bool,
}

/// Where an address lies: a region and a page, kept between lanes.
#[derive(Clone, Copy)]
pub(crate) struct Cursor {
    page_number: u64,
    region: usize,
    page: usize,
}

impl Default for Cursor {
    fn default() -> Self {
        Self {
            page_number: u64::MAX,
            region: 0,
            page: 0,
        }
    }
}

/// Distinct 32-byte sectors of a buffer that were accessed, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Touched {
    /// Bytes of sectors read.
    pub read: u64,
    /// Bytes of sectors written.
    pub written: u64,
    /// Size of the buffer.
    pub size: u64,
}

/// Device memory.
#[derive(Clone)]
pub struct Memory {
    regions: Vec<Region>,
    pages: Vec<Page>,
    next_block: u32,
}

impl Memory {
    /// Memory that holds a module's variables and nothing else.
    pub(crate) fn new(variables: &[ModuleVariable]) -> Self {
        let end = variables
            .iter()
            .map(|v| v.address + v.bytes.len() as u64)
            .max()
            .unwrap_or(MODULE_BASE);
        let mut image = vec![0; (end - MODULE_BASE) as usize];
        for variable in variables {
            let at = (variable.address - MODULE_BASE) as usize;
            image[at..at + variable.bytes.len()].copy_from_slice(&variable.bytes);
        }
        let name = match variables {
            [] => "module variables".to_owned(),
            [one] => one.name.clone(),
            [first, ..] => format!("{} and other module variables", first.name),
        };
        let mut memory = Self {
            regions: Vec::new(),
            pages: Vec::new(),
            next_block: 1,
        };
        memory.push(
            name,
            MODULE_BASE,
            image.len() as u64,
            true,
            Initial::Bytes(image.into()),
        );
        memory
    }

    /// Adds a buffer and gives its device address.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        bytes: u64,
        writable: bool,
        initial: Initial,
    ) -> u64 {
        let base = MODULE_BASE + ((FIRST_BUFFER + self.regions.len() as u64 - 1) << SPACING);
        self.push(name.into(), base, bytes, writable, initial);
        base
    }

    fn push(&mut self, name: String, base: u64, bytes: u64, writable: bool, initial: Initial) {
        self.regions.push(Region {
            name,
            base,
            bytes,
            writable,
            initial,
            table: vec![0; bytes.div_ceil(PAGE) as usize],
        });
    }

    /// A buffer's bytes as they stand.
    pub fn contents(&mut self, base: u64) -> Option<Vec<u8>> {
        let region = self.regions.iter().position(|r| r.base == base)?;
        let mut out = vec![0; self.regions[region].bytes as usize];
        for (number, chunk) in out.chunks_mut(PAGE_BYTES).enumerate() {
            match self.regions[region].table[number] {
                0 => fill(&self.regions[region].initial, number as u64 * PAGE, chunk),
                made => chunk.copy_from_slice(&self.pages[made as usize - 1].data[..chunk.len()]),
            }
        }
        Some(out)
    }

    /// What was accessed of each buffer.
    pub fn touched(&self) -> Vec<Touched> {
        self.regions
            .iter()
            .map(|region| {
                let made = region.table.iter().filter(|&&made| made > 0);
                let pages = made.map(|&made| &self.pages[made as usize - 1]);
                let zero = Touched {
                    read: 0,
                    written: 0,
                    size: region.bytes,
                };
                pages.fold(zero, |sum, page| Touched {
                    read: sum.read + u64::from(page.read.count_ones()) * 32,
                    written: sum.written + u64::from(page.written.count_ones()) * 32,
                    ..sum
                })
            })
            .collect()
    }

    /// Forgets which sectors were touched.
    pub fn forget_touched(&mut self) {
        for page in &mut self.pages {
            (page.read, page.written) = (0, 0);
        }
    }

    /// Takes over what a copy of this memory read and wrote since it was made and touched sectors were forgotten. Of a
    /// sector that both wrote, the copy's bytes.
    pub fn join(&mut self, copy: Self) {
        let mut theirs: Vec<Option<Page>> = copy.pages.into_iter().map(Some).collect();
        for (own, other) in self.regions.iter_mut().zip(copy.regions) {
            for (own, other) in own.table.iter_mut().zip(other.table) {
                let made = other as usize;
                let Some(page) = made.checked_sub(1).and_then(|at| theirs[at].take()) else {
                    continue;
                };
                if *own == 0 {
                    self.pages.push(page);
                    *own = self.pages.len() as u32;
                } else {
                    self.pages[*own as usize - 1].join(&page);
                }
            }
        }
    }

    /// Takes numbers for a launch's blocks; gives the first.
    pub(crate) fn number_blocks(&mut self, count: u32) -> u32 {
        let first = self.next_block;
        self.next_block = self.next_block.saturating_add(count);
        first
    }

    /// Finds the page of an access of `bytes` at `address`.
    #[inline]
    fn locate(&mut self, cursor: &mut Cursor, address: u64, bytes: u64) -> Result<usize, Refusal> {
        if address & (bytes - 1) != 0 {
            return Err(Refusal::Misaligned);
        }
        let number = address / PAGE;
        if number != cursor.page_number {
            *cursor = self.seek(address, bytes)?;
        }
        let region = &self.regions[cursor.region];
        if address - region.base + bytes > region.bytes {
            return Err(self.outside(address, bytes));
        }
        Ok((address % PAGE) as usize)
    }

    fn seek(&mut self, address: u64, bytes: u64) -> Result<Cursor, Refusal> {
        let slot = address.wrapping_sub(MODULE_BASE) >> SPACING;
        let index = match slot {
            0 => 0,
            _ => (slot.wrapping_sub(FIRST_BUFFER - 1)) as usize,
        };
        let inside = self
            .regions
            .get(index)
            .is_some_and(|r| address >= r.base && address - r.base < r.bytes);
        if !inside {
            return Err(self.outside(address, bytes));
        }
        let number = (address - self.regions[index].base) / PAGE;
        let made = self.regions[index].table[number as usize];
        let page = if made == 0 {
            self.make(index, number)
        } else {
            made as usize - 1
        };
        Ok(Cursor {
            page_number: address / PAGE,
            region: index,
            page,
        })
    }

    fn make(&mut self, region: usize, number: u64) -> usize {
        let mut data = Box::new([0; PAGE_BYTES]);
        let at = &mut self.regions[region];
        let length = (at.bytes - number * PAGE).min(PAGE) as usize;
        fill(&at.initial, number * PAGE, &mut data[..length]);
        let defined =
            matches!(at.initial, Initial::Poison(_)).then(|| Box::new([0; PAGE_BYTES / 64]));
        let page = self.pages.len();
        self.pages.push(Page {
            data,
            defined,
            writers: None,
            read: 0,
            written: 0,
        });
        at.table[number as usize] = page as u32 + 1;
        page
    }

    fn outside(&self, address: u64, bytes: u64) -> Refusal {
        let near = self
            .regions
            .iter()
            .filter(|r| r.bytes > 0)
            .min_by_key(|r| address.abs_diff(r.base));
        let place = match near {
            Some(r) if address >= r.base && address - r.base < 1 << SPACING => format!(
                "byte {} of `{}`, which has {} bytes",
                address - r.base,
                r.name,
                r.bytes
            ),
            Some(r) if address < r.base && r.base - address < 1 << (SPACING - 1) => {
                format!("{} bytes before `{}`", r.base - address, r.name)
            }
            _ => "no buffer is near".to_owned(),
        };
        Refusal::OutOfBounds(format!("{bytes} bytes at {address:#x}: {place}"))
    }

    /// Reads `out.len()` bytes (a power of two). `Ok(false)`: some of them were never written.
    #[inline]
    pub(crate) fn read(
        &mut self,
        cursor: &mut Cursor,
        address: u64,
        out: &mut [u8],
        checks: bool,
    ) -> Result<bool, Refusal> {
        let at = self.locate(cursor, address, out.len() as u64)?;
        let page = &mut self.pages[cursor.page];
        let data = &page.data[at..at + out.len()];
        match (
            <&mut [u8; 4]>::try_from(&mut *out),
            <&[u8; 4]>::try_from(data),
        ) {
            // The usual case, without a call.
            (Ok(out), Ok(data)) => *out = *data,
            _ => out.copy_from_slice(data),
        }
        page.read |= 1 << (at / 32);
        Ok(match &page.defined {
            Some(defined) if checks => {
                let bits = (u64::MAX >> (64 - out.len())) << (at % 64);
                defined[at / 64] & bits == bits
            }
            _ => true,
        })
    }

    /// The bytes of a run of accesses of `element` bytes each, side by side, where they lie in one page and
    /// all of them hold something (or nobody asks); `None`: ask for each on its own.
    pub(crate) fn read_run(
        &mut self,
        cursor: &mut Cursor,
        address: u64,
        element: u64,
        length: usize,
        checks: bool,
    ) -> Option<&[u8]> {
        let (at, sectors) = self.locate_run(cursor, address, element, length)?;
        let page = &mut self.pages[cursor.page];
        if checks
            && let Some(defined) = &page.defined
            && !words_of(at, length).all(|(word, bits)| defined[word] & bits == bits)
        {
            return None;
        }
        page.read |= sectors;
        Some(&page.data[at..at + length])
    }

    /// Writes a run of accesses of `element` bytes each, side by side, where they lie in one page that may be
    /// written; `None`: nothing was done, ask for each on its own.
    pub(crate) fn write_run(
        &mut self,
        cursor: &mut Cursor,
        address: u64,
        element: u64,
        data: &[u8],
        author: Option<&Author<'_>>,
    ) -> Option<Option<Overwrite>> {
        let (at, sectors) = self.locate_run(cursor, address, element, data.len())?;
        if !self.regions[cursor.region].writable {
            return None;
        }
        let page = &mut self.pages[cursor.page];
        page.written |= sectors;
        if let Some(defined) = &mut page.defined {
            for (word, bits) in words_of(at, data.len()) {
                defined[word] |= bits;
            }
        }
        let overwrite = author.and_then(|author| page.note(at, data, author));
        page.data[at..at + data.len()].copy_from_slice(data);
        Some(overwrite)
    }

    /// Where in its page a run lies, and its sectors; `None`: not in one page, or not allowed.
    #[inline]
    fn locate_run(
        &mut self,
        cursor: &mut Cursor,
        address: u64,
        element: u64,
        length: usize,
    ) -> Option<(usize, u128)> {
        let at = self.locate(cursor, address, element).ok()?;
        let region = &self.regions[cursor.region];
        if at + length > PAGE_BYTES || address - region.base + length as u64 > region.bytes {
            return None;
        }
        let sectors = (at + length - 1) / 32 - at / 32 + 1;
        Some((at, (u128::MAX >> (128 - sectors)) << (at / 32)))
    }

    /// Writes; tells of another author's different value in the same bytes.
    #[inline]
    pub(crate) fn write(
        &mut self,
        cursor: &mut Cursor,
        address: u64,
        data: &[u8],
        author: Option<&Author<'_>>,
    ) -> Result<Option<Overwrite>, Refusal> {
        let at = self.locate(cursor, address, data.len() as u64)?;
        let region = &self.regions[cursor.region];
        if !region.writable {
            return Err(Refusal::ReadOnly(region.name.clone()));
        }
        let page = &mut self.pages[cursor.page];
        page.written |= 1 << (at / 32);
        if let Some(defined) = &mut page.defined {
            defined[at / 64] |= (u64::MAX >> (64 - data.len())) << (at % 64);
        }
        let overwrite = author.and_then(|author| page.note(at, data, author));
        page.data[at..at + data.len()].copy_from_slice(data);
        Ok(overwrite)
    }

    /// Reads bytes side by side, of any number and at any address. `Ok(false)`: some were never written.
    pub(crate) fn read_span(
        &mut self,
        address: u64,
        out: &mut [u8],
        checks: bool,
    ) -> Result<bool, Refusal> {
        let mut cursor = Cursor::default();
        let mut defined = true;
        for at in pieces(address, out.len()) {
            let start = address + at.start as u64;
            defined &= self.read(&mut cursor, start, &mut out[at], checks)?;
        }
        Ok(defined)
    }

    /// Writes bytes side by side, of any number and at any address.
    pub(crate) fn write_span(
        &mut self,
        address: u64,
        data: &[u8],
        author: Option<&Author<'_>>,
    ) -> Result<Option<Overwrite>, Refusal> {
        let mut cursor = Cursor::default();
        let mut overwritten = None;
        for at in pieces(address, data.len()) {
            let start = address + at.start as u64;
            let overwrite = self.write(&mut cursor, start, &data[at], author)?;
            overwritten = overwritten.or(overwrite);
        }
        Ok(overwritten)
    }

    /// Reads, changes and writes one element atomically; gives what was there.
    pub(crate) fn update(
        &mut self,
        cursor: &mut Cursor,
        address: u64,
        bytes: usize,
        change: impl FnOnce(u64) -> u64,
        checks: bool,
    ) -> Result<(u64, bool), Refusal> {
        let mut old = [0; 8];
        let defined = self.read(cursor, address, &mut old[..bytes], checks)?;
        let old = u64::from_le_bytes(old);
        self.write(cursor, address, &change(old).to_le_bytes()[..bytes], None)?;
        Ok((old, defined))
    }
}

impl Page {
    /// Takes over what a copy of it has that was touched.
    fn join(&mut self, copy: &Self) {
        for sector in (0..PAGE_BYTES / 32).filter(|sector| copy.written >> sector & 1 == 1) {
            let bytes = sector * 32..sector * 32 + 32;
            self.data[bytes.clone()].copy_from_slice(&copy.data[bytes]);
        }
        if let (Some(own), Some(other)) = (&mut self.defined, &copy.defined) {
            for (own, other) in own.iter_mut().zip(other.iter()) {
                *own |= other;
            }
        }
        self.read |= copy.read;
        self.written |= copy.written;
    }

    fn note(&mut self, at: usize, data: &[u8], author: &Author<'_>) -> Option<Overwrite> {
        let writers = self.writers.get_or_insert_with(|| {
            // Straight to the heap: a page of writers does not fit a small stack.
            vec![Writer::default(); PAGE_BYTES / 4]
                .into_boxed_slice()
                .try_into()
                .unwrap_or_else(|_| Box::new([Writer::default(); PAGE_BYTES / 4]))
        });
        let mut found = None;
        for word in at / 4..=(at + data.len() - 1) / 4 {
            let from = (word * 4).max(at);
            let to = (word * 4 + 4).min(at + data.len());
            let bytes = ((1u8 << (to - from)) - 1) << (from % 4);
            let last = &mut writers[word];
            let own = author.seen[usize::from(author.warp)];
            if last.block >= author.launch_start && last.block != 0 && last.bytes & bytes != 0 {
                let unordered = if last.block == author.block {
                    last.warp != author.warp && last.clock > author.seen[usize::from(last.warp)]
                } else {
                    !author.synchronised
                };
                if unordered && found.is_none() && self.data[from..to] != data[from - at..to - at] {
                    found = Some(Overwrite {
                        pc: last.pc,
                        other_block: last.block != author.block,
                    });
                }
            }
            *last = Writer {
                block: author.block,
                clock: own,
                pc: author.pc,
                warp: author.warp,
                bytes,
            };
        }
        found
    }
}

/// The words of 64 bits that stand for a page's bytes `at..at + length`, and which of their bits.
fn words_of(at: usize, length: usize) -> impl Iterator<Item = (usize, u64)> {
    let end = at + length;
    (at / 64..end.div_ceil(64)).map(move |word| {
        let from = at.max(word * 64) - word * 64;
        let to = end.min(word * 64 + 64) - word * 64;
        (word, (u64::MAX >> (64 - (to - from))) << from)
    })
}

/// Cuts a run of bytes into accesses of a power of two, each aligned, of 32 bytes at most.
fn pieces(address: u64, length: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let aligned = 1usize << (address + done as u64).trailing_zeros().min(5);
        let fits = 1usize << (length - done).ilog2();
        let start = done;
        done += aligned.min(fits);
        Some(start..done)
    })
}

fn fill(initial: &Initial, offset: u64, out: &mut [u8]) {
    match initial {
        Initial::Bytes(bytes) => {
            let from = (offset as usize).min(bytes.len());
            let to = (from + out.len()).min(bytes.len());
            out[..to - from].copy_from_slice(&bytes[from..to]);
        }
        Initial::Poison(byte) => out.fill(*byte),
        Initial::Zero => out.fill(0),
        Initial::Generated(generator) => generator(offset, out),
    }
}
