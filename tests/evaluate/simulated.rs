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
        verify_seed: 20,
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
