//! The cost: formulas of work and of compulsory bytes that every size satisfies.

use std::ops::Range;

use super::super::error::TaskError;
use super::super::{Param, Size};
use super::Checker;
use super::raw::RawCost;
use super::signature::total_bytes;
use crate::expr::Expr;

impl Checker<'_> {
    pub(super) fn cost(
        &self,
        raw: &RawCost,
        params: &[Param],
        sizes: &[(Size, Range<usize>)],
    ) -> Result<(), TaskError> {
        self.number(&raw.flops, sizes, not_negative)?;
        let flops = Expr::new(raw.flops.get_ref());
        self.number(&raw.flops_min, sizes, |least, size| {
            not_negative(least, size)?;
            match flops.as_ref().map(|flops| flops.float(&size.dims)) {
                Ok(Ok(nominal)) if least > nominal => Err(format!(
                    "flops_min is more than the nominal flops, {nominal}"
                )),
                Ok(_) | Err(_) => Ok(()),
            }
        })?;
        self.number(&raw.bytes, sizes, |bytes, size| {
            if bytes <= 0.0 {
                return Err("a task moves some bytes".into());
            }
            match total_bytes(params, &size.dims) {
                Some(total) if bytes > total as f64 => Err(format!(
                    "the buffers hold only {total} bytes, so fewer or as many are compulsory"
                )),
                Some(_) | None => Ok(()),
            }
        })
    }
}

fn not_negative(value: f64, _: &Size) -> Result<(), String> {
    if value < 0.0 {
        return Err("a count is not negative".into());
    }
    Ok(())
}
