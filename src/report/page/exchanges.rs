//! A model's exchanges as a page shows them: which of them led to what, and their texts, each once.

use std::collections::{HashMap, VecDeque};

use serde::Serialize;

use crate::llm::{Exchange, Outcome, Speaker};
use crate::store::Event;
use crate::units::Digest;

/// Bytes of prompts and replies that go into a page whole; where there are more, each text is cut to
/// [`CUT_TEXT`], and says so.
const WHOLE_TEXTS: usize = 12 << 20;
const CUT_TEXT: usize = 6 << 10;

/// One attempt to get an answer.
#[derive(Debug, Serialize)]
pub(super) struct ExchangeFacts {
    model: String,
    /// Who speaks, and which text.
    said: Vec<(&'static str, usize)>,
    /// Why there is no reply.
    error: Option<String>,
    input_tokens: u64,
    output_tokens: u64,
    took_ms: u64,
}

/// Which exchanges stand behind which event. An exchange is named by its hash; where one request was sent
/// more than once, its exchanges are handed out in the order recorded.
pub(super) struct Asked {
    places: HashMap<Digest, VecDeque<usize>>,
}

impl Asked {
    pub(super) fn new(exchanges: &[Exchange]) -> Self {
        let mut places: HashMap<Digest, VecDeque<usize>> = HashMap::new();
        for (nth, exchange) in exchanges.iter().enumerate() {
            places.entry(exchange.hash).or_default().push_back(nth);
        }
        Self { places }
    }

    /// The exchanges behind an event, by their place in the recording.
    pub(super) fn behind(&mut self, event: &Event) -> Vec<usize> {
        let hashes = event.asked().map(|asked| &*asked.exchanges);
        hashes
            .unwrap_or_default()
            .iter()
            .filter_map(|hash| self.places.get_mut(hash)?.pop_front())
            .collect()
    }
}

/// All exchanges, and the texts they point to.
pub(super) fn told(exchanges: &[Exchange]) -> (Vec<ExchangeFacts>, Vec<String>) {
    let mut texts = Texts::default();
    let facts = exchanges
        .iter()
        .map(|exchange| {
            let request = &exchange.request;
            let mut said = vec![("system", texts.place(&request.system))];
            said.extend(request.messages.iter().map(|message| {
                let speaker = match message.speaker {
                    Speaker::User => "prompt",
                    Speaker::Assistant => "reply",
                };
                (speaker, texts.place(&message.text))
            }));
            let (error, usage) = match &exchange.outcome {
                Outcome::Reply(reply) => {
                    said.push(("reply", texts.place(&reply.text)));
                    (None, reply.usage)
                }
                Outcome::Error(error) => (Some(error.to_string()), Default::default()),
            };
            ExchangeFacts {
                model: exchange.model.clone(),
                said,
                error,
                input_tokens: usage.input,
                output_tokens: usage.output,
                took_ms: exchange.duration_ms,
            }
        })
        .collect();
    (facts, texts.within(WHOLE_TEXTS))
}

/// Texts, each kept once.
#[derive(Default)]
struct Texts {
    texts: Vec<String>,
    places: HashMap<Digest, usize>,
}

impl Texts {
    fn place(&mut self, text: &str) -> usize {
        let texts = &mut self.texts;
        *self
            .places
            .entry(Digest::of(text.as_bytes()))
            .or_insert_with(|| {
                texts.push(text.to_owned());
                texts.len() - 1
            })
    }

    /// Whole where they take no more than `bytes` together.
    fn within(self, bytes: usize) -> Vec<String> {
        let all: usize = self.texts.iter().map(String::len).sum();
        if all <= bytes {
            return self.texts;
        }
        self.texts.into_iter().map(cut).collect()
    }
}

fn cut(text: String) -> String {
    if text.len() <= CUT_TEXT {
        return text;
    }
    let boundary = |wanted: usize| (0..=wanted).rev().find(|at| text.is_char_boundary(*at));
    let head = &text[..boundary(CUT_TEXT / 2).unwrap_or(0)];
    let tail = &text[boundary(text.len() - CUT_TEXT / 2).unwrap_or(0)..];
    let left_out = text.len() - head.len() - tail.len();
    format!(
        "{head}\n… {left_out} bytes left out here; exchanges.jsonl in the run's folder has them …\n{tail}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_kept_once_and_long_ones_cut_only_where_there_is_too_much() {
        let mut texts = Texts::default();
        let long = "ä".repeat(CUT_TEXT);
        assert_eq!(["a", &long, "a"].map(|text| texts.place(text)), [0, 1, 0]);
        let whole = Texts {
            texts: texts.texts.clone(),
            places: HashMap::new(),
        };
        assert_eq!(whole.within(1 << 20)[1], long);
        let cut = &texts.within(100)[1];
        assert!(
            cut.len() < CUT_TEXT + 100 && cut.contains("6144 bytes left out"),
            "{cut}"
        );
    }
}
