//! Keeps to a vendor's rate limits by waiting before a call: requests a minute, tokens a minute. It never
//! refuses, and counts what a reply took once it is known.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

use super::{Chat, ChatError, ChatReply, ChatRequest, Tally};

/// What a minute allows; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Requests.
    pub requests: Option<NonZeroU32>,
    /// Tokens, input and output together.
    pub tokens: Option<NonZeroU32>,
}

pub(super) struct Throttled {
    inner: Box<dyn Chat>,
    requests: Option<DefaultDirectRateLimiter>,
    tokens: Option<(DefaultDirectRateLimiter, NonZeroU32)>,
    /// Tokens that replies took and that nobody waited for yet.
    owed: AtomicU64,
}

/// PTX is dense: about as many tokens as this many bytes.
const BYTES_PER_TOKEN: u64 = 3;

impl Throttled {
    pub(super) fn new(inner: Box<dyn Chat>, rates: Rates) -> Self {
        let limiter = |rate| RateLimiter::direct(Quota::per_minute(rate));
        Self {
            inner,
            requests: rates.requests.map(limiter),
            tokens: rates.tokens.map(|rate| (limiter(rate), rate)),
            owed: AtomicU64::new(0),
        }
    }

    fn wait(&self, request: &ChatRequest) {
        let clock = DefaultClock::default();
        if let Some(limiter) = &self.requests {
            while let Err(not_until) = limiter.check() {
                thread::sleep(not_until.wait_time_from(clock.now()));
            }
        }
        if let Some((limiter, most)) = &self.tokens {
            let owed = self.owed.swap(0, Ordering::Relaxed);
            let mut left = owed.saturating_add(request.bytes() / BYTES_PER_TOKEN);
            // A minute's worth at most at a time: more than that is never free at once.
            while let Some(part) = u32::try_from(left.min(u64::from(most.get())))
                .ok()
                .and_then(NonZeroU32::new)
            {
                match limiter.check_n(part) {
                    Ok(Ok(())) => left -= u64::from(part.get()),
                    Ok(Err(not_until)) => thread::sleep(not_until.wait_time_from(clock.now())),
                    // Only a part above a minute's worth has no room.
                    Err(_) => return,
                }
            }
        }
    }
}

impl Chat for Throttled {
    fn complete(&self, request: &ChatRequest, tally: &mut Tally) -> Result<ChatReply, ChatError> {
        self.wait(request);
        let result = self.inner.complete(request, tally);
        if let (Some((_, most)), Ok(reply)) = (&self.tokens, &result) {
            // An absurd count holds nobody up for longer than ten minutes.
            let output = reply.usage.output.min(10 * u64::from(most.get()));
            self.owed.fetch_add(output, Ordering::Relaxed);
        }
        result
    }

    fn model(&self) -> &str {
        self.inner.model()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::llm::testing::{question, reply};

    struct Answers;

    impl Chat for Answers {
        fn complete(&self, _: &ChatRequest, _: &mut Tally) -> Result<ChatReply, ChatError> {
            let mut reply = reply("x");
            reply.usage.output = 300;
            Ok(reply)
        }

        fn model(&self) -> &str {
            "m"
        }
    }

    fn time(rates: Rates, calls: usize) -> Duration {
        let chat = Throttled::new(Box::new(Answers), rates);
        let start = Instant::now();
        for _ in 0..calls {
            assert!(chat.complete(&question("q"), &mut Tally::default()).is_ok());
        }
        start.elapsed()
    }

    #[test]
    fn calls_wait_for_their_turn_and_for_the_tokens_of_those_before() {
        let some = NonZeroU32::new;
        assert!(time(Rates::default(), 20) < Duration::from_millis(200));
        // 300 a minute: the burst is free, then one each 200 ms
        let requests = Rates {
            requests: some(300),
            tokens: None,
        };
        assert!(time(requests, 300) < Duration::from_secs(1));
        assert!(time(requests, 302) >= Duration::from_millis(200));
        // 1,000 tokens a second: 200 replies are the burst, two more wait for what the ones before took
        let tokens = Rates {
            requests: None,
            tokens: some(60_000),
        };
        assert!(time(tokens, 200) < Duration::from_secs(2));
        assert!(time(tokens, 203) >= Duration::from_millis(300));
    }
}
