//! The certificate: what was judged, by whom, with which outcome, and what nobody checked.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::report::{Story, Winner};
use crate::source::{Formulas, Setting};
use crate::store::{BaselineTime, StoredKernel};
use crate::units::{Digest, SmArch};
use crate::verdict::{Baselines, Claim, Diagnosis, Diagnostic, Resources, Score, Time};

/// Version of the certificate's form. 2 added `launches`, 3 `baselines` and `claim`, 4 `digest`,
/// 5 `loaders`.
const FORMAT: u32 = 5;

/// The oldest version that is still read.
const OLDEST_FORMAT: u32 = 2;

/// The first version that holds a hash of itself.
const SEALED_FORMAT: u32 = 4;

/// The first version that holds the hashes of the loaders.
const LOADERS_FORMAT: u32 = 5;

/// The field that holds the hash of all others.
const SEAL: &str = "digest";

/// `certificate.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// Version of this form.
    pub format: u32,
    /// Version of the program that judged.
    pub warptree: String,
    /// The task and the hash over its files.
    pub task: String,
    /// See `task`.
    pub task_digest: Digest,
    /// What judged: `sim:H200`, `cuda:0`.
    pub device: String,
    /// The GPU that is or stands for.
    pub gpu: String,
    /// What the cubin runs on.
    pub arch: SmArch,
    /// What assembled it.
    pub assembler: Option<String>,
    /// The candidate's id: a hash of its canonical PTX and launches.
    pub candidate: Option<Digest>,
    /// BLAKE3 of `kernel.ptx`.
    pub ptx: Digest,
    /// BLAKE3 of `kernel.cubin`.
    pub cubin: Digest,
    /// BLAKE3 of `source.ptx`.
    pub source: Digest,
    /// BLAKE3 of each loader, by its path in the folder: those that could be written. Absent in formats before 5.
    #[serde(default)]
    pub loaders: Option<BTreeMap<String, Digest>>,
    /// The knobs it was rendered with.
    pub setting: Setting,
    /// How it is launched: formulas over the task's sizes and the device's facts.
    pub launches: Formulas,
    /// What ptxas said.
    pub resources: Vec<Resources>,
    /// One call's time, and whether it was measured or estimated.
    pub time: Time,
    /// What speedups are over.
    pub baseline: Option<BaselineTime>,
    /// The task's baselines as measured when the run began: the library as users call it, the frontier, and
    /// what was missing. Absent where none were measured.
    #[serde(default)]
    pub baselines: Option<Baselines>,
    /// The winner measured again beside them, in fresh processes; absent where that was not done.
    #[serde(default)]
    pub claim: Option<Claim>,
    /// Correct, target instructions, speedup, audit.
    pub score: Score,
    /// Judged once more, in full and past every cache, when the search ended.
    pub confirmed: bool,
    /// Checks that were done.
    pub checked: Vec<String>,
    /// Checks that were not done.
    pub not_checked: Vec<String>,
    /// Advisories that did not reject it.
    pub warnings: Vec<Diagnostic>,
    /// What limits it.
    pub diagnosis: Option<Diagnosis>,
    /// How it was found: the search's seed and how many kernels were judged.
    pub seed: u64,
    /// See `seed`.
    pub evaluations: u64,
}

/// Whether a certificate is as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// Its content has the hash it was written with. That is no signature: whoever edits both passes.
    Whole,
    /// It was edited.
    Broken {
        /// The hash it was written with.
        written: Digest,
        /// The hash of what it says now.
        found: Digest,
    },
    /// It is from before certificates held one.
    Absent,
}

/// A file is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// Not JSON, or not the fields of one.
    #[error("it is no certificate: {0}; export again")]
    Form(#[from] serde_json::Error),
    /// It has no version, or no hashes where its version asks for them.
    #[error("it is no certificate: `{0}` is missing or not what it should be; export again")]
    Field(&'static str),
    /// Another version's.
    #[error(
        "it has format {found}, this warptree reads formats {OLDEST_FORMAT} to {FORMAT}; {}",
        if *found > u64::from(FORMAT) { "a newer warptree wrote it: update this one" } else { "export again" }
    )]
    Version {
        /// Its version.
        found: u64,
    },
}

impl Certificate {
    /// As `certificate.json` holds it, with a hash over all of it.
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        let mut value = serde_json::to_value(self)?;
        let digest = Digest::of(serde_json::to_vec(&value)?);
        if let Some(fields) = value.as_object_mut() {
            fields.insert(SEAL.to_owned(), digest.to_string().into());
        }
        serde_json::to_vec_pretty(&value)
    }

    /// Reads `certificate.json`, and whether it is as it was written. White space does not count.
    pub fn from_json(bytes: &[u8]) -> Result<(Self, Seal), CertificateError> {
        let mut value: serde_json::Value = serde_json::from_slice(bytes)?;
        let format = value.get("format").and_then(serde_json::Value::as_u64);
        let format = format.ok_or(CertificateError::Field("format"))?;
        if !(u64::from(OLDEST_FORMAT)..=u64::from(FORMAT)).contains(&format) {
            return Err(CertificateError::Version { found: format });
        }
        let written = value
            .as_object_mut()
            .and_then(|fields| fields.shift_remove(SEAL));
        let seal = match written {
            None if format < u64::from(SEALED_FORMAT) => Seal::Absent,
            written => {
                let written = written.as_ref().and_then(serde_json::Value::as_str);
                let written: Digest = written
                    .and_then(|text| text.parse().ok())
                    .ok_or(CertificateError::Field(SEAL))?;
                let found = Digest::of(serde_json::to_vec(&value)?);
                if found == written {
                    Seal::Whole
                } else {
                    Seal::Broken { written, found }
                }
            }
        };
        let certificate: Self = serde_json::from_value(value)?;
        if certificate.loaders.is_none() && format >= u64::from(LOADERS_FORMAT) {
            return Err(CertificateError::Field("loaders"));
        }
        Ok((certificate, seal))
    }

    pub(super) fn new(
        story: &Story,
        winner: &Winner,
        kernel: StoredKernel,
        launches: Formulas,
        loaders: BTreeMap<String, Digest>,
    ) -> Self {
        let config = &story.config;
        let measurement = &winner.measurement;
        Self {
            format: FORMAT,
            warptree: config.warptree.clone(),
            task: config.task.clone(),
            task_digest: config.task_digest,
            device: config.device.clone(),
            gpu: config.gpu.clone(),
            arch: config.arch,
            assembler: config.assembler.clone(),
            candidate: winner.candidate,
            ptx: kernel.ptx,
            cubin: kernel.cubin,
            source: winner.source,
            loaders: Some(loaders),
            setting: winner.setting.clone(),
            launches,
            resources: measurement.resources.clone(),
            time: measurement.time.clone(),
            baseline: config.baseline.clone(),
            baselines: config.baselines.clone(),
            claim: winner.claim.clone(),
            score: measurement.score.clone(),
            confirmed: winner.confirmed,
            checked: measurement.checked.clone(),
            not_checked: measurement.not_checked.clone(),
            warnings: measurement.warnings.clone(),
            diagnosis: measurement.diagnosis.clone(),
            seed: config.seed,
            evaluations: story.evaluations,
        }
    }
}
