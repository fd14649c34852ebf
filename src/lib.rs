//! warptree finds the fastest GPU kernel for a task by tree search over NVIDIA PTX.

#![deny(unsafe_code)]

pub mod cli;
pub mod commands;
pub mod compare;
pub mod device;
pub mod driver;
pub mod evaluate;
pub mod export;
pub mod expr;
pub mod llm;
pub mod propose;
pub mod ptx;
pub mod report;
pub mod search;
pub mod sim;
pub mod source;
pub mod store;
pub mod task;
pub mod toolchain;
pub mod units;
pub mod verdict;
