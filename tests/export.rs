//! Exports: what is written of a run's winner, that the loaders are code their languages take, and that
//! they compute what the judge computed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::AtomicBool;

use serde_json::{Value as Json, json};
use warptree::device::RigError;
use warptree::driver::{Observer, Rig, drive};
use warptree::evaluate::{Evaluation, Evaluator, Kernel};
use warptree::export::{Certificate, ExportError, Exported, Seal, export};
use warptree::propose::ProposerKind;
use warptree::search::{NodeId, Search, SearchParams, StopRules};
use warptree::source::{Argument, Candidate, DType, LaunchPlan, Point, Source};
use warptree::store::{FORMAT, Line, RootConfig, RunConfig, RunWriter, StoredRun, write_trace};
use warptree::task::{Catalogue, Param, Purpose, Role, Size, Task};
use warptree::units::{Digest, Nanos, SmArch};
use warptree::verdict::{Audit, InstructionScore, Measurement, Score, TargetShare, Time, Verdict};

/// Calls every kernel correct and the default setting the fastest; `edited` puts another text in its place.
struct Approving {
    edited: bool,
}

impl Evaluator for Approving {
    fn evaluate(&self, source: &Source, point: &Point) -> Result<Evaluation, RigError> {
        let candidate = source.render(point).expect("renders");
        let rank: u32 = point.0.iter().map(|&index| u32::from(index)).sum();
        let time = Nanos::new(1000.0 + 100.0 * f64::from(rank)).expect("positive");
        let mut ptx = candidate.ptx.to_string();
        if self.edited {
            ptx.push_str("// edited\n");
        }
        Ok(Evaluation {
            candidate: Some(candidate.id()),
            verdict: Verdict::Measured(Box::new(Measurement {
                time: Time::Estimated {
                    time,
                    gpu: "H200".into(),
                },
                resources: vec![],
                score: Score {
                    correct: true,
                    instructions: InstructionScore::new(
                        TargetShare::NotRequired,
                        warptree::units::Bytes(0),
                    ),
                    speedup: None,
                    audit: Audit::Passed,
                },
                diagnosis: None,
                checked: vec!["nothing: a test".into()],
                not_checked: vec!["everything".into()],
                warnings: vec![],
            })),
            kernel: Some(Kernel {
                ptx: ptx.into(),
                cubin: b"\x7fELF, as it were".to_vec().into(),
            }),
        })
    }

    fn deterministic(&self) -> bool {
        true
    }
}

struct Silent;

impl Observer for Silent {
    fn applied(&mut self, _: &Line, _: &Search) {}
}

/// A run's folder has the machine code: nothing is assembled.
fn unasked(_: &str, _: SmArch) -> Result<Vec<u8>, String> {
    panic!("the run's folder has its kernels")
}

/// A finished run over one source.
fn run(folder: &Path, task: &Task, source: &str, edited: bool) -> StoredRun {
    let config = RunConfig {
        format: FORMAT,
        warptree: env!("CARGO_PKG_VERSION").into(),
        task: task.name.clone(),
        task_digest: task.digest,
        tasks_dir: None,
        device: "sim".into(),
        gpu: "H200".into(),
        arch: SmArch::SM_90A,
        assembler: None,
        proposers: vec![ProposerKind::Knobs],
        model: None,
        seed: 7,
        baselines: None,
        baseline: None,
        search: SearchParams {
            stop: StopRules {
                evaluations: Some(4),
                ..StopRules::default()
            },
            ..SearchParams::default()
        },
        roots: vec![RootConfig {
            node: NodeId(1),
            label: "seed".into(),
            source: Digest::of(source),
            settings: Vec::new(),
            earlier: Vec::new(),
        }],
    };
    let mut writer = RunWriter::create(folder, config, [source]).expect("creates");
    let evaluator = Approving { edited };
    let rig = Rig {
        evaluator: &evaluator,
        proposers: vec![],
        task: None,
        jobs: 1,
        deterministic: true,
        estimator: None,
        confirm: true,
    };
    drive(&rig, &mut writer, &[], &AtomicBool::new(false), &mut Silent).expect("drives");
    drop(writer);
    StoredRun::open(folder).expect("opens")
}

struct Case {
    name: &'static str,
    source: String,
    task: Task,
    sizes: Vec<BTreeMap<String, i64>>,
    _scratch: tempfile::TempDir,
    folder: PathBuf,
    exported: Exported,
}

