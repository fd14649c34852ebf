//! Loaders of an exported kernel in C++, Rust and Python: its launches, workspaces and tensor maps as code
//! that needs nothing but the driver. Every number comes from the candidate's formulas; what a language
//! cannot say exactly is an error, never a guess.

mod identifiers;
mod lower;
mod number;

mod view;

use std::sync::LazyLock;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior};

use super::formula::{FormulaError, Language};
use crate::source::Candidate;
use crate::task::Task;
use view::View;

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
            include_str!("../templates/kernel.hpp.jinja"),
        ),
        (
            "main.cpp.jinja",
            include_str!("../templates/main.cpp.jinja"),
        ),
        (
            "kernel.rs.jinja",
            include_str!("../templates/kernel.rs.jinja"),
        ),
        (
            "Cargo.toml.jinja",
            include_str!("../templates/Cargo.toml.jinja"),
        ),
        (
            "kernel.py.jinja",
            include_str!("../templates/kernel.py.jinja"),
        ),
    ] {
        environment
            .add_template(name, text)
            .expect("invariant: the embedded templates compile");
    }
    environment
});
