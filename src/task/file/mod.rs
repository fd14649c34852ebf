//! `task.toml`: its form, and everything that can be checked without running anything.
//! Pure: text in, declarations or a pointing error out.

mod cost;
mod instructions;
mod raw;
mod runs;
mod signature;
mod sizes;
mod tolerance;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use toml::Spanned;

use super::error::TaskError;
use super::{
    Baseline, Cost, InputCase, Level, MathMode, Param, PtxPolicy, Reference, Role, Size,
    TargetInstruction, Tolerance,
};
use crate::expr::{Expr, ExprError};
use crate::units::SmArch;
use raw::Raw;

/// No buffer and no set of buffers may be larger: a slip in a size, not a problem.
pub(super) const LARGEST_PROBLEM: u64 = 1 << 40;

/// What `task.toml` declares, checked.
pub(super) struct Declared {
    pub title: String,
    pub level: Level,
    pub math: MathMode,
    pub params: Vec<Param>,
    pub sizes: Vec<Size>,
    pub cases: Vec<InputCase>,
    pub reference: Reference,
    pub tolerances: BTreeMap<String, Tolerance>,
    pub nondeterministic: Vec<String>,
    pub cost: Cost,
    pub targets: BTreeMap<SmArch, Vec<TargetInstruction>>,
    pub policy: PtxPolicy,
    pub baselines: Vec<Baseline>,
}

/// Parses and checks the text of `task.toml`; `files` are the other files of the task's folder.
pub(super) fn parse(
    path: &Path,
    text: &str,
    files: &BTreeMap<String, Arc<[u8]>>,
) -> Result<Declared, TaskError> {
    let raw: Raw = toml::from_str(text).map_err(|error| {
        let message = error.message().trim_end().replace('\n', "; ");
        match error.span() {
            Some(span) => TaskError::at(path, text, span, message, ""),
            None => TaskError::whole(path, message, ""),
        }
    })?;
    Checker { path, text, files }.check(raw)
}

struct Checker<'a> {
    path: &'a Path,
    text: &'a str,
    files: &'a BTreeMap<String, Arc<[u8]>>,
}

impl Checker<'_> {
    fn check(&self, raw: Raw) -> Result<Declared, TaskError> {
        if raw.title.get_ref().trim().is_empty() || raw.title.get_ref().contains('\n') {
            return Err(self.at(raw.title.span(), "the title must be one line of text", ""));
        }
        let sizes = self.sizes(&raw.sizes)?;
        let params = self.params(&raw.param, &sizes)?;
        let cases = self.cases(&raw.cases)?;
        let outputs: Vec<&str> = params
            .iter()
            .filter(|param| param.role == Role::Output)
            .map(|param| param.name.as_str())
            .collect();
        let tolerances = self.tolerances(&raw, &params, &outputs, &sizes)?;
        for name in &raw.nondeterministic {
            self.output(name, &outputs)?;
        }
        let reference = self.reference(&raw.reference, &params, &tolerances)?;
        self.cost(&raw.cost, &params, &sizes)?;
        let targets = self.targets(&raw.targets, &sizes)?;
        let policy = self.policy(&raw.policy)?;
        let baselines = self.baselines(&raw.baseline, &params)?;
        Ok(Declared {
            title: raw.title.into_inner(),
            level: raw.level,
            math: raw.math,
            params,
            sizes: sizes.into_iter().map(|(size, _)| size).collect(),
            cases,
            reference,
            tolerances,
            nondeterministic: owned(&raw.nondeterministic),
            cost: Cost {
                flops: raw.cost.flops.into_inner(),
                flops_min: raw.cost.flops_min.into_inner(),
                bytes: raw.cost.bytes.into_inner(),
            },
            targets,
            policy,
            baselines,
        })
    }

    fn cases(&self, raw: &Spanned<Vec<Spanned<InputCase>>>) -> Result<Vec<InputCase>, TaskError> {
        let mut cases = Vec::new();
        for case in raw.get_ref() {
            if cases.contains(case.get_ref()) {
                return Err(self.at(
                    case.span(),
                    format_args!("case `{}` is named twice", case.get_ref().word()),
                    "remove one",
                ));
            }
            cases.push(*case.get_ref());
        }
        if cases.is_empty() {
            return Err(self.at(
                raw.span(),
                "no input case is named",
                "name at least one: `cases = [\"normal\"]`",
            ));
        }
        Ok(cases)
    }

    fn output(&self, name: &Spanned<String>, outputs: &[&str]) -> Result<(), TaskError> {
        if outputs.contains(&name.get_ref().as_str()) {
            return Ok(());
        }
        Err(self.at(
            name.span(),
            format_args!("`{}` is no output", name.get_ref()),
            format_args!("outputs: {}", outputs.join(", ")),
        ))
    }

    fn file(&self, name: &Spanned<String>) -> Result<(), TaskError> {
        if self.files.contains_key(name.get_ref()) {
            return Ok(());
        }
        Err(self.at(
            name.span(),
            format_args!("`{}` is not in the task's folder", name.get_ref()),
            "put the file beside task.toml and give its plain name",
        ))
    }

    /// Evaluates a number at every size; `judge` says what is wrong with a value.
    fn number(
        &self,
        text: &Spanned<String>,
        sizes: &[(Size, Range<usize>)],
        judge: impl Fn(f64, &Size) -> Result<(), String>,
    ) -> Result<(), TaskError> {
        self.at_every_size(text, sizes, |expr, size| expr.float(&size.dims), judge)
    }

    /// Evaluates an integer at every size; `judge` says what is wrong with a value.
    fn integer(
        &self,
        text: &Spanned<String>,
        sizes: &[(Size, Range<usize>)],
        judge: impl Fn(i64, &Size) -> Result<(), String>,
    ) -> Result<(), TaskError> {
        self.at_every_size(text, sizes, |expr, size| expr.int(&size.dims), judge)
    }

    fn at_every_size<T: Display + Copy>(
        &self,
        text: &Spanned<String>,
        sizes: &[(Size, Range<usize>)],
        evaluate: impl Fn(&Expr, &Size) -> Result<T, ExprError>,
        judge: impl Fn(T, &Size) -> Result<(), String>,
    ) -> Result<(), TaskError> {
        let fail = |error: ExprError| {
            self.at(
                text.span(),
                error.to_string(),
                error.help.unwrap_or_default(),
            )
        };
        let expression = Expr::new(text.get_ref()).map_err(fail)?;
        for (size, _) in sizes {
            let value = evaluate(&expression, size).map_err(fail)?;
            judge(value, size).map_err(|message| {
                self.at(
                    text.span(),
                    format_args!("`{}` gives {value} at {size}: {message}", text.get_ref()),
                    "",
                )
            })?;
        }
        Ok(())
    }

    fn at(&self, span: Range<usize>, message: impl Display, help: impl Display) -> TaskError {
        TaskError::at(self.path, self.text, span, message, help)
    }
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn owned(names: &[Spanned<String>]) -> Vec<String> {
    names.iter().map(|name| name.get_ref().clone()).collect()
}
