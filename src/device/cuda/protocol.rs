//! What parent and worker say to each other: frames over a byte stream, and the messages in them.
//! A frame is a tag byte, a little-endian `u32` length and that many bytes: `M` holds one postcard
//! message, `B` raw bytes of a transfer announced by the message before it.
//! Nothing here trusts a length, starts a process or touches a GPU.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::device::{Gpu, Whole};

/// Raised whenever a message changes; both sides must agree.
pub const VERSION: u32 = 4;

/// The largest message: a cubin and its launches.
pub const MAX_MESSAGE: usize = 64 << 20;

/// The largest piece of a raw transfer.
pub const MAX_CHUNK: usize = 4 << 20;

/// Bytes in front of every payload.
pub const HEADER: usize = 5;

const MESSAGE: u8 = b'M';
const RAW: u8 = b'B';

/// What the parent asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// First on the stream, and never changed in shape: [`VERSION`], so that old and new say so plainly.
    Hello {
        /// [`VERSION`] of the sender.
        version: u32,
        /// Which GPU of this host, as the driver counts.
        ordinal: u32,
        /// Drop what the worker does not need, once the context stands.
        sandbox: bool,
    },
    /// What digests are keyed with, right after the greeting; there is no reply. All workers of a parent have
    /// the same: what ran on one is compared with what ran on another.
    Key {
        /// No kernel may know it.
        secret: u64,
    },
    /// Keep `bytes` bytes on the device under a number; they follow as raw frames.
    Upload {
        /// Chosen by the parent.
        slot: u64,
        /// How many.
        bytes: u64,
    },
    /// Forget a slot.
    Discard {
        /// Which.
        slot: u64,
    },
    /// Load, launch once, check, hand back what was written.
    Execute(Box<Call>),
    /// Load one or two calls and make ready to time them; only [`Request::Sample`] and
    /// [`Request::Finish`] may follow.
    Prepare {
        /// The calls, told apart by their index from now on.
        calls: Vec<Call>,
        /// How to set up the replays.
        replay: Replay,
    },
    /// Time one replay for each entry: the index of the call to replay.
    Sample {
        /// In order.
        order: Vec<u8>,
    },
    /// Check the outputs of the timed calls and unload them.
    Finish,
    /// Ask cuBLASLt for its best algorithms of a product, the one it would take first.
    Algorithms {
        /// What is computed.
        product: Product,
        /// How many at most.
        most: u32,
    },
    /// Compile CUDA C to PTX.
    Compile {
        /// The text.
        source: String,
        /// As on NVRTC's command line.
        options: Vec<String>,
    },
    /// End.
    Shutdown,
}

/// What the worker answers. Exactly one answer ends a request; [`Reply::Stage`] may come before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// To [`Request::Hello`].
    Ready(Box<Ready>),
    /// The worker speaks another version.
    OtherVersion {
        /// Its version.
        version: u32,
    },
    /// What the worker does next; the parent's clock for that stage starts here.
    Stage(Stage),
    /// To uploads and discards.
    Done,
    /// To [`Request::Execute`]; the outputs follow as raw frames, in order.
    Executed {
        /// Name and size of what follows of each writable parameter.
        outputs: Vec<(String, u64)>,
        /// What is known of the whole of each sampled one.
        wholes: Vec<Whole>,
        /// Read-only regions that changed and guard zones that were hit, in words.
        violations: Vec<String>,
        /// Slots whose contents a kernel changed; the worker has forgotten them.
        spoiled: Vec<u64>,
    },
    /// To [`Request::Prepare`], per call.
    Prepared(Vec<Prepared>),
    /// To [`Request::Sample`].
    Sampled {
        /// Nanoseconds per call, one per entry asked.
        nanos: Vec<f64>,
        /// SM clock in MHz just before and just after.
        clock_mhz: (f64, f64),
    },
    /// To [`Request::Finish`], per call.
    Finished(Vec<Checked>),
    /// To [`Request::Algorithms`].
    Algorithms {
        /// cuBLASLt's version: 130002.
        version: u64,
        /// In the library's own order.
        algorithms: Vec<Algorithm>,
    },
    /// To [`Request::Compile`]: PTX text, or the compiler's complaint.
    Compiled(Result<String, String>),
    /// A library that was asked for is not here; the worker goes on.
    NoLibrary {
        /// Which, and what to do.
        message: String,
    },
    /// Slots no longer hold what was uploaded, and are forgotten; nothing ran. The worker goes on.
    Overwritten {
        /// Which.
        slots: Vec<u64>,
    },
    /// The driver refuses it before anything ran: a limit. The worker goes on.
    Refused {
        /// Index of the call.
        call: u8,
        /// Which limit, wanted and allowed.
        message: String,
    },
    /// A kernel broke the context. The worker ends after this.
    Faulted {
        /// Index of the call.
        call: u8,
        /// The driver's number: 700.
        code: u32,
        /// The driver's name and sentence.
        message: String,
    },
    /// The rig, not a kernel.
    Failed {
        /// What happened.
        message: String,
    },
}

