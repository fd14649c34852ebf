//! A space holds exactly the settings that meet every requirement.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use proptest::prelude::*;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use warptree::expr::{Expr, Value};
use warptree::source::{Knob, KnobValue, Point, Setting, Space, SpaceError};

fn knob(name: &str, values: &[i64]) -> Knob {
    Knob {
        name: name.to_owned(),
        values: values.iter().copied().map(KnobValue::Int).collect(),
        default: 0,
    }
}

fn requires(texts: &[&str]) -> Vec<Expr> {
    texts.iter().map(|text| Expr::new(text).unwrap()).collect()
}

/// CLBlast's tunable gemm: the space that Kernel Tuner's tables were measured on, or its parent.
fn gemm(parent: bool) -> Space {
    let knobs = vec![
        knob("KWG", if parent { &[16, 32] } else { &[32] }),
        knob("KWI", &[2]),
        knob("MDIMA", &[8, 16, 32]),
        knob("MDIMC", &[8, 16, 32]),
        knob("MWG", &[16, 32, 64, 128]),
        knob("NDIMB", &[8, 16, 32]),
        knob("NDIMC", &[8, 16, 32]),
        knob("NWG", &[16, 32, 64, 128]),
        knob("SA", &[0, 1]),
        knob("SB", &[0, 1]),
        knob("STRM", if parent { &[0, 1] } else { &[0] }),
        knob("STRN", if parent { &[0, 1] } else { &[0] }),
        knob("VWM", &[1, 2, 4, 8]),
        knob("VWN", &[1, 2, 4, 8]),
    ];
    let mut conditions = requires(&[
        "KWG % KWI == 0",
        "MWG % (MDIMC * VWM) == 0",
        "NWG % (NDIMC * VWN) == 0",
        "MWG % (MDIMA * VWM) == 0",
        "NWG % (NDIMB * VWN) == 0",
        "KWG % ((MDIMC * NDIMC) / MDIMA) == 0",
        "KWG % ((MDIMC * NDIMC) / NDIMB) == 0",
    ]);
    if parent {
        conditions.extend(requires(&[
            "not (MWG == 128 and NWG == 128 and MDIMC == 8 and NDIMC == 8)",
        ]));
    }
    Space::new(knobs, conditions).unwrap()
}

#[test]
fn the_published_gemm_space_has_its_size_and_is_fast() {
    let start = Instant::now();
    let space = gemm(true);
    let enumerated = space.iter().count();
    assert_eq!(space.len(), 116_928);
    assert_eq!(enumerated, 116_928);
    assert!(start.elapsed().as_secs_f64() < 1.0, "{:?}", start.elapsed());

    let start = Instant::now();
    let space = gemm(false);
    assert_eq!(space.len(), 17_956);
    assert!(start.elapsed().as_secs_f64() < 0.1, "{:?}", start.elapsed());
}

/// Every combination of values, checked by evaluating the requirements.
fn brute_force(knobs: &[Knob], requires: &[Expr]) -> BTreeSet<Point> {
    let mut points: Vec<Vec<u16>> = vec![Vec::new()];
    for knob in knobs {
        points = points
            .iter()
            .flat_map(|point| {
                (0..knob.values.len() as u16).map(|value| {
                    let mut longer = point.clone();
                    longer.push(value);
                    longer
                })
            })
            .collect();
    }
    points
        .into_iter()
        .filter(|point| {
            let names: BTreeMap<String, Value> = std::iter::zip(knobs, point)
                .map(|(knob, &i)| (knob.name.clone(), Value::from(&knob.values[usize::from(i)])))
                .collect();
            requires
                .iter()
                .all(|require| require.holds(&names).unwrap_or(false))
        })
        .map(|point| Point(point.into()))
        .collect()
}

fn knob_name(index: usize) -> String {
    format!("K{index}")
}

/// A random requirement over `count` knobs.
fn requirement(count: usize) -> impl Strategy<Value = String> {
    let name = move || (0..count).prop_map(knob_name);
    prop_oneof![
        (name(), name(), 1..40i64).prop_map(|(a, b, n)| format!("{a} * {b} <= {n}")),
        (name(), name()).prop_map(|(a, b)| format!("{a} % {b} == 0")),
        (name(), name(), name()).prop_map(|(a, b, c)| format!("{a} + {b} >= {c}")),
        (name(), name(), name(), name())
            .prop_map(|(a, b, c, d)| format!("{a} != {b} or {c} < {d}")),
        (name(), -3..9i64).prop_map(|(a, n)| format!("{a} > {n}")),
    ]
}

fn small_space() -> impl Strategy<Value = (Vec<Knob>, Vec<Expr>)> {
    (1..7usize).prop_flat_map(|count| {
        let values = proptest::collection::btree_set(-1..9i64, 1..5);
        let knobs = proptest::collection::vec(values, count).prop_map(|lists| {
            let numbered = lists.into_iter().enumerate();
            let knob = |(index, values): (usize, BTreeSet<i64>)| {
                knob(&knob_name(index), &values.into_iter().collect::<Vec<_>>())
            };
            numbered.map(knob).collect()
        });
        let conditions = proptest::collection::vec(requirement(count), 0..6);
        let compiled = conditions
            .prop_map(|texts| texts.iter().map(|text| Expr::new(text).unwrap()).collect());
        (knobs, compiled)
    })
}

