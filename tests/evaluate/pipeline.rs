//! The judge against planted devices: one that is honest, and one for each way in which a kernel fails.
//! ptxas is a stub, so that these run everywhere.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use warptree::device::{
    About, Contents, Device, Ended, Execution, Gpu, Job, Reserved, RigError, Timed, Timing, Whole,
};
use warptree::evaluate::observe::Observers;
use warptree::evaluate::ptxas::Assembler;
use warptree::evaluate::{Cached, Evaluator, Keyed, Pipeline, Settings};
use warptree::source::{Argument, Point, Source};
use warptree::task::{Catalogue, Purpose, Task};
use warptree::units::{Bytes, Flops, Nanos, SmArch};
use warptree::verdict::{
    Bottleneck, Denominator, Diagnosis, Diagnostic, Evidence, InstructionScore, Severity, Time,
    Verdict, feedback,
};

use super::profile::{ENDED, Stub, log_of};
use super::ptxas::stub;
use super::sanitizer;

/// What a device does with a run; `u32` counts runs from 0.
type Act = Box<dyn Fn(&Job<'_>, u32) -> Execution + Send + Sync>;

struct Scripted {
    gpu: Gpu,
    about: About,
    act: Act,
    runs: AtomicU32,
    timing: Box<dyn Fn() -> Timing + Send + Sync>,
    seen: Mutex<Vec<u8>>,
    /// Tools can run on it too.
    ordinal: Option<u32>,
}

impl Device for Scripted {
    fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    fn about(&self) -> &About {
        &self.about
    }

    fn execute(&self, job: &Job<'_>) -> Result<Execution, RigError> {
        for buffer in job.buffers {
            if let Contents::Fill(byte) = buffer.contents {
                self.seen.lock().unwrap().push(byte);
            }
        }
        Ok((self.act)(job, self.runs.fetch_add(1, Ordering::SeqCst)))
    }

    fn time(&self, job: &Job<'_>) -> Result<Timing, RigError> {
        let bytes: u64 = job.buffers.iter().map(|buffer| buffer.bytes.0).sum();
        assert!(
            bytes > 1 << 20,
            "the headline size is timed, not a small one"
        );
        Ok((self.timing)())
    }

    fn reserve(&self) -> Option<Reserved<'_>> {
        self.ordinal.map(Reserved::unguarded)
    }
}

