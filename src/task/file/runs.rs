//! What runs beside the candidate: the reference, and the baselines to beat.

use std::collections::BTreeMap;

use toml::Spanned;

use super::super::error::TaskError;
use super::super::{Baseline, Multiplication, Operation, Param, Reference, Role, Tolerance};
use super::Checker;
use super::raw::{Provider, RawBaseline, RawReference};

impl Checker<'_> {
    pub(super) fn reference(
        &self,
        raw: &Spanned<RawReference>,
        params: &[Param],
        tolerances: &BTreeMap<String, Tolerance>,
    ) -> Result<Reference, TaskError> {
        let r = raw.get_ref();
        match (&r.builtin, &r.kernel, &r.command) {
            (Some(builtin), None, None) => {
                builtin
                    .check_signature(params)
                    .map_err(|message| self.at(raw.span(), message, "declare the parameters so"))?;
                Ok(Reference::Builtin(*builtin))
            }
            (None, Some(kernel), None) => {
                self.file(kernel)?;
                if let Some((output, _)) = tolerances
                    .iter()
                    .find(|(_, tolerance)| matches!(tolerance, Tolerance::Dot { .. }))
                {
                    return Err(self.at(
                        kernel.span(),
                        format_args!(
                            "a kernel does not give the scale that {output}'s tolerance needs"
                        ),
                        "use kind `pointwise`, `norm` or `exact`, or another reference",
                    ));
                }
                Ok(Reference::Kernel(kernel.get_ref().clone()))
            }
            (None, None, Some(command)) => {
                if command.get_ref().first().is_none_or(String::is_empty) {
                    return Err(self.at(
                        command.span(),
                        "the command is empty",
                        "name a program and its arguments: `command = [\"python3\", \"reference.py\"]`",
                    ));
                }
                Ok(Reference::Command(command.get_ref().clone()))
            }
            _ => Err(self.at(
                raw.span(),
                "a task has one reference",
                "give one of `builtin`, `kernel` and `command`",
            )),
        }
    }

    pub(super) fn baselines(
        &self,
        raw: &[RawBaseline],
        params: &[Param],
    ) -> Result<Vec<Baseline>, TaskError> {
        let mut baselines: Vec<Baseline> = Vec::new();
        for baseline in raw {
            let name = baseline.name.get_ref();
            if baselines.iter().any(|other| other.name == *name) {
                return Err(self.at(
                    baseline.name.span(),
                    format_args!("a second baseline `{name}`"),
                    "rename one",
                ));
            }
            let told = &baseline.operation;
            if told.get_ref().trim().is_empty() {
                return Err(self.at(told.span(), "the operation is empty", "say what to run"));
            }
            let operation = match baseline.provider {
                Provider::Cublaslt => Operation::Product(self.product(told, params)?),
                Provider::Torch => Operation::Torch(told.get_ref().clone()),
                Provider::Cudnn => Operation::Cudnn(told.get_ref().clone()),
                Provider::Kernel => {
                    self.file(told)?;
                    Operation::Kernel(told.get_ref().clone())
                }
                Provider::Cuda => {
                    self.file(told)?;
                    Operation::Cuda(told.get_ref().clone())
                }
            };
            baselines.push(Baseline {
                name: name.clone(),
                operation,
            });
        }
        Ok(baselines)
    }

    /// A product of two inputs that gives an output. Whether shapes fit is for the size that is timed.
    fn product(
        &self,
        text: &Spanned<String>,
        params: &[Param],
    ) -> Result<Multiplication, TaskError> {
        let fail = |message: String| {
            let help = "write a product of matrices, such as `c = a @ b` or `c = a @ b.T`";
            self.at(text.span(), message, help)
        };
        let product = Multiplication::parse(text.get_ref())
            .ok_or_else(|| fail(format!("`{}` is no product", text.get_ref())))?;
        let matrix = |name: &str, wanted: Role, role: &str| {
            let found = params
                .iter()
                .find(|param| param.name == name && param.role == wanted);
            match found {
                Some(param) if param.shape.len() == 2 => Ok(()),
                Some(param) => Err(fail(format!(
                    "`{name}` has {} dimensions, a matrix has 2",
                    param.shape.len()
                ))),
                None => Err(fail(format!("no {role} is called `{name}`"))),
            }
        };
        matrix(&product.a.name, Role::Input, "input")?;
        matrix(&product.b.name, Role::Input, "input")?;
        matrix(&product.c, Role::Output, "output")?;
        Ok(product)
    }
}
