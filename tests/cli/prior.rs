//! `--prior sim`: new sources in the order of what the simulator expects of them; needs ptxas, which the program
//! installs.

use std::path::Path;

use serde_json::Value;
use warptree::store::{Event, StoredRun};

#[test]
fn what_the_simulator_expects_decides_which_rewrite_is_judged_first() {
    let scratch = tempfile::tempdir().expect("scratch");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tasks = here.join("tests/data/nvcc");
    let trace = here.join("traces/nvcc-saxpy-h200.jsonl.gz");
    let run = |args: &[&str]| {
        let output = super::warptree(scratch.path()).args(args).output();
        let output = output.expect("runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}\n{errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    run(&[
        "search",
        "saxpy",
        "--tasks",
        &tasks.display().to_string(),
        "--device",
        &format!("recorded:{}", trace.display()),
        "--prior",
        "sim",
        "--budget",
        "2",
        "--out",
        "r",
    ]);
    let stored = StoredRun::open(&scratch.path().join("r")).expect("opens");
    assert!(stored.config.search.prior);
    let expanded = stored.lines.iter().find_map(|line| match &line.event {
        Event::Expanded { children, .. } => Some(children.clone()),
        _ => None,
    });
    let children = expanded.expect("the seed was rewritten");
    assert!(children.len() > 2, "all rewrites at once");
    let least = children
        .iter()
        .filter_map(|child| Some((child.estimated?, &child.label)))
        .min_by(|a, b| a.0.get().total_cmp(&b.0.get()))
        .expect("the simulator knows them");
    assert!(least.0.get() < 0.7, "{children:?}");
    let story: Value = serde_json::from_str(&run(&["show", "r", "--json"])).expect("JSON");
    let judged: Vec<&Value> = (story["sources"].as_array().expect("a list").iter())
        .filter(|source| source["evaluations"] != 0 && source["parents"][0] == 1)
        .collect();
    assert_eq!(judged.len(), 1);
    assert_eq!(judged[0]["label"], least.1.as_str());
    let shown = run(&["show", "r"]);
    assert!(shown.contains("× its parent's time estimated)"), "{shown}");
    assert!(
        shown.contains("sources not tried for what the cost model expects of them"),
        "{shown}"
    );
}
