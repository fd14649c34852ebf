//! The final claim: a winner measured again in fresh processes, interleaved with what it is set against.
//! Plain data; who measures it stands higher up.

use serde::{Deserialize, Serialize};

use super::Variant;
use crate::units::Nanos;

/// A winner and its baselines, measured again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Where.
    pub gpu: String,
    /// Rounds: each in a fresh process, with inputs of another seed.
    pub rounds: u32,
    /// The winner's time over all rounds, beside itself; `None` where it did not come that far.
    pub winner: Option<Times>,
    /// Against each baseline, the frontier first.
    pub duels: Vec<Duel>,
    /// |ln ratio| below which nothing is claimed: the winner against itself, the worst round.
    pub noise_floor: Option<f64>,
    /// At full load and at rest, where it was measured.
    pub power: Option<Power>,
    /// What checks of the timed calls found. Any of them voids the claim.
    pub flaws: Vec<String>,
    /// What was not measured or checked, and why.
    pub not_checked: Vec<String>,
}

/// Times of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// Median.
    pub median: Nanos,
    /// First and third quartile.
    pub quartiles: (Nanos, Nanos),
    /// Raw samples, nanoseconds per call, round after round.
    pub samples: Vec<f64>,
}

/// The winner against one baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Duel {
    /// The baseline, as the task names it.
    pub name: String,
    /// Which way of it.
    pub variant: Variant,
    /// How the two took turns.
    pub interleaving: Interleaving,
    /// The winner's times.
    pub winner: Times,
    /// The baseline's times.
    pub baseline: Times,
    /// Baseline ÷ winner.
    pub ratio: Ratio,
    /// The same in each round by itself.
    pub rounds: Vec<f64>,
    /// Where power limits the winner: the two in bursts; all above is full load then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<Burst>,
    /// What may be said: of full load and of bursts together, where there are both.
    pub standing: Standing,
}

/// Two that took turns replay by replay, at a duty cycle of at most 10 %.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// The winner's times.
    pub winner: Times,
    /// The baseline's times.
    pub baseline: Times,
    /// Baseline ÷ winner.
    pub ratio: Ratio,
}

/// How two took turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interleaving {
    /// A B B A, replay by replay, in one process.
    Pairs,
    /// A B B A in blocks of replays, each in a process of its own.
    Blocks,
    /// A B B A in blocks of a second at full load, of which the second half counts: each has the clock that
    /// its own power leaves it. Replay by replay, both would get one clock, and which one needs less power
    /// would not show.
    Seconds,
}

impl std::fmt::Display for Interleaving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Pairs => "ABBA in one process",
            Self::Blocks => "ABBA in blocks, two processes",
            Self::Seconds => "ABBA in seconds of full load",
        })
    }
}

/// A ratio of times with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ratio {
    /// Median over all pairs.
    pub median: f64,
    /// Low end: of the median's 98.75 % interval, or the lowest round's median if that is lower.
    pub low: f64,
    /// High end, likewise.
    pub high: f64,
}

/// What may be said of a winner against a baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Faster, beyond noise.
    Faster,
    /// No difference that may be claimed.
    Tie,
    /// Slower, beyond noise.
    Slower,
}

impl std::fmt::Display for Standing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Faster => "faster",
            Self::Tie => "tie",
            Self::Slower => "slower",
        })
    }
}

/// Short blocks with rests between them, and blocks of a second without.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// The winner.
    pub winner: Load,
    /// The baseline it took turns with, by title; `None` where none runs in the same process.
    pub baseline: Option<(String, Load)>,
    /// Microseconds of power capping that the driver counted meanwhile; `None`: not readable.
    pub capped_us: Option<u64>,
    /// The clock or the counter says that power limits it: both figures count.
    pub limited: bool,
}

/// A kernel at rest and at full load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// A call, at a duty cycle of at most 10 %.
    pub burst: Nanos,
    /// A call, in blocks of a second.
    pub sustained: Nanos,
    /// SM clock after a burst, MHz.
    pub burst_mhz: f64,
    /// SM clock after a second at full load, MHz.
    pub sustained_mhz: f64,
}

impl Claim {
    /// Whether power holds the winner's clock down, so that burst and full load both count.
    pub fn is_power_limited(&self) -> bool {
        self.power.as_ref().is_some_and(|power| power.limited)
    }
}

impl Duel {
    /// Name and way: `torch.mm (eager)`.
    pub fn title(&self) -> String {
        format!("{} ({})", self.name, self.variant)
    }
}

impl std::fmt::Display for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "measured again on {}: {} rounds, each in a fresh process",
            self.gpu, self.rounds
        )?;
        if let Some(winner) = &self.winner {
            let (first, third) = winner.quartiles;
            writeln!(
                f,
                "  winner  {} (quartiles {first} to {third})",
                winner.median
            )?;
        }
        for duel in &self.duels {
            let Ratio { median, low, high } = duel.ratio;
            writeln!(
                f,
                "  {median:.4}× {} [{low:.4}, {high:.4}], {}: {} against {} ({})",
                duel.title(),
                duel.standing,
                duel.winner.median,
                duel.baseline.median,
                duel.interleaving
            )?;
            if let Some(burst) = &duel.burst {
                let Ratio { median, low, high } = burst.ratio;
                writeln!(
                    f,
                    "  {median:.4}× in bursts [{low:.4}, {high:.4}]: {} against {}",
                    burst.winner.median, burst.baseline.median
                )?;
            }
        }
        if let Some(floor) = self.noise_floor {
            writeln!(f, "  noise floor {:.2} %", floor * 100.0)?;
        }
        if let Some(power) = &self.power {
            let load = |title: &str, load: &Load| {
                format!(
                    "  {title}: burst {} at {:.0} MHz, sustained {} at {:.0} MHz",
                    load.burst, load.burst_mhz, load.sustained, load.sustained_mhz
                )
            };
            if power.limited {
                writeln!(f, "  power-limited:")?;
                writeln!(f, "  {}", load("winner", &power.winner))?;
                if let Some((title, baseline)) = &power.baseline {
                    writeln!(f, "  {}", load(title, baseline))?;
                }
            } else {
                writeln!(f, "  not power-limited")?;
            }
        }
        for flaw in &self.flaws {
            writeln!(f, "  VOID: {flaw}")?;
        }
        for gap in &self.not_checked {
            writeln!(f, "  not checked: {gap}")?;
        }
        Ok(())
    }
}
