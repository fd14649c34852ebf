//! A table of measurements: knobs, and for each recorded setting its time or its failure.
//! It does not care which tool wrote it; [`super::read`] does.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::source::{Knob, KnobValue, Point, Setting, Source};
use crate::units::Nanos;

/// What was recorded of one setting.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    /// It ran.
    Time {
        /// As the table gives it (a mean, for Kernel Tuner).
        time: Nanos,
        /// Raw samples, where recorded.
        samples: Vec<Nanos>,
    },
    /// It failed, or its time is none.
    Failed {
        /// As the table names it.
        reason: String,
    },
}

/// What the table says of a setting.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry<'a> {
    /// This.
    Found(&'a Row),
    /// Nothing: the setting was never recorded.
    Missing,
    /// The source is not about this table's knobs.
    Foreign {
        /// Which knob, and how.
        message: String,
    },
}

/// Measurements by setting.
#[derive(Clone, Debug)]
pub struct Table {
    knobs: Vec<Knob>,
    /// Row by value indices in the order of `knobs`.
    index: HashMap<Box<[u16]>, usize>,
    rows: Vec<Row>,
    warnings: Vec<String>,
}

impl Table {
    /// A table of settings over these knobs, with the values in the order given; a value that only a row
    /// has is added at the end. Of rows with the same setting the last counts.
    pub fn new(
        knobs: Vec<(String, Vec<KnobValue>)>,
        rows: impl IntoIterator<Item = (Vec<KnobValue>, Row)>,
    ) -> Self {
        let knobs = knobs.into_iter().map(|(name, values)| Knob {
            name,
            values,
            default: 0,
        });
        let mut table = Self {
            knobs: knobs.collect(),
            index: HashMap::new(),
            rows: Vec::new(),
            warnings: Vec::new(),
        };
        let mut repeated = 0;
        for (setting, row) in rows {
            let key = table.intern(setting);
            if let Some(place) = table.index.insert(key, table.rows.len()) {
                repeated += usize::from(table.rows[place] != row);
            }
            table.rows.push(row);
        }
        if repeated > 0 {
            let what = "recorded more than once with different results; the last record counts";
            table.warn(format!("{repeated} settings were {what}"));
        }
        table
    }

    /// The knobs in the table's order. Their defaults mean nothing but "the first value listed".
    pub fn knobs(&self) -> &[Knob] {
        &self.knobs
    }

    /// Settings with a record.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// What was doubtful about the table's file, each a sentence.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Notes something doubtful about the table's file.
    pub(super) fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// Every record that counts, by setting, in no particular order.
    pub fn rows(&self) -> impl Iterator<Item = (Setting, &Row)> {
        self.index.iter().map(|(key, &place)| {
            let values = self.knobs.iter().zip(key);
            let setting = values
                .map(|(knob, &value)| (knob.name.clone(), knob.values[usize::from(value)].clone()));
            (setting.collect(), &self.rows[place])
        })
    }

    /// What was recorded for a point of a source over the same knobs.
    pub fn entry(&self, source: &Source, point: &Point) -> Entry<'_> {
        let declared = source.space().knobs();
        let mut key = Vec::with_capacity(self.knobs.len());
        for knob in &self.knobs {
            let Some(place) = declared.iter().position(|own| own.name == knob.name) else {
                let message = format!("the table varies `{}`, which is no knob here", knob.name);
                return Entry::Foreign { message };
            };
            let value = &declared[place].values[usize::from(point.0[place])];
            match knob.values.iter().position(|known| known == value) {
                Some(index) => key.push(index as u16),
                None => return Entry::Missing,
            }
        }
        let known = |name: &str| self.knobs.iter().any(|knob| knob.name == name);
        if let Some(knob) = declared.iter().find(|knob| !known(&knob.name)) {
            let message = format!("the knob `{}` is not in the table", knob.name);
            return Entry::Foreign { message };
        }
        match self.index.get(key.as_slice()) {
            Some(&place) => Entry::Found(&self.rows[place]),
            None => Entry::Missing,
        }
    }

    /// A source that stands for the table's space: a header without a kernel. `requires` are conditions
    /// that a tool checks before it records, and the file does not hold. The default is the first recorded
    /// setting's values.
    pub fn source_text(&self, requires: &[&str]) -> String {
        let first = self.index.iter().min_by_key(|&(_, place)| place);
        let mut text = String::new();
        for (place, knob) in self.knobs.iter().enumerate() {
            let default = first.map_or(0, |(key, _)| usize::from(key[place]));
            let values: Vec<String> = knob.values.iter().map(literal).collect();
            let (default, values) = (literal(&knob.values[default]), values.join(", "));
            // Writing to a String cannot fail.
            let _ = writeln!(text, "//@ knob {} = {default} in {{{values}}}", knob.name);
        }
        for require in requires {
            let _ = writeln!(text, "//@ require {require}");
        }
        text
    }

    fn intern(&mut self, setting: Vec<KnobValue>) -> Box<[u16]> {
        let places = self.knobs.iter_mut().zip(setting).map(|(knob, value)| {
            let known = knob.values.iter().position(|own| *own == value);
            known.unwrap_or_else(|| {
                knob.values.push(value);
                knob.values.len() - 1
            }) as u16
        });
        places.collect()
    }
}

fn literal(value: &KnobValue) -> String {
    match value {
        KnobValue::Int(value) => value.to_string(),
        KnobValue::Text(text) if text.contains('"') => format!("'{text}'"),
        KnobValue::Text(text) => format!("\"{text}\""),
    }
}
