//! What a person or a script sees while a search runs: a bar on a terminal, plain lines elsewhere, or a
//! stream of events as JSON. It only watches.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::story::setting_line;
use crate::driver::Observer;
use crate::search::Search;
use crate::store::{Event, Line};
use crate::units::Nanos;

/// Plain output says where it stands this often, besides every improvement.
const PLAIN_EVERY: Duration = Duration::from_secs(10);

/// A new best within a tenth of a percent of the old one is not worth a line.
const WORTH_TELLING: f64 = 0.999;

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people, on standard error.
    Text,
    /// One event a line, on standard output.
    Json,
}

/// Shows progress.
pub struct Progress {
    format: Format,
    bar: Option<ProgressBar>,
    baseline: Option<(String, Nanos)>,
    budget: Option<u64>,
    judged: u64,
    valid: u64,
    stages: BTreeMap<&'static str, u64>,
    best: Option<Nanos>,
    said: Instant,
    closed: bool,
}

impl Progress {
    /// `baseline` is what speedups are over.
    pub fn new(format: Format, budget: Option<u64>, baseline: Option<(String, Nanos)>) -> Self {
        let terminal = format == Format::Text && io::stderr().is_terminal();
        let bar = terminal.then(|| {
            let bar = ProgressBar::with_draw_target(budget, ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template(
                "{spinner} {pos}/{len} [{bar:24}] {per_sec} ETA {eta}  {msg}",
            );
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self {
            format,
            bar,
            baseline,
            budget,
            judged: 0,
            valid: 0,
            stages: BTreeMap::new(),
            best: None,
            said: Instant::now(),
            closed: false,
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn say(&mut self, text: &str) {
        self.said = Instant::now();
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => self.closed |= writeln!(io::stderr(), "{text}").is_err(),
        }
    }

    fn counters(&self) -> String {
        let best = self.best.map_or("no valid kernel yet".to_owned(), |best| {
            format!("best {best}")
        });
        let failed: Vec<String> = self
            .stages
            .iter()
            .map(|(stage, count)| format!("{count} {stage}"))
            .collect();
        let failed = if failed.is_empty() {
            String::new()
        } else {
            format!(", {}", failed.join(", "))
        };
        format!("{best} · {} valid{failed}", self.valid)
    }

    fn event(&mut self, line: &Line, search: &Search) {
        match &line.event {
            Event::Evaluated {
                node,
                setting,
                evaluation,
                best,
                ..
            } => {
                self.judged += 1;
                match evaluation.verdict.measurement() {
                    Some(_) => self.valid += 1,
                    None => *self.stages.entry(evaluation.verdict.stage()).or_default() += 1,
                }
                let measurement = evaluation.verdict.measurement().filter(|_| *best);
                if let Some(measurement) = measurement {
                    let time = measurement.time.nanos();
                    let told = self
                        .best
                        .is_none_or(|best| time.get() < best.get() * WORTH_TELLING);
                    let spills = measurement.score.instructions.factor() < 1.0;
                    self.best = Some(time);
                    if !told && !spills {
                        return;
                    }
                    let over = self
                        .baseline
                        .as_ref()
                        .map_or(String::new(), |(name, baseline)| {
                            format!("  {:.2}× {name}", baseline.get() / time.get())
                        });
                    let label = search.node(*node).map_or("", |node| node.label).to_owned();
                    let number = self.judged;
                    let word = measurement.time.label();
                    let half = if spills {
                        "  (score × part: spills or missing target instructions)"
                    } else {
                        ""
                    };
                    self.say(&format!(
                        "{number:>5}  {time:>11} {word}{over}{half}  {label}: {}",
                        setting_line(setting)
                    ));
                }
            }
            Event::Expanded { .. } => {}
            Event::ExpandFailed { message, .. } => {
                self.say(&format!(
                    "       a proposal could not be used: {}",
                    first_line(message)
                ));
            }
            Event::Unavailable { by, message, .. } => {
                let text = format!(
                    "       the {by} proposer is out of service, going on without it: {message}"
                );
                self.say(&text);
            }
            Event::Confirmed {
                node,
                setting,
                evaluation,
                ..
            } => {
                let label = search.node(*node).map_or("", |node| node.label).to_owned();
                let verdict = &evaluation.verdict;
                let told = match verdict.measurement() {
                    Some(measurement) => format!(
                        "confirmed in full, {} {}",
                        measurement.time.nanos(),
                        measurement.time.label()
                    ),
                    None => format!(
                        "refuted in full, {}: {}",
                        verdict.stage(),
                        verdict.reason().unwrap_or_default()
                    ),
                };
                self.say(&format!(
                    "       {told}  {label}: {}",
                    setting_line(setting)
                ));
            }
            Event::Finished { .. } => {}
        }
    }
}

impl Observer for Progress {
    fn applied(&mut self, line: &Line, search: &Search) {
        if self.format == Format::Json {
            let text = serde_json::to_string(line).unwrap_or_default();
            self.closed |= writeln!(io::stdout(), "{text}").is_err();
            return;
        }
        self.event(line, search);
        if let Some(bar) = &self.bar {
            bar.set_position(self.judged);
            bar.set_message(self.counters());
        } else if self.said.elapsed() >= PLAIN_EVERY {
            let of = self
                .budget
                .map_or(String::new(), |budget| format!("/{budget}"));
            self.say(&format!("{:>5}{of}  {}", self.judged, self.counters()));
        }
    }

    fn tick(&mut self) {
        if let Some(bar) = &self.bar {
            bar.tick();
        }
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
