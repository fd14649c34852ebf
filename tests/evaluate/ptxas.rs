//! What ptxas said, for every captured sample, and what a live ptxas says today.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use warptree::evaluate::ptxas::{Assembler, Assembly};
use warptree::evaluate::ptxas_output::{Report, advice, parse};
use warptree::toolchain::{Network, Places, Ptxas};
use warptree::units::{Digest, SmArch};

/// A ptxas on this machine, or the word that there is none.
pub fn real() -> Option<Assembler> {
    let places = Places::from_environment(None);
    match warptree::toolchain::ptxas(&places, Network::Forbidden, &|_| {}) {
        Ok(tool) => Some(Assembler::new(tool)),
        Err(error) => {
            eprintln!("skipped, no ptxas here: {error}");
            None
        }
    }
}

fn samples() -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/ptxas");
    let mut found = Vec::new();
    for version in fs::read_dir(root).expect("tests/data/ptxas").flatten() {
        if !version.path().is_dir() {
            continue;
        }
        for file in fs::read_dir(version.path()).expect("folder").flatten() {
            let path = file.path();
            if path.extension().is_some_and(|e| e == "ptx") {
                let name = path
                    .file_stem()
                    .expect("has a stem")
                    .to_string_lossy()
                    .into_owned();
                found.push((name, path.with_extension("")));
            }
        }
    }
    found.sort();
    found
}

