//! Inputs and outputs as files, so that another process works on the very bytes that candidates get.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::expr::Value;
use crate::source::DType;
use crate::task::{Problem, Role};

/// A problem's buffers must not need more than this.
const MOST_BYTES: u64 = 24 << 30;

/// Written at once.
const PIECE: usize = 8 << 20;

/// A problem as the other process is told it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ProblemFiles {
    buffers: Vec<BufferFile>,
    scalars: serde_json::Map<String, serde_json::Value>,
}

#[derive(Clone, Debug, Serialize)]
struct BufferFile {
    name: String,
    role: Role,
    dtype: DType,
    shape: Vec<u64>,
    bytes: u64,
    file: PathBuf,
}

/// A scratch folder with room for a problem's buffers: in memory where that has room.
pub(super) fn scratch(problem: &Problem) -> Result<tempfile::TempDir, String> {
    let bytes: u64 = problem.buffers.iter().map(|buffer| buffer.bytes.0).sum();
    if bytes > MOST_BYTES {
        return Err(format!(
            "its buffers of {} are too large to hand to another process",
            crate::units::Bytes(bytes)
        ));
    }
    let in_memory = Path::new("/dev/shm");
    let folder = if room(in_memory) > 2 * bytes {
        in_memory.to_owned()
    } else {
        std::env::temp_dir()
    };
    if room(&folder) < bytes {
        return Err(format!(
            "{} has no room for {} of inputs and outputs; set TMPDIR to a folder that has",
            folder.display(),
            crate::units::Bytes(bytes)
        ));
    }
    tempfile::Builder::new()
        .prefix("warptree-baseline-")
        .tempdir_in(&folder)
        .map_err(|error| format!("cannot make a folder in {}: {error}", folder.display()))
}

impl ProblemFiles {
    /// Writes every input into `folder`; `label` tells problems apart.
    pub(super) fn write(problem: &Problem, folder: &Path, label: &str) -> Result<Self, String> {
        let mut buffers = Vec::new();
        for buffer in &problem.buffers {
            let file = folder.join(format!("{label}-{}", buffer.name));
            if let Some(fill) = problem.generator(&buffer.name) {
                write(&file, buffer.bytes.0, &*fill)
                    .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
            }
            buffers.push(BufferFile {
                name: buffer.name.clone(),
                role: buffer.role,
                dtype: buffer.dtype,
                shape: buffer.shape.clone(),
                bytes: buffer.bytes.0,
                file,
            });
        }
        let scalars = problem
            .names()
            .into_iter()
            .map(|(name, value)| {
                let value = match value {
                    Value::Int(value) => value.into(),
                    Value::Float(value) => value.into(),
                    Value::Text(text) => text.to_string().into(),
                };
                (name, value)
            })
            .collect();
        Ok(Self { buffers, scalars })
    }

    /// Reads what the other process wrote to the outputs' files, and removes them.
    pub(super) fn read_outputs(&self) -> Result<Vec<(String, Vec<u8>)>, String> {
        let outputs = self.buffers.iter().filter(|one| one.role == Role::Output);
        outputs
            .map(|one| {
                let bytes = std::fs::read(&one.file)
                    .map_err(|error| format!("it wrote no `{}`: {error}", one.name))?;
                // the next output must be written, not found
                std::fs::remove_file(&one.file)
                    .map_err(|error| format!("cannot remove {}: {error}", one.file.display()))?;
                Ok((one.name.clone(), bytes))
            })
            .collect()
    }
}

fn write(
    path: &Path,
    bytes: u64,
    fill: &(dyn Fn(u64, &mut [u8]) + Send + Sync),
) -> std::io::Result<()> {
    let file = File::create(path)?;
    file.set_len(bytes)?;
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get().min(16)) as u64;
    std::thread::scope(|scope| {
        let written: Vec<_> = (0..threads)
            .map(|thread| {
                let file = &file;
                scope.spawn(move || -> std::io::Result<()> {
                    let mut piece = vec![0; PIECE.min(bytes as usize)];
                    let mut at = thread * PIECE as u64;
                    while at < bytes {
                        let length = (bytes - at).min(PIECE as u64) as usize;
                        fill(at, &mut piece[..length]);
                        file.write_all_at(&piece[..length], at)?;
                        at += threads * PIECE as u64;
                    }
                    Ok(())
                })
            })
            .collect();
        written.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}

fn room(folder: &Path) -> u64 {
    rustix::fs::statvfs(folder).map_or(0, |disk| disk.f_bavail * disk.f_frsize)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::task::Catalogue;

    #[test]
    fn files_hold_the_bytes_that_candidates_get() {
        let catalogue = Catalogue::open(None).expect("the tasks are here");
        let task = Arc::new(catalogue.task("transpose").expect("it loads"));
        let problem = Problem::new(&task, &task.sizes[0], task.cases[0], 3).expect("a problem");
        let folder = scratch(&problem).expect("there is room");
        let files = ProblemFiles::write(&problem, folder.path(), "smoke").expect("written");
        let x = std::fs::read(folder.path().join("smoke-x")).expect("it is there");
        assert_eq!(Some(x), problem.input_bytes("x"));
        assert!(files.read_outputs().is_err(), "no output was written");
        std::fs::write(folder.path().join("smoke-out"), [1, 2]).expect("written");
        let outputs = files.read_outputs().expect("it is there");
        assert_eq!(outputs, [("out".to_owned(), vec![1, 2])]);
        assert!(files.read_outputs().is_err(), "an output is read once");
        let told = serde_json::to_value(&files).expect("plain data");
        assert_eq!(told["buffers"][0]["role"], "input");
        assert_eq!(told["buffers"][0]["dtype"], "f32");
        assert_eq!(told["scalars"]["rows"], 64);
    }
}
