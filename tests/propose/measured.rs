//! Methods compared on a GPU, with a device in its place that runs kernels as the simulator does and measures
//! them as a GPU would: each time anew, never twice the same, and busy meanwhile.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use warptree::compare::{Bench, Budget, Comparison, Method, MethodError, Series};
use warptree::device::{About, Device, Execution, Gpu, Job, RigError, SimDevice, Timed, Timing};
use warptree::evaluate::ptxas::Assembler;
use warptree::evaluate::{Cached, Evaluator as _, Pipeline, Settings};
use warptree::llm::{OpenOptions, exchanges, open};
use warptree::propose::{AskOptions, ModelProposer, ProposeError, Proposer};
use warptree::search::NodeId;
use warptree::source::Source;
use warptree::store::{BaselineTime, RootConfig, RunConfig, StoredRun};
use warptree::task::{Catalogue, Task};
use warptree::toolchain::{self, Network, Places};
use warptree::units::{Digest, Nanos};
use warptree::verdict::Time;

use crate::gpu::h200;

/// How long it measures a kernel.
const BUSY: Duration = Duration::from_millis(25);

/// Stands for a GPU.
struct Measuring {
    inner: SimDevice,
    /// The machine code of each measurement, in order.
    measured: Mutex<Vec<Digest>>,
    /// Somebody presses Ctrl-C when it has run so many kernels.
    patience: AtomicUsize,
    interrupt: AtomicBool,
}

impl Device for Measuring {
    fn gpu(&self) -> &Gpu {
        self.inner.gpu()
    }

    fn about(&self) -> &About {
        self.inner.about()
    }

    fn execute(&self, job: &Job<'_>) -> Result<Execution, RigError> {
        if self.patience.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.interrupt.store(true, Ordering::Relaxed);
        }
        self.inner.execute(job)
    }

    fn time(&self, job: &Job<'_>) -> Result<Timing, RigError> {
        thread::sleep(BUSY);
        let code = Digest::of(job.cubin.expect("a GPU runs machine code"));
        let mut measured = self.measured.lock().expect("whole");
        let before = measured.iter().filter(|earlier| **earlier == code).count();
        measured.push(code);
        // The first is the luckiest: whoever keeps it reports a kernel faster than it is.
        let ns = 1e6 + (code.seed() % 1000) as f64 + 1e5 * before.min(1) as f64 + before as f64;
        Ok(Timing::Timed(Box::new(Timed {
            time: Time::Measured {
                median: Nanos::new(ns).expect("positive"),
                samples: vec![ns],
                gpu: self.gpu().name.clone(),
            },
            diagnosis: None,
            floor: None,
            unsteady: Vec::new(),
            violations: Vec::new(),
            left: Vec::new(),
            afterwards: None,
            notes: Vec::new(),
        })))
    }
}

struct World {
    task: Arc<Task>,
    seed: Arc<Source>,
    device: Arc<Measuring>,
    judge: Cached<Pipeline>,
    config: RunConfig,
}

fn world() -> World {
    let task = Arc::new(Catalogue::embedded().task("transpose").expect("there"));
    let tool = toolchain::ptxas(&Places::from_environment(None), Network::Allowed, &|_| ());
    let device = Arc::new(Measuring {
        inner: SimDevice::new(h200()),
        measured: Mutex::default(),
        patience: AtomicUsize::new(usize::MAX),
        interrupt: AtomicBool::new(false),
    });
    let pipeline = Pipeline::new(Settings {
        task: Arc::clone(&task),
        arch: device.gpu().arch,
        device: Arc::<Measuring>::clone(&device),
        assembler: Assembler::new(tool.expect("is there")),
        ptxas_options: Vec::new(),
        verify_seed: 1,
        repeats: 1,
        deterministic: false,
    });
    let seed = Arc::new(Source::parse(&task.seed).expect("a source"));
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/transpose-h200.jsonl.gz");
    let mut config = StoredRun::open(&trace).expect("a trace").config;
    config.device = "cuda:0".to_owned();
    config.baseline = None;
    config.baselines = None;
    config.model = None;
    config.roots = vec![RootConfig {
        node: NodeId(1),
        label: "seed".to_owned(),
        source: Digest::of(seed.text.as_bytes()),
        settings: Vec::new(),
        earlier: Vec::new(),
    }];
    World {
        task,
        seed,
        device,
        judge: Cached::new(pipeline.expect("judges")),
        config,
    }
}

