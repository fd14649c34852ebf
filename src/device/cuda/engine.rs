//! The worker's hands: uploads, and calls that run once with every check around them.
//! It speaks of regions, launches and errors, and judges no number that a kernel wrote.

use std::borrow::Borrow;
use std::collections::HashMap;

use super::digest::digest;
use super::driver::{Address, Blas, Context, CudaError, Described, Module, Prepared, Value};
use super::memory::{Memory, Region};
use super::protocol::{
    self, Algorithm, Call, Initial, Param, Planned, Product, Role, Sample, Stage,
};
use crate::device::Whole;

const TOOLS: &str = include_str!("tools.ptx");

/// How long the clock probe spins: the timer ticks once a microsecond on some GPUs.
const PROBE_NANOS: u64 = 100_000;

/// Blocks and threads of the digest kernel, per SM and per block.
const DIGEST_BLOCKS: u32 = 8;
const DIGEST_THREADS: u32 = 256;

/// The largest output that is handed back whole after a timing.
const LARGEST_LEFT: u64 = 256 << 10;

/// What damage to an output writes; `tools.ptx` writes the same.
const POCK: u8 = 0xa5;

/// What a known-good kernel is run on.
const CANARY_BYTES: usize = 4099;

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
    /// Uploaded bytes are no longer what was uploaded: a kernel of an earlier call wrote there. These slots
    /// must be uploaded again; nothing ran.
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

/// One thing that a call queues, its memory known.
pub enum Step<'c> {
    /// A kernel.
    Launch(Prepared<'c>),
    /// A library's product.
    Product {
        /// Shapes and types.
        described: &'c Described,
        /// How.
        algorithm: Algorithm,
        /// A, B and C.
        addresses: [Address; 3],
        /// Scratch memory.
        workspace: Option<Address>,
    },
}

/// Uploaded bytes.
struct Slot {
    region: Region,
    digest: u64,
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

/// What is handed back of a call's outputs.
pub struct Picked {
    /// By region: where it lies and how long it is; `None` for what is no output.
    pub sources: Vec<Option<(Address, u64)>>,
    /// What is known of the whole of each sampled output.
    pub wholes: Vec<Whole>,
    /// What was taken for it.
    pub regions: Vec<Region>,
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

    fn canary(&mut self) -> Result<(), String> {
        let bytes: Vec<u8> = (0..CANARY_BYTES).map(|i| (i * i / 7) as u8).collect();
        let region = self
            .memory
            .take(&self.cuda, bytes.len() as u64)
            .map_err(|e| e.to_string())?;
        self.cuda
            .upload(region.address(), &bytes)
            .map_err(|e| e.to_string())?;
        let found = self
            .digest(region.address(), region.bytes())
            .map_err(|e| e.to_string())?;
        let expected = digest(self.seed, 0, &bytes);
        self.memory.give(region);
        if found == expected {
            Ok(())
        } else {
            Err(format!("it gave {found:#x} instead of {expected:#x}"))
        }
    }

    /// Keys digests from here on; nothing may have been uploaded yet.
    pub fn key(&mut self, secret: u64) {
        self.seed = secret;
    }

    /// Makes room for a slot; [`Engine::fill_slot`] brings the bytes and [`Engine::seal_slot`] ends it.
    pub fn open_slot(&mut self, slot: u64, bytes: u64) -> Result<(), Trouble> {
        self.discard(slot);
        let region = self.memory.take(&self.cuda, bytes)?;
        self.slots.insert(slot, Slot { region, digest: 0 });
        Ok(())
    }

    /// Part of a slot's bytes.
    pub fn fill_slot(&mut self, slot: u64, offset: u64, bytes: &[u8]) -> Result<(), Trouble> {
        let region = &self.slot(slot)?.region;
        if offset + bytes.len() as u64 > region.bytes() {
            return Err(Trouble::Failed(format!(
                "more than {} bytes came for slot {slot}",
                region.bytes()
            )));
        }
        Ok(self.cuda.upload(region.address().offset(offset), bytes)?)
    }

