//! How well the simulator's cost model orders kernels that were measured: every trace's settings (at most 60
//! of each, drawn with a seed; `--settings N`) are estimated and compared with their measured times.
//!
//! ```sh
//! cargo bench --bench ordering                     # a table; --csv FILE writes it; NAME…: only these traces
//! cargo bench --bench ordering -- --fit            # the constants of the cost model, fitted to all traces
//! ```
//!
//! Each trace is scored by constants that were fitted without its task; *shipped* is the score of those in the
//! program. *Concordance*: of the pairs of settings whose times are more than 5 % apart, the share that the model
//! orders rightly; an estimated tie counts half. *Ceiling*: the same of a second measurement, drawn anew from
//! the first one's raw samples. *Regret*: how much slower than the best of all the best is that is left when
//! the model has dropped half of them. *Guided*: where sources grew from one another, how many evaluations a search
//! would need that took the least estimate first (by the constants that ship), beside those of the recorded order and
//! of random ones. *Searched*: how many the engine takes over the same graph, without and with the prior. What blocks did is kept in the target folder, so that a second run, with another model, takes seconds.

mod fit;
mod guided;
mod judged;
mod score;
mod searched;

use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;

use warptree::device::{Gpu, SimDevice};
use warptree::sim::cost::Constants;

use judged::Ranking;

/// Settings of a trace that are looked at.
const SETTINGS: usize = 60;

fn main() -> Result<(), Box<dyn Error>> {
    let asked = Asked::read(std::env::args().skip(1))?;
    let device = SimDevice::new(Gpu::default());
    let rankings = judged::read_all(&device, &asked.names, asked.settings)?;
    let limits = device.limits();
    if asked.fit {
        println!("{:#?}", fit::to_all(&rankings, &limits));
        return Ok(());
    }
    let constants = Constants::default();
    let rows: Vec<Row> = std::iter::zip(&rankings, fit::without_each(&rankings, &limits))
        .map(|(ranking, left_out)| {
            let shipped = ranking.estimates(&limits, &constants);
            Row::new(ranking, &ranking.estimates(&limits, &left_out), &shipped)
        })
        .collect();
    print!("{}", table(&rows));
    print!("{}", guided(&rows));
    print!("{}", searched(&rankings, &limits, &constants)?);
    if let Some(file) = asked.csv {
        std::fs::write(file, csv(&rows))?;
    }
    if let Some(file) = asked.all {
        std::fs::write(file, settings(&rankings, &limits, &constants))?;
    }
    Ok(())
}

struct Asked {
    fit: bool,
    settings: usize,
    csv: Option<PathBuf>,
    all: Option<PathBuf>,
    names: Vec<String>,
}

impl Asked {
    fn read(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut asked = Self {
            fit: false,
            settings: SETTINGS,
            csv: None,
            all: None,
            names: Vec::new(),
        };
        while let Some(arg) = args.next() {
            match arg.as_str() {
                // Cargo's own.
                "--bench" => {}
                "--fit" => asked.fit = true,
                "--settings" => {
                    let count = args.next().and_then(|count| count.parse().ok());
                    asked.settings = count.ok_or("--settings N")?;
                }
                "--csv" => asked.csv = Some(args.next().ok_or("--csv FILE")?.into()),
                "--all" => asked.all = Some(args.next().ok_or("--all FILE")?.into()),
                option if option.starts_with('-') => {
                    return Err(format!(
                        "{option}: the options are --fit, --settings N, --csv FILE and --all FILE"
                    ));
                }
                name => asked.names.push(name.to_owned()),
            }
        }
        Ok(asked)
    }
}

/// A trace's scores.
struct Row {
    name: String,
    /// Its kernels are timed by `wgmma`: reported, without a bar.
    wgmma: bool,
    settings: usize,
    pairs: usize,
    /// By constants fitted without its task.
    concordance: f64,
    /// By the constants that ship.
    shipped: f64,
    ceiling: f64,
    regret: f64,
    /// Of a graph of rewrites, by the constants that ship.
    guided: Option<guided::Evaluations>,
}

impl Row {
    fn new(ranking: &Ranking, estimates: &[f64], shipped: &[f64]) -> Self {
        let measured = ranking.measured();
        let (concordance, pairs) = score::concordance(&measured, estimates);
        Self {
            name: ranking.name.clone(),
            wgmma: ranking.wgmma,
            settings: measured.len(),
            pairs,
            concordance,
            shipped: score::concordance(&measured, shipped).0,
            ceiling: score::ceiling(&measured, &ranking.samples()),
            regret: score::regret(&measured, estimates),
            guided: guided::evaluations(ranking, shipped),
        }
    }
}

