//! Edits land where they were meant or say why not.

use warptree::ptx::edit::{
    Edit, EditError, Hunk, apply, apply_diff, apply_hunks, remove_directive, set_directive,
};
use warptree::ptx::ir::Span;

const SOURCE: &str = "\
//@ knob BM = 64 in {32, 64}
.version 8.0
.visible .entry k(.param .u64 x, .param .u64 y[${N}])
.maxntid ${BM}, 1, 1
{
\tld.global.f32 %f1, [%rd1];
\tadd.f32 %f1, %f1, %f2;
    //% for i in range(4)
\tld.global.f32 %f${i}, [%rd1+${4*i}];
    //% endfor
\tadd.f32 %f1, %f1, %f2;
\tbar.sync 0;
\tret;
}
";

fn hunk(search: &str, replace: &str) -> Hunk {
    Hunk {
        search: search.to_owned(),
        replace: replace.to_owned(),
    }
}

fn replaced(from: &str, to: &str) -> String {
    assert_eq!(SOURCE.matches(from).count(), 1, "test is ambiguous: {from}");
    SOURCE.replace(from, to)
}

#[test]
fn a_hunk_forgives_white_space_and_keeps_the_rest() {
    let cases = [
        // exact, within a line
        (
            "bar.sync 0",
            "bar.sync 1",
            replaced("bar.sync 0", "bar.sync 1"),
        ),
        // other indentation, blanks and a blank line round it
        (
            "\n  bar.sync   0 ;\n\n",
            "  bar.sync 1;",
            replaced("bar.sync 0;", "bar.sync 1;"),
        ),
        // several lines, indented otherwise; the replacement takes the text's indentation
        (
            "  bar.sync 0;\n  ret;",
            "  bar.sync 1;\n\n  ret;\n",
            replaced("bar.sync 0;\n\tret;", "bar.sync 1;\n\n\tret;"),
        ),
        // knobs and holes are text like any other
        (
            "{32, 64}",
            "{32, 64, 128}",
            replaced("{32, 64}", "{32, 64, 128}"),
        ),
        (
            "ld.global.f32 %f${i}, [%rd1 + ${4*i}];",
            "ld.global.nc.f32 %f${i}, [%rd1+${4*i}];",
            replaced("ld.global.f32 %f${i}", "ld.global.nc.f32 %f${i}"),
        ),
        // whole lines, the line break quoted
        (
            "\tbar.sync 0;\n",
            "\tbar.sync 2;",
            replaced("bar.sync 0;", "bar.sync 2;"),
        ),
        ("\tbar.sync 0;\n", "", replaced("\tbar.sync 0;\n", "")),
    ];
    for (search, replace, expected) in cases {
        let got = apply_hunks(SOURCE, &[hunk(search, replace)]);
        assert_eq!(got.as_ref(), Ok(&expected), "search `{search}`");
    }
}

#[test]
fn a_hunk_never_matches_in_silence() {
    let message = |search: &str| {
        apply_hunks(SOURCE, &[hunk(search, "x")])
            .expect_err("refused")
            .to_string()
    };
    assert_eq!(
        message("add.f32 %f1, %f1, %f2;"),
        "hunk 1: the text to search for is at lines 7 and 11; quote more lines round it"
    );
    assert_eq!(
        message("  add.f32 %f1,%f1,%f2;"),
        "hunk 1: the text to search for is at lines 7 and 11; quote more lines round it"
    );
    assert_eq!(
        message("ld.global.nc.f32 %f1, [%rd1];"),
        "hunk 1: the text to search for is not in the source; it begins \
         `ld.global.nc.f32 %f1, [%rd1];`; nearest: line 6 `ld.global.f32 %f1, [%rd1];`"
    );
    assert_eq!(
        message(" \n"),
        "hunk 1: the text to search for is empty; quote at least one line of the source"
    );
    // `%f1` is not part of `%f10`.
    assert!(matches!(
        apply_hunks("add %f10, %f11;", &[hunk("%f1", "%f2")]),
        Err(EditError::NotFound { .. })
    ));
    // The second hunk sees what the first did.
    let both = [hunk("bar.sync 0;", "bar.sync 1;"), hunk("bar.sync 0;", "x")];
    assert!(matches!(
        apply_hunks(SOURCE, &both),
        Err(EditError::NotFound { hunk: 2, .. })
    ));
}

