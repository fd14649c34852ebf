//! What a model is told, and how a conversation goes.

use std::path::Path;
use std::sync::{Arc, Mutex};

use warptree::llm::{
    Chat, ChatError, ChatReply, ChatRequest, Finish, OpenOptions, Speaker, Tally, Usage, open,
};
use warptree::propose::{Ask, AskOptions, ModelProposer, ProposalRequest, ProposeError, Proposer};
use warptree::source::Source;
use warptree::task::Catalogue;
use warptree::verdict::{Diagnostic, Severity, Verdict};

use crate::client::options;
use crate::gpu::h200;
use crate::replies::{best, parent, reduce_sum};

/// Answers from a list, and keeps what it was asked.
struct Listens {
    replies: Mutex<Vec<Result<ChatReply, ChatError>>>,
    asked: Arc<Mutex<Vec<ChatRequest>>>,
}

impl Chat for Listens {
    fn complete(&self, request: &ChatRequest, _: &mut Tally) -> Result<ChatReply, ChatError> {
        self.asked
            .lock()
            .expect("not poisoned")
            .push(request.clone());
        self.replies.lock().expect("not poisoned").remove(0)
    }

    fn model(&self) -> &str {
        "listens"
    }
}

fn says(text: &str) -> Result<ChatReply, ChatError> {
    Ok(ChatReply {
        text: text.to_owned(),
        finish: Finish::Stop,
        usage: Usage::default(),
    })
}

fn ask(
    replies: Vec<Result<ChatReply, ChatError>>,
    options: AskOptions,
    feedback: Option<&Verdict>,
) -> (Result<usize, ProposeError>, Vec<ChatRequest>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let chat = Listens {
        replies: Mutex::new(replies),
        asked: Arc::clone(&asked),
    };
    let (task, source) = (reduce_sum(), parent());
    let history = [
        (
            "model: use shared memory".to_owned(),
            "wrong: never written".to_owned(),
        ),
        ("register cap".to_owned(), "measured, 3 % slower".to_owned()),
    ];
    let result = ModelProposer::new(Arc::new(chat), h200(), options)
        .expect("good templates")
        .propose(
            &ProposalRequest {
                setting: Some(best()),
                feedback,
                history: &history,
                attempt: 3,
                ..ProposalRequest::first(&task, &source)
            },
            &mut Tally::default(),
        );
    let asked = asked.lock().expect("not poisoned").clone();
    (result.map(|proposals| proposals.len()), asked)
}

fn refused_by_ptxas() -> Verdict {
    Verdict::Unassembled {
        diagnostics: vec![Diagnostic {
            severity: Severity::Error,
            code: "ptxas".to_owned(),
            message: "Unknown symbol '%r99'".to_owned(),
            line: Some(33),
            other_line: None,
            help: Some("declare the register".to_owned()),
        }],
    }
}

const GOOD: &str = "```json\n{\"settings\": [{\"ITEMS\": 2}]}\n```";

#[test]
fn the_prompt_tells_task_gpu_source_feedback_history_and_request() {
    let (result, asked) = ask(
        vec![says(GOOD)],
        AskOptions::default(),
        Some(&refused_by_ptxas()),
    );
    assert_eq!(result.expect("a proposal"), 1);
    let [request] = asked.as_slice() else {
        panic!("{} requests", asked.len());
    };
    assert_eq!(request.sample, 3);
    insta::assert_snapshot!("system", request.system);
    insta::assert_snapshot!("user", request.messages[0].text);
}

/// What a model hears when it is asked for `ask`.
fn heard(ask: Ask, prompts: Option<&Path>) -> Result<ChatRequest, ProposeError> {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let chat = Listens {
        replies: Mutex::new(vec![says(GOOD)]),
        asked: Arc::clone(&asked),
    };
    let (task, source) = (reduce_sum(), parent());
    let mut model = ModelProposer::new(Arc::new(chat), h200(), AskOptions::default())?;
    if let Some(folder) = prompts {
        model = model.with_prompts(folder)?;
    }
    let tried = |edit: &str, outcome: &str| (edit.to_owned(), outcome.to_owned());
    let request = ProposalRequest {
        ask: Some(ask),
        path: &[tried("model: unroll", "correct, 700.00 µs (measured)")],
        beside: &[tried("model: one block", "hung: no end")],
        ..ProposalRequest::first(&task, &source)
    };
    model.propose(&request, &mut Tally::default())?;
    let asked = asked.lock().expect("not poisoned").remove(0);
    Ok(asked)
}

