//! Recorded runs shown as they went: from their events alone, word for word what the live search printed.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use warptree::store::{Event, Line, StoredRun};

fn text(output: &Output) -> (String, String) {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    (String::from_utf8_lossy(&output.stdout).into_owned(), errors)
}

fn traces() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    let entries = std::fs::read_dir(folder).expect("there are traces");
    let paths = entries.map(|entry| entry.expect("lists").path());
    paths
        .filter(|path| path.to_string_lossy().ends_with(".jsonl.gz"))
        .collect()
}

#[test]
fn a_live_search_and_its_replay_print_the_same() {
    let scratch = tempfile::tempdir().expect("scratch");
    std::fs::write(scratch.path().join("k.json"), super::kill::table()).expect("writes");
    let run = |args: &[&str]| {
        let output = super::warptree(scratch.path()).args(args).output();
        text(&output.expect("runs"))
    };
    let args = "search k --device recorded:k.json --budget 30 --out r";
    let (answer, progress) = run(&args.split(' ').collect::<Vec<_>>());
    let (replayed, errors) = run(&["replay", "r"]);
    assert!(progress.lines().count() > 3, "{progress}");
    assert_eq!(replayed, progress.clone() + &answer);
    assert_eq!(errors, "");

    let (answer, told) = run(&["resume", "r", "--budget", "120"]);
    let (replayed, _) = run(&["replay", "r"]);
    let (_, after_opening) = replayed.split_once('\n').expect("an opening");
    assert_eq!(
        after_opening,
        told + &answer,
        "a resumed run is told from its start"
    );
}

#[test]
fn traces_are_shown_line_by_line_or_event_by_event() {
    let mut shown = 0;
    for path in traces() {
        let run = StoredRun::open(&path).expect("opens");
        let name = path.to_str().expect("text");
        let replay = |args: &[&str]| {
            let output = super::warptree(Path::new("/"))
                .arg("replay")
                .arg(name)
                .args(args)
                .output();
            text(&output.expect("runs")).0
        };
        let told = replay(&[]);
        let lines: Vec<&str> = told.lines().collect();
        let judged = run.lines.iter().map(|line| &line.event);
        let judged = judged.filter(|event| matches!(event, Event::Evaluated { .. }));
        let doing = match path.file_name().expect("a name").to_str() {
            Some(name) if name.contains("-space-") || name.contains("-sample-") => {
                format!("judging {} settings of", judged.count())
            }
            _ => "searching".to_owned(),
        };
        let first = format!(
            "{doing} {} on {} ({}): times are measured; run in {name}",
            run.config.task, run.config.gpu, run.config.device
        );
        assert_eq!(lines[0], first);
        let labelled = |line: &&str| {
            let mut roots = run.config.roots.iter();
            roots.any(|root| line.contains(&format!("  {}: ", root.label)))
        };
        assert!(
            lines[1..].iter().any(labelled),
            "labels come from the graph: {told}"
        );
        assert!(
            told.contains("\nwinner: ") && !told.contains("\nexport: "),
            "{told}"
        );
        let events: Vec<Line> = replay(&["--json"])
            .lines()
            .map(|line| serde_json::from_str(line).expect("an event"))
            .collect();
        assert_eq!(events, run.lines);
        shown += 1;
    }
    assert!(shown >= 3, "only {shown} traces");
}

#[test]
fn it_keeps_its_own_pace_where_asked() {
    let path = traces().into_iter().next().expect("a trace");
    let whole = StoredRun::open(&path)
        .expect("opens")
        .lines
        .pop()
        .expect("events")
        .elapsed_ms;
    let speed = whole as f64 / 400.0;
    let begun = Instant::now();
    let output = super::warptree(Path::new("/"))
        .arg("replay")
        .arg(&path)
        .args(["--speed", &speed.to_string()])
        .output();
    text(&output.expect("runs"));
    assert!(
        begun.elapsed() >= Duration::from_millis(390),
        "{:?}",
        begun.elapsed()
    );
}
