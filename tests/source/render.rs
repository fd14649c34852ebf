//! What a source renders to, and what is said about one that does not.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use warptree::source::{KnobValue, LaunchPlan, Setting, Source, SourceError};

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/source")
        .join(folder);
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "ptx"))
        .collect();
    files.sort();
    files
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap().to_string_lossy().into_owned()
}

/// What the `//! key: …` lines of a test file say.
fn directives<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let prefix = format!("//! {key}: ");
    text.lines()
        .filter_map(|line| line.strip_prefix(&prefix))
        .collect()
}

/// `a=1 b=2`
fn pairs(text: &str) -> impl Iterator<Item = (String, &str)> {
    text.split_whitespace().map(|pair| {
        let (name, value) = pair.split_once('=').unwrap();
        (name.to_owned(), value)
    })
}

fn names(text: &str) -> BTreeMap<String, i64> {
    directives(text, "names")
        .into_iter()
        .flat_map(pairs)
        .map(|(name, value)| (name, value.parse().unwrap()))
        .collect()
}

fn settings(text: &str) -> Vec<Setting> {
    directives(text, "setting")
        .into_iter()
        .map(|line| {
            pairs(line)
                .map(|(name, value)| (name, KnobValue::Text(value.to_owned())))
                .collect()
        })
        .collect()
}

fn describe(plan: &LaunchPlan) -> String {
    let mut out = String::new();
    for workspace in &plan.workspaces {
        writeln!(out, "{workspace:?}").unwrap();
    }
    for map in &plan.tensor_maps {
        writeln!(out, "{map:?}").unwrap();
    }
    for launch in &plan.launches {
        writeln!(out, "{launch:?}").unwrap();
    }
    out
}

/// Each file in `ok` renders, at its default and at the settings it names, to its snapshot.
#[test]
fn renderings() {
    for path in files("ok") {
        let text = std::fs::read_to_string(&path).unwrap();
        let source = Source::parse(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let space = source.space();
        let mut shown = format!("{} valid settings\n", space.len());
        let mut wanted = vec![Setting::new()];
        wanted.extend(settings(&text));
        for setting in wanted {
            let point = space.point(&setting).unwrap();
            let candidate = source
                .render(&point)
                .unwrap_or_else(|error| panic!("{path:?}: {error}"));
            assert!(candidate.module.is_ok(), "{path:?}: {:?}", candidate.module);
            let full: Vec<String> = candidate
                .setting
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            writeln!(shown, "\n== {}", full.join(" ")).unwrap();
            for (number, line) in (1..).zip(candidate.ptx.lines()) {
                let source_line = candidate.source_line(number).unwrap();
                writeln!(shown, "{source_line:4} {line}").unwrap();
            }
            let plan = candidate.plan(&names(&text));
            shown.push_str(&describe(
                &plan.unwrap_or_else(|error| panic!("{path:?}: {error}")),
            ));
        }
        insta::with_settings!({
            snapshot_path => "../data/source/ok",
            prepend_module_to_snapshot => false,
            omit_expression => true,
        }, { insta::assert_snapshot!(stem(&path), shown) });
    }
}

#[test]
fn the_example_that_documents_the_grammar_is_a_source() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("search_spaces/README.md");
    let text = std::fs::read_to_string(readme).unwrap();
    let (_, rest) = text.split_once("```ptx\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("its end");
    let source = Source::parse(example).unwrap_or_else(|error| panic!("{error}"));
    let points: Vec<_> = source.space().iter().collect();
    assert_eq!(points.len(), 22, "4 x 3 x 2 without the two of 512 x 4");
    for point in points {
        let candidate = source.render(&point).unwrap_or_else(|e| panic!("{e}"));
        assert!(candidate.module.is_ok(), "{:?}", candidate.module);
        let sizes = BTreeMap::from([("n".to_owned(), 4096), ("sm_count".to_owned(), 132)]);
        candidate.plan(&sizes).unwrap_or_else(|e| panic!("{e}"));
    }
}

/// Parse, render, plan: the first error.
fn first_error(text: &str) -> Option<SourceError> {
    let source = match Source::parse(text) {
        Ok(source) => source,
        Err(error) => return Some(error),
    };
    let setting = settings(text).pop().unwrap_or_default();
    let point = source.space().point(&setting).unwrap();
    match source.render(&point) {
        Ok(candidate) => candidate.plan(&names(text)).err(),
        Err(error) => Some(error),
    }
}

/// Each file in `bad` fails with the messages it expects: `//! expect: LINE:COLUMN part of the message`,
/// `-` where there is no line or column.
#[test]
fn errors_point_at_the_place() {
    let files = files("bad");
    assert!(files.len() >= 40, "{} files", files.len());
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let error = first_error(&text).unwrap_or_else(|| panic!("{path:?} is accepted"));
        let expected = directives(&text, "expect");
        assert!(
            !expected.is_empty(),
            "{path:?} expects nothing; it gives\n{error}"
        );
        assert_eq!(expected.len(), error.diagnostics.len(), "{path:?}\n{error}");
        for (expected, (diagnostic, place)) in
            std::iter::zip(expected, std::iter::zip(&error.diagnostics, &error.places))
        {
            let or_dash = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
            let line = or_dash(diagnostic.line.map(|line| line.to_string()));
            let column = or_dash(place.as_ref().map(|p| (p.columns.start + 1).to_string()));
            let help = diagnostic.help.as_deref().unwrap_or("");
            let got = format!("{line}:{column} {} {help}", diagnostic.message);
            let (at, message) = expected.split_once(' ').unwrap();
            assert!(
                got.starts_with(&format!("{at} ")) && got.contains(message),
                "{path:?}\nexpected {expected}\ngot      {got}"
            );
        }
    }
}