fn scripted(act: impl Fn(&Job<'_>, u32) -> Execution + Send + Sync + 'static) -> Scripted {
    Scripted {
        gpu: Gpu::default(),
        about: About {
            identity: "scripted 1".into(),
            checks: vec!["everything a script can check".into()],
            cannot_check: vec!["everything else".into()],
            largest: Bytes(64 << 20),
            runs_timed_size: false,
            chooses_order: false,
        },
        act: Box::new(act),
        runs: AtomicU32::new(0),
        timing: Box::new(|| timed(1e6)),
        seen: Mutex::new(Vec::new()),
        ordinal: None,
    }
}

fn timed(ns: f64) -> Timing {
    Timing::Timed(Box::new(Timed {
        time: Time::Measured {
            median: Nanos::new(ns).unwrap(),
            samples: vec![ns],
            gpu: "NVIDIA H200".into(),
        },
        diagnosis: Some(Diagnosis {
            source: "script".into(),
            bottleneck: Bottleneck::MemoryBandwidth,
            evidence: vec![Evidence {
                text: "loads miss".into(),
                line: Some(1),
                advice: None,
            }],
            stalls: Vec::new(),
            occupancy: None,
            flops: Vec::new(),
            dram: None,
            target_instructions: Vec::new(),
            executed: None,
            hardware: None,
        }),
        floor: None,
        unsteady: Vec::new(),
        violations: Vec::new(),
        left: Vec::new(),
        afterwards: None,
        notes: Vec::new(),
    }))
}

fn execution(ended: Ended) -> Execution {
    Execution {
        ended,
        outputs: Vec::new(),
        wholes: Vec::new(),
        violations: Vec::new(),
        races: Vec::new(),
        findings: Vec::new(),
        flops: None,
        executed: None,
    }
}

fn input(job: &Job<'_>, name: &str) -> Vec<u8> {
    let buffer = job.buffers.iter().find(|b| b.name == name).unwrap();
    match &buffer.contents {
        Contents::Bytes(bytes) => bytes.to_vec(),
        Contents::Fill(byte) => vec![*byte; usize::try_from(buffer.bytes.0).unwrap()],
        Contents::Generated(_) => panic!("small inputs come as bytes"),
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let chunks = bytes.chunks_exact(4);
    chunks
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

/// What the transposition's kernel should do; integers of the launch are its rows and columns.
fn transpose(job: &Job<'_>) -> Execution {
    let ints: Vec<usize> = job.plan.launches[0]
        .args
        .iter()
        .filter_map(|arg| match arg {
            Argument::Int(value) => Some(usize::try_from(*value).unwrap()),
            Argument::Float(_)
            | Argument::Buffer(_)
            | Argument::Workspace(_)
            | Argument::TensorMap(_) => None,
        })
        .collect();
    let (rows, cols) = (ints[0], ints[1]);
    let x = input(job, "x");
    let mut out = vec![0; x.len()];
    for row in 0..rows {
        for col in 0..cols {
            let (from, to) = (4 * (row * cols + col), 4 * (col * rows + row));
            out[to..to + 4].copy_from_slice(&x[from..from + 4]);
        }
    }
    Execution {
        outputs: vec![("out".into(), out)],
        ..execution(Ended::Completed)
    }
}

fn sum(job: &Job<'_>) -> Execution {
    let x = floats(&input(job, "x"));
    let total: f64 = x.iter().map(|&x| f64::from(x)).sum();
    #[expect(clippy::cast_possible_truncation, reason = "as a kernel's result")]
    let total = total as f32;
    Execution {
        outputs: vec![("out".into(), total.to_le_bytes().to_vec())],
        flops: Some(vec![("fp32".into(), Flops(x.len() as f64))]),
        ..execution(Ended::Completed)
    }
}

fn diagnostic(code: &str, severity: Severity, line: u32) -> Diagnostic {
    Diagnostic {
        severity,
        code: code.into(),
        message: format!("planted {code}"),
        line: Some(line),
        other_line: None,
        help: None,
    }
}

fn task(name: &str) -> Task {
    Catalogue::embedded().task(name).unwrap()
}

/// A kernel for the transposition that only the stub assembler will ever see.
const KERNEL: &str = "\
//@ knob B = 32 in {16, 32}
//@ launch t grid=(ceil_div(rows * cols, B)) block=(B) args=(x, out, rows, cols)
.version 8.0
.target sm_90a
.address_size 64
.visible .entry t(.param .u64 x, .param .u64 out, .param .u64 rows, .param .u64 cols)
{
    ret;
}
";

const SPEAK: &str = "printf '\\177ELF' > kernel.cubin; cat >&2 <<'END'
ptxas info    : Compiling entry function 't' for 'sm_90a'
ptxas info    : Function properties for t
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 1024 bytes smem
END";

struct Bench {
    pipeline: Pipeline,
    device: Arc<Scripted>,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn observed(self, observers: Observers) -> Self {
        Self {
            pipeline: self.pipeline.with_observers(observers),
            ..self
        }
    }

    fn confirm(&self, text: &str) -> Verdict {
        let source = Source::parse(text).unwrap();
        let point = source.space().default_point().unwrap();
        self.pipeline.confirm(&source, &point).unwrap().verdict
    }
}

fn bench_with(task: Task, device: Scripted, ptxas: &str) -> Bench {
    let (folder, assembler): (_, Assembler) = stub(ptxas);
    let device = Arc::new(device);
    let pipeline = Pipeline::new(Settings {
        task: Arc::new(task),
        device: Arc::clone(&device) as Arc<dyn Device>,
        assembler,
        arch: SmArch::SM_90A,
        ptxas_options: Vec::new(),
        verify_seed: 7,
        repeats: 1,
        deterministic: true,
    });
    Bench {
        pipeline: pipeline.unwrap(),
        device,
        _folder: folder,
    }
}

fn bench(device: Scripted) -> Bench {
    bench_with(task("transpose"), device, SPEAK)
}

impl Bench {
    fn judge(&self, text: &str) -> Verdict {
        let source = Source::parse(text).unwrap();
        let point = source.space().default_point().unwrap();
        self.pipeline.evaluate(&source, &point).unwrap().verdict
    }
}

#[test]
fn an_honest_device_is_measured_and_says_what_was_checked() {
    let bench = bench(scripted(|job, _| transpose(job)));
    let verdict = bench.judge(KERNEL);
    let Verdict::Measured(measurement) = &verdict else {
        panic!("{verdict:?}")
    };
    assert!(measurement.score.correct);
    assert_eq!(measurement.score.speedup, None);
    assert_eq!(measurement.resources[0].registers, 32);
    assert!(matches!(
        measurement.score.instructions,
        InstructionScore::NotRequired { value: 1.0 }
    ));
    let checked = measurement.checked.join("\n");
    for part in [
        "ptxas 0.0",
        "sm_90a",
        "smoke",
        "edge",
        "NaN",
        "inputs unchanged",
        "a script can check",
        "time floor",
    ] {
        assert!(checked.contains(part), "{part} missing in:\n{checked}");
    }
    let not_checked = measurement.not_checked.join("\n");
    for part in [
        "frontier: not measured",
        "timed size",
        "everything else",
        "not counted",
    ] {
        assert!(
            not_checked.contains(part),
            "{part} missing in:\n{not_checked}"
        );
    }
    // The rendering's first line is the source's third: the header is gone.
    let evidence = &measurement.diagnosis.as_ref().unwrap().evidence;
    assert_eq!(evidence[0].line, Some(3));
    assert!(
        evidence[1].text.contains("% of the roofline"),
        "{evidence:?}"
    );
}

#[test]
fn outputs_arrive_poisoned_in_two_ways() {
    let bench = bench(scripted(|job, _| transpose(job)));
    bench.judge(KERNEL);
    let seen = bench.device.seen.lock().unwrap();
    assert!(
        seen.contains(&0xff) && seen.iter().any(|byte| *byte != 0xff),
        "{seen:?}"
    );
}

#[test]
fn every_failure_of_a_run_is_its_verdict_with_the_source_line() {
    type Case = (&'static str, fn(&Job<'_>, u32) -> Execution, &'static str);
    let cases: &[Case] = &[
        (
            "fault",
            |_, _| {
                execution(Ended::Faulted(vec![diagnostic(
                    "out-of-bounds",
                    Severity::Error,
                    6,
                )]))
            },
            "faulted",
        ),
        (
            "hang",
            |_, _| {
                execution(Ended::Hung(vec![diagnostic(
                    "instruction-budget",
                    Severity::Error,
                    6,
                )]))
            },
            "hung",
        ),
        (
            "refusal",
            |_, _| execution(Ended::Refused("too much".into())),
            "over limits",
        ),
        (
            "race",
            |job, _| Execution {
                races: vec![diagnostic("missing-barrier", Severity::Error, 6)],
                ..transpose(job)
            },
            "racy",
        ),
        (
            "uninitialised",
            |job, _| Execution {
                findings: vec![diagnostic("uninitialised-read", Severity::Error, 6)],
                ..transpose(job)
            },
            "faulted",
        ),
        (
            "warning only",
            |job, _| Execution {
                findings: vec![diagnostic("uninitialised-read", Severity::Warning, 6)],
                ..transpose(job)
            },
            "measured",
        ),
        (
            "modified input",
            |job, _| Execution {
                violations: vec!["input x was modified".into()],
                ..transpose(job)
            },
            "wrong",
        ),
        (
            "unwritten",
            |job, _| Execution {
                outputs: vec![("out".into(), input(job, "out"))],
                ..execution(Ended::Completed)
            },
            "wrong",
        ),
        (
            "zeros",
            |job, _| Execution {
                outputs: vec![("out".into(), vec![0; input(job, "out").len()])],
                ..execution(Ended::Completed)
            },
            "wrong",
        ),
        (
            "copy",
            |job, _| Execution {
                outputs: vec![("out".into(), input(job, "x"))],
                ..execution(Ended::Completed)
            },
            "wrong",
        ),
        (
            "right once",
            |job, nth| {
                if nth == 0 {
                    transpose(job)
                } else {
                    Execution {
                        outputs: vec![("out".into(), input(job, "x"))],
                        ..execution(Ended::Completed)
                    }
                }
            },
            "wrong",
        ),
    ];
    for (name, act, stage) in cases {
        let verdict = bench(scripted(*act)).judge(KERNEL);
        assert_eq!(verdict.stage(), *stage, "{name}: {verdict:?}");
        for finding in verdict.diagnostics() {
            assert_eq!(finding.line, Some(8), "{name}: {finding:?}");
        }
        assert!(!feedback(&verdict, KERNEL, 2000).is_empty());
    }
}

#[test]
fn an_unwritten_output_and_a_modified_input_are_told_as_such() {
    let unwritten = bench(scripted(|job, _| Execution {
        outputs: vec![("out".into(), input(job, "out"))],
        ..execution(Ended::Completed)
    }));
    let text = feedback(&unwritten.judge(KERNEL), KERNEL, 2000);
    assert!(text.contains("never written"), "{text}");
    let modified = bench(scripted(|job, _| Execution {
        violations: vec!["input x was modified".into()],
        ..transpose(job)
    }));
    let text = feedback(&modified.judge(KERNEL), KERNEL, 2000);
    assert!(text.contains("input x was modified"), "{text}");
}

/// Within tolerance both times, yet not the same bits.
fn wavering(job: &Job<'_>, nth: u32) -> Execution {
    let mut execution = sum(job);
    if nth == 1 {
        execution.outputs[0].1[0] ^= 1;
    }
    execution
}

const SUM: &str = "\
//@ launch t grid=(1) block=(32) args=(x, out, n)
.version 8.0
.target sm_90a
.address_size 64
.visible .entry t(.param .u64 x, .param .u64 out, .param .u64 n)
{
    ret;
}
";

#[test]
fn repeats_must_agree_bit_for_bit_unless_the_task_allows_otherwise() {
    let mut strict = task("reduce_sum");
    strict.cases = vec![strict.cases[0]];
    let mut lenient = strict.clone();
    strict.nondeterministic.clear();
    lenient.nondeterministic = vec!["out".into()];
    let verdict = bench_with(strict, scripted(wavering), SPEAK).judge(SUM);
    assert!(
        verdict
            .diagnostics()
            .iter()
            .any(|d| d.code == "repeats-differ"),
        "{verdict:?}"
    );
    let verdict = bench_with(lenient, scripted(wavering), SPEAK).judge(SUM);
    assert_eq!(verdict.stage(), "measured", "{verdict:?}");
}

#[test]
fn a_claim_is_verified_with_every_input_case_at_every_size() {
    let counted = || scripted(|job, _| transpose(job));
    let task = task("transpose");
    let source = Source::parse(KERNEL).unwrap();
    let point = source.space().default_point().unwrap();
    let runs = |judge: fn(&Pipeline, &Source, &Point) -> bool| {
        let bench = bench(counted());
        assert!(judge(&bench.pipeline, &source, &point));
        bench.device.runs.load(Ordering::SeqCst) as usize
    };
    let brief = runs(|p, s, at| p.evaluate(s, at).unwrap().verdict.measurement().is_some());
    let full = runs(|p, s, at| p.confirm(s, at).unwrap().verdict.measurement().is_some());
    let small = task
        .sizes
        .iter()
        .filter(|size| size.purpose != Purpose::Bench)
        .count();
    let smoke = task.sizes_for(Purpose::Smoke).count();
    let all = task.cases.len();
    assert_eq!(full, small * (all + 1));
    assert_eq!(brief, smoke * (all + 1) + (small - smoke) * 2.min(all));
}

#[test]
fn a_cheap_failure_stops_before_the_rest_is_run() {
    let bench = bench(scripted(|_, _| execution(Ended::Faulted(Vec::new()))));
    bench.judge(KERNEL);
    assert_eq!(bench.device.runs.load(Ordering::SeqCst), 1);
}

#[test]
fn sizes_that_are_too_large_are_not_run_and_are_said() {
    let mut device = scripted(|job, _| transpose(job));
    device.about.largest = Bytes(100_000);
    let verdict = bench(device).judge(KERNEL);
    let Verdict::Measured(measurement) = &verdict else {
        panic!("{verdict:?}")
    };
    let told = measurement
        .not_checked
        .iter()
        .filter(|text| text.contains("at most 97.7 KiB are compared here"));
    assert!(told.count() > 0, "{:?}", measurement.not_checked);

    let mut device = scripted(|job, _| transpose(job));
    device.about.largest = Bytes(0);
    let bench = bench(device);
    let source = Source::parse(KERNEL).unwrap();
    let point = source.space().default_point().unwrap();
    let error = bench.pipeline.evaluate(&source, &point);
    assert!(
        error.is_err(),
        "nothing verified is never correct: {error:?}"
    );
}

/// Transposes; of a large output only what is sampled, as a GPU's worker would.
fn transpose_sampled(job: &Job<'_>) -> Execution {
    let [sampled] = job.sampled else {
        return transpose(job);
    };
    let Contents::Generated(generator) = &job.buffers[0].contents else {
        panic!("a large input is generated")
    };
    let dims = task("transpose")
        .sizes_for(Purpose::Bench)
        .next()
        .unwrap()
        .dims
        .clone();
    let (rows, cols) = (dims["rows"] as u64, dims["cols"] as u64);
    let indices = sampled.elements.as_chunks::<8>().0;
    let mut bytes = vec![0; indices.len() * 4];
    for (index, element) in indices.iter().zip(bytes.as_chunks_mut::<4>().0) {
        let index = u64::from_le_bytes(*index);
        generator(4 * (index % rows * cols + index / rows), element);
    }
    Execution {
        outputs: vec![(sampled.output.clone(), bytes)],
        wholes: vec![Whole {
            output: sampled.output.clone(),
            digest: 7,
            untouched: 0,
        }],
        ..execution(Ended::Completed)
    }
}

#[test]
fn a_large_output_is_judged_by_samples_its_hash_and_what_was_left_unwritten() {
    let judge = |spoil: fn(&mut Execution, u32)| {
        let mut device = scripted(move |job, run| {
            let mut execution = transpose_sampled(job);
            if !execution.wholes.is_empty() {
                spoil(&mut execution, run);
            }
            execution
        });
        device.about.runs_timed_size = true;
        device.about.largest = Bytes(4 << 30);
        bench(device).judge(KERNEL)
    };
    let honest = judge(|_, _| {});
    let Verdict::Measured(measurement) = &honest else {
        panic!("{honest:?}")
    };
    let checked = measurement.checked.join("\n");
    assert!(checked.contains("sampled elements of out"), "{checked}");
    let not_checked = measurement.not_checked.join("\n");
    assert!(!not_checked.contains("timed size"), "{not_checked}");

    let gaps = judge(|execution, _| execution.wholes[0].untouched = 3);
    let Verdict::Wrong { mismatch } = &gaps else {
        panic!("{gaps:?}")
    };
    assert_eq!(mismatch.wrong, 3);
    assert!(mismatch.pattern.as_ref().unwrap().contains("never written"));

    let off = judge(|execution, _| execution.outputs[0].1[40] ^= 1);
    assert!(
        matches!(&off, Verdict::Wrong { mismatch } if mismatch.wrong == 1),
        "{off:?}"
    );

    let short = judge(|execution, _| execution.outputs[0].1.truncate(400));
    assert!(matches!(&short, Verdict::Wrong { .. }), "{short:?}");

    let unsteady = judge(|execution, run| execution.wholes[0].digest = u64::from(run));
    let Verdict::Racy { diagnostics } = &unsteady else {
        panic!("{unsteady:?}")
    };
    assert!(
        diagnostics[0].message.contains("by the hash of the whole"),
        "{diagnostics:?}"
    );
}

#[test]
fn faster_than_possible_is_void() {
    let mut device = scripted(|job, _| transpose(job));
    device.timing = Box::new(|| timed(1000.0));
    let verdict = bench(device).judge(KERNEL);
    let Verdict::Voided { reasons, .. } = &verdict else {
        panic!("{verdict:?}")
    };
    assert!(reasons[0].contains("faster than possible"), "{reasons:?}");
    assert!(verdict.measurement().is_none());
}

#[test]
fn fewer_operations_than_any_honest_algorithm_are_void() {
    let lazy = |job: &Job<'_>, _| Execution {
        flops: Some(vec![("fp32".into(), Flops(10.0))]),
        ..sum(job)
    };
    let verdict = bench_with(task("reduce_sum"), scripted(lazy), SPEAK).judge(SUM);
    assert!(
        matches!(&verdict, Verdict::Voided { reasons, .. } if reasons[0].contains("floating-point operations")),
        "{verdict:?}"
    );
}

#[test]
fn tensor_cores_in_an_undeclared_type_are_void() {
    let downcast = |job: &Job<'_>, _| {
        let mut execution = sum(job);
        execution
            .flops
            .as_mut()
            .unwrap()
            .push(("tensor tf32".into(), Flops(100.0)));
        execution
    };
    let verdict = bench_with(task("reduce_sum"), scripted(downcast), SPEAK).judge(SUM);
    assert!(
        matches!(&verdict, Verdict::Voided { reasons, .. } if reasons[0].contains("tf32")),
        "{verdict:?}"
    );
}

#[test]
fn timed_outputs_that_differ_are_void() {
    let mut device = scripted(|job, _| transpose(job));
    device.timing = Box::new(|| match timed(1e6) {
        Timing::Timed(mut timed) => {
            timed.unsteady.push("out".into());
            Timing::Timed(timed)
        }
        other => other,
    });
    assert_eq!(bench(device).judge(KERNEL).stage(), "voided");
}

#[test]
fn a_timing_that_fails_is_a_verdict() {
    for (stage, timing) in [
        (
            "faulted",
            Timing::Faulted(vec![diagnostic("fault", Severity::Error, 6)]),
        ),
        (
            "hung",
            Timing::Hung(vec![diagnostic("hang", Severity::Error, 6)]),
        ),
        ("over limits", Timing::Refused("no".into())),
    ] {
        let mut device = scripted(|job, _| transpose(job));
        device.timing = Box::new(move || timing.clone());
        let verdict = bench(device).judge(KERNEL);
        assert_eq!(verdict.stage(), stage);
        assert!(verdict.diagnostics().iter().all(|d| d.line == Some(8)));
    }
}

#[test]
fn launches_that_do_not_fit_the_kernel_point_at_themselves() {
    for (from, to, words) in [
        ("launch t grid", "launch u grid", "no `.entry`"),
        ("args=(x, out, rows, cols)", "args=(x, out)", "2 arguments"),
        ("ret;\n}", "ret;\n", "brace"),
        ("block=(B)", "block=(B * 100)", "threads a block"),
    ] {
        let text = KERNEL.replace(from, to);
        let bench = bench(scripted(|job, _| transpose(job)));
        let verdict = bench.judge(&text);
        let told = feedback(&verdict, &text, 2000);
        assert!(
            told.contains(words) || words == "brace" && verdict.stage() == "unrenderable",
            "{words}: {told}"
        );
        assert_eq!(bench.device.runs.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn what_ptxas_refuses_is_told_at_the_sources_line() {
    let refuse = "echo \"ptxas kernel.ptx, line 6; error   : Unknown symbol '%r99'\" >&2; exit 255";
    let verdict =
        bench_with(task("transpose"), scripted(|job, _| transpose(job)), refuse).judge(KERNEL);
    assert_eq!(verdict.stage(), "unassembled");
    assert_eq!(verdict.diagnostics()[0].line, Some(8), "{verdict:?}");
}

#[test]
fn spills_halve_the_instruction_part_and_go_along() {
    let spilling = SPEAK.replace(
        "0 bytes spill stores, 0 bytes spill loads",
        "100 bytes spill stores, 100 bytes spill loads",
    );
    let verdict = bench_with(
        task("transpose"),
        scripted(|job, _| transpose(job)),
        &spilling,
    )
    .judge(KERNEL);
    let factor = verdict.measurement().unwrap().score.instructions.factor();
    assert_eq!(factor, 0.5, "{verdict:?}");
}

#[test]
fn the_seed_is_the_denominator() {
    let device = scripted(|job, _| sum(job));
    let speak = "printf '\\177ELF' > kernel.cubin";
    let bench = bench_with(task("reduce_sum"), device, speak);
    let evaluation = bench.pipeline.judge_seed().unwrap();
    let speedup = evaluation
        .verdict
        .measurement()
        .unwrap()
        .score
        .speedup
        .clone()
        .unwrap();
    assert_eq!((speedup.ratio, speedup.over), (1.0, Denominator::Seed));
    let later = bench.judge(SUM);
    assert!(later.measurement().unwrap().score.speedup.is_some());
}

#[test]
fn target_instructions_are_counted_at_the_smoke_sizes() {
    let mut wanting = task("reduce_sum");
    let mut target = BTreeMap::new();
    target.insert(
        SmArch::SM_90A,
        vec![warptree::task::TargetInstruction {
            mnemonic: "redux.sync".into(),
            at_least: Some("n".into()),
        }],
    );
    wanting.targets = target;
    let counted = |share: f64| {
        move |job: &Job<'_>, _| {
            let n = job.buffers[0].bytes.0 / 4;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "small"
            )]
            let count = (n as f64 * share) as u64;
            Execution {
                executed: Some(vec![("redux.sync.add.u32".into(), count)]),
                ..sum(job)
            }
        }
    };
    let factor = |device: Scripted| {
        let verdict = bench_with(wanting.clone(), device, SPEAK).judge(SUM);
        verdict.measurement().unwrap().score.instructions
    };
    assert_eq!(
        factor(scripted(counted(1.0))),
        InstructionScore::Counted { value: 1.0 }
    );
    let half = factor(scripted(counted(0.5)));
    assert!(
        matches!(half, InstructionScore::Counted { value } if (value - 0.5).abs() < 1e-3),
        "{half:?}"
    );
    assert_eq!(
        factor(scripted(|job, _| sum(job))),
        InstructionScore::NotProfiled { value: 1.0 }
    );
}

#[test]
fn the_cache_answers_a_question_once_and_drops_lines_of_another_text() {
    let bench = bench(scripted(|job, _| transpose(job)));
    let Bench {
        pipeline,
        device,
        _folder,
    } = bench;
    let cached = Cached::new(pipeline);
    let source = Source::parse(KERNEL).unwrap();
    let point = source.space().default_point().unwrap();
    let first = cached.evaluate(&source, &point).unwrap();
    let runs = device.runs.load(Ordering::SeqCst);
    let again = cached.evaluate(&source, &point).unwrap();
    assert_eq!(first, again);
    assert_eq!(
        (device.runs.load(Ordering::SeqCst), cached.hits()),
        (runs, 1)
    );

    // The same kernel with a remark in front: the same verdict, but no line of it is to be trusted.
    let other = Source::parse(&format!("//@ about another text\n{KERNEL}")).unwrap();
    let verdict = cached.evaluate(&other, &point).unwrap().verdict;
    assert_eq!(
        (device.runs.load(Ordering::SeqCst), cached.hits()),
        (runs, 2)
    );
    let evidence = &verdict
        .measurement()
        .unwrap()
        .diagnosis
        .as_ref()
        .unwrap()
        .evidence;
    assert!(evidence.iter().all(|evidence| evidence.line.is_none()));

    // Another setting is another question.
    let mut point = point;
    point.0[0] = 0;
    cached.evaluate(&source, &point).unwrap();
    assert!(device.runs.load(Ordering::SeqCst) > runs);
    let before = device.runs.load(Ordering::SeqCst);
    cached.confirm(&source, &point).unwrap();
    assert!(
        device.runs.load(Ordering::SeqCst) > before,
        "a claim is judged anew"
    );
}

#[test]
fn concurrent_workers_judge_a_candidate_once() {
    let bench = bench(scripted(|job, _| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        transpose(job)
    }));
    let Bench {
        pipeline,
        device,
        _folder,
    } = bench;
    let cached = Cached::new(pipeline);
    let source = Source::parse(KERNEL).unwrap();
    let point = source.space().default_point().unwrap();
    let alone = {
        let mut point = point.clone();
        point.0[0] = 0;
        cached.evaluate(&source, &point).unwrap();
        device.runs.swap(0, Ordering::SeqCst)
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| cached.evaluate(&source, &point).unwrap());
        }
    });
    assert_eq!(device.runs.load(Ordering::SeqCst), alone);
    assert_eq!(cached.hits(), 3);
}

