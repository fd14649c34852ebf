//! One conversation with a standing worker: upload what it lacks, ask, wait stage by stage. Every way an
//! answer can fail to come is told apart: the call's own doing, the worker's death, the rig.

use std::sync::Arc;
use std::time::Duration;

use super::cache::Cache;
use super::link::{Deadline, Link, LinkError};
use super::protocol::{Call, MAX_CHUNK, Reply, Request, Stage};
use super::{Options, Stop, Stopped, Subject, diagnostic, pack};
use crate::device::{Buffer, Contents, Ended, Execution, Generator};
use crate::source::DType;
use crate::units::Bytes;
use crate::verdict::Diagnostic;

/// A standing worker, and what it holds.
pub(super) struct Conversation<'a> {
    pub(super) link: &'a mut Link,
    pub(super) cache: &'a mut Cache,
    pub(super) options: &'a Options,
}

impl Conversation<'_> {
    /// Uploads what is missing and packs the jobs.
    pub(super) fn pack(&mut self, jobs: &[Subject<'_>]) -> Result<Vec<Call>, Stop> {
        // one supply for all, so that no job's inputs make room for another's
        let buffers: Vec<Buffer> = jobs.iter().flat_map(supplied).collect();
        let supply = self.cache.supply(&buffers).map_err(Stop::Rig)?;
        for slot in supply.discards {
            self.ask(&Request::Discard { slot })?;
        }
        for (slot, index) in supply.uploads {
            self.upload(slot, &buffers[index])?;
        }
        let mut initial = supply.initial.as_slice();
        let mut calls = Vec::with_capacity(jobs.len());
        for (index, job) in (0u8..).zip(jobs) {
            let (own, rest) = initial.split_at(job.buffers().len() + job.sampled().len());
            initial = rest;
            let packed = match job {
                Subject::Kernel(job) => {
                    let cubin = job.cubin.ok_or_else(|| {
                        Stop::Rig(
                            "a GPU runs cubins, and this candidate was not assembled".to_owned(),
                        )
                    })?;
                    pack::pack(job, cubin, own)
                }
                Subject::Product(job) => pack::pack_product(job, own),
            };
            calls.push(packed.map_err(|message| Stop::Call(index, Stopped::Refused(message)))?);
        }
        Ok(calls)
    }

    fn upload(&mut self, slot: u64, buffer: &Buffer) -> Result<(), Stop> {
        let bytes = buffer.bytes.0;
        self.send(&Request::Upload { slot, bytes })?;
        match &buffer.contents {
            Contents::Fill(_) => {}
            Contents::Bytes(contents) => {
                for piece in contents.chunks(MAX_CHUNK) {
                    self.send_piece(piece)?;
                }
            }
            Contents::Generated(generator) => self.upload_generated(generator, bytes)?,
        }
        match self.answer(None)? {
            Reply::Done => Ok(()),
            other => Err(unexpected("Upload", &other)),
        }
    }

    /// Generates pieces on a few threads while earlier ones are sent. Plain threads: a pool that steals
    /// work could come back here for this very device.
    fn upload_generated(&mut self, generator: &Generator, bytes: u64) -> Result<(), Stop> {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get().min(8));
        let window = (threads * MAX_CHUNK) as u64;
        let mut start = 0;
        while start < bytes {
            let length = window.min(bytes - start) as usize;
            let mut block = vec![0; length];
            std::thread::scope(|scope| {
                for (i, piece) in block.chunks_mut(MAX_CHUNK).enumerate() {
                    let at = start + (i * MAX_CHUNK) as u64;
                    scope.spawn(move || generator(at, piece));
                }
            });
            for piece in block.chunks(MAX_CHUNK) {
                self.send_piece(piece)?;
            }
            start += length as u64;
        }
        Ok(())
    }

    pub(super) fn execute(&mut self, call: Call) -> Result<Execution, Stop> {
        self.send(&Request::Execute(Box::new(call)))?;
        let (names, wholes, violations, spoiled) = match self.answer(None)? {
            Reply::Executed {
                outputs,
                wholes,
                violations,
                spoiled,
            } => (outputs, wholes, violations, spoiled),
            other => return Err(unexpected("Execute", &other)),
        };
        let mut outputs = Vec::with_capacity(names.len());
        for (name, bytes) in names {
            let contents = self
                .link
                .receive_raw(bytes, self.options.transfer)
                .map_err(|e| died(None, e))?;
            outputs.push((name, contents));
        }
        for slot in spoiled {
            self.cache.forget(slot);
        }
        Ok(Execution {
            ended: Ended::Completed,
            outputs,
            wholes,
            violations,
            races: Vec::new(),
            findings: Vec::new(),
            flops: None,
            executed: None,
        })
    }

    /// Asks and waits for the answer.
    pub(super) fn ask(&mut self, request: &Request) -> Result<Reply, Stop> {
        self.send(request)?;
        self.answer(None)
    }

    pub(super) fn send(&mut self, request: &Request) -> Result<(), Stop> {
        let deadline = Deadline::after(self.options.transfer);
        self.link.send(request, deadline).map_err(|e| died(None, e))
    }

    fn send_piece(&mut self, piece: &[u8]) -> Result<(), Stop> {
        let deadline = Deadline::after(self.options.transfer);
        self.link
            .send_raw(piece, deadline)
            .map_err(|e| died(None, e))
    }

    /// Waits for the answer, stage by stage. `expected`: kernels run from the start, for so long by an
    /// estimate; a time-out is then a hang of the call named.
    pub(super) fn answer(&mut self, expected: Option<(u8, Duration)>) -> Result<Reply, Stop> {
        let (mut launching, mut allowed) = match expected {
            Some((call, estimate)) => (Some(call), self.options.launch + estimate),
            None => (None, self.options.housekeeping),
        };
        loop {
            match self.link.receive(Deadline::after(allowed)) {
                Ok(Reply::Stage(Stage::Housekeeping | Stage::Downloading)) => {
                    launching = None;
                    allowed = self.options.housekeeping;
                }
                Ok(Reply::Stage(Stage::Launching { call, expected_ns })) => {
                    launching = Some(call);
                    allowed = self.options.launch + slack(expected_ns);
                }
                Ok(Reply::Overwritten { slots }) => {
                    for slot in slots {
                        self.cache.forget(slot);
                    }
                    return Err(Stop::Overwritten);
                }
                Ok(Reply::Refused { call, message }) => {
                    return Err(Stop::Call(call, Stopped::Refused(message)));
                }
                Ok(Reply::Faulted {
                    call,
                    code,
                    message,
                }) => {
                    let fault = diagnostic(&format!("cuda-{code}"), message, fault_help(code));
                    return Err(Stop::Call(call, Stopped::Faulted(vec![fault])));
                }
                Ok(Reply::NoLibrary { message }) => {
                    return Err(Stop::Call(0, Stopped::Refused(message)));
                }
                Ok(Reply::Failed { message }) => {
                    return Err(Stop::Rig(format!("{message}{}", self.link.last_words())));
                }
                Ok(reply) => return Ok(reply),
                Err(LinkError::TimedOut(after)) => {
                    return Err(match launching {
                        Some(call) => Stop::Call(call, Stopped::Hung(vec![hang(after)])),
                        None => Stop::Rig(format!(
                            "the worker did nothing for {} s{}",
                            after.as_secs(),
                            self.link.last_words()
                        )),
                    });
                }
                Err(e) => return Err(died(launching, e)),
            }
        }
    }
}

