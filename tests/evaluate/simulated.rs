//! Every embedded task through the whole judge, on the simulator: seeds and spaces are measured without a
//! warning, and mistakes that only the whole judge sees end as they say.
//! Without a ptxas here a stub stands in: only register counts and refusals are lost.

use std::sync::Arc;

use warptree::device::{Device, Gpu, SimDevice};
use warptree::evaluate::{Evaluator, Pipeline, Settings};
use warptree::source::Source;
use warptree::task::{Catalogue, Task};
use warptree::units::SmArch;
use warptree::verdict::{Denominator, Verdict, feedback};

use super::ptxas::{real, stub};

/// A pipeline on the simulated H200, and what must live as long as it.
pub(super) fn simulated(task: Task) -> (Pipeline, Option<tempfile::TempDir>) {
    simulated_with(task, 20)
}

/// The same, with inputs from this seed.
pub(super) fn simulated_with(
    task: Task,
    verify_seed: u64,
) -> (Pipeline, Option<tempfile::TempDir>) {
    let (folder, assembler) = match real() {
        Some(assembler) => (None, assembler),
        None => {
            let (folder, assembler) = stub("printf '\\177ELF' > kernel.cubin");
            (Some(folder), assembler)
        }
    };
    let device: Arc<dyn Device> = Arc::new(SimDevice::new(Gpu::named("H200").unwrap()));
    let settings = Settings {
        task: Arc::new(task),
        device,
        assembler,
        arch: SmArch::SM_90A,
        ptxas_options: Vec::new(),
        verify_seed,
        repeats: 1,
        deterministic: true,
    };
    (Pipeline::new(settings).unwrap(), folder)
}

fn judge(pipeline: &Pipeline, text: &str) -> Verdict {
    let source = Source::parse(text).unwrap();
    let point = source.space().default_point().unwrap();
    pipeline.evaluate(&source, &point).unwrap().verdict
}

/// It was not run: the simulator does not know some of its instructions.
fn needs_a_gpu(verdict: &Verdict) -> bool {
    let findings = verdict.diagnostics();
    !findings.is_empty()
        && findings
            .iter()
            .all(|finding| finding.code == "sim-unsupported")
}

#[test]
fn seeds_and_spaces_are_measured_without_a_warning() {
    let catalogue = Catalogue::embedded();
    for name in catalogue.names().unwrap() {
        let task = catalogue.task(&name).unwrap();
        let (pipeline, _folder) = simulated(task.clone());
        let seed = pipeline.judge_seed().unwrap().verdict;
        let speedup = seed.measurement().and_then(|m| m.score.speedup.clone());
        let speedup =
            speedup.unwrap_or_else(|| panic!("{name}: {}", feedback(&seed, &task.seed, 2000)));
        assert_eq!((speedup.ratio, speedup.over), (1.0, Denominator::Seed));
        let spaces = task
            .spaces
            .iter()
            .map(|space| (&space.text, judge(&pipeline, &space.text)));
        for (text, verdict) in spaces.chain([(&task.seed, seed)]) {
            let told = feedback(&verdict, text, 2000);
            if needs_a_gpu(&verdict) {
                println!("{name}: a space is not judged, the simulator lacks its instructions");
                continue;
            }
            let measurement = verdict.measurement();
            let measurement = measurement.unwrap_or_else(|| panic!("{name}: {told}"));
            assert!(measurement.warnings.is_empty(), "{name}: {told}");
        }
    }
}

/// The others are judged task by task where the tasks are tested.
#[test]
fn mistakes_that_only_the_whole_judge_sees_end_as_they_say() {
    const WHOLE: [&str; 4] = ["forbidden", "over limits", "voided", "measured"];
    let catalogue = Catalogue::embedded();
    let mut wrong = Vec::new();
    for name in catalogue.names().unwrap() {
        let task = catalogue.task(&name).unwrap();
        let (pipeline, _folder) = simulated(task.clone());
        for mistake in &task.mistakes {
            if !mistake
                .expect
                .stages
                .iter()
                .any(|stage| WHOLE.contains(stage))
            {
                continue;
            }
            let verdict = judge(&pipeline, &mistake.text);
            if needs_a_gpu(&verdict) {
                println!(
                    "{name}/{}: not run, the simulator lacks its instructions",
                    mistake.name
                );
                continue;
            }
            if let Err(difference) = mistake.expect.check(&verdict) {
                let told = feedback(&verdict, &mistake.text, 1500);
                wrong.push(format!("{name} {}: {difference}\n{told}", mistake.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every second warp works for the next one too, and hands over through a workspace: what is read there is no
/// error whoever comes first.
const HANDED_OVER: &str = "//@ workspace between f32[n] zero
//@ launch silu grid=(ceil_div(n, 64)) block=(64) args=(x, out, n, between)
.version 8.0
.target sm_80
.address_size 64

.visible .entry silu(
    .param .u64 x,
    .param .u64 out,
    .param .u64 n,
    .param .u64 between
)
{
    .reg .pred %p, %second;
    .reg .b16 %h;
    .reg .b32 %thread, %block, %bits;
    .reg .f32 %value, %power;
    .reg .b64 %x, %out, %n, %i, %e, %last, %offset, %at, %between;

    ld.param.u64 %x, [x];
    ld.param.u64 %out, [out];
    ld.param.u64 %n, [n];
    ld.param.u64 %between, [between];
    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
    cvt.u64.u32 %offset, %thread;
    mad.wide.u32 %i, %block, 64, %offset;
    setp.ge.u32 %second, %thread, 32;
    @%second bra handed;
    add.u64 %last, %i, 32;
    mov.u64 %e, %i;
one:
    setp.ge.u64 %p, %e, %n;
    @%p bra handed;
    shl.b64 %offset, %e, 1;
    add.u64 %at, %x, %offset;
    ld.global.b16 %h, [%at];
    mov.b32 %bits, {0, %h};
    mov.b32 %value, %bits;
    mul.f32 %power, %value, 0fBFB8AA3B;
    ex2.approx.f32 %power, %power;
    add.f32 %power, %power, 0f3F800000;
    div.rn.f32 %value, %value, %power;
    shl.b64 %offset, %e, 2;
    add.u64 %at, %between, %offset;
    st.global.f32 [%at], %value;
    add.u64 %e, %e, 32;
    setp.le.u64 %p, %e, %last;
    @%p bra one;
handed:
    BARRIER
    setp.ge.u64 %p, %i, %n;
    @%p bra done;
    shl.b64 %offset, %i, 2;
    add.u64 %at, %between, %offset;
    ld.global.f32 %value, [%at];
    cvt.rn.bf16.f32 %h, %value;
    shl.b64 %offset, %i, 1;
    add.u64 %at, %out, %offset;
    st.global.b16 [%at], %h;
done:
    ret;
}
";

#[test]
fn a_hand_over_without_a_barrier_is_a_race_though_no_access_tells() {
    let task = Catalogue::embedded().task("silu").unwrap();
    let (pipeline, _folder) = simulated(task);
    let right = HANDED_OVER.replace("BARRIER", "bar.sync 0;");
    let verdict = judge(&pipeline, &right);
    assert!(
        verdict.measurement().is_some(),
        "{}",
        feedback(&verdict, &right, 2000)
    );
    let hidden = HANDED_OVER.replace("BARRIER", "");
    let verdict = judge(&pipeline, &hidden);
    let told = feedback(&verdict, &hidden, 2000);
    let Verdict::Racy { diagnostics } = verdict else {
        panic!("{told}")
    };
    assert_eq!(diagnostics[0].code, "order-matters", "{told}");
}
