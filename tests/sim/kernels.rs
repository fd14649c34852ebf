//! Kernels as nvcc makes them (`tests/data/sim/nvcc/kernels.cu`): right numbers, nothing to complain of, and
//! counts of known patterns.

use std::path::PathBuf;

use super::harness::*;
use warptree::sim::Initial;

pub fn kernels() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/sim/nvcc/kernels.ptx");
    std::fs::read_to_string(path).unwrap()
}

fn zeroed(bytes: u64) -> Arg {
    Arg {
        bytes,
        writable: true,
        initial: Initial::Zero,
    }
}

fn grid(grid: [u32; 3], block: [u32; 3]) -> Shape {
    Shape {
        grid,
        block,
        shared: 0,
    }
}

fn total(data: &[f32]) -> f64 {
    data.iter().map(|&x| f64::from(x)).sum()
}

fn near(got: f32, want: f64, slack: f64) {
    assert!(
        (f64::from(got) - want).abs() <= slack,
        "{got} is not {want}"
    );
}

#[test]
fn reductions_by_shuffles() {
    let ptx = kernels();
    for n in [1u32, 33, 1000, 4096] {
        let data = numbers(n as usize, n);
        let run = run_entry(
            &ptx,
            "reduce",
            &shape(3, 256),
            vec![input_f32(&data), zeroed(4)],
            &[n],
            &options(),
        );
        run.clean();
        near(run.f32s(1)[0], total(&data), 1e-3);
    }
}

#[test]
fn reductions_by_vectors() {
    let data = numbers(16384, 5);
    let args = vec![input_f32(&data), zeroed(4)];
    let run = run_entry(
        &kernels(),
        "reduce_vector",
        &shape(2, 256),
        args,
        &[4096],
        &options(),
    );
    run.clean();
    near(run.f32s(1)[0], total(&data), 1e-2);
}

#[test]
fn warp_synchronous_trees_are_no_race() {
    let data = numbers(1000, 9);
    let shape = Shape {
        shared: 1024,
        ..shape(4, 256)
    };
    let run = run_entry(
        &kernels(),
        "reduce_tree",
        &shape,
        vec![input_f32(&data), output(16)],
        &[1000],
        &options(),
    );
    run.clean();
    for (part, chunk) in run.f32s(1).into_iter().zip(data.chunks(256)) {
        near(part, total(chunk), 1e-3);
    }
}

#[test]
fn the_last_block_may_read_what_the_others_wrote() {
    let data = numbers(5000, 3);
    let args = vec![input_f32(&data), output(32), output(4)];
    let run = run_entry(
        &kernels(),
        "last_block",
        &shape(8, 256),
        args,
        &[5000],
        &options(),
    );
    run.clean();
    near(run.f32s(2)[0], total(&data), 1e-2);
}

#[test]
fn transpositions() {
    let (rows, cols) = (70usize, 45usize);
    let data = numbers(rows * cols, 2);
    for entry in ["transpose", "transpose_naive"] {
        let args = vec![input_f32(&data), output((rows * cols * 4) as u64)];
        let height = if entry == "transpose" { 3 } else { 9 };
        let shape = grid([2, height, 1], [32, 8, 1]);
        let run = run_entry(
            &kernels(),
            entry,
            &shape,
            args,
            &[rows as u32, cols as u32],
            &options(),
        );
        run.clean();
        let out = run.f32s(1);
        assert!(
            (0..rows * cols).all(|i| out[i % cols * rows + i / cols] == data[i]),
            "{entry}"
        );
    }
}

