//! `run.toml`: everything needed to run the same search again, and to notice that something changed.

use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::llm::{Api, Dollars};
use crate::propose::ProposerKind;
use crate::search::{NodeId, SearchParams};
use crate::source::Setting;
use crate::units::{Digest, Nanos, SmArch};
use crate::verdict::Baselines;

/// What a run was asked to do and with what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// Version of the folder's format.
    pub format: u32,
    /// Version of the program that made it.
    pub warptree: String,
    /// The task's name.
    pub task: String,
    /// Hash over the task's files; a change is told, never ignored.
    pub task_digest: Digest,
    /// Folder the tasks came from; absent: those inside the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks_dir: Option<PathBuf>,
    /// `sim`, `cuda:0` or `recorded:FILE`: what judged.
    pub device: String,
    /// The GPU it is, stands for, or was recorded on.
    pub gpu: String,
    /// What the kernels are assembled for.
    pub arch: SmArch,
    /// ptxas's version line; absent for recorded runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assembler: Option<String>,
    /// Proposers, in the order given.
    pub proposers: Vec<ProposerKind>,
    /// The model, if one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelConfig>,
    /// Seed of the search; inputs for verification come from it too.
    pub seed: u64,
    /// What speedups are over: the frontier, or the seed where none was measured; absent where nothing gave
    /// a time (a table, a seed that failed).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<BaselineTime>,
    /// The task's baselines as measured when the run began; absent where they were not. Not in format 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub baselines: Option<Baselines>,
    /// The engine's numbers, stop rules among them.
    pub search: SearchParams,
    /// The sources under the root, in order.
    pub roots: Vec<RootConfig>,
}

impl RunConfig {
    /// Whether every setting was given beforehand: nothing proposes.
    pub fn is_batch(&self) -> bool {
        self.proposers.is_empty()
    }
}

/// Which model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// As given to `--model`.
    pub name: String,
    /// As given to `--base-url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Hard limit on calls, failed ones included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<u64>,
    /// Hard limit on tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Hard limit on dollars. This and what follows: not in formats before 3.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_dollars: Option<Dollars>,
    /// File of prices.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub prices: Option<PathBuf>,
    /// The server's language, where it was named.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub api: Option<Api>,
    /// Requests a minute.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rpm: Option<NonZeroU32>,
    /// Tokens a minute.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tpm: Option<NonZeroU32>,
    /// Longest reply, tokens. Not in formats before 5.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reply_tokens: Option<NonZeroU32>,
    /// Longest wait for a reply, seconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub call_timeout_s: Option<u64>,
    /// Longest silence in mid-call, seconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub idle_timeout_s: Option<u64>,
    /// Folder of prompt templates.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub prompts: Option<PathBuf>,
}

/// What speedups are over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BaselineTime {
    /// What it is: `seed`, `torch.sum`.
    pub name: String,
    /// Its time on the run's device.
    pub time: Nanos,
}

/// A source under the root.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootConfig {
    /// Its node.
    pub node: NodeId,
    /// `seed`, or the space's name.
    pub label: String,
    /// Its text, in the object store.
    pub source: Digest,
    /// Settings to try first after its default, from an earlier run. Not in formats before 4.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub settings: Vec<Setting>,
    /// What earlier runs judged of it, one by one, in the object store. Not in formats before 5.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub earlier: Vec<Digest>,
}
