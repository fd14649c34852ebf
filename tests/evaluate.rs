//! The evaluation room from outside: captured tool output, a stub and a real ptxas, planted devices.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "evaluate/adversarial.rs"]
mod adversarial;
#[path = "evaluate/diagnosis.rs"]
mod diagnosis;
#[path = "evaluate/pipeline.rs"]
mod pipeline;
#[path = "evaluate/profile.rs"]
mod profile;
#[path = "evaluate/ptxas.rs"]
mod ptxas;
#[path = "evaluate/sanitizer.rs"]
mod sanitizer;
#[path = "evaluate/seeds.rs"]
mod seeds;
#[path = "evaluate/simulated.rs"]
mod simulated;
