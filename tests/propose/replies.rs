//! Every way in which models were seen to answer: `tests/data/replies/NAME.md` is a reply, `NAME.json`
//! beside it what must come of it. The source asked about is `parent.ptx` there, of the task `reduce_sum`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use warptree::llm::{Chat, ChatError, ChatReply, ChatRequest, Finish, Tally, Usage};
use warptree::propose::{
    AskOptions, ModelProposer, Proposal, ProposalRequest, ProposeError, Proposer,
};
use warptree::source::{KnobValue, Setting, Source};
use warptree::task::{Catalogue, Task};

use crate::gpu::h200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// What is special about the reply, for readers.
    about: String,
    /// Where the server says why it ended; `stop` else.
    finish: Option<Finish>,
    /// What a model says when asked to go on after a cut.
    rest: Option<String>,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Proposal(Expected),
    /// Texts that the message holds.
    Unusable(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    #[serde(default)]
    label: Option<String>,
    /// The child's text holds these.
    #[serde(default)]
    has: Vec<String>,
    /// And none of these.
    #[serde(default)]
    lacks: Vec<String>,
    /// The text is the parent's.
    #[serde(default)]
    same_text: bool,
    /// Exactly these settings, in order; others are at the parent's best.
    settings: Option<Vec<Setting>>,
    /// The rationale holds these.
    #[serde(default)]
    rationale: Vec<String>,
}

/// Says one thing, then another when asked to go on.
struct Says {
    first: ChatReply,
    rest: Option<String>,
}

impl Chat for Says {
    fn complete(&self, request: &ChatRequest, _: &mut Tally) -> Result<ChatReply, ChatError> {
        if request.messages.len() == 1 {
            return Ok(self.first.clone());
        }
        match &self.rest {
            Some(rest) => Ok(answer(rest.clone(), Finish::Stop)),
            None => Ok(answer(String::new(), Finish::Length)),
        }
    }

    fn model(&self) -> &str {
        "says"
    }
}

fn answer(text: String, finish: Finish) -> ChatReply {
    ChatReply {
        text,
        finish,
        usage: Usage::default(),
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/replies")
}

pub fn parent() -> Arc<Source> {
    let text = std::fs::read_to_string(folder().join("parent.ptx")).expect("is there");
    Arc::new(Source::parse(&text).expect("the parent is a good source"))
}

pub fn reduce_sum() -> Task {
    Catalogue::embedded()
        .task("reduce_sum")
        .expect("is embedded")
}

/// The parent's best setting so far: not the default.
pub fn best() -> Setting {
    Setting::from([
        ("BLOCK".to_owned(), KnobValue::Int(512)),
        ("ITEMS".to_owned(), KnobValue::Int(4)),
        ("CACHE".to_owned(), KnobValue::Text(String::new())),
    ])
}

fn propose(
    text: String,
    case: &Case,
    parent: &Arc<Source>,
    task: &Task,
) -> Result<Vec<Proposal>, ProposeError> {
    let chat = Says {
        first: answer(text, case.finish.clone().unwrap_or(Finish::Stop)),
        rest: case.rest.clone(),
    };
    let options = AskOptions {
        corrections: 0,
        ..AskOptions::default()
    };
    ModelProposer::new(Arc::new(chat), h200(), options)
        .expect("good templates")
        .propose(
            &ProposalRequest {
                setting: Some(best()),
                ..ProposalRequest::first(task, parent)
            },
            &mut Tally::default(),
        )
}

fn fault(case: &Case, parent: &Source, got: Result<Vec<Proposal>, ProposeError>) -> Option<String> {
    match (&case.outcome, got) {
        (Outcome::Unusable(words), Err(ProposeError::Unusable(message))) => words
            .iter()
            .find(|word| !message.contains(*word))
            .map(|word| format!("`{word}` is not in the message: {message}")),
        (Outcome::Proposal(expected), Ok(proposals)) => {
            let [proposal] = proposals.as_slice() else {
                return Some(format!("{} proposals", proposals.len()));
            };
            if Source::parse(&proposal.text).is_err() {
                return Some("the child is no source".to_owned());
            }
            let text = &proposal.text;
            let rationale = proposal.rationale.as_deref().unwrap_or("");
            let full: Option<Vec<Setting>> = expected.settings.as_ref().map(|settings| {
                let whole = |own: &Setting| best().into_iter().chain(own.clone()).collect();
                settings.iter().map(whole).collect()
            });
            let missing = expected.has.iter().find(|part| !text.contains(*part));
            let left = expected.lacks.iter().find(|part| text.contains(*part));
            let unsaid = expected
                .rationale
                .iter()
                .find(|part| !rationale.contains(*part));
            if let Some(part) = missing {
                Some(format!("the child lacks `{part}`:\n{text}"))
            } else if let Some(part) = left {
                Some(format!("the child holds `{part}`:\n{text}"))
            } else if expected.same_text != (*text == parent.text) {
                Some(
                    "the text is changed where it should not be, or not where it should".to_owned(),
                )
            } else if full.as_ref().is_some_and(|full| *full != proposal.settings) {
                Some(format!("settings {:?}", proposal.settings))
            } else if let Some(part) = unsaid {
                Some(format!("the rationale lacks `{part}`: {rationale}"))
            } else {
                (expected.label.as_ref())
                    .filter(|label| **label != proposal.label)
                    .map(|_| format!("label `{}`", proposal.label))
            }
        }
        (_, got) => Some(format!("{got:?}")),
    }
}

fn markdown_files() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder())
        .expect("is there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    files.sort();
    files
}

