//! A space holds exactly the settings that meet every requirement.

use std::time::Instant;

use warptree::expr::Expr;
use warptree::source::{Knob, KnobValue, Space};

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
