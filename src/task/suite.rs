//! A **suite** lists tasks that are searched and totalled together: `tasks/suites.toml`. Pure: text in,
//! declarations or a pointing error out; that its tasks exist is found when they are loaded.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;

use super::error::TaskError;

/// Tasks that are searched and totalled together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suite {
    /// As `--suite` names it.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Its tasks, in the order listed: at least one, none twice.
    pub tasks: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    title: String,
    tasks: Spanned<Vec<Spanned<String>>>,
}

/// Parses and checks the text of `suites.toml`.
pub(super) fn parse(path: &Path, text: &str) -> Result<Vec<Suite>, TaskError> {
    let raw: BTreeMap<String, Raw> = toml::from_str(text).map_err(|error| {
        let message = error.message().trim_end().replace('\n', "; ");
        match error.span() {
            Some(span) => TaskError::at(path, text, span, message, ""),
            None => TaskError::whole(path, message, ""),
        }
    })?;
    raw.into_iter()
        .map(|(name, raw)| {
            let mut tasks: Vec<String> = Vec::new();
            for task in raw.tasks.get_ref() {
                if tasks.contains(task.get_ref()) {
                    let message = format!("`{}` is listed twice", task.get_ref());
                    return Err(TaskError::at(path, text, task.span(), message, ""));
                }
                tasks.push(task.get_ref().clone());
            }
            if tasks.is_empty() {
                let message = format!("suite `{name}` lists no task");
                return Err(TaskError::at(path, text, raw.tasks.span(), message, ""));
            }
            Ok(Suite {
                name,
                title: raw.title,
                tasks,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Suite>, String> {
        parse(Path::new("suites.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_suite_keeps_the_order_of_its_tasks() {
        let suites = read("[s]\ntitle = \"two\"\ntasks = [\"b\", \"a\"]\n").expect("well formed");
        assert_eq!(suites.len(), 1);
        assert_eq!(suites[0].tasks, ["b", "a"]);
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        for (text, said) in [
            (
                "[s]\ntitle = \"\"\ntasks = [\"a\",\n \"a\"]",
                "suites.toml:4:2: `a` is listed twice",
            ),
            (
                "[s]\ntitle = \"\"\ntasks = []",
                "suites.toml:3:9: suite `s` lists no task",
            ),
            ("[s]\ntasks = []", "missing field `title`"),
            ("[s]\ntitle = \"\"\ntask = []", "unknown field `task`"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(said), "{error}");
        }
    }
}
