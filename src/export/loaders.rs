//! Loaders of an exported kernel in C++, Rust and Python: its launches, workspaces and tensor maps as code
//! that needs nothing but the driver. Every number comes from the candidate's formulas; what a language
//! cannot say exactly is an error, never a guess.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;

use super::formula::{FormulaError, Language, constant, translate};
use crate::evaluate::limits;
use crate::expr::{Expr, Value};
use crate::ptx::ir::{Module, Variable};
use crate::source::{Candidate, DType, Formulas, LaunchFormula, TensorMapFormula};
use crate::task::{Purpose, Role, Task};

/// The one fact of the device that the judge lets launch formulas name.
const SM_COUNT: &str = "sm_count";

/// A loader cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoaderError {
    /// A formula.
    #[error(transparent)]
    Formula(#[from] FormulaError),
    /// A launch passes what the loader cannot pack.
    #[error("launch of `{entry}`: {message}")]
    Launch {
        /// The entry.
        entry: String,
        /// What it cannot pack.
        message: String,
    },
    /// A tensor map.
    #[error("tensor map `{name}`: {message}")]
    TensorMap {
        /// As the header names it.
        name: String,
        /// What stands in the way.
        message: String,
    },
    /// The task's signature.
    #[error("task `{task}`: {message}")]
    Task {
        /// The task.
        task: String,
        /// What stands in the way.
        message: String,
    },
    /// A template.
    #[error("template {name}: {message}")]
    Template {
        /// The file.
        name: &'static str,
        /// The engine's message.
        message: String,
    },
}

/// The file of `language` that holds its loader; the others beside it are of no use without it.
pub fn main_file(language: Language) -> &'static str {
    templates(language)[0].0
}

/// Writes the loader of one language: file names in `loaders/` and their texts.
pub fn write(
    candidate: &Candidate,
    task: &Task,
    language: Language,
) -> Result<Vec<(&'static str, String)>, LoaderError> {
    let view = View::new(candidate, task, language)?;
    templates(language)
        .iter()
        .map(|&(name, template)| {
            let fail = |error: minijinja::Error| LoaderError::Template {
                name,
                message: format!("{error:#}"),
            };
            let text = ENVIRONMENT
                .get_template(template)
                .and_then(|template| template.render(Serde(&view)))
                .map_err(fail)?;
            Ok((name, text))
        })
        .collect()
}

/// Files and their templates, the loader itself first.
fn templates(language: Language) -> &'static [(&'static str, &'static str)] {
    match language {
        Language::Cpp => &[
            ("kernel.hpp", "kernel.hpp.jinja"),
            ("main.cpp", "main.cpp.jinja"),
        ],
        Language::Rust => &[
            ("kernel.rs", "kernel.rs.jinja"),
            ("Cargo.toml", "Cargo.toml.jinja"),
        ],
        Language::Python => &[("kernel.py", "kernel.py.jinja")],
    }
}

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    // Delimiters that occur in none of the three languages.
    let syntax = SyntaxConfig::builder()
        .variable_delimiters("«", "»")
        .block_delimiters("‹%", "%›")
        .comment_delimiters("‹#", "#›")
        .line_statement_prefix("%%")
        .keep_trailing_newline(true)
        .build()
        .expect("invariant: the delimiters differ");
    environment.set_syntax(syntax);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    for (name, text) in [
        (
            "kernel.hpp.jinja",
            include_str!("templates/kernel.hpp.jinja"),
        ),
        ("main.cpp.jinja", include_str!("templates/main.cpp.jinja")),
        ("kernel.rs.jinja", include_str!("templates/kernel.rs.jinja")),
        (
            "Cargo.toml.jinja",
            include_str!("templates/Cargo.toml.jinja"),
        ),
        ("kernel.py.jinja", include_str!("templates/kernel.py.jinja")),
    ] {
        environment
            .add_template(name, text)
            .expect("invariant: the embedded templates compile");
    }
    environment
});

/// What the templates of one language see: its own spelling of every formula.
#[derive(Serialize)]
struct View {
    task: String,
    title: String,
    /// Buffers and scalars that the caller passes, in the order of the task's parameters.
    params: Vec<Param>,
    /// The task's dimensions.
    dims: Vec<String>,
    /// What formulas may name besides `sm_count`: dimensions and integer scalars.
    numbers: Vec<String>,
    /// The entries that are launched, each once.
    entries: Vec<String>,
    /// Whether any launch asks for clusters.
    clustered: bool,
    workspaces: Vec<Workspace>,
    maps: Vec<TensorMap>,
    launches: Vec<Launch>,
    /// The most integers that one launch passes, at least 1.
    most_scalars: usize,
    /// A small problem for an example: a value for each of `dims`.
    example: Vec<i64>,
}

