//! Runs: what is written, what a stop leaves behind, and that going on gives what going through gives.

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use warptree::device::RigError;
use warptree::driver::{DriveError, Ended, Estimator, Fold, Observer, Rig, drive};
use warptree::evaluate::recorded::{Recorded, Row, Table};
use warptree::evaluate::{Evaluation, Evaluator};
use warptree::propose::ProposerKind;
use warptree::report::Story;
use warptree::search::{Earlier, NodeId, Search, SearchParams, StopReason, StopRules, Value};
use warptree::source::{KnobValue, Point, Source};
use warptree::store::{
    Event, FORMAT, Line, Retimed, RootConfig, RunConfig, RunWriter, StoreError, StoredRun,
    write_trace,
};
use warptree::units::{Digest, Nanos, SmArch};
use warptree::verdict::{Estimate, Verdict};

#[path = "run/prior.rs"]
mod prior;
#[path = "run/race.rs"]
mod race;

/// A table of 4 × 5 × 6 settings, every seventh of which failed.
fn table() -> Table {
    let values = |count: i64| (0..count).map(KnobValue::Int).collect::<Vec<_>>();
    let knobs = vec![
        ("a".to_owned(), values(4)),
        ("b".to_owned(), values(5)),
        ("c".to_owned(), values(6)),
    ];
    let mut rows = Vec::new();
    for a in 0..4 {
        for b in 0..5 {
            for c in 0..6 {
                let setting = [a, b, c].map(KnobValue::Int).to_vec();
                let time = 1000 + (a - 2) * (a - 2) * 90 + (b - 1) * (b - 1) * 40 + c * 13 % 7;
                let row = if (a * 31 + b * 17 + c * 5) % 7 == 0 {
                    Row::Failed {
                        reason: "launch failed".into(),
                    }
                } else {
                    let time = Nanos::new(time as f64).expect("positive");
                    Row::Time {
                        time,
                        samples: vec![],
                    }
                };
                rows.push((setting, row));
            }
        }
    }
    Table::new(knobs, rows)
}

fn config(source: &str, budget: u32) -> RunConfig {
    RunConfig {
        format: FORMAT,
        warptree: env!("CARGO_PKG_VERSION").into(),
        task: "table".into(),
        task_digest: Digest::of("table"),
        tasks_dir: None,
        device: "recorded:table".into(),
        gpu: "none".into(),
        arch: SmArch::SM_90A,
        assembler: None,
        proposers: vec![ProposerKind::Knobs],
        model: None,
        seed: 7,
        baseline: None,
        baselines: None,
        search: SearchParams {
            stop: StopRules {
                evaluations: Some(budget),
                ..StopRules::default()
            },
            ..SearchParams::default()
        },
        roots: vec![RootConfig {
            node: NodeId(1),
            label: "table".into(),
            source: Digest::of(source),
            settings: Vec::new(),
            earlier: Vec::new(),
        }],
    }
}

/// Stops after so many events, if at all.
struct StopAfter<'a> {
    left: Option<usize>,
    flag: &'a AtomicBool,
}

impl Observer for StopAfter<'_> {
    fn applied(&mut self, _: &Line, _: &Search) {
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.flag.store(true, Ordering::Relaxed);
            }
        }
    }
}

fn go(folder: &Path, budget: u32, jobs: usize, stop_after: Option<usize>) -> Ended {
    go_by(None, &[], folder, budget, jobs, stop_after)
}

