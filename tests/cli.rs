//! The program as its users meet it: exit codes, errors that point at their cause, and runs that survive
//! SIGKILL.

#[path = "cli/batch.rs"]
mod batch;
#[path = "cli/bench.rs"]
mod bench;
#[path = "cli/bench_model.rs"]
mod bench_model;
#[path = "cli/check.rs"]
mod check;
#[path = "cli/check_gpu.rs"]
mod check_gpu;
#[path = "cli/circle.rs"]
mod circle;
#[path = "cli/compare.rs"]
mod compare;
#[path = "cli/errors.rs"]
mod errors;
#[path = "cli/kill.rs"]
mod kill;
#[path = "cli/kill_model.rs"]
mod kill_model;
#[path = "cli/prior.rs"]
mod prior;
#[path = "cli/replay.rs"]
mod replay;
#[path = "cli/report.rs"]
mod report;
#[path = "cli/results_table.rs"]
mod results_table;
#[path = "cli/resume.rs"]
mod resume;
#[path = "cli/start_from.rs"]
mod start_from;
#[path = "cli/twins.rs"]
mod twins;

use std::path::Path;
use std::process::Command;

/// The program, with a home of its own so that nothing of the developer's leaks in.
fn warptree(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warptree"));
    command.current_dir(folder);
    command
}
