//! What the recorded evaluator reads, says of damaged files, and refuses.

use std::io::Write;
use std::path::Path;

use super::*;
use crate::source::{KnobValue, Setting};

fn file(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/search/tables");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// Each recorded setting as `name=value …: time in ms` or `…: reason`, sorted.
fn listing(table: &Table) -> Vec<String> {
    let mut lines: Vec<String> = table
        .rows()
        .map(|(setting, row)| {
            let setting: Vec<String> = setting.iter().map(|(k, v)| format!("{k}={v}")).collect();
            let row = match row {
                Row::Time { time, samples } => {
                    format!("{} ms of {}", time.get() / 1e6, samples.len())
                }
                Row::Failed { reason } => reason.clone(),
            };
            format!("{}: {row}", setting.join(" "))
        })
        .collect();
    lines.sort();
    lines
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_kernel_tuner_cache_gives_times_in_milliseconds_and_names_every_failure() {
    let expected = [
        "block=128 mode=plain vector=1: the recorded time 100000000000000000000 is no time",
        "block=128 mode=plain vector=2: InvalidConfig",
        "block=32 mode=fast vector=1: 0.25 ms of 2",
        "block=32 mode=plain vector=1: 1.5 ms of 2",
        "block=32 mode=plain vector=2: the recorded time 0 is no time",
        "block=64 mode=plain vector=1: RuntimeFailedConfig",
        "block=64 mode=plain vector=2: the recorded time -1 is no time",
    ];
    for bytes in [file("cache.json").into_bytes(), gzip(&file("cache.json"))] {
        let table = read(&bytes).unwrap();
        assert_eq!(listing(&table), expected);
        assert!(table.warnings().is_empty());
    }
}

#[test]
fn t4_results_bring_their_units() {
    let table = read(file("t4.json").as_bytes()).unwrap();
    let expected = [
        "block=32 vector=1: compile",
        "block=32 vector=2: 2 ms of 0",
        "block=64 vector=1: 1.5 ms of 2",
    ];
    assert_eq!(listing(&table), expected);
    assert_eq!(
        table.knobs()[0].values,
        [KnobValue::Int(32), KnobValue::Int(64)]
    );
    let unitless = file("t4.json").replace("\"metadata\": {\"timeunit\": \"miliseconds\"},", "");
    let error = read(unitless.as_bytes()).unwrap_err().to_string();
    assert!(
        error.starts_with("record 0 (counted from 0): neither"),
        "{error}"
    );
}

#[test]
fn a_file_cut_anywhere_keeps_the_records_before_the_cut_and_says_so() {
    for name in ["cache.json", "t4.json"] {
        let whole = file(name);
        let all = listing(&read(whole.as_bytes()).unwrap());
        let mut most = 0;
        for cut in 0..whole.trim_end().len() {
            match read(&whole.as_bytes()[..cut]) {
                Ok(table) => {
                    let kept = listing(&table);
                    assert!(
                        kept.iter().all(|line| all.contains(line)),
                        "{name} cut at {cut}"
                    );
                    assert!(
                        kept.len() >= most,
                        "{name} cut at {cut} lost what a shorter file has"
                    );
                    most = kept.len();
                    let closed = table.warnings().is_empty();
                    assert!(
                        !closed || most == all.len(),
                        "{name} cut at {cut} is silent"
                    );
                }
                Err(TableError::CutTooEarly { at }) => assert_eq!((at, most), (cut, 0)),
                // Without the line that names the unit, or the keys, times would be guesses.
                Err(error) => assert!(most == 0, "{name} cut at {cut}: {error}"),
            }
        }
        assert_eq!(most, all.len());
    }
}

#[test]
fn a_cut_gzip_file_keeps_what_can_be_decompressed() {
    let rows: Vec<String> = (0..5000)
        .map(|i| format!("\"{i}\": {{\"k\": {i}, \"time\": {}.25}}", i * 7919 % 10007))
        .collect();
    let text = format!(
        "{{\"tune_params_keys\": [\"k\"], \"cache\": {{{}}}}}",
        rows.join(",\n")
    );
    let bytes = gzip(&text);
    let table = read(&bytes[..bytes.len() * 2 / 3]).unwrap();
    assert!(table.len() > 1000 && table.len() < 5000, "{}", table.len());
    let warnings = table.warnings().join("\n");
    assert!(
        warnings.contains("that record and whatever followed are lost"),
        "{warnings}"
    );
    assert!(
        warnings.contains("the gzip data is damaged or cut off"),
        "{warnings}"
    );
}

#[test]
fn a_file_that_is_no_table_is_refused_with_the_place() {
    let cases: [(&[u8], &str); 9] = [
        (
            b"",
            "the file ends at byte 0 before the first complete record",
        ),
        (
            b"{}",
            "this is neither a Kernel Tuner cache (it has no \"cache\")",
        ),
        (b"[1, 2]", "this is neither"),
        (b"\x1f\x8b\x08", "the gzip data cannot be read"),
        (
            b"{\"cache\": \xff\xff}",
            "line 1, column 11: this is not UTF-8 text",
        ),
        (
            b"{\"tune_params_keys\": [], \"cache\": {}}",
            "the table holds no record",
        ),
        (
            b"{\"tune_params_keys\": [\"k\"],\n \"cache\": {\"1\": {\"k\": 1, \"time\": nope}}}",
            "line 2, column 35: ",
        ),
        (
            b"{\"tune_params_keys\": [\"k\"], \"cache\": {\"1\": {\"time\": 1}}}",
            "record \"1\": it has no value for \"k\"",
        ),
        (
            b"{\"tune_params_keys\": [\"k\"], \"cache\": {\"1\": {\"k\": 1, \"time\": null}}}",
            "record \"1\": its time is null",
        ),
    ];
    for (bytes, expected) in cases {
        let error = read(bytes).unwrap_err().to_string();
        assert!(
            error.starts_with(expected),
            "{error:?} does not start with {expected:?}"
        );
    }
}

fn recorded() -> Recorded {
    Recorded::new(read(file("cache.json").as_bytes()).unwrap())
}

/// What is said of a setting; knobs left out take the source's default.
fn say(recorded: &Recorded, source: &Source, setting: &[(&str, KnobValue)]) -> String {
    let setting: Setting = setting
        .iter()
        .map(|(k, v)| ((*k).to_owned(), v.clone()))
        .collect();
    let point = source.space().point(&setting).unwrap();
    let evaluation = recorded.evaluate(source, &point).unwrap();
    match evaluation.verdict {
        Verdict::Measured(measurement) => format!("{:?}", measurement.time),
        Verdict::RecordedFailure { reason } => reason,
        other => panic!("not a recorded verdict: {other:?}"),
    }
}

#[test]
fn a_source_stands_for_the_table_and_a_setting_without_record_fails() {
    let recorded = recorded();
    let text = recorded.table().source_text(&["block * vector <= 128"]);
    let source = Source::parse(&text).unwrap();
    assert_eq!(source.space().len(), 10);
    let time = |ns| {
        format!(
            "{:?}",
            Time::Recorded {
                time: Nanos::new(ns).unwrap()
            }
        )
    };
    assert_eq!(say(&recorded, &source, &[]), time(1.5e6));
    let fast = ("mode", KnobValue::Text("fast".into()));
    assert_eq!(
        say(&recorded, &source, std::slice::from_ref(&fast)),
        time(0.25e6)
    );
    assert_eq!(
        say(&recorded, &source, &[("block", KnobValue::Int(64))]),
        "RuntimeFailedConfig"
    );
    assert_eq!(
        say(&recorded, &source, &[fast, ("block", KnobValue::Int(64))]),
        "not in the table"
    );
}

#[test]
fn a_source_about_other_knobs_is_told_which() {
    let recorded = recorded();
    let other = Source::parse("//@ knob block = 32 in {32}\n").unwrap();
    assert_eq!(
        say(&recorded, &other, &[]),
        "the table varies `vector`, which is no knob here"
    );
    let text = recorded.table().source_text(&[]) + "//@ knob extra = 1 in {1}\n";
    let more = Source::parse(&text).unwrap();
    assert_eq!(
        say(&recorded, &more, &[]),
        "the knob `extra` is not in the table"
    );
}

#[test]
fn noise_draws_raw_samples_and_repeats_for_a_seed() {
    let draw = |seed| {
        let recorded = Recorded::noisy(read(file("cache.json").as_bytes()).unwrap(), seed);
        assert!(!recorded.deterministic());
        let source = Source::parse(&recorded.table().source_text(&[])).unwrap();
        let draws = (0..20).map(|_| say(&recorded, &source, &[]));
        draws.collect::<Vec<_>>()
    };
    let (first, again) = (draw(1), draw(1));
    assert_eq!(first, again);
    let sample = |ns| {
        format!(
            "{:?}",
            Time::Recorded {
                time: Nanos::new(ns).unwrap()
            }
        )
    };
    let samples = [sample(1.4e6), sample(1.6e6)];
    assert!(first.iter().all(|time| samples.contains(time)));
    assert!(samples.iter().all(|time| first.contains(time)));
}
