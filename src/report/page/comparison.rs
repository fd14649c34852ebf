//! A comparison of methods as one HTML file.

use minijinja::context;
use minijinja::value::Serde;

use super::{PageError, json, page};
use crate::compare::{Comparison, Method, Summary, p_words};
use crate::report::chart::{Axis, Format, Line, Picture, Plot, Rule, Scale, Stroke};
use crate::units::{Nanos, counted};

/// The page of `comparison`.
pub fn comparison_page(comparison: &Comparison) -> Result<String, PageError> {
    let unit = comparison.budget.unit();
    let methods = comparison.methods();
    let rows: Vec<minijinja::Value> = comparison
        .summaries()
        .iter()
        .map(|summary| row(comparison, summary))
        .collect();
    let endings: Vec<_> = methods
        .iter()
        .map(|method| (method.name(), comparison.endings(*method)))
        .collect();
    let mut facts = vec![
        ("task", comparison.task.clone()),
        ("GPU", comparison.gpu.clone()),
        ("device", comparison.device.clone()),
        ("budget of a series", comparison.budget.words()),
        ("warptree", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    facts.extend(comparison.model.clone().map(|model| ("model", model)));
    let body = context! {
        title => format!("{}: ways to search", comparison.task),
        subtitle => format!(
            "{} series on {}, times {}, each at most {}",
            comparison.series.len(),
            comparison.gpu,
            comparison.label,
            comparison.budget.words()
        ),
        over => comparison.baseline.as_ref().map(|(name, time)| format!("{name} ({time})")),
        first => methods.first().map(|method| method.name()),
        unit => unit.words(),
        rows,
        bands => bands_picture(comparison).map(|picture| picture.inline()),
        turns => turns_picture(comparison).map(|picture| picture.inline()),
        endings => Serde(endings),
        facts_list => facts,
    };
    page("comparison.html", &json(comparison)?, body)
}

fn row(comparison: &Comparison, summary: &Summary) -> minijinja::Value {
    let unit = comparison.budget.unit();
    let none = || "–".to_owned();
    let time = |time: Option<Nanos>| time.map_or_else(none, |time| time.to_string());
    let against = summary.against_first.as_ref();
    let dollars = summary.mean_cost.dollars;
    context! {
        method => summary.method.name(),
        seeds => summary.seeds,
        judged => summary.judged,
        valid => format!("{:.0} %", summary.valid * 100.0),
        median => time(summary.median_best),
        best => time(summary.best.first().copied()),
        worst => time(summary.best.last().copied()),
        speedup => comparison
            .speedup(summary.median_best)
            .map_or_else(none, |ratio| format!("{ratio:.2}×")),
        near => summary.median_near.map_or("never".to_owned(), |near| near.to_string()),
        one => match (summary.median_to_one, &comparison.baseline) {
            (Some(cost), _) => unit.amount(cost),
            (None, Some(_)) => "never".to_owned(),
            (None, None) => none(),
        },
        tokens => summary.mean_cost.tokens,
        dollars => dollars.map_or_else(none, |dollars| dollars.to_string()),
        seconds => format!("{:.1}", summary.mean_cost.judge_seconds),
        ratio => against.map_or_else(none, |paired| {
            format!("{:.3} [{:.3}, {:.3}]", paired.ratio, paired.low, paired.high)
        }),
        p => against.map_or_else(none, |paired| p_words(paired.p)),
    }
}

/// The best so far of each method: medians over seeds, quartiles as bands; `None` where nothing was valid.
pub fn bands_picture(comparison: &Comparison) -> Option<Picture> {
    let unit = comparison.budget.unit();
    let bands: Vec<_> = comparison
        .methods()
        .into_iter()
        .map(|method| (method, comparison.bands(method)))
        .collect();
    let times = bands.iter().flat_map(|(_, bands)| bands);
    let shown: Vec<f64> = times
        .clone()
        .flat_map(|band| [band.low, band.median])
        .flatten()
        .map(Nanos::get)
        .collect();
    // a baseline far from every method would flatten the curves
    let slowest = shown.iter().copied().fold(0.0, f64::max);
    let baseline = comparison.baseline.as_ref();
    let baseline = baseline.filter(|(_, time)| time.get() <= 2.0 * slowest);
    let shown = shown
        .into_iter()
        .chain(baseline.map(|(_, time)| time.get()));
    let label = format!("best so far, {}", comparison.label);
    let y = Axis::covering(&label, Format::Time, shown)?;
    let end = times.map(|band| band.cost).fold(0.0, f64::max);
    let lines = (0..)
        .zip(&bands)
        .map(|(nth, (method, bands))| Line {
            name: method.name().to_owned(),
            stroke: Stroke::Series(nth),
            points: bands
                .iter()
                .filter_map(|band| Some((band.cost, band.median?.get())))
                .collect(),
            band: bands
                .iter()
                .filter_map(|band| {
                    // a quartile of seeds without a valid kernel lies beyond every time
                    let high = band.high.map_or(f64::INFINITY, Nanos::get);
                    Some((band.cost, band.low?.get(), high))
                })
                .collect(),
        })
        .collect();
    let seeds = comparison.summaries().iter().map(|one| one.seeds).max()?;
    let plot = Plot {
        title: format!("Best time so far, {}", comparison.task),
        description: format!(
            "Medians over {}, bands from quartile to quartile",
            counted(seeds, "seed")
        ),
        x: Axis {
            label: unit.words().to_owned(),
            low: 0.0,
            high: if end > 0.0 { end } else { 1.0 },
            scale: Scale::Linear,
            format: Format::Number,
        },
        y,
        lines,
        marks: Vec::new(),
        rules: baseline
            .map(|(name, time)| Rule {
                at: time.get(),
                label: format!("{name}, {time}"),
            })
            .into_iter()
            .collect(),
    };
    Some(plot.draw())
}

/// The share of valid kernels by turn; `None` where no proposer's answer was judged.
fn turns_picture(comparison: &Comparison) -> Option<Picture> {
    let rates: Vec<(Method, Vec<(f64, f64)>)> = comparison
        .methods()
        .into_iter()
        .map(|method| {
            let rates = comparison.turns(method).into_iter();
            let points = rates
                .filter(|rate| rate.turn > 0)
                .map(|rate| (f64::from(rate.turn), rate.valid as f64 / rate.judged as f64))
                .collect();
            (method, points)
        })
        .collect();
    let turns = rates.iter().flat_map(|(_, points)| points);
    let last = turns.map(|(turn, _)| *turn).fold(0.0, f64::max);
    if last == 0.0 {
        return None;
    }
    let plot = Plot {
        title: "Share of valid kernels by turn".to_owned(),
        description: "Turn: answers of a proposer between a given source and the kernel".to_owned(),
        x: Axis::counting("turn", last as usize),
        y: Axis::share_of_all("valid"),
        marks: rates
            .iter()
            .flat_map(|(_, points)| points)
            .map(|(turn, share)| crate::report::chart::Mark {
                at: (*turn, *share),
                class: "empty",
                radius: 2.5,
                label: String::new(),
                tip: format!("turn {turn}: {:.0} %", share * 100.0),
            })
            .collect(),
        lines: (0..)
            .zip(rates)
            .filter(|(_, (_, points))| !points.is_empty())
            .map(|(nth, (method, points))| Line {
                name: method.name().to_owned(),
                stroke: Stroke::Series(nth),
                points,
                band: Vec::new(),
            })
            .collect(),
        rules: Vec::new(),
    };
    Some(plot.draw())
}
