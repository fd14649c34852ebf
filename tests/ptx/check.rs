//! Lints find what they should, on the right line, and nothing else. A line that must have a finding ends
//! in `//~ CODE`.

use warptree::ptx::{check, parse};

use crate::corpus::CORPUS;
use crate::parse::files;

#[test]
fn findings_are_where_the_files_say() {
    for (name, text) in files("lints", "ptx") {
        let module = parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let expected: Vec<(u32, String)> = (text.lines().zip(1..))
            .filter_map(|(line, number)| Some((number, line.split_once("//~ ")?.1.to_owned())))
            .collect();
        let found: Vec<(u32, String)> = check(&module)
            .into_iter()
            .map(|diagnostic| (diagnostic.line.expect("a line"), diagnostic.code))
            .collect();
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn compiler_output_has_no_findings() {
    for (name, text) in CORPUS.iter() {
        let found = check(&parse(text).expect("parses"));
        assert!(found.is_empty(), "{name}: {found:#?}");
    }
}
