//! The simulator, judged by what kernels do: results, findings with their lines, counts, times.

#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "sim/attention.rs"]
mod attention;
#[path = "sim/clusters.rs"]
mod clusters;
#[path = "sim/copies.rs"]
mod copies;
#[path = "sim/counts.rs"]
mod counts;
#[path = "sim/defined.rs"]
mod defined;
#[path = "sim/estimates.rs"]
mod estimates;
#[path = "sim/harness.rs"]
mod harness;
#[path = "sim/hazards.rs"]
mod hazards;
#[path = "sim/hopper.rs"]
mod hopper;
#[path = "sim/instructions.rs"]
mod instructions;
#[path = "sim/kernels.rs"]
mod kernels;
#[path = "sim/orders.rs"]
mod orders;
#[path = "sim/planted.rs"]
mod planted;
#[path = "sim/tensor.rs"]
mod tensor;
