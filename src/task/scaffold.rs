//! A new task from a PTX file: reads its entries and parameters, guesses what cannot be read, and marks every
//! guess with `# CHECK:`. The folder loads as a task right away; its reference says that it must be written.
//! [`Scaffold::write`] is the only function here that touches files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::catalogue::spaces_of;
use super::error::TaskError;
use crate::ptx::ir::{
    Block, Function, FunctionKind, Instruction, Item, Operand, Statement, Variable,
};
use crate::ptx::parse;

/// The files of a new task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scaffold {
    /// The task's name, and its folder's.
    pub name: String,
    /// File names and texts.
    pub files: Vec<(&'static str, String)>,
}

/// Makes a task called `name` of the PTX in `text`; `from` is where that was read, for messages.
///
/// The name must be of letters, digits and `_`; the text must hold at least one `.entry` with a body.
pub fn new_task(name: &str, text: &str, from: &Path) -> Result<Scaffold, TaskError> {
    let plain = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !plain {
        return Err(TaskError::whole(
            Path::new(name),
            "this cannot name a task",
            "use letters, digits and `_`, a letter first",
        ));
    }
    let module = parse(text).map_err(|error| {
        TaskError::line(
            from,
            error.line,
            error.message,
            "see that ptxas takes the file",
        )
    })?;
    let entries: Vec<(&Function, &Block)> = module
        .items
        .iter()
        .filter_map(|item| match item {
            Item::Function(function) if function.kind == FunctionKind::Entry => {
                Some((function, function.body.as_ref()?))
            }
            Item::Function(_) | Item::Directive(_) | Item::Variable(_) => None,
        })
        .collect();
    if entries.is_empty() {
        return Err(TaskError::whole(
            from,
            "the file has no `.entry`",
            "give PTX with a kernel: `nvcc -ptx` writes it, `__global__` functions become entries",
        ));
    }
    let has_launch = text
        .lines()
        .any(|line| line.trim_start().starts_with("//@ launch"));
    let mut params: Vec<Guess> = Vec::new();
    let mut launches = String::new();
    for (function, body) in &entries {
        let names = if has_launch {
            match declared_arguments(text, &function.name) {
                Some(names) => names,
                None => continue,
            }
        } else {
            argument_names(function)
        };
        let used = uses(function, body);
        for (variable, argument) in function.params.iter().zip(&names) {
            let Some(argument) = argument else { continue };
            merge(&mut params, guess(variable, argument, &used));
        }
        if !has_launch {
            let block = block_size(function);
            let shown: Vec<&str> = names
                .iter()
                .map(|name| name.as_deref().unwrap_or("0"))
                .collect();
            let _infallible = writeln!(
                launches,
                "//@ launch {} grid=(ceil_div(n, {block})) block=({block}) args=({})",
                function.name,
                shown.join(", ")
            );
        }
    }
    ensure_output(&mut params);
    let seed = if has_launch {
        text.to_owned()
    } else {
        format!(
            "//@ about CHECK: grid, block and the order of the launches below.\n{launches}{text}"
        )
    };
    Ok(Scaffold {
        name: name.to_owned(),
        files: vec![
            ("task.toml", task_toml(name, &params)),
            ("seed.ptx", seed),
            ("reference.py", reference(&params)),
        ],
    })
}

impl Scaffold {
    /// What to do next when it was written to `tasks`, a sentence each. The commands work where this program ran.
    pub fn next(&self, tasks: &Path) -> Vec<String> {
        let name = &self.name;
        let folder = tasks.join(name);
        let folder = folder.display();
        let spaces = spaces_of(tasks).join(name);
        let named = if tasks == Path::new("tasks") {
            String::new()
        } else {
            format!(" --tasks {}", tasks.display())
        };
        vec![
            format!(
                "read every `# CHECK:` in {folder}/task.toml: shapes, sizes, roles, tolerance and cost are guesses"
            ),
            format!("check the `//@ launch` lines at the top of {folder}/seed.ptx"),
            format!(
                "write the computation in {folder}/reference.py (float64, from the inputs as they are; it needs \
                 Python with NumPy)"
            ),
            format!(
                "run `warptree eval {name} {folder}/seed.ptx{named}` until the seed is judged correct"
            ),
            format!(
                "put a source with knobs in {}/, then `warptree search {name}{named}`",
                spaces.display()
            ),
        ]
    }

