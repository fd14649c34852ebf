//! `warptree worker --selftest`: good and bad kernels on a real GPU, each with what must come of it. It
//! checks the device, never a task.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::timing::{Outcome, Rule};
use super::{Compared, CudaDevice, Options, Subject, WorkerCommand};
use crate::device::{Buffer, Contents, Device, Ended, Execution, Job, RigError, Sampled, Timing};
use crate::ptx::ir::Module;
use crate::ptx::parse;
use crate::source::{Argument, DType, Launch, LaunchPlan, TensorMap, Workspace};
use crate::units::Bytes;

const ANY: &str = include_str!("selftest.ptx");
const SM90: &str = include_str!("selftest_sm90.ptx");

/// A hang is given this long, and a replacement as much again.
const HANG: Duration = Duration::from_secs(1);

/// Elements of the small cases; not a multiple of anything.
const N: u32 = 1003;

/// Bytes of the timed copies.
const LARGE: u64 = 256 << 20;

/// Runs the self-test on GPU `ordinal` and prints a table. `true`: all is as it must be.
pub fn selftest(
    out: &mut dyn Write,
    ordinal: u32,
    command: &WorkerCommand,
) -> Result<bool, RigError> {
    let started = Instant::now();
    let options = Options {
        launch: HANG,
        ..Options::default()
    };
    let device = CudaDevice::open(ordinal, command.clone(), options)?;
    let ready = device.ready();
    let mut table = Table {
        out,
        all_good: true,
    };
    table.say(format!("{:#?}", ready))?;
    table.say(format!(
        "worker ready in {:.0} ms",
        started.elapsed().as_secs_f64() * 1e3
    ))?;
    let any = kernels(ANY)?;
    good_and_bad(&device, &any, &mut table)?;
    limits(&device, &any, &mut table)?;
    if ready.gpu.arch.number >= 90 {
        hopper(&device, &kernels(SM90)?, &mut table)?;
    }
    times(&device, &any, &mut table)?;
    Ok(table.all_good)
}

/// Prints a line for each case.
struct Table<'a> {
    out: &'a mut dyn Write,
    all_good: bool,
}

impl Table<'_> {
    fn say(&mut self, line: String) -> Result<(), RigError> {
        writeln!(self.out, "{line}")
            .and_then(|()| self.out.flush())
            .map_err(|source| RigError::Io {
                context: "self-test: writing the table".to_owned(),
                source,
            })
    }

    /// A case: its name, whether it went as it must, what happened, and how long it took.
    fn case(&mut self, name: &str, good: bool, what: &str, since: Instant) -> Result<(), RigError> {
        self.all_good &= good;
        let mark = if good { "ok" } else { "FAIL" };
        let ms = since.elapsed().as_secs_f64() * 1e3;
        self.say(format!("{mark:<4} {name:<34} {ms:>8.1} ms  {what}"))
    }
}

struct Kernels {
    text: &'static str,
    module: Module,
}

fn kernels(text: &'static str) -> Result<Kernels, RigError> {
    let module = parse(text).map_err(|e| RigError::Tool {
        tool: "self-test".to_owned(),
        message: e.to_string(),
    })?;
    Ok(Kernels { text, module })
}

/// A launch plan and its buffers, ready to become a job.
struct Case {
    plan: LaunchPlan,
    buffers: Vec<Buffer>,
}

impl Case {
    fn new(entry: &str, blocks: u32, threads: u32, args: Vec<Argument>) -> Self {
        Self {
            plan: LaunchPlan {
                launches: vec![Launch {
                    entry: entry.to_owned(),
                    grid: [blocks, 1, 1],
                    block: [threads, 1, 1],
                    smem: Bytes(0),
                    cluster: [1, 1, 1],
                    args,
                }],
                workspaces: Vec::new(),
                tensor_maps: Vec::new(),
            },
            buffers: Vec::new(),
        }
    }

    fn with(mut self, buffer: Buffer) -> Self {
        self.buffers.push(buffer);
        self
    }

