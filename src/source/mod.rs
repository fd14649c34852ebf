//! A **source** is one self-contained `.ptx` text with holes; its `//@` header declares the knobs, the
//! constraints between them and the launches. Rendering it with one setting gives a **candidate**.
//! Pure functions over text: no files, no clock, no randomness of its own.
//!
//! ```text
//! //@ about TEXT
//! //@ knob BM = 64 in {32, 64, 128}            a value is an integer or text: ca, "L1::no_allocate"
//! //@ let TILE = BM*BK                         over knobs, earlier values, sizes of the task, device facts
//! //@ require BM*BN <= 16384  # why            over knobs, and values that need no launch
//! //@ try BM=32 BK=64                          a setting to judge before the tuner chooses; the rest at its default
//! //@ maxnreg CAP                              `.maxnreg` for every kernel; 0: none
//! //@ workspace ws f32[ceil_div(n, TILE)] zero   or poison
//! //@ tensormap map base=a dtype=bf16 dims=(K, M) strides=(K*2) box=(64, BM) swizzle=128 promotion=128 fill=zero
//! //@ launch main grid=(gx, gy) block=(256) smem=BYTES cluster=(2) args=(x, ws, map, n)
//! ```
//!
//! Below the header, `${ expression }` is a hole and a line that begins with `//%` a statement (`for`, `if`,
//! `elif`, `else`, `set`, `macro` and their `end…`). Both know the knobs, the values that need no launch, the
//! functions of [`crate::expr`], `range`, `vec(4)` (`.v4`; nothing for 1), `regs("%a", 0, 4)`
//! (`{%a0, %a1, %a2, %a3}`; `%a0` for 1) and the filters `f32hex`, `f64hex` (PTX literals) and `join`.

mod candidate;
mod canon;
mod error;
mod formulas;
mod header;
mod knob;
mod plan;
mod scan;
mod space;
mod template;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use candidate::Candidate;
pub use error::{Place, SourceError};
pub use formulas::{Formulas, LaunchFormula, TensorMapFormula, WorkspaceFormula};
pub use knob::{Knob, KnobValue, Point, Setting};
pub use plan::{Argument, DType, Launch, LaunchPlan, TensorMap, Workspace};
pub use space::{Require, Space, SpaceError};

use self::error::Finding;
use self::header::Header;
use self::template::Template;
use crate::expr::Value;
use crate::ptx;
use crate::units::Digest;

/// A parsed source. Immutable and cheap to clone; shared between the graph and those who evaluate it.
#[derive(Clone, Debug)]
pub struct Source {
    /// The whole text, header included: what a person or a model edits.
    pub text: Arc<str>,
    header: Arc<Header>,
    space: Space,
    /// `None` where the text is a header alone.
    template: Option<Template>,
}

impl Source {
    /// Reads a source. Its holes may use every name they mention and its default setting is valid;
    /// whether the rendering is PTX is seen later. Every error found is told, each with its line.
    pub fn parse(text: &str) -> Result<Self, SourceError> {
        // Editors put a byte order mark before the first line; no column counts it.
        let text: Arc<str> = text.strip_prefix('\u{feff}').unwrap_or(text).into();
        let (header, body_line, mut findings) = header::parse(&text);
        let has_body = (body_line as usize) <= text.lines().count();
        let template = match has_body.then(|| Template::new(&text, body_line, &header)) {
            Some(Ok(template)) => Some(template),
            Some(Err(more)) => {
                // A broken header line leaves names out that the body would then miss.
                if findings.is_empty() {
                    findings = more;
                }
                None
            }
            None => None,
        };
        if findings.is_empty() {
            findings = check_static(&header);
        }
        if !findings.is_empty() {
            return Err(SourceError::new(&text, findings));
        }
        let space = Space::with_lets(
            header.knobs.clone(),
            &header.static_lets(),
            header.requires.clone(),
        )
        .and_then(|space| space.default_point().map(|_| space))
        .map_err(|error| SourceError::new(&text, vec![space_finding(&error)]))?;
        let untriable: Vec<Finding> = header
            .tries
            .iter()
            .filter_map(|tried| {
                let point = space.point(&tried.value);
                let valid = point.and_then(|point| space.require(&point, "the setting"));
                Some(Finding::header(
                    tried.place.clone(),
                    valid.err()?.to_string(),
                ))
            })
            .collect();
        if !untriable.is_empty() {
            return Err(SourceError::new(&text, untriable));
        }
        Ok(Self {
            text,
            header: Arc::new(header),
            space,
            template,
        })
    }

    /// What the `//@ about` lines say.
    pub fn about(&self) -> String {
        self.header.about.join("\n")
    }

    /// Settings that its author wants tried early, for it was fast somewhere; what they leave out is at its default.
    pub fn tries(&self) -> impl Iterator<Item = &Setting> {
        self.header.tries.iter().map(|tried| &tried.value)
    }

