//! What a person or a script sees of a search: a bar on a terminal, plain lines elsewhere, or a stream of
//! events as JSON. The lines come from the events alone, so that a stored run gives the very lines that the
//! live search printed. It only watches.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::retimed;
use super::story::setting_line;
use crate::driver::Observer;
use crate::llm::Spent;
use crate::search::Search;
use crate::source::Setting;
use crate::store::{BaselineTime, Event, Line, RunConfig, RunGraph, StoredRun};
use crate::units::{Nanos, counted};
use crate::verdict::Measurement;

/// A new best within a tenth of a percent of the old one is not worth a line.
const WORTH_TELLING: f64 = 0.999;

/// Lines say where the search stands this often, in search time, besides every improvement.
const STANDS_EVERY_MS: u64 = 10_000;

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people, on standard error.
    Text,
    /// One event a line, on standard output.
    Json,
}

/// Shows a live search.
pub struct Progress {
    format: Format,
    bar: Option<ProgressBar>,
    printer: Printer,
}

impl Progress {
    /// For the search of `config`.
    pub fn new(format: Format, config: &RunConfig) -> Self {
        let printer = Printer::new(config);
        let terminal = format == Format::Text && io::stderr().is_terminal();
        let bar = terminal.then(|| {
            let bar = ProgressBar::with_draw_target(printer.budget, ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template(
                "{spinner} {pos}/{len} [{bar:24}] {per_sec} ETA {eta}  {msg}",
            );
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self {
            format,
            bar,
            printer,
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Whoever stopped listening is told nothing, and the search goes on.
    fn say(&self, text: &str) {
        let write = || drop(writeln!(io::stderr(), "{text}"));
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }
}

impl Observer for Progress {
    fn applied(&mut self, line: &Line, search: &Search) {
        if self.format == Format::Json {
            let text = serde_json::to_string(line).unwrap_or_default();
            let _ = writeln!(io::stdout(), "{text}");
            return;
        }
        let label = line.event.judged_node();
        let label = label.and_then(|node| Some(search.node(node)?.label));
        if let Some(text) = self.printer.event(line, label.unwrap_or_default()) {
            self.say(&text);
        }
        if let Some(bar) = &self.bar {
            bar.set_position(self.printer.judged);
            bar.set_message(self.printer.counters());
        } else if let Some(text) = self.printer.standing(line.elapsed_ms) {
            self.say(&text);
        }
    }

    fn tick(&mut self) {
        if let Some(bar) = &self.bar {
            bar.tick();
        }
    }
}

/// The lines that a search without a terminal prints, one after the other, from what was asked and the
/// events alone: stored events give the lines that the live ones gave.
pub fn told(run: &StoredRun, graph: &RunGraph) -> impl Iterator<Item = Told> {
    let mut printer = Printer::new(&run.config);
    run.lines.iter().flat_map(move |line| {
        let label = line.event.judged_node();
        let label = label.and_then(|node| Some(graph.node(node)?.label.as_str()));
        let event = printer.event(line, label.unwrap_or_default());
        let standing = printer.standing(line.elapsed_ms);
        event.into_iter().chain(standing).map(|text| Told {
            at: Duration::from_millis(line.elapsed_ms),
            text,
        })
    })
}

/// A line of progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Search time when it was printed.
    pub at: Duration,
    /// The line.
    pub text: String,
}

/// What a run does, for its first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// A search.
    Searching,
    /// A batch: every setting was given.
    Judging {
        /// How many.
        settings: usize,
    },
}

/// The first line of a run; `times` is the word beside its times, where it is known.
pub fn opening(doing: Doing, config: &RunConfig, times: Option<&str>, folder: &Path) -> String {
    let doing = match doing {
        Doing::Searching => "searching".to_owned(),
        Doing::Judging { settings } => format!("judging {} of", counted(settings, "setting")),
    };
    let times = times.map_or(String::new(), |word| format!(" times are {word};"));
    format!(
        "{doing} {} on {} ({}):{times} run in {}",
        config.task,
        config.gpu,
        config.device,
        folder.display()
    )
}

/// Turns events into lines. It knows no clock but that of the events.
struct Printer {
    baseline: Option<BaselineTime>,
    budget: Option<u64>,
    judged: u64,
    valid: u64,
    stages: BTreeMap<&'static str, u64>,
    best: Option<Nanos>,
    /// What the model has cost; absent before it was asked.
    spent: Option<Spent>,
    /// It did not answer when it was last asked.
    away: bool,
    said_ms: u64,
}

impl Printer {
    fn new(config: &RunConfig) -> Self {
        Self {
            baseline: config.baseline.clone(),
            budget: config.search.stop.evaluations.map(u64::from),
            judged: 0,
            valid: 0,
            stages: BTreeMap::new(),
            best: None,
            spent: None,
            away: false,
            said_ms: 0,
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
        let spent = self
            .spent
            .map_or(String::new(), |spent| format!(" · {spent}"));
        format!("{best} · {} valid{failed}{spent}", self.valid)
    }

    /// Where the search stands, if nothing was said for a while.
    fn standing(&mut self, elapsed_ms: u64) -> Option<String> {
        if elapsed_ms < self.said_ms + STANDS_EVERY_MS {
            return None;
        }
        self.said_ms = elapsed_ms;
        let of = self
            .budget
            .map_or(String::new(), |budget| format!("/{budget}"));
        Some(format!("{:>5}{of}  {}", self.judged, self.counters()))
    }

    /// Takes an event in; `label` names the node it is about. Some events are worth a line.
    fn event(&mut self, line: &Line, label: &str) -> Option<String> {
        if let Some(asked) = line.event.asked() {
            self.spent.get_or_insert_default().add(&asked.spent);
        }
        let text = self.text(&line.event, label)?;
        self.said_ms = line.elapsed_ms;
        Some(text)
    }

    fn text(&mut self, event: &Event, label: &str) -> Option<String> {
        match event {
            Event::Evaluated {
                setting,
                evaluation,
                best,
                ..
            } => {
                self.judged += 1;
                let verdict = &evaluation.verdict;
                let Some(measurement) = verdict.measurement() else {
                    *self.stages.entry(verdict.stage()).or_default() += 1;
                    return None;
                };
                self.valid += 1;
                if *best {
                    self.improvement(measurement, label, setting)
                } else {
                    None
                }
            }
            Event::Expanded { asked, .. } => {
                let back = asked.is_some() && std::mem::take(&mut self.away);
                back.then(|| "       the model answers again".to_owned())
            }
            Event::Finished { .. } => None,
            Event::ExpandFailed { message, .. } => {
                self.away = false;
                Some(format!(
                    "       a proposal could not be used: {}",
                    first_line(message)
                ))
            }
            // One outage, one message, however often it is asked in between.
            Event::Away { by, message, .. } => (!std::mem::replace(&mut self.away, true)).then(|| {
                format!(
                    "       the {by} proposer does not answer; going on without it and asking again later: {message}"
                )
            }),
            Event::Unavailable { by, message, .. } => Some(format!(
                "       the {by} proposer is out of service, going on without it: {message}"
            )),
            Event::Retimed { kernels, .. } => {
                Some(format!("       {}", retimed::told(kernels, label)))
            }
            Event::Confirmed {
                setting,
                evaluation,
                ..
            } => {
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
                Some(format!("       {told}  {label}: {}", setting_line(setting)))
            }
        }
    }

    fn improvement(
        &mut self,
        measurement: &Measurement,
        label: &str,
        setting: &Setting,
    ) -> Option<String> {
        let time = measurement.time.nanos();
        let told = self
            .best
            .is_none_or(|best| time.get() < best.get() * WORTH_TELLING);
        let spills = measurement.score.instructions.factor() < 1.0;
        self.best = Some(time);
        if !told && !spills {
            return None;
        }
        let over = self.baseline.as_ref().map_or(String::new(), |baseline| {
            let ratio = baseline.time.get() / time.get();
            format!("  {ratio:.2}× {}", baseline.name)
        });
        let half = if spills {
            "  (score × part: spills or missing target instructions)"
        } else {
            ""
        };
        Some(format!(
            "{:>5}  {time:>11} {}{over}{half}  {label}: {}",
            self.judged,
            measurement.time.label(),
            setting_line(setting)
        ))
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
