//! Repairs of register declarations: declared twice, and `%r100` where `%r<101>` was meant.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Repairs, Text};
use crate::ptx::edit::Edit;
use crate::ptx::ir::Span;
use crate::ptx::lex::Kind;

/// A `.reg` statement.
struct Declaration<'a> {
    /// `.reg` to `;`.
    span: Span,
    ty: String,
    names: Vec<Name<'a>>,
    /// Which braces it stands in.
    scope: usize,
}

struct Name<'a> {
    name: &'a str,
    /// 12 of `%r<12>`.
    count: Option<u32>,
}

/// Removes a register that the same braces declare again with the same type; the larger family stays.
/// Declarations with holes, or with a `//%` line between them, are left alone.
pub(super) fn duplicates(text: &Text<'_>, repairs: &mut Repairs) {
    let mut declarations = declarations(text);
    let mut first: HashMap<(usize, &str), (usize, usize)> = HashMap::new();
    let mut changed: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for number in 0..declarations.len() {
        let mut position = 0;
        while position < declarations[number].names.len() {
            let own = &declarations[number];
            let Name { name, count } = own.names[position];
            let Some(&(earlier, at)) = first.get(&(own.scope, name)) else {
                first.insert((own.scope, name), (number, position));
                position += 1;
                continue;
            };
            let between = declarations[earlier].span.end..own.span.start;
            let conditional = text.comments.iter().any(|comment| {
                between.contains(&comment.start) && text.text[comment.range()].starts_with("//%")
            });
            let known = declarations[earlier].names[at].count;
            let alike = declarations[earlier].ty == own.ty && known.is_some() == count.is_some();
            if conditional || !alike {
                position += 1;
                continue;
            }
            declarations[earlier].names[at].count = known.max(count);
            declarations[number].names.remove(position);
            let what = format!("removed the second declaration of `{name}`");
            changed.entry(number).or_default().push(what);
            if known < count {
                changed
                    .entry(earlier)
                    .or_default()
                    .push(format!("declared `{name}` as large as both"));
            }
            // Positions after the removed one have moved.
            for (_, place) in first.iter_mut().filter(|(_, place)| place.0 == number) {
                place.1 -= usize::from(place.1 > position);
            }
        }
    }
    for (number, what) in changed {
        let declaration = &declarations[number];
        let edit = Edit {
            span: declaration.span,
            replacement: declaration.written(),
        };
        if repairs.edit(edit) {
            what.into_iter()
                .for_each(|what| repairs.say(declaration.span.start, what));
        }
    }
}

/// `.reg .b32 %r100;` where the kernel uses `%r0`, `%r1`, … and declares none of them.
pub(super) fn families(text: &Text<'_>, repairs: &mut Repairs) {
    let declarations = declarations(text);
    let twice = |name: &str| {
        let all = declarations
            .iter()
            .flat_map(|declaration| &declaration.names);
        all.filter(|known| known.name == name).count() > 1
    };
    let declared: BTreeSet<&str> = (declarations.iter())
        .flat_map(|d| d.names.iter().map(|n| n.name))
        .collect();
    for declaration in &declarations {
        let [Name { name, count: None }] = declaration.names.as_slice() else {
            continue;
        };
        let base = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let Ok(last) = name[base.len()..].parse::<u32>() else {
            continue;
        };
        let mut siblings = (text.tokens.iter())
            .filter(|token| token.kind == Kind::Ident)
            .map(|token| &text.text[token.span.range()])
            .filter(|word| {
                word.strip_prefix(base)
                    .is_some_and(|n| n.parse::<u32>().is_ok())
            })
            .filter(|word| word != name);
        // Two registers named alike say nothing; a family that nothing declares does.
        let meant = base.starts_with('%')
            && !declared.contains(base)
            && !twice(name)
            && siblings.clone().count() > 1
            && siblings.all(|word| !declared.contains(word));
        if meant && let Some(count) = last.checked_add(1) {
            let edit = Edit {
                span: declaration.span,
                replacement: format!(".reg {} {base}<{count}>;", declaration.ty),
            };
            repairs.add(
                edit,
                format!("declared `{name}` as the family `{base}<{count}>`"),
            );
        }
    }
}

impl Declaration<'_> {
    fn written(&self) -> String {
        let names: Vec<String> = (self.names.iter())
            .map(|Name { name, count }| match count {
                Some(count) => format!("{name}<{count}>"),
                None => (*name).to_owned(),
            })
            .collect();
        match names.as_slice() {
            [] => String::new(),
            names => format!(".reg {} {};", self.ty, names.join(", ")),
        }
    }
}

/// The `.reg` statements that are plain enough to be rewritten.
fn declarations<'a>(text: &Text<'a>) -> Vec<Declaration<'a>> {
    let mut found = Vec::new();
    let mut scopes = vec![0];
    let mut opened = 0;
    let mut holes = 0u32;
    for index in 0..text.tokens.len() {
        match text.tokens[index].kind {
            Kind::Punct(b'{') if text.opens_hole(index) => holes += 1,
            Kind::Punct(b'{') => {
                opened += 1;
                scopes.push(opened);
            }
            Kind::Punct(b'}') if holes > 0 => holes -= 1,
            Kind::Punct(b'}') => {
                scopes.pop();
            }
            Kind::Dotted if text.str(index) == ".reg" => {
                let scope = scopes.last().copied().unwrap_or_default();
                found.extend(declaration(text, index, scope));
            }
            Kind::Ident | Kind::Dotted | Kind::Number | Kind::String | Kind::Punct(_) => {}
        }
    }
    found
}

fn declaration<'a>(text: &Text<'a>, reg: usize, scope: usize) -> Option<Declaration<'a>> {
    let mut at = reg + 1;
    let mut ty = Vec::new();
    while text.tokens.get(at)?.kind == Kind::Dotted {
        ty.push(text.str(at));
        at += 1;
    }
    let mut names = Vec::new();
    loop {
        let token = text.tokens.get(at)?;
        let name = text.str(at);
        if token.kind != Kind::Ident || name.contains('$') {
            return None;
        }
        at += 1;
        let mut count = None;
        if text.str(at) == "<" {
            count = Some(text.str(at + 1).parse().ok()?);
            at += 2;
            if text.str(at) != ">" {
                return None;
            }
            at += 1;
        }
        names.push(Name { name, count });
        at += 1;
        match text.str(at - 1) {
            "," => {}
            ";" => break,
            _ => return None,
        }
    }
    Some(Declaration {
        span: Span {
            start: text.tokens[reg].span.start,
            end: text.tokens[at - 1].span.end,
        },
        ty: ty.join(" "),
        names,
        scope,
    })
}
