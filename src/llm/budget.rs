//! Hard limits on what a model may cost. A call is counted before it starts, with the most it can use
//! held back until its bill is known; a call that fails counts too. What a server reports is believed
//! only where it is not less than the text it sent.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Chat, ChatError, ChatReply, ChatRequest, Usage};

/// What may be spent; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Attempts sent, failed ones included.
    pub calls: Option<u64>,
    /// Input plus output tokens.
    pub tokens: Option<u64>,
}

/// What has been spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Attempts sent, failed and unfinished ones included.
    pub calls: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Tokens of finished calls, as billed.
    pub usage: Usage,
    /// Tokens charged in all: those billed, or estimated where a server reports too few or the call failed.
    pub tokens: u64,
}

/// Counts calls and tokens of all clients that share it.
#[derive(Debug)]
pub struct Budget {
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    spent: Spent,
    /// Tokens that calls in flight may still use.
    held: u64,
}

impl Budget {
    /// Nothing spent yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: Mutex::default(),
        }
    }

    /// The limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// What has been spent so far.
    pub fn spent(&self) -> Spent {
        self.lock().spent
    }

    fn start(&self, request: &ChatRequest) -> Result<Hold, ChatError> {
        let exhausted = |message: String| ChatError::Exhausted { message };
        let mut state = self.lock();
        let spent = state.spent;
        if let Some(limit) = self.limits.calls.filter(|limit| spent.calls >= *limit) {
            return Err(exhausted(format!(
                "the model budget is spent: {} of {limit} calls",
                spent.calls
            )));
        }
        let prompt_bytes = request.bytes();
        let input = tokens_at_most(prompt_bytes);
        let output = u64::from(request.max_output_tokens.unwrap_or(UNSTATED_REPLY));
        let most = input.saturating_add(output);
        if let Some(limit) = self.limits.tokens {
            let committed = spent.tokens.saturating_add(state.held);
            if committed.saturating_add(most) > limit {
                return Err(exhausted(format!(
                    "the model budget is spent: {committed} of {limit} tokens are used or held by calls in \
                     flight, and the next call may need {most} (prompt {input}, reply {output})"
                )));
            }
        }
        state.spent.calls += 1;
        state.held = state.held.saturating_add(most);
        Ok(Hold { prompt_bytes, most })
    }

    fn finish(&self, hold: &Hold, outcome: &Result<ChatReply, ChatError>) {
        let mut state = self.lock();
        state.held = state.held.saturating_sub(hold.most);
        let charged = match outcome {
            Ok(reply) => {
                let usage = reply.usage;
                let total = &mut state.spent.usage;
                total.input = total.input.saturating_add(usage.input);
                total.cached = total.cached.saturating_add(usage.cached);
                total.output = total.output.saturating_add(usage.output);
                total.reasoning = total.reasoning.saturating_add(usage.reasoning);
                let input = usage.input.max(tokens_at_least(hold.prompt_bytes));
                let output = usage.output.max(tokens_at_least(reply.text.len() as u64));
                input.saturating_add(output)
            }
            Err(error) => {
                state.spent.failed += 1;
                match error {
                    ChatError::Transient {
                        may_be_billed: true,
                        ..
                    } => hold.most,
                    ChatError::Transient { .. }
                    | ChatError::Configuration { .. }
                    | ChatError::Rejected { .. }
                    | ChatError::TooLong { .. }
                    | ChatError::Unreachable { .. }
                    | ChatError::Exhausted { .. }
                    | ChatError::Unrecorded { .. }
                    | ChatError::Recording { .. } => 0,
                }
            }
        };
        state.spent.tokens = state.spent.tokens.saturating_add(charged);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // The numbers are consistent at every point where a panic could strike.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a call in flight may use at most.
struct Hold {
    prompt_bytes: u64,
    most: u64,
}

pub(super) struct Budgeted {
    inner: Box<dyn Chat>,
    budget: Arc<Budget>,
}

impl Budgeted {
    pub(super) fn new(inner: Box<dyn Chat>, budget: Arc<Budget>) -> Self {
        Self { inner, budget }
    }
}

impl Chat for Budgeted {
    fn complete(&self, request: &ChatRequest) -> Result<ChatReply, ChatError> {
        let hold = self.budget.start(request)?;
        let outcome = self.inner.complete(request);
        self.budget.finish(&hold, &outcome);
        outcome
    }

    fn model(&self) -> &str {
        self.inner.model()
    }
}

/// Held back for a reply whose length the request does not bound.
const UNSTATED_REPLY: u32 = 32_768;
/// PTX is dense: tokenizers were seen to need a token for every two to four bytes of it.
const BYTES_PER_TOKEN_LOW: u64 = 2;
const BYTES_PER_TOKEN_HIGH: u64 = 8;

fn tokens_at_most(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN_LOW)
}

