//! The **simulator**: a CPU interpreter for PTX with shadow memory, counts and a cost model.
//!
//! `decode` turns a parsed module into a [`Program`]; `machine` runs its launches on [`Memory`], warp by
//! warp, and finds faults, races and reads of unwritten memory; `counts` holds what was executed; `cost`
//! turns counts into an *estimated* time on a named GPU, and `diagnosis` says what limits it. It knows
//! instructions, never tasks: no expected outputs, no tolerances, no files, no clock.

mod causal;
pub mod cost;
mod counts;
mod decode;
pub mod diagnosis;
mod executed;
mod finding;
mod float;
mod flops;
mod flow;
mod footprint;
mod liveness;
mod machine;
mod memory;
mod mix;
mod op;
mod reading;
mod shared;
mod tensor_map;

pub use counts::{Counts, LineCounts};
pub use executed::executed;
pub use finding::{Finding, FindingKind};
pub use flops::FlopCounts;
pub use machine::{Launch, Options, Outcome, Stop};
pub use memory::{Generator, Initial, Memory, Touched};
pub use op::{ParamInfo, Program};
pub use tensor_map::{Swizzle, TensorMap};

use crate::ptx::ir::Module;

/// Decodes one kernel of a module and the functions it calls.
///
/// # Errors
/// Every instruction or declaration that the simulator does not know, with its line.
pub fn decode(module: &Module, entry: &str) -> Result<Program, Vec<Finding>> {
    decode::decode(module, entry)
}

/// Device memory that holds a program's module variables; add the buffers next.
pub fn memory(program: &Program) -> Memory {
    Memory::new(&program.globals)
}

/// Runs a launch; memory keeps what it wrote.
pub fn launch(
    program: &Program,
    memory: &mut Memory,
    launch: &Launch,
    options: &Options,
) -> Outcome {
    machine::launch(program, memory, launch, options)
}
