//! The search as its driver sees it: what it asks for, when it ends, and that a log of it can be replayed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use warptree::search::tuner::Tuner;
use warptree::search::{
    ApplyError, Backup, Child, Cost, Expander, Grown, Next, NodeId, Outcome, Plateau, Request,
    Root, Search, SearchParams, StopReason, StopRules, Surrogate, Ticket, TunerParams, Value,
};
use warptree::source::{KnobValue, Point, Setting, Source};
use warptree::units::{Digest, Nanos};

#[path = "search/earlier.rs"]
mod earlier;
#[path = "search/prior.rs"]
mod prior;

fn source(text: &str) -> Arc<Source> {
    Arc::new(Source::parse(text).expect("the test's source parses"))
}

/// Knobs `a` and `b` with `n` values each; `name` makes sources differ.
fn grid(name: &str, n: i64) -> Arc<Source> {
    let values: Vec<String> = (0..n).map(|value| value.to_string()).collect();
    let values = values.join(", ");
    source(&format!(
        "//@ knob a = 0 in {{{values}}}\n//@ knob b = 0 in {{{values}}}\n//@ knob {name} = 1 in {{1}}\n"
    ))
}

/// A source without a choice.
fn single(name: &str) -> Arc<Source> {
    source(&format!("//@ knob {name} = 1 in {{1}}\n"))
}

fn root(label: &str, source: &Arc<Source>) -> Root {
    Root {
        label: label.into(),
        source: Arc::clone(source),
        settings: Vec::new(),
        earlier: Vec::new(),
    }
}

fn child(label: &str, source: &Arc<Source>) -> Child {
    Child {
        label: label.into(),
        source: Arc::clone(source),
        settings: Vec::new(),
        estimated: None,
    }
}

fn valid(time: f64) -> Value {
    Value::valid(Nanos::new(time).expect("a positive time"), 1.0)
}

fn budget(evaluations: u32) -> SearchParams {
    SearchParams {
        stop: StopRules {
            evaluations: Some(evaluations),
            ..StopRules::default()
        },
        ..SearchParams::default()
    }
}

/// Asks until nothing more may be in flight.
fn fill(search: &mut Search) -> (Vec<Request>, Option<StopReason>) {
    let mut requests = Vec::new();
    loop {
        match search.next(Duration::ZERO) {
            Next::Request(request) => requests.push(request),
            Next::Wait => return (requests, None),
            Next::Done(reason) => return (requests, Some(reason)),
        }
    }
}

/// A driver: keeps the window full and tells outcomes in ticket order.
fn drive(
    search: &mut Search,
    mut answer: impl FnMut(&Search, &Request) -> Outcome,
) -> (StopReason, Vec<Outcome>) {
    let mut queue = std::collections::VecDeque::new();
    let mut log = Vec::new();
    loop {
        let (requests, done) = fill(search);
        queue.extend(requests);
        if let Some(reason) = done {
            return (reason, log);
        }
        let request = queue
            .pop_front()
            .expect("something is in flight while the search waits");
        let outcome = answer(search, &request);
        search.apply(&outcome).expect("the ticket is in flight");
        log.push(outcome);
    }
}

/// Answers evaluations by `time` of the knobs a and b (`None`: failed); expanders have nothing.
fn bowl(time: impl Fn(i64, i64) -> Option<f64>) -> impl FnMut(&Search, &Request) -> Outcome {
    move |search, request| match request {
        Request::Evaluate {
            ticket,
            node,
            point,
            ..
        } => {
            let source = search.source(*node).expect("a node with a source");
            let setting = source.space().setting(point);
            let knob = |name: &str| match setting.get(name) {
                Some(KnobValue::Int(value)) => *value,
                Some(KnobValue::Text(_)) | None => 0,
            };
            let value = time(knob("a"), knob("b")).map_or(Value::Failed, valid);
            Outcome::Evaluated {
                ticket: *ticket,
                value,
                limit: None,
            }
        }
        Request::Expand { ticket, .. } => Outcome::Expanded {
            cost: Cost::FREE,
            ticket: *ticket,
            children: Vec::new(),
        },
    }
}

