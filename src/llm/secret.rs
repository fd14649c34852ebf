//! Keys. They come from the environment alone, are sent and nothing else: never logged, stored or shown.

use std::fmt;

use super::api::Api;

/// A key. It prints as `[key]`.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Wraps a key.
    pub fn new(key: String) -> Self {
        Self(key)
    }

    /// The key itself, to be sent.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    /// `text` with the key struck out: servers like to quote it.
    pub(super) fn redact(&self, text: String) -> String {
        if self.0.is_empty() {
            text
        } else {
            text.replace(&self.0, "[key]")
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[key]")
    }
}

/// The key for HTTP models: `WARPTREE_API_KEY`, else the language's own variable (`OPENAI_API_KEY`,
/// `ANTHROPIC_API_KEY`). Keys come from nowhere else.
pub fn key_from_environment(api: Api) -> Option<Secret> {
    ["WARPTREE_API_KEY", api.language().key_variable()]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok())
        .map(|value| value.trim().to_owned())
        .find(|value| !value.is_empty())
        .map(Secret::new)
}
