//! `replay`: a recorded run as it went.

use std::io;
use std::thread;
use std::time::Duration;

use crate::cli::{Global, ReplayArgs};
use crate::report::{Doing, Story, opening, told};
use crate::store::{Event, Line, RunGraph, StoredRun};

use super::Exit;

pub(super) fn run(args: &ReplayArgs, global: &Global) -> anyhow::Result<Exit> {
    let run = StoredRun::open(&args.run)?;
    let mut out = Paced {
        out: io::stdout().lock(),
        speed: args.speed,
        at: Duration::ZERO,
    };
    if global.json {
        for line in &run.lines {
            let text = serde_json::to_string(line)?;
            out.line(Duration::from_millis(line.elapsed_ms), &text)?;
        }
        return Ok(Exit::Success);
    }
    let graph = RunGraph::read(&run)?;
    let story = Story::read(&run, 1)?;
    let first = opening(doing(&run), &run.config, times(&run), &args.run);
    out.line(Duration::ZERO, &first)?;
    for told in told(&run, &graph) {
        out.line(told.at, &told.text)?;
    }
    // a trace leaves the kernels behind
    let kernel = story
        .winner
        .as_ref()
        .is_some_and(|winner| winner.kernel.is_some());
    let last = story.brief(&args.run, kernel && args.run.is_dir());
    out.line(Duration::from_millis(story.elapsed_ms), last.trim_end())?;
    Ok(Exit::Success)
}

fn doing(run: &StoredRun) -> Doing {
    if run.config.is_batch() {
        let judged = |line: &&Line| matches!(line.event, Event::Evaluated { .. });
        let settings = run.lines.iter().filter(judged).count();
        Doing::Judging { settings }
    } else {
        Doing::Searching
    }
}

/// The word beside the run's times: that of the first kernel that got one.
fn times(run: &StoredRun) -> Option<&'static str> {
    run.lines.iter().find_map(|line| {
        let (_, _, evaluation) = line.event.evaluated()?;
        evaluation.verdict.measurement().map(|m| m.time.label())
    })
}

/// Prints each line when its time has come.
struct Paced<W> {
    out: W,
    /// How many times as fast as it went; without it nobody waits.
    speed: Option<f64>,
    at: Duration,
}

impl<W: io::Write> Paced<W> {
    fn line(&mut self, at: Duration, text: &str) -> io::Result<()> {
        if let Some(speed) = self.speed {
            let pause = at.saturating_sub(self.at).as_secs_f64() / speed;
            thread::sleep(Duration::try_from_secs_f64(pause).unwrap_or(Duration::MAX));
        }
        self.at = at;
        writeln!(self.out, "{text}")?;
        self.out.flush()
    }
}
