//! `trace`: a run as one file.

use anyhow::bail;

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
    let run = StoredRun::open(&args.dir)?;
    write_trace(&run, &args.to)?;
    note(&format!(
        "{}: {} events",
        args.to.display(),
        run.lines.len()
    ));
    Ok(Exit::Success)
}
