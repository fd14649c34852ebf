//! Lines for a source's header.

/// `text` with lines put after its last knob, or at its top where it has none.
pub(super) fn with_lines(text: &str, lines: &[String]) -> String {
    let kind = |line: &str| {
        let rest = line.trim_start().strip_prefix("//@")?;
        rest.split_whitespace().next().map(str::to_owned)
    };
    let last = |wanted: &str| {
        let found = text.lines().map(kind).enumerate();
        found
            .filter(|(_, kind)| kind.as_deref() == Some(wanted))
            .map(|(index, _)| index + 1)
            .last()
    };
    let at = last("knob").or_else(|| last("about")).unwrap_or(0);
    let mut out = String::with_capacity(text.len() + 200);
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if index == at {
            push(&mut out, lines);
        }
        out.push_str(line);
    }
    if text.lines().count() <= at {
        if !out.ends_with('\n') && !out.is_empty() {
            out.push('\n');
        }
        push(&mut out, lines);
    }
    out
}

/// A name that the text does not use yet: `wanted`, or with a number after it.
pub(super) fn free_name(text: &str, wanted: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let used = |name: &str| text.split(|c| !is_word(c)).any(|word| word == name);
    let numbered = (2_u32..).map(|number| format!("{wanted}_{number}"));
    std::iter::once(wanted.to_owned())
        .chain(numbered)
        .find(|name| !used(name))
        .unwrap_or_else(|| wanted.to_owned())
}

/// Letters that no word of the text holds: `wanted` with a number and a `_` after it.
pub(super) fn free_prefix(text: &str, wanted: &str) -> String {
    (1_u32..)
        .map(|number| format!("{wanted}{number}_"))
        .find(|prefix| !text.contains(prefix.as_str()))
        .unwrap_or_else(|| wanted.to_owned())
}

fn push(out: &mut String, lines: &[String]) {
    for line in lines {
        out.push_str(line);
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stand_after_the_last_knob() {
        let line = ["//@ X".to_owned()];
        for (text, expected) in [
            (
                "//@ about a\n//@ knob A = 1 in {1}\n//@ launch k\n.version 8.0\n",
                "//@ about a\n//@ knob A = 1 in {1}\n//@ X\n//@ launch k\n.version 8.0\n",
            ),
            (
                "//@ about a\n//@ launch k\n",
                "//@ about a\n//@ X\n//@ launch k\n",
            ),
            ("//@ launch k\n", "//@ X\n//@ launch k\n"),
            ("//@ knob A = 1 in {1}", "//@ knob A = 1 in {1}\n//@ X\n"),
        ] {
            assert_eq!(with_lines(text, &line), expected);
        }
    }

    #[test]
    fn names_do_not_collide() {
        assert_eq!(free_name("//@ knob REGSET = 1 in {1}", "REGS"), "REGS");
        assert_eq!(free_name("//@ let REGS = 1\n${REGS_2}", "REGS"), "REGS_3");
    }
}
