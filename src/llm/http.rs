//! One attempt over HTTP, in whatever language the server speaks: sent, listened to until its end, its idle
//! time and its whole time bounded, its failures told apart. It repeats nothing but the question of what the
//! server understands.

use std::io::{self, Read};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use reqwest::Url;
use reqwest::blocking::{Client, Response};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect;
use rustls::crypto::ring;
use serde_json::Value;

use super::api::{Api, Dialect, Failure, Heard, UNSTATED};
use super::events::Decoder;
use super::refusal::{Refusal, excerpt, is_too_long, retry_after, retry_delay, said, status_of};
use super::{Chat, ChatError, ChatReply, ChatRequest, Secret, Tally, endpoint};

pub(super) struct Config {
    pub(super) model: String,
    pub(super) api: Api,
    pub(super) url: Url,
    pub(super) key: Option<Secret>,
    pub(super) connect_timeout: Duration,
    /// Longest silence.
    pub(super) idle_timeout: Duration,
    /// Longest wait for a whole reply.
    pub(super) total_timeout: Duration,
}

pub(super) struct HttpModel {
    config: Config,
    client: Client,
    /// What the server is known to understand.
    dialect: Mutex<Dialect>,
}

/// A reply longer than this is no reply.
const MAX_BODY: u64 = 32 << 20;

