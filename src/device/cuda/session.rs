//! The worker's timing: one or two calls made ready as graphs over rotated sets, and replays of them.
//! It measures and checks; which replays to run and what the times mean is the parent's to say.

use std::time::Instant;

use super::driver::{Event, Graph};
use super::engine::{Announce, Code, Engine, Held, Trouble, ran};
use super::memory::Memory;
use super::protocol::{Call, Checked, Prepared, Replay, Role, Stage};

/// Most kernel and fill nodes in one graph.
const MAX_NODES: u32 = 1024;

/// Calls in the first, rough timing.
const ROUGH_CALLS: u32 = 3;

/// A walk round all sets takes no longer than about this.
const WALK_NS: f64 = 200e6;

/// What outputs hold before the replay that checks them: another pattern than before.
const SECOND_POISON: u8 = 0xa5;

/// Share of free memory that a timing may take.
const MEMORY_SHARE: f64 = 0.85;

/// Calls that are ready to be timed.
pub struct Session {
    calls: Vec<Ready>,
    start: Event,
    end: Event,
}

/// A call made ready. Graphs go before the code that they launch.
struct Ready {
    graphs: Vec<Graph>,
    next: usize,
    sets: Vec<Vec<Held>>,
    /// Per set: digests of the outputs of an untimed call.
    expected: Vec<Vec<Option<u64>>>,
    inputs: Vec<Vec<Option<u64>>>,
    prepared: Prepared,
    call: Call,
    _code: Code,
}

impl Session {
    /// Makes calls ready: loaded, run once on every set, captured and warmed up.
    pub fn new(
        engine: &mut Engine,
        calls: Vec<Call>,
        replay: Replay,
        announce: Announce<'_>,
    ) -> Result<Self, Trouble> {
        let mut session = Self {
            calls: Vec::new(),
            start: engine.cuda.event()?,
            end: engine.cuda.event()?,
        };
        engine.expect_unchanged(&calls)?;
        let count = calls.len() as u64;
        for (index, call) in (0u8..).zip(calls) {
            match session.ready(engine, call, index, count, replay, announce) {
                Ok(ready) => session.calls.push(ready),
                Err(trouble) => {
                    session.release(engine);
                    return Err(trouble);
                }
            }
        }
        Ok(session)
    }

    /// How each call was set up.
    pub fn prepared(&self) -> Vec<Prepared> {
        self.calls.iter().map(|ready| ready.prepared).collect()
    }

    /// Times one replay for each entry of `order`; nanoseconds per call, and the SM clock before and after.
    pub fn sample(
        &mut self,
        engine: &Engine,
        order: &[u8],
    ) -> Result<(Vec<f64>, (f64, f64)), Trouble> {
        let before = engine.clock_mhz()?;
        let mut nanos = Vec::with_capacity(order.len());
        for &index in order {
            let ready = self
                .calls
                .get_mut(usize::from(index))
                .ok_or_else(|| Trouble::Failed(format!("there is no call {index} to replay")))?;
            let graph = &ready.graphs[ready.next];
            ready.next = (ready.next + 1) % ready.graphs.len();
            let cuda = &engine.cuda;
            cuda.record(&self.start).map_err(|e| ran(index, e))?;
            cuda.replay(graph).map_err(|e| ran(index, e))?;
            cuda.record(&self.end).map_err(|e| ran(index, e))?;
            cuda.synchronize().map_err(|e| ran(index, e))?;
            let elapsed = cuda.elapsed(&self.start, &self.end)?;
            nanos.push(elapsed / f64::from(ready.prepared.calls));
        }
        let after = engine.clock_mhz()?;
        Ok((nanos, (before, after)))
    }

    /// Checks what the timed calls left; then gives the sets each other's inputs and poisons the outputs,
    /// replays the very same graphs, and checks again: a kernel that kept results from earlier calls fails.
    pub fn check(
        &mut self,
        engine: &mut Engine,
        announce: Announce<'_>,
    ) -> Result<Vec<Checked>, Trouble> {
        let mut all = Vec::with_capacity(self.calls.len());
        for (index, ready) in (0u8..).zip(&self.calls) {
            let call = &ready.call;
            let mut unsteady = vec![false; call.regions.len()];
            let mut violations = Vec::new();
            let mut compare = |engine: &Engine, rotate: usize| -> Result<(), Trouble> {
                for (set, held) in ready.sets.iter().enumerate() {
                    let as_set = (set + rotate) % ready.sets.len();
                    let found = engine.output_digests(call, held)?;
                    for (i, found) in found.iter().enumerate() {
                        unsteady[i] |= *found != ready.expected[as_set][i];
                    }
                    let inputs = engine.input_digests(call, held)?;
                    for (region, (found, before)) in call
                        .regions
                        .iter()
                        .zip(inputs.iter().zip(&ready.inputs[as_set]))
                    {
                        if found != before {
                            violations
                                .push(format!("`{}` is read only and was modified", region.name));
                        }
                    }
                    violations.extend(engine.intrusions(call, held)?);
                }
                Ok(())
            };
            compare(engine, 0)?;
            for (set, held) in ready.sets.iter().enumerate() {
                let other = (set + 1) % ready.sets.len();
                engine.fill(call, held, other as u32, Some(SECOND_POISON))?;
            }
            engine.cuda.synchronize()?;
            for graph in &ready.graphs {
                announce(Stage::Launching {
                    call: index,
                    expected_ns: ready.prepared.rough_ns * f64::from(ready.prepared.calls),
                })?;
                engine.cuda.replay(graph).map_err(|e| ran(index, e))?;
                engine.cuda.synchronize().map_err(|e| ran(index, e))?;
            }
            announce(Stage::Housekeeping)?;
            compare(engine, 1)?;
            violations.sort();
            violations.dedup();
            all.push(Checked {
                unsteady: call
                    .regions
                    .iter()
                    .zip(unsteady)
                    .filter(|(_, unsteady)| *unsteady)
                    .map(|(region, _)| region.name.clone())
                    .collect(),
                violations,
            });
        }
        Ok(all)
    }

