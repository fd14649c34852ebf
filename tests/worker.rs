//! The parent's side of the cuda device against fake workers: shell scripts in `tests/data/worker` that
//! hang, die, lie and babble. Each must end in the right verdict or error, in bounded time, and leave no
//! process behind. No GPU is needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use warptree::device::cuda::protocol::{
    self, Algorithm, Checked, Frame, Left, Prepared, Product, ProtocolError, Ready, Reply, Request,
    Stage,
};
use warptree::device::cuda::timing::{Outcome, Rule};
use warptree::device::cuda::{
    Compared, CudaDevice, CudaPool, LibraryError, Options, ProductJob, Subject, WorkerCommand,
};
use warptree::device::{Buffer, Contents, Device, Ended, Execution, Gpu, Job, RigError, Timing};
use warptree::ptx::ir::Module;
use warptree::ptx::parse;
use warptree::source::{Argument, DType, Launch, LaunchPlan};
use warptree::units::Bytes;

/// The longest any fake may take: its time-outs, a replacement, and a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

fn options() -> Options {
    Options {
        start: Duration::from_millis(1500),
        housekeeping: Duration::from_millis(700),
        launch: Duration::from_millis(300),
        transfer: Duration::from_millis(700),
        ..Options::default()
    }
}

fn gpu(name: &str) -> Gpu {
    Gpu {
        name: name.to_owned(),
        ..Gpu::default()
    }
}

/// The frames that the scripts print, and a folder `$D` for what they remember.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let bench = Self { folder };
        fs::create_dir(bench.path("memory")).expect("a folder");
        bench.message("ready", &ready("Fake GPU"));
        bench.message("other_version", &Reply::OtherVersion { version: 7 });
        bench.message("done", &Reply::Done);
        bench.message("housekeeping", &Reply::Stage(Stage::Housekeeping));
        bench.message(
            "launching",
            &Reply::Stage(Stage::Launching {
                call: 0,
                expected_ns: 0.0,
            }),
        );
        for (name, message) in [
            ("no_driver", "no NVIDIA driver here"),
            ("failed", "out of device memory"),
        ] {
            let message = message.to_owned();
            bench.message(name, &Reply::Failed { message });
        }
        bench.message("overwritten", &Reply::Overwritten { slots: vec![3] });
        bench.message(
            "refused",
            &Reply::Refused {
                call: 0,
                message: "too many threads".to_owned(),
            },
        );
        bench.message(
            "faulted",
            &Reply::Faulted {
                call: 0,
                code: 700,
                message: "CUDA_ERROR_ILLEGAL_ADDRESS".to_owned(),
            },
        );
        let executed = encode(&Reply::Executed {
            outputs: vec![("c".to_owned(), 8)],
            wholes: Vec::new(),
            violations: Vec::new(),
            spoiled: Vec::new(),
        });
        let raw = |bytes: &[u8]| {
            let mut out = Vec::new();
            protocol::write_raw(&mut out, bytes).expect("short");
            out
        };
        bench.file("raw", &raw(&[7; 8]));
        bench.file("executed", &[executed.clone(), raw(&[7; 8])].concat());
        bench.file(
            "too_much_output",
            &[executed.clone(), raw(&[7; 12])].concat(),
        );
        bench.file(
            "too_little_output",
            &[executed.clone(), raw(&[7; 4])].concat(),
        );
        bench.file("half", &executed[..executed.len() - 3]);
        bench.file("huge_message", b"M\xff\xff\xff\xff");
        bench.file("huge_raw", b"B\x00\x00\x00\x40");
        bench.file("undecodable", b"M\x03\x00\x00\x00\xff\xff\xff");
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).expect("written");
    }

    fn message(&self, name: &str, reply: &Reply) {
        self.file(name, &encode(reply));
    }

    /// A worker that runs `script`; the first line of each start goes to `starts`.
    fn command(&self, script: &str) -> WorkerCommand {
        let script = format!(
            "F='{0}' D='{0}/memory'; echo $$ >> \"$F/starts\"\n{script}",
            self.folder.path().display()
        );
        WorkerCommand {
            program: "sh".into(),
            arguments: vec!["-c".into(), script.into()],
        }
    }

    fn open(&self, script: &str) -> Result<CudaDevice, RigError> {
        CudaDevice::open(0, self.command(script), options())
    }

    /// Process ids of all workers so far.
    fn starts(&self) -> Vec<u32> {
        fs::read_to_string(self.path("starts"))
            .unwrap_or_default()
            .lines()
            .filter_map(|line| line.parse().ok())
            .collect()
    }
}

