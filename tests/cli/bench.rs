//! Suites: every task once, a report that is the same however often the bench was stopped, and errors before
//! hours of work.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The traces of real runs, as if each task were searched on its table.
fn recorded() -> String {
    format!(
        "recorded:{}/traces/{{task}}-h200.jsonl.gz",
        env!("CARGO_MANIFEST_DIR")
    )
}

fn bench(folder: &Path, args: &[&str]) -> Output {
    super::warptree(folder)
        .args(["bench", "--suite", "l1l2l3"])
        .args(args)
        .output()
        .expect("runs")
}

fn on_traces(folder: &Path, tasks: &str, more: &[&str]) -> Output {
    let device = recorded();
    let args = ["--tasks-only", tasks, "--device", &device, "--out", "b"];
    bench(folder, &[&args, more].concat())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The report without what depends on the clock.
fn timeless(folder: &Path) -> Value {
    let text = fs::read_to_string(folder.join("b/suite.json")).expect("written");
    let mut report: Value = serde_json::from_str(&text).expect("JSON");
    for task in report["tasks"].as_array_mut().expect("a list") {
        task["elapsed_ms"] = Value::Null;
    }
    report
}

#[test]
fn a_stopped_bench_goes_on_and_reports_what_an_unstopped_one_does() {
    let scratch = tempfile::tempdir().expect("scratch");
    let budget = ["--budget", "25"];
    let tasks = "reduce_sum,transpose,sgemm";
    let output = on_traces(scratch.path(), tasks, &budget);
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for said in [
        "suite l1l2l3, 3 of its ",
        "on NVIDIA H200",
        " recorded ",
        "fast_p  ",
        "of 75 judged",
        "others' weights are scaled",
    ] {
        assert!(table.contains(said), "no `{said}` in\n{table}");
    }
    let report = timeless(scratch.path());
    assert_eq!(report["totals"]["total"]["kind"], "counts");
    let points: Vec<f64> = ["reduce_sum", "transpose", "sgemm"]
        .iter()
        .enumerate()
        .map(|(nth, name)| {
            let task = &report["tasks"][nth];
            assert_eq!(task["task"], *name, "levels in order");
            assert_eq!(task["evaluations"], 25);
            task["winner"]["speedup"]["ratio"]
                .as_f64()
                .expect("a ratio")
        })
        .collect();
    let expected = (0.3 * points[0] + 0.5 * (points[1] + points[2]) / 2.0) / 0.8;
    let total = report["totals"]["total"]["value"]
        .as_f64()
        .expect("a total");
    assert!((total - expected).abs() < 1e-9, "{total} is not {expected}");
    let csv = fs::read_to_string(scratch.path().join("b/tasks.csv")).expect("written");
    assert_eq!(csv.lines().count(), 4, "{csv}");
    let csv = fs::read_to_string(scratch.path().join("b/endings.csv")).expect("written");
    assert!(csv.contains("\nsgemm,measured,"), "{csv}");

    // the first task is done, the second stopped half-way, the third did not begin
    let path = |name: &str| scratch.path().join("b").join(name);
    let done = fs::read(path("reduce_sum/events.jsonl")).expect("a log");
    let log = fs::read_to_string(path("transpose/events.jsonl")).expect("a log");
    let half: Vec<&str> = log.lines().take(9).collect();
    fs::write(path("transpose/events.jsonl"), half.join("\n") + "\n").expect("writes");
    fs::remove_dir_all(path("sgemm")).expect("removes");
    let output = on_traces(scratch.path(), tasks, &budget);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("finished already"), "{said}");
    assert!(said.contains("going on after 9 events"), "{said}");
    assert_eq!(timeless(scratch.path()), report);
    assert_eq!(
        fs::read(path("reduce_sum/events.jsonl")).expect("a log"),
        done
    );
}