#[test]
fn a_diff_applies_where_its_context_stands() {
    let diff = "\
--- a/kernel.ptx
+++ b/kernel.ptx
@@ -90,3 +90,4 @@ k
 \tbar.sync 0;
-\tret;
+\texit;
+\tret;
 }
";
    let expected = replaced("\tret;\n", "\texit;\n\tret;\n");
    assert_eq!(apply_diff(SOURCE, diff), Ok(expected));
    let ambiguous =
        |line: u32| format!("@@ -{line} +{line} @@\n-\tadd.f32 %f1, %f1, %f2;\n+\tnop;\n");
    let near = apply_diff(SOURCE, &ambiguous(10)).expect("the nearer one");
    assert_eq!(near.lines().nth(10), Some("\tnop;"));
    assert!(matches!(
        apply_diff(SOURCE, &ambiguous(9)),
        Err(EditError::Ambiguous { .. })
    ));
    let bad = apply_diff(SOURCE, "@@ -1 +1 @@\n?what\n").expect_err("malformed");
    assert_eq!(
        bad.to_string(),
        "line 2 of the diff: a hunk's line begins with ` `, `+` or `-`"
    );
    let none = apply_diff(SOURCE, "I changed it.").expect_err("no hunk");
    assert!(none.to_string().contains("no hunk"));
}

#[test]
fn spans_must_be_apart_and_inside() {
    let edit = |start, end, replacement: &str| Edit {
        span: Span { start, end },
        replacement: replacement.to_owned(),
    };
    let two = [
        edit(4, 5, "E"),
        edit(0, 1, "A"),
        edit(2, 2, "+"),
        edit(2, 2, "-"),
    ];
    assert_eq!(apply("abcdef", &two), Ok("Ab+-cdEf".to_owned()));
    let overlap = apply("a\nbcd", &[edit(2, 4, ""), edit(3, 5, "")]);
    assert_eq!(overlap, Err(EditError::Overlap { line: 2 }));
    assert_eq!(apply("é", &[edit(1, 2, "")]), Err(EditError::BadSpan(1, 2)));
    assert_eq!(apply("a", &[edit(0, 9, "")]), Err(EditError::BadSpan(0, 9)));
    assert_eq!(
        apply("ab", &[edit(2, 1, "")]),
        Err(EditError::BadSpan(2, 1))
    );
}

#[test]
fn a_directive_goes_after_the_parameters() {
    let set = |text: &str, name: &str, arguments: &str| {
        let edit = set_directive(text, "k", name, arguments).expect("k is there");
        apply(text, &[edit]).expect("applies")
    };
    let capped = set(SOURCE, ".maxnreg", "64");
    assert_eq!(capped, replaced("y[${N}])\n", "y[${N}])\n.maxnreg 64\n"));
    assert_eq!(
        set(&capped, ".maxnreg", "96"),
        capped.replace("64\n.maxntid", "96\n.maxntid")
    );
    assert_eq!(
        set(SOURCE, ".maxntid", "128, 1, 1"),
        replaced(".maxntid ${BM}, 1, 1", ".maxntid 128, 1, 1")
    );
    assert_eq!(
        set(".entry k{ret;}", ".maxnreg", "64"),
        ".entry k\n.maxnreg 64 {ret;}"
    );
    let without = remove_directive(SOURCE, "k", ".maxntid").expect("k is there");
    assert_eq!(
        apply(SOURCE, &without),
        Ok(replaced(".maxntid ${BM}, 1, 1", ""))
    );
    assert_eq!(remove_directive(SOURCE, "k", ".maxnreg"), Ok(vec![]));
    assert_eq!(
        set_directive(SOURCE, "other", ".maxnreg", "64"),
        Err(EditError::NoEntry("other".to_owned()))
    );
}
