//! `completions`: a shell's completion script.

use std::io;

use clap::CommandFactory;
use clap_complete::Shell;

use super::Exit;
use crate::cli::Cli;

pub(super) fn run(shell: Shell) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "warptree", &mut script);
    io::Write::write_all(&mut io::stdout(), &script)?;
    Ok(Exit::Success)
}
