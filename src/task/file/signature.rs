//! Parameters: buffers with shapes, scalars with values, and no size whose buffers are too large.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use toml::Spanned;

use super::super::error::TaskError;
use super::super::{Param, Purpose, Role, Size};
use super::raw::RawParam;
use super::{Checker, LARGEST_PROBLEM, is_identifier, owned};
use crate::expr::Expr;

/// Smoke and edge sizes run in the simulator, with every output compared.
const LARGEST_SMALL_PROBLEM: u64 = 64 << 20;

impl Checker<'_> {
    pub(super) fn params(
        &self,
        raw: &Spanned<Vec<RawParam>>,
        sizes: &[(Size, Range<usize>)],
    ) -> Result<Vec<Param>, TaskError> {
        let mut seen = BTreeSet::new();
        let mut params = Vec::new();
        for param in raw.get_ref() {
            let name = param.name.get_ref().as_str();
            let fail = |message: String, help: &str| self.at(param.name.span(), message, help);
            if !is_identifier(name) {
                return Err(fail(
                    format!("`{name}` cannot name a parameter"),
                    "use letters, digits and `_`, a letter first",
                ));
            }
            if !seen.insert(name) {
                return Err(fail(format!("a second parameter `{name}`"), "rename one"));
            }
            let is_dim = sizes
                .first()
                .is_some_and(|(size, _)| size.dims.contains_key(name));
            match param.role {
                Role::Input | Role::Output => {
                    if is_dim {
                        return Err(fail(
                            format!("`{name}` names a buffer and a dimension"),
                            "rename one: launches pass both by name",
                        ));
                    }
                    if param.value.is_some() {
                        return Err(fail(
                            format!("buffer `{name}` has a value"),
                            "only a scalar has; a buffer has a shape",
                        ));
                    }
                    match &param.shape {
                        Some(shape) if !shape.is_empty() => {
                            for dimension in shape {
                                self.integer(dimension, sizes, |value, _| {
                                    if value <= 0 {
                                        return Err("a dimension must be positive".into());
                                    }
                                    Ok(())
                                })?;
                            }
                        }
                        Some(_) | None => {
                            return Err(fail(
                                format!("buffer `{name}` has no shape"),
                                "give its dimensions, outermost first: `shape = [\"n\"]`",
                            ));
                        }
                    }
                }
                Role::Scalar => {
                    if param.shape.is_some() {
                        return Err(fail(
                            format!("scalar `{name}` has a shape"),
                            "give it a value, or make it an input",
                        ));
                    }
                    match &param.value {
                        Some(value) if param.dtype.is_float() => {
                            self.number(value, sizes, |_, _| Ok(()))?;
                        }
                        Some(value) => self.integer(value, sizes, |_, _| Ok(()))?,
                        None => {
                            return Err(fail(
                                format!("scalar `{name}` has no value"),
                                "give an expression over the sizes: `value = \"n\"`",
                            ));
                        }
                    }
                }
            }
            params.push(Param {
                name: name.to_owned(),
                role: param.role,
                dtype: param.dtype,
                shape: param.shape.as_deref().map(owned).unwrap_or_default(),
                value: param.value.as_ref().map(|value| value.get_ref().clone()),
            });
        }
        if !params.iter().any(|param| param.role == Role::Output) {
            return Err(self.at(
                raw.span(),
                "no parameter is an output",
                "a task computes something: give one `role = \"output\"`",
            ));
        }
        for (size, span) in sizes {
            let total = total_bytes(&params, &size.dims)
                .filter(|&total| total <= LARGEST_PROBLEM)
                .ok_or_else(|| {
                    self.at(
                        span.clone(),
                        format_args!("buffers of {size} exceed {LARGEST_PROBLEM} bytes"),
                        "choose a size that a GPU can hold",
                    )
                })?;
            if size.purpose != Purpose::Bench && total > LARGEST_SMALL_PROBLEM {
                return Err(self.at(
                    span.clone(),
                    format_args!(
                        "buffers of {size} have {total} bytes, more than {LARGEST_SMALL_PROBLEM}"
                    ),
                    "smoke and edge sizes run in the simulator; declare large ones as bench",
                ));
            }
        }
        Ok(params)
    }
}

/// Bytes of all buffers together; `None` on overflow or where a shape has no value.
pub(super) fn total_bytes(params: &[Param], dims: &BTreeMap<String, i64>) -> Option<u64> {
    params
        .iter()
        .filter(|param| param.role != Role::Scalar)
        .try_fold(0u64, |total, param| {
            let mut bytes = param.dtype.size();
            for dimension in &param.shape {
                let extent = Expr::new(dimension).ok()?.int(dims).ok()?;
                bytes = bytes.checked_mul(u64::try_from(extent).ok()?)?;
            }
            total.checked_add(bytes)
        })
}
