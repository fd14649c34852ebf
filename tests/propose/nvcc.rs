//! Rewrites of what nvcc -O3 makes of plain CUDA C (tests/data/nvcc): what applies where, and that every
//! child, and children of children, give the very same bytes as the original on the simulator.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use warptree::device::{Buffer, Contents, Device, Ended, Job, SimDevice};
use warptree::expr::Value;
use warptree::llm::Tally;
use warptree::propose::{Proposal, ProposalRequest, Proposer, Rewrites};
use warptree::source::{Point, Source};
use warptree::task::{Catalogue, Poison, Problem, Purpose, Task};

use crate::gpu::h200;

/// Rewrites in a row that are tried.
const DEPTH: usize = 3;

/// These open a knob and change no code by themselves.
const OPENING: [&str; 4] = [
    "cache operator on loads",
    "cache operator on stores",
    "register cap",
    "blocks that reside together",
];

fn catalogue() -> Catalogue {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nvcc");
    Catalogue::open(Some(&folder)).expect("a folder of tasks")
}

pub(crate) fn children(task: &Task, text: &str) -> Vec<Proposal> {
    let source = Arc::new(Source::parse(text).expect("a good source"));
    (0..)
        .map_while(|attempt| {
            let request = ProposalRequest {
                attempt,
                ..ProposalRequest::first(task, &source)
            };
            let proposals = Rewrites
                .propose(&request, &mut Tally::default())
                .expect("rewrites never fail");
            proposals.into_iter().next()
        })
        .collect()
}

/// What a source leaves in its outputs; panics where the simulator finds anything amiss.
pub(crate) fn outputs(
    task: &Arc<Task>,
    source: &Source,
    point: &Point,
    label: &str,
) -> Vec<Vec<u8>> {
    let device = SimDevice::new(h200());
    let candidate = source.render(point).expect("renders");
    let module = candidate
        .module
        .as_ref()
        .unwrap_or_else(|error| panic!("{label}: {error}\n{}", candidate.ptx));
    let mut all = Vec::new();
    // One whole size, and one with a ragged end.
    let smoke = task.sizes_for(Purpose::Smoke).take(1);
    let edge = task.sizes_for(Purpose::Edge).last();
    let sizes = smoke.chain(edge);
    for size in sizes {
        let problem = Problem::new(task, size, task.cases[0], 7).expect("a good problem");
        let mut names = problem.names();
        names.insert("sm_count".into(), Value::Int(132));
        let plan = candidate.plan(&names).expect("a plan");
        let mut buffers: Vec<Buffer> = Vec::new();
        for buffer in problem.inputs() {
            buffers.push(Buffer {
                name: buffer.name.clone(),
                dtype: buffer.dtype,
                bytes: buffer.bytes,
                writable: false,
                contents: Contents::Bytes(problem.input_bytes(&buffer.name).expect("fits").into()),
            });
        }
        for buffer in problem.outputs() {
            buffers.push(Buffer {
                name: buffer.name.clone(),
                dtype: buffer.dtype,
                bytes: buffer.bytes,
                writable: true,
                contents: Contents::Fill(Poison::Nan.byte()),
            });
        }
        let job = Job {
            module,
            cubin: None,
            registers: &[],
            plan: &plan,
            buffers: &buffers,
            sampled: &[],
            order: 0,
        };
        let execution = device.execute(&job).expect("the simulator runs");
        assert!(
            matches!(execution.ended, Ended::Completed) && execution.findings.is_empty(),
            "{label} at {size:?}: {:?} {:?}\n{}",
            execution.ended,
            execution.findings,
            candidate.ptx
        );
        let named: BTreeMap<String, Vec<u8>> = execution.outputs.into_iter().collect();
        all.extend(named.into_values());
    }
    all
}

/// Every child that changes code; then the children of the first of them that is of a new kind, and so on, so
/// that rewrites meet what others made.
fn compare(task: &Arc<Task>, expected: &[Vec<u8>], name: &str) {
    let mut text = task.seed.to_string();
    let mut taken: Vec<String> = Vec::new();
    for depth in 0..DEPTH {
        let mut all = children(task, &text);
        all.retain(|child| !OPENING.contains(&child.label.as_str()));
        assert!(depth > 0 || !all.is_empty(), "{name}: no child");
        for child in &all {
            let path = format!("{name} > {} > {}", taken.join(" > "), child.label);
            let source =
                Source::parse(&child.text).unwrap_or_else(|error| panic!("{path}: {error}"));
            let point = source.space().default_point().expect("valid");
            let got = outputs(task, &source, &point, &path);
            assert!(got == expected, "{path}: another result\n{}", child.text);
        }
        let Some(next) = all.iter().find(|child| !taken.contains(&child.label)) else {
            return;
        };
        taken.push(next.label.clone());
        text = next.text.to_string();
    }
}

#[test]
fn every_rewrite_gives_the_same_bytes() {
    let catalogue = catalogue();
    let suite = catalogue.suite("nvcc").expect("a suite");
    for name in &suite.tasks {
        let mut task = catalogue.task(name).expect("a good task");
        if name == "row_sums" {
            // Few blocks go round often enough at sizes that the simulator bears.
            let mut lines: Vec<String> = task.seed.lines().map(str::to_owned).collect();
            for line in lines.iter_mut().filter(|line| line.starts_with("//@")) {
                *line = line.replace("1024", "8");
            }
            task.seed = lines.join("\n").into();
        }
        let task = Arc::new(task);
        let source = Source::parse(&task.seed).expect("a good seed");
        let point = source.space().default_point().expect("valid");
        let expected = outputs(&task, &source, &point, name);
        compare(&task, &expected, name);
    }
}

#[test]
fn what_applies_to_which_kernel() {
    let catalogue = catalogue();
    let suite = catalogue.suite("nvcc").expect("a suite");
    let mut told = String::new();
    for name in &suite.tasks {
        let task = catalogue.task(name).expect("a good task");
        let labels: Vec<String> = children(&task, &task.seed)
            .into_iter()
            .map(|child| child.label)
            .collect();
        told += &format!("{name}: {}\n", labels.join(", "));
    }
    insta::with_settings!({snapshot_path => Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nvcc"), prepend_module_to_snapshot => false, omit_expression => true}, {
        insta::assert_snapshot!("applies", told);
    });
}
