//! A **source** is one self-contained `.ptx` text with holes; its `//@` header declares the knobs, the
//! constraints between them and the launches. Rendering it with one setting gives a **candidate**.
//! Pure functions over text: no files, no clock, no randomness of its own.

mod knob;
mod plan;
mod space;

pub use knob::{Knob, KnobValue, Point, Setting};
pub use plan::{Argument, DType, Launch, LaunchPlan, TensorMap, Workspace};
pub use space::{Require, Space, SpaceError};

use std::sync::Arc;

/// A parsed source. Immutable; shared between the graph and those who evaluate it.
#[derive(Clone, Debug)]
pub struct Source {
    /// The whole text, header included: what a person or a model edits.
    pub text: Arc<str>,
}
