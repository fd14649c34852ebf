//! The judge on trial, as far as the simulator can tell: every planted cheat is caught as it says, every odd
//! but honest kernel passes.

use std::sync::Arc;

use warptree::evaluate::Evaluator;
use warptree::source::Source;
use warptree::task::Catalogue;
use warptree::task::adversarial::{Adversary, Outcome, Plant, PlantKind, catalogue};
use warptree::task::mistakes::DeviceKind;
use warptree::verdict::{InstructionScore, Verdict, feedback};

use super::simulated::{simulated, simulated_with};

fn adversary(task: &str) -> Adversary {
    let mut all = catalogue().unwrap().into_iter();
    all.find(|adversary| adversary.task.name == task).unwrap()
}

/// What becomes of each that the simulator judges.
fn try_all(task: &str) -> Vec<(Plant, Verdict)> {
    let adversary = adversary(task);
    let (pipeline, _folder) = simulated((*adversary.task).clone());
    let (mut wrong, mut judged) = (Vec::new(), Vec::new());
    for plant in adversary.plants {
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
        judged.push((plant, verdict));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    judged
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

/// The target instruction as a decoy, in a dead branch, in words: right, and worth next to nothing; where it does the
/// work it is worth all.
#[test]
fn target_instructions_count_where_they_do_the_work() {
    for (plant, verdict) in try_all("warpgroup") {
        let score = verdict.measurement().unwrap().score.instructions;
        let InstructionScore::Counted { value } = score else {
            panic!("{}: {score:?}", plant.name)
        };
        match plant.kind {
            PlantKind::Cheat => assert!(value <= 0.2, "{}: {value}", plant.name),
            PlantKind::Honest => assert_eq!(value, 1.0, "{}", plant.name),
        }
    }
}

/// Without a profiler nobody knows what target instructions did: a cheat that is caught by these alone has not passed.
#[test]
fn target_instructions_are_not_judged_where_nobody_counts_them() {
    for (plant, mut verdict) in try_all("warpgroup") {
        let Verdict::Measured(measurement) = &mut verdict else {
            panic!("{}: {verdict:?}", plant.name)
        };
        measurement.score.instructions = InstructionScore::NotProfiled { value: 1.0 };
        let outcome = match plant.kind {
            PlantKind::Cheat => Outcome::NotJudgedHere,
            PlantKind::Honest => Outcome::AsExpected,
        };
        assert_eq!(plant.outcome(&verdict), outcome, "{}", plant.name);
    }
}

/// In a row with an infinity of the wrong sign the result is no number anyway: some row must have NaNs alone.
#[test]
fn whatever_the_seed_numbers_that_are_none_are_missed() {
    let adversary = adversary("softmax");
    let mut plants = adversary.plants.iter();
    let plant = plants.find(|p| p.name == "skips_nan").unwrap();
    let source = Source::parse(&plant.text).unwrap();
    let point = source.space().default_point().unwrap();
    for seed in 0..60 {
        let (pipeline, _folder) = simulated_with((*adversary.task).clone(), seed);
        let verdict = pipeline.confirm(&source, &point).unwrap().verdict;
        assert_eq!(plant.outcome(&verdict), Outcome::AsExpected, "seed {seed}");
    }
}

/// README.md's table: each of the catalogued cheats, by number, and the plants against it.
#[test]
fn every_catalogued_cheat_is_planted() {
    let planted: Vec<(String, PlantKind)> = catalogue()
        .unwrap()
        .into_iter()
        .flat_map(|a| {
            let task = a.task.name.clone();
            let name = move |p: Plant| (format!("{task}/{}", p.name), p.kind);
            a.plants.into_iter().map(name)
        })
        .collect();
    let table = include_str!("../adversarial/README.md");
    let mut numbers = Vec::new();
    for line in table.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, number, _, cheats, honest, _] = cells[..] else {
            continue;
        };
        let Ok(number) = number.parse::<u32>() else {
            continue;
        };
        for (names, kind) in [(cheats, PlantKind::Cheat), (honest, PlantKind::Honest)] {
            for name in names.split(", ") {
                let there = planted.contains(&(name.to_owned(), kind));
                assert!(there, "{number}: no {kind:?} `{name}`");
            }
        }
        numbers.push(number);
    }
    assert_eq!(numbers, Vec::from_iter(1..=20));
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
