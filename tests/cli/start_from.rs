//! A search that starts from what an earlier one found.

use std::path::Path;

use serde_json::Value;
use warptree::source::Setting;
use warptree::store::{Event, StoredRun};

/// The settings in the order judged, each with its time; failed ones have none.
fn judged(folder: &Path) -> Vec<(Option<f64>, Setting)> {
    let run = StoredRun::open(folder).expect("opens");
    let judged = run.lines.into_iter().filter_map(|line| {
        let Event::Evaluated {
            setting,
            evaluation,
            ..
        } = line.event
        else {
            return None;
        };
        Some((evaluation.cost(), setting))
    });
    judged.collect()
}

#[test]
fn the_best_setting_of_an_earlier_run_comes_right_after_the_default() {
    let scratch = tempfile::tempdir().expect("scratch");
    let folder = scratch.path();
    let write = |name: &str, text: String| std::fs::write(folder.join(name), text).expect("writes");
    write("k.json", super::kill::table());
    // A relative without the knob's best value: what needs it cannot be taken over.
    let mut relative: Value = serde_json::from_str(&super::kill::table()).expect("JSON");
    relative["tune_params"]["a"] = [0, 1, 2, 3, 4, 6, 7].map(Value::from).to_vec().into();
    let cache = relative["cache"].as_object_mut().expect("an object");
    cache.retain(|key, _| !key.starts_with("5,"));
    write("relative.json", relative.to_string());
    let search = |args: &str| {
        let output = super::warptree(folder).args(args.split(' ')).output();
        let output = output.expect("runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), errors)
    };

    let (ok, errors) = search("search k --device recorded:k.json --budget 60 --out a");
    assert!(ok, "{errors}");
    let mut earlier = judged(&folder.join("a"));
    let default = earlier[0].1.clone();
    earlier.retain(|(time, setting)| time.is_some() && *setting != default);
    earlier.sort_by(|a, b| a.0.partial_cmp(&b.0).expect("times"));
    let best = &earlier[0].1;

    let (ok, errors) =
        search("search k --device recorded:k.json --budget 20 --out b --start-from a");
    assert!(ok, "{errors}");
    let order: Vec<Setting> = judged(&folder.join("b"))
        .into_iter()
        .map(|(_, setting)| setting)
        .collect();
    assert_eq!(order[0], default);
    assert_eq!(order[1], *best);

    // The first choice of a knob is its default: where 5 is no value of `a`, 0 takes its place.
    let (ok, errors) =
        search("search k --device recorded:relative.json --budget 20 --out c --start-from a");
    assert!(ok, "{errors}");
    let order = judged(&folder.join("c"));
    let taken_over = earlier
        .iter()
        .map(|(_, setting)| {
            let mut setting = setting.clone();
            if setting["a"].to_string() == "5" {
                setting.insert("a".into(), default["a"].clone());
            }
            setting
        })
        .find(|setting| *setting != default);
    assert_eq!(Some(&order[1].1), taken_over.as_ref());
    assert!(order.iter().all(|(_, s)| s["a"].to_string() != "5"));

    // All it knows is stored with the run, which goes on without the earlier ones. A trace, and several runs,
    // serve as well.
    for args in [
        "trace a --to a.jsonl.gz",
        "search k --device recorded:k.json --budget 20 --out d --start-from a.jsonl.gz --start-from c",
    ] {
        let (ok, errors) = search(args);
        assert!(ok, "{errors}");
    }
    std::fs::rename(folder.join("c"), folder.join("gone")).expect("renames");
    std::fs::remove_file(folder.join("a.jsonl.gz")).expect("removes");
    let (ok, errors) = search("resume d --budget 30");
    assert!(ok, "{errors}");
    assert_eq!(judged(&folder.join("d")).len(), 30);
    let (ok, errors) = search("trace d --to d.jsonl.gz");
    assert!(ok, "{errors}");
}

#[test]
fn a_run_that_has_nothing_to_give_is_an_error() {
    let scratch = tempfile::tempdir().expect("scratch");
    let folder = scratch.path();
    std::fs::write(folder.join("k.json"), super::kill::table()).expect("writes");
    let other = super::kill::table()
        .replace("\"a\"", "\"p\"")
        .replace("\"b\"", "\"q\"")
        .replace("\"c\"", "\"r\"");
    std::fs::write(folder.join("other.json"), other).expect("writes");
    let search = |args: &str| super::warptree(folder).args(args.split(' ')).output();
    let first = search("search k --device recorded:other.json --budget 10 --out a").expect("runs");
    assert!(first.status.success());
    let output = search("search k --device recorded:k.json --out b --start-from a").expect("runs");
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("--start-from a"), "{errors}");
    assert!(!folder.join("b").exists(), "nothing was begun");
}
