//! Which counters are asked of ncu, by role and architecture: `metrics.toml`, embedded. It runs nothing.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::units::SmArch;

/// Embedded at build time.
const TABLE: &str = include_str!("metrics.toml");

/// The counters of one architecture.
#[derive(Clone, Debug)]
pub struct MetricSet {
    /// On every chip.
    pub common: Common,
    /// Shares of a unit's peak, by the unit's name.
    pub units: BTreeMap<String, String>,
    /// Warp-cycles by stall reason.
    pub stalls: Vec<(String, String)>,
    /// Facts of the launch.
    pub launch: LaunchFacts,
    /// Executions by opcode.
    pub opcodes: String,
    /// Values by address.
    pub lines: Lines,
    /// What this chip names its own way.
    pub chip: Chip,
}

/// Counters of every chip, as [`MetricSet`] says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Common {
    pub time: String,
    pub cycles_active: String,
    pub cycles_elapsed: String,
    pub issue: String,
    pub warps: String,
    pub dram: String,
    pub l2: String,
    pub l1: String,
    pub l2_hits: String,
    pub l2_misses: String,
    pub global_load_requests: String,
    pub global_load_sectors: String,
    pub global_load_hits: String,
    pub global_store_requests: String,
    pub global_store_sectors: String,
    pub atomic_requests: String,
    pub reduction_requests: String,
    pub local_load_sectors: String,
    pub local_store_sectors: String,
    pub shared_load_wavefronts: String,
    pub shared_load_conflicts: String,
    pub shared_store_wavefronts: String,
    pub shared_store_conflicts: String,
    pub shared: String,
    pub operations: Operations,
    units: BTreeMap<String, String>,
}

/// Thread-level arithmetic.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operations {
    pub fp32_add: String,
    pub fp32_mul: String,
    pub fp32_fma: String,
    pub fp16_add: String,
    pub fp16_mul: String,
    pub fp16_fma: String,
    pub fp64_add: String,
    pub fp64_mul: String,
    pub fp64_fma: String,
}

/// Facts of a launch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchFacts {
    /// Grid over what the GPU holds at once.
    pub waves: String,
    /// Blocks an SM holds by the hardware's limit on blocks.
    pub limit_blocks: String,
    /// By registers.
    pub limit_registers: String,
    /// By shared memory.
    pub limit_shared: String,
    /// By warps.
    pub limit_warps: String,
}

/// Values by address of the machine code.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lines {
    /// Executions of each instruction; its lowest address is the entry's.
    pub executed: String,
    /// Shared-memory wavefronts.
    pub shared: String,
    /// The same without conflicts.
    pub shared_ideal: String,
    /// Sectors of global accesses.
    pub global: String,
    /// The same if lanes touched neighbouring bytes.
    pub global_ideal: String,
    stalled: String,
    reasons: Vec<String>,
}

impl Lines {
    /// Samples of warps that wait for `reason`; `None` where that is not asked.
    pub fn stalled(&self, reason: &str) -> Option<String> {
        let known = self.reasons.iter().any(|known| known == reason);
        known.then(|| self.stalled.replace("{}", reason))
    }
}

