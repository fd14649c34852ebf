//! Tasks as their authors and users meet them: loading, pointing errors, inputs, references, proofs.
#![expect(clippy::unwrap_used, reason = "helpers of tests may unwrap")]

#[path = "task/judged.rs"]
mod judged;
#[path = "task/measured.rs"]
mod measured;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use warptree::source::Source;
use warptree::task::compare::{Got, compare};
use warptree::task::proof::prove;
use warptree::task::reference::{Elements, Expected, Values, expected};
use warptree::task::scaffold::new_task;
use warptree::task::{
    Catalogue, InputCase, Level, Origin, Poison, Problem, Purpose, Size, Task, TaskError,
};
use warptree::verdict::{Diagnostic, Mismatch, Severity, Verdict};

#[test]
fn every_embedded_task_loads() {
    let catalogue = Catalogue::embedded();
    let names = catalogue.names().unwrap();
    assert!(names.len() >= 2, "{names:?}");
    for name in names {
        let task = catalogue.task(&name).unwrap();
        assert_eq!(task.origin, Origin::Embedded);
    }
}

/// Seeds, spaces and mistakes are sources; every setting of a space gives PTX that parses and a plan.
/// A new task belongs to some suite: tasks/suites.toml lists them.
#[test]
fn every_embedded_task_belongs_to_a_suite() {
    let catalogue = Catalogue::embedded();
    let suite = catalogue.suite("l1l2l3").unwrap();
    assert!(!suite.title.is_empty());
    let levels: BTreeSet<Level> = suite
        .tasks
        .iter()
        .map(|name| catalogue.task(name).unwrap().level)
        .collect();
    assert_eq!(levels.len(), 3, "a total needs every level");
    let ptxbench = catalogue.suite("ptxbench").unwrap();
    for name in catalogue.names().unwrap() {
        let listed = suite.tasks.contains(&name) || ptxbench.tasks.contains(&name);
        assert!(listed, "{name} is in no suite");
    }
}