    fn job<'a>(&'a self, kernels: &'a Kernels) -> Job<'a> {
        Job {
            module: &kernels.module,
            cubin: Some(kernels.text.as_bytes()),
            registers: &[],
            plan: &self.plan,
            buffers: &self.buffers,
            sampled: &[],
            order: 0,
        }
    }
}

fn arg(name: &str) -> Argument {
    Argument::Buffer(name.to_owned())
}

fn int(value: impl Into<i64>) -> Argument {
    Argument::Int(value.into())
}

/// Random-looking words that are finite floats between 1 and 2.
fn floats(name: &str, bytes: u64, salt: u32) -> Buffer {
    let generate = move |offset: u64, out: &mut [u8]| {
        for (i, chunk) in out.chunks_mut(4).enumerate() {
            let index = (offset / 4) as u32 + i as u32;
            let hash = (index ^ salt).wrapping_mul(0x9E37_79B9).rotate_left(13);
            let word = 0x3f80_0000 | (hash >> 9);
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        }
    };
    Buffer {
        name: name.to_owned(),
        dtype: DType::F32,
        bytes: Bytes(bytes),
        writable: false,
        contents: Contents::Generated(Arc::new(generate)),
    }
}

fn output(name: &str, bytes: u64) -> Buffer {
    Buffer {
        name: name.to_owned(),
        dtype: DType::F32,
        bytes: Bytes(bytes),
        writable: true,
        contents: Contents::Fill(0xff),
    }
}

fn bytes_of(buffer: &Buffer) -> Vec<u8> {
    let mut bytes = vec![0; buffer.bytes.0 as usize];
    match &buffer.contents {
        Contents::Bytes(contents) => bytes.copy_from_slice(contents),
        Contents::Fill(byte) => bytes.fill(*byte),
        Contents::Generated(generate) => generate(0, &mut bytes),
    }
    bytes
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes
        .chunks_exact(4)
        .map(|w| w.iter().rev().fold(0, |n, &b| n << 8 | u32::from(b)))
        .collect()
}

/// The words of the only output, if the run completed without violations.
fn clean(execution: &Execution) -> Option<Vec<u32>> {
    match (&execution.ended, &execution.outputs[..]) {
        (Ended::Completed, [(_, bytes)]) if execution.violations.is_empty() => Some(words(bytes)),
        _ => None,
    }
}

fn describe(execution: &Execution) -> String {
    match &execution.ended {
        Ended::Completed if execution.violations.is_empty() => "completed".to_owned(),
        Ended::Completed => execution.violations.join("; "),
        Ended::Faulted(diagnostics) | Ended::Hung(diagnostics) => diagnostics
            .iter()
            .map(|d| format!("{}: {}", d.code, d.message.replace('\n', " | ")))
            .collect::<Vec<_>>()
            .join("; "),
        Ended::Refused(message) => format!("refused: {message}"),
    }
}

fn add_case(entry_threads: u32) -> Case {
    let bytes = u64::from(N) * 4;
    Case::new(
        "add",
        N.div_ceil(entry_threads),
        entry_threads,
        vec![arg("a"), arg("b"), arg("c"), int(N)],
    )
    .with(floats("a", bytes, 1))
    .with(floats("b", bytes, 2))
    .with(output("c", bytes))
}

/// Writes past the end of the first input of [`add_case`].
fn near_input() -> Case {
    let bytes = u64::from(N) * 4;
    Case::new("near_write", 1, 1, vec![arg("a"), int(bytes as i64)])
        .with(floats("a", bytes, 1))
        .with(output("c", 8))
}

fn added(case: &Case) -> Vec<u32> {
    let [a, b] = [0, 1].map(|i| words(&bytes_of(&case.buffers[i])));
    a.iter()
        .zip(&b)
        .map(|(a, b)| (f32::from_bits(*a) + f32::from_bits(*b)).to_bits())
        .collect()
}

