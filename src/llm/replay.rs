//! Answers from a recording: no network, no key, no time. The n-th time a request is made it gets the n-th
//! recorded answer; a request that was never recorded is an error, never a guess.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::record::{Exchange, Outcome, file_of, read, request_hash};
use super::{Chat, ChatError, ChatReply, ChatRequest, Tally};
use crate::units::Digest;

pub(super) struct Replay {
    path: PathBuf,
    model: String,
    /// By hash, in order of occurrence.
    answers: HashMap<Digest, Vec<Outcome>>,
    /// With their lines, to name the nearest.
    exchanges: Vec<(usize, Exchange)>,
    served: Mutex<HashMap<Digest, usize>>,
}

impl Replay {
    pub(super) fn load(path: &Path) -> Result<Self, ChatError> {
        let path = file_of(path);
        let fault = |message: String| ChatError::Recording {
            message: format!("{}: {message}", path.display()),
        };
        let exchanges = read(&path)?.exchanges;
        let Some((_, first)) = exchanges.first() else {
            return Err(fault("it holds no exchange to replay".to_owned()));
        };
        let model = first.model.clone();
        let mut answers: HashMap<Digest, Vec<Outcome>> = HashMap::new();
        for (line, exchange) in &exchanges {
            if exchange.model != model {
                return Err(fault(format!(
                    "line {line} is from model `{}`, the lines before from `{model}`; replay one model at a time",
                    exchange.model
                )));
            }
            if request_hash(&model, &exchange.request)? != exchange.hash {
                return Err(fault(format!(
                    "line {line}: its hash is not that of its request; was it edited by hand?"
                )));
            }
            let outcome = exchange.outcome.clone();
            answers.entry(exchange.hash).or_default().push(outcome);
        }
        Ok(Self {
            path,
            model,
            answers,
            exchanges,
            served: Mutex::default(),
        })
    }

    fn unrecorded(&self, hash: Digest, request: &ChatRequest) -> ChatError {
        let asked = flat(request);
        let nearest = self
            .exchanges
            .iter()
            .map(|(line, exchange)| (*line, flat(&exchange.request), exchange.hash))
            .max_by_key(|(_, text, _)| common_prefix(text, &asked));
        let near = match nearest {
            None => String::new(),
            Some((line, text, near)) => {
                let at = common_prefix(&text, &asked);
                let tail = |text: &str| -> String { text[at..].chars().take(60).collect() };
                let parameters = if text == asked {
                    "; the texts are equal, so model parameters or the sample number differ"
                        .to_owned()
                } else {
                    format!(
                        "; recorded {:?}, asked {:?} (from byte {at} on)",
                        tail(&text),
                        tail(&asked)
                    )
                };
                format!(
                    "; the nearest is {} on line {line}{parameters}",
                    near.short()
                )
            }
        };
        ChatError::Unrecorded {
            message: format!(
                "{} holds no request {}{near}",
                self.path.display(),
                hash.short()
            ),
        }
    }
}

impl Chat for Replay {
    fn complete(&self, request: &ChatRequest, tally: &mut Tally) -> Result<ChatReply, ChatError> {
        let hash = request_hash(&self.model, request)?;
        let Some(answers) = self.answers.get(&hash) else {
            return Err(self.unrecorded(hash, request));
        };
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = served.entry(hash).or_insert(0);
        match answers.get(*turn) {
            Some(outcome) => {
                *turn += 1;
                tally.exchanges.push(hash);
                match outcome.clone() {
                    Outcome::Reply(reply) => Ok(reply),
                    Outcome::Error(error) => Err(error),
                }
            }
            None => Err(ChatError::Unrecorded {
                message: format!(
                    "{}: request {} was recorded {} times and is asked once more",
                    self.path.display(),
                    hash.short(),
                    answers.len()
                ),
            }),
        }
    }

    fn model(&self) -> &str {
        &self.model
    }
}

/// The conversation as one text, to compare.
fn flat(request: &ChatRequest) -> String {
    let mut text = request.system.clone();
    for message in &request.messages {
        text.push('\n');
        text.push_str(&message.text);
    }
    text
}

/// Bytes that both begin with, at a character boundary.
fn common_prefix(a: &str, b: &str) -> usize {
    a.char_indices()
        .zip(b.chars())
        .find(|((_, x), y)| x != y)
        .map_or(a.len().min(b.len()), |((at, _), _)| at)
}

#[cfg(test)]
mod tests {
    use super::common_prefix;

    #[test]
    fn a_common_prefix_ends_at_a_character() {
        assert_eq!(common_prefix("aé1", "aé2"), 3);
        assert_eq!(common_prefix("aé", "aè"), 1);
        assert_eq!(common_prefix("ab", "abc"), 2);
        assert_eq!(common_prefix("", "abc"), 0);
    }
}
