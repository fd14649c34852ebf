//! Records every attempt, failed ones too, as one JSON line each, on disk before the reply is used. A line
//! holds the request, the answer, what it cost and how long it took; never a key, for requests have none.
//! Before an attempt a short line says that it begins: a process that is killed in mid-call leaves that behind,
//! and a budget can count what may have been paid.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::{Budget, Chat, ChatError, ChatReply, ChatRequest, Tally};
use crate::files;
use crate::units::Digest;

/// What the file is called in a run's folder.
pub const RECORDING: &str = "exchanges.jsonl";

/// Format of a line. Raise it when [`Exchange`] changes, and keep reading the old one.
const VERSION: u32 = 1;

/// One attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    /// Format of this line: 1.
    pub version: u32,
    /// Over model and request.
    pub hash: Digest,
    /// How many attempts with this hash stand before it.
    pub occurrence: u32,
    /// The model that was asked.
    pub model: String,
    /// What was asked.
    pub request: ChatRequest,
    /// What came of it.
    pub outcome: Outcome,
    /// Wall time, milliseconds.
    pub duration_ms: u64,
}

/// An attempt begins.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Started {
    /// Over model and request.
    pub(super) hash: Digest,
    /// Bytes of the prompt.
    pub(super) prompt_bytes: u64,
    /// The longest reply it asks for.
    pub(super) max_output_tokens: Option<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Started { started: Started },
    Exchange(Box<Exchange>),
}

/// What came of an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// An answer.
    Reply(ChatReply),
    /// None.
    Error(ChatError),
}

/// The hash of everything that shapes a reply: model, messages, parameters.
pub(super) fn request_hash(model: &str, request: &ChatRequest) -> Result<Digest, ChatError> {
    let bytes = serde_json::to_vec(request).map_err(|error| ChatError::Recording {
        message: format!("the request cannot be written as JSON: {error}"),
    })?;
    Ok(Digest::of_parts([model.as_bytes(), &bytes]))
}

/// The file behind a path that may name a folder.
pub(super) fn file_of(path: &Path) -> PathBuf {
    let is_folder = path.is_dir() || path.extension().is_none();
    if is_folder {
        path.join(RECORDING)
    } else {
        path.to_owned()
    }
}

/// Reads a recording. Any bad line but a torn last one is an error.
pub(super) fn read(path: &Path) -> Result<Recording, ChatError> {
    let fault = |message: String| ChatError::Recording {
        message: format!("{}: {message}", path.display()),
    };
    let text = std::fs::read(path).map_err(|error| fault(error.to_string()))?;
    let mut recording = Recording::default();
    let mut begun: Vec<Started> = Vec::new();
    let mut start = 0;
    for (index, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let number = index + 1;
        let whole = line.ends_with(b"\n");
        let end = start + line.len();
        if !line.trim_ascii().is_empty() {
            match serde_json::from_slice::<Line>(line) {
                Ok(Line::Started { started }) => begun.push(started),
                Ok(Line::Exchange(exchange)) if exchange.version == VERSION => {
                    // Replies come in any order; one attempt ends one that began.
                    if let Some(at) = begun.iter().position(|begun| begun.hash == exchange.hash) {
                        begun.swap_remove(at);
                    }
                    recording.exchanges.push((number, *exchange));
                }
                Ok(Line::Exchange(exchange)) => {
                    return Err(fault(format!(
                        "line {number} has format {}, this program reads {VERSION}",
                        exchange.version
                    )));
                }
                Err(_) if !whole => {
                    recording.end = End::Torn {
                        start: start as u64,
                    };
                    break;
                }
                Err(error) => return Err(fault(format!("line {number}: {error}"))),
            }
        }
        if !whole {
            recording.end = End::Unended;
        }
        start = end;
    }
    recording.unfinished = begun;
    Ok(recording)
}

/// Every exchange of a recording (a file, or a folder with an `exchanges.jsonl`), in order.
pub fn exchanges(path: &Path) -> Result<Vec<Exchange>, ChatError> {
    let recording = read(&file_of(path))?;
    Ok(recording
        .exchanges
        .into_iter()
        .map(|(_, exchange)| exchange)
        .collect())
}

/// Counts what the recording of earlier sessions (a file, or a folder with an `exchanges.jsonl`) cost; one that is
/// not there cost nothing.
pub fn recall(path: &Path, budget: &Budget) -> Result<(), ChatError> {
    let file = file_of(path);
    let recording = match file.exists() {
        true => read(&file)?,
        false => Recording::default(),
    };
    budget.recall(&file, &recording);
    Ok(())
}

/// A recording as read.
#[derive(Default)]
pub(super) struct Recording {
    /// With their 1-based lines.
    pub(super) exchanges: Vec<(usize, Exchange)>,
    /// Attempts that began and whose end was not written.
    pub(super) unfinished: Vec<Started>,
    /// How its last line ends.
    end: End,
}

