//! A **device** runs a candidate's launches: a GPU through a worker process, or the simulator.
//! It knows launches and buffers; it never sees expected outputs, tolerances, trees or rewards.

pub mod cuda;
mod gpus;
mod sim;

pub use gpus::UnknownGpu;
pub use sim::{Did, Observed, SimDevice};

use std::sync::Arc;

use crate::ptx::ir::Module;
use crate::source::{DType, LaunchPlan};
use crate::units::{Bytes, Flops, Nanos};
use crate::verdict::{Diagnosis, Diagnostic};

/// The seam: `cuda` and `sim`.
pub trait Device: Send + Sync {
    /// The GPU this stands for: `NVIDIA H200`.
    fn gpu(&self) -> &Gpu;

    /// What decides its answers, and what they are worth.
    fn about(&self) -> &About;

    /// Runs the launches once and hands back every output; full checks.
    fn execute(&self, job: &Job<'_>) -> Result<Execution, RigError>;

    /// How long one call takes, measured or estimated (the value says which).
    fn time(&self, job: &Job<'_>) -> Result<Timing, RigError>;

    /// How long one call takes where the device does nothing else for long before: where power limits a GPU,
    /// its clock has come down by then. `None`: load changes nothing here.
    fn time_at_full_load(&self, _job: &Job<'_>) -> Result<Option<Timing>, RigError> {
        Ok(None)
    }

    /// Whether runs may go on side by side on this host's cores, each as if it were alone.
    fn runs_at_once(&self) -> bool {
        false
    }

    /// A real GPU, for what only one can do: baselines and final claims. `None`: this is no GPU.
    fn cuda(&self) -> Option<&cuda::CudaDevice> {
        None
    }

    /// Keeps one GPU free for a tool that runs processes of its own on it (a profiler, a memory checker):
    /// nothing is executed or timed there until the value is dropped. `None`: this is no GPU.
    fn reserve(&self) -> Option<Reserved<'_>> {
        None
    }
}

/// A GPU that is kept free.
pub struct Reserved<'a> {
    /// Which of this host, as the driver counts.
    pub ordinal: u32,
    _held: Vec<Box<dyn Held + 'a>>,
}

impl Reserved<'_> {
    /// Of a device that does one thing at a time by itself.
    pub fn unguarded(ordinal: u32) -> Self {
        Self {
            ordinal,
            _held: Vec::new(),
        }
    }
}

/// Whatever keeps a GPU free while it lives.
trait Held {}

impl<T> Held for T {}

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// All that decides its answers besides the job, for cache keys: its kind, the GPU, the version of its
    /// cost model or of the driver.
    pub identity: String,
    /// Checks that each of its runs makes, in words, for the certificate: "shared-memory races".
    pub checks: Vec<String>,
    /// Checks that it cannot make, in words: "target instructions: not profiled".
    pub cannot_check: Vec<String>,
    /// The largest total of a job's buffers that it executes; larger jobs are only timed.
    pub largest: Bytes,
    /// Whether the timed size is executed and verified too, not only timed.
    pub runs_timed_size: bool,
    /// Whether threads and blocks advance in the order that a job names; else each run has its own.
    pub chooses_order: bool,
}

/// Facts of a GPU that launches, limits and cost models need.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// As the driver names it.
    pub name: String,
    /// `sm_90a`.
    pub arch: crate::units::SmArch,
    /// Streaming multiprocessors.
    pub sm_count: u32,
    /// Highest SM clock, MHz.
    pub sm_clock_mhz: f64,
    /// Theoretical device-memory bandwidth, bytes per second.
    pub memory_bandwidth: f64,
    /// L2 size.
    pub l2: Bytes,
    /// Largest dynamic shared memory of a block.
    pub smem_per_block: Bytes,
    /// Shared memory of an SM.
    pub smem_per_sm: Bytes,
    /// 32-bit registers of an SM.
    pub registers_per_sm: u32,
    /// Threads an SM holds.
    pub threads_per_sm: u32,
    /// Blocks an SM holds.
    pub blocks_per_sm: u32,
    /// fp32 fused multiply-adds per SM and cycle.
    pub fp32_fma_per_cycle: u32,
    /// Dense bf16 tensor operations (FMA = 2) per SM and cycle.
    pub tensor_bf16_flops_per_cycle: u32,
}

/// What to run.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The parsed rendering: what the simulator runs.
    pub module: &'a Module,
    /// What ptxas made of it: what a GPU runs. `None` only where no assembler was asked.
    pub cubin: Option<&'a [u8]>,
    /// Registers per thread by entry, from ptxas; the occupancy of the cost model needs it.
    pub registers: &'a [(String, u32)],
    /// Launches and scratch memory.
    pub plan: &'a LaunchPlan,
    /// The task's buffers.
    pub buffers: &'a [Buffer],
    /// Outputs of which some elements are enough; a device may still hand back the whole.
    pub sampled: &'a [Sampled],
    /// Names one of the orders in which threads and blocks may advance, for devices that choose it; 0 is the
    /// plainest.
    pub order: u64,
}

/// An output of which some elements are handed back.
#[derive(Clone)]
pub struct Sampled {
    /// The buffer's name.
    pub output: String,
    /// Which elements: indices as little-endian `u64`. Kept by identity, so that a device holds them once.
    pub elements: Arc<[u8]>,
}

