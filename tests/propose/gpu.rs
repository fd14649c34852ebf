//! A GPU to ask for.

use warptree::device::Gpu;
use warptree::units::{Bytes, SmArch};

pub fn h200() -> Gpu {
    Gpu {
        name: "NVIDIA H200".to_owned(),
        arch: SmArch::SM_90A,
        sm_count: 132,
        sm_clock_mhz: 1980.0,
        memory_bandwidth: 4.8e12,
        l2: Bytes(60 << 20),
        smem_per_block: Bytes(227 << 10),
        smem_per_sm: Bytes(228 << 10),
        registers_per_sm: 65536,
        threads_per_sm: 2048,
        blocks_per_sm: 32,
        fp32_fma_per_cycle: 128,
        tensor_bf16_flops_per_cycle: 4096,
    }
}
