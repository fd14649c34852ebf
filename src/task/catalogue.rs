//! Where tasks come from: those embedded in the binary, overridden by a folder. The only file of this
//! room that reads a task's files. Every file of a task is read once, at load; nothing is read later.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use include_dir::{Dir, include_dir};

use super::adversarial::{Adversary, Plant, PlantKind};
use super::error::{TaskError, nearest_name};
use super::{Mistake, Origin, Purpose, Size, SpaceFile, Suite, Task, file, mistakes, suite};
use crate::files;
use crate::units::Digest;

static TASKS: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/tasks");
static SPACES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/search_spaces");
static ADVERSARIAL: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/tests/adversarial");

/// The file that lists the suites, beside the tasks' folders.
const SUITES: &str = "suites.toml";

/// Between a task's name and the bench size that is to be timed.
const AT: char = '@';

/// A file of a task larger than this is a slip: big inputs are generated, never stored.
const LARGEST_FILE: u64 = 16 << 20;

/// The tasks that can be named.
///
/// A folder of tasks wins over the embedded task of the same name, as a whole: its spaces are those in
/// `search_spaces/<name>/` *beside* that folder (`DIR/../search_spaces/<name>/*.ptx`) and no others.
#[derive(Clone, Debug)]
pub struct Catalogue {
    folder: Option<PathBuf>,
}

impl Catalogue {
    /// The embedded tasks, and over them those of `override_dir`, else of `./tasks` where that exists.
    pub fn open(override_dir: Option<&Path>) -> Result<Self, TaskError> {
        let folder = match override_dir {
            Some(dir) if dir.is_dir() => Some(dir.to_owned()),
            Some(dir) => {
                return Err(TaskError::whole(
                    dir,
                    "no such folder of tasks",
                    "name a folder that holds one folder with a task.toml per task",
                ));
            }
            None => Some(PathBuf::from("tasks")).filter(|dir| dir.is_dir()),
        };
        Ok(Self { folder })
    }

    /// The embedded tasks alone.
    pub fn embedded() -> Self {
        Self { folder: None }
    }

    /// Every task's name, sorted.
    pub fn names(&self) -> Result<Vec<String>, TaskError> {
        let mut names: BTreeSet<String> =
            TASKS.dirs().filter_map(|dir| name_of(dir.path())).collect();
        if let Some(folder) = &self.folder {
            for path in list(folder)? {
                if path.join("task.toml").is_file() {
                    names.extend(name_of(&path).filter(|name| is_plain(name)));
                }
            }
        }
        Ok(names.into_iter().collect())
    }

    /// Loads and checks a task. `gemm_bf16@M=16` is the task `gemm_bf16` timed at its bench size with `M = 16`;
    /// it is a task of its own, with its own digest.
    pub fn task(&self, name: &str) -> Result<Task, TaskError> {
        match name.split_once(AT) {
            Some((task, size)) => self.whole_task(task)?.timed_at(size),
            None => self.whole_task(name),
        }
    }

    fn whole_task(&self, name: &str) -> Result<Task, TaskError> {
        if let Some(tasks) = &self.folder {
            let folder = tasks.join(name);
            if is_plain(name) && folder.join("task.toml").is_file() {
                return Self::folder_task(name, &folder, &spaces_of(tasks).join(name));
            }
        }
        if let Some(dir) = TASKS.get_dir(name).filter(|_| is_plain(name)) {
            return embedded_task(name, "tasks", dir);
        }
        let known = self.names()?;
        Err(TaskError::Unknown {
            name: name.to_owned(),
            nearest: nearest_name(name, known.iter().map(String::as_str)).map(str::to_owned),
            known,
        })
    }

    /// The suite of this name: a folder's `suites.toml` wins over the embedded suite of the same name.
    pub fn suite(&self, name: &str) -> Result<Suite, TaskError> {
        let mut known = BTreeMap::new();
        if let Some(file) = TASKS.get_file(SUITES) {
            let path = Path::new("tasks").join(SUITES);
            let text = text(&path, file.contents().to_vec())?;
            for suite in suite::parse(&path, &text)? {
                known.insert(suite.name.clone(), suite);
            }
        }
        let path = self.folder.as_ref().map(|folder| folder.join(SUITES));
        if let Some(path) = path.filter(|path| path.is_file()) {
            let bytes = fs::read(&path).map_err(|error| TaskError::io(&path, "read", error))?;
            let text = text(&path, bytes)?;
            for suite in suite::parse(&path, &text)? {
                known.insert(suite.name.clone(), suite);
            }
        }
        if let Some(suite) = known.remove(name) {
            return Ok(suite);
        }
        let known: Vec<String> = known.into_keys().collect();
        Err(TaskError::UnknownSuite {
            name: name.to_owned(),
            nearest: nearest_name(name, known.iter().map(String::as_str)).map(str::to_owned),
            known,
        })
    }

