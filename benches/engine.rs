//! How fast the engine itself is, against the bars it must meet. `cargo bench --bench engine`.
//! One core; nothing here measures search quality.

use std::sync::Arc;
use std::time::{Duration, Instant};

use warptree::evaluate::Evaluator;
use warptree::evaluate::recorded::{Recorded, Row, Table};
use warptree::search::graph::{Graph, NodeId};
use warptree::search::tuner::Tuner;
use warptree::search::{
    Child, Cost, Expander, Next, Outcome, Request, Root, Search, SearchParams, StopRules,
    Surrogate, TunerParams, Value,
};
use warptree::source::{KnobValue, Point, Source};
use warptree::units::Nanos;

fn main() {
    // `cargo test` runs benchmarks with --test: there is nothing to check then.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    evaluations();
    decisions(200, Duration::from_millis(2));
    decisions(2000, Duration::from_millis(10));
    graph_operations();
    search_steps();
}

fn report(what: &str, value: String, bar: &str, met: bool) {
    let verdict = if met { "met" } else { "MISSED" };
    println!("{what:<46} {value:>16}   bar: {bar:<20} {verdict}");
}

/// A recorded evaluator driven through ask/tell, without the surrogate.
fn evaluations() {
    let knob = |name: &str| (name.to_owned(), (0..40).map(KnobValue::Int).collect());
    let rows = (0..40 * 40 * 40).map(|i: i64| {
        let (a, b, c) = (i % 40, i / 40 % 40, i / 1600);
        let row = Row::Time {
            time: nanos((1000 + (a - b).abs() * 10 + c) as f64),
            samples: Vec::new(),
        };
        (
            vec![KnobValue::Int(a), KnobValue::Int(b), KnobValue::Int(c)],
            row,
        )
    });
    let table = Table::new(vec![knob("a"), knob("b"), knob("c")], rows);
    let source = Arc::new(parse(&table.source_text(&[])));
    let recorded = Recorded::new(table);
    let n = 40_000;
    let mut params = SearchParams {
        stop: StopRules {
            evaluations: Some(n),
            ..StopRules::default()
        },
        ..SearchParams::default()
    };
    params.tuner.surrogate = Surrogate::Uniform;
    let root = Root {
        label: "seed".into(),
        source: Arc::clone(&source),
        settings: Vec::new(),
        earlier: Vec::new(),
    };
    let mut search = Search::new(params, 1, vec![root], &[]);
    let mut begun = Instant::now();
    let mut blocks = Vec::new();
    let mut queue = std::collections::VecDeque::new();
    loop {
        match search.next(Duration::ZERO) {
            Next::Request(request) => queue.push_back(request),
            Next::Done(_) => break,
            Next::Wait => {
                let Some(Request::Evaluate { ticket, point, .. }) = queue.pop_front() else {
                    unreachable!("only evaluations are in flight");
                };
                let evaluation = recorded
                    .evaluate(&source, &point)
                    .expect("a table does not break");
                let value = Value::from(&evaluation.verdict);
                search
                    .apply(&Outcome::Evaluated {
                        ticket,
                        value,
                        limit: None,
                    })
                    .expect("the ticket is in flight");
                if search.evaluations().is_multiple_of(1000) {
                    blocks.push(begun.elapsed());
                    begun = Instant::now();
                }
            }
        }
    }
    let rate = 1000.0 / median(&mut blocks).as_secs_f64();
    report(
        "recorded evaluations, no surrogate",
        format!("{rate:.0}/s"),
        "20000/s",
        rate >= 20_000.0,
    );
}