#[derive(Serialize)]
struct Param {
    name: String,
    /// A device pointer, an integer or a float.
    kind: ParamKind,
    /// For people: `input f32[m, k]`.
    about: String,
    /// Size at the example's dimensions; 0 for scalars.
    example_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum ParamKind {
    Pointer,
    Integer,
    Float,
}

#[derive(Serialize)]
struct Workspace {
    name: String,
    elements: String,
    element_bytes: u64,
    zero: bool,
}

#[derive(Serialize)]
struct TensorMap {
    name: String,
    base: Address,
    rank: usize,
    dims: Vec<String>,
    strides: Vec<String>,
    tile: Vec<String>,
    dtype: Code,
    swizzle: Code,
    promotion: Code,
    fill: Code,
}

/// A value of one of the driver's enums.
#[derive(Serialize)]
struct Code {
    number: u32,
    /// Without what all of the enum begin with.
    name: &'static str,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Address {
    Buffer { name: String },
    Workspace { index: usize },
}

#[derive(Serialize)]
struct Launch {
    entry: String,
    /// Index in `entries`.
    function: usize,
    grid: [String; 3],
    block: [String; 3],
    cluster: [String; 3],
    /// Whether the source asks for clusters.
    clustered: bool,
    smem: String,
    args: Vec<Argument>,
    /// The formulas of the integer arguments, in order.
    scalars: Vec<Scalar>,
}

/// An integer argument's formula and the least and largest value of its `.param`.
#[derive(Serialize)]
struct Scalar {
    value: String,
    low: String,
    high: String,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Argument {
    Buffer {
        name: String,
    },
    Workspace {
        index: usize,
    },
    Map {
        index: usize,
    },
    /// The launch's `scalars[index]`, as this type.
    Integer {
        index: usize,
        ty: &'static str,
    },
    /// A parameter's name or a literal, as this type.
    Float {
        value: String,
        ty: &'static str,
    },
}

impl View {
    fn new(candidate: &Candidate, task: &Task, language: Language) -> Result<Self, LoaderError> {
        let fail = |message: String| LoaderError::Task {
            task: task.name.clone(),
            message,
        };
        let module = candidate
            .module
            .as_ref()
            .map_err(|error| fail(format!("the kernel does not parse: {error}")))?;
        let size = task
            .sizes_for(Purpose::Smoke)
            .chain(&task.sizes)
            .next()
            .ok_or_else(|| fail("it declares no size".to_owned()))?;
        let dims: Vec<&str> = size.dims.keys().map(String::as_str).collect();
        let mut passed = Vec::new();
        for param in &task.params {
            if !dims.contains(&param.name.as_str()) {
                passed.push(param);
            } else if param.value.as_deref() != Some(param.name.as_str()) {
                return Err(fail(format!(
                    "`{}` names a dimension and a scalar of another value",
                    param.name
                )));
            }
        }
        if task.params.iter().any(|param| param.name == SM_COUNT) || dims.contains(&SM_COUNT) {
            return Err(fail(format!(
                "`{SM_COUNT}` is a fact of the device; a parameter or dimension needs another name"
            )));
        }
        let given = dims.iter().copied().chain([SM_COUNT]);
        let names = identifiers(
            given.chain(passed.iter().map(|param| param.name.as_str())),
            language,
        );
        let params = passed
            .iter()
            .map(|param| {
                let kind = match param.role {
                    Role::Input | Role::Output => ParamKind::Pointer,
                    Role::Scalar if is_float(param.dtype) => ParamKind::Float,
                    Role::Scalar => ParamKind::Integer,
                };
                let mut example_bytes = 0;
                if kind == ParamKind::Pointer {
                    example_bytes = param.dtype.size();
                    for extent in &param.shape {
                        let extent = Expr::new(extent)
                            .and_then(|extent| extent.int(&size.dims))
                            .map_err(|error| fail(error.to_string()))?;
                        example_bytes = u64::try_from(extent)
                            .ok()
                            .and_then(|extent| example_bytes.checked_mul(extent))
                            .ok_or_else(|| fail(format!("no size of `{}`", param.name)))?;
                    }
                }
                let dtype = word(param.dtype);
                Ok(Param {
                    name: names[&param.name].clone(),
                    kind,
                    about: match param.role {
                        Role::Input => format!("input, {dtype}[{}]", param.shape.join(", ")),
                        Role::Output => format!("output, {dtype}[{}]", param.shape.join(", ")),
                        Role::Scalar => format!(
                            "scalar, {dtype}; judged as {}",
                            param.value.as_deref().unwrap_or_default()
                        ),
                    },
                    example_bytes,
                })
            })
            .collect::<Result<Vec<Param>, LoaderError>>()?;
        let formulas = candidate.formulas();
        let integers: Vec<&str> = passed
            .iter()
            .filter(|param| param.role == Role::Scalar && !is_float(param.dtype))
            .map(|param| param.name.as_str())
            .collect();
        let numbers = dims.iter().chain(&integers).copied();
        let entries: BTreeSet<&str> = formulas.launches.iter().map(|l| l.entry.as_str()).collect();
        let entries: Vec<&str> = entries.into_iter().collect();
        let lower = Lower {
            language,
            formulas: &formulas,
            module,
            entries: &entries,
            pointers: named(&passed, |param| param.role != Role::Scalar, &names),
            floats: named(
                &passed,
                |param| param.role == Role::Scalar && is_float(param.dtype),
                &names,
            ),
            numbers: numbers
                .clone()
                .chain([SM_COUNT])
                .map(|name| (name.to_owned(), names[name].clone()))
                .collect(),
        };
        let launches = formulas
            .launches
            .iter()
            .map(|launch| lower.launch(launch))
            .collect::<Result<Vec<Launch>, _>>()?;
        let most_scalars = launches.iter().map(|launch| launch.scalars.len()).max();
        Ok(Self {
            task: task.name.clone(),
            title: task.title.clone(),
            params,
            dims: dims.iter().map(|name| names[*name].clone()).collect(),
            numbers: numbers.map(|name| names[name].clone()).collect(),
            entries: entries.iter().map(|&entry| entry.to_owned()).collect(),
            clustered: launches.iter().any(|launch| launch.clustered),
            workspaces: formulas
                .workspaces
                .iter()
                .map(|workspace| {
                    Ok(Workspace {
                        name: workspace.name.clone(),
                        elements: lower.formula(&workspace.elements)?,
                        element_bytes: workspace.dtype.size(),
                        zero: workspace.zero,
                    })
                })
                .collect::<Result<_, LoaderError>>()?,
            maps: formulas
                .tensor_maps
                .iter()
                .map(|map| lower.tensor_map(map))
                .collect::<Result<_, _>>()?,
            most_scalars: most_scalars.unwrap_or(0).max(1),
            launches,
            example: size.dims.values().copied().collect(),
        })
    }
}

/// Turns formulas into code.
struct Lower<'a> {
    language: Language,
    formulas: &'a Formulas,
    module: &'a Module,
    entries: &'a [&'a str],
    /// By the task's names: the loader's names of buffers, of float scalars, and of what formulas may use.
    pointers: BTreeMap<String, String>,
    floats: BTreeMap<String, String>,
    numbers: BTreeMap<String, String>,
}