/// Judges only a part of the settings that the tuner chooses, by what an estimator says of them; earlier runs
/// may have judged the table too.
fn go_by(
    part: Option<(f64, Estimator<'_>)>,
    earlier: &[String],
    folder: &Path,
    budget: u32,
    jobs: usize,
    stop_after: Option<usize>,
) -> Ended {
    let table = table();
    let source = table.source_text(&[]);
    let (mut run, past) = if folder.join("run.toml").exists() {
        RunWriter::resume(folder).expect("resumes")
    } else {
        let mut config = config(&source, budget);
        config.search.prefilter = part.map(|(part, _)| part);
        config.roots[0].earlier = earlier.iter().map(Digest::of).collect();
        let texts = [&source].into_iter().chain(earlier).map(String::as_str);
        let run = RunWriter::create(folder, config, texts).expect("creates");
        (run, vec![])
    };
    let evaluator = Recorded::new(table);
    let rig = Rig {
        estimator: part.map(|(_, estimator)| estimator),
        ..knobs_only(&evaluator, jobs)
    };
    goes_on(&rig, &mut run, &past, stop_after).expect("drives")
}

/// A judge of the table's settings, and nobody who proposes sources.
fn knobs_only(evaluator: &dyn Evaluator, jobs: usize) -> Rig<'_> {
    Rig {
        evaluator,
        proposers: vec![],
        task: None,
        jobs,
        deterministic: true,
        estimator: None,
        confirm: true,
    }
}

/// Drives a run to its end, or until so many more events are written.
fn goes_on(
    rig: &Rig<'_>,
    run: &mut RunWriter,
    past: &[Line],
    stop_after: Option<usize>,
) -> Result<Ended, DriveError> {
    let flag = AtomicBool::new(false);
    let mut observer = StopAfter {
        left: stop_after.map(|events| events + past.len()),
        flag: &flag,
    };
    drive(rig, run, past, &flag, &mut observer)
}

/// What must be equal: everything but clocks.
fn timeless(folder: &Path) -> Vec<Event> {
    let run = StoredRun::open(folder).expect("opens");
    run.lines
        .into_iter()
        .map(|line| match line.event {
            Event::Evaluated {
                ticket,
                node,
                point,
                setting,
                left_out,
                evaluation,
                kernel,
                best,
                ..
            } => Event::Evaluated {
                ticket,
                node,
                point,
                setting,
                left_out,
                evaluation,
                kernel,
                best,
                took_ms: 0,
            },
            Event::Confirmed {
                node,
                point,
                setting,
                evaluation,
                kernel,
                claim,
                ..
            } => Event::Confirmed {
                node,
                point,
                setting,
                evaluation,
                kernel,
                claim,
                took_ms: 0,
            },
            Event::Retimed { kernels, .. } => Event::Retimed {
                kernels,
                took_ms: 0,
            },
            other => other,
        })
        .collect()
}

#[test]
fn threads_do_not_change_a_run() {
    let scratch = tempfile::tempdir().expect("scratch");
    let one = scratch.path().join("one");
    let many = scratch.path().join("many");
    assert_eq!(
        go(&one, 60, 1, None),
        Ended::Stopped(StopReason::Evaluations)
    );
    assert_eq!(
        go(&many, 60, 7, None),
        Ended::Stopped(StopReason::Evaluations)
    );
    assert_eq!(timeless(&one), timeless(&many));
}

#[test]
fn a_run_stopped_anywhere_goes_on_to_the_same_end() {
    let scratch = tempfile::tempdir().expect("scratch");
    let through = scratch.path().join("through");
    go(&through, 50, 3, None);
    let expected = timeless(&through);
    for stop_after in 1..=49 {
        let folder = scratch.path().join(format!("stop-{stop_after}"));
        assert_eq!(go(&folder, 50, 3, Some(stop_after)), Ended::Interrupted);
        assert_eq!(
            go(&folder, 50, 2, None),
            Ended::Stopped(StopReason::Evaluations)
        );
        assert_eq!(
            timeless(&folder),
            expected,
            "stopped after {stop_after} events"
        );
    }
}

/// Knows the table but for its unevenness, and of every ninth setting nothing.
fn expects(_: &Source, point: &Point) -> Result<Estimate, RigError> {
    let [a, b, c] = [0, 1, 2].map(|knob| f64::from(point.0[knob]));
    if point.0.iter().sum::<u16>() % 9 == 8 {
        return Ok(Estimate::Unknown);
    }
    let time = 1000.0 + (a - 2.0).powi(2) * 90.0 + (b - 1.0).powi(2) * 40.0 + c;
    Ok(Estimate::Time(Nanos::new(time).expect("positive")))
}

