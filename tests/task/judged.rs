//! Seeds, spaces and mistakes on the simulator: what is honest passes, what is not is caught as it says.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rand::SeedableRng;
use rayon::prelude::*;
use warptree::device::{Buffer, Contents, Device, Gpu, Job, SimDevice};
use warptree::evaluate::verify::{Depth, Subject, Verified, Verifier};
use warptree::expr::Value;
use warptree::source::{Candidate, LaunchPlan, Point, Source};
use warptree::task::compare::{Got, compare};
use warptree::task::reference::expected;
use warptree::task::{Catalogue, Origin, Poison, Problem, Purpose, Role, Size, Task};
use warptree::units::Bytes;
use warptree::verdict::{Bottleneck, Verdict};

/// Settings that are judged: those that `source` tries early and some of the others, each once; the kernel is
/// the same the second time. Of each space 4, or as many as `WARPTREE_SLOW` says.
fn sampled(source: &Source) -> Vec<Point> {
    let count = std::env::var("WARPTREE_SLOW").map_or(4, |count| count.parse().unwrap());
    let space = source.space();
    let mut points: Vec<Point> = source.tries().map(|s| space.point(s).unwrap()).collect();
    if space.len() > count {
        let mut rng = rand_pcg::Pcg64::seed_from_u64(1);
        points.extend((0..count).map(|_| space.sample(&mut rng)));
    } else if space.len() > 1 {
        points.extend(space.iter());
    }
    let mut seen = HashSet::new();
    points.retain(|point| seen.insert(point.clone()));
    points
}

struct Judge {
    task: Arc<Task>,
    verifier: Verifier,
    device: SimDevice,
}

impl Judge {
    fn new(task: &str) -> Self {
        Self::of(Catalogue::embedded().task(task).unwrap())
    }

    fn of(task: Task) -> Self {
        let task = Arc::new(task);
        Self {
            verifier: Verifier::new(Arc::clone(&task), 7, 1, None),
            device: SimDevice::new(Gpu::named("H200").unwrap()),
            task,
        }
    }

    fn plan(&self, candidate: &Candidate, problem: &Problem) -> LaunchPlan {
        let mut names = problem.names();
        names.insert("sm_count".into(), Value::Int(132));
        candidate.plan(&names).unwrap()
    }

    /// The verdict's beginning: `None` where everything that was run is right.
    fn verify(&self, depth: Depth, source: &Source, point: &Point) -> Option<Verdict> {
        let candidate = source.render(point).unwrap();
        let module = candidate.module.as_ref().unwrap();
        let problems = self.problems();
        let plans: Vec<LaunchPlan> = problems.iter().map(|p| self.plan(&candidate, p)).collect();
        let subject = Subject {
            module,
            cubin: None,
            registers: &[],
            plans: &plans,
            source_line: &|line| candidate.source_line(line),
        };
        match self
            .verifier
            .verify_to(depth, &self.device, &subject)
            .unwrap()
        {
            Verified::Passed(_) => None,
            Verified::Failed(verdict) => Some(*verdict),
        }
    }

    fn problems(&self) -> Vec<Problem> {
        let case = self.task.cases[0];
        let problem = |size| Problem::new(&self.task, size, case, 7).unwrap();
        self.task.sizes.iter().map(problem).collect()
    }

    /// What limits it at the timed size, the lines that show it, and the estimate in nanoseconds.
    fn bottleneck(&self, source: &Source, point: &Point) -> (Bottleneck, Vec<u32>, f64) {
        let candidate = source.render(point).unwrap();
        let at = self
            .task
            .sizes
            .iter()
            .position(|s| s.purpose == Purpose::Bench)
            .unwrap();
        let problem = &self.problems()[at];
        let plan = self.plan(&candidate, problem);
        let buffers = poisoned(problem);
        let job = Job {
            module: candidate.module.as_ref().unwrap(),
            cubin: None,
            registers: &[],
            plan: &plan,
            buffers: &buffers,
            sampled: &[],
            order: 0,
        };
        let timing = self.device.time(&job).unwrap();
        let timed = match timing {
            warptree::device::Timing::Timed(timed) => timed,
            other => panic!("{other:?}"),
        };
        let diagnosis = timed.diagnosis.unwrap();
        let lines = diagnosis
            .evidence
            .iter()
            .filter_map(|evidence| evidence.line);
        let lines = lines
            .filter_map(|line| candidate.source_line(line))
            .collect();
        (diagnosis.bottleneck, lines, timed.time.nanos().get())
    }
}

