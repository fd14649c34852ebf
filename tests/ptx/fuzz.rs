//! Mutates corpus files at random: nothing may panic, hang or lose text. Long runs:
//! `FUZZ_SECONDS=600 cargo test --release --test ptx -- --ignored fuzz`; `FUZZ_SEED` sets the seed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use warptree::ptx::edit::{Hunk, apply_diff, apply_hunks};
use warptree::ptx::{canonical, check, digest, forbidden, module_state, parse, print, sanitise};
use warptree::units::SmArch;

use crate::corpus::CORPUS;
use crate::parse::files;

/// All that the front end promises of any text.
fn exercise(text: &str) {
    let sanitised = sanitise(text, SmArch::SM_90A);
    if sanitised.fixes.is_empty() {
        assert_eq!(sanitised.text, text, "changed in silence");
    }
    let half = text.len() / 2;
    let cut = (half..=text.len())
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(0);
    let line = text[cut..].lines().next().unwrap_or_default();
    let hunk = Hunk {
        search: line.to_owned(),
        replace: "ret;".to_owned(),
    };
    let _ = apply_hunks(text, &[hunk]);
    let _ = apply_diff(text, &text[cut..]);
    let Ok(module) = parse(text) else {
        return;
    };
    assert_eq!(module.text, text);
    let printed = print(&module);
    let squeeze = |text: &str| text.split_whitespace().collect::<String>();
    assert_eq!(squeeze(&printed), squeeze(text), "printing lost text");
    check(&module);
    module_state(&module);
    forbidden(&module, &[], &["wgmma".to_owned()], "");
    canonical(&module);
    assert_eq!(
        digest(&module),
        digest(&parse(text).expect("parsed before"))
    );
}

/// Deletes, doubles, swaps or replaces a piece of the text.
fn mutate(text: &str, random: &mut impl Rng) -> String {
    const PIECES: &[&str] = &[
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        ";",
        ",",
        ":",
        "@",
        "!",
        "|",
        "-",
        "+",
        "<",
        ">",
        "\"",
        "/*",
        "*/",
        "//",
        "\n",
        ".",
        "%",
        "$",
        "${",
        "0x",
        "0f",
        "1e",
        ".reg .b32 ",
        ".entry k(",
        "bra $L;",
        "\u{e4}",
        "\0",
        "```\n",
        ".L_x:",
        "// maxnreg 64\n",
        "//@ knob",
        "-9223372036854775808",
        "99999999999999999999999",
        "1<<63",
        "::",
    ];
    let mut out = text.to_owned();
    for _ in 0..random.random_range(1..6) {
        let boundary = |at: usize| {
            (at..=out.len())
                .find(|&at| out.is_char_boundary(at))
                .unwrap_or(out.len())
        };
        let start = boundary(random.random_range(0..=out.len()));
        let end = boundary((start + random.random_range(0..40)).min(out.len()));
        let piece = out[start..end].to_owned();
        match random.random_range(0..4) {
            0 => out.replace_range(start..end, ""),
            1 => out.insert_str(start, &piece),
            2 => out.insert_str(start, PIECES[random.random_range(0..PIECES.len())]),
            _ => out.replace_range(start..end, PIECES[random.random_range(0..PIECES.len())]),
        }
    }
    out
}

fn fuzz(seconds: u64, seed: u64) {
    let mut texts: Vec<String> = CORPUS.iter().map(|(_, text)| text.clone()).collect();
    for (folder, extension) in [("constructs", "ptx"), ("lints", "ptx"), ("sanitise", "txt")] {
        texts.extend(files(folder, extension).into_iter().map(|(_, text)| text));
    }
    // Long files are cut, so that many are tried.
    for text in &mut texts {
        let end = (0..=text.len().min(12_000))
            .rev()
            .find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or(0));
    }
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut tried = 0u64;
    while Instant::now() < until {
        let text = mutate(&texts[random.random_range(0..texts.len())], &mut random);
        let started = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| exercise(&text)));
        // Generous, for machines that do other things too; a text is at most a few thousand lines.
        let slow = started.elapsed() > Duration::from_secs(20);
        if outcome.is_err() || slow {
            let path = std::env::temp_dir().join(format!("warptree-fuzz-{seed}-{tried}.ptx"));
            std::fs::write(&path, &text).expect("writable");
            panic!("text {tried} of seed {seed}: kept as {}", path.display());
        }
        tried += 1;
    }
    println!("{tried} texts");
}

#[test]
fn a_second_of_random_mutations() {
    fuzz(1, 1);
}

#[test]
#[ignore = "runs for FUZZ_SECONDS"]
fn fuzz_for_long() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    fuzz(
        number("FUZZ_SECONDS").unwrap_or(60),
        number("FUZZ_SEED").unwrap_or(7),
    );
}
