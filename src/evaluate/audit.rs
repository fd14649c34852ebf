//! The audit: what a correct kernel must still answer for. Each check is a pure function over numbers that
//! others measured or counted; it voids a score with a sentence, passes, or says that it could not be done.

use crate::device::Gpu;
use crate::ptx::{ModuleState, ModuleVariable};
use crate::source::DType;
use crate::task::{MathMode, Role, Task, Work};
use crate::units::{Bytes, Flops, Nanos};
use crate::verdict::{Diagnosis, Mismatch, TargetShare};

/// A time below this share of the floor is impossible; the rest is the timer's uncertainty.
const FLOOR_BAND: f64 = 0.98;

/// Work estimated from a few blocks is short of the whole only below this share: blocks may be unequal.
const ESTIMATED_WORK: f64 = 0.75;

/// Two counts of the same work differ by less than this.
const SAME_WORK: f64 = 0.99;

/// Below this share of its inputs a call did not read them; the rest is what a flush may leave behind.
const READ_BAND: f64 = 0.95;

/// Calls that take this much longer on unseen inputs saved work on those seen; the rest is caches that hold
/// something else.
const REMEMBERED: f64 = 1.25;

/// Fewer bytes drown in what the profiler itself leaves in the caches.
const LEAST_COUNTED: Bytes = Bytes(1 << 20);

/// An output that a timed call left, compared with the reference.
pub type Compared = (String, Result<(), Mismatch>);

/// The answer of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Looked at and fine: what was checked, with its numbers.
    Passed(String),
    /// The score counts nothing, and why.
    Void(String),
    /// Nobody measured what it needs: what was not checked, and why.
    NotChecked(String),
}

/// All answers, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audited {
    /// Reasons to void the score.
    pub void: Vec<String>,
    /// Checks done.
    pub checked: Vec<String>,
    /// Checks that could not be done here.
    pub not_checked: Vec<String>,
}

impl Audited {
    /// Files one answer.
    pub fn add(&mut self, finding: Finding) {
        match finding {
            Finding::Passed(text) => self.checked.push(text),
            Finding::Void(text) => self.void.push(text),
            Finding::NotChecked(text) => self.not_checked.push(text),
        }
    }
}

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

/// Timed calls whose outputs differ from an untimed call's did not do the same work, unless the task lets
/// those outputs (`nondeterministic`) differ between repeats; then what they held must be right.
pub fn steady(unsteady: &[String], nondeterministic: &[String], compared: &[Compared]) -> Finding {
    let wrong = compared
        .iter()
        .find_map(|(_, judged)| judged.as_ref().err());
    if let Some(mismatch) = wrong {
        return Finding::Void(format!(
            "`{}` of timed calls is wrong in {} of {} elements",
            mismatch.output, mismatch.wrong, mismatch.checked
        ));
    }
    let (excused, guilty): (Vec<&String>, Vec<&String>) = unsteady
        .iter()
        .partition(|output| nondeterministic.contains(output));
    let list = |outputs: Vec<&String>| {
        outputs
            .into_iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("; ")
    };
    if !guilty.is_empty() {
        Finding::Void(format!(
            "outputs of timed calls are not those of an untimed one: {}",
            list(guilty)
        ))
    } else if excused
        .iter()
        .any(|name| !compared.iter().any(|(output, _)| output == *name))
    {
        Finding::NotChecked(format!(
            "outputs of timed calls that may differ between repeats: {}",
            list(excused)
        ))
    } else if !excused.is_empty() {
        Finding::Passed(format!(
            "outputs of timed calls that differ between repeats, within tolerance: {}",
            list(excused)
        ))
    } else {
        Finding::Passed("timing saw no output differ from an untimed call's".to_owned())
    }
}

