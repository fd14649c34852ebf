//! `trace`: a run as one file.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde::Serialize;

use super::{Exit, answer};
use crate::cli::{Global, TraceArgs};
use crate::store::{StoredRun, write_trace};

/// What was written.
#[derive(Serialize)]
struct Written<'a> {
    file: &'a Path,
    events: usize,
}

pub(super) fn run(args: &TraceArgs, global: &Global) -> anyhow::Result<Exit> {
    let name = args
        .to
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    if !name.ends_with(".jsonl.gz") {
        bail!(
            "--to {}: a trace's name ends in .jsonl.gz",
            args.to.display()
        );
    }
    let mut named = HashSet::new();
    for dir in &args.dirs {
        if !named.insert(dir.canonicalize().unwrap_or_else(|_| dir.clone())) {
            bail!("{} is named twice: name each part once", dir.display());
        }
    }
    let mut runs = args.dirs.iter().map(|dir| StoredRun::open(dir));
    let mut run = runs.next().context("no run is named")??;
    for shard in runs {
        run.merge(shard?)?;
    }
    write_trace(&run, &args.to)?;
    let written = Written {
        file: &args.to,
        events: run.lines.len(),
    };
    let text = format!("{}: {} events", args.to.display(), written.events);
    answer(global.json, text, &written)?;
    Ok(Exit::Success)
}
