//! The pictures of a run, from its stored events: the best so far, the roofline, stalls, the graph.

use std::collections::HashMap;

use serde::Serialize;

use super::graph::{Graph, Look};
use crate::device::Gpu;
use crate::report::chart::{
    Axis, Bar, Format, Line, Mark, Picture, Plot, Rule, Scale, Stroke, TreePicture, Twig, bars,
};
use crate::report::story::Story;
use crate::search::NodeId;
use crate::store::{Event, RunGraph, StoredRun};
use crate::units::{Nanos, counted};
use crate::verdict::Diagnosis;

/// Stall reasons shown: the largest of the two kernels.
const STALLS: usize = 8;

/// A kernel that was profiled: by a GPU's counters, or by the simulator.
pub(super) struct Profiled<'a> {
    label: String,
    time: Nanos,
    diagnosis: &'a Diagnosis,
    role: Role,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Seed,
    Winner,
    Other,
}

impl<'a> Profiled<'a> {
    /// All of a run. The seed's is that of its first valid kernel.
    pub(super) fn all(run: &'a StoredRun, graph: &RunGraph, story: &Story) -> Vec<Self> {
        let mut seed_seen = false;
        let mut all: Vec<Self> = Vec::new();
        for line in &run.lines {
            let (Event::Evaluated {
                node,
                setting,
                evaluation,
                ..
            }
            | Event::Confirmed {
                node,
                setting,
                evaluation,
                ..
            }) = &line.event
            else {
                continue;
            };
            let Some(measurement) = evaluation.verdict.measurement() else {
                continue;
            };
            let Some(diagnosis) = &measurement.diagnosis else {
                continue;
            };
            let label = graph.node(*node).map_or("", |node| &*node.label);
            let wins = story
                .winner
                .as_ref()
                .is_some_and(|winner| winner.node == *node && winner.setting == *setting);
            let role = if wins {
                all.retain(|other| other.role != Role::Winner);
                Role::Winner
            } else if label == "seed" && !seed_seen {
                Role::Seed
            } else {
                Role::Other
            };
            seed_seen |= label == "seed";
            all.push(Self {
                label: label.to_owned(),
                time: measurement.time.nanos(),
                diagnosis,
                role,
            });
        }
        all
    }

    fn flops(&self) -> f64 {
        self.diagnosis.flops.iter().map(|(_, flops)| flops.0).sum()
    }

    fn bytes(&self) -> Option<f64> {
        self.diagnosis
            .dram
            .map(|bytes| bytes.0 as f64)
            .filter(|bytes| *bytes > 0.0)
    }

    fn name(&self) -> String {
        match self.role {
            Role::Seed => "seed".to_owned(),
            Role::Winner => format!("winner ({})", self.label),
            Role::Other => self.label.clone(),
        }
    }
}

/// Valid kernels' times and the best so far, kernel by kernel; `None` where none was valid.
pub(super) fn curve(run: &StoredRun) -> Option<Picture> {
    let mut marks = Vec::new();
    let mut best: Vec<(f64, f64)> = Vec::new();
    let mut number = 0;
    let mut label = "";
    for line in &run.lines {
        let Event::Evaluated {
            evaluation,
            best: leads,
            ..
        } = &line.event
        else {
            continue;
        };
        number += 1;
        let Some(measurement) = evaluation.verdict.measurement() else {
            continue;
        };
        label = measurement.time.label();
        let time = measurement.time.nanos();
        if *leads {
            if let Some((_, before)) = best.last().copied() {
                best.push((f64::from(number), before));
            }
            best.push((f64::from(number), time.get()));
        }
        marks.push(Mark {
            at: (f64::from(number), time.get()),
            class: if *leads { "good" } else { "good faint" },
            radius: if *leads { 3.5 } else { 2.0 },
            label: String::new(),
            tip: format!("kernel {number}: {time}"),
        });
    }
    let (_, last) = *best.last()?;
    best.push((f64::from(number), last));
    // far worse kernels would flatten the curve: they are drawn at its upper edge
    let led = best.iter().map(|(_, time)| *time).fold(0.0, f64::max);
    let baseline = run.config.baseline.as_ref();
    let shown = marks
        .iter()
        .map(|mark| mark.at.1)
        .filter(|time| *time <= led * 1.5)
        .chain(baseline.map(|baseline| baseline.time.get()))
        .chain([led]);
    let y = Axis::covering(&format!("time of a call, {label}"), Format::Time, shown)?;
    let plot = Plot {
        title: format!("Best time so far, {}", run.config.task),
        description: format!(
            "From {} to {} over {number} judged kernels, times {label}",
            Nanos::new(best[0].1)?,
            Nanos::new(last)?
        ),
        x: Axis::counting("kernels judged", number as usize),
        y,
        lines: vec![Line {
            name: String::new(),
            stroke: Stroke::Series(0),
            points: best,
            band: Vec::new(),
        }],
        marks,
        rules: baseline
            .map(|baseline| Rule {
                at: baseline.time.get(),
                label: format!("{}, {}", baseline.name, baseline.time),
            })
            .into_iter()
            .collect(),
    };
    Some(plot.draw())
}