#[test]
fn a_budget_of_one_evaluates_the_seeds_default() {
    let mut search = Search::new(budget(1), 7, vec![root("seed", &grid("s", 8))], &[]);
    let (reason, log) = drive(&mut search, bowl(|a, b| Some((a + b + 1) as f64)));
    assert_eq!((reason, log.len()), (StopReason::Evaluations, 1));
    let (node, point, cost) = search.best().expect("one valid evaluation");
    assert_eq!(
        (node, &point.0[..2], cost.get()),
        (NodeId(1), &[0, 0][..], 1.0)
    );
}

#[test]
fn a_space_ends_when_every_setting_was_tried_once() {
    for surrogate in [Surrogate::RankGp, Surrogate::LogTimeGp, Surrogate::Uniform] {
        let mut params = SearchParams::default();
        params.tuner.surrogate = surrogate;
        let mut search = Search::new(params, 1, vec![root("seed", &grid("s", 6))], &[]);
        let (reason, log) = drive(
            &mut search,
            bowl(|a, b| (a != b).then(|| (a * b + 1) as f64)),
        );
        assert_eq!((reason, log.len()), (StopReason::Exhausted, 36));
        let view = search.node(NodeId(1)).expect("the seed");
        let points: BTreeSet<_> = view.trials.iter().map(|trial| &trial.point).collect();
        assert_eq!((points.len(), view.evaluations, view.valid), (36, 36, 30));
        assert!(!view.open);
    }
}

#[test]
fn a_space_where_all_fails_ends_without_a_best() {
    let roots = vec![root("seed", &single("s")), root("space", &grid("t", 5))];
    let both = [Expander::Rewrites, Expander::Model];
    let mut search = Search::new(SearchParams::default(), 1, roots, &both);
    let (reason, log) = drive(&mut search, bowl(|_, _| None));
    assert_eq!((reason, log.len()), (StopReason::Exhausted, 26));
    assert!(search.best().is_none());
}

#[test]
fn no_sources_means_nothing_to_do() {
    let mut search = Search::new(SearchParams::default(), 1, Vec::new(), &[Expander::Model]);
    assert_eq!(
        search.next(Duration::ZERO),
        Next::Done(StopReason::Exhausted)
    );
}

#[test]
fn no_more_than_the_window_and_the_budget_are_in_flight_and_nothing_is_asked_twice() {
    let mut params = budget(10);
    params.window = 4;
    let mut search = Search::new(params, 3, vec![root("seed", &grid("s", 4))], &[]);
    let mut seen = BTreeSet::new();
    let mut pending = Vec::new();
    let mut told = 0;
    loop {
        let (requests, done) = fill(&mut search);
        for request in requests {
            if let Request::Evaluate { ticket, point, .. } = request {
                assert_eq!(ticket, Ticket(seen.len() as u64), "tickets have no gaps");
                assert!(seen.insert(point), "asked twice");
                pending.push(ticket);
            }
        }
        if done.is_some() {
            break;
        }
        assert!(pending.len() <= 4 && told + pending.len() <= 10);
        // The latest first: order of arrival is not order of asking.
        let ticket = pending.pop().expect("something is in flight");
        told += 1;
        let value = valid(told as f64);
        search
            .apply(&Outcome::Evaluated {
                ticket,
                value,
                limit: None,
            })
            .expect("in flight");
    }
    assert_eq!((told, seen.len()), (10, 10));
}

#[test]
fn an_outcome_that_fits_nothing_in_flight_is_refused() {
    let mut search = Search::new(budget(5), 3, vec![root("seed", &grid("s", 4))], &[]);
    let evaluated = |ticket| Outcome::Evaluated {
        ticket: Ticket(ticket),
        value: Value::Failed,
        limit: None,
    };
    assert_eq!(
        search.apply(&evaluated(0)),
        Err(ApplyError::NotInFlight(Ticket(0)))
    );
    assert!(matches!(search.next(Duration::ZERO), Next::Request(_)));
    let wrong = Outcome::ExpandFailed {
        ticket: Ticket(0),
        cost: Cost::FREE,
    };
    assert_eq!(search.apply(&wrong), Err(ApplyError::WrongKind(Ticket(0))));
    search.apply(&evaluated(0)).expect("in flight");
    assert_eq!(
        search.apply(&evaluated(0)),
        Err(ApplyError::NotInFlight(Ticket(0)))
    );
}

