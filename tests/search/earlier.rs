//! A tuner that learns from earlier runs: those that agree help, those that do not cost little.

use super::*;
use warptree::search::Earlier;

const SEEDS: u64 = 16;

/// Settings judged when not much is known yet.
const EARLY: usize = 12;

/// How long a setting takes.
type Times = fn(&Point) -> f64;

/// 1296 settings.
fn space() -> Arc<Source> {
    let knob = |i: usize| format!("//@ knob k{i} = 0 in {{0, 1, 2, 3, 4, 5}}\n");
    source(&(0..4).map(knob).collect::<String>())
}

fn bowl(point: &Point) -> f64 {
    let v: Vec<f64> = point.0.iter().map(|&value| f64::from(value)).collect();
    let bends = (v[0] - 4.0).powi(2) + 2.0 * (v[1] - 1.0).powi(2) + (v[2] - v[0]).powi(2);
    100.0 + bends + 1.5 * (v[3] - 3.0).abs()
}

fn opposite(point: &Point) -> f64 {
    1000.0 - bowl(point)
}

fn unrelated(point: &Point) -> f64 {
    100.0 + (Digest::of(format!("{point:?}")).seed() % 1000) as f64
}

/// What is judged, in order, where a setting takes this long.
fn tune(
    source: &Arc<Source>,
    time: Times,
    earlier: &[Earlier],
    budget: usize,
    seed: u64,
) -> Vec<(Point, f64)> {
    let default = source.space().default_point().expect("there is one");
    let params = TunerParams::default();
    let mut tuner = Tuner::new(Arc::clone(source), vec![default], earlier, &params, seed);
    let mut judged = Vec::new();
    for _ in 0..budget {
        let point = tuner.ask().expect("settings are left");
        tuner.tell(&point, valid(time(&point)));
        judged.push((point.clone(), time(&point)));
    }
    judged
}

/// What a search of 60 settings of `from` hands on.
fn known(from: &Arc<Source>, time: Times, seed: u64) -> Earlier {
    let judged = tune(from, time, &[], 60, 1000 + seed);
    let judged = judged.iter();
    let judged = judged.map(|(point, time)| (from.space().setting(point), valid(*time)));
    Earlier::new(judged, TunerParams::default().earlier_limit as usize)
}

/// By how much the best of so many evaluations misses the bowl's optimum, in the mean, after searches of
/// others with these times.
fn misses(budget: usize, earlier: &[(&Arc<Source>, Times)]) -> f64 {
    let source = space();
    let optimum = source.space().iter().map(|point| bowl(&point));
    let optimum = optimum.fold(f64::INFINITY, f64::min);
    let miss = |seed: u64| {
        let earlier: Vec<Earlier> = earlier
            .iter()
            .map(|(from, time)| known(from, *time, seed))
            .collect();
        let judged = tune(&source, bowl, &earlier, budget, seed);
        let best = judged.iter().map(|&(_, time)| time);
        best.fold(f64::INFINITY, f64::min) - optimum
    };
    (0..SEEDS).map(miss).sum::<f64>() / SEEDS as f64
}

#[test]
fn a_run_that_agrees_leads_to_good_settings_sooner() {
    let (without, with) = (misses(EARLY, &[]), misses(EARLY, &[(&space(), bowl)]));
    assert!(with < 0.5 * without, "{with}, {without} without it");
}

#[test]
fn runs_that_do_not_agree_cost_little() {
    let without = misses(40, &[]);
    for time in [opposite as Times, unrelated] {
        let with = misses(40, &[(&space(), time)]);
        assert!(with < without + 0.5, "{with}, {without} without it");
    }
}

#[test]
fn of_several_runs_those_that_agree_are_believed() {
    let space = space();
    let all = [
        (&space, opposite as Times),
        (&space, bowl),
        (&space, unrelated),
    ];
    let (without, with) = (misses(EARLY, &[]), misses(EARLY, &all));
    assert!(with < 0.8 * without, "{with}, {without} without them");
}

#[test]
fn knobs_and_values_that_only_one_side_has_are_no_obstacle() {
    // k3 is unknown there, and k9 here; 6 is no value here
    let knob = |name: &str| format!("//@ knob {name} = 0 in {{0, 1, 2, 3, 4, 5, 6}}\n");
    let other = source(&["k0", "k1", "k2", "k9"].map(knob).concat());
    let (without, with) = (misses(EARLY, &[]), misses(EARLY, &[(&other, bowl)]));
    assert!(with < without, "{with}, {without} without it");
    // nothing in common: as if there were none
    let stranger = source(&["p", "q", "r", "s"].map(knob).concat());
    let judged = |earlier: &[Earlier]| {
        let params = TunerParams::default();
        tune(&space(), bowl, earlier, params.start_points as usize + 9, 3)
    };
    assert_eq!(judged(&[known(&stranger, bowl, 3)]), judged(&[]));
}

#[test]
fn what_was_judged_earlier_is_part_of_the_state() {
    let source = space();
    let search = |earlier: Vec<Earlier>| {
        let root = Root {
            earlier,
            ..root("space", &source)
        };
        Search::new(budget(30), 1, vec![root], &[]).fingerprint()
    };
    let (one, other) = (known(&source, bowl, 1), known(&source, bowl, 2));
    assert_eq!(search(vec![one.clone()]), search(vec![one.clone()]));
    assert_ne!(search(vec![one.clone()]), search(vec![other]));
    assert_ne!(search(vec![one]), search(Vec::new()));
}