impl Case {
    fn new(name: &'static str, task: Task, sizes: Vec<BTreeMap<String, i64>>) -> Self {
        let path = format!(
            "{}/tests/data/export/{name}.ptx",
            env!("CARGO_MANIFEST_DIR")
        );
        let source = std::fs::read_to_string(path).expect("reads");
        let scratch = tempfile::tempdir().expect("scratch");
        let run = run(&scratch.path().join("run"), &task, &source, false);
        let folder = scratch.path().join("out");
        let exported = export(&run, Ok(&task), &unasked, &folder).expect("exports");
        Self {
            name,
            source,
            task,
            sizes,
            _scratch: scratch,
            folder,
            exported,
        }
    }

    fn candidate(&self) -> Candidate {
        let source = Source::parse(&self.source).expect("parses");
        let point = source.space().default_point().expect("has a default");
        source.render(&point).expect("renders")
    }

    fn loader(&self, name: &str) -> PathBuf {
        self.folder.join("loaders").join(name)
    }
}

fn two_launches() -> Case {
    let task = Catalogue::embedded().task("reduce_sum").expect("embedded");
    let sizes = [1, 5, 1000, 1001, 1023, 65537, 1 << 30].map(|n| dims([("n", n)]));
    Case::new("two_launches", task, sizes.into())
}

/// Every operand's name is a word of one of the languages; scalars of both kinds.
fn tensor_map() -> Case {
    let mut task = Catalogue::embedded().task("sgemm").expect("embedded");
    let param = |name: &str, role, dtype, shape: &[&str], value: Option<&str>| Param {
        name: name.into(),
        role,
        dtype,
        shape: shape.iter().map(|&extent| extent.into()).collect(),
        value: value.map(str::to_owned),
    };
    task.params = vec![
        param("in", Role::Input, DType::F32, &["m", "k"], None),
        param("alpha", Role::Scalar, DType::F32, &[], Some("1.5")),
        param("b", Role::Input, DType::F32, &["k", "n"], None),
        param("repeat", Role::Scalar, DType::I64, &[], Some("k - 70")),
        param("lambda", Role::Output, DType::F32, &["m", "n"], None),
    ];
    let sizes = [[64, 128, 96, -6], [4, 1, 1, -66], [4096, 67, 4097, 4026]];
    let sizes =
        sizes.map(|[k, m, n, repeat]| dims([("k", k), ("m", m), ("n", n), ("repeat", repeat)]));
    task.sizes = vec![Size {
        purpose: Purpose::Smoke,
        dims: dims([("k", 64), ("m", 128), ("n", 96)]),
    }];
    Case::new("tensor_map", task, sizes.into())
}

fn dims<const N: usize>(dims: [(&str, i64); N]) -> BTreeMap<String, i64> {
    dims.map(|(name, value)| (name.to_owned(), value)).into()
}

#[test]
fn every_loader_is_written() {
    for case in [two_launches(), tensor_map()] {
        assert_eq!(case.exported.missing, []);
        insta::with_settings!({
            snapshot_path => "data/export",
            prepend_module_to_snapshot => false,
            omit_expression => true,
        }, {
            for file in &case.exported.files {
                if file.starts_with("loaders/") {
                    let text = std::fs::read_to_string(case.folder.join(file)).expect("reads");
                    let name = file.replace("loaders/", "");
                    insta::assert_snapshot!(format!("{}.{name}", case.name), text);
                }
            }
        });
        let certificate = std::fs::read(case.folder.join("certificate.json")).expect("reads");
        let certificate: Certificate = serde_json::from_slice(&certificate).expect("parses");
        assert_eq!(certificate.launches, case.candidate().formulas());
    }
}