    /// Writes the files to `tasks/<name>/`, which must not be there yet, and gives that folder.
    pub fn write(&self, tasks: &Path) -> Result<PathBuf, TaskError> {
        let folder = tasks.join(&self.name);
        fs::create_dir_all(tasks).map_err(|error| TaskError::io(tasks, "create", error))?;
        fs::create_dir(&folder).map_err(|error| TaskError::io(&folder, "create", error))?;
        for (file, text) in &self.files {
            let path = folder.join(file);
            fs::write(&path, text).map_err(|error| TaskError::io(&path, "write", error))?;
        }
        Ok(folder)
    }
}

/// What a parameter seems to be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Guess {
    name: String,
    kind: GuessKind,
    dtype: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum GuessKind {
    Scalar,
    Input,
    Output,
    /// Read and written.
    Both,
}

/// What a kernel does through a parameter: the element type of its loads and of its stores.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    loaded: Option<&'static str>,
    stored: Option<&'static str>,
}

fn guess(variable: &Variable, name: &str, used: &BTreeMap<String, Use>) -> Guess {
    let own = variable
        .names
        .first()
        .map_or("", |declared| declared.name.as_str());
    let used = used.get(own).copied().unwrap_or_default();
    let (kind, dtype) = match (used.loaded, used.stored) {
        (Some(_), Some(dtype)) => (GuessKind::Both, dtype),
        (None, Some(dtype)) => (GuessKind::Output, dtype),
        (Some(dtype), None) => (GuessKind::Input, dtype),
        (None, None) => (GuessKind::Scalar, element_type(&variable.ty, true)),
    };
    Guess {
        name: name.to_owned(),
        kind,
        dtype,
    }
}

/// A buffer that one kernel writes and another reads is written.
fn merge(params: &mut Vec<Guess>, guess: Guess) {
    match params.iter_mut().find(|param| param.name == guess.name) {
        Some(param) => param.kind = param.kind.max(guess.kind),
        None => params.push(guess),
    }
}

fn ensure_output(params: &mut Vec<Guess>) {
    let written = |param: &Guess| matches!(param.kind, GuessKind::Output | GuessKind::Both);
    if params.iter().any(written) {
        return;
    }
    match params
        .iter_mut()
        .rev()
        .find(|param| param.kind == GuessKind::Input)
    {
        Some(last) => last.kind = GuessKind::Both,
        None => params.push(Guess {
            name: "out".into(),
            kind: GuessKind::Both,
            dtype: "f32",
        }),
    }
}

/// The names in `args=(…)` of the entry's launch line; `None` in the list for what is no task parameter.
fn declared_arguments(text: &str, entry: &str) -> Option<Vec<Option<String>>> {
    let words = |kind: &'static str| {
        text.lines().filter_map(move |line| {
            let mut words = line.trim_start().strip_prefix("//@")?.split_whitespace();
            (words.next()? == kind).then(|| words.next().map(|word| (word, line)))?
        })
    };
    let private: BTreeSet<&str> = ["knob", "let", "workspace", "tensormap"]
        .into_iter()
        .flat_map(words)
        .map(|(word, _)| word)
        .collect();
    let (_, line) = words("launch").find(|(name, _)| *name == entry)?;
    let (_, arguments) = line.split_once("args=(")?;
    let arguments = &arguments[..arguments.rfind(')')?];
    let name = |argument: &str| {
        let plain = argument
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && argument.starts_with(|c: char| c.is_ascii_alphabetic());
        (plain && argument != "n" && !private.contains(argument)).then(|| argument.to_owned())
    };
    Some(
        arguments
            .split(',')
            .map(|argument| name(argument.trim()))
            .collect(),
    )
}

