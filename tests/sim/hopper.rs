//! Kernels as Hopper wants them: TMA, mbarriers, products of warpgroups. Those in `data/sim/hopper` ran right on
//! an H200; here they give the right result, and not one finding.

use std::sync::Arc;

use half::bf16;
use warptree::ptx::parse;
use warptree::sim::{
    self, Finding, Initial, Launch, Memory, Options, Outcome, Program, Swizzle, TensorMap,
};
use warptree::source::DType;

use super::harness::{numbers, options};

/// A kernel with tensor maps for its first parameters.
pub struct Kernel {
    pub program: Program,
    pub memory: Memory,
    pub launch: Launch,
}

/// A tensor of bf16 and its box, innermost first.
pub struct Tensor<'a> {
    pub base: u64,
    pub dims: &'a [u64],
    pub tile: &'a [u32],
    pub swizzle: Swizzle,
}

impl Tensor<'_> {
    fn map(&self, name: &str) -> TensorMap {
        let mut strides = Vec::new();
        let mut stride = 2;
        for dim in &self.dims[..self.dims.len() - 1] {
            stride *= dim;
            strides.push(stride);
        }
        TensorMap {
            name: name.to_owned(),
            base: self.base,
            dtype: DType::Bf16,
            dims: self.dims.to_vec(),
            strides,
            tile: self.tile.to_vec(),
            swizzle: self.swizzle,
            nan_fill: false,
        }
    }
}

impl Kernel {
    pub fn new(ptx: &str) -> Self {
        let module = parse(ptx).unwrap();
        let program = sim::decode(&module, "k").unwrap_or_else(|found| panic!("{found:#?}"));
        let memory = sim::memory(&program);
        let launch = Launch {
            grid: [1; 3],
            block: [1; 3],
            dynamic_shared: 0,
            cluster: [1; 3],
            params: vec![0; program.param_bytes() as usize],
            tensor_maps: Vec::new(),
        };
        Self {
            program,
            memory,
            launch,
        }
    }

    fn param(&mut self, name: &str) -> usize {
        let info = self.program.params().iter().find(|p| p.name == name);
        info.unwrap_or_else(|| panic!("no parameter {name}")).offset as usize
    }

    pub fn tensor(&mut self, name: &str, tensor: &Tensor<'_>) {
        let at = self.param(name) as u32;
        self.launch.tensor_maps.push((at, tensor.map(name)));
    }

    pub fn set(&mut self, name: &str, value: &[u8]) {
        let at = self.param(name);
        self.launch.params[at..at + value.len()].copy_from_slice(value);
    }

    pub fn input(&mut self, values: &[f32]) -> u64 {
        let bytes: Vec<u8> = (values.iter())
            .flat_map(|v| bf16::from_f32(*v).to_le_bytes())
            .collect();
        let length = bytes.len() as u64;
        self.memory
            .add("input", length, false, Initial::Bytes(Arc::from(bytes)))
    }

    pub fn output(&mut self, bytes: u64) -> u64 {
        self.memory
            .add("output", bytes, true, Initial::Poison(0xff))
    }

    pub fn run(&mut self, options: &Options) -> Outcome {
        sim::launch(&self.program, &mut self.memory, &self.launch, options)
    }

    pub fn read(&mut self, base: u64) -> Vec<f32> {
        let bytes = self.memory.contents(base).unwrap();
        bytes
            .chunks_exact(2)
            .map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32())
            .collect()
    }
}

/// Everything that a run had to say.
pub fn said(outcome: &Outcome) -> Vec<Finding> {
    let mut all = outcome.findings.clone();
    match &outcome.stop {
        None => {}
        Some(sim::Stop::Fault(finding)) => all.push(finding.clone()),
        Some(sim::Stop::Hung(findings)) => all.extend(findings.iter().cloned()),
    }
    all
}

/// bf16 values, exactly representable, small.
pub fn values(count: usize, seed: u32) -> Vec<f32> {
    (numbers(count, seed).into_iter())
        .map(|x| bf16::from_f32(x).to_f32())
        .collect()
}

pub struct Gemm {
    pub name: &'static str,
    pub text: &'static str,
    pub shared: u32,
    /// Rows of a box of A, of B; columns of a box of C.
    pub boxes: [u32; 3],
    pub cluster: u32,
    /// B by rows of K.
    pub by_depth: bool,
}

pub struct Sizes {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub blocks: u32,
}

/// The worst element of C = A · Bᵀ, and what the run said.
pub fn gemm(gemm: &Gemm, text: &str, sizes: &Sizes) -> (f64, Vec<Finding>, Outcome, Program) {
    let Sizes { m, n, k, .. } = *sizes;
    let (c, outcome, program) = product(gemm, text, sizes, &options());
    let (a, b) = operands(sizes);
    let mut worst = 0.0f64;
    for row in 0..m as usize {
        for column in 0..n as usize {
            let exact: f64 = (0..k as usize)
                .map(|i| {
                    let b = if gemm.by_depth {
                        b[i * n as usize + column]
                    } else {
                        b[column * k as usize + i]
                    };
                    f64::from(a[row * k as usize + i]) * f64::from(b)
                })
                .sum();
            let off = (f64::from(c[row * n as usize + column]) - exact).abs();
            worst = worst.max(if off.is_nan() { f64::INFINITY } else { off });
        }
    }
    let said = said(&outcome);
    (worst, said, outcome, program)
}

