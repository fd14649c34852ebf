//! The **recorded** evaluator: answers from a table of real measurements that someone made before. It
//! runs no kernel and needs no PTX: a header-only source stands for the table's space.

mod read;
mod table;
#[cfg(test)]
mod tests;
mod trace;

use std::sync::atomic::{AtomicU64, Ordering};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

pub use read::{TableError, read};
pub use table::{Entry, Row, Table};
pub use trace::Trace;

use super::{Evaluation, Evaluator, Retiming, Timer};
use crate::device::RigError;
use crate::source::{Point, Source};
use crate::units::{Digest, Nanos};
use crate::verdict::{Audit, InstructionScore, Measurement, Score, Time, Verdict};

/// What a failed look-up says. Part of verdicts, so stable.
const MISSING: &str = "not in the table";

/// Answers from a table.
#[derive(Debug)]
pub struct Recorded {
    table: Table,
    noise: Option<Noise>,
}

/// Draws one raw sample an evaluation instead of the table's time.
#[derive(Debug)]
struct Noise {
    seed: u64,
    draws: AtomicU64,
}

impl Recorded {
    /// Always answers with the table's own times.
    pub fn new(table: Table) -> Self {
        Self { table, noise: None }
    }

    /// Answers with one raw sample, drawn anew each time, where the table holds samples.
    pub fn noisy(table: Table, seed: u64) -> Self {
        let draws = AtomicU64::new(0);
        let noise = Some(Noise { seed, draws });
        Self { table, noise }
    }

    /// The table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    fn time(&self, time: Nanos, samples: &[Nanos]) -> Nanos {
        match &self.noise {
            Some(noise) if !samples.is_empty() => {
                let draw = noise.draws.fetch_add(1, Ordering::Relaxed);
                let parts = [noise.seed.to_le_bytes(), draw.to_le_bytes()];
                let seed = Digest::of_parts(parts.iter().map(|part| &part[..])).seed();
                samples[Pcg64::seed_from_u64(seed).random_range(0..samples.len())]
            }
            Some(_) | None => time,
        }
    }
}

impl Evaluator for Recorded {
    fn evaluate(&self, source: &Source, point: &Point) -> Result<Evaluation, RigError> {
        let failure = |reason: String| Verdict::RecordedFailure { reason };
        let verdict = match self.table.entry(source, point) {
            Entry::Found(Row::Time { time, samples }) => measured(self.time(*time, samples)),
            Entry::Found(Row::Failed { reason }) => failure(reason.clone()),
            Entry::Missing => failure(MISSING.to_owned()),
            Entry::Foreign { message } => failure(message),
        };
        Ok(Evaluation {
            candidate: None,
            verdict,
            kernel: None,
        })
    }

    fn timer(&self, source: &Source, point: &Point) -> Result<Option<Timer<'_>>, RigError> {
        if self.noise.is_none() {
            return Ok(None);
        }
        let time: Timer<'_> = match self.table.entry(source, point) {
            Entry::Found(Row::Time { time, samples }) => Box::new(|| {
                let time = self.time(*time, samples);
                Ok(Ok(Retiming {
                    time: Time::Recorded { time },
                    full_load: false,
                }))
            }),
            Entry::Found(Row::Failed { reason }) => Box::new(|| Ok(Err(reason.clone()))),
            Entry::Missing => Box::new(|| Ok(Err(MISSING.to_owned()))),
            Entry::Foreign { message } => Box::new(move || Ok(Err(message.clone()))),
        };
        Ok(Some(time))
    }

    fn deterministic(&self) -> bool {
        self.noise.is_none()
    }
}

fn measured(time: Nanos) -> Verdict {
    Verdict::Measured(Box::new(Measurement {
        time: Time::Recorded { time },
        resources: Vec::new(),
        score: Score {
            correct: true,
            instructions: InstructionScore::NotProfiled { value: 1.0 },
            speedup: None,
            audit: Audit::Passed,
        },
        diagnosis: None,
        checked: vec!["correct according to the table".into()],
        not_checked: vec!["no kernel was run".into()],
        warnings: Vec::new(),
    }))
}
