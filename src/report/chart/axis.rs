//! An axis: its range, its scale, and ticks at round values.

use crate::units::Nanos;

/// Ticks wanted, about.
const TICKS: f64 = 5.0;

/// A range of values along one direction of a plot.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What it counts, with its unit.
    pub label: String,
    /// Least value shown.
    pub low: f64,
    /// Greatest value shown; above `low`.
    pub high: f64,
    /// How values are spread.
    pub scale: Scale,
    /// How ticks are written.
    pub format: Format,
}

/// How values are spread along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By their logarithm; all are positive.
    Log,
}

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As a number.
    Number,
    /// As a whole number.
    Count,
    /// Nanoseconds, as a time.
    Time,
    /// A share of 1, as per cent.
    Percent,
    /// A ratio: `1.5×`.
    Ratio,
}

impl Axis {
    /// Covers `values` with a little room; `None` where there are none to cover. A log scale is taken where
    /// they span more than a factor of eight and all are positive.
    pub fn covering(
        label: &str,
        format: Format,
        values: impl IntoIterator<Item = f64>,
    ) -> Option<Self> {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.into_iter().filter(|value| value.is_finite()) {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            return None;
        }
        let scale = if low > 0.0 && high / low > 8.0 {
            Scale::Log
        } else {
            Scale::Linear
        };
        let (low, high) = match scale {
            Scale::Log => (low / 1.3, high * 1.15),
            Scale::Linear => {
                let room = if high > low {
                    (high - low) * 0.08
                } else {
                    high.abs().max(1.0) * 0.1
                };
                let floor = low - 1.5 * room;
                (if low >= 0.0 { floor.max(0.0) } else { floor }, high + room)
            }
        };
        Some(Self {
            label: label.to_owned(),
            low,
            high,
            scale,
            format,
        })
    }

    /// From 1 to `count` things.
    pub fn counting(label: &str, count: usize) -> Self {
        Self {
            label: label.to_owned(),
            low: 1.0_f64.min(count as f64 - 1.0).max(0.0),
            high: count.max(2) as f64,
            scale: Scale::Linear,
            format: Format::Count,
        }
    }

    /// From nothing to all.
    pub fn share_of_all(label: &str) -> Self {
        Self {
            label: label.to_owned(),
            low: 0.0,
            high: 1.0,
            scale: Scale::Linear,
            format: Format::Percent,
        }
    }

    /// Where a value stands, 0 at the low end and 1 at the high one; beyond them, at them.
    pub(super) fn share(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => {
                (value.max(f64::MIN_POSITIVE) / self.low).ln() / (self.high / self.low).ln()
            }
        };
        if share.is_nan() {
            0.0
        } else {
            share.clamp(0.0, 1.0)
        }
    }

    /// Round values between the ends, as they are written.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let values = match self.scale {
            Scale::Linear => {
                let least = if self.format == Format::Count {
                    1.0
                } else {
                    0.0
                };
                linear(self.low, self.high, least)
            }
            Scale::Log => logarithmic(self.low, self.high),
        };
        values
            .into_iter()
            .map(|value| (value, self.written(value)))
            .collect()
    }

    fn written(&self, value: f64) -> String {
        match self.format {
            Format::Number | Format::Count => number(value),
            Format::Percent => format!("{:.0} %", value * 100.0),
            Format::Ratio => format!("{}×", number(value)),
            Format::Time => match Nanos::new(value) {
                Some(time) => time_tick(time),
                None => "0".to_owned(),
            },
        }
    }
}

fn linear(low: f64, high: f64, least: f64) -> Vec<f64> {
    let rough = ((high - low) / TICKS).max(least);
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough)
        .unwrap_or(10.0 * power);
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last.min(first + 20))
        .map(|nth| nth as f64 * step)
        .collect()
}

fn logarithmic(low: f64, high: f64) -> Vec<f64> {
    let decades = (high / low).log10();
    let factors: &[f64] = if decades > 3.0 {
        &[1.0]
    } else {
        &[1.0, 2.0, 5.0]
    };
    let every = (decades / 8.0).ceil().max(1.0) as i32;
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    (first..=last)
        .filter(|power| power.rem_euclid(every) == 0)
        .flat_map(|power| {
            factors
                .iter()
                .map(move |factor| factor * 10_f64.powi(power))
        })
        .filter(|value| (low..=high).contains(value))
        .collect()
}

/// Without digits that say nothing.
fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 1e6 || (size > 0.0 && size < 1e-3) {
        return format!("{value:.0e}");
    }
    let text = if size >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.3}")
    };
    if text.contains('.') {
        let text = text.trim_end_matches('0').trim_end_matches('.');
        return text.to_owned();
    }
    text
}

fn time_tick(time: Nanos) -> String {
    let ns = time.get();
    let (value, unit) = match ns {
        _ if ns < 1e3 => (ns, "ns"),
        _ if ns < 1e6 => (ns / 1e3, "µs"),
        _ if ns < 1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    format!("{} {unit}", number(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks().into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_and_inside() {
        let times = [940e3, 1.4e6];
        let axis = Axis::covering("time", Format::Time, times).expect("values");
        assert_eq!(labels(&axis), ["1 ms", "1.2 ms", "1.4 ms"]);
        let wide = Axis::covering("time", Format::Time, [9e3, 5e6]).expect("values");
        assert_eq!(wide.scale, Scale::Log);
        assert_eq!(
            labels(&wide),
            [
                "10 µs", "20 µs", "50 µs", "100 µs", "200 µs", "500 µs", "1 ms", "2 ms", "5 ms"
            ]
        );
        assert_eq!(
            labels(&Axis::share_of_all("valid")),
            ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]
        );
    }

    #[test]
    fn nothing_to_show_is_no_axis_and_one_value_is_one() {
        assert!(Axis::covering("time", Format::Time, []).is_none());
        assert!(Axis::covering("time", Format::Time, [f64::NAN]).is_none());
        let one = Axis::covering("time", Format::Time, [5e3]).expect("a value");
        assert!(one.low < 5e3 && 5e3 < one.high && !one.ticks().is_empty());
        assert_eq!(one.share(f64::NAN), 0.0);
        assert_eq!(one.share(1e12), 1.0);
    }
}
