//! The worker's own kernels: digests, damage to outputs, the clock. Beside them the canary: a known-good kernel
//! on known data.

use super::{Engine, Held, Trouble};
use crate::device::cuda::digest::digest;
use crate::device::cuda::driver::{Address, CudaError, Value};
use crate::device::cuda::protocol::{self, Call, Role};

/// How long the clock probe spins: the timer ticks once a microsecond on some GPUs.
const PROBE_NANOS: u64 = 100_000;

/// Blocks and threads of the digest kernel, per SM and per block.
const DIGEST_BLOCKS: u32 = 8;
pub(super) const DIGEST_THREADS: u32 = 256;

/// What damage to an output writes; `tools.ptx` writes the same.
const POCK: u8 = 0xa5;

/// What a known-good kernel is run on.
const CANARY_BYTES: usize = 4099;

impl Engine {
    pub(super) fn canary(&mut self) -> Result<(), String> {
        let bytes: Vec<u8> = (0..CANARY_BYTES).map(|i| (i * i / 7) as u8).collect();
        let region = self
            .memory
            .take(&self.cuda, bytes.len() as u64)
            .map_err(|e| e.to_string())?;
        self.cuda
            .upload(region.address(), &bytes)
            .map_err(|e| e.to_string())?;
        let found = self
            .digest(region.address(), region.bytes())
            .map_err(|e| e.to_string())?;
        let expected = digest(self.seed, 0, &bytes);
        self.memory.give(region);
        if found == expected {
            Ok(())
        } else {
            Err(format!("it gave {found:#x} instead of {expected:#x}"))
        }
    }

    /// Queues damage to a call's outputs: half of their 16-byte words are overwritten, nobody knows which, and
    /// all of an output that is no longer.
    pub fn pock(&self, call: &Call, held: &[Held]) -> Result<(), Trouble> {
        for (region, held) in call.regions.iter().zip(held) {
            let (Role::Output, Held::Own(own)) = (region.role, held) else {
                continue;
            };
            let (at, pairs) = (own.address(), own.bytes() / 16);
            if pairs < 2 {
                self.cuda.fill(at, POCK, own.bytes())?;
                continue;
            }
            let blocks = pairs.div_ceil(u64::from(DIGEST_THREADS)).min(1 << 16) as u32;
            let params = [at.get(), pairs, self.seed];
            self.tool("warptree_pock", blocks, DIGEST_THREADS, &params)?;
        }
        Ok(())
    }

    /// The digest of device memory: whole 16-byte pairs there, the rest here.
    pub(super) fn digest(&self, at: Address, bytes: u64) -> Result<u64, CudaError> {
        let out = self.scratch.address();
        self.cuda.fill(out, 0, 8)?;
        let pairs = bytes / 16;
        if pairs > 0 {
            let blocks = (DIGEST_BLOCKS * self.sm_count)
                .min(pairs.div_ceil(u64::from(DIGEST_THREADS)).min(1 << 20) as u32);
            self.tool(
                "warptree_digest",
                blocks,
                DIGEST_THREADS,
                &[at.get(), pairs, self.seed, out.get()],
            )?;
        }
        let mut sum = [0; 8];
        self.cuda.download(out, &mut sum)?;
        let mut rest = vec![0; (bytes % 16) as usize];
        self.cuda.download(at.offset(pairs * 16), &mut rest)?;
        Ok(u64::from_le_bytes(sum).wrapping_add(digest(self.seed, pairs * 2, &rest)))
    }

    /// The SM clock right now, MHz.
    pub fn clock_mhz(&self) -> Result<f64, CudaError> {
        let out = self.scratch.address();
        self.tool("warptree_clock", 1, 1, &[out.get(), PROBE_NANOS])?;
        let mut bytes = [0; 16];
        self.cuda.download(out, &mut bytes)?;
        let (cycles, nanos) = bytes.split_at(8);
        let number = |half: &[u8]| {
            half.iter()
                .rev()
                .fold(0u64, |value, &byte| value << 8 | u64::from(byte))
        };
        Ok(number(cycles) as f64 * 1e3 / number(nanos).max(1) as f64)
    }

    pub(super) fn tool(
        &self,
        entry: &str,
        blocks: u32,
        threads: u32,
        params: &[u64],
    ) -> Result<(), CudaError> {
        let launch = protocol::Launch {
            entry: entry.to_owned(),
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            cluster: [1, 1, 1],
            smem: 0,
            params: Vec::new(),
        };
        let values = params
            .iter()
            .filter_map(|p| Value::new(&p.to_le_bytes()))
            .collect();
        let prepared = self
            .tools
            .prepare(&launch, values, &vec![8; params.len()])?;
        self.cuda.launch(&prepared)
    }
}
