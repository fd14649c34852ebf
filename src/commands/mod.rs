//! One file a command; wiring only. Errors end here: on standard error, in words, with an exit code.

mod baselines;
mod batch;
mod bench;
mod bench_model;
mod check;
mod compare;
mod completions;
mod doctor;
mod eval;
mod export;
mod judge;
mod new_task;
mod replay;
mod report;
mod resume;
mod search;
mod selftest;
mod session;
mod show;
mod start_from;
mod tasks;
mod trace;

use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use serde::Serialize;

use crate::cli::{Cli, Command, WorkerArgs};
use crate::device::cuda;
use crate::files;

/// What a command that found its answer exits with; errors exit with 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    /// 0.
    Success,
    /// 1: the question was answered with "no": an incorrect kernel, a search without a winner.
    No,
    /// 130: stopped by Ctrl-C; what was found is kept.
    Interrupted,
}

/// Runs a command.
pub fn run(cli: Cli) -> ExitCode {
    let Cli { command, global } = cli;
    let result = match command {
        Command::Search(args) => search::run(args, &global),
        Command::Resume(args) => resume::run(&args, &global),
        Command::Eval(args) => eval::run(&args, &global),
        Command::Baselines(args) => baselines::run(&args, &global),
        Command::Batch(args) => batch::run(&args, &global),
        Command::Bench(args) => bench::run(&args, &global),
        Command::Show(args) => show::run(&args, &global),
        Command::Report(args) => report::run(&args, &global),
        Command::Replay(args) => replay::run(&args, &global),
        Command::Compare(args) => compare::run(&args, &global),
        Command::Export(args) => export::run(&args, &global),
        Command::Check(args) => check::run(&args, &global),
        Command::Trace(args) => trace::run(&args, &global),
        Command::Tasks => tasks::run(&global),
        Command::NewTask(args) => new_task::run(&args, &global),
        Command::Doctor => doctor::run(&global),
        Command::Selftest(args) => selftest::run(&args, &global),
        Command::Completions { shell } => completions::run(shell),
        Command::Worker(args) => return worker(&args),
        Command::ReplayCalls(args) => return cuda::replay::main(&args.file, &args.report),
    };
    match result {
        Ok(Exit::Success) => ExitCode::SUCCESS,
        Ok(Exit::No) => ExitCode::from(1),
        Ok(Exit::Interrupted) => ExitCode::from(130),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {}", told(&error));
            ExitCode::from(2)
        }
    }
}

/// The worker speaks to its parent, not to a person: its exit code is its own.
fn worker(args: &WorkerArgs) -> ExitCode {
    if !args.selftest {
        return cuda::worker::main();
    }
    let tried = cuda::WorkerCommand::current()
        .map_err(anyhow::Error::from)
        .and_then(|command| Ok(cuda::selftest(&mut io::stdout(), args.device, &command)?));
    match tried {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            note(&format!("error: {}", told(&error)));
            ExitCode::from(2)
        }
    }
}

/// Prints an answer: text for people, JSON where asked.
fn answer(json: bool, text: impl std::fmt::Display, value: &impl Serialize) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, value)?;
        writeln!(out)?;
    } else {
        let text = text.to_string();
        out.write_all(text.as_bytes())?;
        if !text.ends_with('\n') {
            writeln!(out)?;
        }
    }
    Ok(out.flush()?)
}

/// Writes a file for people; its folder is made where it is not there yet.
fn write(file: &Path, content: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let folder = file.parent().unwrap_or(Path::new(""));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(file, content))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// What a file holds, where it is text.
fn text_of(bytes: Vec<u8>, file: &Path) -> anyhow::Result<String> {
    files::text(bytes)
        .map_err(|line| anyhow::anyhow!("{} is not UTF-8 text (line {line})", file.display()))
}

/// An error and its causes, without those whose words the one before has already.
fn told(error: &anyhow::Error) -> String {
    let mut told = String::new();
    let mut before = String::new();
    for cause in error.chain() {
        let words = cause.to_string();
        if before.contains(&words) {
            continue;
        }
        if !told.is_empty() {
            told.push_str(": ");
        }
        told.push_str(&words);
        before = words;
    }
    told
}

/// A line for people beside the answer.
fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Set by the first Ctrl-C; the second ends the process at once.
fn on_interrupt() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&flag);
    ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        note("stopping: waiting for what is being judged; once more to stop at once");
    })
    .context("cannot listen for Ctrl-C")?;
    Ok(flag)
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let json = cause
            .downcast_ref::<serde_json::Error>()
            .and_then(serde_json::Error::io_error_kind);
        io.or(json) == Some(ErrorKind::BrokenPipe)
    })
}
