//! Writes a run's winner for use elsewhere: the PTX, the very cubin that was judged, a certificate of what
//! was and was not checked, and loaders. It reads the stored run and judges nothing. A trace left the kernel
//! behind: it is made again, and is what was judged byte for byte, or nothing is written.

mod certificate;
mod formula;
mod loaders;

use std::fs;
use std::path::{Path, PathBuf};

pub use certificate::{Certificate, CertificateError, Seal};

use self::formula::Language;
use crate::report::{Story, Winner};
use crate::source::{Candidate, Source};
use crate::store::{RunConfig, StoreError, StoredRun};
use crate::task::Task;
use crate::units::{Digest, SmArch};

/// What was written.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Exported {
    /// The folder.
    pub folder: PathBuf,
    /// Its files, in the order written.
    pub files: Vec<String>,
    /// Loaders that could not be written.
    pub missing: Vec<Missing>,
}

/// A loader that could not be written.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Missing {
    /// The file, relative to the folder.
    pub file: String,
    /// Why not.
    pub reason: String,
}

/// A run cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The run folder.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is nothing to export.
    #[error("the run in {} has no winner: no kernel passed every check", folder.display())]
    NoWinner {
        /// The run's folder.
        folder: PathBuf,
    },
    /// The judge was a table.
    #[error("the run in {} was judged by a table of measurements, so there is no kernel to export", folder.display())]
    NoKernel {
        /// The run's folder.
        folder: PathBuf,
    },
    /// The winner cannot be made again from its source.
    #[error(
        "the winner's source {source_digest} no longer gives the kernel that was judged: {message}; \
         the run was made by another version of the program, or its folder was edited"
    )]
    NotReproduced {
        /// Hash of the source.
        source_digest: Digest,
        /// What differs.
        message: String,
    },
    /// The run is a trace, and its winner's machine code cannot be made again.
    #[error(
        "traces hold sources, not kernels, and the winner's machine code came from {then}: {message}; name that \
         version with --ptxas, or export from the run's folder"
    )]
    NotAssembled {
        /// What assembled it.
        then: String,
        /// What is wrong here.
        message: String,
    },
    /// The target.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The target has files of something else.
    #[error("{} is not empty; name a new folder with --to", folder.display())]
    NotEmpty {
        /// The target.
        folder: PathBuf,
    },
}

/// Makes machine code of PTX for an architecture, or says why there is none.
pub type Assemble<'a> = &'a dyn Fn(&str, SmArch) -> Result<Vec<u8>, String>;

/// Exports the winner of `run` into `to`, a new or empty folder. What loaders take is the task's signature:
/// `task`, or why it is not at hand, and then no loader is written. `assemble` is asked where `run` is a trace.
pub fn export(
    run: &StoredRun,
    task: Result<&Task, String>,
    assemble: Assemble<'_>,
    to: &Path,
) -> Result<Exported, ExportError> {
    let story = Story::read(run, 1)?;
    let winner = story.winner.as_ref().ok_or_else(|| ExportError::NoWinner {
        folder: run.folder.clone(),
    })?;
    let kernel = winner.kernel.ok_or_else(|| ExportError::NoKernel {
        folder: run.folder.clone(),
    })?;
    if fs::read_dir(to).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(ExportError::NotEmpty {
            folder: to.to_owned(),
        });
    }
    let source = run.objects.text(winner.source)?;
    let candidate = rendered(&source, winner, kernel.ptx)?;
    let cubin = match run.objects.get(kernel.cubin) {
        Err(StoreError::LeftBehind { .. }) => {
            assembled(&run.config, assemble, &candidate.ptx, kernel.cubin)?
        }
        stored => stored?,
    };
    let task = task.and_then(|task| unchanged(task, &run.config));
    let mut loaders: Vec<(String, Vec<u8>)> = Vec::new();
    let mut missing = Vec::new();
    for language in [Language::Cpp, Language::Rust, Language::Python] {
        let written = task.clone().and_then(|task| {
            loaders::write(&candidate, task, language).map_err(|error| error.to_string())
        });
        match written {
            Ok(texts) => loaders.extend(
                texts
                    .into_iter()
                    .map(|(name, text)| (format!("loaders/{name}"), text.into_bytes())),
            ),
            Err(reason) => missing.push(Missing {
                file: format!("loaders/{}", loaders::main_file(language)),
                reason,
            }),
        }
    }
    let hashes = loaders
        .iter()
        .map(|(name, text)| (name.clone(), Digest::of(text)))
        .collect();
    let certificate = Certificate::new(&story, winner, kernel, candidate.formulas(), hashes);
    let certificate = certificate
        .to_json()
        .expect("invariant: a certificate has text keys only");
    let mut files: Vec<(String, Vec<u8>)> = vec![
        ("kernel.ptx".to_owned(), candidate.ptx.as_bytes().to_vec()),
        ("kernel.cubin".to_owned(), cubin),
        ("source.ptx".to_owned(), source.into_bytes()),
        ("certificate.json".to_owned(), certificate),
    ];
    files.extend(loaders);
    for (name, bytes) in &files {
        let path = to.join(name);
        let folder = path.parent().unwrap_or(to);
        fs::create_dir_all(folder).map_err(write_error(folder))?;
        fs::write(&path, bytes).map_err(write_error(&path))?;
    }
    Ok(Exported {
        folder: to.to_owned(),
        files: files.into_iter().map(|(name, _)| name).collect(),
        missing,
    })
}

/// The winner, rendered again: the host side comes from the same text as the kernel.
fn rendered(source: &str, winner: &Winner, judged: Digest) -> Result<Candidate, ExportError> {
    let fail = |message: String| ExportError::NotReproduced {
        source_digest: winner.source,
        message,
    };
    let source = Source::parse(source).map_err(|error| fail(error.to_string()))?;
    let point = source.space().point(&winner.setting);
    let point = point.map_err(|error| fail(error.to_string()))?;
    let candidate = source
        .render(&point)
        .map_err(|error| fail(error.to_string()))?;
    if Digest::of(candidate.ptx.as_bytes()) != judged {
        return Err(fail("it renders to another text".to_owned()));
    }
    Ok(candidate)
}

/// The cubin that was judged, made again.
fn assembled(
    config: &RunConfig,
    assemble: Assemble<'_>,
    ptx: &str,
    judged: Digest,
) -> Result<Vec<u8>, ExportError> {
    let then = config.assembler.as_deref().unwrap_or("another assembler");
    let fail = |message: String| ExportError::NotAssembled {
        then: then.to_owned(),
        message,
    };
    let cubin = assemble(ptx, config.arch).map_err(fail)?;
    if Digest::of(&cubin) != judged {
        return Err(fail("the one here makes other machine code".to_owned()));
    }
    Ok(cubin)
}

/// The task, if it is still the one that was judged.
fn unchanged<'a>(task: &'a Task, config: &RunConfig) -> Result<&'a Task, String> {
    if task.name == config.task && task.digest == config.task_digest {
        return Ok(task);
    }
    Err(format!(
        "the task `{}` at hand is not the one that the run judged: its files have changed",
        config.task
    ))
}

fn write_error(path: &Path) -> impl FnOnce(std::io::Error) -> ExportError {
    let path = path.to_owned();
    move |source| ExportError::Write { path, source }
}