/// Parameter names without the entry's name that nvcc puts before them.
fn argument_names(function: &Function) -> Vec<Option<String>> {
    function
        .params
        .iter()
        .zip(0..)
        .map(|(variable, at)| {
            let own = &variable.names.first()?.name;
            let bare = own
                .strip_prefix(&format!("{}_param_", function.name))
                .map_or_else(|| own.clone(), |number| format!("p{number}"));
            let plain = bare.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
                && bare.starts_with(|c: char| c.is_ascii_alphabetic());
            // `n` is the scaffold's one dimension.
            Some(if plain && bare != "n" {
                bare
            } else {
                format!("p{at}")
            })
        })
        .collect()
}

fn block_size(function: &Function) -> u32 {
    function
        .directives
        .iter()
        .filter(|directive| matches!(directive.name.as_str(), ".maxntid" | ".reqntid"))
        .filter_map(|directive| directive.arguments.split(',').next()?.trim().parse().ok())
        .find(|threads| *threads > 0)
        .unwrap_or(256)
}

/// Which parameters the body loads from and stores to, following addresses through registers. Any order of
/// statements: a register that ever holds an address made from a parameter counts as that parameter.
fn uses(function: &Function, body: &Block) -> BTreeMap<String, Use> {
    let mut instructions = Vec::new();
    collect(body, &mut instructions);
    let mut from: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let pointers = function
        .params
        .iter()
        .filter(|param| matches!(param.ty.as_str(), ".u64" | ".b64" | ".s64"));
    for name in pointers.flat_map(|param| &param.names) {
        from.insert(&name.name, BTreeSet::from([name.name.as_str()]));
    }
    loop {
        let mut grown = false;
        for instruction in &instructions {
            let carries = matches!(
                instruction.opcode.as_str(),
                "mov" | "cvta" | "add" | "sub" | "mad" | "selp"
            ) || (instruction.opcode == "ld" && instruction.has("param"));
            let Some((Operand::Name(target), sources)) =
                instruction.operands.split_first().filter(|_| carries)
            else {
                continue;
            };
            let mut origins: BTreeSet<&str> = BTreeSet::new();
            // The product in a multiply-add is an offset, its addend the address.
            let addends = match instruction.opcode.as_str() {
                "mad" => &sources[sources.len().saturating_sub(1)..],
                _ => sources,
            };
            for source in addends {
                source.for_each_name(&mut |name| {
                    origins.extend(from.get(name).into_iter().flatten())
                });
            }
            let known = from.entry(target).or_default();
            let before = known.len();
            known.extend(origins);
            grown |= known.len() > before;
        }
        if !grown {
            break;
        }
    }
    let mut uses: BTreeMap<String, Use> = BTreeMap::new();
    for instruction in &instructions {
        let loads = matches!(instruction.opcode.as_str(), "ld" | "ldu" | "atom");
        let stores = matches!(instruction.opcode.as_str(), "st" | "red" | "atom");
        let elsewhere = ["param", "shared", "local", "const"]
            .iter()
            .any(|space| instruction.has(space));
        if elsewhere || !(loads || stores) {
            continue;
        }
        let dtype = instruction
            .modifiers
            .last()
            .map_or("f32", |ty| element_type(ty, false));
        for operand in &instruction.operands {
            let Operand::Address(address) = operand else {
                continue;
            };
            for origin in address
                .base
                .iter()
                .filter_map(|base| from.get(base.as_str()))
                .flatten()
            {
                let used = uses.entry((*origin).to_owned()).or_default();
                if loads {
                    used.loaded.get_or_insert(dtype);
                }
                if stores {
                    used.stored.get_or_insert(dtype);
                }
            }
        }
    }
    uses
}

fn collect<'a>(block: &'a Block, into: &mut Vec<&'a Instruction>) {
    for statement in &block.statements {
        match statement {
            Statement::Instruction(instruction) => into.push(instruction),
            Statement::Block(inner) => collect(inner, into),
            Statement::Label(_) | Statement::Variable(_) | Statement::Directive(_) => {}
        }
    }
}

/// The task's word for a PTX type; untyped bits are taken for floats in memory, for integers by value.
fn element_type(ty: &str, by_value: bool) -> &'static str {
    match ty.trim_start_matches('.') {
        "f64" => "f64",
        "b64" if !by_value => "f64",
        "f16" | "b16" | "u16" | "s16" | "f16x2" => "f16",
        "bf16" | "bf16x2" => "bf16",
        "s32" => "i32",
        "u32" => "u32",
        "b32" if by_value => "u32",
        "s64" => "i64",
        "u64" | "b64" => "u64",
        "u8" | "s8" | "b8" => "u8",
        _ => "f32",
    }
}

