//! A run as one HTML file that needs nothing else: no network, no other file. Whatever a model, a source or
//! a tool wrote reaches the page as text, never as markup. Reads a stored run; judges nothing.

mod charts;
mod comparison;
mod diff;
mod exchanges;
mod funnel;
mod graph;

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, UndefinedBehavior, context};
use serde::Serialize;

pub use comparison::{bands_picture, comparison_page};

use self::charts::Profiled;
use self::graph::Graph;
use super::chart::{Picture, palette_css};
use super::story::{Ranked, Story, setting_line};
use super::{baselines_table, by_size};
use crate::device::Gpu;
use crate::llm::{Exchange, Spent};
use crate::store::{RunGraph, StoreError, StoredRun};
use crate::units::{Digest, counted};

/// Kernels in the table of the best.
const TOP: usize = 20;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const TEMPLATES: [(&str, &str); 3] = [
    ("frame.html", include_str!("frame.html")),
    ("run.html", include_str!("run.html")),
    ("comparison.html", include_str!("comparison.html")),
];

/// A page cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The run.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A template of ours.
    #[error("the page's template does not render: {0:#}")]
    Template(#[from] Error),
    /// Facts that JSON cannot hold.
    #[error("the page's facts cannot be written: {0}")]
    Facts(#[from] serde_json::Error),
}

/// A run read once, for its page and its pictures.
pub struct RunReport<'a> {
    run: &'a StoredRun,
    story: Story,
    stored: RunGraph,
    graph: Graph,
    exchanges: &'a [Exchange],
}

impl<'a> RunReport<'a> {
    /// Reads `run`; `exchanges` are what a model was asked and answered, empty where none was.
    pub fn read(run: &'a StoredRun, exchanges: &'a [Exchange]) -> Result<Self, StoreError> {
        let story = Story::read(run, TOP)?;
        let stored = RunGraph::read(run)?;
        let setting = story
            .winner
            .as_ref()
            .map(|winner| (winner.node, setting_line(&winner.setting)));
        let winner = setting.as_ref().map(|(node, setting)| (*node, &**setting));
        let graph = Graph::read(run, &stored, exchanges, winner);
        Ok(Self {
            run,
            story,
            stored,
            graph,
            exchanges,
        })
    }

    /// The graph of sources.
    pub fn tree(&self) -> Picture {
        charts::tree(self.run, &self.graph)
    }

    /// The best so far; `None` where no kernel was valid.
    pub fn curve(&self) -> Option<Picture> {
        charts::curve(self.run)
    }

    /// The page.
    pub fn page(&self) -> Result<String, PageError> {
        let gpu = Gpu::named(&self.run.config.gpu).ok();
        let profiled = Profiled::all(self.run, &self.stored, &self.story);
        let facts = json(&self.graph)?;
        let config = &self.run.config;
        let inline = |picture: Option<Picture>| picture.map(|picture| picture.inline());
        let seconds = self.story.elapsed_ms as f64 / 1e3;
        let body = context! {
            title => format!("{} on {}", config.task, config.gpu),
            subtitle => format!(
                "{} judged in {seconds:.1} s on {}, seed {}",
                counted(self.story.evaluations, "kernel"),
                config.device,
                config.seed
            ),
            ended => self.story.ended.map(|reason| reason.to_string()),
            winner => self.winner(),
            no_winner => self.story.no_winner(),
            batch => self.run.config.is_batch(),
            path => self.path(),
            curve => inline(self.curve()),
            tree => self.tree().inline(),
            funnel => Serde(funnel::funnel(self.run)),
            endings => Serde(&self.story.funnel),
            roofline => inline(charts::roofline(&profiled, gpu.as_ref())),
            positions => Serde(charts::positions(&profiled, gpu.as_ref())),
            stalls => inline(charts::stalls(&profiled)),
            top => self.story.top.iter().map(|ranked| self.ranked(ranked)).collect::<Vec<_>>(),
            cost => self.cost(),
            environment => self.environment(),
            baselines => self.baselines(),
            exchanges => self.exchanges.len(),
        };
        page("run.html", &facts, body)
    }

