//! What can be typed: clap types and nothing else. What it means is for `commands`.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::llm::{Api, Dollars};
use crate::propose::ProposerKind;
use crate::units::SmArch;

/// The least `--prefilter`: an estimate is not worth more than this.
const LEAST_PART: f64 = 0.05;

/// Find the fastest GPU kernel for a task by tree search over PTX, and prove that it is honest.
#[derive(Debug, Parser)]
#[command(
    name = "warptree",
    version,
    propagate_version = true,
    max_term_width = 100
)]
#[command(
    after_help = "First steps:  warptree search reduce_sum   then   warptree show runs/reduce_sum-1"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// What every command understands.
    #[command(flatten)]
    pub global: Global,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub struct Global {
    /// Folder with task folders, instead of ./tasks or those inside the program.
    #[arg(long, global = true, value_name = "DIR")]
    pub tasks: Option<PathBuf>,
    /// The ptxas to use, instead of the one found or installed.
    #[arg(long, global = true, value_name = "FILE", env = "WARPTREE_PTXAS")]
    pub ptxas: Option<PathBuf>,
    /// The Python that has PyTorch, for baselines.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "WARPTREE_PYTHON",
        default_value = "python3"
    )]
    pub python: PathBuf,
    /// Never install anything.
    #[arg(long, global = true)]
    pub offline: bool,
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    pub json: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Search for a faster kernel.
    Search(SearchArgs),
    /// Go on with a run that was stopped.
    Resume(ResumeArgs),
    /// Judge one kernel; the exit code is 0 only when it is correct.
    Eval(EvalArgs),
    /// Measure what a task is compared with: libraries, PyTorch, its own kernels. Needs a GPU.
    Baselines(BaselinesArgs),
    /// Tell the story of a run: from the seed to the winner, and what was pruned where.
    Show(ShowArgs),
    /// Write the report of a run: one HTML file that needs no network, pictures of tree and curve.
    Report(ReportArgs),
    /// Judge given sources and settings, all of them: brute force, tables, other people's kernels.
    Batch(BatchArgs),
    /// Show a recorded run as it went: the lines that the search printed, in order.
    Replay(ReplayArgs),
    /// Search every task of a suite; budget, time and the model's limits are each task's.
    Bench(BenchArgs),
    /// Compare ways to search at equal budgets.
    Compare(CompareArgs),
    /// Write the winner of a run: PTX, cubin, certificate, loaders.
    Export(ExportArgs),
    /// Verify and time an exported kernel again, on this machine; the exit code is 0 only when it is what its
    /// certificate says.
    Check(CheckArgs),
    /// Write a run as one compressed trace, to share and to search on again (recorded:FILE).
    Trace(TraceArgs),
    /// List the tasks.
    Tasks,
    /// Make a task folder from a PTX file.
    NewTask(NewTaskArgs),
    /// Look at what this machine has: tools, GPUs, permissions.
    Doctor,
    /// Put the judge on trial: planted cheats must be caught, odd but honest kernels must pass.
    Selftest(SelftestArgs),
    /// Print a shell's completion script.
    Completions {
        /// Which shell.
        shell: Shell,
    },
    /// Own a GPU on behalf of another warptree process (framed messages on stdin and stdout).
    #[command(hide = true)]
    Worker(WorkerArgs),
    /// Launch each call of a file once, under a profiler or a memory checker.
    #[command(hide = true)]
    ReplayCalls(ReplayCallsArgs),
}

/// What says in which order new sources are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Prior {
    /// Nothing: each as soon as it is proposed.
    None,
    /// The simulator's cost model.
    Sim,
}

/// Where and with what kernels are judged.
#[derive(Clone, Debug, Args)]
pub struct JudgeArgs {
    /// auto (a GPU if there is one, else sim), sim, sim:GPU, cuda:0, cuda:0,1, cuda:all, recorded:FILE.
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    pub device: String,
    /// Architecture to assemble for; the device's own by default.
    #[arg(long, value_name = "sm_NN")]
    pub arch: Option<SmArch>,
    /// Threads that assemble and judge; all cores by default. The result does not depend on it.
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Keep what ncu and compute-sanitizer write in this folder.
    #[arg(long, value_name = "DIR")]
    pub tool_logs: Option<PathBuf>,
}

