//! An instruction once more, with other registers.

use super::change::Subject;
use crate::ptx::edit::{Edit, apply};
use crate::ptx::ir::{Instruction, Span};

/// The instruction's text with some registers renamed.
pub(super) fn renamed(
    subject: &Subject<'_>,
    instruction: &Instruction,
    name: &dyn Fn(&str) -> Option<String>,
) -> Option<String> {
    let text = subject.text(instruction.span);
    let mut edits = Vec::new();
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%');
    // Words of guard and operands; the mnemonic between them holds no register.
    let mnemonic = instruction.mnemonic_span.start - instruction.span.start
        ..instruction.mnemonic_span.end - instruction.span.start;
    let mut at = 0usize;
    while at < text.len() {
        let rest = &text[at..];
        let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        if length == 0 {
            at += rest.chars().next().map_or(1, char::len_utf8);
            continue;
        }
        let inside = mnemonic.contains(&(at as u32));
        if let Some(new) = name(&rest[..length]).filter(|_| !inside) {
            edits.push(Edit {
                span: Span {
                    start: at as u32,
                    end: (at + length) as u32,
                },
                replacement: new,
            });
        }
        at += length;
    }
    apply(text, &edits).ok()
}
