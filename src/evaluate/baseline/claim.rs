//! The **final claim**: the winner and what it is set against, measured again in fresh processes, taking
//! turns. What the numbers allow to be said is computed here by pure functions; nothing is averaged away:
//! an interval covers every round.

mod power;

use std::cell::RefCell;

use super::files::{ProblemFiles, scratch};
use super::torch::{Library, Torch, asked};
use super::{Bench, Failure, Options, product, quartiles};
use crate::device::cuda::protocol::Checked;
use crate::device::cuda::timing::{abba, estimate, log_ratios, median, noise_floor, split};
use crate::device::cuda::{CudaDevice, Halt, ProductJob, Replays, Subject};
use crate::device::{Buffer, Device as _, Ended, Job, RigError};
use crate::evaluate::pipeline::{Pipeline, timed_buffers};
use crate::source::{Point, Source};
use crate::task::{Operation, Problem};
use crate::verdict::{
    Baselines, Claim, Duel, Interleaving, MeasuredBaseline, Ratio, Standing, Times, Variant,
    Verdict,
};

/// Fresh processes, each with inputs of another seed.
const ROUNDS: u32 = 3;
/// Pairs of replays in a round.
const PAIRS: u32 = 32;
/// Blocks of either side in a round, where the two run in processes of their own.
const BLOCKS: u32 = 8;
/// Replays in a block.
const BLOCK: u8 = 4;
/// Error allowed for an interval.
const ALPHA: f64 = 0.0125;
/// Baselines measured again, the frontier first.
const MOST_RIVALS: usize = 3;

/// Measures a winner again, against the frontier, the library as users call it, and the best of each other
/// provider, as far as `baselines` has them.
pub fn remeasure(
    pipeline: &Pipeline,
    gpu: &CudaDevice,
    options: &Options,
    (source, point): (&Source, &Point),
    baselines: &Baselines,
    tell: &dyn Fn(&str),
) -> Result<Claim, RigError> {
    let mut claim = Claim {
        gpu: gpu.gpu().name.clone(),
        rounds: ROUNDS,
        winner: None,
        duels: Vec::new(),
        noise_floor: None,
        power: None,
        flaws: Vec::new(),
        not_checked: baselines.gaps(),
    };
    let ready = match pipeline.ready(source, point)? {
        Ok(ready) => ready,
        Err(verdict) => {
            claim.flaws.push(unready(&verdict));
            return Ok(claim);
        }
    };
    let rivals = rivals(baselines);
    if rivals.is_empty() {
        claim
            .not_checked
            .push("no baseline to measure it against".to_owned());
    }
    let mut taken: Vec<Taken> = rivals.iter().map(|_| Taken::default()).collect();
    let mut alone = Taken::default();
    let mut floors = Vec::new();
    for round in 0..ROUNDS {
        tell(&format!(
            "final measurement: round {} of {ROUNDS}",
            round + 1
        ));
        gpu.restart();
        let problem = reseeded(pipeline, round)?;
        let buffers = timed_buffers(&problem);
        let job = ready.job(&buffers);
        let field = Field {
            pipeline,
            gpu,
            options,
            problem: &problem,
            buffers: &buffers,
            winner: &job,
            torch: RefCell::new(None),
        };
        let itself = match field.pairs(Subject::Kernel(&job), &mut claim.flaws) {
            Ok(itself) => itself,
            Err(Failure::Rig(error)) => return Err(error),
            Err(Failure::Missing(why)) => {
                claim.flaws.push(format!("the winner beside itself: {why}"));
                None
            }
        };
        let Some((first, second)) = itself else {
            return Ok(claim);
        };
        floors.extend(noise_floor(&first, &second, ALPHA));
        alone.rounds.push((first, second));
        for (rival, taken) in rivals.iter().zip(&mut taken) {
            if taken.lost {
                continue;
            }
            match field.against(rival, &mut claim.flaws) {
                Ok(Some(samples)) => taken.rounds.push(samples),
                Ok(None) => return Ok(claim),
                Err(Failure::Rig(error)) => return Err(error),
                Err(Failure::Missing(why)) => {
                    taken.lost = true;
                    claim
                        .not_checked
                        .push(format!("against {}: {why}", rival.title()));
                }
            }
        }
        if round == 0 {
            tell("final measurement: burst and sustained");
            let in_process = rivals
                .iter()
                .find(|rival| matches!(rival.variant, Variant::Algorithm { .. }));
            claim.power = field.power(in_process.copied(), &mut claim.not_checked)?;
        }
    }
    // the worst round's floor holds for all
    claim.noise_floor = floors.into_iter().reduce(f64::max);
    let noise = claim.noise_floor.unwrap_or(0.0);
    claim.winner = alone.times(|(a, b)| [a.as_slice(), b.as_slice()].concat());
    for (rival, taken) in rivals.iter().zip(&taken) {
        if !taken.lost {
            claim.duels.extend(taken.duel(rival, noise));
        }
    }
    Ok(claim)
}

