//! The simulator, judged by what kernels do: results, findings with their lines, counts, times.

#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "sim/harness.rs"]
mod harness;
#[path = "sim/hazards.rs"]
mod hazards;
#[path = "sim/instructions.rs"]
mod instructions;
