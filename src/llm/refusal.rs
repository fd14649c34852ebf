//! What a server's refusal means: whether the same question may be asked again, a shorter one, or none.

use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde_json::Value;

use super::ChatError;

/// A refusal as it came.
pub(super) struct Refusal<'a> {
    /// HTTP status, or what the error's kind stands for.
    pub(super) status: u16,
    /// The body, whole.
    pub(super) body: &'a str,
    /// How long the server asks to wait, in milliseconds.
    pub(super) wait: Option<u64>,
    /// Whether the model had begun to work on it.
    pub(super) begun: bool,
}

impl Refusal<'_> {
    /// What it comes to; `say` puts the server's name before a message.
    pub(super) fn error(&self, key_variable: &str, say: impl Fn(&str) -> String) -> ChatError {
        let lower = self.body.to_lowercase();
        let status = self.status;
        let words = said(self.body);
        let no_credit = status == 402
            || [
                "insufficient_quota",
                "credit balance is too low",
                "insufficient balance",
            ]
            .iter()
            .any(|sign| lower.contains(sign));
        let message = |advice: &str| say(&format!("answered HTTP {status}: {words}{advice}"));
        let rejected = |advice: &str| ChatError::Rejected {
            status,
            message: message(advice),
        };
        match status {
            _ if no_credit => rejected(" (no credit left; asking again is useless)"),
            400 | 413 | 422 | 500 if is_too_long(&lower) => ChatError::TooLong {
                message: message(""),
            },
            408 | 409 | 425 | 429 | 500 | 502..=599 => ChatError::Transient {
                message: message(""),
                retry_after_ms: self.wait,
                may_be_billed: self.begun,
            },
            300..=399 => rejected(" (it redirects; give the final address as --base-url)"),
            401 => rejected(&format!(
                " (check the key in WARPTREE_API_KEY or {key_variable})"
            )),
            404 => rejected(" (check --model, --api and --base-url)"),
            _ => rejected(""),
        }
    }
}

/// The server's own words out of an error body.
pub(super) fn said(text: &str) -> String {
    let body: Value = serde_json::from_str(text).unwrap_or(Value::Null);
    // Gemini's endpoint wraps the object in an array.
    let body = body.get(0).unwrap_or(&body);
    let error = body.get("error").unwrap_or(body);
    let told = [
        error.get("message"),
        body.get("message"),
        body.get("detail"),
        Some(error),
    ]
    .into_iter()
    .flatten()
    .find_map(Value::as_str);
    excerpt(told.unwrap_or(text))
}

/// The HTTP status that an error sent in an answer of status 200 stands for.
pub(super) fn status_of(error: &Value) -> u16 {
    let error = error.get("error").unwrap_or(error);
    let number = error.get("code").and_then(Value::as_u64);
    if let Some(status) = number.and_then(|code| u16::try_from(code).ok()) {
        return status;
    }
    let word = |name: &str| error.get(name).and_then(Value::as_str);
    let kind = word("type")
        .filter(|kind| *kind != "error")
        .or(word("code"));
    match kind.or(word("code")).unwrap_or("") {
        "invalid_request_error" | "invalid_prompt" | "context_length_exceeded" => 400,
        "authentication_error" | "invalid_api_key" => 401,
        "billing_error" => 402,
        "permission_error" => 403,
        "not_found_error" | "model_not_found" => 404,
        "request_too_large" => 413,
        "rate_limit_error" | "rate_limit_exceeded" => 429,
        "overloaded_error" => 529,
        _ => 500,
    }
}

/// How long a server asks to wait, in milliseconds: seconds, a date, or OpenAI's own `retry-after-ms`.
pub(super) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<u64> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let number = |name: &str| -> Option<f64> {
        let value = text(name)?.parse().ok()?;
        (value >= 0.0).then_some(value)
    };
    let date = || -> Option<f64> {
        let date = httpdate::parse_http_date(text(RETRY_AFTER.as_str())?).ok()?;
        let wait = date.duration_since(now).unwrap_or(Duration::ZERO);
        Some(wait.as_secs_f64() * 1e3)
    };
    let milliseconds = number("retry-after-ms")
        .or_else(|| number(RETRY_AFTER.as_str()).map(|seconds| seconds * 1e3))
        .or_else(date)?;
    // Saturates; an absurd wait is judged by the retry policy.
    Some(milliseconds as u64)
}

