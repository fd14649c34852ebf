//! Where the time of judging goes: wall time by stage, added up over all candidates and threads. A stage that
//! needs the device includes the wait for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A stage of judging a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Parsing, lints and plans: no tool and no device.
    Front,
    /// ptxas.
    Assemble,
    /// Outputs against the reference.
    Verify,
    /// Replays.
    Time,
    /// The profiler and the sanitizer.
    Observe,
}

impl Stage {
    /// All of them, in the order they run.
    pub const ALL: [Self; 5] = [
        Self::Front,
        Self::Assemble,
        Self::Verify,
        Self::Time,
        Self::Observe,
    ];

    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Front => "front",
            Self::Assemble => "assemble",
            Self::Verify => "verify",
            Self::Time => "time",
            Self::Observe => "observe",
        }
    }
}

/// Time spent in each stage so far.
#[derive(Debug, Default)]
pub struct Stages {
    nanos: [AtomicU64; Stage::ALL.len()],
}

impl Stages {
    /// Does it, and adds the time it took.
    pub fn during<T>(&self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let since = Instant::now();
        let done = work();
        let nanos = since.elapsed().as_nanos() as u64;
        self.nanos[stage as usize].fetch_add(nanos, Ordering::Relaxed);
        done
    }

    /// The stages that took any time.
    pub fn spent(&self) -> Vec<(Stage, Duration)> {
        Stage::ALL
            .into_iter()
            .map(|stage| (stage, self.nanos[stage as usize].load(Ordering::Relaxed)))
            .filter(|(_, nanos)| *nanos > 0)
            .map(|(stage, nanos)| (stage, Duration::from_nanos(nanos)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_added_to_its_stage() {
        let stages = Stages::default();
        assert!(stages.spent().is_empty());
        let nap = Duration::from_millis(2);
        for _ in 0..2 {
            stages.during(Stage::Verify, || std::thread::sleep(nap));
        }
        let spent = stages.spent();
        assert!(matches!(spent[..], [(Stage::Verify, took)] if took >= 2 * nap));
    }
}