#[test]
fn python_computes_what_the_judge_computes() {
    for case in [two_launches(), tensor_map()] {
        let pointers: serde_json::Map<String, Json> = case
            .task
            .params
            .iter()
            .zip(1i64..)
            .map(|(param, at)| {
                let name = match param.name.as_str() {
                    word @ ("in" | "lambda") => format!("{word}_"),
                    name => name.to_owned(),
                };
                let value = match param.role {
                    Role::Scalar => json!(-at),
                    Role::Input | Role::Output => json!(at << 20),
                };
                (name, value)
            })
            .collect();
        let script = format!("{}/tests/data/export/drive.py", env!("CARGO_MANIFEST_DIR"));
        let output = Command::new("python3")
            .arg("-B")
            .arg(script)
            .arg(case.loader("kernel.py"))
            .arg(case.folder.join("kernel.cubin"))
            .arg(serde_json::to_string(&case.sizes).expect("writes"))
            .arg(Json::from(pointers).to_string())
            .output();
        let Some(output) = present("python3", output) else {
            return;
        };
        let told: Json = serde_json::from_slice(&output.stdout).expect("JSON");
        let candidate = case.candidate();
        for (size, plan) in case
            .sizes
            .iter()
            .zip(told["plans"].as_array().expect("plans"))
        {
            let mut names: BTreeMap<String, warptree::expr::Value> = size
                .iter()
                .map(|(name, value)| (name.clone(), (*value).into()))
                .collect();
            names.insert("sm_count".into(), 132.into());
            names.insert("alpha".into(), warptree::expr::Value::Float(1.5));
            let expected = candidate.plan(&names).expect("plans");
            assert_eq!(*plan, shown(&expected), "{} at {size:?}", case.name);
        }
        let calls: Vec<String> = told["calls"]
            .as_array()
            .expect("calls")
            .iter()
            .map(|call| format!("{} {}", call[0].as_str().expect("a name"), call[1]))
            .collect();
        insta::with_settings!({
            snapshot_path => "data/export",
            prepend_module_to_snapshot => false,
            omit_expression => true,
        }, {
            insta::assert_snapshot!(format!("{}.calls", case.name), calls.join("\n"));
        });
    }
}

#[test]
fn loaders_are_code_of_their_languages() {
    for case in [two_launches(), tensor_map()] {
        let python = Command::new("python3")
            .args(["-m", "py_compile"])
            .arg(case.loader("kernel.py"))
            .output();
        present("python3", python);
        let cpp = Command::new("g++")
            .args(["-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"])
            .arg(case.loader("main.cpp"))
            .output();
        present("g++", cpp);
    }
}

/// Takes cudarc from the registry's cache; a minute or two.
#[test]
#[ignore = "slow: WARPTREE_SLOW"]
fn the_rust_loader_checks() {
    for case in [two_launches(), tensor_map()] {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("loaders");
        let output = Command::new(env!("CARGO"))
            .args(["check", "--offline"])
            .env("RUSTFLAGS", "-Dwarnings")
            .env("CARGO_TARGET_DIR", target)
            .current_dir(case.folder.join("loaders"))
            .output();
        present("cargo", output);
    }
}

#[test]
fn what_a_loader_cannot_say_is_told() {
    let task = Catalogue::embedded().task("reduce_sum").expect("embedded");
    let scratch = tempfile::tempdir().expect("scratch");
    let path = format!(
        "{}/tests/data/export/two_launches.ptx",
        env!("CARGO_MANIFEST_DIR")
    );
    let source = std::fs::read_to_string(path).expect("reads");
    let source = source.replace("smem=4*BLOCK", "smem=pow2(n)");
    let run = run(&scratch.path().join("run"), &task, &source, false);
    let to = scratch.path().join("one");
    let exported = export(&run, Ok(&task), &unasked, &to).expect("exports");
    let missing: Vec<&str> = exported.missing.iter().map(|m| m.file.as_str()).collect();
    assert_eq!(
        missing,
        [
            "loaders/kernel.hpp",
            "loaders/kernel.rs",
            "loaders/kernel.py"
        ]
    );
    for missing in &exported.missing {
        assert!(missing.reason.contains("`pow2`"), "{}", missing.reason);
    }
    assert!(to.join("kernel.cubin").exists() && !to.join("loaders").exists());

    let mut changed = task;
    changed.digest = Digest::of("another");
    let told = |task, to: &str| {
        let exported = export(&run, task, &unasked, &scratch.path().join(to)).expect("exports");
        exported.missing[0].reason.clone()
    };
    assert!(told(Ok(&changed), "two").contains("have changed"));
    assert_eq!(told(Err("it is gone".into()), "three"), "it is gone");
}

#[test]
fn a_winner_that_is_not_its_sources_rendering_is_refused() {
    let task = Catalogue::embedded().task("reduce_sum").expect("embedded");
    let scratch = tempfile::tempdir().expect("scratch");
    let run = run(&scratch.path().join("run"), &task, &task.seed, true);
    let error =
        export(&run, Ok(&task), &unasked, &scratch.path().join("out")).expect_err("differs");
    assert!(
        matches!(error, ExportError::NotReproduced { .. }),
        "{error}"
    );
}