/// The tuner's next setting when `n` were judged: without relearning, and with its share of relearning.
fn decisions(n: usize, bar: Duration) {
    let values = |count: usize| {
        (0..count)
            .map(|v| v.to_string())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let text: String = [4, 4, 3, 3, 3, 3, 4, 4, 2, 2]
        .iter()
        .enumerate()
        .map(|(i, &count)| format!("//@ knob k{i} = 0 in {{{}}}\n", values(count)))
        .collect();
    let source = Arc::new(parse(&text));
    let kept = TunerParams {
        learn_proposals: 0,
        ..TunerParams::default()
    };
    for (what, params) in [
        ("kernel kept", kept),
        ("with its share of relearning", TunerParams::default()),
    ] {
        let mut tuner = Tuner::new(Arc::clone(&source), Vec::new(), &[], &params, 1);
        let mut ask = || {
            let begun = Instant::now();
            let point = tuner.ask().expect("the space is large");
            let took = begun.elapsed();
            tuner.tell(&point, landscape(&point));
            took
        };
        (0..n).for_each(|_| {
            ask();
        });
        // Relearning comes every few decisions: a block of them has its share.
        const BLOCK: u32 = 20;
        let block = |_| (0..BLOCK).map(|_| ask()).sum::<Duration>() / BLOCK;
        let time = median(&mut (0..7).map(block).collect::<Vec<Duration>>());
        report(
            &format!("decision at {n} settings, {what}"),
            format!("{time:.2?}"),
            &format!("{bar:?}"),
            time < bar,
        );
    }
}

/// The middle: other work on the machine stretches a few, not most.
fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn landscape(point: &Point) -> Value {
    let bends = point.0.iter().enumerate().map(|(knob, &value)| {
        let off = f64::from(value) - 1.3 - 0.2 * knob as f64;
        off * off
    });
    let crossed = f64::from(point.0[0]) * f64::from(point.0[5]);
    Value::valid(
        nanos(1000.0 + 50.0 * bends.sum::<f64>() + 20.0 * crossed),
        1.0,
    )
}

/// Grow, visit, back up and close, on a graph that already has `n` nodes.
fn graph_operations() {
    let mut graph = Graph::new(());
    let mut per_operation = Vec::new();
    let mut next = 1u32;
    for n in [1_000, 10_000, 100_000] {
        while graph.len() < n {
            grow(&mut graph, &mut next);
        }
        let mut times = Vec::new();
        for _ in 0..2_000 {
            let begun = Instant::now();
            let node = grow(&mut graph, &mut next);
            let path = graph.lineage(node);
            graph.visit(&path);
            graph.improve(node, nanos(1e6 / f64::from(node.0)));
            graph.set_own_open(node, false);
            times.push(begun.elapsed());
        }
        per_operation.push((n, median(&mut times)));
    }
    flat("graph: grow, visit, back up, close", &per_operation);
}

/// A child of a pseudo-random earlier node: depth grows with the logarithm.
fn grow(graph: &mut Graph<()>, next: &mut u32) -> NodeId {
    *next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    let parent = NodeId((*next >> 8) % graph.len() as u32);
    graph.grow(parent, (), String::new(), None)
}

/// Whole steps of a search whose sources have no knobs, so that the graph does all the growing.
fn search_steps() {
    let root = Root {
        label: "seed".into(),
        source: Arc::new(single(0)),
        settings: Vec::new(),
        earlier: Vec::new(),
    };
    let params = SearchParams {
        window: 1,
        ..SearchParams::default()
    };
    let mut search = Search::new(params, 1, vec![root], &[Expander::Rewrites]);
    let (mut made, mut nodes) = (1u64, 2usize);
    let mut per_step = Vec::new();
    for n in [1_000, 10_000, 100_000] {
        while nodes < n {
            step(&mut search, &mut made, &mut nodes);
        }
        // Making the sources is not the search's work: it is taken out of the time.
        let mut times: Vec<Duration> = (0..2_000)
            .map(|_| step(&mut search, &mut made, &mut nodes))
            .collect();
        per_step.push((n, median(&mut times)));
    }
    flat("search: one request and its outcome", &per_step);
}

/// Asks and tells once; returns the time inside the search.
fn step(search: &mut Search, made: &mut u64, nodes: &mut usize) -> Duration {
    let begun = Instant::now();
    let Next::Request(request) = search.next(Duration::ZERO) else {
        unreachable!("there is always something to expand");
    };
    let asked = begun.elapsed();
    let outcome = match request {
        Request::Evaluate { ticket, node, .. } => {
            let jitter = f64::from(node.0.wrapping_mul(2_654_435_761) >> 12);
            let value = Value::valid(nanos(1e6 + jitter), 1.0);
            Outcome::Evaluated {
                ticket,
                value,
                limit: None,
            }
        }
        Request::Expand {
            ticket, attempt, ..
        } => {
            let count = if attempt < 2 { 2 } else { 0 };
            let children = (0..count).map(|_| {
                *made += 1;
                Child {
                    label: "edit".into(),
                    source: Arc::new(single(*made)),
                    settings: Vec::new(),
                    estimated: None,
                }
            });
            let children: Vec<Child> = children.collect();
            *nodes += children.len();
            Outcome::Expanded {
                ticket,
                children,
                cost: Cost::FREE,
            }
        }
    };
    let begun = Instant::now();
    search.apply(&outcome).expect("the ticket is in flight");
    asked + begun.elapsed()
}

fn flat(what: &str, measured: &[(usize, Duration)]) {
    let first = measured.first().map_or(Duration::ZERO, |&(_, time)| time);
    for &(n, time) in measured {
        // Caches alone make a large graph slower: what must not appear is growth with n.
        let met = time < first * 4 + Duration::from_micros(5);
        report(
            &format!("{what}, {n} nodes"),
            format!("{time:.2?}"),
            "flat",
            met,
        );
    }
}

fn single(number: u64) -> Source {
    parse(&format!("//@ knob k = {number} in {{{number}}}\n"))
}

fn parse(text: &str) -> Source {
    Source::parse(text).expect("the benchmark's source parses")
}

fn nanos(time: f64) -> Nanos {
    Nanos::new(time).expect("a positive time")
}