#[test]
fn keys_differ_with_whatever_could_change_the_verdict() {
    let source = Source::parse(KERNEL).unwrap();
    let point = source.space().default_point().unwrap();
    let key = |bench: &Bench| bench.pipeline.key(&source, &point).unwrap();
    let plain = key(&bench(scripted(|job, _| transpose(job))));
    assert_eq!(plain, key(&bench(scripted(|job, _| transpose(job)))));
    let mut device = scripted(|job, _| transpose(job));
    device.about.identity = "scripted 2".into();
    assert_ne!(plain, key(&bench(device)));
    let mut other_task = task("transpose");
    other_task.digest = warptree::units::Digest::of("other");
    assert_ne!(
        plain,
        key(&bench_with(
            other_task,
            scripted(|job, _| transpose(job)),
            SPEAK
        ))
    );
}

/// A GPU whose ncu says that so many bytes were read.
fn profiled(read: &str) -> (Bench, Stub) {
    let mut device = scripted(|job, _| transpose(job));
    device.ordinal = Some(0);
    let row = [("dram__bytes_read.sum", read)];
    let log = log_of("t", "(4194304, 1, 1)", "(32, 1, 1)", &[&row]);
    let stub = Stub::new();
    let profiler = stub.profiler(&[(log, ENDED, 0)]);
    let none = Err("compute-sanitizer is not installed".to_owned());
    (
        bench(device).observed(Observers::new(Ok(profiler), none)),
        stub,
    )
}

