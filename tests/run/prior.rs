//! A search that tries new sources in the order of what is expected of them: the log holds what was expected, so
//! that nothing is estimated again when it is read back.

use std::sync::atomic::AtomicU32;

use super::*;
use warptree::llm::Tally;
use warptree::propose::{Proposal, ProposalRequest, ProposeError, Proposer};
use warptree::search::Expander;
use warptree::task::Catalogue;

/// Sources are numbers; each has up to three rewrites.
struct Triples;

/// Numbers up to here are judged.
const MOST: i64 = 40;

fn text(number: i64) -> String {
    format!("//@ knob number = {number} in {{{number}}}\n")
}

fn number(source: &Source) -> i64 {
    let point = source.space().default_point().expect("one");
    match source.space().setting(&point).get("number") {
        Some(KnobValue::Int(number)) => *number,
        Some(KnobValue::Text(_)) | None => unreachable!("sources are numbers"),
    }
}

impl Proposer for Triples {
    fn name(&self) -> &str {
        "triples"
    }

    fn propose(
        &self,
        request: &ProposalRequest<'_>,
        _: &mut Tally,
    ) -> Result<Vec<Proposal>, ProposeError> {
        let child = number(request.source) * 3 + i64::from(request.attempt) + 1;
        let more = request.attempt < 3 && child <= MOST;
        let proposal = more.then(|| Proposal {
            label: format!("to {child}"),
            text: text(child).into(),
            settings: Vec::new(),
            rationale: None,
        });
        Ok(proposal.into_iter().collect())
    }
}

fn time(number: i64) -> f64 {
    200.0 + (number * 37 % 101) as f64
}

fn numbers() -> Recorded {
    let values = (0..=MOST).map(KnobValue::Int).collect();
    let rows = (0..=MOST).map(|number| {
        let row = Row::Time {
            time: Nanos::new(time(number)).expect("positive"),
            samples: vec![],
        };
        (vec![KnobValue::Int(number)], row)
    });
    Recorded::new(Table::new(
        vec![("number".to_owned(), values)],
        rows.collect::<Vec<_>>(),
    ))
}

/// Another clock, mostly right, and blind to every seventh.
fn expected(source: &Source) -> Estimate {
    let number = number(source);
    let off = 3.0 + (number % 4) as f64 / 10.0;
    match number % 7 {
        6 => Estimate::Unknown,
        _ => Estimate::Time(Nanos::new(time(number) * off).expect("positive")),
    }
}

/// Remembers the last state.
struct Watch<'a> {
    stop: StopAfter<'a>,
    state: Option<Digest>,
}

impl Observer for Watch<'_> {
    fn applied(&mut self, line: &Line, search: &Search) {
        self.state = Some(search.fingerprint());
        self.stop.applied(line, search);
    }
}

/// Goes on to the end or to a stop: the last state, and how often the cost model was asked.
fn search(folder: &Path, prior: bool, stop_after: Option<usize>) -> (Option<Digest>, u32) {
    let (mut run, past) = if folder.join("run.toml").exists() {
        RunWriter::resume(folder).expect("resumes")
    } else {
        let seed = text(0);
        let mut config = config(&seed, 500);
        config.proposers.push(ProposerKind::Rewrites);
        config.search.prior = prior;
        let run = RunWriter::create(folder, config, [&*seed]).expect("creates");
        (run, vec![])
    };
    let task = Catalogue::embedded().task("reduce_sum").expect("a task");
    let asked = AtomicU32::new(0);
    let estimator = |source: &Source, _: &Point| {
        asked.fetch_add(1, Ordering::Relaxed);
        Ok(expected(source))
    };
    let numbers = numbers();
    let rig = Rig {
        evaluator: &numbers,
        proposers: vec![(Expander::Rewrites, &Triples)],
        task: Some(&task),
        jobs: 2,
        deterministic: true,
        estimator: Some(&estimator),
        confirm: false,
    };
    let flag = AtomicBool::new(false);
    let left = stop_after.map(|events| events + past.len());
    let mut watch = Watch {
        stop: StopAfter { left, flag: &flag },
        state: None,
    };
    drive(&rig, &mut run, &past, &flag, &mut watch).expect("drives");
    (watch.state, asked.into_inner())
}

/// What was expected of each new source.
fn estimated(folder: &Path) -> Vec<Option<f64>> {
    let mut ratios = Vec::new();
    for event in timeless(folder) {
        if let Event::Expanded { children, .. } = event {
            ratios.extend(children.iter().map(|child| child.estimated.map(f64::from)));
        }
    }
    ratios
}

#[test]
fn estimates_are_in_the_log_and_a_stop_changes_nothing() {
    let scratch = tempfile::tempdir().expect("scratch");
    let through = scratch.path().join("through");
    let (state, asked) = search(&through, true, None);
    let events = timeless(&through);
    let ratios = estimated(&through);
    assert_eq!(ratios.len(), MOST as usize);
    // Each source is asked about at most once, be it as a child or as a parent; a child of the unknown never.
    assert!((25..=MOST as u32 + 1).contains(&asked), "{asked}");
    let unknown = ratios.iter().filter(|ratio| ratio.is_none()).count();
    assert!((5..30).contains(&unknown), "{unknown}");
    // Read back, nothing is asked of anybody.
    let run = StoredRun::open(&through).expect("opens");
    let mut fold = Fold::new(&run.config, &run.objects).expect("begins");
    for line in &run.lines {
        fold.replay(line, &run.objects).expect("replays");
    }
    assert_eq!(Some(fold.search.fingerprint()), state);
    for stop_after in (1..events.len()).step_by(23) {
        let folder = scratch.path().join(format!("stop-{stop_after}"));
        search(&folder, true, Some(stop_after));
        let (again, _) = search(&folder, true, None);
        assert_eq!(timeless(&folder), events, "stopped after {stop_after}");
        assert_eq!(again, state, "stopped after {stop_after}");
    }
    let story = Story::read(&run, 3).expect("reads");
    assert!(
        story
            .sources
            .iter()
            .any(|source| source.estimated.is_some())
    );
    let shown = story.to_string();
    assert!(shown.contains("× its parent's time estimated)"), "{shown}");
}

#[test]
fn without_a_prior_no_source_is_estimated() {
    let scratch = tempfile::tempdir().expect("scratch");
    let folder = scratch.path().join("run");
    let (_, asked) = search(&folder, false, None);
    assert_eq!(asked, 0);
    assert!(estimated(&folder).iter().all(Option::is_none));
    let log = std::fs::read_to_string(folder.join("events.jsonl")).expect("a log");
    assert!(!log.contains("estimated"), "{log}");
}
