//! Knobs: the named values a source leaves open, and a choice for each of them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// One value of a knob.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum KnobValue {
    /// Most knobs: tile sizes, counts, switches (0/1).
    Int(i64),
    /// A piece of PTX: a cache operator, a layout's name.
    Text(String),
}

impl fmt::Display for KnobValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => value.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// A knob: `//@ knob BM = 64 in {32, 64, 128}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knob {
    /// `BM`.
    pub name: String,
    /// In the order written: neighbours in this list are neighbours for the search.
    pub values: Vec<KnobValue>,
    /// Index of the default in `values`.
    pub default: u16,
}

/// A choice for every knob of a space: an index into each knob's values, in the space's knob order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Point(pub Box<[u16]>);

/// A choice by name, as people and models write it: `{"BM": 64}`.
pub type Setting = BTreeMap<String, KnobValue>;
