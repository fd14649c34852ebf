//! compute-sanitizer without a GPU: captured reports, and a stub that repeats them.

use std::fs;
use std::path::Path;

use warptree::device::cuda::WorkerCommand;
use warptree::evaluate::sanitizer::{Finding, Sanitizer, parse};
use warptree::toolchain::Found;

pub fn log(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sanitizer");
    fs::read_to_string(folder.join(name)).unwrap()
}

/// A `compute-sanitizer` that writes the same log for a tool each time.
pub struct Stub {
    folder: tempfile::TempDir,
}

impl Stub {
    pub fn new(logs: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (tool, log) in logs {
            fs::write(folder.path().join(tool), log).unwrap();
        }
        let script = format!(
            "#!/bin/sh\nwhile [ $# -gt 0 ]; do case $1 in --tool) t=$2;; --log-file) cp {}/$t $2;; esac; shift; done\n",
            folder.path().display()
        );
        let path = folder.path().join("compute-sanitizer");
        fs::write(&path, script).unwrap();
        let mut mode = fs::metadata(&path).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
        fs::set_permissions(&path, mode).unwrap();
        Self { folder }
    }

    pub fn sanitizer(&self) -> Sanitizer {
        let found = Found {
            path: self.folder.path().join("compute-sanitizer"),
            version: "2025.3.1.0".into(),
        };
        let runner = WorkerCommand {
            program: "warptree".into(),
            arguments: vec!["replay-calls".into()],
        };
        Sanitizer::new(found, runner)
    }
}

fn finding(entry: &str, message: &str, warning: bool, places: &[u64]) -> Finding {
    Finding {
        message: message.to_owned(),
        warning,
        places: places.iter().map(|at| (entry.to_owned(), *at)).collect(),
    }
}

/// `2025.3.1.0/…` were captured on an H200, `written/…` follow the documentation.
#[test]
fn captured_reports_are_read_as_expected() {
    let race = finding(
        "race",
        "Race reported between Write access at race+0xc0",
        false,
        &[0xc0, 0xd0],
    );
    let cases: &[(&str, &[Finding])] = &[
        ("2025.3.1.0/memcheck-clean.log", &[]),
        ("2025.3.1.0/memcheck-api-error.log", &[]),
        ("2025.3.1.0/racecheck-clean.log", &[]),
        ("2025.3.1.0/synccheck-clean.log", &[]),
        (
            // twenty threads of 1793 are listed
            "2025.3.1.0/memcheck-out-of-bounds.log",
            &[finding(
                "out_of_bounds",
                "Invalid __global__ write of size 4 bytes, first by thread (0,0,0) in block (4,0,0)",
                false,
                &[0x90],
            )],
        ),
        ("2025.3.1.0/racecheck-hazard.log", &[race]),
        (
            "2025.3.1.0/synccheck-divergent.log",
            &[finding(
                "divergent",
                "Barrier error detected. Divergent thread(s) in warp, first by thread (0,0,0) in block (0,0,0)",
                false,
                &[0x70],
            )],
        ),
        (
            "written/racecheck-warning.log",
            &[
                finding(
                    "k",
                    "Race reported between Write access at k+0x90",
                    false,
                    &[0x90, 0xa0],
                ),
                finding(
                    "k",
                    "Race reported between Write access at k+0x40",
                    true,
                    &[0x40, 0x40],
                ),
            ],
        ),
    ];
    for (name, expected) in cases {
        let found = parse(&log(name)).unwrap();
        assert_eq!(found, *expected, "{name}");
    }
    let refused = parse(&log("written/unsupported.log")).unwrap_err();
    assert!(refused.contains("not supported"), "{refused}");
}
