//! The three directives a module begins with.

use super::{Repairs, Text};
use crate::ptx::edit::Edit;
use crate::ptx::ir::Span;
use crate::ptx::lex::Kind;
use crate::units::{SmArch, SmSuffix};

/// Adds what is missing of `.version`, `.target` and `.address_size`, and the letter that a target lacks for
/// the instructions it uses.
pub(super) fn directives(text: &Text<'_>, arch: SmArch, repairs: &mut Repairs) {
    let find = |name: &str| (0..text.tokens.len()).find(|&index| text.str(index) == name);
    let (version, target, size) = (find(".version"), find(".target"), find(".address_size"));
    let end = |index: usize, arguments: usize| {
        let last = (index + arguments).min(text.tokens.len() - 1);
        text.tokens[last].span.end
    };
    let Some(first) = text
        .tokens
        .first()
        .filter(|_| find(".entry").is_some() || find(".func").is_some())
    else {
        return;
    };
    let mut missing = String::new();
    let mut place = match (version, target, size) {
        (Some(version), ..) => end(version, 1),
        (None, ..) => first.span.start,
    };
    let mut add = |text: String, name: &str, place: u32| {
        let edit = Edit {
            span: Span {
                start: place,
                end: place,
            },
            replacement: text,
        };
        repairs.add(edit, format!("added the missing `{name}`"));
    };
    if version.is_none() {
        missing = format!(".version {}\n", isa_version(arch));
        add(missing.clone(), ".version", place);
    }
    let written = |line: String| match missing.is_empty() {
        true => format!("\n{line}"),
        false => format!("{line}\n"),
    };
    match target {
        None => add(written(format!(".target {arch}")), ".target", place),
        Some(target) => {
            place = end(target, 1);
            // `.target sm_80, debug`
            if text.str(target + 2) == "," {
                place = end(target, 3);
            }
        }
    }
    if size.is_none() {
        let line = ".address_size 64";
        let own = match target.is_some() {
            true => format!("\n{line}"),
            false => written(line.to_owned()),
        };
        add(own, ".address_size", place);
    }
    if let Some(target) = target {
        widen(text, target, arch, repairs);
    }
}

/// `.target sm_90` cannot have `wgmma`; `sm_90a` can.
fn widen(text: &Text<'_>, target: usize, arch: SmArch, repairs: &mut Repairs) {
    let Some(named) = text.tokens.get(target + 1) else {
        return;
    };
    let Ok(written) = text.str(target + 1).parse::<SmArch>() else {
        return;
    };
    let specific = text.tokens.iter().enumerate().any(|(index, token)| {
        token.kind == Kind::Ident
            && matches!(text.str(index), "wgmma" | "setmaxnreg" | "tcgen05")
            && text
                .tokens
                .get(index + 1)
                .is_some_and(|next| next.kind == Kind::Dotted)
    });
    let same_chip = written.number == arch.number && written.suffix == SmSuffix::Portable;
    if specific && same_chip && arch.suffix != SmSuffix::Portable {
        let edit = Edit {
            span: named.span,
            replacement: arch.to_string(),
        };
        repairs.add(
            edit,
            format!("wrote `.target {written}` as `{arch}`, which its instructions need"),
        );
    }
}

/// A PTX version that knows the architecture and all of its instructions.
fn isa_version(arch: SmArch) -> &'static str {
    match arch.number {
        ..100 => "8.5",
        100 | 101 => "8.6",
        120 => "8.7",
        _ => "9.0",
    }
}
