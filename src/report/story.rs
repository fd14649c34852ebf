//! The story of a run, read from its stored events alone: from the seed to the winner, what was pruned
//! where, and the best kernels. The same facts as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::Path;

use serde::Serialize;

use super::retimed::{self, RetimedLine};
use super::{baselines_table, by_size};
use crate::evaluate::Evaluation;
use crate::llm::Spent;
use crate::propose::Ask;
use crate::search::{NodeId, StopReason};
use crate::source::{KnobValue, Setting};
use crate::store::{
    Asked, BaselineTime, Event, Retimed, RunConfig, RunGraph, StoreError, StoredKernel, StoredRun,
};
use crate::units::{Digest, Nanos};
use crate::verdict::{Claim, Diagnosis, Measurement, Resources};

/// What a run did.
#[derive(Clone, Debug, Serialize)]
pub struct Story {
    /// What was asked.
    pub config: RunConfig,
    /// Why it ended; absent while it can be resumed.
    pub ended: Option<StopReason>,
    /// Search time, milliseconds.
    pub elapsed_ms: u64,
    /// Kernels judged.
    pub evaluations: u64,
    /// How they ended, and the most frequent reason of each ending.
    pub funnel: Vec<Ending>,
    /// What the model cost, by what it was asked for; empty where none was asked.
    pub asked: Vec<AskedLine>,
    /// The way from the first kernel to the winner; empty without a winner.
    pub path: Vec<Step>,
    /// Each time the best got better.
    pub improvements: Vec<Improvement>,
    /// The best-looking as they were timed again before the winner was named, latest race only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub retimed: Vec<RetimedLine>,
    /// The best kernels: by time, that of spilling kernels counting double.
    pub top: Vec<Ranked>,
    /// Every source, in order of creation.
    pub sources: Vec<SourceLine>,
    /// The winner in full.
    pub winner: Option<Winner>,
}

/// One kind of request to the model.
#[derive(Clone, Debug, Serialize)]
pub struct AskedLine {
    /// Which kind.
    pub ask: Ask,
    /// Requests.
    pub requests: u64,
    /// Those whose answer gave something to judge.
    pub usable: u64,
    /// What they cost, failed calls included.
    pub spent: Spent,
}

/// A way to end.
#[derive(Clone, Debug, Serialize)]
pub struct Ending {
    /// `measured`, `unassembled`, …
    pub stage: String,
    /// How many.
    pub count: u64,
    /// The most frequent message of it.
    pub mostly: Option<String>,
}

/// A step on the way to the winner.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// The edit, or the knobs moved.
    pub what: String,
    /// The time reached with it.
    pub time: Option<Nanos>,
    /// Time before ÷ time after.
    pub gain: Option<f64>,
    /// What its proposer said.
    pub rationale: Option<String>,
}

/// The best got better.
#[derive(Clone, Debug, Serialize)]
pub struct Improvement {
    /// Kernels judged by then, this one included.
    pub evaluation: u64,
    /// Search time, milliseconds.
    pub elapsed_ms: u64,
    /// The new best time.
    pub time: Nanos,
    /// Of which source.
    pub label: String,
    /// With which setting.
    pub setting: Setting,
}

/// A kernel in the table.
#[derive(Clone, Debug, Serialize)]
pub struct Ranked {
    /// Its node.
    pub node: NodeId,
    /// Its time, the later one where it was timed again.
    pub time: Nanos,
    /// Over the run's baseline.
    pub speedup: Option<f64>,
    /// What its time is divided by to rank it: 1, or less where spills or missing target instructions
    /// cost it part of its score.
    pub factor: f64,
    /// Of which source.
    pub label: String,
    /// With which setting.
    pub setting: Setting,
    /// What ptxas said.
    pub resources: Vec<Resources>,
}

/// A source of the graph.
#[derive(Clone, Debug, Serialize)]
pub struct SourceLine {
    /// The node's number.
    pub node: NodeId,
    /// Where it grew from.
    pub parents: Vec<NodeId>,
    /// What made it.
    pub label: String,
    /// Kernels judged of it.
    pub evaluations: u32,
    /// Those that were valid.
    pub valid: u32,
    /// Its best time.
    pub best: Option<Nanos>,
}

