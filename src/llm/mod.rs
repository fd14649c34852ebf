//! Talking to a language model: one seam, [`Chat`], and what stands behind it. Nothing here knows PTX,
//! tasks or the search, and nothing here runs because a key happens to lie in the environment: the user
//! names a model, [`open`] makes the client.
//!
//! A client is a stack, outermost first:
//!
//! ```text
//! retry  →  throttle  →  remember  →  budget  →  record  →  http | command | folder | script
//! retry  →  budget  →  replay
//! ```
//!
//! Budget and recording stand below the retries, so that an attempt that failed is counted and recorded
//! like one that did not, and a replay meets the same failures in the same order. What an earlier session of
//! the same run recorded is remembered above the budget, which counts it once.

mod api;
mod budget;
mod command;
mod endpoint;
mod events;
mod folder;
mod http;
mod prices;
mod record;
mod refusal;
mod remember;
mod replay;
mod retry;
mod script;
mod secret;
mod throttle;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::Digest;

pub use api::Api;
pub use budget::{Budget, Limits, Spent};
pub use prices::{Dollars, Price, Prices};
pub use record::{Exchange, Outcome, RECORDING, exchanges, recall};
pub use retry::RetryPolicy;
pub use secret::{Secret, key_from_environment};
pub use throttle::Rates;

/// A model that answers.
pub trait Chat: Send + Sync {
    /// Sends one request and waits for the whole reply. What it cost is added to `tally`, whether or not
    /// there is a reply.
    fn complete(&self, request: &ChatRequest, tally: &mut Tally) -> Result<ChatReply, ChatError>;

    /// As the user named it, for events and reports: `gpt-5.2`, `script:replies.toml`.
    fn model(&self) -> &str;
}

/// What a question has cost so far, and where its exchanges are recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Calls and tokens.
    pub spent: Spent,
    /// Hashes of the exchanges behind it, in order ([`Exchange::hash`]); none where nothing records.
    pub exchanges: Vec<Digest>,
}

/// Everything that shapes a reply, the model's name apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatRequest {
    /// What the model is told before the conversation.
    pub system: String,
    /// The conversation, oldest first.
    pub messages: Vec<Message>,
    /// The longest reply wanted, in tokens; `None` leaves it to the server.
    pub max_output_tokens: Option<u32>,
    /// The shape that the reply is held to where a server can do that; elsewhere the prompt must say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Schema>,
    /// Sampling temperature; `None` leaves it to the server (some models take no other).
    pub temperature: Option<f64>,
    /// Which independent draw of one prompt this is. It is never sent: it keeps draws apart in a
    /// recording, so that a replay does not depend on which thread asked first.
    pub sample: u32,
}

impl ChatRequest {
    /// Bytes of text in it.
    pub fn bytes(&self) -> u64 {
        let messages: usize = self.messages.iter().map(|m| m.text.len()).sum();
        (self.system.len() + messages) as u64
    }
}

/// A JSON schema for a reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// A short name, as servers want one.
    pub name: String,
    /// The schema; every object in it lists all of its keys as required and allows no others.
    pub schema: serde_json::Value,
}

/// One turn of the conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// Who speaks.
    pub speaker: Speaker,
    /// What is said.
    pub text: String,
}

/// Who speaks in a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speaker {
    /// We.
    User,
    /// The model.
    Assistant,
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatReply {
    /// What the model says; may be empty.
    pub text: String,
    /// Why it stopped.
    pub finish: Finish,
    /// What it cost.
    pub usage: Usage,
}

/// Why a reply ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model was done.
    Stop,
    /// It ran into the length limit: the text is cut.
    Length,
    /// It refused, or a filter cut it.
    Refused,
    /// What else the server says.
    Other(String),
}

/// Tokens of one exchange as the server counts them; zero where it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Prompt tokens, cached ones included.
    pub input: u64,
    /// Prompt tokens read from the server's cache.
    pub cached: u64,
    /// Prompt tokens written to the server's cache, where that has a price of its own. Not in older recordings.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_written: u64,
    /// Reply tokens, reasoning included.
    pub output: u64,
    /// Reply tokens spent on reasoning.
    pub reasoning: u64,
}