/// All that a job needs on the device: its buffers, then the indices of its sampled outputs.
fn supplied(job: &Subject<'_>) -> Vec<Buffer> {
    let indices = job.sampled().iter().map(|sampled| Buffer {
        name: format!("indices into {}", sampled.output),
        dtype: DType::U64,
        bytes: Bytes(sampled.elements.len() as u64),
        writable: false,
        contents: Contents::Bytes(Arc::clone(&sampled.elements)),
    });
    job.buffers().iter().cloned().chain(indices).collect()
}

/// Ten times what is expected: clocks change, neighbours come.
pub(super) fn slack(expected_ns: f64) -> Duration {
    let ns = expected_ns * 10.0;
    if ns.is_finite() && ns > 0.0 {
        Duration::from_nanos(ns.min(3600e9) as u64)
    } else {
        Duration::ZERO
    }
}

fn died(launching: Option<u8>, error: LinkError) -> Stop {
    match error {
        LinkError::Ended { .. } => Stop::Died(launching, error),
        LinkError::TimedOut(_) | LinkError::Broken { .. } => Stop::Rig(error.to_string()),
    }
}

pub(super) fn unexpected(asked: &str, reply: &Reply) -> Stop {
    Stop::Rig(format!("the worker answers {asked} with {}", reply.name()))
}

fn hang(after: Duration) -> Diagnostic {
    diagnostic(
        "hung",
        format!(
            "the launches did not end within {:.1} s; the process was killed",
            after.as_secs_f64()
        ),
        Some(
            "look for a loop whose exit is never reached, a barrier that not all threads meet, or an \
             mbarrier whose expected bytes or arrivals never come"
                .to_owned(),
        ),
    )
}

fn fault_help(code: u32) -> Option<String> {
    let help = match code {
        700 => {
            "an address outside every allocation: check index arithmetic, bounds and address spaces; \
             the simulator (--device sim) names the line"
        }
        714 => "the call stack is broken: recursion or a wrong call",
        715 => {
            "an instruction the hardware refuses: often a wgmma or setmaxnreg reached by only part of \
             its warpgroup"
        }
        716 => {
            "an address that is not a multiple of the access size: vector accesses need 8 or 16 bytes, \
             TMA destinations 128"
        }
        717 => "an instruction for one state space was given an address of another",
        718 => "the program counter is wrong: an indirect branch or call with a bad target",
        719 => "a trap or brkpt was reached, or the launch failed in hardware",
        _ => return None,
    };
    Some(help.to_owned())
}
