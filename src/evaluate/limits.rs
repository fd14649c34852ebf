//! Whether launches fit a GPU at all: threads, shared memory, registers, clusters, grids. Checked before
//! anything runs, because a driver says only "invalid value". Pure arithmetic over facts.

use crate::device::Gpu;
use crate::ptx::ir::{Directive, Function, FunctionKind, Item, Module};
use crate::source::{Launch, LaunchPlan};
use crate::units::Bytes;
use crate::verdict::Resources;

/// Threads of a block on every architecture so far.
const THREADS_PER_BLOCK: u64 = 1024;
/// Threads of a block in z.
const BLOCK_Z: u32 = 64;
/// Blocks of a grid in x; y and z hold fewer.
const GRID_X: u64 = (1 << 31) - 1;
/// Blocks of a grid in y and in z.
const GRID_YZ: u32 = 65_535;
/// Blocks of a cluster, the non-portable size included.
const CLUSTER: u64 = 16;
/// First architecture with clusters.
const CLUSTER_ARCH: u16 = 90;
/// Registers are given to a warp in steps of this many per thread.
const REGISTER_STEP: u64 = 8;
/// Warps are given registers in steps of this many (one per scheduler).
const WARP_STEP: u64 = 4;

/// The first limit that a launch of `plan` exceeds, with what is wanted and what is allowed; `None` when
/// all fit. `resources` is what ptxas said.
pub fn exceeded(
    plan: &LaunchPlan,
    module: &Module,
    resources: &[Resources],
    gpu: &Gpu,
) -> Option<String> {
    plan.launches.iter().find_map(|launch| {
        let used = resources.iter().find(|r| r.entry == launch.entry);
        let limit = shape(launch)
            .or_else(|| clusters(launch, module, gpu))
            .or_else(|| declared_threads(launch, module))
            .or_else(|| used.and_then(|used| shared_memory(launch, used, gpu)))
            .or_else(|| used.and_then(|used| registers(launch, used, gpu)))?;
        Some(format!("launch of `{}`: {limit}", launch.entry))
    })
}

/// The entry of this name.
pub fn entry<'a>(module: &'a Module, name: &str) -> Option<&'a Function> {
    module.items.iter().find_map(|item| match item {
        Item::Function(function)
            if function.kind == FunctionKind::Entry && function.name == name =>
        {
            Some(function)
        }
        Item::Function(_) | Item::Directive(_) | Item::Variable(_) => None,
    })
}

fn shape(launch: &Launch) -> Option<String> {
    let [bx, by, bz] = launch.block;
    let [gx, gy, gz] = launch.grid;
    if launch.block.contains(&0) || launch.grid.contains(&0) {
        return Some(format!(
            "a grid of {gx}×{gy}×{gz} blocks of {bx}×{by}×{bz} threads has an empty dimension"
        ));
    }
    let threads = volume(launch.block);
    if threads > THREADS_PER_BLOCK {
        return Some(format!(
            "{threads} threads a block, allowed are {THREADS_PER_BLOCK}"
        ));
    }
    if bz > BLOCK_Z {
        return Some(format!("{bz} threads in z, allowed are {BLOCK_Z}"));
    }
    if u64::from(gx) > GRID_X {
        return Some(format!("{gx} blocks in x, allowed are {GRID_X}"));
    }
    let most = gy.max(gz);
    (most > GRID_YZ).then(|| {
        format!("{most} blocks in y or z, allowed are {GRID_YZ}; put the long dimension in x")
    })
}