/// A problem's buffers before a launch.
fn poisoned(problem: &Problem) -> Vec<Buffer> {
    let buffer = |buffer: &warptree::task::Buffer| Buffer {
        name: buffer.name.clone(),
        dtype: buffer.dtype,
        bytes: Bytes(buffer.bytes.0),
        writable: buffer.role == Role::Output,
        contents: match problem.generator(&buffer.name) {
            Some(generator) => Contents::Generated(generator),
            None => Contents::Fill(Poison::Nan.byte()),
        },
    };
    problem.buffers.iter().map(buffer).collect()
}

/// What is wrong with each of some things, looked at side by side: on plain threads, for a verifier's references are
/// worked out by rayon, whose workers must not wait for them.
fn side_by_side<T: Sync>(things: &[T], wrong: impl Fn(&T) -> Option<String> + Sync) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let work = || -> Vec<String> {
        std::iter::from_fn(|| things.get(next.fetch_add(1, Ordering::Relaxed)))
            .filter_map(&wrong)
            .collect()
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let found = threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap());
        found.collect()
    })
}

/// It was not run: the simulator does not know some of its instructions.
fn needs_a_gpu(verdict: &Verdict) -> bool {
    let findings = verdict.diagnostics();
    !findings.is_empty()
        && findings
            .iter()
            .all(|finding| finding.code == "sim-unsupported")
}

/// Ours, and what nvcc and Triton make of theirs: right, and nothing is found in any of them.
#[test]
fn seeds_and_settings_of_every_space_are_right() {
    let mut wrong = Vec::new();
    let mut honest = 0;
    let triton = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sim/triton");
    let (mut of_triton, of_whom) = (0, "by Triton".to_owned());
    let nvcc = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nvcc");
    let nvcc = Catalogue::open(Some(&nvcc)).unwrap();
    let compiled = nvcc.suite("nvcc").unwrap().tasks;
    let compiled = compiled.iter().map(|name| nvcc.task(name).unwrap());
    let ours = Catalogue::embedded();
    let ours = ours
        .names()
        .unwrap()
        .into_iter()
        .map(|name| ours.task(&name).unwrap())
        .collect::<Vec<_>>();
    for task in ours.into_iter().chain(compiled) {
        let judge = Judge::of(task);
        let name = judge.task.name.clone();
        let spaces = judge
            .task
            .spaces
            .iter()
            .map(|space| (&space.name, &space.text));
        let seed = (&"seed".to_owned(), &judge.task.seed);
        // tests/data/sim/triton/make.py tells how they were made
        // nvcc's tasks have names of their own, some of them the same
        let by_triton: Option<Arc<str>> = (judge.task.origin == Origin::Embedded)
            .then(|| std::fs::read_to_string(triton.join(format!("{name}.ptx"))).ok())
            .flatten()
            .map(Into::into);
        of_triton += u32::from(by_triton.is_some());
        let by_triton = by_triton.iter().map(|text| (&of_whom, text));
        for (file, text) in spaces.chain([seed]).chain(by_triton) {
            let source = Source::parse(text).unwrap();
            let default = source.space().default_point().unwrap();
            match judge.verify(Depth::Full, &source, &default) {
                Some(verdict) if needs_a_gpu(&verdict) => {
                    println!("{name}/{file}: not judged, the simulator lacks its instructions");
                    continue;
                }
                Some(verdict) => wrong.push(format!("{name}/{file}, default: {verdict:?}")),
                None => honest += 1,
            }
            let points = sampled(&source);
            let before = wrong.len();
            wrong.extend(side_by_side(&points, |point| {
                let verdict = judge.verify(Depth::Brief, &source, point)?;
                let setting = source.space().setting(point);
                Some(format!("{name}/{file} {setting:?}: {verdict:?}"))
            }));
            honest += points.len() - (wrong.len() - before);
        }
    }
    println!(
        "{honest} honest kernels, something found in {}",
        wrong.len()
    );
    assert!(
        wrong.is_empty(),
        "{} wrong, first:\n{}",
        wrong.len(),
        wrong[0]
    );
    assert!(honest >= 40, "{honest} honest kernels are too few");
    assert_eq!(of_triton, 4, "a file of tests/data/sim/triton has no task");
}

