//! Runs a child process that may hang, crash, flood its output or leave grandchildren behind.
//! The child gets a process group of its own and writes to files, so nobody who inherits a pipe can
//! keep us waiting. It never interprets what the child says.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use wait_timeout::ChildExt;

/// What a child may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Wall time; then the whole group is killed.
    pub time: Duration,
    /// Bytes of standard output and of standard error, each; beyond it the group is killed.
    pub output: u64,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself.
    Exited(ExitStatus),
    /// Killed after this long.
    TimedOut(Duration),
    /// Killed for writing more than this many bytes.
    Flooded(u64),
}

impl Ending {
    /// Whether it ended by itself with exit status 0.
    pub fn success(self) -> bool {
        match self {
            Self::Exited(status) => status.success(),
            Self::TimedOut(_) | Self::Flooded(_) => false,
        }
    }

    /// The signal that ended it, if one did; a shell's 128 + signal counts.
    pub fn signal(self) -> Option<i32> {
        match self {
            Self::Exited(status) => signal_of(status),
            Self::TimedOut(_) | Self::Flooded(_) => None,
        }
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(status) => match signal_of(*status) {
                Some(11) => f.write_str("crashed (segmentation fault)"),
                Some(6) => f.write_str("crashed (abort)"),
                Some(9) => f.write_str("was killed (signal 9; out of memory?)"),
                Some(signal) => write!(f, "was ended by signal {signal}"),
                None => write!(f, "ended with {status}"),
            },
            Self::TimedOut(after) => {
                write!(
                    f,
                    "did not end within {} s and was killed",
                    after.as_secs_f64()
                )
            }
            Self::Flooded(bytes) => write!(f, "wrote more than {bytes} bytes and was killed"),
        }
    }
}

/// A child that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// How.
    pub ending: Ending,
    /// Standard output, at most the limit, as UTF-8 with replacement characters.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
}

/// Runs `command` to its end, or kills it and every process of its group. `Err` means that it could not
/// be started or watched.
pub fn run(command: &mut Command, limits: Limits) -> std::io::Result<Finished> {
    run_from(command, Stdio::null(), limits)
}

/// The same, with `input` on standard input: from a file, so a child that does not read cannot block us.
pub fn run_with_input(
    command: &mut Command,
    input: &[u8],
    limits: Limits,
) -> std::io::Result<Finished> {
    let mut stdin = tempfile::tempfile()?;
    stdin.write_all(input)?;
    stdin.seek(SeekFrom::Start(0))?;
    run_from(command, stdin.into(), limits)
}

fn run_from(command: &mut Command, stdin: Stdio, limits: Limits) -> std::io::Result<Finished> {
    let mut stdout = tempfile::tempfile()?;
    let mut stderr = tempfile::tempfile()?;
    command
        .stdin(stdin)
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?);
    own_group(command);
    let mut child = command.spawn()?;
    let ending = watch(&mut child, limits, &stdout, &stderr);
    kill_group(&mut child);
    let ending = ending?;
    Ok(Finished {
        ending,
        stdout: read_back(&mut stdout, limits.output)?,
        stderr: read_back(&mut stderr, limits.output)?,
    })
}

fn watch(
    child: &mut Child,
    limits: Limits,
    stdout: &File,
    stderr: &File,
) -> std::io::Result<Ending> {
    const LOOK_EVERY: Duration = Duration::from_millis(100);
    let start = Instant::now();
    loop {
        let left = limits.time.saturating_sub(start.elapsed());
        if let Some(status) = child.wait_timeout(left.min(LOOK_EVERY))? {
            return Ok(Ending::Exited(status));
        }
        if stdout.metadata()?.len() > limits.output || stderr.metadata()?.len() > limits.output {
            return Ok(Ending::Flooded(limits.output));
        }
        if left.is_zero() {
            return Ok(Ending::TimedOut(limits.time));
        }
    }
}

fn read_back(file: &mut File, limit: u64) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(unix)]
pub(super) fn own_group(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
}

#[cfg(not(unix))]
pub(super) fn own_group(_command: &mut Command) {}

/// Ends whatever is left of the child's group, then reaps the child. Errors mean "already gone".
pub(super) fn kill_group(child: &mut Child) {
    #[cfg(unix)]
    if let Ok(id) = i32::try_from(child.id()) {
        let group = nix::unistd::Pid::from_raw(id);
        let _gone = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
    }
    #[cfg(not(unix))]
    let _gone = child.kill();
    let _reaped = child.wait();
}

#[cfg(unix)]
fn signal_of(status: ExitStatus) -> Option<i32> {
    use std::os::unix::process::ExitStatusExt;
    // A wrapper script reports its child's death as 128 + signal. 255 is an ordinary failure of ptxas.
    let through_shell = status
        .code()
        .filter(|code| (129..=159).contains(code))
        .map(|code| code - 128);
    status.signal().or(through_shell)
}

#[cfg(not(unix))]
fn signal_of(_status: ExitStatus) -> Option<i32> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn sh(script: &str, time: Duration) -> Finished {
        let limits = Limits {
            time,
            output: 100_000,
        };
        run(Command::new("/bin/sh").arg("-c").arg(script), limits).expect("sh starts")
    }

    #[test]
    fn output_and_status_come_back() {
        let done = sh("echo out; echo err >&2; exit 3", Duration::from_secs(10));
        assert_eq!(
            (done.stdout.as_str(), done.stderr.as_str()),
            ("out\n", "err\n")
        );
        assert!(!done.ending.success());
        assert_eq!(done.ending.signal(), None);
    }

    #[test]
    fn input_arrives_whether_or_not_it_is_read() {
        let limits = Limits {
            time: Duration::from_secs(10),
            output: 100_000,
        };
        let input = "line\n".repeat(50_000);
        let mut count = Command::new("/bin/sh");
        count.args(["-c", "wc -l"]);
        let done = run_with_input(&mut count, input.as_bytes(), limits).expect("sh starts");
        assert_eq!(done.stdout.trim(), "50000");
        let mut ignore = Command::new("/bin/sh");
        ignore.args(["-c", "exit 0"]);
        let done = run_with_input(&mut ignore, input.as_bytes(), limits).expect("sh starts");
        assert!(done.ending.success());
    }

    #[test]
    fn a_grandchild_that_holds_the_output_does_not_hold_us() {
        let start = Instant::now();
        let done = sh("sleep 30 & sleep 30", Duration::from_millis(300));
        assert_eq!(done.ending, Ending::TimedOut(Duration::from_millis(300)));
        let quick = sh("sleep 30 & exit 0", Duration::from_secs(20));
        assert!(quick.ending.success());
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{:?}",
            start.elapsed()
        );
    }

    #[test]
    fn a_crash_is_told_by_its_signal() {
        assert_eq!(
            sh("kill -SEGV $$", Duration::from_secs(10)).ending.signal(),
            Some(11)
        );
        assert_eq!(
            sh("exit 139", Duration::from_secs(10)).ending.signal(),
            Some(11)
        );
    }

    #[test]
    fn a_flood_is_stopped() {
        let done = sh("yes", Duration::from_secs(20));
        assert_eq!(done.ending, Ending::Flooded(100_000));
        assert_eq!(done.stdout.len(), 100_000);
    }
}
