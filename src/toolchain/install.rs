//! Installs the pinned ptxas wheel into the cache folder: into a temporary folder first, then renamed, so
//! that what has the final name is whole. Several processes may try at once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::process::{self, Limits};
use super::{ToolchainError, list};

/// The PyPI package that carries ptxas.
pub const PACKAGE: &str = "nvidia-cuda-nvcc";
/// The version that warptree is tested with.
pub const VERSION: &str = "13.0.88";
/// Where the wheel puts it.
pub(super) const EXECUTABLE_IN_WHEEL: &str = if cfg!(windows) {
    "nvidia/cu13/bin/ptxas.exe"
} else {
    "nvidia/cu13/bin/ptxas"
};

/// The ways to call pip, tried one after another.
pub(super) const PIPS: [&[&str]; 3] = [
    &["python3", "-m", "pip"],
    &["python", "-m", "pip"],
    &["pip3"],
];

/// Written last, before the rename: an installation without it is a leftover.
const MARKER: &str = ".warptree-complete";

/// The installation's folder below the cache folder.
pub(super) fn folder(cache: &Path) -> PathBuf {
    cache.join(format!("{PACKAGE}-{VERSION}"))
}

/// The executable of an installation.
pub(super) fn executable(home: &Path) -> PathBuf {
    home.join(EXECUTABLE_IN_WHEEL)
}

/// Whether an installation is whole.
pub(super) fn complete(home: &Path) -> bool {
    home.join(MARKER).is_file() && executable(home).is_file()
}

/// Installs, or waits for another process that does; replaces an installation that is broken.
pub(super) fn install(
    cache: &Path,
    pips: &[&[&str]],
    notify: &dyn Fn(&str),
) -> Result<(), ToolchainError> {
    let home = folder(cache);
    fs::create_dir_all(cache).map_err(io(format!("creating {}", cache.display())))?;
    let lock_path = cache.join("install.lock");
    let lock =
        fs::File::create(&lock_path).map_err(io(format!("creating {}", lock_path.display())))?;
    let locking = || format!("locking {}", lock_path.display());
    match lock.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            notify("waiting for another warptree that is installing ptxas");
            lock.lock().map_err(io(locking()))?;
        }
        Err(fs::TryLockError::Error(error)) => return Err(io(locking())(error)),
    }
    if complete(&home) && super::inspect(&executable(&home)).is_ok() {
        return Ok(());
    }
    notify(&format!(
        "no ptxas found: installing {PACKAGE}=={VERSION} into {} with pip (once; --offline forbids it)",
        home.display()
    ));
    let scratch = tempfile::Builder::new()
        .prefix("installing-")
        .tempdir_in(cache)
        .map_err(io(format!("creating a folder in {}", cache.display())))?;
    run_pip(pips, scratch.path())?;
    let marker = scratch.path().join(MARKER);
    fs::write(&marker, VERSION).map_err(io(format!("writing {}", marker.display())))?;
    if home.exists() {
        fs::remove_dir_all(&home).map_err(io(format!("removing the broken {}", home.display())))?;
    }
    fs::rename(scratch.path(), &home).map_err(io(format!(
        "renaming {} to {}",
        scratch.path().display(),
        home.display()
    )))
}

/// Tries the ways to call pip one after another; each that fails is told.
fn run_pip(pips: &[&[&str]], target: &Path) -> Result<(), ToolchainError> {
    let mut attempts = Vec::new();
    for way in pips {
        // A Python that the system manages refuses even --target in some versions of pip, and says so.
        for extra in [None, Some("--break-system-packages")] {
            let mut command = Command::new(way[0]);
            command
                .args(&way[1..])
                .args([
                    "install",
                    "--no-deps",
                    "--no-input",
                    "--only-binary",
                    ":all:",
                ])
                .args([
                    "--disable-pip-version-check",
                    "--no-warn-script-location",
                    "--quiet",
                ])
                .args(extra)
                .arg("--target")
                .arg(target)
                .arg(format!("{PACKAGE}=={VERSION}"));
            let limits = Limits {
                time: Duration::from_secs(15 * 60),
                output: 1 << 20,
            };
            let shown = way.join(" ");
            let said = match process::run(&mut command, limits) {
                Ok(done) if done.ending.success() && executable(target).is_file() => return Ok(()),
                Ok(done) if done.ending.success() => {
                    attempts.push(format!("{shown}: succeeded without {EXECUTABLE_IN_WHEEL}"));
                    break;
                }
                Ok(done) => {
                    attempts.push(format!("{shown} {}: {}", done.ending, tail(&done.stderr)));
                    done.stderr
                }
                Err(error) => {
                    attempts.push(format!("{shown}: {error}"));
                    break;
                }
            };
            if !said.contains("externally-managed-environment") {
                break;
            }
        }
    }
    Err(ToolchainError::Pip {
        attempts: list(&attempts),
    })
}

/// The last lines of what pip said: the cause stands there.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    lines[lines.len().saturating_sub(6)..].join("\n    ")
}

fn io(doing: String) -> impl FnOnce(std::io::Error) -> ToolchainError {
    move |source| ToolchainError::Io { doing, source }
}
