//! How long spaces take to build, count and walk, and what a search's questions to them cost.
//! `cargo bench --bench spaces`

use std::time::Instant;

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use warptree::expr::Expr;
use warptree::source::{Knob, KnobValue, Space};

fn main() {
    let gemm = [
        "KWG % KWI == 0",
        "MWG % (MDIMC * VWM) == 0",
        "NWG % (NDIMC * VWN) == 0",
        "MWG % (MDIMA * VWM) == 0",
        "NWG % (NDIMB * VWN) == 0",
        "KWG % ((MDIMC * NDIMC) / MDIMA) == 0",
        "KWG % ((MDIMC * NDIMC) / NDIMB) == 0",
    ];
    let mut parent = gemm.to_vec();
    parent.push("not (MWG == 128 and NWG == 128 and MDIMC == 8 and NDIMC == 8)");
    report("gemm, 82,944 combinations", knobs(false), &gemm);
    report("gemm, 663,552 combinations", knobs(true), &parent);
    // A smaller gemm's knobs, then switches that constrain nothing: from 10⁵ points to 10⁷ and more, in
    // memory that does not grow with them.
    for count in [3, 6, 10] {
        let mut wide = knobs(false);
        wide.extend((0..count).map(|index| knob(&format!("SWITCH{index}"), &[0, 1])));
        report(&format!("gemm and {count} switches"), wide, &gemm);
    }
}

fn report(name: &str, knobs: Vec<Knob>, requires: &[&str]) {
    let conditions = requires
        .iter()
        .map(|text| Expr::new(text).expect("invariant: the benchmark's own text"))
        .collect();
    let before = resident();
    let start = Instant::now();
    let space = Space::new(knobs, conditions).expect("invariant: the benchmark's own space");
    let built = start.elapsed();
    let len = space.len();
    let start = Instant::now();
    let walked = space.iter().count();
    let walk = start.elapsed();
    let grown = resident().saturating_sub(before);
    println!(
        "{name}: {len} valid; built and counted in {built:.2?}, {walked} walked in {walk:.2?}, \
         {grown} KiB more resident"
    );

    let mut rng = Pcg64Mcg::seed_from_u64(0);
    let draws = 20_000u32;
    let start = Instant::now();
    let points: Vec<_> = (0..draws).map(|_| space.sample(&mut rng)).collect();
    let sampled = start.elapsed() / draws;
    let start = Instant::now();
    let valid = points.iter().filter(|point| space.is_valid(point)).count();
    let checked = start.elapsed() / draws;
    assert_eq!(valid, points.len());
    let start = Instant::now();
    let neighbours: usize = points[..2000]
        .iter()
        .map(|p| space.neighbours(p).len())
        .sum();
    let near = start.elapsed() / 2000;
    println!(
        "    sample {sampled:.0?}, is_valid {checked:.0?}, neighbours {near:.2?} ({:.1} each)",
        neighbours as f64 / 2000.0
    );
}

fn knobs(parent: bool) -> Vec<Knob> {
    let sizes = [16, 32, 64, 128];
    let threads = [8, 16, 32];
    let vectors = [1, 2, 4, 8];
    let either: &[i64] = if parent { &[0, 1] } else { &[0] };
    vec![
        knob("KWG", if parent { &[16, 32] } else { &[32] }),
        knob("KWI", &[2]),
        knob("MDIMA", &threads),
        knob("MDIMC", &threads),
        knob("MWG", &sizes),
        knob("NDIMB", &threads),
        knob("NDIMC", &threads),
        knob("NWG", &sizes),
        knob("SA", &[0, 1]),
        knob("SB", &[0, 1]),
        knob("STRM", either),
        knob("STRN", either),
        knob("VWM", &vectors),
        knob("VWN", &vectors),
    ]
}

fn knob(name: &str, values: &[i64]) -> Knob {
    Knob {
        name: name.to_owned(),
        values: values.iter().copied().map(KnobValue::Int).collect(),
        default: 0,
    }
}

/// Resident memory in KiB, 0 where the system does not tell.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").trim().parse().ok())
        .unwrap_or(0)
}