/// An error shows the line and marks the place.
#[test]
fn an_error_reads_like_a_compilers() {
    let error = Source::parse("//@ knob BM = 48 in {32, 64}\nret;\n").unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 1, column 15: the default 48 is none of the values\n  \
         | //@ knob BM = 48 in {32, 64}\n  \
         |               ^^"
    );
}

fn ok(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/source/ok");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

fn setting(values: &[(&str, i64)]) -> Setting {
    values
        .iter()
        .map(|(name, value)| ((*name).to_owned(), KnobValue::Int(*value)))
        .collect()
}

/// An edit of the text, knobs included, and knob settings chosen before and after it compose.
#[test]
fn edits_and_settings_compose() {
    let text = ok("sum.ptx");
    let before = Source::parse(&text).unwrap();
    let chosen = setting(&[("BLOCK", 128), ("ITEMS", 2)]);
    let first = before
        .render(&before.space().point(&chosen).unwrap())
        .unwrap();

    let edited = text
        .replace(
            "add.f32 %s, %s, %f${i};",
            "fma.rn.f32 %s, %f${i}, %f${i}, %s;",
        )
        .replace("ITEMS = 2 in {1, 2, 4}", "ITEMS = 2 in {1, 2, 4, 8}")
        .replace("require TILE <= 256", "require TILE <= 1024");
    let after = Source::parse(&edited).unwrap();
    let same_setting = after
        .render(&after.space().point(&chosen).unwrap())
        .unwrap();
    assert!(same_setting.ptx.contains("fma.rn.f32 %s, %f1, %f1, %s;"));
    assert_eq!(same_setting.setting, first.setting);
    assert_ne!(same_setting.id(), first.id());

    let wider = setting(&[("BLOCK", 128), ("ITEMS", 8)]);
    let tuned = after.render(&after.space().point(&wider).unwrap()).unwrap();
    assert!(tuned.ptx.contains("fma.rn.f32 %s, %f7, %f7, %s;"));
    let refused = before.space().point(&wider).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "knob ITEMS cannot be 8; allowed: 1, 2, 4"
    );
    let broken = after
        .space()
        .point(&setting(&[("BLOCK", 128), ("ITEM", 8)]))
        .unwrap_err();
    assert!(
        broken.to_string().contains("did you mean `ITEMS`?"),
        "{broken}"
    );
}

