//! Reports as files: pages that need nothing else, pictures, tables of a comparison.

use std::path::{Path, PathBuf};

use crate::warptree;

/// A recorded run of the repository.
fn trace_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("traces/{name}.jsonl.gz"))
}

#[test]
fn a_run_becomes_one_page_and_pictures() {
    let folder = tempfile::tempdir().expect("a folder");
    let done = warptree(folder.path())
        .arg("report")
        .arg(trace_file("softmax-h200"))
        .args(["--html", "out/run.html", "--svg", "svg", "--png", "png"])
        .output()
        .expect("it runs");
    assert!(done.status.success(), "{done:?}");
    let read = |file: &str| std::fs::read(folder.path().join(file)).expect(file);
    let page = String::from_utf8(read("out/run.html")).expect("text");
    stands_alone(&page);
    for part in [
        "Best so far",
        "Search graph",
        "Funnel",
        "Roofline",
        "Stalls",
        "Baselines",
        "torch.softmax",
        "ptxas 13.0.88",
        "limited by",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    for name in ["tree", "curve"] {
        let svg = String::from_utf8(read(&format!("svg/{name}.svg"))).expect("text");
        assert!(svg.starts_with("<svg xmlns=") && !svg.contains("var(--"));
        assert!(read(&format!("png/{name}.png")).starts_with(b"\x89PNG"));
    }
}

#[test]
fn a_report_says_what_to_write() {
    let folder = tempfile::tempdir().expect("a folder");
    let done = warptree(folder.path())
        .arg("report")
        .arg(trace_file("softmax-h200"))
        .output()
        .expect("it runs");
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && told.contains("--html"), "{told}");
}

#[test]
fn several_runs_become_one_curve_over_their_own_denominators() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = |args: &[&str]| {
        let done = warptree(folder.path())
            .arg("report")
            .arg(trace_file("gemm_bf16-m1024-h200"))
            .arg(trace_file("softmax-h200"))
            .args(args)
            .output()
            .expect("it runs");
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        (done.status.success(), told)
    };
    assert_eq!(report(&["--curve", "out/curve.svg"]), (true, String::new()));
    let file = folder.path().join("out/curve.svg");
    let svg = std::fs::read_to_string(file).expect("a picture");
    assert!(svg.starts_with("<svg xmlns=") && !svg.contains("var(--"));
    for words in [
        "gemm_bf16@M=1024 over cuBLASLt",
        "softmax over torch.softmax",
        "minutes of search",
        "measured",
    ] {
        assert!(svg.contains(words), "{words} is missing");
    }
    assert!(report(&["--curve", "curve.png"]).0);
    let png = std::fs::read(folder.path().join("curve.png")).expect("a picture");
    assert!(png.starts_with(b"\x89PNG"));
    let (done, told) = report(&["--html", "two.html"]);
    assert!(!done && told.contains("--curve FILE"), "{told}");
    let (done, told) = report(&["--curve", "curve.gif"]);
    assert!(!done && told.contains("ends in .svg or .png"), "{told}");
    assert!(!folder.path().join("curve.gif").exists());
}