    /// Remembers what the slot holds, to see whether a kernel changes it.
    pub fn seal_slot(&mut self, slot: u64) -> Result<(), Trouble> {
        let (address, bytes) = self.slot_at(slot)?;
        let digest = self.digest(address, bytes)?;
        if let Some(slot) = self.slots.get_mut(&slot) {
            slot.digest = digest;
        }
        Ok(())
    }

    /// Whether what the calls take from slots is still what was uploaded. A kernel that writes far beyond its
    /// buffers hits memory that no guard zone of its own protects; the next call must not pay for it.
    pub fn expect_unchanged(&self, calls: &[Call]) -> Result<(), Trouble> {
        let mut overwritten = Vec::new();
        for call in calls {
            let regions = call
                .regions
                .iter()
                .filter_map(|region| match region.initial {
                    Initial::Slot(slot) => Some(slot),
                    Initial::Fill(_) => None,
                });
            for slot in regions.chain(call.samples.iter().map(|sample| sample.indices)) {
                let (address, bytes) = self.slot_at(slot)?;
                let unchanged = self.digest(address, bytes)? == self.slot(slot)?.digest;
                if !unchanged && !overwritten.contains(&slot) {
                    overwritten.push(slot);
                }
            }
        }
        if overwritten.is_empty() {
            Ok(())
        } else {
            Err(Trouble::Overwritten(overwritten))
        }
    }