impl World {
    /// The series of each method, or why there is none.
    fn compare(
        &self,
        folder: &Path,
        methods: &[Method],
        budget: Budget,
    ) -> Result<Vec<Series>, MethodError> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/models/transpose.toml");
        let model = format!("script:{}", script.display());
        let make = |method: Method, seed: u64| -> Result<Box<dyn Proposer>, ProposeError> {
            let options = OpenOptions {
                record: Some(folder.join(Bench::name(method, seed))),
                resume: true,
                ..OpenOptions::default()
            };
            let chat = open(&model, None, &options).expect("a script");
            let options = AskOptions::default();
            Ok(Box::new(ModelProposer::new(chat.into(), h200(), options)?))
        };
        let bench = Bench {
            task: Some(&self.task),
            evaluator: &self.judge,
            rewrites: None,
            model: Some(&make),
            sources: &[Arc::clone(&self.seed)],
            config: &self.config,
            budget,
            turns: 8,
            jobs: 2,
            folder,
        };
        methods
            .iter()
            .map(|method| bench.run(*method, 0, &self.device.interrupt))
            .collect()
    }

    /// A new session: another process, and a seed that is measured otherwise.
    fn anew(mut self) -> Self {
        let before = self.config.baseline.take();
        let time = before.map_or(1.1e6, |baseline| baseline.time.get() * 1.01);
        self.config.baseline = Some(BaselineTime {
            name: "seed".to_owned(),
            time: Nanos::new(time).expect("positive"),
        });
        self.judge.forget();
        self.device.interrupt.store(false, Ordering::Relaxed);
        self
    }

    fn measurements(&self) -> usize {
        self.device.measured.lock().expect("whole").len()
    }
}

const METHODS: [Method; 5] = [
    Method::Search,
    Method::BestOfN,
    Method::Refine,
    Method::SingleShot,
    Method::Random,
];

#[test]
fn each_series_measures_its_own_kernels_and_no_winner_is_a_lucky_sample() {
    let world = world();
    let folder = tempfile::tempdir().expect("scratch");
    let budget = Budget {
        evaluations: Some(4),
        ..Budget::default()
    };
    let series = world
        .compare(folder.path(), &METHODS, budget)
        .expect("runs");
    for one in &series {
        let name = one.method.name();
        assert!(one.cost().evaluations <= 4, "{name}: {:?}", one.cost());
        // What another series measured is no present.
        let mut before = 0.0;
        let mut valid = Vec::new();
        for judged in &one.judged {
            if let Some(time) = judged.time {
                let took = judged.cost.judge_seconds - before;
                if !valid.contains(&time) {
                    assert!(took >= BUSY.as_secs_f64() / 1.1, "{name}: {took} s");
                }
                valid.push(time);
            }
            before = judged.cost.judge_seconds;
        }
        let best = one.best_so_far().into_iter().flatten().next_back();
        let winner = one.winner.as_ref().and_then(|winner| winner.time);
        match (best, winner) {
            (Some(best), Some(winner)) => {
                assert!(winner != best, "{name}: {best} was taken over");
            }
            (None, None) => {}
            (best, winner) => panic!("{name}: {best:?}, then {winner:?}"),
        }
    }
    assert!(
        series.iter().any(|one| one.result().is_some()),
        "{series:?}"
    );

    // Finished series are read: nothing is measured again, though the seed's time is another now.
    let measured = world.measurements();
    let world = world.anew();
    let again = world
        .compare(folder.path(), &METHODS, budget)
        .expect("reads");
    assert_eq!(world.measurements(), measured);
    let told = |series: Vec<Series>| {
        let comparison = Comparison {
            task: "transpose".to_owned(),
            gpu: world.config.gpu.clone(),
            device: "cuda:0".to_owned(),
            model: Some("scripted".to_owned()),
            label: "measured".to_owned(),
            budget,
            baseline: None,
            series,
        };
        (comparison.to_string(), comparison.curve_csv())
    };
    assert_eq!(told(again), told(series));
}