fn good_and_bad(device: &CudaDevice, any: &Kernels, table: &mut Table<'_>) -> Result<(), RigError> {
    let add = add_case(128);
    let honest = |name: &str, table: &mut Table<'_>| {
        let since = Instant::now();
        let ran = device.execute(&add.job(any))?;
        let good = clean(&ran) == Some(added(&add));
        table.case(name, good, &describe(&ran), since)
    };
    honest("vector add", table)?;
    honest("vector add, inputs kept", table)?;

    // half of the blocks: the rest of the output stays as it was
    let mut half = add_case(128);
    let blocks = &mut half.plan.launches[0].grid[0];
    *blocks /= 2;
    let written = *blocks * 128;
    let indices: Vec<u64> = (0..u64::from(written)).step_by(97).collect();
    let sampled = [Sampled {
        output: "c".to_owned(),
        elements: indices.iter().flat_map(|i| i.to_le_bytes()).collect(),
    }];
    let job = Job {
        sampled: &sampled,
        ..half.job(any)
    };
    let since = Instant::now();
    let ran = device.execute(&job)?;
    let whole = added(&half);
    let expected: Vec<u32> = indices.iter().map(|i| whole[*i as usize]).collect();
    let untouched = ran.wholes.iter().map(|whole| whole.untouched).sum::<u64>();
    let good = clean(&ran) == Some(expected) && untouched == u64::from(N - written);
    table.case(
        "samples of a half-written output",
        good,
        &describe(&ran),
        since,
    )?;

    let violation = |case: Case, name: &str, expected: &str, table: &mut Table<'_>| {
        let since = Instant::now();
        let ran = device.execute(&case.job(any))?;
        let good = matches!(ran.ended, Ended::Completed)
            && matches!(&ran.violations[..], [only] if only.contains(expected));
        table.case(name, good, &describe(&ran), since)
    };
    let near = Case::new("near_write", 1, 1, vec![arg("c"), int(1000)]).with(output("c", 1000));
    violation(near, "write just past the end", "past its end", table)?;
    // inputs are kept for later kernels, which must not pay for this one
    let input = near_input();
    violation(input, "write just past an input", "past its end", table)?;
    honest("vector add of that input", table)?;
    let modify = Case::new("modify", 1, 1, vec![arg("a"), arg("c")])
        .with(floats("a", 4096, 3))
        .with(output("c", 8));
    violation(modify, "input modified", "read only", table)?;

    honest("vector add after violations", table)?;

    for (entry, name, code) in [
        ("far_write", "out of bounds", "cuda-700"),
        ("traps", "trap", "cuda-719"),
    ] {
        let case = Case::new(entry, 1, 1, vec![arg("c")]).with(output("c", 64));
        let since = Instant::now();
        let ran = device.execute(&case.job(any))?;
        let faulted = matches!(&ran.ended, Ended::Faulted(d) if d.iter().any(|d| d.code == code));
        table.case(name, faulted, &describe(&ran), since)?;
        recovery(device, any, &add, table)?;
    }

    let endless = Case::new("endless", 1, 1, vec![arg("c")]).with(output("c", 64));
    let since = Instant::now();
    let ran = device.execute(&endless.job(any))?;
    let hung = matches!(ran.ended, Ended::Hung(_)) && since.elapsed() < HANG * 2;
    table.case("endless loop", hung, &describe(&ran), since)?;
    recovery(device, any, &add, table)?;
    let since = Instant::now();
    let ran = device.execute(&endless.job(any))?;
    let refused = matches!(ran.ended, Ended::Hung(_)) && since.elapsed() < HANG / 10;
    table.case(
        "endless loop, not run again",
        refused,
        &describe(&ran),
        since,
    )
}

/// The next good kernel must run within a second of a bad one's verdict.
fn recovery(
    device: &CudaDevice,
    any: &Kernels,
    add: &Case,
    table: &mut Table<'_>,
) -> Result<(), RigError> {
    let since = Instant::now();
    let ran = device.execute(&add.job(any))?;
    let good = clean(&ran) == Some(added(add)) && since.elapsed() < Duration::from_secs(1);
    table.case("  recovery under 1 s", good, &describe(&ran), since)
}

