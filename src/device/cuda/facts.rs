//! What the driver does not tell of an architecture.

/// Fused multiply-adds per SM and cycle, by the programming guide's throughput table.
pub fn fp32_fma_per_cycle(number: u16) -> u32 {
    match number {
        86..=89 | 90.. => 128,
        _ => 64,
    }
}

/// Dense bf16 tensor FLOPs per SM and cycle, from the peak rates of the data sheets; of chips sold with
/// different rates, the highest, since it bounds a time from below.
pub fn tensor_bf16_flops_per_cycle(number: u16) -> u32 {
    match number {
        80 => 2048,
        86..=89 => 1024,
        90 => 4096,
        100..=109 => 8192,
        120.. => 1024,
        _ => 0,
    }
}
