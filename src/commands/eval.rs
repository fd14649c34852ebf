//! `eval`: judges one kernel and says all that is known of it.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde::Serialize;

use super::judge::{self, Over, Wanted};
use super::{Exit, answer, text_of};
use crate::cli::{EvalArgs, Global};
use crate::evaluate::Evaluation;
use crate::report::work;
use crate::source::{KnobValue, Setting, Source};
use crate::verdict::feedback;

/// Longest text of a verdict for a terminal.
const TEXT_LIMIT: usize = 16_384;

#[derive(Serialize)]
struct Judged<'a> {
    task: &'a str,
    device: &'a str,
    gpu: &'a str,
    setting: &'a Setting,
    #[serde(flatten)]
    evaluation: &'a Evaluation,
}

pub(super) fn run(args: &EvalArgs, global: &Global) -> anyhow::Result<Exit> {
    let text = read(&args.file)?;
    let source =
        Source::parse(&text).with_context(|| format!("{} is no source", args.file.display()))?;
    let setting = args
        .set
        .iter()
        .map(|text| assignment(text))
        .collect::<anyhow::Result<_>>()?;
    let point = source.space().point(&setting)?;
    let judge = judge::open(
        Wanted {
            task: &args.task,
            judge: &args.judge,
            seed: args.seed.unwrap_or(0),
            secret: args.seed.is_none(),
            over: Over::Seed,
        },
        global,
    )?;
    let evaluation = judge.evaluator.confirm(&source, &point)?;
    let setting = source.space().setting(&point);
    let judged = Judged {
        task: &judge.name,
        device: &judge.device,
        gpu: &judge.gpu_name,
        setting: &setting,
        evaluation: &evaluation,
    };
    let verdict = &evaluation.verdict;
    let head = format!("{}: {}", args.file.display(), verdict.stage());
    let profile = verdict
        .measurement()
        .map_or_else(String::new, |measurement| work(measurement, &text));
    answer(
        global.json,
        format!("{head}\n{}{profile}", feedback(verdict, &text, TEXT_LIMIT)),
        &judged,
    )?;
    Ok(if verdict.measurement().is_some() {
        Exit::Success
    } else {
        Exit::No
    })
}

fn read(file: &Path) -> anyhow::Result<String> {
    let bytes = if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin()
            .read_to_end(&mut bytes)
            .context("cannot read standard input")?;
        bytes
    } else {
        std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?
    };
    text_of(bytes, file)
}

fn assignment(text: &str) -> anyhow::Result<(String, KnobValue)> {
    let Some((name, value)) = text.split_once('=') else {
        bail!("--set {text}: write KNOB=VALUE");
    };
    let value = match value.parse() {
        Ok(number) => KnobValue::Int(number),
        Err(_) => KnobValue::Text(value.to_owned()),
    };
    Ok((name.trim().to_owned(), value))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn assignments_are_numbers_or_text() {
        let parsed: BTreeMap<_, _> = ["BM=64", "CACHE=.nc"]
            .into_iter()
            .map(|text| assignment(text).expect("well formed"))
            .collect();
        assert_eq!(parsed["BM"], KnobValue::Int(64));
        assert_eq!(parsed["CACHE"], KnobValue::Text(".nc".into()));
        assert!(assignment("BM").is_err());
    }
}