/// Which model answers, and how much of it.
#[derive(Clone, Debug, Args)]
pub struct ModelArgs {
    /// Model to ask for edits: a name for --base-url, cmd:PROGRAM, dir:FOLDER, script:FILE or replay:FILE.
    /// Without it no model is called.
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// The model's server; its vendor's own by default. The key comes from the environment.
    #[arg(long, value_name = "URL")]
    pub base_url: Option<String>,
    /// The server's language; told from --base-url by default.
    #[arg(long, value_name = "API")]
    pub api: Option<Api>,
    /// Most model calls, failed ones included. This and the next two hold over the whole command: all tasks of a
    /// suite, all series of a comparison, earlier sessions.
    #[arg(long, value_name = "N", value_parser = storable())]
    pub max_calls: Option<u64>,
    /// Most tokens, input and output together.
    #[arg(long, value_name = "N", value_parser = storable())]
    pub max_tokens: Option<u64>,
    /// Most dollars, failed calls included; needs the model's price.
    #[arg(long, value_name = "DOLLARS")]
    pub max_dollars: Option<Dollars>,
    /// Prices over those inside the program (TOML; dollars for a million tokens).
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
    /// Requests a minute.
    #[arg(long, value_name = "N")]
    pub rpm: Option<NonZeroU32>,
    /// Tokens a minute.
    #[arg(long, value_name = "N")]
    pub tpm: Option<NonZeroU32>,
    /// Longest reply, in tokens, reasoning included; 32768 by default. A server that allows fewer is asked for those.
    #[arg(long, value_name = "N")]
    pub reply_tokens: Option<NonZeroU32>,
    /// Longest wait for a whole reply: 90s, 30m (the default; 24h for dir:).
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub call_timeout: Option<Duration>,
    /// Longest silence of a server in mid-call; 10m by default.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub idle_timeout: Option<Duration>,
    /// Folder with prompt templates that replace those of the same name inside the program.
    #[arg(long, value_name = "DIR")]
    pub prompts: Option<PathBuf>,
}

/// When to stop.
#[derive(Clone, Debug, Args)]
pub struct LimitArgs {
    /// Kernels to judge.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub budget: Option<u64>,
    /// Longest search time: 90s, 10m, 2h.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub time: Option<Duration>,
    /// Stop at this speedup over the denominator that is reported.
    #[arg(long, value_name = "RATIO", value_parser = positive)]
    pub target_speedup: Option<f64>,
    /// Stop after this many kernels without a better one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub plateau: Option<u64>,
}

/// `search`.
#[derive(Debug, Args)]
pub struct SearchArgs {
    /// The task, as `warptree tasks` lists it, or TASK@M=16 to time another of its bench sizes; with
    /// recorded:FILE the table's own name works too.
    pub task: String,
    /// Start from this space only, besides the seed; may be repeated. `seed` is the seed alone.
    #[arg(long, value_name = "NAME")]
    pub space: Vec<String>,
    /// Who proposes: knobs,rewrites,model.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub proposers: Option<Vec<ProposerKind>>,
    /// Learn from an earlier run: a folder or trace of another GPU, size or task that has knobs of the same
    /// names. Its best setting is tried first, its ranks count as far as they turn out to agree.
    #[arg(long, value_name = "RUN")]
    pub start_from: Vec<PathBuf>,
    /// Judge only this part of the settings that tuners choose, those that the simulator's cost model expects to be
    /// the fastest: 0.5 is every second one. For GPUs and tables of measurements.
    #[arg(long, value_name = "PART", value_parser = part)]
    pub prefilter: Option<f64>,
    /// Try new sources (rewrites, a model's edits) in the order of what the simulator's cost model expects of them
    /// beside their parents. Measured times alone decide. For GPUs and tables of measurements.
    #[arg(long, value_enum, default_value_t = Prior::None, value_name = "PRIOR")]
    pub prior: Prior,
    /// Seed of every random choice.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = storable())]
    pub seed: u64,
    /// Do not measure the task's baselines first; speedups are then over the seed.
    #[arg(long)]
    pub no_baselines: bool,
    /// Folder of the run; runs/TASK-N by default.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened options document themselves")]
    pub judge: JudgeArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened options document themselves")]
    pub model: ModelArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened options document themselves")]
    pub limits: LimitArgs,
}

/// `resume`.
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// The run's folder.
    pub dir: PathBuf,
    /// Threads that assemble and judge.
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened options document themselves")]
    pub limits: LimitArgs,
}

/// `eval`.
#[derive(Debug, Args)]
pub struct EvalArgs {
    /// The task.
    pub task: String,
    /// The source (PTX with a //@ header), or `-` for standard input.
    pub file: PathBuf,
    /// A knob's value; the defaults where not given. May be repeated.
    #[arg(long = "set", value_name = "KNOB=VALUE")]
    pub set: Vec<String>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened options document themselves")]
    pub judge: JudgeArgs,
    /// Seed of the inputs; on a GPU a secret one where it is not given.
    #[arg(long, value_name = "N", value_parser = storable())]
    pub seed: Option<u64>,
}

