//! What a source renders to.

use std::collections::BTreeMap;
use warptree::source::Source;

#[test]
fn debug_print() {
    let text = std::fs::read_to_string("tests/data/source/ok/sum.ptx").unwrap();
    let source = Source::parse(&text).unwrap_or_else(|e| panic!("{e}"));
    let point = source.space().default_point().unwrap();
    let candidate = source.render(&point).unwrap_or_else(|e| panic!("{e}"));
    for (n, line) in (1..).zip(candidate.ptx.lines()) {
        println!("{:3} {}", candidate.source_line(n).unwrap(), line);
    }
    println!("{:?}", candidate.module.is_ok());
    let names: BTreeMap<String, i64> = [("n".to_owned(), 1000)].into();
    println!(
        "{:#?}",
        candidate.plan(&names).unwrap_or_else(|e| panic!("{e}"))
    );
    println!("{} {}", candidate.id(), source.digest());
    println!("{}", source.space().len());
}
