//! The least time that a task can take on a GPU, and times that are below it.

use super::Finding;
use crate::device::Gpu;
use crate::source::DType;
use crate::task::{MathMode, Role, Task, Work};
use crate::units::Nanos;
use crate::verdict::Diagnosis;

/// A time below this share of the floor is impossible; the rest is the timer's uncertainty.
const FLOOR_BAND: f64 = 0.98;

/// Work estimated from a few blocks is short of the whole only below this share: blocks may be unequal.
const ESTIMATED_WORK: f64 = 0.75;

/// What bounds a call from below on a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Floor {
    /// No call can be faster.
    pub time: Nanos,
    /// Which ceiling it is.
    pub bound: Bound,
}

/// A ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Compulsory bytes ÷ theoretical device-memory bandwidth.
    Bytes,
    /// Least FLOPs ÷ theoretical peak of the fastest unit that the task may use.
    Flops,
}

impl Bound {
    /// In words.
    pub fn word(self) -> &'static str {
        match self {
            Self::Bytes => "compulsory bytes ÷ theoretical bandwidth",
            Self::Flops => "least FLOPs ÷ theoretical peak",
        }
    }
}

/// The roofline at the task's own work: the larger of the two bounds; `None` for a task without work.
/// Bytes that fit in L2 may never cross device memory in repeated calls, so they bound nothing.
pub fn floor(work: &Work, peak: f64, gpu: &Gpu) -> Option<Floor> {
    let bytes = Nanos::new(compulsory(work, gpu) as f64 / gpu.memory_bandwidth * 1e9);
    let flops = Nanos::new(work.flops_min.0 / peak * 1e9);
    let bounded = |bound| move |time| Floor { time, bound };
    match (bytes, flops) {
        (Some(bytes), Some(flops)) if flops > bytes => Some(bounded(Bound::Flops)(flops)),
        (Some(bytes), _) => Some(bounded(Bound::Bytes)(bytes)),
        (None, flops) => flops.map(bounded(Bound::Flops)),
    }
}

/// Operations per second of the fastest unit that the task may use, at the highest clock: tensor cores where
/// its inputs have at most 16 bits or fast math permits tf32, else CUDA cores.
pub fn peak(task: &Task, gpu: &Gpu) -> f64 {
    let tensor = f64::from(gpu.tensor_bf16_flops_per_cycle);
    let allowed = allowed_tensor_types(task);
    let per_cycle = if allowed.contains(&"int8") {
        2.0 * tensor
    } else if allowed.is_empty() {
        2.0 * f64::from(gpu.fp32_fma_per_cycle)
    } else {
        tensor
    };
    f64::from(gpu.sm_count) * per_cycle * gpu.sm_clock_mhz * 1e6
}

/// Tensor-core types that a kernel of this task may use, as devices name them in FLOP counts.
pub fn allowed_tensor_types(task: &Task) -> Vec<&'static str> {
    let mut allowed: Vec<&str> = Vec::new();
    for param in task.params.iter().filter(|p| p.role == Role::Input) {
        let types: &[&str] = match (param.dtype, task.math) {
            (DType::F16, _) => &["fp16"],
            (DType::Bf16, _) => &["bf16"],
            (DType::F64, _) => &["fp64"],
            (DType::F32, MathMode::Fast) => &["tf32"],
            (DType::U8, _) => &["int8"],
            (DType::F32, MathMode::Ieee)
            | (DType::I32 | DType::U32 | DType::I64 | DType::U64, _) => &[],
        };
        allowed.extend(
            types
                .iter()
                .filter(|ty| !allowed.contains(ty))
                .copied()
                .collect::<Vec<_>>(),
        );
    }
    allowed
}

/// A call faster than the GPU can move its bytes or do its arithmetic did not do the work.
pub fn time_floor(time: Nanos, floor: Option<Floor>) -> Finding {
    let Some(floor) = floor else {
        return Finding::NotChecked(
            "time floor: the call's bytes fit in L2 and it has no arithmetic".to_owned(),
        );
    };
    let ratio = time.get() / floor.time.get();
    let word = floor.bound.word();
    if ratio < FLOOR_BAND {
        Finding::Void(format!(
            "{time} is faster than possible: {word} is {} on this GPU",
            floor.time
        ))
    } else {
        Finding::Passed(format!(
            "time floor: {ratio:.2}× of {} ({word})",
            floor.time
        ))
    }
}

/// The same against the device's own ceilings, where it knows them.
pub fn device_floor(time: Nanos, floor: Option<Nanos>) -> Finding {
    match floor {
        None => Finding::NotChecked("time against ceilings measured on this GPU".to_owned()),
        Some(floor) if time.get() < FLOOR_BAND * floor.get() => Finding::Void(format!(
            "{time} is faster than the device's own ceilings allow, {floor}"
        )),
        Some(floor) => Finding::Passed(format!(
            "time against the device's own ceilings: {:.2}× of {floor}",
            time.get() / floor.get()
        )),
    }
}

