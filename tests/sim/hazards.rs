//! Races, faults and hangs: found where they are, never found where they are not.

use super::harness::*;
use warptree::sim::{FindingKind, Initial, Stop};

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

/// One thread does something to one 64-byte buffer at `%rd1`.
fn one_access(access: &str) -> String {
    format!(
        "{HEAD}.visible .entry k(.param .u64 p)
{{
    .reg .b64 %rd<4>;
    .reg .b32 %r<4>;
    .reg .f32 %f<4>;
    .reg .b16 %h<1>;
    .reg .b128 %x<1>;
    .local .align 4 .b8 stack[16];
    .shared .align 4 .b8 tile[16];
    mov.u32 %r0, 0;
    mov.f32 %f0, 0f00000000;
    mov.b16 %h0, 0;
    ld.param.u64 %rd1, [p];
    {access}
    ret;
}}
"
    )
}

fn faults(access: &str, writable: bool) -> Option<FindingKind> {
    let ptx = one_access(access);
    let arg = Arg {
        bytes: 64,
        writable,
        initial: Initial::Zero,
    };
    let run = run(&ptx, &shape(1, 1), vec![arg], &[]);
    match run.outcome.stop {
        None => None,
        Some(Stop::Fault(finding)) => {
            assert_eq!(finding.line, line_of(&ptx, access), "{finding:?}");
            Some(finding.kind)
        }
        Some(Stop::Hung(findings)) => panic!("{findings:?}"),
    }
}

#[test]
fn bad_addresses_fault_at_their_line() {
    use FindingKind::{Misaligned, OutOfBounds, ReadOnlyWrite};
    for (access, writable, kind) in [
        ("ld.global.f32 %f1, [%rd1+60];", false, None),
        ("ld.global.f32 %f1, [%rd1+64];", false, Some(OutOfBounds)),
        ("ld.global.f32 %f1, [%rd1-4];", false, Some(OutOfBounds)),
        ("ld.global.f32 %f1, [%rd1+2];", false, Some(Misaligned)),
        (
            "ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%rd1+8];",
            false,
            Some(Misaligned),
        ),
        ("ld.f32 %f1, [%rd1+4096];", false, Some(OutOfBounds)),
        ("st.global.f32 [%rd1], %f0;", true, None),
        ("st.global.f32 [%rd1], %f0;", false, Some(ReadOnlyWrite)),
        (
            "atom.global.add.u32 %r1, [%rd1], 1;",
            false,
            Some(ReadOnlyWrite),
        ),
        ("st.shared.f32 [tile+16], %f0;", true, Some(OutOfBounds)),
        ("st.shared.f32 [tile+2], %f0;", true, Some(Misaligned)),
        ("ld.shared.f32 %f1, [%r0];", true, Some(OutOfBounds)),
        ("st.local.f32 [stack+16], %f0;", true, Some(OutOfBounds)),
        ("ld.param.u64 %rd2, [p+8];", true, Some(OutOfBounds)),
        ("trap;", true, Some(FindingKind::Trap)),
        ("bar.sync 16;", true, Some(FindingKind::BadLaunch)),
        (
            "atom.shared.cas.b16 %h0, [tile+1], %h0, %h0;",
            true,
            Some(Misaligned),
        ),
        (
            "atom.global.add.v2.f32 {%f0, %f1}, [%rd1+4], {%f0, %f0};",
            true,
            Some(Misaligned),
        ),
        (
            "atom.global.exch.b128 %x0, [%rd1+8], %x0;",
            true,
            Some(Misaligned),
        ),
        (
            "red.global.add.v4.f32 [%rd1+64], {%f0, %f0, %f0, %f0};",
            true,
            Some(OutOfBounds),
        ),
    ] {
        assert_eq!(faults(access, writable), kind, "{access}");
    }
}

#[test]
fn reads_of_unwritten_memory_are_found() {
    for (load, store) in [
        (
            "ld.global.f32 %f1, [%rd1+4];",
            "st.global.f32 [%rd1+4], %f0;",
        ),
        (
            "ld.shared.f32 %f1, [tile+4];",
            "st.shared.f32 [tile+4], %f0;",
        ),
        (
            "ld.local.f32 %f1, [stack+4];",
            "st.local.f32 [stack+4], %f0;",
        ),
    ] {
        let ptx = one_access(load);
        let unwritten = run(&ptx, &shape(1, 1), vec![output(64)], &[]);
        let finding = &unwritten.outcome.findings[0];
        assert_eq!(
            (finding.kind, finding.line),
            (FindingKind::UninitialisedRead, line_of(&ptx, load))
        );
        let written = one_access(&format!("{store}\n    {load}"));
        run(&written, &shape(1, 1), vec![output(64)], &[]).clean();
    }
}