#[test]
fn the_leader_is_profiled_and_others_say_that_they_are_not() {
    let (bench, stub) = profiled("540,000,000");
    let leader = bench.judge(KERNEL);
    let measurement = leader.measurement().unwrap();
    let diagnosis = measurement.diagnosis.as_ref().unwrap();
    assert_eq!(diagnosis.source, "ncu 2025.3.1.0");
    let checked = measurement.checked.join("\n");
    for part in [
        "bytes read from device memory",
        "floating-point operations",
        "tensor-core types",
    ] {
        assert!(checked.contains(part), "{part} missing in:\n{checked}");
    }
    let again = bench.judge(KERNEL);
    let not_checked = again.measurement().unwrap().not_checked.join("\n");
    assert!(
        not_checked.contains("not profiled: only kernels that take the lead"),
        "{not_checked}"
    );
    assert_eq!(stub.asked().len(), 1);
    let claimed = bench.confirm(KERNEL);
    let measurement = claimed.measurement().unwrap();
    assert!(measurement.diagnosis.as_ref().unwrap().hardware.is_some());
    let not_checked = measurement.not_checked.join("\n");
    assert!(
        not_checked.contains("compute-sanitizer is not installed"),
        "{not_checked}"
    );
}

#[test]
fn a_profile_that_shows_unread_inputs_voids() {
    let (bench, _stub) = profiled("100,000,000");
    let verdict = bench.judge(KERNEL);
    let Verdict::Voided { reasons, .. } = &verdict else {
        panic!("{verdict:?}")
    };
    assert!(reasons[0].contains("must be read"), "{reasons:?}");
}

