//! The mechanical rewrites. `tests/data/rewrites/<rewrite>/<case>.before.ptx` is a source of the task
//! `reduce_sum`, `<case>.after.ptx` what the rewrite makes of it; it makes nothing of `<case>.none.ptx`.
//! `UPDATE_GOLDENS=1` writes the `after` files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use warptree::llm::Tally;
use warptree::propose::{Proposal, ProposalRequest, Proposer, Rewrites};
use warptree::source::{KnobValue, Setting, Source};
use warptree::task::{MathMode, Task};
use warptree::units::{Bytes, Nanos};
use warptree::verdict::{Audit, InstructionScore, Measurement, Resources, Score, Time, Verdict};

use crate::replies::reduce_sum;

/// Folders in tests/data/rewrites and what their rewrites are called: those that open a knob.
const OPENING: [(&str, &str); 8] = [
    ("load_cache", "cache operator on loads"),
    ("store_cache", "cache operator on stores"),
    ("register_cap", "register cap"),
    ("residency", "blocks that reside together"),
    ("moved_registers", "registers moved between warpgroups"),
    ("wait_time", "time of a wait at an mbarrier"),
    ("try_wait", "waits instead of questions at an mbarrier"),
    ("wait_depth", "groups that waits leave running"),
];

/// Those that change the code.
const CHANGING: [(&str, &str); 12] = [
    ("vectorise", "vector loads and stores"),
    ("pad_shared", "shared-memory padding"),
    ("predicate", "short branches predicated"),
    ("hoist", "loads ahead of stores"),
    ("split_wait", "waits for older products first"),
    ("late_wait", "waits after independent work"),
    ("fences", "redundant fences"),
    ("unroll", "unroll by 4"),
    ("prefetch", "prefetch into registers"),
    ("strength", "products made sums"),
    ("contract", "products and sums contracted"),
    ("dead_code", "dead code"),
];

fn labels() -> impl Iterator<Item = (&'static str, &'static str)> {
    OPENING.into_iter().chain(CHANGING)
}

fn task_for(rewrite: &str) -> Task {
    let mut task = reduce_sum();
    if rewrite == "contract" {
        task.math = MathMode::Fast;
    }
    task
}

fn all(text: &str, setting: Option<Setting>, feedback: Option<&Verdict>) -> Vec<Proposal> {
    all_for(&reduce_sum(), text, setting, feedback)
}

fn all_for(
    task: &Task,
    text: &str,
    setting: Option<Setting>,
    feedback: Option<&Verdict>,
) -> Vec<Proposal> {
    let source = Arc::new(Source::parse(text).expect("a good source"));
    (0..)
        .map_while(|attempt| {
            let proposals = Rewrites
                .propose(
                    &ProposalRequest {
                        setting: setting.clone(),
                        feedback,
                        attempt,
                        ..ProposalRequest::first(task, &source)
                    },
                    &mut Tally::default(),
                )
                .expect("rewrites never fail");
            assert!(proposals.len() <= 1);
            proposals.into_iter().next()
        })
        .collect()
}

