//! Judges a given list of settings, in any order, each once: brute force, tables of results, other people's
//! kernels. What is judged is written at once; a batch that was stopped goes on with what is left.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::{DriveError, Ended, LOOK_EVERY};
use crate::evaluate::Evaluator;
use crate::search::{NodeId, StopReason, Ticket};
use crate::source::{Point, Source};
use crate::store::{Event, Line, RunWriter, StoredKernel};

/// A setting to judge.
#[derive(Clone, Debug)]
pub struct Item {
    /// The node of its source in the run.
    pub node: NodeId,
    /// The source.
    pub source: Arc<Source>,
    /// The setting.
    pub point: Point,
}

/// Judges what `past` has not judged yet, on `jobs` threads. `judged` hears each event as it is written.
/// Ctrl-C waits for what is being judged; what is left is judged by the next call.
pub fn batch(
    evaluator: &dyn Evaluator,
    run: &mut RunWriter,
    past: &[Line],
    items: &[Item],
    jobs: usize,
    interrupt: &AtomicBool,
    mut judged: impl FnMut(&Line),
) -> Result<Ended, DriveError> {
    let mut done = HashSet::new();
    let mut best = f64::INFINITY;
    let mut finished = false;
    for line in past {
        finished = matches!(line.event, Event::Finished { .. });
        if let Event::Evaluated {
            node,
            point,
            evaluation,
            ..
        } = &line.event
        {
            done.insert((*node, point.clone()));
            best = best.min(evaluation.cost().unwrap_or(f64::INFINITY));
        }
    }
    let elapsed_before = Duration::from_millis(past.last().map_or(0, |line| line.elapsed_ms));
    let started = Instant::now();
    let left: Vec<&Item> = items
        .iter()
        .filter(|item| !done.contains(&(item.node, item.point.clone())))
        .collect();
    if !left.is_empty() {
        finished = false;
    }
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let (to_writer, answers) = mpsc::channel();
    let mut ticket = done.len() as u64;
    let result = thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            let to_writer = to_writer.clone();
            let (left, next, stop) = (&left, &next, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = left.get(at) else { return };
                    let since = Instant::now();
                    let result = evaluator.evaluate(&item.source, &item.point);
                    if to_writer.send((at, result, since.elapsed())).is_err() {
                        return;
                    }
                }
            });
        }
        drop(to_writer);
        loop {
            if interrupt.load(Ordering::Relaxed) {
                stop.store(true, Ordering::Relaxed);
            }
            let (at, result, took) = match answers.recv_timeout(LOOK_EVERY) {
                Ok(answer) => answer,
                Err(mpsc::RecvTimeoutError::Timeout) => match run.log.settle() {
                    Ok(()) => continue,
                    Err(error) => {
                        stop.store(true, Ordering::Relaxed);
                        return Err(error.into());
                    }
                },
                Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
            };
            let item = left[at];
            let write = || -> Result<(), DriveError> {
                let mut evaluation = result.map_err(|error| DriveError::Rig {
                    error,
                    folder: run.folder.display().to_string(),
                })?;
                let kernel = evaluation.kernel.take();
                let now = evaluation.cost().unwrap_or(f64::INFINITY);
                let leads = now < best;
                best = best.min(now);
                let kernel = match kernel.filter(|_| leads) {
                    Some(kernel) => Some(StoredKernel {
                        ptx: run.objects.put(kernel.ptx.as_bytes())?,
                        cubin: run.objects.put(&kernel.cubin)?,
                    }),
                    None => None,
                };
                let event = Event::Evaluated {
                    ticket: Ticket(ticket),
                    node: item.node,
                    point: item.point.clone(),
                    setting: item.source.space().setting(&item.point),
                    left_out: Vec::new(),
                    evaluation: Box::new(evaluation),
                    kernel,
                    best: leads,
                    took_ms: took.as_millis() as u64,
                };
                ticket += 1;
                let line = run.log.append(elapsed_before + started.elapsed(), event)?;
                judged(&line);
                Ok(())
            };
            if let Err(error) = write() {
                stop.store(true, Ordering::Relaxed);
                return Err(error);
            }
        }
    });
    let synced = run.log.sync();
    result?;
    synced?;
    if next.load(Ordering::Relaxed) < left.len() {
        return Ok(Ended::Interrupted);
    }
    let reason = StopReason::Exhausted;
    if !finished {
        let event = Event::Finished { reason };
        let line = run.log.append(elapsed_before + started.elapsed(), event)?;
        judged(&line);
        run.log.sync()?;
    }
    Ok(Ended::Stopped(reason))
}