/// Calls on inputs that no timed call saw take as long, unless the timed ones remembered something.
pub fn forgetful(time: Nanos, afterwards: Option<Nanos>) -> Finding {
    let Some(afterwards) = afterwards else {
        return Finding::NotChecked("time on inputs that come only afterwards".to_owned());
    };
    let ratio = afterwards.get() / time.get();
    if ratio > REMEMBERED {
        Finding::Void(format!(
            "on inputs that no timed call saw, a call takes {afterwards}, {ratio:.2}× its time: it remembers"
        ))
    } else {
        Finding::Passed(format!(
            "time on inputs that come only afterwards: {ratio:.2}× of {time}"
        ))
    }
}

/// Timed calls that wrote where they may not.
pub fn timed_memory(violations: &[String]) -> Finding {
    if violations.is_empty() {
        Finding::Passed("timing saw no write outside of an output".to_owned())
    } else {
        Finding::Void(format!(
            "timed calls wrote where they may not: {}",
            violations.join("; ")
        ))
    }
}

/// A kernel that executes fewer FLOPs than any honest algorithm left work out. `executed` is by unit; `None`
/// where nobody counts.
pub fn executed_flops(executed: Option<&[(String, Flops)]>, work: &Work, at: &str) -> Finding {
    let Some(executed) = executed else {
        return Finding::NotChecked("floating-point operations executed: not counted".to_owned());
    };
    // An empty sum is -0.0.
    let total = executed.iter().map(|(_, flops)| flops.0).sum::<f64>() + 0.0;
    let least = work.flops_min.0;
    if total < least {
        return Finding::Void(format!(
            "it executes {total:.0} floating-point operations at {at}; no honest algorithm does fewer than {least:.0}"
        ));
    }
    let nominal = work.flops.0;
    let waste = if nominal > 0.0 && total > 1.5 * nominal {
        format!(", {:.1}× the nominal {nominal:.0}", total / nominal)
    } else {
        String::new()
    };
    Finding::Passed(format!(
        "floating-point operations executed at {at}: {total:.0}, at least {least:.0} needed{waste}"
    ))
}

/// A call that starts with cold caches reads every distinct byte it needs from device memory; one that reads
/// fewer did not look at its inputs. `compulsory`: what must be read at least, by the task's formula and its
/// inputs' sizes. Written bytes say nothing: they may still be in L2.
pub fn dram_reads(read: Option<Bytes>, compulsory: Bytes) -> Finding {
    let Some(read) = read else {
        return Finding::NotChecked("bytes read from device memory: not counted".to_owned());
    };
    if compulsory < LEAST_COUNTED {
        return Finding::NotChecked(format!(
            "bytes read from device memory: {read}; the inputs' {compulsory} are too few to tell"
        ));
    }
    if (read.0 as f64) < READ_BAND * compulsory.0 as f64 {
        Finding::Void(format!(
            "with cold caches it reads {read} from device memory; its inputs have {compulsory} that must be read"
        ))
    } else {
        Finding::Passed(format!(
            "bytes read from device memory with cold caches: {read}, at least {compulsory} needed"
        ))
    }
}

/// Tensor-core work in a type that the task's inputs do not have is lower precision than declared.
pub fn tensor_types(executed: Option<&[(String, Flops)]>, allowed: &[&str]) -> Finding {
    let Some(executed) = executed else {
        return Finding::NotChecked("tensor-core types: not counted".to_owned());
    };
    let undeclared: Vec<&str> = executed
        .iter()
        .filter(|(_, flops)| flops.0 > 0.0)
        .filter_map(|(unit, _)| unit.strip_prefix("tensor "))
        .filter(|ty| !allowed.contains(ty))
        .collect();
    if undeclared.is_empty() {
        Finding::Passed("tensor-core types: none that the task does not declare".to_owned())
    } else {
        Finding::Void(format!(
            "it computes on tensor cores in {}, which the task does not declare",
            undeclared.join(" and ")
        ))
    }
}

