//! Calls in a file, and the program that launches each of them once, in order: `warptree replay-calls`.
//! Profilers and memory checkers watch that program. Nothing but the calls' own kernels is launched, and
//! regions have no guards, so that a checker sees the true ends. It judges nothing.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::cache::Cache;
use super::driver::{Address, Context};
use super::engine::{Trouble, ran, resolve};
use super::pack;
use super::protocol::{self, Call, Frame, Initial, MAX_CHUNK, ProtocolError, Role};
use crate::device::{Buffer, Contents, Job};

/// Raised whenever [`Step`] changes.
const VERSION: u32 = 1;

/// Float inputs beyond this are repeated on the device instead of written out: what is counted does not
/// depend on it, and a file of many gigabytes takes longer than the profile. Whole pages.
const GIVEN: u64 = 16 << 20;

/// What a file holds, in order.
#[derive(Debug, Serialize, Deserialize)]
enum Step {
    /// First.
    Open {
        /// [`VERSION`] of the writer.
        version: u32,
        /// Which GPU.
        ordinal: u32,
    },
    /// Input contents under a number: `given` bytes follow as raw frames and repeat up to `bytes`.
    Contents {
        /// For [`Initial::Slot`].
        slot: u64,
        /// On the device.
        bytes: u64,
        /// In the file.
        given: u64,
    },
    /// A call.
    Call(Box<Call>),
}

/// How far the program came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Calls whose launches all ended well.
    pub done: usize,
    /// Why the next one did not, or why there was none.
    pub failed: Option<String>,
    /// Whether the file was read to its end.
    pub ended: bool,
}

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A job's launches do not fit its entries; the candidate's fault.
    #[error("{message}")]
    Job {
        /// Index of the job.
        job: usize,
        /// What does not fit.
        message: String,
    },
    /// Files.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Writes `jobs` for GPU `ordinal`.
