//! `export`: the winner's files.

use super::{Exit, answer};
use crate::cli::{ExportArgs, Global};
use crate::export::export;
use crate::store::StoredRun;

pub(super) fn run(args: &ExportArgs, global: &Global) -> anyhow::Result<Exit> {
    let run = StoredRun::open(&args.dir)?;
    let exported = export(&run, &args.to)?;
    let text = format!(
        "{}: {}",
        exported.folder.display(),
        exported.files.join(", ")
    );
    answer(global.json, text, &exported)?;
    Ok(Exit::Success)
}