/// How long a refusal's body asks to wait, in milliseconds, where no header says so: Gemini's endpoint writes
/// `"retryDelay": "34s"` among its details.
pub(super) fn retry_delay(body: &str) -> Option<u64> {
    let body: Value = serde_json::from_str(body).ok()?;
    let body = body.get(0).unwrap_or(&body);
    let details = body.pointer("/error/details")?.as_array()?;
    let delay = details
        .iter()
        .find_map(|detail| detail.get("retryDelay")?.as_str())?;
    let seconds: f64 = delay.strip_suffix('s')?.parse().ok()?;
    (seconds >= 0.0).then_some((seconds * 1e3) as u64)
}

/// A text in one line, not too long.
pub(super) fn excerpt(text: &str) -> String {
    const LONGEST: usize = 600;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None if line.is_empty() => "(nothing)".to_owned(),
        None => line,
    }
}

/// Whether a refusal, in lower case, is about the length of the prompt.
pub(super) fn is_too_long(lower: &str) -> bool {
    [
        "context_length_exceeded",
        "exceed_context_size",
        "context length",
        "context size",
        "context window",
        "context limit",
        "maximum context",
        "prompt is too long",
        "input is too long",
        "too many tokens",
        "request_too_large",
    ]
    .iter()
    .any(|sign| lower.contains(sign))
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_wait_is_seconds_milliseconds_or_a_date() {
        let now = httpdate::parse_http_date("Wed, 21 Oct 2026 07:28:00 GMT").expect("a date");
        for (name, value, wait) in [
            ("retry-after", "2", Some(2000)),
            ("retry-after", " 0.5 ", Some(500)),
            ("retry-after-ms", "250", Some(250)),
            ("retry-after", "Wed, 21 Oct 2026 07:28:30 GMT", Some(30_000)),
            ("retry-after", "Wed, 21 Oct 2026 07:27:00 GMT", Some(0)),
            ("retry-after", "1e300", Some(u64::MAX)),
            ("retry-after", "-1", None),
            ("retry-after", "NaN", None),
            ("retry-after", "soon", None),
            ("x", "2", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            assert_eq!(retry_after(&headers, now), wait, "{name}: {value}");
        }
    }

    #[test]
    fn a_wait_may_stand_in_the_body_alone() {
        let with = |delay: &str| {
            json!([{"error": {"code": 429, "details": [{"reason": "x"}, {"retryDelay": delay}]}}])
                .to_string()
        };
        for (body, wait) in [
            (with("34s"), Some(34_000)),
            (with("0.5s"), Some(500)),
            (with("-1s"), None),
            (with("NaNs"), None),
            (with("soon"), None),
            (r#"{"error": {"details": "none"}}"#.to_owned(), None),
            ("busy".to_owned(), None),
        ] {
            assert_eq!(retry_delay(&body), wait, "{body}");
        }
    }

    #[test]
    fn errors_inside_an_answer_have_a_status() {
        for (error, status) in [
            (
                json!({"error": {"type": "overloaded_error", "message": "x"}}),
                529,
            ),
            (
                json!({"type": "error", "error": {"type": "rate_limit_error"}}),
                429,
            ),
            (
                json!({"error": {"type": "error", "code": "context_length_exceeded"}}),
                400,
            ),
            (json!({"error": {"code": 502}}), 502),
            (json!({"error": {"code": "rate_limit_exceeded"}}), 429),
            (json!({"error": "no"}), 500),
            (json!({"error": {"code": 99_999_999}}), 500),
        ] {
            assert_eq!(status_of(&error), status, "{error}");
        }
    }
}