pub fn write(path: &Path, ordinal: u32, jobs: &[Job<'_>]) -> Result<(), WriteError> {
    let mut out = BufWriter::new(File::create(path)?);
    let mut send = |step: &Step| protocol::write_message(&mut out, step).map_err(io_error);
    send(&Step::Open {
        version: VERSION,
        ordinal,
    })?;
    let mut cache = Cache::new(u64::MAX);
    for (index, job) in jobs.iter().enumerate() {
        let misfit = |message| WriteError::Job {
            job: index,
            message,
        };
        let supply = cache.supply(job.buffers).map_err(misfit)?;
        for (slot, buffer) in supply.uploads {
            write_contents(&mut out, slot, &job.buffers[buffer])?;
        }
        let cubin = job
            .cubin
            .ok_or_else(|| misfit("it was not assembled".to_owned()))?;
        let call = pack::pack(job, cubin, &supply.initial).map_err(misfit)?;
        protocol::write_message(&mut out, &Step::Call(Box::new(call))).map_err(io_error)?;
    }
    Ok(out.flush()?)
}

fn write_contents(out: &mut impl Write, slot: u64, buffer: &Buffer) -> Result<(), WriteError> {
    let bytes = buffer.bytes.0;
    // repeating numbers is harmless, repeating indices or offsets may not be
    let given = match buffer.dtype.is_float() {
        true => bytes.min(GIVEN),
        false => bytes,
    };
    let step = Step::Contents { slot, bytes, given };
    protocol::write_message(out, &step).map_err(io_error)?;
    let mut piece = vec![0; MAX_CHUNK];
    let mut offset = 0u64;
    while offset < given {
        let length = (given - offset).min(MAX_CHUNK as u64) as usize;
        let piece = &mut piece[..length];
        match &buffer.contents {
            Contents::Bytes(all) => {
                let at = offset as usize;
                piece.copy_from_slice(&all[at..at + length]);
            }
            Contents::Fill(byte) => piece.fill(*byte),
            Contents::Generated(generator) => generator(offset, piece),
        }
        protocol::write_raw(out, piece).map_err(io_error)?;
        offset += length as u64;
    }
    Ok(())
}

fn io_error(error: ProtocolError) -> io::Error {
    match error {
        ProtocolError::Io(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

/// Launches what `file` holds; `report` gets the [`Progress`] after each call. This is the whole of
/// `warptree replay-calls`.
pub fn main(file: &Path, report: &Path) -> ExitCode {
    let mut progress = Progress::default();
    let played = play(file, report, &mut progress);
    match played {
        Ok(()) => progress.ended = true,
        Err(message) => {
            eprintln!("warptree replay-calls: {message}");
            progress.failed = Some(message);
        }
    }
    if let Err(error) = tell(report, &progress) {
        eprintln!("warptree replay-calls: {}: {error}", report.display());
        return ExitCode::FAILURE;
    }
    if progress.ended {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Reads a report; a program that never got so far as to write one did nothing.
pub fn progress(report: &Path) -> Progress {
    std::fs::read(report)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default()
}

fn tell(report: &Path, progress: &Progress) -> io::Result<()> {
    std::fs::write(report, serde_json::to_vec(progress)?)
}

fn play(file: &Path, report: &Path, progress: &mut Progress) -> Result<(), String> {
    let opened = File::open(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let mut steps = BufReader::with_capacity(1 << 20, opened);
    let broken = |e: ProtocolError| format!("{}: {e}", file.display());
    let Some(Step::Open { version, ordinal }) = next(&mut steps).map_err(broken)? else {
        return Err(format!("{} holds no calls", file.display()));
    };
    if version != VERSION {
        return Err(format!(
            "{} is of version {version}, this program reads {VERSION}",
            file.display()
        ));
    }
    let mut player = Player {
        cuda: Context::open(ordinal)?,
        slots: HashMap::new(),
    };
    while let Some(step) = next(&mut steps).map_err(broken)? {
        match step {
            Step::Open { .. } => return Err("a second beginning".to_owned()),
            Step::Contents { slot, bytes, given } => {
                player.fill_slot(&mut steps, slot, bytes, given)?;
            }
            Step::Call(call) => {
                player.call(&call).map_err(|trouble| match trouble {
                    Trouble::Refused { message, .. }
                    | Trouble::NoLibrary(message)
                    | Trouble::Failed(message) => message,
                    Trouble::Faulted { error, .. } => error.to_string(),
                    Trouble::Overwritten(_) => {
                        "an earlier call's kernel overwrote its inputs".to_owned()
                    }
                })?;
                progress.done += 1;
                tell(report, progress).map_err(|e| format!("{}: {e}", report.display()))?;
            }
        }
    }
    Ok(())
}

/// `None` at the end of the file.
fn next(steps: &mut impl Read) -> Result<Option<Step>, ProtocolError> {
    match protocol::read_frame(steps) {
        Ok(Frame::Message(step)) => Ok(Some(step)),
        Ok(Frame::Raw(_)) => Err(ProtocolError::Unexpected(
            "raw bytes that nothing announced".to_owned(),
        )),
        Err(ProtocolError::Ended) => Ok(None),
        Err(other) => Err(other),
    }
}

struct Player {
    cuda: Context,
    slots: HashMap<u64, (Address, u64)>,
}

impl Player {
    fn fill_slot(
        &mut self,
        steps: &mut impl Read,
        slot: u64,
        bytes: u64,
        given: u64,
    ) -> Result<(), String> {
        let at = self
            .cuda
            .allocate(bytes)
            .map_err(|e| format!("no device memory for inputs: {e}"))?;
        let mut offset = 0;
        while offset < given {
            let frame = protocol::read_frame::<Step>(steps).map_err(|e| e.to_string())?;
            let Frame::Raw(piece) = frame else {
                return Err("a message in the middle of contents".to_owned());
            };
            if piece.is_empty() || piece.len() as u64 > given - offset {
                return Err("contents of another length than announced".to_owned());
            }
            self.cuda
                .upload(at.offset(offset), &piece)
                .map_err(|e| e.to_string())?;
            offset += piece.len() as u64;
        }
        // what is there doubles until it is enough
        while given > 0 && offset < bytes {
            let more = offset.min(bytes - offset);
            self.cuda
                .copy(at.offset(offset), at, more)
                .map_err(|e| e.to_string())?;
            offset += more;
        }
        self.cuda.synchronize().map_err(|e| e.to_string())?;
        self.slots.insert(slot, (at, bytes));
        Ok(())
    }

    fn call(&self, call: &Call) -> Result<(), Trouble> {
        let module = self.cuda.load(&call.image)?;
        let mut own = Vec::new();
        let ran = self.launch(call, &module, &mut own);
        for at in own {
            self.cuda.free(at)?;
        }
        ran
    }

    fn launch(
        &self,
        call: &Call,
        module: &super::driver::Module,
        own: &mut Vec<Address>,
    ) -> Result<(), Trouble> {
        let cuda = &self.cuda;
        let mut places = Vec::with_capacity(call.regions.len());
        for region in &call.regions {
            let only_read = matches!(region.role, Role::Input { .. });
            if let (Initial::Slot(slot), true) = (region.initial, only_read) {
                places.push(self.slot(slot)?);
                continue;
            }
            let at = cuda.allocate(region.bytes)?;
            own.push(at);
            match region.initial {
                Initial::Fill(byte) => cuda.fill(at, byte, region.bytes)?,
                Initial::Slot(slot) => cuda.copy(at, self.slot(slot)?, region.bytes)?,
            }
            places.push(at);
        }
        let address = |region: u32| {
            places
                .get(region as usize)
                .copied()
                .ok_or_else(|| Trouble::Failed(format!("there is no region {region}")))
        };
        let launches = resolve(cuda, call, module, &address, 0)?;
        for (region, at) in call.regions.iter().zip(&places) {
            if region.role == (Role::Workspace { zero: true }) {
                cuda.fill(*at, 0, region.bytes)?;
            }
        }
        cuda.synchronize()?;
        for launch in &launches {
            cuda.launch(launch).map_err(|e| ran(0, e))?;
        }
        cuda.synchronize().map_err(|e| ran(0, e))
    }

    fn slot(&self, slot: u64) -> Result<Address, Trouble> {
        self.slots
            .get(&slot)
            .map(|(at, _)| *at)
            .ok_or_else(|| Trouble::Failed(format!("nothing was given for slot {slot}")))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::source::{Argument, DType, Launch, LaunchPlan};
    use crate::units::Bytes;

    const PTX: &str = ".version 8.0\n.target sm_90a\n.address_size 64\n\
                       .visible .entry k(.param .u64 x, .param .u64 y)\n{\n  ret;\n}\n";

    fn buffer(name: &str, dtype: DType, bytes: u64, contents: Contents) -> Buffer {
        Buffer {
            name: name.to_owned(),
            dtype,
            bytes: Bytes(bytes),
            writable: name == "y",
            contents,
        }
    }

    fn steps(path: &Path) -> (Vec<Step>, u64) {
        let mut file = File::open(path).expect("written");
        let (mut steps, mut raw) = (Vec::new(), 0);
        loop {
            match protocol::read_frame::<Step>(&mut file) {
                Ok(Frame::Message(step)) => steps.push(step),
                Ok(Frame::Raw(bytes)) => raw += bytes.len() as u64,
                Err(ProtocolError::Ended) => return (steps, raw),
                Err(other) => panic!("{other}"),
            }
        }
    }

    #[test]
    fn calls_share_their_inputs_and_large_floats_are_given_in_part() {
        let module = crate::ptx::parse(PTX).expect("parses");
        let plan = LaunchPlan {
            launches: vec![Launch {
                entry: "k".into(),
                grid: [1; 3],
                block: [32, 1, 1],
                smem: Bytes(0),
                cluster: [1; 3],
                args: vec![Argument::Buffer("x".into()), Argument::Buffer("y".into())],
            }],
            workspaces: Vec::new(),
            tensor_maps: Vec::new(),
        };
        let ones = Contents::Generated(Arc::new(|_, out: &mut [u8]| out.fill(1)));
        let buffers = [
            buffer("x", DType::F32, GIVEN + 4096, ones),
            buffer("y", DType::F32, 128, Contents::Fill(0xff)),
        ];
        let job = Job {
            module: &module,
            cubin: Some(b"\x7fELF"),
            registers: &[],
            plan: &plan,
            buffers: &buffers,
            sampled: &[],
            order: 0,
        };
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("calls");
        write(&path, 2, &[job, job]).expect("writes");
        let (steps, raw) = steps(&path);
        assert_eq!(raw, GIVEN);
        assert!(matches!(steps[0], Step::Open { ordinal: 2, .. }));
        assert!(matches!(steps[1], Step::Contents { given: GIVEN, .. }));
        assert!(matches!(steps[2..], [Step::Call(_), Step::Call(_)]));
    }

    #[test]
    fn a_report_that_is_not_there_says_that_nothing_was_done() {
        let folder = tempfile::tempdir().expect("a folder");
        let report = folder.path().join("report");
        assert_eq!(progress(&report), Progress::default());
        let told = Progress {
            done: 3,
            failed: Some("broke".into()),
            ended: false,
        };
        tell(&report, &told).expect("writes");
        assert_eq!(progress(&report), told);
    }
}
