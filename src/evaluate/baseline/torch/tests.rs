//! Runners that answer as they like, and the one that is shipped, on a PyTorch of a few lines.

use std::sync::Arc;
use std::time::Instant;

use super::*;
use crate::task::{Catalogue, InputCase};

/// A Python that is a shell script: it gets the runner's path and answers as it likes.
struct Fake {
    folder: tempfile::TempDir,
    python: std::path::PathBuf,
}

impl Fake {
    fn new(script: &str) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let python = folder.path().join("python");
        fs::write(&python, format!("#!/bin/sh\n{script}")).expect("written");
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).expect("allowed");
        Self { folder, python }
    }

    fn open(&self) -> Result<Torch> {
        let asked = Asked {
            python: self.python.as_os_str(),
            ordinal: 0,
            library: Library::Torch,
            expression: "x.t().contiguous()",
            math: MathMode::Ieee,
        };
        Torch::open(&asked, self.folder.path())
    }

    fn error(&self) -> String {
        match self.open() {
            Ok(_) => panic!("it must not open"),
            Err(error) => error.to_string(),
        }
    }
}

const READY: &str = r#"read open
echo '{"ready": {"torch": "2.11.0", "cuda": "13.0", "cudnn": 91900, "gpu": "NVIDIA H200"}}'
"#;

#[test]
fn a_runner_that_answers_is_believed_as_far_as_it_makes_sense() {
    let script = format!(
        r#"{READY}
read sample; echo '{{"sampled": [1000.0, 1001.0]}}'
read sample; echo '{{"sampled": [1000.0]}}'
read sample; echo '{{"sampled": [1000.0, 0.0]}}'
read sample; echo '{{"sampled": [1000.0, null]}}'
read finish; echo '{{"finished": {{"outputs": 4, "differing": 0}}}}'
read sample; echo '{{"failed": "RuntimeError: CUDA error"}}'
read sample; echo '{{"checked": true}}'
read sample; echo 'PASSED'
"#
    );
    let fake = Fake::new(&script);
    let mut torch = fake.open().expect("it is ready");
    assert_eq!(torch.versions(), "PyTorch 2.11.0, CUDA 13.0, cuDNN 91900");
    assert_eq!(torch.sample(2).expect("two times"), [1000.0, 1001.0]);
    let mut error = || torch.sample(2).expect_err("no times").to_string();
    assert!(error().contains("1 times where 2 were asked"));
    assert!(error().contains("0 ns for a call"));
    assert!(error().contains("invalid type: null"));
    assert!(
        error().contains("Finished"),
        "an answer to another question"
    );
    assert!(error().contains("CUDA error"));
    assert!(error().contains("Checked(true)"));
    assert!(error().contains("answers `PASSED`"));
    assert!(error().contains("ended with exit status: 0"));
}

