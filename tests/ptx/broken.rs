//! Broken texts: a structure that does not hold is refused with its place; what is merely wrong is kept for
//! ptxas. cases.txt holds them, `## NAME` before each.

use warptree::ptx::{canonical, check, module_state, parse, print, sanitise};
use warptree::units::SmArch;

use crate::parse::data;

#[test]
fn broken_texts_are_refused_with_their_place() {
    let cases = std::fs::read_to_string(data("broken").join("cases.txt")).expect("cases.txt");
    let mut told = String::new();
    let mut count = 0;
    for case in cases.split("## ").skip(1) {
        let (name, text) = case.split_once('\n').expect("a name and a text");
        let outcome = match parse(text) {
            Ok(module) => {
                // What is kept must be bearable to all that follows.
                check(&module);
                module_state(&module);
                assert!(parse(&print(&module)).is_ok(), "{name}: printed");
                canonical(&module);
                "kept for ptxas".to_owned()
            }
            Err(error) => {
                let line = text
                    .lines()
                    .nth(error.line as usize - 1)
                    .unwrap_or_default();
                format!(
                    "{error}\n    {}",
                    line.trim().chars().take(60).collect::<String>()
                )
            }
        };
        sanitise(text, SmArch::SM_90A);
        told += &format!("{name}: {outcome}\n");
        count += 1;
    }
    assert!(count >= 60, "{count} cases");
    insta::with_settings!({snapshot_path => data("broken"), prepend_module_to_snapshot => false, omit_expression => true}, {
        insta::assert_snapshot!("messages", told);
    });
}