#[test]
fn each_kind_of_request_has_its_words_and_only_a_knob_change_a_schema() {
    for (ask, words) in [
        (Ask::KnobChange, "change no code"),
        (Ask::LocalEdit, "a change of a few lines"),
        (Ask::Restructure, "another structure"),
        (Ask::NewKnob, "Turn a constant"),
        (Ask::Repair, "does not count"),
    ] {
        let request = heard(ask, None).expect("a prompt");
        let text = &request.messages[0].text;
        let title = format!("# Request: {}\n", ask.name());
        for part in [
            words,
            &title,
            "model: unroll → correct",
            "model: one block → hung",
            "Roofline",
        ] {
            assert!(text.contains(part), "no `{part}` in\n{text}");
        }
        match (ask, request.schema) {
            (Ask::KnobChange, Some(schema)) => {
                let values = schema
                    .schema
                    .pointer("/properties/settings/items/properties/BLOCK/enum");
                assert_eq!(values, Some(&serde_json::json!([128, 256, 512])));
            }
            (Ask::KnobChange, None) => panic!("no schema"),
            (_, schema) => assert_eq!(schema, None),
        }
    }
}

#[test]
fn a_folder_replaces_templates_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let write =
        |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("writes");
    write("local-edit.md", "Only ever swap two lines.");
    write("notes.txt", "not a template");
    let request = heard(Ask::LocalEdit, Some(folder.path())).expect("a prompt");
    assert!(
        request.messages[0]
            .text
            .ends_with("Only ever swap two lines.")
    );
    for (name, text, words) in [
        ("user.md", "{{ nothing.of.this }}", "nothing"),
        ("user.md", "{% for x in %}", "user.md"),
        (
            "usre.md",
            "x",
            "no template has this name; they are system.md",
        ),
    ] {
        write(name, text);
        let error = heard(Ask::LocalEdit, Some(folder.path()))
            .expect_err(name)
            .to_string();
        assert!(error.contains(words), "{error}");
        std::fs::remove_file(folder.path().join(name)).expect("removes");
    }
}

#[test]
fn a_task_with_target_instructions_is_told_their_spelling() {
    let task = Catalogue::embedded()
        .task("gemm_bf16")
        .expect("is embedded");
    let source = Arc::new(Source::parse(&task.seed).expect("a good seed"));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let chat = Listens {
        replies: Mutex::new(vec![says("no"), says("no")]),
        asked: Arc::clone(&asked),
    };
    let model =
        ModelProposer::new(Arc::new(chat), h200(), AskOptions::default()).expect("templates");
    let request = ProposalRequest::first(&task, &source);
    assert!(model.propose(&request, &mut Tally::default()).is_err());
    let text = asked.lock().expect("not poisoned")[0].messages[0]
        .text
        .clone();
    for part in [
        "wgmma.mma_async.sync.aligned.m64n128k16",
        "The work must be done by",
        "bf16 tensor cores |",
    ] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
}

#[test]
fn a_first_prompt_asks_for_more_speed() {
    let (_, asked) = ask(vec![says(GOOD)], AskOptions::default(), None);
    let text = &asked[0].messages[0].text;
    assert!(text.contains("# Request: improve"), "{text}");
    assert!(!text.contains("What became of it"));
}

#[test]
fn the_length_of_a_prompt_is_bounded() {
    for prompt_limit in [8_000, 10_000, 12_000] {
        let options = AskOptions {
            prompt_limit,
            ..AskOptions::default()
        };
        let (_, asked) = ask(vec![says(GOOD)], options, Some(&refused_by_ptxas()));
        let bytes = asked[0].bytes();
        assert!(
            bytes <= prompt_limit as u64 + 200,
            "{bytes} of {prompt_limit}"
        );
    }
}