#[test]
fn what_is_asked_must_be_what_was_asked() {
    let scratch = tempfile::tempdir().expect("scratch");
    let first = on_traces(scratch.path(), "transpose", &["--budget", "5"]);
    assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
    for (more, what) in [
        (&["--budget", "6"][..], "budget or time"),
        (&["--budget", "5", "--seed", "1"], "seed"),
        (
            &["--budget", "5", "--proposers", "knobs"],
            "list of proposers",
        ),
    ] {
        let output = on_traces(scratch.path(), "reduce_sum,transpose", more);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains(&format!("made with another {what}")),
            "{said}"
        );
        assert!(
            !scratch.path().join("b/reduce_sum").exists(),
            "nothing began"
        );
    }
}

#[test]
fn a_task_that_cannot_run_is_told_and_the_others_go_on() {
    let scratch = tempfile::tempdir().expect("scratch");
    let output = on_traces(scratch.path(), "reduce_sum,rms_norm", &["--budget", "5"]);
    let (table, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("1 of 2 tasks could not be searched"),
        "{said}"
    );
    assert!(table.contains("rms_norm: not run: "), "{table}");
    assert!(
        table.contains("total   none yet: rms_norm (not finished)"),
        "{table}"
    );
    let output = on_traces(scratch.path(), "rms_norm", &["--budget", "5"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("no task could be searched to its end"),
        "{said}"
    );
}

#[test]
fn a_failing_l1_task_is_a_veto() {
    let scratch = tempfile::tempdir().expect("scratch");
    // one evaluation, of a kernel that is not in the table
    let source = format!(
        "{}/traces/reduce_sum-h200.jsonl.gz",
        env!("CARGO_MANIFEST_DIR")
    );
    let run = warptree::store::StoredRun::open(Path::new(&source)).expect("opens");
    let empty = warptree::store::StoredRun {
        lines: Vec::new(),
        ..run
    };
    warptree::store::write_trace(&empty, &scratch.path().join("reduce_sum.jsonl.gz"))
        .expect("writes");
    let args = [
        "--tasks-only",
        "reduce_sum",
        "--device",
        "recorded:{task}.jsonl.gz",
        "--out",
        "b",
        "--budget",
        "3",
    ];
    let output = bench(scratch.path(), &args);
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(
        table
            .contains("total   void: L1 is a veto, and no kernel of reduce_sum passed every check"),
        "{table}"
    );
    assert!(
        table.contains("reduce_sum: no kernel passed every check; mostly "),
        "{table}"
    );
}

#[test]
#[cfg(unix)]
fn ctrl_c_keeps_what_was_judged_and_the_same_command_goes_on() {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    let scratch = tempfile::tempdir().expect("scratch");
    let device = recorded();
    let command = || {
        let mut command = super::warptree(scratch.path());
        command
            .args([
                "bench", "--suite", "l1l2l3", "--device", &device, "--out", "b",
            ])
            .args(["--tasks-only", "transpose,reduce_sum", "--time", "2s"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    };
    let child = command().spawn().expect("starts");
    let log = scratch.path().join("b/reduce_sum/events.jsonl");
    let begun = Instant::now();
    while fs::metadata(&log).map_or(0, |file| file.len()) == 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "it did not begin"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
    kill(pid, Signal::SIGINT).expect("signals");
    let output = child.wait_with_output().expect("ends");
    let (table, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("stopped; the same command goes on"), "{said}");
    assert!(table.contains("total   none yet: "), "{table}");
    assert!(table.contains("not run"), "{table}");

    let output = command().output().expect("runs");
    let (table, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("going on after "), "{said}");
    assert!(table.contains("fast_p  "), "{table}");
}

/// On the simulator, the seed alone; needs ptxas, which the program installs.
#[test]
fn simulated_times_are_called_estimated() {
    let scratch = tempfile::tempdir().expect("scratch");
    let args = [
        "--tasks-only",
        "transpose",
        "--device",
        "sim",
        "--proposers",
        "knobs",
        "--budget",
        "1",
        "--out",
        "b",
        "--json",
    ];
    let output = bench(scratch.path(), &args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    assert_eq!(report["totals"]["evaluations"], 1);
    assert_eq!(report["totals"]["overs"]["seed"], 1);
    for task in report["tasks"].as_array().expect("a list") {
        assert_eq!(task["winner"]["times"], "estimated");
        assert_eq!(task["state"], "finished");
    }
}
