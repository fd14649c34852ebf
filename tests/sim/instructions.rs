//! Every instruction case against what an H200 gave: bit for bit, or within the ULPs a case states. The cases
//! and the script that records them are in `tests/data/sim/instructions/`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use warptree::ptx::parse;
use warptree::sim::{self, Initial, Launch};

use super::harness::options;

const LANES: usize = 32;
const MEMORY_WORDS: usize = 64;

#[derive(Deserialize)]
struct Case {
    name: String,
    entry: String,
    inputs: Vec<Vec<String>>,
    outputs: Vec<String>,
    memory: Option<Vec<String>>,
    #[serde(default)]
    tolerance: Tolerance,
}

#[derive(Deserialize, Default, Clone, Copy)]
struct Tolerance {
    ulps: Option<i64>,
    abs: Option<f64>,
}

#[derive(Deserialize)]
struct Recorded {
    results: BTreeMap<String, Expected>,
}

#[derive(Deserialize)]
struct Expected {
    outputs: Vec<Vec<String>>,
    memory: Option<Vec<String>>,
}

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/sim/instructions")
        .join(name)
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text, 16).unwrap()
}

fn bytes_of(ty: &str) -> usize {
    match ty.trim_start_matches(|c: char| !c.is_ascii_digit()) {
        "8" => 1,
        "16" => 2,
        "64" => 8,
        _ => 4,
    }
}

/// Distance in units in the last place; NaNs of any payload are alike.
fn ulps_apart(ty: &str, a: u64, b: u64) -> i64 {
    let (bits, mantissa) = match ty {
        ".f16" => (16, 10),
        ".f64" => (64, 52),
        _ => (32, 23),
    };
    let sign = 1u64 << (bits - 1);
    let infinity = (sign - 1) & !((1u64 << mantissa) - 1);
    let nan = |x: u64| x & (sign - 1) > infinity;
    if nan(a) && nan(b) {
        return 0;
    }
    let key = |x: u64| {
        if x & sign != 0 {
            -((x & (sign - 1)) as i64)
        } else {
            x as i64
        }
    };
    (key(a) - key(b)).abs()
}

fn close(ty: &str, tolerance: Tolerance, got: u64, expected: u64) -> bool {
    let approximate = ty.starts_with(".f");
    let near = match tolerance.abs {
        Some(abs) if ty == ".f32" => {
            let value = |bits: u64| f64::from(f32::from_bits(bits as u32));
            (value(got) - value(expected)).abs() <= abs
        }
        _ => false,
    };
    let by_ulps = tolerance
        .ulps
        .is_some_and(|most| ulps_apart(ty, got, expected) <= most);
    got == expected || (approximate && (near || by_ulps))
}

#[test]
fn instructions_give_what_an_h200_gave() {
    let module = parse(&std::fs::read_to_string(data("cases.ptx")).unwrap()).unwrap();
    let cases: Vec<Case> =
        serde_json::from_str(&std::fs::read_to_string(data("cases.json")).unwrap()).unwrap();
    assert!(cases.len() >= 150);
    let recorded: Recorded =
        serde_json::from_str(&std::fs::read_to_string(data("h200.json")).unwrap()).unwrap();
    let mut wrong = Vec::new();
    for case in &cases {
        let program =
            sim::decode(&module, &case.entry).unwrap_or_else(|f| panic!("{}: {f:#?}", case.name));
        let mut memory = sim::memory(&program);
        let size = 8 * LANES * 16;
        let mut input = vec![0; size];
        for (index, column) in case.inputs.iter().enumerate() {
            for (lane, value) in column.iter().enumerate() {
                input[(index * LANES + lane) * 8..][..8].copy_from_slice(&hex(value).to_le_bytes());
            }
        }
        let mut words = vec![0; size];
        for (index, value) in case.memory.iter().flatten().enumerate() {
            words[index * 4..][..4].copy_from_slice(&(hex(value) as u32).to_le_bytes());
        }
        let addresses = [
            memory.add("in", size as u64, false, Initial::Bytes(input.into())),
            memory.add("out", size as u64, true, Initial::Zero),
            memory.add("mem", size as u64, true, Initial::Bytes(words.into())),
        ];
        let params = addresses.iter().flat_map(|a| a.to_le_bytes()).collect();
        let launch = Launch {
            grid: [1; 3],
            block: [LANES as u32, 1, 1],
            dynamic_shared: 0,
            cluster: [1; 3],
            tensor_maps: Vec::new(),
            params,
        };
        let outcome = sim::launch(&program, &mut memory, &launch, &options());
        assert!(outcome.stop.is_none(), "{}: {:?}", case.name, outcome.stop);
        assert!(
            outcome.findings.is_empty(),
            "{}: {:?}",
            case.name,
            outcome.findings
        );
        let Some(expected) = recorded.results.get(&case.name) else {
            wrong.push(format!("{}: not recorded; run record.py again", case.name));
            continue;
        };
        let out = memory.contents(addresses[1]).unwrap();
        for (index, ty) in case.outputs.iter().enumerate() {
            for lane in 0..LANES {
                let at = (index * LANES + lane) * 8;
                let mut raw = [0; 8];
                raw[..bytes_of(ty)].copy_from_slice(&out[at..at + bytes_of(ty)]);
                let (got, want) = (u64::from_le_bytes(raw), hex(&expected.outputs[index][lane]));
                if !close(ty, case.tolerance, got, want) {
                    let inputs: Vec<&str> = case.inputs.iter().map(|c| c[lane].as_str()).collect();
                    wrong.push(format!(
                        "{}: output {index} of {inputs:?}: got {got:x}, H200 gave {want:x}",
                        case.name
                    ));
                    break;
                }
            }
        }
        if let Some(expected) = &expected.memory {
            let words = memory.contents(addresses[2]).unwrap();
            for (index, want) in expected.iter().enumerate().take(MEMORY_WORDS) {
                let got = u32::from_le_bytes(words[index * 4..][..4].try_into().unwrap());
                if u64::from(got) != hex(want) {
                    wrong.push(format!(
                        "{}: word {index}: got {got:x}, H200 gave {want}",
                        case.name
                    ));
                    break;
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} cases differ:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}
