//! Forms that no recording of a GPU confirms yet: held to what the PTX ISA says of them.

use super::harness::*;
use warptree::sim::Initial;

const HEAD: &str = ".version 8.4\n.target sm_90a\n.address_size 64\n";

fn words(body: &str, initial: &[u32]) -> Vec<u32> {
    let ptx = format!(
        "{HEAD}.visible .entry k(.param .u64 p)\n{{\n    .reg .b64 %p, %at;\n    .reg .b32 %lane, %a, %b, %c, %d;\n    \
         ld.param.u64 %p, [p];\n    mov.u32 %lane, %laneid;\n    mul.wide.u32 %at, %lane, 4;\n    add.s64 %at, %at, %p;\n\
         {body}\n    ret;\n}}\n"
    );
    let bytes: Vec<u8> = initial.iter().flat_map(|w| w.to_le_bytes()).collect();
    let memory = Arg {
        bytes: bytes.len() as u64,
        writable: true,
        initial: Initial::Bytes(bytes.into()),
    };
    let run = run(&ptx, &shape(1, 32), vec![memory], &[]);
    run.clean();
    run.u32s(0)
}

#[test]
fn clamped_integers_lie_side_by_side() {
    for (form, third, [a, b], expected) in [
        ("s16.s32", "", [40_000, -40_000], 0x7fff_8000),
        ("u16.s32", "", [70_000, -5], 0xffff_0000),
        ("s8.s32.b32", ", 0x12345678", [300, -300], 0x5678_7f80),
        ("u8.s32.b32", ", 0x12345678", [-1, 255], 0x5678_00ff),
        ("s4.s32.b32", ", 0x9abcdef1", [9, -9], 0xbcde_f178),
        ("u2.s32.b32", ", 0x9abcdef1", [5, 2], 0xabcd_ef1e),
    ] {
        let body = format!(
            "    mov.b32 %a, {a};\n    mov.b32 %b, {b};\n    cvt.pack.sat.{form} %d, %a, %b{third};\n    \
             st.global.u32 [%at], %d;"
        );
        assert_eq!(words(&body, &[0; 32])[7], expected, "{form}");
    }
}

#[test]
fn atomics_add_two_halves_each_by_itself() {
    for (ty, one_two, sum) in [
        ("f16x2", 0x3c00_4000, 0x4000_4400u32),
        ("bf16x2", 0x3f80_4000, 0x4000_4080),
    ] {
        let body =
            format!("    mov.b32 %a, {one_two};\n    atom.global.add.noftz.{ty} %d, [%at], %a;");
        assert_eq!(words(&body, &[one_two; 32]), [sum; 32], "{ty}");
    }
}

/// Small integers: every sum is exact, in any order.
fn element(row: usize, column: usize, salt: usize) -> f64 {
    ((row * 7 + column * 5 + salt * 3) % 11) as f64 - 5.0
}

#[test]
fn products_of_float64_are_sums_over_the_depth() {
    for (shape_name, rows, depth) in [
        ("m8n8k4", 8, 4),
        ("m16n8k4", 16, 4),
        ("m16n8k8", 16, 8),
        ("m16n8k16", 16, 16),
    ] {
        let (halves, quarters) = (rows / 8, depth / 4);
        let (na, nb, nc) = (halves * quarters, quarters, 2 * halves);
        // Register by register, a value a lane, as the ISA lays the fragments out.
        let mut input = Vec::new();
        for i in 0..na {
            let (row, column) = (8 * (i % halves), 4 * (i / halves));
            input.extend((0..32).map(|lane| element(row + lane / 4, column + lane % 4, 0)));
        }
        for i in 0..nb {
            input.extend((0..32).map(|lane| element(4 * i + lane % 4, lane / 4, 1)));
        }
        for i in 0..nc {
            input.extend(
                (0..32).map(|lane| element(8 * (i / 2) + lane / 4, 2 * (lane % 4) + i % 2, 2)),
            );
        }
        let mut body = String::new();
        for (index, name) in (0..na)
            .map(|i| format!("a{i}"))
            .chain((0..nb).map(|i| format!("b{i}")))
            .chain((0..nc).map(|i| format!("c{i}")))
            .enumerate()
        {
            body += &format!("    ld.global.f64 %{name}, [%in+{}];\n", index * 256);
        }
        let list = |name: &str, count: usize| {
            let items: Vec<String> = (0..count).map(|i| format!("%{name}{i}")).collect();
            format!("{{{}}}", items.join(", "))
        };
        body += &format!(
            "    mma.sync.aligned.{shape_name}.row.col.f64.f64.f64.f64 {}, {}, {}, {};\n",
            list("d", nc),
            list("a", na),
            list("b", nb),
            list("c", nc)
        );
        for i in 0..nc {
            body += &format!("    st.global.f64 [%out+{}], %d{i};\n", i * 256);
        }
        let ptx = format!(
            "{HEAD}.visible .entry k(.param .u64 in, .param .u64 out)\n{{\n    .reg .b64 %in, %out, %at;\n    \
             .reg .b32 %lane;\n    .reg .f64 %a<8>, %b<4>, %c<4>, %d<4>;\n    ld.param.u64 %in, [in];\n    \
             ld.param.u64 %out, [out];\n    mov.u32 %lane, %laneid;\n    mul.wide.u32 %at, %lane, 8;\n    \
             add.s64 %in, %in, %at;\n    add.s64 %out, %out, %at;\n{body}    ret;\n}}\n"
        );
        let bytes: Vec<u8> = input.iter().flat_map(|v: &f64| v.to_le_bytes()).collect();
        let given = Arg {
            bytes: bytes.len() as u64,
            writable: false,
            initial: Initial::Bytes(bytes.into()),
        };
        let run = run(
            &ptx,
            &shape(1, 32),
            vec![given, output(nc as u64 * 256)],
            &[],
        );
        run.clean();
        let got: Vec<f64> = (run.buffers[1].chunks_exact(8))
            .map(|b| f64::from_le_bytes(b.try_into().unwrap()))
            .collect();
        for i in 0..nc {
            for lane in 0..32 {
                let (row, column) = (8 * (i / 2) + lane / 4, 2 * (lane % 4) + i % 2);
                let sum: f64 = (0..depth)
                    .map(|k| element(row, k, 0) * element(k, column, 1))
                    .sum();
                let want = sum + element(row, column, 2);
                assert_eq!(got[i * 32 + lane], want, "{shape_name} {row} {column}");
            }
        }
        let flops = run.outcome.counts.flops(&run.program);
        assert_eq!(flops.fp64, (2 * rows * 8 * depth) as f64, "{shape_name}");
    }
}
