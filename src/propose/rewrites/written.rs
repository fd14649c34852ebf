//! Instructions as a source writes them, holes and all.

use crate::ptx::ir::Span;

/// Each instruction that begins with `opcode`, up to its `;`, comments left out: one a line at most.
pub(super) fn calls(text: &str, opcode: &str) -> Vec<Span> {
    let mut found = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let code = line.split("//").next().unwrap_or_default();
        if let Some(start) = code.find(opcode)
            && let Some(length) = code[start..].find(';')
        {
            found.push(Span {
                start: (at + start) as u32,
                end: (at + start + length) as u32,
            });
        }
        at += line.len();
    }
    found
}

/// The plain numbers that such instructions end with; those that end otherwise are left out.
pub(super) fn last_numbers(text: &str, opcode: &str) -> Vec<(u64, Span)> {
    let number = |call: Span| {
        let word = text[call.range()].rsplit(char::is_whitespace).next()?;
        let start = call.end - word.len() as u32;
        Some((word.parse().ok()?, Span { start, ..call }))
    };
    calls(text, opcode).into_iter().filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_found_with_their_holes() {
        let text = "  a.b x, ${Y};  // a.b z;\n// a.b q;\n\ta.b 12;\n a.b 3\n";
        let found = calls(text, "a.b ");
        let found: Vec<&str> = found.iter().map(|span| &text[span.range()]).collect();
        assert_eq!(found, ["a.b x, ${Y}", "a.b 12"]);
        let numbers = last_numbers(text, "a.b ");
        assert_eq!(numbers.len(), 1);
        assert_eq!((numbers[0].0, &text[numbers[0].1.range()]), (12, "12"));
    }
}
