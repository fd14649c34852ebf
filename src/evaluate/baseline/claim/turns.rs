//! How a winner and a rival take turns in a round, and what the rounds say together.

use std::time::Duration;

use super::super::quartiles;
use super::ALPHA;
use crate::device::cuda::Halt;
use crate::device::cuda::timing::{abba, estimate, log_ratios, median, split};
use crate::verdict::{Ratio, Standing, Times};

/// Pairs of blocks in a round, where the two run in processes of their own, and replays in a block.
const BLOCKS: u32 = 8;
const BLOCK: usize = 4;
/// Bursts of either side in a round: a replay each, after nine times as much rest.
pub(super) const BURSTS: u32 = 12;
const REST: f64 = 9.0;
/// Pairs of seconds at full load in a round.
const SECONDS: u32 = 3;
const SECOND_NS: f64 = 1e9;

/// Times of the winner and of the rival, pair by pair.
pub(super) type Sides = (Vec<f64>, Vec<f64>);

/// How hard the two work.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// Turns of replays, without rest: where power limits nothing.
    Even,
    /// In bursts, then seconds at full load.
    Loads,
}

/// What a round gave.
pub(super) struct Round {
    /// At an even pace, or at full load.
    pub(super) times: Sides,
    /// In bursts, where power limits the winner.
    pub(super) bursts: Option<Sides>,
}

impl Round {
    pub(super) fn even(times: Sides) -> Self {
        Self {
            times,
            bursts: None,
        }
    }
}

/// A B B A in blocks. `take` times replays of a side, 0 being the winner; `None` from it: the rival is lost.
pub(super) fn blocks(
    mut take: impl FnMut(u8, usize) -> Result<Option<Vec<f64>>, Halt>,
) -> Result<Option<Round>, Halt> {
    let Some(times) = turns(BLOCKS, |side| take(side, BLOCK))? else {
        return Ok(None);
    };
    Ok(Some(Round::even(times)))
}

/// Bursts, then seconds at full load, A B B A each. `replay_ns`: what a replay of either takes.
pub(super) fn loads(
    replay_ns: [f64; 2],
    mut take: impl FnMut(u8, usize) -> Result<Option<Vec<f64>>, Halt>,
) -> Result<Option<Round>, Halt> {
    let rest = rest(replay_ns[0].max(replay_ns[1]));
    let bursts = turns(BURSTS, |side| {
        std::thread::sleep(rest);
        take(side, 1)
    })?;
    let Some(bursts) = bursts else {
        return Ok(None);
    };
    let times = turns(SECONDS, |side| {
        let samples = take(side, second(replay_ns[usize::from(side)]))?;
        Ok(samples.map(|samples| settled(&samples).to_vec()))
    })?;
    Ok(times.map(|times| Round {
        times,
        bursts: Some(bursts),
    }))
}

/// Rest before a burst of a call whose replay takes this long.
pub(super) fn rest(replay_ns: f64) -> Duration {
    // the clock probes round a replay are work too, of a tenth of a millisecond each
    Duration::from_nanos((REST * replay_ns) as u64) + Duration::from_millis(2)
}

/// Replays in a second at full load.
pub(super) fn second(replay_ns: f64) -> usize {
    (SECOND_NS / replay_ns).clamp(4.0, 20_000.0) as usize
}

/// The half of a second that counts: the clock settles in the first.
pub(super) fn settled(samples: &[f64]) -> &[f64] {
    &samples[samples.len() / 2..]
}

/// A B B A: the median of what each turn gives.
fn turns(
    pairs: u32,
    mut turn: impl FnMut(u8) -> Result<Option<Vec<f64>>, Halt>,
) -> Result<Option<Sides>, Halt> {
    let mut samples = Vec::new();
    for side in abba(0, pairs) {
        let Some(taken) = turn(side)? else {
            return Ok(None);
        };
        // a turn without a time makes a pair that says nothing
        samples.push(median(&taken).unwrap_or_default());
    }
    Ok(Some(split(&samples)))
}

/// What rounds say together.
pub(super) struct Contest {
    pub(super) winner: Times,
    pub(super) baseline: Times,
    pub(super) ratio: Ratio,
    pub(super) rounds: Vec<f64>,
    pub(super) standing: Standing,
    noise: f64,
}

impl Contest {
    /// `None` for too few times.
    pub(super) fn of(rounds: &[&Sides], noise: f64) -> Option<Self> {
        let logs: Vec<Vec<f64>> = rounds
            .iter()
            .map(|(winner, baseline)| log_ratios(winner, baseline))
            .collect();
        let medians: Vec<f64> = logs.iter().filter_map(|logs| median(logs)).collect();
        let pooled = estimate(&logs.concat(), ALPHA)?;
        let low = medians.iter().copied().fold(pooled.low, f64::min);
        let high = medians.iter().copied().fold(pooled.high, f64::max);
        let standing = if low > 0.0 && pooled.median > noise {
            Standing::Faster
        } else if high < 0.0 && pooled.median < -noise {
            Standing::Slower
        } else {
            Standing::Tie
        };
        let side = |pick: fn(&Sides) -> &Vec<f64>| {
            times(
                rounds
                    .iter()
                    .flat_map(|round| pick(round))
                    .copied()
                    .collect(),
            )
        };
        Some(Self {
            winner: side(|(winner, _)| winner)?,
            baseline: side(|(_, baseline)| baseline)?,
            ratio: Ratio {
                median: pooled.median.exp(),
                low: low.exp(),
                high: high.exp(),
            },
            rounds: medians.into_iter().map(f64::exp).collect(),
            standing,
            noise,
        })
    }

    /// What may be said of this and of another comparison of the same pair. Neither may contradict: one that is a tie
    /// by itself may still look the other way beyond noise, or in every round.
    pub(super) fn together(&self, other: &Self) -> Standing {
        let both = [self, other];
        let looks_slower = |one: &&Self| one.ratio.high < 1.0 || one.ratio.median.ln() < -one.noise;
        let looks_faster = |one: &&Self| one.ratio.low > 1.0 || one.ratio.median.ln() > one.noise;
        let says = |standing| both.iter().any(|one| one.standing == standing);
        if says(Standing::Faster) && !both.iter().any(looks_slower) {
            Standing::Faster
        } else if says(Standing::Slower) && !both.iter().any(looks_faster) {
            Standing::Slower
        } else {
            Standing::Tie
        }
    }
}

/// Median and quartiles of samples; `None` for none.
pub(super) fn times(samples: Vec<f64>) -> Option<Times> {
    let [first, median, third] = quartiles(&samples)?;
    Some(Times {
        median,
        quartiles: (first, third),
        samples,
    })
}