#[test]
fn time_plateau_and_target_end_a_search() {
    let search = |stop: StopRules| {
        let params = SearchParams {
            stop,
            ..SearchParams::default()
        };
        Search::new(params, 3, vec![root("seed", &grid("s", 16))], &[])
    };
    let mut timed = search(StopRules {
        time: Some(Duration::from_secs(5)),
        ..StopRules::default()
    });
    assert!(matches!(
        timed.next(Duration::from_secs(4)),
        Next::Request(_)
    ));
    assert_eq!(
        timed.next(Duration::from_secs(5)),
        Next::Done(StopReason::Time)
    );
    let plateau = Some(Plateau {
        evaluations: 20,
        improvement: 0.01,
    });
    let mut flat = search(StopRules {
        plateau,
        ..StopRules::default()
    });
    let (reason, log) = drive(&mut flat, bowl(|_, _| Some(5.0)));
    assert_eq!((reason, log.len()), (StopReason::Plateau, 21));
    let mut aimed = search(StopRules {
        target: Nanos::new(20.0),
        ..StopRules::default()
    });
    let (reason, _) = drive(
        &mut aimed,
        bowl(|a, b| Some((10 + (a - 9).abs() + (b - 4).abs()) as f64)),
    );
    assert_eq!(reason, StopReason::Target);
}

#[test]
fn a_suggested_setting_is_tried_first_and_an_impossible_one_is_ignored() {
    let setting = |a: i64| Setting::from([("a".to_owned(), KnobValue::Int(a))]);
    let seed = Root {
        settings: vec![setting(3), setting(99)],
        ..root("seed", &grid("s", 4))
    };
    assert_eq!(first_values(seed, 2), [0, 3]);
}

#[test]
fn the_start_shows_both_values_of_every_switch() {
    let ten = "{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}";
    let source = source(&format!(
        "//@ knob a = 0 in {ten}\n//@ knob b = 0 in {ten}\n//@ knob c = 0 in {ten}\n\
         //@ knob s = 0 in {{0, 1}}\n//@ knob t = 0 in {{0, 1}}\n//@ knob u = 0 in {{0, 1}}\n\
         //@ require s == 0 or a == 0\n//@ require t == 0 or b == 0\n"
    ));
    let params = TunerParams::default();
    for seed in 0..50 {
        let default = source.space().default_point().into_iter().collect();
        let mut tuner = Tuner::new(Arc::clone(&source), default, &[], &params, seed);
        let start = (0..params.start_points).map(|_| tuner.ask().expect("settings are left"));
        let start: Vec<Point> = start.collect();
        for switch in 3..6 {
            let on = start.iter().any(|point| point.0[switch] == 1);
            assert!(on, "seed {seed}: knob {switch} is never on in {start:?}");
        }
    }
}

#[test]
fn what_a_source_wants_tried_comes_right_after_its_default() {
    let knobs = "//@ knob a = 2 in {0, 1, 2, 3}\n//@ knob b = 0 in {0, 1}\n";
    let own = source(&format!("{knobs}//@ try a=3\n//@ try a=1 b=1\n"));
    let given = Setting::from([("a".to_owned(), KnobValue::Int(0))]);
    let seed = Root {
        settings: vec![given],
        ..root("seed", &own)
    };
    assert_eq!(first_values(seed, 4), [2, 3, 1, 0]);
}

/// The first knob's value index in the first few settings that a root is asked to be judged with.
fn first_values(root: Root, count: usize) -> Vec<u16> {
    let mut search = Search::new(budget(count as u32 + 1), 3, vec![root], &[]);
    let (requests, _) = fill(&mut search);
    let values = requests.iter().map(|request| match request {
        Request::Evaluate { point, .. } => point.0[0],
        Request::Expand { .. } => panic!("no expander is in service"),
    });
    values.take(count).collect()
}

/// Answers expansions from a script of (parent, children); evaluations by the source's own name.
fn scripted<'a>(
    edits: &'a [(&'a str, &'a [&'a str])],
    times: &'a [(&'a str, Option<f64>)],
) -> impl FnMut(&Search, &Request) -> Outcome + 'a {
    move |search, request| {
        let name = |id: NodeId| {
            search.node(id).expect("a node").source.space().knobs()[0]
                .name
                .clone()
        };
        match request {
            Request::Evaluate { ticket, node, .. } => {
                let name = name(*node);
                let time = times
                    .iter()
                    .find(|(known, _)| *known == name)
                    .and_then(|(_, time)| *time);
                Outcome::Evaluated {
                    ticket: *ticket,
                    value: time.map_or(Value::Failed, valid),
                    limit: None,
                }
            }
            Request::Expand {
                ticket,
                node,
                attempt,
                ..
            } => {
                let name = name(*node);
                let mut answers = edits.iter().filter(|(parent, _)| *parent == name);
                let children = answers
                    .nth(*attempt as usize)
                    .map_or(&[][..], |(_, children)| children);
                let children = children
                    .iter()
                    .map(|label| child(label, &single(label)))
                    .collect();
                Outcome::Expanded {
                    cost: Cost::FREE,
                    ticket: *ticket,
                    children,
                }
            }
        }
    }
}