    /// Gives all memory back.
    pub fn release(self, engine: &mut Engine) {
        for ready in self.calls {
            for held in ready.sets {
                engine.release(held);
            }
        }
    }

    fn ready(
        &self,
        engine: &mut Engine,
        call: Call,
        index: u8,
        count: u64,
        replay: Replay,
        announce: Announce<'_>,
    ) -> Result<Ready, Trouble> {
        announce(Stage::Housekeeping)?;
        let code = engine.load(&call, index)?;
        let mut sets = Vec::new();
        let result = self.ready_sets(
            engine, &call, &code, &mut sets, index, count, replay, announce,
        );
        match result {
            Ok(made) => Ok(Ready {
                graphs: made.graphs,
                next: 0,
                sets,
                expected: made.expected,
                inputs: made.inputs,
                prepared: made.prepared,
                call,
                _code: code,
            }),
            Err(trouble) => {
                for held in sets {
                    engine.release(held);
                }
                Err(trouble)
            }
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one set-up, borrowed apart"
    )]
    fn ready_sets(
        &self,
        engine: &mut Engine,
        call: &Call,
        code: &Code,
        sets: &mut Vec<Vec<Held>>,
        index: u8,
        count: u64,
        replay: Replay,
        announce: Announce<'_>,
    ) -> Result<Made, Trouble> {
        sets.push(engine.place(call, false)?);
        let rough_ns = self.rough(engine, call, code, &sets[0], index, announce)?;
        let set_bytes: u64 = call.regions.iter().map(|r| r.bytes).sum();
        let footprint: u64 = call
            .regions
            .iter()
            .map(|r| Memory::footprint(r.bytes))
            .sum();
        let (free, _) = engine.cuda.memory()?;
        let left = (free + engine.memory.idle_bytes()) as f64 * MEMORY_SHARE / count as f64;
        let affordable = 1 + (left / footprint.max(1) as f64) as u64;
        let wanted = rotated_sets(set_bytes, rough_ns, replay);
        let nodes = queued(call) + cleared(call);
        let (set_count, calls, graph_count) = shape(
            wanted.min(affordable.min(u64::from(u32::MAX)) as u32),
            rough_ns,
            replay.target_ns,
            (MAX_NODES / nodes.max(1)).max(1),
        );
        while sets.len() < set_count as usize {
            sets.push(engine.place(call, false)?);
        }
        let mut launches = Vec::with_capacity(sets.len());
        let mut expected = Vec::with_capacity(sets.len());
        let mut inputs = Vec::with_capacity(sets.len());
        for (set, held) in (0u32..).zip(sets.iter()) {
            engine.fill(call, held, set, None)?;
            let prepared = engine.prepare(call, code, held, index)?;
            engine.cuda.synchronize()?;
            inputs.push(engine.input_digests(call, held)?);
            announce(Stage::Launching {
                call: index,
                expected_ns: rough_ns,
            })?;
            engine.queue(call, &prepared, held, index)?;
            engine.cuda.synchronize().map_err(|e| ran(index, e))?;
            announce(Stage::Housekeeping)?;
            expected.push(engine.output_digests(call, held)?);
            launches.push(prepared);
        }
        let mut graphs = Vec::with_capacity(graph_count as usize);
        for graph in 0..graph_count {
            let mut trouble = None;
            let captured = engine.cuda.capture(|_| {
                for i in 0..calls {
                    let set = ((graph * calls + i) % set_count) as usize;
                    if let Err(e) = engine.queue(call, &launches[set], &sets[set], index) {
                        trouble = Some(e);
                        break;
                    }
                }
                Ok(())
            });
            if let Some(trouble) = trouble {
                return Err(trouble);
            }
            graphs.push(captured?);
        }
        for graph in &graphs {
            announce(Stage::Launching {
                call: index,
                expected_ns: rough_ns * f64::from(calls),
            })?;
            engine.cuda.replay(graph).map_err(|e| ran(index, e))?;
            engine.cuda.synchronize().map_err(|e| ran(index, e))?;
        }
        announce(Stage::Housekeeping)?;
        Ok(Made {
            graphs,
            expected,
            inputs,
            prepared: Prepared {
                sets: set_count,
                calls,
                rotated_bytes: set_bytes * u64::from(set_count),
                rough_ns,
            },
        })
    }

