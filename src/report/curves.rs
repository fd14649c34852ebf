//! Several searches in one picture: how fast the best kernel so far was, against the minutes that its search had
//! held the device. It draws stored facts; what a speedup is over is the run's own denominator, by its name.

use super::chart::{Axis, Format, Line, Picture, Plot, Rule, Scale, Stroke};
use crate::store::{Event, StoredRun};

const MS_PER_MINUTE: f64 = 60_000.0;

/// What is slower than this part of the slowest winner lies on the lower edge: a seed that is a thousand times
/// slower would press everything else into one line.
const SHOWN: f64 = 0.5;

/// Runs cannot share a picture.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CurveError {
    /// There is no speedup without a denominator.
    #[error(
        "{0} has nothing that its times are set against, so its speedups cannot be drawn beside others'"
    )]
    NoBaseline(String),
    /// An empty line.
    #[error("no kernel of {0} was valid, so there is no best so far to draw")]
    NothingValid(String),
    /// A picture of estimates and measurements together would compare what cannot be compared.
    #[error(
        "{one} has times that are {one_label}, {other} times that are {other_label}: they do not share a picture"
    )]
    Mixed {
        /// The first run.
        one: String,
        /// `measured`, `estimated`, `recorded`.
        one_label: &'static str,
        /// Another.
        other: String,
        /// Its times.
        other_label: &'static str,
    },
}

/// The best so far of each run, as a speedup over what the run set its times against, by minutes since its first
/// request.
pub fn best_so_far(runs: &[StoredRun]) -> Result<Picture, CurveError> {
    let mut curves = runs.iter().map(Curve::of).collect::<Result<Vec<_>, _>>()?;
    if let Some(first) = curves.first()
        && let Some(other) = curves.iter().find(|curve| curve.label != first.label)
    {
        return Err(CurveError::Mixed {
            one: first.task.clone(),
            one_label: first.label,
            other: other.task.clone(),
            other_label: other.label,
        });
    }
    let description = curves
        .iter()
        .map(Curve::words)
        .collect::<Vec<_>>()
        .join("; ");
    let winners = curves.iter().filter_map(|curve| curve.points.last());
    let edge = SHOWN * winners.map(|(_, speedup)| *speedup).fold(1.0, f64::min);
    for (_, speedup) in curves.iter_mut().flat_map(|curve| &mut curve.points) {
        *speedup = speedup.max(edge);
    }
    let speedups = || curves.iter().flat_map(|curve| &curve.points);
    let longest = speedups().map(|(minutes, _)| *minutes).fold(0.0, f64::max);
    let label = curves.first().map_or("", |curve| curve.label);
    let y = Axis::covering(
        &format!("speed over the baseline, {label}"),
        Format::Ratio,
        speedups().map(|(_, speedup)| *speedup).chain([1.0]),
    )
    .unwrap_or(Axis {
        format: Format::Ratio,
        ..Axis::share_of_all("")
    });
    let plot = Plot {
        title: "Best kernel so far".to_owned(),
        description,
        x: Axis {
            label: "minutes of search on the device".to_owned(),
            low: 0.0,
            high: longest.max(f64::MIN_POSITIVE),
            scale: Scale::Linear,
            format: Format::Number,
        },
        y,
        lines: curves
            .iter()
            .enumerate()
            .map(|(nth, curve)| Line {
                name: format!("{} over {}", curve.task, curve.baseline),
                stroke: Stroke::Series(nth),
                points: curve.points.clone(),
                band: Vec::new(),
            })
            .collect(),
        marks: Vec::new(),
        rules: vec![Rule {
            at: 1.0,
            label: "the baseline".to_owned(),
        }],
    };
    Ok(plot.draw())
}

/// One run's line.
struct Curve {
    task: String,
    baseline: String,
    label: &'static str,
    /// (minutes, speedup), a corner at each end of a step.
    points: Vec<(f64, f64)>,
}

impl Curve {
    fn of(run: &StoredRun) -> Result<Self, CurveError> {
        let task = &run.config.task;
        let baseline = run.config.baseline.as_ref();
        let baseline = baseline.ok_or_else(|| CurveError::NoBaseline(task.clone()))?;
        let mut points: Vec<(f64, f64)> = Vec::new();
        let mut label = "";
        for line in &run.lines {
            let Event::Evaluated {
                evaluation,
                best: true,
                ..
            } = &line.event
            else {
                continue;
            };
            let Some(measurement) = evaluation.verdict.measurement() else {
                continue;
            };
            label = measurement.time.label();
            let minutes = line.elapsed_ms as f64 / MS_PER_MINUTE;
            points.extend(points.last().map(|(_, before)| (minutes, *before)));
            points.push((
                minutes,
                baseline.time.get() / measurement.time.nanos().get(),
            ));
        }
        let nothing = || CurveError::NothingValid(task.clone());
        let (_, last) = *points.last().ok_or_else(nothing)?;
        let end = run.lines.last().map_or(0, |line| line.elapsed_ms);
        points.push((end as f64 / MS_PER_MINUTE, last));
        Ok(Self {
            task: task.clone(),
            baseline: baseline.name.clone(),
            label,
            points,
        })
    }

    fn words(&self) -> String {
        let (minutes, speedup) = self.points.last().copied().unwrap_or_default();
        format!(
            "{}: {speedup:.3}× {} after {minutes:.1} minutes",
            self.task, self.baseline
        )
    }
}