fn ready(name: &str) -> Reply {
    Reply::Ready(Box::new(Ready {
        gpu: gpu(name),
        pci_bus_id: "0000:19:00.0".to_owned(),
        gpu_count: 2,
        driver: 13000,
        memory: (140 << 30, 141 << 30),
        enforced: vec!["no core dumps".to_owned()],
        not_enforced: Vec::new(),
    }))
}

fn encode<M: serde::Serialize>(message: &M) -> Vec<u8> {
    protocol::encode(message).expect("short")
}

const KERNEL: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 c, .param .u32 n) { ret; }
";

struct Work {
    module: Module,
    plan: LaunchPlan,
    buffers: Vec<Buffer>,
}

impl Work {
    /// `grid` tells candidates apart.
    fn new(grid: u32, inputs: Contents, bytes: u64) -> Self {
        Self {
            module: parse(KERNEL).expect("it parses"),
            plan: LaunchPlan {
                launches: vec![Launch {
                    entry: "k".to_owned(),
                    grid: [grid, 1, 1],
                    block: [32, 1, 1],
                    smem: Bytes(0),
                    cluster: [1, 1, 1],
                    args: vec![
                        Argument::Buffer("a".to_owned()),
                        Argument::Buffer("c".to_owned()),
                        Argument::Int(7),
                    ],
                }],
                workspaces: Vec::new(),
                tensor_maps: Vec::new(),
            },
            buffers: vec![
                Buffer {
                    name: "a".to_owned(),
                    dtype: DType::F32,
                    bytes: Bytes(bytes),
                    writable: false,
                    contents: inputs,
                },
                Buffer {
                    name: "c".to_owned(),
                    dtype: DType::F32,
                    bytes: Bytes(8),
                    writable: true,
                    contents: Contents::Fill(0xff),
                },
            ],
        }
    }

    /// Nothing to upload.
    fn plain(grid: u32) -> Self {
        Self::new(grid, Contents::Fill(1), 64)
    }

    fn job(&self) -> Job<'_> {
        Job {
            module: &self.module,
            cubin: Some(b"cubin"),
            registers: &[],
            plan: &self.plan,
            buffers: &self.buffers,
            sampled: &[],
            order: 0,
        }
    }
}

/// What a script's execution came to, as its `# expect:` line says it.
fn tell(result: Result<Execution, RigError>) -> String {
    match result {
        Err(e) => format!("rig error: {e}"),
        Ok(execution) => match execution.ended {
            Ended::Completed => {
                assert_eq!(execution.outputs, [("c".to_owned(), vec![7; 8])]);
                "completed".to_owned()
            }
            Ended::Hung(_) => "hung".to_owned(),
            Ended::Faulted(d) => format!("faulted: {}", d[0].code),
            Ended::Refused(message) => format!("refused: {message}"),
        },
    }
}

