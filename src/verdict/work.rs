//! What a call executed, in total and line by line: the counters behind a diagnosis. Facts and shares; what
//! they mean, the diagnosis says.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Nanos};

/// Lines of a source that are kept, the busiest first.
const LINES: usize = 12;

/// All launches of one call, all blocks. Where only some blocks ran, they stand for the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Executed {
    /// PTX instructions by warps.
    pub instructions: u64,
    /// Barriers that blocks completed.
    pub barriers: u64,
    /// Loads from global memory.
    pub loads: Traffic,
    /// Stores to it.
    pub stores: Traffic,
    /// `cp.async`.
    pub copies: Traffic,
    /// Atomics on it: `atom` and `red`.
    pub atomics: Traffic,
    /// Accesses to shared memory, matrices' included.
    pub shared: Wavefronts,
    /// 32-byte sectors of local memory: stack and spills.
    pub local_sectors: u64,
    /// Bytes that bulk copies read from global memory.
    pub bulk_read: Bytes,
    /// Bytes that they wrote there.
    pub bulk_written: Bytes,
    /// Time of each unit if nothing else took any, largest first.
    pub limits: Vec<(String, Nanos)>,
    /// The busiest lines.
    pub lines: Vec<LineWork>,
}

/// Requests of warps to global memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Warp-wide requests.
    pub requests: u64,
    /// 32-byte sectors that they touched.
    pub sectors: u64,
    /// Bytes that threads asked for.
    pub bytes: Bytes,
}

/// Passes of shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Wavefronts {
    /// Warp-wide requests.
    pub requests: u64,
    /// Passes.
    pub wavefronts: u64,
    /// Passes that the same bytes take without conflicts.
    pub ideal: u64,
}

/// One line of the text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LineWork {
    /// From 1.
    pub line: u32,
    /// PTX instructions by warps.
    pub instructions: u64,
    /// Its time in the unit that it keeps busiest, over the sum of all lines'.
    pub share: f64,
    /// Global memory, `cp.async` and atomics included.
    pub global: Traffic,
    /// Shared memory.
    pub shared: Wavefronts,
    /// Bytes of bulk copies.
    pub bulk: Bytes,
}

impl Traffic {
    /// Adds another's.
    pub fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.sectors += other.sectors;
        self.bytes.0 += other.bytes.0;
    }

    /// Sectors a request; `None` without requests.
    pub fn per_request(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.sectors as f64 / self.requests as f64)
    }

    /// Share of its sectors' bytes that threads asked for, 0 to 1.
    pub fn used(&self) -> Option<f64> {
        (self.sectors > 0).then(|| (self.bytes.0 as f64 / (self.sectors * 32) as f64).min(1.0))
    }
}

impl Wavefronts {
    /// Adds another's.
    pub fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.wavefronts += other.wavefronts;
        self.ideal += other.ideal;
    }

    /// Passes that conflicts cost.
    pub fn conflicts(&self) -> u64 {
        self.wavefronts.saturating_sub(self.ideal)
    }
}

impl LineWork {
    /// Adds what another did, whatever its line.
    pub fn add(&mut self, other: &Self) {
        self.instructions += other.instructions;
        self.share += other.share;
        self.global.add(other.global);
        self.shared.add(other.shared);
        self.bulk.0 += other.bulk.0;
    }
}

impl Executed {
    /// With lines of the source instead of the rendering's: what an unrolled loop spread is one line again.
    pub fn in_source(self, source_line: &dyn Fn(u32) -> Option<u32>) -> Self {
        let mut lines: BTreeMap<u32, LineWork> = BTreeMap::new();
        for work in self.lines {
            let Some(line) = source_line(work.line) else {
                continue;
            };
            let sum = lines.entry(line).or_default();
            sum.line = line;
            sum.add(&work);
        }
        let mut lines: Vec<LineWork> = lines.into_values().collect();
        lines.sort_by(|a, b| b.share.total_cmp(&a.share));
        lines.truncate(LINES);
        Self { lines, ..self }
    }
}
