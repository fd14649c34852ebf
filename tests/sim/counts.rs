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
