//! Anthropic messages. The system prompt is marked for the server's cache: it is the same in every request.

use serde_json::{Value, json};

use super::{Dialect, Failure, Heard, Language, Listener, UNSTATED, count, parsed, turns};
use crate::llm::{ChatReply, ChatRequest, Finish, Secret, Usage};

pub(super) struct Messages;

/// The version of the language, as its header says it.
const VERSION: &str = "2023-06-01";

impl Language for Messages {
    fn home(&self) -> &'static str {
        "https://api.anthropic.com/v1"
    }

    fn path(&self) -> &'static str {
        "/messages"
    }

    fn key_variable(&self) -> &'static str {
        "ANTHROPIC_API_KEY"
    }

    fn headers(&self, key: Option<&Secret>) -> Vec<(&'static str, String)> {
        let mut headers = vec![("anthropic-version", VERSION.to_owned())];
        headers.extend(key.map(|key| ("x-api-key", key.reveal().to_owned())));
        headers
    }

    fn body(&self, model: &str, request: &ChatRequest, dialect: &Dialect) -> Value {
        // The language wants a length said.
        let longest = dialect.longest(request.max_output_tokens.unwrap_or(UNSTATED));
        let mut body = json!({"model": model, "max_tokens": longest, "messages": turns(request)});
        if !request.system.is_empty() {
            body["system"] = json!([{
                "type": "text", "text": request.system, "cache_control": {"type": "ephemeral"},
            }]);
        }
        if let (Some(temperature), true) = (request.temperature, dialect.temperature) {
            body["temperature"] = json!(temperature);
        }
        if let (Some(schema), true) = (&request.schema, dialect.schema) {
            body["output_config"] =
                json!({"format": {"type": "json_schema", "schema": schema.schema}});
        }
        if dialect.stream {
            body["stream"] = json!(true);
        }
        body
    }

    fn read(&self, body: &Value) -> Result<ChatReply, Failure> {
        let blocks = body
            .get("content")
            .and_then(Value::as_array)
            .ok_or_else(|| Failure::Garbage("no content in it".to_owned()))?;
        // Thinking comes in blocks of its own and is no part of the reply.
        let text = blocks
            .iter()
            .filter(|block| block.get("type").and_then(Value::as_str) == Some("text"))
            .filter_map(|block| block.get("text").and_then(Value::as_str))
            .collect();
        let mut tokens = Tokens::default();
        tokens.take(body.get("usage"));
        Ok(ChatReply {
            text,
            finish: finish(body).unwrap_or(Finish::Stop),
            usage: tokens.usage(),
        })
    }

    fn listen(&self) -> Box<dyn Listener> {
        Box::<Stream>::default()
    }
}

#[derive(Default)]
struct Stream {
    text: String,
    finish: Option<Finish>,
    tokens: Tokens,
    stopped: bool,
}

impl Listener for Stream {
    fn hear(&mut self, event: &str, data: &str) -> Result<Heard, Failure> {
        let value = parsed(data)?;
        let kind = value.get("type").and_then(Value::as_str).unwrap_or(event);
        match kind {
            "message_start" => self.tokens.take(value.pointer("/message/usage")),
            "content_block_start" => {
                let text = value.pointer("/content_block/text").and_then(Value::as_str);
                self.text.push_str(text.unwrap_or(""));
            }
            "content_block_delta" => {
                // `thinking_delta` and `signature_delta` have other fields.
                let text = value.pointer("/delta/text").and_then(Value::as_str);
                self.text.push_str(text.unwrap_or(""));
            }
            "message_delta" => {
                self.tokens.take(value.get("usage"));
                self.finish = value.get("delta").and_then(finish).or(self.finish.take());
            }
            "message_stop" => {
                self.stopped = true;
                return Ok(Heard::Done);
            }
            "error" => return Err(Failure::Said(value)),
            _ => {}
        }
        Ok(Heard::More)
    }

    fn reply(&mut self) -> Option<ChatReply> {
        let finish = match (self.finish.take(), self.stopped) {
            (Some(finish), _) => finish,
            (None, true) => Finish::Stop,
            (None, false) => return None,
        };
        Some(ChatReply {
            text: std::mem::take(&mut self.text),
            finish,
            usage: self.tokens.usage(),
        })
    }
}

/// Counts as they come: the first event has those of the prompt, a later one those of the reply.
#[derive(Default)]
struct Tokens {
    plain: u64,
    cached: u64,
    written: u64,
    output: u64,
}

impl Tokens {
    fn take(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage else { return };
        for (own, name) in [
            (&mut self.plain, "/input_tokens"),
            (&mut self.cached, "/cache_read_input_tokens"),
            (&mut self.written, "/cache_creation_input_tokens"),
            (&mut self.output, "/output_tokens"),
        ] {
            *own = count(usage, name).map_or(*own, |count| count.max(*own));
        }
    }

    fn usage(&self) -> Usage {
        Usage {
            input: self
                .plain
                .saturating_add(self.cached)
                .saturating_add(self.written),
            cached: self.cached,
            cache_written: self.written,
            output: self.output,
            reasoning: 0,
        }
    }
}

fn finish(message: &Value) -> Option<Finish> {
    let reason = message.get("stop_reason").and_then(Value::as_str)?;
    Some(match reason {
        "end_turn" | "stop_sequence" => Finish::Stop,
        "max_tokens" | "model_context_window_exceeded" => Finish::Length,
        "refusal" => Finish::Refused,
        other => Finish::Other(other.to_owned()),
    })
}
