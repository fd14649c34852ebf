//! The kernels of a model's replies as they are judged, kept in the series' folder: a series that was stopped goes
//! on with the verdicts it had. A GPU would measure other times, the questions that tell of them would be other
//! questions, and their answers would be paid for again.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::MethodError;
use super::methods::judge;
use crate::evaluate::{Evaluation, Evaluator};
use crate::files::Lines;
use crate::source::{Point, Source};
use crate::units::Digest;

pub(super) struct Log {
    path: PathBuf,
    lines: Lines,
    known: HashMap<Digest, Known>,
}

/// A verdict, and the seconds that it took where this session did not charge them yet.
struct Known {
    evaluation: Evaluation,
    uncharged: Option<f64>,
}

/// The first line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    /// What the series is made under.
    key: Digest,
}

/// Every other line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    kernel: Digest,
    seconds: f64,
    evaluation: Evaluation,
}

impl Log {
    /// Goes on with what the folder holds; a last line that was cut off is none.
    pub(super) fn open(folder: &Path, key: Digest) -> Result<Self, MethodError> {
        let path = folder.join("judged.jsonl");
        fs::create_dir_all(folder).map_err(|error| fault(&path, &error))?;
        let (file, bytes) = Lines::open(&path).map_err(|error| fault(&path, &error))?;
        let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
        let head = lines.next().map(|line| parsed::<Head>(&path, line));
        let head = head.transpose()?;
        if head.as_ref().is_some_and(|head| head.key != key) {
            return Err(MethodError::Foreign { path });
        }
        let mut known = HashMap::new();
        for line in lines {
            let entry: Entry = parsed(&path, line)?;
            let uncharged = Some(entry.seconds);
            let evaluation = entry.evaluation;
            known.insert(
                entry.kernel,
                Known {
                    evaluation,
                    uncharged,
                },
            );
        }
        let mut log = Self {
            path,
            lines: file,
            known,
        };
        if head.is_none() {
            log.append(&Head { key })?;
        }
        Ok(log)
    }

    /// Judges a kernel that the series did not judge before, and says how many seconds that took.
    pub(super) fn judge(
        &mut self,
        evaluator: &dyn Evaluator,
        source: &Source,
        point: &Point,
    ) -> Result<(Evaluation, f64), MethodError> {
        let setting = source.space().setting(point);
        let kernel = Digest::of(format!("{setting:?}\n{}", source.text).as_bytes());
        if let Some(known) = self.known.get_mut(&kernel) {
            let seconds = known.uncharged.take().unwrap_or(0.0);
            return Ok((known.evaluation.clone(), seconds));
        }
        let (evaluation, seconds) = judge(evaluator, source, point)?;
        let entry = Entry {
            kernel,
            seconds,
            evaluation,
        };
        self.append(&entry)?;
        let evaluation = entry.evaluation;
        let known = Known {
            evaluation: evaluation.clone(),
            uncharged: None,
        };
        self.known.insert(kernel, known);
        Ok((evaluation, seconds))
    }

    fn append(&mut self, line: &impl Serialize) -> Result<(), MethodError> {
        self.lines
            .append(line)
            .and_then(|()| self.lines.sync())
            .map_err(|error| fault(&self.path, &error))
    }
}

fn parsed<T: DeserializeOwned>(path: &Path, line: &[u8]) -> Result<T, MethodError> {
    serde_json::from_slice(line).map_err(|error| fault(path, &error))
}

fn fault(path: &Path, error: &dyn std::error::Error) -> MethodError {
    MethodError::Keep {
        path: path.to_owned(),
        message: error.to_string(),
    }
}
