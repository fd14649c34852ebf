//! The HTTP client against a scripted server: what is sent, what is repeated, what is final, what is told.

use std::sync::Arc;
use std::time::{Duration, Instant};

use warptree::llm::{
    Budget, Chat, ChatError, ChatReply, ChatRequest, Finish, Limits, Message, OpenOptions,
    RetryPolicy, Secret, Speaker, Tally, Usage, open,
};

use crate::server::{Server, Turn, completion, refusal};

pub const KEY: &str = "sk-do-not-tell-4711";

pub fn request(text: &str) -> ChatRequest {
    ChatRequest {
        system: "You write PTX.".to_owned(),
        messages: vec![Message {
            speaker: Speaker::User,
            text: text.to_owned(),
        }],
        max_output_tokens: Some(1000),
        schema: None,
        temperature: None,
        sample: 0,
    }
}

pub fn options() -> OpenOptions {
    OpenOptions {
        total_timeout: Some(Duration::from_millis(400)),
        retry: RetryPolicy {
            attempts: 3,
            min_delay: Duration::from_millis(2),
            max_delay: Duration::from_millis(1500),
        },
        key: Some(Secret::new(KEY.to_owned())),
        ..OpenOptions::default()
    }
}

fn client(server: &Server) -> Box<dyn Chat> {
    open("m-1", Some(&server.base), &options()).expect("a good configuration")
}

fn ask(turns: Vec<Turn>) -> (Result<ChatReply, ChatError>, Server) {
    let server = Server::start(turns);
    let reply = client(&server).complete(&request("Go."), &mut Tally::default());
    (reply, server)
}

fn ok(text: &str) -> Turn {
    Turn::Answer(200, "", completion(text))
}

fn fails(status: u16, code: &str, message: &str) -> Turn {
    Turn::Answer(status, "", refusal(code, message))
}

#[test]
fn a_request_is_a_chat_completion_and_the_reply_comes_back_with_its_usage() {
    let (reply, server) = ask(vec![ok("hello")]);
    assert_eq!(
        reply,
        Ok(ChatReply {
            text: "hello".to_owned(),
            finish: Finish::Stop,
            usage: Usage {
                cache_written: 0,
                input: 100,
                cached: 64,
                output: 20,
                reasoning: 5
            },
        })
    );
    let asked = &server.asked()[0];
    assert_eq!(asked.path, "/v1/chat/completions");
    assert!(asked.head.contains(&format!("Bearer {KEY}")));
    assert_eq!(
        asked.body,
        serde_json::json!({
            "model": "m-1",
            "messages": [
                {"role": "system", "content": "You write PTX."},
                {"role": "user", "content": "Go."}
            ],
            "max_tokens": 1000,
            "stream": true,
            "stream_options": {"include_usage": true}
        })
    );
}

#[test]
fn passing_failures_are_repeated() {
    for (what, turn) in [
        ("rate limit", fails(429, "rate_limit_exceeded", "slow down")),
        ("server error", fails(500, "x", "oops")),
        (
            "bad gateway",
            Turn::Answer(502, "", "<html>bad gateway</html>".to_owned()),
        ),
        ("overloaded", fails(529, "x", "overloaded")),
        ("slow", Turn::Silence(Duration::from_millis(700))),
        ("reset in mid-body", Turn::Break),
        ("hang-up", Turn::HangUp),
        (
            "malformed JSON",
            Turn::Answer(200, "", "{\"choices\": [".to_owned()),
        ),
        (
            "no choices",
            Turn::Answer(200, "", "{\"choices\": []}".to_owned()),
        ),
        (
            "a failure sent as 200",
            Turn::Answer(
                200,
                "",
                "{\"error\": {\"code\": 502, \"message\": \"upstream\"}}".to_owned(),
            ),
        ),
    ] {
        let (reply, server) = ask(vec![turn, ok("second")]);
        assert_eq!(
            reply.map(|reply| reply.text).as_deref(),
            Ok("second"),
            "{what}"
        );
        assert_eq!(server.asked().len(), 2, "{what}");
    }
}

#[test]
fn retry_after_is_kept() {
    let start = Instant::now();
    let busy = Turn::Answer(
        429,
        "retry-after: 1\r\n",
        refusal("rate_limit_exceeded", "slow down"),
    );
    let (reply, _) = ask(vec![busy, ok("second")]);
    assert!(reply.is_ok());
    assert!(start.elapsed() >= Duration::from_secs(1));
}

#[test]
fn a_dead_endpoint_ends_in_one_message() {
    let (reply, server) = ask(vec![
        fails(503, "x", "down for maintenance"),
        fails(503, "x", "down for maintenance"),
        fails(503, "x", "down for maintenance"),
        ok("too late"),
    ]);
    let error = reply.expect_err("gives up").to_string();
    assert!(error.contains("after 3 attempts"), "{error}");
    assert!(error.contains("down for maintenance"), "{error}");
    assert_eq!(server.asked().len(), 3);

    // Nobody listens on the discard port.
    let nobody = open("m", Some("http://127.0.0.1:9"), &options()).expect("well formed");
    let error = nobody
        .complete(&request("x"), &mut Tally::default())
        .expect_err("refused")
        .to_string();
    assert!(error.contains("cannot be reached"), "{error}");
}

