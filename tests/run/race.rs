//! The best-looking are timed again at the end: the one that was lucky does not win.

use super::*;
use warptree::evaluate::{Retiming, Timer};
use warptree::verdict::Time;

/// A search sees times that are off by luck, the same each time; a timer sees the truth.
struct Lucky {
    table: Recorded,
    /// The truth of a setting is so much more than what the search saw.
    unlucky: fn(&Point) -> f64,
    /// Cannot be timed again.
    broken: fn(&Point) -> bool,
    /// A timer sees what load does too: half as much again.
    full_load: bool,
}

impl Lucky {
    /// The setting that looks best is not.
    fn at_the_optimum() -> Self {
        Self {
            table: Recorded::new(table()),
            unlucky: at_the_optimum,
            broken: |_| false,
            full_load: false,
        }
    }
}

impl Evaluator for Lucky {
    fn evaluate(&self, source: &Source, point: &Point) -> Result<Evaluation, RigError> {
        self.table.evaluate(source, point)
    }

    fn timer(&self, source: &Source, point: &Point) -> Result<Option<Timer<'_>>, RigError> {
        let evaluation = self.evaluate(source, point)?;
        let measurement = evaluation.verdict.measurement().expect("it was valid");
        let seen = measurement.time.nanos().get();
        let full_load = self.full_load;
        let load = if full_load { 1.5 } else { 1.0 };
        let time = Nanos::new(seen * (self.unlucky)(point) * load).expect("positive");
        let broken = (self.broken)(point);
        Ok(Some(Box::new(move || {
            Ok(match broken {
                true => Err("faulted: it was luck that it ran".to_owned()),
                false => Ok(Retiming {
                    time: Time::Recorded { time },
                    full_load,
                }),
            })
        })))
    }

    fn deterministic(&self) -> bool {
        false
    }
}

fn search(folder: &Path, lucky: &Lucky, budget: u32, stop_after: Option<usize>) -> Ended {
    let source = table().source_text(&[]);
    let (mut run, past) = if folder.join("run.toml").exists() {
        RunWriter::resume(folder).expect("resumes")
    } else {
        let run = RunWriter::create(folder, config(&source, budget), [&*source]).expect("creates");
        (run, vec![])
    };
    goes_on(&knobs_only(lucky, 1), &mut run, &past, stop_after).expect("drives")
}

/// Lets a run go on up to so many kernels.
fn allow(folder: &Path, budget: u32) {
    let (mut run, _) = RunWriter::resume(folder).expect("resumes");
    run.set_stop(StopRules {
        evaluations: Some(budget),
        ..StopRules::default()
    })
    .expect("writes");
}

fn races(events: &[Event]) -> Vec<&[Retimed]> {
    let races = events.iter().filter_map(|event| match event {
        Event::Retimed { kernels, .. } => Some(&kernels[..]),
        _ => None,
    });
    races.collect()
}

/// The setting that looks best is 20 % slower in truth.
fn at_the_optimum(point: &Point) -> f64 {
    if *point.0 == [2, 1, 0] { 1.2 } else { 1.0 }
}

#[test]
fn the_lucky_one_is_overtaken_and_the_run_says_so() {
    let scratch = tempfile::tempdir().expect("scratch");
    let folder = scratch.path().join("run");
    let lucky = Lucky::at_the_optimum();
    // All 120 settings: what looks best is the same however they were searched.
    search(&folder, &lucky, 500, None);
    let events = timeless(&folder);
    let [race] = races(&events)[..] else {
        panic!("one race, not {events:?}");
    };
    assert_eq!(race.len(), 5);
    assert!(race.iter().all(|kernel| kernel.times.len() >= 2));
    let story = Story::read(&StoredRun::open(&folder).expect("opens"), 5).expect("reads");
    let winner = story.winner.as_ref().expect("a winner");
    let best = Retimed::leader(race).expect("none failed");
    assert!(winner.confirmed);
    assert_eq!(winner.setting, best.setting);
    assert_ne!(at_the_optimum(&best.point), 1.2);
    assert!(
        story.to_string().contains("Timed again, in turns"),
        "{story}"
    );
}

#[test]
fn a_kernel_that_cannot_be_timed_again_does_not_win() {
    let scratch = tempfile::tempdir().expect("scratch");
    let folder = scratch.path().join("run");
    let lucky = Lucky {
        unlucky: |_| 1.0,
        broken: |point| point.0[0] == 2 && point.0[1] == 1,
        ..Lucky::at_the_optimum()
    };
    search(&folder, &lucky, 500, None);
    let story = Story::read(&StoredRun::open(&folder).expect("opens"), 5).expect("reads");
    let winner = story.winner.as_ref().expect("another");
    let setting = &winner.setting;
    assert!(setting["a"] != KnobValue::Int(2) || setting["b"] != KnobValue::Int(1));
    assert!(
        story.to_string().contains("it was luck that it ran"),
        "{story}"
    );
}

#[test]
fn a_run_stopped_around_its_race_goes_on_to_the_same_end_and_races_once() {
    let scratch = tempfile::tempdir().expect("scratch");
    let lucky = Lucky::at_the_optimum();
    let through = scratch.path().join("through");
    search(&through, &lucky, 30, None);
    let expected = timeless(&through);
    assert_eq!(races(&expected).len(), 1);
    for stop_after in 28..=32 {
        let folder = scratch.path().join(format!("stop-{stop_after}"));
        search(&folder, &lucky, 30, Some(stop_after));
        search(&folder, &lucky, 30, None);
        assert_eq!(timeless(&folder), expected, "stopped after {stop_after}");
        // going on with what has ended adds nothing
        search(&folder, &lucky, 30, None);
        assert_eq!(timeless(&folder), expected);
    }
    // with more to judge, the best are told apart again
    allow(&through, 500);
    search(&through, &lucky, 500, None);
    assert_eq!(races(&timeless(&through)).len(), 2);
}

#[test]
fn times_at_full_load_choose_the_winner_and_are_set_beside_no_others() {
    let scratch = tempfile::tempdir().expect("scratch");
    let folder = scratch.path().join("run");
    let lucky = Lucky {
        full_load: true,
        ..Lucky::at_the_optimum()
    };
    // The first 12 settings lack the one that looks best.
    for budget in [12, 500] {
        if folder.exists() {
            allow(&folder, budget);
        }
        search(&folder, &lucky, budget, None);
    }
    let events = timeless(&folder);
    let races = races(&events);
    let [first, second] = races[..] else {
        panic!("two races, not {}", races.len());
    };
    assert!(first.iter().chain(second).all(|kernel| kernel.full_load));
    let story = Story::read(&StoredRun::open(&folder).expect("opens"), 200).expect("reads");
    let winner = story.winner.as_ref().expect("a winner");
    assert_eq!(
        winner.setting,
        Retimed::leader(second).expect("none failed").setting
    );
    // The one that looked best ran, and its time in the search stands.
    let looked_best = &story.top[0];
    assert!(
        second
            .iter()
            .any(|kernel| kernel.setting == looked_best.setting)
    );
    assert_ne!(winner.setting, looked_best.setting);
    assert!(
        story
            .to_string()
            .contains("Timed again at full load, in turns"),
        "{story}"
    );
}
