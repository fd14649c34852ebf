//! One kernel, one hash: equal however it is spelled, different as soon as it means something else.

use proptest::prelude::*;
use warptree::ptx::ir::{Immediate, Instruction, Operand};
use warptree::ptx::{canonical, digest, parse};

use crate::parse::instructions;

/// A generated kernel: a few registers of each type, straight code with a loop and a store.
#[derive(Clone, Debug)]
struct Kernel {
    lines: Vec<Line>,
}

#[derive(Clone, Debug)]
struct Line {
    opcode: &'static str,
    modifiers: Vec<&'static str>,
    /// `d` destination, `s` source, `i` immediate, `a` address, `p`/`q` predicates.
    form: &'static str,
    registers: [u32; 4],
    immediate: i32,
    guarded: bool,
}

const FORMS: &[(&str, &[&str], &str, char)] = &[
    ("add", &["s32"], "dss", 'r'),
    ("add", &["s32"], "dsi", 'r'),
    ("add", &["rn", "ftz", "f32"], "dss", 'f'),
    ("sub", &["s32"], "dss", 'r'),
    ("mul", &["lo", "s32"], "dss", 'r'),
    ("mad", &["lo", "s32"], "dsss", 'r'),
    ("fma", &["rn", "ftz", "f32"], "dsss", 'f'),
    ("and", &["b32"], "dss", 'r'),
    ("xor", &["b32"], "dsi", 'r'),
    ("min", &["ftz", "f32"], "dss", 'f'),
    ("max", &["u32"], "dss", 'r'),
    ("shl", &["b32"], "dss", 'r'),
    ("setp", &["lt", "s32"], "pss", 'r'),
    ("setp", &["eq", "ftz", "f32"], "pss", 'f'),
    ("ld", &["global", "L1::no_allocate", "f32"], "da", 'f'),
    ("ld", &["relaxed", "gpu", "shared::cta", "u32"], "da", 'r'),
    ("st", &["global", "wt", "f32"], "as", 'f'),
    (
        "atom",
        &["relaxed", "gpu", "global", "add", "u32"],
        "das",
        'r',
    ),
    ("shfl", &["sync", "down", "b32"], "dsii", 'r'),
    ("mov", &["b32"], "di", 'r'),
];

/// Where the modifiers of one kind keep their order; these may be shuffled.
fn kernels() -> impl Strategy<Value = Kernel> {
    let line = (
        0..FORMS.len(),
        prop::array::uniform4(0u32..6),
        -64i32..64,
        prop::bool::weighted(0.2),
    );
    prop::collection::vec(line, 4..24).prop_map(|lines| Kernel {
        lines: lines
            .into_iter()
            .map(|(form, registers, immediate, guarded)| Line {
                opcode: FORMS[form].0,
                modifiers: FORMS[form].1.to_vec(),
                form: FORMS[form].2,
                registers,
                immediate,
                guarded,
            })
            .collect(),
    })
}

/// How a kernel is spelled.
struct Spelling {
    prefix: &'static str,
    /// Register `n` is written `renumber[n]`.
    renumber: Vec<u32>,
    /// Rotates each instruction's modifiers by this many places.
    rotate: usize,
    commute: bool,
    comments: bool,
}

fn plain() -> Spelling {
    Spelling {
        prefix: "%",
        renumber: (0..6).collect(),
        rotate: 0,
        commute: false,
        comments: false,
    }
}

