//! Exported kernels looked at again: one that is whole passes; whatever was done to its files, or to the
//! certificate, is told by a check of its own, and nothing of such a folder is run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use warptree::evaluate::ptxas::{Assembler, Assembly};
use warptree::export::Certificate;
use warptree::source::Source;
use warptree::toolchain::{self, Network, Places};
use warptree::units::Digest;

const LOADERS: &[&str] = &[
    "loaders/kernel.hpp",
    "loaders/main.cpp",
    "loaders/kernel.rs",
    "loaders/Cargo.toml",
    "loaders/kernel.py",
];

/// A search of one kernel, the seed, exported once for all tests, and copied to `kernel` in `scratch`.
pub(super) fn exported(scratch: &Path) {
    static ONCE: OnceLock<tempfile::TempDir> = OnceLock::new();
    let whole = ONCE.get_or_init(|| {
        let scratch = tempfile::tempdir().expect("scratch");
        for args in [
            "search transpose --device sim --space seed --proposers knobs --budget 1 --out run",
            "export run --to kernel",
        ] {
            let output = super::warptree(scratch.path())
                .args(args.split(' '))
                .output()
                .expect("runs");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{args}: {errors}");
        }
        scratch
    });
    copy(&whole.path().join("kernel"), &scratch.join("kernel"));
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("creates");
    fs::create_dir(to.join("loaders")).expect("creates");
    let files = [
        "kernel.ptx",
        "kernel.cubin",
        "source.ptx",
        "certificate.json",
    ];
    for file in files.iter().chain(LOADERS) {
        fs::copy(from.join(file), to.join(file)).expect("copies");
    }
}

