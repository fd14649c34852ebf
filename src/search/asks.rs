//! What to ask a model for: a bandit over the kinds of request by improvement per cost, with priors from
//! what limits the kernel. It chooses the request, never the node.

use serde::Serialize;

use super::request::Cost;
use crate::propose::Ask;
use crate::verdict::Bottleneck;

/// How many imagined answers of average gain and cost each kind begins with.
const IMAGINED: f64 = 2.0;
/// Weight of what was seldom asked, in average gains.
const EXPLORATION: f64 = 0.3;

/// Replies of each sort, all alike, that the chances of a repair and of a fresh edit begin with.
const IMAGINED_REPLIES: f64 = 4.0;
/// A broken source is given up where a repair ends in a valid one so much more rarely than a fresh edit does: its
/// idea is there already, so that one repair is worth more than one edit.
const REPAIR_WORTH: f64 = 2.0;

/// The kinds that a working source leaves a choice between; a broken one is repaired.
const OPEN: [Ask; 4] = [
    Ask::KnobChange,
    Ask::LocalEdit,
    Ask::Restructure,
    Ask::NewKnob,
];

/// The record of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Asks([Record; Ask::ALL.len()]);

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Record {
    /// Requests, those in flight included.
    asked: u32,
    /// Requests answered.
    answered: u32,
    /// Sum of gains, each a fraction of the parent's cost.
    gain: f64,
    /// Sum of what the answers cost.
    cost: f64,
    /// Answers whose end is known: judged, or no edit at all.
    ended: u32,
    /// Those that were valid.
    valid: u32,
    /// Those that gained.
    gainful: u32,
}

/// How often each kind was asked of one node.
pub(super) type AskedHere = [u32; Ask::ALL.len()];

impl Asks {
    /// The kind worth most at a node limited by `limit`, where `here` was asked before. `gain` is what an
    /// answer is believed to gain before any came; `knobs`: there are other settings to choose from.
    pub(super) fn choose(
        &self,
        limit: Option<Bottleneck>,
        here: &AskedHere,
        gain: f64,
        knobs: bool,
    ) -> Ask {
        let answered: u32 = self.0.iter().map(|record| record.answered).sum();
        let asked: u32 = self.0.iter().map(|record| record.asked).sum();
        let spent: f64 = self.0.iter().map(|record| record.cost).sum();
        let mean_cost = spent / f64::from(answered.max(1));
        let score = |ask: Ask| {
            let record = self.0[ask as usize];
            let seen = f64::from(record.answered);
            let gained = (IMAGINED * gain + record.gain) / (IMAGINED + seen);
            let cost = if mean_cost > 0.0 {
                (IMAGINED * mean_cost + record.cost) / (IMAGINED + seen) / mean_cost
            } else {
                1.0
            };
            // What was seen here outweighs what is known of kernels like this one.
            let prior = prior(ask, limit).powf(IMAGINED / (IMAGINED + seen));
            let again = f64::from(1 + here[ask as usize]);
            let seldom = f64::from(1 + asked).sqrt() / f64::from(1 + record.asked);
            prior * gained / cost / again + EXPLORATION * gain * prior * seldom / again
        };
        let mut best = (Ask::LocalEdit, f64::NEG_INFINITY);
        for ask in OPEN {
            if ask == Ask::KnobChange && !knobs {
                continue;
            }
            let value = score(ask);
            if value > best.1 {
                best = (ask, value);
            }
        }
        best.0
    }

    pub(super) fn asked(&mut self, ask: Ask) {
        self.0[ask as usize].asked += 1;
    }

    pub(super) fn answered(&mut self, ask: Ask, cost: Cost) {
        let record = &mut self.0[ask as usize];
        record.answered += 1;
        record.cost += cost.get();
    }

    pub(super) fn gained(&mut self, ask: Ask, gain: f64) {
        self.0[ask as usize].gain += gain;
        self.0[ask as usize].gainful += u32::from(gain > 0.0);
    }

    /// What became of an answer.
    pub(super) fn ended(&mut self, ask: Ask, valid: bool) {
        self.0[ask as usize].ended += 1;
        self.0[ask as usize].valid += u32::from(valid);
    }

    /// What an answer gains that gains at all, as a fraction of the parent's cost; `before` is believed before any
    /// did.
    pub(super) fn typical_gain(&self, before: f64) -> f64 {
        let gainful: u32 = self.0.iter().map(|record| record.gainful).sum();
        let gain: f64 = self.0.iter().map(|record| record.gain).sum();
        (IMAGINED * before + gain) / (IMAGINED + f64::from(gainful))
    }

    /// Whether a broken source is worth another repair: as long as a repair is about as likely to end in a valid
    /// source as a fresh edit is.
    pub(super) fn repair_pays(&self) -> bool {
        let repairs = self.0[Ask::Repair as usize];
        let edits =
            [Ask::LocalEdit, Ask::Restructure, Ask::NewKnob].map(|ask| self.0[ask as usize]);
        let ended: u32 = edits.iter().map(|record| record.ended).sum();
        let valid: u32 = edits.iter().map(|record| record.valid).sum();
        let all = f64::from(repairs.ended + ended);
        let alike = f64::from(repairs.valid + valid) / all.max(1.0);
        let chance = |valid: u32, ended: u32| {
            (IMAGINED_REPLIES * alike + f64::from(valid)) / (IMAGINED_REPLIES + f64::from(ended))
        };
        REPAIR_WORTH * chance(repairs.valid, repairs.ended) >= chance(valid, ended)
    }

    /// A request that got no answer and cost nothing that can be judged.
    pub(super) fn withdrawn(&mut self, ask: Ask) {
        let asked = &mut self.0[ask as usize].asked;
        *asked = asked.saturating_sub(1);
    }
}

