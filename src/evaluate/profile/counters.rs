//! A profile: typed numbers of each launch of one call, taken from ncu's rows by role. A number that was
//! asked and is not there makes it no profile. It interprets nothing.

use super::line_map::LineMap;
use super::metrics::MetricSet;
use super::ncu_output::Row;
use crate::units::{Bytes, Flops};

/// A warp's threads: opcodes are counted by warp, operations by thread.
const WARP: f64 = 32.0;

/// Warps that execute one `wgmma`.
const WARPGROUP: f64 = 4.0;

/// One call, profiled.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// `ncu 2025.3.1`.
    pub tool: String,
    /// In the order they ran; never empty.
    pub launches: Vec<Launch>,
    /// What could not be had though the rest could, in words.
    pub missing: Vec<String>,
}

/// One launch. Shares are 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The entry launched.
    pub entry: String,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads in x, y, z.
    pub block: [u32; 3],
    /// Duration under the profiler, nanoseconds: no time to rank by.
    pub time_ns: f64,
    /// Cycles an SM was busy, of those the launch took.
    pub busy: f64,
    /// Cycles with an instruction issued.
    pub issue: f64,
    /// Warps resident, of the most an SM holds.
    pub warps: f64,
    /// Device memory, of its peak.
    pub dram: f64,
    /// L2, of its peak.
    pub l2: f64,
    /// L1, of its peak.
    pub l1: f64,
    /// Shared memory, of its peak.
    pub shared: f64,
    /// Bytes.
    pub dram_read: f64,
    /// Bytes.
    pub dram_write: f64,
    /// Sectors.
    pub l2_hits: f64,
    /// Sectors.
    pub l2_misses: f64,
    /// Loads of global memory.
    pub global_loads: Global,
    /// Stores to global memory.
    pub global_stores: Global,
    /// Requests of warps for atomics on global memory.
    pub atomics: f64,
    /// Sectors of local memory: spills and indexed arrays.
    pub local_sectors: f64,
    /// Loads of shared memory.
    pub shared_loads: Shared,
    /// Stores to shared memory.
    pub shared_stores: Shared,
    /// Grid over what the GPU holds at once.
    pub waves: f64,
    /// Blocks an SM holds.
    pub limits: Limits,
    /// Of its peak, by unit.
    pub units: Vec<(String, f64)>,
    /// Warp-cycles by reason.
    pub stalls: Vec<(String, f64)>,
    /// By unit: `fp32`, `tensor bf16`.
    pub flops: Vec<(String, Flops)>,
    /// Warp-level executions.
    pub opcodes: Vec<(String, f64)>,
    /// By line of the rendering; empty where it is not known.
    pub hot: Hot,
}

/// Global accesses of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Global {
    /// Of warps.
    pub requests: f64,
    /// Of 32 bytes.
    pub sectors: f64,
    /// Sectors found in L1.
    pub hits: f64,
}

/// Shared-memory accesses of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shared {
    /// Passes through the banks.
    pub wavefronts: f64,
    /// Of these, beyond what the widths need.
    pub conflicts: f64,
}

/// Blocks an SM can hold, by what limits them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// By the hardware.
    pub blocks: f64,
    /// By registers.
    pub registers: f64,
    /// By shared memory.
    pub shared: f64,
    /// By warps.
    pub warps: f64,
}

impl Limits {
    /// The smallest, and what it is.
    pub fn tightest(&self) -> (f64, &'static str) {
        let all = [
            (self.registers, "registers"),
            (self.shared, "shared memory"),
            (self.warps, "threads"),
            (self.blocks, "blocks"),
        ];
        all.into_iter()
            .fold((f64::INFINITY, "blocks"), |least, next| {
                if next.0 < least.0 { next } else { least }
            })
    }
}

/// Where it happens: the line of the rendering with most of it, and that line's share of the whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hot {
    /// Wavefronts beyond the ideal.
    pub conflicts: Option<Place>,
    /// Sectors beyond the ideal.
    pub scattered: Option<Place>,
    /// Stall samples by reason.
    pub stalls: Vec<(String, Place)>,
}

