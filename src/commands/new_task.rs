//! `new-task`: a task folder made from a PTX file.

use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;

use super::{Exit, answer, text_of};
use crate::cli::{Global, NewTaskArgs};
use crate::task::scaffold::new_task;

#[derive(Serialize)]
struct Made {
    folder: std::path::PathBuf,
    next: Vec<String>,
}

pub(super) fn run(args: &NewTaskArgs, global: &Global) -> anyhow::Result<Exit> {
    let bytes = std::fs::read(&args.from)
        .with_context(|| format!("cannot read {}", args.from.display()))?;
    let text = text_of(bytes, &args.from)?;
    let stem = args
        .from
        .file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or_default();
    let name = match &args.name {
        Some(name) => name.clone(),
        None => stem.replace(['-', '.', ' '], "_"),
    };
    let scaffold = new_task(&name, &text, &args.from)?;
    let tasks = global
        .tasks
        .clone()
        .unwrap_or_else(|| Path::new("tasks").to_owned());
    let folder = scaffold.write(&tasks)?;
    let next = scaffold.next(&tasks);
    let mut out = format!("made {}\nnext:\n", folder.display());
    for step in &next {
        out.push_str(&format!("  - {step}\n"));
    }
    answer(global.json, out, &Made { folder, next })?;
    Ok(Exit::Success)
}
