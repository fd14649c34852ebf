//! Replies before and after repair.

use warptree::ptx::sanitise;
use warptree::units::SmArch;

use crate::corpus::CORPUS;
use crate::parse::{data, files};

#[test]
fn replies_are_repaired_and_every_repair_is_told() {
    for (name, reply) in files("sanitise", "txt") {
        let sanitised = sanitise(&reply, SmArch::SM_90A);
        let mut told = String::new();
        for fix in &sanitised.fixes {
            told += &format!("line {}: {}\n", fix.line, fix.what);
        }
        insta::with_settings!({snapshot_path => data("sanitise"), prepend_module_to_snapshot => false, omit_expression => true}, {
            insta::assert_snapshot!(name.as_str(), format!("{told}---\n{}", sanitised.text));
        });
        // What was repaired needs no repair.
        let again = sanitise(&sanitised.text, SmArch::SM_90A);
        assert_eq!(again.text, sanitised.text, "{name}: twice");
        assert!(again.fixes.is_empty(), "{name}: {:?}", again.fixes);
    }
}

#[test]
fn compiler_output_is_left_alone() {
    for (name, text) in CORPUS.iter() {
        let sanitised = sanitise(text, SmArch::SM_90A);
        assert_eq!(sanitised.fixes, [], "{name}");
        assert_eq!(&sanitised.text, text, "{name}");
    }
}
