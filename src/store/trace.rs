//! A **trace**: a run in one compressed file, to share and to search on again. Its first line is the
//! configuration and the sources, every further line an event. Kernels' bytes stay behind.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use super::{Event, Line, Objects, RunConfig, StoreError, StoredRun, check_format};
use crate::files;
use crate::units::Digest;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    config: RunConfig,
    sources: BTreeMap<Digest, String>,
}

/// Writes `run` as a trace; an existing file is not overwritten.
pub fn write(run: &StoredRun, path: &Path) -> Result<(), StoreError> {
    let roots = run.config.roots.iter();
    let mut wanted: Vec<Digest> = roots
        .flat_map(|root| root.earlier.iter().chain([&root.source]).copied())
        .collect();
    for line in &run.lines {
        if let Event::Expanded { children, .. } = &line.event {
            wanted.extend(children.iter().map(|child| child.source));
        }
    }
    let sources = wanted
        .into_iter()
        .map(|digest| Ok((digest, run.objects.text(digest)?)))
        .collect::<Result<_, StoreError>>()?;
    let head = Head {
        config: run.config.clone(),
        sources,
    };
    let packed = || -> std::io::Result<Vec<u8>> {
        let mut out = GzEncoder::new(Vec::new(), Compression::best());
        serde_json::to_writer(&mut out, &head)?;
        out.write_all(b"\n")?;
        for line in &run.lines {
            serde_json::to_writer(&mut out, line)?;
            out.write_all(b"\n")?;
        }
        out.finish()
    };
    packed()
        .and_then(|bytes| files::create(path, &bytes))
        .map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => StoreError::TraceExists {
                path: path.to_owned(),
            },
            _ => StoreError::io("write", path)(error),
        })
}

/// Reads a trace.
pub(super) fn read(path: &Path) -> Result<StoredRun, StoreError> {
    let file = File::open(path).map_err(StoreError::io("read", path))?;
    let damaged = |line: usize, what: String| StoreError::Damaged {
        path: path.to_owned(),
        what: format!("line {line}: {what}"),
    };
    let mut texts = BufReader::new(MultiGzDecoder::new(file))
        .lines()
        .enumerate();
    let mut next = || -> Result<Option<(usize, String)>, StoreError> {
        let Some((index, text)) = texts.next() else {
            return Ok(None);
        };
        let text = text.map_err(|error| damaged(index + 1, error.to_string()))?;
        Ok(Some((index + 1, text)))
    };
    let (_, first) = next()?.ok_or_else(|| damaged(1, "the file is empty".into()))?;
    let format = serde_json::from_str::<Versioned>(&first)
        .map_err(|error| damaged(1, format!("this is no trace of a run: {error}")))?;
    check_format(path, format.config.format)?;
    let head: Head = serde_json::from_str(&first).map_err(|error| damaged(1, error.to_string()))?;
    let mut lines: Vec<Line> = Vec::new();
    while let Some((number, text)) = next()? {
        lines
            .push(serde_json::from_str(&text).map_err(|error| damaged(number, error.to_string()))?);
    }
    let objects = head
        .sources
        .into_iter()
        .map(|(digest, text)| (digest, text.into_bytes()));
    Ok(StoredRun {
        folder: path.to_owned(),
        config: head.config,
        lines,
        objects: Objects::in_memory(objects.collect()),
    })
}

#[derive(Deserialize)]
struct Versioned {
    config: VersionedConfig,
}

#[derive(Deserialize)]
struct VersionedConfig {
    format: u32,
}
