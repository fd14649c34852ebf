//! Sources that say the same: one node, in the search and in what its run folder says of it.

use std::fs;
use std::path::Path;

use warptree::store::{RunGraph, StoredRun};

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("creates");
    for entry in fs::read_dir(from).expect("lists") {
        let entry = entry.expect("lists");
        let to = to.join(entry.file_name());
        match entry.file_type().expect("has a type").is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).expect("copies")),
        }
    }
}

#[test]
fn a_seed_told_again_with_a_comment_is_the_same_node() {
    let scratch = tempfile::tempdir().expect("scratch");
    for folder in ["tasks/transpose", "search_spaces/transpose"] {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        copy(&from, &scratch.path().join(folder));
    }
    let at = |file: &str| scratch.path().join(file);
    let seed = fs::read_to_string(at("tasks/transpose/seed.ptx")).expect("reads");
    let twin = seed.replace("\n.version", "\n// said again\n.version");
    assert_ne!(twin, seed);
    fs::write(at("search_spaces/transpose/a_twin.ptx"), twin).expect("writes");
    let search = "search transpose --tasks tasks --device sim --proposers knobs --budget 8 --no-baselines --out run";
    let output = super::warptree(scratch.path())
        .args(search.split(' '))
        .output()
        .expect("runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");

    let run = StoredRun::open(&scratch.path().join("run")).expect("opens");
    let graph = RunGraph::read(&run).expect("reads");
    let mut with_knobs = 0;
    for line in &run.lines {
        let Some((node, setting, _)) = line.event.evaluated() else {
            continue;
        };
        let source = &graph.node(node).expect("a node of the run").source;
        let settled = source.space().point(setting);
        assert!(settled.is_ok(), "{setting:?} is none of {node:?}");
        with_knobs += usize::from(!setting.is_empty());
    }
    assert!(with_knobs > 0, "spaces were judged");
}
