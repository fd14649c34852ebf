//! The run folder: `run.toml`, `events.jsonl`, `objects/`. Results and money are written as they come and
//! never rewritten; reports, exports and resumes read them from here. It runs no search and judges nothing.

mod config;
mod event;
mod graph;
mod log;
mod objects;
mod trace;

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

pub use config::{BaselineTime, ModelConfig, RootConfig, RunConfig};
pub use event::{
    Asked, Event, FORMAT, LeftOut, Line, OLDEST_FORMAT, Retimed, StoredChild, StoredKernel,
};
pub use graph::{RunGraph, StoredNode};
pub use log::LogWriter;
pub use objects::Objects;
pub use trace::write as write_trace;

use crate::files;
use crate::search::StopRules;
use crate::units::Digest;

/// A run opened for reading, from its folder or a trace: for `show`, `export`, `compare`.
#[derive(Debug)]
pub struct StoredRun {
    /// Where it is.
    pub folder: PathBuf,
    /// What was asked.
    pub config: RunConfig,
    /// What happened.
    pub lines: Vec<Line>,
    /// Sources and cubins.
    pub objects: Objects,
}

/// A run folder opened for writing; no other process can open it so meanwhile.
#[derive(Debug)]
pub struct RunWriter {
    /// Where it is.
    pub folder: PathBuf,
    /// What was asked.
    pub config: RunConfig,
    /// The log.
    pub log: LogWriter,
    /// Sources and cubins.
    pub objects: Objects,
    _lock: File,
}

impl StoredRun {
    /// Reads a run folder, as far as it is written, or a trace file.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        if folder.is_file() {
            return trace::read(folder);
        }
        let config = read_config(folder)?;
        let lines = log::read_log(&folder.join("events.jsonl"))?;
        let objects = Objects::open(folder.join("objects"))?;
        Ok(Self {
            folder: folder.to_owned(),
            config,
            lines,
            objects,
        })
    }
}

impl StoredRun {
    /// Takes in another shard of the same batch.
    pub fn merge(&mut self, shard: Self) -> Result<(), StoreError> {
        let alike = |config: &RunConfig| RunConfig {
            baseline: None,
            baselines: None,
            ..config.clone()
        };
        let searches = !self.config.proposers.is_empty();
        if searches || alike(&self.config) != alike(&shard.config) {
            return Err(StoreError::NoShards {
                one: self.folder.clone(),
                other: shard.folder,
            });
        }
        let offset = self.lines.last().map_or(0, |line| line.elapsed_ms);
        self.lines
            .retain(|line| !matches!(line.event, Event::Finished { .. }));
        let first = self.lines.len() as u64;
        self.lines
            .extend((first..).zip(shard.lines).map(|(seq, line)| Line {
                seq,
                elapsed_ms: line.elapsed_ms + offset,
                event: line.event,
            }));
        // each shard had its own leaders
        let mut least = f64::INFINITY;
        for line in &mut self.lines {
            if let Event::Evaluated {
                evaluation, best, ..
            } = &mut line.event
            {
                let cost = evaluation.cost().unwrap_or(f64::INFINITY);
                *best = cost < least;
                least = least.min(cost);
            }
        }
        Ok(())
    }
}

impl RunWriter {
    /// Makes a new run folder with the texts that its configuration names by their hashes: the sources under
    /// its root, what earlier runs judged of them. `run.toml` comes last: a folder that has it has all that a resume needs.
    pub fn create<'t>(
        folder: &Path,
        config: RunConfig,
        texts: impl IntoIterator<Item = &'t str>,
    ) -> Result<Self, StoreError> {
        Self::check_new(folder)?;
        fs::create_dir_all(folder).map_err(StoreError::io("create", folder))?;
        let lock = lock(folder)?;
        let objects = Objects::open(folder.join("objects"))?;
        for text in texts {
            objects.put(text.as_bytes())?;
        }
        let path = folder.join("events.jsonl");
        let (log, past) = LogWriter::open(&path)?;
        if !past.is_empty() {
            return Err(StoreError::Damaged {
                path,
                what: "it holds the events of a run whose run.toml is gone; name another folder"
                    .into(),
            });
        }
        write_config(folder, &config)?;
        Ok(Self {
            folder: folder.to_owned(),
            config,
            log,
            objects,
            _lock: lock,
        })
    }

    /// Whether a new run can be made there: a folder that holds one is never overwritten.
    pub fn check_new(folder: &Path) -> Result<(), StoreError> {
        match folder.join("run.toml").exists() {
            true => Err(StoreError::Exists {
                path: folder.to_owned(),
            }),
            false => Ok(()),
        }
    }

    /// Opens a run folder to go on with it, and hands back what happened so far.
    pub fn resume(folder: &Path) -> Result<(Self, Vec<Line>), StoreError> {
        if folder.is_file() {
            return Err(StoreError::NoFolder {
                path: folder.to_owned(),
            });
        }
        let config = read_config(folder)?;
        let lock = lock(folder)?;
        let objects = Objects::open(folder.join("objects"))?;
        let (log, lines) = LogWriter::open(&folder.join("events.jsonl"))?;
        Ok((
            Self {
                folder: folder.to_owned(),
                config,
                log,
                objects,
                _lock: lock,
            },
            lines,
        ))
    }

    /// Replaces the stop rules: nothing else may change on a resume.
    pub fn set_stop(&mut self, stop: StopRules) -> Result<(), StoreError> {
        self.config.search.stop = stop;
        write_config(&self.folder, &self.config)
    }
}