impl Reply {
    /// Its name, for errors about an answer that does not fit the question.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ready(_) => "Ready",
            Self::OtherVersion { .. } => "OtherVersion",
            Self::Stage(_) => "Stage",
            Self::Done => "Done",
            Self::Executed { .. } => "Executed",
            Self::Prepared(_) => "Prepared",
            Self::Sampled { .. } => "Sampled",
            Self::Finished(_) => "Finished",
            Self::Algorithms { .. } => "Algorithms",
            Self::Compiled(_) => "Compiled",
            Self::NoLibrary { .. } => "NoLibrary",
            Self::Overwritten { .. } => "Overwritten",
            Self::Refused { .. } => "Refused",
            Self::Faulted { .. } => "Faulted",
            Self::Failed { .. } => "Failed",
        }
    }
}

/// A worker that stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// Facts of its GPU.
    pub gpu: Gpu,
    /// Where it is plugged in: `0000:19:00.0`.
    pub pci_bus_id: String,
    /// GPUs of this host.
    pub gpu_count: u32,
    /// CUDA version the driver supports: 13000 for 13.0.
    pub driver: u32,
    /// Free and total device memory, bytes.
    pub memory: (u64, u64),
    /// What the sandbox enforces, in words; empty when off.
    pub enforced: Vec<String>,
    /// What it could not enforce here, in words.
    pub not_enforced: Vec<String>,
}

/// What the worker is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Stage {
    /// Its own work: loading, allocating, copying.
    Housekeeping,
    /// Kernels of a call: the parent's limit for a hang applies.
    Launching {
        /// Index of the call.
        call: u8,
        /// How long the worker expects to wait for them, nanoseconds; 0 where it does not know yet.
        expected_ns: f64,
    },
    /// Reading outputs back.
    Downloading,
}

/// One call: a module, its memory and its launches, everything packed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// A cubin (or PTX text, for the self-test).
    pub image: Vec<u8>,
    /// The task's buffers, then the workspaces.
    pub regions: Vec<Region>,
    /// Tensor maps passed by value.
    pub maps: Vec<Map>,
    /// In order.
    pub launches: Vec<Launch>,
    /// Outputs of which [`Request::Execute`] hands back some elements only.
    pub samples: Vec<Sample>,
    /// A library's product instead of launches: then the image is empty.
    pub product: Option<Planned>,
}

/// Some elements of an output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Which region.
    pub region: u32,
    /// The slot that holds the elements' indices, each a little-endian `u64`.
    pub indices: u64,
    /// How many.
    pub count: u64,
    /// Bytes of an element: 1, 2, 4 or 8.
    pub width: u64,
}

/// A matrix product C = op(A) · op(B), all row-major and dense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Product {
    /// Rows of C.
    pub m: u64,
    /// Columns of C.
    pub n: u64,
    /// Terms of each sum.
    pub k: u64,
    /// A is stored as k × m.
    pub a_transposed: bool,
    /// B is stored as n × k.
    pub b_transposed: bool,
    /// Elements of A and B.
    pub input: crate::source::DType,
    /// Elements of C.
    pub output: crate::source::DType,
    /// float32 inputs may be rounded to tf32.
    pub fast: bool,
}