    fn winner(&self) -> Option<minijinja::Value> {
        let winner = self.story.winner.as_ref()?;
        let measurement = &winner.measurement;
        let time = measurement.time.nanos();
        let over = self.run.config.baseline.as_ref().map(|baseline| {
            let ratio = baseline.time.get() / time.get();
            format!("{ratio:.2}× {}", baseline.name)
        });
        let label = self.stored.node(winner.node).map(|node| &*node.label);
        let resources: Vec<String> = measurement
            .resources
            .iter()
            .map(|entry| {
                format!(
                    "{}: {} registers, {} shared, {} spilled",
                    entry.entry, entry.registers, entry.static_smem, entry.spill_stores
                )
            })
            .collect();
        Some(context! {
            time => time.to_string(),
            label => measurement.time.label(),
            over,
            source => label,
            setting => setting_line(&winner.setting),
            score => measurement.score.instructions.shortfall(),
            confirmed => winner.confirmed,
            resources,
            limit => measurement.diagnosis.as_ref().map(|one| one.bottleneck.to_string()),
            evidence => measurement.diagnosis.as_ref().map(|one| {
                one.evidence.iter().map(|evidence| evidence.text.clone()).collect::<Vec<_>>()
            }),
            checked => by_size(&measurement.checked),
            not_checked => by_size(&measurement.not_checked),
            claim => winner.claim.as_ref().map(ToString::to_string),
        })
    }

    fn path(&self) -> Vec<minijinja::Value> {
        let steps = self.story.path.iter();
        steps
            .map(|step| {
                context! {
                    what => step.what.clone(),
                    time => step.time.map_or("not judged".to_owned(), |time| time.to_string()),
                    gain => step.gain.map_or(String::new(), |gain| format!("{gain:.2}×")),
                    rationale => step.rationale.clone(),
                }
            })
            .collect()
    }

    fn ranked(&self, ranked: &Ranked) -> minijinja::Value {
        let registers: Vec<String> = ranked
            .resources
            .iter()
            .map(|entry| entry.registers.to_string())
            .collect();
        context! {
            time => ranked.time.to_string(),
            speedup => ranked.speedup.map_or(String::new(), |ratio| format!("{ratio:.2}×")),
            registers => registers.join("/"),
            source => ranked.label.clone(),
            setting => setting_line(&ranked.setting),
        }
    }

    fn cost(&self) -> Vec<(&'static str, String)> {
        let judging: u64 = self.graph.kernels.iter().map(|one| one.took_ms).sum();
        let mut cost = vec![
            (
                "search time",
                format!("{:.1} s", self.story.elapsed_ms as f64 / 1e3),
            ),
            (
                "judging, all threads together",
                format!("{:.1} s", judging as f64 / 1e3),
            ),
            ("kernels judged", self.story.evaluations.to_string()),
        ];
        let mut spent = Spent::default();
        for asked in self.run.lines.iter().filter_map(|line| line.event.asked()) {
            spent.add(&asked.spent);
        }
        if spent.calls == 0 {
            cost.push(("model calls", "none".to_owned()));
            return cost;
        }
        let usage = &spent.usage;
        cost.push((
            "model calls",
            format!("{}, {} of them failed", spent.calls, spent.failed),
        ));
        cost.push((
            "tokens",
            format!(
                "{} charged; billed {} in ({} cached) and {} out",
                spent.tokens, usage.input, usage.cached, usage.output
            ),
        ));
        let dollars = match spent.dollars {
            Some(dollars) => dollars.to_string(),
            None => "no price known".to_owned(),
        };
        cost.push(("dollars", dollars));
        cost
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let config = &self.run.config;
        let mut facts = vec![
            ("warptree", config.warptree.clone()),
            (
                "task",
                format!("{} ({})", config.task, config.task_digest.short()),
            ),
            ("GPU", config.gpu.clone()),
            ("device", config.device.clone()),
            ("architecture", config.arch.to_string()),
            (
                "assembler",
                config.assembler.clone().unwrap_or("none".to_owned()),
            ),
            ("seed", config.seed.to_string()),
        ];
        if let Some(model) = &config.model {
            facts.push(("model", model.name.clone()));
        }
        facts
    }

    fn baselines(&self) -> Option<String> {
        let baselines = self.run.config.baselines.as_ref()?;
        let winner = self.story.winner.as_ref();
        let time = winner.map(|winner| winner.measurement.time.nanos());
        Some(baselines_table(baselines, time))
    }
}

/// Fills a template. The script's nonce is a hash over what stands in the page: nothing in it can know it.
fn page(template: &str, facts: &str, body: minijinja::Value) -> Result<String, PageError> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    for (name, text) in TEMPLATES {
        environment.add_template(name, text)?;
    }
    let nonce = Digest::of_parts([facts.as_bytes(), body.to_string().as_bytes()]).to_string();
    let filled = environment.get_template(template)?.render(context! {
        style => format!("{}{STYLE}", palette_css()),
        script => SCRIPT,
        facts,
        nonce,
        ..body
    })?;
    Ok(filled)
}

/// JSON that cannot end the script element it stands in.
fn json(value: &impl Serialize) -> Result<String, PageError> {
    let text = serde_json::to_string(value)?;
    Ok(text.replace('<', "\\u003c"))
}
