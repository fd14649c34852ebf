//! What a GPU's worker does with libraries: products through cuBLASLt, CUDA C through NVRTC. Products are
//! placed, timed and compared exactly as candidates are; nothing here says which is fastest.

use super::protocol::{Algorithm, Product, Reply, Request};
use super::{CudaDevice, Duty, Stopped};
use crate::device::{Buffer, Ended, Execution, Job, RigError, Sampled, Timing};
use crate::units::Digest;

/// What a worker can be asked to run.
#[derive(Clone, Copy)]
pub enum Subject<'a> {
    /// A candidate.
    Kernel(&'a Job<'a>),
    /// A library's product.
    Product(&'a ProductJob<'a>),
}

/// A library's product on the task's buffers.
#[derive(Clone, Copy)]
pub struct ProductJob<'a> {
    /// What is computed.
    pub product: Product,
    /// How.
    pub algorithm: Algorithm,
    /// Names of the buffers that are A, B and C.
    pub names: [&'a str; 3],
    /// All of the task's buffers.
    pub buffers: &'a [Buffer],
    /// Outputs of which some elements are enough.
    pub sampled: &'a [Sampled],
}

impl<'a> Subject<'a> {
    pub(super) fn buffers(&self) -> &'a [Buffer] {
        match self {
            Self::Kernel(job) => job.buffers,
            Self::Product(job) => job.buffers,
        }
    }

    pub(super) fn sampled(&self) -> &'a [Sampled] {
        match self {
            Self::Kernel(job) => job.sampled,
            Self::Product(job) => job.sampled,
        }
    }

    /// What a verdict is remembered by: the machine code and how it is launched.
    pub(super) fn identity(&self) -> Digest {
        match self {
            // a plan is plain data: it always prints
            Self::Kernel(job) => Digest::of_parts([
                job.cubin.unwrap_or_default(),
                format!("{:?}", job.plan).as_bytes(),
            ]),
            Self::Product(job) => Digest::of(format!(
                "{:?} {:?} {:?}",
                job.product, job.algorithm, job.names
            )),
        }
    }
}

/// A library gave nothing to run.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// It is not here, or does not do what was asked: in words.
    #[error("{0}")]
    Refused(String),
    /// The rig broke.
    #[error(transparent)]
    Rig(#[from] RigError),
}

/// PTX text, or the compiler's log.
pub type Compiled = Result<String, String>;

impl CudaDevice {
    /// cuBLASLt's version and its best algorithms for a product, the one it would take first.
    pub fn algorithms(
        &self,
        product: Product,
        most: u32,
    ) -> Result<(u64, Vec<Algorithm>), LibraryError> {
        match self.ask_library(&Request::Algorithms { product, most })? {
            Reply::Algorithms {
                version,
                algorithms,
            } => Ok((version, algorithms)),
            other => Err(self
                .broken(format!("the worker answers with {}", other.name()))
                .into()),
        }
    }

    /// Compiles CUDA C with NVRTC, in the worker.
    pub fn compile(&self, source: &str, options: &[String]) -> Result<Compiled, LibraryError> {
        let request = Request::Compile {
            source: source.to_owned(),
            options: options.to_vec(),
        };
        match self.ask_library(&request)? {
            Reply::Compiled(compiled) => Ok(compiled),
            other => Err(self
                .broken(format!("the worker answers with {}", other.name()))
                .into()),
        }
    }

    /// Runs a product once and hands back what it wrote.
    pub fn execute_product(&self, job: &ProductJob<'_>) -> Result<Execution, RigError> {
        self.execute_locked(&mut self.lock(), Subject::Product(job))
    }

    /// Times a product as a candidate is timed.
    pub fn time_product(&self, job: &ProductJob<'_>) -> Result<Timing, RigError> {
        self.time_locked(&mut self.lock(), Subject::Product(job), Duty::Eased)
    }

    fn ask_library(&self, request: &Request) -> Result<Reply, LibraryError> {
        let mut state = self.lock();
        let asked = self.converse(&mut state, &[], |conversation, _| conversation.ask(request))?;
        asked.map_err(|(_, stopped)| LibraryError::Refused(stopped.words()))
    }
}

impl Stopped {
    /// As a run's end.
    pub(super) fn ended(self) -> Ended {
        match self {
            Self::Hung(diagnostics) => Ended::Hung(diagnostics),
            Self::Faulted(diagnostics) => Ended::Faulted(diagnostics),
            Self::Refused(message) => Ended::Refused(message),
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Refused(message) => message.clone(),
            Self::Hung(diagnostics) | Self::Faulted(diagnostics) => diagnostics
                .first()
                .map_or_else(String::new, |first| first.message.clone()),
        }
    }
}
