//! Hard limits on what a model may cost. A call is counted before it starts, with the most it can use
//! held back until its bill is known; a call that fails counts too. What a server reports is believed
//! only where it is not less than the text it sent.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::record::{Recording, Started};
use super::{
    Chat, ChatError, ChatReply, ChatRequest, Dollars, Exchange, Outcome, Price, Tally, Usage,
};
use crate::units::counted;

/// What may be spent; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Attempts sent, failed ones included.
    pub calls: Option<u64>,
    /// Input plus output tokens.
    pub tokens: Option<u64>,
    /// Dollars, by the model's price.
    pub dollars: Option<Dollars>,
}

/// What has been spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spent {
    /// Attempts sent, failed and unfinished ones included.
    pub calls: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Tokens of finished calls, as billed.
    pub usage: Usage,
    /// Tokens charged in all: those billed, or estimated where a server reports too few or the call failed.
    pub tokens: u64,
    /// What they cost; absent where the model has no price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dollars: Option<Dollars>,
}

impl Spent {
    /// Adds another amount.
    pub fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.failed = self.failed.saturating_add(other.failed);
        self.usage.add(&other.usage);
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.dollars = match (self.dollars, other.dollars) {
            (Some(own), Some(more)) => Some(own.saturating_add(more)),
            (own, more) => own.or(more),
        };
    }
}

impl fmt::Display for Spent {
    /// `12 calls (1 failed), 340k tokens, $0.52`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&counted(self.calls, "call"))?;
        if self.failed > 0 {
            write!(f, " ({} failed)", self.failed)?;
        }
        match self.tokens {
            few if few < 10_000 => write!(f, ", {few} tokens")?,
            many if many < 10_000_000 => write!(f, ", {}k tokens", many / 1000)?,
            many => write!(f, ", {}M tokens", many / 1_000_000)?,
        }
        match self.dollars {
            Some(dollars) => write!(f, ", {dollars}"),
            None => Ok(()),
        }
    }
}

/// Counts calls, tokens and dollars of all clients that share it.
#[derive(Debug, Default)]
pub struct Budget {
    limits: Limits,
    price: Option<Price>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    spent: Spent,
    /// Tokens that calls in flight may still use, and what they may cost.
    held: u64,
    held_dollars: Dollars,
    /// Recordings of earlier sessions that are counted in what is spent.
    recalled: HashSet<PathBuf>,
}

impl Budget {
    /// Nothing spent yet. A limit in dollars needs the model's price.
    pub fn new(limits: Limits, price: Option<Price>) -> Result<Self, ChatError> {
        if let (Some(limit), None) = (limits.dollars, &price) {
            return Err(ChatError::Configuration {
                message: format!(
                    "a budget of {limit} needs the model's price, and no table names it: give its dollars for a \
                     million tokens in a file for --prices, or limit tokens or calls instead"
                ),
            });
        }
        Ok(Self {
            limits,
            price,
            state: Mutex::default(),
        })
    }

    /// The limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// What has been spent so far.
    pub fn spent(&self) -> Spent {
        self.lock().spent
    }

    /// Counts what earlier sessions recorded in this file: once, however often it is read. A call whose end nobody
    /// saw may have cost all it could.
    pub(super) fn recall(&self, file: &Path, recording: &Recording) {
        let lost = recording.unfinished.iter().map(|started| {
            let Started {
                prompt_bytes,
                max_output_tokens,
                ..
            } = *started;
            self.lost(&Hold::new(prompt_bytes, max_output_tokens, self.price))
        });
        let ended = recording.exchanges.iter().map(|(_, one)| self.bill(one));
        let mut state = self.lock();
        if state.recalled.insert(file.to_owned()) {
            lost.chain(ended).for_each(|bill| state.spent.add(&bill));
        }
    }

    /// What a recorded exchange cost.
    pub(super) fn bill(&self, exchange: &Exchange) -> Spent {
        let hold = Hold::of(&exchange.request, self.price);
        match &exchange.outcome {
            Outcome::Reply(reply) => self.charge(&hold, Ok(reply)),
            Outcome::Error(error) => self.charge(&hold, Err(error)),
        }
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
        let hold = Hold::of(request, self.price);
        if let Some(limit) = self.limits.tokens {
            let committed = spent.tokens.saturating_add(state.held);
            if committed.saturating_add(hold.tokens()) > limit {
                return Err(exhausted(format!(
                    "the model budget is spent: {committed} of {limit} tokens are used or held by calls in \
                     flight, and the next call may need {} (prompt {}, reply {})",
                    hold.tokens(),
                    hold.input,
                    hold.output
                )));
            }
        }
        if let Some(limit) = self.limits.dollars {
            let committed = spent
                .dollars
                .unwrap_or_default()
                .saturating_add(state.held_dollars);
            if committed.saturating_add(hold.dollars) > limit {
                return Err(exhausted(format!(
                    "the model budget is spent: {committed} of {limit} is used or held by calls in flight, and \
                     the next call may cost {}",
                    hold.dollars
                )));
            }
        }
        state.spent.calls = state.spent.calls.saturating_add(1);
        state.held = state.held.saturating_add(hold.tokens());
        state.held_dollars = state.held_dollars.saturating_add(hold.dollars);
        Ok(hold)
    }

