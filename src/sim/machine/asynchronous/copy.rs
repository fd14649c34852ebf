//! `cp.async`: each lane copies up to sixteen bytes from global to shared memory; its group tells when.

use super::super::access::{
    At, Hazards, addresses, check_shared, count_copy, count_shared, lanes, refused, uninitialised,
};
use super::super::regs::LANES;
use super::super::{Block, Env, Stop};
use crate::sim::footprint::Passes;
use crate::sim::memory::Cursor;
use crate::sim::op::Copy;
use crate::sim::shared::By;

impl Block {
    pub(super) fn copy(&mut self, env: &mut Env<'_>, at: At, copy: &Copy) -> Result<(), Stop> {
        let targets = self.shared_addresses(at, copy.dst);
        let regs = self.warps[at.warp].regs(at.frame);
        let sources = addresses(&regs, at.frame, &copy.src.address);
        let ignored = copy.ignored.map_or(0, |pred| regs.pred(pred));
        let bytes = u32::from(copy.bytes);
        let taken = copy.taken.map_or([bytes; LANES], |slot| regs.n(slot));
        let actor = self.actors.copies(at.warp);
        let epoch = self.beside(actor, at).epoch;
        let reads: u32 = lanes(at.mask)
            .filter(|&lane| ignored >> lane & 1 == 0 && taken[lane] > 0)
            .fold(0, |bits, lane| bits | 1 << lane);
        if reads != 0 {
            count_copy(env, &sources, At { mask: reads, ..at }, bytes as usize);
        }
        let mut seen = Hazards::default();
        let mut undefined = false;
        let mut cursor = Cursor::default();
        let Self {
            shared, knowledge, ..
        } = self;
        let by = By {
            actor,
            epoch,
            knows: &knowledge[at.warp],
            pc: at.pc,
        };
        shared.begin_request();
        let mut passes = Passes::of_store(at.mask, bytes);
        let mut pass = 0;
        for lane in lanes(at.mask) {
            if pass >> lane & 1 == 0 {
                pass = passes.next().unwrap_or_default();
                shared.begin_pass();
            }
            let address = targets[lane] as u32;
            check_shared(env, shared, at.pc, address, bytes, lane)?;
            let mut data = [0u8; 16];
            if reads >> lane & 1 != 0 {
                let whole = &mut data[..bytes as usize];
                match (env.memory).read(&mut cursor, sources[lane], whole, env.options.checks) {
                    Ok(defined) => undefined |= !defined,
                    Err(refusal) => {
                        let from = sources[lane];
                        return Err(refused(env, at.pc, &refusal, from, bytes as usize, lane));
                    }
                }
                data[(taken[lane].min(bytes)) as usize..].fill(0);
            }
            seen.race(shared.overwrites_reading(address, address + bytes, &by));
            for (index, word) in data[..bytes as usize].chunks_exact(4).enumerate() {
                let place = address as usize / 4 + index;
                let mut value = [0; 4];
                value.copy_from_slice(word);
                seen.race(shared.write(place, 0xf, false, false, &by));
                shared.set_word(place, u32::from_le_bytes(value));
            }
        }
        count_shared(env, shared, at, 0);
        if undefined {
            uninitialised(env, at.pc, "global memory");
        }
        seen.report(env, at.pc);
        Ok(())
    }
}
