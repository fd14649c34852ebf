//! The circle from nothing to an exported winner, on a small budget; needs ptxas, which the program installs.

use std::fs;

use serde_json::Value;

#[test]
fn search_show_export_and_eval_agree() {
    let scratch = tempfile::tempdir().expect("scratch");
    let run = |args: &[&str]| {
        let output = super::warptree(scratch.path())
            .args(args)
            .output()
            .expect("runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}\n{text}\n{errors}");
        (text, errors)
    };
    let device = ["--device", "sim"];
    let (text, errors) = run(&[
        &["search", "transpose", "--budget", "14", "--out", "r"],
        &device[..],
    ]
    .concat());
    assert!(
        errors.contains("estimated"),
        "the first line says that times are estimates: {errors}"
    );
    assert!(
        text.contains("winner:") && text.contains("estimated"),
        "{text}"
    );
    let (story, _) = run(&["show", "r", "--json"]);
    let story: Value = serde_json::from_str(&story).expect("JSON");
    assert_eq!(story["evaluations"], 14);
    let winner = &story["winner"];
    run(&["export", "r", "--to", "kernel"]);
    let certificate = fs::read_to_string(scratch.path().join("kernel/certificate.json"));
    let certificate: Value = serde_json::from_str(&certificate.expect("written")).expect("JSON");
    assert_eq!(certificate["candidate"], winner["candidate"]);
    let unchecked = certificate["not_checked"].as_array().expect("a list");
    assert!(
        unchecked
            .iter()
            .any(|check| check.as_str().is_some_and(|c| c.contains("estimated")))
    );
    let ptx = fs::read(scratch.path().join("kernel/kernel.ptx")).expect("written");
    assert_eq!(
        certificate["ptx"],
        warptree::units::Digest::of(&ptx).to_string()
    );

    let mut eval = vec![
        "eval".to_owned(),
        "transpose".into(),
        "kernel/source.ptx".into(),
        "--json".into(),
    ];
    for (knob, value) in winner["setting"].as_object().expect("a setting") {
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        eval.extend(["--set".to_owned(), format!("{knob}={value}")]);
    }
    let eval: Vec<&str> = eval.iter().map(String::as_str).chain(device).collect();
    let (verdict, _) = run(&eval);
    let verdict: Value = serde_json::from_str(&verdict).expect("JSON");
    assert_eq!(verdict["candidate"], winner["candidate"]);
    assert_eq!(verdict["verdict"]["time"], winner["measurement"]["time"]);
}

const MODEL: &str = concat!(
    "script:",
    env!("CARGO_MANIFEST_DIR"),
    "/tests/data/models/transpose.toml"
);

/// Search, best-of-n and single-shot at equal budget with a scripted model, offline, twice the same.
#[test]
fn compare_is_repeatable() {
    let compare = || {
        let scratch = tempfile::tempdir().expect("scratch");
        let output = super::warptree(scratch.path())
            .args([
                "compare",
                "transpose",
                "--device",
                "sim",
                "--space",
                "seed",
                "--budget",
                "10",
            ])
            .args([
                "--methods",
                "search,best-of-n,single-shot,random",
                "--seeds",
                "2",
            ])
            .args(["--model", MODEL, "--out", "out"])
            .output()
            .expect("runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        let curve = fs::read_to_string(scratch.path().join("out/curve.csv")).expect("written");
        // All but the last column, the time that judging took.
        let curve: String = curve
            .lines()
            .filter_map(|line| line.rsplit_once(','))
            .flat_map(|(told, _)| [told, "\n"])
            .collect();
        (String::from_utf8_lossy(&output.stdout).into_owned(), curve)
    };
    let (table, curve) = compare();
    assert_eq!((table.clone(), curve.clone()), compare());
    for method in ["search", "best-of-n", "single-shot", "random"] {
        assert!(table.contains(method), "{table}");
        assert!(curve.contains(&format!("{method},0,1,")), "{curve}");
    }
    assert!(
        curve.contains(",faulted,"),
        "the model's wrong edit was judged: {curve}"
    );
}

/// The model's edit brings a knob, the tuner moves it, and the story tells both.
#[test]
fn a_models_edit_and_knob_moves_meet_on_the_winners_path() {
    let scratch = tempfile::tempdir().expect("scratch");
    let run = |args: &[&str]| {
        let output = super::warptree(scratch.path())
            .args(args)
            .output()
            .expect("runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    run(&[
        "search",
        "transpose",
        "--device",
        "sim",
        "--space",
        "seed",
        "--budget",
        "30",
        "--model",
        MODEL,
        "--out",
        "r",
    ]);
    let story: Value = serde_json::from_str(&run(&["show", "r", "--json"])).expect("JSON");
    let steps: Vec<&str> = story["path"]
        .as_array()
        .expect("a path")
        .iter()
        .filter_map(|step| step["what"].as_str())
        .collect();
    assert!(
        steps.iter().any(|step| step.contains("2^LOG columns wide")),
        "{steps:?}"
    );
    assert!(
        steps.last().is_some_and(|step| step.contains("LOG 4 → 2")),
        "{steps:?}"
    );
}
