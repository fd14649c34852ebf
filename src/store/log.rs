//! The append-only log: one JSON object a line. A torn last line (the process died while writing) is dropped and
//! overwritten. fsync is grouped: at most one every [`SYNC_EVERY`], and one at the end, so a killed process loses
//! nothing and a power cut less than half a second.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::StoreError;
use super::event::{Event, Line};
use crate::files::{self, Lines};

const SYNC_EVERY: Duration = Duration::from_millis(200);

/// Writes the log.
#[derive(Debug)]
pub struct LogWriter {
    path: PathBuf,
    lines: Lines,
    next_seq: u64,
    synced: Instant,
    /// Nothing was appended since.
    settled: bool,
}

impl LogWriter {
    /// Opens the log for appending, cutting a torn last line, and hands back what it holds.
    pub fn open(path: &Path) -> Result<(Self, Vec<Line>), StoreError> {
        let (file, bytes) = Lines::open(path).map_err(StoreError::io("open", path))?;
        let lines = parse(path, &bytes)?;
        let writer = Self {
            path: path.to_owned(),
            lines: file,
            next_seq: lines.len() as u64,
            synced: Instant::now(),
            settled: true,
        };
        Ok((writer, lines))
    }

    /// Appends an event; it is in the kernel's hands when this returns.
    pub fn append(&mut self, elapsed: Duration, event: Event) -> Result<Line, StoreError> {
        let line = Line {
            seq: self.next_seq,
            elapsed_ms: elapsed.as_millis() as u64,
            event,
        };
        self.lines
            .append(&line)
            .map_err(StoreError::io("append to", &self.path))?;
        self.next_seq += 1;
        self.settled = false;
        self.settle()?;
        Ok(line)
    }

    /// Forces to disk what was appended, unless the last time is a moment ago.
    pub fn settle(&mut self) -> Result<(), StoreError> {
        if self.settled || self.synced.elapsed() < SYNC_EVERY {
            return Ok(());
        }
        self.sync()
    }

    /// Forces everything to disk.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        self.lines
            .sync()
            .map_err(StoreError::io("sync", &self.path))?;
        self.synced = Instant::now();
        self.settled = true;
        Ok(())
    }
}

/// Reads a log that may be written meanwhile: its whole lines.
pub(super) fn read_log(path: &Path) -> Result<Vec<Line>, StoreError> {
    let bytes = std::fs::read(path).map_err(StoreError::io("read", path))?;
    parse(path, files::whole_lines(&bytes))
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<Line>, StoreError> {
    let damaged = |what: String| StoreError::Damaged {
        path: path.to_owned(),
        what,
    };
    (1_u64..)
        .zip(bytes.split_inclusive(|byte| *byte == b'\n'))
        .map(|(number, line)| {
            let line: Line = serde_json::from_slice(line)
                .map_err(|error| damaged(format!("line {number}: {error}")))?;
            if line.seq + 1 != number {
                return Err(damaged(format!(
                    "line {number} has sequence number {}; a line is missing or doubled",
                    line.seq
                )));
            }
            Ok(line)
        })
        .collect()
}