impl Lower<'_> {
    fn formula(&self, text: &str) -> Result<String, FormulaError> {
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

    fn tensor_map(&self, map: &TensorMapFormula) -> Result<TensorMap, LoaderError> {
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

    fn launch(&self, launch: &LaunchFormula) -> Result<Launch, LoaderError> {
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

fn named(
    params: &[&crate::task::Param],
    wanted: impl Fn(&crate::task::Param) -> bool,
    names: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    params
        .iter()
        .filter(|param| wanted(param))
        .map(|param| (param.name.clone(), names[&param.name].clone()))
        .collect()
}

/// A name of each that the language and the templates leave free.
fn identifiers<'a>(
    names: impl Iterator<Item = &'a str> + Clone,
    language: Language,
) -> BTreeMap<String, String> {
    let mut taken: BTreeSet<String> = names.clone().map(str::to_owned).collect();
    let mut out = BTreeMap::new();
    for name in names {
        let mut own = name.to_owned();
        while reserved(&own, language) || (own != name && taken.contains(&own)) {
            own.push('_');
        }
        taken.insert(own.clone());
        out.insert(name.to_owned(), own);
    }
    out
}

/// Words that a parameter cannot be called: the language's own and those the templates use.
fn reserved(name: &str, language: Language) -> bool {
    let words = match language {
        Language::Cpp => {
            "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t \
             char32_t class compl const const_cast constexpr continue decltype default delete do double \
             dynamic_cast else enum explicit export extern false float for friend goto if inline int long \
             mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public \
             register reinterpret_cast return short signed sizeof static static_assert static_cast struct \
             switch template this thread_local throw true try typedef typeid typename union unsigned using \
             virtual void volatile wchar_t while xor xor_eq errno stdin stdout stderr main argc argv std \
             extent ranged bytes floor_div floor_mod plan now step kernel stream scope maps args driver \
             Kernel Plan Launch Driver Error Stream DevicePointer divisor check reserve raise release launch \
             unit config cluster free allocate synchronize int64_t uint32_t uint64_t size_t"
        }
        Language::Rust => {
            "as async await break const continue crate dyn else enum extern false fn for gen if impl in \
             let loop match mod move mut pub ref return self Self static struct super trait true try type \
             unsafe use where while abstract become box do final macro override priv typeof unsized \
             virtual yield extent ranged bytes floor_div floor_mod plan now step stream scope maps args \
             check sys std Ok Err Some None Kernel Plan Launch Error"
        }
        Language::Python => {
            "False None True and as assert async await break class continue def del elif else except \
             finally for from global if import in is lambda nonlocal not or pass raise return try while \
             with yield match case type self int max min extent ranged floor_div floor_mod plan now \
             stream maps args ctypes os device cubin"
        }
    };
    name.starts_with("argument_") || words.split_whitespace().any(|word| word == name)
}

/// An integer `.param`: the least and largest value that fits, and the loader's type of its width.
fn integer_type(param: &Variable, language: Language) -> Result<(i64, i64, &'static str), String> {
    let (low, high, [cpp, rust, python]) = match scalar(param)? {
        ".u8" => (0, u8::MAX.into(), ["uint8_t", "u8", "c_uint8"]),
        ".s8" => (i8::MIN.into(), i8::MAX.into(), ["uint8_t", "u8", "c_uint8"]),
        ".b8" => (i8::MIN.into(), u8::MAX.into(), ["uint8_t", "u8", "c_uint8"]),
        ".u16" => (0, u16::MAX.into(), ["uint16_t", "u16", "c_uint16"]),
        ".s16" => (
            i16::MIN.into(),
            i16::MAX.into(),
            ["uint16_t", "u16", "c_uint16"],
        ),
        ".b16" => (
            i16::MIN.into(),
            u16::MAX.into(),
            ["uint16_t", "u16", "c_uint16"],
        ),
        ".u32" => (0, u32::MAX.into(), ["uint32_t", "u32", "c_uint32"]),
        ".s32" => (
            i32::MIN.into(),
            i32::MAX.into(),
            ["uint32_t", "u32", "c_uint32"],
        ),
        ".b32" => (
            i32::MIN.into(),
            u32::MAX.into(),
            ["uint32_t", "u32", "c_uint32"],
        ),
        ".u64" => (0, i64::MAX, ["uint64_t", "u64", "c_uint64"]),
        ".s64" | ".b64" => (i64::MIN, i64::MAX, ["uint64_t", "u64", "c_uint64"]),
        other => return Err(format!("no integer fits a {other} parameter")),
    };
    let ty = match language {
        Language::Cpp => cpp,
        Language::Rust => rust,
        Language::Python => python,
    };
    Ok((low, high, ty))
}

fn float_type(param: &Variable, language: Language) -> Result<&'static str, String> {
    let single = match scalar(param)? {
        ".f32" | ".b32" => true,
        ".f64" | ".b64" => false,
        other => return Err(format!("the loaders pass no float as a {other} parameter")),
    };
    Ok(match (language, single) {
        (Language::Cpp, true) => "float",
        (Language::Cpp, false) => "double",
        (Language::Rust, true) => "f32",
        (Language::Rust, false) => "f64",
        (Language::Python, true) => "c_float",
        (Language::Python, false) => "c_double",
    })
}

/// The type of a `.param` that is no array.
fn scalar(param: &Variable) -> Result<&str, String> {
    let array = param.names.iter().any(|name| !name.dimensions.is_empty());
    if array || param.vector.is_some() {
        return Err("the `.param` is an array, not a number".to_owned());
    }
    Ok(&param.ty)
}

fn bound(value: i64, language: Language) -> String {
    match (language, value) {
        (Language::Cpp, i64::MIN) => "INT64_MIN".to_owned(),
        (Language::Cpp, i64::MAX) => "INT64_MAX".to_owned(),
        (Language::Cpp, _) => format!("INT64_C({value})"),
        (Language::Rust, i64::MIN) => "i64::MIN".to_owned(),
        (Language::Rust, i64::MAX) => "i64::MAX".to_owned(),
        (Language::Rust | Language::Python, _) => value.to_string(),
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

fn word(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "f64",
        DType::F32 => "f32",
        DType::F16 => "f16",
        DType::Bf16 => "bf16",
        DType::I32 => "i32",
        DType::U32 => "u32",
        DType::I64 => "i64",
        DType::U64 => "u64",
        DType::U8 => "u8",
    }
}

fn is_float(dtype: DType) -> bool {
    match dtype {
        DType::F64 | DType::F32 | DType::F16 | DType::Bf16 => true,
        DType::I32 | DType::U32 | DType::I64 | DType::U64 | DType::U8 => false,
    }
}