#[test]
fn what_is_missing_is_said_with_what_to_do() {
    for (package, words) in [
        ("torch", ["no PyTorch (not here)", "--python"]),
        (
            "cudnn",
            ["no cuDNN frontend (not here)", "nvidia-cudnn-frontend"],
        ),
    ] {
        let missing = format!(r#"{{"missing": {{"package": "{package}", "why": "not here"}}}}"#);
        let error = Fake::new(&format!("read open; echo '{missing}'")).error();
        assert!(words.iter().all(|part| error.contains(part)), "{error}");
    }
    let broken = Fake::new("echo 'SyntaxError: python2' >&2; exit 1");
    let error = broken.error();
    assert!(
        error.contains("SyntaxError") && error.contains("exit status: 1"),
        "{error}"
    );
    let blind = Fake::new(r#"read open; echo '{"failed": "RuntimeError: torch sees no GPU"}'"#);
    assert!(blind.error().contains("sees no GPU"));
    let asked = Asked {
        python: OsStr::new("/nowhere/python3"),
        ordinal: 0,
        library: Library::Torch,
        expression: "x",
        math: MathMode::Fast,
    };
    let nowhere = Torch::open(&asked, blind.folder.path())
        .err()
        .expect("no python");
    assert!(nowhere.to_string().contains("does not start"), "{nowhere}");
}

#[test]
fn a_runner_that_hangs_is_given_up() {
    let fake = Fake::new(&format!("{READY}echo 'compiling' >&2; sleep 60"));
    let mut torch = fake.open().expect("it is ready");
    let since = Instant::now();
    let asked = torch.ask(&json!({ "request": "sample" }), Duration::from_millis(200));
    let error = asked.expect_err("no answer").to_string();
    assert!(
        error.contains("no answer within 0.2 s") && error.contains("compiling"),
        "{error}"
    );
    drop(torch);
    assert!(since.elapsed() < Duration::from_secs(5));
}

/// A folder with fake packages: Python finds modules beside its script first.
fn with_fakes(packages: &[&str]) -> tempfile::TempDir {
    let fakes = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/baseline/fake_torch");
    let folder = tempfile::tempdir().expect("a folder");
    for package in packages {
        std::os::unix::fs::symlink(fakes.join(package), folder.path().join(package))
            .expect("linked");
    }
    folder
}

fn shipped(library: Library, expression: &str, folder: &tempfile::TempDir) -> Result<Torch> {
    let asked = Asked {
        python: OsStr::new("python3"),
        ordinal: 0,
        library,
        expression,
        math: MathMode::Ieee,
    };
    Torch::open(&asked, folder.path())
}

/// The shipped runner with the little of PyTorch that it calls, on the CPU: a whole measurement.
#[test]
fn the_shipped_runner_does_what_it_is_asked() {
    if Command::new("python3").arg("--version").output().is_err() {
        return;
    }
    let folder = with_fakes(&["torch"]);
    let open = |expression| shipped(Library::Torch, expression, &folder).expect("it opens");
    let catalogue = Catalogue::open(None).expect("the tasks are here");
    let task = Arc::new(catalogue.task("transpose").expect("it loads"));
    let problem = Problem::new(&task, &task.sizes[0], task.cases[0], 3).expect("a problem");
    let files = ProblemFiles::write(&problem, folder.path(), "smoke").expect("written");

    let mut torch = open("x * 2.0");
    assert_eq!(torch.facts.gpu, "Fake GPU");
    let error = torch
        .sample(2)
        .expect_err("nothing is prepared")
        .to_string();
    assert!(error.contains("nothing is prepared"), "{error}");
    let unknown = torch.ask(&json!({ "request": "dance" }), SAMPLE);
    assert!(matches!(unknown, Ok(Answer::Failed(why)) if why.contains("dance")));
    for &variant in Library::Torch.variants() {
        let outputs = torch.check(variant, &files).expect("outputs");
        let input = problem.input_bytes("x").expect("small");
        let twice: Vec<u8> = input
            .chunks_exact(4)
            .map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]))
            .flat_map(|value| (value * 2.0).to_le_bytes())
            .collect();
        assert_eq!(outputs, [("out".to_owned(), twice)]);
        let prepared = torch
            .prepare(variant, &files, Bytes(24_576))
            .expect("graphs");
        assert_eq!((prepared.sets, prepared.rotated_bytes), (3, 3 * 49_152));
        assert_eq!(prepared.calls % 3, 0, "whole rounds over the sets");
        torch.warm_up(prepared).expect("it replays");
        for ns in torch.sample(4).expect("times") {
            assert!((ns - 1000.0).abs() < 1e-6, "{ns}: a microsecond a call");
        }
        let finished = torch.finish().expect("checked");
        assert_eq!(finished.differing, 0);
        assert_eq!(finished.outputs, u64::from(prepared.calls));
    }

    let refused = |expression, words: &str| {
        let checked = open(expression).check(Variant::Eager, &files);
        let error = checked.expect_err("not such an output").to_string();
        assert!(error.contains(words), "{error}");
    };
    refused("x", "view of an input");
    refused("x.reshape(-1)", "view of an input");
    refused("(x * 1.0, x * 2.0)", "gives 2 outputs, the task has 1");
    refused("(x * 1.0).view(torch.uint8)", "24576 elements of u8");
    refused("x * y", "name 'y' is not defined");
    refused("x *", "SyntaxError");
}

/// The same for graphs of cuDNN's: a product, exact on small integers.
#[test]
fn the_shipped_runner_builds_graphs_where_cudnn_can_be_imported() {
    if Command::new("python3").arg("--version").output().is_err() {
        return;
    }
    let without = shipped(Library::Cudnn, "matmul(a, b)", &with_fakes(&["torch"]));
    let error = without.err().expect("no such package").to_string();
    assert!(
        error.contains("pip install nvidia-cudnn-frontend"),
        "{error}"
    );

    let folder = with_fakes(&["torch", "cudnn"]);
    let catalogue = Catalogue::open(None).expect("the tasks are here");
    let task = Arc::new(catalogue.task("sgemm").expect("it loads"));
    let mut size = task.sizes[0].clone();
    let (m, n, k) = (3, 5, 4);
    size.dims = [("M", m), ("N", n), ("K", k)]
        .map(|(name, length)| (name.to_owned(), length as i64))
        .into();
    let problem = Problem::new(&task, &size, InputCase::Integers, 3).expect("a problem");
    let files = ProblemFiles::write(&problem, folder.path(), "tiny").expect("written");
    let floats = |name: &str| -> Vec<f32> {
        let bytes = problem.input_bytes(name).expect("small");
        let fours = bytes.as_chunks::<4>().0;
        fours.iter().map(|four| f32::from_le_bytes(*four)).collect()
    };
    let (a, b) = (floats("a"), floats("b"));
    let product: Vec<u8> = (0..m * n)
        .map(|at| {
            (0..k)
                .map(|i| a[at / n * k + i] * b[i * n + at % n])
                .sum::<f32>()
        })
        .flat_map(f32::to_le_bytes)
        .collect();

    let mut torch = shipped(Library::Cudnn, "matmul(a, b)", &folder).expect("it opens");
    for &variant in Library::Cudnn.variants() {
        let outputs = torch.check(variant, &files).expect("outputs");
        assert_eq!(outputs, [("c".to_owned(), product.clone())]);
        let prepared = torch.prepare(variant, &files, Bytes(100)).expect("graphs");
        assert!(prepared.sets > 1);
        for ns in torch.sample(4).expect("times") {
            assert!((ns - 1000.0).abs() < 1e-6, "{ns}: a microsecond a call");
        }
        let finished = torch.finish().expect("checked");
        assert_eq!(
            (finished.differing, finished.outputs),
            (0, u64::from(prepared.calls))
        );
    }
}
