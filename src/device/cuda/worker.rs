//! The worker process: owns one GPU's context and does what its parent asks over stdio, one request at a
//! time. It keeps no file, opens no connection and never sees an expected output. When its parent goes
//! away it ends at once, whatever the GPU does.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::driver::{Context, compile, driver_version};
use super::engine::{Engine, Trouble};
use super::protocol::{self, Call, Frame, MAX_CHUNK, ProtocolError, Ready, Reply, Request, Stage};
use super::sandbox;
use super::session::Session;
use crate::device::panic_text;

/// Frames read ahead.
const QUEUE: usize = 4;

/// Runs until the parent says so or goes away. This is the whole of `warptree worker`.
pub fn main() -> ExitCode {
    let mut out = match private_stdout() {
        Ok(out) => out,
        Err(e) => {
            eprintln!("warptree worker: stdout: {e}");
            return ExitCode::FAILURE;
        }
    };
    let served = catch_unwind(AssertUnwindSafe(|| serve(&mut out)));
    match served {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(e)) => {
            eprintln!("warptree worker: {e}");
            ExitCode::FAILURE
        }
        Err(panic) => {
            let message = format!("the worker broke down: {}", panic_text(panic.as_ref()));
            eprintln!("warptree worker: {message}");
            // the parent may be gone; nothing more can be said then
            let _ = protocol::write_message(&mut out, &Reply::Failed { message });
            ExitCode::FAILURE
        }
    }
}

/// The stream to the parent. Whatever else writes to stdout (a kernel's `vprintf`, a library) goes to
/// stderr from now on, so that it cannot forge a frame.
fn private_stdout() -> io::Result<File> {
    let private = rustix::io::dup(io::stdout())?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok(File::from(private))
}

fn serve(out: &mut File) -> Result<(), ProtocolError> {
    let Frame::Message(hello) = protocol::read_frame::<Request>(&mut io::stdin().lock())? else {
        return Err(ProtocolError::Unexpected(
            "raw bytes before Hello".to_owned(),
        ));
    };
    let Request::Hello {
        version,
        ordinal,
        sandbox,
    } = hello
    else {
        return Err(ProtocolError::Unexpected(
            "the first request must be Hello".to_owned(),
        ));
    };
    if version != protocol::VERSION {
        let version = protocol::VERSION;
        return protocol::write_message(out, &Reply::OtherVersion { version });
    }
    let (engine, ready) = match open(ordinal, sandbox) {
        Ok(opened) => opened,
        Err(message) => return protocol::write_message(out, &Reply::Failed { message }),
    };
    protocol::write_message(out, &Reply::Ready(Box::new(ready)))?;
    let (sender, frames) = sync_channel(QUEUE);
    std::thread::Builder::new()
        .name("requests".to_owned())
        .spawn(move || read_requests(&sender))?;
    Worker {
        out,
        frames,
        engine,
        session: None,
    }
    .run()
}

fn open(ordinal: u32, sandbox: bool) -> Result<(Engine, Ready), String> {
    let cuda = Context::open(ordinal)?;
    let gpu = cuda.gpu().map_err(|e| e.to_string())?;
    let seed = RandomState::new().hash_one(std::process::id());
    let engine = Engine::new(cuda, gpu.sm_count, seed)?;
    let told = if sandbox {
        sandbox::enforce()
    } else {
        sandbox::Enforced::default()
    };
    // once more inside the sandbox: launches must still work there
    engine
        .clock_mhz()
        .map_err(|e| format!("a launch inside the sandbox failed: {e}"))?;
    let ready = Ready {
        gpu,
        pci_bus_id: engine.cuda.pci_bus_id().map_err(|e| e.to_string())?,
        gpu_count: engine.cuda.gpu_count(),
        driver: driver_version().map_err(|e| e.to_string())?,
        memory: engine.cuda.memory().map_err(|e| e.to_string())?,
        enforced: told.enforced,
        not_enforced: told.missing,
    };
    Ok((engine, ready))
}

