//! Burst and sustained times, where power may limit a kernel: short replays with rests, then whole seconds at
//! full load.

use super::{Field, turns};
use crate::device::RigError;
use crate::device::cuda::timing::median;
use crate::device::cuda::{Halt, Replays, Subject};
use crate::task::Operation;
use crate::units::Nanos;
use crate::verdict::{Load, MeasuredBaseline, Power, Variant};

/// Seconds of either side at full load.
const SUSTAINED: u32 = 2;
/// A clock or a ratio that moves by more is limited by power.
const POWER_BAND: f64 = 0.005;

impl Field<'_> {
    /// Bursts with rests, then a second at a time of each; `None` where either fell.
    pub(super) fn power(
        &self,
        rival: Option<&MeasuredBaseline>,
        not_checked: &mut Vec<String>,
    ) -> Result<Option<Power>, RigError> {
        let counter = self.gpu.power_counter();
        if let Err(why) = &counter {
            not_checked.push(format!("power capping: {why}"));
        }
        let read = || {
            counter
                .as_ref()
                .ok()
                .and_then(|counter| counter.micros().ok())
        };
        let product = rival.and_then(|rival| {
            let task = &self.pipeline.settings().task;
            let named = task.baselines.iter().find(|one| one.name == rival.name)?;
            match (&named.operation, rival.variant) {
                (Operation::Product(multiplication), Variant::Algorithm { index, .. }) => self
                    .product(&self.bench(&rival.name), multiplication, index)
                    .ok(),
                (
                    Operation::Product(_)
                    | Operation::Torch(_)
                    | Operation::Cudnn(_)
                    | Operation::Kernel(_)
                    | Operation::Cuda(_),
                    _,
                ) => None,
            }
        });
        let mut subjects = vec![Subject::Kernel(self.winner)];
        subjects.extend(product.as_ref().map(Subject::Product));
        let count = subjects.len() as u8;
        let replayed = self.gpu.replay_with(&subjects, |replays| {
            let bursts: Vec<(f64, f64)> = (0..count)
                .map(|subject| burst(replays, subject))
                .collect::<Result<_, Halt>>()?;
            let before = read();
            let mut sustained = vec![Vec::new(); usize::from(count)];
            for turn in 0..SUSTAINED {
                for nth in 0..count {
                    let subject = if turn % 2 == 0 { nth } else { count - 1 - nth };
                    sustained[usize::from(subject)].push(full_load(replays, subject)?);
                }
            }
            let capped = before.zip(read()).map(|(a, b)| b.saturating_sub(a));
            Ok((bursts, sustained, capped))
        })?;
        let Ok(((bursts, sustained, capped_us), _)) = replayed else {
            not_checked.push("burst and sustained times: a replay failed".to_owned());
            return Ok(None);
        };
        let mut loads = bursts
            .into_iter()
            .zip(&sustained)
            .filter_map(|(burst, blocks)| load(burst, blocks));
        let Some(winner) = loads.next() else {
            return Ok(None);
        };
        let baseline = rival.map(MeasuredBaseline::title).zip(loads.next());
        let limited = limited(&winner, baseline.as_ref().map(|(_, load)| load), capped_us);
        Ok(Some(Power {
            winner,
            baseline,
            capped_us,
            limited,
        }))
    }
}

/// Median time and clock of single replays with nine times as much rest.
fn burst(replays: &mut Replays<'_, '_, '_>, subject: u8) -> Result<(f64, f64), Halt> {
    let rest = turns::rest(replays.rough_ns(subject));
    let (mut times, mut clocks) = (Vec::new(), Vec::new());
    for _ in 0..turns::BURSTS {
        std::thread::sleep(rest);
        let (samples, (_, after)) = replays.block(vec![subject])?;
        times.extend(samples);
        clocks.push(after);
    }
    Ok((
        median(&times).unwrap_or_default(),
        median(&clocks).unwrap_or_default(),
    ))
}

/// Median time of the second half of a second at full load, and the clock right after it.
fn full_load(replays: &mut Replays<'_, '_, '_>, subject: u8) -> Result<(f64, f64), Halt> {
    let count = turns::second(replays.rough_ns(subject));
    let (samples, (_, after)) = replays.block(vec![subject; count])?;
    let late = median(turns::settled(&samples));
    Ok((late.unwrap_or_default(), after))
}

fn load((burst, burst_mhz): (f64, f64), blocks: &[(f64, f64)]) -> Option<Load> {
    let (times, clocks): (Vec<f64>, Vec<f64>) = blocks.iter().copied().unzip();
    Some(Load {
        burst: Nanos::new(burst)?,
        sustained: Nanos::new(median(&times)?)?,
        burst_mhz,
        sustained_mhz: median(&clocks)?,
    })
}

/// Whether power holds the clock down: the driver counted it, the clock fell under load, or the ratio of
/// times is not that of cycles.
fn limited(winner: &Load, baseline: Option<&Load>, capped_us: Option<u64>) -> bool {
    let fell = |load: &Load| load.sustained_mhz < load.burst_mhz * (1.0 - POWER_BAND);
    let counted = capped_us.is_some_and(|micros| micros > 1000);
    let skewed = baseline.is_some_and(|baseline| {
        // times over cycles: what is left is the ratio of the clocks
        (winner.sustained_mhz / baseline.sustained_mhz - 1.0).abs() > POWER_BAND
    });
    counted || skewed || fell(winner) || baseline.is_some_and(fell)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_shows_in_the_clock_or_in_the_counter() {
        let load = |burst_mhz, sustained_mhz| Load {
            burst: Nanos::new(100.0).expect("positive"),
            sustained: Nanos::new(100.0).expect("positive"),
            burst_mhz,
            sustained_mhz,
        };
        let steady = load(1980.0, 1979.0);
        assert!(!limited(&steady, Some(&steady), Some(0)));
        assert!(!limited(&steady, None, None));
        assert!(limited(&steady, None, Some(970_000)));
        assert!(limited(&load(1980.0, 1580.0), None, Some(0)));
        let other = load(1980.0, 1700.0);
        assert!(limited(&steady, Some(&other), None));
    }
}