/// `baselines`.
#[derive(Debug, Args)]
pub struct BaselinesArgs {
    /// The task.
    pub task: String,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened options document themselves")]
    pub judge: JudgeArgs,
    /// Seed of the inputs.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = storable())]
    pub seed: u64,
}

/// `batch`.
#[derive(Debug, Args)]
pub struct BatchArgs {
    /// The task.
    pub task: String,
    /// Sources (PTX with a //@ header); without any, the task's seed and spaces.
    pub files: Vec<PathBuf>,
    /// A space of the task, besides the files; may be repeated. `seed` is the seed.
    #[arg(long, value_name = "NAME")]
    pub space: Vec<String>,
    /// Settings of each source besides its default, drawn at random; all where there are no more.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub sample: usize,
    /// Judge only part I of N, from 1/N to N/N: the parts together are the batch.
    #[arg(long, default_value = "1/1", value_name = "I/N")]
    pub shard: Shard,
    /// Seed of the draws and, on the simulator, of the inputs.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = storable())]
    pub seed: u64,
    /// Folder of the run; one that was stopped goes on.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened options document themselves")]
    pub judge: JudgeArgs,
}

/// `bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// The suite, as tasks/suites.toml lists it: l1l2l3.
    #[arg(long, value_name = "NAME")]
    pub suite: String,
    /// Only these tasks of it; the total is then over these alone.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub tasks_only: Vec<String>,
    /// Who proposes: knobs,rewrites,model.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub proposers: Option<Vec<ProposerKind>>,
    /// Kernels to judge for each task; 120 where no time is given either.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub budget: Option<u64>,
    /// Longest search time of each task: 90s, 10m, 2h.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub time: Option<Duration>,
    /// Seed of every random choice.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = storable())]
    pub seed: u64,
    /// Benchmark the model instead of searching: so many turns of repair in each trajectory, PTXBench's protocol.
    #[arg(long, value_name = "N", requires = "model", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub turns: Option<u32>,
    /// Trajectories of each task, with --turns.
    #[arg(long, value_name = "N", requires = "turns", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub trajectories: u32,
    /// Folder of the report and of the runs, a folder for each task. Finished tasks in it are kept, a half-done
    /// one goes on.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened options document themselves")]
    pub judge: JudgeArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened options document themselves")]
    pub model: ModelArgs,
}

/// A part of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Which, from 0.
    pub index: usize,
    /// Of how many.
    pub count: usize,
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once('/').and_then(|(index, count)| {
            let (index, count): (usize, usize) = (index.parse().ok()?, count.parse().ok()?);
            (1..=count).contains(&index).then_some(Self {
                index: index - 1,
                count,
            })
        });
        parts.ok_or_else(|| "write I/N with I from 1 to N: 2/4".to_owned())
    }
}

/// `show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The run's folder.
    pub dir: PathBuf,
    /// Kernels in the table.
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub top: usize,
}

/// `report`.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("written").required(true).multiple(true)))]
pub struct ReportArgs {
    /// The run's folder, or its trace (.jsonl.gz); several for --curve.
    #[arg(required = true, value_name = "DIR")]
    pub runs: Vec<PathBuf>,
    /// The report as one HTML file.
    #[arg(long, value_name = "FILE", group = "written")]
    pub html: Option<PathBuf>,
    /// Folder for tree.svg and curve.svg.
    #[arg(long, value_name = "DIR", group = "written")]
    pub svg: Option<PathBuf>,
    /// Folder for tree.png and curve.png.
    #[arg(long, value_name = "DIR", group = "written")]
    pub png: Option<PathBuf>,
    /// The best so far of all the runs against minutes of the device, in one picture (.svg, or .png).
    #[arg(long, value_name = "FILE", group = "written")]
    pub curve: Option<PathBuf>,
}

/// `replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The run's folder, or its trace (.jsonl.gz).
    pub run: PathBuf,
    /// At its own pace, this many times as fast; without it there is no waiting.
    #[arg(long, value_name = "X", value_parser = positive)]
    pub speed: Option<f64>,
}

