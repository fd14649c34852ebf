//! The append-only log: one JSON object a line. A line counts once its newline is there; a torn last line
//! (the process died while writing) is dropped and overwritten. fsync is grouped: at most one every
//! [`SYNC_EVERY`], and one at the end, so a killed process loses nothing and a power cut a fifth of a second.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::StoreError;
use super::event::{Event, Line};

const SYNC_EVERY: Duration = Duration::from_millis(200);

/// Writes the log.
#[derive(Debug)]
pub struct LogWriter {
    path: PathBuf,
    file: File,
    next_seq: u64,
    synced: Instant,
}

impl LogWriter {
    /// Opens the log for appending, cutting a torn last line, and hands back what it holds.
    pub fn open(path: &Path) -> Result<(Self, Vec<Line>), StoreError> {
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)
            .map_err(StoreError::io("open", path))?;
        let (lines, whole) = read_log(path)?;
        file.set_len(whole)
            .and_then(|()| file.seek(SeekFrom::End(0)))
            .map_err(StoreError::io("truncate the torn last line of", path))?;
        let writer = Self {
            path: path.to_owned(),
            file,
            next_seq: lines.len() as u64,
            synced: Instant::now(),
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
        let mut text =
            serde_json::to_vec(&line).expect("invariant: events hold no maps with non-text keys");
        text.push(b'\n');
        self.file
            .write_all(&text)
            .map_err(StoreError::io("append to", &self.path))?;
        self.next_seq += 1;
        if self.synced.elapsed() >= SYNC_EVERY {
            self.sync()?;
        }
        Ok(line)
    }

    /// Forces everything to disk.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        self.file
            .sync_data()
            .map_err(StoreError::io("sync", &self.path))?;
        self.synced = Instant::now();
        Ok(())
    }
}

/// Reads a log: its whole lines, and how many bytes they take. A torn last line is left out.
pub fn read_log(path: &Path) -> Result<(Vec<Line>, u64), StoreError> {
    let bytes = std::fs::read(path).map_err(StoreError::io("read", path))?;
    let mut lines = Vec::new();
    let mut whole = 0;
    for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        if !line.ends_with(b"\n") {
            break;
        }
        let parsed: Line = serde_json::from_slice(line).map_err(|error| StoreError::Damaged {
            path: path.to_owned(),
            what: format!("line {}: {error}", index + 1),
        })?;
        if parsed.seq != index as u64 {
            return Err(StoreError::Damaged {
                path: path.to_owned(),
                what: format!(
                    "line {} has sequence number {}; a line is missing or doubled",
                    index + 1,
                    parsed.seq
                ),
            });
        }
        lines.push(parsed);
        whole += line.len() as u64;
    }
    Ok((lines, whole))
}
