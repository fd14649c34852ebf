//! A child process that answers line by line. It may hang, die, flood or babble: every answer has a
//! deadline, lines are bounded, and the child's whole group ends with the dialogue. It never interprets
//! what the child says.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use super::process::{kill_group, own_group};

/// The longest line taken.
const LONGEST_LINE: u64 = 16 << 20;

/// Bytes of standard error that an error carries.
const TAIL: u64 = 4096;

/// Lines read ahead.
const QUEUE: usize = 16;

/// A child that is being talked to.
pub struct Dialogue {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<Heard>,
    stderr: File,
}

/// What came from the child.
enum Heard {
    Line(String),
    TooLong,
    Ended,
}

/// Why there is no answer. Each carries the end of the child's standard error.
#[derive(Debug, thiserror::Error)]
pub enum DialogueError {
    /// It said nothing in time.
    #[error("no answer within {} s{stderr}", .after.as_secs_f64())]
    TimedOut {
        /// How long was waited.
        after: Duration,
        /// With a line break in front; empty for none.
        stderr: String,
    },
    /// It ended, or closed its standard output.
    #[error("it {how}{stderr}")]
    Ended {
        /// How, in words.
        how: String,
        /// With a line break in front; empty for none.
        stderr: String,
    },
    /// It wrote a line without end.
    #[error("it wrote a line of more than {LONGEST_LINE} bytes{stderr}")]
    Flooded {
        /// With a line break in front; empty for none.
        stderr: String,
    },
}

impl Dialogue {
    /// Starts the child in a group of its own.
    pub fn start(command: &mut Command) -> std::io::Result<Self> {
        let stderr = tempfile::tempfile()?;
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr.try_clone()?);
        own_group(command);
        let mut child = command.spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            kill_group(&mut child);
            return Err(std::io::Error::other("the child has no pipes"));
        };
        let (sender, lines) = sync_channel(QUEUE);
        std::thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            loop {
                let heard = listen(&mut stdout);
                let last = !matches!(heard, Heard::Line(_));
                if sender.send(heard).is_err() || last {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            stdin,
            lines,
            stderr,
        })
    }

    /// Says one line and waits for one. Lines are short enough for a pipe's buffer, so that a child that
    /// does not read cannot block us.
    pub fn ask(&mut self, line: &str, within: Duration) -> Result<String, DialogueError> {
        // a child that closed its stdin may still have said why
        let _ = self
            .stdin
            .write_all(line.as_bytes())
            .and_then(|()| self.stdin.write_all(b"\n"))
            .and_then(|()| self.stdin.flush());
        match self.lines.recv_timeout(within) {
            Ok(Heard::Line(line)) => Ok(line),
            Ok(Heard::TooLong) => Err(DialogueError::Flooded {
                stderr: self.last_words(),
            }),
            Err(RecvTimeoutError::Timeout) => Err(DialogueError::TimedOut {
                after: within,
                stderr: self.last_words(),
            }),
            Ok(Heard::Ended) | Err(RecvTimeoutError::Disconnected) => {
                let how = match self.wait_a_moment() {
                    Some(status) => super::process::Ending::Exited(status).to_string(),
                    None => "closed its standard output".to_owned(),
                };
                Err(DialogueError::Ended {
                    how,
                    stderr: self.last_words(),
                })
            }
        }
    }

    fn wait_a_moment(&mut self) -> Option<std::process::ExitStatus> {
        use wait_timeout::ChildExt;
        self.child
            .wait_timeout(Duration::from_millis(500))
            .ok()
            .flatten()
    }

    /// The end of its standard error, with a line break in front; empty for none.
    fn last_words(&mut self) -> String {
        let mut tail = Vec::new();
        let length = self.stderr.metadata().map_or(0, |data| data.len());
        let read = self
            .stderr
            .seek(SeekFrom::Start(length.saturating_sub(TAIL)))
            .and_then(|_| (&self.stderr).take(TAIL).read_to_end(&mut tail));
        let text = String::from_utf8_lossy(&tail);
        match (read, text.trim()) {
            (Err(_), _) | (_, "") => String::new(),
            (Ok(_), text) => format!("\nits standard error ends:\n{text}"),
        }
    }
}

impl Drop for Dialogue {
    fn drop(&mut self) {
        kill_group(&mut self.child);
    }
}

fn listen(stdout: &mut BufReader<ChildStdout>) -> Heard {
    let mut line = Vec::new();
    match stdout.take(LONGEST_LINE).read_until(b'\n', &mut line) {
        Ok(0) | Err(_) => Heard::Ended,
        Ok(_) if line.last() == Some(&b'\n') => {
            Heard::Line(String::from_utf8_lossy(&line).trim_end().to_owned())
        }
        Ok(n) if n as u64 == LONGEST_LINE => Heard::TooLong,
        // it ended in the middle of a line: what it said is not whole
        Ok(_) => Heard::Ended,
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::time::Instant;

    use super::*;

    fn sh(script: &str) -> Dialogue {
        Dialogue::start(Command::new("/bin/sh").args(["-c", script])).expect("sh starts")
    }

    #[test]
    fn questions_get_their_answers_in_order() {
        let mut echo = sh("while read line; do echo \"heard $line\"; done");
        for word in ["one", "two"] {
            let answer = echo.ask(word, Duration::from_secs(10)).expect("an answer");
            assert_eq!(answer, format!("heard {word}"));
        }
    }

    #[test]
    fn a_hang_costs_its_deadline_and_takes_its_children_along() {
        let since = Instant::now();
        let mut hung = sh("echo busy >&2; sleep 30 & sleep 30");
        let error = hung
            .ask("go", Duration::from_millis(300))
            .expect_err("no answer")
            .to_string();
        assert!(
            error.contains("no answer within 0.3 s") && error.contains("busy"),
            "{error}"
        );
        drop(hung);
        assert!(since.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn a_death_is_told_with_its_last_words() {
        let mut dead = sh("echo ready; echo 'out of memory' >&2; exit 3");
        let limit = Duration::from_secs(10);
        assert_eq!(
            dead.ask("open", limit).expect("it was said before"),
            "ready"
        );
        let error = dead.ask("more", limit).expect_err("it is gone").to_string();
        assert!(
            error.contains("exit status: 3") && error.contains("out of memory"),
            "{error}"
        );
    }

    #[test]
    fn half_a_line_is_no_answer() {
        let mut half = sh("printf '{\"ready\": '");
        let error = half.ask("open", Duration::from_secs(10));
        assert!(
            matches!(error, Err(DialogueError::Ended { .. })),
            "{error:?}"
        );
    }

    #[test]
    fn a_line_without_end_is_stopped() {
        let mut flood = sh("tr '\\0' x </dev/zero");
        let error = flood.ask("open", Duration::from_secs(20));
        assert!(
            matches!(error, Err(DialogueError::Flooded { .. })),
            "{error:?}"
        );
    }
}
