//! Orders of threads: a seed decides how warps, blocks and copies advance. What is right is right under every
//! seed, bit for bit; a hand-over through global memory that lacks its barrier is not.

use warptree::sim::{Initial, Options};

use super::hopper::{Sizes, product};
use super::{attention, harness::*, hopper};

const SEEDS: u64 = 8;

/// Kernels that run under every seed; the others, which are like one of them, run under the first.
const EVERY: [&str; 3] = ["gemm_roll", "gemm_cluster_a", "attention_overlap"];

fn seeds(name: &str) -> std::ops::RangeInclusive<u64> {
    1..=if EVERY.contains(&name) { SEEDS } else { 1 }
}

fn ordered(seed: u64) -> Options {
    Options { seed, ..options() }
}

#[test]
fn products_are_the_same_in_every_order() {
    let sizes = Sizes {
        m: 128,
        n: 256,
        k: 128,
        blocks: 2,
    };
    for kernel in hopper::LAB {
        let (plain, ..) = product(kernel, kernel.text, &sizes, &ordered(0));
        for seed in seeds(kernel.name) {
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
        let of = |seed| attention::output(kernel, 192, 1, &ordered(seed));
        let plain = of(0);
        for seed in seeds(kernel.name) {
            assert!(of(seed) == plain, "{}, seed {seed}", kernel.name);
        }
    }
}

/// Two warps that hand 32 values on through global memory, with `barrier` between. Nothing checks the order of
/// reads in global memory: only the order of threads shows what is missing.
fn handed_over(barrier: &str) -> String {
    format!(
        ".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 between, .param .u64 out)
{{
    .reg .b32 %tid, %value, %lane;
    .reg .b64 %between, %out, %at;
    .reg .pred %second;
    ld.param.u64 %between, [between];
    ld.param.u64 %out, [out];
    mov.u32 %tid, %tid.x;
    and.b32 %lane, %tid, 31;
    mul.wide.u32 %at, %lane, 4;
    add.s64 %between, %between, %at;
    add.s64 %out, %out, %at;
    setp.ge.u32 %second, %tid, 32;
    @%second bra.uni $take;
    st.global.u32 [%between], %tid;
    {barrier}
    ret;
$take:
    {barrier}
    ld.global.u32 %value, [%between];
    st.global.u32 [%out], %value;
    ret;
}}
"
    )
}

fn taken(barrier: &str, seed: u64) -> Vec<u32> {
    let between = Arg {
        bytes: 128,
        writable: true,
        initial: Initial::Zero,
    };
    let args = vec![between, output(128)];
    let ptx = handed_over(barrier);
    let run = run_entry(&ptx, "k", &shape(1, 64), args, &[], &ordered(seed));
    run.clean();
    run.u32s(1)
}

#[test]
fn a_hand_over_that_no_check_sees_is_wrong_in_some_order() {
    let right: Vec<u32> = (0..32).collect();
    for seed in 0..=SEEDS {
        assert_eq!(taken("bar.sync 0;", seed), right, "seed {seed}");
    }
    assert_eq!(taken("", 0), right, "the plainest order hides it");
    let wrong = (1..=SEEDS).filter(|&seed| taken("", seed) != right);
    assert!(wrong.count() > 1);
    for seed in 1..=SEEDS {
        assert_eq!(
            taken("", seed),
            taken("", seed),
            "seed {seed} repeats itself"
        );
    }
}

#[test]
fn blocks_are_taken_in_every_order_that_a_gpu_may_take() {
    // Each block takes a ticket; the last one must be another block under some seed.
    let ptx = ".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 tickets, .param .u64 out)
{
    .reg .b32 %ticket, %block;
    .reg .b64 %tickets, %out, %at;
    ld.param.u64 %tickets, [tickets];
    ld.param.u64 %out, [out];
    mov.u32 %block, %ctaid.x;
    atom.global.add.u32 %ticket, [%tickets], 1;
    mul.wide.u32 %at, %ticket, 4;
    add.s64 %out, %out, %at;
    st.global.u32 [%out], %block;
    ret;
}
";
    let order = |seed| {
        let tickets = Arg {
            bytes: 4,
            writable: true,
            initial: Initial::Zero,
        };
        let args = vec![tickets, output(64)];
        let run = run_entry(ptx, "k", &shape(16, 1), args, &[], &ordered(seed));
        run.clean();
        run.u32s(1)
    };
    let plain: Vec<u32> = (0..16).collect();
    assert_eq!(order(0), plain);
    for seed in 1..=SEEDS {
        let mut blocks = order(seed);
        assert_ne!(blocks, plain, "seed {seed}");
        blocks.sort_unstable();
        assert_eq!(blocks, plain, "seed {seed}");
    }
}
