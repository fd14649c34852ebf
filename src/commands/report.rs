//! `report`: a stored run as a page and as pictures.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use super::{Exit, answer};
use crate::cli::{Global, ReportArgs};
use crate::llm;
use crate::report::RunReport;
use crate::report::chart::{Picture, png};
use crate::store::StoredRun;

/// What was written.
#[derive(Serialize)]
struct Written {
    files: Vec<PathBuf>,
}

pub(super) fn run(args: &ReportArgs, global: &Global) -> anyhow::Result<Exit> {
    let run = StoredRun::open(&args.dir)?;
    let recording = args.dir.join("exchanges.jsonl");
    let exchanges = if recording.is_file() {
        llm::exchanges(&recording)?
    } else {
        Vec::new()
    };
    let report = RunReport::read(&run, &exchanges)
        .with_context(|| format!("cannot read the run in {}", args.dir.display()))?;
    let mut written = Written { files: Vec::new() };
    if let Some(file) = &args.html {
        written.write(file.clone(), report.page()?.as_bytes())?;
    }
    let pictures: Vec<(&str, Picture)> = std::iter::once(("tree", report.tree()))
        .chain(report.curve().map(|curve| ("curve", curve)))
        .collect();
    for (name, picture) in &pictures {
        if let Some(folder) = &args.svg {
            let file = folder.join(format!("{name}.svg"));
            written.write(file, picture.file().as_bytes())?;
        }
        if let Some(folder) = &args.png {
            written.write(folder.join(format!("{name}.png")), &png(picture)?)?;
        }
    }
    let lines: Vec<String> = written
        .files
        .iter()
        .map(|file| format!("wrote {}", file.display()))
        .collect();
    answer(global.json, lines.join("\n"), &written)?;
    Ok(Exit::Success)
}

impl Written {
    /// Writes a file, and makes its folder where that is not there yet.
    fn write(&mut self, file: PathBuf, bytes: &[u8]) -> anyhow::Result<()> {
        let folder = file.parent().unwrap_or(Path::new(""));
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&file, bytes))
            .with_context(|| format!("cannot write {}", file.display()))?;
        self.files.push(file);
        Ok(())
    }
}
