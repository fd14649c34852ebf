//! A model as a proposer: builds the prompt, asks, and makes of the reply a child or a message that says
//! why not. What a model writes is only ever the text of a source or the value of a knob: never a command,
//! a path, or the host side of a launch beyond what a source's header can say.

mod apply;
mod fence;
mod hunks;
mod prompt;
mod reply;
mod schema;

use std::path::Path;
use std::sync::Arc;

use super::{Ask, Proposal, ProposalRequest, ProposeError, Proposer};
use crate::device::Gpu;
use crate::llm::{Chat, ChatError, ChatReply, ChatRequest, Finish, Message, Speaker, Tally};
use prompt::{Prompt, Prompts};
use reply::Unusable;

/// How a model is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AskOptions {
    /// Longest prompt in bytes; a longer source loses its middle, and the model is told.
    pub prompt_limit: usize,
    /// Longest reply in tokens; `None` leaves it to the server.
    pub max_output_tokens: Option<u32>,
    /// Sampling temperature; `None` leaves it to the server.
    pub temperature: Option<f64>,
    /// How often a model may correct a reply that cannot be used, in the same conversation.
    pub corrections: u32,
}

impl Default for AskOptions {
    fn default() -> Self {
        Self {
            prompt_limit: 160_000,
            max_output_tokens: Some(32_768),
            temperature: None,
            corrections: 1,
        }
    }
}

/// The proposer `model`. It keeps nothing between requests, so a resumed run asks what it would have asked.
pub struct ModelProposer {
    chat: Arc<dyn Chat>,
    gpu: Gpu,
    options: AskOptions,
    prompts: Prompts,
}

impl ModelProposer {
    /// `gpu` is told to the model: what the kernels are to be fast on.
    pub fn new(chat: Arc<dyn Chat>, gpu: Gpu, options: AskOptions) -> Result<Self, ProposeError> {
        Ok(Self {
            chat,
            gpu,
            options,
            prompts: Prompts::embedded().map_err(|error| bad_template(&error))?,
        })
    }

    /// The same with the templates of a folder in place of those of this crate.
    pub fn with_prompts(self, folder: &Path) -> Result<Self, ProposeError> {
        let prompts = Prompts::with_folder(folder).map_err(ProposeError::Unavailable)?;
        Ok(Self { prompts, ..self })
    }

    /// Whether [`Self::with_prompts`] can take `folder`.
    pub fn check_prompts(folder: &Path) -> Result<(), ProposeError> {
        let read = Prompts::with_folder(folder).map_err(ProposeError::Unavailable);
        read.map(drop)
    }

    fn prompt(&self, request: &ProposalRequest<'_>, limit: usize) -> Result<Prompt, ProposeError> {
        self.prompts
            .fill(request, &self.gpu, limit)
            .map_err(|error| bad_template(&error))
    }

    fn ask(
        &self,
        messages: &[Message],
        system: &str,
        about: &ProposalRequest<'_>,
        tally: &mut Tally,
    ) -> Result<ChatReply, ChatError> {
        let request = ChatRequest {
            system: system.to_owned(),
            messages: messages.to_vec(),
            max_output_tokens: self.options.max_output_tokens,
            schema: match about.ask {
                Some(Ask::KnobChange) => Some(schema::settings(about.source)),
                Some(Ask::LocalEdit | Ask::Restructure | Ask::NewKnob | Ask::Repair) | None => None,
            },
            temperature: self.options.temperature,
            sample: about.attempt,
        };
        self.chat.complete(&request, tally)
    }

    /// One question.
    fn open(
        &self,
        request: &ProposalRequest<'_>,
        limit: usize,
        tally: &mut Tally,
    ) -> Result<(Prompt, Result<ChatReply, ChatError>), ProposeError> {
        let prompt = self.prompt(request, limit)?;
        let messages = [said(Speaker::User, prompt.user.clone())];
        let answer = self.ask(&messages, &prompt.system, request, tally);
        Ok((prompt, answer))
    }

    /// A question and its reply; where it does not fit the model, one of half the length is asked.
    fn converse(
        &self,
        request: &ProposalRequest<'_>,
        tally: &mut Tally,
    ) -> Result<Conversation, ProposeError> {
        let (mut prompt, mut answer) = self.open(request, self.options.prompt_limit, tally)?;
        if let Err(ChatError::TooLong { .. }) = answer {
            let sent = prompt.system.len() + prompt.user.len();
            (prompt, answer) = self.open(request, sent / 2, tally)?;
        }
        Ok(Conversation {
            system: prompt.system,
            messages: vec![said(Speaker::User, prompt.user)],
            reply: answer.map_err(|error| self.failed(&error))?,
        })
    }

