//! The embedded tasks' own kernels through a live ptxas.

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
