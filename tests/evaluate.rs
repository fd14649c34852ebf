//! The evaluation room from outside: captured tool output, a stub and a real ptxas, planted devices.

#[path = "evaluate/ptxas.rs"]
mod ptxas;
