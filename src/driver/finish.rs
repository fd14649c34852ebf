//! How a search ends: its best-looking kernels race, the winner is judged once more in full, and on a GPU its claim is
//! measured against the baselines.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::{Drive, DriveError};
use crate::evaluate::Evaluation;
use crate::search::{Race, Timing};
use crate::source::{Point, Source};
use crate::store::{Event, Retimed};
use crate::verdict::{Claim, Verdict};

/// Leaders in a row that a second look may refute before the search counts as without a winner.
const MOST_REFUTED: usize = 8;

impl Drive<'_> {
    /// Times the best-looking again, in turns, until one is ahead; `None` where there is no need, where the
    /// judge would only repeat itself, and where Ctrl-C came in between.
    pub(super) fn race(&self, interrupt: &AtomicBool) -> Result<Option<Event>, DriveError> {
        if !self.rig.confirm {
            return Ok(None);
        }
        let search = &self.fold.search;
        let params = &search.params().race;
        let contenders = self.fold.contenders.to_race(params.runners as usize);
        let broken = |error| self.broken(error);
        let started = Instant::now();
        let mut timers = Vec::with_capacity(contenders.len());
        for ((node, point), _) in &contenders {
            let source = self.source(*node);
            let timer = self.rig.evaluator.timer(source, point).map_err(broken)?;
            let Some(timer) = timer else { return Ok(None) };
            timers.push(timer);
        }
        let mut race = Race::new(params.clone(), contenders.iter().map(|(_, factor)| *factor));
        let mut failed = vec![None; timers.len()];
        let mut full_load = false;
        while let Some(turn) = race.next() {
            if interrupt.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let timing = match timers[turn]().map_err(broken)? {
                Ok(retiming) => {
                    full_load |= retiming.full_load;
                    Some(Timing::of(&retiming.time))
                }
                Err(reason) => {
                    failed[turn] = Some(reason);
                    None
                }
            };
            race.tell(turn, timing);
        }
        let kernels: Vec<Retimed> = contenders
            .into_iter()
            .zip(race.times().zip(failed))
            .map(|(((node, point), factor), (times, failed))| Retimed {
                setting: self.source(node).space().setting(&point),
                node,
                point,
                factor,
                times,
                full_load,
                failed,
            })
            .collect();
        let took_ms = started.elapsed().as_millis() as u64;
        Ok((!kernels.is_empty()).then_some(Event::Retimed { kernels, took_ms }))
    }

    /// Judges the leader again, in full; `None` where that is done. A leader that is refuted makes room for
    /// the next.
    pub(super) fn confirm(&mut self) -> Result<Option<Event>, DriveError> {
        if !self.rig.confirm {
            return Ok(None);
        }
        let Some((node, point)) = self.fold.contenders.unconfirmed(MOST_REFUTED) else {
            return Ok(None);
        };
        let source = self.source(node);
        let started = Instant::now();
        let mut evaluation = self
            .rig
            .evaluator
            .confirm(source, &point)
            .map_err(|error| self.broken(error))?;
        let setting = source.space().setting(&point);
        let kernel = evaluation.kernel.take();
        let claim = self.claim(source, &point, &mut evaluation)?;
        let passed = evaluation.verdict.measurement().is_some();
        Ok(Some(Event::Confirmed {
            node,
            setting,
            point,
            kernel: self.store_if(passed, kernel)?,
            evaluation: Box::new(evaluation),
            claim: claim.map(Box::new),
            took_ms: started.elapsed().as_millis() as u64,
        }))
    }

    /// Measures what was just confirmed beside what it is set against, where that can be done. What falls
    /// there was not confirmed after all.
    fn claim(
        &self,
        source: &Source,
        point: &Point,
        evaluation: &mut Evaluation,
    ) -> Result<Option<Claim>, DriveError> {
        let Some(measurement) = evaluation.verdict.measurement() else {
            return Ok(None);
        };
        let claim = self
            .rig
            .evaluator
            .claim(source, point)
            .map_err(|error| self.broken(error))?;
        if let Some(claim) = &claim
            && !claim.flaws.is_empty()
        {
            evaluation.verdict = Verdict::Voided {
                reasons: claim.flaws.clone(),
                measurement: Box::new(measurement.clone()),
            };
        }
        Ok(claim)
    }
}
