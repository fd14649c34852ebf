//! The `cuda` device: a worker process owns the GPU, this side never touches it. A kernel that hangs or
//! breaks its context costs a worker, which is replaced; the candidate gets its verdict and the queue goes
//! on. Calls are one at a time on each GPU.

mod cache;
mod ceilings;
mod conversation;
mod digest;
mod driver;
mod engine;
mod facts;
mod image;
mod library;
mod link;
mod measure;
mod memory;
mod pack;
mod pool;
mod power;
pub mod protocol;
pub mod replay;
mod sandbox;
mod selftest;
mod session;
pub mod timing;
pub mod worker;

pub use ceilings::{Ceilings, Sample, ceilings};
#[cfg(test)]
pub(crate) use driver::compile;
pub use driver::present as driver_present;
pub use library::{Compiled, LibraryError, ProductJob, Subject};
pub use link::WorkerCommand;
use measure::Duty;
pub use measure::{Compared, Comparison, Halt, Replayed, Replays, Side};
pub use pool::CudaPool;
pub use power::PowerCounter;
pub use selftest::selftest;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::cache::Cache;
use self::conversation::Conversation;
use self::link::{Deadline, Link, LinkError};
use self::protocol::{Call, Ready, Reply, Request};
use crate::device::{About, Device, Execution, Gpu, Job, Reserved, RigError, Timing};
use crate::units::{Bytes, Digest};
use crate::verdict::{Diagnostic, Severity};

/// Share of free device memory that uploaded inputs may keep between calls.
const CACHE_SHARE: f64 = 0.4;

/// Share of free device memory that the buffers of an executed job may take: their contents stay beside them.
const EXECUTED_SHARE: f64 = 0.25;

/// Failures of known-good work in a row after which the GPU counts as unhealthy.
const UNHEALTHY_AFTER: u32 = 2;

/// Times a death of the worker is put down to chance before it counts against the candidate.
const RETRIES: u32 = 1;

/// How long things may take.
#[derive(Clone, Debug)]
pub struct Options {
    /// A worker: process, context, its own kernels.
    pub start: Duration,
    /// Loading, allocating, copying on the device.
    pub housekeeping: Duration,
    /// The launches of one call: longer is a hang.
    pub launch: Duration,
    /// One piece of an upload or an output.
    pub transfer: Duration,
    /// Let the worker drop what it does not need.
    pub sandbox: bool,
    /// What workers key their digests with; no kernel may know it.
    pub secret: u64,
    /// How candidates are timed.
    pub sampling: measure::Sampling,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(30),
            housekeeping: Duration::from_secs(60),
            launch: Duration::from_secs(5),
            transfer: Duration::from_secs(30),
            sandbox: true,
            secret: RandomState::new().hash_one(std::process::id()),
            sampling: measure::Sampling::default(),
        }
    }
}

/// One GPU, through its worker.
pub struct CudaDevice {
    name: String,
    ordinal: u32,
    command: WorkerCommand,
    options: Options,
    ready: Ready,
    about: About,
    state: Mutex<State>,
}

struct State {
    worker: Option<Worker>,
    cache: Cache,
    condemned: HashMap<Digest, Stopped>,
    failures: u32,
    unhealthy: Option<String>,
}

/// A worker process that was started.
struct Worker {
    link: Link,
    /// It said that it stands.
    greeted: bool,
}

/// How a call ended before its time, and why that is the candidate's doing.
#[derive(Clone, Debug)]
enum Stopped {
    Hung(Vec<Diagnostic>),
    Faulted(Vec<Diagnostic>),
    Refused(String),
}

/// Why a conversation did not come to its answer.
enum Stop {
    /// The call's own doing: which call, and how.
    Call(u8, Stopped),
    /// The worker died; which call's kernels ran, if any did.
    Died(Option<u8>, LinkError),
    /// Inputs that an earlier call's kernel overwrote must be uploaded again.
    Overwritten,
    /// The rig.
    Rig(String),
}

impl CudaDevice {
    /// Opens GPU `ordinal` of this host: starts its worker and waits until it stands.
    pub fn open(ordinal: u32, command: WorkerCommand, options: Options) -> Result<Self, RigError> {
        let name = format!("cuda:{ordinal}");
        let broken = |message: String| RigError::Device {
            device: name.clone(),
            message,
        };
        let mut worker = Worker::start(&command, ordinal, &options).map_err(broken)?;
        let ready = worker.greet(&options).map_err(broken)?;
        let cache = Cache::new((ready.memory.0 as f64 * CACHE_SHARE) as u64);
        Ok(Self {
            ordinal,
            command,
            about: about(&ready),
            options,
            ready,
            state: Mutex::new(State {
                worker: Some(worker),
                cache,
                condemned: HashMap::new(),
                failures: 0,
                unhealthy: None,
            }),
            name,
        })
    }

    /// `cuda:0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which GPU of this host, as the driver counts.
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// What the worker said when it stood: driver version, memory, what its sandbox enforces.
    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// The process id of the worker that stands or starts, if any.
    pub fn worker_pid(&self) -> Option<u32> {
        self.lock().worker.as_ref().map(|worker| worker.link.pid())
    }

