//! The worker's timing: one or two calls made ready as graphs over rotated sets, and replays of them.
//! It measures and checks; which replays to run and what the times mean is the parent's to say.
//!
//! From walk to walk the outputs and workspaces meet other inputs: what an earlier call left there never fits,
//! so a kernel that trusts it is wrong. After the timing the same graphs run once more, timed, on inputs that
//! no timed call saw: what only remembers is then slow.

use std::time::Instant;

use super::driver::{Event, Graph};
use super::engine::{Announce, Code, Engine, Held, Trouble, ran};
use super::memory::Memory;
use super::protocol::{Call, Checked, Left, Prepared, Replay, Role, Stage};

/// Most kernel and fill nodes in one graph.
const MAX_NODES: u32 = 1024;

/// Calls in the first, rough timing.
const ROUGH_CALLS: u32 = 3;

/// A walk round all sets takes no longer than about this.
const WALK_NS: f64 = 100e6;

/// Fewest sets where a call is quick enough and memory allows: with two, an output would be written again
/// right after it was written.
const LEAST_SETS: u32 = 3;

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
    walks: Vec<Walk>,
    next: usize,
    sets: Vec<Vec<Held>>,
    /// Contents of the inputs by number: those of the timed calls, one a set, then as many that only the check
    /// shows.
    contents: Vec<Known>,
    /// The set whose inputs each set's outputs were made from last.
    left: Vec<usize>,
    prepared: Prepared,
    call: Call,
    code: Code,
}

/// Part of a walk round all sets, or some whole walks.
struct Walk {
    graph: Graph,
    /// Its calls: the set that inputs come from, and the one that outputs go to.
    pairs: Vec<(usize, usize)>,
}

/// Digests by region of some contents: of the inputs, and of the outputs that an untimed call made of them.
struct Known {
    inputs: Vec<Option<u64>>,
    outputs: Vec<Option<u64>>,
}

impl Ready {
    /// Queues the next graph in turn.
    fn replay(&mut self, engine: &Engine, index: u8) -> Result<(), Trouble> {
        let walk = &self.walks[self.next];
        self.next = (self.next + 1) % self.walks.len();
        for &(from, to) in &walk.pairs {
            self.left[to] = from;
        }
        engine.cuda.replay(&walk.graph).map_err(|e| ran(index, e))
    }

    /// Runs a call twice on the first set, the second time over its own answer, damaged: what leaves alone
    /// what looks right is caught.
    fn mend(
        &self,
        engine: &mut Engine,
        index: u8,
        announce: Announce<'_>,
        checked: &mut Checked,
    ) -> Result<(), Trouble> {
        let (call, held) = (&self.call, &self.sets[0]);
        let steps = engine.prepare(call, &self.code, held, index)?;
        for damaged in [false, true] {
            if damaged {
                engine.pock(call, held)?;
                engine.cuda.synchronize()?;
            }
            announce(Stage::Launching {
                call: index,
                expected_ns: self.prepared.rough_ns,
            })?;
            engine.queue(call, &steps, held, index)?;
            engine.cuda.synchronize().map_err(|e| ran(index, e))?;
            announce(Stage::Housekeeping)?;
        }
        self.compare_outputs(engine, 0, 0, checked)
    }

    /// Adds what is wrong with a set's outputs, made from these contents.
    fn compare_outputs(
        &self,
        engine: &mut Engine,
        set: usize,
        made_from: usize,
        checked: &mut Checked,
    ) -> Result<(), Trouble> {
        let (call, held) = (&self.call, &self.sets[set]);
        let found = engine.output_digests(call, held)?;
        let wanted = &self.contents[made_from].outputs;
        for (at, region) in call.regions.iter().enumerate() {
            if found[at] == wanted[at] {
                continue;
            }
            if !checked.unsteady.contains(&region.name) {
                checked.unsteady.push(region.name.clone());
            }
            // The reference knows these inputs: they are the uploaded ones, not moved round.
            if made_from == 0
                && let Some(bytes) = engine.values(call, held, at)?
            {
                checked.left.push(Left {
                    output: region.name.clone(),
                    bytes,
                });
            }
        }
        Ok(())
    }

