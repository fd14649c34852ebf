//! The parent's end of a worker process: spawns it in a group of its own, moves frames within a deadline,
//! keeps the tail of its stderr, and ends it for certain. It knows frames, not what they mean for a job.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::protocol::{
    self, Frame, HEADER, MAX_CHUNK, ProtocolError, Reply, Request, encode, parse_header, raw_header,
};

/// Bytes of stderr that an error carries.
const TAIL: usize = 4096;

/// Read at once from a pipe.
const PIECE: usize = 1 << 18;

/// How long a killed worker may take to be reaped before that is left to a thread: the driver tears its
/// context down first.
const REAP: Duration = Duration::from_secs(3);

/// How long to wait for a worker's last words and exit code once it closed its stdout.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How to start a worker.
#[derive(Clone, Debug)]
pub struct WorkerCommand {
    /// This program, in the product.
    pub program: OsString,
    /// `worker`, or `replay-calls` where a tool watches.
    pub arguments: Vec<OsString>,
}

impl WorkerCommand {
    /// This very program with the argument `worker`.
    pub fn current() -> io::Result<Self> {
        Self::this_program("worker")
    }

    /// This very program with the argument `replay-calls`: what a profiler or a memory checker runs.
    pub fn replaying() -> io::Result<Self> {
        Self::this_program("replay-calls")
    }

    fn this_program(argument: &str) -> io::Result<Self> {
        Ok(Self {
            program: std::env::current_exe()?.into_os_string(),
            arguments: vec![argument.into()],
        })
    }
}

/// The conversation failed.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The deadline passed; the worker is still there.
    #[error("no answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The worker closed its side or died.
    #[error("the worker ended ({status}){tail}")]
    Ended {
        /// How, in words.
        status: String,
        /// Its last words, with a line break in front; empty for none.
        tail: String,
    },
    /// What it sent is no frame of ours, or the stream broke.
    #[error("{error}{tail}")]
    Broken {
        /// What came.
        error: ProtocolError,
        /// Its last words, with a line break in front; empty for none.
        tail: String,
    },
}

/// One of the pipes.
enum Place {
    Stdin,
    Stdout,
    Stderr,
}

/// A worker process and the pipes to it.
pub struct Link {
    /// `None` once reaped, or left to a thread to reap.
    child: Option<Child>,
    pid: u32,
    stdin: ChildStdin,
    stdout: ChildStdout,
    stderr: Option<ChildStderr>,
    inbox: Vec<u8>,
    tail: VecDeque<u8>,
    /// It closed its stdin: what is sent is lost. What it said before may still be on its way.
    deaf: bool,
    /// It closed its stdout: after the inbox nothing comes.
    mute: bool,
}