/// Settings judged, in order, and those set aside.
fn sifted(folder: &Path) -> (Vec<Point>, Vec<Point>) {
    let (mut judged, mut aside) = (Vec::new(), Vec::new());
    for event in timeless(folder) {
        if let Event::Evaluated {
            point, left_out, ..
        } = event
        {
            judged.push(point);
            aside.extend(left_out.into_iter().map(|one| one.point));
        }
    }
    (judged, aside)
}

#[test]
fn a_part_of_the_settings_is_judged_and_a_stop_changes_nothing() {
    let scratch = tempfile::tempdir().expect("scratch");
    let through = scratch.path().join("through");
    let half = Some((0.5, &expects as Estimator<'_>));
    go_by(half, &[], &through, 40, 3, None);
    let expected = timeless(&through);
    let (judged, aside) = sifted(&through);
    assert_eq!(judged.len(), 40);
    // All but the default and what nothing is known of came in pairs.
    assert!((30..40).contains(&aside.len()), "{}", aside.len());
    let story = Story::read(&StoredRun::open(&through).expect("opens"), 3).expect("reads");
    let never = aside.iter().filter(|point| !judged.contains(point)).count();
    assert_eq!(story.estimated_only, never as u64);
    assert!(story.to_string().contains("estimated only"), "{story}");
    for stop_after in [1, 2, 7, 20, 39] {
        let folder = scratch.path().join(format!("stop-{stop_after}"));
        go_by(half, &[], &folder, 40, 3, Some(stop_after));
        go_by(half, &[], &folder, 40, 2, None);
        assert_eq!(
            timeless(&folder),
            expected,
            "stopped after {stop_after} events"
        );
    }
}

#[test]
fn what_was_set_aside_is_judged_when_nothing_else_is_left() {
    let scratch = tempfile::tempdir().expect("scratch");
    for part in [0.5, 0.3, 0.1] {
        let folder = scratch.path().join(part.to_string());
        let ended = go_by(Some((part, &expects)), &[], &folder, 1000, 2, None);
        assert_eq!(ended, Ended::Stopped(StopReason::Exhausted));
        let (judged, aside) = sifted(&folder);
        assert_eq!(judged.len(), 120);
        assert_eq!(judged.iter().collect::<HashSet<_>>().len(), 120);
        assert!(!aside.is_empty());
        // Nothing is known of these: none waits for the end.
        let last = &judged[judged.len() - 5..];
        assert!(
            last.iter()
                .all(|point| point.0.iter().sum::<u16>() % 9 != 8)
        );
    }
}

#[test]
fn kernels_of_which_nothing_is_known_are_judged_all_the_same() {
    let scratch = tempfile::tempdir().expect("scratch");
    let unknown = |_: &Source, _: &Point| Ok(Estimate::Unknown);
    let folder = scratch.path().join("unknown");
    go_by(Some((0.5, &unknown)), &[], &folder, 1000, 2, None);
    let (judged, _) = sifted(&folder);
    assert_eq!(judged.len(), 120);
}

#[test]
fn a_run_that_learns_from_earlier_ones_goes_on_to_the_same_end() {
    let source = Source::parse(&table().source_text(&[])).expect("parses");
    let recorded = Recorded::new(table());
    let judged = source.space().iter().step_by(3).map(|point| {
        let evaluation = recorded.evaluate(&source, &point).expect("a table");
        let value = Value::from(&evaluation.verdict);
        (source.space().setting(&point), value)
    });
    let earlier = Earlier::new(judged, 20);
    let earlier = [serde_json::to_string(&earlier).expect("serialises")];
    let scratch = tempfile::tempdir().expect("scratch");
    let through = scratch.path().join("through");
    go_by(None, &earlier, &through, 40, 3, None);
    let alone = scratch.path().join("alone");
    go(&alone, 40, 3, None);
    assert_ne!(timeless(&through), timeless(&alone));
    for stop_after in [1, 7, 8, 9, 20, 39] {
        let folder = scratch.path().join(format!("stop-{stop_after}"));
        go_by(None, &earlier, &folder, 40, 3, Some(stop_after));
        go_by(None, &earlier, &folder, 40, 2, None);
        assert_eq!(timeless(&folder), timeless(&through), "after {stop_after}");
    }
}

/// What SIGKILL or a power cut leaves: any prefix of the log's bytes.
#[test]
fn a_log_cut_at_any_byte_goes_on_to_the_same_end() {
    let scratch = tempfile::tempdir().expect("scratch");
    let through = scratch.path().join("through");
    go(&through, 40, 3, None);
    let expected = timeless(&through);
    let log = std::fs::read(through.join("events.jsonl")).expect("reads");
    let mut rng = Pcg64::seed_from_u64(5);
    for _ in 0..100 {
        let cut = rng.random_range(0..=log.len());
        std::fs::write(through.join("events.jsonl"), &log[..cut]).expect("writes");
        go(&through, 40, 2, None);
        assert_eq!(timeless(&through), expected, "cut at byte {cut}");
    }
}

/// Believes the table while searching, and refutes its `liars` best when asked in full.
struct Sceptic {
    table: Recorded,
    liars: Vec<f64>,
}

impl Evaluator for Sceptic {
    fn evaluate(&self, source: &Source, point: &Point) -> Result<Evaluation, RigError> {
        self.table.evaluate(source, point)
    }

    fn confirm(&self, source: &Source, point: &Point) -> Result<Evaluation, RigError> {
        let mut evaluation = self.evaluate(source, point)?;
        if let Some(measurement) = evaluation.verdict.measurement()
            && self.liars.contains(&measurement.time.nanos().get())
        {
            let message = "an input that the brief look had not tried".to_owned();
            evaluation.verdict = Verdict::OverLimits { message };
        }
        Ok(evaluation)
    }

    fn deterministic(&self) -> bool {
        true
    }
}

#[test]
fn a_leader_that_is_refuted_in_full_makes_room_for_the_next() {
    let mut times: Vec<f64> = table()
        .rows()
        .filter_map(|(_, row)| match row {
            Row::Time { time, .. } => Some(time.get()),
            Row::Failed { .. } => None,
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times.dedup();
    let scratch = tempfile::tempdir().expect("scratch");
    let told = |name: &str, liars: &[f64]| {
        let folder = scratch.path().join(name);
        let source = table().source_text(&[]);
        let mut run =
            RunWriter::create(&folder, config(&source, 500), [&*source]).expect("creates");
        let sceptic = Sceptic {
            table: Recorded::new(table()),
            liars: liars.to_vec(),
        };
        goes_on(&knobs_only(&sceptic, 1), &mut run, &[], None).expect("drives");
        drop(run);
        Story::read(&StoredRun::open(&folder).expect("opens"), 5).expect("reads")
    };
    let honest = told("honest", &[]).winner.expect("a winner");
    assert!(honest.confirmed);
    assert_eq!(honest.measurement.time.nanos().get(), times[0]);
    let story = told("two-liars", &times[..2]);
    let winner = story.winner.as_ref().expect("a winner");
    assert!(winner.confirmed);
    assert_eq!(winner.measurement.time.nanos().get(), times[2]);
    assert!(story.to_string().contains("refuted in full"), "{story}");
    assert!(told("all-liars", &times).winner.is_none());
}

#[test]
fn the_story_is_the_fold_of_the_log() {
    let scratch = tempfile::tempdir().expect("scratch");
    let folder = scratch.path().join("run");
    go(&folder, 500, 2, None);
    let run = StoredRun::open(&folder).expect("opens");
    let story = Story::read(&run, 5).expect("reads");
    assert_eq!(story.ended, Some(StopReason::Exhausted));
    assert_eq!(story.evaluations, 120);
    let best = table()
        .rows()
        .filter_map(|(_, row)| match row {
            Row::Time { time, .. } => Some(time.get()),
            Row::Failed { .. } => None,
        })
        .fold(f64::INFINITY, f64::min);
    assert_eq!(
        story.top[0].time.get(),
        best,
        "an exhausted space has its optimum on top"
    );
    assert_eq!(story.top.len(), 5);
    assert!(story.top.is_sorted_by(|a, b| a.time <= b.time));
    let counted: u64 = story.funnel.iter().map(|ending| ending.count).sum();
    assert_eq!(counted, 120);
    let text = story.to_string();
    assert!(text.contains("launch failed"), "{text}");
    let mut fold = Fold::new(&run.config, &run.objects).expect("folds");
    for line in &run.lines {
        fold.replay(line, &run.objects).expect("replays");
    }
    assert_eq!(fold.search.evaluations(), 120);
}

/// A trace tells the same story, and answers the same search.
#[test]
fn a_trace_is_the_run_in_one_file() {
    let scratch = tempfile::tempdir().expect("scratch");
    let folder = scratch.path().join("run");
    go(&folder, 40, 2, None);
    let run = StoredRun::open(&folder).expect("opens");
    let file = scratch.path().join("traces/run.jsonl.gz");
    write_trace(&run, &file).expect("writes");
    assert!(matches!(
        write_trace(&run, &file),
        Err(StoreError::TraceExists { .. })
    ));
    let trace = StoredRun::open(&file).expect("opens");
    assert_eq!(trace.config, run.config);
    assert_eq!(trace.lines, run.lines);
    let stories = [&run, &trace].map(|run| Story::read(run, 5).expect("reads").to_string());
    assert_eq!(stories[0], stories[1]);
    let bytes = std::fs::read(&file).expect("reads");

    // several gzip members make one file, as of `cat a.gz b.gz`
    let mut plain = Vec::new();
    GzDecoder::new(&bytes[..])
        .read_to_end(&mut plain)
        .expect("unpacks");
    let members: Vec<u8> = plain
        .chunks(plain.len() / 3)
        .flat_map(|part| {
            let mut out = GzEncoder::new(Vec::new(), Compression::fast());
            out.write_all(part).expect("packs");
            out.finish().expect("packs")
        })
        .collect();
    std::fs::write(&file, members).expect("writes");
    let trace = StoredRun::open(&file).expect("opens");
    assert_eq!(trace.lines, run.lines);

    std::fs::write(&file, &bytes[..bytes.len() / 2]).expect("writes");
    let cut = StoredRun::open(&file).expect_err("half a file").to_string();
    assert!(cut.contains("line "), "{cut}");
    std::fs::write(&file, "no gzip").expect("writes");
    assert!(StoredRun::open(&file).is_err());
}

/// Whatever becomes of the engine, the traces in the repository stay readable.
#[test]
fn committed_traces_tell_their_story() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    let mut read = 0;
    for entry in std::fs::read_dir(folder).expect("there are traces") {
        let path = entry.expect("lists").path();
        if !path.to_string_lossy().ends_with(".jsonl.gz") {
            continue;
        }
        let run = StoredRun::open(&path).expect("opens");
        let story = Story::read(&run, 3).expect("reads");
        let winner = story.winner.as_ref().expect("found something");
        assert_eq!(
            winner.measurement.time.label(),
            "measured",
            "{}",
            path.display()
        );
        read += 1;
        if run.config.proposers.is_empty() {
            // a batch: a space by brute force
            assert!(story.evaluations >= 300, "{}", path.display());
            continue;
        }
        assert!(run.config.baseline.is_some(), "{}", path.display());
        let seed = story.sources.iter().find(|source| source.label == "seed");
        let seed = seed.and_then(|seed| seed.best).expect("the seed was timed");
        let time = winner.measurement.time.nanos();
        assert!(time < seed, "{}", path.display());
        assert!(!story.path.is_empty() && story.sources.len() >= 2);
    }
    assert!(read >= 3, "only {read} traces");
}

#[test]
fn damage_is_told_and_nothing_is_overwritten() {
    let scratch = tempfile::tempdir().expect("scratch");
    let folder = scratch.path().join("run");
    go(&folder, 20, 2, None);

    let table_source = table().source_text(&[]);
    let again = RunWriter::create(&folder, config(&table_source, 20), []);
    assert!(matches!(again, Err(StoreError::Exists { .. })), "{again:?}");

    let (held, _) = RunWriter::resume(&folder).expect("opens");
    let second = RunWriter::resume(&folder).map(drop);
    assert!(
        matches!(second, Err(StoreError::Locked { .. })),
        "{second:?}"
    );
    drop(held);

    let log = folder.join("events.jsonl");
    let text = std::fs::read_to_string(&log).expect("reads");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.remove(3);
    std::fs::write(&log, lines.join("\n") + "\n").expect("writes");
    let gap = StoredRun::open(&folder)
        .expect_err("a line is missing")
        .to_string();
    assert!(gap.contains("line 4") && gap.contains("missing"), "{gap}");

    std::fs::write(&log, text.replacen("\"ticket\":2", "\"ticket\":900", 1)).expect("writes");
    let run = StoredRun::open(&folder).expect("opens");
    let mut fold = Fold::new(&run.config, &run.objects).expect("folds");
    let diverged = run
        .lines
        .iter()
        .find_map(|line| fold.replay(line, &run.objects).err());
    let diverged = diverged.expect("nobody asked 900").to_string();
    assert!(diverged.contains("900"), "{diverged}");

    std::fs::write(&log, text.replacen("{", "[", 1)).expect("writes");
    let broken = StoredRun::open(&folder).expect_err("no JSON").to_string();
    assert!(broken.contains("line 1"), "{broken}");

    let object = folder
        .join("objects")
        .join(Digest::of(&table_source).to_string());
    std::fs::write(&log, &text).expect("writes");
    std::fs::write(&object, "//@ knob a = 0 in {0}\n").expect("writes");
    let run = StoredRun::open(&folder).expect("opens");
    let changed = Story::read(&run, 1)
        .expect_err("the object changed")
        .to_string();
    assert!(changed.contains("hash"), "{changed}");
    std::fs::remove_file(&object).expect("removes");
    let gone = Story::read(&run, 1)
        .expect_err("the object is gone")
        .to_string();
    assert!(gone.contains("cannot read"), "{gone}");

    let config = folder.join("run.toml");
    let text = std::fs::read_to_string(&config).expect("reads");
    std::fs::write(
        &config,
        text.replacen(&format!("format = {FORMAT}"), "format = 99", 1),
    )
    .expect("writes");
    let newer = StoredRun::open(&folder)
        .expect_err("another format")
        .to_string();
    assert!(newer.contains("format 99"), "{newer}");
    std::fs::write(&config, text.replacen("seed = 7", "sead = 7", 1)).expect("writes");
    let typo = StoredRun::open(&folder).expect_err("a typo").to_string();
    assert!(typo.contains("sead"), "{typo}");
    let none = StoredRun::open(scratch.path())
        .expect_err("no run")
        .to_string();
    assert!(none.contains("holds no run"), "{none}");
}

struct Breaks;

impl Evaluator for Breaks {
    fn evaluate(&self, _: &Source, _: &Point) -> Result<Evaluation, RigError> {
        panic!("a bug of the judge");
    }

    fn deterministic(&self) -> bool {
        true
    }
}

#[test]
fn a_judge_that_panics_ends_the_run_with_its_words() {
    let scratch = tempfile::tempdir().expect("scratch");
    let source = table().source_text(&[]);
    let config = config(&source, 10);
    let mut run = RunWriter::create(scratch.path(), config, [&*source]).expect("creates");
    let error = goes_on(&knobs_only(&Breaks, 2), &mut run, &[], None).expect_err("it broke");
    assert!(error.to_string().contains("a bug of the judge"), "{error}");
}

#[test]
fn events_without_their_run_are_not_mixed_with_a_new_one() {
    let scratch = tempfile::tempdir().expect("scratch");
    let folder = scratch.path().join("run");
    go(&folder, 10, 1, None);
    std::fs::remove_file(folder.join("run.toml")).expect("removes");
    let source = table().source_text(&[]);
    let created = RunWriter::create(&folder, config(&source, 10), [&*source]);
    assert!(
        matches!(created, Err(StoreError::Damaged { .. })),
        "{created:?}"
    );
    assert!(!folder.join("run.toml").exists(), "nothing was made");
}