/// The winner.
#[derive(Clone, Debug, Serialize)]
pub struct Winner {
    /// Its id.
    pub candidate: Option<Digest>,
    /// Its node.
    pub node: NodeId,
    /// The source text's hash in the object store.
    pub source: Digest,
    /// Its setting.
    pub setting: Setting,
    /// Its files, where it was assembled.
    pub kernel: Option<StoredKernel>,
    /// Time, score, checks: those of the second look, where there was one.
    pub measurement: Measurement,
    /// It was judged again in full when the search ended. Until then it is only the best so far.
    pub confirmed: bool,
    /// Measured again beside its baselines, where that was done.
    pub claim: Option<Claim>,
}

impl Story {
    /// Reads a stored run; `top` kernels go into the table.
    pub fn read(run: &StoredRun, top: usize) -> Result<Self, StoreError> {
        let graph = RunGraph::read(run)?;
        let mut teller = Teller::new(run.config.baseline.as_ref());
        for line in &run.lines {
            teller.hear(line.elapsed_ms, &line.event, &graph);
        }
        Ok(teller.story(run, &graph, top))
    }
}

/// What was judged of a node.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    judged: u32,
    valid: u32,
    best: Option<Nanos>,
}

/// Gathers facts while events pass.
struct Teller {
    baseline: Option<Nanos>,
    /// The seed's time, where it is the denominator.
    seed: Option<Nanos>,
    evaluations: u64,
    ended: Option<StopReason>,
    endings: BTreeMap<String, (u64, BTreeMap<String, u64>)>,
    asked: BTreeMap<Ask, AskedLine>,
    improvements: Vec<Improvement>,
    retimed: Vec<RetimedLine>,
    ranked: Vec<Ranked>,
    defaults: BTreeMap<NodeId, Nanos>,
    counts: BTreeMap<NodeId, Counts>,
    winner: Option<Winner>,
}

impl Teller {
    fn new(baseline: Option<&BaselineTime>) -> Self {
        Self {
            baseline: baseline.map(|baseline| baseline.time),
            seed: baseline
                .filter(|baseline| baseline.name == "seed")
                .map(|baseline| baseline.time),
            evaluations: 0,
            ended: None,
            endings: BTreeMap::new(),
            asked: BTreeMap::new(),
            improvements: Vec::new(),
            retimed: Vec::new(),
            ranked: Vec::new(),
            defaults: BTreeMap::new(),
            counts: BTreeMap::new(),
            winner: None,
        }
    }

    fn hear(&mut self, elapsed_ms: u64, event: &Event, graph: &RunGraph) {
        if let Some(asked) = event.asked() {
            self.ask(asked, matches!(event, Event::Expanded { .. }));
        }
        match event {
            Event::Evaluated {
                node,
                setting,
                evaluation,
                kernel,
                best,
                ..
            } => {
                self.evaluations += 1;
                self.ended = None;
                self.count(evaluation);
                let counts = self.counts.entry(*node).or_default();
                counts.judged += 1;
                let Some(measurement) = evaluation.verdict.measurement() else {
                    return;
                };
                let time = measurement.time.nanos();
                counts.valid += 1;
                counts.best = Some(
                    counts
                        .best
                        .map_or(time, |best| if time < best { time } else { best }),
                );
                let Some(stored) = graph.node(*node) else {
                    return;
                };
                if is_default(&stored.source, setting) {
                    self.defaults.insert(*node, time);
                }
                self.ranked.push(Ranked {
                    node: *node,
                    time,
                    speedup: self.baseline.map(|baseline| baseline.get() / time.get()),
                    factor: measurement.score.instructions.factor(),
                    label: stored.label.clone(),
                    setting: setting.clone(),
                    resources: measurement.resources.clone(),
                });
                if *best {
                    self.improvements.push(Improvement {
                        evaluation: self.evaluations,
                        elapsed_ms,
                        time,
                        label: stored.label.clone(),
                        setting: setting.clone(),
                    });
                    self.winner = Some(Winner {
                        candidate: evaluation.candidate,
                        node: *node,
                        source: stored.digest,
                        setting: setting.clone(),
                        kernel: *kernel,
                        measurement: measurement.clone(),
                        confirmed: false,
                        claim: None,
                    });
                }
            }
            Event::Retimed { kernels, .. } => self.retime(kernels, graph),
            Event::Confirmed {
                node,
                setting,
                evaluation,
                kernel,
                claim,
                ..
            } => {
                let stored = graph.node(*node);
                match (evaluation.verdict.measurement(), stored) {
                    (Some(measurement), Some(stored)) => {
                        self.winner = Some(Winner {
                            candidate: evaluation.candidate,
                            node: *node,
                            source: stored.digest,
                            setting: setting.clone(),
                            kernel: *kernel,
                            measurement: measurement.clone(),
                            confirmed: true,
                            claim: claim.as_deref().cloned(),
                        });
                    }
                    (None, _) | (Some(_), None) => {
                        let reason = evaluation.verdict.reason().unwrap_or_default();
                        let stage = evaluation.verdict.stage();
                        self.ending("refuted in full", Some(&format!("{stage}: {reason}")));
                        self.winner = None;
                    }
                }
            }
            Event::Expanded { .. } => {}
            Event::Finished { reason } => self.ended = Some(*reason),
            Event::ExpandFailed { message, .. } => {
                self.ending("no usable proposal", Some(message));
            }
            Event::Away { message, .. } => self.ending("proposer away", Some(message)),
            Event::Unavailable { message, .. } => self.ending("proposer gone", Some(message)),
        }
    }

