//! Chat completions as OpenAI and every compatible server speak them (vLLM, llama.cpp, Ollama, LM Studio,
//! OpenRouter, DeepSeek, Gemini's endpoint). One call is one attempt; whether to repeat it is decided above.
//! The key goes into one header, and never into a message, a log or a recording.

use std::error::Error as _;
use std::fmt;
use std::io::Read;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use reqwest::Url;
use reqwest::blocking::{Client, Response};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::redirect;
use serde_json::{Value, json};

use super::endpoint;
use super::{Chat, ChatError, ChatReply, ChatRequest, Finish, Speaker, Tally, Usage};

/// A key. It prints as `[key]`.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Wraps a key.
    pub fn new(key: String) -> Self {
        Self(key)
    }

    /// `text` with the key struck out: servers like to quote it.
    fn redact(&self, text: String) -> String {
        if self.0.is_empty() {
            text
        } else {
            text.replace(&self.0, "[key]")
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[key]")
    }
}

pub(super) struct Config {
    pub(super) model: String,
    pub(super) url: Url,
    pub(super) key: Option<Secret>,
    pub(super) connect_timeout: Duration,
    pub(super) total_timeout: Duration,
}

pub(super) struct OpenAi {
    config: Config,
    client: Client,
    /// Index into [`LENGTH_PARAMETERS`]: servers disagree on the name, and say so only when asked.
    length_parameter: AtomicU8,
}

/// How the longest reply is asked for; the last one not at all.
const LENGTH_PARAMETERS: [Option<&str>; 3] =
    [Some("max_completion_tokens"), Some("max_tokens"), None];

/// A reply longer than this is no reply.
const MAX_BODY: u64 = 32 << 20;