impl HttpModel {
    pub(super) fn new(config: Config) -> Result<Self, ChatError> {
        let configuration = |message: String| ChatError::Configuration { message };
        let language = config.api.language();
        let home = Url::parse(language.home()).ok();
        let official = home.is_some_and(|home| home.host_str() == config.url.host_str());
        if official && config.key.is_none() {
            return Err(configuration(format!(
                "--model {} needs a key for {}: set {}, or name another server with --base-url",
                config.model,
                config.url.host_str().unwrap_or_default(),
                language.key_variable()
            )));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in language.headers(config.key.as_ref()) {
            let mut value = HeaderValue::from_str(&value).map_err(|_| {
                configuration(format!(
                    "the key in WARPTREE_API_KEY or {} holds characters that no key has; set it again",
                    language.key_variable()
                ))
            })?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(name), value);
        }
        // Once in a process; whoever comes second finds it there.
        let _ = ring::default_provider().install_default();
        let mut builder = Client::builder()
            .user_agent(concat!("warptree/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers)
            .redirect(redirect::Policy::none())
            .connect_timeout(config.connect_timeout);
        if endpoint::is_local(&config.url) {
            builder = builder.no_proxy();
        }
        let client = builder
            .build()
            .map_err(|error| configuration(format!("no HTTP client: {}", chain(&error))))?;
        Ok(Self {
            dialect: Mutex::new(Dialect::assumed(official)),
            client,
            config,
        })
    }

    fn attempt(&self, request: &ChatRequest) -> Result<ChatReply, ChatError> {
        let dialect = *self.dialect.lock().unwrap_or_else(PoisonError::into_inner);
        let language = self.config.api.language();
        let body = language.body(&self.config.model, request, &dialect);
        let started = Instant::now();
        // Between two reads, and before the first: a stream is never silent for longer than it may be idle.
        let quiet = match dialect.stream {
            true => self.config.idle_timeout.min(self.config.total_timeout),
            false => self.config.total_timeout,
        };
        let response = self
            .client
            .post(self.config.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("accept", "application/json, text/event-stream")
            .timeout(quiet)
            .body(body.to_string())
            .send()
            .map_err(|error| self.transport(&error))?;
        let status = response.status().as_u16();
        let wait = retry_after(response.headers(), SystemTime::now());
        let mut chunks = Chunks {
            response,
            deadline: started + self.config.total_timeout,
            left: MAX_BODY,
        };
        if !(200..300).contains(&status) {
            let text = chunks.text().map_err(|error| self.broken_off(&error))?;
            let wait = wait.or_else(|| retry_delay(&text));
            return Err(self.refused(status, &text, wait, (dialect, request)));
        }
        if chunks.is_stream() {
            return self.listen(chunks);
        }
        let text = chunks.text().map_err(|error| self.broken_off(&error))?;
        self.read(&text)
    }

    /// A whole reply.
    fn read(&self, text: &str) -> Result<ChatReply, ChatError> {
        let body: Value =
            serde_json::from_str(text).map_err(|error| self.garbage(&error.to_string(), text))?;
        // Some gateways answer 200 and put the failure in the body.
        let failed = body.get("error").is_some_and(|error| !error.is_null());
        let read = match failed {
            true => Err(Failure::Said(body)),
            false => self.config.api.language().read(&body),
        };
        match read {
            Ok(reply) => Ok(self.redacted(reply)),
            Err(Failure::Garbage(why)) => Err(self.garbage(&why, text)),
            // Nothing was written: the failure came in the reply's place.
            Err(Failure::Said(error)) => Err(self.failed(&error, false)),
        }
    }

    /// A reply in pieces.
    fn listen(&self, mut chunks: Chunks) -> Result<ChatReply, ChatError> {
        let mut listener = self.config.api.language().listen();
        let mut decoder = Decoder::default();
        let mut heard_anything = false;
        let mut failure = None;
        'stream: loop {
            let (events, ended) = match chunks.next() {
                Some(Ok(bytes)) => (decoder.feed(&bytes), false),
                Some(Err(error)) => {
                    failure = Some(self.broken_off(&error));
                    break;
                }
                None => (decoder.finish().into_iter().collect(), true),
            };
            for event in events {
                match listener.hear(&event.name, &event.data) {
                    Ok(Heard::More) => heard_anything = true,
                    Ok(Heard::Done) => break 'stream,
                    Err(Failure::Said(error)) => return Err(self.failed(&error, heard_anything)),
                    Err(Failure::Garbage(why)) => return Err(self.garbage(&why, &event.data)),
                }
            }
            if ended {
                break;
            }
        }
        // What breaks after the reply's end is not missed.
        match listener.reply() {
            Some(reply) => Ok(self.redacted(reply)),
            None => Err(failure.unwrap_or_else(|| ChatError::Transient {
                message: self.say("broke off its answer before the end"),
                retry_after_ms: None,
                may_be_billed: true,
            })),
        }
    }

    fn refused(
        &self,
        status: u16,
        text: &str,
        wait: Option<u64>,
        (used, request): (Dialect, &ChatRequest),
    ) -> ChatError {
        let lower = text.to_lowercase();
        let complains = matches!(status, 400 | 404 | 413 | 422);
        let asked = request.max_output_tokens.unwrap_or(UNSTATED);
        let next = match complains {
            // A prompt that is too long is refused with the words of a parameter on some servers; what is too
            // long may be the prompt and the reply together.
            true => used.shorter(&lower, asked).or_else(|| {
                let prompt = is_too_long(&lower);
                (!prompt).then(|| used.without(&said(text).to_lowercase()))?
            }),
            false => None,
        };
        if let Some(next) = next {
            *self.dialect.lock().unwrap_or_else(PoisonError::into_inner) = next;
            return ChatError::Transient {
                message: self.say(&format!("answered HTTP {status}: {}", said(text))),
                retry_after_ms: Some(0),
                may_be_billed: false,
            };
        }
        let refusal = Refusal {
            status,
            body: text,
            wait,
            begun: false,
        };
        refusal.error(self.config.api.language().key_variable(), |text| {
            self.say(text)
        })
    }

    /// A failure inside an answer of status 200.
    fn failed(&self, error: &Value, begun: bool) -> ChatError {
        let refusal = Refusal {
            status: status_of(error),
            body: &error.to_string(),
            wait: None,
            begun,
        };
        refusal.error(self.config.api.language().key_variable(), |text| {
            self.say(text)
        })
    }

    fn garbage(&self, why: &str, text: &str) -> ChatError {
        ChatError::Transient {
            message: self.say(&format!(
                "sent no reply that can be read ({why}): {}",
                excerpt(text)
            )),
            retry_after_ms: None,
            may_be_billed: true,
        }
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
            message: self.say(&format!("{what}: {}", chain(error))),
            retry_after_ms: None,
            may_be_billed,
        }
    }

    fn broken_off(&self, error: &io::Error) -> ChatError {
        ChatError::Transient {
            message: self.say(&format!("broke off its answer: {}", chain(error))),
            retry_after_ms: None,
            may_be_billed: true,
        }
    }

    fn redacted(&self, reply: ChatReply) -> ChatReply {
        ChatReply {
            text: self.redact(reply.text),
            ..reply
        }
    }

    /// A message about this server, with the key struck out.
    fn say(&self, what: &str) -> String {
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

impl Chat for HttpModel {
    fn complete(&self, request: &ChatRequest, _: &mut Tally) -> Result<ChatReply, ChatError> {
        self.attempt(request)
    }

    fn model(&self) -> &str {
        &self.config.model
    }
}

/// A body as it arrives, until its deadline and no longer than a reply can be.
struct Chunks {
    response: Response,
    deadline: Instant,
    left: u64,
}

impl Chunks {
    fn is_stream(&self) -> bool {
        let kind = self.response.headers().get(CONTENT_TYPE);
        kind.and_then(|kind| kind.to_str().ok())
            .is_some_and(|kind| {
                kind.trim_start()
                    .to_ascii_lowercase()
                    .starts_with("text/event-stream")
            })
    }

    /// All of it.
    fn text(&mut self) -> io::Result<String> {
        let mut bytes = Vec::new();
        for chunk in self {
            bytes.extend(chunk?);
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Iterator for Chunks {
    type Item = io::Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut buffer = [0; 8192];
        let read = match self.response.read(&mut buffer) {
            Ok(0) => return None,
            Ok(read) => read,
            Err(error) => return Some(Err(error)),
        };
        self.left = self.left.saturating_sub(read as u64);
        if self.left == 0 {
            return Some(Err(io::Error::other("it is longer than 32 MiB")));
        }
        if Instant::now() > self.deadline {
            return Some(Err(io::Error::other("it took longer than a call may")));
        }
        Some(Ok(buffer[..read].to_vec()))
    }
}

/// An error with its causes; reqwest's own text hides them. Addresses are left out: they may hold a query.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut parts = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = match error.downcast_ref::<reqwest::Error>() {
            Some(error) if std::error::Error::source(error).is_some() => String::new(),
            Some(_) | None => error.to_string(),
        };
        if !text.is_empty() && !parts.contains(&text) {
            parts.push(text);
        }
        next = error.source();
    }
    parts.join(": ")
}
