//! PTX text: lexing, parsing, printing, canonical form, checks and edits. Pure functions over text.
//! ptxas decides what is valid; this module decides what is *the same*, what is dangerous, and where.

pub mod cfg;
pub mod edit;
pub mod ir;

mod access;
mod canon;
mod check;
mod lex;
mod modifier;
mod operand;
mod parse;
mod place;
mod policy;
mod print;
mod sanitise;
mod scope;

pub use access::{Access, access};
pub use canon::{canonical, digest};
pub use check::{BoundMap, RegisterBudget, check, check_tensor_maps};
pub use parse::{ParseError, parse};
pub use place::{Lines, Position, position};
pub use policy::{ModuleState, ModuleVariable, call_detectors, forbidden, module_state};
pub use print::print;
pub use sanitise::{Fix, Sanitised, sanitise};