fn task_toml(name: &str, params: &[Guess]) -> String {
    let mut text = format!(
        "title = \"{name}\"  # CHECK: one line that says what is computed
level = \"L2\"  # CHECK: L1 logic, L2 resources and scheduling, L3 instruction choice
math = \"ieee\"  # CHECK: or \"fast\" where approximate functions are fine
cases = [\"normal\"]  # CHECK: also spiky, integers, large, small, special
"
    );
    let mut bytes = 0;
    for param in params {
        let (role, check) = match param.kind {
            GuessKind::Scalar => ("scalar", "a number passed by value?"),
            GuessKind::Input => ("input", "it is only read"),
            GuessKind::Output => ("output", "it is only written"),
            GuessKind::Both => (
                "output",
                "it is read and written, or neither: outputs arrive poisoned",
            ),
        };
        let integer = !matches!(param.dtype, "f64" | "f32" | "f16" | "bf16");
        let size = if param.kind == GuessKind::Scalar {
            let value = if integer { "n" } else { "1" };
            format!("value = \"{value}\"  # CHECK: an expression over the sizes")
        } else {
            let bits = param.dtype.trim_start_matches(char::is_alphabetic);
            bytes += bits.parse().map_or(1, |bits: u64| bits / 8);
            "shape = [\"n\"]  # CHECK: extents, outermost first".to_owned()
        };
        let _infallible = write!(
            text,
            "
[[param]]
name = \"{}\"
role = \"{role}\"  # CHECK: {check}
dtype = \"{}\"  # CHECK
{size}
",
            param.name, param.dtype
        );
    }
    text.push_str(
        "
[sizes]
smoke = [{ n = 4096 }]  # CHECK: small enough for the simulator
edge = [{ n = 1 }, { n = 1000 }]  # CHECK: awkward on purpose
bench = [{ n = 16777216 }]  # CHECK: the size that is timed

[reference]
command = [\"python3\", \"reference.py\"]
",
    );
    for param in params {
        if !matches!(param.kind, GuessKind::Output | GuessKind::Both) {
            continue;
        }
        let tolerance = if matches!(param.dtype, "f64" | "f32" | "f16" | "bf16") {
            "kind = \"pointwise\"  # CHECK: `dot` for sums of products, `exact` for moves, `norm`\nulps = 4\nabsolute = 0.0"
        } else {
            "kind = \"exact\""
        };
        let _infallible = write!(text, "\n[tolerance.{}]\n{tolerance}\n", param.name);
    }
    let _infallible = write!(
        text,
        "
[cost]
flops = \"n\"  # CHECK: nominal operations of one call, a fused multiply-add counting two
flops_min = \"0\"  # CHECK: the least any honest algorithm does
bytes = \"{bytes} * n\"  # CHECK: each input read once, each output written once
"
    );
    text
}

fn reference(params: &[Guess]) -> String {
    let names = |wanted: &[GuessKind]| -> Vec<&str> {
        params
            .iter()
            .filter(|param| wanted.contains(&param.kind))
            .map(|param| param.name.as_str())
            .collect()
    };
    let mut text = "\"\"\"The reference: float64, from the inputs as they are.

Working directory: <input>.npy for every input, sizes.json with dimensions and scalars by name.
Write <output>.npy for every output; for a tolerance of kind `dot` also <output>.scale.npy, the square
root of the sum of squared terms of each element.
\"\"\"

import json
import sys

import numpy as np

sizes = json.load(open(\"sizes.json\"))
"
    .to_owned();
    for name in names(&[GuessKind::Input]) {
        let _infallible = writeln!(text, "{name} = np.load(\"{name}.npy\").astype(np.float64)");
    }
    text.push_str(
        "\nsys.exit(\"reference.py: write the computation here, then remove this line\")\n\n",
    );
    for name in names(&[GuessKind::Output, GuessKind::Both]) {
        let _infallible = writeln!(text, "{name} = ...\nnp.save(\"{name}.npy\", {name})");
    }
    text
}