/// One of cuBLASLt's algorithms for a product, as the library describes it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Algorithm {
    /// The library's own, opaque.
    pub opaque: [u64; 8],
    /// Scratch memory it needs, bytes.
    pub workspace: u64,
    /// Waves of blocks, by the library's estimate.
    pub waves: f32,
}

/// A product, how to do it, and where.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// What.
    pub product: Product,
    /// How.
    pub algorithm: Algorithm,
    /// The regions of A, B and C.
    pub regions: [u32; 3],
    /// The region of scratch memory, if it needs any.
    pub workspace: Option<u32>,
}

/// A piece of device memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Region {
    /// For messages.
    pub name: String,
    /// Size.
    pub bytes: u64,
    /// What it is for.
    pub role: Role,
    /// What it holds before the call.
    pub initial: Initial,
}

/// What a region is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Read only; must be unchanged afterwards.
    Input {
        /// Other rotated sets may hold the same elements in another order.
        shiftable: bool,
    },
    /// Handed back.
    Output,
    /// Scratch memory.
    Workspace {
        /// Cleared before each call, inside the timed region.
        zero: bool,
    },
}

/// What a region holds before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Initial {
    /// Uploaded bytes.
    Slot(u64),
    /// This byte throughout.
    Fill(u8),
}

/// A tensor map over a region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Map {
    /// Which region.
    pub region: u32,
    /// Everything else, as the plan has it.
    pub map: crate::source::TensorMap,
}

/// A kernel launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The entry's name.
    pub entry: String,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads in x, y, z.
    pub block: [u32; 3],
    /// Blocks per cluster; all 1 for none.
    pub cluster: [u32; 3],
    /// Dynamic shared memory, bytes.
    pub smem: u32,
    /// In the order of the `.param` list.
    pub params: Vec<Param>,
}

/// A kernel parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Param {
    /// The address of a region, 64 bits.
    Address(u32),
    /// A tensor map by value, 128 bytes.
    Map(u32),
    /// These bytes: exactly the width of the `.param`.
    Bytes(Vec<u8>),
}

/// How the replays of a timing are set up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replay {
    /// A replay takes at least this, nanoseconds.
    pub target_ns: f64,
    /// Rotated sets hold at least this together, so that each call finds the cache cold; bytes.
    pub rotate_bytes: u64,
    /// Never more sets than this.
    pub max_sets: u32,
}

/// How one call's replays were set up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prepared {
    /// Rotated sets of inputs, outputs and workspaces.
    pub sets: u32,
    /// Calls in one replay.
    pub calls: u32,
    /// Bytes of all sets together.
    pub rotated_bytes: u64,
    /// Nanoseconds per call in the warm-up: rough.
    pub rough_ns: f64,
}

/// What the checks after a timing found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// Outputs of timed calls that are not those of an untimed call on the same inputs, by name.
    pub unsteady: Vec<String>,
    /// Read-only regions that changed and guard zones that were hit, in words.
    pub violations: Vec<String>,
    /// What an unsteady output held that was made from the uploaded inputs: where it is small, or sampled.
    pub left: Vec<Left>,
    /// Nanoseconds per call of each graph on inputs that no timed call saw.
    pub nanos: Vec<f64>,
}

/// What a timed call left in an output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Its name.
    pub output: String,
    /// All of it, or the elements that are sampled.
    pub bytes: Vec<u8>,
}

/// A frame that was read.
#[derive(Debug)]
pub enum Frame<M> {
    /// A message.
    Message(M),
    /// Part of a raw transfer.
    Raw(Vec<u8>),
}

/// The stream broke, or what came is no frame of ours.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// The other side closed the stream between frames.
    #[error("the stream ended")]
    Ended,
    /// The other side closed the stream inside a frame.
    #[error("the stream ended inside a frame: {got} of {wanted} bytes came")]
    Half {
        /// Bytes that came.
        got: usize,
        /// Bytes that were announced.
        wanted: usize,
    },
    /// The tag byte is neither kind.
    #[error("not a frame: tag byte {0:#04x}")]
    Tag(u8),
    /// A length beyond the limit of its kind.
    #[error("a frame of {length} bytes is announced; at most {limit} are allowed")]
    TooLong {
        /// Announced.
        length: usize,
        /// Allowed.
        limit: usize,
    },
    /// A message that does not decode.
    #[error("a message of {length} bytes does not decode: {reason}")]
    Undecodable {
        /// Its length.
        length: usize,
        /// postcard's word.
        reason: String,
    },
    /// A message that does not encode, or is too long.
    #[error("a message cannot be sent: {0}")]
    Unencodable(String),
    /// A frame of the other kind, a wrong amount of raw bytes, or an answer to another question.
    #[error("{0}")]
    Unexpected(String),
    /// The system's word.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A message as a frame.
