//! Sectors, wavefronts and conflicts of known access patterns.

use super::harness::*;
use warptree::sim::Initial;

/// One warp loads from global memory with a stride, in elements of `vector` floats.
fn global(stride: u32, vector: u32) -> (u64, u64) {
    let ty = match vector {
        1 => "f32 {%f0}".replace("{%f0}", "%f0"),
        4 => "v4.f32 {%f0, %f1, %f2, %f3}".into(),
        _ => unreachable!(),
    };
    let ptx = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 in)
{{
    .reg .b64 %rd<3>;
    .reg .b32 %r<2>;
    .reg .f32 %f<4>;
    ld.param.u64 %rd0, [in];
    mov.u32 %r0, %tid.x;
    mul.lo.u32 %r0, %r0, {};
    cvt.u64.u32 %rd1, %r0;
    add.s64 %rd0, %rd0, %rd1;
    ld.global.{ty}, [%rd0];
    ret;
}}
",
        stride * vector * 4
    );
    let arg = Arg {
        bytes: 1 << 16,
        writable: false,
        initial: Initial::Zero,
    };
    let run = run(&ptx, &shape(1, 32), vec![arg], &[]);
    run.clean();
    let line = line_of(&ptx, "ld.global").unwrap();
    let counts = run.outcome.counts.by_line(&run.program);
    let (_, counts) = counts.into_iter().find(|(l, _)| *l == line).unwrap();
    (counts.sectors, counts.lines)
}

#[test]
fn global_sectors_of_strides() {
    for (stride, vector, sectors) in [
        (1, 1, 4),
        (2, 1, 8),
        (4, 1, 16),
        (8, 1, 32),
        (32, 1, 32),
        (0, 1, 1),
        (1, 4, 16),
        (2, 4, 32),
    ] {
        assert_eq!(
            global(stride, vector).0,
            sectors,
            "stride {stride} of float{vector}"
        );
    }
    assert_eq!(global(32, 1).1, 32);
    assert_eq!(global(1, 4).1, 4);
}

/// One warp stores to shared memory with a stride; gives wavefronts and the least possible.
fn shared(stride: u32, vector: u32) -> (u64, u64) {
    let list = (0..vector).map(|_| "%f0").collect::<Vec<_>>().join(", ");
    let ty = match vector {
        1 => "f32".into(),
        n => format!("v{n}.f32"),
    };
    let value = if vector == 1 {
        list
    } else {
        format!("{{{list}}}")
    };
    let ptx = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()
{{
    .reg .b32 %r<3>;
    .reg .f32 %f<4>;
    .shared .align 16 .b8 tile[16384];
    mov.f32 %f0, 0f3F800000;
    mov.u32 %r0, %tid.x;
    mul.lo.u32 %r0, %r0, {};
    mov.u32 %r1, tile;
    add.u32 %r1, %r1, %r0;
    st.shared.{ty} [%r1], {value};
    ret;
}}
",
        stride * vector * 4
    );
    let run = run(&ptx, &shape(1, 32), vec![], &[]);
    run.clean();
    let line = line_of(&ptx, "st.shared").unwrap();
    let counts = run.outcome.counts.by_line(&run.program);
    let (_, counts) = counts.into_iter().find(|(l, _)| *l == line).unwrap();
    (counts.wavefronts, counts.ideal_wavefronts)
}

#[test]
fn shared_conflicts_of_strides() {
    for (stride, vector, wavefronts, ideal) in [
        (1, 1, 1, 1),
        (2, 1, 2, 1),
        (4, 1, 4, 1),
        (32, 1, 32, 1),
        (33, 1, 1, 1),
        (0, 1, 1, 1),
        (1, 2, 2, 2),
        (1, 4, 4, 4),
        (8, 4, 32, 4),
    ] {
        assert_eq!(
            shared(stride, vector),
            (wavefronts, ideal),
            "stride {stride} of float{vector}"
        );
    }
}

/// FLOPs of a thread that holds %a to %d from memory, runs `body` and stores `kept`.
fn flops(body: &str, kept: &str) -> f64 {
    let stores: String = (kept.split_whitespace().enumerate())
        .map(|(index, register)| format!("st.global.f32 [%rd1+{}], {register};\n", 4 * index))
        .collect();
    let ptx = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out)
{{
    .reg .b64 %rd<2>;
    .reg .f32 %a, %b, %c, %d, %e, %f, %g, %h;
    .reg .pred %p;
    ld.param.u64 %rd0, [in];
    ld.param.u64 %rd1, [out];
    ld.global.f32 %a, [%rd0];
    ld.global.f32 %b, [%rd0+4];
    ld.global.f32 %c, [%rd0+8];
    ld.global.f32 %d, [%rd0+12];
    {body}
    {stores}
done:
    ret;
}}
"
    );
    let run = run(
        &ptx,
        &shape(1, 1),
        vec![input_f32(&[1.0, 2.0, 3.0, 4.0]), output(64)],
        &[],
    );
    run.outcome.counts.flops(&run.program).fp32
}

