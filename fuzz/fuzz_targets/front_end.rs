//! Any text through the whole PTX front end: no panic, no hang, no lost text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warptree::ptx::edit::{Hunk, apply_diff, apply_hunks};
use warptree::ptx::{canonical, check, digest, module_state, parse, print, sanitise};
use warptree::units::SmArch;

fuzz_target!(|text: &str| {
    let sanitised = sanitise(text, SmArch::SM_90A);
    assert!(!sanitised.fixes.is_empty() || sanitised.text == text);
    // The first line is the hunk's search, the second its replacement, the rest the text.
    if let Some((search, rest)) = text.split_once('\n')
        && let Some((replace, rest)) = rest.split_once('\n')
    {
        let hunk = Hunk {
            search: search.to_owned(),
            replace: replace.to_owned(),
        };
        let _ = apply_hunks(rest, &[hunk]);
        let _ = apply_diff(rest, text);
    }
    let Ok(module) = parse(text) else {
        return;
    };
    let squeeze = |text: &str| text.split_whitespace().collect::<String>();
    assert_eq!(squeeze(&print(&module)), squeeze(text));
    check(&module);
    module_state(&module);
    let canon = canonical(&module);
    assert_eq!(canonical(&parse(text).expect("parsed before")), canon);
    digest(&module);
});