/// What a chip names its own way.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chip {
    /// As NVIDIA's tables name it: `GH100`.
    pub name: String,
    sm: Vec<u16>,
    /// Bytes read from device memory.
    pub dram_read: String,
    /// Bytes written.
    pub dram_write: String,
    stalls: Vec<String>,
    /// fp32 instructions with two results a thread: addition, multiplication, fused.
    #[serde(default)]
    pub paired: Vec<String>,
    #[serde(default)]
    units: BTreeMap<String, String>,
    /// Tensor-core operations by input type.
    pub tensor: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    common: Common,
    stalls: Stalls,
    launch: LaunchFacts,
    opcodes: Opcodes,
    lines: Lines,
    chip: Vec<Chip>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stalls {
    metric: String,
    reasons: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Opcodes {
    executed: String,
}

impl MetricSet {
    /// Those of an architecture; `None` for one that is not in the table.
    pub fn of(arch: SmArch) -> Option<Self> {
        Self::all()
            .into_iter()
            .find(|set| set.chip.sm.contains(&arch.number))
    }

    /// One for each chip of the table.
    pub fn all() -> Vec<Self> {
        let table: Table = toml::from_str(TABLE)
            .expect("invariant: the embedded table of metrics parses, a test says so");
        let chips = table.chip.into_iter().map(|chip| {
            let mut units = table.common.units.clone();
            units.extend(chip.units.clone());
            let reasons = table.stalls.reasons.iter().chain(&chip.stalls);
            Self {
                common: table.common.clone(),
                units,
                stalls: reasons
                    .map(|reason| (reason.clone(), table.stalls.metric.replace("{}", reason)))
                    .collect(),
                launch: table.launch.clone(),
                opcodes: table.opcodes.executed.clone(),
                lines: table.lines.clone(),
                chip,
            }
        });
        chips.collect()
    }

    /// Counters that NVIDIA's tables list for the chip.
    pub fn hardware(&self) -> Vec<&str> {
        let common = &self.common;
        let operations = &common.operations;
        let mut names: Vec<&str> = vec![
            &common.time,
            &common.cycles_active,
            &common.cycles_elapsed,
            &common.issue,
            &common.warps,
            &common.dram,
            &common.l2,
            &common.l1,
            &common.l2_hits,
            &common.l2_misses,
            &common.global_load_requests,
            &common.global_load_sectors,
            &common.global_load_hits,
            &common.global_store_requests,
            &common.global_store_sectors,
            &common.atomic_requests,
            &common.reduction_requests,
            &common.local_load_sectors,
            &common.local_store_sectors,
            &common.shared_load_wavefronts,
            &common.shared_load_conflicts,
            &common.shared_store_wavefronts,
            &common.shared_store_conflicts,
            &common.shared,
            &operations.fp32_add,
            &operations.fp32_mul,
            &operations.fp32_fma,
            &operations.fp16_add,
            &operations.fp16_mul,
            &operations.fp16_fma,
            &operations.fp64_add,
            &operations.fp64_mul,
            &operations.fp64_fma,
            &self.chip.dram_read,
            &self.chip.dram_write,
        ];
        names.extend(self.units.values().map(String::as_str));
        names.extend(self.stalls.iter().map(|(_, name)| name.as_str()));
        names.extend(self.chip.paired.iter().map(String::as_str));
        names.extend(self.chip.tensor.values().flatten().map(String::as_str));
        names
    }

    /// What Nsight Compute adds of its own, for every launch.
    pub fn derived(&self) -> Vec<&str> {
        vec![
            &self.launch.waves,
            &self.launch.limit_blocks,
            &self.launch.limit_registers,
            &self.launch.limit_shared,
            &self.launch.limit_warps,
            &self.opcodes,
        ]
    }

    /// Values by address.
    pub fn by_address(&self) -> Vec<String> {
        let lines = &self.lines;
        let mut names = vec![
            lines.executed.clone(),
            lines.shared.clone(),
            lines.shared_ideal.clone(),
            lines.global.clone(),
            lines.global_ideal.clone(),
        ];
        names.extend(
            lines
                .reasons
                .iter()
                .filter_map(|reason| lines.stalled(reason)),
        );
        names
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_table_parses_and_names_nothing_twice() {
        for set in MetricSet::all() {
            let mut names: Vec<String> = set.hardware().into_iter().map(str::to_owned).collect();
            names.extend(set.derived().into_iter().map(str::to_owned));
            names.extend(set.by_address());
            let distinct: BTreeSet<&String> = names.iter().collect();
            assert_eq!(distinct.len(), names.len(), "{}", set.chip.name);
        }
    }

    #[test]
    fn every_supported_architecture_has_its_chip() {
        for (arch, chip) in [
            ("sm_80", "GA100"),
            ("sm_86", "GA102"),
            ("sm_89", "AD102"),
            ("sm_90a", "GH100"),
            ("sm_100a", "GB100"),
            ("sm_120a", "GB202"),
        ] {
            let set = MetricSet::of(arch.parse().expect("arch")).expect(arch);
            assert_eq!(set.chip.name, chip);
        }
        assert!(MetricSet::of("sm_75".parse().expect("arch")).is_none());
    }
}
