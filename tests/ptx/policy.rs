//! What a task denies is found with its line; what outlives a launch is listed.

use warptree::ptx::{call_detectors, forbidden, module_state, parse};

const TEXT: &str = "\
.version 8.0
.target sm_90a
.global .align 4 .u32 counter;
.global .align 4 .f32 memo[64] = {1.0, 2.0};
.global .align 4 .f32 table[4] = {1.0, 2.0, 3.0, 4.0};
.const .align 4 .f32 weights[4];
.global .align 8 .b64 unused;
.global .align 8 .u64 pointer = generic(stolen);
.global .align 4 .u32 stolen;
.visible .entry k(.param .u64 x)
{
\t.reg .b32 %r<4>; .reg .b64 %a<8>; .reg .f32 %f<4>; .reg .pred %p<4>;
\tatom.global.add.u32 %r1, [counter], 1;
\tmov.u64 %a1, memo;
\tcvta.global.u64 %a2, %a1;
\tadd.s64 %a3, %a2, 16;
\tst.f32 [%a3], %f1;
\tmov.u64 %a4, table;
\tadd.s64 %a5, %a4, 4;
\tld.global.f32 %f1, [%a5];
\tld.const.f32 %f2, weights[1];
\twgmma.fence.sync.aligned;
\tld.nc.global.f32 %f3, [%a4];
\t{ mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f1}; }
\tret;
}
";

#[test]
fn writable_globals_and_tables_are_told_apart() {
    let state = module_state(&parse(TEXT).expect("parses"));
    let named = |list: &[warptree::ptx::ModuleVariable]| -> Vec<(String, u32)> {
        list.iter().map(|v| (v.name.clone(), v.line)).collect()
    };
    let expected = [("counter", 3), ("memo", 4), ("stolen", 9)];
    assert_eq!(
        named(&state.writable),
        expected.map(|(n, l)| (n.to_owned(), l))
    );
    let expected = [("table", 5), ("weights", 6), ("pointer", 8)];
    assert_eq!(
        named(&state.tables),
        expected.map(|(n, l)| (n.to_owned(), l))
    );
    assert_eq!(state.writable[1].uses, [14, 15, 16, 17]);
}

#[test]
fn denied_instructions_are_found_in_any_spelling() {
    let module = parse(TEXT).expect("parses");
    let lines = |allow: &[&str], deny: &[&str]| -> Vec<u32> {
        let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        forbidden(&module, &owned(allow), &owned(deny), "the task is about …")
            .iter()
            .filter_map(|d| d.line)
            .collect()
    };
    assert!(lines(&[], &[]).is_empty());
    assert_eq!(lines(&[], &["wgmma", "mma"]), [22, 24]);
    assert_eq!(lines(&[], &["ld.global.nc"]), [23]);
    assert!(lines(&[], &["ld.glob", "wg"]).is_empty());
    let plain = ["atom", "mov", "cvta", "add", "st", "ld", "ret"];
    assert_eq!(lines(&plain, &[]), [22, 24]);
    assert_eq!(lines(&plain, &["atom"]), [13, 22, 24]);
    let found = forbidden(&module, &[], &["wgmma".to_owned()], "no tensor cores");
    assert_eq!(
        found[0].message,
        "`wgmma.fence.sync.aligned` is not allowed: the task denies `wgmma`"
    );
    assert_eq!(found[0].help.as_deref(), Some("no tensor cores"));
}

/// ptxas takes each of these for a `mma`, whatever stands around it.
#[test]
fn a_denied_instruction_cannot_hide() {
    const MMA: &str = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 \
                       {%f1,%f2,%f3,%f4},{%r1,%r1,%r1,%r1},{%r2,%r2},{%f1,%f2,%f3,%f4};";
    let hiding = [
        format!("// x \\\n{MMA}"),
        format!("/* a /* b */ {MMA} /* c */"),
        format!(".pragma \"/*\"; {MMA} .pragma \"*/\";"),
        format!(".pragma \"a\\\"; {MMA} // \";"),
        format!(".pragma \"a\", \"b\\\"; {MMA} // \";"),
        format!("#line 1 \"x\"\n{MMA}"),
        format!("# 1 \"x\"\n{MMA}"),
        format!(".loc 1 1 1 {MMA}"),
        format!(".loc 1 1 1\n{MMA}"),
        format!("@!%p1 {MMA}"),
        format!("{{{{{{ {MMA} }}}}}}"),
        format!("here: bra there; there: {MMA}"),
        MMA.replace("mma.sync", "mma\t.sync"),
        MMA.replace("mma.sync", "mma\n.sync"),
        MMA.replace("mma.sync", "mma/**/.sync"),
    ];
    for body in hiding {
        let text = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 x)\n{{\n\
             .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .pred %p<3>;\n{body}\nret;\n}}\n"
        );
        // A text that does not parse is refused as well.
        let Ok(module) = parse(&text) else { continue };
        let found = forbidden(&module, &[], &["mma".to_owned()], "");
        assert_eq!(found.len(), 1, "{body}");
    }
}

#[test]
fn what_tells_calls_apart_is_found() {
    let module = parse(
        ".version 8.0\n.target sm_90a\n.visible .entry k()\n{\n.reg .b32 %r<9>; .reg .b64 %d<9>;\n\
         mov.u64 %d1, %globaltimer;\nmov.u32 %r1, %clock;\nmov.u64 %d2, %gridid;\nmov.u32 %r2, %pm3;\n\
         mov.u64 %d3, %pm7_64;\nmov.u32 %r3, %envreg31;\nmov.u32 %r4, %smid;\nmov.u32 %r5, %tid.x;\nret;\n}\n",
    )
    .expect("parses");
    let lines: Vec<u32> = call_detectors(&module)
        .iter()
        .filter_map(|d| d.line)
        .collect();
    assert_eq!(lines, [6, 7, 8, 9, 10, 11]);
}

/// ptxas ends these directives where their list ends, not where their line does.
#[test]
fn a_global_cannot_hide_behind_a_directive() {
    const GLOBAL: &str = ".global .align 4 .u32 kept;";
    let entry = ".visible .entry k()\n{\nst.global.u32 [kept], 1;\nret;\n}\n";
    for head in [
        ".version 8.0 .target sm_80 .address_size 64 ",
        ".version 8.0\n.target sm_80, texmode_independent\n.address_size 64\n.file 1 \"a.cu\", 5, 6 ",
        ".version 8.0\n.target sm_80\n.address_size 64\n.section .debug_str { .b8 0 } ",
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible ",
    ] {
        let Ok(module) = parse(&format!("{head}{GLOBAL}\n{entry}")) else {
            continue;
        };
        assert_eq!(module_state(&module).writable.len(), 1, "{head}");
    }
}

#[test]
fn a_global_inside_a_function_is_state() {
    let module = parse(
        ".version 8.0\n.target sm_90a\n.visible .entry k()\n{\n{ .global .align 4 .u32 kept; }\nret;\n}\n",
    )
    .expect("parses");
    let state = module_state(&module);
    assert_eq!(state.writable.len(), 1);
    assert_eq!(
        (state.writable[0].name.as_str(), state.writable[0].line),
        ("kept", 5)
    );
}
