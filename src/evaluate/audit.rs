//! The audit: what a correct kernel must still answer for. Each check is a pure function over numbers that
//! others measured or counted; it voids a score with a sentence, passes, or says that it could not be done.

mod floor;
mod targets;

pub use floor::{
    Bound, Floor, allowed_tensor_types, device_floor, estimated_work, floor, peak, time_floor,
};
pub use targets::{Target, TargetCounts, target_instructions, target_share};

use crate::ptx::{ModuleState, ModuleVariable};
use crate::task::Work;
use crate::units::{Bytes, Flops, Nanos};
use crate::verdict::Mismatch;

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

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn ns(value: f64) -> Nanos {
        Nanos::new(value).expect("positive")
    }

    pub(super) fn work(flops: f64, flops_min: f64, bytes: u64) -> Work {
        Work {
            flops: Flops(flops),
            flops_min: Flops(flops_min),
            bytes: Bytes(bytes),
        }
    }

    pub(super) fn units(list: &[(&str, f64)]) -> Vec<(String, Flops)> {
        list.iter()
            .map(|(unit, n)| ((*unit).to_owned(), Flops(*n)))
            .collect()
    }

    pub(super) fn void(finding: &Finding) -> bool {
        matches!(finding, Finding::Void(_))
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
