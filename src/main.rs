//! Parse, call, exit code.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = warptree::cli::Cli::parse();
    warptree::commands::run(cli)
}