#[test]
fn edits_that_meet_share_a_node_and_one_that_leads_back_is_a_duplicate() {
    let edits: &[(&str, &[&str])] = &[
        ("s", &["x", "y"]),
        ("x", &["xy"]),
        ("y", &["xy", "s"]),
        ("xy", &["x"]),
    ];
    let times = [
        ("s", Some(9.0)),
        ("x", Some(8.0)),
        ("y", Some(7.0)),
        ("xy", Some(3.0)),
    ];
    let mut search = Search::new(
        SearchParams::default(),
        1,
        vec![root("seed", &single("s"))],
        &[Expander::Rewrites],
    );
    let (reason, log) = drive(&mut search, scripted(edits, &times));
    assert_eq!(reason, StopReason::Exhausted);
    let evaluated = log
        .iter()
        .filter(|outcome| matches!(outcome, Outcome::Evaluated { .. }));
    assert_eq!(evaluated.count(), 4, "each source once");
    let labels: Vec<(&str, usize)> = search
        .nodes()
        .map(|node| (node.label, node.parents.len()))
        .collect();
    assert_eq!(labels, [("seed", 1), ("x", 1), ("y", 1), ("xy", 2)]);
    assert!(
        search
            .nodes()
            .all(|node| node.best_below.map(Nanos::get) == Some(3.0) && !node.open)
    );
    let (best, _, _) = search.best().expect("a best");
    let story: Vec<&str> = search
        .lineage(best)
        .into_iter()
        .map(|(_, label)| label)
        .collect();
    assert_eq!(story, ["seed", "x", "xy"]);
}

#[test]
fn what_became_of_each_proposed_child_is_told() {
    let seed = grid("s", 4);
    let params = SearchParams {
        window: 1,
        trial: 1,
        tune_gain: 0.0,
        ..SearchParams::default()
    };
    let mut search = Search::new(params, 1, vec![root("seed", &seed)], &[Expander::Rewrites]);
    let Next::Request(first) = search.next(Duration::ZERO) else {
        panic!("nothing asked")
    };
    let value = valid(5.0);
    search
        .apply(&Outcome::Evaluated {
            ticket: first.ticket(),
            value,
            limit: None,
        })
        .expect("in flight");
    let Next::Request(Request::Expand {
        ticket, attempt: 0, ..
    }) = search.next(Duration::ZERO)
    else {
        panic!("an expansion was due");
    };
    let mut own = child("settings", &seed);
    own.settings = vec![Setting::from([("a".to_owned(), KnobValue::Int(2))])];
    let other = single("other");
    let children = vec![child("new", &other), child("again", &other), own];
    let applied = search
        .apply(&Outcome::Expanded {
            ticket,
            children,
            cost: Cost::FREE,
        })
        .expect("in flight");
    let node = NodeId(2);
    let expected = [
        Grown::New { node },
        Grown::Duplicate { node },
        Grown::Settings { fresh: 1 },
    ];
    assert_eq!(applied.children, expected);
}

#[test]
fn a_child_starts_from_its_parents_best_setting() {
    let (seed, edited) = (grid("s", 8), grid("t", 8));
    let mut search = Search::new(
        budget(120),
        1,
        vec![root("seed", &seed)],
        &[Expander::Rewrites],
    );
    let mut first = None;
    let landscape = |a: i64, b: i64| Some((10 + (a - 5).abs() + (b - 2).abs()) as f64);
    let mut evaluate = bowl(landscape);
    drive(&mut search, |search, request| match request {
        Request::Expand {
            ticket,
            node,
            attempt: 0,
            ..
        } if *node == NodeId(1) => {
            let best = search
                .node(*node)
                .expect("the seed")
                .best
                .expect("valid")
                .point
                .clone();
            first = Some(best);
            Outcome::Expanded {
                cost: Cost::FREE,
                ticket: *ticket,
                children: vec![child("edit", &edited)],
            }
        }
        Request::Expand { .. } | Request::Evaluate { .. } => evaluate(search, request),
    });
    let first = first.expect("the seed was expanded");
    let tried = search.node(NodeId(2)).expect("the edit").trials[0]
        .point
        .clone();
    assert_eq!(tried.0[..2], first.0[..2]);
}