fn clusters(launch: &Launch, module: &Module, gpu: &Gpu) -> Option<String> {
    let [x, y, z] = launch.cluster;
    let declared = entry(module, &launch.entry)
        .and_then(|entry| directive(entry, ".reqnctapercluster"))
        .and_then(dimensions);
    if let Some(declared) = declared
        && declared != launch.cluster
    {
        return Some(format!(
            "a cluster of {x}×{y}×{z} blocks, but the entry declares `.reqnctapercluster {}, {}, {}`",
            declared[0], declared[1], declared[2]
        ));
    }
    let blocks = volume(launch.cluster);
    if blocks == 1 {
        return None;
    }
    if gpu.arch.number < CLUSTER_ARCH {
        return Some(format!(
            "clusters need sm_{CLUSTER_ARCH}, the GPU is {}",
            gpu.arch
        ));
    }
    if blocks == 0 || blocks > CLUSTER {
        return Some(format!(
            "{blocks} blocks a cluster, allowed are 1 to {CLUSTER}"
        ));
    }
    let divides =
        std::iter::zip(launch.grid, launch.cluster).all(|(grid, cluster)| grid % cluster == 0);
    (!divides).then(|| {
        let [gx, gy, gz] = launch.grid;
        format!("a cluster of {x}×{y}×{z} blocks does not divide the grid of {gx}×{gy}×{gz}")
    })
}

/// A driver refuses a block larger than `.maxntid` or other than `.reqntid`.
fn declared_threads(launch: &Launch, module: &Module) -> Option<String> {
    let entry = entry(module, &launch.entry)?;
    let [x, y, z] = launch.block;
    if let Some(most) = directive(entry, ".maxntid").and_then(dimensions)
        && volume(launch.block) > volume(most)
    {
        return Some(format!(
            "a block of {x}×{y}×{z} threads, but the entry declares `.maxntid {}, {}, {}`",
            most[0], most[1], most[2]
        ));
    }
    let exact = directive(entry, ".reqntid").and_then(dimensions)?;
    (exact != launch.block).then(|| {
        format!(
            "a block of {x}×{y}×{z} threads, but the entry declares `.reqntid {}, {}, {}`",
            exact[0], exact[1], exact[2]
        )
    })
}

fn shared_memory(launch: &Launch, used: &Resources, gpu: &Gpu) -> Option<String> {
    let wanted = Bytes(used.static_smem.0.saturating_add(launch.smem.0));
    (wanted > gpu.smem_per_block).then(|| {
        format!(
            "{} bytes of shared memory a block ({} static, {} dynamic), allowed are {}",
            wanted.0, used.static_smem.0, launch.smem.0, gpu.smem_per_block.0
        )
    })
}

fn registers(launch: &Launch, used: &Resources, gpu: &Gpu) -> Option<String> {
    let warps = volume(launch.block)
        .div_ceil(32)
        .next_multiple_of(WARP_STEP);
    let per_thread = u64::from(used.registers).next_multiple_of(REGISTER_STEP);
    let wanted = warps * 32 * per_thread;
    let allowed = u64::from(gpu.registers_per_sm);
    (wanted > allowed).then(|| {
        let fits = allowed / (warps * 32) / REGISTER_STEP * REGISTER_STEP;
        format!(
            "{} registers × {} threads take {wanted} registers, an SM has {allowed}; cap them (`.maxnreg {fits}`) \
             or use smaller blocks",
            used.registers,
            volume(launch.block)
        )
    })
}

fn volume(dimensions: [u32; 3]) -> u64 {
    dimensions.iter().map(|&d| u64::from(d)).product()
}

fn directive<'a>(function: &'a Function, name: &str) -> Option<&'a Directive> {
    function.directives.iter().find(|d| d.name == name)
}