#[test]
fn a_prompt_that_does_not_fit_the_model_is_halved_once() {
    let long = || {
        Err(ChatError::TooLong {
            message: "maximum context length".to_owned(),
        })
    };
    let options = AskOptions {
        prompt_limit: 16_000,
        ..AskOptions::default()
    };
    let (result, asked) = ask(vec![long(), says(GOOD)], options, None);
    assert_eq!(result.expect("the shorter one fits"), 1);
    assert!(asked[1].bytes() < asked[0].bytes());
    let (result, _) = ask(vec![long(), long()], options, None);
    assert!(
        matches!(result, Err(ProposeError::Unavailable(_))),
        "{result:?}"
    );
}

#[test]
fn a_reply_that_cannot_be_used_is_told_back_once() {
    let bad = "```json\n{\"settings\": [{\"ITEM\": 2}]}\n```";
    let (result, asked) = ask(vec![says(bad), says(GOOD)], AskOptions::default(), None);
    assert_eq!(result.expect("corrected"), 1);
    let [_, reply, told] = asked[1].messages.as_slice() else {
        panic!("{:?}", asked[1].messages);
    };
    assert_eq!(
        (reply.speaker, reply.text.as_str()),
        (Speaker::Assistant, bad)
    );
    assert!(
        told.text.contains("could not be used") && told.text.contains("ITEMS"),
        "{}",
        told.text
    );

    let (result, asked) = ask(
        vec![says(bad), says("no idea")],
        AskOptions::default(),
        None,
    );
    assert_eq!(asked.len(), 2);
    match result {
        Err(ProposeError::Unusable(message)) => assert!(message.contains("no idea"), "{message}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_recorded_conversation_replays_to_the_same_proposals_in_any_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("toy.toml");
    let text = r#"
        [[reply]]
        text = """```json\n{"settings": [{"ITEMS": 2}]}\n```"""
        [[reply]]
        text = "no idea"
        [[reply]]
        text = """```edit\n<<<<<<< SEARCH\n    ret;\n=======\n    exit;\n>>>>>>> REPLACE\n```"""
        [[reply]]
        contains = ["lines 44 and 61"]
        text = """```json\n{"settings": [{"ITEMS": 1}]}\n```"""
    "#;
    std::fs::write(&script, text).expect("written");
    let record = OpenOptions {
        record: Some(folder.path().join("log.jsonl")),
        ..options()
    };
    let live = open(&format!("script:{}", script.display()), None, &record).expect("opens");
    let replay = || {
        let log = folder.path().join("log.jsonl");
        open(&format!("replay:{}", log.display()), None, &options()).expect("opens")
    };
    let (task, source) = (reduce_sum(), parent());
    let run = |chat: Box<dyn Chat>, attempts: &[u32]| -> Vec<String> {
        let proposer = ModelProposer::new(Arc::from(chat), h200(), AskOptions::default())
            .expect("good templates");
        let mut told: Vec<(u32, String)> = attempts
            .iter()
            .map(|&attempt| {
                let result = proposer.propose(
                    &ProposalRequest {
                        setting: Some(best()),
                        attempt,
                        ..ProposalRequest::first(&task, &source)
                    },
                    &mut Tally::default(),
                );
                (attempt, format!("{result:?}"))
            })
            .collect();
        told.sort();
        told.into_iter().map(|(_, told)| told).collect()
    };
    let first = run(live, &[0, 1, 2, 3]);
    assert!(first[0].contains("Int(2)"), "{}", first[0]);
    assert!(first[1].contains("Unusable"), "{}", first[1]);
    assert!(first[2].contains("Int(1)"), "corrected: {}", first[2]);
    assert_eq!(run(replay(), &[0, 1, 2, 3]), first);
    assert_eq!(run(replay(), &[3, 2, 1, 0]), first);
}

#[test]
fn a_model_out_of_service_says_so_in_one_message() {
    for error in [
        ChatError::Unreachable {
            attempts: 5,
            message: "time-out".to_owned(),
        },
        ChatError::Exhausted {
            message: "the model budget is spent".to_owned(),
        },
        ChatError::Rejected {
            status: 401,
            message: "bad key".to_owned(),
        },
    ] {
        let words = error.to_string();
        let (result, asked) = ask(vec![Err(error)], AskOptions::default(), None);
        assert_eq!(asked.len(), 1);
        match result {
            Err(ProposeError::Away(message) | ProposeError::Unavailable(message)) => {
                assert!(
                    message.contains(&words) && message.contains("listens"),
                    "{message}"
                );
            }
            other => panic!("{other:?}"),
        }
    }
}
