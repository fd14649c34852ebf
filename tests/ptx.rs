//! The PTX front end against data files: every construct, broken texts, models' mistakes, real compiler
//! output.

#[path = "ptx/broken.rs"]
mod broken;
#[path = "ptx/canon.rs"]
mod canon;
#[path = "ptx/check.rs"]
mod check;
#[path = "ptx/corpus.rs"]
mod corpus;
#[path = "ptx/edit.rs"]
mod edit;
#[path = "ptx/fuzz.rs"]
mod fuzz;
#[path = "ptx/parse.rs"]
mod parse;
#[path = "ptx/policy.rs"]
mod policy;
#[path = "ptx/sanitise.rs"]
mod sanitise;
#[path = "ptx/wild.rs"]
mod wild;
