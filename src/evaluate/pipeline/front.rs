//! The front end: all that needs no tool and no device.

use std::sync::Arc;

use super::{Pipeline, launch_names, mapped};
use crate::evaluate::limits;
use crate::evaluate::ptxas::in_source;
use crate::ptx::ir::Module;
use crate::ptx::{self, ParseError};
use crate::source::{Candidate, LaunchPlan, SourceError};
use crate::verdict::{Diagnostic, Severity, Verdict};

/// What the front end leaves for the device.
pub(super) struct Front {
    pub(super) ptx: Arc<str>,
    pub(super) module: Arc<Module>,
    /// One for each of the task's sizes.
    pub(super) plans: Vec<LaunchPlan>,
    /// Lints that did not reject it.
    pub(super) warnings: Vec<Diagnostic>,
}

impl Pipeline {
    /// All that needs no tool and no device.
    pub(super) fn front(
        &self,
        candidate: &Candidate,
        source_line: &dyn Fn(u32) -> Option<u32>,
    ) -> Result<Front, Box<Verdict>> {
        let unrenderable = |diagnostics| Box::new(Verdict::Unrenderable { diagnostics });
        let module = match &candidate.module {
            Ok(module) => Arc::clone(module),
            Err(error) => {
                return Err(unrenderable(vec![in_source(
                    parse_error(error),
                    source_line,
                )]));
            }
        };
        let policy = &self.settings.task.policy;
        let mut forbidden = ptx::forbidden(&module, &policy.allow, &policy.deny, &policy.reason);
        forbidden.extend(ptx::call_detectors(&module));
        if !forbidden.is_empty() {
            return Err(Box::new(Verdict::Forbidden {
                diagnostics: mapped(forbidden, source_line),
            }));
        }
        let (errors, mut warnings): (Vec<_>, Vec<_>) = mapped(ptx::check(&module), source_line)
            .into_iter()
            .partition(|lint| lint.severity == Severity::Error);
        if !errors.is_empty() {
            return Err(unrenderable(errors));
        }
        let plans = self
            .sizes
            .iter()
            .map(|problem| candidate.plan(&launch_names(problem, self.gpu())))
            .collect::<Result<Vec<LaunchPlan>, SourceError>>()
            .map_err(|error| unrenderable(error.diagnostics))?;
        let launches = launch_errors(&module, &plans);
        if !launches.is_empty() {
            return Err(unrenderable(launches));
        }
        if let Some(plan) = plans.first() {
            let found = ptx::check_tensor_maps(&module, &plan.bound_maps());
            warnings.extend(mapped(found, source_line));
        }
        Ok(Front {
            ptx: Arc::clone(&candidate.ptx),
            module,
            plans,
            warnings,
        })
    }
}

fn parse_error(error: &ParseError) -> Diagnostic {
    Diagnostic {
        severity: Severity::Error,
        code: "parse".to_owned(),
        message: format!("column {}: {}", error.column, error.message),
        line: Some(error.line),
        other_line: None,
        help: None,
    }
}

/// Launches of entries that are not there, or with another number of arguments.
fn launch_errors(module: &Module, plans: &[LaunchPlan]) -> Vec<Diagnostic> {
    let Some(plan) = plans.first() else {
        return Vec::new();
    };
    let error = |message: String, help: &str| Diagnostic {
        severity: Severity::Error,
        code: "launch".to_owned(),
        message,
        line: None,
        other_line: None,
        help: Some(help.to_owned()),
    };
    plan.launches
        .iter()
        .filter_map(|launch| match limits::entry(module, &launch.entry) {
            None => Some(error(
                format!(
                    "`//@ launch {}` names no `.entry` of the kernel",
                    launch.entry
                ),
                "name one that the text defines: `.visible .entry NAME(…)`",
            )),
            Some(entry) if entry.params.len() != launch.args.len() => Some(error(
                format!(
                    "`//@ launch {}` gives {} arguments, the entry has {} parameters",
                    launch.entry,
                    launch.args.len(),
                    entry.params.len()
                ),
                "give `args=(…)` one argument for each `.param`, in order",
            )),
            Some(_) => None,
        })
        .collect()
}