/// What `check FOLDER --device sim` found: the exit code, and each check's outcome and sentence.
fn check(
    scratch: &Path,
    folder: &str,
    args: &[&str],
) -> (i32, Value, BTreeMap<String, (String, String)>) {
    let output = super::warptree(scratch)
        .args(["check", folder, "--device", "sim", "--json"])
        .args(args)
        .output()
        .expect("runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let report: Value = serde_json::from_slice(&output.stdout).expect(&errors);
    let text = |check: &Value, field: &str| check[field].as_str().expect("text").to_owned();
    let checks = report["checks"].as_array().expect("a list").iter();
    let checks = checks
        .map(|check| {
            (
                text(check, "name"),
                (text(check, "outcome"), text(check, "detail")),
            )
        })
        .collect();
    (output.status.code().expect("exits"), report, checks)
}

#[test]
fn a_whole_export_passes_and_speed_and_architectures_are_told() {
    let scratch = tempfile::tempdir().expect("scratch");
    exported(scratch.path());
    let (code, report, checks) = check(scratch.path(), "kernel", &["--junit", "found/junit.xml"]);
    let outcome = |name: &str| checks[name].0.as_str();
    for name in [
        "certificate",
        "kernel.ptx",
        "kernel.cubin",
        "source.ptx",
        "source",
        "task",
        "assembly",
        "verification",
        "time",
        "speedup",
        "sm_80",
        "sm_86",
        "sm_89",
        "sm_90",
        "sm_100",
        "sm_120",
    ] {
        assert_eq!(outcome(name), "pass", "{name}: {}", checks[name].1);
    }
    assert_eq!(outcome("claim"), "not_done");
    assert_eq!((code, checks.len()), (0, 18));
    assert_eq!(report["passed"], true);
    assert!(checks["assembly"].1.contains("byte for byte"), "{checks:?}");
    let verification = &checks["verification"].1;
    assert!(
        verification.contains("ran kernel.ptx, not the cubin"),
        "{verification}"
    );
    let time = &checks["time"].1;
    assert!(
        time.contains("(estimated for") && time.contains("1.000 of"),
        "{time}"
    );
    assert!(
        checks["speedup"].1.contains("1.000× the seed"),
        "{checks:?}"
    );
    assert!(
        checks["speedup"].1.contains("frontier: not measured"),
        "{checks:?}"
    );
    assert!(checks["sm_90"].1.contains("not measured"), "{checks:?}");
    assert!(
        report["checked"]
            .as_array()
            .is_some_and(|checked| checked.len() > 5)
    );
    let junit = fs::read_to_string(scratch.path().join("found/junit.xml")).expect("written");
    assert!(
        junit.contains(
            r#"<testsuite name="kernel" tests="18" skipped="1" errors="0" failures="0">"#
        ),
        "{junit}"
    );
}

/// What is done to a folder, and what must be said of it.
struct Tampering {
    name: &'static str,
    done: fn(&Path),
    /// Checks that fail, and words of their sentences.
    fails: &'static [(&'static str, &'static str)],
}

fn edit(path: &Path, change: impl Fn(&str) -> String) {
    let text = fs::read_to_string(path).expect("text");
    let changed = change(&text);
    assert_ne!(text, changed, "{} is changed", path.display());
    fs::write(path, changed).expect("writes");
}

fn certificate(folder: &Path, change: impl Fn(&mut Value)) {
    edit(&folder.join("certificate.json"), |text| {
        let mut value: Value = serde_json::from_str(text).expect("JSON");
        change(&mut value);
        value.to_string()
    });
}

/// Edits it, and its hash with it.
fn forge(folder: &Path, change: impl Fn(&mut Certificate)) {
    let path = folder.join("certificate.json");
    let (mut forged, _) = Certificate::from_json(&fs::read(&path).expect("reads")).expect("whole");
    change(&mut forged);
    fs::write(&path, forged.to_json().expect("writes")).expect("writes");
}

const TAMPERINGS: &[Tampering] = &[
    Tampering {
        name: "a byte of the cubin flipped",
        done: |folder| {
            let path = folder.join("kernel.cubin");
            let mut bytes = fs::read(&path).expect("reads");
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(&path, bytes).expect("writes");
        },
        fails: &[
            ("kernel.cubin", "not the file that was certified"),
            ("assembly", "makes another cubin"),
        ],
    },
    Tampering {
        name: "the PTX edited",
        done: |folder| {
            edit(&folder.join("kernel.ptx"), |text| {
                text.replace("shl.b64 %rd4, %rd4, 2;", "shl.b64 %rd4, %rd4, 3;")
            });
        },
        fails: &[
            ("kernel.ptx", "not the file that was certified"),
            ("source", "is the first to differ"),
            ("assembly", "makes another cubin"),
        ],
    },
    Tampering {
        name: "the source edited",
        done: |folder| {
            edit(&folder.join("source.ptx"), |text| {
                text.replace("block=(32, 8)", "block=(8, 32)")
            });
        },
        fails: &[
            ("source.ptx", "not the file that was certified"),
            ("source", "candidate"),
        ],
    },
    Tampering {
        name: "the certified time edited",
        done: |folder| certificate(folder, |value| value["time"]["time"] = 1.5.into()),
        fails: &[("certificate", "it was edited")],
    },
    Tampering {
        name: "the certified launches forged",
        done: |folder| {
            forge(folder, |certificate| {
                certificate.launches.launches[0].grid[0] = "1".to_owned();
            });
        },
        fails: &[("source", "launch another grid")],
    },
    Tampering {
        name: "a cubin of something else, certificate and all",
        done: |folder| {
            let path = folder.join("kernel.cubin");
            let mut bytes = fs::read(&path).expect("reads");
            bytes.extend(b"more");
            fs::write(&path, &bytes).expect("writes");
            forge(folder, |certificate| certificate.cubin = Digest::of(&bytes));
        },
        fails: &[("assembly", "does not come from it")],
    },
    Tampering {
        name: "a certificate of a newer format",
        done: |folder| certificate(folder, |value| value["format"] = 99.into()),
        fails: &[("certificate", "a newer warptree wrote it")],
    },
    Tampering {
        name: "half a certificate",
        done: |folder| {
            edit(&folder.join("certificate.json"), |text| {
                text[..text.len() / 2].to_owned()
            });
        },
        fails: &[("certificate", "it is no certificate")],
    },
    Tampering {
        name: "a certificate without its hash",
        done: |folder| {
            certificate(folder, |value| {
                value.as_object_mut().expect("fields").remove("digest");
            });
        },
        fails: &[("certificate", "`digest` is missing")],
    },
    Tampering {
        name: "every loader edited",
        done: |folder| {
            for name in LOADERS {
                edit(&folder.join(name), |text| format!("{text}\n"));
            }
        },
        fails: &[
            ("loaders", "loaders/kernel.hpp is not the file that was"),
            ("loaders", "loaders/main.cpp is not the file that was"),
            ("loaders", "loaders/kernel.rs is not the file that was"),
            ("loaders", "loaders/Cargo.toml is not the file that was"),
            ("loaders", "loaders/kernel.py is not the file that was"),
        ],
    },
    Tampering {
        name: "one loader edited, others left out",
        done: |folder| {
            fs::remove_file(folder.join("loaders/kernel.rs")).expect("removes");
            edit(&folder.join("loaders/kernel.py"), |text| {
                format!("# theirs\n{text}")
            });
        },
        fails: &[
            ("loaders", "loaders/kernel.py is not the file that was"),
            ("loaders", "not here: loaders/kernel.rs"),
        ],
    },
    Tampering {
        name: "a certificate that names a file elsewhere",
        done: |folder| {
            forge(folder, |certificate| {
                let elsewhere = ("../kernel/kernel.ptx".to_owned(), certificate.ptx);
                certificate
                    .loaders
                    .get_or_insert_default()
                    .extend([elsewhere]);
            });
        },
        fails: &[("loaders", "../kernel/kernel.ptx is no file of this folder")],
    },
    Tampering {
        name: "a certificate without the loaders' hashes",
        done: |folder| forge(folder, |certificate| certificate.loaders = None),
        fails: &[("certificate", "`loaders` is missing")],
    },
    Tampering {
        name: "no certificate",
        done: |folder| fs::remove_file(folder.join("certificate.json")).expect("removes"),
        fails: &[("certificate", "missing")],
    },
    Tampering {
        name: "no PTX",
        done: |folder| fs::remove_file(folder.join("kernel.ptx")).expect("removes"),
        fails: &[("kernel.ptx", "missing")],
    },
    Tampering {
        name: "no cubin",
        done: |folder| fs::remove_file(folder.join("kernel.cubin")).expect("removes"),
        fails: &[("kernel.cubin", "missing")],
    },
    Tampering {
        name: "no source",
        done: |folder| fs::remove_file(folder.join("source.ptx")).expect("removes"),
        fails: &[("source.ptx", "missing")],
    },
];

#[test]
fn whatever_was_done_to_the_files_is_told_and_nothing_of_them_runs() {
    let scratch = tempfile::tempdir().expect("scratch");
    exported(scratch.path());
    for (nth, tampering) in TAMPERINGS.iter().enumerate() {
        let name = format!("tampered-{nth}");
        let folder = scratch.path().join(&name);
        copy(&scratch.path().join("kernel"), &folder);
        (tampering.done)(&folder);
        let (code, report, checks) = check(scratch.path(), &name, &["--arch", "sm_90"]);
        let named = tampering.name;
        assert_eq!(code, 1, "{named}: {report}");
        let failed: Vec<&str> = checks
            .iter()
            .filter(|(_, (outcome, _))| outcome == "fail")
            .map(|(name, _)| name.as_str())
            .collect();
        let mut expected: Vec<&str> = tampering.fails.iter().map(|(name, _)| *name).collect();
        expected.sort_unstable();
        expected.dedup();
        assert_eq!(failed, expected, "{named}: {checks:?}");
        for (check, says) in tampering.fails {
            assert!(checks[*check].1.contains(says), "{named}: {checks:?}");
        }
        let ran = checks
            .get("verification")
            .map(|(outcome, _)| outcome.as_str());
        assert!(
            matches!(ran, None | Some("not_done")),
            "{named}: {checks:?}"
        );
    }
}

/// What an older warptree exported goes on to pass; what its certificate does not know is told.
#[test]
fn a_certificate_from_before_loaders_had_hashes_passes_and_says_so() {
    let scratch = tempfile::tempdir().expect("scratch");
    exported(scratch.path());
    let folder = scratch.path().join("kernel");
    certificate(&folder, |value| {
        value["format"] = 3.into();
        let fields = value.as_object_mut().expect("fields");
        fields.remove("digest");
        fields.remove("loaders");
    });
    edit(&folder.join("loaders/kernel.py"), |text| {
        format!("# theirs\n{text}")
    });
    let (code, report, checks) = check(scratch.path(), "kernel", &["--arch", "sm_90"]);
    assert_eq!(code, 0, "{report}");
    let (outcome, detail) = &checks["loaders"];
    assert_eq!(outcome, "not_done");
    assert!(detail.contains("not recorded in format 3"), "{detail}");
    assert_eq!(checks["verification"].0, "pass", "{checks:?}");
}

/// A forger who writes every file anew and certifies them: only judging it again tells.
#[test]
fn a_wrong_kernel_with_a_forged_certificate_fails_the_verification() {
    let scratch = tempfile::tempdir().expect("scratch");
    exported(scratch.path());
    let folder = scratch.path().join("kernel");
    edit(&folder.join("source.ptx"), |text| {
        text.replace("@%p2 bra done;", "@%p2 bra done;\n    or.b32 %r5, %r5, 1;")
    });
    let text = fs::read_to_string(folder.join("source.ptx")).expect("reads");
    let source = Source::parse(&text).expect("parses");
    let point = source.space().default_point().expect("has one");
    let candidate = source.render(&point).expect("renders");
    let places = Places::from_environment(None);
    let tool = toolchain::ptxas(&places, Network::Allowed, &|_| ()).expect("is there");
    let arch = "sm_90a".parse().expect("an architecture");
    let assembly = Assembler::new(tool).assemble(&candidate.ptx, arch, &[]);
    let Assembly::Cubin(cubin) = assembly.expect("runs") else {
        panic!("it assembles");
    };
    fs::write(folder.join("kernel.ptx"), candidate.ptx.as_bytes()).expect("writes");
    fs::write(folder.join("kernel.cubin"), &cubin.bytes).expect("writes");
    forge(&folder, |certificate| {
        certificate.source = Digest::of(&text);
        certificate.ptx = Digest::of(candidate.ptx.as_bytes());
        certificate.cubin = Digest::of(Arc::clone(&cubin.bytes));
        certificate.candidate = Some(candidate.id());
    });
    let (code, _, checks) = check(scratch.path(), "kernel", &["--arch", "sm_90"]);
    let failed: Vec<&str> = checks
        .iter()
        .filter(|(_, (outcome, _))| outcome == "fail")
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!((code, failed), (1, vec!["verification"]), "{checks:?}");
    let verification = &checks["verification"].1;
    assert!(
        verification.contains("wrong") || verification.contains("faulted"),
        "{verification}"
    );
}

#[test]
fn another_task_too_little_speed_and_an_architecture_that_cannot_be_are_told() {
    let scratch = tempfile::tempdir().expect("scratch");
    exported(scratch.path());
    let theirs = scratch.path().join("theirs/transpose");
    fs::create_dir_all(&theirs).expect("creates");
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("tasks/transpose");
    for entry in fs::read_dir(ours).expect("lists") {
        let entry = entry.expect("lists");
        if entry.path().is_file() {
            fs::copy(entry.path(), theirs.join(entry.file_name())).expect("copies");
        }
    }
    edit(&theirs.join("task.toml"), |text| {
        format!("# theirs\n{text}")
    });
    let args = "--tasks theirs --arch sm_75,sm_90a --min-speedup 1.2";
    let args: Vec<&str> = args.split(' ').collect();
    let (code, report, checks) = check(scratch.path(), "kernel", &args);
    let failed: Vec<&str> = checks
        .iter()
        .filter(|(name, (outcome, _))| outcome != "pass" && *name != "claim")
        .map(|(name, _)| name.as_str())
        .collect();
    let expected = vec!["sm_75", "speedup", "task"];
    assert_eq!((code, failed), (1, expected), "{checks:?}");
    assert!(checks["task"].1.contains("--tasks"), "{checks:?}");
    assert!(checks["sm_75"].1.contains("not assembled"), "{checks:?}");
    let advice = report["advice"].as_str().expect("advised");
    assert!(advice.contains("keep the seed as the fallback"), "{advice}");
}