fn tokens_at_least(bytes: u64) -> u64 {
    bytes / BYTES_PER_TOKEN_HIGH
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::testing::{question, reply};

    struct Answers(Result<ChatReply, ChatError>);

    impl Chat for Answers {
        fn complete(&self, _: &ChatRequest) -> Result<ChatReply, ChatError> {
            self.0.clone()
        }

        fn model(&self) -> &str {
            "m"
        }
    }

    fn client(limits: Limits, answer: Result<ChatReply, ChatError>) -> (Budgeted, Arc<Budget>) {
        let budget = Arc::new(Budget::new(limits));
        let chat = Budgeted::new(Box::new(Answers(answer)), Arc::clone(&budget));
        (chat, budget)
    }

    fn transient(may_be_billed: bool) -> ChatError {
        ChatError::Transient {
            message: "time-out".to_owned(),
            retry_after_ms: None,
            may_be_billed,
        }
    }

    fn ask(tokens: u32) -> ChatRequest {
        ChatRequest {
            max_output_tokens: Some(tokens),
            ..question("q")
        }
    }

    #[test]
    fn failed_calls_count() {
        let limits = Limits {
            calls: Some(2),
            tokens: None,
        };
        let (chat, budget) = client(limits, Err(transient(false)));
        for _ in 0..2 {
            assert_eq!(chat.complete(&ask(10)), Err(transient(false)));
        }
        let error = chat.complete(&ask(10)).expect_err("spent");
        assert!(error.to_string().contains("2 of 2 calls"), "{error}");
        assert_eq!((budget.spent().calls, budget.spent().failed), (2, 2));
        assert_eq!(
            budget.spent().tokens,
            0,
            "a refused connection bills no tokens"
        );
    }

    #[test]
    fn a_time_out_is_charged_in_full() {
        let (chat, budget) = client(Limits::default(), Err(transient(true)));
        assert!(chat.complete(&ask(1000)).is_err());
        assert!(budget.spent().tokens >= 1000);
    }

    #[test]
    fn a_call_that_could_overrun_is_not_started() {
        let limits = Limits {
            calls: None,
            tokens: Some(1000),
        };
        let (chat, budget) = client(limits, Ok(reply("ok")));
        let error = chat
            .complete(&ask(1000))
            .expect_err("prompt and reply exceed it");
        assert!(matches!(error, ChatError::Exhausted { .. }));
        assert_eq!(budget.spent().calls, 0);
        assert!(chat.complete(&ask(900)).is_ok());
    }

    #[test]
    fn adversarial_usage_neither_overflows_nor_comes_for_free() {
        let mut lavish = reply("ok");
        lavish.usage.output = u64::MAX;
        lavish.usage.input = u64::MAX;
        let limits = Limits {
            calls: None,
            tokens: Some(5000),
        };
        let (chat, budget) = client(limits, Ok(lavish));
        assert!(chat.complete(&ask(10)).is_ok());
        assert_eq!(budget.spent().tokens, u64::MAX);
        assert!(chat.complete(&ask(10)).is_err());

        let silent = ChatReply {
            usage: Usage::default(),
            ..reply(&"x".repeat(8000))
        };
        let (chat, budget) = client(Limits::default(), Ok(silent));
        assert!(chat.complete(&ask(10)).is_ok());
        assert!(budget.spent().tokens >= 1000);
    }
}