#[test]
fn a_setting_that_breaks_a_requirement_is_refused() {
    let source = Source::parse(&ok("sum.ptx")).unwrap();
    let point = source
        .space()
        .point(&setting(&[("BLOCK", 128), ("ITEMS", 4)]))
        .unwrap();
    let error = source.render(&point).unwrap_err();
    assert_eq!(error.diagnostics[0].line, Some(11), "{error}");
    assert!(
        error
            .to_string()
            .contains("the setting breaks `TILE <= 256` (line 11): one wave")
    );
}

/// Comments, white space and descriptions do not make another source; anything else does.
#[test]
fn digests() {
    let text = ok("sum.ptx");
    let digest = |text: &str| Source::parse(text).unwrap().digest();
    let original = digest(&text);
    for (from, to) in [
        ("\t// one\n", "\t/* two\n of them */\n"),
        ("# one wave", "# two waves"),
        ("//@ about A small", "//@ about Another small"),
        ("BLOCK = 64 in {32, 64, 128}", "BLOCK=64  in { 32,64,128 }"),
        ("add.f32 %s, %s, %f${i};", "add.f32\t%s,\n    %s,%f${i} ;"),
        ("// Derived values; TILES waits for n.\n", ""),
    ] {
        assert!(text.contains(from), "{from}");
        assert_eq!(digest(&text.replace(from, to)), original, "{from} → {to}");
    }
    for (from, to) in [
        ("add.f32 %s, %s, %f${i};", "sub.f32 %s, %s, %f${i};"),
        ("TILE <= 256", "TILE <= 128"),
        ("{32, 64, 128}", "{32, 64}"),
        ("f32[TILES] zero", "f32[TILES] poison"),
        ("range(ITEMS)", "range(ITEMS - 1)"),
        ("grid=(TILES)", "grid=(2*TILES)"),
    ] {
        assert!(text.contains(from), "{from}");
        assert_ne!(digest(&text.replace(from, to)), original, "{from} → {to}");
    }
}

/// Candidates are equal when their kernels and launches are, whatever their knobs are called.
#[test]
fn candidate_ids() {
    let text = ok("sum.ptx");
    let id = |text: &str| {
        let source = Source::parse(text).unwrap();
        let point = source.space().default_point().unwrap();
        source.render(&point).unwrap().id()
    };
    let original = id(&text);
    for (from, to) in [
        ("BLOCK", "THREADS"),
        ("TILES", "GRID"),
        ("block=(BLOCK)", "block=(64)"),
        ("ITEMS = 2 in {1, 2, 4}", "ITEMS = 2 in {1, 2}"),
        ("%f${i}", "%item${i}"),
    ] {
        let edited = text.replace(from, to).replace(
            ".f32 %f<",
            if from == "%f${i}" {
                ".f32 %item<"
            } else {
                ".f32 %f<"
            },
        );
        assert_eq!(id(&edited), original, "{from} → {to}");
    }
    for (from, to) in [
        ("block=(BLOCK)", "block=(128)"),
        ("args=(x, partial, n)", "args=(x, partial, n - 1)"),
        ("CAP = 0 in", "CAP = 32 in"),
        ("f32[TILES] zero", "f32[TILES] poison"),
        ("ceil_div(n, TILE)", "ceil_div(n, 2 * TILE)"),
        ("0.5 | f32hex", "0.25 | f32hex"),
    ] {
        assert!(text.contains(from), "{from}");
        assert_ne!(id(&text.replace(from, to)), original, "{from} → {to}");
    }
}

/// Editors put a byte order mark before the first line.
#[test]
fn a_byte_order_mark_is_no_code() {
    let text = "//@ launch k grid=(1) block=(1) args=(x)\n.version 8.0\n";
    let marked = Source::parse(&format!("\u{feff}{text}")).expect("parses");
    assert_eq!(&*marked.text, text);
}