    /// Nanoseconds per call, from a few calls in a row on the first set.
    fn rough(
        &self,
        engine: &Engine,
        call: &Call,
        code: &Code,
        held: &[Held],
        index: u8,
        announce: Announce<'_>,
    ) -> Result<f64, Trouble> {
        engine.fill(call, held, 0, None)?;
        let launches = engine.prepare(call, code, held, index)?;
        engine.cuda.synchronize()?;
        announce(Stage::Launching {
            call: index,
            expected_ns: 0.0,
        })?;
        let since = Instant::now();
        engine.queue(call, &launches, held, index)?;
        engine.cuda.synchronize().map_err(|e| ran(index, e))?;
        let first_ns = since.elapsed().as_nanos() as f64;
        announce(Stage::Launching {
            call: index,
            expected_ns: first_ns * f64::from(ROUGH_CALLS),
        })?;
        engine.cuda.record(&self.start)?;
        for _ in 0..ROUGH_CALLS {
            engine.queue(call, &launches, held, index)?;
        }
        engine.cuda.record(&self.end)?;
        engine.cuda.synchronize().map_err(|e| ran(index, e))?;
        announce(Stage::Housekeeping)?;
        let elapsed = engine.cuda.elapsed(&self.start, &self.end)?;
        Ok((elapsed / f64::from(ROUGH_CALLS)).max(1.0))
    }
}

struct Made {
    graphs: Vec<Graph>,
    expected: Vec<Vec<Option<u64>>>,
    inputs: Vec<Vec<Option<u64>>>,
    prepared: Prepared,
}

/// Kernel nodes of one call; a library's product may split its sums and add them up.
fn queued(call: &Call) -> u32 {
    match call.product {
        Some(_) => 2,
        None => call.launches.len() as u32,
    }
}

/// Fill nodes of one call.
fn cleared(call: &Call) -> u32 {
    call.regions
        .iter()
        .filter(|r| r.role == Role::Workspace { zero: true })
        .count() as u32
}

/// Sets that together exceed what should not stay in the cache; at least two, so that inputs can change,
/// and no more than a slow call can walk round in reasonable time.
fn rotated_sets(set_bytes: u64, rough_ns: f64, replay: Replay) -> u32 {
    let wanted = replay.rotate_bytes.div_ceil(set_bytes.max(1));
    let walkable = (WALK_NS / rough_ns) as u64;
    wanted
        .min(u64::from(replay.max_sets))
        .min(walkable)
        .clamp(2, u64::from(u32::MAX)) as u32
}

/// Sets, calls per graph and graphs, such that consecutive replays walk round all sets in order.
fn shape(sets: u32, rough_ns: f64, target_ns: f64, max_calls: u32) -> (u32, u32, u32) {
    let sets = sets.max(1);
    let calls = (target_ns / rough_ns)
        .ceil()
        .clamp(1.0, f64::from(max_calls)) as u32;
    if calls >= sets {
        // whole rounds: the next replay starts where this one ended
        let rounds = (calls.div_ceil(sets)).min((max_calls / sets).max(1));
        (sets, rounds * sets, 1)
    } else {
        let graphs = sets.div_ceil(calls);
        (graphs * calls, calls, graphs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_replays_walk_round_all_sets() {
        for sets in [1, 2, 3, 7, 64] {
            for rough_ns in [500.0, 20e3, 90e3, 3e6, 2e9] {
                let (made, calls, graphs) = shape(sets, rough_ns, 300e3, 512);
                assert!(made >= sets, "cold enough: {made} of {sets}");
                assert!(calls <= 512);
                assert_eq!(graphs * calls % made, 0, "the walk closes");
                assert!(
                    graphs == 1 || graphs * calls == made,
                    "no set is met twice in a walk"
                );
            }
        }
    }

    #[test]
    fn short_calls_fill_a_replay_and_long_ones_stand_alone() {
        assert_eq!(shape(2, 1_000.0, 300e3, 512), (2, 300, 1));
        assert_eq!(shape(2, 10e6, 300e3, 512), (2, 1, 2));
    }

    #[test]
    fn rotation_exceeds_the_cache_and_never_stays_at_one_set() {
        let replay = Replay {
            target_ns: 300e3,
            rotate_bytes: 300 << 20,
            max_sets: 64,
        };
        assert_eq!(rotated_sets(100 << 20, 1e4, replay), 3);
        assert_eq!(rotated_sets(4 << 30, 1e4, replay), 2);
        assert_eq!(rotated_sets(1024, 1e4, replay), 64);
        assert_eq!(rotated_sets(0, 1e4, replay), 64);
        assert_eq!(
            rotated_sets(1024, 20e6, replay),
            10,
            "slow calls walk less far"
        );
        assert_eq!(rotated_sets(1024, 5e9, replay), 2);
    }
}