#[test]
fn refusals_are_final_and_carry_the_server_s_words() {
    for (turn, status, words) in [
        (
            fails(400, "x", "messages must alternate"),
            400,
            "messages must alternate",
        ),
        (
            fails(
                401,
                "invalid_api_key",
                "Incorrect API key provided: sk-do-not-tell-4711.",
            ),
            401,
            "check the key",
        ),
        (
            fails(403, "x", "country not supported"),
            403,
            "country not supported",
        ),
        (
            fails(404, "model_not_found", "The model `m-1` does not exist"),
            404,
            "check --model",
        ),
        (
            fails(429, "insufficient_quota", "You exceeded your current quota"),
            429,
            "no credit left",
        ),
        (
            Turn::Answer(307, "location: http://elsewhere/\r\n", String::new()),
            307,
            "--base-url",
        ),
        (
            Turn::Answer(
                405,
                "",
                "[{\"error\": {\"message\": \"in an array\"}}]".to_owned(),
            ),
            405,
            "in an array",
        ),
    ] {
        let (reply, server) = ask(vec![turn]);
        match reply {
            Err(ChatError::Rejected {
                status: got,
                message,
            }) => {
                assert_eq!(got, status);
                assert!(message.contains(words), "{message}");
                assert!(!message.contains(KEY), "{message}");
            }
            other => panic!("{status}: {other:?}"),
        }
        assert_eq!(server.asked().len(), 1);
    }
}

#[test]
fn a_prompt_that_does_not_fit_is_told_apart() {
    for (code, message) in [
        (
            "context_length_exceeded",
            "This model's maximum context length is 8192 tokens",
        ),
        (
            "x",
            "the request exceeds the available context size. try increasing it",
        ),
    ] {
        let (reply, _) = ask(vec![fails(400, code, message)]);
        assert!(matches!(reply, Err(ChatError::TooLong { .. })), "{reply:?}");
    }
}

#[test]
fn the_length_parameter_is_learnt_from_the_server() {
    let server = Server::start(vec![
        fails(
            400,
            "unsupported_parameter",
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        ),
        fails(
            400,
            "x",
            "max_completion_tokens is too large: 1000. This model supports at most 500",
        ),
        ok("a"),
        ok("b"),
    ]);
    let client = client(&server);
    assert!(
        client
            .complete(&request("x"), &mut Tally::default())
            .is_ok()
    );
    assert!(
        client
            .complete(&request("y"), &mut Tally::default())
            .is_ok()
    );
    let named: Vec<_> = server
        .asked()
        .iter()
        .map(|asked| {
            ["max_tokens", "max_completion_tokens"]
                .into_iter()
                .find(|name| asked.body.get(*name).is_some())
        })
        .collect();
    assert_eq!(
        named,
        [
            Some("max_tokens"),
            Some("max_completion_tokens"),
            None,
            None
        ]
    );
}

#[test]
fn odd_replies_are_read() {
    let with = |message: serde_json::Value, finish: &str| {
        let body = serde_json::json!({"choices": [{"message": message, "finish_reason": finish}], "usage": {"prompt_tokens": -1, "completion_tokens": "many"}});
        let (reply, _) = ask(vec![Turn::Answer(200, "", body.to_string())]);
        reply.map(|reply| (reply.text, reply.finish, reply.usage))
    };
    let none = Usage::default();
    assert_eq!(
        with(serde_json::json!({"content": null}), "stop"),
        Ok((String::new(), Finish::Stop, none))
    );
    assert_eq!(
        with(
            serde_json::json!({"content": [{"type": "text", "text": "a"}, {"type": "image"}, {"text": "b"}]}),
            "length"
        ),
        Ok(("ab".to_owned(), Finish::Length, none))
    );
    assert_eq!(
        with(
            serde_json::json!({"content": null, "refusal": "I cannot"}),
            "stop"
        ),
        Ok(("I cannot".to_owned(), Finish::Refused, none))
    );
    assert_eq!(
        with(
            serde_json::json!({"content": format!("your key is {KEY}")}),
            "tool_calls"
        ),
        Ok((
            "your key is [key]".to_owned(),
            Finish::Other("tool_calls".to_owned()),
            none
        ))
    );
}

#[test]
fn every_attempt_counts_against_the_budget() {
    let server = Server::start(vec![
        fails(500, "x", "oops"),
        fails(500, "x", "oops"),
        ok("never"),
    ]);
    let budget = Arc::new(
        Budget::new(
            Limits {
                calls: Some(2),
                ..Limits::default()
            },
            None,
        )
        .expect("no dollars"),
    );
    let options = OpenOptions {
        budget: Arc::clone(&budget),
        ..options()
    };
    let client = open("m", Some(&server.base), &options).expect("opens");
    let error = client
        .complete(&request("x"), &mut Tally::default())
        .expect_err("two calls are not enough");
    assert!(matches!(error, ChatError::Exhausted { .. }), "{error}");
    assert_eq!(server.asked().len(), 2);
    assert_eq!(budget.spent().failed, 2);
}

#[test]
fn a_model_that_cannot_be_meant_is_refused_before_any_call() {
    let keyless = OpenOptions::default();
    for (spec, base, words) in [
        ("", None, "names nothing"),
        ("cmd:", None, "names nothing"),
        ("script:x.toml", Some("http://h"), "no meaning"),
        ("script:/nowhere/x.toml", None, "/nowhere/x.toml"),
        ("replay:/nowhere/x.jsonl", None, "/nowhere/x.jsonl"),
        ("gpt-5", None, "OPENAI_API_KEY"),
        ("m", Some("h:1"), "http://"),
    ] {
        let error = open(spec, base, &keyless).err().expect(spec).to_string();
        assert!(error.contains(words), "{spec}: {error}");
    }
    assert!(
        format!("{:?}", Secret::new(KEY.to_owned()))
            .find(KEY)
            .is_none()
    );
}
