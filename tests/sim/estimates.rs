//! The cost model orders what is known to be ordered, and by about as much. Times are estimates: the bands
//! are wide, and the facts behind them were measured on an H200.

use std::sync::Arc;

use super::kernels::kernels;
use warptree::device::{Buffer, Contents, Device, Gpu, Job, SimDevice, Timing};
use warptree::ptx::parse;
use warptree::source::{Argument, DType, Launch, LaunchPlan};
use warptree::units::Bytes;
use warptree::verdict::{Bottleneck, Diagnosis};

fn ones() -> Contents {
    Contents::Generated(Arc::new(|_, out: &mut [u8]| {
        for word in out.chunks_exact_mut(4) {
            word.copy_from_slice(&1f32.to_le_bytes());
        }
    }))
}

struct Timed {
    seconds: f64,
    diagnosis: Diagnosis,
    notes: Vec<String>,
}

fn time(
    entry: &str,
    grid: [u32; 3],
    block: [u32; 3],
    buffers: &[(u64, bool)],
    scalars: &[i64],
    registers: u32,
) -> Timed {
    time_of(&kernels(), entry, grid, block, buffers, scalars, registers)
}

fn time_of(
    ptx: &str,
    entry: &str,
    grid: [u32; 3],
    block: [u32; 3],
    buffers: &[(u64, bool)],
    scalars: &[i64],
    registers: u32,
) -> Timed {
    let module = parse(ptx).unwrap();
    let buffers: Vec<Buffer> = buffers
        .iter()
        .enumerate()
        .map(|(index, &(bytes, writable))| Buffer {
            name: format!("b{index}"),
            dtype: DType::F32,
            bytes: Bytes(bytes),
            writable,
            contents: if writable {
                Contents::Fill(0xff)
            } else {
                ones()
            },
        })
        .collect();
    let args = buffers
        .iter()
        .map(|b| Argument::Buffer(b.name.clone()))
        .chain(scalars.iter().map(|s| Argument::Int(*s)))
        .collect();
    let launch = Launch {
        entry: entry.into(),
        grid,
        block,
        smem: Bytes(0),
        cluster: [1; 3],
        args,
    };
    let plan = LaunchPlan {
        launches: vec![launch],
        workspaces: vec![],
        tensor_maps: vec![],
    };
    let registers = [(entry.to_owned(), registers)];
    let job = Job {
        module: &module,
        cubin: None,
        registers: &registers,
        plan: &plan,
        buffers: &buffers,
        sampled: &[],
        order: 0,
    };
    match SimDevice::new(Gpu::default()).time(&job).unwrap() {
        Timing::Timed(timed) => {
            assert_eq!(timed.time.label(), "estimated");
            assert!(timed.floor.unwrap() <= timed.time.nanos());
            Timed {
                seconds: timed.time.nanos().seconds(),
                diagnosis: timed.diagnosis.unwrap(),
                notes: timed.notes,
            }
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn within(value: f64, low: f64, high: f64) {
    assert!(
        (low..=high).contains(&value),
        "{value} is not in {low}..{high}"
    );
}

#[test]
fn sums_near_the_bandwidth() {
    let n = 1i64 << 30;
    let bytes = (n * 4) as u64;
    let buffers = [(bytes, false), (4, true)];
    let share = |t: &Timed| bytes as f64 / t.seconds / 4.917e12;
    let scalar = time("reduce", [132 * 8, 1, 1], [256, 1, 1], &buffers, &[n], 24);
    let vector = time(
        "reduce_vector",
        [132 * 8, 1, 1],
        [256, 1, 1],
        &buffers,
        &[n / 4],
        32,
    );
    // One like it, the seed of `reduce_sum`, reaches 0.515: the model takes waits for single loads to be longer.
    within(share(&scalar), 0.38, 0.7);
    within(share(&vector), 0.85, 0.96);
    assert_eq!(vector.diagnosis.bottleneck, Bottleneck::MemoryBandwidth);
    let few = time("reduce", [132, 1, 1], [128, 1, 1], &buffers, &[n], 24);
    // Four times as many warps, the seed's kind, were measured at 6.5 times the best: some 26 here.
    within(few.seconds / vector.seconds, 2.0, 40.0);
    assert_eq!(scalar.diagnosis.bottleneck, Bottleneck::MemoryLatency);
    assert_eq!(few.diagnosis.bottleneck, Bottleneck::Occupancy);
}

#[test]
fn transpositions_by_tiles_beat_scattered_stores() {
    let (rows, cols) = (16384i64, 8192i64);
    let bytes = (rows * cols * 4) as u64;
    let buffers = [(bytes, false), (bytes, true)];
    let tiled = time(
        "transpose",
        [256, 512, 1],
        [32, 8, 1],
        &buffers,
        &[rows, cols],
        24,
    );
    let naive = time(
        "transpose_naive",
        [256, 2048, 1],
        [32, 8, 1],
        &buffers,
        &[rows, cols],
        16,
    );
    within(2.0 * bytes as f64 / tiled.seconds / 1e12, 3.0, 4.5);
    // Two like them, seed and default space of `transpose`, differ by 3.31 on an H200.
    within(naive.seconds / tiled.seconds, 2.8, 6.5);
    assert_eq!(naive.diagnosis.bottleneck, Bottleneck::Uncoalesced);
    assert!(
        naive
            .diagnosis
            .evidence
            .iter()
            .any(|e| e.text.contains("sectors per request") && e.line.is_some())
    );
}

#[test]
fn products_by_register_tiles_beat_the_others() {
    let n = 4096i64;
    let bytes = (n * n * 4) as u64;
    let buffers = [(bytes, false), (bytes, false), (bytes, true)];
    let teraflops = |t: &Timed| 2.0 * (n * n * n) as f64 / t.seconds / 1e12;
    let naive = time(
        "sgemm_naive",
        [256, 256, 1],
        [16, 16, 1],
        &buffers,
        &[n],
        32,
    );
    let tiled = time(
        "sgemm_tiled",
        [128, 128, 1],
        [32, 32, 1],
        &buffers,
        &[n],
        32,
    );
    let register = time(
        "sgemm_register",
        [32, 32, 1],
        [256, 1, 1],
        &buffers,
        &[n],
        128,
    );
    within(teraflops(&naive), 4.0, 9.0);
    within(teraflops(&tiled), 7.0, 14.0);
    within(teraflops(&register), 36.0, 52.0);
}

/// Under a causal mask: tiles of some heads lie together, and the last tile of 32 has 32 times the first one's work.
const CAUSAL: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 heads)
{
    .reg .pred %p;
    .reg .b32 %r<8>;
    .reg .f32 %f;
    .reg .b64 %d<3>;
    ld.param.u64 %d0, [out];
    cvta.to.global.u64 %d0, %d0;
    ld.param.u32 %r0, [heads];
    mov.u32 %r1, %ctaid.x;
    div.u32 %r2, %r1, %r0;
    and.b32 %r2, %r2, 31;
    sub.u32 %r2, 32, %r2;
    shl.b32 %r2, %r2, 6;
    mov.f32 %f, 0f3F800000;
again:
    fma.rn.f32 %f, %f, %f, %f;
    sub.u32 %r2, %r2, 1;
    setp.ne.u32 %p, %r2, 0;
    @%p bra again;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r3, %r1, 128, %r3;
    mul.wide.u32 %d1, %r3, 4;
    add.s64 %d0, %d0, %d1;
    st.global.f32 [%d0], %f;
    ret;
}
";

#[test]
fn blocks_that_do_unequal_work_are_estimated_by_their_mean() {
    let blocks = 32 * 192;
    let seconds = [1, 2, 4, 8, 16, 48].map(|heads| {
        let out = [(blocks * 128 * 4, true)];
        let grid = [blocks as u32, 1, 1];
        time_of(CAUSAL, "k", grid, [128, 1, 1], &out, &[heads], 16).seconds
    });
    // The same blocks in another order.
    let most = seconds.iter().copied().fold(0.0, f64::max);
    let least = seconds.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(most / least <= 1.15, "{seconds:?}");
}

#[test]
fn many_blocks_are_run_only_where_they_are_short() {
    let blocks = 32 * 192;
    let out = [(blocks * 128 * 4, true)];
    for (steps, ran) in [("6", 16), ("15", 4)] {
        let ptx = CAUSAL.replace("%r2, %r2, 6", &format!("%r2, %r2, {steps}"));
        let grid = [blocks as u32, 1, 1];
        let timed = time_of(&ptx, "k", grid, [128, 1, 1], &out, &[1], 16);
        let told = format!("k: estimated from {ran} of {blocks} blocks");
        assert!(timed.notes[0].starts_with(&told), "{:?}", timed.notes);
    }
}