proptest! {
    #[test]
    fn a_space_holds_what_brute_force_finds((knobs, conditions) in small_space()) {
        let expected = brute_force(&knobs, &conditions);
        match Space::new(knobs.clone(), conditions.clone()) {
            Ok(space) => {
                let listed: Vec<Point> = space.iter().collect();
                let set: BTreeSet<Point> = listed.iter().cloned().collect();
                prop_assert_eq!(listed.len(), set.len());
                prop_assert_eq!(&set, &expected);
                prop_assert_eq!(space.len(), expected.len() as u64);
                let mut rng = Pcg64Mcg::seed_from_u64(7);
                for _ in 0..8 {
                    prop_assert!(expected.contains(&space.sample(&mut rng)));
                }
                // From a valid point and from one that may not be.
                let first = listed[0].clone();
                let default = space.point(&Setting::new()).unwrap();
                for from in [first, default] {
                    let near: BTreeSet<Point> = space.neighbours(&from).into_iter().collect();
                    let one_off = |p: &&Point| {
                        std::iter::zip(&p.0, &from.0).filter(|(a, b)| a != b).count() == 1
                    };
                    let wanted: BTreeSet<Point> = expected.iter().filter(one_off).cloned().collect();
                    prop_assert_eq!(near, wanted);
                    prop_assert_eq!(space.is_valid(&from), expected.contains(&from));
                    prop_assert_eq!(&space.point(&space.setting(&from)).unwrap(), &from);
                }
            }
            Err(SpaceError::Empty { conflict }) => {
                prop_assert!(expected.is_empty());
                let texts: Vec<Expr> = conflict.into_iter().map(|r| r.condition).collect();
                prop_assert!(brute_force(&knobs, &texts).is_empty());
                for left_out in 0..texts.len() {
                    let mut fewer = texts.clone();
                    fewer.remove(left_out);
                    prop_assert!(!brute_force(&knobs, &fewer).is_empty(), "not minimal");
                }
            }
            // A requirement that has no value anywhere is its own error.
            Err(SpaceError::Requirement { .. }) => prop_assert!(expected.is_empty()),
            Err(error) => prop_assert!(false, "{}", error),
        }
    }
}

/// χ² over the cells of a skewed space: 3 · (1 + 2 + 3) points.
#[test]
fn sampling_is_uniform() {
    let knobs = vec![
        knob("A", &[0, 1, 2]),
        knob("B", &[1, 2, 3]),
        knob("C", &[1, 2, 3]),
    ];
    let space = Space::new(knobs, requires(&["B <= C"])).unwrap();
    assert_eq!(space.len(), 18);
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let mut counts: BTreeMap<Point, u32> = BTreeMap::new();
    let draws = 18_000;
    for _ in 0..draws {
        *counts.entry(space.sample(&mut rng)).or_default() += 1;
    }
    assert_eq!(counts.len(), 18);
    let expected = f64::from(draws) / 18.0;
    let chi2: f64 = counts
        .values()
        .map(|&count| (f64::from(count) - expected).powi(2) / expected)
        .sum();
    // 17 degrees of freedom: the 99.9 % quantile.
    assert!(chi2 < 40.8, "χ² = {chi2}");
}

/// A requirement over too many combinations to tabulate is evaluated instead, and changes nothing else.
#[test]
fn wide_requirements() {
    let values: Vec<i64> = (0..7).collect();
    let knobs: Vec<Knob> = (0..7)
        .map(|index| knob(&knob_name(index), &values))
        .collect();
    let sum = requires(&["K0 + K1 + K2 + K3 + K4 + K5 + K6 <= 2", "K0 <= K1"]);
    let space = Space::new(knobs, sum).unwrap();
    // Sums of 0, 1 and 2 over seven knobs: 1 + 7 + 28, less those with K0 > K1.
    assert_eq!(space.len(), 36 - 7);
    let mut rng = Pcg64Mcg::seed_from_u64(2);
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        seen.insert(space.sample(&mut rng));
    }
    assert!(seen.iter().all(|point| space.is_valid(point)));
    assert_eq!(
        space.neighbours(&space.default_point().unwrap()).len(),
        6 * 2
    );
}

#[test]
fn spaces_that_cannot_be() {
    let ab = || vec![knob("A", &[1, 2]), knob("B", &[1, 2])];
    let huge = (0..30)
        .map(|i| knob(&knob_name(i), &[0, 1, 2, 3, 4, 5, 6, 7]))
        .collect();
    for (knobs, conditions, expected) in [
        (ab(), vec!["A > 2", "B > 0"], "these conflict: `A > 2`"),
        (ab(), vec!["1 > 2"], "these conflict: `1 > 2`"),
        (
            ab(),
            vec!["A + C > 2"],
            "unknown name `C`; did you mean `A`? known names: A, B",
        ),
        (ab(), vec!["A % 0 == 0"], "division by zero"),
        (
            vec![knob("A", &[]), knob("B", &[1])],
            vec![],
            "knob `A`: has no values",
        ),
        (
            vec![knob("A", &[1]), knob("A", &[1])],
            vec![],
            "knob `A`: is declared twice",
        ),
        (vec![knob("A", &[1, 1])], vec![], "knob `A`: lists 1 twice"),
        (huge, vec![], "more than 2^63 settings"),
    ] {
        let error = Space::new(knobs, requires(&conditions)).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn a_space_of_nothing_has_one_point() {
    let space = Space::new(Vec::new(), Vec::new()).unwrap();
    assert_eq!(space.len(), 1);
    assert_eq!(space.iter().count(), 1);
    let point = space.default_point().unwrap();
    assert!(space.neighbours(&point).is_empty());
    assert!(space.is_valid(&point));
}