impl Usage {
    /// Adds another amount.
    pub fn add(&mut self, other: &Self) {
        self.input = self.input.saturating_add(other.input);
        self.cached = self.cached.saturating_add(other.cached);
        self.cache_written = self.cache_written.saturating_add(other.cache_written);
        self.output = self.output.saturating_add(other.output);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Why there is no reply. Messages never hold a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ChatError {
    /// What the user asked for cannot work: a bad `--model` or `--base-url`, a missing program or file.
    #[error("{message}")]
    Configuration {
        /// What is wrong and what to do.
        message: String,
    },
    /// The server understood and says no: key, permission, model, quota, parameter. Asking again is useless.
    #[error("{message}")]
    Rejected {
        /// HTTP status.
        status: u16,
        /// With the server's own words.
        message: String,
    },
    /// The prompt does not fit the model. A shorter one may.
    #[error("{message}")]
    TooLong {
        /// With the server's own words.
        message: String,
    },
    /// One attempt failed in a way that another may not: busy, time-out, reset, garbage.
    #[error("{message}")]
    Transient {
        /// What happened.
        message: String,
        /// How long the server asks us to wait, in milliseconds.
        retry_after_ms: Option<u64>,
        /// Whether the model may have worked on it, and so the attempt may be billed.
        may_be_billed: bool,
    },
    /// No attempt succeeded.
    #[error("no usable answer after {attempts} attempts; the last: {message}")]
    Unreachable {
        /// Attempts made.
        attempts: u32,
        /// How the last one failed.
        message: String,
    },
    /// The budget does not allow the call; nothing was sent.
    #[error("{message}")]
    Exhausted {
        /// Which limit, and what is spent.
        message: String,
    },
    /// The recording or the script has no answer to this request.
    #[error("{message}")]
    Unrecorded {
        /// What is nearest to it.
        message: String,
    },
    /// A recording cannot be read or written.
    #[error("{message}")]
    Recording {
        /// Where and why.
        message: String,
    },
}

/// How long a reply may take where the user does not say.
const HALF_AN_HOUR: Duration = Duration::from_secs(30 * 60);
const A_DAY: Duration = Duration::from_secs(24 * 3600);

/// How [`open`] builds a client.
#[derive(Clone)]
pub struct OpenOptions {
    /// Where every exchange is recorded: a file, or a folder that gets an `exchanges.jsonl`.
    pub record: Option<PathBuf>,
    /// The recording holds earlier sessions of this very run: their cost counts, and what they were answered
    /// is not asked again.
    pub resume: bool,
    /// Counts and limits; shared, so that a progress line can read it.
    pub budget: Arc<Budget>,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// Longest silence in the middle of a call.
    pub idle_timeout: Duration,
    /// Longest wait for a whole reply; `None`: half an hour, a day for a folder.
    pub total_timeout: Option<Duration>,
    /// What a minute allows.
    pub rates: Rates,
    /// The server's language; `None`: told from the base URL.
    pub api: Option<Api>,
    /// How failed attempts are repeated.
    pub retry: RetryPolicy,
    /// The key to send; [`key_from_environment`] reads it.
    pub key: Option<Secret>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            record: None,
            resume: false,
            budget: Arc::new(Budget::default()),
            connect_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(10 * 60),
            total_timeout: None,
            rates: Rates::default(),
            api: None,
            retry: RetryPolicy::default(),
            key: None,
        }
    }
}

/// The language of a model at `base_url`: the one asked for, else told from the address.
pub fn language(base_url: Option<&str>, asked: Option<Api>) -> Api {
    asked.unwrap_or_else(|| endpoint::language_of(base_url))
}

/// Whether the same question always gets the same answer: where replies are read from a file.
pub fn deterministic(spec: &str) -> bool {
    spec.starts_with("script:") || spec.starts_with("replay:")
}