    /// Forgets a slot.
    pub fn discard(&mut self, slot: u64) {
        if let Some(slot) = self.slots.remove(&slot) {
            self.memory.give(slot.region);
        }
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

    /// What to hand back of each output: all of it, or the elements asked for, gathered.
    pub fn pick(&mut self, call: &Call, held: &[Held]) -> Result<Picked, Trouble> {
        let mut picked = Picked {
            sources: Vec::with_capacity(held.len()),
            wholes: Vec::new(),
            regions: Vec::new(),
        };
        for (at, (region, held)) in (0u32..).zip(call.regions.iter().zip(held)) {
            let (Role::Output, Held::Own(own)) = (region.role, held) else {
                picked.sources.push(None);
                continue;
            };
            let whole = (own.address(), own.bytes());
            let sample = call.samples.iter().find(|sample| sample.region == at);
            let source = match sample {
                None => whole,
                Some(sample) => match self.gather(region, whole, sample) {
                    Ok((gathered, known)) => {
                        let source = (gathered.address(), gathered.bytes());
                        picked.wholes.push(known);
                        picked.regions.push(gathered);
                        source
                    }
                    Err(trouble) => {
                        self.give_back(picked.regions);
                        return Err(trouble);
                    }
                },
            };
            picked.sources.push(Some(source));
        }
        Ok(picked)
    }

    /// Gives regions back that [`Engine::pick`] took.
    pub fn give_back(&mut self, regions: Vec<Region>) {
        for region in regions {
            self.memory.give(region);
        }
    }

    /// What an output holds: all of it where it is small, the elements asked for where it is sampled, `None`
    /// where it is neither.
    pub fn values(
        &mut self,
        call: &Call,
        held: &[Held],
        at: usize,
    ) -> Result<Option<Vec<u8>>, Trouble> {
        let (Some(region), Some(Held::Own(own))) = (call.regions.get(at), held.get(at)) else {
            return Ok(None);
        };
        let whole = (own.address(), own.bytes());
        let sample = call
            .samples
            .iter()
            .find(|sample| sample.region as usize == at);
        let gathered = match sample {
            Some(sample) => Some(self.gather(region, whole, sample)?.0),
            None if whole.1 > LARGEST_LEFT => return Ok(None),
            None => None,
        };
        let (from, count) = match &gathered {
            Some(region) => (region.address(), region.bytes()),
            None => whole,
        };
        let mut bytes = vec![0; count as usize];
        let read = self.cuda.download(from, &mut bytes);
        if let Some(region) = gathered {
            self.memory.give(region);
        }
        read?;
        Ok(Some(bytes))
    }

    fn gather(
        &mut self,
        region: &protocol::Region,
        (from, bytes): (Address, u64),
        sample: &Sample,
    ) -> Result<(Region, Whole), Trouble> {
        let Sample {
            indices,
            count,
            width,
            ..
        } = *sample;
        self.expect_slot(indices, count * 8)?;
        let Initial::Fill(fill) = region.initial else {
            return Err(Trouble::Failed(format!(
                "`{}` is sampled, but was not filled before the launch",
                region.name
            )));
        };
        let to = self.memory.take(&self.cuda, count * width)?;
        let known = (|| {
            let (indices, _) = self.slot_at(indices)?;
            let blocks = |n: u64| n.div_ceil(u64::from(DIGEST_THREADS)).clamp(1, 1 << 16) as u32;
            self.tool(
                "warptree_gather",
                blocks(count),
                DIGEST_THREADS,
                &[from.get(), indices.get(), count, width, to.address().get()],
            )?;
            let out = self.scratch.address();
            self.cuda.fill(out, 0, 8)?;
            let elements = bytes / width;
            self.tool(
                "warptree_untouched",
                blocks(elements),
                DIGEST_THREADS,
                &[from.get(), elements, width, u64::from(fill), out.get()],
            )?;
            let mut untouched = [0; 8];
            self.cuda.download(out, &mut untouched)?;
            Ok(Whole {
                output: region.name.clone(),
                digest: self.digest(from, bytes)?,
                untouched: u64::from_le_bytes(untouched),
            })
        })();
        match known {
            Ok(whole) => Ok((to, whole)),
            Err(trouble) => {
                self.memory.give(to);
                Err(trouble)
            }
        }
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

    /// Queues damage to a call's outputs: half of their 16-byte words are overwritten, nobody knows which, and
    /// all of an output that is no longer.
    pub fn pock(&self, call: &Call, held: &[Held]) -> Result<(), Trouble> {
        for (region, held) in call.regions.iter().zip(held) {
            let (Role::Output, Held::Own(own)) = (region.role, held) else {
                continue;
            };
            let (at, pairs) = (own.address(), own.bytes() / 16);
            if pairs < 2 {
                self.cuda.fill(at, POCK, own.bytes())?;
                continue;
            }
            let blocks = pairs.div_ceil(u64::from(DIGEST_THREADS)).min(1 << 16) as u32;
            let params = [at.get(), pairs, self.seed];
            self.tool("warptree_pock", blocks, DIGEST_THREADS, &params)?;
        }
        Ok(())
    }

    /// Resolves what a call runs against its regions.
    pub fn prepare<'c>(
        &self,
        call: &Call,
        code: &'c Code,
        held: &[impl Borrow<Held>],
        index: u8,
    ) -> Result<Vec<Step<'c>>, Trouble> {
        match (code, &call.product) {
            (Code::Kernels(module), _) => self.prepare_launches(call, module, held, index),
            (Code::Product(described), Some(planned)) => {
                Ok(vec![self.prepare_product(described, planned, held)?])
            }
            (Code::Product(_), None) => Err(Trouble::Failed("no product is planned".to_owned())),
        }
    }