fn write(kernel: &Kernel, spelling: &Spelling) -> String {
    let p = spelling.prefix;
    let number = |n: u32| spelling.renumber[n as usize];
    let mut out = format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 {0}x)\n{{\n\
         .reg .pred {1}p<6>; .reg .b32 {1}r<{2}>; .reg .f32 {1}f<6>; .reg .b64 {1}a<6>;\n{0}top:\n",
        if p == "%" { "" } else { "k_" },
        p,
        if p == "%" { 6 } else { 60 },
    );
    // Everything is written before it is read.
    for n in 0..6 {
        out += &format!(
            "mov.b32 {p}r{0}, 0; mov.f32 {p}f{0}, 0f00000000;\n",
            number(n)
        );
        out += &format!(
            "setp.eq.u32 {p}p{0}, 0, 1; ld.param.u64 {p}a{0}, [{1}x];\n",
            number(n),
            if p == "%" { "" } else { "k_" }
        );
    }
    for line in &kernel.lines {
        let bank = FORMS
            .iter()
            .find(|form| form.0 == line.opcode && form.1 == line.modifiers)
            .map_or('r', |form| form.3);
        let mut operands: Vec<String> = (line.form.chars().zip(line.registers))
            .map(|(kind, n)| match kind {
                'd' | 's' => format!("{p}{bank}{}", number(n)),
                'p' => format!("{p}p{}", number(n)),
                'a' => format!("[{p}a{}+{}]", number(n), 4 * line.immediate),
                _ => line.immediate.to_string(),
            })
            .collect();
        let mut modifiers = line.modifiers.clone();
        if spelling.commute
            && matches!(
                line.opcode,
                "add" | "mul" | "mad" | "fma" | "and" | "xor" | "min" | "max"
            )
        {
            operands.swap(1, 2);
        }
        if spelling.commute && line.opcode == "setp" {
            operands.swap(1, 2);
            for modifier in &mut modifiers {
                *modifier = if *modifier == "lt" { "gt" } else { modifier };
            }
        }
        let places = modifiers.len();
        modifiers.rotate_left(spelling.rotate % places);
        let guard = if line.guarded {
            format!("@{p}p{} ", number(line.registers[3]))
        } else {
            String::new()
        };
        out += &format!(
            "{guard}{}.{} {};",
            line.opcode,
            modifiers.join("."),
            operands.join(if spelling.comments { " /**/ ,  " } else { ", " })
        );
        out += if spelling.comments { " // why\n" } else { "\n" };
    }
    out + &format!(
        "@{p}p{1} bra {0}top;\nret;\n}}\n",
        if p == "%" { "" } else { "k_" },
        number(0)
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn spelling_does_not_matter(
        kernel in kernels(),
        renumber in Just((0..6u32).collect::<Vec<_>>()).prop_shuffle(),
        rotate in 0usize..4,
        commute: bool,
        comments: bool,
        prefix in prop::sample::select(vec!["%", "$reg_", "v"]),
    ) {
        let other = Spelling { prefix, renumber, rotate, commute, comments };
        let (a, b) = (write(&kernel, &plain()), write(&kernel, &other));
        let (a, b) = (parse(&a).expect("parses"), parse(&b).expect("parses"));
        prop_assert_eq!(canonical(&a), canonical(&b));
        prop_assert_eq!(digest(&a), digest(&b));
        // The canonical form is its own.
        let again = parse(&canonical(&a)).expect("parses");
        prop_assert_eq!(canonical(&again), canonical(&a));
    }

    #[test]
    fn meaning_matters(kernel in kernels(), place: prop::sample::Index, change in 0usize..6) {
        let text = write(&kernel, &plain());
        let module = parse(&text).expect("parses");
        let all = instructions(&module);
        let chosen = all[place.index(all.len())];
        if let Some(changed) = changed(chosen, change) {
            let mut other = text.clone();
            other.replace_range(chosen.span.range(), &changed);
            let other = parse(&other).expect("parses");
            prop_assert_ne!(digest(&module), digest(&other), "{} → {}", chosen, changed);
        }
    }
}

/// The instruction with another meaning, where this kind of change applies to it.
fn changed(instruction: &Instruction, change: usize) -> Option<String> {
    let mut new = instruction.clone();
    match change {
        0 => {
            let immediate = new.operands.iter_mut().find_map(|operand| match operand {
                Operand::Immediate(Immediate::Int(value)) => Some(value),
                _ => None,
            })?;
            *immediate += 1;
        }
        1 => {
            new.opcode = match new.opcode.as_str() {
                "add" => "sub",
                "min" => "max",
                "and" => "or",
                "fma" => "mad",
                _ => return None,
            }
            .to_owned();
        }
        2 => {
            let modifier = new.modifiers.iter_mut().find_map(|m| match m.as_str() {
                "s32" => Some((m, "u32")),
                "global" => Some((m, "local")),
                "lt" => Some((m, "ge")),
                "ftz" => Some((m, "sat")),
                "down" => Some((m, "up")),
                _ => None,
            });
            let (modifier, value) = modifier?;
            *modifier = value.to_owned();
        }
        3 => {
            // Another offset.
            let address = new.operands.iter_mut().find_map(|operand| match operand {
                Operand::Address(address) => Some(address),
                _ => None,
            })?;
            address.offset += 4;
        }
        4 => return Some(String::new()),
        _ => match new.guard.as_mut() {
            Some(guard) => guard.negated = !guard.negated,
            None => return Some(format!("@%p5 {new}")),
        },
    }
    Some(new.to_string())
}

/// Pairs of bodies that mean the same.
#[test]
fn same() {
    let cases = [
        ("ld.f32.global %f1, [%a1];", "ld.global.f32 %f1, [%a1];"),
        (
            "ld.nc.L1::no_allocate.global.v4.f32 {%f1,%f2,%f3,%f4}, [%a1];",
            "ld.global.v4.nc.f32.L1::no_allocate {%f1, %f2, %f3, %f4}, [%a1+0];",
        ),
        ("add.s32 %r1, 0x10, %r2;", "add.s32 %r1, %r2, 16;"),
        ("setp.gt.s32 %p1, %r1, %r2;", "setp.lt.s32 %p1, %r2, %r1;"),
        ("setp.leu.f32 %p1, %f1, %f2;", "setp.geu.f32 %p1, %f2, %f1;"),
        (
            "fma.ftz.rn.f32 %f1, %f2, %f3, %f4;",
            "fma.rn.ftz.f32 %f1, %f3, %f2, %f4;",
        ),
        ("mul.wide.u16 %r1, %h1, %h2;", "mul.u16.wide %r1, %h2, %h1;"),
        (
            "{ .reg .b32 t; mov.b32 t, 1; mov.b32 %r1, t; }",
            "mov.b32 %r9, 1; mov.b32 %r1, %r9;",
        ),
        ("bra $a; $a: bra $b; $b:", "bra $x7; $x7: bra $x1; $x1:"),
        (
            ".loc 1 2 3\nmov.b32 %r1, %tid.x;",
            "mov.b32 %r1, %tid.x; // here",
        ),
        (
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f1};",
            "mma.aligned.sync.row.col.m16n8k8.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f1};",
        ),
    ];
    for (a, b) in cases {
        assert_eq!(body(a), body(b));
    }
}

