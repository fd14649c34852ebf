//! A program as a model: the prompt on its standard input, the reply on its standard output. For
//! command-line assistants. The program is started directly, never through a shell, and nothing from a
//! prompt or a reply becomes part of the command line.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{Chat, ChatError, ChatReply, ChatRequest, Finish, Speaker, Tally, Usage};
use crate::toolchain::process::{self, Ending};

/// A reply longer than this is no reply.
const MAX_REPLY: u64 = 32 << 20;

pub(super) struct CommandModel {
    /// As the user wrote it, for reports.
    name: String,
    program: String,
    arguments: Vec<String>,
    time: Duration,
}

impl CommandModel {
    /// `line` is a program and its arguments, separated by spaces; there is no quoting.
    pub(super) fn new(line: &str, time: Duration) -> Result<Self, ChatError> {
        let mut words = line.split_whitespace().map(str::to_owned);
        let program = words.next().ok_or_else(|| ChatError::Configuration {
            message: "--model cmd: names no program; write cmd:PROGRAM".to_owned(),
        })?;
        if !is_there(&program) {
            return Err(ChatError::Configuration {
                message: format!(
                    "--model cmd:{line}: `{program}` is not there; give the path of an executable file"
                ),
            });
        }
        Ok(Self {
            name: format!("cmd:{line}"),
            program,
            arguments: words.collect(),
            time,
        })
    }
}

/// Whether a program can be found as the system will look for it: told before anything is judged.
fn is_there(program: &str) -> bool {
    if Path::new(program).components().count() > 1 {
        return Path::new(program).is_file();
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| {
        folder.join(program).is_file() || folder.join(format!("{program}.exe")).is_file()
    })
}

impl Chat for CommandModel {
    fn complete(&self, request: &ChatRequest, _: &mut Tally) -> Result<ChatReply, ChatError> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        let limits = process::Limits {
            time: self.time,
            output: MAX_REPLY,
        };
        let done = process::run_with_input(&mut command, conversation(request).as_bytes(), limits)
            .map_err(|error| self.not_started(&error))?;
        if done.ending.success() {
            return Ok(ChatReply {
                text: done.stdout,
                finish: Finish::Stop,
                usage: Usage::default(),
            });
        }
        let said = done.stderr.trim();
        let said = if said.is_empty() {
            String::new()
        } else {
            // The end of what it said: the cause stands last.
            let skip = said.chars().count().saturating_sub(600);
            format!("; it said: {}", said.chars().skip(skip).collect::<String>())
        };
        Err(ChatError::Transient {
            message: format!("{} {}{said}", self.name, done.ending),
            retry_after_ms: None,
            may_be_billed: match done.ending {
                Ending::Exited(_) => false,
                Ending::TimedOut(_) | Ending::Flooded(_) => true,
            },
        })
    }

    fn model(&self) -> &str {
        &self.name
    }
}

impl CommandModel {
    fn not_started(&self, error: &std::io::Error) -> ChatError {
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::PermissionDenied => ChatError::Configuration {
                message: format!(
                    "--model {}: `{}` cannot be started ({error}); give the path of an executable file",
                    self.name, self.program
                ),
            },
            _ => ChatError::Transient {
                message: format!("{} cannot be run: {error}", self.name),
                retry_after_ms: None,
                may_be_billed: false,
            },
        }
    }
}

/// The conversation as one text. A first question stands alone; later turns are told apart.
pub(super) fn conversation(request: &ChatRequest) -> String {
    let mut text = request.system.clone();
    for (index, message) in request.messages.iter().enumerate() {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        match (index, message.speaker) {
            (0, _) => {}
            (_, Speaker::User) => text.push_str("[user]\n"),
            (_, Speaker::Assistant) => text.push_str("[your reply so far]\n"),
        }
        text.push_str(&message.text);
    }
    text
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::llm::testing::question;

    fn ask(line: &str, time: Duration) -> Result<ChatReply, ChatError> {
        CommandModel::new(line, time)?
            .complete(&question("a\nb $(exit 3) `x`\n"), &mut Tally::default())
    }

    #[test]
    fn a_program_answers_on_its_standard_output() {
        let reply = ask("cat", Duration::from_secs(10)).map(|reply| reply.text);
        assert_eq!(
            reply.as_deref(),
            Ok("a\nb $(exit 3) `x`\n"),
            "no shell reads it"
        );
        let reply = ask("wc -l", Duration::from_secs(10)).map(|reply| reply.text);
        assert_eq!(reply.as_deref().map(str::trim), Ok("2"));
    }

    #[test]
    fn a_program_that_fails_hangs_or_is_not_there_is_told_apart() {
        let failed = ask("ls --no-such-flag", Duration::from_secs(10)).expect_err("fails");
        assert!(failed.to_string().contains("no-such-flag"), "{failed}");
        assert!(matches!(
            failed,
            ChatError::Transient {
                may_be_billed: false,
                ..
            }
        ));
        let hung = ask("sleep 30", Duration::from_millis(200)).expect_err("hangs");
        assert!(hung.to_string().contains("did not end within"), "{hung}");
        let missing = ask("/nowhere/assistant", Duration::from_secs(1)).expect_err("missing");
        assert!(
            matches!(missing, ChatError::Configuration { .. }),
            "{missing}"
        );
    }
}
