//! The script that prints the README's table of results, on recorded runs.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::json;

/// The traces of the README's tables, in the order of their rows.
const SCALAR: [&str; 13] = [
    "reduce_sum",
    "transpose",
    "sgemm",
    "sgemm-tma",
    "softmax",
    "rms_norm-rows",
    "silu",
    "gelu",
    "rope",
    "stencil_5pt",
    "fft_1024",
    "splitk_gemm",
    "conv2d_3x3",
];
const TENSOR: [&str; 11] = [
    "gemm_bf16",
    "gemm_bf16-m8192",
    "gemm_bf16-m4096",
    "gemm_bf16-m2048",
    "gemm_bf16-m1024",
    "gemm_bf16-m128",
    "gemm_bf16-m16",
    "attention_fwd",
    "attention_fwd_causal",
    "attention_bwd",
    "attention_bwd_causal",
];

fn table(folder: &Path, arguments: &[&str], traces: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let trace = |name: &&str| root.join(format!("traces/{name}-h200.jsonl.gz"));
    Command::new("python3")
        .arg(root.join("benches/results_table.py"))
        .arg(env!("CARGO_BIN_EXE_warptree"))
        .args(arguments)
        .args(traces.iter().map(trace))
        .current_dir(folder)
        .output()
        .expect("python3 was there a moment ago")
}

/// Cells of the tasks' rows below a heading.
fn column(output: &Output, heading: &str) -> Vec<String> {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut rows = text
        .lines()
        .map(|line| line.trim_matches(['|', ' ']).split(" | "));
    let at = rows
        .next()
        .and_then(|mut head| head.position(|cell| cell == heading));
    let at = at.unwrap_or_else(|| panic!("no {heading} in\n{text}"));
    rows.skip(1)
        .map(|mut cells| cells.nth(at).expect("a cell").to_owned())
        .collect()
}

#[test]
fn winners_are_set_against_the_roofline_and_the_measured_ceiling() {
    if Command::new("python3").arg("--version").output().is_err() {
        return;
    }
    const TWO: [&str; 2] = ["transpose", "sgemm"];
    let scratch = tempfile::tempdir().expect("scratch");
    let plain = table(scratch.path(), &[], &TWO);
    let percent = |cell: &String| -> f64 {
        let number = cell.strip_suffix(" %").expect("a percentage");
        number.parse().expect("a number")
    };
    let roofline: Vec<f64> = column(&plain, "of the roofline")
        .iter()
        .map(percent)
        .collect();
    assert!(
        roofline.iter().all(|share| (50.0..100.0).contains(share)),
        "{roofline:?}"
    );
    assert!(!String::from_utf8_lossy(&plain.stdout).contains("ceiling"));

    let doctor = |gpu: &str| {
        let found = json!([
            { "what": "tasks", "state": "ok", "detail": "transpose" },
            { "what": "ceilings", "state": "ok", "detail": "copy 4.43 TB/s, fp32 60.2 TFLOP/s", "measured": {
                "gpu": gpu, "copy_bytes_per_second": 4.43e12, "copy_share": 0.9,
                "fp32_flops_per_second": 6.02e13, "fp32_share": 0.8,
            } },
        ]);
        std::fs::write(scratch.path().join("doctor.json"), found.to_string()).expect("written");
    };
    doctor("NVIDIA H200");
    let with = table(scratch.path(), &["--ceilings", "doctor.json"], &TWO);
    let measured = column(&with, "of the measured ceiling");
    for ((share, roofline), ceiling) in measured.iter().map(percent).zip(roofline).zip([0.9, 0.8]) {
        assert!(
            (share - roofline / ceiling).abs() < 1.3,
            "{share} of {roofline} at {ceiling}: bytes bound the one, fp32 the other"
        );
    }

    doctor("NVIDIA B200");
    let other = table(scratch.path(), &["--ceilings", "doctor.json"], &TWO);
    let error = String::from_utf8_lossy(&other.stderr);
    assert!(
        !other.status.success() && error.contains("NVIDIA B200"),
        "{error}"
    );
}

#[test]
fn the_readmes_tables_are_what_the_script_prints() {
    if Command::new("python3").arg("--version").output().is_err() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).expect("the README");
    let ceilings: &[&str] = &["--ceilings", "traces/doctor-h200.json"];
    for (arguments, traces) in [(ceilings, &SCALAR[..]), (&["--tensor"], &TENSOR)] {
        let output = table(root, arguments, traces);
        assert!(output.status.success(), "{output:?}");
        let printed = String::from_utf8_lossy(&output.stdout);
        let missing = printed.lines().find(|line| !readme.contains(line));
        assert!(
            readme.contains(&*printed),
            "the first that differs: {missing:?}"
        );
    }
}