/// How much more than usual a kind of edit gains where this limits a kernel: bandwidth asks for fewer bytes
/// and so for another structure, latency and conflicts for a few changed lines, a bad grid or spills for
/// other constants. Knobs are the tuner's: a model's guesses at them must earn their place.
fn prior(ask: Ask, limit: Option<Bottleneck>) -> f64 {
    let [knob_change, local_edit, restructure, new_knob] = match limit {
        None => [0.3, 1.0, 1.0, 0.8],
        Some(Bottleneck::MemoryBandwidth) => [0.3, 0.7, 1.3, 0.5],
        Some(Bottleneck::MemoryLatency) => [0.4, 1.2, 1.0, 1.0],
        Some(Bottleneck::Uncoalesced) => [0.2, 1.2, 1.2, 0.5],
        Some(Bottleneck::SharedMemory) => [0.3, 1.4, 0.9, 0.8],
        Some(Bottleneck::Issue) => [0.4, 1.1, 1.0, 1.0],
        Some(Bottleneck::Compute) => [0.3, 0.9, 1.2, 0.7],
        Some(Bottleneck::Tensor) => [0.5, 1.0, 1.0, 0.9],
        Some(Bottleneck::Synchronisation) => [0.4, 1.2, 1.1, 0.7],
        Some(Bottleneck::Atomics) => [0.3, 0.8, 1.4, 0.7],
        Some(Bottleneck::Occupancy) => [0.6, 0.8, 1.0, 1.3],
        Some(Bottleneck::Spills) => [0.6, 1.2, 0.8, 1.2],
        Some(Bottleneck::Launch) => [0.2, 0.7, 1.5, 0.4],
    };
    match ask {
        Ask::KnobChange => knob_change,
        Ask::LocalEdit => local_edit,
        Ask::Restructure => restructure,
        Ask::NewKnob => new_knob,
        Ask::Repair => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING_HERE: AskedHere = [0; 5];

    fn play(asks: &mut Asks, ask: Ask, gain: f64, cost: f64) {
        asks.asked(ask);
        asks.answered(ask, Cost::new(cost).expect("a cost"));
        asks.gained(ask, gain);
    }

    #[test]
    fn the_diagnosis_decides_before_anything_is_known() {
        let choose = |limit| Asks::default().choose(limit, &NOTHING_HERE, 0.15, true);
        assert_eq!(choose(Some(Bottleneck::SharedMemory)), Ask::LocalEdit);
        assert_eq!(choose(Some(Bottleneck::Launch)), Ask::Restructure);
        assert_eq!(choose(Some(Bottleneck::Occupancy)), Ask::NewKnob);
    }

    #[test]
    fn what_gains_more_for_its_cost_is_asked_more() {
        for (dear, cheap) in [(0.3, 0.01), (0.01, 0.01)] {
            let mut asks = Asks::default();
            let mut counts = [0; 5];
            for _ in 0..100 {
                let ask = asks.choose(None, &NOTHING_HERE, 0.1, true);
                counts[ask as usize] += 1;
                let (gain, cost) = match ask {
                    Ask::Restructure => (0.3, dear),
                    Ask::LocalEdit => (0.1, cheap),
                    Ask::KnobChange | Ask::NewKnob | Ask::Repair => (0.0, 0.01),
                };
                play(&mut asks, ask, gain, cost);
            }
            let most = (0..5).max_by_key(|ask| counts[*ask]).expect("five kinds");
            let expected = if dear > cheap {
                Ask::LocalEdit
            } else {
                Ask::Restructure
            };
            assert_eq!(most, expected as usize, "{counts:?}");
            assert!(
                counts[Ask::NewKnob as usize] > 0,
                "nothing is given up: {counts:?}"
            );
        }
    }

    #[test]
    fn knob_moves_must_be_earned_and_possible() {
        let mut asks = Asks::default();
        assert_ne!(asks.choose(None, &NOTHING_HERE, 0.1, true), Ask::KnobChange);
        for _ in 0..30 {
            for ask in OPEN {
                let gain = if ask == Ask::KnobChange { 0.4 } else { 0.0 };
                play(&mut asks, ask, gain, 0.01);
            }
        }
        assert_eq!(asks.choose(None, &NOTHING_HERE, 0.1, true), Ask::KnobChange);
        assert_ne!(
            asks.choose(None, &NOTHING_HERE, 0.1, false),
            Ask::KnobChange
        );
    }

    #[test]
    fn repairs_go_on_while_they_are_about_as_likely_to_succeed_as_a_fresh_edit() {
        let after = |edits: (u32, u32), repairs: (u32, u32)| {
            let mut asks = Asks::default();
            for (ask, (valid, broken)) in [(Ask::LocalEdit, edits), (Ask::Repair, repairs)] {
                (0..valid).for_each(|_| asks.ended(ask, true));
                (0..broken).for_each(|_| asks.ended(ask, false));
            }
            asks.repair_pays()
        };
        for (edits, repairs, pays) in [
            ((0, 0), (0, 0), true),
            ((0, 9), (0, 9), true),
            ((5, 5), (0, 2), true),
            ((5, 5), (0, 12), false),
            ((5, 5), (3, 7), true),
            ((1, 9), (4, 6), true),
        ] {
            assert_eq!(after(edits, repairs), pays, "{edits:?} {repairs:?}");
        }
    }

    #[test]
    fn one_node_is_not_asked_the_same_for_ever() {
        let asks = Asks::default();
        let mut here = NOTHING_HERE;
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..8 {
            let ask = asks.choose(Some(Bottleneck::SharedMemory), &here, 0.1, true);
            here[ask as usize] += 1;
            seen.insert(ask);
        }
        assert!(seen.len() >= 3, "{seen:?}");
    }
}
