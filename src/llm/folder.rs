//! A folder as a model: each prompt becomes a file, and a reply is awaited as a file beside it. For a person,
//! or a program of any kind, who answers. Several questions may wait at once.
//!
//! `prompt-HASH.md` is answered by `reply-HASH.md`. The hash is the question's: a run that was stopped and
//! goes on finds a reply that came in between. Write a reply under another name and rename it, or write it in
//! one go: a file counts once it holds something and has stopped growing.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::command::conversation;
use super::record::request_hash;
use super::{Chat, ChatError, ChatReply, ChatRequest, Finish, Tally, Usage};
use crate::files;

/// How often the folder is looked at; a reply that is as long as it was one look ago is whole.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A reply longer than this is no reply.
const MAX_REPLY: u64 = 32 << 20;

pub(super) struct Folder {
    /// As the user wrote it, for reports.
    name: String,
    folder: PathBuf,
    time: Duration,
}

impl Folder {
    pub(super) fn open(folder: &Path, time: Duration) -> Result<Self, ChatError> {
        fs::create_dir_all(folder).map_err(|error| ChatError::Configuration {
            message: format!(
                "--model dir:{}: {error}; give a folder that can be written",
                folder.display()
            ),
        })?;
        Ok(Self {
            name: format!("dir:{}", folder.display()),
            folder: folder.to_owned(),
            time,
        })
    }

    fn fault(&self, path: &Path, error: &std::io::Error) -> ChatError {
        ChatError::Transient {
            message: format!("{}: {}: {error}", self.name, path.display()),
            retry_after_ms: None,
            may_be_billed: false,
        }
    }
}

impl Chat for Folder {
    fn complete(&self, request: &ChatRequest, _: &mut Tally) -> Result<ChatReply, ChatError> {
        let hash = request_hash(&self.name, request)?.short();
        let prompt = self.folder.join(format!("prompt-{hash}.md"));
        let reply = self.folder.join(format!("reply-{hash}.md"));
        if !prompt.exists() {
            // under its own name at once, so that nobody reads half of it
            files::replace(&prompt, conversation(request).as_bytes())
                .map_err(|error| self.fault(&prompt, &error))?;
        }
        let started = Instant::now();
        let mut length = 0;
        loop {
            let now = match fs::metadata(&reply) {
                Ok(file) => file.len(),
                Err(error) if error.kind() == ErrorKind::NotFound => 0,
                Err(error) => return Err(self.fault(&reply, &error)),
            };
            if now > MAX_REPLY {
                let error = std::io::Error::other("it is longer than 32 MiB");
                return Err(self.fault(&reply, &error));
            }
            if now > 0 && now == length {
                let bytes = fs::read(&reply).map_err(|error| self.fault(&reply, &error))?;
                return Ok(ChatReply {
                    text: String::from_utf8_lossy(&bytes).into_owned(),
                    finish: Finish::Stop,
                    usage: Usage::default(),
                });
            }
            length = now;
            if started.elapsed() >= self.time {
                return Err(ChatError::Transient {
                    message: format!(
                        "{}: nobody wrote reply-{hash}.md within {} s",
                        self.name,
                        self.time.as_secs()
                    ),
                    retry_after_ms: None,
                    may_be_billed: false,
                });
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    fn model(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::llm::testing::question;

    #[test]
    fn a_reply_is_awaited_until_it_is_whole_and_kept_for_the_next_session() {
        let scratch = tempfile::tempdir().expect("scratch");
        let folder = scratch.path().join("questions");
        let chat = Folder::open(&folder, Duration::from_secs(20)).expect("opens");
        let answered = thread::spawn({
            let folder = folder.clone();
            move || loop {
                let names = fs::read_dir(&folder).expect("is there");
                let prompt = names
                    .map(|entry| {
                        entry
                            .expect("reads")
                            .file_name()
                            .into_string()
                            .expect("text")
                    })
                    .find(|name| name.starts_with("prompt-"));
                if let Some(prompt) = prompt {
                    let mut reply =
                        fs::File::create(folder.join(prompt.replace("prompt", "reply")))
                            .expect("writes");
                    for part in ["one ", "two ", "three"] {
                        write!(reply, "{part}").expect("writes");
                        thread::sleep(LOOK_EVERY / 5);
                    }
                    return fs::read_to_string(folder.join(prompt)).expect("reads");
                }
                thread::sleep(Duration::from_millis(5));
            }
        });
        let ask = |text: &str| {
            let mut tally = Tally::default();
            chat.complete(&question(text), &mut tally)
                .map(|reply| reply.text)
        };
        assert_eq!(ask("how?").as_deref(), Ok("one two three"));
        assert_eq!(answered.join().expect("ends"), "how?");
        assert_eq!(
            ask("how?").as_deref(),
            Ok("one two three"),
            "not asked twice"
        );
        let hasty = Folder::open(&folder, Duration::from_millis(150)).expect("opens");
        let error = hasty
            .complete(&question("why?"), &mut Tally::default())
            .expect_err("nobody answers");
        assert!(error.to_string().contains("nobody wrote reply-"), "{error}");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_told() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let error = Folder::open(&file.path().join("x"), Duration::from_secs(1))
            .err()
            .expect("no folder");
        assert!(matches!(error, ChatError::Configuration { .. }), "{error}");
    }
}
