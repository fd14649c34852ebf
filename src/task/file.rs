//! `task.toml`: its form, and everything that can be checked without running anything.
//! Pure: text in, declarations or a pointing error out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;

use super::error::TaskError;
use super::{
    Baseline, Builtin, Cost, InputCase, Level, MathMode, Multiplication, Operation, Param,
    PtxPolicy, Purpose, Reference, Role, Size, TargetInstruction, Tolerance,
};
use crate::expr::{Expr, ExprError};
use crate::source::DType;
use crate::units::SmArch;

/// No buffer and no set of buffers may be larger: a slip in a size, not a problem.
pub(super) const LARGEST_PROBLEM: u64 = 1 << 40;
/// Smoke and edge sizes run in the simulator, with every output compared.
const LARGEST_SMALL_PROBLEM: u64 = 64 << 20;

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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    title: Spanned<String>,
    level: Level,
    math: MathMode,
    cases: Spanned<Vec<Spanned<InputCase>>>,
    #[serde(default)]
    nondeterministic: Vec<Spanned<String>>,
    param: Spanned<Vec<RawParam>>,
    sizes: Spanned<RawSizes>,
    reference: Spanned<RawReference>,
    #[serde(default)]
    tolerance: BTreeMap<Spanned<String>, Spanned<RawTolerance>>,
    cost: RawCost,
    #[serde(default)]
    targets: BTreeMap<Spanned<String>, Vec<RawTarget>>,
    #[serde(default)]
    policy: RawPolicy,
    #[serde(default)]
    baseline: Vec<RawBaseline>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawParam {
    name: Spanned<String>,
    role: Role,
    dtype: DType,
    shape: Option<Vec<Spanned<String>>>,
    value: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSizes {
    smoke: Vec<Spanned<BTreeMap<String, Spanned<i64>>>>,
    #[serde(default)]
    edge: Vec<Spanned<BTreeMap<String, Spanned<i64>>>>,
    bench: Vec<Spanned<BTreeMap<String, Spanned<i64>>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawReference {
    builtin: Option<Builtin>,
    kernel: Option<Spanned<String>>,
    command: Option<Spanned<Vec<String>>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Exact,
    Dot,
    Pointwise,
    Norm,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTolerance {
    kind: Kind,
    length: Option<Spanned<String>>,
    accumulate: Option<Spanned<DType>>,
    ulps: Option<Spanned<f64>>,
    absolute: Option<Spanned<f64>>,
    relative: Option<Spanned<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCost {
    flops: Spanned<String>,
    flops_min: Spanned<String>,
    bytes: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTarget {
    mnemonic: Spanned<String>,
    at_least: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawPolicy {
    allow: Vec<Spanned<String>>,
    deny: Vec<Spanned<String>>,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBaseline {
    name: Spanned<String>,
    provider: Provider,
    operation: Spanned<String>,
}

/// Who can run a baseline.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Provider {
    Cublaslt,
    Torch,
    Kernel,
    Cuda,
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

    fn sizes(&self, raw: &Spanned<RawSizes>) -> Result<Vec<(Size, Range<usize>)>, TaskError> {
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

    fn params(
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
                        Some(value) if is_float(param.dtype) => {
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

    fn tolerances(
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
            Kind::Dot => ("dot", &["length", "accumulate"]),
            Kind::Pointwise => ("pointwise", &["ulps", "absolute"]),
            Kind::Norm => ("norm", &["relative"]),
        };
        let given = [
            ("length", t.length.as_ref().map(Spanned::span)),
            ("accumulate", t.accumulate.as_ref().map(Spanned::span)),
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
            && !is_float(dtype)
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
                if !is_float(*accumulate.get_ref()) {
                    return Err(self.at(
                        accumulate.span(),
                        "the accumulator must be a floating-point type",
                        "use f64, f32, f16 or bf16",
                    ));
                }
                Ok(Tolerance::Dot {
                    length: length.get_ref().clone(),
                    accumulate: *accumulate.get_ref(),
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

    fn reference(
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

    fn cost(
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

    fn targets(
        &self,
        raw: &BTreeMap<Spanned<String>, Vec<RawTarget>>,
        sizes: &[(Size, Range<usize>)],
    ) -> Result<BTreeMap<SmArch, Vec<TargetInstruction>>, TaskError> {
        let mut targets = BTreeMap::new();
        for (name, instructions) in raw {
            let arch: SmArch = name
                .get_ref()
                .parse()
                .map_err(|error| self.at(name.span(), error, ""))?;
            let mut checked = Vec::new();
            for instruction in instructions {
                self.mnemonic(&instruction.mnemonic)?;
                if let Some(at_least) = &instruction.at_least {
                    self.integer(at_least, sizes, |least, _| {
                        if least < 1 {
                            return Err("fewer than one execution asks for nothing".into());
                        }
                        Ok(())
                    })?;
                }
                checked.push(TargetInstruction {
                    mnemonic: instruction.mnemonic.get_ref().clone(),
                    at_least: instruction
                        .at_least
                        .as_ref()
                        .map(|text| text.get_ref().clone()),
                });
            }
            targets.insert(arch, checked);
        }
        Ok(targets)
    }

    fn policy(&self, raw: &RawPolicy) -> Result<PtxPolicy, TaskError> {
        for prefix in raw.allow.iter().chain(&raw.deny) {
            self.mnemonic(prefix)?;
        }
        for denied in &raw.deny {
            if raw
                .allow
                .iter()
                .any(|allowed| allowed.get_ref() == denied.get_ref())
            {
                return Err(self.at(
                    denied.span(),
                    format_args!("`{}` is allowed and denied", denied.get_ref()),
                    "keep one",
                ));
            }
        }
        if raw.reason.is_empty()
            && let Some(first) = raw.allow.iter().chain(&raw.deny).next()
        {
            return Err(self.at(
                first.span(),
                "the policy gives no reason",
                "add `reason = \"…\"`: proposers are told it",
            ));
        }
        Ok(PtxPolicy {
            allow: owned(&raw.allow),
            deny: owned(&raw.deny),
            reason: raw.reason.clone(),
        })
    }

    fn baselines(&self, raw: &[RawBaseline], params: &[Param]) -> Result<Vec<Baseline>, TaskError> {
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

    fn mnemonic(&self, text: &Spanned<String>) -> Result<(), TaskError> {
        let ok = text.get_ref().starts_with(|c: char| c.is_ascii_lowercase())
            && text
                .get_ref()
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._:".contains(&b));
        if ok {
            return Ok(());
        }
        Err(self.at(
            text.span(),
            format_args!("`{}` is no instruction's beginning", text.get_ref()),
            "write a mnemonic with its modifiers, such as `atom.global.add`",
        ))
    }

    fn at(&self, span: Range<usize>, message: impl Display, help: impl Display) -> TaskError {
        TaskError::at(self.path, self.text, span, message, help)
    }
}

/// Bytes of all buffers together; `None` on overflow or where a shape has no value.
fn total_bytes(params: &[Param], dims: &BTreeMap<String, i64>) -> Option<u64> {
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

fn not_negative(value: f64, _: &Size) -> Result<(), String> {
    if value < 0.0 {
        return Err("a count is not negative".into());
    }
    Ok(())
}

fn is_float(dtype: DType) -> bool {
    match dtype {
        DType::F64 | DType::F32 | DType::F16 | DType::Bf16 => true,
        DType::I32 | DType::U32 | DType::I64 | DType::U64 | DType::U8 => false,
    }
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn owned(names: &[Spanned<String>]) -> Vec<String> {
    names.iter().map(|name| name.get_ref().clone()).collect()
}

fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(String::as_str).collect::<Vec<_>>().join(", ")
}
