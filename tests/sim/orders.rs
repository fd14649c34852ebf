//! Orders of threads: a seed decides how warps, blocks and copies advance. What is right is right under every
//! seed, bit for bit; a hand-over through global memory that lacks its barrier is not.

use warptree::sim::Options;

use super::hopper::{Sizes, product};
use super::{attention, harness::*, hopper};

const SEEDS: u64 = 8;

fn ordered(seed: u64) -> Options {
    Options { seed, ..options() }
}

#[test]
fn products_are_the_same_in_every_order() {
    let sizes = Sizes {
        m: 256,
        n: 256,
        k: 192,
        blocks: 2,
    };
    for kernel in hopper::LAB {
        let (plain, ..) = product(kernel, kernel.text, &sizes, &ordered(0));
        for seed in 1..=SEEDS {
            let (c, outcome, _) = product(kernel, kernel.text, &sizes, &ordered(seed));
            let said = hopper::said(&outcome);
            assert!(said.is_empty(), "{}, seed {seed}: {said:#?}", kernel.name);
            assert!(c == plain, "{}, seed {seed}", kernel.name);
        }
    }
}

#[test]
fn attention_is_the_same_in_every_order() {
    for kernel in attention::LAB {
        let of = |seed| attention::output(kernel, 256, 1, &ordered(seed));
        let plain = of(0);
        for seed in 1..=SEEDS {
            assert!(of(seed) == plain, "{}, seed {seed}", kernel.name);
        }
    }
}
