//! A hundred SIGKILLs at random points: the resumed run equals the uninterrupted one, event for event.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use warptree::source::{Point, Setting};
use warptree::store::{Event, StoredRun};

const KILLS: u32 = 100;
const BUDGET: &str = "60";

/// A Kernel Tuner cache of 8 × 8 × 6 settings, some failed.
pub(super) fn table() -> String {
    let mut cache = String::new();
    for a in 0..8 {
        for b in 0..8 {
            for c in 0..6 {
                let comma = if cache.is_empty() { "" } else { "," };
                let time = match (a * 31 + b * 17 + c * 5) % 9 {
                    0 => "\"RuntimeFailedConfig\"".to_owned(),
                    _ => format!("{}", 1 + (a - 5) * (a - 5) + 2 * (b - 2) * (b - 2) + c),
                };
                let _ = write!(
                    cache,
                    "{comma}\n\"{a},{b},{c}\": {{\"a\": {a}, \"b\": {b}, \"c\": {c}, \"time\": {time}}}"
                );
            }
        }
    }
    format!(
        "{{\"device_name\": \"X\", \"kernel_name\": \"k\", \"tune_params_keys\": [\"a\", \"b\", \"c\"], \
         \"tune_params\": {{\"a\": [0,1,2,3,4,5,6,7], \"b\": [0,1,2,3,4,5,6,7], \"c\": [0,1,2,3,4,5]}}, \
         \"cache\": {{{cache}}}}}"
    )
}

/// All but clocks.
fn judged(run: &Path) -> Vec<(u64, Point, Setting, String)> {
    let run = StoredRun::open(run).expect("opens");
    run.lines
        .into_iter()
        .map(|line| match line.event {
            Event::Evaluated {
                ticket,
                point,
                setting,
                evaluation,
                ..
            } => (
                ticket.0,
                point,
                setting,
                format!("{:?}", evaluation.verdict),
            ),
            other => (
                u64::MAX,
                Point(Box::new([])),
                Setting::new(),
                format!("{other:?}"),
            ),
        })
        .collect()
}

#[test]
fn killed_anywhere_the_run_ends_the_same() {
    let scratch = tempfile::tempdir().expect("scratch");
    std::fs::write(scratch.path().join("k.json"), table()).expect("writes");
    let search = |folder: &str| {
        let mut command = super::warptree(scratch.path());
        command
            .args([
                "search",
                "k",
                "--device",
                "recorded:k.json",
                "--budget",
                BUDGET,
                "--out",
                folder,
            ])
            .args(["--jobs", "2"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    };
    let resume = |folder: &str| {
        let mut command = super::warptree(scratch.path());
        command
            .args(["resume", folder, "--jobs", "2"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    };
    let started = std::time::Instant::now();
    assert!(search("through").status().expect("runs").success());
    let whole = started.elapsed();
    let expected = judged(&scratch.path().join("through"));
    let mut rng = Pcg64::seed_from_u64(11);
    let (mut kills, mut run) = (0, 0);
    while kills < KILLS {
        run += 1;
        let folder = format!("run-{run}");
        let path = scratch.path().join(&folder);
        loop {
            let begun = path.join("run.toml").exists();
            let mut child = if begun {
                resume(&folder)
            } else {
                search(&folder)
            }
            .spawn()
            .expect("starts");
            let after = Duration::from_secs_f64(whole.as_secs_f64() * rng.random::<f64>());
            std::thread::sleep(after);
            match child.try_wait().expect("waits") {
                Some(status) => {
                    assert!(status.success(), "{status}");
                    break;
                }
                None => {
                    child.kill().expect("kills");
                    child.wait().expect("reaps");
                    kills += 1;
                }
            }
        }
        assert_eq!(judged(&path), expected, "after {kills} kills");
    }
}
