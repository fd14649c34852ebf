//! Finds **ptxas**, or installs the pinned one into the user's cache folder. What was found where is part
//! of every error. It prints nothing: whoever calls passes a notifier.

pub mod dialogue;
mod install;
mod observers;
pub mod process;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use etcetera::BaseStrategy;

use crate::units::Digest;

pub use install::{PACKAGE, VERSION};
pub use observers::{Found, Observer, observer};

/// A ptxas that answered to `--version`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ptxas {
    /// The executable.
    pub path: PathBuf,
    /// `13.0.88`.
    pub version: String,
    /// Hash of the executable: part of verdict cache keys, so that another build under the same
    /// version number is another tool.
    pub digest: Digest,
}

/// Where to look, in this order. [`Places::from_environment`] fills it; tests build their own.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// `--ptxas FILE`. When given it must work: nothing else is tried.
    pub flag: Option<PathBuf>,
    /// `WARPTREE_PTXAS`. Likewise.
    pub variable: Option<PathBuf>,
    /// Toolkit folders: `CUDA_HOME`, `CUDA_PATH`, with the names that they came from.
    pub toolkits: Vec<(String, PathBuf)>,
    /// The folders of `PATH`.
    pub path: Vec<PathBuf>,
    /// The user's cache folder; `None` where the system names none.
    pub cache: Option<PathBuf>,
}

impl Places {
    /// From the command line's `--ptxas` and the process environment.
    pub fn from_environment(flag: Option<PathBuf>) -> Self {
        let set = |name: &str| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let toolkits = ["CUDA_HOME", "CUDA_PATH"]
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), set(name)?)))
            .chain([("default".to_owned(), PathBuf::from("/usr/local/cuda"))])
            .collect();
        Self {
            flag,
            variable: set("WARPTREE_PTXAS"),
            toolkits,
            path: std::env::var_os("PATH")
                .map(|path| std::env::split_paths(&path).collect())
                .unwrap_or_default(),
            cache: cache_folder(),
        }
    }
}

/// warptree's folder below the user's cache folder: `$XDG_CACHE_HOME/warptree`, `~/.cache/warptree`, or
/// what the system has instead. `None` where there is no home folder.
pub fn cache_folder() -> Option<PathBuf> {
    let strategy = etcetera::choose_base_strategy().ok()?;
    let folder = strategy.cache_dir();
    folder.is_absolute().then(|| folder.join("warptree"))
}

/// Whether ptxas may be installed when none is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Yes.
    Allowed,
    /// `--offline`.
    Forbidden,
}

/// Finds ptxas, or installs it. `notify` gets a line for people whenever something takes long or is
/// passed over.
pub fn ptxas(
    places: &Places,
    network: Network,
    notify: &dyn Fn(&str),
) -> Result<Ptxas, ToolchainError> {
    let mut looked = Vec::new();
    for (origin, path) in [
        ("--ptxas", &places.flag),
        ("WARPTREE_PTXAS", &places.variable),
    ] {
        if let Some(path) = path {
            return inspect(path).map_err(|reason| ToolchainError::Named {
                origin,
                path: path.clone(),
                reason,
            });
        }
        looked.push(format!("{origin}: not set"));
    }
    let folders = places
        .toolkits
        .iter()
        .map(|(name, folder)| (name.as_str(), folder.join("bin")))
        .chain(places.path.iter().map(|folder| ("PATH", folder.clone())));
    for (origin, folder) in folders {
        let path = folder.join(EXECUTABLE);
        if !path.is_file() {
            looked.push(format!("{origin}: no {}", path.display()));
            continue;
        }
        match inspect(&path) {
            Ok(found) => return Ok(found),
            Err(reason) => {
                notify(&format!("passing over {}: {reason}", path.display()));
                looked.push(format!("{origin}: {}: {reason}", path.display()));
            }
        }
    }
    let Some(cache) = &places.cache else {
        looked.push("cache: no home folder (set XDG_CACHE_HOME)".to_owned());
        return Err(ToolchainError::NoCache {
            looked: list(&looked),
        });
    };
    let home = install::folder(cache);
    let path = install::executable(&home);
    match install::complete(&home).then(|| inspect(&path)) {
        Some(Ok(found)) => return Ok(found),
        Some(Err(reason)) => {
            notify(&format!(
                "the cached {} does not work: {reason}",
                path.display()
            ));
            looked.push(format!("cache: {}: {reason}", path.display()));
        }
        None => looked.push(format!("cache: no {}", path.display())),
    }
    match network {
        Network::Forbidden => Err(ToolchainError::Offline {
            looked: list(&looked),
        }),
        Network::Allowed => {
            install::install(cache, &install::PIPS, notify)?;
            inspect(&path).map_err(|reason| ToolchainError::Installed { path, reason })
        }
    }
}

