//! What a profile is told to mean: counters planted, and captured on an H200.

use std::fs;
use std::path::Path;

use warptree::evaluate::profile::diagnose;
use warptree::verdict::{Bottleneck, Diagnosis};

use super::profile::{ENDED, Stub, captured, h200, lines_of, log, transpose, with};

fn diagnosis(given: &[(&str, &str)]) -> Diagnosis {
    let stub = Stub::new();
    let profiler = stub.profiler(&[(log(&[given]), ENDED, 0)]);
    let mut profiles = stub.profile(&profiler, &[1], &h200());
    diagnose(&profiles.remove(0).unwrap(), &h200(), &["wgmma.mma_async"])
}

/// What is told of kernels with a planted mistake: from the counters of a real run, at the line of the
/// mistake.
#[test]
fn captured_counters_name_the_mistake_and_its_line() {
    let cases = [
        (
            "bank-conflicts",
            transpose([256, 512, 1], [32, 32, 1]),
            Bottleneck::SharedMemory,
            "shared loads conflict 32-way; 100 % of it here",
            "short_scoreboard",
        ),
        (
            "uncoalesced",
            transpose([256, 2048, 1], [32, 8, 1]),
            Bottleneck::Uncoalesced,
            "global accesses touch 4.0 sectors per load, 32.0 per store: 8.0× what they need; 100 % of it here",
            "drain",
        ),
    ];
    for (name, plan, bottleneck, words, stall) in cases {
        let stub = Stub::new();
        let profiler = stub.profiler(&[(captured(name), ENDED, 0)]);
        let map = lines_of(name);
        let profile = stub
            .profile_plans(&profiler, &[plan], &h200(), Some(&map))
            .remove(0)
            .unwrap();
        assert_eq!(profile.missing, [""; 0]);
        let found = diagnose(&profile, &h200(), &[]);
        assert_eq!(found.bottleneck, bottleneck, "{found:?}");
        assert_eq!(found.stalls[0].reason, stall);
        let told = found.evidence.iter().find(|e| e.text == words);
        let told = told.unwrap_or_else(|| panic!("{words} missing in {:?}", found.evidence));
        let source = format!("tasks/transpose/mistakes/{}.ptx", name.replace('-', "_"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        let source = fs::read_to_string(source).unwrap();
        let after = source.lines().nth(told.line.unwrap() as usize).unwrap();
        assert!(after.contains("//! ^ here"), "line {:?}", told.line);
        // with cold caches all of the input comes from device memory, and little beside it
        let read = profile.dram_read().0 as f64 / (512.0 * 1024.0 * 1024.0);
        assert!((1.0..1.1).contains(&read), "{read}");
        assert_eq!(profile.flops(), []);
        let occupancy = found.occupancy.unwrap();
        assert_eq!(
            (occupancy.warps, occupancy.limiter.as_str()),
            (64, "threads")
        );
    }
}

#[test]
fn shared_conflicts_are_told_with_their_stall_and_what_helps() {
    let given = with(&[
        ("smsp__warps_issue_stalled_mio_throttle.sum", "67"),
        ("smsp__warps_issue_stalled_selected.sum", "17"),
        (
            "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
            "8,000",
        ),
        (
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
            "7,000",
        ),
        ("smsp__issue_active.avg.pct_of_peak_sustained_active", "20"),
    ]);
    let diagnosis = diagnosis(&given);
    assert_eq!(diagnosis.bottleneck, Bottleneck::SharedMemory);
    assert_eq!(diagnosis.source, "ncu 2025.3.1.0");
    assert_eq!(diagnosis.stalls[0].reason, "mio_throttle");
    let told: Vec<&str> = diagnosis.evidence.iter().map(|e| e.text.as_str()).collect();
    let all = told.join("\n");
    assert!(all.contains("% of stalls: MIO throttle"), "{all}");
    assert!(all.contains("shared loads conflict 8-way"), "{all}");
    let occupancy = diagnosis.occupancy.unwrap();
    assert_eq!((occupancy.warps, occupancy.of), (32, 64));
    assert_eq!(occupancy.limiter, "registers");
    assert_eq!(
        diagnosis.target_instructions,
        [("wgmma.mma_async".to_owned(), 0)]
    );
}

#[test]
fn each_bottleneck_is_told_by_its_numbers() {
    type Case = (&'static [(&'static str, &'static str)], Bottleneck);
    let cases: &[Case] = &[
        (
            &[("dram__throughput.avg.pct_of_peak_sustained_elapsed", "91.5")],
            Bottleneck::MemoryBandwidth,
        ),
        (
            &[("smsp__warps_issue_stalled_long_scoreboard.sum", "80")],
            Bottleneck::MemoryLatency,
        ),
        (
            &[("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "32,000")],
            Bottleneck::Uncoalesced,
        ),
        (
            &[("smsp__issue_active.avg.pct_of_peak_sustained_active", "93")],
            Bottleneck::Issue,
        ),
        (
            &[(
                "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
                "88",
            )],
            Bottleneck::Compute,
        ),
        (
            &[(
                "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
                "95",
            )],
            Bottleneck::Tensor,
        ),
        (
            &[("smsp__warps_issue_stalled_barrier.sum", "80")],
            Bottleneck::Synchronisation,
        ),
        (
            &[("l1tex__t_requests_pipe_lsu_mem_global_op_red.sum", "9,000")],
            Bottleneck::Atomics,
        ),
        (&[("sm__cycles_active.avg", "200")], Bottleneck::Occupancy),
        (
            &[("l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum", "9,000")],
            Bottleneck::Spills,
        ),
        (&[("gpu__time_duration.sum", "1,500")], Bottleneck::Launch),
    ];
    for (given, expected) in cases {
        let found = diagnosis(&with(given));
        assert_eq!(
            found.bottleneck, *expected,
            "{given:?}: {:?}",
            found.evidence
        );
        assert!(found.evidence[0].advice.is_some());
    }
}

/// A product of fp32 matrices on an H200, 0.93× cuBLAS: shares of its profile (of its opcodes only FFMA's is
/// known). Nothing stands out, so the account of its issue slots is what there is to say.
#[test]
fn issue_slots_are_accounted_for_where_most_are_filled() {
    let given = with(&[
        (
            "smsp__issue_active.avg.pct_of_peak_sustained_active",
            "81.27",
        ),
        (
            "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
            "73.98",
        ),
        (
            "sass__inst_executed_per_opcode",
            "1100 (FFMA: 1000; LDS: 62; BAR: 8; IADD3: 20; LDG: 10)",
        ),
        ("smsp__warps_issue_stalled_not_selected.sum", "4519"),
        ("smsp__warps_issue_stalled_selected.sum", "2036"),
        ("smsp__warps_issue_stalled_short_scoreboard.sum", "1086"),
        ("smsp__warps_issue_stalled_barrier.sum", "980"),
        ("smsp__warps_issue_stalled_dispatch_stall.sum", "943"),
        ("launch__occupancy_limit_registers", "1"),
        ("launch__waves_per_multiprocessor", "3.88"),
    ]);
    let found = diagnosis(&given);
    assert_eq!(found.bottleneck, Bottleneck::Issue);
    let told: Vec<String> = found
        .evidence
        .iter()
        .map(|e| format!("{} -> {}", e.text, e.advice.as_deref().unwrap_or_default()))
        .collect();
    let all = told.join("\n");
    for words in [
        "issue slots are 81 % busy: 74 % FFMA, 5 % LDS, 1 % IADD3, 1 % others -> little is issued beside the arithmetic",
        "19 % of the issue slots stay empty; warps wait for: short scoreboard 11 %, barrier 10 %, dispatch 10 %",
        "all 8 warps of an SM are one block",
        "ptxas then assigns registers otherwise",
        "the last leaves 12 % of its places empty, up to 3 % of the time -> 1 block fits an SM (limited by registers)",
    ] {
        assert!(all.contains(words), "{words}\nmissing in\n{all}");
    }
    let overhead = with(&[
        ("smsp__issue_active.avg.pct_of_peak_sustained_active", "85"),
        (
            "sass__inst_executed_per_opcode",
            "100 (FFMA: 40; IADD3: 40; LDS: 20)",
        ),
    ]);
    let found = diagnosis(&overhead);
    assert_eq!(found.bottleneck, Bottleneck::Issue);
    let advice = found.evidence[0].advice.as_deref().unwrap();
    assert!(advice.starts_with("fewer instructions beside"), "{advice}");
}

/// The same product before its tiles were sized: L1 is what limits, though most of the waiting is for
/// global memory.
#[test]
fn a_busy_l1_is_told_before_what_warps_wait_for() {
    let busy = |shared| {
        with(&[
            ("l1tex__throughput.avg.pct_of_peak_sustained_active", "89.6"),
            (
                "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed",
                shared,
            ),
            ("smsp__warps_issue_stalled_long_scoreboard.sum", "80"),
        ])
    };
    let found = diagnosis(&busy("74.0"));
    assert_eq!(found.bottleneck, Bottleneck::SharedMemory);
    assert!(
        found.evidence[0]
            .text
            .contains("is 74 % busy (L1 with it 90 %)"),
        "{:?}",
        found.evidence
    );
    let found = diagnosis(&busy("3.0"));
    assert_eq!(found.bottleneck, Bottleneck::MemoryBandwidth);
    assert!(
        found.evidence[0].text.starts_with("L1 is 90 % busy"),
        "{:?}",
        found.evidence
    );
}

#[test]
fn what_costs_no_time_is_not_told() {
    let full = with(&[
        ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "97"),
        ("launch__waves_per_multiprocessor", "0.5"),
        ("sass__inst_executed_per_opcode", "100 (FADD: 50; FMUL: 50)"),
    ]);
    let found = diagnosis(&full);
    assert_eq!(found.bottleneck, Bottleneck::MemoryBandwidth);
    let all: Vec<&str> = found.evidence.iter().map(|e| e.text.as_str()).collect();
    assert!(
        !all.iter()
            .any(|text| text.contains("wave") || text.contains("separate")),
        "{all:?}"
    );
}
