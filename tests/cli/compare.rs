//! Comparisons with a model: replayed from their recordings, gone on with after a kill, held to one budget.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use warptree::llm::exchanges;

/// Counts its calls in `calls`, and answers each with the next value of the first knob, or with a bad edit.
const ASSISTANT: &str = r#"#!/bin/sh
cat > prompt-$$
echo >> calls
n=$(wc -l < calls)
case $((n % 3)) in
0) printf 'Plan: try\n```edit\n<<<<<<< SEARCH\nnothing like it\n=======\nret;\n>>>>>>> REPLACE\n```\n' ;;
*) printf 'Plan: none\n```ptx\n'; cat seed.ptx; printf '// %s\n```\n' "$n" ;;
esac
rm prompt-$$
"#;

const METHODS: [&str; 4] = ["search", "best-of-n", "refine", "single-shot"];

/// A folder with the assistant in it.
fn scratch() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("scratch");
    let seed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tasks/transpose/seed.ptx");
    fs::copy(seed, folder.path().join("seed.ptx")).expect("copies");
    fs::write(folder.path().join("assistant.sh"), ASSISTANT).expect("writes");
    folder
}

fn compare(folder: &Path, model: &str, out: &str, more: &[&str]) -> Command {
    let mut command = super::warptree(folder);
    command
        .args(["compare", "transpose", "--device", "sim", "--space", "seed"])
        .args(["--methods", &METHODS.join(","), "--seeds", "2"])
        .args(["--budget", "5", "--model", model, "--out", out])
        .args(more);
    command
}

fn done(command: &mut Command) -> Output {
    let output = command.output().expect("runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    output
}

/// A comparison without what may differ: the model's name, and the seconds that judging took.
fn told(folder: &Path, out: &str) -> Value {
    let text = fs::read_to_string(folder.join(out).join("comparison.json")).expect("written");
    let mut told: Value = serde_json::from_str(&text).expect("JSON");
    told["model"] = Value::Null;
    for series in told["series"].as_array_mut().expect("series") {
        for judged in series["judged"].as_array_mut().expect("kernels") {
            judged["cost"]["judge_seconds"] = Value::Null;
        }
    }
    told
}

fn calls(folder: &Path) -> usize {
    let calls = fs::read(folder.join("calls")).unwrap_or_default();
    calls.iter().filter(|byte| **byte == b'\n').count()
}

#[test]
fn a_comparison_replays_from_its_recordings_alone() {
    let scratch = scratch();
    let folder = scratch.path();
    done(&mut compare(folder, "cmd:sh assistant.sh", "cmp", &[]));
    let asked = calls(folder);
    assert!(asked >= 12, "{asked} calls");
    fs::remove_file(folder.join("assistant.sh")).expect("removes");

    done(&mut compare(folder, "replay:cmp", "again", &[]));
    assert_eq!(told(folder, "again"), told(folder, "cmp"));
    assert_eq!(calls(folder), asked, "a replay asks nobody");
    for method in METHODS {
        for seed in 0..2 {
            let series = folder.join(format!("again/{method}-{seed}"));
            assert!(!series.join("exchanges.jsonl").exists());
        }
    }
    // what was never asked is told, not guessed
    let other = compare(folder, "replay:cmp", "other", &["--turns", "1"])
        .output()
        .expect("runs");
    let why = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(
        !other.status.success() && why.contains("holds no request"),
        "{why}"
    );
}

#[test]
fn a_budget_holds_over_all_series_and_sessions_and_nothing_is_paid_twice() {
    let scratch = scratch();
    let folder = scratch.path();
    for most in ["7", "7"] {
        let more = ["--max-calls", most];
        let stopped = compare(folder, "cmd:sh assistant.sh", "cmp", &more)
            .output()
            .expect("runs");
        let why = String::from_utf8_lossy(&stopped.stderr).into_owned();
        assert!(
            !stopped.status.success()
                && why.contains("7 of 7 calls")
                && why.contains("the same command goes on"),
            "{why}"
        );
        assert_eq!(calls(folder), 7, "in all sessions together");
    }
    done(&mut compare(folder, "cmd:sh assistant.sh", "cmp", &[]));
    let whole = calls(folder);
    let recorded: usize = METHODS
        .iter()
        .flat_map(|method| (0..2).map(move |seed| format!("cmp/{method}-{seed}/exchanges.jsonl")))
        .map(|file| exchanges(&folder.join(file)).expect("a recording").len())
        .sum();
    assert_eq!(recorded, whole, "each call is recorded once, and used");
    done(&mut compare(folder, "replay:cmp", "again", &[]));
    assert_eq!(told(folder, "again"), told(folder, "cmp"));
}

#[test]
fn what_speedups_are_over_is_measured_once_for_all_sessions() {
    let scratch = scratch();
    let folder = scratch.path();
    done(&mut compare(folder, "cmd:sh assistant.sh", "cmp", &[]));
    let asked = calls(folder);
    let file = folder.join("cmp/baseline.json");
    let mut kept: Value = serde_json::from_slice(&fs::read(&file).expect("written")).expect("JSON");
    let time = kept["baseline"]["time"].as_f64().expect("a time");
    kept["baseline"]["time"] = (2.0 * time).into();
    fs::write(&file, kept.to_string()).expect("writes");
    done(&mut compare(folder, "cmd:sh assistant.sh", "cmp", &[]));
    assert_eq!(calls(folder), asked, "finished series are read");
    let again = told(folder, "cmp")["baseline"][1].as_f64();
    assert_eq!(again, Some(2.0 * time), "as it was measured first");

    for (key, value) in [("gpu", "another GPU"), ("times", "measured")] {
        let mut other = kept.clone();
        other[key] = value.into();
        fs::write(&file, other.to_string()).expect("writes");
        let refused = compare(folder, "cmd:sh assistant.sh", "cmp", &[])
            .output()
            .expect("runs");
        let why = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success()
                && why.contains(value)
                && why.contains("name another folder with --out"),
            "{why}"
        );
    }
}