/// Those that only the whole judge sees (refused, too slow, void) are judged where it is tested.
#[test]
fn mistakes_are_caught_as_they_say() {
    const WHOLE: [&str; 4] = ["forbidden", "over limits", "voided", "measured"];
    let mut missed = Vec::new();
    for name in Catalogue::embedded().names().unwrap() {
        let judge = Judge::new(&name);
        missed.extend(side_by_side(&judge.task.mistakes, |mistake| {
            let stages = &mistake.expect.stages;
            if stages.iter().any(|stage| WHOLE.contains(stage)) {
                return None;
            }
            let source = Source::parse(&mistake.text).unwrap();
            let point = source.space().default_point().unwrap();
            let why = match judge.verify(Depth::Full, &source, &point) {
                // What its text shows is told by a test of its own.
                Some(verdict) if needs_a_gpu(&verdict) => {
                    println!(
                        "{name}/{}: not run, the simulator lacks its instructions",
                        mistake.name
                    );
                    return None;
                }
                Some(verdict) => mistake.expect.check(&verdict).err()?,
                None => "nothing was found".to_owned(),
            };
            Some(format!("{name}/{}: {why}", mistake.name))
        }));
    }
    assert!(
        missed.is_empty(),
        "{} missed:\n{}",
        missed.len(),
        missed.join("\n")
    );
}

/// Many mistakes show in the text: where one expects it, a lint names them.
#[test]
fn mistakes_that_show_in_the_text_are_named_by_lints() {
    let mut named = 0;
    for name in Catalogue::embedded().names().unwrap() {
        let task = Arc::new(Catalogue::embedded().task(&name).unwrap());
        for mistake in &task.mistakes {
            let Some(code) = &mistake.expect.lint else {
                continue;
            };
            let source = Source::parse(&mistake.text).unwrap();
            let candidate = source
                .render(&source.space().default_point().unwrap())
                .unwrap();
            let module = candidate.module.as_ref().unwrap();
            let mut found = warptree::ptx::check(module);
            let problem = Problem::new(&task, &task.sizes[0], task.cases[0], 7).unwrap();
            let mut names = problem.names();
            names.insert("sm_count".into(), Value::Int(132));
            let maps = candidate.plan(&names).unwrap().bound_maps();
            found.extend(warptree::ptx::check_tensor_maps(module, &maps));
            let lines: Vec<Option<u32>> = found
                .iter()
                .filter(|finding| finding.code == *code)
                .map(|finding| candidate.source_line(finding.line?))
                .collect();
            let told = match mistake.expect.line {
                Some(line) => lines.contains(&Some(line)),
                None => !lines.is_empty(),
            };
            assert!(
                told,
                "{name}/{}: {code} is not among {found:#?}",
                mistake.name
            );
            named += 1;
        }
    }
    assert!(named >= 4, "only {named} mistakes expect a finding");
}

