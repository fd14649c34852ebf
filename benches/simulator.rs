//! How fast the simulator is, against the bars it must meet. `cargo bench --bench simulator`, with words of the
//! wanted rows after `--`. What is held against the bars is processor time, of one thread or of all of them: it is the
//! same while the machine does other things too, and bounds what a verification takes alone on one core. Nothing here
//! measures a GPU.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use warptree::device::{Gpu, SimDevice};
use warptree::evaluate::verify::{Subject, Verified, Verifier};
use warptree::expr::Value;
use warptree::ptx;
use warptree::sim::{self, Initial, Launch, Options};
use warptree::source::{LaunchPlan, Source};
use warptree::task::{Catalogue, Problem, Task};

/// A verification of every size must not take more, expected outputs and all.
const LONGEST: Duration = Duration::from_secs(5);
/// Each rate is the best of this many runs: what else goes on in the caches makes a run slower, never faster.
const RUNS: u32 = 5;

fn main() {
    // `cargo test` runs benchmarks with --test: there is nothing to check then.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let wanted = |row: &str| words.is_empty() || words.iter().any(|word| row.contains(word));
    let inner = sgemm_inner(8);
    for (checks, how, bar) in [(false, "unchecked", 60.0), (true, "checked", 25.0)] {
        let row = format!("sgemm inner loop, 8 x 8, {how}");
        if wanted(&row) {
            rate(&row, &inner, checks, bar);
        }
    }
    let catalogue = Catalogue::embedded();
    for name in catalogue.names().expect("the catalogue is embedded") {
        let task = Arc::new(catalogue.task(&name).expect("an embedded task is sound"));
        let spaces = task.spaces.iter().map(|space| (&*space.name, &space.text));
        for (file, text) in [("seed", &task.seed)].into_iter().chain(spaces) {
            let row = format!("{name}/{file}");
            if wanted(&row) {
                verification(&row, &task, text);
            }
        }
    }
}

/// Processor time so far.
fn spent(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn report(what: &str, value: String, bar: &str, met: bool) {
    let verdict = if met { "met" } else { "MISSED" };
    println!("{what:<46} {value:>30}   bar: {bar:<14} {verdict}");
}

/// Warp instructions a second of one launch.
fn rate(row: &str, text: &str, checks: bool, bar: f64) {
    let module = ptx::parse(text).expect("the benchmark's own kernel");
    let program = sim::decode(&module, "k").expect("the simulator knows its instructions");
    let options = Options {
        checks,
        budget: u64::MAX,
        sm_count: 132,
        resident_blocks: 1056,
        blocks: None,
        cache_bytes: None,
        skip_products: false,
        registers: None,
        seed: 0,
    };
    let mut best = 0.0_f64;
    for _ in 0..RUNS {
        let mut memory = sim::memory(&program);
        let out = memory.add("out", 1 << 20, true, Initial::Zero);
        let launch = Launch {
            grid: [4, 1, 1],
            block: [256, 1, 1],
            dynamic_shared: 0,
            cluster: [1; 3],
            params: out.to_le_bytes().to_vec(),
            tensor_maps: Vec::new(),
        };
        let begun = spent(ClockId::ThreadCPUTime);
        let outcome = sim::launch(&program, &mut memory, &launch, &options);
        let seconds = (spent(ClockId::ThreadCPUTime) - begun).as_secs_f64();
        assert!(
            outcome.stop.is_none() && outcome.findings.is_empty(),
            "{:?} {:?}",
            outcome.stop,
            outcome.findings
        );
        best = best.max(outcome.counts.instructions as f64 / seconds);
    }
    report(
        row,
        format!("{:.1} M instructions/s", best / 1e6),
        &format!("{bar} M/s"),
        best >= bar * 1e6,
    );
}

/// What a tiled product of f32 matrices does nearly all of its time: each step of K brings a column of A's tile and a
/// row of B's from shared memory to registers, and adds the product of `side` by `side` values to the sums.
fn sgemm_inner(side: usize) -> String {
    let list = |name: &str, from: usize| {
        let names: Vec<String> = (from..from + 4).map(|i| format!("%{name}{i}")).collect();
        format!("{{{}}}", names.join(", "))
    };
    let mut steps = String::new();
    for k in 0..8 {
        for at in (0..side).step_by(4) {
            steps += &format!(
                "\tld.shared.v4.f32 {}, [%a_at+{}];\n",
                list("row", at),
                (k * 128 + at) * 4
            );
            steps += &format!(
                "\tld.shared.v4.f32 {}, [%b_at+{}];\n",
                list("col", at),
                4096 + (k * 128 + at * 16) * 4
            );
        }
        for i in 0..side {
            for j in 0..side {
                let sum = i * side + j;
                steps += &format!("\tfma.rn.f32 %sum{sum}, %row{i}, %col{j}, %sum{sum};\n");
            }
        }
    }
    let zeros: String = (0..side * side)
        .map(|sum| format!("\tmov.f32 %sum{sum}, 0f00000000;\n"))
        .collect();
    let total: String = (1..side * side)
        .map(|sum| format!("\tadd.f32 %sum0, %sum0, %sum{sum};\n"))
        .collect();
    // 16 by 16 threads: a warp covers two rows of them, so its lanes share values of A.
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 out)
{{
	.reg .b32 %thread, %at, %step, %a_at, %b_at, %base;
	.reg .b64 %out, %wide;
	.reg .f32 %row<{side}>, %col<{side}>, %sum<{sums}>, %value;
	.reg .pred %more;
	.shared .align 16 .b8 tiles[8192];
	ld.param.u64 %out, [out];
	mov.u32 %thread, %tid.x;
	mov.u32 %base, tiles;
	shr.u32 %a_at, %thread, 4;
	mad.lo.u32 %a_at, %a_at, {pitch}, %base;
	and.b32 %b_at, %thread, 15;
	mad.lo.u32 %b_at, %b_at, 16, %base;
	mad.lo.u32 %at, %thread, 16, %base;
{zeros}	mov.u32 %step, 0;
	cvt.rn.f32.u32 %value, %thread;
next:
	st.shared.v4.f32 [%at], {{%value, %value, %value, %value}};
	st.shared.v4.f32 [%at+4096], {{%value, %value, %value, %value}};
	bar.sync 0;
{steps}	bar.sync 0;
	add.u32 %step, %step, 1;
	setp.lt.u32 %more, %step, 64;
	@%more bra next;
{total}	mul.wide.u32 %wide, %thread, 4;
	add.u64 %out, %out, %wide;
	st.global.f32 [%out], %sum0;
	ret;
}}
",
        sums = side * side,
        pitch = side * 4,
    )
}

