//! Content-addressed files of a run: sources, renderings, cubins. Written whole or not at all.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::StoreError;
use crate::files;
use crate::units::Digest;

/// The folder `objects/` of a run, or what a trace brought of it.
#[derive(Clone, Debug)]
pub enum Objects {
    /// On disk.
    Folder(PathBuf),
    /// Read only.
    Memory(BTreeMap<Digest, Vec<u8>>),
}

impl Objects {
    /// Opens or makes the folder.
    pub fn open(folder: PathBuf) -> Result<Self, StoreError> {
        fs::create_dir_all(&folder).map_err(StoreError::io("create", &folder))?;
        Ok(Self::Folder(folder))
    }

    /// Objects that a trace brought.
    pub(super) fn in_memory(objects: BTreeMap<Digest, Vec<u8>>) -> Self {
        Self::Memory(objects)
    }

    /// Stores `bytes` under their hash; storing the same bytes again is free.
    pub fn put(&self, bytes: &[u8]) -> Result<Digest, StoreError> {
        let digest = Digest::of(bytes);
        let folder = match self {
            Self::Folder(folder) => folder,
            Self::Memory(_) => return Err(StoreError::ReadOnly),
        };
        let path = folder.join(digest.to_string());
        if path.exists() {
            return Ok(digest);
        }
        files::replace(&path, bytes).map_err(StoreError::io("write", &path))?;
        Ok(digest)
    }

    /// Reads an object and checks that it is what its name says.
    pub fn get(&self, digest: Digest) -> Result<Vec<u8>, StoreError> {
        let (path, bytes) = match self {
            Self::Folder(folder) => {
                let path = folder.join(digest.to_string());
                let bytes = fs::read(&path).map_err(StoreError::io("read", &path))?;
                (path, bytes)
            }
            Self::Memory(objects) => {
                let bytes = objects
                    .get(&digest)
                    .ok_or(StoreError::LeftBehind { digest })?;
                (PathBuf::from(digest.to_string()), bytes.clone())
            }
        };
        if Digest::of(&bytes) != digest {
            return Err(StoreError::Damaged {
                path,
                what: "its content does not match its hash; the disk or an editor changed it"
                    .into(),
            });
        }
        Ok(bytes)
    }

    /// Reads an object that is text.
    pub fn text(&self, digest: Digest) -> Result<String, StoreError> {
        String::from_utf8(self.get(digest)?).map_err(|_| StoreError::Damaged {
            path: PathBuf::from(digest.to_string()),
            what: "it should be text but is not UTF-8".into(),
        })
    }
}
