//! A cache of verdicts around an evaluator, shared by all workers. A question that is being answered is
//! waited for, not answered twice. A cached time may steer a search; it never decides a winner: the final
//! measurement goes past the cache ([`Evaluator::confirm`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::once::Once;
use super::{Evaluation, Evaluator, Timer};
use crate::device::RigError;
use crate::source::{Point, Source};
use crate::units::Digest;
use crate::verdict::{Claim, Diagnostic, Verdict};

/// An evaluator that can say what its answer depends on.
pub trait Keyed: Evaluator {
    /// A hash of everything that decides the verdict: the candidate, the task with its sizes, versions of
    /// judge, cost model and tools, the GPU with its driver, the seed. `None` where there is no candidate
    /// to hash; such an answer is not cached.
    fn key(&self, source: &Source, point: &Point) -> Option<Digest>;
}

/// The decorator.
pub struct Cached<E> {
    inner: E,
    verdicts: Once<Digest, Remembered>,
    hits: AtomicU64,
}

/// An answer, and the source text that its lines are about.
#[derive(Clone)]
struct Remembered {
    evaluation: Evaluation,
    source: Arc<str>,
}

impl<E: Keyed> Cached<E> {
    /// With an empty cache.
    pub fn new(inner: E) -> Self {
        Self {
            inner,
            verdicts: Once::new(),
            hits: AtomicU64::new(0),
        }
    }

    /// How many questions the cache answered.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }
}

impl<E: Keyed> Evaluator for Cached<E> {
    fn evaluate(&self, source: &Source, point: &Point) -> Result<Evaluation, RigError> {
        let Some(key) = self.inner.key(source, point) else {
            return self.inner.evaluate(source, point);
        };
        let (remembered, hit) = self.verdicts.get_or_make(key, || {
            let evaluation = self.inner.evaluate(source, point)?;
            Ok::<_, RigError>(Remembered {
                evaluation,
                source: Arc::clone(&source.text),
            })
        })?;
        if hit {
            self.hits.fetch_add(1, Ordering::Relaxed);
        }
        let mut evaluation = remembered.evaluation;
        if remembered.source != source.text {
            // The same kernel came out of another text: the verdict holds, its lines do not.
            without_lines(&mut evaluation.verdict);
        }
        Ok(evaluation)
    }

    fn confirm(&self, source: &Source, point: &Point) -> Result<Evaluation, RigError> {
        self.inner.confirm(source, point)
    }

    fn timer(&self, source: &Source, point: &Point) -> Result<Option<Timer<'_>>, RigError> {
        self.inner.timer(source, point)
    }

    fn claim(&self, source: &Source, point: &Point) -> Result<Option<Claim>, RigError> {
        self.inner.claim(source, point)
    }

    fn deterministic(&self) -> bool {
        self.inner.deterministic()
    }

    fn forget(&self) {
        self.verdicts.clear();
    }
}

fn without_lines(verdict: &mut Verdict) {
    let forget = |diagnostics: &mut Vec<Diagnostic>| {
        for diagnostic in diagnostics {
            diagnostic.line = None;
            diagnostic.other_line = None;
        }
    };
    match verdict {
        Verdict::Unrenderable { diagnostics }
        | Verdict::Forbidden { diagnostics }
        | Verdict::Unassembled { diagnostics }
        | Verdict::Faulted { diagnostics }
        | Verdict::Hung { diagnostics }
        | Verdict::Racy { diagnostics } => forget(diagnostics),
        Verdict::Voided { measurement, .. } | Verdict::Measured(measurement) => {
            forget(&mut measurement.warnings);
            let evidence = measurement
                .diagnosis
                .iter_mut()
                .flat_map(|d| &mut d.evidence);
            evidence.for_each(|evidence| evidence.line = None);
        }
        Verdict::AssemblerFailed { .. }
        | Verdict::OverLimits { .. }
        | Verdict::Wrong { .. }
        | Verdict::RecordedFailure { .. } => {}
    }
}