#[test]
fn products_of_matrices() {
    let n = 128usize;
    let (a, b) = (numbers(n * n, 7), numbers(n * n, 8));
    for (entry, shape) in [
        ("sgemm_naive", grid([8, 8, 1], [16, 16, 1])),
        ("sgemm_tiled", grid([4, 4, 1], [32, 32, 1])),
        ("sgemm_register", grid([1, 1, 1], [256, 1, 1])),
    ] {
        let args = vec![input_f32(&a), input_f32(&b), output((n * n * 4) as u64)];
        let run = run_entry(&kernels(), entry, &shape, args, &[n as u32], &options());
        run.clean();
        let c = run.f32s(2);
        for (index, got) in c.into_iter().enumerate().step_by(37) {
            let (row, col) = (index / n, index % n);
            let want: f64 = (0..n)
                .map(|k| f64::from(a[row * n + k]) * f64::from(b[k * n + col]))
                .sum();
            near(got, want, 1e-4);
        }
        let flops = run.outcome.counts.flops(&run.program);
        assert_eq!(flops.fp32, 2.0 * (n * n * n) as f64, "{entry}");
    }
}

#[test]
fn calls_and_recursion() {
    let run = run_entry(
        &kernels(),
        "calls",
        &shape(2, 64),
        vec![output(400)],
        &[100],
        &options(),
    );
    run.clean();
    let fib = [0, 1, 1, 2, 3, 5, 8, 13];
    for (i, got) in run.u32s(0).into_iter().enumerate() {
        let (mut n, mut steps) = (i as u32 + 1, 0);
        while n != 1 {
            n = if n % 2 == 1 { 3 * n + 1 } else { n / 2 };
            steps += 1;
        }
        assert_eq!(got, steps * 1000 + fib[i % 8], "{i}");
    }
}

#[test]
fn histograms_by_atomics() {
    let data = numbers(3000, 4);
    let run = run_entry(
        &kernels(),
        "histogram",
        &shape(3, 128),
        vec![input_f32(&data), zeroed(256)],
        &[3000],
        &options(),
    );
    run.clean();
    let mut want = [0u32; 64];
    for x in data {
        want[(((x + 1.0) * 32.0) as i32).clamp(0, 63) as usize] += 1;
    }
    assert_eq!(run.u32s(1), want);
}

#[test]
fn softmax_rows() {
    let n = 300usize;
    let data = numbers(4 * n, 6);
    let args = vec![input_f32(&data), output((4 * n * 4) as u64)];
    let run = run_entry(
        &kernels(),
        "softmax",
        &shape(4, 256),
        args,
        &[n as u32],
        &options(),
    );
    run.clean();
    let out = run.f32s(1);
    for (row, got) in data.chunks(n).zip(out.chunks(n)) {
        let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
        for (x, got) in row.iter().zip(got) {
            near(*got, f64::from(*x).exp() / sum, 1e-7);
        }
    }
}

#[test]
fn local_arrays() {
    let index: Vec<u8> = (0..64u32).flat_map(|i| (i * 7 + 3).to_le_bytes()).collect();
    let input = Arg {
        bytes: 256,
        writable: false,
        initial: Initial::Bytes(index.into()),
    };
    let run = run_entry(
        &kernels(),
        "local_array",
        &shape(2, 32),
        vec![input, output(256)],
        &[64],
        &options(),
    );
    run.clean();
    for (i, got) in run.u32s(1).into_iter().enumerate() {
        let mut stack: Vec<u32> = (0..16).map(|k| k * k + (i % 32) as u32).collect();
        let mut sum = 0;
        for j in 0..4usize {
            let k = (((i + j) % 64) * 7 + 3) & 15;
            stack[k] += j as u32;
            sum += stack[(k * 7) & 15];
        }
        assert_eq!(got, sum, "{i}");
    }
}

#[test]
fn a_launch_gives_the_same_bytes_on_any_number_of_threads() {
    let data = numbers(20_000, 11);
    let once = || {
        let args = vec![input_f32(&data), zeroed(4)];
        let run = run_entry(
            &kernels(),
            "reduce",
            &shape(16, 256),
            args,
            &[20_000],
            &options(),
        );
        run.clean();
        (run.buffers, run.outcome.counts.instructions)
    };
    let alone = once();
    let together: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(once)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(together.iter().all(|other| *other == alone));
}