/// Each was assembled by ptxas 13.0.88 for sm_90a, and FADD, FMUL and FFMA (2) counted in its machine code.
#[test]
fn flops_are_those_of_the_machine_code() {
    let cases = [
        // Products that go into sums.
        ("mul.f32 %e, %a, %b; add.f32 %f, %e, %c;", "%f", 2.0),
        ("mul.f32 %e, %a, %b; add.f32 %f, %e, %c;", "%e %f", 2.0),
        (
            "mul.f32 %e, %a, %b; add.f32 %f, %e, %c; sub.f32 %g, %c, %e;",
            "%f %g",
            4.0,
        ),
        (
            "mul.f32 %e, %a, %b; mul.f32 %f, %c, %d; add.f32 %g, %e, %f;",
            "%g",
            3.0,
        ),
        (
            "mul.f32 %e, %a, %b; mul.f32 %f, %c, %d; add.f32 %g, %e, %f; sub.f32 %h, %e, %f;",
            "%g %h",
            5.0,
        ),
        (
            "mul.f32 %e, %a, %b; neg.f32 %e, %e; add.f32 %g, %e, %c;",
            "%g",
            2.0,
        ),
        (
            "mul.f32 %e, %a, %b; add.f32 %f, %e, %c; mul.f32 %g, %e, %c;",
            "%f %g",
            3.0,
        ),
        (
            "mul.f32 %e, %a, %b; add.f32 %f, %e, %c; fma.rn.f32 %g, %e, %c, %d;",
            "%f %g",
            4.0,
        ),
        // Not twice into the same sum.
        ("mul.f32 %e, %a, %b; add.f32 %f, %e, %e;", "%f", 2.0),
        // Not those that are rounded by themselves, or not always.
        ("mul.rn.f32 %e, %a, %b; add.f32 %g, %e, %c;", "%g", 2.0),
        ("mul.f32 %e, %a, %b; add.rn.f32 %g, %e, %c;", "%g", 2.0),
        (
            "mul.f32 %e, %a, %b; setp.lt.f32 %p, %a, %c; @%p add.f32 %e, %e, %c;",
            "%e",
            2.0,
        ),
        // What is there already.
        (
            "mul.rn.f32 %f, %a, %b; mul.rn.f32 %g, %b, %a; add.rn.f32 %f, %f, %g;",
            "%f",
            2.0,
        ),
        (
            "fma.rn.f32 %f, %a, %b, %c; fma.rn.f32 %g, %a, %b, %c; add.rn.f32 %f, %f, %g;",
            "%f",
            3.0,
        ),
        (
            "mov.f32 %e, 0f40000000; mul.f32 %f, %e, 0f40400000; add.f32 %f, %f, %a;",
            "%f",
            1.0,
        ),
        ("mul.f32 %f, %a, 0f3F800000;", "%f", 0.0),
        (
            "ld.global.f32 %e, [%rd0]; mul.rn.f32 %f, %a, %b; mul.rn.f32 %g, %e, %b;",
            "%f %g",
            1.0,
        ),
        // What nobody reads.
        (
            "fma.rn.f32 %f, %a, %b, %c; fma.rn.f32 %f, %f, %b, %c;",
            "%a",
            0.0,
        ),
        // What stays.
        ("add.f32 %f, %a, 0f00000000;", "%f", 1.0),
        ("mul.f32 %f, %a, 0f40000000;", "%f", 1.0),
        ("fma.rn.f32 %f, %a, 0f3F800000, %b;", "%f", 2.0),
    ];
    for (body, kept, expected) in cases {
        assert_eq!(flops(body, kept), expected, "{body} then {kept}");
    }
}

/// What a function computes is work, though only its caller reads it.
#[test]
fn flops_of_functions_count() {
    let ptx = ".version 8.0
.target sm_80
.address_size 64
.func (.reg .f32 %sum) plus(.reg .f32 %a, .reg .f32 %b)
{
    add.f32 %sum, %a, %b;
    ret;
}
.visible .entry k(.param .u64 out)
{
    .reg .b64 %rd0;
    .reg .f32 %f0;
    ld.param.u64 %rd0, [out];
    mov.f32 %f0, 0f3F800000;
    call (%f0), plus, (%f0, %f0);
    st.global.f32 [%rd0], %f0;
    ret;
}
";
    let run = run(ptx, &shape(1, 1), vec![output(4)], &[]);
    run.clean();
    assert_eq!(run.f32s(0), [2.0]);
    assert_eq!(run.outcome.counts.flops(&run.program).fp32, 1.0);
}
