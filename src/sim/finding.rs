//! What the simulator says about a kernel: a fault, a hazard, a thing it cannot do, each with its line.
//! Lines are those of the text that was parsed.

/// Something wrong at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What sort.
    pub kind: FindingKind,
    /// A sentence.
    pub message: String,
    /// 1-based line, where known.
    pub line: Option<u32>,
    /// The other access of a hazard.
    pub other_line: Option<u32>,
    /// What to do.
    pub help: Option<String>,
}

/// Sorts of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingKind {
    /// The simulator does not know the instruction, operand or directive.
    Unsupported,
    /// The launch does not fit the kernel or the GPU.
    BadLaunch,
    /// An address outside every buffer, or outside shared or local memory.
    OutOfBounds,
    /// An address that is no multiple of the access size.
    Misaligned,
    /// A store to a read-only buffer.
    ReadOnlyWrite,
    /// A read of memory that nothing wrote.
    UninitialisedRead,
    /// Two unordered accesses to shared memory, one of them a write.
    MissingBarrier,
    /// Asynchronous work reads what ordinary code wrote, with no proxy fence between.
    MissingProxyFence,
    /// A product is issued after its registers were written, with no `wgmma.fence` between.
    MissingProductFence,
    /// An mbarrier is used by asynchronous work before its initialisation was made known to it.
    MissingInitFence,
    /// A result of asynchronous work is used before it was waited for.
    AsyncNotWaited,
    /// Shared memory is overwritten, or given up, while it may still be read.
    EarlyRelease,
    /// An operand is read with another swizzle than it was written with.
    SwizzleMismatch,
    /// An mbarrier that was not initialised, or that gets more arrivals than it counts.
    BadMbarrier,
    /// Unordered writes of different values to one place in global memory.
    ConflictingWrites,
    /// An aligned barrier that part of a warp does not reach together.
    DivergentBarrier,
    /// Nothing can run any more, and threads still wait.
    Deadlock,
    /// The instruction budget ran out.
    Budget,
    /// `trap` or `brkpt` was executed.
    Trap,
    /// Calls nest deeper than the machine allows.
    CallDepth,
}

impl FindingKind {
    /// A stable kebab-case name.
    pub fn code(self) -> &'static str {
        match self {
            Self::Unsupported => "sim-unsupported",
            Self::BadLaunch => "bad-launch",
            Self::OutOfBounds => "out-of-bounds",
            Self::Misaligned => "misaligned",
            Self::ReadOnlyWrite => "read-only-write",
            Self::UninitialisedRead => "uninitialised-read",
            Self::MissingBarrier => "missing-barrier",
            Self::MissingProxyFence => "missing-proxy-fence",
            Self::MissingProductFence => "missing-wgmma-fence",
            Self::MissingInitFence => "missing-init-fence",
            Self::AsyncNotWaited => "not-waited-for",
            Self::EarlyRelease => "early-release",
            Self::SwizzleMismatch => "swizzle-mismatch",
            Self::BadMbarrier => "bad-mbarrier",
            Self::ConflictingWrites => "conflicting-writes",
            Self::DivergentBarrier => "divergent-barrier",
            Self::Deadlock => "deadlock",
            Self::Budget => "instruction-budget",
            Self::Trap => "trap",
            Self::CallDepth => "call-depth",
        }
    }
}

impl FindingKind {
    /// The result depends on the order of threads.
    pub fn is_race(self) -> bool {
        matches!(
            self,
            Self::MissingBarrier
                | Self::MissingProxyFence
                | Self::MissingProductFence
                | Self::MissingInitFence
                | Self::AsyncNotWaited
                | Self::EarlyRelease
                | Self::ConflictingWrites
        )
    }
}

impl Finding {
    pub(crate) fn new(kind: FindingKind, line: u32, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            line: (line > 0).then_some(line),
            other_line: None,
            help: None,
        }
    }

    pub(crate) fn and_line(mut self, line: u32) -> Self {
        self.other_line = (line > 0).then_some(line);
        self
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}
