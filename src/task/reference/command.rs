//! An external reference: a command run in a scratch folder of its own, so that any operation can be a task
//! without a line of Rust. The only file of this room that runs a process.
//!
//! The folder holds the task's own files, `<input>.npy` for every input (bfloat16 widened to float32), and
//! `sizes.json` with every dimension and scalar by name. The command writes `<output>.npy` for every output:
//! float64, computed from the inputs as they are, or the output's own type where it is compared bit for bit.
//! Where the tolerance is that of a sum (`dot`), it also writes `<output>.scale.npy`: √Σ a²b² per element.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{Elements, Expected, Values, npy};
use crate::expr::Value;
use crate::task::element::encode;
use crate::task::{Buffer, Problem, Tolerance};
use crate::toolchain::process::{self, Limits};

/// Runs the command on the problem's inputs and reads what it wrote.
pub(super) fn expected(
    command: &[String],
    problem: &Problem,
    limit: Duration,
) -> Result<Vec<Expected>, String> {
    let scratch = tempfile::Builder::new()
        .prefix("warptree-reference-")
        .tempdir()
        .map_err(|error| format!("cannot make a scratch folder: {error}"))?;
    let folder = scratch.path();
    for (name, bytes) in &problem.task.files {
        write(&folder.join(name), bytes)?;
    }
    for input in problem.inputs() {
        let bytes = problem
            .input_bytes(&input.name)
            .ok_or_else(|| format!("input {} exceeds this machine's memory", input.name))?;
        let file = npy::write(input.dtype, &input.shape, &bytes);
        write(&folder.join(format!("{}.npy", input.name)), &file)?;
    }
    write(&folder.join("sizes.json"), sizes(problem).as_bytes())?;
    run(command, folder, limit)?;
    problem
        .outputs()
        .map(|output| read_output(problem, output, folder))
        .collect()
}

fn sizes(problem: &Problem) -> String {
    let sizes: serde_json::Map<String, serde_json::Value> = problem
        .names()
        .into_iter()
        .map(|(name, value)| {
            let value = match value {
                Value::Int(value) => value.into(),
                Value::Float(value) => value.into(),
                Value::Text(text) => text.to_string().into(),
            };
            (name, value)
        })
        .collect();
    serde_json::Value::Object(sizes).to_string()
}

fn run(command: &[String], folder: &Path, limit: Duration) -> Result<(), String> {
    let (program, arguments) = command.split_first().ok_or("the command is empty")?;
    let shown = command.join(" ");
    let limits = Limits {
        time: limit,
        output: 1 << 20,
    };
    let finished = process::run(
        Command::new(program).args(arguments).current_dir(folder),
        limits,
    )
    .map_err(|error| format!("cannot run `{shown}`: {error}; is {program} installed?"))?;
    if finished.ending.success() {
        return Ok(());
    }
    let lines: Vec<&str> = finished.stderr.trim().lines().collect();
    let said = lines[lines.len().saturating_sub(20)..].join("\n");
    Err(if said.is_empty() {
        format!("`{shown}` {}; it said nothing on stderr", finished.ending)
    } else {
        format!("`{shown}` {}; it said:\n{said}", finished.ending)
    })
}

fn read_output(problem: &Problem, output: &Buffer, folder: &Path) -> Result<Expected, String> {
    let array = read_array(folder, &format!("{}.npy", output.name), output)?;
    let values = match problem.task.tolerances.get(&output.name) {
        Some(Tolerance::Exact) | None if array.dtype == output.dtype => Values::Bits(array.data),
        Some(Tolerance::Exact) | None => {
            let mut bits = Vec::new();
            for value in array.values() {
                encode(output.dtype, value, &mut bits);
            }
            Values::Bits(bits)
        }
        Some(Tolerance::Dot { .. }) => Values::Reals {
            y: array.values(),
            scale: read_array(folder, &format!("{}.scale.npy", output.name), output)?.values(),
        },
        Some(Tolerance::Pointwise { .. } | Tolerance::Norm { .. }) => {
            let y = array.values();
            let scale = y.iter().map(|y| y.abs()).collect();
            Values::Reals { y, scale }
        }
    };
    Ok(Expected {
        output: output.name.clone(),
        elements: Elements::All,
        values,
    })
}

fn read_array(folder: &Path, name: &str, output: &Buffer) -> Result<npy::Array, String> {
    let bytes = fs::read(folder.join(name))
        .map_err(|error| format!("the reference wrote no {name} ({error})"))?;
    let array = npy::read(&bytes).map_err(|error| format!("{name}: {error}"))?;
    if array.shape != output.shape {
        return Err(format!(
            "{name} has shape {:?}, the task says {:?}",
            array.shape, output.shape
        ));
    }
    Ok(array)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    fs::write(path, bytes).map_err(|error| format!("cannot write {}: {error}", path.display()))
}