/// `256`, `16, 16` or `8, 8, 4`; what is not written is 1.
fn dimensions(directive: &Directive) -> Option<[u32; 3]> {
    let mut out = [1; 3];
    let words = directive.arguments.split(',').map(str::trim);
    for (slot, word) in out.iter_mut().zip(words) {
        *slot = word.parse().ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx;

    fn launch() -> Launch {
        Launch {
            entry: "k".into(),
            grid: [12, 1, 1],
            block: [256, 1, 1],
            smem: Bytes(0),
            cluster: [1; 3],
            args: Vec::new(),
        }
    }

    fn check(launch: Launch, directives: &str, registers: u32, smem: u64) -> Option<String> {
        let text = format!(
            ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{directives}\n{{\n  ret;\n}}\n"
        );
        let module = ptx::parse(&text).expect("parses");
        let plan = LaunchPlan {
            launches: vec![launch],
            workspaces: Vec::new(),
            tensor_maps: Vec::new(),
        };
        let used = Resources {
            entry: "k".into(),
            registers,
            static_smem: Bytes(smem),
            ..Resources::default()
        };
        exceeded(&plan, &module, &[used], &Gpu::default())
    }

    #[test]
    fn each_limit_has_an_edge() {
        type Change = fn(&mut Launch);
        // (change, directives, registers, static shared memory, words of the message; none: it fits)
        let cases: &[(Change, &str, u32, u64, Option<&str>)] = &[
            (|_| {}, "", 32, 0, None),
            (|l| l.block = [1024, 1, 1], "", 64, 0, None),
            (|l| l.block = [1024, 1, 1], "", 65, 0, Some(".maxnreg 64")),
            (|l| l.block = [1025, 1, 1], "", 32, 0, Some("1025 threads")),
            (|l| l.block = [1, 1, 65], "", 32, 0, Some("in z")),
            (|l| l.grid = [1, 65_535, 1], "", 32, 0, None),
            (
                |l| l.grid = [1, 65_536, 1],
                "",
                32,
                0,
                Some("65536 blocks in y"),
            ),
            (|l| l.grid = [0, 1, 1], "", 32, 0, Some("empty dimension")),
            (|l| l.grid = [1 << 31, 1, 1], "", 32, 0, Some("in x")),
            (|l| l.smem = Bytes(232_448 - 48), "", 32, 48, None),
            (
                |l| l.smem = Bytes(232_448 - 47),
                "",
                32,
                48,
                Some("232449 bytes"),
            ),
            (|l| l.cluster = [4, 1, 1], "", 32, 0, None),
            (
                |l| l.cluster = [5, 1, 1],
                "",
                32,
                0,
                Some("does not divide"),
            ),
            (
                |l| l.cluster = [2, 1, 1],
                ".reqnctapercluster 4, 1, 1",
                32,
                0,
                Some("declares"),
            ),
            (|_| {}, ".maxntid 256, 1, 1", 32, 0, None),
            (|_| {}, ".maxntid 128, 2", 32, 0, None),
            (
                |_| {},
                ".maxntid 128, 1, 1",
                32,
                0,
                Some(".maxntid 128, 1, 1"),
            ),
            (
                |_| {},
                ".reqntid 128, 2, 1",
                32,
                0,
                Some(".reqntid 128, 2, 1"),
            ),
        ];
        for (at, (change, directives, registers, smem, expected)) in cases.iter().enumerate() {
            let mut launch = launch();
            change(&mut launch);
            let got = check(launch, directives, *registers, *smem);
            match expected {
                None => assert_eq!(got, None, "case {at}"),
                Some(words) => {
                    let got = got.unwrap_or_default();
                    assert!(got.contains(words), "case {at}: {got}");
                    assert!(got.contains("launch of `k`"), "case {at}: {got}");
                }
            }
        }
    }

    #[test]
    fn clusters_need_hopper() {
        let mut launch = launch();
        launch.cluster = [2, 1, 1];
        let module = ptx::parse(".version 8.0\n.target sm_80\n.address_size 64\n").expect("parses");
        let plan = LaunchPlan {
            launches: vec![launch],
            workspaces: Vec::new(),
            tensor_maps: Vec::new(),
        };
        let gpu = Gpu {
            arch: "sm_80".parse().expect("arch"),
            ..Gpu::default()
        };
        let said = exceeded(&plan, &module, &[], &gpu).unwrap_or_default();
        assert!(said.contains("sm_90"), "{said}");
    }
}