#[test]
fn a_broken_edit_is_repaired_so_often_and_then_left() {
    let times = [("s", Some(9.0))];
    let edits: &[(&str, &[&str])] = &[
        ("s", &["m"]),
        ("m", &["m1"]),
        ("m1", &["m2"]),
        ("m2", &["m3"]),
    ];
    let params = SearchParams {
        repairs: 2,
        ..SearchParams::default()
    };
    let roots = vec![root("seed", &single("s"))];
    let mut search = Search::new(params, 1, roots, &[Expander::Model]);
    let (reason, _) = drive(&mut search, scripted(edits, &times));
    assert_eq!(reason, StopReason::Exhausted);
    let labels: Vec<&str> = search.nodes().map(|node| node.label).collect();
    assert_eq!(labels, ["seed", "m", "m1", "m2"]);
}

#[test]
fn repairs_are_a_chain_and_the_model_is_asked_where_an_edit_promises_most() {
    let params = SearchParams {
        window: 1,
        model_window: 1,
        ..budget(60)
    };
    let roots = vec![root("seed", &single("s"))];
    let mut search = Search::new(params, 1, roots, &[Expander::Model]);
    let mut asked: Vec<NodeId> = Vec::new();
    // the first edit is broken three times over and then much better; all others are well behind it
    drive(&mut search, |search, request| match request {
        Request::Evaluate { ticket, node, .. } => Outcome::Evaluated {
            ticket: *ticket,
            value: match node.0 {
                1 => valid(9.0),
                2..=4 => Value::Failed,
                5 => valid(3.0),
                _ => valid(5.0),
            },
            limit: None,
        },
        Request::Expand { ticket, node, .. } => {
            asked.push(*node);
            let name = format!("n{}", search.nodes().count());
            Outcome::Expanded {
                cost: Cost::FREE,
                ticket: *ticket,
                children: vec![child(&name, &single(&name))],
            }
        }
    });
    assert_eq!(asked[..4], [1, 2, 3, 4].map(NodeId));
    let about_the_best = asked[4..].iter().filter(|node| **node == NodeId(5));
    let count = about_the_best.count();
    assert!(count >= 15, "{count} of {asked:?}");
    assert!(
        count < asked.len() - 8,
        "others are not forgotten: {asked:?}"
    );
}

#[test]
fn a_model_that_only_fails_is_given_up_and_one_out_of_service_is_not_asked_again() {
    let asked = |outcome: fn(Ticket) -> Outcome| {
        let roots = vec![root("seed", &single("s")), root("space", &single("t"))];
        let params = SearchParams {
            repairs: 2,
            ..SearchParams::default()
        };
        let mut search = Search::new(params, 1, roots, &[Expander::Model]);
        let mut asked = 0;
        let (reason, _) = drive(&mut search, |_, request| match request {
            Request::Evaluate { ticket, .. } => Outcome::Evaluated {
                ticket: *ticket,
                value: valid(5.0),
                limit: None,
            },
            Request::Expand { ticket, .. } => {
                asked += 1;
                outcome(*ticket)
            }
        });
        assert_eq!(reason, StopReason::Exhausted);
        asked
    };
    assert_eq!(
        asked(|ticket| Outcome::ExpandFailed {
            ticket,
            cost: Cost::FREE
        }),
        6,
        "three tries for each source"
    );
    assert!(
        asked(|ticket| Outcome::Unavailable {
            ticket,
            passing: false
        }) <= 2,
        "those in flight at most"
    );
}

