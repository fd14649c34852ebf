//! How long a reply a server allows, read from the sentence with which it refuses a longer one. Every server has
//! its own sentence; what is not understood is no limit.

use crate::llm::refusal::is_too_long;

/// A shorter reply holds no edit.
const LEAST: u64 = 1024;

/// What a refusal, in lower case, allows in place of `asked` tokens; less than that, or `None`.
pub(super) fn reply(lower: &str, asked: u32) -> Option<u32> {
    let allowed = match room(lower) {
        // An eighth is left to prompts that will be longer.
        Some(room) => Some(room - room / 8),
        None if says(lower, &NAMES) && !says(lower, &UNKNOWN) && !is_too_long(lower) => {
            numbers(lower)
                .filter(|number| *number < u64::from(asked))
                .max()
        }
        None => None,
    };
    let allowed = allowed.filter(|allowed| *allowed >= LEAST)?;
    u32::try_from(allowed)
        .ok()
        .filter(|allowed| *allowed < asked)
}

/// What a reply's length is called.
const NAMES: [&str; 5] = [
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "completion tokens",
    "output tokens",
];

/// Then it is not the length that is refused.
const UNKNOWN: [&str; 4] = [
    "supported parameter",
    "not supported",
    "unrecognized",
    "extra inputs",
];

/// What stands behind the number of the prompt's tokens.
const PROMPT: [&str; 5] = [
    " in the messages",
    " in your prompt",
    " in the prompt",
    " of text input",
    " input tokens",
];

/// Tokens that the prompt leaves in the context, where both are told.
fn room(lower: &str) -> Option<u64> {
    // 197202 + 21333 > 200000
    if let Some((_, told)) = lower.split_once("exceed context limit") {
        let told: Vec<u64> = numbers(told).take(3).collect();
        let [prompt, _, context] = told[..] else {
            return None;
        };
        return context.checked_sub(prompt);
    }
    let (_, behind) = lower.split_once("context length")?;
    let context = numbers(behind).next()?;
    let prompt = PROMPT.iter().find_map(|words| {
        let (before, _) = lower.split_once(words)?;
        let digits = before.len() - before.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        before[before.len() - digits..].parse().ok()
    });
    context.checked_sub(prompt?)
}

fn says(lower: &str, words: &[&str]) -> bool {
    words.iter().any(|word| lower.contains(word))
}

/// The whole numbers in a text.
fn numbers(text: &str) -> impl Iterator<Item = u64> {
    text.split(|c: char| !c.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_s_sentence_is_understood() {
        for (refusal, allowed) in [
            (
                "max_tokens: 32768 > 8192, which is the maximum allowed number of output tokens for claude-3-5-haiku-20241022",
                Some(8192),
            ),
            (
                "max_tokens is too large: 32768. this model supports at most 16384 completion tokens, whereas you provided 32768.",
                Some(16_384),
            ),
            (
                "invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
                Some(8192),
            ),
            (
                "<400> internalerror.algo.invalidparameter: range of max_tokens should be [1, 8192]",
                Some(8192),
            ),
            (
                "`max_completion_tokens` must be less than or equal to `8192`, the maximum value for this model is `8192`",
                Some(8192),
            ),
            (
                "the parameter max_tokens specified in the request is not valid: integer above maximum value, expected a value <= 12288, but got 32768 instead. request id: 0217",
                Some(12_288),
            ),
            (
                "this model's maximum context length is 16384 tokens. however, you requested 33768 tokens (1000 in the messages, 32768 in the completion). please reduce the length of the messages or completion.",
                Some(13_461),
            ),
            (
                "'max_tokens' or 'max_completion_tokens' is too large: 32768. this model's maximum context length is 32768 tokens and your request has 12768 input tokens (32768 > 32768 - 12768).",
                Some(17_500),
            ),
            (
                "this endpoint's maximum context length is 32768 tokens. however, you requested about 40768 tokens (8000 of text input, 32768 in the output).",
                Some(21_672),
            ),
            (
                "input length and `max_tokens` exceed context limit: 180000 + 32768 > 200000, decrease input length or `max_tokens` and try again",
                Some(17_500),
            ),
            // It is the prompt that is too long.
            (
                "this model's maximum context length is 4096 tokens. however, you requested 36868 tokens (4100 in the messages, 32768 in the completion).",
                None,
            ),
            ("this model's maximum context length is 4096 tokens.", None),
            (
                "max_tokens: the context window of 8192 tokens is exceeded",
                None,
            ),
            ("prompt is too long: 208310 tokens > 200000 maximum", None),
            // Nothing is told, or nothing that makes sense.
            (
                "unsupported parameter: 'max_tokens' is not supported with gpt-4o-2024-08-06.",
                None,
            ),
            ("max_tokens must be at most 64", None),
            ("max_tokens must be at most 99999999999999999999999", None),
            ("exceed context limit: 1", None),
            ("", None),
        ] {
            assert_eq!(reply(refusal, 32_768), allowed, "{refusal}");
        }
    }

    proptest::proptest! {
        #[test]
        fn each_limit_is_lower_than_the_one_before(text in ".*max_tokens.*[0-9]{1,6}.*", asked in 0_u32..100_000) {
            proptest::prop_assert!(reply(&text, asked).is_none_or(|allowed| allowed < asked));
        }
    }
}