    /// The settings it may be rendered with.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// A hash of everything but comments, descriptions and white space.
    pub fn digest(&self) -> Digest {
        Digest::of(canon::without_comments(&self.text))
    }

    /// Renders it with one setting. An error if the setting breaks a requirement, a hole has no value, or
    /// there is no body.
    pub fn render(&self, point: &Point) -> Result<Candidate, SourceError> {
        let fail = |finding| SourceError::new(&self.text, vec![finding]);
        let Some(template) = &self.template else {
            let message = match self.text.trim().is_empty() {
                true => "the source is empty",
                false => "the source has a header but no code",
            };
            let message = message.to_owned();
            return Err(fail(Finding::at_line("template", None, message)));
        };
        self.space
            .require(point, "the setting")
            .map_err(|error| fail(space_finding(&error)))?;
        let setting = self.space.setting(point);
        let mut values: BTreeMap<String, Value> = setting
            .iter()
            .map(|(name, value)| (name.clone(), Value::from(value)))
            .collect();
        for derived in self.header.lets.iter().filter(|derived| !derived.at_launch) {
            let value = derived.value.value.value(&values);
            let value =
                value.map_err(|error| fail(Finding::expression(&derived.value.place, error)))?;
            values.insert(derived.name.clone(), value);
        }
        let rendering = template.render(&values).map_err(fail)?;
        let mut text = rendering.text;
        let mut module = ptx::parse(&text);
        if let Some(cap) = &self.header.maxnreg {
            let registers = cap.value.int(&values);
            let registers =
                registers.map_err(|error| fail(Finding::expression(&cap.place, error)))?;
            if !(registers == 0 || (16..=255).contains(&registers)) {
                let message = format!("gives {registers}; 16 to 255, or 0 for no cap, is wanted");
                return Err(fail(Finding::header(cap.place.clone(), message)));
            }
            if registers != 0
                && let Ok(parsed) = &module
            {
                text = cap_registers(parsed, registers).map_err(|entry| {
                    let message = format!(
                        "entry `{entry}` has a `.maxnreg` of its own; take one of the two away"
                    );
                    fail(Finding::header(cap.place.clone(), message))
                })?;
                module = ptx::parse(&text);
            }
        }
        Ok(Candidate {
            ptx: text.into(),
            setting,
            module: module.map(Arc::new),
            header: Arc::clone(&self.header),
            values,
            lines: rendering.lines.into(),
            text: Arc::clone(&self.text),
        })
    }
}

/// The module's text with `.maxnreg` on every kernel, lines kept; or the kernel that has one already.
fn cap_registers(module: &ptx::ir::Module, registers: i64) -> Result<String, String> {
    let mut text = module.text.clone();
    for item in module.items.iter().rev() {
        let ptx::ir::Item::Function(function) = item else {
            continue;
        };
        if function.kind != ptx::ir::FunctionKind::Entry || function.body.is_none() {
            continue;
        }
        if function
            .directives
            .iter()
            .any(|directive| directive.name == ".maxnreg")
        {
            return Err(function.name.clone());
        }
        text.insert_str(
            function.directives_at as usize,
            &format!(" .maxnreg {registers}"),
        );
    }
    Ok(text)
}

/// Requirements and the register cap may use names that are known without a launch only.
fn check_static(header: &Header) -> Vec<Finding> {
    let known = header.static_names();
    let mut findings = Vec::new();
    let requires = header.requires.iter().map(|require| {
        let line = require
            .line
            .expect("invariant: a header's requirement has its line");
        (&require.condition, line, "a requirement")
    });
    let cap = header
        .maxnreg
        .iter()
        .map(|cap| (&cap.value, cap.place.line, "the register cap"));
    for (expr, line, what) in requires.chain(cap) {
        for name in expr
            .names()
            .filter(|name| !known.iter().any(|known| known == name))
        {
            let finding = match header.launch_let(name) {
                Some(derived) => Finding::at_line(
                    "header",
                    Some(line),
                    format!("{what} cannot use `{name}`, which is known at launch only"),
                )
                .help(format!(
                    "line {} defines it from names that are no knobs",
                    derived.value.place.line
                )),
                None => Finding::at_line("header", Some(line), format!("unknown name `{name}`"))
                    .help(crate::expr::known_names(name, &known)),
            };
            findings.push(finding);
        }
    }
    findings
}

/// The line of a space's error is that of the first requirement it names.
fn space_finding(error: &SpaceError) -> Finding {
    let line = match error {
        SpaceError::Empty { conflict: requires }
        | SpaceError::Invalid {
            violated: requires, ..
        } => requires.first().and_then(|require| require.line),
        SpaceError::Requirement { require, .. } => require.line,
        SpaceError::Knob { .. }
        | SpaceError::TooLarge
        | SpaceError::UnknownKnob { .. }
        | SpaceError::UnknownValue { .. } => None,
    };
    Finding::at_line("space", line, error.to_string())
}
