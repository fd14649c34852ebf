//! The worker's hands: uploads, and calls that run once with every check around them.
//! It speaks of regions, launches and errors, and judges no number that a kernel wrote.

mod outputs;
mod slots;
mod steps;
mod tools;

use std::collections::HashMap;

use self::slots::Slot;
pub use self::steps::{ran, resolve};
use super::driver::{Blas, Context, CudaError, Described, Module};
use super::memory::{Memory, Region};
use super::protocol::{Algorithm, Call, Initial, Product, Role, Stage};

const TOOLS: &str = include_str!("tools.ptx");

/// Why a request was not done.
#[derive(Debug)]
pub enum Trouble {
    /// The driver refuses the call before anything runs: a limit.
    Refused {
        /// Index of the call.
        call: u8,
        /// Which limit, wanted and allowed.
        message: String,
    },
    /// A kernel of the call broke the context.
    Faulted {
        /// Index of the call.
        call: u8,
        /// What the driver says.
        error: CudaError,
    },
    /// A library that was asked for is not here, in words.
    NoLibrary(String),
    /// Uploaded bytes, or the guards around them, are no longer what they were: a kernel of an earlier call wrote
    /// there. These slots must be uploaded again; nothing ran.
    Overwritten(Vec<u64>),
    /// The rig.
    Failed(String),
}

