//! What a call's outputs hold: whole, or the elements asked for and what is known of the rest.

use super::tools::DIGEST_THREADS;
use super::{Engine, Held, Trouble};
use crate::device::Whole;
use crate::device::cuda::driver::Address;
use crate::device::cuda::memory::Region;
use crate::device::cuda::protocol::{self, Call, Initial, Role, Sample};

/// The largest output that is handed back whole after a timing.
const LARGEST_LEFT: u64 = 256 << 10;

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
}
