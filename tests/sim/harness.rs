//! Runs small kernels on the simulator.

use warptree::ptx::parse;
use warptree::sim::{self, Initial, Launch, Options, Outcome, Program};

/// A buffer of a run.
pub struct Arg {
    pub bytes: u64,
    pub writable: bool,
    pub initial: Initial,
}

pub fn input_f32(values: &[f32]) -> Arg {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Arg {
        bytes: bytes.len() as u64,
        writable: false,
        initial: Initial::Bytes(bytes.into()),
    }
}

pub fn output(bytes: u64) -> Arg {
    Arg {
        bytes,
        writable: true,
        initial: Initial::Poison(0xff),
    }
}

/// A kernel's run: buffers are its first parameters, `scalars` (32-bit) the rest.
pub struct Run {
    pub outcome: Outcome,
    pub buffers: Vec<Vec<u8>>,
    pub program: Program,
}

pub struct Shape {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
}

pub fn shape(grid: u32, block: u32) -> Shape {
    Shape {
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        shared: 0,
    }
}

pub fn options() -> Options {
    Options {
        checks: true,
        budget: 20_000_000,
        sm_count: 132,
        resident_blocks: 1056,
        blocks: None,
        cache_bytes: None,
        skip_products: false,
        registers: None,
        seed: 0,
    }
}

/// Runs the kernel `k` with the usual options.
pub fn run(ptx: &str, shape: &Shape, args: Vec<Arg>, scalars: &[u32]) -> Run {
    run_entry(ptx, "k", shape, args, scalars, &options())
}

pub fn run_entry(
    ptx: &str,
    entry: &str,
    shape: &Shape,
    args: Vec<Arg>,
    scalars: &[u32],
    options: &Options,
) -> Run {
    let module = parse(ptx).unwrap();
    let program = sim::decode(&module, entry).unwrap_or_else(|findings| panic!("{findings:#?}"));
    let mut memory = sim::memory(&program);
    let mut params = vec![0; program.param_bytes() as usize];
    let mut bases = Vec::new();
    let mut infos = program.params().iter();
    for (index, arg) in args.into_iter().enumerate() {
        let base = memory.add(format!("b{index}"), arg.bytes, arg.writable, arg.initial);
        let at = infos.next().unwrap().offset as usize;
        params[at..at + 8].copy_from_slice(&base.to_le_bytes());
        bases.push(base);
    }
    for (info, value) in infos.zip(scalars) {
        params[info.offset as usize..][..4].copy_from_slice(&value.to_le_bytes());
    }
    let launch = Launch {
        grid: shape.grid,
        block: shape.block,
        dynamic_shared: shape.shared,
        cluster: [1; 3],
        tensor_maps: Vec::new(),
        params,
    };
    let outcome = sim::launch(&program, &mut memory, &launch, options);
    let buffers = bases
        .into_iter()
        .map(|base| memory.contents(base).unwrap())
        .collect();
    Run {
        outcome,
        buffers,
        program,
    }
}

impl Run {
    /// Completed, and nothing to complain of.
    #[track_caller]
    pub fn clean(&self) {
        assert!(self.outcome.stop.is_none(), "{:#?}", self.outcome.stop);
        assert!(
            self.outcome.findings.is_empty(),
            "{:#?}",
            self.outcome.findings
        );
    }

    pub fn f32s(&self, buffer: usize) -> Vec<f32> {
        self.buffers[buffer]
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
            .collect()
    }
}

impl Run {
    pub fn u32s(&self, buffer: usize) -> Vec<u32> {
        let words = self.buffers[buffer].chunks_exact(4);
        words
            .map(|b| u32::from_le_bytes(b.try_into().unwrap()))
            .collect()
    }
}

/// 1-based line of the first line that contains `text`.
pub fn line_of(ptx: &str, text: &str) -> Option<u32> {
    ptx.lines()
        .position(|line| line.contains(text))
        .map(|at| at as u32 + 1)
}

/// Pseudo-random small numbers, the same everywhere.
pub fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_769).max(1);
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}
