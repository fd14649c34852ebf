//! The embedded tasks' own kernels through a live ptxas.

use std::collections::HashSet;

use rand::SeedableRng;
use rayon::prelude::*;
use warptree::evaluate::ptxas::Assembly;
use warptree::source::Source;
use warptree::task::Catalogue;
use warptree::units::SmArch;

use super::ptxas::real;

#[test]
fn seeds_and_spaces_assemble_at_their_defaults_without_spills() {
    let Some(assembler) = real() else { return };
    let catalogue = Catalogue::embedded();
    for name in catalogue.names().unwrap() {
        let task = catalogue.task(&name).unwrap();
        let spaces = task
            .spaces
            .iter()
            .map(|space| (space.name.as_str(), &space.text));
        for (kind, text) in spaces.chain([("seed", &task.seed)]) {
            let source =
                Source::parse(text).unwrap_or_else(|error| panic!("{name} {kind}: {error}"));
            let point = source.space().default_point().unwrap();
            let candidate = source.render(&point).unwrap();
            match assembler
                .assemble(&candidate.ptx, SmArch::SM_90A, &[])
                .unwrap()
            {
                Assembly::Cubin(cubin) => {
                    assert!(!cubin.resources.is_empty());
                    for entry in &cubin.resources {
                        assert_eq!(entry.spill_stores.0, 0, "{name} {kind}: {entry:?}");
                    }
                }
                other => panic!("{name} {kind}: {other:?}"),
            }
        }
    }
}

/// What ptxas only advises (a wgmma serialised, a wait injected, a setmaxnreg dropped) and what spills are
/// failures of a space whose settings are meant to be fast. Of each space 6 draws, or as many as
/// `WARPTREE_SLOW` says; settings that render the same PTX are assembled once.
#[test]
fn settings_of_hopper_spaces_assemble_without_advice() {
    let Some(assembler) = real() else { return };
    let count = std::env::var("WARPTREE_SLOW").map_or(6, |count| count.parse().unwrap());
    let catalogue = Catalogue::embedded();
    let mut kernels = Vec::new();
    for name in catalogue.names().unwrap() {
        let task = catalogue.task(&name).unwrap();
        for space in task
            .spaces
            .iter()
            .filter(|s| s.text.contains(".target sm_90a"))
        {
            let source = Source::parse(&space.text).unwrap();
            let mut rng = rand_pcg::Pcg64::seed_from_u64(5);
            let mut seen = HashSet::new();
            for _ in 0..count {
                let candidate = source.render(&source.space().sample(&mut rng)).unwrap();
                if seen.insert(candidate.ptx.clone()) {
                    let at = format!("{name}/{} {:?}", space.name, candidate.setting);
                    kernels.push((at, candidate.ptx));
                }
            }
        }
    }
    assert!(!kernels.is_empty(), "no space is for Hopper");
    kernels.par_iter().for_each(|(at, ptx)| {
        match assembler.assemble(ptx, SmArch::SM_90A, &[]).unwrap() {
            Assembly::Cubin(cubin) => {
                assert!(cubin.advisories.is_empty(), "{at}: {:?}", cubin.advisories);
                for entry in &cubin.resources {
                    assert_eq!(entry.spill_stores.0, 0, "{at}: {entry:?}");
                }
            }
            other => panic!("{at}: {other:?}"),
        }
    });
}
