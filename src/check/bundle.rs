//! The exported folder: whether its files are what the certificate says, and whether the source still gives
//! the kernel. It reads files and runs none of them.

use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path};

use super::{Check, Outcome};
use crate::export::{Certificate, Seal};
use crate::source::{Candidate, Point, Source};
use crate::units::{Bytes, Digest};

/// What an export wrote, as it lies there.
pub struct Bundle {
    /// What was certified.
    pub certificate: Certificate,
    /// `kernel.ptx`, where it is text.
    pub ptx: Option<String>,
    /// `kernel.cubin`.
    pub cubin: Option<Vec<u8>>,
    /// The source and the setting that give the kernel: only where every file is what was certified.
    pub intact: Option<(Source, Point)>,
}

impl Bundle {
    /// Reads `folder` and tells every file's check; `None` where there is no certificate to go by.
    pub fn read(folder: &Path, checks: &mut Vec<Check>) -> Option<Self> {
        let certificate = match certificate(folder) {
            Ok((certificate, check)) => {
                checks.push(check);
                certificate
            }
            Err(why) => {
                checks.push(Check::required("certificate", Outcome::Fail, why));
                return None;
            }
        };
        let mut file = |name: &str, certified: Digest| {
            let read = fs::read(folder.join(name));
            checks.push(file_check(name, &read, certified));
            read.ok()
        };
        let ptx = file("kernel.ptx", certificate.ptx);
        let cubin = file("kernel.cubin", certificate.cubin);
        let source = file("source.ptx", certificate.source);
        checks.extend(loaders(folder, &certificate));
        let ptx = ptx.and_then(|bytes| String::from_utf8(bytes).ok());
        let source = source.and_then(|bytes| String::from_utf8(bytes).ok());
        let rendered = match (&source, &ptx) {
            (Some(source), Some(ptx)) => match rendered(source, ptx, &certificate) {
                Ok(rendered) => {
                    let detail = "source.ptx renders to kernel.ptx with the certified setting; \
                                  candidate and launches are those certified";
                    checks.push(Check::required("source", Outcome::Pass, detail));
                    Some(rendered)
                }
                Err(why) => {
                    checks.push(Check::required("source", Outcome::Fail, why));
                    None
                }
            },
            (None, _) | (_, None) => {
                let why = "source.ptx and kernel.ptx are not both here as text";
                checks.push(Check::required("source", Outcome::NotDone, why));
                None
            }
        };
        let whole = checks
            .iter()
            .all(|check| check.outcome == Outcome::Pass || !check.required);
        Some(Self {
            certificate,
            ptx,
            cubin,
            intact: rendered.filter(|_| whole),
        })
    }
}

fn certificate(folder: &Path) -> Result<(Certificate, Check), String> {
    let path = folder.join("certificate.json");
    let bytes = fs::read(&path).map_err(|error| absent("certificate.json", &error))?;
    let (certificate, seal) =
        Certificate::from_json(&bytes).map_err(|error| format!("certificate.json: {error}"))?;
    let format = certificate.format;
    let check = match seal {
        Seal::Whole => Check::required(
            "certificate",
            Outcome::Pass,
            format!(
                "format {format}, and its content has the hash it was written with (no signature: who edits \
                 both is caught by the checks below, not by this one)"
            ),
        ),
        Seal::Broken { written, found } => Check::required(
            "certificate",
            Outcome::Fail,
            format!(
                "it was edited: its content hashes to {}, it was written with {}; export again",
                found.short(),
                written.short()
            ),
        ),
        Seal::Absent => Check::required(
            "certificate",
            Outcome::Pass,
            format!("format {format}; certificates of that time hold no hash of themselves"),
        ),
    };
    Ok((certificate, check))
}

