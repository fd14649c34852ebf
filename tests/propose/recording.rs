//! Recording and replay, and the scripted model.

use std::path::Path;

use warptree::llm::{Chat, ChatError, ChatRequest, OpenOptions, Tally, open};

use crate::client::{options, request};
use crate::server::{Server, Turn, completion, refusal};

fn record(server: &Server, path: &Path) -> Box<dyn Chat> {
    let options = OpenOptions {
        record: Some(path.to_owned()),
        ..options()
    };
    open("m-1", Some(&server.base), &options).expect("opens")
}

fn replay(path: &Path) -> Box<dyn Chat> {
    open(&format!("replay:{}", path.display()), None, &options()).expect("opens")
}

/// The exchanges, without the lines that say that one begins.
fn lines(path: &Path) -> Vec<serde_json::Value> {
    std::fs::read_to_string(path)
        .expect("recorded")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .filter(|line: &serde_json::Value| line.get("started").is_none())
        .collect()
}

#[test]
fn a_replay_repeats_replies_and_failures_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("log.jsonl");
    let server = Server::start(vec![
        Turn::Answer(200, "", completion("one")),
        Turn::Answer(500, "", refusal("x", "oops")),
        Turn::Answer(200, "", completion("two")),
        Turn::Answer(401, "", refusal("x", "bad key sk-do-not-tell-4711")),
    ]);
    let ask = |chat: &dyn Chat| {
        [request("a"), request("a"), request("b")]
            .map(|request| chat.complete(&request, &mut Tally::default()))
    };
    let live = ask(record(&server, &file).as_ref());
    assert_eq!(live[1].as_ref().map(|reply| reply.text.as_str()), Ok("two"));
    assert!(matches!(
        live[2],
        Err(ChatError::Rejected { status: 401, .. })
    ));

    assert_eq!(lines(&file).len(), 4, "the failed attempt is recorded too");
    let text = std::fs::read_to_string(&file).expect("recorded");
    assert!(!text.contains("sk-do-not-tell"), "no key in a recording");

    for _ in 0..2 {
        let chat = replay(&file);
        assert_eq!(chat.model(), "m-1");
        assert_eq!(ask(chat.as_ref()), live);
    }
}

#[test]
fn what_was_never_recorded_is_an_error_that_names_the_nearest() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(vec![
        Turn::Answer(200, "", completion("one")),
        Turn::Answer(200, "", completion("two")),
    ]);
    let chat = record(&server, folder.path());
    for text in ["other", "the kernel is slow"] {
        chat.complete(&request(text), &mut Tally::default())
            .expect("answered");
    }
    let chat = replay(folder.path());
    let message = |request: &ChatRequest| match chat.complete(request, &mut Tally::default()) {
        Err(ChatError::Unrecorded { message }) => message,
        other => panic!("{other:?}"),
    };
    let near = message(&request("the kernel is fast"));
    assert!(
        near.contains("line 4") && near.contains("\"slow\"") && near.contains("\"fast\""),
        "{near}"
    );

    let hotter = ChatRequest {
        temperature: Some(1.0),
        ..request("other")
    };
    assert!(
        message(&hotter).contains("parameters"),
        "parameters are part of the hash"
    );
    let drawn = ChatRequest {
        sample: 1,
        ..request("other")
    };
    assert!(message(&drawn).contains("sample number"));

    assert!(
        chat.complete(&request("other"), &mut Tally::default())
            .is_ok()
    );
    assert!(message(&request("other")).contains("asked once more"));
}

#[test]
fn a_recording_goes_on_after_a_kill_and_keeps_models_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("log.jsonl");
    let server = Server::start(vec![
        Turn::Answer(200, "", completion("one")),
        Turn::Answer(200, "", completion("two")),
    ]);
    record(&server, &file)
        .complete(&request("a"), &mut Tally::default())
        .expect("answered");
    let mut text = std::fs::read_to_string(&file).expect("recorded");
    let whole = text.len();
    text.push_str("{\"version\":1,\"ha");
    std::fs::write(&file, &text).expect("torn");
    record(&server, &file)
        .complete(&request("a"), &mut Tally::default())
        .expect("answered");
    let lines = lines(&file);
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[1]["occurrence"], 1);

    let other = OpenOptions {
        record: Some(file.clone()),
        ..options()
    };
    let error = open("m-2", Some(&server.base), &other)
        .err()
        .expect("another model")
        .to_string();
    assert!(error.contains("`m-1`, not `m-2`"), "{error}");

    let broken = format!("nonsense\n{}", &text[..whole]);
    std::fs::write(&file, broken).expect("written");
    let error = open(&format!("replay:{}", file.display()), None, &options())
        .err()
        .expect("broken");
    assert!(error.to_string().contains("line 1"), "{error}");
}

fn script(text: &str, name: &str) -> Result<Box<dyn Chat>, ChatError> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join(name);
    std::fs::write(&file, text).expect("written");
    open(&format!("script:{}", file.display()), None, &options())
}

#[test]
fn a_script_answers_by_prompt_and_by_sample_whoever_asks_first() {
    let chat = script(
        r#"
            model = "toy"
            [[reply]]
            text = "first"
            [[reply]]
            text = "second"
            [[reply]]
            contains = ["repair"]
            text = "mended"
            [[reply]]
            contains = ["repair", "down"]
            error = { kind = "rejected", status = 403, message = "no" }
        "#,
        "replies.toml",
    )
    .expect("a good script");
    assert_eq!(chat.model(), "toy");
    let ask = |text: &str, sample: u32| {
        let request = ChatRequest {
            sample,
            ..request(text)
        };
        chat.complete(&request, &mut Tally::default())
            .map(|reply| reply.text)
    };
    assert_eq!(ask("improve", 1).as_deref(), Ok("second"));
    assert_eq!(ask("improve", 0).as_deref(), Ok("first"));
    assert_eq!(ask("improve", 0).as_deref(), Ok("second"), "asked again");
    assert_eq!(ask("improve", 2).as_deref(), Ok("first"));
    assert_eq!(ask("repair", 7).as_deref(), Ok("mended"));
    assert!(matches!(
        ask("repair, down", 0),
        Err(ChatError::Rejected { .. })
    ));
}

#[test]
fn a_shuffled_script_spreads_over_prompts_and_repeats_itself() {
    let text = r#"{"order": "shuffled", "reply": [{"text": "a"}, {"text": "b"}, {"text": "c"}]}"#;
    let draw = || {
        let chat = script(text, "three.json").expect("a good script");
        assert_eq!(chat.model(), "three");
        (0..20)
            .map(|n| {
                chat.complete(&request(&format!("prompt {n}")), &mut Tally::default())
                    .expect("answered")
                    .text
            })
            .collect::<String>()
    };
    let drawn = draw();
    assert_eq!(drawn, draw());
    assert!(
        ["a", "b", "c"].iter().all(|reply| drawn.contains(reply)),
        "{drawn}"
    );
}

#[test]
fn a_bad_script_says_what_is_wrong() {
    for (text, name, words) in [
        ("reply = []", "a.toml", "at least one"),
        (
            "[[reply]]\ncontains = []",
            "a.toml",
            "either `text` or `error`",
        ),
        ("[[reply]]\ntxt = 'x'", "a.toml", "txt"),
        ("{\"reply\": [{\"text\": 1}]}", "a.json", "line 1"),
    ] {
        let error = script(text, name).err().expect(text).to_string();
        assert!(error.contains(words) && error.contains(name), "{error}");
    }
}