/// The baselines worth measuring again: the frontier, the library untuned, then the fastest of each kind.
fn rivals(baselines: &Baselines) -> Vec<&MeasuredBaseline> {
    let mut correct: Vec<&MeasuredBaseline> = baselines
        .measured
        .iter()
        .filter(|one| one.correctness.is_verified())
        .collect();
    correct.sort_by(|a, b| a.time.get().total_cmp(&b.time.get()));
    let mut rivals: Vec<&MeasuredBaseline> = Vec::new();
    let named = baselines.frontier().into_iter().chain(baselines.library());
    let same =
        |a: &MeasuredBaseline, b: &MeasuredBaseline| a.name == b.name && a.variant == b.variant;
    for candidate in named.chain(correct.iter().copied().filter(|one| {
        // the fastest of its name
        correct
            .iter()
            .find(|other| other.name == one.name)
            .is_some_and(|fastest| same(fastest, one))
    })) {
        if rivals.len() < MOST_RIVALS && !rivals.iter().any(|one| same(one, candidate)) {
            rivals.push(candidate);
        }
    }
    rivals
}

/// Times of the winner and of a rival, round by round.
#[derive(Default)]
struct Taken {
    rounds: Vec<(Vec<f64>, Vec<f64>)>,
    /// It failed in a round: what came before says too little.
    lost: bool,
}

impl Taken {
    fn times(&self, side: impl Fn(&(Vec<f64>, Vec<f64>)) -> Vec<f64>) -> Option<Times> {
        let samples: Vec<f64> = self.rounds.iter().flat_map(side).collect();
        let [first, median, third] = quartiles(&samples)?;
        Some(Times {
            median,
            quartiles: (first, third),
            samples,
        })
    }

    /// What all rounds together allow to be said; `None` for too few times.
    fn duel(&self, rival: &MeasuredBaseline, noise: f64) -> Option<Duel> {
        let logs: Vec<Vec<f64>> = self
            .rounds
            .iter()
            .map(|(winner, baseline)| log_ratios(winner, baseline))
            .collect();
        let rounds: Vec<f64> = logs.iter().filter_map(|logs| median(logs)).collect();
        let pooled = estimate(&logs.concat(), ALPHA)?;
        let low = rounds.iter().copied().fold(pooled.low, f64::min);
        let high = rounds.iter().copied().fold(pooled.high, f64::max);
        let standing = if low > 0.0 && pooled.median > noise {
            Standing::Faster
        } else if high < 0.0 && pooled.median < -noise {
            Standing::Slower
        } else {
            Standing::Tie
        };
        Some(Duel {
            name: rival.name.clone(),
            variant: rival.variant,
            interleaving: interleaving(rival.variant),
            winner: self.times(|(winner, _)| winner.clone())?,
            baseline: self.times(|(_, baseline)| baseline.clone())?,
            ratio: Ratio {
                median: pooled.median.exp(),
                low: low.exp(),
                high: high.exp(),
            },
            rounds: rounds.into_iter().map(f64::exp).collect(),
            standing,
        })
    }
}

fn interleaving(variant: Variant) -> Interleaving {
    match variant {
        Variant::Eager | Variant::Compiled | Variant::Graph => Interleaving::Blocks,
        Variant::Algorithm { .. } | Variant::Kernel | Variant::Cuda => Interleaving::Pairs,
    }
}

/// One round: the winner and its inputs on a fresh worker.
struct Field<'a> {
    pipeline: &'a Pipeline,
    gpu: &'a CudaDevice,
    options: &'a Options,
    problem: &'a Problem,
    buffers: &'a [Buffer],
    winner: &'a Job<'a>,
    /// PyTorch once a round and baseline: its ways share a process.
    torch: RefCell<Option<Opened>>,
}

