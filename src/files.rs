//! Files of results as they come to lie on disk: written whole or not at all, or grown line by line; and files of
//! users as text. It knows nothing of what they hold.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde::Serialize;
use tempfile::NamedTempFile;

/// What a user's file says, without the byte order mark that editors put before the first line. `Err`: the line of
/// the first byte that is no UTF-8 text.
pub(crate) fn text(bytes: Vec<u8>) -> Result<String, usize> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        1 + before.iter().filter(|&&byte| byte == b'\n').count()
    })?;
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

/// Writes a file whole, in the place of what stood there; its folder is made where it is not there yet. Once this
/// returns, a power cut does not take it away.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_beside(path, bytes)?.persist(path)?;
    Ok(())
}

/// As [`replace`], but a file that stands there already is an error.
pub(crate) fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_beside(path, bytes)?.persist_noclobber(path)?;
    Ok(())
}

fn write_beside(path: &Path, bytes: &[u8]) -> io::Result<NamedTempFile> {
    let folder = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    // readable as any other file is: the usual mask applies
    let mut file = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_data()?;
    Ok(file)
}

/// A file of JSON lines that grows, and that no other process can open so meanwhile. A line counts once its
/// newline is there: one that was cut off, because its writer died, is overwritten.
#[derive(Debug)]
pub(crate) struct Lines(File);

impl Lines {
    /// Opens or makes it, and hands back the lines that it holds.
    pub(crate) fn open(path: &Path) -> io::Result<(Self, Vec<u8>)> {
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other("another warptree process is writing it"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let whole = whole_lines(&bytes).len();
        bytes.truncate(whole);
        file.set_len(whole as u64)?;
        Ok((Self(file), bytes))
    }

    /// Adds a line; it is in the kernel's hands when this returns, on disk after [`Lines::sync`].
    pub(crate) fn append(&mut self, line: &impl Serialize) -> io::Result<()> {
        append(&mut self.0, line)
    }

    /// Forces everything to disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

/// Adds a JSON line to a file, in one go.
pub(crate) fn append(file: &mut File, line: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    file.write_all(&bytes)
}

/// What counts of a file of lines: all up to the last newline.
pub(crate) fn whole_lines(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte == b'\n');
    &bytes[..end.map_or(0, |end| end + 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_off_is_overwritten_even_within_a_letter() {
        let scratch = tempfile::tempdir().expect("scratch");
        let path = scratch.path().join("lines");
        let torn = &"1\n2\n\"µ".as_bytes()[..6];
        fs::write(&path, torn).expect("writes");
        let (mut lines, whole) = Lines::open(&path).expect("opens");
        assert_eq!(whole, b"1\n2\n");
        assert!(Lines::open(&path).is_err(), "it is being written");
        lines.append(&"three").expect("appends");
        drop(lines);
        let (_, whole) = Lines::open(&path).expect("opens again");
        assert_eq!(whole, b"1\n2\n\"three\"\n");
    }

    #[test]
    fn a_file_that_stands_there_is_replaced_or_kept_as_asked() {
        let scratch = tempfile::tempdir().expect("scratch");
        let path = scratch.path().join("new/file");
        create(&path, b"first").expect("makes its folder");
        let again = create(&path, b"second").expect_err("it stands there");
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        replace(&path, b"third").expect("replaces");
        assert_eq!(fs::read(&path).expect("reads"), b"third");
        let plain = scratch.path().join("plain");
        fs::write(&plain, b"").expect("writes");
        let mode = |path: &Path| fs::metadata(path).expect("is there").permissions().mode();
        assert_eq!(mode(&path), mode(&plain), "who may read it");
    }
}