/// How the last line of a recording ends.
#[derive(Default)]
enum End {
    /// With a newline, as it was written.
    #[default]
    Whole,
    /// Without one, but an editor may have taken it: the line is read.
    Unended,
    /// In the midst: the mark of a killed writer. It is left out.
    Torn {
        /// Where the line begins, in bytes.
        start: u64,
    },
}

pub(super) struct Recorder {
    inner: Box<dyn Chat>,
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    file: File,
    occurrences: HashMap<Digest, u32>,
}

impl Recorder {
    /// Records to `path`, after what it already holds, which is handed back. One file holds one model's
    /// exchanges.
    pub(super) fn open(inner: Box<dyn Chat>, path: &Path) -> Result<(Self, Recording), ChatError> {
        let path = file_of(path);
        let fault = |message: String| ChatError::Recording {
            message: format!("{}: {message}", path.display()),
        };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| fault(error.to_string()))?;
        }
        let mut occurrences = HashMap::new();
        let mut earlier = Recording::default();
        if path.exists() {
            let recording = read(&path)?;
            for (line, exchange) in &recording.exchanges {
                if exchange.model != inner.model() {
                    return Err(fault(format!(
                        "line {line} was recorded from model `{}`, not `{}`; record to another file",
                        exchange.model,
                        inner.model()
                    )));
                }
                *occurrences.entry(exchange.hash).or_insert(0) += 1;
            }
            earlier = recording;
        }
        let open = || -> std::io::Result<File> {
            let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
            match earlier.end {
                End::Whole => {}
                End::Unended => file.write_all(b"\n")?,
                End::Torn { start } => file.set_len(start)?,
            }
            Ok(file)
        };
        let file = open().map_err(|error| fault(error.to_string()))?;
        let state = Mutex::new(State { file, occurrences });
        Ok((Self { inner, path, state }, earlier))
    }
}

impl Recorder {
    fn append(&self, line: &Line) -> Result<(), ChatError> {
        let fault = |message: String| ChatError::Recording {
            message: format!("{}: {message}", self.path.display()),
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        files::append(&mut state.file, line)
            .and_then(|()| state.file.sync_data())
            .map_err(|error| fault(error.to_string()))
    }
}

impl Chat for Recorder {
    fn complete(&self, request: &ChatRequest, tally: &mut Tally) -> Result<ChatReply, ChatError> {
        let hash = request_hash(self.model(), request)?;
        let started = Started {
            hash,
            prompt_bytes: request.bytes(),
            max_output_tokens: request.max_output_tokens,
        };
        self.append(&Line::Started { started })?;
        let start = Instant::now();
        let result = self.inner.complete(request, tally);
        let duration = start.elapsed();

        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let occurrence = state.occurrences.entry(hash).or_insert(0);
        let exchange = Exchange {
            version: VERSION,
            hash,
            occurrence: *occurrence,
            model: self.model().to_owned(),
            request: request.clone(),
            outcome: match &result {
                Ok(reply) => Outcome::Reply(reply.clone()),
                Err(error) => Outcome::Error(error.clone()),
            },
            duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        };
        *occurrence += 1;
        tally.exchanges.push(hash);
        drop(state);
        // A reply was paid for: it is on disk before anyone acts on it.
        self.append(&Line::Exchange(Box::new(exchange)))?;
        result
    }

    fn model(&self) -> &str {
        self.inner.model()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::testing::{question, reply};

    struct Echo;

    impl Chat for Echo {
        fn complete(&self, _: &ChatRequest, _: &mut Tally) -> Result<ChatReply, ChatError> {
            Ok(reply("yes"))
        }

        fn model(&self) -> &str {
            "echo"
        }
    }

    #[test]
    fn a_recording_whose_last_line_lost_its_newline_grows_on() {
        let scratch = tempfile::tempdir().expect("scratch");
        let path = scratch.path().join("exchanges.jsonl");
        let ask = |text: &str| {
            let (recorder, earlier) = Recorder::open(Box::new(Echo), &path).expect("opens");
            recorder
                .complete(&question(text), &mut Tally::default())
                .expect("answers");
            earlier.exchanges.len()
        };
        assert_eq!(ask("one"), 0);
        let text = std::fs::read_to_string(&path).expect("reads");
        std::fs::write(&path, text.trim_end()).expect("writes");
        assert_eq!(ask("two"), 1);
        let text = std::fs::read(&path).expect("reads");
        std::fs::write(&path, &text[..text.len() - 9]).expect("writes");
        assert_eq!(ask("three"), 1, "a torn line is none");
        assert_eq!(exchanges(&path).expect("reads").len(), 2);
    }
}
