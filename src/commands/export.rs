//! `export`: the winner's files.

use super::{Exit, answer, note};
use crate::cli::{ExportArgs, Global};
use crate::export::export;
use crate::store::StoredRun;
use crate::task::Catalogue;

pub(super) fn run(args: &ExportArgs, global: &Global) -> anyhow::Result<Exit> {
    let run = StoredRun::open(&args.dir)?;
    let folder = global.tasks.as_deref().or(run.config.tasks_dir.as_deref());
    let task = Catalogue::open(folder).and_then(|catalogue| catalogue.task(&run.config.task));
    let exported = export(&run, task.as_ref().map_err(ToString::to_string), &args.to)?;
    for missing in &exported.missing {
        note(&format!(
            "not written: {}: {}",
            missing.file, missing.reason
        ));
    }
    let text = format!(
        "{}: {}",
        exported.folder.display(),
        exported.files.join(", ")
    );
    answer(global.json, text, &exported)?;
    Ok(Exit::Success)
}
