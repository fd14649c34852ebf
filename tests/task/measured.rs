//! What an H200 said of each mistake of the Hopper kernels, from `traces/mistakes/`: made by
//! `warptree batch TASK tasks/TASK/mistakes/*.ptx --device cuda:0 --out DIR` and `warptree trace DIR --to FILE`.

use std::collections::BTreeMap;
use std::path::Path;

use warptree::store::StoredRun;
use warptree::task::Catalogue;
use warptree::task::mistakes::DeviceKind;

const TASKS: [&str; 5] = [
    "gemm_bf16",
    "attention_fwd",
    "attention_fwd_causal",
    "attention_bwd",
    "attention_bwd_causal",
];

/// The kernel alone: what is expected of it may be worded anew.
fn kernel(text: &str) -> &str {
    text.split_once('\n').map_or(text, |(_, kernel)| kernel)
}

#[test]
fn a_gpu_ends_hopper_mistakes_as_they_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/mistakes");
    let mut wrong = Vec::new();
    let mut stages = BTreeMap::<&str, u32>::new();
    for name in TASKS {
        let run = StoredRun::open(&folder.join(format!("{name}-h200.jsonl.gz"))).unwrap();
        let task = Catalogue::embedded().task(name).unwrap();
        for mistake in &task.mistakes {
            let judged = run.config.roots.iter().find_map(|root| {
                let text = run.objects.text(root.source).unwrap();
                let same = root.label == mistake.name && kernel(&text) == kernel(&mistake.text);
                let evaluations = run.lines.iter().filter_map(|line| line.event.evaluated());
                let mut of_it = evaluations.filter(|(node, ..)| *node == root.node);
                same.then(|| of_it.next()).flatten()
            });
            let Some((_, _, evaluation)) = judged else {
                wrong.push(format!(
                    "{name}/{} was not judged as it stands",
                    mistake.name
                ));
                continue;
            };
            *stages.entry(evaluation.verdict.stage()).or_default() += 1;
            let told = mistake.expect.check_stage(&evaluation.verdict);
            if let Err(why) = told
                && mistake.expect.only != Some(DeviceKind::Sim)
            {
                wrong.push(format!("{name}/{}: {why}", mistake.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for stage in ["wrong", "hung", "measured"] {
        assert!(stages.contains_key(stage), "{stages:?}");
    }
}
