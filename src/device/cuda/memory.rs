//! Device memory of the worker: regions between guard zones, reused from call to call.
//! It knows nothing of calls; whether a guard was hit is told, never forgiven.

use std::collections::BTreeMap;

use super::digest::canary;
use super::driver::{Address, Context, CudaError};

/// Bytes of guard on either side of a region; a multiple of every alignment a kernel may count on.
const GUARD: u64 = 4096;

/// Regions are handed out in multiples of this.
const GRAIN: u64 = 256;

/// Fresh regions, and old ones to use again.
pub struct Memory {
    seed: u64,
    idle: BTreeMap<u64, Vec<Address>>,
    idle_bytes: u64,
}

/// A region between its guards.
#[derive(Debug)]
pub struct Region {
    base: Address,
    bytes: u64,
    capacity: u64,
}

impl Region {
    /// The first byte.
    pub fn address(&self) -> Address {
        self.base.offset(GUARD)
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Memory {
    /// `seed` must be unknown to kernels.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            idle: BTreeMap::new(),
            idle_bytes: 0,
        }
    }

    /// Device bytes a region of `bytes` bytes takes.
    pub fn footprint(bytes: u64) -> u64 {
        bytes.next_multiple_of(GRAIN) + 2 * GUARD
    }

    /// Bytes that wait to be used again.
    pub fn idle_bytes(&self) -> u64 {
        self.idle_bytes
    }

    /// A region with fresh guards and whatever contents.
    pub fn take(&mut self, cuda: &Context, bytes: u64) -> Result<Region, CudaError> {
        let capacity = bytes.next_multiple_of(GRAIN);
        let reused = self.idle.get_mut(&capacity).and_then(Vec::pop);
        let base = match reused {
            Some(base) => {
                self.idle_bytes -= capacity + 2 * GUARD;
                base
            }
            None => self.allocate(cuda, capacity + 2 * GUARD)?,
        };
        let region = Region {
            base,
            bytes,
            capacity,
        };
        for (at, guard) in self.guards(&region) {
            cuda.upload(at, &guard)?;
        }
        Ok(region)
    }

    /// Gives a region back for later use.
    pub fn give(&mut self, region: Region) {
        self.idle_bytes += region.capacity + 2 * GUARD;
        self.idle
            .entry(region.capacity)
            .or_default()
            .push(region.base);
    }

    /// What was written around the region, in words; `None` when its guards stand.
    pub fn intrusion(&self, cuda: &Context, region: &Region) -> Result<Option<String>, CudaError> {
        let [(before, start), (after, end)] = self.guards(region);
        if let Some((i, changed)) = differing(cuda, before, &start)? {
            let distance = GUARD - i as u64;
            return Ok(Some(format!(
                "{changed} bytes before its start were written, from {distance} bytes before it"
            )));
        }
        if let Some((i, changed)) = differing(cuda, after, &end)? {
            return Ok(Some(format!(
                "{changed} bytes past its end were written, the first at byte {}",
                region.bytes + i as u64
            )));
        }
        Ok(None)
    }

    fn allocate(&mut self, cuda: &Context, bytes: u64) -> Result<Address, CudaError> {
        match cuda.allocate(bytes) {
            Err(e) if e.is_out_of_memory() && self.idle_bytes > 0 => {
                self.release(cuda)?;
                cuda.allocate(bytes)
            }
            other => other,
        }
    }

    /// Gives all idle regions back to the driver.
    pub fn release(&mut self, cuda: &Context) -> Result<(), CudaError> {
        for (_, regions) in std::mem::take(&mut self.idle) {
            for base in regions {
                cuda.free(base)?;
            }
        }
        self.idle_bytes = 0;
        Ok(())
    }

    /// Where the guards stand and what they hold; the second starts right after the last byte.
    fn guards(&self, region: &Region) -> [(Address, Vec<u8>); 2] {
        let end = GUARD + region.bytes;
        let total = region.capacity + 2 * GUARD;
        [(0, GUARD), (end, total)].map(|(from, to)| {
            (
                region.base.offset(from),
                (from..to).map(|i| canary(self.seed, i)).collect(),
            )
        })
    }
}

/// The first byte at which device memory differs from what should stand there, and how many do.
fn differing(
    cuda: &Context,
    at: Address,
    expected: &[u8],
) -> Result<Option<(usize, usize)>, CudaError> {
    let mut found = vec![0; expected.len()];
    cuda.download(at, &mut found)?;
    let mut differing = (0..found.len()).filter(|&i| found[i] != expected[i]);
    Ok(differing.next().map(|first| (first, 1 + differing.count())))
}
