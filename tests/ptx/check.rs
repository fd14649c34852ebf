//! Lints find what they should, on the right line, and nothing else. A line that must have a finding ends
//! in `//~ CODE`.

use std::sync::Arc;

use rand::SeedableRng;
use warptree::expr::Value;
use warptree::ptx::{check, check_tensor_maps, parse};
use warptree::source::Source;
use warptree::task::{Catalogue, Problem};

use crate::corpus::CORPUS;
use crate::parse::files;

#[test]
fn findings_are_where_the_files_say() {
    for (name, text) in files("lints", "ptx") {
        let module = parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let expected: Vec<(u32, String)> = (text.lines().zip(1..))
            .filter_map(|(line, number)| Some((number, line.split_once("//~ ")?.1.to_owned())))
            .collect();
        let found: Vec<(u32, String)> = check(&module)
            .into_iter()
            .map(|diagnostic| (diagnostic.line.expect("a line"), diagnostic.code))
            .collect();
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn compiler_output_has_no_findings() {
    for (name, text) in CORPUS.iter() {
        let found = check(&parse(text).expect("parses"));
        assert!(found.is_empty(), "{name}: {found:#?}");
    }
}

#[test]
fn kernels_that_were_run_on_hopper_have_no_findings() {
    let all = files("../sim/hopper", "ptx");
    assert!(all.len() >= 10);
    for (name, text) in all {
        let mut found = check(&parse(&text).expect("parses"));
        // True: one stops by `trap`, one computes an address from a register that holds nothing yet and drops it.
        let known = ["trap-after-setmaxnreg", "uninitialised-register"];
        found.retain(|finding| !known.contains(&finding.code.as_str()));
        assert!(found.is_empty(), "{name}: {found:#?}");
    }
}

/// Settings of each space that are looked at besides the default.
const SETTINGS: usize = 6;

#[test]
fn seeds_and_spaces_have_no_findings() {
    let catalogue = Catalogue::embedded();
    let mut silent = 0;
    for name in catalogue.names().expect("names") {
        let task = Arc::new(catalogue.task(&name).expect("a good task"));
        let problem =
            Problem::new(&task, &task.sizes[0], task.cases[0], 7).expect("a good problem");
        let mut names = problem.names();
        names.insert("sm_count".into(), Value::Int(132));
        let spaces = task.spaces.iter().map(|space| (&*space.name, &space.text));
        for (file, text) in spaces.chain([("seed", &task.seed)]) {
            let source = Source::parse(text).expect("a good source");
            let mut rng = rand_pcg::Pcg64::seed_from_u64(3);
            let mut points = vec![source.space().default_point().expect("valid")];
            points.extend((0..SETTINGS).map(|_| source.space().sample(&mut rng)));
            for point in points {
                let candidate = source.render(&point).expect("renders");
                let module = candidate.module.as_ref().expect("parses");
                let mut found = check(module);
                let maps = candidate.plan(&names).expect("a plan").bound_maps();
                found.extend(check_tensor_maps(module, &maps));
                assert!(
                    found.is_empty(),
                    "{name}/{file} {:?}: {found:#?}",
                    candidate.setting
                );
                silent += 1;
            }
        }
    }
    assert!(silent >= 150, "{silent} kernels are too few");
}

#[test]
fn numbers_that_nobody_means_are_no_trouble() {
    for resident in ["144115188075855872", "18446744073709551615"] {
        let text = format!(
            ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n.reqntid 256\n\
             .minnctapersm {resident}\n{{\n    setmaxnreg.dec.sync.aligned.u32 18446744073709551615;\n    \
             setmaxnreg.inc.sync.aligned.u32 18446744073709551615;\n    ret;\n}}\n"
        );
        let found = check(&parse(&text).expect("parses"));
        let budget = found
            .iter()
            .any(|finding| finding.code == "setmaxnreg-budget");
        assert!(budget, "{found:#?}");
    }
}