/// PyTorch, opened in this round for the baseline of this name.
struct Opened {
    name: String,
    torch: Torch,
    files: ProblemFiles,
    _folder: tempfile::TempDir,
}

/// Times of the winner and of the other; `None`: the winner fell, which is a flaw.
type Samples = Option<(Vec<f64>, Vec<f64>)>;

impl Field<'_> {
    fn bench<'b>(&'b self, name: &'b str) -> Bench<'b> {
        Bench {
            pipeline: self.pipeline,
            gpu: self.gpu,
            options: self.options,
            name,
        }
    }

    fn against(
        &self,
        rival: &MeasuredBaseline,
        flaws: &mut Vec<String>,
    ) -> Result<Samples, Failure> {
        let task = &self.pipeline.settings().task;
        let named = task.baselines.iter().find(|one| one.name == rival.name);
        let gone = || Failure::Missing("the task no longer names it".to_owned());
        let bench = self.bench(&rival.name);
        match (&named.ok_or_else(gone)?.operation, rival.variant) {
            (Operation::Product(multiplication), Variant::Algorithm { index, .. }) => {
                let job = self.product(&bench, multiplication, index)?;
                Ok(self.pairs(Subject::Product(&job), flaws)?)
            }
            (Operation::Torch(expression), Variant::Eager | Variant::Compiled) => {
                self.blocks(&bench, (Library::Torch, expression), rival.variant, flaws)
            }
            (Operation::Cudnn(expression), Variant::Graph) => {
                self.blocks(&bench, (Library::Cudnn, expression), rival.variant, flaws)
            }
            (Operation::Kernel(file), Variant::Kernel) => {
                let text = super::kernel::text(&bench, file)?;
                self.kernel(&text, flaws)
            }
            (Operation::Cuda(file), Variant::Cuda) => {
                let (text, _) = super::kernel::compiled(&bench, file)?;
                self.kernel(&text, flaws)
            }
            (
                Operation::Product(_)
                | Operation::Torch(_)
                | Operation::Cudnn(_)
                | Operation::Kernel(_)
                | Operation::Cuda(_),
                variant,
            ) => Err(Failure::Missing(format!(
                "the task's baseline of that name has no {variant}"
            ))),
        }
    }

    fn product<'j>(
        &'j self,
        bench: &Bench<'_>,
        multiplication: &'j crate::task::Multiplication,
        index: u32,
    ) -> Result<ProductJob<'j>, Failure> {
        let jobs = product::jobs(bench, multiplication, self.buffers)?;
        let job = jobs.into_iter().nth(index as usize);
        job.map(|(job, _)| job)
            .ok_or_else(|| Failure::Missing("cuBLASLt offers that algorithm no more".to_owned()))
    }

    fn kernel(&self, text: &str, flaws: &mut Vec<String>) -> Result<Samples, Failure> {
        let missing = |error: &dyn std::fmt::Display| Failure::Missing(error.to_string());
        let source = Source::parse(text).map_err(|error| missing(&error))?;
        let point = source
            .space()
            .default_point()
            .map_err(|error| missing(&error))?;
        match self.pipeline.ready(&source, &point)? {
            Ok(ready) => Ok(self.pairs(Subject::Kernel(&ready.job(self.buffers)), flaws)?),
            Err(verdict) => Err(Failure::Missing(unready(&verdict))),
        }
    }

    /// A B B A in the worker.
    fn pairs(&self, other: Subject<'_>, flaws: &mut Vec<String>) -> Result<Samples, Failure> {
        let subjects = [Subject::Kernel(self.winner), other];
        let replayed = self.gpu.replay_with(&subjects, |replays| {
            let (samples, _) = replays.block(abba(0, PAIRS))?;
            Ok(split(&samples))
        })?;
        self.conclude(replayed, flaws)
    }

    /// A B B A in blocks: the winner in the worker, the expression in its own process.
    fn blocks(
        &self,
        bench: &Bench<'_>,
        (library, expression): (Library, &str),
        variant: Variant,
        flaws: &mut Vec<String>,
    ) -> Result<Samples, Failure> {
        let missing = |error: super::TorchError| Failure::Missing(error.to_string());
        let earlier = self.torch.take().filter(|one| one.name == bench.name);
        let mut opened = match earlier {
            Some(opened) => opened,
            None => self.open_torch(bench, library, expression)?,
        };
        let torch = &mut opened.torch;
        torch
            .prepare(variant, &opened.files, self.gpu.gpu().l2)
            .map_err(missing)?;
        torch.warm_up().map_err(missing)?;
        let mut lost = None;
        let subjects = [Subject::Kernel(self.winner)];
        let replayed = self.gpu.replay_with(&subjects, |replays| {
            let (mut winner, mut baseline) = (Vec::new(), Vec::new());
            for block in 0..BLOCKS {
                let own = |replays: &mut Replays<'_, '_, '_>| -> Result<Option<f64>, Halt> {
                    let (samples, _) = replays.block(vec![0; usize::from(BLOCK)])?;
                    Ok(median(&samples))
                };
                let first = if block % 2 == 0 { own(replays)? } else { None };
                match torch.sample(BLOCK.into()) {
                    Ok(samples) => baseline.extend(median(&samples)),
                    Err(error) => {
                        lost = Some(error);
                        break;
                    }
                }
                winner.extend(match first {
                    Some(first) => Some(first),
                    None => own(replays)?,
                });
            }
            Ok((winner, baseline))
        })?;
        match lost {
            Some(error) => Err(missing(error)),
            None => {
                self.torch.replace(Some(opened));
                self.conclude(replayed, flaws)
            }
        }
    }

    fn open_torch(
        &self,
        bench: &Bench<'_>,
        library: Library,
        expression: &str,
    ) -> Result<Opened, Failure> {
        let folder = scratch(self.problem).map_err(Failure::Missing)?;
        let files =
            ProblemFiles::write(self.problem, folder.path(), "final").map_err(Failure::Missing)?;
        let torch = Torch::open(&asked(bench, library, expression), folder.path())
            .map_err(|error| Failure::Missing(error.to_string()))?;
        Ok(Opened {
            name: bench.name.to_owned(),
            torch,
            files,
            _folder: folder,
        })
    }

    /// Files what the checks found; a winner that fell is a flaw, a rival that fell is missing.
    fn conclude<T>(
        &self,
        replayed: Result<(T, Vec<Checked>), (u8, Ended)>,
        flaws: &mut Vec<String>,
    ) -> Result<Option<T>, Failure> {
        match replayed {
            Ok((value, checked)) => {
                let allowed = &self.pipeline.settings().task.nondeterministic;
                if let Some(winner) = checked.first() {
                    for flaw in found(winner, allowed) {
                        if !flaws.contains(&flaw) {
                            flaws.push(flaw);
                        }
                    }
                }
                Ok(Some(value))
            }
            Err((0, ended)) => {
                flaws.push(format!("the winner {}", words(&ended)));
                Ok(None)
            }
            Err((_, ended)) => Err(Failure::Missing(format!("it {}", words(&ended)))),
        }
    }
}