/// `WARPTREE_BLESS=1 cargo test` rewrites the expectations; look at the difference before keeping it.
#[test]
fn captured_output_is_read_as_expected() {
    let samples = samples();
    assert!(samples.len() >= 40, "only {} samples", samples.len());
    let mut wrong = Vec::new();
    for (name, base) in samples {
        let stderr = fs::read_to_string(base.with_extension("stderr")).expect("stderr sample");
        let report = parse(&stderr);
        let expected = base.with_extension("expected.json");
        if std::env::var_os("WARPTREE_BLESS").is_some() {
            let text = serde_json::to_string_pretty(&report).expect("serialises") + "\n";
            fs::write(&expected, text).expect("writes");
        }
        let text = fs::read_to_string(&expected).expect("expectation");
        let expected: Report = serde_json::from_str(&text).expect("expectation parses");
        if report != expected {
            wrong.push(format!("{name}: {report:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn names_of_samples_say_how_they_end() {
    for (name, base) in samples() {
        let stderr = fs::read_to_string(base.with_extension("stderr")).expect("stderr sample");
        let report = parse(&stderr);
        let failed = !report.errors.is_empty() || !report.over_shared.is_empty();
        if name.starts_with("ok") {
            assert!(
                !failed && report.advisories.is_empty(),
                "{name}: {report:?}"
            );
        } else if name.starts_with("warn-spills") {
            assert!(report.entries[0].spill_stores.0 > 128, "{name}: {report:?}");
        } else if name.starts_with("warn") {
            assert!(
                !failed && !report.advisories.is_empty(),
                "{name}: {report:?}"
            );
        } else if name.starts_with("crash") {
            assert!(!failed && report.entries.is_empty(), "{name}: {report:?}");
        } else {
            assert!(failed, "{name}: {report:?}");
        }
    }
}

#[test]
fn most_errors_come_with_advice() {
    let (mut with, mut without) = (0, Vec::new());
    for (name, base) in samples() {
        let stderr = fs::read_to_string(base.with_extension("stderr")).expect("stderr sample");
        for error in parse(&stderr).errors {
            match error.help {
                Some(_) => with += 1,
                None => without.push(format!("{name}: {}", error.message)),
            }
        }
    }
    assert!(
        without.len() * 5 < with,
        "{with} with, without:\n{}",
        without.join("\n")
    );
}

#[test]
fn odd_texts_are_read_without_a_panic() {
    for text in [
        "ptxas",
        "ptxas ",
        "ptxas a, line ; error : x",
        "ptxas a, line 99999999999; error : x",
        "ptxas info    : Used registers",
        "ptxas info    : Used 99999999999999999999999 registers, used -1 barriers",
        "    48 bytes stack frame, 44 bytes spill stores",
        "ptxas info    : Compiling entry function '",
        "ptxas error   : Entry function 'k' uses too much shared data (0xzz bytes, max)",
        "ptxas error   : ",
        "\u{fffd}\u{fffd} : ptxas error",
        "ptxas größer, line 3; error   : ünïcode in around line ",
    ] {
        let _report = parse(text);
    }
    let spaced = parse("ptxas a file, line 3 of it, line 7; error   : Bad thing\n");
    assert_eq!(spaced.errors[0].line, Some(7));
    assert_eq!(advice("a message that nobody met"), None);
}

/// The samples are what this ptxas says: it is asked again where the version is the same.
#[test]
fn a_live_ptxas_says_what_was_captured() {
    let Some(assembler) = real() else { return };
    let here = format!("/{}/", assembler.tool().version);
    for (name, base) in samples() {
        if !base.to_string_lossy().contains(&here) {
            continue;
        }
        let ptx = fs::read(base.with_extension("ptx")).expect("sample");
        let Ok(ptx) = String::from_utf8(ptx) else {
            continue;
        };
        let args = fs::read_to_string(base.with_extension("args"))
            .unwrap_or_else(|_| "-arch=sm_90a".to_owned());
        let mut words = args.split_whitespace();
        let arch: SmArch = words
            .next()
            .and_then(|word| word.strip_prefix("-arch="))
            .and_then(|word| word.parse().ok())
            .expect("the first option is the architecture");
        let options: Vec<String> = words.map(str::to_owned).collect();
        let stderr = fs::read_to_string(base.with_extension("stderr")).expect("stderr sample");
        let captured = parse(&stderr);
        match assembler
            .assemble(&ptx, arch, &options)
            .expect("ptxas runs")
        {
            Assembly::Cubin(cubin) => {
                assert_eq!(cubin.resources, captured.entries, "{name}");
                assert_eq!(cubin.advisories, captured.advisories, "{name}");
            }
            Assembly::Refused(errors) => assert_eq!(errors, captured.errors, "{name}"),
            Assembly::OverLimits(_) => assert!(!captured.over_shared.is_empty(), "{name}"),
            Assembly::Failed(how) => assert!(name.starts_with("crash"), "{name}: {how}"),
        }
    }
}

const KERNEL: &str = "\
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x)
{
  ret;
}
";

/// A shell script in place of ptxas; it lives as long as the folder.
pub fn stub(script: &str) -> (tempfile::TempDir, Assembler) {
    let folder = tempfile::tempdir().expect("tempdir");
    let path = folder.path().join("ptxas");
    // Written by a child, so that no forked process of another test holds it open for writing.
    let write = r#"printf '#!/bin/sh\n%s\n' "$2" > "$1" && chmod 755 "$1""#;
    let done = std::process::Command::new("/bin/sh")
        .args(["-c", write, "sh"])
        .arg(&path)
        .arg(script)
        .status();
    assert!(done.expect("sh runs").success());
    let tool = Ptxas {
        path,
        version: "0.0".to_owned(),
        digest: Digest::of("stub"),
    };
    (folder, Assembler::new(tool))
}

fn assembled_by(script: &str) -> Assembly {
    let (_folder, assembler) = stub(script);
    assembler
        .assemble(KERNEL, SmArch::SM_90A, &[])
        .expect("the tool starts")
}

#[test]
fn a_ptxas_that_hangs_with_a_grandchild_is_killed_in_time() {
    let (_folder, assembler) = stub("sleep 600 & sleep 600");
    let assembler = assembler.with_time_limit(Duration::from_millis(200));
    let start = Instant::now();
    let assembly = assembler
        .assemble(KERNEL, SmArch::SM_90A, &[])
        .expect("the tool starts");
    assert!(
        matches!(&assembly, Assembly::Failed(how) if how.contains("did not end")),
        "{assembly:?}"
    );
    // far from the script's ten minutes, however busy the machine is
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_ptxas_that_crashes_is_a_verdict() {
    for script in ["exit 139", "kill -SEGV $$"] {
        let assembly = assembled_by(script);
        assert!(
            matches!(&assembly, Assembly::Failed(how) if how.contains("segmentation fault")),
            "{assembly:?}"
        );
    }
}

#[test]
fn a_ptxas_that_writes_garbage_is_a_verdict_that_quotes_it() {
    let assembly = assembled_by("echo 'what is this' >&2; exit 1");
    let Assembly::Refused(errors) = assembly else {
        panic!("{assembly:?}")
    };
    assert!(errors[0].message.contains("what is this"), "{errors:?}");
}

#[test]
fn a_ptxas_that_writes_no_cubin_or_no_elf_is_a_verdict() {
    for script in ["exit 0", "echo no > kernel.cubin"] {
        let assembly = assembled_by(script);
        assert!(matches!(assembly, Assembly::Failed(_)), "{assembly:?}");
    }
}

#[test]
fn a_missing_tool_is_a_broken_rig() {
    let tool = Ptxas {
        path: PathBuf::from("/no/such/ptxas"),
        version: "0.0".to_owned(),
        digest: Digest::of("none"),
    };
    let error = Assembler::new(tool).assemble(KERNEL, SmArch::SM_90A, &[]);
    assert!(error.is_err_and(|e| e.to_string().contains("/no/such/ptxas")));
}

/// Downloads; run with `--ignored`.
#[test]
#[ignore = "needs pip and a network"]
fn the_pinned_ptxas_installs_into_an_empty_cache_folder() {
    let cache = tempfile::tempdir().expect("tempdir");
    let places = Places {
        cache: Some(cache.path().join("warptree")),
        ..Places::default()
    };
    let said = std::cell::RefCell::new(Vec::new());
    let note = |line: &str| said.borrow_mut().push(line.to_owned());
    let tool = warptree::toolchain::ptxas(&places, Network::Allowed, &note).expect("installs");
    assert_eq!(tool.version, warptree::toolchain::VERSION);
    assert_eq!(said.borrow().len(), 1, "{:?}", said.borrow());
    let again = warptree::toolchain::ptxas(&places, Network::Forbidden, &note).expect("is there");
    assert_eq!((again, said.borrow().len()), (tool, 1));
}