/// Makes the client that `spec` names:
///
/// - `cmd:PROGRAM ARG…`: a program that reads the prompt on stdin and prints the reply; no shell;
/// - `dir:FOLDER`: prompts as files, replies awaited as files, for whoever answers;
/// - `script:FILE`: a fixed list of replies (TOML or JSON; src/llm/script.rs describes the format), for tests and demos;
/// - `replay:FILE`: the answers of an earlier recording, offline;
/// - anything else: the name of a model at a server (`base_url`, else the language's own).
pub fn open(
    spec: &str,
    base_url: Option<&str>,
    options: &OpenOptions,
) -> Result<Box<dyn Chat>, ChatError> {
    let configuration = |message: String| ChatError::Configuration { message };
    let (scheme, rest) = match spec.split_once(':') {
        Some((scheme @ ("cmd" | "dir" | "script" | "replay"), rest)) => (Some(scheme), rest.trim()),
        Some(_) | None => (None, spec.trim()),
    };
    if rest.is_empty() {
        return Err(configuration(format!(
            "--model `{spec}` names nothing; write --model NAME, cmd:PROGRAM, dir:FOLDER, script:FILE or replay:FILE"
        )));
    }
    if let (Some(scheme), Some(url)) = (scheme, base_url) {
        return Err(configuration(format!(
            "--base-url {url} has no meaning for a `{scheme}:` model; leave it out"
        )));
    }
    let within = |usual: Duration| options.total_timeout.unwrap_or(usual);
    let counted = |chat: Box<dyn Chat>| -> Box<dyn Chat> {
        Box::new(budget::Budgeted::new(chat, Arc::clone(&options.budget)))
    };
    let recorded = |chat: Box<dyn Chat>| -> Result<Box<dyn Chat>, ChatError> {
        let Some(path) = &options.record else {
            return Ok(counted(chat));
        };
        let (recorder, earlier) = record::Recorder::open(chat, path)?;
        let chat = counted(Box::new(recorder));
        Ok(match options.resume {
            true => Box::new(remember::Remembering::new(
                chat,
                Arc::clone(&options.budget),
                &record::file_of(path),
                earlier,
            )),
            false => chat,
        })
    };
    let (chat, retry) = match scheme {
        Some("cmd") => {
            let chat = command::CommandModel::new(rest, within(HALF_AN_HOUR))?;
            (recorded(Box::new(chat))?, options.retry)
        }
        Some("dir") => {
            let chat = folder::Folder::open(rest.as_ref(), within(A_DAY))?;
            (recorded(Box::new(chat))?, options.retry.once())
        }
        Some("script") => {
            let chat = script::Script::load(rest.as_ref())?;
            (recorded(Box::new(chat))?, options.retry.without_waiting())
        }
        Some(_) => {
            let chat: Box<dyn Chat> = Box::new(replay::Replay::load(rest.as_ref())?);
            (counted(chat), options.retry.without_waiting())
        }
        None => {
            let api = language(base_url, options.api);
            let chat = http::HttpModel::new(http::Config {
                model: rest.to_owned(),
                api,
                url: endpoint::address(base_url, api)?,
                key: options.key.clone(),
                connect_timeout: options.connect_timeout,
                idle_timeout: options.idle_timeout,
                total_timeout: within(HALF_AN_HOUR),
            })?;
            (recorded(Box::new(chat))?, options.retry)
        }
    };
    let chat: Box<dyn Chat> = match options.rates == Rates::default() {
        true => chat,
        false => Box::new(throttle::Throttled::new(chat, options.rates)),
    };
    Ok(Box::new(retry::Retrying::new(chat, retry)))
}

#[cfg(test)]
mod testing {
    use super::*;

    pub(super) fn question(text: &str) -> ChatRequest {
        ChatRequest {
            system: String::new(),
            messages: vec![Message {
                speaker: Speaker::User,
                text: text.to_owned(),
            }],
            max_output_tokens: None,
            schema: None,
            temperature: None,
            sample: 0,
        }
    }

    pub(super) fn reply(text: &str) -> ChatReply {
        ChatReply {
            text: text.to_owned(),
            finish: Finish::Stop,
            usage: Usage {
                cache_written: 0,
                input: 1,
                cached: 0,
                output: 1,
                reasoning: 0,
            },
        }
    }
}