/// A run folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system's word.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// There is no run there.
    #[error("{} holds no run (no run.toml in it); runs are made by `warptree search`", path.display())]
    NoRun {
        /// The folder.
        path: PathBuf,
    },
    /// There is one already.
    #[error("{} holds a run already; `warptree resume` goes on with it, `--out` names another folder", path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// A trace is never overwritten.
    #[error("{} is there already; name another file with --to", path.display())]
    TraceExists {
        /// The file.
        path: PathBuf,
    },
    /// A trace is no folder to go on in.
    #[error("{} is a trace; a run goes on in the folder that it was made from", path.display())]
    NoFolder {
        /// The file.
        path: PathBuf,
    },
    /// A trace brings sources only.
    #[error("object {} is not in the trace: traces hold sources, not kernels", digest.short())]
    LeftBehind {
        /// Which.
        digest: Digest,
    },
    /// A trace cannot be added to.
    #[error("a trace is read only; a run goes on in its folder")]
    ReadOnly,
    /// Only parts of one batch make a whole.
    #[error("{} and {} are no parts of one batch: task, device, tools, seed or sources differ, or they are searches", one.display(), other.display())]
    NoShards {
        /// A run.
        one: PathBuf,
        /// Another.
        other: PathBuf,
    },
    /// Somebody is writing it.
    #[error("{} is in use by another warptree process", path.display())]
    Locked {
        /// The folder.
        path: PathBuf,
    },
    /// It is from another version of the format.
    #[error("{} has run format {found}; this warptree reads formats {OLDEST_FORMAT} to {FORMAT}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// It cannot be read.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong and where.
        what: String,
    },
}

impl StoreError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}

fn lock(folder: &Path) -> Result<File, StoreError> {
    let path = folder.join(".lock");
    let file = File::create(&path).map_err(StoreError::io("create", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked {
            path: folder.to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(StoreError::io("lock", &path)(error)),
    }
}

fn read_config(folder: &Path) -> Result<RunConfig, StoreError> {
    #[derive(serde::Deserialize)]
    struct Versioned {
        format: u32,
    }
    let path = folder.join("run.toml");
    if !path.exists() {
        return Err(StoreError::NoRun {
            path: folder.to_owned(),
        });
    }
    let text = fs::read_to_string(&path).map_err(StoreError::io("read", &path))?;
    let damaged = |error: toml::de::Error| StoreError::Damaged {
        path: path.clone(),
        what: error.to_string(),
    };
    let version: Versioned = toml::from_str(&text).map_err(damaged)?;
    check_format(&path, version.format)?;
    toml::from_str(&text).map_err(damaged)
}

fn check_format(path: &Path, found: u32) -> Result<(), StoreError> {
    match found {
        OLDEST_FORMAT..=FORMAT => Ok(()),
        found => Err(StoreError::Version {
            path: path.to_owned(),
            found,
        }),
    }
}

fn write_config(folder: &Path, config: &RunConfig) -> Result<(), StoreError> {
    let path = folder.join("run.toml");
    let text = toml::to_string_pretty(config).map_err(|error| StoreError::Damaged {
        path: path.clone(),
        what: format!("it cannot be written as TOML: {error}"),
    })?;
    files::replace(&path, text.as_bytes()).map_err(StoreError::io("write", &path))
}