/// A row of the roofline's table.
#[derive(Serialize)]
pub(super) struct Position {
    name: String,
    time: String,
    bandwidth: String,
    compute: String,
    limit: String,
}

/// Where seed, winner and others stand under the GPU's peaks.
pub(super) fn positions(profiled: &[Profiled<'_>], gpu: Option<&Gpu>) -> Vec<Position> {
    let of_peak = |rate: f64, peak: Option<f64>| {
        peak.map_or(String::new(), |peak| {
            format!(", {:.0} % of peak", rate / peak * 100.0)
        })
    };
    profiled
        .iter()
        .filter(|one| one.role != Role::Other)
        .map(|one| {
            let seconds = one.time.seconds();
            let flops = one.flops() / seconds;
            Position {
                name: one.name(),
                time: one.time.to_string(),
                bandwidth: one.bytes().map_or("not counted".to_owned(), |bytes| {
                    let rate = bytes / seconds;
                    let peak = of_peak(rate, gpu.map(|gpu| gpu.memory_bandwidth));
                    format!("{:.0} GB/s{peak}", rate / 1e9)
                }),
                compute: if flops > 0.0 {
                    let peak = of_peak(flops, gpu.map(|gpu| peak(gpu, one.uses_tensor())));
                    format!("{:.2} TFLOP/s{peak}", flops / 1e12)
                } else {
                    "none counted".to_owned()
                },
                limit: one.diagnosis.bottleneck.to_string(),
            }
        })
        .collect()
}

impl Profiled<'_> {
    fn uses_tensor(&self) -> bool {
        self.diagnosis
            .flops
            .iter()
            .any(|(unit, flops)| unit.starts_with("tensor") && flops.0 > 0.0)
    }
}

/// Peak FLOP/s of the fp32 units or of the tensor cores.
fn peak(gpu: &Gpu, tensor: bool) -> f64 {
    let per_cycle = if tensor {
        f64::from(gpu.tensor_bf16_flops_per_cycle)
    } else {
        2.0 * f64::from(gpu.fp32_fma_per_cycle)
    };
    f64::from(gpu.sm_count) * gpu.sm_clock_mhz * 1e6 * per_cycle
}

