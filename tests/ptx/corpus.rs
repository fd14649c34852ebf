//! What nvcc and NVRTC write (corpus.gz, made by make_corpus.sh) goes through the front end unharmed.

use std::io::Read;
use std::sync::LazyLock;

use flate2::read::MultiGzDecoder;
use warptree::ptx::{canonical, digest, parse, print};

use crate::parse::{data, round_trips};

/// Name and text of each file.
pub static CORPUS: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
    let packed = std::fs::File::open(data("corpus.gz")).expect("tests/data/ptx/corpus.gz");
    let mut all = String::new();
    MultiGzDecoder::new(packed)
        .read_to_string(&mut all)
        .expect("corpus.gz unpacks");
    all.split("//==== ")
        .skip(1)
        .map(|file| file.split_once('\n').expect("a name and a text"))
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .collect()
});

#[test]
fn real_files_round_trip_and_keep_their_hash() {
    assert!(CORPUS.len() >= 100, "{} files", CORPUS.len());
    let mut digests = std::collections::HashMap::new();
    for (name, text) in CORPUS.iter() {
        let module = round_trips(name, text);
        let canon = canonical(&module);
        let of = |text: &str| digest(&parse(text).expect("parses"));
        assert_eq!(of(&print(&module)), digest(&module), "{name}: printed");
        assert_eq!(
            of(&text.replace('\t', "   ").replace(';', " ; \n")),
            digest(&module),
            "{name}: respaced"
        );
        // The canonical form is PTX, and its own canonical form.
        let again = parse(&canon).unwrap_or_else(|error| panic!("{name}, canonical: {error}"));
        assert_eq!(canonical(&again), canon, "{name}: canonical twice");
        if let Some(other) = digests.insert(digest(&module), name) {
            panic!("{name} and {other} have one hash");
        }
    }
}

#[test]
fn nothing_in_real_files_is_verbatim() {
    for (name, text) in CORPUS.iter() {
        let module = parse(text).expect("parses");
        for instruction in crate::parse::instructions(&module) {
            let operands = format!("{:?}", instruction.operands);
            assert!(!operands.contains("Verbatim"), "{name}: {instruction}");
        }
    }
}
