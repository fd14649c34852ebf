//! Products of small matrices by a warp: fragments lie where the PTX manual says, and the work is counted.

use warptree::ptx::parse;
use warptree::sim::{self, FindingKind, Initial};

use super::harness::*;

/// D = A · B + C, A by rows, B by columns, C of ones; `ty` is `bf16` or `f16`.
fn product(ty: &str) -> String {
    format!(
        "
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 d)
{{
    .reg .b32 %lane, %group, %pair, %at, %a<4>, %b<2>;
    .reg .f32 %d<4>;
    .reg .b64 %pa, %pb, %pd, %offset;
    ld.param.u64 %pa, [a];
    ld.param.u64 %pb, [b];
    ld.param.u64 %pd, [d];
    mov.u32 %lane, %tid.x;
    shr.u32 %group, %lane, 2;
    and.b32 %pair, %lane, 3;
    mul.lo.u32 %at, %pair, 4;
    mad.lo.u32 %at, %group, 32, %at;
    cvt.u64.u32 %offset, %at;
    add.u64 %pa, %pa, %offset;
    add.u64 %pb, %pb, %offset;
    ld.global.b32 %a0, [%pa];
    ld.global.b32 %a1, [%pa+256];
    ld.global.b32 %a2, [%pa+16];
    ld.global.b32 %a3, [%pa+272];
    ld.global.b32 %b0, [%pb];
    ld.global.b32 %b1, [%pb+16];
    mov.f32 %d0, 0f3F800000;
    mov.f32 %d1, 0f3F800000;
    mov.f32 %d2, 0f3F800000;
    mov.f32 %d3, 0f3F800000;
    mma.sync.aligned.m16n8k16.row.col.f32.{ty}.{ty}.f32 {{%d0, %d1, %d2, %d3}}, {{%a0, %a1, %a2, %a3}}, {{%b0, %b1}}, {{%d0, %d1, %d2, %d3}};
    mul.lo.u32 %at, %pair, 8;
    mad.lo.u32 %at, %group, 32, %at;
    cvt.u64.u32 %offset, %at;
    add.u64 %pd, %pd, %offset;
    st.global.v2.f32 [%pd], {{%d0, %d1}};
    st.global.v2.f32 [%pd+256], {{%d2, %d3}};
    ret;
}}
"
    )
}

fn halves(values: &[f32], ty: &str) -> Arg {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| match ty {
            "bf16" => half::bf16::from_f32(*value).to_le_bytes(),
            _ => half::f16::from_f32(*value).to_le_bytes(),
        })
        .collect();
    Arg {
        bytes: bytes.len() as u64,
        writable: false,
        initial: Initial::Bytes(bytes.into()),
    }
}

#[test]
fn fragments_lie_as_the_manual_says() {
    // Small integers: exact in both types, and no two rows or columns are alike.
    let a: Vec<f32> = (0..256).map(|i| ((i * 7) % 23) as f32 - 11.0).collect();
    let b: Vec<f32> = (0..128).map(|i| ((i * 5) % 19) as f32 - 9.0).collect();
    for (ty, unit) in [("bf16", "tensor bf16"), ("f16", "tensor fp16")] {
        let args = vec![halves(&a, ty), halves(&b, ty), output(512)];
        let run = run(&product(ty), &shape(1, 32), args, &[]);
        run.clean();
        let got = run.f32s(2);
        for row in 0..16 {
            for column in 0..8 {
                let sum: f32 = (0..16).map(|k| a[16 * row + k] * b[16 * column + k]).sum();
                assert_eq!(got[8 * row + column], 1.0 + sum, "{ty} {row} {column}");
            }
        }
        let flops = run.outcome.counts.flops(&run.program);
        let work: Vec<(&str, f64)> = flops.by_unit().collect();
        assert_eq!(work, [(unit, 4096.0)]);
    }
}

#[test]
fn other_shapes_are_named_as_unknown() {
    let ptx = product("bf16").replace("m16n8k16", "m16n8k8");
    let findings = sim::decode(&parse(&ptx).unwrap(), "k").unwrap_err();
    assert_eq!(findings[0].kind, FindingKind::Unsupported);
    assert!(findings[0].message.contains("m16n8k8"));
}
