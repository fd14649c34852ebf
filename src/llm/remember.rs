//! Pays for nothing twice: a run that was killed between a reply and its use finds the reply in its own
//! recording. Each recorded reply is given out once; a question that was never answered goes on to the model.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::record::{Outcome, Recording, request_hash};
use super::{Budget, Chat, ChatError, ChatReply, ChatRequest, Exchange, Tally};
use crate::units::Digest;

pub(super) struct Remembering {
    inner: Box<dyn Chat>,
    budget: Arc<Budget>,
    replies: Mutex<HashMap<Digest, VecDeque<Exchange>>>,
}

impl Remembering {
    /// `earlier` was recorded in `file` by earlier sessions of the same run; `budget` gets to know what it cost.
    pub(super) fn new(
        inner: Box<dyn Chat>,
        budget: Arc<Budget>,
        file: &Path,
        earlier: Recording,
    ) -> Self {
        let mut replies: HashMap<Digest, VecDeque<Exchange>> = HashMap::new();
        budget.recall(file, &earlier);
        for (_, exchange) in earlier.exchanges {
            match exchange.outcome {
                Outcome::Reply(_) => replies
                    .entry(exchange.hash)
                    .or_default()
                    .push_back(exchange),
                Outcome::Error(_) => {}
            }
        }
        Self {
            inner,
            budget,
            replies: Mutex::new(replies),
        }
    }

    fn recorded(&self, hash: Digest) -> Option<Exchange> {
        let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        replies.get_mut(&hash)?.pop_front()
    }
}

impl Chat for Remembering {
    fn complete(&self, request: &ChatRequest, tally: &mut Tally) -> Result<ChatReply, ChatError> {
        let hash = request_hash(self.model(), request)?;
        let Some(exchange) = self.recorded(hash) else {
            return self.inner.complete(request, tally);
        };
        // The budget knows of it already; whoever asked does not.
        tally.spent.add(&self.budget.bill(&exchange));
        tally.exchanges.push(hash);
        match exchange.outcome {
            Outcome::Reply(reply) => Ok(reply),
            Outcome::Error(error) => Err(error),
        }
    }

    fn model(&self) -> &str {
        self.inner.model()
    }
}
