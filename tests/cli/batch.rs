//! Batches: every setting once, in shards that make a whole, and nothing judged twice.

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use warptree::store::{Event, StoredRun};

fn warptree(folder: &Path, args: &[&str]) -> Output {
    super::warptree(folder).args(args).output().expect("runs")
}

/// Settings judged in a run folder or trace, as text, sorted.
fn judged(path: &Path) -> Vec<String> {
    let run = StoredRun::open(path).expect("opens");
    let mut settings: Vec<String> = run
        .lines
        .iter()
        .filter_map(|line| match &line.event {
            Event::Evaluated { setting, .. } => Some(format!("{setting:?}")),
            _ => None,
        })
        .collect();
    settings.sort();
    settings
}

#[test]
fn shards_make_a_whole_and_nothing_is_judged_twice() {
    let scratch = tempfile::tempdir().expect("scratch");
    let path = |name: &str| scratch.path().join(name);
    std::fs::write(path("k.json"), super::kill::table()).expect("writes");
    let device = "recorded:k.json";
    let batch = |out: &str, more: &[&str]| {
        let args = ["batch", "k", "--device", device, "--out", out];
        let output = warptree(scratch.path(), &[&args, more].concat());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), text, errors)
    };
    let (code, text, errors) = batch("all", &["--sample", "100000"]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(text.starts_with("384 judged"), "{text}");
    let all = judged(&path("all"));
    assert_eq!(all.len(), 384);
    let mut distinct = all.clone();
    distinct.dedup();
    assert_eq!(distinct.len(), 384);

    let (_, again, _) = batch("all", &["--sample", "100000"]);
    assert!(again.starts_with("0 judged"), "{again}");
    assert_eq!(judged(&path("all")), all);

    batch("some", &["--sample", "50"]);
    let some = judged(&path("some"));
    assert_eq!(some.len(), 51, "the default and fifty others");
    for shard in ["1/3", "2/3", "3/3"] {
        let out = format!("part-{}", &shard[..1]);
        let (code, _, errors) = batch(&out, &["--sample", "50", "--shard", shard]);
        assert_eq!(code, Some(0), "{errors}");
        assert_eq!(judged(&path(&out)).len(), 17);
    }
    let merged = ["trace", "part-1", "part-2", "part-3", "--to", "t.jsonl.gz"];
    let output = warptree(scratch.path(), &merged);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(judged(&path("t.jsonl.gz")), some);
    let best = |path: &Path| {
        let run = StoredRun::open(path).expect("opens");
        let story = warptree::report::Story::read(&run, 1).expect("reads");
        let winner = story.winner.expect("a winner").measurement.time.nanos();
        assert_eq!(winner, story.top[0].time);
        winner
    };
    assert_eq!(best(&path("t.jsonl.gz")), best(&path("some")));

    let (code, _, errors) = batch("some", &["--sample", "50", "--seed", "3"]);
    assert_eq!(code, Some(2));
    assert!(errors.contains("another seed"), "{errors}");
    let output = warptree(scratch.path(), &["resume", "some"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("is a batch"), "{errors}");
    let output = warptree(
        scratch.path(),
        &["trace", "all", "some", "--to", "x.jsonl.gz"],
    );
    assert!(
        output.status.success(),
        "both are parts of what the same sources gave"
    );
    let search = [
        "search", "k", "--device", device, "--budget", "5", "--out", "s",
    ];
    warptree(scratch.path(), &search);
    let output = warptree(
        scratch.path(),
        &["trace", "s", "some", "--to", "y.jsonl.gz"],
    );
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("no parts of one batch"), "{errors}");
    let twice = ["trace", "part-1", "./part-1", "--to", "y.jsonl.gz"];
    let output = warptree(scratch.path(), &twice);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("./part-1 is named twice"), "{errors}");
    assert!(!path("y.jsonl.gz").exists());

    let output = warptree(
        scratch.path(),
        &["trace", "s", "--to", "s.jsonl.gz", "--json"],
    );
    let written: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(written["file"], "s.jsonl.gz");
    let output = warptree(scratch.path(), &["trace", "s", "--to", "s.jsonl.gz"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("name another file with --to"), "{errors}");

    std::fs::write(path("bin.ptx"), b"a\n\xff").expect("writes");
    let (code, _, errors) = batch("bin", &["bin.ptx"]);
    assert_eq!(code, Some(2));
    assert!(
        errors.contains("bin.ptx is not UTF-8 text (line 2)"),
        "{errors}"
    );

    let events = path("some/events.jsonl");
    let text = std::fs::read_to_string(&events).expect("reads");
    let unfinished = text.trim_end().rfind('\n').expect("several lines") + 1;
    std::fs::write(&events, &text[..unfinished]).expect("writes");
    let output = warptree(scratch.path(), &["show", "some"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("not ended: the `warptree batch`"), "{said}");
}

#[cfg(unix)]
#[test]
fn who_may_read_a_run_is_what_the_umask_says() {
    use std::os::unix::fs::PermissionsExt as _;

    let scratch = tempfile::tempdir().expect("scratch");
    let path = |name: &str| scratch.path().join(name);
    std::fs::write(path("k.json"), super::kill::table()).expect("writes");
    let search = [
        "search",
        "k",
        "--device",
        "recorded:k.json",
        "--budget",
        "20",
        "--out",
        "s",
    ];
    assert!(warptree(scratch.path(), &search).status.success());
    let trace = ["trace", "s", "--to", "s.jsonl.gz"];
    assert!(warptree(scratch.path(), &trace).status.success());
    let mode = |path: &Path| {
        let metadata = std::fs::metadata(path).expect("is there");
        metadata.permissions().mode() & 0o777
    };
    let usual = mode(&path("k.json"));
    let object = std::fs::read_dir(path("s/objects")).expect("reads").next();
    let object = object.expect("a source").expect("reads").path();
    for file in [path("s/run.toml"), path("s.jsonl.gz"), object] {
        assert_eq!(mode(&file), usual, "{}", file.display());
    }
}

/// Needs ptxas, which the program installs.
#[test]
fn a_batch_that_goes_on_takes_its_seed_s_time_from_the_run() {
    let scratch = tempfile::tempdir().expect("scratch");
    let args = "batch transpose --space seed --device sim --out b --json";
    let batch = || {
        let args: Vec<&str> = args.split(' ').collect();
        let output = warptree(scratch.path(), &args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{said}");
        let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (summary, said)
    };
    let (first, said) = batch();
    assert!(said.contains("judging 1 setting of transpose"), "{said}");
    assert_eq!(first["judged"], 1);
    let (again, _) = batch();
    assert_eq!(again["judged"], 0);
    let stages = again["stages"].as_array().expect("a list");
    assert!(stages.is_empty(), "something was judged: {stages:?}");
}
