//! Repairs of single tokens: labels, literals, address arithmetic, register caps.

use std::collections::BTreeMap;

use super::unwrap::begins_item;
use super::{Repairs, Text};
use crate::ptx::edit::{Edit, set_directive};
use crate::ptx::ir::Span;
use crate::ptx::lex::Kind;

/// `.L_x` and other labels with a leading dot, where they are defined and where they are named.
pub(super) fn labels(text: &Text<'_>, repairs: &mut Repairs) {
    let defined: Vec<&str> = (0..text.tokens.len())
        .filter(|&i| text.tokens[i].kind == Kind::Dotted && text.str(i + 1) == ":")
        .map(|i| text.str(i))
        .filter(|&name| name != ".reg" && !begins_item(name))
        .collect();
    let mut told = BTreeMap::new();
    for (index, token) in text.tokens.iter().enumerate() {
        let own = text.str(index);
        let local = own.starts_with(".L") && !own.contains("::");
        if token.kind != Kind::Dotted || text.is_joined(index) || !(local || defined.contains(&own))
        {
            continue;
        }
        let new = match own.strip_prefix(".L") {
            Some(rest) => format!("$L_{rest}"),
            None => format!("$L__{}", &own[1..]),
        };
        let edit = Edit {
            span: token.span,
            replacement: new.clone(),
        };
        if repairs.edit(edit) {
            told.entry(own).or_insert((token.span.start, new));
        }
    }
    for (old, (at, new)) in told {
        repairs.say(at, format!("renamed label `{old}` to `{new}`"));
    }
}

/// `1.0f` and `[%rd1-16]`.
pub(super) fn literals(text: &Text<'_>, repairs: &mut Repairs) {
    let mut brackets = 0u32;
    for (index, token) in text.tokens.iter().enumerate() {
        let own = text.str(index);
        match token.kind {
            Kind::Punct(b'[') => brackets += 1,
            Kind::Punct(b']') => brackets = brackets.saturating_sub(1),
            Kind::Punct(b'-') if brackets > 0 && index > 0 => {
                let after_name = text.tokens[index - 1].kind == Kind::Ident;
                let before_number = text
                    .tokens
                    .get(index + 1)
                    .is_some_and(|t| t.kind == Kind::Number);
                if after_name && before_number && !text.str(index - 1).ends_with('$') {
                    let edit = Edit {
                        span: token.span,
                        replacement: "+-".to_owned(),
                    };
                    repairs.add(
                        edit,
                        "wrote a negative offset as `+-`, as ptxas wants it".to_owned(),
                    );
                }
            }
            Kind::Number => {
                let decimal = own.strip_suffix(['f', 'F']).filter(|rest| {
                    rest.contains('.') && rest.bytes().all(|b| b.is_ascii_digit() || b == b'.')
                });
                if let Some(decimal) = decimal {
                    let edit = Edit {
                        span: token.span,
                        replacement: decimal.to_owned(),
                    };
                    repairs.add(
                        edit,
                        format!("wrote `{own}` as `{decimal}`; PTX has no `f` suffix"),
                    );
                }
            }
            Kind::Ident | Kind::Dotted | Kind::String | Kind::Punct(_) => {}
        }
    }
}

/// `.reqnreg 64`, and a cap that stands in a comment only: `// maxnreg 64`.
pub(super) fn register_cap(text: &Text<'_>, repairs: &mut Repairs) {
    for (index, token) in text.tokens.iter().enumerate() {
        if text.str(index) == ".reqnreg" {
            let edit = Edit {
                span: token.span,
                replacement: ".maxnreg".to_owned(),
            };
            repairs.add(
                edit,
                "wrote `.reqnreg`, which does not exist, as `.maxnreg`".to_owned(),
            );
        }
    }
    let entries: Vec<&str> = (0..text.tokens.len())
        .filter(|&index| text.str(index) == ".entry")
        .map(|index| text.str(index + 1))
        .collect();
    let capped = (0..text.tokens.len()).any(|i| matches!(text.str(i), ".maxnreg" | ".reqnreg"));
    let hints: Vec<(Span, u32)> = (text.comments.iter())
        .filter_map(|&span| Some((span, hint(&text.text[span.range()])?)))
        .collect();
    // One kernel, one number: anything else could mean something else.
    let ([entry], [(place, cap), rest @ ..], false) =
        (entries.as_slice(), hints.as_slice(), capped)
    else {
        return;
    };
    if rest.iter().any(|(_, other)| other != cap) {
        return;
    }
    if let Ok(edit) = set_directive(text.text, entry, ".maxnreg", &cap.to_string())
        && repairs.edit(edit)
    {
        repairs.say(
            place.start,
            format!("added `.maxnreg {cap}` to `{entry}`: in a comment it has no effect"),
        );
    }
}

/// The cap a comment asks for, where that is all it says.
fn hint(comment: &str) -> Option<u32> {
    if comment.starts_with("//@") || comment.starts_with("//%") {
        return None;
    }
    let said = comment
        .trim_start_matches(['/', '*', ' ', '\t', '-', '.'])
        .trim_end_matches(['/', '*', ' ', '\t', ';']);
    let number = ["maxnreg", "maxrregcount", "reqnreg"]
        .iter()
        .find_map(|word| said.strip_prefix(word))?;
    let cap: u32 = number
        .trim_start_matches([' ', '\t', ':', '='])
        .parse()
        .ok()?;
    (16..=255).contains(&cap).then_some(cap)
}