impl OpenAi {
    pub(super) fn new(config: Config) -> Result<Self, ChatError> {
        let configuration = |message: String| ChatError::Configuration { message };
        let official = config.url.host_str() == Some("api.openai.com");
        if official && config.key.is_none() {
            return Err(configuration(format!(
                "--model {} needs a key for api.openai.com: set OPENAI_API_KEY, or name another server with --base-url",
                config.model
            )));
        }
        let mut headers = HeaderMap::new();
        if let Some(Secret(key)) = &config.key {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| {
                configuration(
                    "the key in WARPTREE_API_KEY or OPENAI_API_KEY holds characters that no key has; set it again"
                        .to_owned(),
                )
            })?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let mut builder = Client::builder()
            .user_agent(concat!("warptree/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers)
            .redirect(redirect::Policy::none())
            .connect_timeout(config.connect_timeout)
            .timeout(config.total_timeout);
        if endpoint::is_local(&config.url) {
            builder = builder.no_proxy();
        }
        let client = builder
            .build()
            .map_err(|error| configuration(format!("no HTTP client: {}", chain(&error))))?;
        Ok(Self {
            length_parameter: AtomicU8::new(u8::from(!official)),
            client,
            config,
        })
    }

    fn body(&self, request: &ChatRequest) -> Value {
        let mut messages = Vec::with_capacity(request.messages.len() + 1);
        if !request.system.is_empty() {
            messages.push(json!({"role": "system", "content": request.system}));
        }
        for message in &request.messages {
            let role = match message.speaker {
                Speaker::User => "user",
                Speaker::Assistant => "assistant",
            };
            messages.push(json!({"role": role, "content": message.text}));
        }
        let mut body = json!({"model": self.config.model, "messages": messages});
        let parameter = usize::from(self.length_parameter.load(Ordering::Relaxed));
        if let (Some(Some(name)), Some(tokens)) =
            (LENGTH_PARAMETERS.get(parameter), request.max_output_tokens)
        {
            body[*name] = json!(tokens);
        }
        if let Some(temperature) = request.temperature {
            body["temperature"] = json!(temperature);
        }
        body
    }

    fn attempt(&self, request: &ChatRequest) -> Result<ChatReply, ChatError> {
        let parameter = self.length_parameter.load(Ordering::Relaxed);
        let body = self.body(request).to_string();
        let response = self
            .client
            .post(self.config.url.clone())
            .header("content-type", "application/json")
            .header("accept", "application/json")
            .body(body)
            .send()
            .map_err(|error| self.transport(&error))?;
        let status = response.status().as_u16();
        let wait = retry_after(response.headers());
        let text = read_body(response).map_err(|error| self.unread(&error))?;
        if (200..300).contains(&status) {
            return self.reply(&text);
        }
        let refusal = refusal_message(&text);
        if status == 400 && self.learn_length_parameter(parameter, &refusal) {
            return Err(ChatError::Transient {
                message: self.say(format_args!("answered HTTP 400: {refusal}")),
                retry_after_ms: Some(0),
                may_be_billed: false,
            });
        }
        Err(self.refused(status, &text, &refusal, wait))
    }

    /// Whether the refusal is about how the reply's length is asked for, and there is another way to ask.
    fn learn_length_parameter(&self, used: u8, refusal: &str) -> bool {
        let Some(Some(name)) = LENGTH_PARAMETERS.get(usize::from(used)) else {
            return false;
        };
        let lower = refusal.to_lowercase();
        // A prompt that is too long is refused with the same words on some servers.
        if !lower.contains(name) || is_too_long(&lower) {
            return false;
        }
        let other_name = lower.contains("unsupported")
            || lower.contains("unrecognized")
            || lower.contains("not supported")
            || lower.contains("extra inputs")
            || lower.contains("unknown");
        let next = match (other_name, used) {
            (true, 0) => 1,
            (true, _) if lower.contains("max_completion_tokens") => 0,
            (true | false, _) => 2,
        };
        if next == used {
            return false;
        }
        self.length_parameter.store(next, Ordering::Relaxed);
        true
    }

    fn refused(&self, status: u16, body: &str, refusal: &str, wait: Option<u64>) -> ChatError {
        let lower = body.to_lowercase();
        let no_quota = lower.contains("insufficient_quota") || status == 402;
        let message =
            |advice: &str| self.say(format_args!("answered HTTP {status}: {refusal}{advice}"));
        match status {
            _ if no_quota => ChatError::Rejected {
                status,
                message: message(" (no credit left; asking again is useless)"),
            },
            400 | 413 | 422 if is_too_long(&lower) => ChatError::TooLong {
                message: message(""),
            },
            408 | 409 | 425 | 429 | 500 | 502..=599 => ChatError::Transient {
                message: message(""),
                retry_after_ms: wait,
                may_be_billed: false,
            },
            300..=399 => ChatError::Rejected {
                status,
                message: message(" (it redirects; give the final address as --base-url)"),
            },
            401 => ChatError::Rejected {
                status,
                message: message(" (check the key in WARPTREE_API_KEY or OPENAI_API_KEY)"),
            },
            404 => ChatError::Rejected {
                status,
                message: message(" (check --model and --base-url)"),
            },
            _ => ChatError::Rejected {
                status,
                message: message(""),
            },
        }
    }

    fn reply(&self, text: &str) -> Result<ChatReply, ChatError> {
        let garbage = |why: &str| ChatError::Transient {
            message: self.say(format_args!(
                "sent no chat completion ({why}): {}",
                excerpt(text)
            )),
            retry_after_ms: None,
            may_be_billed: true,
        };
        let body: Value =
            serde_json::from_str(text).map_err(|error| garbage(&error.to_string()))?;
        // Some gateways answer 200 and put the failure in the body.
        if let Some(error) = body.get("error").filter(|error| !error.is_null()) {
            let status = error.get("code").and_then(Value::as_u64).unwrap_or(500);
            let status = u16::try_from(status).unwrap_or(500);
            return Err(self.refused(status, text, &refusal_message(text), None));
        }
        let choice = body
            .get("choices")
            .and_then(|choices| choices.get(0))
            .ok_or_else(|| garbage("no choices in it"))?;
        let message = choice.get("message").unwrap_or(&Value::Null);
        let text = content(message.get("content"));
        let refusal = message.get("refusal").and_then(Value::as_str);
        let finish = match choice.get("finish_reason").and_then(Value::as_str) {
            _ if text.is_empty() && refusal.is_some() => Finish::Refused,
            Some("stop") | None => Finish::Stop,
            Some("length") => Finish::Length,
            Some("content_filter") => Finish::Refused,
            Some(other) => Finish::Other(other.to_owned()),
        };
        let text = match refusal {
            Some(refusal) if text.is_empty() => refusal.to_owned(),
            Some(_) | None => text,
        };
        Ok(ChatReply {
            text: self.redact(text),
            finish,
            usage: usage(body.get("usage").unwrap_or(&Value::Null)),
        })
    }

    fn transport(&self, error: &reqwest::Error) -> ChatError {
        let (what, may_be_billed) = if error.is_connect() {
            ("cannot be reached", false)
        } else if error.is_timeout() {
            ("did not answer in time", true)
        } else {
            ("broke off the connection", true)
        };
        ChatError::Transient {
            message: self.say(format_args!("{what}: {}", chain(error))),
            retry_after_ms: None,
            may_be_billed,
        }
    }

    fn unread(&self, error: &std::io::Error) -> ChatError {
        ChatError::Transient {
            message: self.say(format_args!("broke off its answer: {}", chain(error))),
            retry_after_ms: None,
            may_be_billed: true,
        }
    }

    /// A message about this server, with the key struck out.
    fn say(&self, what: fmt::Arguments<'_>) -> String {
        let shown = endpoint::shown(&self.config.url);
        self.redact(format!("{shown} {what}"))
    }

    fn redact(&self, text: String) -> String {
        match &self.config.key {
            Some(key) => key.redact(text),
            None => text,
        }
    }
}

impl Chat for OpenAi {
    fn complete(&self, request: &ChatRequest, _: &mut Tally) -> Result<ChatReply, ChatError> {
        self.attempt(request)
    }

    fn model(&self) -> &str {
        &self.config.model
    }
}

/// Seconds, or OpenAI's own `retry-after-ms`. A date is not read: the policy's own wait serves.
fn retry_after(headers: &HeaderMap) -> Option<u64> {
    let number = |name: &str| -> Option<f64> {
        let value = headers.get(name)?.to_str().ok()?.trim().parse().ok()?;
        (value >= 0.0).then_some(value)
    };
    let milliseconds = number("retry-after-ms")
        .or_else(|| number(RETRY_AFTER.as_str()).map(|seconds| seconds * 1e3))?;
    // Saturates; an absurd wait is judged by the retry policy.
    Some(milliseconds as u64)
}

fn read_body(response: Response) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    response.take(MAX_BODY + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BODY {
        return Err(std::io::Error::other("it is longer than 32 MiB"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The server's own words out of an error body.
fn refusal_message(text: &str) -> String {
    let body: Value = serde_json::from_str(text).unwrap_or(Value::Null);
    // Gemini's endpoint wraps the object in an array.
    let body = body.get(0).unwrap_or(&body);
    let error = body.get("error").unwrap_or(body);
    let told = [
        error.get("message"),
        body.get("message"),
        body.get("detail"),
        Some(error),
    ]
    .into_iter()
    .flatten()
    .find_map(Value::as_str);
    excerpt(told.unwrap_or(text))
}

fn is_too_long(lower: &str) -> bool {
    [
        "context_length_exceeded",
        "exceed_context_size",
        "context length",
        "context size",
        "context window",
        "maximum context",
        "prompt is too long",
        "input is too long",
        "too many tokens",
    ]
    .iter()
    .any(|sign| lower.contains(sign))
}

/// Text of a message whose content is a string or a list of parts.
fn content(value: Option<&Value>) -> String {
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

fn usage(value: &Value) -> Usage {
    let count = |path: &str| value.pointer(path).and_then(Value::as_u64);
    Usage {
        input: count("/prompt_tokens").unwrap_or(0),
        cached: count("/prompt_tokens_details/cached_tokens")
            .or_else(|| count("/prompt_cache_hit_tokens"))
            .unwrap_or(0),
        cache_written: 0,
        output: count("/completion_tokens").unwrap_or(0),
        reasoning: count("/completion_tokens_details/reasoning_tokens").unwrap_or(0),
    }
}

fn excerpt(text: &str) -> String {
    const LONGEST: usize = 600;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None if line.is_empty() => "(nothing)".to_owned(),
        None => line,
    }
}

/// An error with its causes; reqwest's own text hides them. Addresses are left out: they may hold a query.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut parts = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = match error.downcast_ref::<reqwest::Error>() {
            Some(error) if error.source().is_some() => String::new(),
            Some(_) | None => error.to_string(),
        };
        if !text.is_empty() && !parts.contains(&text) {
            parts.push(text);
        }
        next = error.source();
    }
    parts.join(": ")
}