    fn retime(&mut self, kernels: &[Retimed], graph: &RunGraph) {
        self.retimed.clear();
        for kernel in kernels {
            self.retimed.push(RetimedLine::new(kernel, graph));
            let known = self
                .ranked
                .iter_mut()
                .find(|ranked| ranked.node == kernel.node && ranked.setting == kernel.setting);
            if let (Some(ranked), Some(time)) = (known, kernel.time()) {
                ranked.time = time;
                ranked.speedup = self.baseline.map(|baseline| baseline.get() / time.get());
            }
        }
    }

    fn ask(&mut self, asked: &Asked, usable: bool) {
        let line = self.asked.entry(asked.ask).or_insert(AskedLine {
            ask: asked.ask,
            requests: 0,
            usable: 0,
            spent: Spent::default(),
        });
        line.requests += 1;
        line.usable += u64::from(usable);
        line.spent.add(&asked.spent);
    }

    fn count(&mut self, evaluation: &Evaluation) {
        let verdict = &evaluation.verdict;
        let message = verdict.reason();
        self.ending(verdict.stage(), message.as_deref());
    }

    fn ending(&mut self, stage: &str, message: Option<&str>) {
        let (count, messages) = self.endings.entry(stage.to_owned()).or_default();
        *count += 1;
        if let Some(message) = message {
            *messages.entry(message.to_owned()).or_default() += 1;
        }
    }

    fn story(mut self, run: &StoredRun, graph: &RunGraph, top: usize) -> Story {
        let path = self.path(graph);
        let cost = |ranked: &Ranked| ranked.time.get() / ranked.factor;
        self.ranked.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        self.ranked.truncate(top);
        let mut funnel: Vec<Ending> = self
            .endings
            .into_iter()
            .map(|(stage, (count, messages))| {
                let mostly = messages.into_iter().max_by_key(|(_, count)| *count);
                Ending {
                    stage,
                    count,
                    mostly: mostly.map(|(message, _)| message),
                }
            })
            .collect();
        funnel.sort_by_key(|ending| std::cmp::Reverse(ending.count));
        Story {
            config: run.config.clone(),
            ended: self.ended,
            elapsed_ms: run.lines.last().map_or(0, |line| line.elapsed_ms),
            evaluations: self.evaluations,
            funnel,
            asked: self.asked.into_values().collect(),
            path,
            improvements: self.improvements,
            retimed: self.retimed,
            top: self.ranked,
            sources: graph
                .nodes()
                .map(|(id, node)| {
                    let counts = self.counts.get(&id).copied().unwrap_or_default();
                    SourceLine {
                        node: id,
                        parents: node.parents.clone(),
                        label: node.label.clone(),
                        evaluations: counts.judged,
                        valid: counts.valid,
                        best: counts.best,
                    }
                })
                .collect(),
            winner: self.winner,
        }
    }

    /// From the first kernel through every edit to the winner's source, then the knobs moved there.
    fn path(&self, graph: &RunGraph) -> Vec<Step> {
        let Some(winner) = &self.winner else {
            return Vec::new();
        };
        let mut steps = Vec::new();
        // where the run had another denominator, the seed was judged as every source was
        let mut before = self.seed.or_else(|| {
            let (id, _) = graph.nodes().find(|(_, node)| node.label == "seed")?;
            self.defaults.get(&id).copied()
        });
        if let Some(time) = before {
            steps.push(Step {
                what: "seed".into(),
                time: Some(time),
                gain: None,
                rationale: None,
            });
        }
        let mut step = |what: String, time: Option<Nanos>, rationale: Option<String>| {
            let gain = before
                .zip(time)
                .map(|(before, time)| before.get() / time.get());
            before = time.or(before);
            steps.push(Step {
                what,
                time,
                gain,
                rationale,
            });
        };
        for (id, node) in graph
            .lineage(winner.node)
            .into_iter()
            .filter_map(|id| Some((id, graph.node(id)?)))
        {
            if node.label != "seed" {
                let what = format!("{}, knobs at their defaults", node.label);
                step(
                    what,
                    self.defaults.get(&id).copied(),
                    node.rationale.clone(),
                );
            }
        }
        let moved = graph
            .node(winner.node)
            .map(|node| moved(&node.source, &winner.setting))
            .unwrap_or_default();
        if !moved.is_empty() {
            step(moved, Some(winner.measurement.time.nanos()), None);
        }
        steps
    }
}

