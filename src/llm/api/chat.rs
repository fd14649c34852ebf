//! OpenAI chat completions: the language of vLLM, llama.cpp, Ollama, LM Studio, OpenRouter, DeepSeek and
//! Gemini's compatible endpoint too.

use serde_json::{Value, json};

use super::{Dialect, Failure, Heard, Language, Listener, count, parsed, text_of, turns};
use crate::llm::{ChatReply, ChatRequest, Finish, Secret, Usage};

pub(super) struct Chat;

impl Language for Chat {
    fn home(&self) -> &'static str {
        "https://api.openai.com/v1"
    }

    fn path(&self) -> &'static str {
        "/chat/completions"
    }

    fn key_variable(&self) -> &'static str {
        "OPENAI_API_KEY"
    }

    fn headers(&self, key: Option<&Secret>) -> Vec<(&'static str, String)> {
        let bearer = key.map(|key| ("authorization", format!("Bearer {}", key.reveal())));
        bearer.into_iter().collect()
    }

    fn body(&self, model: &str, request: &ChatRequest, dialect: &Dialect) -> Value {
        let mut messages = Vec::with_capacity(request.messages.len() + 1);
        if !request.system.is_empty() {
            messages.push(json!({"role": "system", "content": request.system}));
        }
        messages.extend(turns(request));
        let mut body = json!({"model": model, "messages": messages});
        if let (Some(name), Some(tokens)) = (dialect.length.name(), request.max_output_tokens) {
            body[name] = json!(dialect.longest(tokens));
        }
        if let (Some(temperature), true) = (request.temperature, dialect.temperature) {
            body["temperature"] = json!(temperature);
        }
        if let (Some(schema), true) = (&request.schema, dialect.schema) {
            body["response_format"] = json!({
                "type": "json_schema",
                "json_schema": {"name": schema.name, "schema": schema.schema, "strict": true},
            });
        }
        if dialect.stream {
            body["stream"] = json!(true);
            if dialect.stream_usage {
                body["stream_options"] = json!({"include_usage": true});
            }
        }
        body
    }

    fn read(&self, body: &Value) -> Result<ChatReply, Failure> {
        let choice = body
            .get("choices")
            .and_then(|choices| choices.get(0))
            .ok_or_else(|| Failure::Garbage("no choices in it".to_owned()))?;
        broken_off(choice)?;
        let message = choice.get("message").unwrap_or(&Value::Null);
        let mut heard = Stream {
            text: text_of(message.get("content")),
            ..Stream::default()
        };
        heard.refuse(message);
        heard.finish = Some(finish(choice).unwrap_or(Finish::Stop));
        heard.usage = usage(body);
        heard
            .reply()
            .ok_or_else(|| Failure::Garbage("no end in it".to_owned()))
    }

    fn listen(&self) -> Box<dyn Listener> {
        Box::<Stream>::default()
    }
}

#[derive(Default)]
struct Stream {
    text: String,
    refusal: String,
    finish: Option<Finish>,
    usage: Option<Usage>,
    done: bool,
}

impl Stream {
    fn refuse(&mut self, message: &Value) {
        if let Some(refusal) = message.get("refusal").and_then(Value::as_str) {
            self.refusal.push_str(refusal);
        }
    }
}

impl Listener for Stream {
    fn hear(&mut self, _: &str, data: &str) -> Result<Heard, Failure> {
        if data.trim() == "[DONE]" {
            self.done = true;
            return Ok(Heard::Done);
        }
        let chunk = parsed(data)?;
        if let Some(usage) = usage(&chunk) {
            self.usage = Some(usage);
        }
        if let Some(choice) = chunk.get("choices").and_then(|choices| choices.get(0)) {
            broken_off(choice)?;
            // Reasoning comes under names of its own and is no part of the reply.
            let delta = choice.get("delta").unwrap_or(&Value::Null);
            self.text.push_str(&text_of(delta.get("content")));
            self.refuse(delta);
            if let Some(finish) = finish(choice) {
                self.finish = Some(finish);
            }
        }
        // A chunk of usage alone comes last, and some servers keep the connection open after it. Others say a
        // reason and the usage so far in every chunk: nothing ends with those.
        let alone = chunk
            .get("choices")
            .and_then(Value::as_array)
            .is_none_or(Vec::is_empty);
        Ok(match (&self.finish, usage(&chunk)) {
            (Some(_), Some(_)) if alone => Heard::Done,
            (Some(_) | None, _) => Heard::More,
        })
    }

    fn reply(&mut self) -> Option<ChatReply> {
        let finish = match (self.finish.take(), self.done) {
            (Some(finish), _) => finish,
            // Ended in good order, without saying why.
            (None, true) => Finish::Stop,
            (None, false) => return None,
        };
        let refused = self.text.is_empty() && !self.refusal.is_empty();
        Some(ChatReply {
            text: std::mem::take(match refused {
                true => &mut self.refusal,
                false => &mut self.text,
            }),
            finish: match refused {
                true => Finish::Refused,
                false => finish,
            },
            usage: self.usage.unwrap_or_default(),
        })
    }
}

/// A reason to stop that is a failure of the server's: DeepSeek's, OpenRouter's and Mistral's, Zhipu's, vLLM's.
fn broken_off(choice: &Value) -> Result<(), Failure> {
    match choice.get("finish_reason").and_then(Value::as_str) {
        Some(reason @ ("insufficient_system_resource" | "error" | "network_error" | "abort")) => {
            Err(Failure::Said(json!({"error": {
                "code": 503, "message": format!("the reply broke off ({reason})"),
            }})))
        }
        Some(_) | None => Ok(()),
    }
}

fn finish(choice: &Value) -> Option<Finish> {
    let reason = choice.get("finish_reason").and_then(Value::as_str)?;
    Some(match reason {
        // as good as null, to some gateways
        "" => return None,
        "stop" => Finish::Stop,
        "length" | "model_length" => Finish::Length,
        "content_filter" => Finish::Refused,
        other => Finish::Other(other.to_owned()),
    })
}

fn usage(body: &Value) -> Option<Usage> {
    let usage = body.get("usage").filter(|usage| usage.is_object())?;
    let input = count(usage, "/prompt_tokens").unwrap_or(0);
    // Gemini's and Grok's servers leave reasoning out of the reply's tokens, but not out of the sum.
    let rest = count(usage, "/total_tokens").map_or(0, |all| all.saturating_sub(input));
    Some(Usage {
        input,
        cached: count(usage, "/prompt_tokens_details/cached_tokens")
            .or_else(|| count(usage, "/prompt_cache_hit_tokens"))
            .unwrap_or(0),
        // OpenRouter's name, where the model behind it has a price for that
        cache_written: count(usage, "/prompt_tokens_details/cache_write_tokens").unwrap_or(0),
        output: count(usage, "/completion_tokens").unwrap_or(0).max(rest),
        reasoning: count(usage, "/completion_tokens_details/reasoning_tokens").unwrap_or(0),
    })
}
