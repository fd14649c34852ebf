//! What a call queues: kernels and products, their arguments resolved against its regions.

use std::borrow::Borrow;

use super::{Code, Engine, Held, Trouble};
use crate::device::cuda::driver::{
    Address, Context, CudaError, Described, Module, Prepared, Value,
};
use crate::device::cuda::protocol::{self, Algorithm, Call, Param, Planned, Role};

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

impl Engine {
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
