//! A comparison as a terminal table and as CSV.

use std::fmt::{self, Write as _};

use super::{Comparison, Paired};
use crate::units::Nanos;

impl Comparison {
    /// One line a judged kernel.
    pub fn curve_csv(&self) -> String {
        let mut out = String::from(
            "method,seed,evaluation,turn,stage,time_ns,best_ns,tokens,dollars,judge_seconds\n",
        );
        for series in &self.series {
            let rows = series.judged.iter().zip(series.best_so_far());
            for (index, (judged, best)) in rows.enumerate() {
                let cost = &judged.cost;
                let _ = writeln!(
                    out,
                    "{},{},{},{},{},{},{},{},{},{:.3}",
                    series.method.name(),
                    series.seed,
                    index + 1,
                    judged.turn,
                    judged.stage,
                    number(judged.time),
                    number(best),
                    cost.tokens,
                    cost.dollars
                        .map_or(String::new(), |dollars| format!("{:.6}", dollars.get())),
                    cost.judge_seconds
                );
            }
        }
        out
    }

    /// One line a method and cost: the best so far, median and quartiles over seeds.
    pub fn bands_csv(&self) -> String {
        let mut out = String::from("method,cost,low_ns,median_ns,high_ns\n");
        for method in self.methods() {
            for band in self.bands(method) {
                let _ = writeln!(
                    out,
                    "{},{:.6},{},{},{}",
                    method.name(),
                    band.cost,
                    number(band.low),
                    number(band.median),
                    number(band.high)
                );
            }
        }
        out
    }

    /// One line a method and turn.
    pub fn turns_csv(&self) -> String {
        let mut out = String::from("method,turn,judged,valid\n");
        for method in self.methods() {
            for rate in self.turns(method) {
                let _ = writeln!(
                    out,
                    "{},{},{},{}",
                    method.name(),
                    rate.turn,
                    rate.judged,
                    rate.valid
                );
            }
        }
        out
    }

    /// One line a method.
    pub fn summary_csv(&self) -> String {
        let mut out = String::from(
            "method,seeds,judged,valid_share,median_best_ns,speedup,median_near,median_to_one,\
             mean_tokens,mean_dollars,mean_judge_seconds,ratio_to_first,ratio_low,ratio_high,p\n",
        );
        for summary in self.summaries() {
            let cost = &summary.mean_cost;
            let against = |pick: fn(&Paired) -> f64| {
                let against = summary.against_first.as_ref();
                against.map_or(String::new(), |paired| format!("{:.5}", pick(paired)))
            };
            let _ = writeln!(
                out,
                "{},{},{},{:.4},{},{},{},{},{},{},{:.3},{},{},{},{}",
                summary.method.name(),
                summary.seeds,
                summary.judged,
                summary.valid,
                number(summary.median_best),
                self.speedup(summary.median_best)
                    .map_or(String::new(), |ratio| format!("{ratio:.4}")),
                summary
                    .median_near
                    .map_or(String::new(), |near| near.to_string()),
                summary
                    .median_to_one
                    .map_or(String::new(), |cost| cost.to_string()),
                cost.tokens,
                cost.dollars
                    .map_or(String::new(), |dollars| format!("{:.6}", dollars.get())),
                cost.judge_seconds,
                against(|paired| paired.ratio),
                against(|paired| paired.low),
                against(|paired| paired.high),
                against(|paired| paired.p),
            );
        }
        out
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} on {} ({}), each series at most {}",
            self.task,
            self.gpu,
            self.label,
            self.budget.words()
        )?;
        let over = self
            .baseline
            .as_ref()
            .map_or("speedup".to_owned(), |(name, _)| format!("× {name}"));
        let methods = self.methods();
        let first = methods.first().map_or("", |method| method.name());
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        let header = [
            "method",
            "seeds",
            "judged",
            "valid",
            "median best",
            "best … worst",
            &over,
            "to 5 %",
            "to 1×",
            &format!("÷ {first}"),
            "p",
        ];
        table.set_header(header);
        let unit = self.budget.unit();
        let summaries = self.summaries();
        for summary in &summaries {
            let range = match (summary.best.first(), summary.best.last()) {
                (Some(best), Some(worst)) => format!("{best} … {worst}"),
                (Some(_), None) | (None, Some(_)) | (None, None) => "-".to_owned(),
            };
            let against = summary.against_first.as_ref();
            table.add_row([
                summary.method.name().to_owned(),
                summary.seeds.to_string(),
                summary.judged.to_string(),
                format!("{:.0} %", summary.valid * 100.0),
                summary
                    .median_best
                    .map_or("-".to_owned(), |best| best.to_string()),
                range,
                self.speedup(summary.median_best)
                    .map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
                summary
                    .median_near
                    .map_or("never".to_owned(), |near| near.to_string()),
                match (summary.median_to_one, &self.baseline) {
                    (Some(cost), _) => unit.amount(cost),
                    (None, Some(_)) => "never".to_owned(),
                    (None, None) => "-".to_owned(),
                },
                against.map_or("-".to_owned(), |paired| {
                    let Paired {
                        ratio, low, high, ..
                    } = paired;
                    format!("{ratio:.3} [{low:.3}, {high:.3}]")
                }),
                against.map_or("-".to_owned(), |paired| p_words(paired.p)),
            ]);
        }
        for line in table.lines() {
            writeln!(f, "{}", line.trim_end())?;
        }
        writeln!(
            f,
            "Times are the winners', judged again after the search; medians over seeds. “to 5 %”: kernels judged until \
             within 5 % of the best that any series found. “to 1×”: {} until as fast as what speedups are over. \
             “÷ {first}”: how many times as fast as {first}, geometric mean over shared seeds with its 95 % interval; p: \
             paired bootstrap, two-sided.",
            unit.words()
        )?;
        let refuted: u32 = summaries.iter().map(|summary| summary.refuted).sum();
        if refuted > 0 {
            writeln!(f, "{refuted} better kernels did not pass the second look.")?;
        }
        Ok(())
    }
}

/// As papers print it.
pub(crate) fn p_words(p: f64) -> String {
    if p < 0.001 {
        "< 0.001".to_owned()
    } else {
        format!("{p:.3}")
    }
}

fn number(time: Option<Nanos>) -> String {
    time.map_or(String::new(), |time| format!("{:.1}", time.get()))
}
