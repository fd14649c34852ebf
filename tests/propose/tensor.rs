//! Rewrites of kernels for tensor cores: what applies to our own spaces, and that every child computes what its
//! parent does, on the simulator.

use std::path::Path;
use std::sync::Arc;

use warptree::propose::Proposal;
use warptree::source::Source;
use warptree::task::{Catalogue, Task};

use crate::nvcc::{children, outputs};

/// Those that are about asynchronous work.
const ASYNCHRONOUS: [&str; 3] = [
    "waits for older products first",
    "waits after independent work",
    "redundant fences",
];

/// Whether it changed the code of a rendering.
fn is_changed(child: &Proposal) -> bool {
    child.label.ends_with(" (knobs fixed)")
}

fn spaces() -> Vec<(Arc<Task>, String, Arc<str>)> {
    let catalogue = Catalogue::embedded();
    let names = catalogue.names().expect("names");
    let tasks = names
        .iter()
        .map(|name| catalogue.task(name).expect("a good task"));
    let all = tasks.flat_map(|task| {
        let task = Arc::new(task);
        let spaces = task.spaces.clone();
        let own = move |space: warptree::task::SpaceFile| {
            (Arc::clone(&task), space.name.clone(), space.text.clone())
        };
        spaces.into_iter().map(own)
    });
    all.filter(|(_, _, text)| text.contains("wgmma")).collect()
}

/// What a source leaves in its outputs at its default setting.
fn by_default(task: &Arc<Task>, text: &str, label: &str) -> Vec<Vec<u8>> {
    let source = Source::parse(text).unwrap_or_else(|error| panic!("{label}: {error}"));
    let point = source.space().default_point().expect("valid");
    outputs(task, &source, &point, label)
}

/// Our attention, but its softmax waits for both products: the rewrite finds the order that ours has.
#[test]
fn a_softmax_that_waits_for_both_products_is_put_under_the_second() {
    let (task, _, text) = spaces()
        .into_iter()
        .find(|(task, ..)| task.name == "attention_fwd")
        .expect("a space");
    let overlapped = "wgmma.wait_group.sync.aligned 1;";
    assert_eq!(text.matches(overlapped).count(), 1);
    let text = text.replace(overlapped, "wgmma.wait_group.sync.aligned 0;");
    let child = children(&task, &text)
        .into_iter()
        .find(|child| child.label.starts_with(ASYNCHRONOUS[0]))
        .expect("applies");
    let lines: Vec<&str> = child.text.lines().collect();
    let at = |what: &str| {
        let found = lines.iter().position(|line| line.contains(what));
        found.unwrap_or_else(|| panic!("{what} is gone"))
    };
    let both = lines[at(overlapped)..]
        .iter()
        .position(|line| line.contains("wgmma.wait_group.sync.aligned 0;"))
        .expect("the rest is waited for");
    let between = &lines[at(overlapped)..at(overlapped) + both];
    let powers = between.iter().filter(|line| line.contains("ex2.approx"));
    assert!(powers.count() > 60, "the powers stand between the waits");
    if std::env::var_os("WARPTREE_SLOW").is_some() {
        let expected = by_default(&task, &text, "softmax behind both");
        assert!(by_default(&task, &child.text, &child.label) == expected);
    }
}

/// All spaces where `WARPTREE_SLOW` is set, else the quickest.
#[test]
fn rewrites_of_our_spaces_compute_the_same() {
    let slow = std::env::var_os("WARPTREE_SLOW").is_some();
    let mut compared = 0;
    for (task, space, text) in spaces() {
        if !slow && task.name != "conv2d_3x3" {
            continue;
        }
        let mut changed = children(&task, &text);
        changed.retain(is_changed);
        assert!(
            !changed.is_empty(),
            "{}/{space}: nothing applies",
            task.name
        );
        let expected = by_default(&task, &text, &task.name);
        for child in changed {
            let label = format!("{}/{space}: {}", task.name, child.label);
            let got = by_default(&task, &child.text, &label);
            assert!(got == expected, "{label}: another result\n{}", child.text);
            compared += 1;
        }
    }
    assert!(compared > 0);
}

#[test]
fn what_applies_to_which_space() {
    let mut told = String::new();
    // The other attentions are like this one, and take long.
    let kinds = ["attention_fwd", "conv2d_3x3", "gemm_bf16"];
    let different = spaces()
        .into_iter()
        .filter(|(task, ..)| kinds.contains(&task.name.as_str()));
    for (task, space, text) in different {
        let labels: Vec<String> = children(&task, &text)
            .into_iter()
            .map(|child| child.label)
            .collect();
        told += &format!("{}/{space}: {}\n", task.name, labels.join(", "));
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/rewrites");
    insta::with_settings!({snapshot_path => folder, prepend_module_to_snapshot => false, omit_expression => true}, {
        insta::assert_snapshot!("applies", told);
    });
}