    /// Adds what the latest calls left, where the inputs' contents are those from `first` on.
    fn compare(
        &self,
        engine: &mut Engine,
        first: usize,
        checked: &mut Checked,
    ) -> Result<(), Trouble> {
        let call = &self.call;
        for (set, held) in self.sets.iter().enumerate() {
            self.compare_outputs(engine, set, first + self.left[set], checked)?;
            let inputs = engine.input_digests(call, held)?;
            let known = &self.contents[first + set].inputs;
            for (region, (found, before)) in call.regions.iter().zip(inputs.iter().zip(known)) {
                if found != before {
                    checked
                        .violations
                        .push(format!("`{}` is read only and was modified", region.name));
                }
            }
            checked.violations.extend(engine.intrusions(call, held)?);
        }
        Ok(())
    }
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
            nanos.push(timed(engine, ready, index, &self.start, &self.end)?);
        }
        let after = engine.clock_mhz()?;
        Ok((nanos, (before, after)))
    }

    /// Checks what the timed calls left, and that a call mends its own answer; then gives all sets inputs that they never held and poisons the
    /// outputs, replays and times the very same graphs, and checks again: a kernel that kept results from
    /// earlier calls fails, or takes longer.
    pub fn check(
        &mut self,
        engine: &mut Engine,
        announce: Announce<'_>,
    ) -> Result<Vec<Checked>, Trouble> {
        let mut all = Vec::with_capacity(self.calls.len());
        for (index, ready) in (0u8..).zip(&mut self.calls) {
            let mut checked = Checked::default();
            ready.compare(engine, 0, &mut checked)?;
            ready.mend(engine, index, announce, &mut checked)?;
            let first = ready.sets.len();
            for (set, held) in ready.sets.iter().enumerate() {
                engine.fill(&ready.call, held, (first + set) as u32, Some(SECOND_POISON))?;
            }
            engine.cuda.synchronize()?;
            for _ in 0..ready.walks.len() {
                announce(Stage::Launching {
                    call: index,
                    expected_ns: ready.prepared.rough_ns * f64::from(ready.prepared.calls),
                })?;
                let nanos = timed(engine, ready, index, &self.start, &self.end)?;
                checked.nanos.push(nanos);
            }
            announce(Stage::Housekeeping)?;
            ready.compare(engine, first, &mut checked)?;
            checked.violations.sort();
            checked.violations.dedup();
            all.push(checked);
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
                left: left(&made.walks, sets.len()),
                walks: made.walks,
                next: 0,
                sets,
                contents: made.contents,
                prepared: made.prepared,
                call,
                code,
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
        let set_count = even(wanted, affordable.min(u64::from(u32::MAX)) as u32);
        let (calls, graph_count) = shape(
            set_count,
            rough_ns,
            replay.target_ns,
            (MAX_NODES / nodes.max(1)).max(1),
        );
        while sets.len() < set_count as usize {
            sets.push(engine.place(call, false)?);
        }
        let mut contents = Vec::with_capacity(2 * sets.len());
        // The timed contents last: they stay.
        for first in [set_count, 0] {
            for (set, held) in (0u32..).zip(sets.iter()) {
                engine.fill(call, held, first + set, None)?;
                let steps = engine.prepare(call, code, held, index)?;
                engine.cuda.synchronize()?;
                let inputs = engine.filled_digests(call, held, first + set)?;
                announce(Stage::Launching {
                    call: index,
                    expected_ns: rough_ns,
                })?;
                engine.queue(call, &steps, held, index)?;
                engine.cuda.synchronize().map_err(|e| ran(index, e))?;
                announce(Stage::Housekeeping)?;
                contents.push(Known {
                    inputs,
                    outputs: engine.output_digests(call, held)?,
                });
            }
        }
        contents.rotate_left(sets.len());
        let mut walks = Vec::with_capacity(graph_count as usize);
        for graph in 0..graph_count {
            let pairs: Vec<_> = (graph * calls..(graph + 1) * calls)
                .map(|turn| pair(turn, set_count))
                .collect();
            let mut steps = Vec::with_capacity(pairs.len());
            for &(from, to) in &pairs {
                let held = paired(call, &sets[from], &sets[to]);
                steps.push((engine.prepare(call, code, &held, index)?, held));
            }
            let mut trouble = None;
            let captured = engine.cuda.capture(|_| {
                trouble = steps
                    .iter()
                    .find_map(|(steps, held)| engine.queue(call, steps, held, index).err());
                Ok(())
            });
            if let Some(trouble) = trouble {
                return Err(trouble);
            }
            walks.push(Walk {
                graph: captured?,
                pairs,
            });
        }
        for walk in &walks {
            announce(Stage::Launching {
                call: index,
                expected_ns: rough_ns * f64::from(calls),
            })?;
            engine.cuda.replay(&walk.graph).map_err(|e| ran(index, e))?;
            engine.cuda.synchronize().map_err(|e| ran(index, e))?;
        }
        announce(Stage::Housekeeping)?;
        Ok(Made {
            walks,
            contents,
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
    walks: Vec<Walk>,
    contents: Vec<Known>,
    prepared: Prepared,
}

/// The set whose inputs each set's outputs were made from, after all the walks.
fn left(walks: &[Walk], sets: usize) -> Vec<usize> {
    let mut left: Vec<usize> = (0..sets).collect();
    for &(from, to) in walks.iter().flat_map(|walk| &walk.pairs) {
        left[to] = from;
    }
    left
}

/// Nanoseconds per call of the next graph in turn.
fn timed(
    engine: &Engine,
    ready: &mut Ready,
    index: u8,
    start: &Event,
    end: &Event,
) -> Result<f64, Trouble> {
    let cuda = &engine.cuda;
    cuda.record(start).map_err(|e| ran(index, e))?;
    ready.replay(engine, index)?;
    cuda.record(end).map_err(|e| ran(index, e))?;
    cuda.synchronize().map_err(|e| ran(index, e))?;
    Ok(cuda.elapsed(start, end)? / f64::from(ready.prepared.calls))
}

/// Inputs of one set, the rest of another.
fn paired<'h>(call: &Call, from: &'h [Held], to: &'h [Held]) -> Vec<&'h Held> {
    let sides = from.iter().zip(to);
    call.regions
        .iter()
        .zip(sides)
        .map(|(region, (from, to))| match region.role {
            Role::Input { .. } => from,
            Role::Output | Role::Workspace { .. } => to,
        })
        .collect()
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

/// Sets that together exceed what should not stay in the cache; so many that inputs can change, and no more
/// than a slow call can walk round in reasonable time.
fn rotated_sets(set_bytes: u64, rough_ns: f64, replay: Replay) -> u32 {
    let wanted = replay.rotate_bytes.div_ceil(set_bytes.max(1));
    let walkable = (WALK_NS / rough_ns) as u64;
    wanted
        .max(u64::from(LEAST_SETS))
        .min(u64::from(replay.max_sets))
        .min(walkable)
        .clamp(2, u64::from(u32::MAX)) as u32
}

/// Sets such that whole walks divide well into graphs: up to four, or a power of two.
fn even(wanted: u32, affordable: u32) -> u32 {
    let affordable = affordable.max(1);
    let sets = wanted.clamp(1, affordable);
    if sets <= 4 {
        sets
    } else if sets.next_power_of_two() <= affordable {
        sets.next_power_of_two()
    } else {
        1 << affordable.ilog2()
    }
}

/// Walks until outputs have met all the inputs that they are to meet.
fn walks(sets: u32) -> u32 {
    match sets {
        0 | 1 => 1,
        3 => 3,
        _ => 2,
    }
}

/// The sets that the inputs and the outputs of a call come from, by its turn in an endless walk. Half of all
/// sets lie between two uses of one, or two of three.
fn pair(turn: u32, sets: u32) -> (usize, usize) {
    let (walk, from) = (turn / sets % walks(sets), turn % sets);
    let step = if sets < 4 { 1 } else { sets / 2 };
    (from as usize, ((from + walk * step) % sets) as usize)
}

/// Calls per graph and graphs, such that consecutive replays walk round all pairs in order.
fn shape(sets: u32, rough_ns: f64, target_ns: f64, max_calls: u32) -> (u32, u32) {
    let period = sets * walks(sets);
    let calls = (target_ns / rough_ns)
        .ceil()
        .clamp(1.0, f64::from(max_calls)) as u32;
    if calls >= period {
        // whole rounds: the next replay starts where this one ended
        let rounds = calls.div_ceil(period).min((max_calls / period).max(1));
        return (rounds * period, 1);
    }
    let divisors = (1..=period).filter(|n| period.is_multiple_of(*n) && *n <= max_calls);
    let calls = divisors
        .clone()
        .find(|n| *n >= calls)
        .or(divisors.max())
        .unwrap_or(1);
    (calls, period / calls)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const SETS: [u32; 8] = [1, 2, 3, 4, 8, 16, 32, 64];

    #[test]
    fn consecutive_replays_walk_round_all_pairs() {
        for sets in SETS {
            for rough_ns in [500.0, 20e3, 90e3, 3e6, 2e9] {
                for most in [1, 5, 512] {
                    let (calls, graphs) = shape(sets, rough_ns, 300e3, most);
                    assert!(calls <= most.max(sets * walks(sets)));
                    assert_eq!(graphs * calls % (sets * walks(sets)), 0, "the walk closes");
                }
            }
        }
    }

    #[test]
    fn an_output_never_meets_the_inputs_that_it_holds_the_answer_to() {
        for sets in SETS.into_iter().skip(1) {
            let mut last = BTreeMap::new();
            for turn in 0..sets * walks(sets) * 2 {
                let (from, to) = pair(turn, sets);
                assert_ne!(
                    last.insert(to, from),
                    Some(from),
                    "{sets} sets, turn {turn}"
                );
            }
            assert_eq!(last.len(), sets as usize, "every output is written");
        }
    }

    #[test]
    fn nothing_is_used_again_while_it_is_in_the_cache() {
        for sets in SETS.into_iter().skip(2) {
            let between = if sets == 3 { 2 } else { sets / 2 };
            for side in [|p: (usize, usize)| p.0, |p: (usize, usize)| p.1] {
                let mut last = BTreeMap::new();
                for turn in 0..sets * walks(sets) * 2 {
                    let before = last.insert(side(pair(turn, sets)), turn);
                    assert!(before.is_none_or(|before| turn - before >= between));
                }
            }
        }
    }

    #[test]
    fn short_calls_fill_a_replay_and_long_ones_stand_alone() {
        assert_eq!(shape(2, 1_000.0, 300e3, 512), (300, 1));
        assert_eq!(shape(3, 10e6, 300e3, 512), (1, 9));
        assert_eq!(shape(64, 100e3, 300e3, 512), (4, 32));
        assert_eq!(shape(64, 100.0, 300e3, 60), (32, 4));
    }

    #[test]
    fn sets_are_few_or_a_power_of_two_that_fits() {
        assert_eq!(even(3, 100), 3);
        assert_eq!(even(5, 100), 8);
        assert_eq!(even(5, 7), 4);
        assert_eq!(even(60, 64), 64);
        assert_eq!(even(60, 2), 2);
        assert_eq!(even(3, 0), 1);
    }

    #[test]
    fn rotation_exceeds_the_cache_and_never_stays_at_one_set() {
        let replay = Replay {
            target_ns: 300e3,
            rotate_bytes: 300 << 20,
            max_sets: 64,
        };
        assert_eq!(rotated_sets(60 << 20, 1e4, replay), 5);
        assert_eq!(rotated_sets(4 << 30, 1e4, replay), 3);
        assert_eq!(rotated_sets(1024, 1e4, replay), 64);
        assert_eq!(rotated_sets(0, 1e4, replay), 64);
        assert_eq!(
            rotated_sets(1024, 10e6, replay),
            10,
            "slow calls walk less far"
        );
        assert_eq!(rotated_sets(1024, 5e9, replay), 2);
    }
}
