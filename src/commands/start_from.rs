//! `--start-from`: what earlier runs judged, handed to the sources of a new search: the best settings to try
//! first, and the ranks of all to learn from.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;

use crate::search::{Earlier, NodeId, SearchParams, Value};
use crate::source::{Point, Setting, Source, Space};
use crate::store::{RootConfig, RunConfig, RunGraph, StoredRun};
use crate::units::Digest;

/// A setting that a run judged, of which node, and what came of it.
type Judged<'r> = (NodeId, &'r Setting, Value);

/// Gives every source what it can take over from each of the runs. Returns the texts that the configuration
/// names now, for the object store.
pub(super) fn start_from(
    runs: &[PathBuf],
    config: &mut RunConfig,
    sources: &[(String, Arc<str>)],
) -> anyhow::Result<Vec<String>> {
    let sources: Vec<Source> = sources
        .iter()
        .map(|(_, text)| Source::parse(text))
        .collect::<Result<_, _>>()?;
    let mut texts = Vec::new();
    for path in runs {
        let run = StoredRun::open(path)?;
        let graph = RunGraph::read(&run)?;
        let judged = run.lines.iter().filter_map(|line| {
            let (node, setting, evaluation) = line.event.evaluated()?;
            Some((node, setting, Value::from(&evaluation.verdict)))
        });
        let mut judged: Vec<Judged<'_>> = judged.collect();
        judged.sort_by_key(|&(_, _, value)| value);
        let valid = judged
            .iter()
            .filter(|(_, _, value)| *value != Value::Failed);
        let mut given = false;
        for (root, source) in config.roots.iter_mut().zip(&sources) {
            let best = valid.clone().map(|&(_, setting, _)| setting);
            given |= carry(best, &config.search, root, source.space());
            if let Some(earlier) = earlier(&judged, &graph, &config.search, root, source.space()) {
                let text = serde_json::to_string(&earlier)?;
                root.earlier.push(Digest::of(text.as_bytes()));
                texts.push(text);
                given = true;
            }
        }
        if !given {
            bail!(
                "--start-from {}: none of its {} valid kernels has a knob value that a source of {} could take over",
                path.display(),
                valid.count(),
                config.task
            );
        }
    }
    Ok(texts)
}

/// Adds the best settings that a source can take over to those it tries first; whether there are any.
fn carry<'r>(
    best: impl Iterator<Item = &'r Setting>,
    params: &SearchParams,
    root: &mut RootConfig,
    space: &Space,
) -> bool {
    // What carries nothing over is the default again.
    let mut known: Vec<Point> = space.default_point().into_iter().collect();
    let before = root
        .settings
        .iter()
        .filter_map(|setting| space.point(setting).ok());
    known.extend(before);
    let fresh = best
        .filter_map(|setting| space.adopt(setting))
        .filter(|point| {
            let new = !known.contains(point);
            known.extend(new.then(|| point.clone()));
            new
        });
    let settings: Vec<Setting> = fresh
        .take(params.carried as usize)
        .map(|point| space.setting(&point))
        .collect();
    let any = !settings.is_empty();
    root.settings.extend(settings);
    any
}

/// What a run judged of this source, or else of the one of its sources with most to say about these knobs.
fn earlier(
    judged: &[Judged<'_>],
    graph: &RunGraph,
    params: &SearchParams,
    root: &RootConfig,
    space: &Space,
) -> Option<Earlier> {
    let about = |id: NodeId| {
        let of = judged.iter().filter(move |(node, _, _)| *node == id);
        of.filter(|(_, setting, _)| space.project(setting).is_some())
    };
    let nodes = graph.nodes().max_by_key(|(id, node)| {
        let same = (node.digest == root.source, node.label == root.label);
        let own = node.source.space().knobs();
        let shared = own.iter().filter(|own| {
            let named = |knob: &&crate::source::Knob| knob.name == own.name;
            own.values.len() > 1 && space.knobs().iter().any(|knob| named(&knob))
        });
        (same, shared.count(), about(*id).count())
    });
    let (id, _) = nodes?;
    let known = about(id).map(|(_, setting, value)| ((*setting).clone(), *value));
    let earlier = Earlier::new(known, params.tuner.earlier_limit as usize);
    (earlier.len() > 1).then_some(earlier)
}