/// `compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The task.
    pub task: String,
    /// Ways to search.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "search,knobs-only,random"
    )]
    pub methods: Vec<crate::compare::Method>,
    /// Start from this space only, besides the seed; may be repeated. `seed` is the seed alone.
    #[arg(long, value_name = "NAME")]
    pub space: Vec<String>,
    /// Kernels each series may judge; a reply without a kernel counts as one. 60 where no other budget is given.
    /// A series ends with the first budget that is used up.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub budget: Option<u64>,
    /// Tokens each series may spend.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub budget_tokens: Option<u64>,
    /// Dollars each series may spend.
    #[arg(long, value_name = "X", value_parser = positive)]
    pub budget_dollars: Option<f64>,
    /// Seconds that judges may be busy for each series: assembling, checking, timing.
    #[arg(long, value_name = "S", value_parser = positive)]
    pub gpu_seconds: Option<f64>,
    /// Answers in a row that `refine` takes before it starts afresh.
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub turns: u32,
    /// Do not measure the task's baselines first; speedups are then over the seed.
    #[arg(long)]
    pub no_baselines: bool,
    /// Also write the comparison as one HTML file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Repetitions with seeds 0, 1, …
    #[arg(long, default_value_t = 3, value_name = "K", value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: u64,
    /// Folder for the tables, and for the series; finished ones in it are kept, a half-done one goes on.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened options document themselves")]
    pub judge: JudgeArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened options document themselves")]
    pub model: ModelArgs,
}

/// `export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The run's folder, or its trace.
    pub dir: PathBuf,
    /// Folder to write.
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
}

/// `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The folder that `export` wrote.
    pub dir: PathBuf,
    /// Who judges it: auto (every GPU, else sim), sim, sim:GPU, cuda:0,1. The first judges it in full, the
    /// others time its architectures.
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    pub device: String,
    /// Architectures that its PTX must assemble for. Without it the usual ones are tried and told.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub arch: Vec<SmArch>,
    /// Least speedup, over the fastest baseline where one is measured, else over the seed.
    #[arg(long, value_name = "RATIO", value_parser = positive)]
    pub min_speedup: Option<f64>,
    /// Do not measure the task's baselines on a GPU; the speedup is then over the seed.
    #[arg(long)]
    pub no_baselines: bool,
    /// Also write the checks as JUnit XML.
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
}

/// `trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// The run's folder; several are the shards of one batch.
    #[arg(required = true, value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// File to write, ending in .jsonl.gz.
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
}

/// `selftest`.
#[derive(Debug, Args)]
pub struct SelftestArgs {
    /// Judge the planted kernels; the exit code is 1 when a cheat passes or an honest kernel does not.
    #[arg(long, required = true)]
    pub adversarial: bool,
    /// Only planted kernels whose `task/name` contains this; may be repeated.
    #[arg(long, value_name = "TEXT")]
    pub only: Vec<String>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "flattened options document themselves")]
    pub judge: JudgeArgs,
    /// Seed of the inputs; another one each time where it is not given.
    #[arg(long, value_name = "N", value_parser = storable())]
    pub seed: Option<u64>,
}

/// `new-task`.
#[derive(Debug, Args)]
pub struct NewTaskArgs {
    /// The PTX file with one kernel.
    pub from: PathBuf,
    /// Name of the task; the file's by default. The folder goes under --tasks, else ./tasks.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

/// `replay-calls`.
#[derive(Debug, Args)]
pub struct ReplayCallsArgs {
    /// The calls, as the program wrote them for itself.
    pub file: PathBuf,
    /// Where to say how far it came.
    #[arg(long, value_name = "FILE")]
    pub report: PathBuf,
}

/// `worker`.
#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// The GPU to try.
    #[arg(long, default_value_t = 0)]
    pub device: u32,
    /// Try the worker on this machine's GPU and print what works.
    #[arg(long)]
    pub selftest: bool,
}

/// The longest time that can be asked for, in seconds: a year.
const LONGEST: u64 = 365 * 24 * 3600;

/// A number that a run folder can hold: TOML has no greater ones.
fn storable() -> RangedU64ValueParser {
    RangedU64ValueParser::new().range(..=i64::MAX as u64)
}

fn duration(text: &str) -> Result<Duration, String> {
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let seconds_per_unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err("write a whole number and s, m or h: 90s, 10m, 2h".into()),
    };
    let count: u64 = digits
        .parse()
        .map_err(|_| format!("`{digits}` is no whole number"))?;
    match count.checked_mul(seconds_per_unit) {
        Some(0) => Err("a search needs more than no time".into()),
        Some(seconds @ 1..=LONGEST) => Ok(Duration::from_secs(seconds)),
        Some(_) | None => Err("that is too long: a year, 8760h, is the most".into()),
    }
}

fn part(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (LEAST_PART..1.0).contains(&value) => Ok(value),
        Ok(_) | Err(_) => Err(format!(
            "write a part of the whole, from {LEAST_PART} to less than 1, for example 0.5"
        )),
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        Ok(_) | Err(_) => Err("write a positive number, for example 1.5".into()),
    }
}