/// An estimate rests on blocks that ran at the timed size: what they did, for the whole grid, must be near
/// the work. Small sizes may never reach the loop that skips it.
pub fn estimated_work(diagnosis: Option<&Diagnosis>, work: &Work, gpu: &Gpu) -> Finding {
    let Some((diagnosis, moved)) = diagnosis.and_then(|d| Some((d, d.dram?))) else {
        return Finding::NotChecked("work at the timed size: not counted".to_owned());
    };
    // An empty sum is -0.0.
    let flops = diagnosis
        .flops
        .iter()
        .map(|(_, flops)| flops.0)
        .sum::<f64>()
        + 0.0;
    let parts = [
        (flops, work.flops_min.0, "floating-point operations"),
        (moved.0 as f64, compulsory(work, gpu) as f64, "bytes moved"),
    ];
    for (done, least, what) in parts {
        if done < ESTIMATED_WORK * least {
            return Finding::Void(format!(
                "at the timed size its blocks leave work out: {done:.3e} {what} estimated, {least:.3e} needed"
            ));
        }
    }
    Finding::Passed("work at the timed size, estimated from a few blocks".to_owned())
}

/// Bytes that must cross device memory in every call: none where all fit in L2.
fn compulsory(work: &Work, gpu: &Gpu) -> u64 {
    if work.bytes > gpu.l2 { work.bytes.0 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::audit::tests::{ns, units, void, work};
    use crate::units::Bytes;

    const FP32_PEAK: f64 = 132.0 * 256.0 * 1.98e9;
    const BF16_PEAK: f64 = 132.0 * 4096.0 * 1.98e9;

    /// Seen from a few blocks: half of the work is a cheat, nine tenths may be unequal blocks.
    #[test]
    fn an_estimate_must_do_the_work() {
        use crate::verdict::Bottleneck;
        let seen = |flops, moved| Diagnosis {
            source: "simulator".into(),
            bottleneck: Bottleneck::MemoryBandwidth,
            evidence: Vec::new(),
            stalls: Vec::new(),
            occupancy: None,
            flops: units(&[("fp32", flops)]),
            dram: Some(Bytes(moved)),
            target_instructions: Vec::new(),
            executed: None,
            hardware: None,
        };
        let sum = work(1e9, 1e9, 4_000_000_000);
        let judged = |diagnosis: &Diagnosis| estimated_work(Some(diagnosis), &sum, &Gpu::default());
        let passes = |finding| matches!(finding, Finding::Passed(_));
        assert!(passes(judged(&seen(1e9, 4_000_000_000))));
        assert!(passes(judged(&seen(0.9e9, 3_600_000_000))));
        assert!(matches!(
            judged(&seen(0.5e9, 4_000_000_000)),
            Finding::Void(_)
        ));
        assert!(matches!(
            judged(&seen(1e9, 2_000_000_000)),
            Finding::Void(_)
        ));
        // What fits in L2 need not cross device memory.
        let small = work(1e6, 1e6, 4_000_000);
        assert!(passes(estimated_work(
            Some(&seen(1e6, 0)),
            &small,
            &Gpu::default()
        )));
        assert!(matches!(
            estimated_work(None, &sum, &Gpu::default()),
            Finding::NotChecked(_)
        ));
    }

    #[test]
    fn a_sum_of_4_gib_cannot_take_less_than_its_bytes() {
        let sum = work(f64::from(1 << 30), f64::from(1 << 30), 4 << 30);
        let floor = floor(&sum, FP32_PEAK, &Gpu::default()).expect("has work");
        assert_eq!(floor.bound, Bound::Bytes);
        assert!((floor.time.get() - 873_493.5).abs() < 1.0, "{floor:?}");
        // The fastest honest sum seen, 4.61 TB/s, passes; 5.1 TB/s is a cheat.
        assert!(!void(&time_floor(ns(931_668.0), Some(floor))));
        assert!(void(&time_floor(ns(842_154.0), Some(floor))));
    }

    #[test]
    fn a_product_cannot_beat_the_peak_of_its_units() {
        let n = 4096f64;
        let product = work(2.0 * n * n * n, 0.99 * 2.0 * n * n * n, 3 * 4 * 4096 * 4096);
        let floor_of = |peak| floor(&product, peak, &Gpu::default()).expect("has work");
        assert_eq!(floor_of(FP32_PEAK).bound, Bound::Flops);
        // 51 TFLOP/s in fp32 and 785 in bf16 were measured and are honest.
        assert!(!void(&time_floor(
            ns(2.0 * n * n * n / 51e12 * 1e9),
            Some(floor_of(FP32_PEAK))
        )));
        assert!(!void(&time_floor(
            ns(2.0 * n * n * n / 785e12 * 1e9),
            Some(floor_of(BF16_PEAK))
        )));
        assert!(void(&time_floor(
            ns(2.0 * n * n * n / 100e12 * 1e9),
            Some(floor_of(FP32_PEAK))
        )));
    }

    #[test]
    fn bytes_that_fit_in_l2_bound_nothing() {
        assert_eq!(
            floor(&work(0.0, 0.0, 1 << 20), FP32_PEAK, &Gpu::default()),
            None
        );
        assert!(matches!(time_floor(ns(1.0), None), Finding::NotChecked(_)));
    }
}
