//! A model benchmarked by trajectories: the report, and going on after a stop.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;
use warptree::llm::exchanges;
use warptree::toolchain::{self, Network, Places};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn bench(folder: &Path, tasks: &str, device: &str, more: &[&str]) -> Output {
    let model = format!("script:{ROOT}/tests/data/models/{{task}}.toml");
    super::warptree(folder)
        .args(["bench", "--suite", "l1l2l3", "--tasks-only", tasks])
        .args(["--device", device, "--model", &model, "--out", "b"])
        .args(["--turns", "3", "--trajectories", "4", "--jobs", "2"])
        .args(more)
        .output()
        .expect("runs")
}

fn on_traces(folder: &Path, tasks: &str, more: &[&str]) -> Output {
    let device = format!("recorded:{ROOT}/traces/{{task}}-h200.jsonl.gz");
    bench(folder, tasks, &device, more)
}

fn report(folder: &Path) -> Value {
    let text = fs::read_to_string(folder.join("b/turns.json")).expect("written");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn trajectories_are_counted_by_turn_and_go_on_after_a_stop() {
    let scratch = tempfile::tempdir().expect("scratch");
    let first = on_traces(scratch.path(), "transpose", &[]);
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
    let again = on_traces(scratch.path(), "transpose", &[]);
    assert_eq!(again.status.code(), first.status.code());
    assert_eq!(
        report(scratch.path())["tasks"][0]["endings"],
        task["endings"]
    );

    let other = on_traces(scratch.path(), "transpose", &["--seed", "1"]);
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    assert_eq!(other.status.code(), Some(2), "{said}");
    assert!(said.contains("name a new folder with --out"), "{said}");
}

#[test]
fn a_budget_holds_over_all_tasks_and_sessions() {
    let scratch = tempfile::tempdir().expect("scratch");
    let asked = || -> usize {
        ["reduce_sum", "transpose"]
            .map(|task| scratch.path().join(format!("b/{task}/exchanges.jsonl")))
            .iter()
            .filter(|file| file.exists())
            .map(|file| exchanges(file).expect("a recording").len())
            .sum()
    };
    let more = ["--max-calls", "14"];
    // the last task first: what it cost must count before the first one asks
    on_traces(scratch.path(), "transpose", &more);
    assert_eq!(asked(), 12);
    for _ in 0..2 {
        let output = on_traces(scratch.path(), "reduce_sum,transpose", &more);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("14 of 14 calls"), "{said}");
        assert!(!said.contains("-0.00"), "{said}");
        assert_eq!(asked(), 14, "{said}");
    }
}

/// Needs ptxas, which the program installs. Here it is gone once the seed is assembled.
#[cfg(unix)]
#[test]
fn a_judge_that_breaks_is_an_error_and_no_verdict() {
    use std::os::unix::fs::PermissionsExt as _;

    let scratch = tempfile::tempdir().expect("scratch");
    let tool = toolchain::ptxas(&Places::from_environment(None), Network::Allowed, &|_| ());
    let script = format!(
        "#!/bin/sh\n{} \"$@\"\ncode=$?\ncase \"$1\" in -v) rm \"$0\";; esac\nexit $code\n",
        tool.expect("is there").path.display()
    );
    let path = scratch.path().join("ptxas");
    fs::write(&path, script).expect("writes");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("marks");
    let ptxas = path.to_str().expect("text");
    let output = bench(scratch.path(), "transpose", "sim", &["--ptxas", ptxas]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("error: task transpose: ") && said.contains("cannot be run"),
        "{said}"
    );
}