#[test]
fn a_model_that_does_not_answer_rests_longer_each_time_and_the_search_goes_on() {
    let roots = vec![root("seed", &grid("s", 12))];
    let mut search = Search::new(budget(100), 1, roots, &[Expander::Model]);
    let mut asked_after: Vec<u32> = Vec::new();
    let (reason, _) = drive(&mut search, |search, request| match request {
        Request::Evaluate { ticket, .. } => Outcome::Evaluated {
            ticket: *ticket,
            value: valid(5.0),
            limit: None,
        },
        Request::Expand { ticket, .. } => {
            asked_after.push(search.evaluations());
            Outcome::Unavailable {
                ticket: *ticket,
                passing: true,
            }
        }
    });
    assert_eq!(reason, StopReason::Evaluations);
    let rests: Vec<u32> = asked_after
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .collect();
    assert!(rests.len() >= 2, "asked after {asked_after:?}");
    assert!(
        rests.windows(2).all(|pair| pair[1] > pair[0]),
        "rests {rests:?}"
    );

    // with nothing else to do it is asked a few times more, and then the search ends
    let roots = vec![root("seed", &single("s"))];
    let mut search = Search::new(SearchParams::default(), 1, roots, &[Expander::Model]);
    let mut asked = 0;
    let (reason, _) = drive(&mut search, |_, request| match request {
        Request::Evaluate { ticket, .. } => Outcome::Evaluated {
            ticket: *ticket,
            value: valid(5.0),
            limit: None,
        },
        Request::Expand { ticket, .. } => {
            asked += 1;
            Outcome::Unavailable {
                ticket: *ticket,
                passing: true,
            }
        }
    });
    assert_eq!((reason, asked), (StopReason::Exhausted, 3));
}

#[test]
fn a_model_in_flight_holds_up_no_evaluation_and_asks_are_told() {
    let roots = vec![root("seed", &grid("s", 12)), root("space", &grid("t", 12))];
    let mut search = Search::new(budget(80), 1, roots, &[Expander::Model]);
    let mut asked = Vec::new();
    // the model never answers while the search runs
    loop {
        let (requests, done) = fill(&mut search);
        for request in &requests {
            match request {
                Request::Expand { ask, .. } => {
                    asked.push(ask.expect("a model is asked for something"))
                }
                Request::Evaluate { ticket, .. } => {
                    let outcome = Outcome::Evaluated {
                        ticket: *ticket,
                        value: valid(5.0),
                        limit: None,
                    };
                    search.apply(&outcome).expect("in flight");
                }
            }
        }
        if done.is_some() || requests.is_empty() {
            assert_eq!(done, Some(StopReason::Evaluations));
            break;
        }
    }
    assert_eq!(search.evaluations(), 80);
    assert_eq!(asked.len(), 2, "as many as may be in flight: {asked:?}");
}

#[test]
fn the_same_calls_give_the_same_state_at_every_step_and_another_seed_another() {
    let run = |seed: u64, steps: usize| {
        let roots = vec![root("seed", &grid("s", 12)), root("space", &grid("t", 12))];
        let mut search = Search::new(budget(60), seed, roots, &[Expander::Rewrites]);
        let mut answer =
            bowl(|a, b| (a != 7).then(|| (20 + (a - 9).pow(2) + (b - 4).pow(2)) as f64));
        let mut queue = std::collections::VecDeque::new();
        let mut prints = Vec::new();
        for _ in 0..steps {
            queue.extend(fill(&mut search).0);
            let Some(request) = queue.pop_front() else {
                break;
            };
            let outcome = answer(&search, &request);
            search.apply(&outcome).expect("in flight");
            prints.push(search.fingerprint());
        }
        prints
    };
    let whole = run(5, 100);
    assert!(whole.len() > 55);
    for prefix in [1, 2, 17, 40] {
        assert_eq!(run(5, prefix), whole[..prefix]);
    }
    assert_eq!(
        whole.iter().collect::<BTreeSet<_>>().len(),
        whole.len(),
        "each step changes the state"
    );
    assert_ne!(run(6, 20), whole[..20]);
}

#[test]
fn every_given_source_gets_a_trial_and_the_best_gets_the_budget() {
    // `late` is the best by far but for its default; `early` looks best at once; `bad` never is.
    let roots = vec![
        root("bad", &grid("p", 10)),
        root("early", &grid("q", 10)),
        root("late", &grid("r", 10)),
    ];
    for seed in 0..10 {
        let mut search = Search::new(budget(80), seed, roots.clone(), &[]);
        drive(&mut search, |search, request| {
            let Request::Evaluate {
                ticket,
                node,
                point,
                ..
            } = request
            else {
                panic!("no expander")
            };
            let label = search.node(*node).expect("a node").label;
            let (a, b) = (f64::from(point.0[0]), f64::from(point.0[1]));
            let time = match label {
                "bad" => 300.0 + a + b,
                "early" => 100.0 + a + b,
                _ => 40.0 + 12.0 * ((a - 6.0).abs() + (b - 3.0).abs()),
            };
            Outcome::Evaluated {
                ticket: *ticket,
                value: valid(time),
                limit: None,
            }
        });
        let spent: Vec<u32> = search.nodes().map(|node| node.evaluations).collect();
        let cost = search.best().expect("a best").2.get();
        assert!(
            spent[0] <= 20 && spent[2] >= 30 && cost <= 52.0,
            "seed {seed}: {spent:?}, {cost}"
        );
    }
}

