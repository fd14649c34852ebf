//! Sizes: every set has what it needs, and all name the same dimensions.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;

use super::super::error::TaskError;
use super::super::{Purpose, Size};
use super::raw::RawSizes;
use super::{Checker, is_identifier};

impl Checker<'_> {
    pub(super) fn sizes(
        &self,
        raw: &Spanned<RawSizes>,
    ) -> Result<Vec<(Size, Range<usize>)>, TaskError> {
        let sets = raw.get_ref();
        for (purpose, set) in [(Purpose::Smoke, &sets.smoke), (Purpose::Bench, &sets.bench)] {
            if set.is_empty() {
                return Err(self.at(
                    raw.span(),
                    format_args!("no {} size is declared", purpose.word()),
                    "give at least one, such as `[{ n = 4096 }]`",
                ));
            }
        }
        let mut sizes: Vec<(Size, Range<usize>)> = Vec::new();
        let sets = [
            (Purpose::Smoke, &sets.smoke),
            (Purpose::Edge, &sets.edge),
            (Purpose::Bench, &sets.bench),
        ];
        for (purpose, entry) in sets
            .into_iter()
            .flat_map(|(purpose, set)| set.iter().map(move |entry| (purpose, entry)))
        {
            for (name, value) in entry.get_ref() {
                if !is_identifier(name) {
                    return Err(self.at(
                        value.span(),
                        format_args!("`{name}` cannot name a dimension"),
                        "use letters, digits and `_`, a letter first",
                    ));
                }
                if *value.get_ref() <= 0 {
                    return Err(self.at(
                        value.span(),
                        format_args!("{name} = {} must be positive", value.get_ref()),
                        "",
                    ));
                }
            }
            let dims: BTreeMap<String, i64> = entry
                .get_ref()
                .iter()
                .map(|(name, value)| (name.clone(), *value.get_ref()))
                .collect();
            if let Some((first, _)) = sizes.first()
                && !first.dims.keys().eq(dims.keys())
            {
                return Err(self.at(
                    entry.span(),
                    format_args!(
                        "this size names {}, the first one {}",
                        listed(dims.keys()),
                        listed(first.dims.keys())
                    ),
                    "every size gives a value to the same names",
                ));
            }
            let size = Size { purpose, dims };
            if sizes.iter().any(|(other, _)| *other == size) {
                return Err(self.at(entry.span(), "this size is declared twice", "remove one"));
            }
            sizes.push((size, entry.span()));
        }
        Ok(sizes)
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(String::as_str).collect::<Vec<_>>().join(", ")
}
