//! `report`: a stored run as a page and as pictures; several runs as one curve.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::Serialize;

use super::{Exit, answer};
use crate::cli::{Global, ReportArgs};
use crate::llm;
use crate::report::chart::{Picture, png};
use crate::report::{RunReport, best_so_far};
use crate::store::StoredRun;

/// What was written.
#[derive(Default, Serialize)]
struct Written {
    files: Vec<PathBuf>,
}

pub(super) fn run(args: &ReportArgs, global: &Global) -> anyhow::Result<Exit> {
    let mut written = Written::default();
    let as_png = args.curve.as_deref().map(is_png).transpose()?;
    let of_one = args.html.is_some() || args.svg.is_some() || args.png.is_some();
    match &args.runs[..] {
        [run] if of_one => written.report(run, args)?,
        [_, _, ..] if of_one => bail!(
            "--html, --svg and --png tell of one run, and {} are named: name one, or draw all of them with --curve FILE",
            args.runs.len()
        ),
        [..] => {}
    }
    if let (Some(file), Some(as_png)) = (&args.curve, as_png) {
        let runs = args
            .runs
            .iter()
            .map(|run| StoredRun::open(run))
            .collect::<Result<Vec<_>, _>>()?;
        let picture = best_so_far(&runs)?;
        match as_png {
            true => written.write(file.clone(), &png(&picture)?)?,
            false => written.write(file.clone(), picture.file().as_bytes())?,
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

/// Whether a picture is to be a PNG, by its name; else it is an SVG.
fn is_png(file: &Path) -> anyhow::Result<bool> {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("png") => Ok(true),
        Some("svg") => Ok(false),
        Some(_) | None => bail!(
            "--curve {}: a picture's name ends in .svg or .png",
            file.display()
        ),
    }
}

impl Written {
    /// One run's page and pictures.
    fn report(&mut self, dir: &Path, args: &ReportArgs) -> anyhow::Result<()> {
        let run = StoredRun::open(dir)?;
        let recording = dir.join(llm::RECORDING);
        let exchanges = if recording.is_file() {
            llm::exchanges(&recording)?
        } else {
            Vec::new()
        };
        let report = RunReport::read(&run, &exchanges)
            .with_context(|| format!("cannot read the run in {}", dir.display()))?;
        if let Some(file) = &args.html {
            self.write(file.clone(), report.page()?.as_bytes())?;
        }
        let pictures: Vec<(&str, Picture)> = std::iter::once(("tree", report.tree()))
            .chain(report.curve().map(|curve| ("curve", curve)))
            .collect();
        for (name, picture) in &pictures {
            if let Some(folder) = &args.svg {
                let file = folder.join(format!("{name}.svg"));
                self.write(file, picture.file().as_bytes())?;
            }
            if let Some(folder) = &args.png {
                self.write(folder.join(format!("{name}.png")), &png(picture)?)?;
            }
        }
        Ok(())
    }

    /// Writes a file, and remembers that.
    fn write(&mut self, file: PathBuf, bytes: &[u8]) -> anyhow::Result<()> {
        super::write(&file, bytes)?;
        self.files.push(file);
        Ok(())
    }
}
