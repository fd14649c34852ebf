//! The best-looking kernels timed again at a search's end, as its story tells them. It decides nothing.

use std::fmt::Write as _;

use serde::Serialize;

use super::story::setting_line;
use crate::search::{NodeId, median};
use crate::source::Setting;
use crate::store::{Retimed, RunGraph};
use crate::units::{Nanos, counted};

/// A kernel that was timed again.
#[derive(Clone, Debug, Serialize)]
pub struct RetimedLine {
    /// Its node.
    pub node: NodeId,
    /// Of which source.
    pub label: String,
    /// With which setting.
    pub setting: Setting,
    /// The median of its times; absent where it failed.
    pub time: Option<Nanos>,
    /// All of them.
    pub times: Vec<Nanos>,
    /// At full load.
    pub full_load: bool,
    /// In words why it could not be timed again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl RetimedLine {
    pub(super) fn new(kernel: &Retimed, graph: &RunGraph) -> Self {
        let label = graph.node(kernel.node).map_or("", |node| &node.label);
        Self {
            node: kernel.node,
            label: label.to_owned(),
            setting: kernel.setting.clone(),
            time: kernel.time(),
            times: kernel.times.clone(),
            full_load: kernel.full_load,
            failed: kernel.failed.clone(),
        }
    }
}

/// `  1.024 ms  3 times within 0.31 %  space tiled: BLOCK=64`, a line each.
pub(super) fn table(lines: &[RetimedLine]) -> String {
    let mut text = String::new();
    for line in lines {
        let time = line
            .time
            .map_or("failed".to_owned(), |time| time.to_string());
        let how = match &line.failed {
            Some(reason) => reason.clone(),
            None => format!(
                "{} within {:.2} %",
                counted(line.times.len(), "time"),
                100.0 * spread(&line.times)
            ),
        };
        let setting = setting_line(&line.setting);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {time:>11}  {how}  {}: {setting}", line.label);
    }
    text
}

/// How hard the GPU worked meanwhile, where that differs from the search.
pub(super) fn at_load(full: bool) -> &'static str {
    if full { " at full load" } else { "" }
}

/// In one line what came of it, as it is reported; `label` names the source of the best.
pub(super) fn told(kernels: &[Retimed], label: &str) -> String {
    let most = kernels.iter().map(|kernel| kernel.times.len()).max();
    let led = match Retimed::leader(kernels).and_then(|leader| Some((leader, leader.time()?))) {
        Some((leader, time)) => format!("{time}  {label}: {}", setting_line(&leader.setting)),
        None => "all failed".to_owned(),
    };
    let (count, most) = (kernels.len(), most.unwrap_or(0));
    let load = at_load(kernels.iter().any(|kernel| kernel.full_load));
    format!(
        "{count} best-looking timed again{load}, up to {} each, {led}",
        counted(most, "time")
    )
}

/// The largest less the least, as a fraction of the median.
fn spread(times: &[Nanos]) -> f64 {
    let range = times
        .iter()
        .map(|time| time.get())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), time| {
            (low.min(time), high.max(time))
        });
    median(times).map_or(0.0, |median| (range.1 - range.0) / median.get())
}
