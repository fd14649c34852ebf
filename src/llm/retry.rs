//! Repeats attempts that failed in passing, waiting longer each time, as long as the server asks and no
//! longer than the policy allows. It never repeats a refusal, and never without end.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

use super::{Chat, ChatError, ChatReply, ChatRequest, Tally};

/// How failed attempts are repeated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Attempts in all, the first included.
    pub attempts: u32,
    /// First wait; doubled each time, with jitter.
    pub min_delay: Duration,
    /// Longest single wait, also when the server asks for a longer one.
    pub max_delay: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 5,
            min_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(60),
        }
    }
}

impl RetryPolicy {
    /// A single attempt: for whoever is waited for long enough.
    pub fn once(self) -> Self {
        Self {
            attempts: 1,
            ..self
        }
    }

    /// The same attempts with no time between them: for answers that come from a file.
    pub fn without_waiting(self) -> Self {
        Self {
            min_delay: Duration::ZERO,
            max_delay: Duration::ZERO,
            ..self
        }
    }
}

pub(super) struct Retrying {
    inner: Box<dyn Chat>,
    policy: RetryPolicy,
    /// How the last call failed, until one succeeds: failures that used a budget up are the cause, not its end.
    failed: Mutex<Option<String>>,
}

impl Retrying {
    pub(super) fn new(inner: Box<dyn Chat>, policy: RetryPolicy) -> Self {
        Self {
            inner,
            policy,
            failed: Mutex::default(),
        }
    }

    /// One call; a spent budget tells how the call before it failed.
    fn ask(&self, request: &ChatRequest, tally: &mut Tally) -> Result<ChatReply, ChatError> {
        let answer = self.inner.complete(request, tally);
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        match answer {
            Err(ChatError::Exhausted { message }) => Err(ChatError::Exhausted {
                message: match &*failed {
                    Some(failed) => format!("{message}; the last call failed: {failed}"),
                    None => message,
                },
            }),
            answer => {
                *failed = answer.as_ref().err().map(ToString::to_string);
                answer
            }
        }
    }
}

impl Chat for Retrying {
    fn complete(&self, request: &ChatRequest, tally: &mut Tally) -> Result<ChatReply, ChatError> {
        let mut delays = ExponentialBuilder::new()
            .with_jitter()
            .with_min_delay(self.policy.min_delay)
            .with_max_delay(self.policy.max_delay)
            .without_max_times()
            .build();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let (message, asked) = match self.ask(request, tally) {
                Err(ChatError::Transient {
                    message,
                    retry_after_ms,
                    may_be_billed: _,
                }) => (message, retry_after_ms.map(Duration::from_millis)),
                done => return done,
            };
            if attempts >= self.policy.attempts.max(1) {
                return Err(ChatError::Unreachable { attempts, message });
            }
            let own = delays.next().unwrap_or(self.policy.max_delay);
            let wait = match asked {
                // Jitter on top, so that callers told to wait equally long do not return as one.
                Some(asked) if asked <= self.policy.max_delay => asked + own / 4,
                Some(asked) if self.policy.max_delay > Duration::ZERO => {
                    let message = format!(
                        "{message} (the server asks to wait {} s, more than the {} s allowed)",
                        asked.as_secs(),
                        self.policy.max_delay.as_secs()
                    );
                    return Err(ChatError::Unreachable { attempts, message });
                }
                Some(_) | None => own,
            };
            std::thread::sleep(wait.min(self.policy.max_delay));
        }
    }

    fn model(&self) -> &str {
        self.inner.model()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::llm::testing::{question, reply};

    struct Fails {
        left: Mutex<Vec<ChatError>>,
    }

    impl Chat for Fails {
        fn complete(&self, _: &ChatRequest, _: &mut Tally) -> Result<ChatReply, ChatError> {
            match self.left.lock().expect("not poisoned").pop() {
                Some(error) => Err(error),
                None => Ok(reply("fine")),
            }
        }

        fn model(&self) -> &str {
            "m"
        }
    }

    fn busy(retry_after_ms: Option<u64>) -> ChatError {
        ChatError::Transient {
            message: "busy".to_owned(),
            retry_after_ms,
            may_be_billed: false,
        }
    }

    fn retrying(errors: Vec<ChatError>, attempts: u32) -> Retrying {
        let policy = RetryPolicy {
            attempts,
            min_delay: Duration::from_millis(1),
            max_delay: Duration::from_millis(40),
        };
        let inner = Fails {
            left: Mutex::new(errors),
        };
        Retrying::new(Box::new(inner), policy)
    }

    fn after(errors: Vec<ChatError>, attempts: u32) -> Result<ChatReply, ChatError> {
        retrying(errors, attempts).complete(&question("q"), &mut Tally::default())
    }

    #[test]
    fn a_passing_failure_is_repeated_and_a_lasting_one_given_up() {
        assert!(after(vec![busy(None), busy(None)], 3).is_ok());
        assert_eq!(
            after(vec![busy(None), busy(None), busy(None)], 3),
            Err(ChatError::Unreachable {
                attempts: 3,
                message: "busy".to_owned()
            })
        );
    }

    #[test]
    fn what_used_the_budget_up_is_told() {
        let spent = |message: &str| ChatError::Exhausted {
            message: message.to_owned(),
        };
        assert_eq!(
            after(vec![spent("spent"), busy(None)], 3),
            Err(spent("spent; the last call failed: busy"))
        );
        assert_eq!(after(vec![spent("spent")], 3), Err(spent("spent")));
        let given_up = retrying(vec![spent("spent"), busy(None)], 1);
        let ask = || given_up.complete(&question("q"), &mut Tally::default());
        assert!(matches!(ask(), Err(ChatError::Unreachable { .. })));
        let told = spent("spent; the last call failed: busy");
        assert_eq!(ask(), Err(told), "the next question tells it too");
    }

    #[test]
    fn the_server_s_wait_is_kept_up_to_the_limit() {
        let start = Instant::now();
        assert!(after(vec![busy(Some(30))], 2).is_ok());
        assert!(start.elapsed() >= Duration::from_millis(30));

        let error = after(vec![busy(Some(3_600_000))], 9).expect_err("an hour is too long");
        assert!(error.to_string().contains("asks to wait 3600 s"), "{error}");
    }

    #[test]
    fn a_refusal_is_final() {
        let refusal = ChatError::Rejected {
            status: 401,
            message: "no".to_owned(),
        };
        assert_eq!(after(vec![refusal.clone()], 5), Err(refusal));
    }
}