    /// What the call cost.
    fn finish(&self, hold: &Hold, outcome: &Result<ChatReply, ChatError>) -> Spent {
        let bill = self.charge(hold, outcome.as_ref());
        let mut state = self.lock();
        state.held = state.held.saturating_sub(hold.tokens());
        state.held_dollars = state.held_dollars.saturating_sub(hold.dollars);
        // The call itself was counted when it started.
        state.spent.add(&Spent { calls: 0, ..bill });
        bill
    }

    fn charge(&self, hold: &Hold, outcome: Result<&ChatReply, &ChatError>) -> Spent {
        match outcome {
            Ok(reply) => {
                let billed = Usage {
                    input: reply.usage.input.max(tokens_at_least(hold.prompt_bytes)),
                    output: reply
                        .usage
                        .output
                        .max(tokens_at_least(reply.text.len() as u64)),
                    ..reply.usage
                };
                Spent {
                    calls: 1,
                    failed: 0,
                    usage: reply.usage,
                    tokens: billed.input.saturating_add(billed.output),
                    dollars: self.price.map(|price| price.of(&billed)),
                }
            }
            Err(ChatError::Transient {
                may_be_billed: true,
                ..
            }) => self.lost(hold),
            Err(
                ChatError::Transient { .. }
                | ChatError::Configuration { .. }
                | ChatError::Rejected { .. }
                | ChatError::TooLong { .. }
                | ChatError::Unreachable { .. }
                | ChatError::Exhausted { .. }
                | ChatError::Unrecorded { .. }
                | ChatError::Recording { .. },
            ) => Spent {
                calls: 1,
                failed: 1,
                dollars: self.price.map(|_| Dollars::ZERO),
                ..Spent::default()
            },
        }
    }

