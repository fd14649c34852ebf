//! Parts of shared memory that asynchronous work reads: a product's operands, a bulk store's source. Kept as
//! ranges beside the words' own shadow, for one product reads thousands of words, and whoever overwrites them
//! must have waited for it.

use super::causal::Knowledge;
use super::op::Pc;

/// A read by asynchronous work.
struct Reading {
    /// Byte ranges, ascending, apart from each other.
    ranges: Vec<(u32, u32)>,
    actor: usize,
    epoch: u32,
    pc: Pc,
}

#[derive(Default)]
pub(crate) struct Readings {
    list: Vec<Reading>,
}

impl Readings {
    pub fn clear(&mut self) {
        self.list.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Notes a read. A later one of the same place by the same actor stands for the earlier: whoever may not
    /// overwrite the one may not overwrite the other.
    pub fn note(&mut self, ranges: Vec<(u32, u32)>, actor: usize, epoch: u32, pc: Pc) {
        let same = (self.list.iter_mut()).find(|r| r.actor == actor && r.ranges == ranges);
        match same {
            Some(reading) if reading.epoch > epoch => {}
            Some(reading) => (reading.epoch, reading.pc) = (epoch, pc),
            None => self.list.push(Reading {
                ranges,
                actor,
                epoch,
                pc,
            }),
        }
    }

    /// A read of the bytes `from..to` that whoever knows this cannot know to be over; its instruction.
    pub fn unfinished(&self, from: u32, to: u32, knows: &Knowledge) -> Option<Pc> {
        let overlaps = |reading: &&Reading| {
            let last = reading.ranges.last().map_or(0, |r| r.1);
            let first = reading.ranges.first().map_or(0, |r| r.0);
            from < last
                && to > first
                && reading.epoch > knows.seen[reading.actor]
                && (reading.ranges.iter()).any(|&(start, end)| from < end && to > start)
        };
        self.list.iter().find(overlaps).map(|reading| reading.pc)
    }
}

/// Sorts ranges and joins those that touch.
pub(crate) fn merge(mut ranges: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    ranges.sort_unstable();
    let mut out: Vec<(u32, u32)> = Vec::new();
    for (start, end) in ranges {
        match out.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    out
}
