//! A prior from estimates: it says in which order new sources are tried, and nothing else.

use super::*;
use warptree::verdict::TimeRatio;

/// A source that takes `time` and is expected to take `estimated` times as long as its parent.
struct Made {
    name: &'static str,
    time: f64,
    estimated: Option<f64>,
}

fn made(name: &'static str, time: f64, estimated: Option<f64>) -> Made {
    Made {
        name,
        time,
        estimated,
    }
}

fn children(made: &[Made]) -> Vec<Child> {
    let child = |one: &Made| Child {
        estimated: one.estimated.and_then(TimeRatio::new),
        ..child(one.name, &single(one.name))
    };
    made.iter().map(child).collect()
}

/// A seed that takes 100; its rewrites, or a model, give `made` in one answer and nothing after.
fn search_of(made: &[Made], by: Expander, params: SearchParams) -> (Search, Vec<String>) {
    let seed = single("seed");
    let mut search = Search::new(params, 1, vec![root("seed", &seed)], &[by]);
    let mut tried = Vec::new();
    drive(&mut search, |search, request| match request {
        Request::Evaluate { ticket, node, .. } => {
            let label = search.node(*node).expect("a node").label.to_owned();
            let known = made.iter().find(|one| one.name == label);
            tried.push(label);
            Outcome::Evaluated {
                ticket: *ticket,
                value: valid(known.map_or(100.0, |one| one.time)),
                limit: None,
            }
        }
        Request::Expand {
            ticket,
            node,
            attempt,
            ..
        } => Outcome::Expanded {
            ticket: *ticket,
            children: match (search.source(*node), attempt) {
                (Some(source), 0) if source.digest() == seed.digest() => children(made),
                _ => Vec::new(),
            },
            cost: Cost::FREE,
        },
    });
    (search, tried)
}

fn with_prior() -> SearchParams {
    SearchParams {
        prior: true,
        window: 1,
        ..SearchParams::default()
    }
}

#[test]
fn the_least_estimate_comes_first_and_the_slow_last() {
    let rewrites = [
        made("slow", 1.0, Some(1.5)),
        made("same", 2.0, Some(1.0)),
        made("unknown", 3.0, None),
        made("fast", 300.0, Some(0.5)),
    ];
    let (search, tried) = search_of(&rewrites, Expander::Rewrites, with_prior());
    assert_eq!(tried, ["seed", "fast", "unknown", "same", "slow"]);
    // What was expected is no time: the slowest by estimate is the best as measured.
    let (best, _, cost) = search.best().expect("valid kernels");
    assert_eq!(search.node(best).expect("a node").label, "slow");
    assert_eq!(cost.get(), 1.0);
    let fast = search.nodes().find(|node| node.label == "fast");
    assert_eq!(
        fast.and_then(|node| node.best_below).map(Nanos::get),
        Some(300.0)
    );

    let without = SearchParams {
        prior: false,
        ..with_prior()
    };
    let (_, tried) = search_of(&rewrites, Expander::Rewrites, without);
    assert_eq!(tried, ["seed", "slow", "same", "unknown", "fast"]);
}

#[test]
fn what_is_expected_of_a_source_counts_from_what_was_measured_of_its_parent() {
    // Two seeds: a third off the slow one is not as good as nothing off the fast one.
    let seeds = ["a", "b"].map(single);
    let roots = vec![root("a", &seeds[0]), root("b", &seeds[1])];
    let edits = [
        children(&[made("a_less", 60.0, Some(0.7))]),
        children(&[made("b_same", 50.0, Some(1.0))]),
    ];
    let mut search = Search::new(with_prior(), 1, roots, &[Expander::Rewrites]);
    let mut tried = Vec::new();
    drive(&mut search, |search, request| match request {
        Request::Evaluate { ticket, node, .. } => {
            let label = search.node(*node).expect("a node").label.to_owned();
            let time = if label.starts_with('a') { 100.0 } else { 50.0 };
            tried.push(label);
            Outcome::Evaluated {
                ticket: *ticket,
                value: valid(time),
                limit: None,
            }
        }
        Request::Expand {
            ticket,
            node,
            attempt,
            ..
        } => {
            let digest = search.source(*node).expect("a source").digest();
            let from = seeds.iter().position(|seed| seed.digest() == digest);
            Outcome::Expanded {
                ticket: *ticket,
                children: match (from, attempt) {
                    (Some(from), 0) => edits[from].clone(),
                    _ => Vec::new(),
                },
                cost: Cost::FREE,
            }
        }
    });
    let place = |name: &str| tried.iter().position(|label| label == name);
    assert!(place("b_same") < place("a_less"), "{tried:?}");
    assert!(place("a_less").is_some(), "{tried:?}");
}