    fn prepare_product<'c>(
        &self,
        described: &'c Described,
        planned: &Planned,
        held: &[impl Borrow<Held>],
    ) -> Result<Step<'c>, Trouble> {
        let [a, b, c] = planned.regions;
        Ok(Step::Product {
            described,
            algorithm: planned.algorithm,
            addresses: [
                self.address(held, a)?,
                self.address(held, b)?,
                self.address(held, c)?,
            ],
            workspace: planned
                .workspace
                .map(|region| self.address(held, region))
                .transpose()?,
        })
    }

    fn address(&self, held: &[impl Borrow<Held>], region: u32) -> Result<Address, Trouble> {
        match held.get(region as usize).map(Borrow::borrow) {
            Some(Held::Own(region)) => Ok(region.address()),
            Some(Held::Shared(slot)) => Ok(self.slot_at(*slot)?.0),
            None => Err(Trouble::Failed(format!("there is no region {region}"))),
        }
    }

    fn prepare_launches<'m>(
        &self,
        call: &Call,
        module: &'m Module,
        held: &[impl Borrow<Held>],
        index: u8,
    ) -> Result<Vec<Step<'m>>, Trouble> {
        let address = |region: u32| self.address(held, region);
        let launches = resolve(&self.cuda, call, module, &address, index)?;
        Ok(launches.into_iter().map(Step::Launch).collect())
    }

    /// Queues a call: zeroed workspaces are cleared, then the launches in order, or the product.
    pub fn queue(
        &self,
        call: &Call,
        steps: &[Step<'_>],
        held: &[impl Borrow<Held>],
        index: u8,
    ) -> Result<(), Trouble> {
        for (region, held) in call.regions.iter().zip(held) {
            if let (Role::Workspace { zero: true }, Held::Own(own)) = (region.role, held.borrow()) {
                self.cuda
                    .fill(own.address(), 0, region.bytes)
                    .map_err(|e| ran(index, e))?;
            }
        }
        for (nth, step) in steps.iter().enumerate() {
            match step {
                Step::Launch(launch) => self.cuda.launch(launch).map_err(|e| {
                    if e.is_refusal() {
                        let entry = call.launches.get(nth).map_or("?", |spec| &spec.entry);
                        Trouble::Refused {
                            call: index,
                            message: format!("`{entry}`: {}; {e}", launch.limits()),
                        }
                    } else {
                        ran(index, e)
                    }
                })?,
                Step::Product {
                    described,
                    algorithm,
                    addresses,
                    workspace,
                } => {
                    let blas = self
                        .blas
                        .as_ref()
                        .ok_or_else(|| Trouble::Failed("the library was not opened".to_owned()))?;
                    blas.multiply(&self.cuda, described, algorithm, *addresses, *workspace)
                        .map_err(|message| Trouble::Refused {
                            call: index,
                            message,
                        })?;
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

    /// The digest of device memory: whole 16-byte pairs there, the rest here.
    fn digest(&self, at: Address, bytes: u64) -> Result<u64, CudaError> {
        let out = self.scratch.address();
        self.cuda.fill(out, 0, 8)?;
        let pairs = bytes / 16;
        if pairs > 0 {
            let blocks = (DIGEST_BLOCKS * self.sm_count)
                .min(pairs.div_ceil(u64::from(DIGEST_THREADS)).min(1 << 20) as u32);
            self.tool(
                "warptree_digest",
                blocks,
                DIGEST_THREADS,
                &[at.get(), pairs, self.seed, out.get()],
            )?;
        }
        let mut sum = [0; 8];
        self.cuda.download(out, &mut sum)?;
        let mut rest = vec![0; (bytes % 16) as usize];
        self.cuda.download(at.offset(pairs * 16), &mut rest)?;
        Ok(u64::from_le_bytes(sum).wrapping_add(digest(self.seed, pairs * 2, &rest)))
    }

    /// The SM clock right now, MHz.
    pub fn clock_mhz(&self) -> Result<f64, CudaError> {
        let out = self.scratch.address();
        self.tool("warptree_clock", 1, 1, &[out.get(), PROBE_NANOS])?;
        let mut bytes = [0; 16];
        self.cuda.download(out, &mut bytes)?;
        let (cycles, nanos) = bytes.split_at(8);
        let number = |half: &[u8]| {
            half.iter()
                .rev()
                .fold(0u64, |value, &byte| value << 8 | u64::from(byte))
        };
        Ok(number(cycles) as f64 * 1e3 / number(nanos).max(1) as f64)
    }

    fn tool(
        &self,
        entry: &str,
        blocks: u32,
        threads: u32,
        params: &[u64],
    ) -> Result<(), CudaError> {
        let launch = protocol::Launch {
            entry: entry.to_owned(),
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            cluster: [1, 1, 1],
            smem: 0,
            params: Vec::new(),
        };
        let values = params
            .iter()
            .filter_map(|p| Value::new(&p.to_le_bytes()))
            .collect();
        let prepared = self
            .tools
            .prepare(&launch, values, &vec![8; params.len()])?;
        self.cuda.launch(&prepared)
    }

    fn slot(&self, slot: u64) -> Result<&Slot, Trouble> {
        self.slots
            .get(&slot)
            .ok_or_else(|| Trouble::Failed(format!("nothing was uploaded to slot {slot}")))
    }

    fn slot_at(&self, slot: u64) -> Result<(Address, u64), Trouble> {
        let region = &self.slot(slot)?.region;
        Ok((region.address(), region.bytes()))
    }

    fn expect_slot(&self, slot: u64, bytes: u64) -> Result<(), Trouble> {
        let held = self.slot(slot)?.region.bytes();
        if held == bytes {
            Ok(())
        } else {
            Err(Trouble::Failed(format!(
                "slot {slot} holds {held} bytes, a region of {bytes} wants it"
            )))
        }
    }
}

/// A call's launches with every argument as bytes; `address` tells where each region lies.
pub fn resolve<'m>(
    cuda: &Context,
    call: &Call,
    module: &'m Module,
    address: &dyn Fn(u32) -> Result<Address, Trouble>,
    index: u8,
) -> Result<Vec<Prepared<'m>>, Trouble> {
    let refused = |message: String| Trouble::Refused {
        call: index,
        message,
    };
    let mut maps = Vec::with_capacity(call.maps.len());
    for map in &call.maps {
        let base = address(map.region)?;
        maps.push(cuda.encode(&map.map, base).map_err(refused)?);
    }
    let mut prepared = Vec::with_capacity(call.launches.len());
    for launch in &call.launches {
        let mut values = Vec::with_capacity(launch.params.len());
        let mut widths = Vec::with_capacity(launch.params.len());
        for param in &launch.params {
            let bytes = match param {
                Param::Address(region) => address(*region)?.get().to_le_bytes().to_vec(),
                Param::Map(map) => maps
                    .get(*map as usize)
                    .ok_or_else(|| Trouble::Failed(format!("there is no tensor map {map}")))?
                    .to_vec(),
                Param::Bytes(bytes) => bytes.clone(),
            };
            widths.push(bytes.len());
            values.push(
                Value::new(&bytes).ok_or_else(|| {
                    Trouble::Failed(format!("a parameter of {} bytes", bytes.len()))
                })?,
            );
        }
        prepared.push(module.prepare(launch, values, &widths).map_err(|e| {
            let message = format!("`{}`: {}", launch.entry, describe(launch, &e));
            if e.is_refusal() {
                refused(message)
            } else {
                Trouble::Failed(message)
            }
        })?);
    }
    Ok(prepared)
}

/// A failed call after kernels were queued: theirs if it broke the context, else the rig's.
pub fn ran(call: u8, error: CudaError) -> Trouble {
    if error.is_fault() {
        Trouble::Faulted { call, error }
    } else {
        Trouble::from(error)
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

fn describe(launch: &protocol::Launch, error: &CudaError) -> String {
    match error.call {
        "cuModuleGetFunction" => format!("the module has no such entry; {error}"),
        "cuFuncSetAttribute" => format!(
            "the device does not allow {} bytes of dynamic shared memory, or clusters of {:?}; {error}",
            launch.smem, launch.cluster
        ),
        _ => error.to_string(),
    }
}
