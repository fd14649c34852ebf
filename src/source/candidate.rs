//! A source rendered with one setting: PTX without holes, and launches that wait for a problem size.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::canon::squeezed;
use super::error::{Finding, Place, SourceError};
use super::formulas::{Formulas, LaunchFormula, TensorMapFormula, WorkspaceFormula};
use super::header::{Header, LaunchLine, Placed, TensorMapLine};
use super::knob::Setting;
use super::plan::{Argument, Launch, LaunchPlan, TensorMap, Workspace};
use crate::expr::{Expr, Names, Value, words};
use crate::ptx::{self, ParseError, ir::Module};
use crate::units::{Bytes, Digest};

/// A rendering. Immutable.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The rendered PTX, the register cap inserted.
    pub ptx: Arc<str>,
    /// The knobs it was rendered with.
    pub setting: Setting,
    /// `ptx`, parsed; or why it cannot be (lines are those of the rendering).
    pub module: Result<Arc<Module>, ParseError>,
    pub(super) header: Arc<Header>,
    /// Knobs and derived values that need no launch.
    pub(super) values: BTreeMap<String, Value>,
    /// The 1-based source line of each line of `ptx`.
    pub(super) lines: Arc<[u32]>,
    /// The source's text.
    pub(super) text: Arc<str>,
}

impl Candidate {
    /// Equal for candidates that do the same by construction: a hash of the canonical PTX and of the
    /// launches with the knobs' values in place. PTX that does not parse is hashed as it stands.
    pub fn id(&self) -> Digest {
        let kernel = match &self.module {
            Ok(module) => ptx::digest(module).to_string(),
            Err(_) => Digest::of(self.ptx.as_bytes()).to_string(),
        };
        let launches = self.formulas().to_string();
        Digest::of_parts([kernel.as_bytes(), launches.as_bytes()])
    }

    /// The source line that a line of the rendering comes from; both from 1.
    pub fn source_line(&self, rendered_line: u32) -> Option<u32> {
        let index = usize::try_from(rendered_line.checked_sub(1)?).ok()?;
        self.lines.get(index).copied()
    }

    /// The launches at one problem size. `names`: the task's sizes and scalars and the device's facts
    /// (`sm_count`, …), as integers or as values.
    pub fn plan<V: Clone + Into<Value>>(
        &self,
        names: &BTreeMap<String, V>,
    ) -> Result<LaunchPlan, SourceError> {
        let names = names
            .iter()
            .map(|(name, value)| (name.clone(), value.clone().into()))
            .collect();
        self.plan_at(&names)
            .map_err(|finding| SourceError::new(&self.text, vec![finding]))
    }

    /// The host side for every problem size: formulas over the task's sizes and the device's facts.
    pub fn formulas(&self) -> Formulas {
        let one = |value: &Placed<Expr>| self.substituted(value.value.text());
        let all = |values: &[Placed<Expr>]| values.iter().map(one).collect();
        Formulas {
            workspaces: self
                .header
                .workspaces
                .iter()
                .map(|line| WorkspaceFormula {
                    name: line.name.clone(),
                    dtype: line.dtype,
                    elements: one(&line.elements),
                    zero: line.zero,
                })
                .collect(),
            tensor_maps: self
                .header
                .tensor_maps
                .iter()
                .map(|line| TensorMapFormula {
                    name: line.name.value.clone(),
                    base: line.base.clone(),
                    dtype: line.dtype,
                    dims: all(&line.dims),
                    strides: all(&line.strides),
                    tile: all(&line.tile),
                    swizzle: line.swizzle.as_ref().map(one),
                    promotion: line.promotion.as_ref().map(one),
                    nan_fill: line.nan_fill,
                })
                .collect(),
            launches: self
                .header
                .launches
                .iter()
                .map(|line| LaunchFormula {
                    entry: line.entry.value.clone(),
                    grid: all(&line.grid),
                    block: all(&line.block),
                    smem: line.smem.as_ref().map(one),
                    cluster: all(&line.cluster),
                    args: all(&line.args),
                })
                .collect(),
        }
    }

    fn plan_at(&self, names: &BTreeMap<String, Value>) -> Result<LaunchPlan, Finding> {
        if self.header.launches.is_empty() {
            return Err(Finding::at_line(
                "header",
                None,
                "the source has no `//@ launch` line".into(),
            )
            .help(
                "for example: //@ launch main grid=(ceil_div(n, 256)) block=(256) args=(x, out, n)",
            ));
        }
        let mut known = self.values.clone();
        for (name, value) in names {
            if known.insert(name.clone(), value.clone()).is_some() {
                let message = format!(
                    "`{name}` is a name of the task or the device ({value}); the knob or value needs another"
                );
                return Err(Finding::at_line("header", None, message));
            }
        }
        for derived in self.header.lets.iter().filter(|derived| derived.at_launch) {
            if names.contains_key(&derived.name) {
                let message = format!("`{}` is a name of the task or the device", derived.name);
                return Err(Finding::header(derived.value.place.clone(), message));
            }
            let value = derived.value.value.value(&known);
            let value = value.map_err(|error| Finding::expression(&derived.value.place, error))?;
            known.insert(derived.name.clone(), value);
        }
        let workspaces = self
            .header
            .workspaces
            .iter()
            .map(|line| {
                let elements = number(&line.elements, &known, 0, i64::MAX)?;
                let bytes = (elements as u64).checked_mul(line.dtype.size());
                Ok(Workspace {
                    name: line.name.clone(),
                    bytes: Bytes(bytes.ok_or_else(|| too_large(&line.elements.place))?),
                    zero: line.zero,
                })
            })
            .collect::<Result<_, Finding>>()?;
        let tensor_maps = self
            .header
            .tensor_maps
            .iter()
            .map(|line| tensor_map(line, &known))
            .collect::<Result<_, _>>()?;
        let launches = self
            .header
            .launches
            .iter()
            .map(|line| self.launch(line, &known))
            .collect::<Result<_, _>>()?;
        Ok(LaunchPlan {
            launches,
            workspaces,
            tensor_maps,
        })
    }

