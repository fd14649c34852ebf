//! Which buffers' contents a worker holds already, so that a search uploads its inputs once and not once a
//! candidate. Contents are known by identity: the same `Arc`, kept alive here. It sends nothing itself.

use std::collections::HashSet;
use std::sync::Arc;

use super::protocol::Initial;
use crate::device::{Buffer, Contents};

/// Most bytes of `Contents::Bytes` kept alive on the host.
const HOST_BYTES: u64 = 4 << 30;

/// What a worker holds.
pub struct Cache {
    entries: Vec<Entry>,
    next_slot: u64,
    clock: u64,
    budget: u64,
}

struct Entry {
    key: Key,
    slot: u64,
    bytes: u64,
    used: u64,
    /// Kept, so that no other contents can get the same address.
    _contents: Contents,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    Bytes(usize),
    Generated(usize, u64),
}

/// What must happen before a job can run.
pub struct Supply {
    /// Contents of each buffer, in order.
    pub initial: Vec<Initial>,
    /// Slots to forget first.
    pub discards: Vec<u64>,
    /// Slots to fill, with the index of a buffer that has the contents.
    pub uploads: Vec<(u64, usize)>,
}

impl Cache {
    /// For a worker that may hold `budget` bytes.
    pub fn new(budget: u64) -> Self {
        Self {
            entries: Vec::new(),
            next_slot: 0,
            clock: 0,
            budget,
        }
    }

    /// What is missing for `buffers`; what was not used longest makes room. An error names a buffer whose
    /// contents are not as long as it is.
    pub fn supply(&mut self, buffers: &[Buffer]) -> Result<Supply, String> {
        self.clock += 1;
        let mut initial = Vec::with_capacity(buffers.len());
        let mut uploads = Vec::new();
        let mut wanted = HashSet::new();
        for (index, buffer) in buffers.iter().enumerate() {
            let bytes = buffer.bytes.0;
            let key = match &buffer.contents {
                Contents::Fill(byte) => {
                    initial.push(Initial::Fill(*byte));
                    continue;
                }
                Contents::Bytes(contents) if contents.len() as u64 != bytes => {
                    return Err(format!(
                        "buffer `{}` has {bytes} bytes, its contents have {}",
                        buffer.name,
                        contents.len()
                    ));
                }
                Contents::Bytes(contents) => {
                    Key::Bytes(Arc::as_ptr(contents).cast::<u8>() as usize)
                }
                Contents::Generated(generator) => {
                    Key::Generated(Arc::as_ptr(generator).cast::<u8>() as usize, bytes)
                }
            };
            let slot = match self.entries.iter_mut().find(|entry| entry.key == key) {
                Some(entry) => {
                    entry.used = self.clock;
                    entry.slot
                }
                None => {
                    let slot = self.next_slot;
                    self.next_slot += 1;
                    self.entries.push(Entry {
                        key,
                        slot,
                        bytes,
                        used: self.clock,
                        _contents: buffer.contents.clone(),
                    });
                    uploads.push((slot, index));
                    slot
                }
            };
            wanted.insert(slot);
            initial.push(Initial::Slot(slot));
        }
        Ok(Supply {
            initial,
            discards: self.evict(&wanted),
            uploads,
        })
    }

    /// A slot no longer holds what was uploaded, or never came to.
    pub fn forget(&mut self, slot: u64) {
        self.entries.retain(|entry| entry.slot != slot);
    }

    fn evict(&mut self, wanted: &HashSet<u64>) -> Vec<u64> {
        let mut discards = Vec::new();
        loop {
            let device: u64 = self.entries.iter().map(|entry| entry.bytes).sum();
            let host: u64 = self
                .entries
                .iter()
                .filter(|entry| matches!(entry.key, Key::Bytes(_)))
                .map(|entry| entry.bytes)
                .sum();
            if device <= self.budget && host <= HOST_BYTES {
                return discards;
            }
            let oldest = self
                .entries
                .iter()
                .filter(|entry| !wanted.contains(&entry.slot))
                .min_by_key(|entry| entry.used)
                .map(|entry| entry.slot);
            // what this job needs stays, whatever the budget: the device says whether it fits
            let Some(slot) = oldest else { return discards };
            self.forget(slot);
            discards.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::DType;
    use crate::units::Bytes;

    fn buffer(name: &str, contents: Contents, bytes: u64) -> Buffer {
        Buffer {
            name: name.to_owned(),
            dtype: DType::F32,
            bytes: Bytes(bytes),
            writable: false,
            contents,
        }
    }

    fn bytes(n: usize) -> Contents {
        Contents::Bytes(vec![0; n].into())
    }

    #[test]
    fn the_same_contents_are_uploaded_once() {
        let mut cache = Cache::new(1 << 20);
        let x = buffer("x", bytes(64), 64);
        let y = buffer(
            "y",
            Contents::Generated(Arc::new(|_, out| out.fill(7))),
            128,
        );
        let poison = buffer("out", Contents::Fill(0xff), 64);
        let buffers = [x, y, poison];
        let first = cache.supply(&buffers).expect("lengths agree");
        assert_eq!(first.uploads, [(0, 0), (1, 1)]);
        assert_eq!(
            first.initial,
            [Initial::Slot(0), Initial::Slot(1), Initial::Fill(0xff)]
        );
        let second = cache.supply(&buffers).expect("lengths agree");
        assert!(second.uploads.is_empty());
        assert_eq!(second.initial, first.initial);
    }

    #[test]
    fn what_was_not_used_longest_makes_room_but_never_what_is_needed() {
        let mut cache = Cache::new(200);
        let x = buffer("x", bytes(100), 100);
        let y = buffer("y", bytes(100), 100);
        let z = buffer("z", bytes(150), 150);
        for job in [&x, &y, &x] {
            cache
                .supply(std::slice::from_ref(job))
                .expect("lengths agree");
        }
        let supply = cache.supply(&[z, x]).expect("lengths agree");
        assert_eq!(supply.discards, [1], "y goes, x is needed and stays");
        assert_eq!(supply.uploads, [(2, 0)]);
    }

    #[test]
    fn a_forgotten_slot_is_uploaded_again() {
        let mut cache = Cache::new(1000);
        let x = [buffer("x", bytes(10), 10)];
        cache.supply(&x).expect("lengths agree");
        cache.forget(0);
        assert_eq!(cache.supply(&x).expect("lengths agree").uploads, [(1, 0)]);
    }

    #[test]
    fn contents_of_another_length_are_named() {
        let mut cache = Cache::new(1000);
        let error = cache.supply(&[buffer("x", bytes(10), 12)]).err();
        assert_eq!(
            error.as_deref(),
            Some("buffer `x` has 12 bytes, its contents have 10")
        );
    }
}