fn limits(device: &CudaDevice, any: &Kernels, table: &mut Table<'_>) -> Result<(), RigError> {
    let most = device.gpu().smem_per_block.0;
    for (smem, fits) in [(48 << 10, true), (most, true), (most + 1, false)] {
        let mut case = Case::new(
            "shared_sum",
            2,
            256,
            vec![arg("c"), int(smem as u32 / 4 * 4)],
        )
        .with(output("c", 8));
        case.plan.launches[0].smem = Bytes(smem);
        let since = Instant::now();
        let ran = device.execute(&case.job(any))?;
        let sum = (0..smem as u32 / 4).fold(0, u32::wrapping_add);
        let good = if fits {
            clean(&ran) == Some(vec![sum; 2])
        } else {
            matches!(ran.ended, Ended::Refused(_))
        };
        let name = format!("{smem} B of dynamic shared memory");
        table.case(&name, good, &describe(&ran), since)?;
    }

    let many = add_case(2048);
    let since = Instant::now();
    let ran = device.execute(&many.job(any))?;
    let refused = matches!(ran.ended, Ended::Refused(_));
    table.case("2048 threads a block", refused, &describe(&ran), since)?;

    let mut short = add_case(128);
    short.plan.launches[0].args.pop();
    let since = Instant::now();
    let ran = device.execute(&short.job(any))?;
    let refused = matches!(ran.ended, Ended::Refused(_));
    table.case("an argument too few", refused, &describe(&ran), since)?;

    for (zero, expected) in [(true, 1), (false, 0)] {
        let workspace = Argument::Workspace("w".to_owned());
        let mut case = Case::new("count", 1, 1, vec![arg("c"), workspace]).with(output("c", 4));
        case.plan.workspaces.push(Workspace {
            name: "w".to_owned(),
            bytes: Bytes(4),
            zero,
        });
        let since = Instant::now();
        let ran = device.execute(&case.job(any))?;
        let good = clean(&ran) == Some(vec![expected]);
        let name = if zero {
            "workspace cleared"
        } else {
            "workspace poisoned"
        };
        table.case(name, good, &describe(&ran), since)?;
    }
    Ok(())
}

fn hopper(device: &CudaDevice, sm90: &Kernels, table: &mut Table<'_>) -> Result<(), RigError> {
    let mut case = Case::new("cluster_peer", 4, 32, vec![arg("c")]).with(output("c", 16));
    case.plan.launches[0].cluster = [2, 1, 1];
    let since = Instant::now();
    let ran = device.execute(&case.job(sm90))?;
    let good = clean(&ran) == Some(vec![101, 100, 101, 100]);
    table.case("clusters of two", good, &describe(&ran), since)?;

    case.plan.launches[0].grid = [3, 1, 1];
    let since = Instant::now();
    let ran = device.execute(&case.job(sm90))?;
    let refused = matches!(ran.ended, Ended::Refused(_));
    table.case(
        "clusters that do not divide",
        refused,
        &describe(&ran),
        since,
    )?;

    let mut case = Case::new(
        "tensor_tile",
        1,
        256,
        vec![
            Argument::TensorMap("m".to_owned()),
            arg("c"),
            int(32),
            int(32),
        ],
    )
    .with(floats("a", 64 * 64 * 4, 5))
    .with(output("c", 4096));
    case.plan.tensor_maps.push(TensorMap {
        name: "m".to_owned(),
        base: "a".to_owned(),
        dtype: DType::F32,
        dims: vec![64, 64],
        strides: vec![256],
        tile: vec![32, 32],
        swizzle: 0,
        promotion: 128,
        nan_fill: false,
    });
    let since = Instant::now();
    let ran = device.execute(&case.job(sm90))?;
    let all = words(&bytes_of(&case.buffers[0]));
    let tile: Vec<u32> = (32..64)
        .flat_map(|y| all[y * 64 + 32..y * 64 + 64].to_vec())
        .collect();
    table.case(
        "tensor map",
        clean(&ran) == Some(tile),
        &describe(&ran),
        since,
    )?;

    case.plan.tensor_maps[0].tile = vec![512, 32];
    let since = Instant::now();
    let ran = device.execute(&case.job(sm90))?;
    let refused = matches!(ran.ended, Ended::Refused(_));
    table.case(
        "tensor map with a box too large",
        refused,
        &describe(&ran),
        since,
    )
}