/// Tensor-core work that depends on what the numbers are was skipped for some of them. `by_case` has the work
/// of one size for each input case.
pub fn distribution(by_case: &[(&str, &[(String, Flops)])], at: &str) -> Finding {
    let tensor = |executed: &[(String, Flops)]| -> f64 {
        let units = executed
            .iter()
            .filter(|(unit, _)| unit.starts_with("tensor "));
        units.map(|(_, flops)| flops.0).sum()
    };
    let work = by_case
        .iter()
        .map(|(case, executed)| (tensor(executed), case));
    let least = work.clone().min_by(|a, b| a.0.total_cmp(&b.0));
    let most = work.max_by(|a, b| a.0.total_cmp(&b.0));
    match (least, most) {
        (Some((least, on)), Some((most, _))) if least < SAME_WORK * most => Finding::Void(format!(
            "its tensor-core work depends on the input's distribution: {least:.0} operations on {on} inputs, \
             {most:.0} on others, at {at}"
        )),
        (Some(_), Some(_)) => Finding::Passed(
            "tensor-core work does not depend on the input's distribution".to_owned(),
        ),
        (None, _) | (_, None) => {
            Finding::NotChecked("tensor-core work by input distribution: not counted".to_owned())
        }
    }
}

/// A module variable that a kernel writes could carry results from one call to the next. Scratch memory is
/// declared as a workspace instead. Tables that nothing writes are fine: the inputs are secret.
pub fn module_state(state: &ModuleState, source_line: &dyn Fn(u32) -> Option<u32>) -> Finding {
    let told = |variable: &ModuleVariable| match source_line(variable.line) {
        Some(line) => format!("`{}` (line {line})", variable.name),
        None => format!("`{}`", variable.name),
    };
    if state.writable.is_empty() {
        let tables: Vec<String> = state.tables.iter().map(told).collect();
        return Finding::Passed(if tables.is_empty() {
            "no state between calls: the module has no variables of its own".to_owned()
        } else {
            format!(
                "no state between calls: nothing writes {}",
                tables.join(", ")
            )
        });
    }
    let writable: Vec<String> = state.writable.iter().map(told).collect();
    Finding::Void(format!(
        "it can keep results between calls in {}: declare scratch memory as `//@ workspace` instead",
        writable.join(", ")
    ))
}

/// An instruction that must carry the work, and how often it must run.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Mnemonic prefix.
    pub mnemonic: String,
    /// Least executions at the size counted.
    pub needed: f64,
}

/// Executed ÷ needed of the target that is furthest behind, at most 1: a decoy executed once among the
/// thousands that the work needs is worth nothing. `executed` is by full mnemonic.
pub fn target_share(executed: &[(String, u64)], targets: &[Target]) -> f64 {
    targets
        .iter()
        .map(|target| {
            let count: u64 = executed
                .iter()
                .filter(|(mnemonic, _)| matches(mnemonic, &target.mnemonic))
                .map(|(_, count)| count)
                .sum();
            (count as f64 / target.needed.max(1.0)).min(1.0)
        })
        .fold(1.0, f64::min)
}

/// What was executed beside what was needed, at one size.
#[derive(Clone, Debug)]
pub struct TargetCounts<'a> {
    /// Executions by full mnemonic.
    pub executed: &'a [(String, u64)],
    /// What the task asks for at that size.
    pub targets: Vec<Target>,
}