/// A line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// Of the rendering, from 1.
    pub line: u32,
    /// Of the whole launch, 0 to 1.
    pub share: f64,
    /// What happened there over what would be ideal; 1 for stalls.
    pub ratio: f64,
}

impl Launch {
    /// From ncu's row. The error names the metric that is not there.
    pub fn read(row: &Row, set: &MetricSet, lines: Option<&LineMap>) -> Result<Self, String> {
        let get = |metric: &str| {
            row.value(metric)
                .ok_or_else(|| format!("ncu gave no value for {metric}"))
        };
        let share = |metric: &str| get(metric).map(|percent| percent / 100.0);
        let names = &set.common;
        let opcodes = row.instances(&set.opcodes).to_vec();
        if opcodes.is_empty() {
            return Err(format!("ncu gave no parts of {}", set.opcodes));
        }
        let each = |list: &[(String, String)]| -> Result<Vec<(String, f64)>, String> {
            list.iter()
                .map(|(name, metric)| Ok((name.clone(), get(metric)?)))
                .collect()
        };
        let units = set
            .units
            .iter()
            .map(|(unit, metric)| Ok((unit.clone(), share(metric)?)))
            .collect::<Result<_, String>>()?;
        Ok(Self {
            entry: row.kernel.clone(),
            grid: row.grid.ok_or("ncu gave no grid size")?,
            block: row.block.ok_or("ncu gave no block size")?,
            time_ns: get(&names.time)?,
            busy: get(&names.cycles_active)? / get(&names.cycles_elapsed)?.max(1.0),
            issue: share(&names.issue)?,
            warps: share(&names.warps)?,
            dram: share(&names.dram)?,
            l2: share(&names.l2)?,
            l1: share(&names.l1)?,
            shared: share(&names.shared)?,
            dram_read: get(&set.chip.dram_read)?,
            dram_write: get(&set.chip.dram_write)?,
            l2_hits: get(&names.l2_hits)?,
            l2_misses: get(&names.l2_misses)?,
            global_loads: Global {
                requests: get(&names.global_load_requests)?,
                sectors: get(&names.global_load_sectors)?,
                hits: get(&names.global_load_hits)?,
            },
            global_stores: Global {
                requests: get(&names.global_store_requests)?,
                sectors: get(&names.global_store_sectors)?,
                hits: 0.0,
            },
            atomics: get(&names.atomic_requests)? + get(&names.reduction_requests)?,
            local_sectors: get(&names.local_load_sectors)? + get(&names.local_store_sectors)?,
            shared_loads: Shared {
                wavefronts: get(&names.shared_load_wavefronts)?,
                conflicts: get(&names.shared_load_conflicts)?,
            },
            shared_stores: Shared {
                wavefronts: get(&names.shared_store_wavefronts)?,
                conflicts: get(&names.shared_store_conflicts)?,
            },
            waves: get(&set.launch.waves)?,
            limits: Limits {
                blocks: get(&set.launch.limit_blocks)?,
                registers: get(&set.launch.limit_registers)?,
                shared: get(&set.launch.limit_shared)?,
                warps: get(&set.launch.limit_warps)?,
            },
            units,
            stalls: each(&set.stalls)?,
            flops: flops(&get, set, &opcodes)?,
            opcodes,
            hot: lines.map_or_else(Hot::default, |map| hot(row, set, map)),
        })
    }

    /// Blocks of the grid.
    pub fn blocks(&self) -> u64 {
        self.grid.iter().map(|&n| u64::from(n)).product()
    }

    /// Warps of a block.
    pub fn warps_per_block(&self) -> u64 {
        let threads: u64 = self.block.iter().map(|&n| u64::from(n)).product();
        threads.div_ceil(32)
    }
}

impl Profile {
    /// The launch that takes longest.
    pub fn longest(&self) -> &Launch {
        self.launches
            .iter()
            .max_by(|a, b| a.time_ns.total_cmp(&b.time_ns))
            .expect("invariant: a profile has launches")
    }

    /// A sum over all launches.
    pub fn sum(&self, of: impl Fn(&Launch) -> f64) -> f64 {
        // an empty sum is -0.0
        self.launches.iter().map(of).sum::<f64>() + 0.0
    }