/// A score that is not whole is told wherever its winner is.
#[test]
fn a_winner_that_counts_in_part_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let table = r#"{"device_name": "X", "kernel_name": "k", "tune_params_keys": ["a"], "tune_params": {"a": [1]},
        "cache": {"1": {"a": 1, "time": 1.0}}}"#;
    std::fs::write(folder.path().join("k.json"), table).expect("writes");
    let told = |args: &str| {
        let done = warptree(folder.path())
            .args(args.split(' '))
            .output()
            .expect("it runs");
        assert!(done.status.success(), "{args}: {done:?}");
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let ended = told("search k --device recorded:k.json --budget 1 --out r");
    assert!(!ended.contains("its score"), "{ended}");
    assert!(!told("show r").contains("score       counts"));
    let events = folder.path().join("r/events.jsonl");
    let whole = std::fs::read_to_string(&events).expect("reads");
    let score = r#""instructions":{"kind":"not_profiled","value":"#;
    let with = |value: &str, best: &str| {
        let part = whole.replace(&format!("{score}1.0"), &format!("{score}{value}"));
        assert_ne!(part, whole);
        let part = part.replace(r#""best":true"#, &format!(r#""best":{best}"#));
        std::fs::write(&events, part).expect("writes");
    };
    with("0.5", "true");
    let says = "counts × 0.500: halved by spills over 128 bytes";
    let ended = told("resume r");
    assert!(ended.contains(&format!("its score {says}")), "{ended}");
    let shown = told("show r");
    assert!(shown.contains(&format!("score       {says}")), "{shown}");
    told("report r --html page.html");
    let page = std::fs::read_to_string(folder.path().join("page.html")).expect("a page");
    assert!(page.contains(&format!("Its score {says}")));
    with("0.0", "false");
    let shown = told("show r");
    assert!(shown.contains("a score that counts nothing"), "{shown}");
    told("report r --html page.html");
    let page = std::fs::read_to_string(folder.path().join("page.html")).expect("a page");
    assert!(page.contains("a score that counts nothing"));
}

#[test]
fn a_comparison_keeps_its_series_and_refuses_those_of_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let device = format!("recorded:{}", trace_file("transpose-space-h200").display());
    let compare = |budget: &str| {
        let done = warptree(folder.path())
            .args(["compare", "transpose", "--device", &device, "--seeds", "2"])
            .args(["--methods", "knobs-only,random", "--budget", budget])
            .args(["--out", "cmp", "--html", "told/cmp.html"])
            .output()
            .expect("it runs");
        let told = String::from_utf8_lossy(&done.stdout).into_owned();
        (done, told)
    };
    let (first, told) = compare("12");
    assert!(first.status.success(), "{first:?}");
    assert!(told.contains("knobs-only") && told.contains("÷ knobs-only"));
    let page = std::fs::read_to_string(folder.path().join("told/cmp.html")).expect("a page");
    stands_alone(&page);
    for table in ["curve", "bands", "turns", "summary"] {
        let file = folder.path().join(format!("cmp/{table}.csv"));
        assert!(file.exists(), "{table}.csv is missing");
    }
    let curve = std::fs::read_to_string(folder.path().join("cmp/curve.csv")).expect("a table");
    assert_eq!(curve.lines().count(), 1 + 2 * 2 * 12);
    let (again, told_again) = compare("12");
    assert!(again.status.success());
    assert_eq!(told, told_again);
    let (other, _) = compare("13");
    let why = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(
        !other.status.success() && why.contains("another comparison"),
        "{why}"
    );
}

#[test]
fn budgets_that_end_nothing_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let device = format!("recorded:{}", trace_file("transpose-space-h200").display());
    for (budget, said) in [
        (["--budget-tokens", "1000"], "asks no model"),
        (["--gpu-seconds", "5"], "takes no time"),
    ] {
        let done = warptree(folder.path())
            .args(["compare", "transpose", "--device", &device, "--out", "cmp"])
            .args(budget)
            .output()
            .expect("it runs");
        let why = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(!done.status.success() && why.contains(said), "{why}");
    }
}

/// Nothing in it is loaded from anywhere, and nothing is missing from its markup.
fn stands_alone(page: &str) {
    for outside in [
        "http://", "https://", " src=", "@import", "url(", "{{", "{%",
    ] {
        let at = page.find(outside);
        let near = at.map(|at| {
            page[at.saturating_sub(60)..]
                .chars()
                .take(120)
                .collect::<String>()
        });
        assert_eq!(near, None, "{outside}");
    }
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    let count = |text: &str| page.matches(text).count();
    assert_eq!(count("<section"), count("</section>"));
    assert_eq!(count("<script"), count("</script>"));
}
