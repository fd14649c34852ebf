//! Every instruction case against what an H200 gave: bit for bit, or within the ULPs a case states. The cases
//! and the script that records them are in `tests/data/sim/instructions/`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use warptree::ptx::ir::Module;
use warptree::ptx::parse;
use warptree::sim::{self, Initial, Launch, Swizzle, TensorMap};
use warptree::source::DType;

use super::harness::options;

const ROOM: usize = 64 * 1024;

#[derive(Deserialize)]
struct Case {
    name: String,
    entry: String,
    inputs: Vec<Vec<String>>,
    outputs: Vec<String>,
    memory: Option<Vec<String>>,
    #[serde(default)]
    tolerance: Tolerance,
    #[serde(default = "warp")]
    threads: usize,
    #[serde(default = "one")]
    cluster: u32,
    /// Words of `mem` that hold a fixed pattern.
    #[serde(default)]
    fill: u32,
    #[serde(default)]
    tensors: Vec<Tensor>,
}

#[derive(Deserialize)]
struct Tensor {
    name: String,
    #[serde(rename = "type")]
    dtype: String,
    dims: Vec<u64>,
    strides: Vec<u64>,
    #[serde(rename = "box")]
    tile: Vec<u32>,
    swizzle: u32,
    nan: bool,
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

fn warp() -> usize {
    32
}

fn one() -> u32 {
    1
}

fn pattern(word: u32) -> u32 {
    (word + 1).wrapping_mul(0x9e37_79b1)
}

impl Tensor {
    fn map(&self, base: u64) -> TensorMap {
        let dtype = match self.dtype.as_str() {
            "u8" => DType::U8,
            "u32" => DType::U32,
            "s32" => DType::I32,
            "f16" => DType::F16,
            "bf16" => DType::Bf16,
            "f32" => DType::F32,
            "f64" => DType::F64,
            other => panic!("{}: no type {other}", self.name),
        };
        TensorMap {
            name: self.name.clone(),
            base,
            dtype,
            dims: self.dims.clone(),
            strides: self.strides.clone(),
            tile: self.tile.clone(),
            swizzle: Swizzle::of_span(self.swizzle).unwrap(),
            nan_fill: self.nan,
        }
    }
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
        _ if ty.ends_with("x2") => 4,
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
        ".bf16" => (16, 7),
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
    if let Some(half) = ty.strip_suffix("x2") {
        return [0, 16].iter().all(|shift| {
            let of = |bits: u64| bits >> shift & 0xffff;
            close(half, tolerance, of(got), of(expected))
        });
    }
    let approximate = ty.starts_with(".f") || ty == ".bf16";
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

/// What a case ended with here: output columns, and `mem`.
fn run(module: &Module, case: &Case) -> Result<(Vec<Vec<u64>>, Vec<u32>), String> {
    let program = sim::decode(module, &case.entry).map_err(|f| format!("{f:?}"))?;
    let mut memory = sim::memory(&program);
    let lanes = case.threads;
    let mut input = vec![0; ROOM];
    for (index, column) in case.inputs.iter().enumerate() {
        for (lane, value) in column.iter().enumerate() {
            input[(index * lanes + lane) * 8..][..8].copy_from_slice(&hex(value).to_le_bytes());
        }
    }
    let mut words = vec![0; ROOM];
    let given = case.memory.iter().flatten().map(|v| hex(v) as u32);
    for (index, value) in given.chain((0..case.fill).map(pattern)).enumerate() {
        words[index * 4..][..4].copy_from_slice(&value.to_le_bytes());
    }
    let addresses = [
        memory.add("in", ROOM as u64, false, Initial::Bytes(input.into())),
        memory.add("out", ROOM as u64, true, Initial::Zero),
        memory.add("mem", ROOM as u64, true, Initial::Bytes(words.into())),
    ];
    let mut params: Vec<u8> = addresses.iter().flat_map(|a| a.to_le_bytes()).collect();
    params.resize(program.param_bytes() as usize, 0);
    let mut tensor_maps = Vec::new();
    for (tensor, param) in case
        .tensors
        .iter()
        .zip(&program.params()[addresses.len()..])
    {
        tensor_maps.push((param.offset, tensor.map(addresses[2])));
    }
    let launch = Launch {
        grid: [case.cluster, 1, 1],
        block: [lanes as u32, 1, 1],
        dynamic_shared: 0,
        cluster: [case.cluster, 1, 1],
        tensor_maps,
        params,
    };
    let outcome = sim::launch(&program, &mut memory, &launch, &options());
    if outcome.stop.is_some() || !outcome.findings.is_empty() {
        return Err(format!("{:?} {:?}", outcome.stop, outcome.findings));
    }
    let out = memory.contents(addresses[1]).unwrap();
    let value = |index: usize, ty: &str, lane: usize| {
        let mut raw = [0; 8];
        let bytes = bytes_of(ty);
        raw[..bytes].copy_from_slice(&out[(index * lanes + lane) * 8..][..bytes]);
        u64::from_le_bytes(raw)
    };
    let columns = (case.outputs.iter().enumerate())
        .map(|(index, ty)| (0..lanes).map(|lane| value(index, ty, lane)).collect())
        .collect();
    let words = (memory.contents(addresses[2]).unwrap().chunks_exact(4))
        .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
        .collect();
    Ok((columns, words))
}

/// The first difference from what was recorded.
fn difference(case: &Case, got: (Vec<Vec<u64>>, Vec<u32>), expected: &Expected) -> Option<String> {
    let (columns, words) = got;
    for (index, ty) in case.outputs.iter().enumerate() {
        for lane in 0..case.threads {
            let (got, want) = (columns[index][lane], hex(&expected.outputs[index][lane]));
            if !close(ty, case.tolerance, got, want) {
                let inputs: Vec<&str> = case.inputs.iter().map(|c| c[lane].as_str()).collect();
                return Some(format!(
                    "output {index} of lane {lane}, {inputs:?}: got {got:x}, H200 gave {want:x}"
                ));
            }
        }
    }
    let expected = expected.memory.iter().flatten().enumerate();
    (expected.map(|(index, want)| (index, words[index], hex(want))))
        .find(|(_, got, want)| u64::from(*got) != *want)
        .map(|(index, got, want)| format!("word {index}: got {got:x}, H200 gave {want:x}"))
}

#[test]
fn instructions_give_what_an_h200_gave() {
    let text = std::fs::read_to_string(data("cases.ptx")).unwrap();
    let (header, kernels) = text.split_once("\n\n").unwrap();
    let kernels: Vec<&str> = kernels.split("\n\n").collect();
    let cases: Vec<Case> =
        serde_json::from_str(&std::fs::read_to_string(data("cases.json")).unwrap()).unwrap();
    assert!(cases.len() >= 400);
    let recorded: Recorded =
        serde_json::from_str(&std::fs::read_to_string(data("h200.json")).unwrap()).unwrap();
    assert_eq!(kernels.len(), cases.len());
    let mut wrong = Vec::new();
    for (case, kernel) in cases.iter().zip(kernels) {
        let module = parse(&format!("{header}\n{kernel}\n")).unwrap();
        let said = match (run(&module, case), recorded.results.get(&case.name)) {
            (Err(said), _) => Some(said),
            (Ok(_), None) => Some("not recorded; run record.py again".to_owned()),
            (Ok(got), Some(expected)) => difference(case, got, expected),
        };
        wrong.extend(said.map(|said| format!("{}: {said}", case.name)));
    }
    assert!(
        wrong.is_empty(),
        "{} of {} cases differ:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}