/// Reads ahead, and ends the process when the parent closes its side: a hung kernel would keep the main
/// thread from seeing it.
fn read_requests(sender: &SyncSender<Result<Frame<Request>, ProtocolError>>) {
    let mut stdin = io::stdin().lock();
    loop {
        let frame = protocol::read_frame::<Request>(&mut stdin);
        if matches!(frame, Err(ProtocolError::Ended)) {
            let this = rustix::process::getpid();
            // it cannot fail for our own process; if it did, the main thread would end by itself
            let _ = rustix::process::kill_process(this, rustix::process::Signal::KILL);
            return;
        }
        let last = frame.is_err() || matches!(frame, Ok(Frame::Message(Request::Shutdown)));
        if sender.send(frame).is_err() || last {
            return;
        }
    }
}

struct Worker<'a> {
    out: &'a mut File,
    frames: Receiver<Result<Frame<Request>, ProtocolError>>,
    engine: Engine,
    session: Option<Session>,
}

/// Whether the context still stands.
enum After {
    GoOn,
    Retire,
}

impl Worker<'_> {
    fn run(mut self) -> Result<(), ProtocolError> {
        loop {
            let request = match self.next()? {
                Frame::Message(Request::Shutdown) => return Ok(()),
                Frame::Message(request) => request,
                Frame::Raw(_) => {
                    return Err(ProtocolError::Unexpected(
                        "raw bytes that no request announced".to_owned(),
                    ));
                }
            };
            if matches!(self.answer(request)?, After::Retire) {
                return Ok(());
            }
        }
    }

    fn next(&mut self) -> Result<Frame<Request>, ProtocolError> {
        self.frames.recv().map_err(|_| ProtocolError::Ended)?
    }

    fn answer(&mut self, request: Request) -> Result<After, ProtocolError> {
        let done = match request {
            Request::Upload { slot, bytes } => self.upload(slot, bytes)?,
            Request::Discard { slot } => {
                self.engine.discard(slot);
                Ok(Reply::Done)
            }
            Request::Execute(call) => return self.execute(&call),
            Request::Prepare { calls, replay } => self.prepare(calls, replay),
            Request::Sample { order } => self.sample(&order),
            Request::Finish => self.finish(),
            Request::Algorithms { product, most } => {
                self.engine
                    .algorithms(&product, most)
                    .map(|(version, algorithms)| Reply::Algorithms {
                        version,
                        algorithms,
                    })
            }
            Request::Compile { source, options } => compile(&source, &options)
                .map(Reply::Compiled)
                .map_err(Trouble::NoLibrary),
            Request::Key { secret } => {
                self.engine.key(secret);
                return Ok(After::GoOn);
            }
            Request::Hello { .. } | Request::Shutdown => Err(Trouble::Failed(
                "a greeting in the middle of the conversation".to_owned(),
            )),
        };
        self.reply(done)
    }

    fn reply(&mut self, done: Result<Reply, Trouble>) -> Result<After, ProtocolError> {
        let mut after = After::GoOn;
        let reply = match done {
            Ok(reply) => reply,
            Err(Trouble::Refused { call, message }) => Reply::Refused { call, message },
            Err(Trouble::Faulted { call, error }) => {
                after = After::Retire;
                Reply::Faulted {
                    call,
                    code: error.code,
                    message: error.to_string(),
                }
            }
            Err(Trouble::NoLibrary(message)) => Reply::NoLibrary { message },
            Err(Trouble::Overwritten(slots)) => {
                for slot in &slots {
                    self.engine.discard(*slot);
                }
                Reply::Overwritten { slots }
            }
            Err(Trouble::Failed(message)) => Reply::Failed { message },
        };
        protocol::write_message(self.out, &reply)?;
        Ok(after)
    }

    /// Takes all announced bytes off the stream even when the device has no room for them.
    fn upload(&mut self, slot: u64, bytes: u64) -> Result<Result<Reply, Trouble>, ProtocolError> {
        let mut done = self.engine.open_slot(slot, bytes);
        let mut offset = 0;
        while offset < bytes {
            let Frame::Raw(chunk) = self.next()? else {
                return Err(ProtocolError::Unexpected(
                    "a message in the middle of an upload".to_owned(),
                ));
            };
            if chunk.is_empty() || chunk.len() as u64 > bytes - offset {
                return Err(ProtocolError::Unexpected(format!(
                    "a piece of {} bytes where {} are missing",
                    chunk.len(),
                    bytes - offset
                )));
            }
            if done.is_ok() {
                done = self.engine.fill_slot(slot, offset, &chunk);
            }
            offset += chunk.len() as u64;
        }
        let done = done.and_then(|()| self.engine.seal_slot(slot));
        if done.is_err() {
            self.engine.discard(slot);
        }
        Ok(done.map(|()| Reply::Done))
    }

    fn execute(&mut self, call: &Call) -> Result<After, ProtocolError> {
        if self.session.is_some() {
            return self.reply(Err(busy()));
        }
        let out = &mut *self.out;
        let ran = match self.engine.execute(call, &mut |stage| announce(out, stage)) {
            Ok(ran) => ran,
            Err(trouble) => return self.reply(Err(trouble)),
        };
        announce_or_end(self.out, Stage::Downloading)?;
        let picked = match self.engine.pick(call, &ran.held) {
            Ok(picked) => picked,
            Err(trouble) => {
                self.engine.finish(ran);
                return self.reply(Err(trouble));
            }
        };
        let outputs: Vec<_> = call
            .regions
            .iter()
            .zip(&picked.sources)
            .filter_map(|(region, source)| Some((region.name.clone(), (*source)?.1)))
            .collect();
        let reply = Reply::Executed {
            outputs,
            wholes: picked.wholes,
            violations: ran.violations.clone(),
            spoiled: ran.spoiled.clone(),
        };
        protocol::write_message(self.out, &reply)?;
        let mut chunk = vec![0; MAX_CHUNK];
        for (address, bytes) in picked.sources.into_iter().flatten() {
            let mut offset = 0;
            while offset < bytes {
                let length = (bytes - offset).min(MAX_CHUNK as u64);
                let piece = &mut chunk[..length as usize];
                // the answer has begun: only the end of the stream can tell the parent now
                self.engine
                    .cuda
                    .download(address.offset(offset), piece)
                    .map_err(|e| ProtocolError::Unexpected(e.to_string()))?;
                protocol::write_raw(self.out, piece)?;
                offset += length;
            }
        }
        self.engine.give_back(picked.regions);
        self.engine.finish(ran);
        Ok(After::GoOn)
    }

    fn prepare(&mut self, calls: Vec<Call>, replay: protocol::Replay) -> Result<Reply, Trouble> {
        if self.session.is_some() {
            return Err(busy());
        }
        let out = &mut *self.out;
        let session = Session::new(&mut self.engine, calls, replay, &mut |stage| {
            announce(out, stage)
        })?;
        let prepared = session.prepared();
        self.session = Some(session);
        Ok(Reply::Prepared(prepared))
    }

    fn sample(&mut self, order: &[u8]) -> Result<Reply, Trouble> {
        let session = self.session.as_mut().ok_or_else(idle)?;
        let (nanos, clock_mhz) = session.sample(&self.engine, order)?;
        Ok(Reply::Sampled { nanos, clock_mhz })
    }

    fn finish(&mut self) -> Result<Reply, Trouble> {
        let mut session = self.session.take().ok_or_else(idle)?;
        let out = &mut *self.out;
        let checked = session.check(&mut self.engine, &mut |stage| announce(out, stage))?;
        session.release(&mut self.engine);
        Ok(Reply::Finished(checked))
    }
}

fn busy() -> Trouble {
    Trouble::Failed("a timing is under way".to_owned())
}

fn idle() -> Trouble {
    Trouble::Failed("no timing is under way".to_owned())
}

fn announce(out: &mut File, stage: Stage) -> Result<(), Trouble> {
    announce_or_end(out, stage).map_err(|e| Trouble::Failed(e.to_string()))
}

fn announce_or_end(out: &mut File, stage: Stage) -> Result<(), ProtocolError> {
    protocol::write_message(out, &Reply::Stage(stage))
}
