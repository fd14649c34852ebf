//! Finds the tools that watch kernels run: ncu and compute-sanitizer. They are never installed, and a
//! machine without them judges with less, and says so.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{Places, process};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observer {
    /// Nsight Compute.
    Ncu,
    /// Memory, race and barrier checker.
    Sanitizer,
}

impl Observer {
    /// As it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ncu => "ncu",
            Self::Sanitizer => "compute-sanitizer",
        }
    }

    /// The variable that names it.
    pub fn variable(self) -> &'static str {
        match self {
            Self::Ncu => "WARPTREE_NCU",
            Self::Sanitizer => "WARPTREE_SANITIZER",
        }
    }

    /// Where to get it.
    fn origin(self) -> &'static str {
        match self {
            Self::Ncu => "it comes with the CUDA toolkit and as NVIDIA's package nsight-compute",
            Self::Sanitizer => "it comes with the CUDA toolkit",
        }
    }
}

/// A tool that answered to `--version`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The executable.
    pub path: PathBuf,
    /// `2025.3.1.0`.
    pub version: String,
}

/// Looks at its variable (`named`; it must then work), toolkits, `PATH` and where its package puts it. The
/// error is a sentence for people.
pub fn observer(which: Observer, named: Option<PathBuf>, places: &Places) -> Result<Found, String> {
    if let Some(path) = named {
        return inspect(&path)
            .map_err(|reason| format!("{}={}: {reason}", which.variable(), path.display()));
    }
    let mut broken = Vec::new();
    for path in candidates(which, places) {
        if !path.is_file() {
            continue;
        }
        match inspect(&path) {
            Ok(found) => return Ok(found),
            Err(reason) => broken.push(format!("{} {reason}", path.display())),
        }
    }
    Err(if broken.is_empty() {
        format!(
            "{} is not installed ({}; or set {})",
            which.name(),
            which.origin(),
            which.variable()
        )
    } else {
        broken.join("; ")
    })
}

fn candidates(which: Observer, places: &Places) -> Vec<PathBuf> {
    let name = which.name();
    let mut paths: Vec<PathBuf> = places.path.iter().map(|folder| folder.join(name)).collect();
    for (_, toolkit) in &places.toolkits {
        paths.push(toolkit.join("bin").join(name));
        match which {
            Observer::Ncu => {}
            Observer::Sanitizer => paths.push(toolkit.join("compute-sanitizer").join(name)),
        }
    }
    match which {
        Observer::Ncu => paths.extend(versions(Path::new("/opt/nvidia/nsight-compute"), name)),
        Observer::Sanitizer => {}
    }
    paths
}

/// `FOLDER/VERSION/NAME`, the newest first.
fn versions(folder: &Path, name: &str) -> Vec<PathBuf> {
    let numbers = |path: &Path| -> Vec<u32> {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        name.split('.')
            .filter_map(|part| part.parse().ok())
            .collect()
    };
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    folders.sort_by_key(|path| std::cmp::Reverse(numbers(path)));
    folders
        .into_iter()
        .map(|folder| folder.join(name))
        .collect()
}

fn inspect(path: &Path) -> Result<Found, String> {
    let limits = process::Limits {
        time: Duration::from_secs(20),
        output: 64 << 10,
    };
    let done = process::run(Command::new(path).arg("--version"), limits)
        .map_err(|error| format!("cannot be run: {error}"))?;
    let version = parse_version(&done.stdout).ok_or_else(|| {
        format!(
            "did not answer `--version` with a version ({}; {})",
            done.ending,
            done.stderr.trim()
        )
    })?;
    Ok(Found {
        path: path.to_owned(),
        version,
    })
}

/// `2025.3.1.0` of `Version 2025.3.1.0 (build 36398880) (public-release)`.
fn parse_version(text: &str) -> Option<String> {
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("Version "))?;
    let version = line.split_whitespace().next()?;
    let valid = version.contains('.') && version.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    valid.then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_the_newest_is_tried_first() {
        let text = "NVIDIA (R) Nsight Compute Command Line Profiler\nCopyright (c) 2018-2025 NVIDIA Corporation\nVersion 2025.3.1.0 (build 36398880) (public-release)\n";
        assert_eq!(parse_version(text).as_deref(), Some("2025.3.1.0"));
        assert_eq!(parse_version("hello"), None);
        let folder = tempfile::tempdir().expect("a folder");
        for version in ["2024.3.2", "2025.10.0", "2025.3.1"] {
            std::fs::create_dir(folder.path().join(version)).expect("a folder");
        }
        let found = versions(folder.path(), "ncu");
        let names: Vec<_> = found
            .iter()
            .map(|path| {
                path.parent()
                    .and_then(Path::file_name)
                    .and_then(|n| n.to_str())
            })
            .collect();
        assert_eq!(
            names,
            [Some("2025.10.0"), Some("2025.3.1"), Some("2024.3.2")]
        );
    }

    #[test]
    fn what_is_missing_is_named_with_where_to_get_it() {
        let nowhere = Places::default();
        let said = observer(Observer::Sanitizer, None, &nowhere).expect_err("nothing there");
        assert!(
            said.contains("not installed") && said.contains("WARPTREE_SANITIZER"),
            "{said}"
        );
        let named = observer(Observer::Ncu, Some("/no/such/ncu".into()), &nowhere);
        assert!(
            named
                .expect_err("no file")
                .contains("WARPTREE_NCU=/no/such/ncu")
        );
    }
}