fn files(rewrite: &str, ending: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/rewrites")
        .join(rewrite);
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("is there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.to_string_lossy().ends_with(ending))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("readable")
}

#[test]
fn rewrites_give_what_stands_beside_their_sources() {
    let update = std::env::var_os("UPDATE_GOLDENS").is_some();
    for (rewrite, label) in labels() {
        for before in files(rewrite, ".before.ptx") {
            let text = read(&before);
            let proposal = all_for(&task_for(rewrite), &text, None, None)
                .into_iter()
                .find(|proposal| proposal.label.trim_end_matches(" (knobs fixed)") == label)
                .unwrap_or_else(|| panic!("{}: nothing", before.display()));
            let after = PathBuf::from(before.to_string_lossy().replace(".before.", ".after."));
            if update {
                std::fs::write(&after, &*proposal.text).expect("writable");
            }
            assert_eq!(read(&after), *proposal.text, "{}", before.display());
        }
    }
}

#[test]
fn a_rewrite_keeps_the_default_and_every_setting_of_it_renders() {
    for (rewrite, _) in OPENING {
        for after in files(rewrite, ".after.ptx") {
            let before = PathBuf::from(after.to_string_lossy().replace(".after.", ".before."));
            let [parent, child] =
                [&before, &after].map(|path| Source::parse(&read(path)).expect("a good source"));
            let default = |source: &Source| {
                let point = source.space().default_point().expect("valid");
                source.render(&point).expect("renders").ptx
            };
            assert_eq!(default(&parent), default(&child), "{}", after.display());
            assert!(child.space().len() > parent.space().len());
            for point in child.space().iter() {
                let candidate = child.render(&point).expect("renders");
                assert!(candidate.module.is_ok(), "{}", after.display());
            }
        }
    }
}

#[test]
fn where_a_rewrite_is_not_sure_it_proposes_nothing() {
    for (rewrite, label) in labels() {
        for path in files(rewrite, ".none.ptx") {
            let labels: Vec<String> = all_for(&task_for(rewrite), &read(&path), None, None)
                .into_iter()
                .map(|p| p.label)
                .collect();
            assert!(
                !labels.iter().any(|found| found == label),
                "{}: {labels:?}",
                path.display()
            );
        }
    }
}

fn uses(registers: u32) -> Verdict {
    Verdict::Measured(Box::new(Measurement {
        time: Time::Recorded {
            time: Nanos::new(1000.0).expect("positive"),
        },
        resources: vec![Resources {
            entry: "k".to_owned(),
            registers,
            static_smem: Bytes(0),
            ..Resources::default()
        }],
        score: Score {
            correct: true,
            instructions: InstructionScore::NotProfiled { value: 1.0 },
            speedup: None,
            audit: Audit::Passed,
        },
        diagnosis: None,
        checked: Vec::new(),
        not_checked: Vec::new(),
        warnings: Vec::new(),
    }))
}

#[test]
fn a_cap_is_suggested_below_what_is_used_and_with_the_setting_that_was_good() {
    let path = &files("register_cap", "knobs.before.ptx")[0];
    let text = read(path);
    let setting = Setting::from([("BLOCK".to_owned(), KnobValue::Int(128))]);
    let caps = |registers: u32| -> Option<Vec<(KnobValue, KnobValue)>> {
        let feedback = uses(registers);
        let found = all(&text, Some(setting.clone()), Some(&feedback));
        let cap = found
            .iter()
            .find(|proposal| proposal.label == "register cap")?;
        Some(
            cap.settings
                .iter()
                .map(|s| (s["BLOCK"].clone(), s["REGS_2"].clone()))
                .collect(),
        )
    };
    let pair = |cap: i64| (KnobValue::Int(128), KnobValue::Int(cap));
    assert_eq!(caps(100), Some(vec![pair(96), pair(64)]));
    assert_eq!(caps(40), Some(vec![pair(32)]));
    assert_eq!(caps(32), None, "all threads reside already");
}

#[test]
fn attempts_walk_the_rewrites_and_end() {
    let text = read(&files("load_cache", "plain.before.ptx")[0]);
    let named = |text: &str| -> Vec<String> {
        let found = all(text, None, None).into_iter();
        found.map(|proposal| proposal.label).collect()
    };
    let found = all(&text, None, None);
    for label in ["cache operator on loads", "register cap"] {
        assert!(
            found.iter().any(|proposal| proposal.label == label),
            "{label}"
        );
    }
    let opened = found
        .iter()
        .find(|proposal| proposal.label == "cache operator on loads")
        .expect("is there");
    let again = named(&opened.text);
    assert!(
        !again.contains(&opened.label),
        "a load whose operator is open is not opened again"
    );
    assert!(again.contains(&"register cap".to_owned()));
}

#[test]
fn spaces_that_have_thought_of_loads_and_registers_are_left_alone() {
    let task = reduce_sum();
    assert!(!task.spaces.is_empty());
    let opens = |text: &str| -> Vec<String> {
        let known = ["cache operator on loads", "register cap"];
        let found = all(text, None, None).into_iter().map(|p| p.label);
        found
            .filter(|label| known.contains(&label.as_str()))
            .collect()
    };
    for space in &task.spaces {
        assert!(opens(&space.text).is_empty(), "{}", space.name);
    }
    assert_eq!(
        opens(&task.seed),
        ["cache operator on loads", "register cap"]
    );
}

#[test]
fn what_touches_a_hole_is_rewritten_in_the_rendering_and_says_so() {
    let before = read(&files("vectorise", "holes.before.ptx")[0]);
    let setting = Setting::from([("WIDTH".to_owned(), KnobValue::Int(2))]);
    let found = all(&before, Some(setting.clone()), None);
    let joined = found
        .iter()
        .find(|proposal| proposal.label.starts_with("vector loads"))
        .expect("applies");
    assert_eq!(joined.label, "vector loads and stores (knobs fixed)");
    let told = joined.rationale.as_deref().expect("says why");
    assert!(told.contains("WIDTH=2"), "{told}");
    let child = Source::parse(&joined.text).expect("a good source");
    assert_eq!(child.space().len(), 1);
    let point = child
        .space()
        .point(&setting)
        .expect("the setting it was made at");
    assert!(
        child
            .render(&point)
            .expect("renders")
            .ptx
            .contains("ld.global.v2.f32")
    );
}