/// The roofline with profiled kernels under it; `None` where the GPU is unknown or nothing was counted.
pub(super) fn roofline(profiled: &[Profiled<'_>], gpu: Option<&Gpu>) -> Option<Picture> {
    let gpu = gpu?;
    let points: Vec<(&Profiled<'_>, f64, f64)> = profiled
        .iter()
        .filter_map(|one| {
            let flops = one.flops();
            let intensity = flops / one.bytes()?;
            (flops > 0.0).then(|| (one, intensity, flops / one.time.seconds()))
        })
        .collect();
    if points.is_empty() {
        return None;
    }
    let tensor = points.iter().any(|(one, _, _)| one.uses_tensor());
    let mut ceilings = vec![("fp32", peak(gpu, false))];
    if tensor {
        ceilings.push(("tensor bf16", peak(gpu, true)));
    }
    let top = ceilings.iter().map(|(_, peak)| *peak).fold(0.0, f64::max);
    let ridge = top / gpu.memory_bandwidth;
    let intensities = points.iter().map(|(_, x, _)| *x);
    let low = intensities.clone().fold(ridge, f64::min) / 4.0;
    let high = intensities.fold(ridge, f64::max) * 4.0;
    let least = points.iter().map(|(_, _, y)| *y).fold(top, f64::min);
    let log = |label: &str, low: f64, high: f64| Axis {
        label: label.to_owned(),
        low,
        high,
        scale: Scale::Log,
        format: Format::Number,
    };
    let tera = 1e12;
    let lines = ceilings
        .iter()
        .map(|(_, peak)| {
            let ridge = peak / gpu.memory_bandwidth;
            let slope = |x: f64| (x, x * gpu.memory_bandwidth / tera);
            Line {
                name: String::new(),
                stroke: Stroke::Roof,
                points: vec![slope(low), slope(ridge), (high, peak / tera)],
                band: Vec::new(),
            }
        })
        .collect();
    let marks = points
        .iter()
        .map(|(one, x, y)| {
            let (class, radius, label) = match one.role {
                Role::Seed => ("empty", 5.0, "seed"),
                Role::Winner => ("best", 6.0, "winner"),
                Role::Other => ("good faint", 3.0, ""),
            };
            Mark {
                at: (*x, y / tera),
                class,
                radius,
                label: label.to_owned(),
                tip: format!(
                    "{}: {x:.2} FLOP/byte, {:.3} TFLOP/s, {}",
                    one.name(),
                    y / tera,
                    one.time
                ),
            }
        })
        .collect();
    let plot = Plot {
        title: format!("Roofline of {}", gpu.name),
        description: format!(
            "{} profiled kernels under {:.2} TB/s and {:.0} TFLOP/s, theoretical peaks",
            points.len(),
            gpu.memory_bandwidth / 1e12,
            top / tera
        ),
        x: log("FLOP per byte of device memory", low, high),
        y: log(
            "TFLOP/s",
            least.min(low * gpu.memory_bandwidth) / tera / 2.0,
            top / tera * 2.0,
        ),
        lines,
        marks,
        rules: ceilings
            .iter()
            .map(|(name, peak)| Rule {
                at: peak / tera,
                label: format!("{name}, {:.0} TFLOP/s", peak / tera),
            })
            .collect(),
    };
    Some(plot.draw())
}

/// Shares of warp latency, seed against winner; the winner alone where the seed was not profiled.
pub(super) fn stalls(profiled: &[Profiled<'_>]) -> Option<Picture> {
    let has_stalls = |role: Role| {
        profiled
            .iter()
            .find(|one| one.role == role && !one.diagnosis.stalls.is_empty())
    };
    let winner = has_stalls(Role::Winner)?;
    let seed = has_stalls(Role::Seed);
    let kernels: Vec<&Profiled<'_>> = seed.into_iter().chain([winner]).collect();
    let mut most: HashMap<&str, f64> = HashMap::new();
    for stall in kernels.iter().flat_map(|one| &one.diagnosis.stalls) {
        let entry = most.entry(&stall.reason).or_default();
        *entry = entry.max(stall.share);
    }
    let mut reasons: Vec<(&str, f64)> = most.into_iter().collect();
    reasons.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    let rows: Vec<Bar> = reasons
        .into_iter()
        .take(STALLS)
        .map(|(reason, _)| Bar {
            name: reason.replace('_', " "),
            shares: kernels
                .iter()
                .map(|one| {
                    let stalls = &one.diagnosis.stalls;
                    let known = stalls.iter().find(|stall| stall.reason == reason);
                    Some(known.map_or(0.0, |stall| stall.share))
                })
                .collect(),
        })
        .collect();
    let names: &[&str] = match seed {
        Some(_) => &["seed", "winner"],
        None => &["winner (the seed was not profiled)"],
    };
    Some(bars(
        "Stalls",
        &format!("Shares of warp latency, by {}", winner.diagnosis.source),
        names,
        &rows,
    ))
}

/// The graph: the task, its sources, their edits.
pub(super) fn tree(run: &StoredRun, graph: &Graph) -> Picture {
    let mut places: HashMap<NodeId, usize> = HashMap::new();
    let mut twigs = vec![Twig {
        parent: None,
        label: run.config.task.clone(),
        class: Look::Empty.class(),
        way: false,
        tip: String::new(),
    }];
    for source in &graph.sources {
        let parent = source.parents.first().and_then(|id| places.get(id));
        let parent = parent.copied().unwrap_or(0);
        places.insert(source.node, twigs.len());
        let time = source.best.as_deref().unwrap_or("none valid");
        twigs.push(Twig {
            parent: Some(parent),
            label: source.label.clone(),
            class: source.look.class(),
            way: source.way,
            tip: format!(
                "{}: {time}, {} of {} valid",
                source.label, source.valid, source.judged
            ),
        });
    }
    TreePicture {
        title: &format!("Search graph of {}", run.config.task),
        description: &counted(graph.sources.len(), "source"),
        twigs: &twigs,
    }
    .draw()
}
