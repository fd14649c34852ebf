//! Where to send a question: joins what users write as `--base-url` with the language's path, once.
//! No request is made here.

use reqwest::Url;

use super::ChatError;
use super::api::Api;

/// The languages whose path or host is told from a base URL.
const TOLD: [(Api, &str); 3] = [
    (Api::Messages, "api.anthropic.com"),
    (Api::Responses, ""),
    (Api::Chat, "api.openai.com"),
];

/// The language of a server whose user did not say: that of the path or host, else chat completions.
pub(super) fn language_of(base_url: Option<&str>) -> Api {
    let url = base_url.and_then(|text| Url::parse(text.trim()).ok());
    let Some(url) = url else { return Api::Chat };
    let path = url.path().trim_end_matches('/');
    let told = TOLD
        .iter()
        .find(|(api, host)| path.ends_with(api.language().path()) || url.host_str() == Some(*host));
    told.map_or(Api::Chat, |(api, _)| *api)
}

/// The address of a language's endpoint under `base_url` (its own server where `None`).
///
/// A base without a path gets `/v1`; one with a path is taken at its word, with or without a trailing
/// slash, or already ending in `/chat/completions` and the like. A query (`?api-version=…`) stays.
pub(super) fn address(base_url: Option<&str>, api: Api) -> Result<Url, ChatError> {
    let text = base_url.unwrap_or(api.language().home()).trim();
    let bad = |why: &str| ChatError::Configuration {
        message: format!(
            "--base-url: {why}; write it like http://localhost:8000/v1 or https://api.openai.com/v1"
        ),
    };
    if !text.contains("://") {
        return Err(bad("it must begin with http:// or https://"));
    }
    let mut url = Url::parse(text).map_err(|error| bad(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad("only http and https are spoken"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad(
            "it must hold no user name or password (put the key in WARPTREE_API_KEY)",
        ));
    }
    let path = url.path().trim_end_matches('/').to_owned();
    let end = api.language().path();
    let joined = if path.is_empty() {
        format!("/v1{end}")
    } else if path.ends_with(end) {
        path
    } else {
        format!("{path}{end}")
    };
    url.set_path(&joined);
    url.set_fragment(None);
    Ok(url)
}

/// The address without its query, for messages.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.to_string()
}

/// Whether the server is this machine: no proxy is asked then.
pub(super) fn is_local(url: &Url) -> bool {
    match url.host_str() {
        Some("localhost") => true,
        Some(host) => host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback()),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_base_url_joins_once() {
        for (base, joined) in [
            (None, "https://api.openai.com/v1/chat/completions"),
            (
                Some("https://api.openai.com"),
                "https://api.openai.com/v1/chat/completions",
            ),
            (
                Some("https://api.openai.com/"),
                "https://api.openai.com/v1/chat/completions",
            ),
            (
                Some("https://api.openai.com/v1/"),
                "https://api.openai.com/v1/chat/completions",
            ),
            (
                Some(" http://localhost:11434/v1 "),
                "http://localhost:11434/v1/chat/completions",
            ),
            (
                Some("http://[::1]:8000"),
                "http://[::1]:8000/v1/chat/completions",
            ),
            (
                Some("https://openrouter.ai/api/v1"),
                "https://openrouter.ai/api/v1/chat/completions",
            ),
            (
                Some("https://generativelanguage.googleapis.com/v1beta/openai/"),
                "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
            ),
            (
                Some("http://h/v1/chat/completions?api-version=1#x"),
                "http://h/v1/chat/completions?api-version=1",
            ),
        ] {
            let url = address(base, Api::Chat).map(|url| url.to_string());
            assert_eq!(url.as_deref(), Ok(joined), "{base:?}");
        }
    }

    #[test]
    fn a_language_is_told_from_the_address() {
        for (base, api, joined) in [
            (
                None,
                Api::Chat,
                "https://api.openai.com/v1/chat/completions",
            ),
            (
                Some("https://api.anthropic.com"),
                Api::Messages,
                "https://api.anthropic.com/v1/messages",
            ),
            (
                Some("http://h:1/v1/messages"),
                Api::Messages,
                "http://h:1/v1/messages",
            ),
            (
                Some("http://h/v1/responses/"),
                Api::Responses,
                "http://h/v1/responses",
            ),
            (Some("http://h"), Api::Chat, "http://h/v1/chat/completions"),
        ] {
            assert_eq!(language_of(base), api, "{base:?}");
            let url = address(base, api).map(|url| url.to_string());
            assert_eq!(url.as_deref(), Ok(joined));
        }
    }

    #[test]
    fn a_bad_base_url_says_what_to_write() {
        for base in [
            "localhost:8000",
            "ftp://h/v1",
            "http://",
            "https://me:secret@h/v1",
            "",
        ] {
            let error = address(Some(base), Api::Chat).expect_err(base).to_string();
            assert!(error.contains("write it like http://"), "{base}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_query_is_not_shown_and_loopback_is_local() {
        let url = address(Some("http://127.0.0.1:1/v1?key=abc"), Api::Chat).expect("valid");
        assert_eq!(shown(&url), "http://127.0.0.1:1/v1/chat/completions");
        assert!(is_local(&url));
        assert!(!is_local(&address(None, Api::Chat).expect("valid")));
    }
}