impl Link {
    /// Starts a worker.
    pub fn spawn(command: &WorkerCommand) -> io::Result<Self> {
        let mut child = Command::new(&command.program)
            .args(&command.arguments)
            // the driver's own cache of compiled PTX: not needed, and the sandbox forbids to write it
            .env("CUDA_CACHE_DISABLE", "1")
            // it would change what float32 means in a library's product
            .env_remove("NVIDIA_TF32_OVERRIDE")
            .env("LD_LIBRARY_PATH", library_path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("the worker has no pipes"));
        };
        let link = Self {
            pid: child.id(),
            child: Some(child),
            stdin,
            stdout,
            stderr: Some(stderr),
            inbox: Vec::new(),
            tail: VecDeque::new(),
            deaf: false,
            mute: false,
        };
        nonblocking(&link.stdin)?;
        nonblocking(&link.stdout)?;
        if let Some(stderr) = &link.stderr {
            nonblocking(stderr)?;
        }
        Ok(link)
    }

    /// The worker's process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a request.
    pub fn send(&mut self, request: &Request, deadline: Deadline) -> Result<(), LinkError> {
        let frame = encode(request).map_err(|error| self.broken(error))?;
        self.write(&frame, deadline)
    }

    /// Sends a piece of an upload, at most [`MAX_CHUNK`] bytes.
    pub fn send_raw(&mut self, bytes: &[u8], deadline: Deadline) -> Result<(), LinkError> {
        let header = raw_header(bytes.len()).map_err(|error| self.broken(error))?;
        self.write(&header, deadline)?;
        self.write(bytes, deadline)
    }

    /// Receives a message.
    pub fn receive(&mut self, deadline: Deadline) -> Result<Reply, LinkError> {
        match self.frame(deadline)? {
            Frame::Message(reply) => Ok(reply),
            Frame::Raw(bytes) => Err(self.broken(ProtocolError::Unexpected(format!(
                "{} raw bytes where an answer was due",
                bytes.len()
            )))),
        }
    }

    /// Receives `bytes` raw bytes, each piece within `piece`.
    pub fn receive_raw(&mut self, bytes: u64, piece: Duration) -> Result<Vec<u8>, LinkError> {
        let mut all = Vec::new();
        while (all.len() as u64) < bytes {
            let missing = bytes - all.len() as u64;
            match self.frame(Deadline::after(piece))? {
                Frame::Raw(chunk) if !chunk.is_empty() && chunk.len() as u64 <= missing => {
                    all.extend_from_slice(&chunk);
                }
                Frame::Raw(chunk) => {
                    return Err(self.broken(ProtocolError::Unexpected(format!(
                        "{} raw bytes where {missing} are missing",
                        chunk.len()
                    ))));
                }
                Frame::Message(reply) => {
                    return Err(self.broken(ProtocolError::Unexpected(format!(
                        "{} in the middle of an output",
                        reply.name()
                    ))));
                }
            }
        }
        Ok(all)
    }

    /// Ends the worker and everything it started, now.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        // the group's number is ours while its leader is not reaped
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let until = Instant::now() + REAP;
        loop {
            match child.try_wait() {
                Ok(Some(_)) | Err(_) => return,
                Ok(None) if Instant::now() >= until => break,
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
        std::thread::spawn(move || child.wait());
    }

    /// Asks the worker to end, and sees to it.
    pub fn shut_down(mut self) {
        let deadline = Deadline::after(LAST_WORDS);
        if self.send(&Request::Shutdown, deadline).is_ok() {
            // all it can still say is that it ends
            let _ = self.frame(deadline);
        }
        self.kill();
    }

    fn frame(&mut self, deadline: Deadline) -> Result<Frame<Reply>, LinkError> {
        loop {
            if let Some(header) = self.inbox.first_chunk::<HEADER>() {
                let (message, length) =
                    parse_header(*header).map_err(|error| self.broken(error))?;
                if self.inbox.len() >= HEADER + length {
                    let rest = self.inbox.split_off(HEADER + length);
                    let mut frame = std::mem::replace(&mut self.inbox, rest);
                    frame.drain(..HEADER);
                    return if message {
                        protocol::decode(&frame)
                            .map(Frame::Message)
                            .map_err(|error| self.broken(error))
                    } else {
                        Ok(Frame::Raw(frame))
                    };
                }
            }
            if self.mute {
                return Err(self.ended());
            }
            self.pump(&mut &[][..], deadline)?;
        }
    }

    fn write(&mut self, mut bytes: &[u8], deadline: Deadline) -> Result<(), LinkError> {
        while !bytes.is_empty() && !self.deaf {
            self.pump(&mut bytes, deadline)?;
        }
        Ok(())
    }

    /// Waits until something moves, and moves it: a piece of `out` to the worker, of its stdout to the
    /// inbox, of its stderr to the tail.
    fn pump(&mut self, out: &mut &[u8], deadline: Deadline) -> Result<(), LinkError> {
        let left = deadline
            .left()
            .ok_or(LinkError::TimedOut(deadline.allowed))?;
        let writing = !out.is_empty();
        // while it is being written to, a worker says little; more is held back in its pipe
        let reading = !writing || self.inbox.len() < MAX_CHUNK;
        let ready = {
            let mut fds = Vec::with_capacity(3);
            let mut places = Vec::with_capacity(3);
            if writing {
                fds.push(PollFd::new(&self.stdin, PollFlags::OUT));
                places.push(Place::Stdin);
            }
            if reading && !self.mute {
                fds.push(PollFd::new(&self.stdout, PollFlags::IN));
                places.push(Place::Stdout);
            }
            if let Some(stderr) = &self.stderr {
                fds.push(PollFd::new(stderr, PollFlags::IN));
                places.push(Place::Stderr);
            }
            let timeout = Timespec {
                tv_sec: left.as_secs().min(i32::MAX as u64) as i64,
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(&mut fds, Some(&timeout)) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => return Ok(()),
                Err(e) => return Err(self.broken(io::Error::from(e).into())),
            }
            fds.iter()
                .zip(places)
                .filter(|(fd, _)| !fd.revents().is_empty())
                .map(|(_, place)| place)
                .collect::<Vec<_>>()
        };
        for place in ready {
            match place {
                Place::Stderr => self.read_stderr(),
                Place::Stdout => {
                    let mut piece = vec![0; PIECE];
                    match self.stdout.read(&mut piece) {
                        Ok(0) => self.mute = true,
                        Ok(n) => self.inbox.extend_from_slice(&piece[..n]),
                        Err(e) if retry(&e) => {}
                        Err(e) => return Err(self.broken(e.into())),
                    }
                }
                Place::Stdin => match self.stdin.write(out) {
                    Ok(n) => *out = &out[n..],
                    Err(e) if retry(&e) => {}
                    Err(e) if e.kind() == io::ErrorKind::BrokenPipe => self.deaf = true,
                    Err(e) => return Err(self.broken(e.into())),
                },
            }
        }
        Ok(())
    }

    /// Takes what stderr has, one piece: a flood is dropped piece by piece and never starves the rest.
    fn read_stderr(&mut self) {
        let Some(stderr) = &mut self.stderr else {
            return;
        };
        let mut piece = vec![0; PIECE];
        match stderr.read(&mut piece) {
            Ok(0) => self.stderr = None,
            Ok(n) => {
                self.tail.extend(&piece[n.saturating_sub(TAIL)..n]);
                let excess = self.tail.len().saturating_sub(TAIL);
                self.tail.drain(..excess);
            }
            Err(e) if retry(&e) => {}
            Err(_) => self.stderr = None,
        }
    }

    /// The error for a worker that closed its side: waits a moment for its exit code and last words.
    fn ended(&mut self) -> LinkError {
        let half = (!self.inbox.is_empty()).then_some(self.inbox.len());
        let until = Instant::now() + LAST_WORDS;
        let mut status = None;
        while status.is_none() && Instant::now() < until {
            self.read_stderr();
            status = exit_status(self.pid);
            if status.is_none() {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        self.read_stderr();
        let mut status = status.unwrap_or_else(|| "it closed its stdout but lives on".to_owned());
        if let Some(bytes) = half {
            status.push_str(&format!(", {bytes} bytes into a frame"));
        }
        LinkError::Ended {
            status,
            tail: self.last_words(),
        }
    }

    fn broken(&mut self, error: ProtocolError) -> LinkError {
        self.read_stderr();
        LinkError::Broken {
            error,
            tail: self.last_words(),
        }
    }

    /// The tail of its stderr, with a line break in front; empty for none.
    pub fn last_words(&self) -> String {
        let bytes: Vec<u8> = self.tail.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim();
        if text.is_empty() {
            String::new()
        } else {
            format!("\nits stderr ends:\n{text}")
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A point in time, and how long was allowed until it.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    allowed: Duration,
    at: Instant,
}

impl Deadline {
    /// So long from now.
    pub fn after(allowed: Duration) -> Self {
        Self {
            allowed,
            at: Instant::now() + allowed,
        }
    }

    fn left(self) -> Option<Duration> {
        self.at
            .checked_duration_since(Instant::now())
            .filter(|left| !left.is_zero())
    }
}

/// Where cuBLASLt and NVRTC are looked for: as the user says, then where CUDA installs them.
fn library_path() -> OsString {
    let given = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let homes = ["CUDA_HOME", "CUDA_PATH"]
        .into_iter()
        .filter_map(std::env::var_os)
        .chain(std::iter::once("/usr/local/cuda".into()));
    let installed = homes.map(|home| Path::new(&home).join("lib64"));
    let all: Vec<PathBuf> = std::env::split_paths(&given)
        .filter(|folder| !folder.as_os_str().is_empty())
        .chain(installed)
        .collect();
    // what cannot be joined has a colon in it, and could not be searched either
    std::env::join_paths(all).unwrap_or(given)
}

/// How a child ended, in words; it stays to be reaped, so that its number stays ours.
fn exit_status(pid: u32) -> Option<String> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(pid), options).ok().flatten()?;
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Some(format!("exit code {code}")),
        (None, Some(signal)) => Some(format!("signal {signal}")),
        (None, None) => None,
    }
}

fn nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfl(&fd)?;
    fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
    Ok(())
}

fn retry(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