#[test]
fn a_budget_in_seconds_of_judging_ends_every_method_though_its_answers_need_no_judge() {
    let world = world();
    let folder = tempfile::tempdir().expect("scratch");
    let all = world
        .compare(folder.path(), &METHODS, seconds(1e6))
        .expect("runs");
    for one in &all {
        // The script has three replies, so soon nothing is new.
        let name = one.method.name();
        assert!(
            one.judged.len() < 60,
            "{name}: {} kernels",
            one.judged.len()
        );
        assert!(one.result().is_some() || one.method == Method::SingleShot);
    }
    let few = tempfile::tempdir().expect("scratch");
    let most = 2.5 * BUSY.as_secs_f64();
    for one in world
        .compare(few.path(), &METHODS, seconds(most))
        .expect("runs")
    {
        let costs: Vec<f64> = one
            .judged
            .iter()
            .map(|judged| judged.cost.judge_seconds)
            .collect();
        let (_, earlier) = costs.split_last().expect("kernels");
        let name = one.method.name();
        assert!(earlier.iter().all(|cost| *cost < most), "{name}: {costs:?}");
    }
}

#[test]
fn a_series_that_was_stopped_goes_on_with_the_times_it_had_and_asks_nothing_again() {
    for method in [Method::BestOfN, Method::Refine] {
        let name = method.name();
        let budget = Budget {
            evaluations: Some(5),
            ..Budget::default()
        };
        let whole = tempfile::tempdir().expect("scratch");
        let asked = |folder: &Path| {
            let file = folder.join(format!("{name}-0/exchanges.jsonl"));
            exchanges(&file).expect("a recording").len()
        };
        let undisturbed = world();
        let series = undisturbed
            .compare(whole.path(), &[method], budget)
            .expect("runs");

        let folder = tempfile::tempdir().expect("scratch");
        let stopped = world();
        stopped.device.patience.store(2, Ordering::Relaxed);
        let error = stopped
            .compare(folder.path(), &[method], budget)
            .expect_err("Ctrl-C");
        assert!(matches!(error, MethodError::Interrupted), "{name}: {error}");
        let before = asked(folder.path());
        assert!((1..5).contains(&before), "{name}: {before} questions");
        let stopped = stopped.anew();
        let gone_on = stopped
            .compare(folder.path(), &[method], budget)
            .expect("goes on");
        let ended = |series: &[Series]| {
            let judged = series[0].judged.iter();
            let ended = judged.map(|one| (one.stage.clone(), one.turn, one.cost.tokens));
            ended.collect::<Vec<_>>()
        };
        assert_eq!(ended(&gone_on), ended(&series), "{name}");
        assert_eq!(asked(folder.path()), asked(whole.path()), "{name}");
        let costs = gone_on[0].judged.iter().map(|one| one.cost.judge_seconds);
        assert!(costs.clone().is_sorted() && costs.max_by(f64::total_cmp) > Some(0.0));
        // Each kernel once, and the winner once more.
        assert!(
            stopped.measurements() <= 2,
            "{name}: {}",
            stopped.measurements()
        );
    }
}

fn seconds(most: f64) -> Budget {
    Budget {
        judge_seconds: Some(most),
        ..Budget::default()
    }
}