    /// The driver's counter of power capping, where it can be read.
    pub fn power_counter(&self) -> Result<PowerCounter, String> {
        PowerCounter::open(&self.ready.pci_bus_id)
    }

    /// Replaces the worker by a fresh process: for a final claim, or after something outside went wrong.
    pub fn restart(&self) {
        self.replace(&mut self.lock());
    }

    fn is_unhealthy(&self) -> bool {
        self.lock().unhealthy.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // a panic of another thread leaves at worst a worker in mid-sentence, which the next call notices
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn broken(&self, message: impl Into<String>) -> RigError {
        RigError::Device {
            device: self.name.clone(),
            message: message.into(),
        }
    }

    /// Runs `talk` with a standing worker and the calls of `jobs`, and turns every way to fail into the
    /// stop of one of the jobs or into the rig's error. A worker that dies is replaced, once in silence.
    fn converse<T>(
        &self,
        state: &mut State,
        jobs: &[Subject<'_>],
        mut talk: impl FnMut(&mut Conversation<'_>, Vec<Call>) -> Result<T, Stop>,
    ) -> Result<Result<T, (u8, Stopped)>, RigError> {
        let keys: Vec<Digest> = jobs.iter().map(Subject::identity).collect();
        for (index, key) in (0u8..).zip(&keys) {
            if let Some(stopped) = state.condemned.get(key) {
                return Ok(Err((index, stopped.clone())));
            }
        }
        let mut deaths = 0;
        let mut uploads = 0;
        loop {
            self.stand(state)?;
            let State { worker, cache, .. } = &mut *state;
            let Some(worker) = worker.as_mut() else {
                return Err(self.broken("the worker is gone"));
            };
            let mut conversation = Conversation {
                link: &mut worker.link,
                cache,
                options: &self.options,
            };
            let result = conversation
                .pack(jobs)
                .and_then(|calls| talk(&mut conversation, calls));
            match result {
                Ok(value) => return Ok(Ok(value)),
                Err(Stop::Call(index, stopped)) => {
                    let lasting = match &stopped {
                        Stopped::Hung(_) | Stopped::Faulted(_) => true,
                        Stopped::Refused(_) => false,
                    };
                    if lasting {
                        self.replace(state);
                        if let Some(key) = keys.get(usize::from(index)) {
                            state.condemned.insert(*key, stopped.clone());
                        }
                    }
                    return Ok(Err((index, stopped)));
                }
                Err(Stop::Died(launching, error)) => {
                    self.replace(state);
                    deaths += 1;
                    if deaths <= RETRIES {
                        continue;
                    }
                    let Some(index) = launching else {
                        return Err(self.broken(error.to_string()));
                    };
                    let stopped = Stopped::Faulted(vec![diagnostic(
                        "worker-died",
                        format!(
                            "the worker process died while the kernel ran, {deaths} times: {error}"
                        ),
                        None,
                    )]);
                    if let Some(key) = keys.get(usize::from(index)) {
                        state.condemned.insert(*key, stopped.clone());
                    }
                    return Ok(Err((index, stopped)));
                }
                Err(Stop::Overwritten) if uploads < RETRIES => uploads += 1,
                Err(Stop::Overwritten) => {
                    self.replace(state);
                    return Err(self.broken("uploaded inputs change while no kernel runs"));
                }
                Err(Stop::Rig(message)) => {
                    self.replace(state);
                    return Err(self.broken(message));
                }
            }
        }
    }

    /// Sees to it that a worker stands. Its start runs a known-good kernel; when that fails twice in a row,
    /// the GPU is unhealthy and stays so.
    fn stand(&self, state: &mut State) -> Result<(), RigError> {
        loop {
            if let Some(message) = &state.unhealthy {
                return Err(self.broken(message.clone()));
            }
            if state.worker.as_ref().is_some_and(|worker| worker.greeted) {
                return Ok(());
            }
            let started = match state.worker.take() {
                Some(worker) => Ok(worker),
                None => Worker::start(&self.command, self.ordinal, &self.options),
            };
            let greeted = started.and_then(|mut worker| {
                worker.greet(&self.options)?;
                Ok(worker)
            });
            match greeted {
                Ok(worker) => {
                    state.failures = 0;
                    state.worker = Some(worker);
                }
                Err(message) => {
                    state.failures += 1;
                    if state.failures >= UNHEALTHY_AFTER {
                        state.unhealthy = Some(format!(
                            "the GPU is unhealthy: {} workers in a row did not get a known-good kernel to \
                             run; reset it (nvidia-smi -r) or reboot. The last one said: {message}",
                            state.failures
                        ));
                    }
                }
            }
        }
    }

    /// Ends the worker and starts another, without waiting for it.
    fn replace(&self, state: &mut State) {
        drop(state.worker.take());
        let budget = (self.ready.memory.0 as f64 * CACHE_SHARE) as u64;
        state.cache = Cache::new(budget);
        // a failure shows when it is needed
        state.worker = Worker::start(&self.command, self.ordinal, &self.options).ok();
    }

    fn execute_locked(&self, state: &mut State, job: Subject<'_>) -> Result<Execution, RigError> {
        let done = self.converse(state, &[job], |conversation, calls| {
            let Some(call) = calls.into_iter().next() else {
                return Err(Stop::Rig("no call was packed".to_owned()));
            };
            conversation.execute(call)
        })?;
        Ok(match done {
            Ok(execution) => execution,
            Err((_, stopped)) => Execution {
                ended: stopped.ended(),
                outputs: Vec::new(),
                wholes: Vec::new(),
                violations: Vec::new(),
                races: Vec::new(),
                findings: Vec::new(),
                flops: None,
                executed: None,
            },
        })
    }
}

impl Device for CudaDevice {
    fn gpu(&self) -> &Gpu {
        &self.ready.gpu
    }

    fn about(&self) -> &About {
        &self.about
    }

    fn execute(&self, job: &Job<'_>) -> Result<Execution, RigError> {
        self.execute_locked(&mut self.lock(), Subject::Kernel(job))
    }

    fn time(&self, job: &Job<'_>) -> Result<Timing, RigError> {
        self.time_locked(&mut self.lock(), Subject::Kernel(job), Duty::Eased)
    }

    fn time_at_full_load(&self, job: &Job<'_>) -> Result<Option<Timing>, RigError> {
        self.time_locked(&mut self.lock(), Subject::Kernel(job), Duty::Full)
            .map(Some)
    }

    fn cuda(&self) -> Option<&CudaDevice> {
        Some(self)
    }

    fn reserve(&self) -> Option<Reserved<'_>> {
        Some(Reserved {
            ordinal: self.ordinal,
            _held: vec![Box::new(self.lock())],
        })
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        if let Some(worker) = self.lock().worker.take() {
            worker.link.shut_down();
        }
    }
}

impl Worker {
    /// Starts a worker and greets it; [`Worker::greet`] waits for the answer.
    fn start(command: &WorkerCommand, ordinal: u32, options: &Options) -> Result<Self, String> {
        let mut link = Link::spawn(command).map_err(|e| {
            format!(
                "the worker {} does not start: {e}",
                command.program.display()
            )
        })?;
        let hello = Request::Hello {
            version: protocol::VERSION,
            ordinal,
            sandbox: options.sandbox,
        };
        link.send(&hello, Deadline::after(options.start))
            .map_err(|e| e.to_string())?;
        Ok(Self {
            link,
            greeted: false,
        })
    }

    fn greet(&mut self, options: &Options) -> Result<Ready, String> {
        let reply = self
            .link
            .receive(Deadline::after(options.start))
            .map_err(|e| match e {
                LinkError::TimedOut(_) => format!(
                    "the worker does not stand after {} s{}",
                    options.start.as_secs(),
                    self.link.last_words()
                ),
                LinkError::Ended { .. } | LinkError::Broken { .. } => e.to_string(),
            })?;
        match reply {
            Reply::Ready(ready) => {
                let key = Request::Key {
                    secret: options.secret,
                };
                self.link
                    .send(&key, Deadline::after(options.start))
                    .map_err(|e| e.to_string())?;
                self.greeted = true;
                Ok(*ready)
            }
            Reply::Failed { message } => Err(message),
            Reply::OtherVersion { version } => Err(format!(
                "the worker speaks protocol {version}, this program {}; use one build for both",
                protocol::VERSION
            )),
            other => Err(format!("the worker greets with {}", other.name())),
        }
    }
}

fn diagnostic(code: &str, message: String, help: Option<String>) -> Diagnostic {
    Diagnostic {
        severity: Severity::Error,
        code: code.to_owned(),
        message,
        line: None,
        other_line: None,
        help,
    }
}

fn about(ready: &Ready) -> About {
    let mut checks = vec![
        "writes within 4 KiB outside of a buffer (guard zones)".to_owned(),
        "read-only buffers unchanged (hash on the device)".to_owned(),
        "workspaces arrive poisoned".to_owned(),
        "outputs of the timed calls, on changing inputs, and over a damaged answer (hash on the device)".to_owned(),
    ];
    checks.extend(ready.enforced.iter().map(|what| format!("worker: {what}")));
    let mut cannot_check = vec![
        "races and missing barriers: the hardware does not tell".to_owned(),
        "reads outside of a buffer that hit other memory".to_owned(),
        "reads of memory that nothing wrote".to_owned(),
        "power capping: the counter is not read".to_owned(),
    ];
    cannot_check.extend(
        ready
            .not_enforced
            .iter()
            .map(|what| format!("worker: {what}")),
    );
    About {
        identity: format!(
            "cuda {} driver {} protocol {}",
            ready.gpu.name,
            ready.driver,
            protocol::VERSION
        ),
        checks,
        cannot_check,
        largest: Bytes((ready.memory.0 as f64 * EXECUTED_SHARE) as u64),
        runs_timed_size: true,
        chooses_order: false,
    }
}