#[test]
fn a_traces_winner_is_assembled_again_and_is_what_was_judged_or_nothing() {
    let task = Catalogue::embedded().task("reduce_sum").expect("embedded");
    let scratch = tempfile::tempdir().expect("scratch");
    let folder = scratch.path().join("run");
    let whole = run(&folder, &task, &task.seed, false);
    let file = scratch.path().join("run.jsonl.gz");
    write_trace(&whole, &file).expect("writes");
    let left = StoredRun::open(&file).expect("opens");
    let judged = |_: &str, _: SmArch| Ok(b"\x7fELF, as it were".to_vec());
    let (one, two) = (scratch.path().join("one"), scratch.path().join("two"));
    export(&whole, Ok(&task), &unasked, &one).expect("exports");
    export(&left, Ok(&task), &judged, &two).expect("exports");
    for file in [
        "kernel.ptx",
        "kernel.cubin",
        "source.ptx",
        "certificate.json",
    ] {
        let read = |folder: &PathBuf| std::fs::read(folder.join(file)).expect("reads");
        assert_eq!(read(&one), read(&two), "{file}");
    }
    for (assemble, says) in [
        (
            Ok(b"\x7fELF of another".to_vec()),
            "makes other machine code",
        ),
        (Err("no ptxas here".to_owned()), "no ptxas here"),
    ] {
        let to = scratch.path().join("three");
        let error = export(&left, Ok(&task), &|_, _| assemble.clone(), &to).expect_err("differs");
        assert!(error.to_string().contains(says), "{error}");
        assert!(!to.exists());
    }
}

/// A plan as the Python loader gives it.
fn shown(plan: &LaunchPlan) -> Json {
    let integers = |args: &[Argument]| -> Vec<i64> {
        args.iter()
            .filter_map(|arg| match arg {
                Argument::Int(value) => Some(*value),
                Argument::Buffer(_)
                | Argument::Workspace(_)
                | Argument::TensorMap(_)
                | Argument::Float(_) => None,
            })
            .collect()
    };
    let launches: Vec<Json> = plan
        .launches
        .iter()
        .map(|launch| {
            json!({
                "grid": launch.grid,
                "block": launch.block,
                "cluster": launch.cluster,
                "smem": launch.smem.0,
                "scalars": integers(&launch.args),
            })
        })
        .collect();
    let maps: Vec<Json> = plan
        .tensor_maps
        .iter()
        .map(|map| json!({"dims": map.dims, "strides": map.strides, "box": map.tile}))
        .collect();
    let workspaces: Vec<u64> = plan.workspaces.iter().map(|space| space.bytes.0).collect();
    json!({"workspaces": workspaces, "tensor_maps": maps, "launches": launches})
}

/// The output of a tool that must succeed; `None`, said aloud, where there is no such tool.
fn present(tool: &str, output: std::io::Result<Output>) -> Option<Output> {
    match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("not checked: there is no {tool} here");
            None
        }
        Err(error) => panic!("{tool}: {error}"),
        Ok(output) => {
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{tool}: {stderr}");
            Some(output)
        }
    }
}

/// Certificates of older formats: read where all that a check needs is in them.
#[test]
fn older_certificates_are_read_as_far_as_they_can_be() {
    let case = two_launches();
    let bytes = std::fs::read(case.folder.join("certificate.json")).expect("written");
    let (whole, seal) = Certificate::from_json(&bytes).expect("reads");
    assert_eq!(seal, Seal::Whole);
    assert_eq!(whole.to_json().expect("writes"), bytes, "nothing is lost");
    let mut older: Json = serde_json::from_slice(&bytes).expect("JSON");
    older["format"] = 3.into();
    older.as_object_mut().expect("fields").remove("digest");
    let read = |value: &Json| Certificate::from_json(value.to_string().as_bytes());
    let (before, seal) = read(&older).expect("reads");
    assert_eq!(seal, Seal::Absent);
    assert_eq!(
        Certificate {
            format: whole.format,
            ..before
        },
        whole
    );
    older["format"] = 1.into();
    let refused = read(&older).expect_err("it has no launches").to_string();
    assert!(refused.contains("export again"), "{refused}");
}