#[test]
fn the_maximum_stays_with_a_rare_best_and_the_mean_with_what_is_steady() {
    let roots = vec![root("rare", &grid("p", 10)), root("steady", &grid("q", 10))];
    let spent = |backup: Backup| -> Vec<u32> {
        let params = SearchParams {
            backup,
            ..budget(60)
        };
        let mut search = Search::new(params, 1, roots.clone(), &[]);
        drive(&mut search, |search, request| {
            let Request::Evaluate {
                ticket,
                node,
                point,
                ..
            } = request
            else {
                panic!("no expander")
            };
            let time = match search.node(*node).expect("a node").label {
                "rare" if point.0[0] == 0 && point.0[1] == 0 => 50.0,
                "rare" => 1000.0,
                _ => 100.0,
            };
            Outcome::Evaluated {
                ticket: *ticket,
                value: valid(time),
                limit: None,
            }
        });
        search.nodes().map(|node| node.evaluations).collect()
    };
    let (max, mean) = (spent(Backup::Max), spent(Backup::Mean));
    assert!(max[0] > max[1], "{max:?}");
    assert!(mean[1] > mean[0], "{mean:?}");
}

/// Sources of one task with landscapes of known floors: `floor · (1 + distance from a hidden place)`.
struct World {
    sources: Vec<Arc<Source>>,
    landscapes: Vec<(f64, f64, f64, f64)>,
}

impl World {
    fn new(seed: u64, count: usize) -> Self {
        let mut state = seed * 2 + 1;
        let mut draw = || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) as f64 / (1u64 << 31) as f64
        };
        let landscape = |_| {
            let floor = 100.0 * (1.0 + 2.0 * draw());
            (floor, 9.0 * draw(), 9.0 * draw(), 0.05 + 0.25 * draw())
        };
        Self {
            sources: (0..count).map(|i| grid(&format!("s{i}"), 10)).collect(),
            landscapes: (0..count).map(landscape).collect(),
        }
    }

    fn time(&self, source: &Source, point: &warptree::source::Point) -> f64 {
        let own = self
            .sources
            .iter()
            .position(|known| known.digest() == source.digest());
        let (floor, a, b, slope) = self.landscapes[own.expect("a source of this world")];
        floor
            * (1.0
                + slope * ((f64::from(point.0[0]) - a).abs() + (f64::from(point.0[1]) - b).abs()))
    }
}

#[test]
fn the_tree_beats_taking_turns_over_sources() {
    let (worlds, evaluations, sources) = (40, 60, 12);
    let mut wins = 0.0;
    for seed in 0..worlds {
        let world = World::new(seed, sources);
        let roots = world
            .sources
            .iter()
            .map(|source| root("given", source))
            .collect();
        let params = SearchParams {
            window: 1,
            ..budget(evaluations)
        };
        let mut search = Search::new(params.clone(), seed, roots, &[]);
        drive(&mut search, |search, request| {
            let Request::Evaluate {
                ticket,
                node,
                point,
                ..
            } = request
            else {
                panic!("no expander")
            };
            let source = search.source(*node).expect("a source");
            Outcome::Evaluated {
                ticket: *ticket,
                value: valid(world.time(source, point)),
                limit: None,
            }
        });
        let tree = search.best().expect("a best").2.get();
        let mut turns = f64::INFINITY;
        for source in &world.sources {
            let first = source.space().default_point().into_iter().collect();
            let mut tuner = Tuner::new(Arc::clone(source), first, &[], &params.tuner, seed);
            for _ in 0..evaluations as usize / sources {
                let point = tuner.ask().expect("not exhausted");
                let time = world.time(source, &point);
                tuner.tell(&point, valid(time));
                turns = turns.min(time);
            }
        }
        wins += (turns / tree).ln();
    }
    let gain = (wins / worlds as f64).exp();
    assert!(
        gain > 1.02,
        "the tree's kernels are {gain:.3}× as fast as those found by turns"
    );
}
