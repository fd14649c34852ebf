//! The languages that model servers speak, one file each: how a request is written, how a reply is read,
//! whole or as a stream of events. No file here opens a connection or knows a retry.

mod chat;
mod limit;
mod messages;
mod responses;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{ChatReply, ChatRequest, Message, Secret, Speaker};

/// The longest reply where a request leaves it open and its language does not.
pub(super) const UNSTATED: u32 = 32_768;

/// Which language a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Api {
    /// OpenAI chat completions, which most servers speak.
    Chat,
    /// OpenAI responses.
    Responses,
    /// Anthropic messages.
    Messages,
}

impl Api {
    pub(super) fn language(self) -> &'static dyn Language {
        match self {
            Self::Chat => &chat::Chat,
            Self::Responses => &responses::Responses,
            Self::Messages => &messages::Messages,
        }
    }
}

/// A language.
pub(super) trait Language: Send + Sync {
    /// Its own server, with the version in the path.
    fn home(&self) -> &'static str;

    /// The end of its address: `/chat/completions`.
    fn path(&self) -> &'static str;

    /// The environment's name for its key, besides the common one.
    fn key_variable(&self) -> &'static str;

    /// Header lines of every request, the key's among them.
    fn headers(&self, key: Option<&Secret>) -> Vec<(&'static str, String)>;

    /// The body of a request.
    fn body(&self, model: &str, request: &ChatRequest, dialect: &Dialect) -> Value;

    /// A whole reply.
    fn read(&self, body: &Value) -> Result<ChatReply, Failure>;

    /// Listens to a reply that comes in pieces.
    fn listen(&self) -> Box<dyn Listener>;
}

/// The turns of a conversation, as all languages write them.
fn turns(request: &ChatRequest) -> Vec<Value> {
    let turn = |message: &Message| {
        let role = match message.speaker {
            Speaker::User => "user",
            Speaker::Assistant => "assistant",
        };
        json!({"role": role, "content": message.text})
    };
    request.messages.iter().map(turn).collect()
}

/// Puts a reply together.
pub(super) trait Listener {
    /// Takes in one event: its name (`message` where it has none) and its data.
    fn hear(&mut self, event: &str, data: &str) -> Result<Heard, Failure>;

    /// The reply, as far as it was heard; `None` where its end was not.
    fn reply(&mut self) -> Option<ChatReply>;
}

/// Whether there is more to hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    More,
    Done,
}

/// There is no reply in it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Failure {
    /// The server says so, in an object like those of its refusals.
    Said(Value),
    /// It is not what the language prescribes.
    Garbage(String),
}

/// What of the language a server understands. Servers differ, and say so only when asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dialect {
    /// How the longest reply is asked for.
    pub(super) length: Length,
    /// Longer replies, in tokens, may not be asked for.
    pub(super) longest: Option<u32>,
    /// Replies come as a stream of events.
    pub(super) stream: bool,
    /// A stream tells its usage when asked to.
    pub(super) stream_usage: bool,
    /// A reply can be held to a schema.
    pub(super) schema: bool,
    /// The temperature can be set.
    pub(super) temperature: bool,
}

/// How the longest reply is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    CompletionTokens,
    Tokens,
    Unsaid,
}

impl Length {
    /// The parameter's name.
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            Self::CompletionTokens => Some("max_completion_tokens"),
            Self::Tokens => Some("max_tokens"),
            Self::Unsaid => None,
        }
    }
}

impl Dialect {
    /// What to assume of a server before it said anything.
    pub(super) fn assumed(official: bool) -> Self {
        Self {
            length: match official {
                true => Length::CompletionTokens,
                false => Length::Tokens,
            },
            longest: None,
            stream: true,
            stream_usage: true,
            schema: true,
            temperature: true,
        }
    }

    /// The longest reply to ask for where `asked` is wanted.
    pub(super) fn longest(&self, asked: u32) -> u32 {
        self.longest.map_or(asked, |longest| asked.min(longest))
    }

    /// The dialect with the length that a refusal of `asked` tokens allows; `None` where it says nothing of one.
    /// `lower` is the refusal in lower case.
    pub(super) fn shorter(self, lower: &str, asked: u32) -> Option<Self> {
        let allowed = limit::reply(lower, self.longest(asked))?;
        Some(Self {
            longest: Some(allowed),
            ..self
        })
    }

    /// The dialect without what a refusal complains of; `None` where it complains of something else.
    /// `lower` is the refusal in lower case.
    pub(super) fn without(self, lower: &str) -> Option<Self> {
        let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
        if self.stream_usage && says(&["stream_options", "include_usage"]) {
            return Some(Self {
                stream_usage: false,
                ..self
            });
        }
        if self.schema
            && says(&[
                "response_format",
                "json_schema",
                "output_config",
                "text.format",
                "structured output",
            ])
        {
            return Some(Self {
                schema: false,
                ..self
            });
        }
        if self.temperature && says(&["temperature"]) {
            return Some(Self {
                temperature: false,
                ..self
            });
        }
        if let Some(name) = self.length.name()
            && lower.contains(name)
        {
            let other_name = says(&[
                "unsupported",
                "unrecognized",
                "not supported",
                "extra inputs",
                "unknown",
            ]);
            let length = match (other_name, self.length) {
                (true, Length::CompletionTokens) => Length::Tokens,
                (true, Length::Tokens) if lower.contains("max_completion_tokens") => {
                    Length::CompletionTokens
                }
                (true | false, _) => Length::Unsaid,
            };
            return Some(Self { length, ..self });
        }
        if self.stream && says(&["stream"]) {
            return Some(Self {
                stream: false,
                stream_usage: false,
                ..self
            });
        }
        None
    }
}

/// A count as servers write it; whatever is no whole number at least 0 counts as unsaid.
fn count(value: &Value, pointer: &str) -> Option<u64> {
    value.pointer(pointer).and_then(Value::as_u64)
}

/// Text of a message whose content is a string or a list of parts; parts that are no text are left out.
fn text_of(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts
            .iter()
            .filter_map(|part| part.get("text").and_then(Value::as_str))
            .collect(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {
            String::new()
        }
    }
}

fn parsed(data: &str) -> Result<Value, Failure> {
    let value: Value =
        serde_json::from_str(data).map_err(|error| Failure::Garbage(error.to_string()))?;
    match value.get("error") {
        Some(error) if !error.is_null() => Err(Failure::Said(value)),
        Some(_) | None => Ok(value),
    }
}
