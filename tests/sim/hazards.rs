//! Races, faults and hangs: found where they are, never found where they are not.

use super::harness::*;
use warptree::sim::{FindingKind, Stop};

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

/// Each block reverses its 256 inputs through shared memory.
fn reverse(barrier: &str) -> String {
    format!(
        "{HEAD}.visible .entry k(.param .u64 in, .param .u64 out)
{{
    .reg .b32 %r<8>;
    .reg .b64 %rd<8>;
    .reg .f32 %f<3>;
    .shared .align 4 .b8 tile[1024];
    ld.param.u64 %rd1, [in];
    ld.param.u64 %rd2, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mad.lo.u32 %r3, %r2, 256, %r1;
    mul.wide.u32 %rd3, %r3, 4;
    add.s64 %rd4, %rd1, %rd3;
    ld.global.f32 %f1, [%rd4];
    mov.u32 %r4, tile;
    shl.b32 %r5, %r1, 2;
    add.u32 %r6, %r4, %r5;
    st.shared.f32 [%r6], %f1;
    {barrier}
    sub.u32 %r7, %r4, %r5;
    ld.shared.f32 %f2, [%r7+1020];
    add.s64 %rd5, %rd2, %rd3;
    st.global.f32 [%rd5], %f2;
    ret;
}}
"
    )
}

#[test]
fn a_barrier_orders_shared_memory() {
    let ptx = reverse("bar.sync 0;");
    let data = numbers(1024, 1);
    let run = run(
        &ptx,
        &shape(4, 256),
        vec![input_f32(&data), output(4096)],
        &[],
    );
    run.clean();
    let expected: Vec<f32> = data
        .chunks(256)
        .flat_map(|c| c.iter().rev().copied())
        .collect();
    assert_eq!(run.f32s(1), expected);
}

#[test]
fn a_missing_barrier_is_found_with_both_lines() {
    let ptx = reverse("");
    let run = run(
        &ptx,
        &shape(4, 256),
        vec![input_f32(&numbers(1024, 1)), output(4096)],
        &[],
    );
    let race = run
        .outcome
        .findings
        .iter()
        .find(|f| f.kind == FindingKind::MissingBarrier)
        .unwrap();
    let load = line_of(&ptx, "ld.shared");
    let store = line_of(&ptx, "st.shared");
    assert_eq!(
        [race.line, race.other_line].iter().flatten().min(),
        [load, store].iter().flatten().min()
    );
    assert_eq!(
        [race.line, race.other_line].iter().flatten().max(),
        [load, store].iter().flatten().max()
    );
}

#[test]
fn an_endless_loop_runs_out_of_budget() {
    let ptx = format!("{HEAD}.visible .entry k()\n{{\n$L:\n    bra $L;\n}}\n");
    let run = run(&ptx, &shape(1, 32), vec![], &[]);
    let Some(Stop::Hung(findings)) = &run.outcome.stop else {
        panic!("{:?}", run.outcome.stop)
    };
    assert_eq!(findings[0].line, line_of(&ptx, "bra"));
}