fn copy_case(entry: &str, bytes: u64, blocks: u32) -> Case {
    Case::new(
        entry,
        blocks,
        1024,
        vec![arg("a"), arg("c"), int(bytes as u32 / 16)],
    )
    .with(floats("a", bytes, 7))
    .with(output("c", bytes))
}

fn times(device: &CudaDevice, any: &Kernels, table: &mut Table<'_>) -> Result<(), RigError> {
    let sms = device.gpu().sm_count;
    for (bytes, name) in [(LARGE, "time a large copy"), (1 << 16, "time a tiny copy")] {
        let copy = copy_case("copy", bytes, sms * 2);
        let since = Instant::now();
        let timing = device.time(&copy.job(any))?;
        let Timing::Timed(timed) = timing else {
            table.case(name, false, &format!("{timing:?}"), since)?;
            continue;
        };
        let ns = timed.time.nanos();
        let rate = 2.0 * bytes as f64 / ns.seconds();
        // no copy beats the bus; the tiny one runs in the cache
        let possible = bytes < LARGE
            || (rate < device.gpu().memory_bandwidth * 1.02
                && rate > device.gpu().memory_bandwidth * 0.3);
        let good = possible && timed.unsteady.is_empty() && timed.violations.is_empty();
        let what = format!("{ns}, {:.2} TB/s; {}", rate / 1e12, timed.notes.join("; "));
        table.case(name, good, &what, since)?;
    }

    let copy = copy_case("copy", LARGE, sms * 2);
    let since = Instant::now();
    let floor = device.noise_floor(Subject::Kernel(&copy.job(any)), 32)?;
    let good = floor.is_some_and(|floor| floor < 0.02);
    let what = floor.map_or("no floor".to_owned(), |f| format!("{:.3} %", f * 100.0));
    table.case("A/A noise floor", good, &what, since)?;

    let slow = copy_case("copy", LARGE, sms / 4);
    for (a, b, name, expected) in [
        (&copy, &copy, "compare with itself", Outcome::Tie),
        (&copy, &slow, "compare with a slower one", Outcome::Slower),
        (&slow, &copy, "compare with a faster one", Outcome::Faster),
    ] {
        let rule = Rule {
            floor: floor.unwrap_or(0.0),
            ..Rule::default()
        };
        let since = Instant::now();
        let compared = device.compare_times(
            Subject::Kernel(&a.job(any)),
            Subject::Kernel(&b.job(any)),
            &rule,
        )?;
        let (good, what) = match compared {
            Compared::Timed(c) => (
                c.outcome == expected,
                format!(
                    "{:?} after {} pairs, {:?}",
                    c.outcome,
                    c.a.len(),
                    c.log_ratio
                ),
            ),
            Compared::Stopped(side, ended) => (false, format!("{side:?}: {ended:?}")),
        };
        table.case(name, good, &what, since)?;
    }

    let once = copy_case("copy_once", 1 << 20, 1);
    let since = Instant::now();
    let timing = device.time(&once.job(any))?;
    let (caught, what) = match timing {
        Timing::Timed(timed) => (
            timed.unsteady == ["c"],
            format!(
                "outputs that do not follow the inputs: {:?}",
                timed.unsteady
            ),
        ),
        other => (false, format!("{other:?}")),
    };
    table.case("work kept from earlier calls", caught, &what, since)?;

    // two blocks: what hung before is known, and would not be run
    let endless = Case::new("endless", 2, 1, vec![arg("c")]).with(output("c", 64));
    let since = Instant::now();
    let timing = device.time(&endless.job(any))?;
    let hung = matches!(timing, Timing::Hung(_)) && since.elapsed() < HANG * 2;
    table.case(
        "endless loop while timing",
        hung,
        &format!("{timing:?}"),
        since,
    )?;
    recovery(device, any, &add_case(128), table)
}

/// The kernels of the self-test, and the worker's own, are right: the simulator runs them.
#[cfg(test)]
mod tests;
