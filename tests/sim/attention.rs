//! Attention as Hopper wants it: two products in flight, softmax between them, warpgroups in turn. The kernels ran
//! right on an H200.

use half::bf16;
use warptree::sim::{Options, Swizzle};
use warptree::source::{KnobValue, Source};

use super::harness::options;
use super::hopper::{Kernel, Tensor, said, values};

pub struct Attention {
    pub name: &'static str,
    text: &'static str,
    shared: u32,
    threads: u32,
    /// Queries of a block, keys of a round.
    rows: u32,
    keys: u32,
    causal: bool,
}

macro_rules! lab {
    ($($name:literal: $shared:literal, $threads:literal, $rows:literal, $keys:literal, $causal:literal;)*) => {
        &[$(Attention {
            name: $name,
            text: include_str!(concat!("../data/sim/hopper/", $name, ".ptx")),
            shared: $shared,
            threads: $threads,
            rows: $rows,
            keys: $keys,
            causal: $causal,
        }),*]
    };
}

pub const LAB: &[Attention] = lab! {
    "attention_base": 163_920, 384, 128, 128, false;
    "attention_overlap": 163_920, 384, 128, 128, false;
    "attention_pingpong": 163_920, 384, 128, 128, false;
    "attention_causal": 163_920, 384, 128, 128, true;
    "attention_three": 131_152, 512, 192, 80, false;
    "attention_late": 163_920, 384, 128, 128, false;
};

const DEPTH: usize = 128;

/// What the kernel writes; it must have nothing to complain of.
pub fn output(kernel: &Attention, length: usize, heads: usize, options: &Options) -> Vec<f32> {
    let mut device = Kernel::new(kernel.text);
    let count = heads * length * DEPTH;
    let [q, k, v] = operands(count);
    let dims = [DEPTH as u64, length as u64, heads as u64];
    for (name, data, rows) in [
        ("pQ", &q, kernel.rows),
        ("pK", &k, kernel.keys),
        ("pV", &v, kernel.keys),
    ] {
        let base = device.input(data);
        device.tensor(
            name,
            &Tensor {
                base,
                dims: &dims,
                tile: &[64, rows, 1],
                swizzle: Swizzle::Span128,
            },
        );
    }
    let out = device.output(count as u64 * 2);
    device.tensor(
        "pO",
        &Tensor {
            base: out,
            dims: &dims,
            tile: &[64, 64, 1],
            swizzle: Swizzle::Span128,
        },
    );
    let tiles = length.div_ceil(kernel.rows as usize) * heads;
    let scale = 1.0 / (DEPTH as f64).sqrt();
    device.set("pS", &(length as u32).to_le_bytes());
    device.set("pNT", &(tiles as u32).to_le_bytes());
    device.set(
        "pSL",
        &((scale * std::f64::consts::LOG2_E) as f32).to_le_bytes(),
    );
    device.set("pTH", &f32::NEG_INFINITY.to_le_bytes());
    device.set("pHG", &1u32.to_le_bytes());
    device.launch.grid = [2, 1, 1];
    device.launch.block = [kernel.threads, 1, 1];
    device.launch.dynamic_shared = kernel.shared;
    let outcome = device.run(options);
    let said = said(&outcome);
    assert!(said.is_empty(), "{}: {said:#?}", kernel.name);
    device.read(out)
}

fn operands(count: usize) -> [Vec<f32>; 3] {
    [1, 2, 3].map(|seed| values(count, seed))
}

fn worst(kernel: &Attention, length: usize, heads: usize) -> f64 {
    let found = output(kernel, length, heads, &options());
    let [q, k, v] = operands(heads * length * DEPTH);
    let scale = 1.0 / (DEPTH as f64).sqrt();
    let mut worst = 0.0f64;
    for head in 0..heads {
        // A few rows stand for all.
        for row in (0..length).step_by(37) {
            let at = (head * length + row) * DEPTH;
            let keys = if kernel.causal { row + 1 } else { length };
            let weights: Vec<f64> = (0..keys)
                .map(|key| {
                    let k = &k[(head * length + key) * DEPTH..][..DEPTH];
                    let dot: f64 = (q[at..at + DEPTH].iter().zip(k))
                        .map(|(a, b)| f64::from(*a) * f64::from(*b))
                        .sum();
                    (dot * scale).exp()
                })
                .collect();
            let sum: f64 = weights.iter().sum();
            for column in 0..DEPTH {
                let exact: f64 = (weights.iter().enumerate())
                    .map(|(key, w)| w * f64::from(v[(head * length + key) * DEPTH + column]))
                    .sum::<f64>()
                    / sum;
                let off = (f64::from(found[at + column]) - exact).abs();
                worst = worst.max(if off.is_nan() { f64::INFINITY } else { off });
            }
        }
    }
    worst
}