#[test]
fn blocks_that_overwrite_each_other_are_found() {
    let ptx = format!(
        "{HEAD}.visible .entry k(.param .u64 p)
{{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %ctaid.x;
    VALUE
    st.global.u32 [%rd1], %r1;
    ret;
}}
"
    );
    let different = ptx.replace("VALUE", "");
    let run_one = run(&different, &shape(3, 1), vec![output(4)], &[]);
    let finding = &run_one.outcome.findings[0];
    let store = line_of(&different, "st.global");
    assert_eq!(
        (finding.kind, finding.line, finding.other_line),
        (FindingKind::ConflictingWrites, store, store)
    );
    let same = ptx.replace("VALUE", "mov.u32 %r1, 7;");
    run(&same, &shape(3, 1), vec![output(4)], &[]).clean();
}

fn barriers(body: &str) -> Run {
    let ptx = format!(
        "{HEAD}.visible .entry k()
{{
    .reg .pred %p<3>;
    .reg .b32 %r<3>;
    mov.u32 %r1, %tid.x;
    shr.u32 %r2, %r1, 5;
    setp.lt.u32 %p1, %r1, 16;
    setp.eq.u32 %p2, %r2, 0;
{body}
    ret;
}}
"
    );
    run(&ptx, &shape(1, 96), vec![], &[])
}

#[test]
fn barriers_that_part_of_a_warp_reaches_are_found() {
    let run = barriers("    @%p1 bra $skip;\n    bar.sync 0;\n$skip:");
    assert!(
        run.outcome
            .findings
            .iter()
            .any(|f| f.kind == FindingKind::DivergentBarrier)
    );
    barriers("    @%p2 exit;\n    bar.sync 0;").clean();
    barriers("    @%p2 bra $skip;\n    bar.sync 1, 64;\n$skip:\n    bar.sync 0;").clean();
    barriers("    @%p2 bra $give;\n    bar.sync 2, 96;\n    bra.uni $end;\n$give:\n    bar.arrive 2, 96;\n$end:").clean();
}

#[test]
fn barriers_that_nobody_completes_are_deadlocks() {
    let run = barriers("    @%p2 bra $skip;\n    bar.sync 1, 96;\n$skip:\n    bar.sync 0;");
    let Some(Stop::Hung(findings)) = &run.outcome.stop else {
        panic!("{:?}", run.outcome.stop)
    };
    assert_eq!(findings.len(), 2);
    assert!(
        findings[0]
            .message
            .contains("barrier 1, which wants 96 threads"),
        "{findings:?}"
    );
}

#[test]
fn what_is_not_known_is_said_with_its_line() {
    let ptx = one_access("tcgen05.fence::before_thread_sync;");
    let findings = warptree::sim::decode(&warptree::ptx::parse(&ptx).unwrap(), "k").unwrap_err();
    assert_eq!(findings[0].line, line_of(&ptx, "tcgen05"));
    assert!(
        findings[0]
            .message
            .contains("`tcgen05.fence::before_thread_sync`"),
        "{findings:?}"
    );
}

#[test]
fn calls_that_never_come_back_are_told() {
    let ptx = format!(
        "{HEAD}.visible .func deeper(.reg .b32 %r0)\n{{\n    call deeper, (%r0);\n    ret;\n}}\n\
         .visible .entry k()\n{{\n    .reg .b32 %r0;\n    mov.u32 %r0, 0;\n    call deeper, (%r0);\n    ret;\n}}\n"
    );
    let run = run(&ptx, &shape(1, 32), vec![], &[]);
    let Some(Stop::Fault(finding)) = &run.outcome.stop else {
        panic!("{:?}", run.outcome.stop)
    };
    assert_eq!(finding.kind, FindingKind::CallDepth);
    assert_eq!(finding.line, line_of(&ptx, "call deeper"));
}

/// What one thread does with an mbarrier that wants two arrivals.
fn mbarrier(body: &str) -> (String, Run) {
    let ptx = format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()
{{
    .reg .b64 %state;
    .reg .pred %p;
    .shared .align 8 .b64 gate;
    mbarrier.init.shared.b64 [gate], 2;
    {body}
    ret;
}}
"
    );
    let run = run(&ptx, &shape(1, 1), vec![], &[]);
    (ptx, run)
}

#[test]
fn mbarriers_used_wrongly_are_told() {
    let last = "mbarrier.arrive.noComplete.shared.b64 %state, [gate], 2;";
    for (body, at) in [
        ("mbarrier.arrive.shared.b64 %state, [gate], 3;", "[gate], 3"),
        (last, last),
        ("mbarrier.init.shared.b64 [gate], 0;", "[gate], 0"),
        (
            "mbarrier.inval.shared.b64 [gate];\n    mbarrier.arrive.shared.b64 %state, [gate];",
            "mbarrier.arrive",
        ),
    ] {
        let (ptx, run) = mbarrier(body);
        let Some(Stop::Fault(finding)) = &run.outcome.stop else {
            panic!("{body}: {:?}", run.outcome.stop)
        };
        assert_eq!(finding.kind, FindingKind::BadMbarrier, "{body}");
        assert_eq!(finding.line, line_of(&ptx, at), "{body}");
    }
    // All that is wanted, in two steps: nothing is wrong.
    let fine = "mbarrier.arrive.noComplete.shared.b64 %state, [gate], 1;\n    mbarrier.arrive.shared.b64 _, [gate];";
    mbarrier(fine).1.clean();
}