/// Asks an executable for its version. The error is a sentence's end: "is no file".
pub fn inspect(path: &Path) -> Result<Ptxas, String> {
    if !path.is_file() {
        return Err("is no file".to_owned());
    }
    let limits = process::Limits {
        time: Duration::from_secs(20),
        output: 64 << 10,
    };
    let done = process::run(Command::new(path).arg("--version"), limits)
        .map_err(|error| format!("cannot be run: {error}"))?;
    if !done.ending.success() {
        let said = done.stderr.trim();
        return Err(format!("`--version` {}; {said}", done.ending));
    }
    let version = parse_version(&done.stdout).ok_or_else(|| {
        "did not answer `--version` as ptxas does (a line with `release 13.0, V13.0.88`)".to_owned()
    })?;
    let bytes = std::fs::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    Ok(Ptxas {
        path: path.to_owned(),
        version,
        digest: Digest::of(bytes),
    })
}

/// `13.0.88` of `Cuda compilation tools, release 13.0, V13.0.88`.
fn parse_version(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.contains("release "))?;
    let version = line.rsplit(", V").next()?.trim();
    let valid = version.contains('.') && version.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    valid.then(|| version.to_owned())
}

fn list(looked: &[String]) -> String {
    looked.iter().fold(String::new(), |mut out, line| {
        let _infallible = write!(out, "\n  {line}");
        out
    })
}

const EXECUTABLE: &str = if cfg!(windows) { "ptxas.exe" } else { "ptxas" };

/// There is no usable ptxas.
#[derive(Debug, thiserror::Error)]
pub enum ToolchainError {
    /// The user named one that does not work.
    #[error("{origin}: {} {reason}\nname a working ptxas, or none and warptree finds or installs one", path.display())]
    Named {
        /// `--ptxas` or `WARPTREE_PTXAS`.
        origin: &'static str,
        /// What was named.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// None found, and installing is forbidden.
    #[error(
        "no ptxas found, and --offline forbids installing it; looked at:{looked}\ndo one of these: drop --offline; \
         or on a machine with a network run `python3 -m pip install --target DIR --no-deps {PACKAGE}=={VERSION}`, \
         bring DIR here and pass --ptxas DIR/{}",
        install::EXECUTABLE_IN_WHEEL
    )]
    Offline {
        /// Every place, one a line.
        looked: String,
    },
    /// None found, and nowhere to put one.
    #[error(
        "no ptxas found, and there is no cache folder to install it into; looked at:{looked}\nset XDG_CACHE_HOME to a folder, or pass --ptxas FILE"
    )]
    NoCache {
        /// Every place, one a line.
        looked: String,
    },
    /// Files of the installation.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done, with the path.
        doing: String,
        /// The system's word.
        source: std::io::Error,
    },
    /// pip did not do it.
    #[error(
        "installing {PACKAGE}=={VERSION} failed:{attempts}\ninstall Python 3 with pip, or a CUDA toolkit, or pass --ptxas FILE"
    )]
    Pip {
        /// Each command, how it ended and what it said.
        attempts: String,
    },
    /// pip did it, but the result does not run.
    #[error("{} was installed but {reason}", path.display())]
    Installed {
        /// Where.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
}

#[cfg(all(test, unix))]
mod tests;
