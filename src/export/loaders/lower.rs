//! A candidate's launches and tensor maps to code of one language. What the language cannot pack exactly is an
//! error, never a guess.

use std::collections::BTreeMap;

use super::super::formula::{FormulaError, Language, constant, translate};
use super::LoaderError;
use super::number::{bound, float_type, integer_type};
use super::view::{Address, Argument, Code, Launch, Scalar, TensorMap};
use crate::evaluate::limits;
use crate::expr::Value;
use crate::ptx::ir::Module;
use crate::source::{DType, Formulas, LaunchFormula, TensorMapFormula};

/// Turns formulas into code.
pub(super) struct Lower<'a> {
    pub language: Language,
    pub formulas: &'a Formulas,
    pub module: &'a Module,
    pub entries: &'a [&'a str],
    /// By the task's names: the loader's names of buffers, of float scalars, and of what formulas may use.
    pub pointers: BTreeMap<String, String>,
    pub floats: BTreeMap<String, String>,
    pub numbers: BTreeMap<String, String>,
}

impl Lower<'_> {
    pub(super) fn formula(&self, text: &str) -> Result<String, FormulaError> {
        translate(text, self.language, &self.numbers)
    }

    fn list(&self, texts: &[String]) -> Result<Vec<String>, FormulaError> {
        texts.iter().map(|text| self.formula(text)).collect()
    }

    /// Three extents; those left out are 1.
    fn extents(&self, texts: &[String]) -> Result<[String; 3], FormulaError> {
        let extent = |index: usize| self.formula(texts.get(index).map_or("1", String::as_str));
        Ok([extent(0)?, extent(1)?, extent(2)?])
    }

    pub(super) fn tensor_map(&self, map: &TensorMapFormula) -> Result<TensorMap, LoaderError> {
        let fail = |message: String| LoaderError::TensorMap {
            name: map.name.clone(),
            message,
        };
        let code = |what: &str, bytes: &Option<String>, values: [(i64, &'static str); 4]| {
            let (number, name) = match bytes {
                None => Some((0, values[0].1)),
                Some(text) => match constant(text) {
                    Ok(Some(Value::Int(value))) => (0..)
                        .zip(values)
                        .find(|(_, (bytes, _))| *bytes == value)
                        .map(|(number, (_, name))| (number, name)),
                    Ok(Some(Value::Float(_) | Value::Text(_)) | None) | Err(_) => None,
                },
            }
            .ok_or_else(|| {
                let values = values.map(|(bytes, _)| bytes);
                fail(format!(
                    "its {what} `{}` is none of {values:?}",
                    bytes.as_deref().unwrap_or("")
                ))
            })?;
            Ok::<Code, LoaderError>(Code { number, name })
        };
        let base = if let Some(index) = self.workspace(&map.base) {
            Address::Workspace { index }
        } else {
            let name = self.pointers.get(&map.base);
            Address::Buffer {
                name: name
                    .ok_or_else(|| fail(format!("`{}` is no buffer of the task", map.base)))?
                    .clone(),
            }
        };
        Ok(TensorMap {
            name: map.name.clone(),
            base,
            rank: map.dims.len(),
            dims: self.list(&map.dims)?,
            strides: self.list(&map.strides)?,
            tile: self.list(&map.tile)?,
            dtype: tensor_type(map.dtype),
            swizzle: code(
                "swizzle",
                &map.swizzle,
                [(0, "NONE"), (32, "32B"), (64, "64B"), (128, "128B")],
            )?,
            promotion: code(
                "promotion",
                &map.promotion,
                [
                    (0, "NONE"),
                    (64, "L2_64B"),
                    (128, "L2_128B"),
                    (256, "L2_256B"),
                ],
            )?,
            fill: Code {
                number: u32::from(map.nan_fill),
                name: if map.nan_fill {
                    "NAN_REQUEST_ZERO_FMA"
                } else {
                    "NONE"
                },
            },
        })
    }

    pub(super) fn launch(&self, launch: &LaunchFormula) -> Result<Launch, LoaderError> {
        let fail = |message: String| LoaderError::Launch {
            entry: launch.entry.clone(),
            message,
        };
        let entry = limits::entry(self.module, &launch.entry)
            .ok_or_else(|| fail("the kernel has no such `.entry`".to_owned()))?;
        if entry.params.len() != launch.args.len() {
            return Err(fail(format!(
                "{} arguments for {} parameters",
                launch.args.len(),
                entry.params.len()
            )));
        }
        let mut scalars = Vec::new();
        let mut args = Vec::new();
        for (arg, param) in launch.args.iter().zip(&entry.params) {
            let wrong = |message| fail(format!("argument `{arg}`: {message}"));
            args.push(if let Some(index) = self.workspace(arg) {
                Argument::Workspace { index }
            } else if let Some(index) = self.map(arg) {
                Argument::Map { index }
            } else if let Some(name) = self.pointers.get(arg) {
                Argument::Buffer { name: name.clone() }
            } else if let Some(value) = self.float(arg) {
                Argument::Float {
                    value,
                    ty: float_type(param, self.language).map_err(wrong)?,
                }
            } else {
                let (low, high, ty) = integer_type(param, self.language).map_err(wrong)?;
                scalars.push(Scalar {
                    value: self.formula(arg)?,
                    low: bound(low, self.language),
                    high: bound(high, self.language),
                });
                Argument::Integer {
                    index: scalars.len() - 1,
                    ty,
                }
            });
        }
        let function = self.entries.iter().position(|entry| *entry == launch.entry);
        Ok(Launch {
            entry: launch.entry.clone(),
            function: function.expect("invariant: `entries` are those of the launches"),
            grid: self.extents(&launch.grid)?,
            block: self.extents(&launch.block)?,
            cluster: self.extents(&launch.cluster)?,
            clustered: !launch.cluster.is_empty(),
            smem: self.formula(launch.smem.as_deref().unwrap_or("0"))?,
            args,
            scalars,
        })
    }

    /// A float argument's code: a scalar of the task, or a constant that is no integer.
    fn float(&self, arg: &str) -> Option<String> {
        if let Some(name) = self.floats.get(arg) {
            return Some(name.clone());
        }
        match constant(arg) {
            Ok(Some(Value::Float(value))) => Some(format!("{value:?}")),
            Ok(Some(Value::Int(_) | Value::Text(_)) | None) | Err(_) => None,
        }
    }

    fn workspace(&self, name: &str) -> Option<usize> {
        let workspaces = &self.formulas.workspaces;
        workspaces.iter().position(|known| known.name == name)
    }

    fn map(&self, name: &str) -> Option<usize> {
        let maps = &self.formulas.tensor_maps;
        maps.iter().position(|known| known.name == name)
    }
}

fn tensor_type(dtype: DType) -> Code {
    let (number, name) = match dtype {
        DType::U8 => (0, "UINT8"),
        DType::U32 => (2, "UINT32"),
        DType::I32 => (3, "INT32"),
        DType::U64 => (4, "UINT64"),
        DType::I64 => (5, "INT64"),
        DType::F16 => (6, "FLOAT16"),
        DType::F32 => (7, "FLOAT32"),
        DType::F64 => (8, "FLOAT64"),
        DType::Bf16 => (9, "BFLOAT16"),
    };
    Code { number, name }
}
