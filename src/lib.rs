//! warptree finds the fastest GPU kernel for a task by Monte-Carlo tree search over NVIDIA PTX, and proves
//! that its winner is honest.
//!
//! Data flows one way, and each stage is a noun that takes the one before it:
//!
//! ```text
//! task → source → node → candidate → verdict → score → graph → run → report / export
//! ```
//!
//! - A [`task`] says what to compute and what counts as right: sizes, inputs, a float64 reference, a
//!   tolerance with its proof, the work that any honest kernel must do.
//! - A [`source`] is one PTX text with holes; its `//@` header declares the knobs, the requirements between
//!   them and the launches. Rendered with one setting it is a **candidate**.
//! - A [`device`] runs candidates: the simulator ([`sim`], every time *estimated*) or a GPU through a worker
//!   process (every time *measured*). It never sees expected outputs.
//! - An evaluator ([`evaluate`]) turns a source and a setting into a [`verdict`]: front end ([`ptx`]), ptxas
//!   ([`toolchain`]), limits, verification, audit, time, diagnosis; or a table of earlier measurements.
//! - A proposer ([`propose`]) gives a source a child: a mechanical rewrite, or an edit by a model ([`llm`]).
//!   It sees feedback, never inputs or samples.
//! - The [`search`] is a graph whose nodes are sources and whose edges are structural edits; inside a node a
//!   tuner moves the knobs. It is asked and told, and does nothing by itself: no threads, no clock, no files.
//! - The [`driver`] owns the threads, the [`store`] the run folder: an append-only log of which the search's
//!   state is the fold. What is shown ([`report`]), compared ([`compare`]) or handed out ([`export`]) is
//!   read from stored runs; what was handed out can be judged again elsewhere ([`check`]).
//!
//! A lower room never imports a higher one: [`units`], [`expr`] ← [`ptx`] ← [`source`], [`task`] ← [`sim`],
//! [`device`] ← [`evaluate`] ← [`propose`], [`llm`] ← [`search`] ← [`store`] ← [`driver`] ← [`report`],
//! [`export`], [`compare`] ← [`check`] ← [`commands`].

#![deny(unsafe_code)]

mod files;
mod turns;
pub mod units;

pub mod expr;
pub mod ptx;
pub mod source;
pub mod task;

pub mod sim;

pub mod device;
pub mod toolchain;
pub mod verdict;

pub mod evaluate;

pub mod llm;
pub mod propose;

pub mod search;

pub mod store;

pub mod driver;

pub mod check;
pub mod compare;
pub mod export;
pub mod report;

pub mod cli;
pub mod commands;
