//! Attention as Hopper wants it: two products in flight, softmax between them, warpgroups in turn. The kernels ran
//! right on an H200.

use warptree::sim::{Options, Swizzle};

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
