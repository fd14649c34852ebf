//! Tolerances: one for every output, of a kind that its type can have.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;

use super::super::error::TaskError;
use super::super::{Param, Size, Tolerance};
use super::Checker;
use super::raw::{Kind, Raw, RawTolerance};
use crate::source::DType;

impl Checker<'_> {
    pub(super) fn tolerances(
        &self,
        raw: &Raw,
        params: &[Param],
        outputs: &[&str],
        sizes: &[(Size, Range<usize>)],
    ) -> Result<BTreeMap<String, Tolerance>, TaskError> {
        let mut tolerances = BTreeMap::new();
        for (name, tolerance) in &raw.tolerance {
            self.output(name, outputs)?;
            let dtype = params
                .iter()
                .find(|param| param.name == *name.get_ref())
                .map(|param| param.dtype);
            let checked = self.tolerance(tolerance, dtype, sizes)?;
            tolerances.insert(name.get_ref().clone(), checked);
        }
        if let Some(name) = outputs.iter().find(|name| !tolerances.contains_key(**name)) {
            return Err(TaskError::whole(
                self.path,
                format_args!("output `{name}` has no tolerance"),
                format_args!("add `[tolerance.{name}]` with a kind: exact, dot, pointwise or norm"),
            ));
        }
        Ok(tolerances)
    }

    fn tolerance(
        &self,
        raw: &Spanned<RawTolerance>,
        dtype: Option<DType>,
        sizes: &[(Size, Range<usize>)],
    ) -> Result<Tolerance, TaskError> {
        let t = raw.get_ref();
        let (kind, wanted): (_, &[&str]) = match t.kind {
            Kind::Exact => ("exact", &[]),
            Kind::Dot => ("dot", &["length", "accumulate", "rounded"]),
            Kind::Pointwise => ("pointwise", &["ulps", "absolute"]),
            Kind::Norm => ("norm", &["relative"]),
        };
        let given = [
            ("length", t.length.as_ref().map(Spanned::span)),
            ("accumulate", t.accumulate.as_ref().map(Spanned::span)),
            ("rounded", t.rounded.as_ref().map(Spanned::span)),
            ("ulps", t.ulps.as_ref().map(Spanned::span)),
            ("absolute", t.absolute.as_ref().map(Spanned::span)),
            ("relative", t.relative.as_ref().map(Spanned::span)),
        ];
        for (key, span) in given {
            if let Some(span) = span
                && !wanted.contains(&key)
            {
                return Err(self.at(
                    span,
                    format_args!("a tolerance of kind `{kind}` has no `{key}`"),
                    format_args!(
                        "it takes {}",
                        if wanted.is_empty() {
                            "nothing else".into()
                        } else {
                            wanted.join(", ")
                        }
                    ),
                ));
            }
        }
        let missing = |key: &str| {
            self.at(
                raw.span(),
                format_args!("a tolerance of kind `{kind}` needs `{key}`"),
                "",
            )
        };
        let number = |value: &Option<Spanned<f64>>, key: &str| -> Result<f64, TaskError> {
            let value = value.as_ref().ok_or_else(|| missing(key))?;
            let number = *value.get_ref();
            if !number.is_finite() || number < 0.0 {
                return Err(self.at(
                    value.span(),
                    format_args!("{key} = {number} must be finite and not negative"),
                    "",
                ));
            }
            Ok(number)
        };
        if !matches!(t.kind, Kind::Exact)
            && let Some(dtype) = dtype
            && !dtype.is_float()
        {
            return Err(self.at(
                raw.span(),
                "an integer output is compared bit for bit",
                "use `kind = \"exact\"`",
            ));
        }
        match t.kind {
            Kind::Exact => Ok(Tolerance::Exact),
            Kind::Dot => {
                let length = t.length.as_ref().ok_or_else(|| missing("length"))?;
                self.integer(length, sizes, |value, _| {
                    if value < 1 {
                        return Err("a length is at least 1".into());
                    }
                    Ok(())
                })?;
                let accumulate = t.accumulate.as_ref().ok_or_else(|| missing("accumulate"))?;
                for (dtype, what) in [
                    (Some(accumulate), "accumulator"),
                    (t.rounded.as_ref(), "factor"),
                ] {
                    if let Some(dtype) = dtype
                        && !dtype.get_ref().is_float()
                    {
                        return Err(self.at(
                            dtype.span(),
                            format_args!("the {what} must be a floating-point type"),
                            "use f64, f32, f16 or bf16",
                        ));
                    }
                }
                Ok(Tolerance::Dot {
                    length: length.get_ref().clone(),
                    accumulate: *accumulate.get_ref(),
                    rounded: t.rounded.as_ref().map(|dtype| *dtype.get_ref()),
                })
            }
            Kind::Pointwise => Ok(Tolerance::Pointwise {
                ulps: number(&t.ulps, "ulps")?,
                absolute: number(&t.absolute, "absolute")?,
            }),
            Kind::Norm => Ok(Tolerance::Norm {
                relative: number(&t.relative, "relative")?,
            }),
        }
    }
}