/// Everything that `eval` verifies of a source's default setting.
fn verification(row: &str, task: &Arc<Task>, text: &str) {
    let source = Source::parse(text).expect("an embedded source parses");
    let point = source.space().default_point().expect("it has a default");
    let candidate = source.render(&point).expect("its default renders");
    let module = candidate.module.as_ref().expect("its rendering parses");
    let case = task.cases[0];
    let plans: Vec<LaunchPlan> = task
        .sizes
        .iter()
        .map(|size| {
            let problem = Problem::new(task, size, case, 7).expect("a declared size");
            let mut names = problem.names();
            names.insert("sm_count".into(), Value::Int(132));
            candidate.plan(&names).expect("a plan for each size")
        })
        .collect();
    let subject = Subject {
        module,
        cubin: None,
        registers: &[],
        plans: &plans,
        source_line: &|line| candidate.source_line(line),
    };
    let device = SimDevice::new(Gpu::named("H200").expect("a known GPU"));
    let verifier = Verifier::new(Arc::clone(task), 7, 1, None);
    // Expected outputs are computed once a task, not once a candidate.
    let [first, later] = [(), ()].map(|()| verify(&verifier, &device, &subject));
    report(
        row,
        format!(
            "{:.2} s, later {:.2} s ({:.2} s)",
            first.processor.as_secs_f64(),
            later.processor.as_secs_f64(),
            later.wall.as_secs_f64()
        ),
        &format!("{LONGEST:?}"),
        first.processor <= LONGEST,
    );
}

/// What a verification took.
struct Took {
    /// Of all threads together.
    processor: Duration,
    wall: Duration,
}

fn verify(verifier: &Verifier, device: &SimDevice, subject: &Subject<'_>) -> Took {
    let begun = (spent(ClockId::ProcessCPUTime), Instant::now());
    match verifier.verify(device, subject).expect("the rig works") {
        Verified::Passed(_) => Took {
            processor: spent(ClockId::ProcessCPUTime) - begun.0,
            wall: begun.1.elapsed(),
        },
        Verified::Failed(verdict) => panic!("{verdict:?}"),
    }
}