fn is_default(source: &crate::source::Source, setting: &Setting) -> bool {
    source
        .space()
        .knobs()
        .iter()
        .all(|knob| setting.get(&knob.name) == Some(default(knob)))
}

fn default(knob: &crate::source::Knob) -> &KnobValue {
    &knob.values[usize::from(knob.default)]
}

/// The knobs that differ from their defaults: `BM 64 → 128, …`; empty where none does.
pub(super) fn moved(source: &crate::source::Source, setting: &Setting) -> String {
    let mut out = String::new();
    for knob in source.space().knobs() {
        let (from, to) = (default(knob), setting.get(&knob.name));
        if let Some(to) = to.filter(|to| *to != from) {
            let comma = if out.is_empty() { "" } else { ", " };
            let _ = write!(out, "{comma}{} {from} → {to}", knob.name);
        }
    }
    out
}

/// A setting in one line: `BM=64 BN=128`.
pub fn setting_line(setting: &Setting) -> String {
    if setting.is_empty() {
        return "(no knobs)".to_owned();
    }
    setting
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect::<Vec<_>>()
        .join(" ")
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.config;
        writeln!(
            f,
            "{} on {} ({}), {} kernels judged in {:.1} s, seed {}",
            config.task,
            config.gpu,
            config.device,
            self.evaluations,
            self.elapsed_ms as f64 / 1e3,
            config.seed
        )?;
        match self.ended {
            Some(reason) => writeln!(f, "ended: {reason}")?,
            None => writeln!(f, "not ended: `warptree resume` goes on with it")?,
        }
        let Some(winner) = &self.winner else {
            writeln!(f, "\nno kernel passed every check")?;
            self.write_funnel(f)?;
            return self.write_asked(f);
        };
        let label = winner.measurement.time.label();
        writeln!(f, "\nFrom seed to winner (times {label})")?;
        for step in &self.path {
            let time = step
                .time
                .map_or("not judged".to_owned(), |time| time.to_string());
            let gain = step
                .gain
                .map_or(String::new(), |gain| format!("{gain:.2}×"));
            writeln!(f, "  {time:>11}  {gain:>7}  {}", step.what)?;
        }
        self.write_winner(f, winner)?;
        self.write_baselines(f, winner)?;
        if let Some(claim) = &winner.claim {
            write!(f, "\nFinal claim, {claim}")?;
        }
        if !self.retimed.is_empty() {
            writeln!(f, "\nTimed again, in turns")?;
            f.write_str(&retimed::table(&self.retimed))?;
        }
        writeln!(f, "\nTop {} of {}", self.top.len(), self.evaluations)?;
        f.write_str(&self.top_table())?;
        writeln!(f, "\nSources")?;
        for source in &self.sources {
            let best = source
                .best
                .map_or("none valid".to_owned(), |best| best.to_string());
            writeln!(
                f,
                "  {:>11}  {:>4} judged, {:>4} valid  {}",
                best, source.evaluations, source.valid, source.label
            )?;
        }
        self.write_funnel(f)?;
        self.write_asked(f)
    }
}

impl Story {
    /// What a search says at its end: the winner, and where to read more. `kernel`: its files are there, to
    /// be exported.
    pub fn brief(&self, folder: &Path, kernel: bool) -> String {
        let folder = folder.display();
        let Some(winner) = &self.winner else {
            return format!("no kernel passed every check; `warptree show {folder}` says why\n");
        };
        let time = &winner.measurement.time;
        let over = self
            .config
            .baseline
            .as_ref()
            .map_or(String::new(), |baseline| {
                let ratio = baseline.time.get() / time.nanos().get();
                format!(
                    ", {ratio:.2}× the {} ({} {})",
                    baseline.name,
                    baseline.time,
                    time.label()
                )
            });
        let setting = setting_line(&winner.setting);
        let source = self
            .sources
            .iter()
            .find(|source| source.node == winner.node);
        let label = source.map_or("", |source| &source.label);
        let export = if kernel {
            format!(
                "export: warptree export {folder} --to {}-kernel\n",
                self.config.task
            )
        } else {
            String::new()
        };
        format!(
            "winner: {} {}{over}\n        {label}: {setting}\nstory:  warptree show {folder}\n{export}",
            time.nanos(),
            time.label(),
        )
    }