impl From<CudaError> for Trouble {
    fn from(error: CudaError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Tells the parent what comes next.
pub type Announce<'a> = &'a mut dyn FnMut(Stage) -> Result<(), Trouble>;

/// The worker's state between requests.
pub struct Engine {
    /// The GPU.
    pub cuda: Context,
    /// Its memory.
    pub memory: Memory,
    seed: u64,
    sm_count: u32,
    tools: Module,
    scratch: Region,
    slots: HashMap<u64, Slot>,
    /// Opened when it is first needed.
    blas: Option<Blas>,
}

/// What a call runs, loaded.
pub enum Code {
    /// Kernels of a module.
    Kernels(Module),
    /// A library's product.
    Product(Box<Described>),
}

/// A region of a call.
pub enum Held {
    /// Its own.
    Own(Region),
    /// A slot's, shared because it is only read.
    Shared(u64),
}

/// What ran, and what it left.
pub struct Ran {
    /// Regions in the call's order.
    pub held: Vec<Held>,
    /// Read-only regions that changed and guard zones that were hit, in words.
    pub violations: Vec<String>,
    /// Slots that no longer hold what was uploaded; forgotten.
    pub spoiled: Vec<u64>,
}

impl Engine {
    /// Compiles the worker's own kernels and runs one on known data: the canary of the GPU's health.
    pub fn new(cuda: Context, sm_count: u32, seed: u64) -> Result<Self, String> {
        let tools = cuda
            .load(TOOLS.as_bytes())
            .map_err(|e| format!("the worker's own kernels: {e}"))?;
        let mut memory = Memory::new(seed);
        let scratch = memory.take(&cuda, 16).map_err(|e| e.to_string())?;
        let mut engine = Self {
            cuda,
            memory,
            seed,
            sm_count,
            tools,
            scratch,
            slots: HashMap::new(),
            blas: None,
        };
        engine
            .canary()
            .map_err(|e| format!("a known-good kernel failed: {e}"))?;
        Ok(engine)
    }

    /// Keys digests from here on; nothing may have been uploaded yet.
    pub fn key(&mut self, secret: u64) {
        self.seed = secret;
    }

    /// Runs a call once: loaded, placed, launched and checked. The caller reads the outputs from
    /// [`Ran::held`] and gives it to [`Engine::release`].
    pub fn execute(&mut self, call: &Call, announce: Announce<'_>) -> Result<Ran, Trouble> {
        announce(Stage::Housekeeping)?;
        self.expect_unchanged(std::slice::from_ref(call))?;
        let code = self.load(call, 0)?;
        let held = self.place(call, true)?;
        let ran = self.execute_placed(call, &code, &held, announce);
        match ran {
            Ok((violations, spoiled)) => Ok(Ran {
                held,
                violations,
                spoiled,
            }),
            Err(trouble) => {
                self.release(held);
                Err(trouble)
            }
        }
    }

    fn execute_placed(
        &mut self,
        call: &Call,
        code: &Code,
        held: &[Held],
        announce: Announce<'_>,
    ) -> Result<(Vec<String>, Vec<u64>), Trouble> {
        self.fill(call, held, 0, None)?;
        let before = self.filled_digests(call, held, 0)?;
        let launches = self.prepare(call, code, held, 0)?;
        self.cuda.synchronize()?;
        announce(Stage::Launching {
            call: 0,
            expected_ns: 0.0,
        })?;
        self.queue(call, &launches, held, 0)?;
        self.cuda.synchronize().map_err(|e| ran(0, e))?;
        announce(Stage::Housekeeping)?;
        let mut violations = self.intrusions(call, held)?;
        let mut spoiled = Vec::new();
        let after = self.input_digests(call, held)?;
        for (((region, held), before), after) in
            call.regions.iter().zip(held).zip(before).zip(after)
        {
            if before != after {
                violations.push(format!("`{}` is read only and was modified", region.name));
                if let Held::Shared(slot) = held {
                    spoiled.push(*slot);
                }
            }
        }
        Ok((violations, spoiled))
    }

    /// Gives a call's regions back, and forgets spoiled slots.
    pub fn finish(&mut self, ran: Ran) {
        self.release(ran.held);
        for slot in ran.spoiled {
            self.discard(slot);
        }
    }

    /// Gives regions back.
    pub fn release(&mut self, held: Vec<Held>) {
        for held in held {
            match held {
                Held::Own(region) => self.memory.give(region),
                Held::Shared(_) => {}
            }
        }
    }

    /// cuBLASLt's version, and its best algorithms for a product.
    pub fn algorithms(
        &mut self,
        product: &Product,
        most: u32,
    ) -> Result<(u64, Vec<Algorithm>), Trouble> {
        let blas = self.blas()?;
        let found = blas.algorithms(product, most);
        let found = found.map_err(|message| Trouble::Refused { call: 0, message })?;
        Ok((blas.version(), found))
    }

    fn blas(&mut self) -> Result<&Blas, Trouble> {
        match &mut self.blas {
            Some(blas) => Ok(blas),
            none => Ok(none.insert(Blas::open().map_err(Trouble::NoLibrary)?)),
        }
    }

    /// Loads what a call runs; what does not fit is the call's refusal, what does not match the driver the
    /// rig's.
    pub fn load(&mut self, call: &Call, index: u8) -> Result<Code, Trouble> {
        if let Some(planned) = &call.product {
            self.blas()?;
            return Described::new(&planned.product)
                .map(|described| Code::Product(Box::new(described)))
                .map_err(|message| Trouble::Refused {
                    call: index,
                    message,
                });
        }
        self.load_module(&call.image, index).map(Code::Kernels)
    }

    fn load_module(&self, image: &[u8], call: u8) -> Result<Module, Trouble> {
        self.cuda.load(image).map_err(|e| {
            if e.is_refusal() {
                Trouble::Refused {
                    call,
                    message: format!("the driver does not load the module: {e}"),
                }
            } else {
                Trouble::Failed(format!(
                    "the driver does not load the module: {e}; was it assembled for this GPU, by a ptxas \
                     no newer than the driver?"
                ))
            }
        })
    }

    /// Takes regions for a call; with `share`, a slot that is only read is used in place.
    pub fn place(&mut self, call: &Call, share: bool) -> Result<Vec<Held>, Trouble> {
        let mut held = Vec::with_capacity(call.regions.len());
        for region in &call.regions {
            let only_read = matches!(region.role, Role::Input { .. });
            let taken = if let Initial::Slot(slot) = region.initial
                && only_read
                && share
            {
                self.expect_slot(slot, region.bytes)
                    .map(|()| Held::Shared(slot))
            } else {
                self.memory
                    .take(&self.cuda, region.bytes)
                    .map(Held::Own)
                    .map_err(|e| {
                        Trouble::Failed(format!(
                            "no device memory for `{}` ({}): {e}",
                            region.name,
                            crate::units::Bytes(region.bytes)
                        ))
                    })
            };
            match taken {
                Ok(taken) => held.push(taken),
                Err(trouble) => {
                    self.release(held);
                    return Err(trouble);
                }
            }
        }
        Ok(held)
    }

    /// Queues the initial contents of a call's own regions. Set `set` of a timing holds the same float
    /// inputs, moved round by a few pages. With `again`, workspaces keep what earlier calls left there and
    /// outputs hold that byte.
    pub fn fill(
        &self,
        call: &Call,
        held: &[Held],
        set: u32,
        again: Option<u8>,
    ) -> Result<(), Trouble> {
        for (region, held) in call.regions.iter().zip(held) {
            let Held::Own(own) = held else { continue };
            let at = own.address();
            match region.initial {
                Initial::Fill(byte) => {
                    let byte = match (region.role, again) {
                        (Role::Workspace { .. }, Some(_)) => continue,
                        (Role::Output, Some(poison)) => poison,
                        (Role::Input { .. }, Some(_)) | (_, None) => byte,
                    };
                    self.cuda.fill(at, byte, region.bytes)?;
                }
                Initial::Slot(slot) => {
                    self.expect_slot(slot, region.bytes)?;
                    let (from, bytes) = self.slot_at(slot)?;
                    let shift = turned(region.role, set, bytes);
                    self.cuda.copy(at, from.offset(shift), bytes - shift)?;
                    self.cuda.copy(at.offset(bytes - shift), from, shift)?;
                }
            }
        }
        Ok(())
    }

    /// Guard zones that were hit, in words.
    pub fn intrusions(&self, call: &Call, held: &[Held]) -> Result<Vec<String>, Trouble> {
        let mut found = Vec::new();
        for (region, held) in call.regions.iter().zip(held) {
            let hit = match held {
                Held::Own(own) => self.memory.intrusion(&self.cuda, own)?,
                Held::Shared(slot) => self
                    .memory
                    .intrusion(&self.cuda, &self.slot(*slot)?.region)?,
            };
            found.extend(hit.map(|what| format!("`{}`: {what}", region.name)));
        }
        Ok(found)
    }

    /// Digests of the inputs as [`Engine::fill`] leaves them for set `set`, in the order of the regions; `None`
    /// for what may be written. What comes straight from a slot has the digest that was taken when the slot was
    /// sealed: it is not read again.
    pub fn filled_digests(
        &self,
        call: &Call,
        held: &[Held],
        set: u32,
    ) -> Result<Vec<Option<u64>>, Trouble> {
        call.regions
            .iter()
            .zip(held)
            .map(|(region, held)| {
                let Role::Input { .. } = region.role else {
                    return Ok(None);
                };
                let (at, bytes) = match (held, region.initial) {
                    (Held::Shared(slot), _) => return Ok(Some(self.slot(*slot)?.digest)),
                    (Held::Own(own), Initial::Slot(slot)) => {
                        if turned(region.role, set, own.bytes()) == 0 {
                            return Ok(Some(self.slot(slot)?.digest));
                        }
                        (own.address(), own.bytes())
                    }
                    (Held::Own(own), Initial::Fill(_)) => (own.address(), own.bytes()),
                };
                Ok(Some(self.digest(at, bytes)?))
            })
            .collect()
    }

    /// Digests of the inputs, in the order of the regions; `None` for what may be written.
    pub fn input_digests(&self, call: &Call, held: &[Held]) -> Result<Vec<Option<u64>>, Trouble> {
        self.digests(call, held, |role| matches!(role, Role::Input { .. }))
    }

    /// Digests of the outputs, in the order of the regions; `None` for the others.
    pub fn output_digests(&self, call: &Call, held: &[Held]) -> Result<Vec<Option<u64>>, Trouble> {
        self.digests(call, held, |role| matches!(role, Role::Output))
    }

    fn digests(
        &self,
        call: &Call,
        held: &[Held],
        which: fn(Role) -> bool,
    ) -> Result<Vec<Option<u64>>, Trouble> {
        call.regions
            .iter()
            .zip(held)
            .map(|(region, held)| {
                if !which(region.role) {
                    return Ok(None);
                }
                let (at, bytes) = match held {
                    Held::Own(own) => (own.address(), own.bytes()),
                    Held::Shared(slot) => self.slot_at(*slot)?,
                };
                Ok(Some(self.digest(at, bytes)?))
            })
            .collect()
    }
}

/// How far set `set` of a timing moves the `bytes` bytes of a region round: float inputs by whole 256-byte
/// lines, all else not at all.
fn turned(role: Role, set: u32, bytes: u64) -> u64 {
    const STEP: u64 = 4096 + 256;
    let lines = bytes / 256;
    match role {
        Role::Input { shiftable: true } if lines > 0 => u64::from(set) * (STEP / 256) % lines * 256,
        Role::Input { .. } | Role::Output | Role::Workspace { .. } => 0,
    }
}
