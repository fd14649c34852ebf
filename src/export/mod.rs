//! Writes a run's winner for use elsewhere: the PTX, the very cubin that was judged, a certificate of what
//! was and was not checked, and loaders. It reads the stored run; it assembles and judges nothing.

mod certificate;

use std::fs;
use std::path::{Path, PathBuf};

pub use certificate::Certificate;

use crate::driver::FoldError;
use crate::report::Story;
use crate::store::{StoreError, StoredRun};

/// What was written.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Exported {
    /// The folder.
    pub folder: PathBuf,
    /// Its files, in the order written.
    pub files: Vec<String>,
}

/// A run cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The run folder.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its log.
    #[error(transparent)]
    Fold(#[from] FoldError),
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

/// Exports the winner of `run` into `to`, a new or empty folder.
pub fn export(run: &StoredRun, to: &Path) -> Result<Exported, ExportError> {
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
    let certificate = Certificate::new(&story, winner, kernel);
    let certificate = serde_json::to_vec_pretty(&certificate)
        .expect("invariant: a certificate has text keys only");
    let files: Vec<(&str, Vec<u8>)> = vec![
        ("kernel.ptx", run.objects.get(kernel.ptx)?),
        ("kernel.cubin", run.objects.get(kernel.cubin)?),
        ("source.ptx", run.objects.get(winner.source)?),
        ("certificate.json", certificate),
    ];
    fs::create_dir_all(to).map_err(write_error(to))?;
    for (name, bytes) in &files {
        let path = to.join(name);
        fs::write(&path, bytes).map_err(write_error(&path))?;
    }
    Ok(Exported {
        folder: to.to_owned(),
        files: files.into_iter().map(|(name, _)| name.to_owned()).collect(),
    })
}

fn write_error(path: &Path) -> impl FnOnce(std::io::Error) -> ExportError {
    let path = path.to_owned();
    move |source| ExportError::Write { path, source }
}