    fn write_winner(&self, f: &mut fmt::Formatter<'_>, winner: &Winner) -> fmt::Result {
        let measurement = &winner.measurement;
        writeln!(f, "\nWinner  {}", setting_line(&winner.setting))?;
        let time = &measurement.time;
        write!(f, "  time        {} ({})", time.nanos(), time.label())?;
        match &self.config.baseline {
            Some(baseline) => writeln!(
                f,
                ", {:.2}× {}",
                baseline.time.get() / time.nanos().get(),
                baseline.name
            )?,
            None => writeln!(f)?,
        }
        if !winner.confirmed {
            writeln!(
                f,
                "  not confirmed: a run that ends judges its winner once more, in full"
            )?;
        }
        for entry in &measurement.resources {
            writeln!(
                f,
                "  {:<11} {} registers, {} shared, {} spilled",
                entry.entry, entry.registers, entry.static_smem, entry.spill_stores
            )?;
        }
        if let Some(diagnosis) = &measurement.diagnosis {
            write_diagnosis(f, diagnosis)?;
        }
        write_list(f, "checked", &by_size(&measurement.checked))?;
        write_list(f, "not checked", &by_size(&measurement.not_checked))?;
        Ok(())
    }

    /// The winner's search time over each baseline's: what a claim measures again, side by side.
    fn write_baselines(&self, f: &mut fmt::Formatter<'_>, winner: &Winner) -> fmt::Result {
        let Some(baselines) = &self.config.baselines else {
            return Ok(());
        };
        writeln!(f, "\nBaselines, measured when the run began")?;
        f.write_str(&baselines_table(
            baselines,
            Some(winner.measurement.time.nanos()),
        ))
    }

    fn top_table(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.set_header([
            "  time",
            "speedup",
            "score",
            "registers",
            "source",
            "setting",
        ]);
        for ranked in &self.top {
            let registers = ranked
                .resources
                .iter()
                .map(|entry| entry.registers.to_string())
                .collect::<Vec<_>>();
            table.add_row([
                format!("  {}", ranked.time),
                ranked
                    .speedup
                    .map_or("-".to_owned(), |speedup| format!("{speedup:.2}×")),
                format!("× {}", ranked.factor),
                registers.join("/"),
                ranked.label.clone(),
                setting_line(&ranked.setting),
            ]);
        }
        let lines: Vec<_> = table
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect();
        lines.join("\n") + "\n"
    }

    fn write_asked(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.asked.is_empty() {
            return Ok(());
        }
        let mut whole = Spent::default();
        writeln!(f, "\nAsked of the model")?;
        for line in &self.asked {
            whole.add(&line.spent);
            writeln!(
                f,
                "  {:>5}  {:<18} {} usable; {}",
                line.requests,
                line.ask.name(),
                line.usable,
                line.spent
            )?;
        }
        let usage = whole.usage;
        writeln!(
            f,
            "  in all {whole}; billed: {} in ({} cached), {} out ({} reasoning)",
            usage.input, usage.cached, usage.output, usage.reasoning
        )
    }

    fn write_funnel(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nHow they ended")?;
        for ending in &self.funnel {
            let mostly = ending.mostly.as_deref().unwrap_or_default();
            writeln!(f, "  {:>5}  {:<18} {mostly}", ending.count, ending.stage)?;
        }
        Ok(())
    }
}

/// The title stands once, before the first of the lines.
fn write_list(f: &mut fmt::Formatter<'_>, title: &str, lines: &[String]) -> fmt::Result {
    for (nth, line) in lines.iter().enumerate() {
        let title = if nth == 0 { title } else { "" };
        writeln!(f, "  {title:<11} {line}")?;
    }
    Ok(())
}

fn write_diagnosis(f: &mut fmt::Formatter<'_>, diagnosis: &Diagnosis) -> fmt::Result {
    writeln!(
        f,
        "  limited by  {} ({})",
        diagnosis.bottleneck, diagnosis.source
    )?;
    for evidence in &diagnosis.evidence {
        let line = evidence
            .line
            .map_or(String::new(), |line| format!(" (line {line})"));
        writeln!(f, "              {}{line}", evidence.text)?;
    }
    Ok(())
}
