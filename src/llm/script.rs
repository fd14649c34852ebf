//! A model that reads its replies from a file: for tests, demonstrations and comparing methods offline.
//! Which reply a request gets depends on the request alone (and on how often that very request was made),
//! never on which thread asked first.
//!
//! ```toml
//! model = "scripted"            # how reports name it; else the file's name
//! order = "attempt"             # or "shuffled"
//!
//! [[reply]]                     # for any request that no other reply fits better
//! text = '''…'''
//!
//! [[reply]]                     # only where each of these texts stands in the prompt
//! contains = ["Request: repair", "missing-barrier"]
//! text = '''…'''
//!
//! [[reply]]                     # a failure instead of a reply
//! contains = ["Task: sgemm"]
//! error = { kind = "transient", message = "busy", may_be_billed = false }
//! ```
//!
//! Of the replies that fit a request, those with the most `contains` texts are its list. With `attempt`,
//! sample k of a prompt gets entry k of the list, from the start again after the last. With `shuffled`, each
//! prompt begins at an entry of its own, drawn from its hash. `finish = "length"` marks a reply as cut.
//! JSON with the same keys is read where the file's name ends in `.json`.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;

use super::record::request_hash;
use super::{Chat, ChatError, ChatReply, ChatRequest, Finish, Tally, Usage};
use crate::units::Digest;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    model: Option<String>,
    #[serde(default)]
    order: Order,
    reply: Vec<Reply>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Order {
    #[default]
    Attempt,
    Shuffled,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reply {
    #[serde(default)]
    contains: Vec<String>,
    text: Option<String>,
    finish: Option<Finish>,
    error: Option<ChatError>,
}

pub(super) struct Script {
    model: String,
    order: Order,
    replies: Vec<Reply>,
    asked: Mutex<HashMap<Digest, u64>>,
}

impl Script {
    pub(super) fn load(path: &Path) -> Result<Self, ChatError> {
        let fault = |message: String| ChatError::Configuration {
            message: format!("{}: {message}", path.display()),
        };
        let text = std::fs::read_to_string(path).map_err(|error| fault(error.to_string()))?;
        let json = path
            .extension()
            .is_some_and(|extension| extension == "json");
        let file: File = if json {
            serde_json::from_str(&text).map_err(|error| fault(error.to_string()))?
        } else {
            toml::from_str(&text).map_err(|error| fault(error.to_string()))?
        };
        if file.reply.is_empty() {
            return Err(fault("a script needs at least one [[reply]]".to_owned()));
        }
        for (index, reply) in file.reply.iter().enumerate() {
            if reply.text.is_some() == reply.error.is_some() {
                return Err(fault(format!(
                    "[[reply]] {} must have either `text` or `error`",
                    index + 1
                )));
            }
        }
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        Ok(Self {
            model: file.model.unwrap_or_else(|| stem.into_owned()),
            order: file.order,
            replies: file.reply,
            asked: Mutex::default(),
        })
    }

    /// The replies that fit a request best, in the order of the file.
    fn fitting(&self, request: &ChatRequest) -> Vec<&Reply> {
        let stands = |text: &String| {
            request.system.contains(text) || request.messages.iter().any(|m| m.text.contains(text))
        };
        let fits = |reply: &&Reply| reply.contains.iter().all(stands);
        let most = self
            .replies
            .iter()
            .filter(fits)
            .map(|reply| reply.contains.len())
            .max();
        self.replies
            .iter()
            .filter(fits)
            .filter(|reply| Some(reply.contains.len()) == most)
            .collect()
    }
}

impl Chat for Script {
    fn complete(&self, request: &ChatRequest, _: &mut Tally) -> Result<ChatReply, ChatError> {
        let fitting = self.fitting(request);
        if fitting.is_empty() {
            return Err(ChatError::Unrecorded {
                message: format!(
                    "the script `{}` has no reply for this request; add a [[reply]] without `contains`",
                    self.model
                ),
            });
        }
        let repeats = {
            let hash = request_hash(&self.model, request)?;
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            let repeats = asked.entry(hash).or_insert(0);
            *repeats += 1;
            *repeats - 1
        };
        let start = match self.order {
            Order::Attempt => 0,
            Order::Shuffled => {
                let prompt = ChatRequest {
                    sample: 0,
                    ..request.clone()
                };
                request_hash(&self.model, &prompt)?.seed() % fitting.len() as u64
            }
        };
        let turn = start + u64::from(request.sample) + repeats;
        let reply = fitting[(turn % fitting.len() as u64) as usize];
        match (&reply.text, &reply.error) {
            (_, Some(error)) => Err(error.clone()),
            (text, None) => {
                let text = text.clone().unwrap_or_default();
                // As a tokenizer would count, roughly: budgets in tokens mean something offline too.
                let usage = Usage {
                    input: request.bytes() / 4,
                    output: text.len() as u64 / 4,
                    ..Usage::default()
                };
                Ok(ChatReply {
                    text,
                    finish: reply.finish.clone().unwrap_or(Finish::Stop),
                    usage,
                })
            }
        }
    }

    fn model(&self) -> &str {
        &self.model
    }
}