    /// A call that failed after the model may have worked on it.
    fn lost(&self, hold: &Hold) -> Spent {
        Spent {
            calls: 1,
            failed: 1,
            usage: Usage::default(),
            tokens: hold.tokens(),
            dollars: self.price.map(|_| hold.dollars),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // The numbers are consistent at every point where a panic could strike.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a call in flight may use at most.
struct Hold {
    prompt_bytes: u64,
    input: u64,
    output: u64,
    dollars: Dollars,
}

impl Hold {
    fn of(request: &ChatRequest, price: Option<Price>) -> Self {
        Self::new(request.bytes(), request.max_output_tokens, price)
    }

    fn new(prompt_bytes: u64, max_output_tokens: Option<u32>, price: Option<Price>) -> Self {
        let input = tokens_at_most(prompt_bytes);
        let output = u64::from(max_output_tokens.unwrap_or(UNSTATED_REPLY));
        Self {
            prompt_bytes,
            input,
            output,
            dollars: price.map_or(Dollars::ZERO, |price| price.at_most(input, output)),
        }
    }

    fn tokens(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
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
    fn complete(&self, request: &ChatRequest, tally: &mut Tally) -> Result<ChatReply, ChatError> {
        let hold = self.budget.start(request)?;
        let outcome = self.inner.complete(request, tally);
        tally.spent.add(&self.budget.finish(&hold, &outcome));
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
    use crate::llm::Prices;
    use crate::llm::testing::{question, reply};
    use crate::units::Digest;

    struct Answers(Result<ChatReply, ChatError>);

    impl Chat for Answers {
        fn complete(&self, _: &ChatRequest, _: &mut Tally) -> Result<ChatReply, ChatError> {
            self.0.clone()
        }

        fn model(&self) -> &str {
            "m"
        }
    }

    fn client(limits: Limits, answer: Result<ChatReply, ChatError>) -> (Budgeted, Arc<Budget>) {
        let budget = Arc::new(Budget::new(limits, None).expect("no dollars"));
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
            ..Limits::default()
        };
        let (chat, budget) = client(limits, Err(transient(false)));
        for _ in 0..2 {
            assert_eq!(
                chat.complete(&ask(10), &mut Tally::default()),
                Err(transient(false))
            );
        }
        let error = chat
            .complete(&ask(10), &mut Tally::default())
            .expect_err("spent");
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
        assert!(chat.complete(&ask(1000), &mut Tally::default()).is_err());
        assert!(budget.spent().tokens >= 1000);
    }

    #[test]
    fn a_call_that_could_overrun_is_not_started() {
        let limits = Limits {
            tokens: Some(1000),
            ..Limits::default()
        };
        let (chat, budget) = client(limits, Ok(reply("ok")));
        let error = chat
            .complete(&ask(1000), &mut Tally::default())
            .expect_err("prompt and reply exceed it");
        assert!(matches!(error, ChatError::Exhausted { .. }));
        assert_eq!(budget.spent().calls, 0);
        assert!(chat.complete(&ask(900), &mut Tally::default()).is_ok());
    }

    fn priced(limit: f64) -> Budget {
        let price = Prices::embedded().of("gpt-5").expect("in the table");
        let limits = Limits {
            dollars: Dollars::new(limit),
            ..Limits::default()
        };
        Budget::new(limits, Some(price)).expect("has a price")
    }

    fn of(budget: &Arc<Budget>, answer: Result<ChatReply, ChatError>) -> Budgeted {
        Budgeted::new(Box::new(Answers(answer)), Arc::clone(budget))
    }

    #[test]
    fn dollars_need_a_price_and_are_held_back_before_a_call() {
        let limits = Limits {
            dollars: Dollars::new(1.0),
            ..Limits::default()
        };
        let error = Budget::new(limits, None).expect_err("no price").to_string();
        assert!(error.contains("--prices"), "{error}");

        // 10 dollars a million: a reply of 1000 tokens may cost a cent
        let budget = Arc::new(priced(0.0105));
        let mut tally = Tally::default();
        let failing = of(&budget, Err(transient(true)));
        assert!(failing.complete(&ask(1000), &mut tally).is_err());
        let lost = tally.spent.dollars.expect("priced");
        assert!(
            lost >= Dollars::new(0.01).expect("a cent"),
            "a call that was lost costs all it could: {lost}"
        );
        assert_eq!(budget.spent().dollars, Some(lost));
        let answering = of(&budget, Ok(reply("ok")));
        let error = answering
            .complete(&ask(1000), &mut tally)
            .expect_err("spent")
            .to_string();
        assert!(
            error.contains("$0.01") && error.contains("may cost"),
            "{error}"
        );
        assert_eq!(tally.spent.calls, 1, "nothing was sent");
    }

    #[test]
    fn an_earlier_session_s_calls_count_those_cut_off_too() {
        let budget = priced(1.0);
        let mut recording = Recording::default();
        recording.unfinished.push(Started {
            hash: Digest::of(b"q"),
            prompt_bytes: 2000,
            max_output_tokens: Some(1000),
        });
        for _ in 0..2 {
            budget.recall(Path::new("a"), &recording);
        }
        let spent = budget.spent();
        assert_eq!((spent.calls, spent.failed, spent.tokens), (1, 1, 2000));
        budget.recall(Path::new("b"), &recording);
        assert_eq!(budget.spent().calls, 2, "another recording");
        assert!(spent.dollars.is_some_and(|dollars| dollars > Dollars::ZERO));
    }

    proptest::proptest! {
        /// Whatever a server says of its usage: no call starts that could overrun the budget, and what is
        /// spent never shrinks.
        #[test]
        fn no_usage_breaks_a_budget(
            usages in proptest::collection::vec((proptest::prelude::any::<u64>(), proptest::prelude::any::<u64>(), proptest::prelude::any::<u64>(), 0_u32..40, 0_u32..40), 1..20),
            most in 1_u32..5000,
        ) {
            let budget = Arc::new(priced(0.05));
            let limit = budget.limits().dollars.expect("a limit");
            let mut before = Spent::default();
            for (input, cached, output, shrink_input, shrink_output) in usages {
                let mut said = reply("ok");
                said.usage = Usage {
                    input: input.checked_shr(shrink_input).unwrap_or(0),
                    cached,
                    cache_written: cached,
                    output: output.checked_shr(shrink_output).unwrap_or(0),
                    reasoning: output,
                };
                let held = Hold::of(&ask(most), budget.price).dollars;
                let committed = budget.spent().dollars.unwrap_or_default();
                let outcome = of(&budget, Ok(said)).complete(&ask(most), &mut Tally::default());
                assert_eq!(outcome.is_ok(), committed.saturating_add(held) <= limit);
                let spent = budget.spent();
                assert!(spent.tokens >= before.tokens && spent.dollars >= before.dollars);
                assert_eq!(spent.calls, before.calls + u64::from(outcome.is_ok()));
                before = spent;
            }
            let state = budget.lock();
            assert_eq!((state.held, state.held_dollars), (0, Dollars::ZERO));
        }
    }

    #[test]
    fn adversarial_usage_neither_overflows_nor_comes_for_free() {
        let mut lavish = reply("ok");
        lavish.usage.output = u64::MAX;
        lavish.usage.input = u64::MAX;
        let limits = Limits {
            tokens: Some(5000),
            ..Limits::default()
        };
        let (chat, budget) = client(limits, Ok(lavish));
        assert!(chat.complete(&ask(10), &mut Tally::default()).is_ok());
        assert_eq!(budget.spent().tokens, u64::MAX);
        assert!(chat.complete(&ask(10), &mut Tally::default()).is_err());

        let silent = ChatReply {
            usage: Usage::default(),
            ..reply(&"x".repeat(8000))
        };
        let (chat, budget) = client(Limits::default(), Ok(silent));
        assert!(chat.complete(&ask(10), &mut Tally::default()).is_ok());
        assert!(budget.spent().tokens >= 1000);
    }
}