/// Whatever comes in, what comes out is a message or a source that reads, with settings it can render.
fn holds(text: String, parent: &Arc<Source>, task: &Task) {
    let case = Case {
        about: String::new(),
        finish: None,
        rest: None,
        outcome: Outcome::Unusable(Vec::new()),
    };
    match propose(text, &case, parent, task) {
        Ok(proposals) => {
            for proposal in proposals {
                let child = Source::parse(&proposal.text).expect("the child is a source");
                for setting in &proposal.settings {
                    let point = child
                        .space()
                        .point(setting)
                        .expect("a setting of the child");
                    assert!(child.space().is_valid(&point));
                }
                assert!(!proposal.label.contains(['\n', '\u{1b}']));
            }
        }
        Err(ProposeError::Unusable(message)) => assert!(!message.is_empty()),
        Err(ProposeError::Away(message) | ProposeError::Unavailable(message)) => {
            panic!("a reply does not end the service: {message}")
        }
    }
}

#[test]
fn a_reply_cut_anywhere_is_no_accident() {
    let (parent, task) = (parent(), reduce_sum());
    for path in markdown_files() {
        let text = std::fs::read_to_string(&path).expect("readable");
        // Lines are where forms change; within one, every place is like another.
        let mut ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
        ends.extend(text.char_indices().map(|(at, _)| at).step_by(61));
        for end in ends {
            holds(text[..end].to_owned(), &parent, &task);
        }
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(300))]

    #[test]
    fn garbage_is_never_more_than_a_message(
        seed in proptest::collection::vec((0_usize..100_000, 0_usize..100_000, "\\PC{0,12}"), 1..6),
    ) {
        let (parent, task) = (parent(), reduce_sum());
        let files = markdown_files();
        let mut text = String::new();
        for (file, line, noise) in seed {
            let part = std::fs::read_to_string(&files[file % files.len()]).expect("readable");
            let lines: Vec<&str> = part.lines().collect();
            let from = line % lines.len().max(1);
            text.push_str(&lines[from..].join("\n"));
            text.push_str(&noise);
            text.push('\n');
        }
        holds(text, &parent, &task);
    }
}

#[test]
fn every_reply_comes_to_what_stands_beside_it() {
    let (parent, task) = (parent(), reduce_sum());
    let mut faults = Vec::new();
    let mut count = 0;
    for path in markdown_files() {
        let text = std::fs::read_to_string(&path).expect("readable");
        let expected =
            std::fs::read_to_string(path.with_extension("json")).expect("an expectation beside it");
        let case: Case = serde_json::from_str(&expected)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(!case.about.is_empty());
        count += 1;
        if let Some(fault) = fault(&case, &parent, propose(text, &case, &parent, &task)) {
            faults.push(format!("{}: {fault}", path.display()));
        }
    }
    assert!(
        faults.is_empty(),
        "{} of {count}:\n{}",
        faults.len(),
        faults.join("\n\n")
    );
    assert!(count >= 40, "{count} replies");
}