/// What the checks of timed calls found, less what the task allows.
fn found(checked: &Checked, allowed: &[String]) -> Vec<String> {
    let unsteady = checked
        .unsteady
        .iter()
        .filter(|name| !allowed.contains(name))
        .map(|name| format!("timed calls left another `{name}` than untimed ones"));
    unsteady.chain(checked.violations.iter().cloned()).collect()
}

/// The timed problem with inputs of another seed.
fn reseeded(pipeline: &Pipeline, round: u32) -> Result<Problem, RigError> {
    let timed = pipeline.timed_problem();
    let seed = timed.seed.wrapping_add(u64::from(round));
    Problem::new(&timed.task, &timed.size, timed.case, seed).map_err(|error| RigError::Reference {
        task: timed.task.name.clone(),
        message: error.to_string(),
    })
}

fn unready(verdict: &Verdict) -> String {
    let reason = verdict.reason().unwrap_or_default();
    format!("{}: {reason}", verdict.stage())
}

fn words(ended: &Ended) -> String {
    let first = |diagnostics: &[crate::verdict::Diagnostic]| {
        diagnostics
            .first()
            .map_or_else(String::new, |one| format!(": {}", one.message))
    };
    match ended {
        Ended::Completed => "completed".to_owned(),
        Ended::Faulted(diagnostics) => format!("faulted{}", first(diagnostics)),
        Ended::Hung(diagnostics) => format!("hung{}", first(diagnostics)),
        Ended::Refused(message) => format!("was refused: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Nanos;
    use crate::verdict::{Correctness, MissingBaseline};

    fn baseline(name: &str, variant: Variant, ns: f64, right: bool) -> MeasuredBaseline {
        let time = Nanos::new(ns).expect("positive");
        MeasuredBaseline {
            name: name.to_owned(),
            variant,
            time,
            quartiles: (time, time),
            samples: vec![ns],
            correctness: if right {
                Correctness::Verified {
                    on: "smoke".to_owned(),
                }
            } else {
                Correctness::Wrong {
                    why: "half of it".to_owned(),
                }
            },
            notes: Vec::new(),
        }
    }

    /// Three rounds of pairs in which the baseline takes `ratio` times as long, each round with a bias of
    /// its own.
    fn taken(ratio: f64, bias: [f64; 3]) -> Taken {
        let rounds = bias.map(|bias| {
            (0..32)
                .map(|pair| {
                    let drift = 1000.0 + f64::from(pair);
                    let jitter = 1.0 + f64::from(pair * 7 % 5) * 1e-4;
                    (drift, drift * ratio * bias * jitter)
                })
                .unzip()
        });
        Taken {
            rounds: rounds.to_vec(),
            lost: false,
        }
    }

    #[test]
    fn rivals_are_the_frontier_the_library_and_the_best_of_each_name() {
        let algorithm = |index| Variant::Algorithm { index, of: 3 };
        let baselines = Baselines {
            measured: vec![
                baseline("lib", algorithm(0), 100.0, true),
                baseline("lib", algorithm(1), 90.0, true),
                baseline("lib", algorithm(2), 10.0, false),
                baseline("torch", Variant::Eager, 101.0, true),
                baseline("torch", Variant::Compiled, 99.0, true),
            ],
            missing: vec![MissingBaseline {
                name: "mine".to_owned(),
                reason: "gone".to_owned(),
            }],
        };
        let titles: Vec<String> = rivals(&baselines).iter().map(|one| one.title()).collect();
        assert_eq!(
            titles,
            [
                "lib (algorithm 2 of 3)",
                "lib (default algorithm)",
                "torch (torch.compile)"
            ]
        );
        assert!(rivals(&Baselines::default()).is_empty());
    }

    #[test]
    fn a_win_is_claimed_only_beyond_noise_and_in_every_round() {
        let rival = baseline("lib", Variant::Eager, 1000.0, true);
        let duel = |ratio, bias, noise| {
            taken(ratio, bias)
                .duel(&rival, noise)
                .expect("enough pairs")
        };
        let clear = duel(1.05, [1.0, 1.001, 0.999], 0.002);
        assert_eq!(clear.standing, Standing::Faster);
        assert_eq!(clear.interleaving, Interleaving::Blocks);
        assert!(
            (clear.ratio.median - 1.05).abs() < 2e-3,
            "{:?}",
            clear.ratio
        );
        assert!(clear.ratio.low <= clear.rounds[2] && clear.ratio.high >= clear.rounds[1]);
        assert_eq!(duel(0.95, [1.0; 3], 0.002).standing, Standing::Slower);
        assert_eq!(duel(1.05, [1.0; 3], 0.06).standing, Standing::Tie, "noise");
        let split = duel(1.002, [1.0, 1.0, 0.99], 0.0);
        assert_eq!(split.standing, Standing::Tie, "a round says otherwise");
        assert!(split.ratio.low < 1.0);
        let few = Taken {
            rounds: vec![(vec![1.0; 3], vec![2.0; 3])],
            lost: false,
        };
        assert!(
            few.duel(&rival, 0.0).is_none(),
            "three pairs allow no interval"
        );
    }

    #[test]
    fn what_timed_calls_left_is_a_flaw_unless_the_task_allows_it() {
        let checked = Checked {
            unsteady: vec!["out".to_owned(), "lse".to_owned()],
            violations: vec!["`x` is read only and was modified".to_owned()],
            ..Checked::default()
        };
        let flaws = found(&checked, &["out".to_owned()]);
        assert_eq!(flaws.len(), 2);
        assert!(flaws[0].contains("`lse`") && flaws[1].contains("`x`"));
        assert!(found(&Checked::default(), &[]).is_empty());
    }
}
