//! The judge on trial, as far as the simulator can tell: every planted cheat is caught as it says, every odd
//! but honest kernel passes.

use std::sync::Arc;

use warptree::evaluate::Evaluator;
use warptree::source::Source;
use warptree::task::Catalogue;
use warptree::task::adversarial::{Adversary, Outcome, PlantKind, catalogue};
use warptree::task::mistakes::DeviceKind;
use warptree::verdict::feedback;

use super::simulated::simulated;

fn adversary(task: &str) -> Adversary {
    let mut all = catalogue().unwrap().into_iter();
    all.find(|adversary| adversary.task.name == task).unwrap()
}

fn try_all(task: &str) {
    let adversary = adversary(task);
    let (pipeline, _folder) = simulated((*adversary.task).clone());
    let mut wrong = Vec::new();
    for plant in &adversary.plants {
        if !plant.judged_by(DeviceKind::Sim) {
            continue;
        }
        let source = Source::parse(&plant.text).unwrap();
        let point = source.space().default_point().unwrap();
        let verdict = pipeline.confirm(&source, &point).unwrap().verdict;
        let outcome = plant.outcome(&verdict);
        if outcome != Outcome::AsExpected {
            let told = feedback(&verdict, &plant.text, 1200);
            wrong.push(format!("{task}/{}: {outcome:?}\n{told}", plant.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn sums_are_judged_as_planted() {
    try_all("reduce_sum");
}

#[test]
fn transposes_are_judged_as_planted() {
    try_all("transpose");
}

#[test]
fn products_are_judged_as_planted() {
    try_all("sgemm");
}

#[test]
fn softmax_is_judged_as_planted() {
    try_all("softmax");
}

#[test]
fn products_of_other_rules_are_judged_as_planted() {
    try_all("hgemm");
    try_all("strassen");
}

#[test]
fn the_catalogue_is_large() {
    let plants: Vec<_> = catalogue()
        .unwrap()
        .into_iter()
        .flat_map(|a| a.plants)
        .collect();
    let count = |kind| plants.iter().filter(|plant| plant.kind == kind).count();
    assert!(count(PlantKind::Cheat) >= 30 && count(PlantKind::Honest) >= 30);
}

/// What is planted is judged by the rules that users' kernels are judged by: only the sizes are others.
#[test]
fn its_tasks_are_those_of_the_product() {
    let product = Catalogue::embedded();
    for name in ["reduce_sum", "transpose", "sgemm", "softmax"] {
        let planted = Arc::unwrap_or_clone(adversary(name).task);
        let task = product.task(name).unwrap();
        assert_eq!(planted.params, task.params);
        assert_eq!(planted.math, task.math);
        assert_eq!(planted.cases, task.cases);
        assert_eq!(planted.reference, task.reference);
        assert_eq!(planted.tolerances, task.tolerances);
        assert_eq!(planted.nondeterministic, task.nondeterministic);
        assert_eq!(planted.cost, task.cost);
        assert_eq!(planted.policy, task.policy);
    }
}