    /// A reply that was cut off may go on once.
    fn finish(
        &self,
        conversation: &mut Conversation,
        request: &ProposalRequest<'_>,
        tally: &mut Tally,
    ) -> Result<(), ProposeError> {
        let cut = conversation.reply.finish == Finish::Length
            && reply::read(&conversation.reply) == Err(Unusable::Truncated)
            && !conversation.reply.text.trim().is_empty();
        if !cut {
            return Ok(());
        }
        let mut messages = conversation.messages.clone();
        messages.push(said(Speaker::Assistant, conversation.reply.text.clone()));
        let go_on = self.prompts.go_on().map_err(|error| bad_template(&error))?;
        messages.push(said(Speaker::User, go_on));
        let rest = self
            .ask(&messages, &conversation.system, request, tally)
            .map_err(|error| self.failed(&error))?;
        conversation.reply.text.push_str(&rest.text);
        conversation.reply.finish = rest.finish;
        Ok(())
    }

    fn failed(&self, error: &ChatError) -> ProposeError {
        let model = self.chat.model();
        match error {
            // Without a layer that repeats, the next request is the repetition.
            ChatError::Transient { .. } => ProposeError::Unusable(format!("{model}: {error}")),
            ChatError::Unreachable { .. } => ProposeError::Away(format!("model {model}: {error}")),
            ChatError::Configuration { .. }
            | ChatError::Rejected { .. }
            | ChatError::TooLong { .. }
            | ChatError::Exhausted { .. }
            | ChatError::Unrecorded { .. }
            | ChatError::Recording { .. } => {
                ProposeError::Unavailable(format!("model {model}: {error}"))
            }
        }
    }
}

impl Proposer for ModelProposer {
    fn name(&self) -> &str {
        "model"
    }

    fn propose(
        &self,
        request: &ProposalRequest<'_>,
        tally: &mut Tally,
    ) -> Result<Vec<Proposal>, ProposeError> {
        let mut conversation = self.converse(request, tally)?;
        let mut corrections = self.options.corrections;
        loop {
            self.finish(&mut conversation, request, tally)?;
            let result = reply::read(&conversation.reply)
                .and_then(|wish| apply::apply(wish, request, self.gpu.arch));
            let why = match result {
                Ok(proposal) => return Ok(vec![proposal]),
                Err(why) => why,
            };
            if corrections == 0 || !why.can_be_corrected() {
                let cut = conversation.cut_prompt().unwrap_or_default();
                return Err(ProposeError::Unusable(format!("{why}{cut}")));
            }
            corrections -= 1;
            let Conversation {
                system,
                mut messages,
                reply,
            } = conversation;
            if !reply.text.trim().is_empty() {
                messages.push(said(Speaker::Assistant, reply.text));
                let correct = self
                    .prompts
                    .correct(&why.to_string())
                    .map_err(|error| bad_template(&error))?;
                messages.push(said(Speaker::User, correct));
            }
            let reply = self
                .ask(&messages, &system, request, tally)
                .map_err(|error| self.failed(&error))?;
            conversation = Conversation {
                system,
                messages,
                reply,
            };
        }
    }
}

struct Conversation {
    system: String,
    messages: Vec<Message>,
    reply: ChatReply,
}

impl Conversation {
    /// A remark where the server counted far fewer tokens than the prompt must have: some cut what is too long
    /// for their context and say nothing. Others count only what their cache had not, so it is no error.
    fn cut_prompt(&self) -> Option<String> {
        let sent = self.messages.iter().map(|message| message.text.len());
        let bytes = sent.sum::<usize>() + self.system.len();
        let read = self.reply.usage.input;
        (read > 0 && read < bytes as u64 / BYTES_PER_TOKEN).then(|| {
            format!(
                " (the server counted {read} tokens in a prompt of {bytes} bytes: if it cut it, give it a longer \
                 context, as OLLAMA_CONTEXT_LENGTH does for Ollama)"
            )
        })
    }
}

/// No tokenizer was seen to pack more bytes of PTX and English into a token, on average.
const BYTES_PER_TOKEN: u64 = 8;

fn said(speaker: Speaker, text: String) -> Message {
    Message { speaker, text }
}

fn bad_template(error: &minijinja::Error) -> ProposeError {
    ProposeError::Unavailable(format!("the prompt's template does not render: {error:#}"))
}