pub fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, ProtocolError> {
    let mut out = vec![MESSAGE, 0, 0, 0, 0];
    out =
        postcard::to_extend(message, out).map_err(|e| ProtocolError::Unencodable(e.to_string()))?;
    let length = out.len() - HEADER;
    if length > MAX_MESSAGE {
        return Err(ProtocolError::TooLong {
            length,
            limit: MAX_MESSAGE,
        });
    }
    out[1..HEADER].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(out)
}

/// The header of a raw frame of `length` bytes, at most [`MAX_CHUNK`].
pub fn raw_header(length: usize) -> Result<[u8; HEADER], ProtocolError> {
    if length > MAX_CHUNK {
        return Err(ProtocolError::TooLong {
            length,
            limit: MAX_CHUNK,
        });
    }
    let [a, b, c, d] = (length as u32).to_le_bytes();
    Ok([RAW, a, b, c, d])
}

/// What a header announces: whether a message, and how long.
pub fn parse_header(header: [u8; HEADER]) -> Result<(bool, usize), ProtocolError> {
    let [tag, a, b, c, d] = header;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    let (message, limit) = match tag {
        MESSAGE => (true, MAX_MESSAGE),
        RAW => (false, MAX_CHUNK),
        other => return Err(ProtocolError::Tag(other)),
    };
    if length > limit {
        return Err(ProtocolError::TooLong { length, limit });
    }
    Ok((message, length))
}

/// A message's payload, decoded; all of it must be used.
pub fn decode<M: DeserializeOwned>(payload: &[u8]) -> Result<M, ProtocolError> {
    let undecodable = |reason: String| ProtocolError::Undecodable {
        length: payload.len(),
        reason,
    };
    let (message, rest) =
        postcard::take_from_bytes(payload).map_err(|e| undecodable(e.to_string()))?;
    if !rest.is_empty() {
        return Err(undecodable(format!("{} bytes too many", rest.len())));
    }
    Ok(message)
}

/// Writes one message.
pub fn write_message<M: Serialize>(
    stream: &mut impl Write,
    message: &M,
) -> Result<(), ProtocolError> {
    stream.write_all(&encode(message)?)?;
    stream.flush()?;
    Ok(())
}

/// Writes raw bytes, in as many frames as they need.
pub fn write_raw(stream: &mut impl Write, bytes: &[u8]) -> Result<(), ProtocolError> {
    for chunk in bytes.chunks(MAX_CHUNK) {
        stream.write_all(&raw_header(chunk.len())?)?;
        stream.write_all(chunk)?;
    }
    stream.flush()?;
    Ok(())
}

/// Reads one frame. Memory grows with what really came, never with what a header announced.
pub fn read_frame<M: DeserializeOwned>(stream: &mut impl Read) -> Result<Frame<M>, ProtocolError> {
    let mut header = [0; HEADER];
    let mut filled = 0;
    while filled < HEADER {
        match stream.read(&mut header[filled..]) {
            Ok(0) if filled == 0 => return Err(ProtocolError::Ended),
            Ok(0) => {
                return Err(ProtocolError::Half {
                    got: filled,
                    wanted: HEADER,
                });
            }
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    let (message, length) = parse_header(header)?;
    let mut payload = Vec::new();
    stream
        .by_ref()
        .take(length as u64)
        .read_to_end(&mut payload)?;
    if payload.len() < length {
        return Err(ProtocolError::Half {
            got: payload.len(),
            wanted: length,
        });
    }
    if message {
        Ok(Frame::Message(decode(&payload)?))
    } else {
        Ok(Frame::Raw(payload))
    }
}
