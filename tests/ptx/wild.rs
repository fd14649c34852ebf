//! Hundreds of real files that `tests/data/ptx/wild.py` makes (nvcc, NVRTC, CUTLASS, Triton, tinygrad), in the
//! folder that `WARPTREE_CORPUS` names: nothing panics, printing and respacing change nothing that counts.

use std::path::PathBuf;

use warptree::ptx::{
    call_detectors, canonical, check, digest, module_state, parse, print, sanitise,
};
use warptree::units::SmArch;

use crate::parse::round_trips;

/// Fewer say that a maker was missing.
const FEWEST: usize = 400;

#[test]
#[ignore = "needs a folder of files, made by tests/data/ptx/wild.py, in WARPTREE_CORPUS"]
fn wild_files_round_trip_and_keep_their_hash() {
    let folder = std::env::var_os("WARPTREE_CORPUS").map(PathBuf::from);
    let folder = folder.expect("WARPTREE_CORPUS names the folder that wild.py filled");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("a folder")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "ptx"))
        .collect();
    files.sort();
    assert!(files.len() >= FEWEST, "{} files", files.len());
    let mut wrong = Vec::new();
    for path in &files {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let text = std::fs::read_to_string(path).expect("readable");
        let module = round_trips(&name, &text);
        let of = |text: &str| digest(&parse(text).expect("parses"));
        assert_eq!(of(&print(&module)), digest(&module), "{name}: printed");
        let canon = canonical(&module);
        let again = parse(&canon).unwrap_or_else(|error| panic!("{name}, canonical: {error}"));
        assert_eq!(canonical(&again), canon, "{name}: canonical twice");
        module_state(&module);
        call_detectors(&module);
        let findings = check(&module);
        if !findings.is_empty() {
            wrong.push(format!("{name}: {:?}", findings[0]));
        }
        let sanitised = sanitise(&text, SmArch::SM_90A);
        assert_eq!(sanitised.text, text, "{name}: sanitised");
    }
    assert!(
        wrong.is_empty(),
        "{} of {} files have findings:\n{}",
        wrong.len(),
        files.len(),
        wrong.join("\n")
    );
}