fn table(rows: &[Row]) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{:<24} {:>8} {:>7} {:>12} {:>8} {:>8} {:>8}",
        "trace", "settings", "pairs", "concordance", "shipped", "ceiling", "regret"
    );
    for row in rows {
        let _ = writeln!(
            out,
            "{:<24} {:>8} {:>7} {:>12.3} {:>8.3} {:>8.3} {:>7.1}%{}",
            row.name,
            row.settings,
            row.pairs,
            row.concordance,
            row.shipped,
            row.ceiling,
            row.regret * 100.0,
            if row.wgmma { "  wgmma" } else { "" }
        );
    }
    let barred: Vec<&Row> = rows
        .iter()
        .filter(|row| !row.wgmma && row.pairs > 0)
        .collect();
    let mean = |of: &dyn Fn(&Row) -> f64| {
        barred.iter().map(|row| of(row)).sum::<f64>() / barred.len() as f64
    };
    let least = barred.iter().map(|row| row.concordance).fold(1.0, f64::min);
    let worst = barred.iter().map(|row| row.regret).fold(0.0, f64::max);
    let _ = writeln!(
        out,
        "without wgmma: concordance {:.3} in the mean, {least:.3} at least; regret {:.1} % in the mean, \
         {:.1} % at most",
        mean(&|row| row.concordance),
        mean(&|row| row.regret) * 100.0,
        worst * 100.0
    );
    out
}

/// What estimates save where sources grow from one another.
fn guided(rows: &[Row]) -> String {
    let mut out = format!(
        "\n{:<24} {:>9} {:>8} {:>8}   evaluations until within 1 % of the best\n",
        "rewrites", "recorded", "guided", "random"
    );
    let (mut sums, mut count) = ([0.0; 3], 0.0);
    for row in rows {
        let Some(guided::Evaluations {
            recorded,
            guided,
            random,
        }) = row.guided
        else {
            continue;
        };
        let _ = writeln!(
            out,
            "{:<24} {recorded:>9.0} {guided:>8.0} {random:>8.1}",
            row.name
        );
        for (sum, of) in sums.iter_mut().zip([recorded, guided, random]) {
            *sum += of;
        }
        count += 1.0;
    }
    let [recorded, guided, random] = sums.map(|sum: f64| sum / f64::max(count, 1.0));
    let _ = writeln!(
        out,
        "in the mean              {recorded:>9.1} {guided:>8.1} {random:>8.1}"
    );
    out
}

/// What the prior saves the engine over recorded graphs.
fn searched(
    rankings: &[Ranking],
    limits: &warptree::sim::cost::Limits,
    constants: &Constants,
) -> Result<String, Box<dyn Error>> {
    let mut out = String::from(
        "\nsearched: without and with the prior, evaluations until within 2 % and 1 % of the best\n",
    );
    let line = |name: &str, evaluations: &[f64]| {
        let numbers: String = evaluations.iter().map(|n| format!(" {n:>6.1}")).collect();
        format!("{name:<24}{numbers}\n")
    };
    out += "in flight                     1                           4\n";
    let mut all: Vec<Vec<f64>> = Vec::new();
    for ranking in rankings {
        let estimates = ranking.estimates(limits, constants);
        if let Some(recording) = searched::Recording::read(ranking, &estimates)? {
            let evaluations = recording.evaluations();
            all.push(evaluations.iter().flatten().flatten().copied().collect());
            out += &line(&ranking.name, &all[all.len() - 1]);
        }
    }
    let columns = all.first().map_or(0, Vec::len);
    let mean = |column: usize| all.iter().map(|row| row[column]).sum::<f64>() / all.len() as f64;
    let means: Vec<f64> = (0..columns).map(mean).collect();
    Ok(out + &line("in the mean", &means))
}

fn csv(rows: &[Row]) -> String {
    let mut out = String::from(
        "trace,wgmma,settings,pairs,concordance,concordance_as_shipped,ceiling,regret\n",
    );
    for row in rows {
        let _ = writeln!(
            out,
            "{},{},{},{},{:.4},{:.4},{:.4},{:.4}",
            row.name,
            row.wgmma,
            row.settings,
            row.pairs,
            row.concordance,
            row.shipped,
            row.ceiling,
            row.regret
        );
    }
    out
}

/// Every setting with its times and the model's parts, to look at what it gets wrong.
fn settings(
    rankings: &[Ranking],
    limits: &warptree::sim::cost::Limits,
    constants: &Constants,
) -> String {
    let mut out = String::new();
    for ranking in rankings {
        for judged in &ranking.settings {
            let launches: Vec<_> = judged
                .launches
                .iter()
                .map(|facts| {
                    let estimate = facts.estimate(limits, constants);
                    serde_json::json!({
                        "facts": facts, "parts": estimate.parts, "seconds": estimate.seconds,
                    })
                })
                .collect();
            let line = serde_json::json!({
                "trace": ranking.name, "label": judged.label, "setting": judged.setting, "measured": judged.time,
                "registers": judged.registers, "launches": launches,
            });
            let _ = writeln!(out, "{line}");
        }
    }
    out
}
