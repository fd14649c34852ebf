//! Runs that go on under new limits: more is given, less is refused and changes nothing.

use std::path::Path;
use std::process::Output;

use warptree::store::StoredRun;

fn run(folder: &Path, args: &str) -> Output {
    super::warptree(folder)
        .args(args.split(' '))
        .output()
        .expect("runs")
}

fn judged(folder: &Path) -> usize {
    let run = StoredRun::open(&folder.join("r")).expect("opens");
    let judged = run
        .lines
        .iter()
        .filter(|line| line.event.evaluated().is_some());
    judged.count()
}

#[test]
fn less_than_a_run_has_used_is_refused_and_it_still_goes_on() {
    let scratch = tempfile::tempdir().expect("scratch");
    let folder = scratch.path();
    std::fs::write(folder.join("k.json"), super::kill::table()).expect("writes");
    let search = "search k --device recorded:k.json --budget 40 --out r";
    assert!(run(folder, search).status.success());
    let config = std::fs::read(folder.join("r/run.toml")).expect("reads");
    for less in ["--budget 20", "--plateau 2"] {
        let refused = run(folder, &format!("resume r {less}"));
        let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{less}: {errors}");
        assert!(errors.contains("went further"), "{less}: {errors}");
        let after = std::fs::read(folder.join("r/run.toml")).expect("reads");
        assert!(after == config, "{less} changed run.toml");
    }
    assert_eq!(judged(folder), 40);
    assert!(run(folder, "resume r --budget 45").status.success());
    assert_eq!(judged(folder), 45);
}

#[test]
fn a_run_keeps_its_own_budget_where_other_limits_are_given() {
    let scratch = tempfile::tempdir().expect("scratch");
    let folder = scratch.path();
    std::fs::write(folder.join("k.json"), super::kill::table()).expect("writes");
    let search = "search k --device recorded:k.json --budget 125 --out r";
    assert!(run(folder, search).status.success());
    let resumed = run(folder, "resume r --plateau 1000");
    let errors = String::from_utf8_lossy(&resumed.stderr).into_owned();
    assert!(resumed.status.success(), "{errors}");
    assert_eq!(judged(folder), 125);
}