fn file_check(name: &str, read: &std::io::Result<Vec<u8>>, certified: Digest) -> Check {
    let bytes = match read {
        Ok(bytes) => bytes,
        Err(error) => return Check::required(name, Outcome::Fail, absent(name, error)),
    };
    let found = Digest::of(bytes);
    if found == certified {
        let size = Bytes(bytes.len() as u64);
        let detail = format!("as certified, {size}, BLAKE3 {}", found.short());
        return Check::required(name, Outcome::Pass, detail);
    }
    let detail = format!(
        "it is not the file that was certified: it hashes to {}, the certificate says {}; it was changed \
         or comes from another export; export again",
        found.short(),
        certified.short()
    );
    Check::required(name, Outcome::Fail, detail)
}

/// The loaders that are here. Whoever has no use for one may leave it out; one that is here is what was written.
fn loaders(folder: &Path, certificate: &Certificate) -> Option<Check> {
    let Some(certified) = &certificate.loaders else {
        let detail = format!(
            "their hashes are not recorded in format {}: whether they were edited is not known; an export by \
             this warptree records them",
            certificate.format
        );
        return Some(Check::told("loaders", Outcome::NotDone, detail));
    };
    let mut whole = Vec::new();
    let mut left_out = Vec::new();
    let mut wrong = Vec::new();
    for (name, certified) in certified {
        let mut parts = Path::new(name).components();
        if !parts.all(|part| matches!(part, Component::Normal(_))) {
            wrong.push(format!("{name} is no file of this folder"));
            continue;
        }
        match fs::read(folder.join(name)) {
            Ok(bytes) if Digest::of(&bytes) == *certified => whole.push(name.as_str()),
            Ok(_) => wrong.push(format!("{name} is not the file that was certified")),
            Err(error) if error.kind() == ErrorKind::NotFound => left_out.push(name.as_str()),
            Err(error) => wrong.push(format!("{name} cannot be read: {error}")),
        }
    }
    let (outcome, mut detail) = match (whole.is_empty(), wrong.is_empty()) {
        (_, false) => (Outcome::Fail, format!("{}; export again", wrong.join(", "))),
        (false, true) => (Outcome::Pass, format!("as certified: {}", whole.join(", "))),
        (true, true) => return None,
    };
    if !left_out.is_empty() {
        detail.push_str(&format!("; not here: {}", left_out.join(", ")));
    }
    Some(Check::required("loaders", outcome, detail))
}

fn absent(name: &str, error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => format!("{name} is missing; an export writes it, export again"),
        _ => format!("{name} cannot be read: {error}"),
    }
}

/// The source and the point that give the certified kernel, or the first thing that differs.
fn rendered(source: &str, ptx: &str, certificate: &Certificate) -> Result<(Source, Point), String> {
    let source = Source::parse(source).map_err(|error| format!("source.ptx: {error}"))?;
    let point = source
        .space()
        .point(&certificate.setting)
        .map_err(|error| format!("the certified setting does not fit source.ptx: {error}"))?;
    let candidate = source
        .render(&point)
        .map_err(|error| format!("source.ptx: {error}"))?;
    same(&candidate, ptx, certificate)?;
    Ok((source, point))
}

fn same(candidate: &Candidate, ptx: &str, certificate: &Certificate) -> Result<(), String> {
    if *candidate.ptx != *ptx {
        let mut lines = candidate.ptx.lines().zip(ptx.lines());
        let common = lines.position(|(ours, theirs)| ours != theirs);
        let line =
            1 + common.unwrap_or_else(|| candidate.ptx.lines().count().min(ptx.lines().count()));
        return Err(format!(
            "source.ptx renders to another text than kernel.ptx; line {line} of it is the first to differ"
        ));
    }
    if certificate.candidate != Some(candidate.id()) {
        return Err(format!(
            "source.ptx gives candidate {}, the certificate is about {}",
            candidate.id().short(),
            certificate
                .candidate
                .map_or_else(|| "none".to_owned(), |id| id.short())
        ));
    }
    if certificate.launches != candidate.formulas() {
        return Err(
            "the certificate's launches are not those of source.ptx: a loader that follows them would \
             launch another grid"
                .to_owned(),
        );
    }
    Ok(())
}
