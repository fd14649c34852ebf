//! Bad input of every kind: tests/data/cli/errors.toml says what is typed, what is in the folder, and what
//! must be said. No panic, exit code 2 (an error) or 1 (the answer is no), nothing written.

use std::collections::BTreeMap;
use std::fs;

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    case: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    args: Vec<String>,
    #[serde(default)]
    files: BTreeMap<String, String>,
    #[serde(default = "two")]
    code: i32,
    says: Vec<String>,
}

fn two() -> i32 {
    2
}

#[test]
fn bad_input_is_told_where_and_what_to_do() {
    let text = include_str!("../data/cli/errors.toml");
    let cases: Cases = toml::from_str(text).expect("well formed");
    assert!(cases.case.len() >= 40, "only {} cases", cases.case.len());
    let mut failures = Vec::new();
    for case in &cases.case {
        let scratch = tempfile::tempdir().expect("scratch");
        for (path, content) in &case.files {
            let path = scratch.path().join(path);
            fs::create_dir_all(path.parent().expect("relative")).expect("creates");
            fs::write(path, content).expect("writes");
        }
        let output = super::warptree(scratch.path())
            .args(&case.args)
            .stdin(std::process::Stdio::null())
            .output()
            .expect("runs");
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        let missing: Vec<_> = case
            .says
            .iter()
            .filter(|say| !said.contains(*say))
            .collect();
        if output.status.code() != Some(case.code)
            || !missing.is_empty()
            || said.contains("panicked")
        {
            failures.push(format!(
                "{}: exit {:?}, missing {missing:?}, said:\n{said}",
                case.name,
                output.status.code()
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
