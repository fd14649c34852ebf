//! A model benchmarked by trajectories: the report, and going on after a stop.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

fn bench(folder: &Path, more: &[&str]) -> Output {
    let device = format!(
        "recorded:{}/traces/{{task}}-h200.jsonl.gz",
        env!("CARGO_MANIFEST_DIR")
    );
    let model = format!(
        "script:{}/tests/data/models/{{task}}.toml",
        env!("CARGO_MANIFEST_DIR")
    );
    super::warptree(folder)
        .args([
            "bench",
            "--suite",
            "l1l2l3",
            "--tasks-only",
            "transpose",
            "--device",
            &device,
        ])
        .args([
            "--model",
            &model,
            "--turns",
            "3",
            "--trajectories",
            "4",
            "--jobs",
            "2",
            "--out",
            "b",
        ])
        .args(more)
        .output()
        .expect("runs")
}

fn report(folder: &Path) -> Value {
    let text = fs::read_to_string(folder.join("b/turns.json")).expect("written");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn trajectories_are_counted_by_turn_and_go_on_after_a_stop() {
    let scratch = tempfile::tempdir().expect("scratch");
    let first = bench(scratch.path(), &[]);
    let said = String::from_utf8_lossy(&first.stderr).into_owned();
    assert!(matches!(first.status.code(), Some(0 | 1)), "{said}");
    let whole = report(scratch.path());
    let task = &whole["tasks"][0];
    let endings = task["endings"].as_object().expect("counts");
    let turns: u64 = endings.values().filter_map(Value::as_u64).sum();
    assert_eq!(turns, 12, "{task}");
    assert_eq!(task["by_turn"].as_array().map(Vec::len), Some(3));
    assert_eq!(task["by_turn"][2]["correct"]["all"], 4);
    assert!(task["spent"]["calls"].as_u64().expect("a count") >= 12);
    let text = String::from_utf8_lossy(&first.stdout).into_owned();
    for words in [
        "4 trajectories of 3 turns",
        "correct so far",
        "12 turns: ",
        "tokens",
    ] {
        assert!(text.contains(words), "no `{words}` in\n{text}");
    }
    let csv = fs::read_to_string(scratch.path().join("b/turns.csv")).expect("written");
    assert_eq!(csv.lines().count(), 4, "{csv}");

    // half of the turns are gone, the last line torn: the same report comes again
    let log = scratch.path().join("b/transpose/turns.jsonl");
    let lines = fs::read_to_string(&log).expect("written");
    let half: Vec<&str> = lines.lines().take(6).collect();
    fs::write(&log, half.join("\n") + "\n{\"trajectory\": 3").expect("writes");
    let again = bench(scratch.path(), &[]);
    assert_eq!(again.status.code(), first.status.code());
    assert_eq!(
        report(scratch.path())["tasks"][0]["endings"],
        task["endings"]
    );

    let other = bench(scratch.path(), &["--seed", "1"]);
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    assert_eq!(other.status.code(), Some(2), "{said}");
    assert!(said.contains("name a new folder with --out"), "{said}");
}
