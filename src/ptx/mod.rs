//! PTX text: lexing, parsing, printing, canonical form, checks and edits. Pure functions over text.
//! ptxas decides what is valid; this module decides what is *the same*, what is dangerous, and where.

pub mod ir;

mod lex;
mod operand;
mod parse;
mod place;
mod print;

pub use parse::{ParseError, parse};
pub use place::{Lines, Position, position};
pub use print::print;
