//! Slots: bytes that were uploaded once, kept for many calls, and known to be what they were.

use super::{Engine, Trouble};
use crate::device::cuda::driver::Address;
use crate::device::cuda::memory::Region;
use crate::device::cuda::protocol::{Call, Initial};

/// Uploaded bytes.
pub(super) struct Slot {
    pub(super) region: Region,
    pub(super) digest: u64,
}

impl Engine {
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

    /// Whether what the calls take from slots is still what was uploaded, between guards that stand. A kernel that
    /// writes beyond its buffers may hit a slot or its guards; the next call must not pay for it.
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
                if overwritten.contains(&slot) {
                    continue;
                }
                let Slot { region, digest } = self.slot(slot)?;
                let unchanged = self.digest(region.address(), region.bytes())? == *digest;
                if !unchanged || self.memory.intrusion(&self.cuda, region)?.is_some() {
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

    pub(super) fn slot(&self, slot: u64) -> Result<&Slot, Trouble> {
        self.slots
            .get(&slot)
            .ok_or_else(|| Trouble::Failed(format!("nothing was uploaded to slot {slot}")))
    }

    pub(super) fn slot_at(&self, slot: u64) -> Result<(Address, u64), Trouble> {
        let region = &self.slot(slot)?.region;
        Ok((region.address(), region.bytes()))
    }

    pub(super) fn expect_slot(&self, slot: u64, bytes: u64) -> Result<(), Trouble> {
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