/// One of the task's buffers.
#[derive(Clone)]
pub struct Buffer {
    /// The parameter's name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Size.
    pub bytes: Bytes,
    /// Kernels may write it.
    pub writable: bool,
    /// What it holds before the launch.
    pub contents: Contents,
}

/// Fills `out` with the buffer's bytes from the byte offset given: a pure function, so a large buffer
/// need never exist as a whole.
pub type Generator = Arc<dyn Fn(u64, &mut [u8]) + Send + Sync>;

/// What a buffer holds before the launch.
#[derive(Clone)]
pub enum Contents {
    /// These bytes.
    Bytes(Arc<[u8]>),
    /// This byte throughout: poison.
    Fill(u8),
    /// Made where it is read.
    Generated(Generator),
}

/// How a run went.
#[derive(Clone, Debug)]
pub struct Execution {
    /// How it ended.
    pub ended: Ended,
    /// Every writable buffer's bytes afterwards, by name; of one that `wholes` names, its sampled elements in
    /// the order asked. Empty unless it completed.
    pub outputs: Vec<(String, Vec<u8>)>,
    /// What is known of the outputs of which only the sampled elements came back.
    pub wholes: Vec<Whole>,
    /// Read-only buffers that changed, and guard zones that were hit, in words.
    pub violations: Vec<String>,
    /// Races and missing barriers, each with both places: the result depends on the order of threads.
    pub races: Vec<Diagnostic>,
    /// Other findings that do not end a run: reads of memory that nothing wrote. An error fails the
    /// candidate, anything less goes along as a warning.
    pub findings: Vec<Diagnostic>,
    /// Floating-point work executed, where the device counts.
    pub flops: Option<Vec<(String, Flops)>>,
    /// Executions by full mnemonic, where the device counts.
    pub executed: Option<Vec<(String, u64)>>,
}

/// What is known of an output of which only some elements came back.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Whole {
    /// The buffer's name.
    pub output: String,
    /// A hash of all its bytes, comparable between runs on one device.
    pub digest: u64,
    /// Elements that still hold the byte that filled it before the launch.
    pub untouched: u64,
}

/// How a run ended. Lines in diagnostics are those of the rendering; the pipeline maps them to the source.
#[derive(Clone, Debug)]
pub enum Ended {
    /// All launches ran.
    Completed,
    /// A fault.
    Faulted(Vec<Diagnostic>),
    /// Out of time or instructions, or deadlocked.
    Hung(Vec<Diagnostic>),
    /// No launch of it fits the device, or its arguments do not fit the entry: which limit, wanted and allowed.
    Refused(String),
}

/// How a timing went.
#[derive(Clone, Debug)]
pub enum Timing {
    /// There is a time.
    Timed(Box<Timed>),
    /// A call faulted.
    Faulted(Vec<Diagnostic>),
    /// A call did not end.
    Hung(Vec<Diagnostic>),
    /// No launch of it fits the device.
    Refused(String),
}

/// A time and, where the device profiles as it runs, a diagnosis.
#[derive(Clone, Debug)]
pub struct Timed {
    /// The time.
    pub time: crate::verdict::Time,
    /// What limits the kernel (lines of the rendering).
    pub diagnosis: Option<Diagnosis>,
    /// Least possible time by the device's own ceilings, for the audit: (bytes ÷ bandwidth, FLOPs ÷ peak).
    pub floor: Option<Nanos>,
    /// Outputs, by name, that timed calls left different from an untimed call on the same inputs. Only one
    /// that may differ between repeats (atomics) is innocent.
    pub unsteady: Vec<String>,
    /// Read-only buffers that timed calls changed, and guard zones they hit, in words.
    pub violations: Vec<String>,
    /// What unsteady outputs held that timed calls made from the job's own inputs: whole, or the elements that
    /// the job samples.
    pub left: Vec<(String, Vec<u8>)>,
    /// The time of the same calls afterwards, on inputs that none of them had seen.
    pub afterwards: Option<Nanos>,
    /// How it was timed, in words, for the certificate.
    pub notes: Vec<String>,
}

/// The rig broke: not the candidate's fault.
#[derive(Debug, thiserror::Error)]
pub enum RigError {
    /// The device or its worker is gone.
    #[error("device {device}: {message}")]
    Device {
        /// Which.
        device: String,
        /// What happened, with the child's stderr where there is one.
        message: String,
    },
    /// A tool could not be run.
    #[error("{tool}: {message}")]
    Tool {
        /// `ptxas`.
        tool: String,
        /// What happened and what to do.
        message: String,
    },
    /// The reference could not be computed.
    #[error("reference of task {task}: {message}")]
    Reference {
        /// Which task.
        task: String,
        /// What happened.
        message: String,
    },
    /// A bug of ours.
    #[error("warptree broke down while it judged or proposed: {message}; please report it")]
    Panicked {
        /// What it said.
        message: String,
    },
    /// Files.
    #[error("{context}: {source}")]
    Io {
        /// What was being done, with the path.
        context: String,
        /// The system's word.
        source: std::io::Error,
    },
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
