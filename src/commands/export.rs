//! `export`: the winner's files.

use super::{Exit, answer, judge, note};
use crate::cli::{ExportArgs, Global};
use crate::evaluate::ptxas::Assembler;
use crate::export::export;
use crate::store::StoredRun;
use crate::task::Catalogue;
use crate::units::SmArch;

pub(super) fn run(args: &ExportArgs, global: &Global) -> anyhow::Result<Exit> {
    let run = StoredRun::open(&args.dir)?;
    let folder = global.tasks.as_deref().or(run.config.tasks_dir.as_deref());
    let task = Catalogue::open(folder).and_then(|catalogue| catalogue.task(&run.config.task));
    let assemble = |ptx: &str, arch: SmArch| -> Result<Vec<u8>, String> {
        let ptxas = judge::find_ptxas(global).map_err(|error| format!("{error:#}"))?;
        let assembled = Assembler::new(ptxas).assemble(ptx, arch, &[]);
        let cubin = assembled
            .map_err(|error| error.to_string())?
            .into_cubin(Some)
            .map_err(|verdict| verdict.reason().unwrap_or_default().to_owned())?;
        Ok(cubin.bytes.to_vec())
    };
    let task = task.as_ref().map_err(ToString::to_string);
    let exported = export(&run, task, &assemble, &args.to)?;
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