    /// Read from device memory.
    pub fn dram_read(&self) -> Bytes {
        Bytes(self.sum(|launch| launch.dram_read) as u64)
    }

    /// Floating-point operations over all launches, by unit.
    pub fn flops(&self) -> Vec<(String, Flops)> {
        let mut all: Vec<(String, Flops)> = Vec::new();
        for (unit, flops) in self.launches.iter().flat_map(|launch| &launch.flops) {
            match all.iter_mut().find(|(known, _)| known == unit) {
                Some((_, sum)) => sum.0 += flops.0,
                None => all.push((unit.clone(), *flops)),
            }
        }
        all.retain(|(_, flops)| flops.0 > 0.0);
        all
    }

    /// How often a PTX instruction was executed, by mnemonic prefix; `None` where machine code does not
    /// tell.
    pub fn executed(&self, mnemonic: &str) -> Option<u64> {
        let (opcodes, warps) = machine_code(mnemonic)?;
        let count = self.sum(|launch| count(&launch.opcodes, opcodes));
        Some((count / warps) as u64)
    }
}

/// The opcodes that ptxas makes of a PTX instruction, one each, and the warps that execute it together.
fn machine_code(mnemonic: &str) -> Option<(&'static [&'static str], f64)> {
    // `mma.sync.aligned.m16n8k16` and `mma` alike; `cp.async` itself has all three forms
    let is = |prefix: &str| {
        mnemonic
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    Some(if is("wgmma.mma_async") {
        (&["HGMMA", "IGMMA", "QGMMA", "BGMMA"], WARPGROUP)
    } else if is("tcgen05.mma") {
        (
            &["UTCHMMA", "UTCIMMA", "UTCQMMA", "UTCOMMA", "UTCMXQMMA"],
            1.0,
        )
    } else if mnemonic == "mma" || mnemonic == "mma.sync" || is("mma.sync.aligned") {
        (&["HMMA", "IMMA", "DMMA", "QMMA", "BMMA", "OMMA"], 1.0)
    } else if is("ldmatrix") {
        (&["LDSM"], 1.0)
    } else if is("stmatrix") {
        (&["STSM"], 1.0)
    } else if is("cp.async.bulk.tensor") || is("cp.reduce.async.bulk.tensor") {
        (&["UTMALDG", "UTMASTG", "UTMAREDG"], 1.0)
    } else if mnemonic == "cp.async.bulk" {
        (
            &["UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP", "UBLKRED"],
            1.0,
        )
    } else if is("cp.async.ca") || is("cp.async.cg") || mnemonic == "cp.async" {
        (&["LDGSTS"], 1.0)
    } else {
        return None;
    })
}

/// ncu may tell opcodes with modifiers: `HMMA.16816.F32`.
fn count(opcodes: &[(String, f64)], wanted: &[&str]) -> f64 {
    opcodes
        .iter()
        .filter(|(opcode, _)| wanted.contains(&opcode.split('.').next().unwrap_or(opcode)))
        .map(|(_, count)| count)
        .sum::<f64>()
        + 0.0
}

/// Operations by unit. Where counters do not tell exactly, the most that it can be: a kernel is voided for
/// too few.
fn flops(
    get: &dyn Fn(&str) -> Result<f64, String>,
    set: &MetricSet,
    opcodes: &[(String, f64)],
) -> Result<Vec<(String, Flops)>, String> {
    let names = &set.common.operations;
    let scalar = |add, mul, fma| Ok::<f64, String>(get(add)? + get(mul)? + 2.0 * get(fma)?);
    let mut fp32 = scalar(&names.fp32_add, &names.fp32_mul, &names.fp32_fma)?;
    for (metric, each) in set.chip.paired.iter().zip([2.0, 2.0, 4.0]) {
        fp32 += each * get(metric)?;
    }
    // two 16-bit numbers a register
    let fp16 = 2.0 * scalar(&names.fp16_add, &names.fp16_mul, &names.fp16_fma)?;
    let fp64 = scalar(&names.fp64_add, &names.fp64_mul, &names.fp64_fma)?;
    let by_warp = |wanted: &[&str]| WARP * count(opcodes, wanted);
    let mut all = vec![
        ("fp32".to_owned(), fp32),
        ("fp16".to_owned(), fp16),
        ("fp64".to_owned(), fp64),
        ("special functions".to_owned(), by_warp(&["MUFU"])),
        (
            "atomics".to_owned(),
            by_warp(&["RED", "REDG", "ATOM", "ATOMG", "ATOMS", "REDAS"]),
        ),
    ];
    for (ty, metrics) in &set.chip.tensor {
        let mut sum = 0.0;
        for metric in metrics {
            sum += get(metric)?;
        }
        all.push((format!("tensor {ty}"), sum));
    }
    Ok(all.into_iter().map(|(unit, n)| (unit, Flops(n))).collect())
}

/// The worst lines. An address that the map does not know is left out; where most are unknown, so is all.
fn hot(row: &Row, set: &MetricSet, map: &LineMap) -> Hot {
    let lines = &set.lines;
    let address = |key: &str| match key.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => key.parse().ok(),
    };
    let first = row
        .instances(&lines.executed)
        .iter()
        .filter_map(|(key, _)| address(key));
    let Some(start) = first.min() else {
        return Hot::default();
    };
    let by_line = |metric: &str| -> Vec<(u32, f64)> {
        let mut sums: Vec<(u32, f64)> = Vec::new();
        for (key, value) in row.instances(metric) {
            let offset = address(key).and_then(|at| at.checked_sub(start));
            let Some(line) = offset.and_then(|offset| map.line(&row.kernel, offset)) else {
                continue;
            };
            match sums.iter_mut().find(|(known, _)| *known == line) {
                Some((_, sum)) => *sum += value,
                None => sums.push((line, *value)),
            }
        }
        sums
    };
    let excess = |metric: &str, ideal: &str| -> Option<Place> {
        let actual = by_line(metric);
        let ideal = by_line(ideal);
        let of = |line: u32| {
            ideal
                .iter()
                .find(|(l, _)| *l == line)
                .map_or(0.0, |(_, n)| *n)
        };
        let total: f64 = actual
            .iter()
            .map(|(line, n)| (n - of(*line)).max(0.0))
            .sum();
        let (line, n) = actual
            .iter()
            .max_by(|a, b| (a.1 - of(a.0)).total_cmp(&(b.1 - of(b.0))))?;
        let beyond = n - of(*line);
        (beyond > 0.0).then(|| Place {
            line: *line,
            share: beyond / total,
            ratio: n / of(*line).max(1.0),
        })
    };
    let stalls = set.stalls.iter().filter_map(|(reason, _)| {
        let samples = by_line(&lines.stalled(reason)?);
        let total: f64 = samples.iter().map(|(_, n)| n).sum();
        let (line, most) = samples.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        (*most > 0.0).then(|| {
            let place = Place {
                line: *line,
                share: most / total,
                ratio: 1.0,
            };
            (reason.clone(), place)
        })
    });
    Hot {
        conflicts: excess(&lines.shared, &lines.shared_ideal),
        scattered: excess(&lines.global, &lines.global_ideal),
        stalls: stalls.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mnemonic_is_counted_by_its_opcodes() {
        let launch = |opcodes: &[(&str, f64)]| {
            opcodes
                .iter()
                .map(|(name, n)| ((*name).to_owned(), *n))
                .collect::<Vec<_>>()
        };
        let opcodes = launch(&[
            ("HGMMA.64x256x16.F32.BF16", 400.0),
            ("HMMA", 7.0),
            ("LDSM", 5.0),
        ]);
        let executed = |mnemonic: &str| {
            let (wanted, warps) = machine_code(mnemonic)?;
            Some(count(&opcodes, wanted) / warps)
        };
        assert_eq!(executed("wgmma.mma_async"), Some(100.0));
        assert_eq!(executed("mma.sync.aligned.m16n8k16"), Some(7.0));
        assert_eq!(executed("mma"), Some(7.0));
        assert_eq!(executed("ldmatrix"), Some(5.0));
        assert_eq!(executed("cp.async.bulk.tensor"), Some(0.0));
        assert_eq!(executed("fma.rn.f32"), None);
        assert_eq!(executed("mma.sync2"), None);
    }
}