    fn launch(
        &self,
        line: &LaunchLine,
        known: &BTreeMap<String, Value>,
    ) -> Result<Launch, Finding> {
        let smem = match &line.smem {
            Some(smem) => number(smem, known, 0, i64::from(u32::MAX))? as u64,
            None => 0,
        };
        Ok(Launch {
            entry: line.entry.value.clone(),
            grid: extents(&line.grid, known)?,
            block: extents(&line.block, known)?,
            smem: Bytes(smem),
            cluster: extents(&line.cluster, known)?,
            args: line
                .args
                .iter()
                .map(|arg| self.argument(arg, known))
                .collect::<Result<_, _>>()?,
        })
    }

    fn argument(
        &self,
        arg: &Placed<Expr>,
        known: &BTreeMap<String, Value>,
    ) -> Result<Argument, Finding> {
        if let Some(name) = arg.value.as_name() {
            let header = &self.header;
            if header.workspaces.iter().any(|line| line.name == name) {
                return Ok(Argument::Workspace(name.to_owned()));
            }
            if header
                .tensor_maps
                .iter()
                .any(|line| line.name.value == name)
            {
                return Ok(Argument::TensorMap(name.to_owned()));
            }
            if known.value(name).is_none() {
                return Ok(Argument::Buffer(name.to_owned()));
            }
        }
        let value = arg.value.value(known);
        match value.map_err(|error| Finding::expression(&arg.place, error))? {
            Value::Int(value) => Ok(Argument::Int(value)),
            Value::Float(value) => Ok(Argument::Float(value)),
            Value::Text(text) => Err(Finding::header(
                arg.place.clone(),
                format!("the text `{text}` cannot be passed to a kernel"),
            )),
        }
    }

    fn substituted(&self, expression: &str) -> String {
        let mut out = String::with_capacity(expression.len());
        let mut from = 0;
        for word in words(expression) {
            let name = &expression[word.clone()];
            let replacement = match (self.values.get(name), self.header.launch_let(name)) {
                (Some(Value::Text(text)), _) => format!("{text:?}"),
                (Some(value), _) => value.to_string(),
                (None, Some(derived)) => {
                    format!("({})", self.substituted(derived.value.value.text()))
                }
                (None, None) => continue,
            };
            out.push_str(&expression[from..word.start]);
            out.push_str(&replacement);
            from = word.end;
        }
        out.push_str(&expression[from..]);
        squeezed(&out)
    }
}

fn tensor_map(line: &TensorMapLine, known: &BTreeMap<String, Value>) -> Result<TensorMap, Finding> {
    let sizes = |values: &[Placed<Expr>]| -> Result<Vec<u64>, Finding> {
        values
            .iter()
            .map(|value| number(value, known, 1, i64::MAX).map(|value| value as u64))
            .collect()
    };
    let tile = line
        .tile
        .iter()
        .map(|value| number(value, known, 1, 256).map(|value| value as u32));
    let one_of = |value: &Option<Placed<Expr>>, allowed: &[i64]| match value {
        None => Ok(0),
        Some(value) => {
            let number = number(value, known, 0, i64::MAX)?;
            if allowed.contains(&number) {
                return Ok(number as u32);
            }
            let message = format!("gives {number}; allowed: {allowed:?}");
            Err(Finding::header(value.place.clone(), message))
        }
    };
    Ok(TensorMap {
        name: line.name.value.clone(),
        base: line.base.clone(),
        dtype: line.dtype,
        dims: sizes(&line.dims)?,
        strides: sizes(&line.strides)?,
        tile: tile.collect::<Result<_, _>>()?,
        swizzle: one_of(&line.swizzle, &[0, 32, 64, 128])?,
        promotion: one_of(&line.promotion, &[0, 64, 128, 256])?,
        nan_fill: line.nan_fill,
    })
}

/// Three sizes; those left out are 1.
fn extents(values: &[Placed<Expr>], known: &BTreeMap<String, Value>) -> Result<[u32; 3], Finding> {
    let mut out = [1; 3];
    for (size, value) in std::iter::zip(&mut out, values) {
        *size = number(value, known, 1, i64::from(u32::MAX))? as u32;
    }
    Ok(out)
}

/// An integer within bounds.
fn number(
    value: &Placed<Expr>,
    known: &BTreeMap<String, Value>,
    least: i64,
    most: i64,
) -> Result<i64, Finding> {
    let number = value.value.int(known);
    let number = number.map_err(|error| Finding::expression(&value.place, error))?;
    if number < least {
        let message = format!("gives {number}; at least {least} is wanted");
        return Err(Finding::header(value.place.clone(), message));
    }
    if number > most {
        let message = format!("gives {number}; at most {most} is possible");
        return Err(Finding::header(value.place.clone(), message));
    }
    Ok(number)
}

fn too_large(place: &Place) -> Finding {
    Finding::header(
        place.clone(),
        "gives more bytes than a 64-bit number counts",
    )
}
