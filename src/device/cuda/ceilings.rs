//! What this GPU does at most, in about two seconds: a copy through device memory, and fused multiply-adds
//! in registers. Measured as candidates are, so it says too whether the GPU is fit for measuring.

use crate::device::{Buffer, Contents, Device, Job, RigError, Timing};
use crate::ptx::ir::Module;
use crate::source::{Argument, DType, Launch, LaunchPlan};
use crate::units::{Bytes, Flops, Nanos};

const TEXT: &str = include_str!("ceilings.ptx");

/// Copied by the measurement.
const COPIED: Bytes = Bytes(256 << 20);

/// Copied where a call is only to be seen: more than caches hold.
const LITTLE: Bytes = Bytes(128 << 20);

const THREADS: u32 = 256;

/// Blocks of the multiply-adds for each SM.
const BLOCKS_PER_SM: u32 = 8;

/// Rounds of 64 multiply-adds.
const ROUNDS: u32 = 256;

/// Multiply-adds of a thread in a round.
const PER_ROUND: f64 = 64.0;

/// Measured, beside what the GPU's facts promise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceilings {
    /// Bytes read and written per second.
    pub copy: f64,
    /// Share of the theoretical bandwidth.
    pub copy_share: f64,
    /// fp32 operations per second; a multiply-add counts two.
    pub fp32: f64,
    /// Share of the theoretical rate at the highest clock.
    pub fp32_share: f64,
}

/// A call that any GPU runs.
pub struct Sample {
    /// Bytes that it reads.
    pub reads: Bytes,
    /// fp32 operations that it does.
    pub flops: Flops,
    module: Module,
    plan: LaunchPlan,
    buffers: Vec<Buffer>,
}

impl Sample {
    /// A copy: something for a profiler or a checker to look at.
    pub fn copy() -> Result<Self, RigError> {
        Self::copy_of(LITTLE)
    }

    /// As a job. Its code is PTX, which the driver compiles.
    pub fn job(&self) -> Job<'_> {
        Job {
            module: &self.module,
            cubin: Some(TEXT.as_bytes()),
            registers: &[],
            plan: &self.plan,
            buffers: &self.buffers,
            sampled: &[],
            order: 0,
        }
    }

    fn copy_of(bytes: Bytes) -> Result<Self, RigError> {
        let elements = bytes.0 / 16;
        let x = Buffer {
            writable: false,
            contents: Contents::Generated(std::sync::Arc::new(noise)),
            ..buffer("x", bytes)
        };
        let launch = Launch {
            entry: "copy".to_owned(),
            grid: [elements.div_ceil(u64::from(THREADS)) as u32, 1, 1],
            args: vec![
                Argument::Buffer("x".to_owned()),
                Argument::Buffer("y".to_owned()),
                Argument::Int(elements as i64),
            ],
            ..launch()
        };
        Self::new(launch, vec![x, buffer("y", bytes)], bytes, Flops(0.0))
    }

    /// Multiply-adds in registers.
    pub fn multiply_add(sm_count: u32) -> Result<Self, RigError> {
        let blocks = BLOCKS_PER_SM * sm_count;
        let launch = Launch {
            entry: "multiply_add".to_owned(),
            grid: [blocks, 1, 1],
            args: vec![
                Argument::Buffer("y".to_owned()),
                Argument::Int(i64::from(ROUNDS)),
                Argument::Float(0.999),
                Argument::Float(0.001),
            ],
            ..launch()
        };
        let bytes = Bytes(u64::from(blocks) * u64::from(THREADS) * 4);
        let threads = f64::from(blocks) * f64::from(THREADS);
        // and seven additions in the end
        let flops = Flops(threads * (2.0 * f64::from(ROUNDS) * PER_ROUND + 7.0));
        Self::new(launch, vec![buffer("y", bytes)], Bytes(0), flops)
    }

    fn new(
        launch: Launch,
        buffers: Vec<Buffer>,
        reads: Bytes,
        flops: Flops,
    ) -> Result<Self, RigError> {
        let module = crate::ptx::parse(TEXT).map_err(|error| RigError::Tool {
            tool: "ceilings".to_owned(),
            message: error.message,
        })?;
        Ok(Self {
            reads,
            flops,
            module,
            plan: LaunchPlan {
                launches: vec![launch],
                workspaces: Vec::new(),
                tensor_maps: Vec::new(),
            },
            buffers,
        })
    }
}

/// Measures both.
pub fn ceilings(device: &dyn Device) -> Result<Ceilings, RigError> {
    let gpu = device.gpu();
    let copy = time(device, &Sample::copy_of(COPIED)?)?;
    let adds = Sample::multiply_add(gpu.sm_count)?;
    let took = time(device, &adds)?;
    let copy = 2.0 * COPIED.0 as f64 / copy.seconds();
    let fp32 = adds.flops.0 / took.seconds();
    let peak = f64::from(gpu.sm_count) * 2.0 * f64::from(gpu.fp32_fma_per_cycle) * 1e6;
    Ok(Ceilings {
        copy,
        copy_share: copy / gpu.memory_bandwidth,
        fp32,
        fp32_share: fp32 / (peak * gpu.sm_clock_mhz),
    })
}

fn time(device: &dyn Device, sample: &Sample) -> Result<Nanos, RigError> {
    let words = match device.time(&sample.job())? {
        Timing::Timed(timed) => return Ok(timed.time.nanos()),
        Timing::Faulted(diagnostics) | Timing::Hung(diagnostics) => diagnostics
            .first()
            .map_or_else(String::new, |first| first.message.clone()),
        Timing::Refused(message) => message,
    };
    Err(RigError::Device {
        device: device.gpu().name.clone(),
        message: format!("a known-good kernel did not run: {words}"),
    })
}

fn buffer(name: &str, bytes: Bytes) -> Buffer {
    Buffer {
        name: name.to_owned(),
        dtype: DType::U32,
        bytes,
        writable: true,
        contents: Contents::Fill(0xff),
    }
}

fn launch() -> Launch {
    Launch {
        entry: String::new(),
        grid: [1; 3],
        block: [THREADS, 1, 1],
        smem: Bytes(0),
        cluster: [1; 3],
        args: Vec::new(),
    }
}

/// Bytes without a pattern: hardware is faster on zeros.
fn noise(offset: u64, out: &mut [u8]) {
    for (at, chunk) in (offset / 8..).zip(out.chunks_mut(8)) {
        let mut word = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word ^= word >> 29;
        let word = word.wrapping_mul(0xbf58_476d_1ce4_e5b9).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Gpu, SimDevice};

    /// The simulator runs what it says; its times are estimates and of no interest here.
    #[test]
    fn the_kernels_run_and_do_what_they_say() {
        let device = SimDevice::new(Gpu::default());
        let copy = Sample::copy_of(Bytes(4096)).expect("parses");
        let done = device.execute(&copy.job()).expect("runs");
        let mut expected = vec![0; 4096];
        noise(0, &mut expected);
        assert_eq!(done.outputs, [("y".to_owned(), expected)]);
        let add = Sample::multiply_add(1).expect("parses");
        let done = device.execute(&add.job()).expect("runs");
        let counted = done.flops.expect("the simulator counts");
        assert_eq!(counted, [("fp32".to_owned(), add.flops)]);
    }
}
