//! The PTX front end against data files: every construct, broken texts, models' mistakes, real compiler
//! output.

#[path = "ptx/check.rs"]
mod check;
#[path = "ptx/corpus.rs"]
mod corpus;
#[path = "ptx/edit.rs"]
mod edit;
#[path = "ptx/parse.rs"]
mod parse;
#[path = "ptx/sanitise.rs"]
mod sanitise;