/// The estimate must lead a search where the hardware does: wide loads, several in flight, no conflicts.
#[test]
#[ignore = "prints estimates: cargo test --test task estimates -- --ignored --nocapture"]
fn estimates_of_known_settings() {
    for (task, file, settings) in [
        (
            "reduce_sum",
            "grid_stride",
            &[
                "",
                "VEC=4",
                "VEC=4 UNROLL=4",
                "VEC=4 UNROLL=4 BLOCKS_PER_SM=8",
                "VEC=4 UNROLL=8 BLOCK=512 BLOCKS_PER_SM=4",
            ][..],
        ),
        (
            "reduce_sum",
            "last_block",
            &["", "VEC=4 UNROLL=4 BLOCKS_PER_SM=8"],
        ),
        (
            "transpose",
            "tiled",
            &[
                "",
                "PAD=1",
                "SWIZZLE=1",
                "TILE_R=64 TILE_C=64 VEC=4 SWIZZLE=1",
                "TILE_R=64 TILE_C=64 VEC=4",
            ],
        ),
    ] {
        let judge = Judge::new(task);
        let space = judge
            .task
            .spaces
            .iter()
            .find(|space| space.name == file)
            .unwrap();
        let source = Source::parse(&space.text).unwrap();
        for text in settings {
            let mut setting = source
                .space()
                .setting(&source.space().default_point().unwrap());
            for pair in text.split_whitespace() {
                let (knob, value) = pair.split_once('=').unwrap();
                setting.insert(
                    knob.into(),
                    warptree::source::KnobValue::Int(value.parse().unwrap()),
                );
            }
            let point = source.space().point(&setting).unwrap();
            let (bottleneck, _, nanos) = judge.bottleneck(&source, &point);
            let rate = judge.problems().last().unwrap().work.bytes.0 as f64 / nanos / 1e3;
            println!(
                "{task}/{file} {text}: {:.1} us, {rate:.2} TB/s, {bottleneck:?}",
                nanos / 1e3
            );
        }
    }
}

/// Scores that cancel, rows with a single key, two keys that tie: an honest kernel is never refused for its inputs.
#[test]
fn attention_is_right_whatever_its_inputs() {
    let size = Size {
        purpose: Purpose::Edge,
        dims: [("b", 1), ("h", 2), ("s", 17)]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
    };
    for name in [
        "attention_fwd",
        "attention_fwd_causal",
        "attention_bwd",
        "attention_bwd_causal",
    ] {
        let judge = Judge::new(name);
        let source = Source::parse(&judge.task.seed).unwrap();
        let point = source.space().default_point().unwrap();
        let candidate = source.render(&point).unwrap();
        let problems: Vec<Problem> = (0..20)
            .flat_map(|seed| judge.task.cases.iter().map(move |case| (seed, *case)))
            .map(|(seed, case)| Problem::new(&judge.task, &size, case, seed).unwrap())
            .collect();
        let wrong: Vec<String> = problems
            .par_iter()
            .flat_map_iter(|problem| {
                let job = Job {
                    module: candidate.module.as_ref().unwrap(),
                    cubin: None,
                    registers: &[],
                    plan: &judge.plan(&candidate, problem),
                    buffers: &poisoned(problem),
                    sampled: &[],
                    order: 0,
                };
                let execution = judge.device.execute(&job).unwrap();
                let expected = expected(problem, std::time::Duration::from_secs(60)).unwrap();
                let mismatches = expected.into_iter().filter_map(move |expected| {
                    let outputs = &execution.outputs;
                    let (_, got) = outputs.iter().find(|(name, _)| *name == expected.output)?;
                    let mismatch =
                        compare(problem, &expected, Got::Whole(got), Poison::Nan).err()?;
                    Some(format!("seed {}: {mismatch:?}", problem.seed))
                });
                mismatches.collect::<Vec<_>>()
            })
            .collect();
        assert!(
            wrong.is_empty(),
            "{name}: {} wrong, first:\n{}",
            wrong.len(),
            wrong[0]
        );
    }
}