    /// Loads and checks the task in `folder`, with the spaces in `spaces`.
    fn folder_task(name: &str, folder: &Path, spaces: &Path) -> Result<Task, TaskError> {
        build(Parts {
            name,
            label: folder,
            origin: Origin::Folder(folder.to_owned()),
            files: read_files(folder)?,
            mistakes: read_optional(&folder.join("mistakes"))?,
            spaces_label: spaces,
            spaces: read_optional(spaces)?,
        })
    }
}

/// Where the spaces of a folder of tasks lie: beside it, however its path is written.
pub(super) fn spaces_of(tasks: &Path) -> PathBuf {
    match tasks.file_name() {
        Some(_) => tasks.with_file_name("search_spaces"),
        None => tasks.join("../search_spaces"),
    }
}

/// A task's files, wherever they came from.
struct Parts<'a> {
    name: &'a str,
    label: &'a Path,
    origin: Origin,
    files: BTreeMap<String, Vec<u8>>,
    mistakes: BTreeMap<String, Vec<u8>>,
    spaces_label: &'a Path,
    spaces: BTreeMap<String, Vec<u8>>,
}

/// The embedded catalogue of planted kernels: `tests/adversarial/<task>/`, sorted by task.
pub(super) fn adversarial() -> Result<Vec<Adversary>, TaskError> {
    let load = |dir: &'static Dir<'static>| {
        let name = name_of(dir.path()).unwrap_or_default();
        let label = Path::new("tests/adversarial").join(&name);
        let planted = |folder: &str, kind: PlantKind| -> Result<Vec<Plant>, TaskError> {
            let files = contents(dir.get_dir(dir.path().join(folder)));
            ptx_files(&label.join(folder), files)?
                .into_iter()
                .map(|(name, path, text)| Plant::parse(kind, &name, &path, text))
                .collect()
        };
        let mut plants = planted("cheats", PlantKind::Cheat)?;
        plants.extend(planted("honest", PlantKind::Honest)?);
        let task = Arc::new(embedded_task(&name, "tests/adversarial", dir)?);
        Ok(Adversary { task, plants })
    };
    ADVERSARIAL.dirs().map(load).collect()
}

fn contents(dir: Option<&'static Dir<'static>>) -> BTreeMap<String, Vec<u8>> {
    dir.into_iter()
        .flat_map(Dir::files)
        .filter_map(|file| Some((name_of(file.path())?, file.contents().to_vec())))
        .collect()
}

fn embedded_task(name: &str, root: &str, dir: &'static Dir<'static>) -> Result<Task, TaskError> {
    build(Parts {
        name,
        label: &Path::new(root).join(name),
        origin: Origin::Embedded,
        files: contents(Some(dir)),
        mistakes: contents(dir.get_dir(dir.path().join("mistakes"))),
        spaces_label: &Path::new("search_spaces").join(name),
        spaces: contents(SPACES.get_dir(name)),
    })
}

fn build(parts: Parts<'_>) -> Result<Task, TaskError> {
    let Parts {
        name,
        label,
        origin,
        mut files,
        mistakes,
        spaces_label,
        spaces,
    } = parts;
    let mut take = |file: &str, help: &str| -> Result<(PathBuf, Arc<str>), TaskError> {
        let path = label.join(file);
        let bytes = files
            .remove(file)
            .ok_or_else(|| TaskError::whole(&path, "this file is missing", help))?;
        let text = text(&path, bytes)?;
        Ok((path, text))
    };
    let (toml_path, toml) = take("task.toml", "`warptree new-task` writes one to start from")?;
    let (seed_path, seed) = take(
        "seed.ptx",
        "every task has an honest, simple kernel with a `//@ launch` header line",
    )?;
    if seed.trim().is_empty() {
        return Err(TaskError::whole(
            &seed_path,
            "the seed is empty",
            "write an honest, simple kernel with a `//@ launch` header line",
        ));
    }
    let spaces = ptx_files(spaces_label, spaces)?
        .into_iter()
        .map(|(name, _, text)| SpaceFile { name, text })
        .collect::<Vec<_>>();
    let mistakes = ptx_files(&label.join("mistakes"), mistakes)?
        .into_iter()
        .map(|(name, path, text)| mistakes::parse(&name, &path, text))
        .collect::<Result<Vec<Mistake>, _>>()?;
    let files: BTreeMap<String, Arc<[u8]>> = files
        .into_iter()
        .map(|(name, bytes)| (name, Arc::from(bytes)))
        .collect();
    let declared = file::parse(&toml_path, &toml, &files)?;
    let digest = digest(name, &toml, &seed, &files);
    Ok(Task {
        name: name.to_owned(),
        title: declared.title,
        level: declared.level,
        math: declared.math,
        params: declared.params,
        sizes: declared.sizes,
        cases: declared.cases,
        reference: declared.reference,
        tolerances: declared.tolerances,
        nondeterministic: declared.nondeterministic,
        cost: declared.cost,
        targets: declared.targets,
        policy: declared.policy,
        baselines: declared.baselines,
        seed,
        spaces,
        files,
        mistakes,
        origin,
        digest,
    })
}