/// Pairs of bodies that do not.
#[test]
fn different() {
    let cases = [
        ("cvt.rn.f32.s32 %f1, %r1;", "cvt.rn.s32.f32 %f1, %r1;"),
        ("sub.s32 %r1, %r2, %r3;", "sub.s32 %r1, %r3, %r2;"),
        (
            "fma.rn.f32 %f1, %f2, %f3, %f4;",
            "fma.rn.f32 %f1, %f2, %f4, %f3;",
        ),
        ("setp.lt.s32 %p1, %r1, %r2;", "setp.lt.s32 %p1, %r2, %r1;"),
        (
            "ld.global.f32 %f1, [%a1];",
            "ld.volatile.global.f32 %f1, [%a1];",
        ),
        (
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f1};",
            "mma.sync.aligned.m16n8k8.col.row.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f1};",
        ),
        (
            "cp.async.bulk.shared::cluster.global [%r1], [%a1], 16, [%r2];",
            "cp.async.bulk.global.shared::cluster [%r1], [%a1], 16, [%r2];",
        ),
        ("mov.b32 %r1, %tid.x;", "mov.b32 %r1, %tid.y;"),
        ("mov.b32 %r1, %r2;", "mov.b32 %r2, %r1; mov.b32 %r1, %r2;"),
        (
            "@%p1 bra $a; mov.b32 %r1, 1; $a: mov.b32 %r2, 2;",
            "@%p1 bra $a; mov.b32 %r1, 1; mov.b32 %r2, 2; $a:",
        ),
        ("add.f32.f16 %f1, %h1, %f2;", "add.f32.f16 %f1, %f2, %h1;"),
        (
            ".shared .align 16 .b8 s[64]; mov.u32 %r1, s;",
            ".shared .align 16 .b8 s[128]; mov.u32 %r1, s;",
        ),
        (".pragma \"nounroll\"; mov.b32 %r1, 1;", "mov.b32 %r1, 1;"),
        (
            "{ .reg .b32 %r1; mov.b32 %r1, 1; } mov.b32 %r2, %r1;",
            "mov.b32 %r1, 1; mov.b32 %r2, %r1;",
        ),
    ];
    for (a, b) in cases {
        assert_ne!(body(a), body(b));
    }
}

fn body(body: &str) -> String {
    let text = format!(
        ".version 8.0\n.target sm_90a\n.visible .entry k(.param .u64 x)\n{{\n.reg .pred %p<9>; .reg .b16 %h<9>; \
         .reg .b32 %r<99>; .reg .f32 %f<9>; .reg .b64 %a<9>;\n\
         mov.b32 %r1, 0; mov.b32 %r2, 0; mov.b32 %r3, 0; mov.f32 %f1, %f1; mov.f32 %f2, %f2; mov.f32 %f3, %f3; \
         mov.f32 %f4, %f4; mov.b16 %h1, 0; mov.b16 %h2, 0;\n{body}\nret;\n}}\n"
    );
    canonical(&parse(&text).expect("parses"))
}

/// What the host can see stays; what it cannot is renamed.
#[test]
fn module_names() {
    let module = |entry: &str, helper: &str, table: &str| {
        let text = format!(
            ".version 8.0\n.target sm_90a\n.global .b32 {table}[2] = {{1, 2}};\n.func {helper}() {{ ret; }}\n\
             .visible .entry {entry}(.param .u64 p) {{ .reg .b32 %r1; ld.global.b32 %r1, [{table}]; call {helper}; ret; }}\n"
        );
        digest(&parse(&text).expect("parses"))
    };
    assert_eq!(module("k", "f", "t"), module("k", "g", "u"));
    assert_ne!(module("k", "f", "t"), module("l", "f", "t"));
}
