//! The self-test's own kernels, run by the simulator: what the table expects of a GPU is what they do.

use super::*;
use crate::device::cuda::digest::digest;
use crate::device::{Gpu, SimDevice};

fn simulated(case: &Case, text: &'static str) -> Execution {
    let gpu = Gpu::named("H200").expect("it is in the table");
    let kernels = kernels(text).expect("it parses");
    let job = Job {
        cubin: None,
        ..case.job(&kernels)
    };
    SimDevice::new(gpu)
        .execute(&job)
        .expect("the simulator runs")
}

#[test]
fn good_kernels_do_what_the_table_expects() {
    let add = add_case(128);
    let ran = simulated(&add, ANY);
    assert_eq!(clean(&ran), Some(added(&add)), "{}", describe(&ran));

    let copy = copy_case("copy", 1 << 16, 1);
    let ran = simulated(&copy, ANY);
    let expected = words(&bytes_of(&copy.buffers[0]));
    assert_eq!(clean(&ran), Some(expected), "{}", describe(&ran));

    let smem: u32 = 50_000;
    let mut shared =
        Case::new("shared_sum", 2, 256, vec![arg("c"), int(smem)]).with(output("c", 8));
    shared.plan.launches[0].smem = Bytes(smem.into());
    let ran = simulated(&shared, ANY);
    let sum = (0..smem / 4).sum();
    assert_eq!(clean(&ran), Some(vec![sum; 2]), "{}", describe(&ran));
}

#[test]
fn the_far_write_is_a_fault() {
    let far = Case::new("far_write", 1, 1, vec![arg("c")]).with(output("c", 64));
    assert!(matches!(simulated(&far, ANY).ended, Ended::Faulted(_)));
}

#[test]
fn samples_are_gathered_and_untouched_elements_counted() {
    let tools = include_str!("../tools.ptx");
    let chosen = [5u64, 0, 1023, 512];
    let mut indices = output("indices", 8 * chosen.len() as u64);
    indices.contents = Contents::Bytes(chosen.iter().flat_map(|i| i.to_le_bytes()).collect());
    indices.writable = false;
    for width in [1u64, 2, 4, 8] {
        let bytes = 1024 * width;
        let case = Case::new(
            "warptree_gather",
            2,
            2,
            vec![
                arg("a"),
                arg("indices"),
                int(chosen.len() as i64),
                int(width as i64),
                arg("c"),
            ],
        )
        .with(floats("a", bytes, 4))
        .with(indices.clone())
        .with(output("c", chosen.len() as u64 * width));
        let ran = simulated(&case, tools);
        let from = bytes_of(&case.buffers[0]);
        let expected: Vec<u8> = chosen
            .iter()
            .flat_map(|i| &from[(i * width) as usize..((i + 1) * width) as usize])
            .copied()
            .collect();
        assert_eq!(ran.outputs[0].1, expected, "{}", describe(&ran));

        let mut held = output("a", bytes);
        let mut contents = vec![1u8; bytes as usize];
        for element in [3, 4, 1000] {
            contents[(element * width) as usize..((element + 1) * width) as usize].fill(0x7b);
        }
        // one byte of the pattern is not the pattern, but for elements of one byte
        contents[(50 * width) as usize] = 0x7b;
        held.contents = Contents::Bytes(contents.into());
        held.writable = false;
        let mut count = output("c", 8);
        count.contents = Contents::Fill(0);
        let case = Case::new(
            "warptree_untouched",
            2,
            64,
            vec![arg("a"), int(1024), int(width as i64), int(0x7b), arg("c")],
        )
        .with(held)
        .with(count);
        let ran = simulated(&case, tools);
        let expected = if width == 1 { 4 } else { 3 };
        assert_eq!(clean(&ran), Some(vec![expected, 0]), "{}", describe(&ran));
    }
}

#[test]
fn damage_is_half_of_an_output_and_no_more() {
    let tools = include_str!("../tools.ptx");
    let pairs = 1000;
    let case = Case::new(
        "warptree_pock",
        3,
        64,
        vec![arg("c"), int(pairs), int(0x0123_4567)],
    )
    .with(output("c", 16 * pairs as u64));
    let ran = simulated(&case, tools);
    let damaged = ran.outputs[0]
        .1
        .chunks(16)
        .filter(|pair| pair.iter().all(|byte| *byte == 0xa5))
        .count();
    assert!((400..600).contains(&damaged), "{damaged} of {pairs}");
}

#[test]
fn the_gpu_and_the_host_digest_alike() {
    let seed = 0x0123_4567_89AB_CDEF_u64;
    let tools = include_str!("../tools.ptx");
    for bytes in [16, 4096, 48 * 1000] {
        let mut case = Case::new(
            "warptree_digest",
            3,
            64,
            vec![arg("a"), int(bytes / 16), int(seed as i64), arg("c")],
        )
        .with(floats("a", bytes as u64, 9))
        .with(output("c", 8));
        case.buffers[1].contents = Contents::Fill(0);
        let ran = simulated(&case, tools);
        let sum = digest(seed, 0, &bytes_of(&case.buffers[0]));
        let expected = vec![sum as u32, (sum >> 32) as u32];
        assert_eq!(clean(&ran), Some(expected), "{}", describe(&ran));
    }
}
