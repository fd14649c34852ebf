//! Target instructions: whether they did the work that the task wants done by them.

use super::Finding;
use crate::verdict::TargetShare;

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
}
