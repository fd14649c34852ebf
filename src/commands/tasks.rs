//! `tasks`: what there is to search for.

use serde::Serialize;

use super::{Exit, answer};
use crate::cli::Global;
use crate::evaluate::audit::allowed_tensor_types;
use crate::task::{Catalogue, Level, Purpose};

#[derive(Serialize)]
struct Listed {
    name: String,
    level: Level,
    title: String,
    bench: Option<String>,
    spaces: Vec<String>,
    /// Tensor-core types that its kernels may use; without any, fp32 operations bound them.
    tensor_types: Vec<&'static str>,
}

pub(super) fn run(global: &Global) -> anyhow::Result<Exit> {
    let catalogue = Catalogue::open(global.tasks.as_deref())?;
    let mut listed = Vec::new();
    for name in catalogue.names()? {
        let task = catalogue.task(&name)?;
        let bench = task
            .sizes_for(Purpose::Bench)
            .next()
            .map(ToString::to_string);
        listed.push(Listed {
            bench,
            spaces: task.spaces.iter().map(|space| space.name.clone()).collect(),
            tensor_types: allowed_tensor_types(&task),
            level: task.level,
            title: task.title,
            name,
        });
    }
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["task", "level", "spaces", "timed at", "what"]);
    for task in &listed {
        table.add_row([
            task.name.clone(),
            format!("{:?}", task.level),
            task.spaces.join(", "),
            task.bench.clone().unwrap_or_default(),
            task.title.clone(),
        ]);
    }
    answer(global.json, table, &listed)?;
    Ok(Exit::Success)
}
