//! What limits a kernel, with evidence and place. The same type whether the simulator or ncu filled it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::work::Executed;
use crate::units::{Bytes, Flops};

/// A profile boiled down to what a proposer can act on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// Who says so: `simulator` or `ncu 2025.3.1`.
    pub source: String,
    /// The one thing that limits it most.
    pub bottleneck: Bottleneck,
    /// Facts behind it, the strongest first.
    pub evidence: Vec<Evidence>,
    /// Shares of warp latency, largest first.
    pub stalls: Vec<Stall>,
    /// Warps per SM and what caps them.
    pub occupancy: Option<Occupancy>,
    /// Floating-point work executed, by the unit that did it (`fp32`, `fp16`, `fp64`, `tensor bf16`).
    pub flops: Vec<(String, Flops)>,
    /// Bytes moved to and from device memory.
    pub dram: Option<Bytes>,
    /// Executions per target instruction the task asked for.
    pub target_instructions: Vec<(String, u64)>,
    /// What was executed, in total and line by line; only the simulator tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executed: Option<Box<Executed>>,
    /// What counters of the GPU said; `None` from the simulator and in traces of version 0.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Hardware>,
}

/// Counters of a GPU, over all launches of one call. Caches were flushed before each launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hardware {
    /// Read from device memory.
    pub dram_read: Bytes,
    /// Share of global loads' sectors found in L1, 0 to 1; `None` where there were no such loads.
    pub l1_hit: Option<f64>,
    /// Share of sectors found in L2, 0 to 1; `None` where nothing came that far.
    pub l2_hit: Option<f64>,
    /// Share of cycles with an instruction issued, in the longest launch, 0 to 1.
    pub issue: f64,
    /// Share of its peak that a unit reached in the longest launch, 0 to 1, largest first.
    pub units: Vec<(String, f64)>,
}

/// What limits a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// Bandwidth of device memory, or of a cache before it: near its limit.
    MemoryBandwidth,
    /// Too few bytes in flight to cover memory latency.
    MemoryLatency,
    /// Scattered or misaligned global accesses waste sectors.
    Uncoalesced,
    /// Shared-memory bandwidth or conflicts.
    SharedMemory,
    /// Issue slots.
    Issue,
    /// An arithmetic pipe.
    Compute,
    /// Tensor cores.
    Tensor,
    /// Barriers and other waits between warps.
    Synchronisation,
    /// Atomics on few addresses.
    Atomics,
    /// The grid leaves SMs idle (less than a wave, or a long tail).
    Occupancy,
    /// Spilled registers.
    Spills,
    /// Launch overhead.
    Launch,
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MemoryBandwidth => "memory bandwidth",
            Self::MemoryLatency => "device-memory latency: too few bytes in flight",
            Self::Uncoalesced => "scattered or misaligned global accesses",
            Self::SharedMemory => "shared memory: its bandwidth or bank conflicts",
            Self::Issue => "instruction issue",
            Self::Compute => "an arithmetic pipe",
            Self::Tensor => "tensor cores",
            Self::Synchronisation => "waits between warps",
            Self::Atomics => "atomics on few addresses",
            Self::Occupancy => "idle SMs: too small a grid or a long tail",
            Self::Spills => "spilled registers",
            Self::Launch => "launch overhead",
        })
    }
}

/// A fact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// A sentence with its number: "shared loads conflict 8-way".
    pub text: String,
    /// 1-based line in the source, where known.
    pub line: Option<u32>,
    /// What usually helps.
    pub advice: Option<String>,
}

/// A stall reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// As ncu names it: `long_scoreboard`.
    pub reason: String,
    /// Share of warp latency, 0 to 1.
    pub share: f64,
}

/// Warps per SM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Occupancy {
    /// Resident warps per SM.
    pub warps: u32,
    /// The most the SM holds.
    pub of: u32,
    /// `registers`, `shared memory`, `threads`, `blocks`, `grid`.
    pub limiter: String,
}
