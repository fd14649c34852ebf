//! What each stall reason means and what usually helps: data, kept beside the code that quotes it.

use crate::verdict::Bottleneck;

/// A stall reason that can be acted on.
pub struct Advice {
    /// As ncu names it.
    pub reason: &'static str,
    /// In words: `MIO throttle`.
    pub words: &'static str,
    /// What warps wait for.
    pub meaning: &'static str,
    /// What usually helps.
    pub help: &'static str,
    /// What it says of the kernel where it is most of the waiting.
    pub bottleneck: Bottleneck,
}

/// What there is to say about a reason; `None` for those that nothing can be done about: `selected` and
/// `not_selected` are warps that could issue.
pub fn about(reason: &str) -> Option<&'static Advice> {
    ADVICE.iter().find(|advice| advice.reason == reason)
}

const ADVICE: &[Advice] = &[
    Advice {
        reason: "long_scoreboard",
        words: "long scoreboard",
        meaning: "warps wait for global or local memory",
        help: "coalesce, 16-byte loads, more independent loads in flight, more stages, cp.async or TMA",
        bottleneck: Bottleneck::MemoryLatency,
    },
    Advice {
        reason: "short_scoreboard",
        words: "short scoreboard",
        meaning: "warps wait for shared memory or special functions",
        help: "remove bank conflicts, keep values in registers",
        bottleneck: Bottleneck::SharedMemory,
    },
    Advice {
        reason: "mio_throttle",
        words: "MIO throttle",
        meaning: "the shared-memory queue is full",
        help: "fewer and wider shared accesses, ldmatrix.x4; remove bank conflicts first",
        bottleneck: Bottleneck::SharedMemory,
    },
    Advice {
        reason: "lg_throttle",
        words: "LG throttle",
        meaning: "the queue of global and local accesses is full",
        help: "16-byte accesses, no spills, TMA",
        bottleneck: Bottleneck::MemoryLatency,
    },
    Advice {
        reason: "barrier",
        words: "barrier",
        meaning: "warps wait at the block's barrier",
        help: "balance the warps, smaller blocks, mbarriers or named barriers",
        bottleneck: Bottleneck::Synchronisation,
    },
    Advice {
        reason: "gmma",
        words: "warpgroup MMA",
        meaning: "warps wait for wgmma",
        help: "keep one group in flight (wgmma.wait_group 1), two consumer warpgroups",
        bottleneck: Bottleneck::Tensor,
    },
    Advice {
        reason: "math_pipe_throttle",
        words: "math pipe throttle",
        meaning: "an arithmetic pipe is full",
        help: "this pipe is near its limit: move work to tensor cores or another pipe",
        bottleneck: Bottleneck::Compute,
    },
    Advice {
        reason: "wait",
        words: "fixed latency",
        meaning: "warps wait for the latency of their own last instruction",
        help: "more independent work per thread, unroll, interleave MMAs",
        bottleneck: Bottleneck::Issue,
    },
    Advice {
        reason: "no_instruction",
        words: "no instruction",
        meaning: "the instruction cache misses",
        help: "unroll less",
        bottleneck: Bottleneck::Issue,
    },
    Advice {
        reason: "branch_resolving",
        words: "branch resolving",
        meaning: "warps wait for branch targets",
        help: "predicate instead of branching; fewer branches",
        bottleneck: Bottleneck::Issue,
    },
    Advice {
        reason: "drain",
        words: "drain",
        meaning: "exited warps wait for their stores",
        help: "coalesce the stores, TMA stores, persistent blocks",
        bottleneck: Bottleneck::MemoryBandwidth,
    },
    Advice {
        reason: "membar",
        words: "memory barrier",
        meaning: "warps wait at fences",
        help: "a weaker scope, fewer fences",
        bottleneck: Bottleneck::Synchronisation,
    },
    Advice {
        reason: "imc_miss",
        words: "constant cache miss",
        meaning: "warps wait for constants",
        help: "keep constants in registers, read them in a uniform way",
        bottleneck: Bottleneck::MemoryLatency,
    },
    Advice {
        reason: "tex_throttle",
        words: "TEX throttle",
        meaning: "the texture queue is full",
        help: "fewer texture or surface accesses",
        bottleneck: Bottleneck::MemoryLatency,
    },
    Advice {
        reason: "dispatch_stall",
        words: "dispatch",
        meaning: "an instruction is ready but held back, for instance by conflicts of register banks",
        help: "another tile shape or unrolling: ptxas then assigns registers otherwise",
        bottleneck: Bottleneck::Issue,
    },
];