#[test]
fn a_models_edit_waits_only_where_it_seems_to_make_things_worse() {
    let edits = [
        made("worse", 90.0, Some(1.5)),
        made("same", 95.0, Some(1.0)),
        made("better", 80.0, Some(0.8)),
    ];
    let (_, tried) = search_of(&edits, Expander::Model, with_prior());
    assert_eq!(tried, ["seed", "same", "better", "worse"]);
}

/// Children by chance: up to three an answer, with or without estimates.
fn wild(seed: u64, params: SearchParams, estimates: bool) -> (Search, Vec<String>, Vec<Outcome>) {
    let hash = |text: &str| Digest::of(format!("{seed} {text}")).seed();
    let roots = ["x", "y"].map(|name| root(name, &grid(name, 3)));
    let by = [Expander::Rewrites, Expander::Model];
    let mut search = Search::new(params, seed, roots.to_vec(), &by);
    let mut asked = Vec::new();
    let (_, log) = drive(&mut search, |_, request| {
        asked.push(format!("{request:?}"));
        match request {
            Request::Evaluate {
                ticket,
                node,
                point,
                ..
            } => {
                let chance = hash(&format!("{node} {point:?}"));
                Outcome::Evaluated {
                    ticket: *ticket,
                    value: match chance % 7 {
                        0 => Value::Failed,
                        _ => valid(100.0 + (chance % 90) as f64),
                    },
                    limit: None,
                }
            }
            Request::Expand {
                ticket,
                node,
                by,
                attempt,
                ..
            } => {
                let chance = hash(&format!("{node} {by} {attempt}"));
                let child = |nth: u64| {
                    let name = format!("s{}", (chance >> (8 * nth)) % 40);
                    let ratio = 0.7 + (chance >> (8 * nth)) as f64 % 60.0 / 100.0;
                    Child {
                        estimated: TimeRatio::new(ratio).filter(|_| estimates),
                        ..child(&name, &grid(&name, 2))
                    }
                };
                Outcome::Expanded {
                    ticket: *ticket,
                    children: (0..chance % 4).map(child).collect(),
                    cost: Cost::FREE,
                }
            }
        }
    });
    (search, asked, log)
}

#[test]
fn without_estimates_a_prior_changes_nothing() {
    for seed in 0..10 {
        let with = SearchParams {
            prior: true,
            ..budget(60)
        };
        let (_, without, _) = wild(seed, budget(60), false);
        assert_eq!(wild(seed, with, false).1, without, "seed {seed}");
        // and without a prior, estimates that somebody gives all the same
        assert_eq!(wild(seed, budget(60), true).1, without, "seed {seed}");
    }
}

#[test]
fn a_search_with_estimates_is_the_fold_of_its_log() {
    for seed in 0..6 {
        let params = SearchParams {
            prior: true,
            ..budget(80)
        };
        let (search, _, log) = wild(seed, params.clone(), true);
        let mut log = log.into_iter();
        let roots = ["x", "y"].map(|name| root(name, &grid(name, 3)));
        let by = [Expander::Rewrites, Expander::Model];
        let mut again = Search::new(params, seed, roots.to_vec(), &by);
        drive(&mut again, |_, _| log.next().expect("as many answers"));
        assert_eq!(again.fingerprint(), search.fingerprint(), "seed {seed}");
    }
}

#[test]
fn every_source_that_waits_is_tried_in_the_end() {
    for seed in 0..6 {
        let params = SearchParams {
            prior: true,
            ..SearchParams::default()
        };
        let (search, ..) = wild(seed, params, true);
        assert!(
            search.nodes().all(|node| node.evaluations > 0),
            "seed {seed}"
        );
    }
}
