//! `show`: the story of a run.

use anyhow::Context as _;

use super::{Exit, answer};
use crate::cli::{Global, ShowArgs};
use crate::report::Story;
use crate::store::StoredRun;

pub(super) fn run(args: &ShowArgs, global: &Global) -> anyhow::Result<Exit> {
    let run = StoredRun::open(&args.dir)?;
    let story = Story::read(&run, args.top)
        .with_context(|| format!("cannot read the run in {}", args.dir.display()))?;
    answer(global.json, &story, &story)?;
    Ok(Exit::Success)
}