fn operands(&Sizes { m, n, k, .. }: &Sizes) -> (Vec<f32>, Vec<f32>) {
    (values((m * k) as usize, 1), values((n * k) as usize, 2))
}

/// C = A · Bᵀ as the kernel computes it.
pub fn product(
    gemm: &Gemm,
    text: &str,
    sizes: &Sizes,
    options: &Options,
) -> (Vec<f32>, Outcome, Program) {
    let Sizes { m, n, k, blocks } = *sizes;
    let mut kernel = Kernel::new(text);
    let (a, b) = operands(sizes);
    let (a_base, b_base) = (kernel.input(&a), kernel.input(&b));
    let c_base = kernel.output(u64::from(m * n) * 2);
    kernel.tensor(
        "pA",
        &Tensor {
            base: a_base,
            dims: &[k.into(), m.into()],
            tile: &[64, gemm.boxes[0]],
            swizzle: Swizzle::Span128,
        },
    );
    let (dims, tile) = if gemm.by_depth {
        ([n.into(), k.into()], [64, 64])
    } else {
        ([k.into(), n.into()], [64, gemm.boxes[1]])
    };
    kernel.tensor(
        "pB",
        &Tensor {
            base: b_base,
            dims: &dims,
            tile: &tile,
            swizzle: Swizzle::Span128,
        },
    );
    kernel.tensor(
        "pC",
        &Tensor {
            base: c_base,
            dims: &[n.into(), m.into()],
            tile: &[gemm.boxes[2], 64],
            swizzle: Swizzle::of_span(2 * gemm.boxes[2]).unwrap(),
        },
    );
    kernel.set("pCp", &c_base.to_le_bytes());
    for (name, value) in [("pM", m), ("pN", n), ("pK", k), ("pG", 2)] {
        kernel.set(name, &value.to_le_bytes());
    }
    kernel.launch.grid = [blocks, 1, 1];
    kernel.launch.block = [384, 1, 1];
    kernel.launch.cluster = [gemm.cluster, 1, 1];
    kernel.launch.dynamic_shared = gemm.shared;
    let outcome = kernel.run(options);
    (kernel.read(c_base), outcome, kernel.program)
}

/// Kernels of the laboratory; all of them ran right on an H200.
macro_rules! lab {
    ($($name:literal: $shared:literal, $boxes:expr, $cluster:literal, $by_depth:literal;)*) => {
        &[$(Gemm {
            name: $name,
            text: include_str!(concat!("../data/sim/hopper/", $name, ".ptx")),
            shared: $shared,
            boxes: $boxes,
            cluster: $cluster,
            by_depth: $by_depth,
        }),*]
    };
}

pub const LAB: &[Gemm] = lab! {
    "gemm_direct": 131_136, [128, 128, 64], 1, false;
    "gemm_tma": 229_440, [128, 256, 64], 1, false;
    "gemm_roll": 131_120, [128, 128, 64], 1, false;
    "gemm_nn": 213_040, [128, 256, 64], 1, true;
    "gemm_224": 213_056, [128, 224, 32], 1, false;
    "gemm_cw16": 227_408, [128, 176, 16], 1, false;
    "gemm_guard": 229_440, [128, 256, 64], 1, false;
    "gemm_skew": 163_888, [128, 128, 64], 1, false;
    "gemm_cluster_b": 229_440, [128, 128, 64], 2, false;
    "gemm_cluster_a": 229_440, [64, 256, 64], 2, false;
};

pub fn lab(name: &str) -> &'static Gemm {
    LAB.iter().find(|gemm| gemm.name == name).unwrap()
}

#[test]
fn products_by_warpgroups_are_right_and_nothing_is_found() {
    // More rounds of the ring than it has stages, two tiles a block, a ragged edge.
    let sizes = Sizes {
        m: 256,
        n: 264,
        k: 384,
        blocks: 2,
    };
    for kernel in LAB {
        // Stores of its own, not TMA's, must not leave the matrix.
        let n = if kernel.name == "gemm_direct" {
            256
        } else {
            264
        };
        let sizes = Sizes { n, ..sizes };
        let (worst, said, outcome, program) = gemm(kernel, kernel.text, &sizes);
        assert!(said.is_empty(), "{}: {said:#?}", kernel.name);
        assert!(worst < 0.1, "{}: {worst}", kernel.name);
        // Whole tiles are computed, whatever lies outside.
        let flops = outcome.counts.flops(&program);
        assert!(
            flops.tensor_bf16 >= 2.0 * 256.0 * f64::from(n) * 384.0,
            "{}",
            kernel.name
        );
    }
}
