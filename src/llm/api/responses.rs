//! OpenAI responses. Nothing is kept on the server, and no tool is offered.

use serde_json::{Value, json};

use super::{Dialect, Failure, Heard, Language, Listener, count, parsed, turns};
use crate::llm::{ChatReply, ChatRequest, Finish, Secret, Usage};

pub(super) struct Responses;

impl Language for Responses {
    fn home(&self) -> &'static str {
        "https://api.openai.com/v1"
    }

    fn path(&self) -> &'static str {
        "/responses"
    }

    fn key_variable(&self) -> &'static str {
        "OPENAI_API_KEY"
    }

    fn headers(&self, key: Option<&Secret>) -> Vec<(&'static str, String)> {
        let bearer = key.map(|key| ("authorization", format!("Bearer {}", key.reveal())));
        bearer.into_iter().collect()
    }

    fn body(&self, model: &str, request: &ChatRequest, dialect: &Dialect) -> Value {
        let mut body = json!({"model": model, "input": turns(request), "store": false});
        if !request.system.is_empty() {
            body["instructions"] = json!(request.system);
        }
        if let (Some(_), Some(tokens)) = (dialect.length.name(), request.max_output_tokens) {
            body["max_output_tokens"] = json!(dialect.longest(tokens));
        }
        if let (Some(temperature), true) = (request.temperature, dialect.temperature) {
            body["temperature"] = json!(temperature);
        }
        if let (Some(schema), true) = (&request.schema, dialect.schema) {
            body["text"] = json!({"format": {
                "type": "json_schema", "name": schema.name, "schema": schema.schema, "strict": true,
            }});
        }
        if dialect.stream {
            body["stream"] = json!(true);
        }
        body
    }

    fn read(&self, body: &Value) -> Result<ChatReply, Failure> {
        let status = body.get("status").and_then(Value::as_str);
        if status == Some("failed") {
            return Err(Failure::Said(body.clone()));
        }
        let output = body
            .get("output")
            .and_then(Value::as_array)
            .ok_or_else(|| Failure::Garbage("no output in it".to_owned()))?;
        let parts = output
            .iter()
            .filter(|item| item.get("type").and_then(Value::as_str) == Some("message"))
            .filter_map(|item| item.get("content").and_then(Value::as_array))
            .flatten();
        let (mut text, mut refusal) = (String::new(), String::new());
        for part in parts {
            let word = |name: &str| part.get(name).and_then(Value::as_str).unwrap_or("");
            match word("type") {
                "output_text" => text.push_str(word("text")),
                "refusal" => refusal.push_str(word("refusal")),
                _ => {}
            }
        }
        let refused = text.is_empty() && !refusal.is_empty();
        let reason = body
            .pointer("/incomplete_details/reason")
            .and_then(Value::as_str);
        let finish = match (refused, status, reason) {
            (true, ..) => Finish::Refused,
            (false, Some("completed") | None, _) => Finish::Stop,
            (false, Some("incomplete"), Some("max_output_tokens")) => Finish::Length,
            (false, Some("incomplete"), Some("content_filter")) => Finish::Refused,
            (false, Some(other), _) => Finish::Other(other.to_owned()),
        };
        Ok(ChatReply {
            text: if refused { refusal } else { text },
            finish,
            usage: Usage {
                input: count(body, "/usage/input_tokens").unwrap_or(0),
                cached: count(body, "/usage/input_tokens_details/cached_tokens").unwrap_or(0),
                cache_written: 0,
                output: count(body, "/usage/output_tokens").unwrap_or(0),
                reasoning: count(body, "/usage/output_tokens_details/reasoning_tokens")
                    .unwrap_or(0),
            },
        })
    }

    fn listen(&self) -> Box<dyn Listener> {
        Box::<Stream>::default()
    }
}

/// The last event holds the whole reply; some servers leave its text out there, so the pieces are kept.
#[derive(Default)]
struct Stream {
    text: String,
    last: Option<ChatReply>,
}

impl Listener for Stream {
    fn hear(&mut self, event: &str, data: &str) -> Result<Heard, Failure> {
        if data.trim() == "[DONE]" {
            return Ok(Heard::Done);
        }
        let value = parsed(data)?;
        let kind = value.get("type").and_then(Value::as_str).unwrap_or(event);
        match kind {
            "response.output_text.delta" => {
                let delta = value.get("delta").and_then(Value::as_str);
                self.text.push_str(delta.unwrap_or(""));
                Ok(Heard::More)
            }
            "response.completed" | "response.incomplete" => {
                let whole = value.get("response").unwrap_or(&Value::Null);
                self.last = Some(Responses.read(whole)?);
                Ok(Heard::Done)
            }
            "response.failed" => Err(Failure::Said(
                value.get("response").cloned().unwrap_or(value),
            )),
            "error" => Err(Failure::Said(json!({ "error": value }))),
            _ => Ok(Heard::More),
        }
    }

    fn reply(&mut self) -> Option<ChatReply> {
        let mut reply = self.last.take()?;
        if reply.text.is_empty() {
            reply.text = std::mem::take(&mut self.text);
        }
        Some(reply)
    }
}
