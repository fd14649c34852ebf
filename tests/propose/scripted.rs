//! The scripted model of `tests/data/models/`: what its replies come to on the task's seed.

use std::path::Path;
use std::sync::Arc;

use warptree::llm::Tally;
use warptree::propose::{
    AskOptions, ModelProposer, Proposal, ProposalRequest, ProposeError, Proposer,
};
use warptree::source::Source;
use warptree::verdict::{Diagnostic, Severity, Verdict};

use crate::client::options;
use crate::gpu::h200;
use crate::replies::reduce_sum;

fn ask(
    text: &str,
    attempt: u32,
    feedback: Option<&Verdict>,
) -> Result<Vec<Proposal>, ProposeError> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/models/reduce_sum.toml");
    let chat = warptree::llm::open(&format!("script:{}", file.display()), None, &options())
        .expect("opens");
    let (task, source) = (
        reduce_sum(),
        Arc::new(Source::parse(text).expect("a good source")),
    );
    ModelProposer::new(Arc::from(chat), h200(), AskOptions::default())
        .expect("good templates")
        .propose(
            &ProposalRequest {
                feedback,
                attempt,
                ..ProposalRequest::first(&task, &source)
            },
            &mut Tally::default(),
        )
}

fn child(text: &str, attempt: u32) -> Proposal {
    ask(text, attempt, None).expect("a proposal").remove(0)
}

#[test]
fn each_reply_is_of_the_kind_that_its_comment_says() {
    let seed = reduce_sum().seed;
    assert!(matches!(
        ask(&seed, 0, None),
        Err(ProposeError::Unusable(_))
    ));
    let labels: Vec<String> = (1..6).map(|attempt| child(&seed, attempt).label).collect();
    assert_eq!(
        labels,
        [
            "model: load ITEMS values before adding them",
            "model: drop the first barrier of partial_sums",
            "model: fold the stride",
            "model: read the neighbouring word",
            "model: prefetch the first line of x",
        ]
    );
    match ask(&seed, 6, None) {
        Err(ProposeError::Unusable(message)) => assert!(message.contains("ITEMS"), "{message}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn edits_of_the_model_and_its_knobs_compose() {
    let seed = reduce_sum().seed;
    let first = child(&seed, 1);
    assert_eq!(first.settings.len(), 1);
    let knobs = child(&first.text, 6);
    assert_eq!((&knobs.text, knobs.settings.len()), (&first.text, 2));
    for attempt in 2..6 {
        assert!(child(&first.text, attempt).text.contains("//@ knob ITEMS"));
    }
}

#[test]
fn a_repair_puts_back_what_was_dropped() {
    let seed = reduce_sum().seed;
    let racy = child(&seed, 2);
    let race = Verdict::Racy {
        diagnostics: vec![Diagnostic {
            severity: Severity::Error,
            code: "missing-barrier".to_owned(),
            message: "no barrier between a store and a load".to_owned(),
            line: Some(60),
            other_line: Some(50),
            help: None,
        }],
    };
    let repaired = ask(&racy.text, 0, Some(&race)).expect("a repair").remove(0);
    assert_eq!(repaired.text, seed);
}