#[test]
fn counters_that_are_not_permitted_are_asked_for_once_and_told_with_the_fix() {
    let mut device = scripted(|job, _| transpose(job));
    device.ordinal = Some(0);
    let stub = Stub::new();
    let said = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n".to_owned();
    let profiler = stub.profiler(&[(said, ENDED, 1)]);
    let bench = bench(device).observed(Observers::new(Ok(profiler), Err("none".into())));
    for _ in 0..2 {
        let verdict = bench.confirm(KERNEL);
        let not_checked = verdict.measurement().unwrap().not_checked.join("\n");
        assert!(
            not_checked.contains("not profiled: the driver does not permit")
                && not_checked.contains("NVreg_RestrictProfilingToAdminUsers=0"),
            "{not_checked}"
        );
    }
    assert_eq!(stub.asked().len(), 1);
}

#[test]
fn a_race_that_the_checker_sees_is_the_verdict_of_a_claim_and_advice_with_bulk_copies() {
    let race = sanitizer::log("2025.3.1.0/racecheck-hazard.log");
    let clean = sanitizer::log("2025.3.1.0/memcheck-clean.log");
    let judge = |text: &str| {
        let mut device = scripted(|job, _| transpose(job));
        device.ordinal = Some(0);
        let stub = sanitizer::Stub::new(&[
            ("memcheck", &clean),
            ("synccheck", &clean),
            ("racecheck", &race),
        ]);
        let observers = Observers::new(Err("none".into()), Ok(stub.sanitizer()));
        let bench = bench(device).observed(observers);
        (bench.judge(text), bench.confirm(text))
    };
    let (searched, claimed) = judge(KERNEL);
    assert!(
        searched.measurement().is_some(),
        "a search does not wait for it"
    );
    assert!(
        matches!(&claimed, Verdict::Racy { diagnostics } if diagnostics[0].code == "racecheck"),
        "{claimed:?}"
    );
    let bulk = KERNEL.replace("    ret;", "    cp.async.bulk.commit_group;\n    ret;");
    let (_, claimed) = judge(&bulk);
    let warnings = &claimed.measurement().unwrap().warnings;
    assert!(
        warnings.iter().any(|warning| warning.code == "racecheck"),
        "{warnings:?}"
    );
}