#[test]
fn attention_is_right_and_nothing_is_found() {
    for kernel in LAB {
        let length = if kernel.causal { 256 } else { 384 };
        let worst = worst(kernel, length, 2);
        assert!(worst < 0.01, "{}: {worst}", kernel.name);
    }
}

/// Powers of two by which the scores of the second 64 keys that a tile meets, and of the third, are above those before.
const RISES: [[f64; 2]; 9] = [
    [0.0, 0.0],
    [31.5, 1.0],
    [33.0, 33.0],
    [99.0, 60.0],
    [123.5, 0.0], // a lane's 16 powers sum to nearly 2^128
    [126.5, 0.0],
    [127.4, 0.0],
    [130.0, 300.0],
    [-140.0, 127.4],
];

/// Without the maximum of the scores at hand, what grows too far must be found out and done again.
#[test]
fn scores_that_rise_from_tile_to_tile_lose_nothing() {
    let text = include_str!("../../search_spaces/attention_fwd/wgmma.ptx");
    let source = Source::parse(text).unwrap();
    for maximum in ["each", "late", "sum"] {
        let mut setting = source
            .space()
            .setting(&source.space().default_point().unwrap());
        setting.insert("MAXIMUM".to_owned(), KnobValue::Text(maximum.to_owned()));
        setting.insert("BN".to_owned(), KnobValue::Int(64));
        let point = source.space().point(&setting).unwrap();
        let ptx = source.render(&point).unwrap().ptx;
        for rises in RISES {
            let worst = risen(&ptx.replace("attention(", "k("), rises);
            assert!(worst < 0.02, "{maximum}, {rises:?}: {worst}");
        }
    }
}

/// How far results are off for queries whose scores are the same within each 64 keys, and rise from the last to the first.
fn risen(ptx: &str, rises: [f64; 2]) -> f64 {
    const KEYS: usize = 192;
    let levels = [rises[0] + rises[1], rises[0], 0.0];
    let unit = (DEPTH as f64).sqrt() / std::f64::consts::LOG2_E;
    // Two elements of a key bring its level, in two parts for the sake of bf16.
    let part = |level: f64| bf16::from_f64(level * unit).to_f64();
    let mut k = vec![0.0; KEYS * DEPTH];
    for key in 0..KEYS {
        let level = levels[key / 64];
        k[key * DEPTH] = part(level) as f32;
        k[key * DEPTH + 1] = part(level - part(level) / unit) as f32;
    }
    let mut q = vec![0.0; KEYS * DEPTH];
    for row in q.chunks_exact_mut(DEPTH) {
        row[..2].fill(1.0);
    }
    let v = values(KEYS * DEPTH, 3);
    let mut device = Kernel::new(ptx);
    let dims = [DEPTH as u64, KEYS as u64, 1];
    for (name, data, rows) in [("q", &q, 128), ("k", &k, 64), ("v", &v, 64)] {
        let base = device.input(data);
        device.set(name, &base.to_le_bytes());
        let tile = [64, rows, 1];
        let (dims, tile, swizzle) = (&dims[..], &tile[..], Swizzle::Span128);
        device.tensor(
            &format!("{name}_map"),
            &Tensor {
                base,
                dims,
                tile,
                swizzle,
            },
        );
    }
    let base = device.output((KEYS * DEPTH * 2) as u64);
    let (dims, tile, swizzle) = (&dims[..], &[64, 64, 1][..], Swizzle::Span128);
    device.tensor(
        "o_map",
        &Tensor {
            base,
            dims,
            tile,
            swizzle,
        },
    );
    let logs = device.output(KEYS as u64 * 4);
    device.set("lse", &logs.to_le_bytes());
    device.set("s", &(KEYS as u32).to_le_bytes());
    device.set("heads", &1u32.to_le_bytes());
    device.launch.grid = [2, 1, 1];
    device.launch.block = [384, 1, 1];
    device.launch.dynamic_shared = 232_448;
    let outcome = device.run(&options());
    assert!(said(&outcome).is_empty(), "{:#?}", said(&outcome));
    let found = device.read(base);
    let weights: Vec<f64> = (0..KEYS)
        .map(|key| (f64::from(k[key * DEPTH]) + f64::from(k[key * DEPTH + 1])) / unit)
        .map(|level| (level - levels.iter().fold(0.0, |a, b| f64::max(a, *b))).exp2())
        .collect();
    let sum: f64 = weights.iter().sum();
    let off = |at: usize| {
        let exact: f64 = (weights.iter().enumerate())
            .map(|(key, w)| w * f64::from(v[key * DEPTH + at % DEPTH]))
            .sum();
        let off = (f64::from(found[at]) - exact / sum).abs();
        if off.is_nan() { f64::INFINITY } else { off }
    };
    (0..KEYS * DEPTH).step_by(131).map(off).fold(0.0, f64::max)
}