fn is_gone(pid: u32) -> bool {
    let until = Instant::now() + Duration::from_secs(3);
    while Path::new(&format!("/proc/{pid}")).exists() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

fn run_script(path: &Path) {
    let name = path.display();
    let script = fs::read_to_string(path).expect("readable");
    let expected = script
        .lines()
        .find_map(|line| line.strip_prefix("# expect: "))
        .unwrap_or_else(|| panic!("{name}: no `# expect:` line"));
    let bench = Bench::new();
    let since = Instant::now();
    let found = match bench.open(&script) {
        Err(e) => format!("open error: {e}"),
        Ok(device) => tell(device.execute(&Work::plain(1).job())),
    };
    let (kind, words) = expected.split_once(": ").unwrap_or((expected, ""));
    assert!(
        found.starts_with(kind) && found.contains(words),
        "{name}: expected {expected}\nfound {found}"
    );
    assert!(since.elapsed() < PATIENCE, "{name}: {:?}", since.elapsed());
    for pid in bench.starts() {
        assert!(is_gone(pid), "{name}: worker {pid} is still there");
    }
}

#[test]
fn every_kind_of_bad_worker_ends_as_it_must() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/worker");
    let mut scripts: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the folder is there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == "sh"))
        .collect();
    scripts.sort();
    assert!(scripts.len() >= 25, "only {} scripts", scripts.len());
    // mostly waiting: side by side
    std::thread::scope(|scope| {
        let running: Vec<_> = scripts
            .chunks(4)
            .map(|some| scope.spawn(move || some.iter().for_each(|path| run_script(path))))
            .collect();
        for thread in running {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}

/// Bad at the first start, good from the second on.
const BAD_THEN_GOOD: &str = r#"
if mkdir "$D/once" 2>/dev/null; then
    cat "$F/ready" "$F/launching"; exec sleep 60
fi
cat "$F/ready" "$F/launching" "$F/executed"; cat >/dev/null
"#;

#[test]
fn after_a_hang_the_queue_goes_on_within_a_second() {
    let bench = Bench::new();
    let device = bench.open(BAD_THEN_GOOD).expect("it stands");
    let first = device.worker_pid().expect("a worker");
    assert_eq!(tell(device.execute(&Work::plain(1).job())), "hung");
    assert!(is_gone(first), "the hung worker is killed");
    let since = Instant::now();
    assert_eq!(tell(device.execute(&Work::plain(2).job())), "completed");
    assert!(since.elapsed() < Duration::from_secs(1));
}

#[test]
fn what_hung_is_remembered_and_not_run_again() {
    let bench = Bench::new();
    let device = bench.open(BAD_THEN_GOOD).expect("it stands");
    let bad = Work::plain(1);
    assert_eq!(tell(device.execute(&bad.job())), "hung");
    let since = Instant::now();
    assert_eq!(tell(device.execute(&bad.job())), "hung");
    assert!(matches!(device.time(&bad.job()), Ok(Timing::Hung(_))));
    assert!(
        since.elapsed() < Duration::from_millis(100),
        "not run again"
    );
    assert_eq!(
        tell(device.execute(&Work::plain(2).job())),
        "completed",
        "another launch of the same code is another kernel"
    );
}

#[test]
fn two_failures_on_known_good_work_stop_plainly() {
    let bench = Bench::new();
    let device = bench
        .open(
            r#"if mkdir "$D/once" 2>/dev/null; then cat "$F/ready" "$F/launching" "$F/faulted"; exit; fi
               echo "canary failed" >&2; exit 1"#,
        )
        .expect("it stands");
    assert_eq!(
        tell(device.execute(&Work::plain(1).job())),
        "faulted: cuda-700"
    );
    let error = tell(device.execute(&Work::plain(2).job()));
    assert!(
        error.contains("unhealthy") && error.contains("canary failed"),
        "{error}"
    );
    let starts = bench.starts().len();
    assert_eq!(starts, 3, "the good one and two bad ones");
    let since = Instant::now();
    assert_eq!(tell(device.execute(&Work::plain(3).job())), error);
    assert!(since.elapsed() < Duration::from_millis(100));
    assert_eq!(bench.starts().len(), starts, "no more are started");
}

#[test]
fn a_worker_that_does_not_read_cannot_stall_an_upload() {
    let bench = Bench::new();
    let device = bench
        .open(r#"cat "$F/ready"; exec sleep 60"#)
        .expect("it stands");
    let inputs = Contents::Generated(Arc::new(|offset, out| out.fill(offset as u8)));
    let since = Instant::now();
    let told = tell(device.execute(&Work::new(1, inputs, 64 << 20).job()));
    assert!(
        told.starts_with("rig error: ") && told.contains("no answer within"),
        "{told}"
    );
    assert!(since.elapsed() < PATIENCE);
}

/// What the parent sends is what the worker's own reader understands, byte for byte.
#[test]
fn requests_arrive_whole_and_inputs_only_once() {
    let bench = Bench::new();
    let device = bench
        .open(r#"cat "$F/ready" "$F/done" "$F/executed" "$F/executed"; cat >"$F/said""#)
        .expect("it stands");
    let inputs = Contents::Generated(Arc::new(|offset, out| {
        for (i, byte) in (offset..).zip(out) {
            *byte = (i % 251) as u8;
        }
    }));
    let bytes = 9_000_001;
    let work = Work::new(1, inputs, bytes);
    for _ in 0..2 {
        assert_eq!(tell(device.execute(&work.job())), "completed");
    }
    drop(device);
    let said = fs::read(bench.path("said")).expect("written");
    let mut said = said.as_slice();
    let mut requests = Vec::new();
    let mut uploaded = Vec::new();
    loop {
        match protocol::read_frame::<Request>(&mut said) {
            Ok(Frame::Message(request)) => requests.push(request),
            Ok(Frame::Raw(piece)) => uploaded.extend(piece),
            Err(ProtocolError::Ended) => break,
            Err(e) => panic!("{e}"),
        }
    }
    assert_eq!(uploaded.len() as u64, bytes);
    assert!((0..bytes).all(|i| uploaded[i as usize] == (i % 251) as u8));
    let [hello, key, upload, first, second, shutdown] = &requests[..] else {
        panic!("{requests:?}");
    };
    assert!(
        matches!(hello, Request::Hello { version, ordinal: 0, sandbox: true }
        if *version == protocol::VERSION)
    );
    assert!(matches!(key, Request::Key { .. }), "{key:?}");
    assert_eq!(*upload, Request::Upload { slot: 0, bytes });
    assert_eq!(first, second);
    assert_eq!(*shutdown, Request::Shutdown);
    let Request::Execute(call) = first else {
        panic!("{first:?}");
    };
    use protocol::{Initial, Param, Role};
    assert_eq!(call.image, b"cubin");
    assert_eq!(call.regions[0].initial, Initial::Slot(0));
    assert_eq!(call.regions[0].role, Role::Input { shiftable: true });
    assert_eq!(call.regions[1].initial, Initial::Fill(0xff));
    assert_eq!(
        call.launches[0].params,
        [
            Param::Address(0),
            Param::Address(1),
            Param::Bytes(vec![7, 0, 0, 0])
        ]
    );
}

#[test]
fn launches_that_do_not_fit_their_entry_are_refused_in_words() {
    let bench = Bench::new();
    let device = bench
        .open(r#"cat "$F/ready"; cat >/dev/null"#)
        .expect("it stands");
    let spoil = |change: fn(&mut LaunchPlan)| {
        let mut work = Work::plain(1);
        change(&mut work.plan);
        tell(device.execute(&work.job()))
    };
    type Spoil = fn(&mut LaunchPlan);
    let cases: [(Spoil, &str); 6] = [
        (
            |p| p.launches[0].entry = "nothing".to_owned(),
            "no .entry `nothing`",
        ),
        (
            |p| drop(p.launches[0].args.pop()),
            "takes 3 parameters, its launch passes 2",
        ),
        (
            |p| p.launches[0].args[2] = Argument::Int(1 << 40),
            "parameter `n`: 1099511627776 does not fit .u32",
        ),
        (
            |p| p.launches[0].args[2] = Argument::Buffer("a".to_owned()),
            "needs a .u64, not .u32",
        ),
        (
            |p| p.launches[0].args[0] = Argument::Workspace("w".to_owned()),
            "`w` is not among the buffers",
        ),
        (
            |p| p.launches[0].args[0] = Argument::TensorMap("m".to_owned()),
            "no tensor map `m` is declared",
        ),
    ];
    for (change, words) in cases {
        let told = spoil(change);
        assert!(
            told.starts_with("refused: ") && told.contains(words),
            "{told}"
        );
    }
}

const PREPARED: Prepared = Prepared {
    sets: 4,
    calls: 100,
    rotated_bytes: 300 << 20,
    rough_ns: 1000.0,
};

/// Frames of a timing: `nanos` per replay of one call, `blocks` times.
fn timing_frames(bench: &Bench, calls: usize, blocks: &[Vec<f64>]) {
    let mut frames = encode(&Reply::Prepared(vec![PREPARED; calls]));
    for nanos in blocks {
        frames.extend(encode(&Reply::Sampled {
            nanos: nanos.clone(),
            clock_mhz: (1980.0, 1975.0),
        }));
    }
    let checked = Checked {
        unsteady: vec!["c".to_owned()],
        violations: Vec::new(),
        left: vec![Left {
            output: "c".to_owned(),
            bytes: vec![1, 2],
        }],
        nanos: vec![1010.0, 990.0, 1000.0],
    };
    frames.extend(encode(&Reply::Finished(vec![checked; calls])));
    bench.file("timing", &frames);
}

const TIMES: &str = r#"cat "$F/ready" "$F/timing"; cat >/dev/null"#;

#[test]
fn a_time_is_the_median_of_its_raw_samples() {
    let bench = Bench::new();
    let first: Vec<f64> = (0..8).map(|i| 1000.0 + f64::from(i) / 8.0).collect();
    timing_frames(&bench, 1, &[vec![9000.0; 4], first.clone()]);
    let device = bench.open(TIMES).expect("it stands");
    let timing = device.time(&Work::plain(1).job()).expect("it is timed");
    let Timing::Timed(timed) = timing else {
        panic!("{timing:?}");
    };
    let warptree::verdict::Time::Measured {
        median,
        samples,
        gpu,
    } = timed.time
    else {
        panic!("{:?}", timed.time);
    };
    assert_eq!(median.get(), 1000.4375);
    assert_eq!(samples, first, "the warm-up is not among them");
    assert_eq!(gpu, "Fake GPU");
    assert_eq!(timed.unsteady, ["c"], "what the checks found is handed on");
    assert_eq!(timed.left, [("c".to_owned(), vec![1, 2])]);
    assert_eq!(timed.afterwards.map(|ns| ns.get()), Some(1000.0));
    let notes = timed.notes.join("\n");
    assert!(
        notes.contains("8 replays of 100 calls over 4 rotated sets"),
        "{notes}"
    );
    assert!(notes.contains("cold cache"), "{notes}");
}

#[test]
fn a_gpu_that_slows_down_under_load_is_timed_in_bursts() {
    let bench = Bench::new();
    let mut blocks = vec![(vec![900.0; 4], 1975.0), (vec![1200.0; 8], 1500.0)];
    blocks.extend((0..12).map(|i| (vec![1300.0, 1000.0 + f64::from(i)], 1500.0)));
    let mut frames = encode(&Reply::Prepared(vec![PREPARED]));
    for (nanos, after) in blocks {
        frames.extend(encode(&Reply::Sampled {
            nanos,
            clock_mhz: (1980.0, after),
        }));
    }
    frames.extend(encode(&Reply::Finished(vec![Checked::default()])));
    bench.file("timing", &frames);
    let device = bench.open(TIMES).expect("it stands");
    let timing = device.time(&Work::plain(1).job()).expect("it is timed");
    let Timing::Timed(timed) = timing else {
        panic!("{timing:?}");
    };
    let warptree::verdict::Time::Measured { samples, .. } = timed.time else {
        panic!("{:?}", timed.time);
    };
    let second: Vec<f64> = (0..12).map(|i| 1000.0 + f64::from(i)).collect();
    assert_eq!(
        samples, second,
        "neither the load's times nor those that wake it"
    );
    let notes = timed.notes.join("\n");
    assert!(
        notes.contains("12 replays") && notes.contains("burst"),
        "{notes}"
    );
}

#[test]
fn at_full_load_what_counts_is_how_fast_it_is_in_the_end() {
    let bench = Bench::new();
    let replay_ns = PREPARED.rough_ns * f64::from(PREPARED.calls);
    let quarter_second = (0.25e9 / replay_ns) as usize;
    let mut load = vec![900.0; quarter_second];
    load.extend(vec![1200.0; quarter_second]);
    timing_frames(&bench, 1, &[vec![900.0; 4], load]);
    let device = bench.open(TIMES).expect("it stands");
    let timing = device.time_at_full_load(&Work::plain(1).job());
    let Ok(Some(Timing::Timed(timed))) = timing else {
        panic!("{timing:?}");
    };
    assert_eq!(timed.time.nanos().get(), 1200.0);
    let warptree::verdict::Time::Measured { samples, .. } = timed.time else {
        panic!("{:?}", timed.time);
    };
    assert_eq!(samples.len(), quarter_second);
}

#[test]
fn a_time_that_is_no_time_is_the_rigs_error() {
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let bench = Bench::new();
        let mut block = vec![1000.0; 8];
        block[3] = bad;
        timing_frames(&bench, 1, &[vec![1000.0; 4], block]);
        let device = bench.open(TIMES).expect("it stands");
        let error = device
            .time(&Work::plain(1).job())
            .expect_err("no time")
            .to_string();
        assert!(error.contains("clock read"), "{error}");
    }
}

#[test]
fn fewer_times_than_asked_are_noticed() {
    let bench = Bench::new();
    timing_frames(&bench, 1, &[vec![1000.0; 4], vec![1000.0; 7]]);
    let device = bench.open(TIMES).expect("it stands");
    let error = device
        .time(&Work::plain(1).job())
        .expect_err("too few")
        .to_string();
    assert!(
        error.contains("answers for 7 where 8 were asked"),
        "{error}"
    );
}

#[test]
fn two_candidates_are_compared_pair_by_pair() {
    let bench = Bench::new();
    // warm-up: 4 replays of each; 3 pairs up to the gate; 5 more up to the first look; ABBA
    let pairs = |n: usize, first: usize| -> Vec<f64> {
        (first..first + n)
            .flat_map(|i| {
                let drift = 1000.0 + 100.0 * i as f64;
                let (a, b) = (drift, drift * 0.9);
                if i % 2 == 0 { [a, b] } else { [b, a] }
            })
            .collect()
    };
    timing_frames(&bench, 2, &[vec![5000.0; 8], pairs(3, 0), pairs(5, 3)]);
    let device = bench.open(TIMES).expect("it stands");
    let (a, b) = (Work::plain(1), Work::plain(2));
    let compared = device
        .compare_times(
            Subject::Kernel(&a.job()),
            Subject::Kernel(&b.job()),
            &Rule::default(),
        )
        .expect("both are timed");
    let Compared::Timed(comparison) = compared else {
        panic!("{compared:?}");
    };
    assert_eq!(comparison.outcome, Outcome::Faster);
    assert_eq!(comparison.a.len(), 8);
    let estimate = comparison.log_ratio.expect("8 pairs give one");
    assert!((estimate.median - 0.9f64.ln()).abs() < 1e-12);
}

fn product() -> Product {
    Product {
        m: 4,
        n: 2,
        k: 4,
        a_transposed: false,
        b_transposed: true,
        input: DType::F32,
        output: DType::F32,
        fast: false,
    }
}

fn algorithm(workspace: u64) -> Algorithm {
    Algorithm {
        opaque: [u64::MAX, 2, 3, 4, 5, 6, 7, 8],
        workspace,
        waves: 1.5,
    }
}

/// A library's product takes turns with a candidate, in the very protocol of candidates.
#[test]
fn a_librarys_product_is_timed_beside_a_candidate() {
    let bench = Bench::new();
    bench.message(
        "algorithms",
        &Reply::Algorithms {
            version: 130_002,
            algorithms: vec![algorithm(0), algorithm(512)],
        },
    );
    timing_frames(
        &bench,
        2,
        &[vec![5000.0; 8], vec![1000.0, 1100.0, 1110.0, 1010.0]],
    );
    let device = bench
        .open(r#"cat "$F/ready" "$F/algorithms" "$F/timing"; cat >"$F/said""#)
        .expect("it stands");
    let (version, algorithms) = device.algorithms(product(), 8).expect("two of them");
    assert_eq!((version, algorithms.len()), (130_002, 2));
    let work = Work::plain(1);
    let product_job = ProductJob {
        product: product(),
        algorithm: algorithms[1],
        names: ["a", "a", "c"],
        buffers: &work.buffers,
        sampled: &[],
    };
    let job = work.job();
    let subjects = [Subject::Kernel(&job), Subject::Product(&product_job)];
    let replayed = device
        .replay_with(&subjects, |replays| replays.block(vec![0, 1, 1, 0]))
        .expect("the rig stands");
    let ((nanos, clock), checked) = replayed.expect("both were timed");
    assert_eq!(nanos, [1000.0, 1100.0, 1110.0, 1010.0]);
    assert_eq!(clock, (1980.0, 1975.0));
    assert_eq!(checked.len(), 2);
    drop(device);
    let said = fs::read(bench.path("said")).expect("written");
    let mut said = said.as_slice();
    let calls = std::iter::from_fn(|| protocol::read_frame::<Request>(&mut said).ok())
        .find_map(|frame| match frame {
            Frame::Message(Request::Prepare { calls, .. }) => Some(calls),
            Frame::Message(_) | Frame::Raw(_) => None,
        })
        .expect("both were prepared");
    assert_eq!(calls[0].product, None);
    let planned = calls[1].product.expect("the library's");
    assert_eq!(planned.regions, [0, 0, 1]);
    assert_eq!(planned.workspace, Some(2), "after the task's buffers");
    assert_eq!(calls[1].regions[2].bytes, 512);
    assert!(calls[1].image.is_empty() && calls[1].launches.is_empty());
}

#[test]
fn a_library_that_is_not_here_is_no_fault_of_the_rig() {
    let bench = Bench::new();
    let message = "libcublasLt does not load".to_owned();
    bench.message("no_library", &Reply::NoLibrary { message });
    bench.message("compiled", &Reply::Compiled(Ok(".version 9.0".to_owned())));
    bench.message("log", &Reply::Compiled(Err("line 3: no".to_owned())));
    let device = bench
        .open(r#"cat "$F/ready" "$F/no_library" "$F/compiled" "$F/log" "$F/done"; cat >/dev/null"#)
        .expect("it stands");
    let first = device.worker_pid();
    match device.algorithms(product(), 8) {
        Err(LibraryError::Refused(message)) => assert!(message.contains("libcublasLt")),
        other => panic!("{other:?}"),
    }
    let compile = || device.compile("__global__ void k() {}", &[]);
    assert_eq!(
        compile().expect("it answers"),
        Ok(".version 9.0".to_owned())
    );
    assert_eq!(compile().expect("it answers"), Err("line 3: no".to_owned()));
    assert_eq!(device.worker_pid(), first, "the worker goes on");
    match compile() {
        Err(LibraryError::Rig(error)) => assert!(error.to_string().contains("Done"), "{error}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pool_is_of_one_kind_and_uses_all_its_gpus() {
    let bench = Bench::new();
    bench.message("other", &ready("Another GPU"));
    let good = r#"cat "$F/ready" "$F/launching"; sleep 0.2; cat "$F/executed"; cat >/dev/null"#;
    let pool = CudaPool::open(&[], &bench.command(good), &options()).expect("both stand");
    assert_eq!(pool.devices().len(), 2, "as many as the driver counts");
    let works = [Work::plain(1), Work::plain(2)];
    std::thread::scope(|scope| {
        for work in &works {
            scope.spawn(|| assert_eq!(tell(pool.execute(&work.job())), "completed"));
        }
    });
    drop(pool);
    let mixed = r#"if mkdir "$D/once" 2>/dev/null; then cat "$F/ready"; else cat "$F/other"; fi
                   cat >/dev/null"#;
    let error = CudaPool::open(&[0, 1], &bench.command(mixed), &options())
        .err()
        .expect("two kinds")
        .to_string();
    assert!(
        error.contains("times on different GPUs do not compare"),
        "{error}"
    );
    let error = CudaPool::open(&[1, 1], &bench.command(good), &options())
        .err()
        .expect("one GPU twice")
        .to_string();
    assert!(error.contains("named twice"), "{error}");
}

#[test]
fn a_pool_gives_up_an_unhealthy_gpu_and_goes_on_with_the_rest() {
    let bench = Bench::new();
    let script = r#"case $(wc -l < "$F/starts") in
        1) cat "$F/ready" "$F/launching" "$F/faulted" ;;
        2) cat "$F/ready" "$F/executed" "$F/executed"; cat >/dev/null ;;
        *) echo "canary failed" >&2; exit 1 ;;
        esac"#;
    let pool = CudaPool::open(&[0, 1], &bench.command(script), &options()).expect("both stand");
    let told: Vec<String> = (1..=3)
        .map(|grid| tell(pool.execute(&Work::plain(grid).job())))
        .collect();
    assert_eq!(told, ["faulted: cuda-700", "completed", "completed"]);
}

#[test]
fn a_worker_that_cannot_be_started_is_an_error() {
    let command = WorkerCommand {
        program: "/nonexistent/warptree".into(),
        arguments: Vec::new(),
    };
    let error = CudaDevice::open(0, command, options())
        .err()
        .expect("no such program")
        .to_string();
    assert!(
        error.contains("/nonexistent/warptree does not start"),
        "{error}"
    );
}

proptest! {
    #[test]
    fn whatever_comes_is_a_frame_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut stream = bytes.as_slice();
        while protocol::read_frame::<Reply>(&mut stream).is_ok() {}
        let mut stream = bytes.as_slice();
        while protocol::read_frame::<Request>(&mut stream).is_ok() {}
    }

    #[test]
    fn a_message_with_flipped_bytes_is_a_frame_or_an_error(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut frame = encode(&ready("Fake GPU"));
        let at = at.index(frame.len());
        frame[at] = byte;
        let mut stream = frame.as_slice();
        while protocol::read_frame::<Reply>(&mut stream).is_ok() {}
    }

    #[test]
    fn what_is_cut_short_is_told_as_half(cut in any::<prop::sample::Index>()) {
        let frame = encode(&ready("Fake GPU"));
        let cut = cut.index(frame.len());
        let told = protocol::read_frame::<Reply>(&mut &frame[..cut]);
        match (cut, told) {
            (0, Err(ProtocolError::Ended)) => {}
            (1.., Err(ProtocolError::Half { got, wanted })) => prop_assert!(got < wanted),
            (_, other) => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn messages_and_raw_bytes_come_back(
        slot in any::<u64>(),
        order in prop::collection::vec(any::<u8>(), 0..50),
        raw in prop::collection::vec(any::<u8>(), 1..1000),
    ) {
        let mut stream = Vec::new();
        let requests = [Request::Discard { slot }, Request::Sample { order }];
        for request in &requests {
            protocol::write_message(&mut stream, request).expect("a Vec takes all");
        }
        protocol::write_raw(&mut stream, &raw).expect("a Vec takes all");
        let mut stream = stream.as_slice();
        for request in &requests {
            match protocol::read_frame::<Request>(&mut stream) {
                Ok(Frame::Message(found)) => prop_assert_eq!(&found, request),
                other => prop_assert!(false, "{:?}", other),
            }
        }
        match protocol::read_frame::<Request>(&mut stream) {
            Ok(Frame::Raw(found)) => prop_assert_eq!(found, raw),
            other => prop_assert!(false, "{:?}", other),
        }
        prop_assert!(matches!(
            protocol::read_frame::<Request>(&mut stream),
            Err(ProtocolError::Ended)
        ));
    }
}