/// Of what is computed and how it is judged. Spaces are where a search begins: what was certified stands when
/// one is added or another knob moves.
fn digest(name: &str, toml: &str, seed: &str, files: &BTreeMap<String, Arc<[u8]>>) -> Digest {
    let mut parts: Vec<&[u8]> = vec![name.as_bytes(), toml.as_bytes(), seed.as_bytes()];
    for (name, bytes) in files {
        parts.extend([b"file".as_slice(), name.as_bytes(), bytes]);
    }
    Digest::of_parts(parts)
}

impl Task {
    /// The same task, timed at the first bench size that has these extents: `M=16` or `M=16,N=7168`.
    fn timed_at(mut self, wanted: &str) -> Result<Self, TaskError> {
        let fits = |size: &Size| {
            size.purpose == Purpose::Bench
                && wanted.split(',').all(|part| {
                    part.split_once('=').is_some_and(|(name, extent)| {
                        let extent: Option<i64> = extent.trim().parse().ok();
                        extent.is_some() && size.dims.get(name.trim()).copied() == extent
                    })
                })
        };
        let Some(at) = self.sizes.iter().position(fits) else {
            let offered: Vec<String> = (self.sizes_for(Purpose::Bench))
                .map(|size| {
                    let extents: Vec<String> = (size.dims.iter())
                        .map(|(name, extent)| format!("{name}={extent}"))
                        .collect();
                    format!("{}{AT}{}", self.name, extents.join(","))
                })
                .collect();
            return Err(TaskError::whole(
                &Path::new(&self.name).join("task.toml"),
                format_args!("no bench size has `{wanted}`"),
                format_args!("one of {}", offered.join(", ")),
            ));
        };
        let first = self
            .sizes
            .iter()
            .position(|size| size.purpose == Purpose::Bench);
        if first != Some(at) {
            let size = self.sizes.remove(at);
            self.digest = Digest::of_parts([
                self.digest.to_string().as_bytes(),
                b"timed at",
                size.to_string().as_bytes(),
            ]);
            self.sizes.insert(first.unwrap_or(0), size);
        }
        self.name = format!("{}{AT}{wanted}", self.name);
        Ok(self)
    }
}

/// The `.ptx` files among `files`, as (name without extension, path, text); other files are ignored.
fn ptx_files(
    label: &Path,
    files: BTreeMap<String, Vec<u8>>,
) -> Result<Vec<(String, PathBuf, Arc<str>)>, TaskError> {
    files
        .into_iter()
        .filter_map(|(file, bytes)| Some((file.strip_suffix(".ptx")?.to_owned(), bytes)))
        .map(|(name, bytes)| {
            let path = label.join(format!("{name}.ptx"));
            let text = text(&path, bytes)?;
            Ok((name, path, text))
        })
        .collect()
}

fn text(path: &Path, bytes: Vec<u8>) -> Result<Arc<str>, TaskError> {
    files::text(bytes).map(Arc::from).map_err(|line| {
        TaskError::line(
            path,
            u32::try_from(line).unwrap_or(u32::MAX),
            "this is not UTF-8 text",
            "save the file as UTF-8",
        )
    })
}

/// The files directly in `folder`, hidden ones left out.
fn read_files(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, TaskError> {
    let mut files = BTreeMap::new();
    for path in list(folder)? {
        let Some(name) = name_of(&path).filter(|name| !name.starts_with('.')) else {
            continue;
        };
        let metadata = fs::metadata(&path).map_err(|error| TaskError::io(&path, "read", error))?;
        if !metadata.is_file() {
            continue;
        }
        if metadata.len() > LARGEST_FILE {
            return Err(TaskError::whole(
                &path,
                format_args!(
                    "this file has {} bytes, more than {LARGEST_FILE}",
                    metadata.len()
                ),
                "a task's folder holds texts; keep data elsewhere",
            ));
        }
        let bytes = fs::read(&path).map_err(|error| TaskError::io(&path, "read", error))?;
        files.insert(name, bytes);
    }
    Ok(files)
}

/// Like [`read_files`], but a missing folder holds none.
fn read_optional(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, TaskError> {
    if folder.is_dir() {
        read_files(folder)
    } else {
        Ok(BTreeMap::new())
    }
}

fn list(folder: &Path) -> Result<Vec<PathBuf>, TaskError> {
    let fail = |error| TaskError::io(folder, "list", error);
    let mut paths = fs::read_dir(folder)
        .map_err(fail)?
        .map(|entry| entry.map(|entry| entry.path()).map_err(fail))
        .collect::<Result<Vec<_>, _>>()?;
    paths.sort();
    Ok(paths)
}

fn name_of(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

/// A name, not a path that leaves the folder.
fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
        && !name.starts_with('.')
}
