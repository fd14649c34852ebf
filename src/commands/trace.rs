//! `trace`: a run as one file.

use anyhow::{Context as _, bail};

use super::{Exit, note};
use crate::cli::TraceArgs;
use crate::store::{StoredRun, write_trace};

pub(super) fn run(args: &TraceArgs) -> anyhow::Result<Exit> {
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
    let mut runs = args.dirs.iter().map(|dir| StoredRun::open(dir));
    let mut run = runs.next().context("no run is named")??;
    for shard in runs {
        run.merge(shard?)?;
    }
    write_trace(&run, &args.to)?;
    note(&format!(
        "{}: {} events",
        args.to.display(),
        run.lines.len()
    ));
    Ok(Exit::Success)
}