/// How much of the work the target instructions did: for the score, and in words. `counted` has every size
/// where somebody counted.
pub fn target_instructions(names: &[&str], counted: &[TargetCounts<'_>]) -> (TargetShare, Finding) {
    if names.is_empty() {
        let text = "target instructions: the task requires none".to_owned();
        return (TargetShare::NotRequired, Finding::Passed(text));
    }
    let names = names.join(", ");
    let share = counted
        .iter()
        .map(|at_size| target_share(at_size.executed, &at_size.targets))
        .reduce(f64::min);
    match share {
        None => {
            let text = format!("target instructions ({names}): not profiled");
            (TargetShare::NotProfiled, Finding::NotChecked(text))
        }
        // Less than all is a matter of the score, not of honesty.
        Some(share) => {
            let text = format!(
                "target instructions ({names}): did {:.1} % of the work",
                share * 100.0
            );
            (TargetShare::Counted(share), Finding::Passed(text))
        }
    }
}

/// `wgmma.mma_async` matches `wgmma.mma_async.sync.aligned…`, not `wgmma.mma_async2`.
fn matches(mnemonic: &str, prefix: &str) -> bool {
    mnemonic
        .strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::SmArch;

    fn h200() -> Gpu {
        Gpu {
            name: "NVIDIA H200".into(),
            arch: SmArch::SM_90A,
            sm_count: 132,
            sm_clock_mhz: 1980.0,
            memory_bandwidth: 4.92e12,
            l2: Bytes(60 << 20),
            smem_per_block: Bytes(232_448),
            smem_per_sm: Bytes(233_472),
            registers_per_sm: 65_536,
            threads_per_sm: 2048,
            blocks_per_sm: 32,
            fp32_fma_per_cycle: 128,
            tensor_bf16_flops_per_cycle: 4096,
        }
    }

    const FP32_PEAK: f64 = 132.0 * 256.0 * 1.98e9;
    const BF16_PEAK: f64 = 132.0 * 4096.0 * 1.98e9;

    fn ns(value: f64) -> Nanos {
        Nanos::new(value).expect("positive")
    }

    fn work(flops: f64, flops_min: f64, bytes: u64) -> Work {
        Work {
            flops: Flops(flops),
            flops_min: Flops(flops_min),
            bytes: Bytes(bytes),
        }
    }

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
            hardware: None,
        };
        let sum = work(1e9, 1e9, 4_000_000_000);
        let judged = |diagnosis: &Diagnosis| estimated_work(Some(diagnosis), &sum, &h200());
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
        assert!(passes(estimated_work(Some(&seen(1e6, 0)), &small, &h200())));
        assert!(matches!(
            estimated_work(None, &sum, &h200()),
            Finding::NotChecked(_)
        ));
    }

    fn units(list: &[(&str, f64)]) -> Vec<(String, Flops)> {
        list.iter()
            .map(|(unit, n)| ((*unit).to_owned(), Flops(*n)))
            .collect()
    }

    fn void(finding: &Finding) -> bool {
        matches!(finding, Finding::Void(_))
    }

    #[test]
    fn a_sum_of_4_gib_cannot_take_less_than_its_bytes() {
        let sum = work(f64::from(1 << 30), f64::from(1 << 30), 4 << 30);
        let floor = floor(&sum, FP32_PEAK, &h200()).expect("has work");
        assert_eq!(floor.bound, Bound::Bytes);
        assert!((floor.time.get() - 872_960.8).abs() < 1.0, "{floor:?}");
        // The fastest honest sum seen, 4.61 TB/s, passes; 5.1 TB/s is a cheat.
        assert!(!void(&time_floor(ns(931_668.0), Some(floor))));
        assert!(void(&time_floor(ns(842_154.0), Some(floor))));
    }

    #[test]
    fn a_product_cannot_beat_the_peak_of_its_units() {
        let n = 4096f64;
        let product = work(2.0 * n * n * n, 0.99 * 2.0 * n * n * n, 3 * 4 * 4096 * 4096);
        let floor_of = |peak| floor(&product, peak, &h200()).expect("has work");
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
        assert_eq!(floor(&work(0.0, 0.0, 1 << 20), FP32_PEAK, &h200()), None);
        assert!(matches!(time_floor(ns(1.0), None), Finding::NotChecked(_)));
    }

    #[test]
    fn dropping_part_of_k_is_seen_in_the_flops() {
        let product = work(2e9, 1.98e9, 0);
        let all = units(&[("fp32", 2e9)]);
        let dropped = units(&[("fp32", 2e9 * 63.0 / 64.0)]);
        assert!(!void(&executed_flops(Some(&all), &product, "n=1000")));
        assert!(void(&executed_flops(Some(&dropped), &product, "n=1000")));
        assert!(matches!(
            executed_flops(None, &product, ""),
            Finding::NotChecked(_)
        ));
    }

    #[test]
    fn a_call_that_does_not_read_its_inputs_is_void() {
        let gib = Bytes(1 << 30);
        assert!(void(&dram_reads(Some(Bytes(gib.0 / 2)), gib)));
        assert!(!void(&dram_reads(Some(Bytes(gib.0 - 4096)), gib)));
        assert!(!void(&dram_reads(Some(Bytes(3 * gib.0)), gib)));
        assert!(matches!(dram_reads(None, gib), Finding::NotChecked(_)));
        let few = dram_reads(Some(Bytes(0)), Bytes(4096));
        assert!(matches!(few, Finding::NotChecked(text) if text.contains("too few")));
    }

    #[test]
    fn more_flops_than_nominal_is_waste_not_a_cheat() {
        let finding = executed_flops(
            Some(&units(&[("fp32", 4e9)])),
            &work(2e9, 1.98e9, 0),
            "n=1000",
        );
        assert!(
            matches!(&finding, Finding::Passed(text) if text.contains("2.0× the nominal")),
            "{finding:?}"
        );
    }

    #[test]
    fn a_radix_4_fft_may_do_less_than_nominal() {
        let fft = work(5.0 * 1024.0 * 10.0, 0.8 * 5.0 * 1024.0 * 10.0, 0);
        let radix_4 = units(&[("fp32", 0.85 * 5.0 * 1024.0 * 10.0)]);
        assert!(!void(&executed_flops(Some(&radix_4), &fft, "one row")));
    }

    #[test]
    fn tf32_where_ieee_was_declared_is_void() {
        let tf32 = units(&[("fp32", 1e6), ("tensor tf32", 2e9)]);
        assert!(void(&tensor_types(Some(&tf32), &[])));
        assert!(!void(&tensor_types(Some(&tf32), &["tf32"])));
        assert!(!void(&tensor_types(
            Some(&units(&[("fp32", 1e6), ("tensor tf32", 0.0)])),
            &[]
        )));
    }

    #[test]
    fn skipping_tensor_work_on_some_inputs_is_void() {
        let (all, half, none) = (
            units(&[("tensor bf16", 2e9), ("fp32", 5.0)]),
            units(&[("tensor bf16", 1e9), ("fp32", 1e9)]),
            units(&[("fp32", 7.0)]),
        );
        assert!(void(&distribution(
            &[("normal", &all), ("integers", &half)],
            "m=64"
        )));
        assert!(!void(&distribution(
            &[("normal", &all), ("spiky", &all)],
            "m=64"
        )));
        assert!(!void(&distribution(
            &[("normal", &none), ("spiky", &units(&[]))],
            "m=64"
        )));
        assert!(matches!(distribution(&[], ""), Finding::NotChecked(_)));
    }

    #[test]
    fn a_module_variable_that_is_written_is_void_a_table_is_not() {
        let judge = |body: &str| {
            let text = format!(
                ".version 8.0\n.target sm_90a\n.address_size 64\n.global .u32 seen;\n.const .u32 table[2] = {{1, 2}};\n\
                 .visible .entry k()\n{{\n  .reg .b32 %r<2>;\n  {body}\n  ret;\n}}\n"
            );
            let module = crate::ptx::parse(&text).expect("parses");
            module_state(&crate::ptx::module_state(&module), &|line| Some(line + 10))
        };
        let kept = judge("mov.u32 %r1, 1; st.global.u32 [seen], %r1;");
        assert!(
            matches!(&kept, Finding::Void(text) if text.contains("`seen` (line 14)")),
            "{kept:?}"
        );
        assert!(!void(&judge("ld.const.u32 %r1, [table];")));
    }

    fn counts(list: &[(&str, u64)]) -> Vec<(String, u64)> {
        list.iter()
            .map(|(name, n)| ((*name).to_owned(), *n))
            .collect()
    }

    #[test]
    fn a_decoy_executed_once_is_worth_nothing() {
        let targets = [Target {
            mnemonic: "wgmma.mma_async".into(),
            needed: 65_536.0,
        }];
        let decoy = counts(&[
            ("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16", 1),
            ("fma.rn.f32", 1 << 30),
        ]);
        assert!(target_share(&decoy, &targets) < 1e-4);
        let honest = counts(&[(
            "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16",
            65_536,
        )]);
        assert_eq!(target_share(&honest, &targets), 1.0);
        assert_eq!(target_share(&[], &targets), 0.0);
        assert_eq!(target_share(&[], &[]), 1.0);
    }

    #[test]
    fn the_target_furthest_behind_counts_and_a_prefix_ends_at_a_dot() {
        let target = |mnemonic: &str| Target {
            mnemonic: mnemonic.into(),
            needed: 10.0,
        };
        let executed = counts(&[
            ("wgmma.mma_async.sync", 10),
            ("cp.async.bulk.tensor.2d", 5),
            ("cp.async.bulktensor", 50),
        ]);
        let share = target_share(
            &executed,
            &[target("wgmma.mma_async"), target("cp.async.bulk.tensor")],
        );
        assert_eq!(share, 0.5);
        let names = ["wgmma.mma_async", "cp.async.bulk.tensor"];
        let counts = TargetCounts {
            executed: &executed,
            targets: names.map(target).to_vec(),
        };
        let (share, _) = target_instructions(&names, &[counts]);
        assert_eq!(share, TargetShare::Counted(0.5));
    }

    #[test]
    fn what_nobody_counted_is_not_a_pass() {
        let (share, finding) = target_instructions(&["wgmma.mma_async"], &[]);
        assert_eq!(share, TargetShare::NotProfiled);
        assert!(matches!(finding, Finding::NotChecked(text) if text.contains("not profiled")));
        assert_eq!(target_instructions(&[], &[]).0, TargetShare::NotRequired);
    }

    #[test]
    fn timed_calls_that_write_something_else_are_void() {
        let out = ["out".to_owned()];
        assert!(void(&steady(&out, &[], &[])));
        assert!(matches!(
            steady(&out, &out, &[]),
            Finding::NotChecked(text) if text.contains("out")
        ));
        assert!(matches!(steady(&[], &[], &[]), Finding::Passed(_)));
        let right = [("out".to_owned(), Ok(()))];
        assert!(matches!(steady(&out, &out, &right), Finding::Passed(_)));
        let wrong = Mismatch {
            output: "out".to_owned(),
            wrong: 1,
            checked: 1,
            case: "bench".to_owned(),
            first: Vec::new(),
            pattern: None,
        };
        assert!(void(&steady(&out, &out, &[("out".to_owned(), Err(wrong))])));
        assert!(void(&timed_memory(&["`x` was modified".to_owned()])));
        assert!(void(&device_floor(ns(90.0), Some(ns(100.0)))));
        assert!(!void(&device_floor(ns(99.0), Some(ns(100.0)))));
    }

    #[test]
    fn calls_that_remember_are_slower_on_what_they_never_saw() {
        assert!(void(&forgetful(ns(100.0), Some(ns(130.0)))));
        assert!(!void(&forgetful(ns(100.0), Some(ns(110.0)))));
        assert!(!void(&forgetful(ns(100.0), Some(ns(90.0)))));
        assert!(matches!(forgetful(ns(100.0), None), Finding::NotChecked(_)));
    }
}