#[test]
fn every_embedded_source_renders() {
    let catalogue = Catalogue::embedded();
    for name in catalogue.names().unwrap() {
        let task = catalogue.task(&name).unwrap();
        assert!(!task.spaces.is_empty(), "{name} has no space");
        assert!(task.mistakes.len() >= 5, "{name} has few mistakes");
        let spaces = task.spaces.iter().map(|space| (&space.name, &space.text));
        let mistakes = task
            .mistakes
            .iter()
            .map(|mistake| (&mistake.name, &mistake.text));
        let seed = (&"seed".to_owned(), &task.seed);
        for (file, text) in spaces.chain(mistakes).chain([seed]) {
            let source =
                Source::parse(text).unwrap_or_else(|error| panic!("{name}/{file}: {error}"));
            let mut rng = rand_pcg::Pcg64::seed_from_u64(1);
            let count = if source.space().len() > 1 { 200 } else { 0 };
            let sampled = (0..count).map(|_| source.space().sample(&mut rng));
            for point in sampled.chain([source.space().default_point().unwrap()]) {
                let candidate = source.render(&point).unwrap();
                let setting = &candidate.setting;
                if let Err(error) = &candidate.module {
                    panic!("{name}/{file} {setting:?}: {}", error.message);
                }
                for size in &task.sizes {
                    let mut names = size.dims.clone();
                    names.insert("sm_count".into(), 132);
                    let plan = candidate.plan(&names);
                    assert!(
                        plan.is_ok(),
                        "{name}/{file} {setting:?} at {size}: {plan:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_mistake_is_judged_by_what_it_expects() {
    let task = embedded("reduce_sum");
    let missing = task
        .mistakes
        .iter()
        .find(|m| m.name == "missing_barrier")
        .unwrap();
    let line = missing.expect.line.unwrap();
    assert!(
        missing
            .text
            .lines()
            .nth(line as usize - 1)
            .unwrap()
            .contains("ld.shared")
    );
    let finding = |line, code: &str| Diagnostic {
        severity: Severity::Error,
        code: code.into(),
        message: "read and written".into(),
        line: Some(line),
        other_line: None,
        help: None,
    };
    let racy = |finding| Verdict::Racy {
        diagnostics: vec![finding],
    };
    let check = |verdict: &Verdict| missing.expect.check(verdict);
    assert_eq!(check(&racy(finding(line, "missing-barrier"))), Ok(()));
    let elsewhere = racy(finding(1, "missing-barrier"));
    assert_eq!(missing.expect.check_stage(&elsewhere), Ok(()));
    assert!(check(&elsewhere).unwrap_err().contains("at line"));
    assert!(
        check(&racy(finding(line, "other")))
            .unwrap_err()
            .contains("found [\"other\"]")
    );
    let hung = Verdict::Hung {
        diagnostics: vec![],
    };
    assert!(
        check(&hung)
            .unwrap_err()
            .contains("expected racy, the verdict is hung")
    );
}

#[test]
fn another_bench_size_can_be_timed() {
    let plain = embedded("gemm_bf16");
    let small = embedded("gemm_bf16@M=16");
    let first = |task: &Task| {
        let mut sizes = task.sizes_for(Purpose::Bench);
        sizes.next().unwrap().dims["M"]
    };
    assert_eq!((first(&plain), first(&small)), (8192, 16));
    assert_eq!(small.name, "gemm_bf16@M=16");
    assert_eq!(small.sizes.len(), plain.sizes.len());
    assert_ne!(small.digest, plain.digest);
    let error = Catalogue::embedded().task("gemm_bf16@M=17").unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains("M=17") && said.contains("@K=5120,M=16,N=7168"),
        "{said}"
    );
}

#[test]
fn an_unknown_task_names_the_nearest() {
    let error = Catalogue::embedded().task("reduce_sun").unwrap_err();
    let text = error.to_string();
    assert!(text.contains("did you mean `reduce_sum`"), "{text}");
}

/// Each file in `tests/data/task/bad` is a `task.toml` whose first line says the line and a part of the error.
#[test]
fn bad_task_files_get_pointing_errors() {
    let mut count = 0;
    for entry in fs::read_dir("tests/data/task/bad").unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let (line, message) = text
            .lines()
            .next()
            .and_then(|first| first.strip_prefix("# expect: ")?.split_once(": "))
            .unwrap_or_else(|| panic!("{}: no expectation", path.display()));
        let line = (line != "-").then(|| line.parse::<u32>().unwrap_or(0));
        let error = load_with(&text).unwrap_err();
        let TaskError::Invalid { line: at, .. } = &error else {
            panic!("{}: {error}", path.display());
        };
        assert_eq!(*at, line, "{}: {error}", path.display());
        assert!(
            error.to_string().contains(message),
            "{}: {error}",
            path.display()
        );
        count += 1;
    }
    assert!(count >= 15);
}

/// On three seeds: what is wrong is caught, what is honest is not.
#[test]
fn every_embedded_task_proves_its_tolerance() {
    let catalogue = Catalogue::embedded();
    for name in catalogue.names().unwrap() {
        let task = Arc::new(catalogue.task(&name).unwrap());
        for seed in [1, 2, 3] {
            if let Some(proof) = prove(&task, seed).unwrap() {
                assert!(proof.failures.is_empty(), "{name}: {:#?}", proof.failures);
            }
        }
    }
}

/// A tolerance that is too wide is found out: half the norm lets a dropped tail and low precision pass.
#[test]
fn a_wide_tolerance_has_no_proof() {
    let mut task = embedded("reduce_sum");
    let wide = warptree::task::Tolerance::Norm { relative: 0.5 };
    Arc::make_mut(&mut task)
        .tolerances
        .insert("out".into(), wide);
    let proof = prove(&task, 1).unwrap().unwrap();
    let text = proof.failures.join("\n");
    assert!(text.contains("inputs rounded to bf16 pass"), "{text}");
    assert!(text.contains("a truncated result pass"), "{text}");
}

/// A tolerance that is too narrow is found out: it rejects honest orders of addition.
#[test]
fn a_narrow_tolerance_has_no_proof() {
    let mut task = embedded("reduce_sum");
    let narrow = warptree::task::Tolerance::Pointwise {
        ulps: 1.0,
        absolute: 0.0,
    };
    Arc::make_mut(&mut task)
        .tolerances
        .insert("out".into(), narrow);
    let proof = prove(&task, 1).unwrap().unwrap();
    let text = proof.failures.join("\n");
    assert!(text.contains("a sequential sum is rejected"), "{text}");
}

#[test]
fn references_agree_with_the_plainest_loops() {
    let sum = problem("reduce_sum", &[("n", 1000)], InputCase::Normal);
    let x = floats(&sum.input_bytes("x").unwrap());
    let Values::Reals { y, scale } = only(&sum).values else {
        panic!("a sum is real")
    };
    assert!((y[0] - x.iter().sum::<f64>()).abs() < 1e-12);
    assert!((scale[0] - x.iter().map(|x| x * x).sum::<f64>().sqrt()).abs() < 1e-12);

    let transpose = problem("transpose", &[("rows", 5), ("cols", 3)], InputCase::Special);
    let x = transpose.input_bytes("x").unwrap();
    let Values::Bits(bits) = only(&transpose).values else {
        panic!("a transpose is exact")
    };
    for row in 0..5 {
        for col in 0..3 {
            assert_eq!(
                bits[4 * (col * 5 + row)..][..4],
                x[4 * (row * 3 + col)..][..4]
            );
        }
    }
}

/// Too large to compute in full, a reference is sampled, and its elements are those of the whole.
#[test]
fn a_large_transpose_is_sampled() {
    let (rows, cols) = (1 << 15, 1 << 14);
    let transpose = problem(
        "transpose",
        &[("rows", rows), ("cols", cols)],
        InputCase::Normal,
    );
    let expected = only(&transpose);
    let (Elements::Sampled(indices), Values::Bits(bits)) = (&expected.elements, &expected.values)
    else {
        panic!("2 GiB are not computed in full")
    };
    assert_eq!(indices.len(), 1 << 20);
    assert_eq!(
        (indices[0], *indices.last().unwrap()),
        (0, (rows * cols - 1) as u64)
    );
    assert!(indices.is_sorted());
    let x = transpose.stream("x").unwrap();
    for (at, index) in indices.iter().enumerate().step_by(9973) {
        let (col, row) = (index / rows as u64, index % rows as u64);
        let mut element = [0; 4];
        x.fill(4 * (row * cols as u64 + col), &mut element);
        assert_eq!(bits[4 * at..][..4], element);
    }
}

#[test]
fn mismatches_name_their_pattern() {
    let problem = problem(
        "transpose",
        &[("rows", 40), ("cols", 30)],
        InputCase::Normal,
    );
    let expected = only(&problem);
    let Values::Bits(right) = expected.values.clone() else {
        panic!("a transpose is exact")
    };
    let judged = |got: &[u8]| compare(&problem, &expected, Got::Whole(got), Poison::Nan);
    let pattern = |got: &[u8]| judged(got).unwrap_err().pattern.unwrap_or_default();
    assert_eq!(judged(&right), Ok(()));

    let poison = vec![Poison::Nan.byte(); right.len()];
    let half = |from: &[u8], to: &[u8]| [&from[..2400], &to[2400..]].concat();
    let row = right[..160].repeat(30);
    let rows: Vec<u8> = right
        .chunks(160)
        .flat_map(|row| row[..4].repeat(40))
        .collect();
    let doubled: Vec<u8> = right
        .as_chunks::<4>()
        .0
        .iter()
        .flat_map(|x| (2.0 * f32::from_le_bytes(*x)).to_le_bytes())
        .collect();
    for (got, expected) in [
        (poison.clone(), "never written: the poison is left"),
        (
            half(&right, &poison),
            "600 of 1200 elements never written: the poison is left, only the first 600 of 1200",
        ),
        (vec![0; right.len()], "all zero"),
        (
            half(&right, &vec![0; right.len()]),
            "600 of 1200 elements are zero, only the first 600",
        ),
        (
            half(&vec![0; right.len()], &right),
            "600 of 1200 elements are zero, only the last 600",
        ),
        (problem.input_bytes("x").unwrap(), "a copy of x"),
        (row, "every row is the same"),
        (rows, "every row holds one value"),
        (right[..4].repeat(1200), "one value in every element"),
        (doubled, "off by a constant factor of 2"),
        (
            f32::NAN.to_le_bytes().repeat(1200),
            "NaN where the reference is finite",
        ),
    ] {
        let pattern = pattern(&got);
        assert!(
            pattern.starts_with(expected),
            "{pattern:?} for {expected:?}"
        );
    }

    let mut one = right.clone();
    one[4 * (7 * 40 + 3)..][..4].copy_from_slice(&1f32.to_le_bytes());
    let mismatch = judged(&one).unwrap_err();
    assert_eq!((mismatch.wrong, mismatch.checked), (1, 1200));
    assert_eq!(mismatch.first[0].index, [7, 3]);
    assert_eq!(mismatch.first[0].got, "1.0");
}

#[test]
fn sums_are_judged_by_their_terms() {
    let problem = problem("reduce_sum", &[("n", 1000)], InputCase::Normal);
    let expected = only(&problem);
    let Values::Reals { y, scale } = &expected.values else {
        panic!("a sum is real")
    };
    let judged = |value: f64| {
        compare(
            &problem,
            &expected,
            Got::Whole(&(value as f32).to_le_bytes()),
            Poison::Nan,
        )
    };
    let bound = 4.0 * 2f64.powi(-24) * 1000f64.sqrt() * y[0].abs().max(scale[0]);
    assert_eq!(judged(y[0]), Ok(()));
    assert_eq!(judged(y[0] + 0.9 * bound), Ok(()));
    assert!(judged(y[0] + 1.1 * bound + 2f64.powi(-24) * y[0].abs()).is_err());
    let pattern = |value| judged(value).unwrap_err().pattern.unwrap_or_default();
    assert_eq!(pattern(0.0), "zero");
    assert_eq!(pattern(f64::NAN), "NaN where the reference is finite");
    let x = floats(&problem.input_bytes("x").unwrap());
    assert_eq!(pattern(x[0]), "the first element of x");
    assert!(pattern(y[0] * 1.005).starts_with("close, but less precise"));
    let short = compare(&problem, &expected, Got::Whole(&[0; 8]), Poison::Nan).unwrap_err();
    assert!(short.pattern.unwrap().contains("8 bytes"));
}

#[test]
fn special_values_must_stand_where_the_reference_has_them() {
    let judge = |x: f32, wanted: f64| -> Result<(), Mismatch> {
        let problem = problem("reduce_sum", &[("n", 2)], InputCase::Normal);
        let expected = Expected {
            output: "out".into(),
            elements: Elements::All,
            values: Values::Reals {
                y: vec![wanted],
                scale: vec![wanted.abs()],
            },
        };
        compare(
            &problem,
            &expected,
            Got::Whole(&x.to_le_bytes()),
            Poison::Finite,
        )
    };
    assert_eq!(judge(f32::NAN, f64::NAN), Ok(()));
    assert_eq!(judge(f32::INFINITY, f64::INFINITY), Ok(()));
    assert_eq!(
        judge(f32::INFINITY, 1e39),
        Ok(()),
        "what overflows f32 is infinite there"
    );
    assert!(judge(f32::NEG_INFINITY, f64::INFINITY).is_err());
    assert!(judge(f32::NAN, f64::INFINITY).is_err());
    assert!(judge(f32::MAX, f64::INFINITY).is_err());
    assert!(judge(1.0, f64::NAN).is_err());
}

#[test]
fn integers_are_bit_exact() {
    let problem = problem("reduce_sum", &[("n", 100_003)], InputCase::Integers);
    let expected = only(&problem);
    let x = floats(&problem.input_bytes("x").unwrap());
    assert!(x.iter().all(|x| x.fract() == 0.0) && x.iter().any(|x| *x != 0.0));
    let sum = x.iter().sum::<f64>() as f32;
    let judged = |value: f32| {
        compare(
            &problem,
            &expected,
            Got::Whole(&value.to_le_bytes()),
            Poison::Nan,
        )
    };
    assert_eq!(judged(sum), Ok(()));
    assert!(judged(sum + 1.0).is_err());
}

/// An operation that no line of Rust knows: a command with numpy-free Python reads and writes `.npy`.
#[test]
fn an_external_command_is_a_reference() {
    let toml = fs::read_to_string("tests/data/task/external/task.toml").unwrap();
    let script = fs::read_to_string("tests/data/task/external/reference.py").unwrap();
    let task = Arc::new(load_files(&toml, &[("reference.py", &script)]).unwrap());
    let size = task.sizes_for(Purpose::Smoke).next().unwrap();
    let problem = Problem::new(&task, size, InputCase::Normal, 1).unwrap();
    let expected = only(&problem);
    let Values::Reals { y, .. } = &expected.values else {
        panic!("a pointwise output is real")
    };
    let x = floats(&problem.input_bytes("x").unwrap());
    assert!(y.iter().zip(&x).all(|(y, x)| *y == 3.0 * x));

    for (script, limit, wanted) in [
        (
            "import sys; sys.exit('no such axis')",
            10_000,
            "no such axis",
        ),
        (
            "import time; time.sleep(60)",
            300,
            "did not end within 0.3 s",
        ),
        ("pass", 10_000, "wrote no y.npy"),
        (
            "open('y.npy','w').write('1 2 3')",
            10_000,
            "y.npy: not a .npy file",
        ),
    ] {
        let task = Arc::new(load_files(&toml, &[("reference.py", script)]).unwrap());
        let size = task.sizes_for(Purpose::Smoke).next().unwrap();
        let problem = Problem::new(&task, size, InputCase::Normal, 1).unwrap();
        let error = warptree::task::reference::expected(&problem, Duration::from_millis(limit))
            .unwrap_err()
            .to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

/// Whatever kernel it is made from, a new task loads, and says what is a guess.
#[test]
fn a_new_task_loads_right_away() {
    let compiled = fs::read_to_string("tests/data/task/axpy.ptx").unwrap();
    let seed = embedded("reduce_sum").seed.to_string();
    let transpose = embedded("transpose").seed.to_string();
    for (text, roles) in [
        (
            compiled.as_str(),
            "p0 input, p1 output, p2 scalar, p3 scalar",
        ),
        (seed.as_str(), "x input, out output"),
        (
            transpose.as_str(),
            "x input, out output, rows scalar, cols scalar",
        ),
    ] {
        let scaffold = new_task("mine", text, Path::new("from.ptx")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        scaffold.write(folder.path()).unwrap();
        assert!(
            scaffold.write(folder.path()).is_err(),
            "nothing is overwritten"
        );
        let next = scaffold.next(folder.path()).join("\n");
        let tasks = folder.path().display();
        let eval = format!("`warptree eval mine {tasks}/mine/seed.ptx --tasks {tasks}`");
        assert!(next.contains(&eval), "{next}");
        let here = scaffold.next(Path::new("tasks")).join("\n");
        assert!(
            here.contains("`warptree search mine`") && here.contains("in search_spaces/mine/"),
            "{here}"
        );
        let catalogue = Catalogue::open(Some(folder.path())).unwrap();
        let task = Arc::new(catalogue.task("mine").unwrap());
        let guessed: Vec<String> = task
            .params
            .iter()
            .map(|param| format!("{} {:?}", param.name, param.role).to_lowercase())
            .collect();
        assert_eq!(guessed.join(", "), roles);
        let bytes = format!("bytes = \"{} * n\"", 4 * roles.matches("put").count());
        assert!(scaffold.files[0].1.contains(&bytes), "{bytes}");
        assert!(task.seed.contains("//@ launch"));
        Source::parse(&task.seed).unwrap();
        let size = task.sizes_for(Purpose::Smoke).next().unwrap();
        let problem = Problem::new(&task, size, InputCase::Normal, 1).unwrap();
        let error = warptree::task::reference::expected(&problem, Duration::from_secs(60));
        assert!(error.is_err(), "the reference is still to be written");
    }
    for (name, text, wanted) in [
        ("../x", compiled.as_str(), "cannot name a task"),
        ("mine", ".version 8.0\n", "has no `.entry`"),
        ("mine", ".version 8.0\n.entry k() {", "from.ptx:2"),
    ] {
        let error = new_task(name, text, Path::new("from.ptx")).unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
    }
}

#[test]
fn a_folder_of_tasks_overrides_and_brings_its_spaces() {
    let folder = tempfile::tempdir().unwrap();
    let tasks = folder.path().join("tasks");
    let spaces = folder.path().join("search_spaces/reduce_sum");
    for path in [tasks.join("reduce_sum/mistakes"), spaces.clone()] {
        fs::create_dir_all(path).unwrap();
    }
    for file in ["task.toml", "cub.cu"] {
        let of_task = Path::new("reduce_sum").join(file);
        fs::copy(Path::new("tasks").join(&of_task), tasks.join(&of_task)).unwrap();
    }
    fs::write(tasks.join("reduce_sum/seed.ptx"), "// mine").unwrap();
    fs::write(spaces.join("fast.ptx"), "// a space").unwrap();
    let catalogue = Catalogue::open(Some(&tasks)).unwrap();
    let mine = catalogue.task("reduce_sum").unwrap();
    assert_eq!(mine.origin, Origin::Folder(tasks.join("reduce_sum")));
    assert_eq!(
        (&*mine.seed, mine.spaces[0].name.as_str()),
        ("// mine", "fast")
    );
    assert_ne!(mine.digest, embedded("reduce_sum").digest);
    fs::write(spaces.join("faster.ptx"), "// another space").unwrap();
    let catalogue = Catalogue::open(Some(&tasks)).unwrap();
    let more = catalogue.task("reduce_sum").unwrap();
    assert_eq!(more.spaces.len(), 2);
    assert_eq!(more.digest, mine.digest, "what is computed stays");
    for way in [
        tasks.join("reduce_sum/.."),
        tasks.join("."),
        tasks.join("../tasks/"),
    ] {
        let same = Catalogue::open(Some(&way)).unwrap();
        let spaces = same.task("reduce_sum").unwrap().spaces.len();
        assert_eq!(spaces, 2, "{}", way.display());
    }
    for file in ["task.toml", "seed.ptx"] {
        let path = tasks.join("reduce_sum").join(file);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("\u{feff}{text}")).unwrap();
    }
    let marked = catalogue.task("reduce_sum").unwrap();
    assert_eq!(&*marked.seed, "// mine", "a byte order mark is no text");
    assert_eq!(
        catalogue.task("transpose").unwrap().origin,
        Origin::Embedded
    );

    let mistake = tasks.join("reduce_sum/mistakes/odd.ptx");
    for (text, wanted) in [
        ("// none", "odd.ptx:1: a mistake says first"),
        ("//! expect: broken; it is", "`broken` is no verdict"),
        ("//! expect: wrong", "the reason is missing"),
        (
            "//! expect: wrong; line 9; it is",
            "`9` is no line of this file",
        ),
        ("//! expect: racy; here; it is", "no line is marked"),
        (
            "//! expect: wrong; bottleneck issue; it is",
            "only a measured kernel",
        ),
        (
            "//! expect: measured; bottleneck odd; it is",
            "`odd` is no bottleneck",
        ),
    ] {
        fs::write(&mistake, text).unwrap();
        let error = catalogue.task("reduce_sum").unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    fs::write(
        &mistake,
        "//! expect: racy | wrong; here; code missing-barrier; why; so\nbar.sync 0;\n//! ^ here\n",
    )
    .unwrap();
    let expect = &catalogue.task("reduce_sum").unwrap().mistakes[0].expect;
    assert_eq!(expect.stages, ["racy", "wrong"]);
    assert_eq!((expect.line, expect.why.as_str()), (Some(2), "why; so"));

    let missing = Catalogue::open(Some(&folder.path().join("none"))).unwrap_err();
    assert!(missing.to_string().contains("no such folder of tasks"));
}

fn embedded(name: &str) -> Arc<Task> {
    Arc::new(Catalogue::embedded().task(name).unwrap())
}

fn problem(task: &str, dims: &[(&str, i64)], case: InputCase) -> Problem {
    let size = Size {
        purpose: Purpose::Smoke,
        dims: dims
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value))
            .collect(),
    };
    Problem::new(&embedded(task), &size, case, 42).unwrap()
}

fn only(problem: &Problem) -> Expected {
    let [expected] =
        <[Expected; 1]>::try_from(expected(problem, Duration::from_secs(60)).unwrap()).unwrap();
    expected
}

fn floats(bytes: &[u8]) -> Vec<f64> {
    let elements = bytes.as_chunks::<4>().0.iter();
    elements
        .map(|x| f64::from(f32::from_le_bytes(*x)))
        .collect()
}

/// Loads a task with this `task.toml` and a seed of no interest.
fn load_with(toml: &str) -> Result<Task, TaskError> {
    load_files(toml, &[])
}

fn load_files(toml: &str, files: &[(&str, &str)]) -> Result<Task, TaskError> {
    let folder = tempfile::tempdir().unwrap();
    let task = folder.path().join("tasks/tried");
    fs::create_dir_all(&task).unwrap();
    fs::write(task.join("task.toml"), toml).unwrap();
    fs::write(
        task.join("seed.ptx"),
        "//@ launch k grid=(1) block=(1) args=()\n",
    )
    .unwrap();
    for (name, text) in files {
        fs::write(task.join(name), text).unwrap();
    }
    Catalogue::open(Some(&folder.path().join("tasks")))?.task("tried")
}
